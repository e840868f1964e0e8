//! The judgements that stand between a plan and a request: what an act costs, what it would lose, who must allow it.
//!
//! Each is asked on the guest as it is now, inside its lane. None of them sends anything.

pub mod allocation;
pub mod approval;
pub mod budget;
pub mod classify;
pub mod compensation;
pub mod create_policy;
pub mod destroy;
pub mod final_backup;
pub mod loss;
pub mod named_volumes;
pub mod new_guest;
mod planned;
pub mod rights;

pub use planned::{FreshGuest, GateVerdict, NodeSite, judge};
