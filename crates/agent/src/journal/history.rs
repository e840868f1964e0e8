//! What the journal tells of each operation, for people: `evenkeel journal` prints it.
//!
//! Read without a lock, through the same checks as `verify`, archive included. It is a summary, and
//! nothing is ever decided by it: recovery and the gate ask the [`JournalState`].

use std::collections::BTreeMap;

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::id::{GuestId, OperationId};
use evenkeel_core::operation::{
    Closer, OpEvent, OpRecord, OpState, Operation, Resolution, Upid, next,
};
use jiff::Timestamp;

use super::details::Details;
use super::disk::Files;
use super::error::JournalError;
use super::record::{Body, OpEntry, Record};
use super::state::JournalState;
use super::verify::{self, VerifiedJournal};

/// One operation, as far as the segments that are left tell of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpSummary {
    /// Its name.
    pub op: OperationId,
    /// The guest it acts on.
    pub guest: GuestId,
    /// What it does.
    pub kind: ActionKind,
    /// When its newest record was written.
    pub at: Timestamp,
    /// Where it stands.
    pub state: OpState,
    /// Why it was done.
    pub reason: String,
    /// What was said of its outcome: why it failed or is in doubt, or a warning.
    pub outcome: String,
    /// The last task that was known of it.
    pub upid: Option<Upid>,
}

impl OpSummary {
    /// Who closed it; none while it is open.
    pub fn closed_by(&self) -> Option<Closer> {
        match self.state {
            OpState::Succeeded { by } | OpState::Failed { by, .. } => Some(by),
            OpState::Started { .. } | OpState::TaskRunning { .. } | OpState::Unknown { .. } => None,
        }
    }
}

/// Every operation of the journal, the one with the newest record last. The whole chain is checked on
/// the way, and damage anywhere is an error.
pub fn operations(files: &impl Files) -> Result<(Vec<OpSummary>, VerifiedJournal), JournalError> {
    let mut told = OpLines::default();
    let verified = verify::each_line(files, |_, line, body| match body {
        Body::Snapshot(state) => told.snapshot(state, line.at),
        Body::Record(Record::Op(entry)) => told.event(entry, line.at),
        Body::Record(Record::Kept(_) | Record::Retry(_) | Record::Note(_)) => {}
    })?;
    let mut operations: Vec<(u64, OpSummary)> = told.operations.into_values().collect();
    operations.sort_by_key(|(place, _)| *place);
    Ok((operations.into_iter().map(|(_, summary)| summary).collect(), verified))
}

/// The operations so far, each with the place of its newest record.
#[derive(Default)]
struct OpLines {
    operations: BTreeMap<OperationId, (u64, OpSummary)>,
    records: u64,
}

impl OpLines {
    /// What was open when the segment began. Only the oldest segment's snapshot tells anything new:
    /// the records before it are gone.
    fn snapshot(&mut self, state: &JournalState, at: Timestamp) {
        for operation in state.ledger().in_flight() {
            self.records += 1;
            let known = || (self.records, of_snapshot(operation, state, at));
            self.operations.entry(operation.id).or_insert_with(known);
        }
    }

    fn event(&mut self, OpEntry { record, details }: &OpEntry, at: Timestamp) {
        self.records += 1;
        let OpRecord { op, event } = record;
        if let OpEvent::Started(_) = event
            && let Ok(operation) = Operation::begin(*op, event)
        {
            self.operations.insert(*op, (self.records, summary(&operation, details, at)));
        } else if let Some((place, summary)) = self.operations.get_mut(op) {
            *place = self.records;
            summary.take_in(event, at);
        }
    }
}

fn of_snapshot(operation: &Operation, state: &JournalState, at: Timestamp) -> OpSummary {
    let none = Details::default();
    summary(operation, state.details(operation.id).unwrap_or(&none), at)
}

fn summary(operation: &Operation, details: &Details, at: Timestamp) -> OpSummary {
    let (upid, outcome) = match &operation.state {
        OpState::TaskRunning { upid, .. } => (Some(upid.clone()), String::new()),
        OpState::Unknown { upid, reason, .. } => (upid.clone(), reason.clone()),
        OpState::Failed { reason, .. } => (None, reason.clone()),
        OpState::Started { .. } | OpState::Succeeded { .. } => (None, String::new()),
    };
    OpSummary {
        op: operation.id,
        guest: operation.intent.guest,
        kind: operation.intent.kind,
        at,
        state: operation.state.clone(),
        reason: details.reason().to_owned(),
        outcome,
        upid,
    }
}

impl OpSummary {
    fn take_in(&mut self, event: &OpEvent, at: Timestamp) {
        // The walk has folded the same event without an error, or it would have stopped.
        if let Ok(state) = next(Some(&self.state), event) {
            self.state = state;
        }
        self.at = at;
        match event {
            OpEvent::TaskRunning { upid, .. } => self.upid = Some(upid.clone()),
            OpEvent::Succeeded { warning, .. } => {
                self.outcome = warning.clone().unwrap_or_default();
            }
            OpEvent::Failed { reason, .. } | OpEvent::Unknown { reason } => {
                self.outcome.clone_from(reason);
            }
            OpEvent::Resolved { outcome } => {
                let said = match outcome {
                    Resolution::Succeeded => "an operator says that it happened",
                    Resolution::Failed => "an operator says that it did not happen",
                };
                said.clone_into(&mut self.outcome);
            }
            OpEvent::Started(_) | OpEvent::RequestStarted { .. } => {}
        }
    }
}
