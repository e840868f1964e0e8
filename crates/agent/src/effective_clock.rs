//! The effective clock of a running agent: the machine's clock held against the journal's mark of time.
//!
//! ```text
//!   Ambient: now, synchronised ─┐
//!                               ├──> core: sign::clock::read ──> Reading: now, mark, doubt
//!   Journal: mark of time ──────┘
//! ```
//!
//! The gate asks for a [`ClockReading`] directly before it judges a signature, and so do rotations. The journal
//! dates its records by the same rule. It must never be asked for a time-out: those belong to tokio's clock.

use evenkeel_core::sign::clock::{self, ClockReading};

use crate::ambient::Ambient;
use crate::journal::{AppendError, JournalHandle, WallTime, seconds};

/// What the machine's clock says now.
pub fn wall(ambient: &dyn Ambient) -> WallTime {
    WallTime { at: ambient.now(), synchronised: ambient.synchronised() }
}

/// The time to judge by, now. An error means that the journal is gone and the process must end.
pub async fn read(
    ambient: &dyn Ambient,
    journal: &JournalHandle,
) -> Result<ClockReading, AppendError> {
    // The clock is read after the journal has looked at it, or the mark could seem to be ahead.
    let mark = journal.clock_mark().await?;
    Ok(clock::read(Some(seconds(mark)), wall(ambient).in_seconds()))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    use evenkeel_core::operate::operation::UnixSeconds;
    use evenkeel_core::sign::clock::{ClockDoubt, RAISE_MAX_S};
    use jiff::{SignedDuration, Timestamp};

    use super::*;
    use crate::journal::{Journal, JournalLimits, SimulatedDisk, Stamp, group};

    struct Played {
        now: Mutex<Timestamp>,
        synchronised: AtomicBool,
    }

    impl Ambient for Played {
        fn now(&self) -> Timestamp {
            *self.now.lock().unwrap()
        }

        fn synchronised(&self) -> bool {
            self.synchronised.load(Ordering::Relaxed)
        }

        fn random(&self) -> u128 {
            0
        }
    }

    #[tokio::test]
    async fn t09_t10_the_clock_is_held_against_the_mark_whatever_it_does() {
        let start: Timestamp = "2026-11-15T20:00:00.9Z".parse().unwrap();
        let played = Played { now: Mutex::new(start), synchronised: AtomicBool::new(false) };
        let played = std::sync::Arc::new(played);
        let stamp = Stamp { machine: "m".to_owned(), new_epoch: "e".to_owned() };
        let journal =
            Journal::open(SimulatedDisk::default(), stamp, JournalLimits::default(), start);
        let clock = played.clone();
        let (handle, _writer) =
            group::spawn(journal.unwrap(), move || wall(clock.as_ref())).unwrap();
        let second = seconds(start).0;
        let at = |by_s: i64| *played.now.lock().unwrap() = start + SignedDuration::from_secs(by_s);

        at(5);
        let reading = read(played.as_ref(), &handle).await.unwrap();
        assert_eq!((reading.now, reading.doubt), (UnixSeconds(second + 5), None));

        at(-86_400);
        let reading = read(played.as_ref(), &handle).await.unwrap();
        assert_eq!(reading.now, UnixSeconds(second + 5), "time does not run back");
        assert_eq!(reading.doubt, Some(ClockDoubt::Behind { by_s: 86_405 }));

        let leap = 20 * 365 * 86_400;
        at(leap);
        for _ in 0..3 {
            let reading = read(played.as_ref(), &handle).await.unwrap();
            assert_eq!(reading.mark, UnixSeconds(second + 5), "asking again believes nothing more");
            assert!(
                matches!(reading.doubt, Some(ClockDoubt::Ahead { by_s }) if by_s > RAISE_MAX_S)
            );
        }

        played.synchronised.store(true, Ordering::Relaxed);
        let reading = read(played.as_ref(), &handle).await.unwrap();
        assert_eq!(
            (reading.mark, reading.doubt),
            (UnixSeconds(second + leap.unsigned_abs()), None)
        );
    }
}
