//! evenkeel acts here: everything that waits, writes or calls.
//!
//! ```text
//!   source ──> desired ─┐
//!                       ├──> core: plan
//!   pve ──> observe ────┘
//! ```
//!
//! What is decided is decided in `evenkeel-core`; this crate carries it out and reads the world back.

pub mod config;
pub mod host_key;
pub mod journal;
pub mod observe;
pub mod pve;
pub mod queue;
pub mod source;
