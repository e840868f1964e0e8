//! evenkeel decides here: pure functions over values, no I/O.
#![doc = ""]

pub mod id;
pub mod release;
