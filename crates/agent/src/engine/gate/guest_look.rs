//! The guest as its own lane read it last: the proof of one act, and what the next one in the same lane is judged by.
//!
//! After a making the same lane goes on at once with sizes and the first start. What proved the act before is then as fresh
//! as anything the gate could read: no request of ours came in between, and none may be waited for. It must never serve
//! another lane, an act that removes something, or a gate that had to wait for its turn.

use std::time::Duration;

use evenkeel_core::actual::Guest;
use tokio::time::Instant;

/// How long a look serves the next act: the record of what it proved is synced meanwhile, and nothing else is waited for.
pub(in crate::engine) const LOOK_SERVES: Duration = Duration::from_millis(100);

/// One look at a guest, status and configuration.
#[derive(Debug)]
pub(in crate::engine) struct GuestLook {
    pub(in crate::engine) guest: Guest,
    answered: Instant,
}

impl GuestLook {
    /// A guest that was answered just now.
    pub(in crate::engine) fn new(guest: Guest) -> Self {
        Self { guest, answered: Instant::now() }
    }

    /// Whether an act may still be judged by it.
    pub(in crate::engine) fn serves(&self) -> bool {
        self.answered.elapsed() <= LOOK_SERVES
    }
}
