//! The real binary against a real hub: what a person sees of a fleet.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod console;
mod demo;
mod desk;
mod documents;
mod enrolling;
mod from_nothing;
mod hostile_texts;
mod hub_acts;
mod killed_hub;
#[path = "../e2e/node_tools.rs"]
#[expect(dead_code, reason = "each node here shows a certificate of its own")]
mod node_tools;
mod signing;
mod verbs;
mod whole;
