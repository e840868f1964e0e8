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
    let mut before = details.before();
    let params = details.params();
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

#[cfg(test)]
mod tests {
    use evenkeel_core::model::id::OperationId;
    use evenkeel_core::operate::operation::{OpEvent, OpRecord, StartedIntent, UnixSeconds};
    use serde_json::json;

    use super::*;
    use crate::journal::{Journal, JournalLimits, Kept, KeptSubject, Record, SimulatedDisk, Stamp};

    fn open(disk: &SimulatedDisk) -> Journal<SimulatedDisk> {
        let stamp = Stamp { machine: "m".to_owned(), new_epoch: "e".to_owned() };
        let now = at("2026-11-15T20:00:00Z");
        // Small segments: an operation begins in one and ends in another.
        let limits = JournalLimits { segment_bytes: 2_000, ..JournalLimits::default() };
        Journal::open(disk.clone(), stamp, limits, now).unwrap()
    }

    fn at(text: &str) -> jiff::Timestamp {
        text.parse().unwrap()
    }

    fn op(number: u64) -> OperationId {
        OperationId::from_parts(number, u128::from(number))
    }

    fn started(number: u64) -> Record {
        let map = |value: Value| value.as_object().cloned().unwrap();
        let details = Details::new(
            map(json!({"cores": "4", "tags": "new", "delete": "nameserver", "digest": "d"})),
            map(json!({"cores": "2", "nameserver": "1.1.1.1"})),
            "cores 2 -> 4".to_owned(),
            map(json!({"reason": "allowed_signed", "signed_by": [{"name": "alice", "key": "k"}]})),
        );
        let guest = format!("lxc/{}", 100 + number).parse().unwrap();
        let intent = StartedIntent::new(guest, ActionKind::SetConfig, UnixSeconds(7));
        let event = OpEvent::Started(Box::new(intent));
        Record::op_started(OpRecord { op: op(number), event }, details)
    }

    fn succeeded(number: u64) -> Record {
        let event = OpEvent::Succeeded { identity: None, warning: None };
        Record::op(OpRecord { op: op(number), event })
    }

    fn decision(number: u64) -> Record {
        let value = json!({"guest": "lxc/102", "op": "destroy", "reason": "pending_signature", "why": "needs a signature"});
        Record::Kept(Kept::put(KeptSubject::Decision, format!("plan {number}"), 1, value))
    }

    #[test]
    fn what_is_behind_a_record_is_told_whatever_life_of_the_agent_it_was_in() {
        let disk = SimulatedDisk::default();
        let mut journal = open(&disk);
        let mut append = |record| journal.append(record, at("2026-11-15T20:00:01Z")).unwrap();
        append(started(1));
        append(decision(1));
        append(started(2));
        append(succeeded(1));
        let kept = append(decision(2)).seq;
        for number in 3..20 {
            append(decision(number));
        }
        append(succeeded(2));
        append(started(3));
        drop(journal);

        let all = ToldHistory::read(&disk, Seq(0)).unwrap();
        let told: Vec<(&str, &str)> =
            all.ops.iter().map(|op| (op.op.as_str(), op.state.as_str())).collect();
        let [first, second, third] = [op(1), op(2), op(3)].map(|op| op.to_string());
        assert_eq!(told, [(&*first, "succeeded"), (&*second, "succeeded"), (&*third, "started")]);
        let since = ToldHistory::read(&disk, kept).unwrap();
        let names: Vec<&str> = since.ops.iter().map(|op| op.op.as_str()).collect();
        assert_eq!(names, [&*second, &*third], "the first had ended before");
        assert_eq!(since.decisions.len(), 17);
        assert!(since.upto > kept.0);
        let ToldOperation { guest, kind, changes, signer, reason, .. } = &since.ops[0];
        assert_eq!((guest.as_str(), kind.as_str()), ("lxc/102", "set_config"));
        assert_eq!((signer.as_deref(), reason.as_str()), (Some("alice"), "cores 2 -> 4"));
        let change = |key: &str, before: Option<&str>, after: Option<&str>| OpChange {
            key: key.to_owned(),
            before: before.map(str::to_owned),
            after: after.map(str::to_owned),
        };
        assert_eq!(
            *changes,
            [
                change("cores", Some("2"), Some("4")),
                change("nameserver", Some("1.1.1.1"), None),
                change("tags", None, Some("new")),
            ]
        );
        let ReportedDecision { id, event, guest, op, code, detail, .. } = &since.decisions[0];
        assert_eq!(
            (event.as_str(), guest.as_str(), op.as_str()),
            ("decision", "lxc/102", "destroy")
        );
        assert_eq!((code.as_str(), detail.as_str()), ("pending_signature", "needs a signature"));
        assert_eq!(id.len(), 64);
        let again = ToldHistory::read(&disk, kept).unwrap();
        assert_eq!(again, since, "and known by the same names when it is told again");
    }
}
