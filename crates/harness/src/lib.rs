//! The real engine, client, queue, journal and recovery in a simulated world: a paused clock, a disk that loses and
//! tears what was not synced, a Proxmox VE in the same process. One seed is one run.

mod operator;
mod rig;
mod wire;

pub use operator::{Operator, statement};
pub use rig::{Rig, Seeded};
pub use wire::Wire;
