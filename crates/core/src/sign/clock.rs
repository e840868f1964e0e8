//! The effective clock: time never runs back, and a leap is not believed until it is confirmed.
//!
//! ```text
//! wall behind the mark   ─► now = mark; by more than ten minutes: in doubt
//! wall ahead by a day    ─► now = wall, mark = wall
//! wall ahead by more     ─► now = wall; the kernel says synchronised: mark = wall, else in doubt
//! ```
//!
//! The agent reads its clock, asks here, and makes the mark durable with its next record. In doubt
//! nothing destructive runs, and the mark does not move, so that a wrong clock cannot poison it. A mark
//! that is wrong all the same is set by a signed recovery (see `rotation`), which also voids every
//! statement that is outstanding: nonces forgotten under the wrong mark cannot come back.

use crate::operate::operation::UnixSeconds;

/// How far the mark follows a clock nobody vouches for: a host that sleeps over night is fine, a battery
/// that died is not.
pub const RAISE_MAX_S: u64 = 24 * 60 * 60;

/// How far a clock may fall behind the mark before it is in doubt: more than any slewing or leap second,
/// less than anything that would matter to a statement.
pub const BEHIND_MAX_S: u64 = 10 * 60;

/// What the host's clock says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WallClock {
    /// The time.
    pub at: UnixSeconds,
    /// Whether the kernel says it is synchronised.
    pub synchronised: bool,
}

/// The time to judge by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReading {
    /// Effective now: never before the mark.
    pub now: UnixSeconds,
    /// The mark to make durable.
    pub mark: UnixSeconds,
    /// Why nothing destructive may run now.
    pub doubt: Option<ClockDoubt>,
}

impl ClockReading {
    /// What the host's clock says; without a doubt it is not further behind than that allows.
    pub fn wall(&self) -> UnixSeconds {
        match self.doubt {
            Some(ClockDoubt::Behind { by_s }) => self.mark.minus(by_s),
            Some(ClockDoubt::Ahead { .. }) | None => self.now,
        }
    }
}

/// Why the time is not to be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ClockDoubt {
    /// It fell back.
    #[error(
        "the clock is {by_s} s behind the latest time this host has seen; set the clock, or sign a \
         recovery with a clock change if that time was wrong"
    )]
    Behind {
        /// By how much.
        by_s: u64,
    },
    /// It leapt.
    #[error(
        "the clock is {by_s} s ahead of the latest time this host has seen and not synchronised"
    )]
    Ahead {
        /// By how much.
        by_s: u64,
    },
}

/// The effective time, from the durable mark and the wall clock. A host that has no mark has nothing to
/// compare with and nothing spent: it begins with its clock.
pub fn read(mark: Option<UnixSeconds>, wall: WallClock) -> ClockReading {
    let Some(mark) = mark else {
        return ClockReading { now: wall.at, mark: wall.at, doubt: None };
    };
    if wall.at <= mark {
        let by_s = mark.0 - wall.at.0;
        let doubt = (by_s > BEHIND_MAX_S).then_some(ClockDoubt::Behind { by_s });
        return ClockReading { now: mark, mark, doubt };
    }
    let by_s = wall.at.0 - mark.0;
    if by_s > RAISE_MAX_S && !wall.synchronised {
        return ClockReading { now: wall.at, mark, doubt: Some(ClockDoubt::Ahead { by_s }) };
    }
    ClockReading { now: wall.at, mark: wall.at, doubt: None }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY: u64 = RAISE_MAX_S;
    const MARK: UnixSeconds = UnixSeconds(1_800_000_000);

    fn at(seconds: u64, synchronised: bool) -> ClockReading {
        read(Some(MARK), WallClock { at: UnixSeconds(seconds), synchronised })
    }

    #[test]
    fn t09_a_clock_set_back_keeps_the_mark_and_is_in_doubt() {
        for synchronised in [false, true] {
            for wall in [0, MARK.0 - DAY, MARK.0 - BEHIND_MAX_S - 1] {
                let reading = at(wall, synchronised);
                assert_eq!((reading.now, reading.mark), (MARK, MARK));
                assert_eq!(reading.doubt, Some(ClockDoubt::Behind { by_s: MARK.0 - wall }));
            }
        }
        // Slewing and a leap second are no doubt, and time still does not run back.
        let slewed = ClockReading { now: MARK, mark: MARK, doubt: None };
        assert_eq!(at(MARK.0 - BEHIND_MAX_S, false), slewed);
        assert_eq!(at(MARK.0, false), slewed);
    }

    #[test]
    fn t10_a_leap_nobody_vouches_for_does_not_move_the_mark() {
        let leap = MARK.0 + 20 * 365 * DAY;
        let reading = at(leap, false);
        assert_eq!(reading.now, UnixSeconds(leap), "what has expired by then is expired");
        assert_eq!(reading.mark, MARK, "and the mark stays");
        assert_eq!(reading.doubt, Some(ClockDoubt::Ahead { by_s: leap - MARK.0 }));
        // However often it is read, and when the clock returns all is well.
        let again =
            read(Some(reading.mark), WallClock { at: UnixSeconds(leap), synchronised: false });
        assert_eq!(again.mark, MARK);
        assert_eq!(at(MARK.0 + 5, false).doubt, None);
    }

    #[test]
    fn t10_a_leap_the_kernel_vouches_for_is_believed() {
        let wall = UnixSeconds(MARK.0 + 30 * DAY);
        assert_eq!(at(wall.0, true), ClockReading { now: wall, mark: wall, doubt: None });
    }

    #[test]
    fn the_mark_follows_an_unsynchronised_clock_by_a_day_and_not_a_second_more() {
        assert_eq!(at(MARK.0 + DAY, false).mark, UnixSeconds(MARK.0 + DAY));
        assert_eq!(at(MARK.0 + DAY, false).doubt, None);
        assert_eq!(at(MARK.0 + DAY + 1, false).mark, MARK);
        assert_eq!(at(MARK.0 + DAY + 1, false).doubt, Some(ClockDoubt::Ahead { by_s: DAY + 1 }));
    }

    #[test]
    fn a_host_without_a_mark_begins_with_its_clock() {
        let wall = UnixSeconds(7);
        let reading = read(None, WallClock { at: wall, synchronised: false });
        assert_eq!(reading, ClockReading { now: wall, mark: wall, doubt: None });
    }

    proptest! {
        #[test]
        fn time_never_runs_back_whatever_the_clock_does(
            walls in prop::collection::vec((any::<u64>(), any::<bool>()), 1..40),
        ) {
            let mut mark = None;
            for (at, synchronised) in walls {
                let reading = read(mark, WallClock { at: UnixSeconds(at), synchronised });
                prop_assert!(mark <= Some(reading.mark));
                prop_assert!(reading.now >= reading.mark);
                mark = Some(reading.mark);
            }
        }
    }
}
