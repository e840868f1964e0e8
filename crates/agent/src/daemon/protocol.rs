//! What is said on the agent's socket: one line of JSON asks, lines of JSON answer, the last one ends it.
//!
//! ```text
//!   > {"v":1,"request":"status"}
//!   < {"v":1,"answer":"status","status":{…}}
//!
//!   > {"v":1,"request":"apply","plan":{…}}
//!   < {"v":1,"answer":"progress","progress":{…}}      any number of them
//!   < {"v":1,"answer":"report","report":{…}}
//! ```
//!
//! `submit` is told of progress too: of every guest, so that who waits hears what it is waiting for.
//!
//! A new request is a new arm here and where requests are carried out; what an agent does not know it refuses in
//! words. Both sides are of one program, but not always of one version: unknown fields of an answer are passed over,
//! unknown fields of a request are refused.

use std::collections::BTreeMap;

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::desired::selection::{GuestName, Selection};
use evenkeel_core::model::id::{GuestId, OperationId, VmId};
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_core::operate::operation::Resolution;
use evenkeel_core::plan::SavedPlan;
use evenkeel_core::sign::{OpResult, PendingId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::status::HostStatus;
use crate::engine::{OpReport, Progress, RaisedBy, ReplacedItem, Report};

/// The version of everything here.
pub(crate) const VERSION: u64 = 1;

/// The longest request. A plan of 10,000 actions is about 3 MB.
pub(crate) const REQUEST_BYTES_MAX: usize = 8 << 20;

/// The longest answer a client takes: a status that lists every guest of a large node is about 3 MB.
pub(crate) const ANSWER_BYTES_MAX: usize = 64 << 20;

/// What can be asked of a running agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case", deny_unknown_fields)]
pub enum SocketRequest {
    /// How it stands.
    Status {
        /// Of these guests only.
        #[serde(default, skip_serializing_if = "Selection::is_everything")]
        selection: Selection,
    },
    /// One pass now; with a plan exactly that plan, or nothing.
    Apply {
        /// What a person agreed to.
        #[serde(default)]
        plan: Option<SavedPlan>,
        /// Whether who asks shows what tasks log meanwhile. An agent that does not know this word refuses it, and is then
        /// asked without.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        logs: bool,
    },
    /// An operator says how an operation of unknown outcome ended.
    Resolve {
        /// Which.
        op: OperationId,
        /// How.
        outcome: Resolution,
        /// Who says so and why, for the journal.
        note: String,
    },
    /// What failed on a guest is tried at once.
    Retry {
        /// Which guest, by its number.
        guest: VmId,
        /// Who says so, for the journal.
        by: String,
    },
    /// Configuration and desired files are read again.
    Reload {},
    /// What waits for a signature.
    Pending {},
    /// Something that is not declared shall wait for a signature, or be done at once if it needs none.
    Request {
        /// What.
        op: ActionKind,
        /// To which guest, as a person names it.
        guest: GuestName,
        /// With which parameters; what is left out is filled in from the guest.
        #[serde(default)]
        params: BTreeMap<String, String>,
        /// The signer who asks.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        requester: Option<String>,
    },
    /// Something that was asked for shall no longer wait.
    Withdraw {
        /// Which.
        id: PendingId,
        /// Who says so and why, for the journal.
        note: String,
    },
    /// An approval, a rotation or a recovery, by whatever hands it came.
    Submit {
        /// Its exact text.
        envelope: String,
    },
}

/// What it answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum SocketAnswer {
    /// How it stands.
    Status {
        /// All of it.
        status: Box<HostStatus>,
    },
    /// Something happened meanwhile; more follows.
    Progress {
        /// What.
        progress: Progress,
    },
    /// What came of a pass.
    Report {
        /// All of it.
        report: Box<Report>,
    },
    /// What waits for a signature.
    Pending {
        /// All of it, oldest first.
        items: Vec<PendingView>,
    },
    /// It waits for a signature now.
    Raised {
        /// Under this name.
        id: PendingId,
        /// To this guest.
        guest: GuestId,
    },
    /// What became of a signed act.
    Op {
        /// All of it.
        report: Box<OpReport>,
    },
    /// That very statement was executed before.
    Replay {
        /// By this operation.
        op: OperationId,
        /// Which stands so.
        result: OpResult,
    },
    /// It is done.
    Done {
        /// What, in words.
        message: String,
    },
    /// It is not done.
    Refused(Refused),
}

/// An item that waits, as an operator is handed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingView {
    /// Its name.
    pub id: PendingId,
    /// Who wants it.
    pub from: RaisedBy,
    /// The item and the host's signature; everything that is shown is read from here.
    pub envelope: String,
    /// The item it was raised in the place of, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<ReplacedItem>,
    /// The signatures that are there, as an envelope; fewer than the act takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed: Option<String>,
    /// The signer who asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requester: Option<String>,
}

/// Why something is not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    /// Why, for programs.
    pub code: RefusedCode,
    /// Why, in words.
    pub message: String,
    /// What to do next.
    pub hint: String,
}

