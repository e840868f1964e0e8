//! What a host did and decided, line by line, as it reported it.

use evenkeel_core::fleet::{OpChange, ReportedDecision, ToldOperation};

use super::words::{Moment, StateWord, guest_path, spoken};
use crate::people::guests::told;
use crate::store::{HistoryRow, HubTime};

/// One op.
pub(super) struct OpLine {
    pub(super) op: String,
    pub(super) kind: String,
    pub(super) guest: String,
    pub(super) guest_path: Option<String>,
    pub(super) state: StateWord,
    /// The hub's clock.
    pub(super) at: Moment,
    /// The host's own clock.
    pub(super) host_at: String,
    pub(super) reason: String,
    pub(super) outcome: String,
    pub(super) signer: String,
    pub(super) changes: Vec<ChangeLine>,
}

/// One key before and after.
pub(super) struct ChangeLine {
    pub(super) key: String,
    pub(super) before: Option<String>,
    pub(super) after: Option<String>,
}

impl OpLine {
    pub(super) fn new(host: &str, row: &HistoryRow, now: HubTime) -> Self {
        let told: ToldOperation = told(&row.body);
        let change = |OpChange { key, before, after }| ChangeLine { key, before, after };
        Self {
            guest_path: guest_path(host, &told.guest),
            state: StateWord::of_op(&told.state),
            at: Moment::new(row.received_at, now),
            kind: spoken(&told.kind),
            op: told.op,
            guest: told.guest,
            host_at: told.at,
            reason: told.reason,
            outcome: told.outcome,
            signer: told.signer.unwrap_or_default(),
            changes: told.changes.into_iter().map(change).collect(),
        }
    }
}

/// One decision.
pub(super) struct DecisionLine {
    pub(super) code: StateWord,
    pub(super) op: String,
    pub(super) guest: String,
    pub(super) guest_path: Option<String>,
    pub(super) at: Moment,
    pub(super) detail: String,
    pub(super) signer: String,
}

impl DecisionLine {
    pub(super) fn new(host: &str, row: &HistoryRow, now: HubTime) -> Self {
        let told: ReportedDecision = told(&row.body);
        Self {
            code: StateWord::of_decision(if told.code.is_empty() {
                &told.event
            } else {
                &told.code
            }),
            op: spoken(&told.op),
            guest_path: guest_path(host, &told.guest),
            guest: told.guest,
            at: Moment::new(row.received_at, now),
            detail: told.detail,
            signer: told.signer.unwrap_or_default(),
        }
    }
}
