//! How things are said on pages: states in words and colours, moments, sizes, addresses.

use evenkeel_core::model::id::GuestId;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::people::fleet_filter::FleetState;
use crate::people::wire::HostStanding;
use crate::store::HubTime;

/// What may stand in a part of an address as it is.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_');

/// A text as a part of an address.
pub(super) fn in_path(text: &str) -> String {
    utf8_percent_encode(text, PLAIN).to_string()
}

/// The page of a host.
pub(super) fn host_path(host: &str) -> String {
    format!("/console/hosts/{}", in_path(host))
}

/// The page of a guest; none for a name that is no guest's.
pub(super) fn guest_path(host: &str, guest: &str) -> Option<String> {
    let id: GuestId = guest.parse().ok()?;
    Some(format!("{}/guests/{id}", host_path(host)))
}

/// A state: a colour, which never says anything alone, and a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StateWord {
    /// A class of the style sheet: good, warn, bad, wait, mute.
    pub(super) tone: &'static str,
    /// The word.
    pub(super) word: String,
}

impl StateWord {
    fn new(tone: &'static str, word: &str) -> Self {
        Self { tone, word: word.to_owned() }
    }

    pub(super) fn of_host(standing: HostStanding) -> Self {
        match standing {
            HostStanding::Silent => Self::new("bad", "silent"),
            HostStanding::Refused => Self::new("bad", "refused"),
            HostStanding::Behind => Self::new("wait", "behind"),
            HostStanding::Failing => Self::new("bad", "failing"),
            HostStanding::Drifted => Self::new("warn", "drifted"),
            HostStanding::InSync => Self::new("good", "as declared"),
        }
    }

    pub(super) fn of_fleet(state: FleetState) -> Self {
        match state {
            FleetState::Standing(standing) => Self::of_host(standing),
            FleetState::Held => Self::new("warn", "held"),
            FleetState::Frozen => Self::new("wait", "frozen"),
            FleetState::Waiting => Self::new("wait", "to sign"),
        }
    }

    /// A guest's state, as a host wrote it.
    pub(super) fn of_guest(state: &str) -> Self {
        match state {
            "as_declared" => Self::new("good", "as declared"),
            "drifted" => Self::new("warn", "drifted"),
            "held" => Self::new("warn", "held"),
            "busy" => Self::new("wait", "busy"),
            "failed" | "unreadable" => Self::new("bad", state),
            other => Self::new("mute", &shortened(other)),
        }
    }

    /// The state of an op, as a host wrote it.
    pub(super) fn of_op(state: &str) -> Self {
        match state {
            "succeeded" | "done" => Self::new("good", state),
            "failed" | "lost" => Self::new("bad", state),
            "unknown" => Self::new("warn", state),
            other => Self::new("wait", &shortened(other)),
        }
    }

    /// The state of an envelope, with its verdict's code.
    pub(super) fn of_envelope(state: &str, code: &str) -> Self {
        match (state, code) {
            ("waiting", _) => Self::new("wait", "on its way"),
            ("expired", _) => Self::new("warn", "expired"),
            ("judged", code) if code.starts_with("allowed") || code == "accepted" => {
                Self::new("good", &spoken(code))
            }
            (_, code) => Self::new("bad", &spoken(code)),
        }
    }

    /// A code of a decision.
    pub(super) fn of_decision(code: &str) -> Self {
        let tone = if code.starts_with("allowed") {
            "good"
        } else if code.starts_with("pending") {
            "wait"
        } else {
            "warn"
        };
        Self::new(tone, &spoken(code))
    }
}

/// `pending_signature` as people say it.
pub(super) fn spoken(code: &str) -> String {
    shortened(&code.replace('_', " "))
}

/// A word of a stranger, short enough for a cell.
pub(super) fn shortened(text: &str) -> String {
    let cut: String = text.chars().take(60).collect();
    if cut.len() == text.len() { cut } else { format!("{cut}…") }
}

/// A moment by the hub's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Moment {
    /// RFC 3339, to the second.
    pub(super) exact: String,
    /// `3 min ago`.
    pub(super) ago: String,
}

impl Moment {
    pub(super) fn new(at: HubTime, now: HubTime) -> Self {
        if at.0 <= 0 {
            return Self { exact: String::new(), ago: "never".to_owned() };
        }
        let exact = HubTime(at.0 - at.0.rem_euclid(1000)).to_text();
        Self { exact, ago: ago((now.0 - at.0) / 1000) }
    }
}

/// So many seconds ago, in the largest unit that fits.
fn ago(seconds: i64) -> String {
    match seconds {
        ..0 => "just now".to_owned(),
        0..60 => format!("{seconds} s ago"),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..172_800 => format!("{} h ago", seconds / 3600),
        _ => format!("{} d ago", seconds / 86_400),
    }
}

/// `1 guest`, `2 guests`.
pub(super) fn counted(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_that_is_none_has_no_address() {
        assert_eq!(
            guest_path("pve1", "lxc/101").as_deref(),
            Some("/console/hosts/pve1/guests/lxc/101")
        );
        for name in ["javascript:alert(1)", "lxc/../..", "lxc/101\"", ""] {
            assert_eq!(guest_path("pve1", name), None, "{name}");
        }
        assert_eq!(host_path("a/../b?c"), "/console/hosts/a%2F..%2Fb%3Fc");
    }

    #[test]
    fn a_moment_is_told_in_one_unit() {
        for (seconds, told) in [
            (-3, "just now"),
            (0, "0 s ago"),
            (61, "1 min ago"),
            (7200, "2 h ago"),
            (864_000, "10 d ago"),
        ] {
            assert_eq!(ago(seconds), told);
        }
        assert_eq!(Moment::new(HubTime(0), HubTime(5)).ago, "never");
    }
}
