//! The front without a socket: requests are awaited on tokio's clock, which tests may pause.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::{Duration, Instant};

use crate::engine::{SimOutcome, Simulator};
use crate::request::SimRequest;

/// A handle to a simulator driven by tokio's clock; clones share the node.
#[derive(Debug, Clone)]
pub struct InProcess {
    sim: Arc<Mutex<Simulator>>,
    changed: Arc<Notify>,
    /// The real moment that is the simulation's `base_ms`.
    began: Instant,
    base_ms: u64,
}

impl InProcess {
    /// Starts the clock. Must be called inside a tokio runtime.
    pub fn new(sim: Simulator) -> Self {
        let base_ms = sim.now_ms();
        Self {
            sim: Arc::new(Mutex::new(sim)),
            changed: Arc::new(Notify::new()),
            began: Instant::now(),
            base_ms,
        }
    }

    /// Sends a request and waits for its outcome: an answer or a broken connection.
    pub async fn send(&self, request: SimRequest) -> SimOutcome {
        let now_ms = self.now_ms();
        let ticket = self.lock().submit(now_ms, request);
        self.changed.notify_waiters();
        loop {
            // Registered before looking, so that a change in between is not missed.
            let changed = self.changed.notified();
            let now_ms = self.now_ms();
            let outcome = self.lock().poll(now_ms, ticket);
            let SimOutcome::Wait { until_ms } = outcome else {
                self.changed.notify_waiters();
                return outcome;
            };
            let idle = Duration::from_hours(1);
            let wait = until_ms
                .map_or(idle, |until| Duration::from_millis(until.saturating_sub(now_ms).max(1)));
            tokio::select! {
                // Both arms only wake; what happened is asked of the simulator again.
                () = tokio::time::sleep(wait) => {}
                () = changed => {}
            }
        }
    }

    /// Looks at or changes the node between requests: faults, events, the request log.
    pub fn with<T>(&self, act: impl FnOnce(&mut Simulator) -> T) -> T {
        let now_ms = self.now_ms();
        let result = {
            let mut sim = self.lock();
            sim.advance(now_ms);
            act(&mut sim)
        };
        self.changed.notify_waiters();
        result
    }

    fn now_ms(&self) -> u64 {
        self.base_ms + u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, Simulator> {
        // A panic elsewhere leaves plain data behind, which is still worth answering from.
        self.sim.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
