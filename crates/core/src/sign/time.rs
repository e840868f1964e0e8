//! Moments as people read and write them: UTC, whole seconds, one spelling.

use jiff::Timestamp;

use super::statement::LAST_SECOND;
use crate::operate::operation::UnixSeconds;

/// `2026-11-15T20:00:00Z`.
pub fn print(at: UnixSeconds) -> String {
    let moment = i64::try_from(at.0).ok().and_then(|second| Timestamp::from_second(second).ok());
    moment.map_or_else(|| format!("second {}", at.0), |moment| moment.to_string())
}

/// The moment in that one spelling: no other zone, no fraction, no local time.
pub fn parse(text: &str) -> Option<UnixSeconds> {
    let second = u64::try_from(text.parse::<Timestamp>().ok()?.as_second()).ok()?;
    let at = UnixSeconds(second);
    (print(at) == text && at <= LAST_SECOND).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t11_only_utc_in_whole_seconds_is_a_moment() {
        assert_eq!(parse("2026-11-15T20:00:00Z"), Some(UnixSeconds(1_794_772_800)));
        assert_eq!(print(UnixSeconds(1_794_772_800)), "2026-11-15T20:00:00Z");
        let refused = [
            "2026-11-15T20:00:00+01:00",
            "2026-11-15T20:00:00",
            "2026-11-15T20:00:00.5Z",
            "2026-11-15 20:00:00Z",
            "2026-11-15T20:00:00z",
            "2026-11-15",
            "1794772800",
            "1969-12-31T23:59:59Z",
            "2016-12-31T23:59:60Z",
            "",
        ];
        for text in refused {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
