//! The mark of time: the latest moment the journal believes, and the date of its next record.
//!
//! The journal asks here before it dates a record and before it answers a question. The rule is core's
//! effective clock (invariant 16): the mark never falls by itself, and follows a clock that leaps only if the
//! kernel vouches for it. A wrong clock therefore dates records with the mark, and cannot poison it.

use evenkeel_core::operate::operation::UnixSeconds;
use evenkeel_core::sign::clock;
use jiff::Timestamp;

/// What the machine's clock says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WallTime {
    /// The time.
    pub at: Timestamp,
    /// Whether the kernel says it is synchronised.
    pub synchronised: bool,
}

/// A time nobody vouches for.
impl From<Timestamp> for WallTime {
    fn from(at: Timestamp) -> Self {
        Self { at, synchronised: false }
    }
}

impl WallTime {
    /// The same in the whole seconds core reckons with.
    pub(crate) fn in_seconds(self) -> clock::WallClock {
        clock::WallClock { at: seconds(self.at), synchronised: self.synchronised }
    }
}

/// A moment in whole seconds; what lies before 1970 is a clock that lost its battery.
pub fn seconds(at: Timestamp) -> UnixSeconds {
    UnixSeconds(u64::try_from(at.as_second()).unwrap_or(0))
}

/// The other way round; none if no date is so far away.
pub fn moment(at: UnixSeconds) -> Option<Timestamp> {
    i64::try_from(at.0).ok().and_then(|second| Timestamp::from_second(second).ok())
}

/// The mark after a look at the clock, in whole milliseconds, as lines hold it.
pub(super) fn raised(mark: Timestamp, wall: WallTime) -> Timestamp {
    let believed = clock::read(Some(seconds(mark)), wall.in_seconds()).mark;
    if believed == seconds(wall.at) { mark.max(in_milliseconds(wall.at)) } else { mark }
}

/// The moment as a line holds it.
pub(super) fn in_milliseconds(at: Timestamp) -> Timestamp {
    Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn within_one_second_the_mark_follows_by_milliseconds_and_never_back() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let mark = at("2026-11-15T20:00:00.500Z");
        assert_eq!(
            raised(mark, at("2026-11-15T20:00:00.7004Z").into()),
            at("2026-11-15T20:00:00.700Z")
        );
        assert_eq!(raised(mark, at("2026-11-15T20:00:00.100Z").into()), mark);
        assert_eq!(raised(mark, at("1969-12-31T23:00:00Z").into()), mark);
    }

    proptest! {
        #[test]
        fn t10_the_mark_of_the_journal_is_the_mark_of_the_effective_clock(
            mark_ms in 0_i64..4_000_000_000_000,
            wall_ms in 0_i64..4_000_000_000_000,
            synchronised: bool,
        ) {
            let moment = |ms| Timestamp::from_millisecond(ms).unwrap();
            let wall = WallTime { at: moment(wall_ms), synchronised };
            let raised = raised(moment(mark_ms), wall);
            prop_assert!(raised >= moment(mark_ms));
            let reading = clock::read(Some(seconds(moment(mark_ms))), wall.in_seconds());
            prop_assert_eq!(seconds(raised), reading.mark);
        }
    }
}
