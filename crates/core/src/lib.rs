//! evenkeel decides here: pure functions over values, no I/O.
#![doc = ""]

pub mod id;
pub mod quantity;
pub mod registry;
pub mod release;
pub mod value;