/// The kinds of refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusedCode {
    /// The request cannot be read.
    Malformed,
    /// It is of another version, or of a kind this agent does not know.
    Unknown,
    /// The asker is another user.
    Denied,
    /// There are too many askers, or the agent goes down.
    Busy,
    /// The plan no longer fits.
    Stale,
    /// Configuration or desired files are broken; what was good still holds.
    Invalid,
    /// There is no such operation.
    NotFound,
    /// The gate said no.
    Gate(ReasonCode),
    /// Proxmox VE could not be read, or something else went wrong.
    Failed,
}

impl Refused {
    /// A refusal.
    pub fn new(code: RefusedCode, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: hint.into() }
    }
}

/// A request or an answer as a line.
pub(crate) fn to_line(said: &impl Serialize) -> Vec<u8> {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(said) else {
        unreachable!("requests and answers are objects of plain values");
    };
    fields.insert("v".to_owned(), VERSION.into());
    let mut line = Value::Object(fields).to_string().into_bytes();
    line.push(b'\n');
    line
}

/// The request on a line, or why it is refused.
pub(crate) fn read_request(line: &[u8]) -> Result<SocketRequest, Refused> {
    let malformed = |error: serde_json::Error| {
        let message = format!("the request cannot be read: {error}");
        Refused::new(RefusedCode::Malformed, message, "one JSON object on one line, with `v`")
    };
    let mut fields: Map<String, Value> = serde_json::from_slice(line).map_err(malformed)?;
    let version = fields.remove("v").and_then(|version| version.as_u64());
    if version != Some(VERSION) {
        let message = format!("this agent speaks version {VERSION} only");
        let hint = "use the `evenkeel` of the same version as the running agent";
        return Err(Refused::new(RefusedCode::Unknown, message, hint));
    }
    let known = [
        "status", "apply", "resolve", "retry", "reload", "pending", "request", "withdraw", "submit",
    ];
    match fields.get("request").and_then(Value::as_str) {
        Some(word) if known.contains(&word) => {}
        Some(_) | None => {
            let message = format!("this agent knows the requests {}", known.join(", "));
            let hint = "use the `evenkeel` of the same version as the running agent";
            return Err(Refused::new(RefusedCode::Unknown, message, hint));
        }
    }
    serde_json::from_value(Value::Object(fields)).map_err(malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_is_read_back_from_its_line() {
        let op = "op_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap();
        let plan = serde_json::json!({"format": "evenkeel/plan/v1", "node": "pve1", "actions": []});
        let plan = serde_json::from_value(plan).unwrap();
        for request in [
            SocketRequest::Status { selection: Selection::default() },
            SocketRequest::Status {
                selection: Selection { tags: vec!["web".to_owned()], ..Selection::default() },
            },
            SocketRequest::Apply { plan: None, logs: false },
            SocketRequest::Apply { plan: Some(plan), logs: true },
            SocketRequest::Resolve { op, outcome: Resolution::Failed, note: "I looked".to_owned() },
            SocketRequest::Retry { guest: "101".parse().unwrap(), by: "uid 0".to_owned() },
            SocketRequest::Reload {},
            SocketRequest::Pending {},
            SocketRequest::Request {
                op: ActionKind::Destroy,
                guest: "lxc/101".parse().unwrap(),
                params: [("purge".to_owned(), "0".to_owned())].into(),
                requester: Some("alice".to_owned()),
            },
            SocketRequest::Withdraw {
                id: "5".repeat(64).parse().unwrap(),
                note: "not needed".to_owned(),
            },
            SocketRequest::Submit { envelope: "{}".to_owned() },
        ] {
            assert_eq!(read_request(&to_line(&request)), Ok(request));
        }
    }

    #[test]
    fn what_is_not_known_is_refused_in_words() {
        for (line, code) in [
            ("", RefusedCode::Malformed),
            ("[]", RefusedCode::Malformed),
            ("{\"v\":1", RefusedCode::Malformed),
            ("{\"request\":\"status\"}", RefusedCode::Unknown),
            ("{\"v\":2,\"request\":\"status\"}", RefusedCode::Unknown),
            ("{\"v\":1}", RefusedCode::Unknown),
            ("{\"v\":1,\"request\":\"destroy\"}", RefusedCode::Unknown),
            ("{\"v\":1,\"request\":\"reload\",\"force\":true}", RefusedCode::Malformed),
            ("{\"v\":1,\"request\":\"apply\",\"plam\":{}}", RefusedCode::Malformed),
            (
                "{\"v\":1,\"request\":\"resolve\",\"op\":\"x\",\"outcome\":\"failed\"}",
                RefusedCode::Malformed,
            ),
        ] {
            let refused = read_request(line.as_bytes()).unwrap_err();
            assert_eq!(refused.code, code, "{line}: {refused}");
            assert!(!refused.message.is_empty() && !refused.hint.is_empty());
        }
    }
}
