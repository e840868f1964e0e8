//! What the log of an ended task says of its end, in words for journal, report and status.
//!
//! `settle` asks once a task has ended and before the end is written down; the steps of a destroy ask of a backup. Reading is
//! best effort: it has a short time, decides nothing, and where it fails the exit text stands alone.

use std::time::Duration;

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::operate::operation::{OpEvent, Operation, Upid};
use evenkeel_core::words::task_log::{
    GrownVolume, cause_lines, failure_text, log_may_warn, warning_lines, warning_text,
};

use crate::engine::EngineContext;
use crate::engine::settle::evidence::written;
use crate::journal::Details;
use crate::pve::task::ExitStatus;
use crate::pve::wire::LogLine;
use crate::sometimes;

/// How long a log may take to be read: the lane waits for it, and a node that is slow tells the exit text soon enough.
const READ_WITHIN: Duration = Duration::from_secs(3);

/// Lines that are read from the begin: nearly every log is shorter.
const FIRST_LINES: u32 = 500;

/// Lines that are read from the end of a longer one.
const LAST_LINES: u32 = 100;

impl EngineContext {
    /// An operation's last event with what its task's log says.
    pub(in crate::engine) async fn with_log_words(
        &self,
        operation: &Operation,
        details: &Details,
        event: OpEvent,
        exit: Option<&ExitStatus>,
    ) -> OpEvent {
        let (Some(exit), Some(upid)) = (exit, &operation.task) else {
            return event;
        };
        match event {
            OpEvent::Failed { reason, left_volume, tried, identity } => {
                let reason = self.failed_words(reason, exit, upid).await;
                OpEvent::Failed { reason, left_volume, tried, identity }
            }
            OpEvent::Unknown { reason } => {
                OpEvent::Unknown { reason: self.failed_words(reason, exit, upid).await }
            }
            OpEvent::Succeeded { identity, warning } => {
                let kind = operation.intent.kind;
                let grown = grown_volume(kind, details);
                let warning = self.warning_words(kind, warning, grown.as_ref(), exit, upid).await;
                OpEvent::Succeeded { identity, warning }
            }
            event @ (OpEvent::Started(_)
            | OpEvent::RequestStarted { .. }
            | OpEvent::TaskRunning { .. }
            | OpEvent::Resolved { .. }) => event,
        }
    }

    /// Why it came to nothing, with how its task ended and what that logged.
    async fn failed_words(&self, reason: String, exit: &ExitStatus, upid: &Upid) -> String {
        match exit {
            ExitStatus::Failed(text) => {
                let lines = self.telling_lines(exit, upid).await;
                if !lines.is_empty() {
                    sometimes!("a log says why its task failed");
                }
                failure_text(&reason, text, &lines)
            }
            ExitStatus::UnexpectedStatus => {
                let lines = self.telling_lines(exit, upid).await;
                if lines.is_empty() {
                    reason
                } else {
                    failure_text(&reason, &exit.to_string(), &lines)
                }
            }
            ExitStatus::Ok | ExitStatus::Warnings(_) | ExitStatus::Unreadable(_) => reason,
        }
    }

    /// The lines of an ended task's log that say what its exit status does not.
    pub(in crate::engine) async fn telling_lines(
        &self,
        exit: &ExitStatus,
        upid: &Upid,
    ) -> Vec<String> {
        match exit {
            ExitStatus::Failed(text) => cause_lines(&self.ended_log(upid).await, text),
            // It wrote no last line, so what it wrote last is all there is.
            ExitStatus::UnexpectedStatus => cause_lines(&self.ended_log(upid).await, ""),
            ExitStatus::Ok | ExitStatus::Warnings(_) => warning_lines(&self.ended_log(upid).await),
            ExitStatus::Unreadable(_) => Vec::new(),
        }
    }

    /// What is odd about a success.
    async fn warning_words(
        &self,
        kind: ActionKind,
        decided: Option<String>,
        grown: Option<&GrownVolume>,
        exit: &ExitStatus,
        upid: &Upid,
    ) -> Option<String> {
        match (exit, decided) {
            (ExitStatus::Ok, decided) if !log_may_warn(kind) => decided,
            (ExitStatus::Ok | ExitStatus::Warnings(_), decided) => {
                let lines = self.telling_lines(exit, upid).await;
                warning_text(decided.as_deref(), grown, &lines)
            }
            (ExitStatus::Failed(_) | ExitStatus::UnexpectedStatus, Some(decided)) => {
                Some(self.failed_words(decided, exit, upid).await)
            }
            (ExitStatus::Failed(_) | ExitStatus::UnexpectedStatus, None) => None,
            (ExitStatus::Unreadable(_), decided) => decided,
        }
    }

    /// The lines of an ended task's log, of a long one the first and the last; none if it cannot be read in time.
    async fn ended_log(&self, upid: &Upid) -> Vec<String> {
        let read = tokio::time::timeout(READ_WITHIN, self.read_ended_log(upid)).await;
        let lines = read.unwrap_or_default().into_iter();
        lines.filter_map(|line| line.t).collect()
    }

    async fn read_ended_log(&self, upid: &Upid) -> Vec<LogLine> {
        let Ok(first) = self.client.task_log_page(upid, 0, FIRST_LINES).await else {
            return Vec::new();
        };
        let mut lines = first.lines;
        let total = first.total.and_then(|total| u32::try_from(total).ok()).unwrap_or(0);
        if total > FIRST_LINES {
            let start = total.saturating_sub(LAST_LINES).max(FIRST_LINES);
            match self.client.task_log_page(upid, start, LAST_LINES).await {
                Ok(last) => lines.extend(last.lines),
                // The begin of a long log does not say how it ended.
                Err(_) => lines.clear(),
            }
        }
        lines
    }
}

/// The volume that an act made larger, by what was sent.
fn grown_volume(kind: ActionKind, details: &Details) -> Option<GrownVolume> {
    let mut params = (kind == ActionKind::Resize).then(|| written(details))?;
    Some(GrownVolume { slot: params.remove("disk")?, size: params.remove("size")? })
}
