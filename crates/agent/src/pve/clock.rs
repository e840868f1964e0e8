//! The node's clock, read off the `Date` header of its answers.
//!
//! Task times are the node's; after a lost answer they are compared with this. The header has whole
//! seconds, so a reading is good to about a second.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// The node's time at the moment an answer came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeClock {
    at_answer: Timestamp,
    received: Instant,
}

impl NodeClock {
    /// Reads a `Date` header received at `received`.
    pub(super) fn read(date: &str, received: Instant) -> Option<Self> {
        let at_answer = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(date).ok()?;
        Some(Self { at_answer, received })
    }

    /// The node's time at `instant`.
    pub fn at(&self, instant: Instant) -> Timestamp {
        let since = instant.saturating_duration_since(self.received);
        self.at_answer.saturating_add(since).unwrap_or(self.at_answer)
    }

    /// How far the node's clock is ahead of `local`, read at `instant`; negative if it is behind.
    pub fn ahead_of(&self, local: Timestamp, instant: Instant) -> SignedDuration {
        self.at(instant).duration_since(local)
    }

    /// How old the reading is.
    pub fn age(&self, instant: Instant) -> Duration {
        instant.saturating_duration_since(self.received)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nodes_clock_goes_on_from_the_last_answer() {
        let received = Instant::now();
        let clock = NodeClock::read("Sun, 15 Nov 2026 20:00:00 GMT", received).unwrap();
        let later = received + Duration::from_secs(90);
        assert_eq!(clock.at(later), "2026-11-15T20:01:30Z".parse().unwrap());
        let local: Timestamp = "2026-11-15T20:02:00Z".parse().unwrap();
        assert_eq!(clock.ahead_of(local, later), SignedDuration::from_secs(-30));
        assert_eq!(clock.age(later), Duration::from_secs(90));
    }

    #[test]
    fn a_date_that_is_none_is_no_reading() {
        for text in ["", "today", "Sun, 99 Nov 2026 20:00:00 GMT", "\u{0}"] {
            assert_eq!(NodeClock::read(text, Instant::now()), None, "{text}");
        }
    }
}
