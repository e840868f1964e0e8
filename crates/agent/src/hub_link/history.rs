//! What happened on this host, as a hub is told: read from the journal behind what the hub is known to have.
//!
//! The link asks here when the journal has grown. It reads files and no memory, so that what ended before a restart of the
//! agent, or while the hub was away, is told as well. Nothing is decided by it, and every text was masked when its record
//! was made.

use std::sync::Arc;

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::fleet::{OpChange, ReportedDecision, ToldOperation};
use serde_json::{Map, Value};

use crate::audit::{AuditEntry, AuditEvent, AuditReader};
use crate::journal::history::{OpSince, since};
use crate::journal::verify::PrintedLine;
use crate::journal::{Details, Files, JournalError, Seq};

/// Reads the journal behind a record. It may block.
pub type HistorySource = Arc<dyn Fn(Seq) -> Result<ToldHistory, JournalError> + Send + Sync>;

/// Ops, and decisions beside them, oldest first.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ToldHistory {
    /// What was done.
    pub ops: Vec<ToldOperation>,
    /// What was decided.
    pub decisions: Vec<ReportedDecision>,
    /// The newest record that was read.
    pub upto: u64,
}

impl ToldHistory {
    /// What the journal tells behind a record.
    pub fn read(files: &impl Files, after: Seq) -> Result<Self, JournalError> {
        let mut reader = AuditReader::default();
        let mut decisions = Vec::new();
        let (ops, upto) = since(files, after, |line, is_new| {
            let entry = reader.entry(&line);
            decisions.extend(entry.filter(|_| is_new).and_then(|entry| decision(entry, &line)));
        })?;
        let ops = ops.into_iter().map(|op| told(op).bounded()).collect();
        Ok(Self { ops, decisions, upto: upto.0 })
    }
}

fn told(OpSince { summary, details }: OpSince) -> ToldOperation {
    ToldOperation {
        op: summary.op.to_string(),
        guest: summary.guest.to_string(),
        kind: summary.kind.to_string(),
        state: summary.state.as_str().to_owned(),
        at: summary.at.to_string(),
        reason: summary.reason,
        outcome: summary.outcome,
        changes: changes(summary.kind, &details),
        signer: details.decision().get("signed_by").and_then(first_signer),
    }
}

/// The keys a write of the configuration changes; of other acts the reason says it.
fn changes(kind: ActionKind, details: &Details) -> Vec<OpChange> {
    if kind != ActionKind::SetConfig {
        return Vec::new();
    }
    let (mut before, params) = (details.before(), details.params());
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    // How the write says it is no key of the guest.
    let set =
        params.iter().filter(|(key, _)| !matches!(key.as_str(), "digest" | "delete" | "revert"));
    let mut changes: Vec<OpChange> = set
        .map(|(key, after)| OpChange {
            key: key.clone(),
            before: before.remove(key).as_ref().map(text),
            after: Some(text(after)),
        })
        .collect();
    let gone =
        |(key, value): (String, Value)| OpChange { key, before: Some(text(&value)), after: None };
    changes.extend(before.into_iter().map(gone));
    changes.sort_by(|one, other| one.key.cmp(&other.key));
    changes
}

fn first_signer(signed_by: &Value) -> Option<String> {
    let first: &Map<String, Value> = signed_by.as_array()?.first()?.as_object()?;
    Some(first.get("name")?.as_str()?.to_owned())
}

/// An entry of the audit that is no step of an operation.
fn decision(entry: AuditEntry, line: &PrintedLine) -> Option<ReportedDecision> {
    match entry.event {
        AuditEvent::Started
        | AuditEvent::Succeeded
        | AuditEvent::Failed
        | AuditEvent::Unknown
        | AuditEvent::Resolved => return None,
        AuditEvent::Decision
        | AuditEvent::Pending
        | AuditEvent::Approval
        | AuditEvent::Trust
        | AuditEvent::Frozen
        | AuditEvent::Thawed
        | AuditEvent::TailCut
        | AuditEvent::Note => {}
    }
    let fields: Value = serde_json::from_str(&line.text).ok()?;
    Some(ReportedDecision {
        id: fields["sum"].as_str()?.to_owned(),
        at: entry.at.to_string(),
        event: entry.event.as_str().to_owned(),
        guest: entry.guest.unwrap_or_default(),
        op: entry.kind,
        code: entry.reason,
        detail: entry.why,
        signer: entry.signed_by.into_iter().next().map(|signature| signature.name),
    })
}
