//! What holds for any desired and any actual state, generated from the key registry.
//!
//! ```text
//!   dice ──> spelling   values of every format, in the spellings people and PVE use
//!        ──> world      guests: declared, stored and waiting fields, power, locks, releases
//!   pve                 a small Proxmox VE: what it does to a write, a resize, a start
//!   planning, safety, reading, layers    the properties
//! ```
//!
//! `PROPTEST_CASES` runs more cases than the quick default.
#![expect(clippy::unwrap_used, reason = "a world that cannot be built shall stop its test")]

mod dice;
#[path = "../support/early.rs"]
mod early;
mod layers;
mod planning;
mod pve;
mod reading;
mod safety;
mod spelling;
mod toml;
mod world;
