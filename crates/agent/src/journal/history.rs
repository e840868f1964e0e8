//! What the journal tells of each operation, for people: `evenkeel journal` prints it.
//!
//! Read without a lock, through the same checks as `verify`, archive included. It is a summary, and
//! nothing is ever decided by it: recovery and the gate ask the [`JournalState`].

use std::collections::BTreeMap;

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::model::id::{GuestId, OperationId};
use evenkeel_core::operate::operation::{
    Closer, OpEvent, OpRecord, OpState, Operation, Resolution, Upid, next,
};
use jiff::Timestamp;

use super::details::Details;
use super::disk::Files;
use super::error::JournalError;
use super::line::Seq;
use super::record::{Body, OpEntry, Record};
use super::segment::SegmentLine;
use super::state::JournalState;
use super::verify::{self, PrintedLine, VerifiedJournal};

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
    let verified = verify::each_line(files, |_, line, body| told.line(line, body))?;
    let operations = told.in_order(Seq(0)).into_iter();
    Ok((operations.map(|found| found.summary).collect(), verified))
}

/// An operation with what its first record tells beside.
#[derive(Debug, Clone, PartialEq)]
pub struct OpSince {
    /// The operation.
    pub summary: OpSummary,
    /// Parameters, values before, and the decision; empty if its first record is no longer there.
    pub details: Details,
}

/// The operations with a record behind one of the journal, in the order of their newest records; and how far the journal
/// goes. Each record is handed to `each` too, with whether it is behind that one: those before it in the same segment give
/// them their meaning. Only the newest segments are read.
pub fn since(
    files: &impl Files,
    after: Seq,
    mut each: impl FnMut(PrintedLine, bool),
) -> Result<(Vec<OpSince>, Seq), JournalError> {
    let mut told = OpLines::default();
    let head = verify::each_line_since(files, after, SEGMENTS_MAX, |file, line, body| {
        told.line(line, body);
        each(PrintedLine::of(file, line), line.seq > after);
    })?;
    Ok((told.in_order(after), head.map_or(after, |head| head.seq)))
}

/// How many segments are read for what is new: four days of a host that never rests.
const SEGMENTS_MAX: usize = 4;

/// The operations so far, each with the number of its newest record; 0 for what only a snapshot tells.
#[derive(Default)]
struct OpLines {
    operations: BTreeMap<OperationId, (Seq, OpSince)>,
}

impl OpLines {
    fn line(&mut self, line: &SegmentLine<'_>, body: &Body) {
        match body {
            Body::Snapshot(state) => self.snapshot(state, line.at),
            Body::Record(Record::Op(entry)) => self.event(entry, line),
            Body::Record(Record::Kept(_) | Record::Retry(_) | Record::Note(_)) => {}
        }
    }

    /// Those with a record behind this one, by their newest. What stands in a snapshot alone is behind none.
    fn in_order(self, after: Seq) -> Vec<OpSince> {
        let mut operations: Vec<(Seq, OpSince)> = self.operations.into_values().collect();
        operations.retain(|(newest, _)| after == Seq(0) || *newest > after);
        operations.sort_by_key(|(newest, _)| *newest);
        operations.into_iter().map(|(_, found)| found).collect()
    }

    /// What was open when the segment began. Only the oldest segment's snapshot tells anything new:
    /// the records before it are gone.
    fn snapshot(&mut self, state: &JournalState, at: Timestamp) {
        for operation in state.ledger().in_flight() {
            let known = || (Seq(0), of_snapshot(operation, state, at));
            self.operations.entry(operation.id).or_insert_with(known);
        }
    }

    fn event(&mut self, OpEntry { record, details }: &OpEntry, line: &SegmentLine<'_>) {
        let OpRecord { op, event } = record;
        if let OpEvent::Started(_) = event
            && let Ok(operation) = Operation::begin(*op, event)
        {
            let summary = summary(&operation, details, line.at);
            let found = OpSince { summary, details: details.clone() };
            self.operations.insert(*op, (line.seq, found));
        } else if let Some((newest, found)) = self.operations.get_mut(op) {
            *newest = line.seq;
            found.summary.take_in(event, line.at);
        }
    }
}

fn of_snapshot(operation: &Operation, state: &JournalState, at: Timestamp) -> OpSince {
    let details = state.details(operation.id).cloned().unwrap_or_default();
    OpSince { summary: summary(operation, &details, at), details }
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
