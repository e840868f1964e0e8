//! When the next pass is due. A plain value over moments, so that a test can say what time it is.
//!
//! ```text
//!   a pass went well ──> one interval, a tenth more or less
//!   it failed ─────────> 2 s, 4 s, 8 s … up to the interval
//!   files changed ─────> when they have been quiet for a moment
//!   stale, or asked ───> soon
//! ```

use std::time::Duration;

use tokio::time::Instant;

/// How long files must be quiet: an editor writes, renames and touches within this.
const QUIET: Duration = Duration::from_millis(300);

/// How long a directory that never rests is waited for.
const QUIET_MAX: Duration = Duration::from_secs(3);

/// After an action found its guest changed: long enough for whoever changes it to finish a save.
const SOON: Duration = Duration::from_secs(2);

/// The first pause after a failed pass; it doubles.
const FIRST_BACK_OFF: Duration = Duration::from_secs(2);

/// When to make passes.
#[derive(Debug)]
pub(super) struct Schedule {
    interval: Duration,
    due: Instant,
    failures: u32,
    changed: Option<Changed>,
}

/// Files changed.
#[derive(Debug, Clone, Copy)]
struct Changed {
    first: Instant,
    quiet_at: Instant,
}

impl Schedule {
    /// The first pass is due at once.
    pub(super) fn new(interval: Duration, now: Instant) -> Self {
        Self { interval, due: now, failures: 0, changed: None }
    }

    /// When the next pass is due.
    pub(super) fn due(&self) -> Instant {
        match self.changed {
            Some(changed) => self.due.min(changed.quiet_at),
            None => self.due,
        }
    }

    /// A pass read the node.
    pub(super) fn succeeded(&mut self, now: Instant, random: u128) {
        self.failures = 0;
        self.again(now + jittered(self.interval, random));
    }

    /// A pass came to nothing.
    pub(super) fn failed(&mut self, now: Instant, random: u128) {
        let doubled = FIRST_BACK_OFF.saturating_mul(1 << self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        self.again(now + jittered(doubled.min(self.interval), random));
    }

    /// How many passes in a row came to nothing.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }

    fn again(&mut self, due: Instant) {
        self.due = due;
        self.changed = None;
    }

    /// Desired files changed.
    pub(super) fn files_changed(&mut self, now: Instant) {
        let first = self.changed.map_or(now, |changed| changed.first);
        let quiet_at = (now + QUIET).min(first + QUIET_MAX);
        self.changed = Some(Changed { first, quiet_at });
    }

    /// A pass shall follow soon, because what was planned no longer fits.
    pub(super) fn soon(&mut self, now: Instant) {
        self.due = self.due.min(now + SOON);
    }

    /// Somebody asked.
    pub(super) fn at_once(&mut self, now: Instant) {
        self.due = now;
    }

    /// Another interval, from the next pass on at the latest.
    pub(super) fn set_interval(&mut self, interval: Duration, now: Instant) {
        self.interval = interval;
        self.due = self.due.min(now + interval);
    }
}

/// A tenth more or less, so that the agents of a cluster do not all ask at once.
fn jittered(period: Duration, random: u128) -> Duration {
    let thousandth = u32::try_from(random % 201).unwrap_or(100);
    period * (900 + thousandth) / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    #[tokio::test(start_paused = true)]
    async fn the_first_pass_is_due_at_once_and_the_next_an_interval_later() {
        let now = Instant::now();
        let mut schedule = Schedule::new(MINUTE, now);
        assert_eq!(schedule.due(), now);
        for random in [0, 100, 200, 201, u128::MAX] {
            schedule.succeeded(now, random);
            let wait = schedule.due() - now;
            assert!(wait >= MINUTE * 9 / 10 && wait <= MINUTE * 11 / 10, "{wait:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn failed_passes_back_off_up_to_the_interval() {
        let now = Instant::now();
        let mut schedule = Schedule::new(MINUTE, now);
        let waits: Vec<u64> = (0..40)
            .map(|_| {
                schedule.failed(now, 100);
                (schedule.due() - now).as_secs()
            })
            .collect();
        assert_eq!(waits[..6], [2, 4, 8, 16, 32, 60]);
        assert!(waits[6..].iter().all(|wait| *wait == 60));
        schedule.succeeded(now, 100);
        schedule.failed(now, 100);
        assert_eq!((schedule.due() - now).as_secs(), 2, "a success forgets the failures");
    }

    #[tokio::test(start_paused = true)]
    async fn n11_changed_files_are_read_when_they_are_quiet_and_never_much_later() {
        let start = Instant::now();
        let mut schedule = Schedule::new(MINUTE, start);
        schedule.succeeded(start, 100);
        schedule.files_changed(start);
        assert_eq!(schedule.due(), start + QUIET);
        let mut now = start;
        while now < start + QUIET_MAX * 2 {
            schedule.files_changed(now);
            now += QUIET / 2;
        }
        assert_eq!(schedule.due(), start + QUIET_MAX);
        schedule.succeeded(now, 100);
        assert_eq!(schedule.due(), now + MINUTE, "the change was seen");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_asked_for_comes_sooner_and_never_later() {
        let now = Instant::now();
        let mut schedule = Schedule::new(MINUTE, now);
        schedule.succeeded(now, 100);
        schedule.soon(now);
        assert_eq!(schedule.due(), now + SOON);
        schedule.soon(now + SOON);
        assert_eq!(schedule.due(), now + SOON);
        schedule.set_interval(Duration::from_secs(1), now);
        assert_eq!(schedule.due(), now + Duration::from_secs(1));
        schedule.at_once(now);
        assert_eq!(schedule.due(), now);
    }
}
