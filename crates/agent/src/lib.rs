//! evenkeel acts here: everything that waits, writes or calls.
//!
//! What is decided is decided in `evenkeel-core`; this crate carries it out and reads the world back.

pub mod journal;
pub mod pve;
