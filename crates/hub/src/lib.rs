//! The hub: one place for many hosts. It serves desired documents, keeps what hosts report and carries approvals.
//!
//! ```text
//!  people ── fleet, console ──> routes ──> store (SQLite | PostgreSQL)
//!                                 ▲
//!  hosts dial out: enrol, poll, fetch, report
//! ```
//!
//! [`routes`] is the one table of what can be asked, of whom, and how much. [`store`] is everything that is kept.
//! `console` are the pages. [`server`] is sockets, TLS and limits. Nobody has to trust the hub: it holds no key that signs anything for a host,
//! and every host judges what it hands out.

pub mod access;
mod agent_api;
mod body_budget;
pub mod call;
mod caller_gate;
mod console;
pub mod death_point;
mod health;
mod metrics;
pub mod openapi;
pub mod people;
pub mod problem;
pub mod routes;
pub mod secret_text;
pub mod server;
pub mod store;
pub mod wake;

pub use routes::Hub;
