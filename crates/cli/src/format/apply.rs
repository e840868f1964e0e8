//! `apply -o json`: what came of a pass.

use evenkeel_agent::engine::{OpReport, Report};
use schemars::JsonSchema;
use serde::Serialize;

/// The version of this format.
const FORMAT_VERSION: u32 = 1;

/// What came of a pass.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ApplyFormat {
    /// 1.
    format_version: u32,
    /// Actions in the plan.
    planned: usize,
    /// Operations that were begun.
    started: usize,
    /// Actions done, or found to be done already.
    succeeded: usize,
    /// Actions not done, or of unknown outcome.
    failed: usize,
    /// Actions that wait for something.
    held: usize,
    /// Actions not tried because one before them failed.
    skipped: usize,
    /// Declared guests that need nothing.
    in_sync: usize,
    /// What cannot be done at all.
    errors: Vec<ErrorFormat>,
    /// What was held when the pass planned it.
    holds: Vec<HoldFormat>,
    /// Every action that was submitted, in the order they ended.
    ops: Vec<OpFormat>,
}

/// Something declared that will not come about.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ErrorFormat {
    /// Such as `lxc/101`.
    guest: String,
    /// Why.
    message: String,
}

/// An action that waits.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct HoldFormat {
    /// Such as `lxc/101`.
    guest: String,
    /// What it would do; null when the whole guest waits.
    kind: Option<String>,
    /// The reason code.
    code: String,
    /// The same in words.
    message: String,
}

/// What became of one action.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct OpFormat {
    /// The operation.
    op: String,
    /// Such as `lxc/101`.
    guest: String,
    /// What it does.
    kind: String,
    /// Why, for people: long values are cut here; `plan` and `journal show` have them whole.
    reasons: Vec<String>,
    /// `succeeded`, `unneeded`, `stale`, `held`, `failed`, `unknown` or `skipped`.
    result: String,
    /// The reason code, if it was held.
    reason: Option<String>,
    /// The same in words.
    message: String,
    /// Proxmox VE's task.
    upid: Option<String>,
}

impl ApplyFormat {
    pub(crate) fn of(report: &Report) -> Self {
        let Report {
            planned,
            started,
            succeeded,
            failed,
            held,
            skipped,
            errors,
            ops,
            holds,
            in_sync,
            ..
        } = report;
        Self {
            format_version: FORMAT_VERSION,
            planned: *planned,
            started: *started,
            succeeded: *succeeded,
            failed: *failed,
            held: *held,
            skipped: *skipped,
            in_sync: *in_sync,
            errors: errors
                .iter()
                .map(|error| ErrorFormat {
                    guest: error.guest.to_string(),
                    message: error.why.clone(),
                })
                .collect(),
            holds: holds
                .iter()
                .map(|hold| HoldFormat {
                    guest: hold.guest.to_string(),
                    kind: hold.kind.map(|kind| kind.to_string()),
                    code: hold.reason.to_string(),
                    message: hold.why.clone(),
                })
                .collect(),
            ops: ops.iter().map(OpFormat::of).collect(),
        }
    }
}

impl OpFormat {
    pub(crate) fn of(op: &OpReport) -> Self {
        Self {
            op: op.op.to_string(),
            guest: op.guest.to_string(),
            kind: op.kind.to_string(),
            reasons: op.reasons.clone(),
            result: op.end.as_str().to_owned(),
            reason: op.end.reason().map(|reason| reason.to_string()),
            message: op.end.words(),
            upid: op.upid.as_ref().map(ToString::to_string),
        }
    }
}
