//! The real engine, client, queue, journal and recovery in a simulated world: a paused clock, a disk that loses and
//! tears what was not synced, a Proxmox VE in the same process. One seed is one run.

pub mod script;

mod agent_driver;
mod call;
mod cluster_story;
mod death;
mod denials;
mod end;
mod faults;
mod forged_document;
mod history;
mod last_removals;
mod leftovers;
mod linked;
mod model_hub;
mod newcomers;
mod operator;
mod oracle;
mod people;
mod rig;
mod run;
mod scene;
mod signers;
mod sim_cluster_files;
mod sim_exchange;
mod situations;
mod step_ambush;
mod storage_story;

pub use operator::{Operator, statement};
pub use oracle::Oracle;
pub use rig::{Rig, SeededAmbient};
pub use run::{RunOutcome, run, run_told};
pub use sim_cluster_files::SimClusterFiles;
pub use sim_exchange::{PanicPoint, SimExchange, TwinRequest};
pub use situations::{ReachedSituations, SEEDS_THAT_REACH_ALL};
