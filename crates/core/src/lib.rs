//! evenkeel decides here: pure functions over values, no I/O.
#![doc = ""]

pub mod desired;
pub mod diagnostic;
pub mod id;
pub mod release;
