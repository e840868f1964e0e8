//! What the log says: one line when an operation begins and one when it ends, one for a pass in which something
//! happened, one for what newly waits or cannot be done.
//!
//! Fields are `op`, `guest`, `upid`, `pass`; a line reads alone. What is at rest is not logged above `debug`.

use std::collections::BTreeSet;

use evenkeel_core::model::id::GuestId;
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_core::operate::operation::{OpState, Operation};

use crate::engine::{OpOutcome, OpReport, PassId, Progress, Report};

/// Logs what happens to operations while it happens.
pub(super) fn progress(progress: &Progress) {
    match progress {
        Progress::Started { op, guest, what } => {
            tracing::info!(%op, %guest, what, "started");
        }
        Progress::Task { op, guest, upid } => {
            tracing::debug!(%op, %guest, %upid, "Proxmox works on it");
        }
        Progress::Waiting { op, guest, why } => {
            tracing::info!(%op, %guest, why, "waiting");
        }
        Progress::Log { op, guest, line, percent } => {
            tracing::debug!(%op, %guest, percent, line, "the task says");
        }
        Progress::Ended(report) => ended(report),
    }
}

fn ended(report: &OpReport) {
    let OpReport { op, guest, kind, reasons, end, upid, started: _ } = report;
    let upid = upid.as_ref().map(tracing::field::display);
    let what = reasons.join(", ");
    let words = end.words();
    match end {
        OpOutcome::Succeeded { warning: None } => {
            tracing::info!(%op, %guest, upid, %kind, what, "done");
        }
        OpOutcome::Succeeded { warning: Some(_) } => {
            tracing::warn!(%op, %guest, upid, %kind, what, words, "done, with a warning");
        }
        OpOutcome::Unneeded | OpOutcome::Skipped => {
            tracing::debug!(%op, %guest, %kind, what, result = end.as_str(), "not needed");
        }
        OpOutcome::Stale { .. } | OpOutcome::Held { .. } => {
            tracing::info!(%op, %guest, %kind, what, words, "not now");
        }
        OpOutcome::Failed { .. } => {
            tracing::warn!(%op, %guest, upid, %kind, what, words, "not done");
        }
        OpOutcome::Unknown { .. } => {
            tracing::error!(%op, %guest, upid, %kind, what, words,
                "the outcome is not known; the guest is left alone until evidence or \
                 `evenkeel journal resolve` ends it");
        }
    }
}

/// An operation that was in flight at the start, or unknown, was closed.
pub(super) fn settled(operation: &Operation) {
    let op = operation.id;
    let guest = operation.intent.guest;
    let kind = operation.intent.kind;
    let upid = operation.task.as_ref().map(tracing::field::display);
    match &operation.state {
        OpState::Succeeded { .. } => {
            tracing::info!(%op, %guest, upid, %kind, "an earlier operation is done");
        }
        OpState::Failed { reason, .. } => {
            tracing::warn!(%op, %guest, upid, %kind, reason, "an earlier operation was not done");
        }
        OpState::Started { .. } | OpState::TaskRunning { .. } | OpState::Unknown { .. } => {}
    }
}

/// What waits and what cannot be done, so that each is said when it is new and not at every pass.
#[derive(Debug, Default)]
pub(super) struct LogMemory {
    holds: BTreeSet<(GuestId, ReasonCode)>,
    errors: BTreeSet<(GuestId, String)>,
}

impl LogMemory {
    /// Logs a pass.
    pub(super) fn pass(&mut self, pass: PassId, report: &Report) {
        let holds: BTreeSet<_> =
            report.holds.iter().map(|hold| (hold.guest, hold.reason)).collect();
        let errors: BTreeSet<_> =
            report.errors.iter().map(|error| (error.guest, error.why.clone())).collect();
        for hold in &report.holds {
            if !self.holds.contains(&(hold.guest, hold.reason)) {
                tracing::info!(%pass, guest = %hold.guest, code = %hold.reason, why = hold.why, "held");
            }
        }
        for (guest, why) in errors.difference(&self.errors) {
            tracing::warn!(%pass, %guest, why, "cannot be done");
        }
        let happened = !report.ops.is_empty() || holds != self.holds || errors != self.errors;
        (self.holds, self.errors) = (holds, errors);
        let Report { planned, started, succeeded, failed, held, skipped, in_sync, .. } = report;
        let errors = report.errors.len();
        if happened {
            tracing::info!(%pass, planned, started, succeeded, failed, held, skipped, errors, in_sync,
                "pass ended");
        } else {
            tracing::debug!(%pass, planned, held, errors, in_sync, "pass ended, nothing happened");
        }
    }
}
