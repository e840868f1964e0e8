//! evenkeel decides here: pure functions over values, no I/O.
#![doc = ""]

pub mod action_kind;
pub mod id;
pub mod lane;
pub mod operation;
pub mod recover;
pub mod release;
