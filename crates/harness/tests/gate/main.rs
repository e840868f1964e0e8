//! Signed acts against the simulator: its request log is the oracle, and a refusal sends nothing.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod acts;
mod asked;
mod bin;
mod broken_reads;
mod claims;
mod crash;
mod final_backup;
mod gone;
mod identity;
mod lane;
mod left_out;
mod lost_worker;
mod meanwhile;
mod observed;
mod odd_rows;
mod on_request;
mod quorum;
mod removing;
mod rights;
mod rotation;
mod spelled;
mod stolen;
mod support;
mod surroundings;
mod templates;
mod time;
mod turned_over;
mod world;
