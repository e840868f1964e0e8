//! evenkeel decides here: pure functions over values.
//!
//! ```text
//!   desired files ──> desired ─┐
//!                              ├──> plan ──> classify ──> (agent: queue, gate, execute, journal)
//!   PVE's answers ──> actual ──┘
//! ```
//!
//! Both sides become `value`s in normal form by the one `registry` of keys, so that PVE's round-trip
//! quirks never read as drift. `operation`, `lane` and `recover` are the state machines the agent
//! drives. There is no clock, no file, no network, no randomness and no environment in this crate;
//! clippy refuses them.

pub mod action_registry;
pub mod active_tasks;
pub mod actual;
pub mod allocation;
pub mod approval;
pub mod back_off;
pub mod bin;
pub mod budget;
pub mod classify;
pub mod compensation;
pub mod create_policy;
pub mod desired;
pub mod destroy;
pub mod diagnostic;
pub mod effect;
pub mod final_backup;
pub mod fleet;
pub mod gate;
pub mod id;
pub mod identity;
pub mod identity_proof;
pub mod import;
pub mod lane;
pub mod loss;
pub mod name;
pub mod named_volumes;
pub mod new_guest;
pub mod op_warning;
pub mod operation;
pub mod plan;
pub mod pve_call;
pub mod quantity;
pub mod reason;
pub mod recover;
pub mod registry;
pub mod release;
pub mod remembered;
pub mod rights;
pub mod secret;
pub mod selection;
pub mod shown_text;
pub mod sign;
pub mod storage_hearing;
pub mod surroundings;
pub mod task_log;
#[cfg(test)]
mod thorough;
pub mod value;
pub mod vmid_ranges;
