//! Closing an operation by an operator's word, when no evidence will ever come.
//!
//! `evenkeel journal resolve` asks for the records and writes them as one batch. The note comes first,
//! so that no crash can leave a closed operation without the name of the one who closed it.

use evenkeel_core::model::id::OperationId;
use evenkeel_core::operate::operation::{OpEvent, OpRecord, OpState, Resolution};

use super::record::{Note, Record};
use super::state::JournalState;

/// The `what` of the note.
pub(crate) const RESOLVED: &str = "resolved";

/// Why an operation cannot be closed by hand.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// The journal does not know it, or forgot it after it was closed.
    #[error("no operation {0} is open")]
    NotOpen(OperationId),
    /// It ended already.
    #[error("{op} is closed already, as {state}")]
    Closed {
        /// Which.
        op: OperationId,
        /// As what.
        state: &'static str,
    },
}

/// The records that close `op`, in the order they must be written. `note` says who closes it and why.
pub fn records(
    state: &JournalState,
    op: OperationId,
    outcome: Resolution,
    note: String,
) -> Result<Vec<Record>, ResolveError> {
    let operation = state.ledger().get(op).ok_or(ResolveError::NotOpen(op))?;
    let event = |event| Record::op(OpRecord { op, event });
    let mut records = vec![Record::Note(Note { what: RESOLVED.to_owned(), text: note })];
    match &operation.state {
        OpState::Unknown { .. } => {}
        // Nobody is at work on it, or nobody could ask: what it did is not known.
        OpState::Started { .. } | OpState::TaskRunning { .. } => {
            let reason = "the agent ended while it was under way".to_owned();
            records.push(event(OpEvent::Unknown { reason }));
        }
        closed @ (OpState::Succeeded { .. } | OpState::Failed { .. }) => {
            return Err(ResolveError::Closed { op, state: closed.as_str() });
        }
    }
    records.push(event(OpEvent::Resolved { outcome }));
    Ok(records)
}
