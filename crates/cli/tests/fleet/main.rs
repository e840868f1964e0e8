//! The real binary against a real hub: what a person sees of a fleet.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod desk;
mod verbs;
mod whole;
