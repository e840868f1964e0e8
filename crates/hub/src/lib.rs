//! The hub: one place for many hosts. It serves desired documents, keeps what hosts report and carries approvals.
//!
//! ```text
//!  people ── fleet, console ──> routes ──> store (SQLite | PostgreSQL)
//!                                 ▲
//!  hosts dial out: enrol, poll, fetch, report
//! ```
//!
//! Nobody has to trust it: it holds no key that signs anything for a host, and every host judges what it hands out.
