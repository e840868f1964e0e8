//! Everything the journal tells of one operation, step by step: `evenkeel journal show` prints it.
//!
//! Read without a lock, through the same checks as `verify`, archive included. Nothing is decided by it.

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::model::id::{GuestId, OperationId};
use evenkeel_core::operate::operation::{OpEvent, OpPhase, Operation, Resolution, Upid};
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::details::Details;
use super::disk::Files;
use super::error::JournalError;
use super::line::Seq;
use super::mark::moment;
use super::record::{Body, OpEntry, Record};
use super::verify;

/// One operation with all its records.
#[derive(Debug, Clone, PartialEq)]
pub struct OpHistory {
    /// Its name.
    pub op: OperationId,
    /// The guest it acts on.
    pub guest: GuestId,
    /// What it does.
    pub kind: ActionKind,
    /// Why it was done.
    pub reason: String,
    /// Every parameter, secrets masked.
    pub params: Map<String, Value>,
    /// The values that were there before, secrets masked.
    pub before: Map<String, Value>,
    /// What the gate decided, and who signed.
    pub decision: Map<String, Value>,
    /// Its records, oldest first. The first ones may be in a segment that is no longer there.
    pub steps: Vec<OpStep>,
}

/// One record of an operation.
#[derive(Debug, Clone, PartialEq)]
pub struct OpStep {
    /// Its number.
    pub seq: Seq,
    /// When it was written.
    pub at: Timestamp,
    /// What happened, in one word.
    pub event: &'static str,
    /// What else the record says.
    pub told: String,
    /// The task it names.
    pub upid: Option<Upid>,
}

impl OpHistory {
    /// The tasks Proxmox VE ran for it, oldest first.
    pub fn tasks(&self) -> impl Iterator<Item = &Upid> {
        self.steps.iter().filter_map(|step| step.upid.as_ref())
    }

    fn of(operation: &Operation, details: &Details) -> Self {
        Self {
            op: operation.id,
            guest: operation.intent.guest,
            kind: operation.intent.kind,
            reason: details.reason().to_owned(),
            params: details.params(),
            before: details.before(),
            decision: details.decision(),
            steps: Vec::new(),
        }
    }
}

/// What the journal knows of an operation; none if nothing. The whole chain is checked on the way.
pub fn op_history(
    files: &impl Files,
    wanted: OperationId,
) -> Result<Option<OpHistory>, JournalError> {
    let mut found: Option<OpHistory> = None;
    verify::each_line(files, |_, line, body| match body {
        Body::Snapshot(state) if found.is_none() => {
            let none = Details::default();
            let open = state.ledger().in_flight().find(|operation| operation.id == wanted);
            found = open.map(|open| OpHistory::of(open, state.details(wanted).unwrap_or(&none)));
        }
        Body::Record(Record::Op(OpEntry { record, details })) if record.op == wanted => {
            if let OpEvent::Started(_) = &record.event
                && let Ok(operation) = Operation::begin(wanted, &record.event)
            {
                found = Some(OpHistory::of(&operation, details));
            }
            if let Some(found) = &mut found {
                found.steps.push(step(&record.event, line.seq, line.at));
            }
        }
        Body::Snapshot(_)
        | Body::Record(Record::Op(_) | Record::Kept(_) | Record::Retry(_) | Record::Note(_)) => {}
    })?;
    Ok(found)
}

fn step(event: &OpEvent, seq: Seq, at: Timestamp) -> OpStep {
    let (event, told, upid) = match event {
        OpEvent::Started(_) => ("started", String::new(), None),
        OpEvent::RequestStarted { request, sent_at } => {
            let by_node = moment(*sent_at).map(|at| format!(", {at} by the node's clock"));
            let what = match request {
                OpPhase::Stop => "take the guest down",
                OpPhase::Backup => "save the guest",
                OpPhase::Unprotect => "take its protection off",
                OpPhase::Act => "the act itself",
            };
            let told = format!("{what}{}", by_node.unwrap_or_default());
            ("request_started", told, None)
        }
        OpEvent::TaskRunning { upid, found } => {
            let told = if *found { "found in the task list" } else { "" };
            ("task_running", told.to_owned(), Some(upid.clone()))
        }
        OpEvent::Succeeded { warning, .. } => {
            ("succeeded", warning.clone().unwrap_or_default(), None)
        }
        OpEvent::Failed { reason, .. } => ("failed", reason.clone(), None),
        OpEvent::Unknown { reason } => ("unknown", reason.clone(), None),
        OpEvent::Resolved { outcome } => {
            let told = match outcome {
                Resolution::Succeeded => "an operator says that it happened",
                Resolution::Failed => "an operator says that it did not happen",
            };
            ("resolved", told.to_owned(), None)
        }
    };
    OpStep { seq, at, event, told, upid }
}
