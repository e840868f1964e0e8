//! Waits for a task; while somebody sits before a terminal, its newest log line is told.
//!
//! Called by `settle` and by the steps of a destroy. The log is read beside the wait and dropped with it: reading must
//! never delay, fail or decide anything, and costs no request where nobody wants to see it.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use evenkeel_core::model::id::{GuestId, OperationId};
use evenkeel_core::model::secret::masked_text;
use evenkeel_core::operate::operation::Upid;
use tokio::time::Instant;

use crate::engine::{EngineContext, Progress};
use crate::lock_owners::percent;
use crate::pve::error::Error;
use crate::pve::text::clean;
use crate::pve::wait::WaitOutcome;
use crate::pve::wire::LogLine;

/// The pause before each look at a log: what ends within it was not worth one.
const LOG_PAUSE: Duration = Duration::from_secs(1);

/// Lines that are read at a look. A log that grows faster is told a little late.
const LINES_MAX: u32 = 500;

/// What PVE answers for a log without lines.
const EMPTY_LOG: &str = "no content";

/// Those who see what tasks log. Without any of them no log is read.
#[derive(Debug, Clone, Default)]
pub struct LogViewers {
    count: Arc<AtomicUsize>,
}

impl LogViewers {
    /// Somebody who stays.
    pub(in crate::engine) fn always() -> Self {
        Self { count: Arc::new(AtomicUsize::new(1)) }
    }

    /// Somebody who looks on until the view is dropped.
    pub fn view(&self) -> LogView {
        self.count.fetch_add(1, Ordering::Relaxed);
        LogView { viewers: self.clone() }
    }

    fn has_some(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }
}

/// One who looks on.
#[derive(Debug)]
pub struct LogView {
    viewers: LogViewers,
}

impl Drop for LogView {
    fn drop(&mut self) {
        self.viewers.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl EngineContext {
    /// Waits until the task of an operation ends or the deadline passes, as the client does.
    pub(in crate::engine) async fn wait_for_task(
        &self,
        op: OperationId,
        guest: GuestId,
        upid: &Upid,
        deadline: Instant,
    ) -> Result<WaitOutcome, Error> {
        let waiting = self.client.wait(upid, deadline);
        let Some(viewers) = &self.watchers.log_viewers else {
            return waiting.await;
        };
        tokio::select! {
            biased;
            waited = waiting => waited,
            never = self.tell_log(viewers, op, guest, upid) => match never {},
        }
    }

    /// Tells what a log says, for as long as it is polled.
    async fn tell_log(
        &self,
        viewers: &LogViewers,
        op: OperationId,
        guest: GuestId,
        upid: &Upid,
    ) -> Infallible {
        let mut read = 0;
        loop {
            tokio::time::sleep(LOG_PAUSE).await;
            if !viewers.has_some() {
                continue;
            }
            // A log that cannot be read now is looked at again.
            let lines = self.client.task_log(upid, read, LINES_MAX).await.unwrap_or_default();
            let told: Vec<LogLine> = lines.into_iter().filter(is_told).collect();
            read = read.saturating_add(u32::try_from(told.len()).unwrap_or(LINES_MAX));
            let newest = told.iter().rev().filter_map(|line| line.t.as_deref());
            if let Some(line) = newest.map(clean).find(|line| !line.is_empty()) {
                let line = masked_text(&line).into_owned();
                let percent = percent(&told);
                self.tell(Progress::Log { op, guest, line, percent });
            }
        }
    }
}

fn is_told(line: &LogLine) -> bool {
    line.t.as_deref() != Some(EMPTY_LOG)
}
