//! Waiting for a task: often at first, seldom later, never beyond the deadline handed in.
//!
//! A poll that fails for a passing reason is not news about the task; waiting goes on.

use std::time::Duration;

use tokio::time::Instant;

use super::Client;
use super::error::Error;
use super::task::{ExitStatus, Upid};
use super::wire::TaskStatus;

/// Pauses between polls. Most tasks (start, config) end within a second and are seen at once; long
/// ones (clone, restore) cost the node one cheap request every two seconds.
const PAUSES_MS: [u64; 7] = [50, 50, 100, 200, 400, 800, 1600];

/// The pause after those.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// What waiting came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitOutcome {
    /// The task ended.
    Ended(ExitStatus),
    /// The deadline passed and the task was still running when last seen.
    StillRunning,
}

impl Client {
    /// Waits until `upid` ends or `deadline` passes.
    ///
    /// An error means that PVE refused to tell (forgotten task, lost permission), or that nothing
    /// but passing errors came back until the deadline.
    pub async fn wait(&self, upid: &Upid, deadline: Instant) -> Result<WaitOutcome, Error> {
        let mut pauses = PAUSES_MS.into_iter().map(Duration::from_millis);
        loop {
            let polled = self.task_status(upid).await;
            match &polled {
                Ok(TaskStatus::Ended(status)) => return Ok(WaitOutcome::Ended(status.clone())),
                Err(error) if !error.is_transient() => {
                    return polled.map(|_| WaitOutcome::StillRunning);
                }
                Ok(TaskStatus::Running) | Err(_) => {}
            }
            let now = Instant::now();
            if now >= deadline {
                return polled.map(|_| WaitOutcome::StillRunning);
            }
            let pause = pauses.next().unwrap_or(LONGEST_PAUSE);
            tokio::time::sleep_until(deadline.min(now + pause)).await;
        }
    }
}
