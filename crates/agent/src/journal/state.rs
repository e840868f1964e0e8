//! What all records together say: the fold that live running and replay share.
//!
//! The journal applies each record before it is written and again when it is read back, so both
//! know the same. A snapshot is this value, written as one record at the head of a segment; the
//! time of that record is the clock's high-water mark.

use std::collections::BTreeMap;

use evenkeel_core::model::id::OperationId;
use evenkeel_core::operate::operation::{Ledger, OpEvent, ReplayError};
use serde::{Deserialize, Serialize};

use super::details::Details;
use super::record::{Kept, KeptSubject, OpEntry, Record, Versioned};

/// Closed operations are forgotten in rounds of this many: each round looks at all that are known,
/// and so costs little per record while memory follows what is live.
const FORGET_EVERY: usize = 1_024;

/// Everything the journal knows.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JournalState {
    ledger: Ledger,
    /// Of operations that are not closed.
    details: BTreeMap<OperationId, Details>,
    kept: BTreeMap<KeptSubject, BTreeMap<String, Versioned>>,
    #[serde(skip)]
    closed: usize,
}

impl JournalState {
    /// Takes in one more record, or leaves everything as it was.
    pub fn apply(&mut self, record: Record) -> Result<(), ReplayError> {
        match record {
            Record::Op(entry) => self.apply_op(entry)?,
            Record::Kept(Kept { subject, key, value: Some(value), .. }) => {
                self.kept.entry(subject).or_default().insert(key, value);
            }
            Record::Kept(Kept { subject, key, value: None, .. }) => {
                if let Some(values) = self.kept.get_mut(&subject) {
                    values.remove(&key);
                }
            }
            Record::Retry(retry) => self.ledger.retry(retry.guest),
            Record::Note(_) => {}
        }
        Ok(())
    }

    /// Operations: what is in flight, which keys are spent, which guests are ours.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// What the `started` record of an operation that is not closed said.
    pub fn details(&self, op: OperationId) -> Option<&Details> {
        self.details.get(&op)
    }

    /// The kept values of a subject, by key.
    pub fn kept(&self, subject: KeptSubject) -> impl Iterator<Item = (&str, &Versioned)> {
        self.kept.get(&subject).into_iter().flatten().map(|(key, value)| (key.as_str(), value))
    }

    /// The same without what nobody can ask for any more: what a snapshot stores.
    #[must_use]
    pub fn compacted(&self) -> Self {
        let mut state = self.clone();
        state.forget_closed();
        state.kept.retain(|_, values| !values.is_empty());
        state
    }

    fn apply_op(&mut self, OpEntry { record, details }: OpEntry) -> Result<(), ReplayError> {
        let open = self.ledger.apply(&record)?.is_in_flight();
        if let OpEvent::Started(_) = record.event {
            self.details.insert(record.op, details);
        }
        if !open {
            self.details.remove(&record.op);
            self.closed += 1;
            if self.closed >= FORGET_EVERY {
                self.forget_closed();
            }
        }
        Ok(())
    }

    fn forget_closed(&mut self) {
        self.ledger.forget_closed();
        self.closed = 0;
    }
}
