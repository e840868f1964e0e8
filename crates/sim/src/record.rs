//! The request log: what arrived, who sent it, whether it was carried out. An oracle for tests.

use evenkeel_core::model::id::GuestId;
use serde::{Deserialize, Serialize};

/// One request as the server saw it. Secrets are not in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestRecord {
    /// Milliseconds of the simulation at its arrival.
    pub at_ms: u64,
    /// The method.
    pub method: String,
    /// The path without the query.
    pub path: String,
    /// Names of the parameters, sorted; values may be secret.
    pub params: Vec<String>,
    /// The guest the path names.
    pub guest: Option<GuestId>,
    /// Whether it asks for a change.
    pub mutating: bool,
    /// Who it was, token included; `None` if nobody.
    pub user: Option<String>,
    /// Milliseconds when the call was carried out; `None` if it was refused or never reached.
    pub executed_ms: Option<u64>,
    /// Milliseconds when nobody worked on the call any more, however it ended; its task may still run.
    pub ended_ms: Option<u64>,
    /// The status answered; `None` while it waits or if the connection broke.
    pub status: Option<u16>,
    /// The task it forked.
    pub upid: Option<String>,
}
