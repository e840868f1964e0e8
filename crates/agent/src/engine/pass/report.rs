//! What came of a pass, action by action.
//!
//! Filled while lanes run; shown by `apply`, logged and counted by `run`, carried over the agent's socket between the
//! two. Nothing decides by it.

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::model::id::{GuestId, OperationId};
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_core::operate::lane::LaneOutcome;
use evenkeel_core::operate::operation::Upid;
use serde::{Deserialize, Serialize};

/// One pass in numbers, with everything a person must hear.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Actions in the plan.
    pub planned: usize,
    /// Operations whose `started` record was written.
    pub started: usize,
    /// Actions done, or found to be done already.
    pub succeeded: usize,
    /// Actions not done, or of unknown outcome.
    pub failed: usize,
    /// Actions that wait for something: a signature, a lock, a thaw, their lane.
    pub held: usize,
    /// Actions not run because one before them failed.
    pub skipped: usize,
    /// What cannot be done at all, guest by guest.
    pub errors: Vec<GuestError>,
    /// Every action that was submitted, in the order they ended.
    pub ops: Vec<OpReport>,
    /// Every action that was held when the pass planned it.
    pub holds: Vec<Hold>,
    /// Declared guests that need nothing.
    pub in_sync: usize,
}

/// Something declared that will not come about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestError {
    /// The guest.
    pub guest: GuestId,
    /// Why.
    pub why: String,
}

/// An action that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// The guest.
    pub guest: GuestId,
    /// What it would do; none when the whole guest waits.
    pub kind: Option<ActionKind>,
    /// Why, as a code.
    pub reason: ReasonCode,
    /// Why, in words.
    pub why: String,
}

/// What became of one submitted action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpReport {
    /// The operation; the last one if it was tried again.
    pub op: OperationId,
    /// The guest.
    pub guest: GuestId,
    /// What it does.
    pub kind: ActionKind,
    /// `cores 2 -> 4`.
    pub reasons: Vec<String>,
    /// How it ended.
    pub end: OpOutcome,
    /// The task, if there was one.
    pub upid: Option<Upid>,
    /// How many operations were started for it.
    pub started: usize,
}

/// How an action ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum OpOutcome {
    /// It was done and seen to be done.
    Succeeded {
        /// What is odd about it.
        warning: Option<String>,
    },
    /// The guest was as declared already when its turn came.
    Unneeded,
    /// The guest had changed since the plan; the next pass plans anew.
    Stale {
        /// How.
        why: String,
    },
    /// It may not run now.
    Held {
        /// Why, as a code.
        reason: ReasonCode,
        /// Why, in words.
        why: String,
    },
    /// It was not done.
    Failed {
        /// Why, with PVE's words.
        why: String,
    },
    /// Whether it was done is not known; the lane stays shut.
    Unknown {
        /// Why.
        why: String,
    },
    /// It was not tried: an action before it failed, or the agent goes down.
    Skipped,
}

impl Report {
    /// Counts one ended action.
    pub(in crate::engine) fn count(&mut self, op: OpReport) {
        self.started += op.started;
        match &op.end {
            OpOutcome::Succeeded { .. } | OpOutcome::Unneeded => self.succeeded += 1,
            OpOutcome::Failed { .. } | OpOutcome::Unknown { .. } => self.failed += 1,
            OpOutcome::Held { .. } => self.held += 1,
            OpOutcome::Skipped | OpOutcome::Stale { .. } => self.skipped += 1,
        }
        self.ops.push(op);
    }

    /// Counts what was not even submitted.
    pub(in crate::engine) fn hold(&mut self, hold: Hold) {
        self.held += 1;
        self.holds.push(hold);
    }

    /// Whether the guests are as declared, but for what waits.
    pub(crate) fn is_clean(&self) -> bool {
        self.failed == 0 && self.errors.is_empty() && self.skipped == 0
    }
}

impl OpOutcome {
    /// Every word of [`Self::as_str`].
    pub(crate) const WORDS: [&'static str; 7] =
        ["succeeded", "unneeded", "stale", "held", "failed", "unknown", "skipped"];

    /// What the lane hears of it.
    pub(in crate::engine) fn outcome(&self) -> LaneOutcome {
        match self {
            Self::Succeeded { .. } | Self::Unneeded => LaneOutcome::Succeeded,
            Self::Stale { .. } | Self::Held { .. } | Self::Failed { .. } | Self::Skipped => {
                LaneOutcome::Failed
            }
            Self::Unknown { .. } => LaneOutcome::Unknown,
        }
    }

    /// One word for metrics and logs.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Succeeded { .. } => "succeeded",
            Self::Unneeded => "unneeded",
            Self::Stale { .. } => "stale",
            Self::Held { .. } => "held",
            Self::Failed { .. } => "failed",
            Self::Unknown { .. } => "unknown",
            Self::Skipped => "skipped",
        }
    }

    /// Why it may not run now, as a code.
    pub fn reason(&self) -> Option<ReasonCode> {
        if let Self::Held { reason, .. } = self { Some(*reason) } else { None }
    }

    /// What a person must hear; empty if it simply went well.
    pub fn words(&self) -> String {
        match self {
            Self::Succeeded { warning } => warning.clone().unwrap_or_default(),
            Self::Unneeded => String::new(),
            Self::Stale { why } => format!("not done: {why}"),
            Self::Held { reason, why } => format!("held ({reason}): {why}"),
            Self::Failed { why } => format!("failed: {why}"),
            Self::Unknown { why } => format!("outcome unknown: {why}"),
            Self::Skipped => "skipped: an action before it did not succeed".to_owned(),
        }
    }
}
