//! The real binary against the simulator: what a person or a script sees of evenkeel.
//!
//! Every run of the binary goes through `support`, which checks what holds for all of them: no token in
//! any output or file, no escape bytes where nobody asked for colour.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod agent;
mod agentless;
mod applying;
mod applying_by_agent;
mod approving;
mod choosing;
mod converges;
mod daemon;
mod daemon_crash;
mod daemon_looks;
mod demo;
mod doctor;
mod drift;
mod ending;
mod explaining;
mod failing;
mod formats;
mod freezing;
mod gate;
mod hub;
mod importing;
mod journal;
mod keys;
mod loose_files;
mod making;
mod messages;
mod node_tools;
mod observing;
mod odd_files;
mod on_the_node;
mod overlooked;
mod profiles;
mod secrets;
mod selftesting;
mod server_trouble;
mod setting_up;
mod signers;
mod signing;
mod signing_prompts;
mod simulator;
mod slow_node;
mod stopping;
mod streams;
mod support;
mod verifying;
mod volumes;
mod watching;
