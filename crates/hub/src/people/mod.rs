//! What people ask: to come in, to look, to push documents, to hand in what they signed, to manage hosts and accounts.
//!
//! ```text
//!   table row ──> access: token or session, role, scope, CSRF ──> handler ──> store (with its audit line)
//! ```
//!
//! Who may is decided before a handler runs; a handler that chooses hosts itself asks [`Person::sees`] for each. Whatever
//! changes something is kept together with its line of the audit. Nothing here signs, and nothing of what is handed in is
//! believed beyond its form: every host judges for itself.
//!
//! [`Person::sees`]: crate::access::Person::sees

pub(crate) mod accounts;
pub(crate) mod approvals;
pub(crate) mod audit;
mod author;
pub mod browser_mark;
mod challenge;
pub(crate) mod document_check;
pub(crate) mod documents;
pub(crate) mod drafts;
mod events;
pub(crate) mod fleet_filter;
pub(crate) mod fleet_index;
pub(crate) mod fleet_tally;
pub(crate) mod guests;
pub(crate) mod hosts;
pub(crate) mod login;
mod logins;
pub(crate) mod page;
mod rate_limit;
pub(crate) mod session;
pub mod wire;
mod wire_accounts;
mod wire_documents;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::routes::RouteRow;
use fleet_index::FleetIndex;
use rate_limit::RateLimit;

/// How many event streams are open at once: each costs a task and a place among changes.
const EVENT_STREAMS_MAX: usize = 256;
/// How many exports are written at a time: each reads as fast as it is taken.
const EXPORTS_MAX: usize = 8;

/// What the people's side remembers in this process.
#[derive(Debug)]
pub(crate) struct PeopleState {
    /// Tries to log in, by account and address together: a stranger elsewhere cannot lock anybody out.
    pub(crate) by_account: RateLimit,
    /// Tries to log in by address. Behind a proxy everybody has one, so it is wide.
    pub(crate) by_address: RateLimit,
    /// Every host in a few words.
    pub(crate) fleet: FleetIndex,
    /// Places for event streams.
    pub(crate) streams: Arc<Semaphore>,
    /// Places for exports.
    pub(crate) exports: Arc<Semaphore>,
    /// Tries to be taken in as a host, by address.
    pub(crate) enrolments: RateLimit,
}

impl Default for PeopleState {
    fn default() -> Self {
        Self {
            by_account: RateLimit::new(10, Duration::from_secs(6)),
            by_address: RateLimit::new(120, Duration::from_millis(500)),
            fleet: FleetIndex::default(),
            streams: Arc::new(Semaphore::new(EVENT_STREAMS_MAX)),
            exports: Arc::new(Semaphore::new(EXPORTS_MAX)),
            enrolments: RateLimit::new(120, Duration::from_millis(100)),
        }
    }
}

/// The rows of people.
pub(crate) fn rows() -> Vec<RouteRow> {
    [
        login::rows(),
        logins::rows(),
        accounts::rows(),
        hosts::rows(),
        guests::rows(),
        documents::rows(),
        drafts::rows(),
        approvals::rows(),
        audit::rows(),
        events::rows(),
    ]
    .concat()
}

/// The largest body that holds a few names and a key.
pub(crate) const SMALL_BODY_MAX: usize = 16 * 1024;
