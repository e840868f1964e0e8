//! What is told of operations while they happen, and who hears it.

use std::sync::Arc;

use evenkeel_core::model::id::{GuestId, OperationId};
use evenkeel_core::operate::operation::Upid;
use serde::{Deserialize, Serialize};

use crate::engine::lane::task_progress::LogViewers;
use crate::engine::pass::report::OpReport;

/// Who hears of progress, and sees what tasks log.
#[derive(Clone)]
pub(in crate::engine) struct ProgressWatchers {
    /// Who hears of progress while it happens.
    pub(in crate::engine) listener: Arc<dyn Fn(Progress) + Send + Sync>,
    /// Who sees what tasks log while they are waited for; none if nobody ever does.
    pub(in crate::engine) log_viewers: Option<LogViewers>,
}

impl Default for ProgressWatchers {
    fn default() -> Self {
        Self { listener: Arc::new(|_| {}), log_viewers: None }
    }
}

/// What is told while it happens; what is durable is in the journal.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Progress {
    /// The `started` record is on disk and the request leaves.
    Started {
        /// Which operation.
        op: OperationId,
        /// On which guest.
        guest: GuestId,
        /// What it does, with its reasons.
        what: String,
    },
    /// PVE works on it.
    Task {
        /// Which operation.
        op: OperationId,
        /// On which guest.
        guest: GuestId,
        /// The task.
        upid: Upid,
    },
    /// It is waited for something: a lock, a lost answer, PVE itself.
    Waiting {
        /// Which operation.
        op: OperationId,
        /// On which guest.
        guest: GuestId,
        /// For what.
        why: String,
    },
    /// What the log of its task says by now. Only for those who asked to see it.
    Log {
        /// Which operation.
        op: OperationId,
        /// On which guest.
        guest: GuestId,
        /// The newest line, secrets masked.
        line: String,
        /// How far it is, where PVE tells.
        percent: Option<u8>,
    },
    /// It ended.
    Ended(Box<OpReport>),
}

impl Progress {
    /// Which operation it is about.
    pub fn op(&self) -> OperationId {
        match self {
            Self::Started { op, .. }
            | Self::Task { op, .. }
            | Self::Waiting { op, .. }
            | Self::Log { op, .. } => *op,
            Self::Ended(report) => report.op,
        }
    }

    /// On which guest.
    pub fn guest(&self) -> GuestId {
        match self {
            Self::Started { guest, .. }
            | Self::Task { guest, .. }
            | Self::Waiting { guest, .. }
            | Self::Log { guest, .. } => *guest,
            Self::Ended(report) => report.guest,
        }
    }
}
