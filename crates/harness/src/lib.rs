//! The real engine, client, queue, journal and recovery in a simulated world: a paused clock, a disk that loses and
//! tears what was not synced, a Proxmox VE in the same process. One seed is one run.

pub mod script;

mod call;
mod denials;
mod desk;
mod dice;
mod end;
mod history;
mod office;
mod operator;
mod oracle;
mod people;
mod rig;
mod run;
mod scene;
mod weather;
mod wire;

pub use operator::{Operator, statement};
pub use oracle::Oracle;
pub use rig::{Rig, Seeded};
pub use run::{Outcome, run, run_told};
pub use wire::{Panics, Twin, Wire};
