//! The people's side of the hub, through the real router and a real database.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access_table;
mod approvals;
mod bent_bodies;
#[path = "../../../core/tests/support/bent_json.rs"]
mod bent_json;
#[path = "../../../core/tests/support/destroy_item.rs"]
mod destroy_item;
mod documents;
mod exports;
mod hosts;
mod login;
mod meant_rows;
mod openapi;
#[path = "../../src/suite/postgres.rs"]
mod postgres;
mod sessions;
mod world;
