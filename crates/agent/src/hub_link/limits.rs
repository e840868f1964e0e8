//! How hard the link tries and how much it takes: pauses with jitter, envelopes a minute, and how the link stands.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use evenkeel_core::fleet::RefusedGeneration;
use jiff::Timestamp;
use tokio::time::Instant;

/// Connections that fail are tried again within this; hosts that lose a hub together come back spread over it.
const RECONNECT_MAX: Duration = Duration::from_secs(30);

/// The longest pause after the hub said no.
const DENIED_MAX: Duration = Duration::from_mins(5);

/// The first one.
const DENIED_FIRST: Duration = Duration::from_secs(15);

/// How long a poll may wait at most, and at least.
const WAIT_MAX_S: u64 = 55;
const WAIT_MIN_S: u64 = 10;

/// Envelopes that are verified in a minute; each costs a few signatures.
pub(super) const ENVELOPES_PER_MINUTE: u32 = 60;

/// Documents that are fetched in a minute; each costs megabytes, a pass and a record. Nobody pushes as often.
pub(super) const DOCUMENTS_PER_MINUTE: u32 = 10;

/// Why there was no use in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkTrouble {
    /// No connection, no whole answer, or one that makes no sense.
    Connection,
    /// 502, 504 or a reset: something between us does not let us wait so long.
    CutOff,
    /// 401, 403 or 429.
    Denied,
}

/// How long to pause, and how long to have the hub wait.
#[derive(Debug)]
pub(super) struct BackOff {
    denied: u32,
    wait_s: u64,
}

impl Default for BackOff {
    fn default() -> Self {
        Self { denied: 0, wait_s: WAIT_MAX_S }
    }
}

impl BackOff {
    /// How long the hub shall wait before it says that there is nothing.
    pub(super) fn wait_s(&self) -> u64 {
        self.wait_s
    }

    /// A whole answer came.
    pub(super) fn succeeded(&mut self) {
        self.denied = 0;
        self.wait_s = (self.wait_s + 1).min(WAIT_MAX_S);
    }

    /// The pause after something failed.
    pub(super) fn pause(&mut self, trouble: LinkTrouble, random: u128) -> Duration {
        match trouble {
            LinkTrouble::Connection => share(RECONNECT_MAX, random).max(Duration::from_millis(250)),
            LinkTrouble::CutOff => {
                self.wait_s = (self.wait_s / 2).max(WAIT_MIN_S);
                share(RECONNECT_MAX, random).max(Duration::from_millis(250))
            }
            LinkTrouble::Denied => {
                let longest = DENIED_FIRST.saturating_mul(1 << self.denied.min(8)).min(DENIED_MAX);
                self.denied = self.denied.saturating_add(1);
                longest / 2 + share(longest / 2, random)
            }
        }
    }
}

/// A random share of a time.
fn share(whole: Duration, random: u128) -> Duration {
    let thousandths = u32::try_from(random % 1_000).unwrap_or(0);
    whole * thousandths / 1_000
}

/// Counts by the minute.
#[derive(Debug)]
pub(super) struct MinuteRate {
    limit: u32,
    minute: Instant,
    taken: u32,
}

impl MinuteRate {
    pub(super) fn new(limit: u32, now: Instant) -> Self {
        Self { limit, minute: now, taken: 0 }
    }

    /// How long the next one has to wait; it is counted.
    pub(super) fn take(&mut self, now: Instant) -> Duration {
        let over = self.minute + Duration::from_mins(1);
        if now >= over {
            *self = Self::new(self.limit, now);
        } else if self.taken >= self.limit {
            *self = Self { minute: over, taken: 1, limit: self.limit };
            return over - now;
        }
        self.taken += 1;
        Duration::ZERO
    }
}

/// How the link stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LinkHealth {
    /// When the hub last answered.
    pub heard: Option<Timestamp>,
    /// What is wrong, since the last answer.
    pub trouble: Option<String>,
    /// The document that was refused last, until one is taken.
    pub refused: Option<RefusedGeneration>,
}

/// How the link stands, for everybody to read.
#[derive(Debug, Clone, Default)]
pub struct LinkView(Arc<Mutex<LinkHealth>>);

impl LinkView {
    /// How it stands now.
    pub fn health(&self) -> LinkHealth {
        self.lock().clone()
    }

    pub(super) fn heard(&self, at: Timestamp) {
        let mut health = self.lock();
        if health.trouble.take().is_some() {
            tracing::info!("the hub answers again");
        }
        health.heard = Some(at);
    }

    /// Said when it is new; a hub that stays away fills no log.
    pub(super) fn trouble(&self, why: &str) {
        let mut health = self.lock();
        if health.trouble.as_deref() == Some(why) {
            return;
        }
        if health.trouble.is_none() {
            tracing::warn!(why, "the hub is not heard; the last document it gave holds");
        }
        health.trouble = Some(why.to_owned());
    }

    pub(super) fn refused(&self, refused: Option<RefusedGeneration>) {
        let mut health = self.lock();
        if let Some(new) = refused.as_ref().filter(|new| health.refused.as_ref() != Some(*new)) {
            let RefusedGeneration { generation, code, why, .. } = new;
            tracing::error!(%generation, code, "a document of the hub was not taken: {why}");
        }
        health.refused = refused;
    }

    fn lock(&self) -> MutexGuard<'_, LinkHealth> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_bounded_and_spread() {
        let mut back_off = BackOff::default();
        for random in 0..2_000_u128 {
            assert!(back_off.pause(LinkTrouble::Connection, random) <= RECONNECT_MAX);
        }
        let mut last = Duration::ZERO;
        for _ in 0..20 {
            let pause = back_off.pause(LinkTrouble::Denied, 999);
            assert!(pause >= last && pause <= DENIED_MAX, "{pause:?}");
            last = pause;
        }
        assert!(last > Duration::from_mins(4));
        back_off.succeeded();
        assert!(back_off.pause(LinkTrouble::Denied, 0) < Duration::from_secs(10));
    }

    #[test]
    fn a_wait_that_is_cut_off_halves_down_to_ten_seconds() {
        let mut back_off = BackOff::default();
        let mut waits = vec![back_off.wait_s()];
        for _ in 0..4 {
            back_off.pause(LinkTrouble::CutOff, 0);
            waits.push(back_off.wait_s());
        }
        assert_eq!(waits, [55, 27, 13, 10, 10]);
        back_off.succeeded();
        assert_eq!(back_off.wait_s(), 11);
    }

    #[tokio::test(start_paused = true)]
    async fn no_minute_has_more_envelopes_than_its_share() {
        let start = Instant::now();
        let mut rate = MinuteRate::new(ENVELOPES_PER_MINUTE, start);
        let mut now = start;
        let mut times = Vec::new();
        for _ in 0..200 {
            now += rate.take(now);
            times.push(now - start);
        }
        for at in &times {
            let minute = times
                .iter()
                .filter(|other| **other >= *at && **other < *at + Duration::from_mins(1));
            assert!(minute.count() <= 60, "{at:?}");
        }
    }
}
