//! The agent's side of a hub: it dials out, asks, takes, and tells. Nothing here is needed, and nothing is trusted.
//!
//! ```text
//!   hub ◄── HubExchange ── link (a task of its own) ──DeskRequest──► desk (the loop's) ──► engine, journal
//!                            │  reads files on a thread beside
//!                            │  polls, fetches, reports                │ judges, writes down, then takes
//!                            └── a picture of the host ◄── status      └── last good document on disk
//! ```
//!
//! The link waits for the hub, so that nobody else does: a hub that hangs, floods or lies delays no pass. What it brings is
//! judged by the engine like everything else that comes from outside; a document counts once its floor is in the journal.

#[cfg(test)]
mod bent_answers;
pub mod config;
pub mod desk;
pub mod document_reader;
pub mod enrol;
pub mod exchange;
pub mod history;
pub mod http;
mod limits;
mod link;
pub mod memory;
pub mod picture;
mod report_memory;
mod reporting;
pub mod store;

pub use desk::{AnchorFinding, DeskNews, DeskRequest, DocumentOutcome, HubDesired, HubDesk};
pub use document_reader::{DocumentReader, READING_MAX};
pub use exchange::{HubExchange, HubFailure, HubFuture, HubMethod, HubOutcome, HubRequest};
pub use limits::{LinkHealth, LinkView};
pub use link::{HubLink, LinkIdentity};
