//! The people's side of the hub, through the real router and a real database.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access_table;
mod approvals;
mod bent_bodies;
mod documents;
mod exports;
mod hosts;
mod login;
mod meant_rows;
mod openapi;
mod sessions;
mod world;
