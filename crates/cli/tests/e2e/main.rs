//! The real binary against the simulator: what a person or a script sees of evenkeel.
//!
//! Every run of the binary goes through `support`, which checks what holds for all of them: no token in
//! any output or file, no escape bytes where nobody asked for colour.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod converges;
mod drift;
#[expect(dead_code, reason = "its other users fake the exchange; this one has a server")]
#[path = "../../../agent/tests/pve/every_call.rs"]
mod every_call;
mod importing;
mod journal;
mod messages;
mod server_trouble;
mod simulator;
mod soak;
mod streams;
mod support;
