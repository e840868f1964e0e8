//! A plan as it was shown, to be applied later exactly so or not at all.
//!
//! `plan --out` writes one, `apply PLAN` compares it with a plan made anew. It holds what would be sent and what is
//! held, not the digests: those change with every write, our own included.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Action, Plan};
use crate::action_kind::ActionKind;
use crate::id::{GuestId, NodeName};

/// A plan in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedPlan {
    /// What the file is.
    pub format: Format,
    /// The node it was made for.
    pub node: NodeName,
    /// Every action that would run, in order.
    pub actions: Vec<SavedAction>,
}

/// The one format there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Format {
    /// The first.
    #[serde(rename = "evenkeel/plan/v1")]
    V1,
}

/// One action that would run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedAction {
    /// The guest.
    pub guest: GuestId,
    /// What it does.
    pub kind: ActionKind,
    /// Every parameter but the digest.
    pub params: BTreeMap<String, String>,
    /// What a person was shown.
    pub reasons: Vec<String>,
}

/// How a plan made now differs from the saved one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stale {
    /// It was made for another node.
    OtherNode(NodeName),
    /// This would run now and was not in the plan.
    New(SavedAction),
    /// This was in the plan and would not run now, or not so.
    Gone(SavedAction),
}

impl SavedPlan {
    /// What of a plan would run.
    pub fn of(plan: &Plan, node: &NodeName) -> Self {
        let actions = plan.runnable().map(SavedAction::of).collect();
        Self { format: Format::V1, node: node.clone(), actions }
    }

    /// Whether a plan made now would run something else; the first difference.
    pub fn stale_against(&self, now: &Self) -> Option<Stale> {
        if self.node != now.node {
            return Some(Stale::OtherNode(self.node.clone()));
        }
        let missing = |from: &Self, other: &Self| {
            from.actions.iter().find(|action| !other.actions.contains(action)).cloned()
        };
        missing(self, now).map(Stale::Gone).or_else(|| missing(now, self).map(Stale::New))
    }
}

impl SavedAction {
    fn of(action: &Action) -> Self {
        Self {
            guest: action.guest,
            kind: action.step.kind(),
            params: action.step.params_but_digest(),
            reasons: action.reasons(),
        }
    }
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = |f: &mut fmt::Formatter<'_>, action: &SavedAction, how: &str| {
            let SavedAction { guest, kind, reasons, .. } = action;
            write!(f, "{guest}: {} ({}) {how}", kind.as_str(), reasons.join(", "))
        };
        match self {
            Self::OtherNode(node) => write!(f, "it was made for node {node}"),
            Self::New(action) => told(f, action, "would run now and was not in the plan"),
            Self::Gone(action) => told(f, action, "is in the plan and would not run so now"),
        }
    }
}
