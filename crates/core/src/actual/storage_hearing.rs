//! Whether a storage answers: what is remembered of it, and when it is asked again.
//!
//! ```text
//!   heard ──an answer took long──> slow ──no answer at all──> silent ──pause over: one question──> heard, or silent longer
//! ```
//!
//! A storage that hangs keeps the process of the node that asks it, of which there are three, and nobody can tell when that
//! process is free again. So one that kept silent once is asked again only when the node's own statistics have seen it since:
//! our questions never keep the last process. A plain value over moments that its caller tells. It knows nothing of requests.

use std::time::Duration;

use crate::operate::operation::UnixSeconds;

/// How long an answer may take without anybody calling the storage slow.
pub const HASTE: Duration = Duration::from_secs(2);

/// How long an answer is waited for at all. Proxmox's own proxy gives up after 30 s, so whoever was ever heard is heard
/// within this.
pub const PATIENCE: Duration = Duration::from_secs(25);

/// How long a storage that kept silent is left alone; it doubles with every question in vain. The node forgets what its
/// statistics say of a storage after five minutes without news, so by then they tell how it is now.
const FIRST_PAUSE: Duration = Duration::from_mins(6);

/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_mins(30);

/// What is remembered of one storage.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StorageHearing {
    is_slow: bool,
    silence: Option<StorageSilence>,
}

/// A storage that did not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StorageSilence {
    /// When it was first asked in vain, as people read it.
    pub since: UnixSeconds,
    /// When it may be asked again, as people read it.
    pub next_try: UnixSeconds,
    /// How often it was asked in vain.
    pub questions: u32,
    /// The same moment as the caller measures it.
    asked_again: Duration,
}

impl StorageHearing {
    /// Whether an answer may take long.
    pub fn is_slow(&self) -> bool {
        self.is_slow
    }

    /// The silence, if it keeps any.
    pub fn silence(&self) -> Option<StorageSilence> {
        self.silence
    }

    /// Why it is not asked at this moment; none if it may be.
    pub fn left_alone(&self, now: Duration) -> Option<StorageSilence> {
        self.silence.filter(|silence| now < silence.asked_again)
    }

    /// It answered, whatever it said.
    pub fn answered(&mut self, took: Duration) {
        *self = Self { is_slow: took > HASTE, silence: None };
    }

    /// The pause is over and the node has not seen it: it is left alone for another while, and nothing was asked.
    pub fn not_seen(&mut self, now: Duration, clock: UnixSeconds) {
        if let Some(silence) = &mut self.silence {
            silence.next_try = clock.plus(FIRST_PAUSE.as_secs());
            silence.asked_again = now + FIRST_PAUSE;
        }
    }

    /// Somebody in haste gave up.
    pub fn given_up(&mut self) {
        self.is_slow = true;
    }

    /// Nothing came although it was waited for patiently.
    pub fn kept_silent(&mut self, now: Duration, clock: UnixSeconds) -> StorageSilence {
        let asked_at = UnixSeconds(clock.0.saturating_sub(PATIENCE.as_secs()));
        let (since, before) =
            self.silence.map_or((asked_at, 0), |silence| (silence.since, silence.questions));
        let pause = FIRST_PAUSE.saturating_mul(1 << before.min(16)).min(LONGEST_PAUSE);
        self.is_slow = true;
        let silence = StorageSilence {
            since,
            next_try: clock.plus(pause.as_secs()),
            questions: before.saturating_add(1),
            asked_again: now + pause,
        };
        self.silence = Some(silence);
        silence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOCK: UnixSeconds = UnixSeconds(1_700_000_000);

    #[test]
    fn y04_a_silent_storage_is_left_alone_longer_each_time_and_never_for_ever() {
        let mut hearing = StorageHearing::default();
        let mut now = Duration::ZERO;
        let mut pauses = Vec::new();
        for question in 0..10 {
            if question == 5 {
                hearing.not_seen(now, CLOCK);
            } else {
                hearing.kept_silent(now, CLOCK);
            }
            let silence = hearing.silence().unwrap();
            let pause = silence.asked_again.checked_sub(now).unwrap();
            assert_eq!(silence.next_try, CLOCK.plus(pause.as_secs()));
            assert!(hearing.left_alone(now + pause / 2).is_some());
            assert_eq!(hearing.left_alone(now + pause), None, "its next question is due");
            now += pause;
            pauses.push(pause.as_secs() / 60);
        }
        assert_eq!(pauses, [6, 12, 24, 30, 30, 6, 30, 30, 30, 30]);
        assert_eq!(hearing.silence().unwrap().questions, 9, "what was not asked does not count");
    }

    #[test]
    fn y04_an_answer_ends_the_silence_and_tells_whether_the_storage_is_slow() {
        let mut hearing = StorageHearing::default();
        hearing.kept_silent(Duration::ZERO, CLOCK);
        assert!(hearing.is_slow());
        assert_eq!(hearing.silence().unwrap().since, UnixSeconds(CLOCK.0 - PATIENCE.as_secs()));
        hearing.answered(HASTE * 2);
        assert!(hearing.is_slow() && hearing.silence().is_none());
        hearing.answered(HASTE);
        assert_eq!(hearing, StorageHearing::default());
        hearing.given_up();
        assert!(hearing.is_slow() && hearing.left_alone(Duration::ZERO).is_none());
    }
}
