//! Tasks: the UPID that names one, and how one ended.
//!
//! `UPID:NODE:PID:PSTART:STARTTIME:TYPE:ID:USER:`. Numbers are hexadecimal; `ID` may be empty;
//! `USER` may carry a token. A text that is not exactly that is refused: a UPID is how an operation
//! recognises its own task after a crash.

use std::fmt;
use std::str::FromStr;

use evenkeel_core::id::NodeName;

use super::classify::class_of_text;
use super::error::Class;

/// The name of one task, on one node, started at one moment.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Upid {
    node: NodeName,
    start_unix_s: u32,
    /// Byte ranges would be cheaper; whole texts are plainer, and tasks are few.
    kind: String,
    id: String,
    user: String,
    /// The text PVE gave: case and width of its numbers must survive, it is a file name there.
    text: String,
}

/// A text that is not a task id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a task id (UPID): {0}")]
pub struct UpidError(&'static str);

/// Longer than any true one: PVE makes a file name of it.
const UPID_MAX_BYTES: usize = 255;

impl Upid {
    /// The node it runs on.
    pub fn node(&self) -> &NodeName {
        &self.node
    }

    /// When it started, by the node's clock.
    pub fn start_unix_s(&self) -> u32 {
        self.start_unix_s
    }

    /// What it does: `vzstart`, `qmclone`, …
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Whom it concerns, usually a guest number; may be empty.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Who started it: `user@realm` or `user@realm!token`.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The whole text.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for Upid {
    type Err = UpidError;

    fn from_str(text: &str) -> Result<Self, UpidError> {
        if text.len() > UPID_MAX_BYTES {
            return Err(UpidError("it is longer than 255 bytes"));
        }
        let parts: Vec<&str> = text.split(':').collect();
        let ["UPID", node, pid, process_start, start, kind, id, user, ""] = parts[..] else {
            return Err(UpidError("it must be UPID and seven parts, each followed by a colon"));
        };
        let node = node.parse().map_err(|_| UpidError("the node name is wrong"))?;
        let hex = |digits: &str, widths: std::ops::RangeInclusive<usize>| {
            widths.contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        if !hex(pid, 8..=8) || !hex(process_start, 8..=9) || !hex(start, 8..=8) {
            return Err(UpidError("a number does not have 8 hexadecimal digits"));
        }
        let start_unix_s = u32::from_str_radix(start, 16)
            .map_err(|_| UpidError("the start time does not have 8 hexadecimal digits"))?;
        let plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/');
        if kind.is_empty() || !plain(kind) || !plain(id) {
            return Err(UpidError("type or id holds a blank or slash"));
        }
        if !plain(user)
            || !user
                .split_once('@')
                .is_some_and(|(name, realm)| !name.is_empty() && !realm.is_empty())
        {
            return Err(UpidError("the user is not user@realm"));
        }
        Ok(Self {
            node,
            start_unix_s,
            kind: kind.to_owned(),
            id: id.to_owned(),
            user: user.to_owned(),
            text: text.to_owned(),
        })
    }
}

impl fmt::Display for Upid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Upid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExitStatus {
    /// `OK`.
    Ok,
    /// `WARNINGS: n`: done, with remarks in its log.
    Warnings(u32),
    /// It failed, with this text.
    Failed(String),
    /// It was killed, or the node went down: neither done nor undone.
    UnexpectedStatus,
    /// PVE could not read the end of its log: how it ended is not known.
    Unreadable(String),
}

impl ExitStatus {
    /// Reads the text PVE shows for an ended task.
    pub fn read(text: &str) -> Self {
        let warnings = text.strip_prefix("WARNINGS: ").and_then(|count| count.parse().ok());
        match (text, warnings) {
            ("OK", _) => Self::Ok,
            (_, Some(count)) => Self::Warnings(count),
            ("unexpected status", _) => Self::UnexpectedStatus,
            ("", _) => Self::Unreadable("no exit status".to_owned()),
            (text, None) if is_read_trouble(text) => Self::Unreadable(super::text::clean(text)),
            (text, None) => Self::Failed(super::text::clean(text)),
        }
    }

    /// The kind of failure, by the same words a refused call uses.
    pub fn class(&self) -> Option<Class> {
        match self {
            Self::Failed(text) => Some(class_of_text(text)),
            Self::Ok | Self::Warnings(_) | Self::UnexpectedStatus | Self::Unreadable(_) => None,
        }
    }
}

/// Trouble of PVE with the log file itself, as far as it cannot be a task's own error.
fn is_read_trouble(text: &str) -> bool {
    text == "unable to extract last line"
        || text.starts_with("unable to read tail (got ")
        || text.starts_with("unable to open file - ")
        || (text.starts_with("unable to ") && text.contains("task log"))
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ok => f.write_str("OK"),
            Self::Warnings(count) => write!(f, "WARNINGS: {count}"),
            Self::Failed(text) => f.write_str(text),
            Self::UnexpectedStatus => f.write_str("unexpected status"),
            Self::Unreadable(text) => write!(f, "exit status not readable: {text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_upid_is_read_into_its_parts_and_printed_as_it_was() {
        let text = "UPID:pve1:00001234:0123ABCD:65000000:vzstart:100:agent@pve!keel:";
        let upid: Upid = text.parse().unwrap();
        assert_eq!(upid.node().as_str(), "pve1");
        assert_eq!(upid.start_unix_s(), 0x6500_0000);
        assert_eq!((upid.kind(), upid.id(), upid.user()), ("vzstart", "100", "agent@pve!keel"));
        assert_eq!(upid.to_string(), text);
        for other in [
            "UPID:pve1:00001234:F0123ABCD:65000000:vzdump::root@pam:",
            "UPID:a-b:0000abcd:0123abcd:65000000:move_volume:100-mp0>101-mp0:root@pam:",
        ] {
            assert_eq!(other.parse::<Upid>().unwrap().as_str(), other);
        }
    }

    #[test]
    fn what_is_not_exactly_a_upid_is_refused() {
        let long =
            format!("UPID:pve1:00001234:0123ABCD:65000000:vzstart:{}:root@pam:", "1".repeat(300));
        for text in [
            "",
            "OK",
            "UPID:pve1:00001234:0123ABCD:65000000:vzstart:100:root@pam",
            "UPID:pve1:00001234:0123ABCD:65000000:vzstart:100:root@pam:\n",
            "UPID:pve1:00001234:0123ABCD:65000000:vzstart:100:root@pam:x",
            "UPID:..:00001234:0123ABCD:65000000:vzstart:100:root@pam:",
            "UPID:pve1:0001234:0123ABCD:65000000:vzstart:100:root@pam:",
            "UPID:pve1:+0001234:0123ABCD:65000000:vzstart:100:root@pam:",
            "UPID:pve1:00001234:0123ABCD11:65000000:vzstart:100:root@pam:",
            "UPID:pve1:00001234:0123ABCD:6500000G:vzstart:100:root@pam:",
            "UPID:pve1:00001234:0123ABCD:65000000::100:root@pam:",
            "UPID:pve1:00001234:0123ABCD:65000000:vz/start:100:root@pam:",
            "UPID:pve1:00001234:0123ABCD:65000000:vzstart:1 0:root@pam:",
            "UPID:pve1:00001234:0123ABCD:65000000:vzstart:100:root:",
            &long,
        ] {
            assert!(text.parse::<Upid>().is_err(), "{text}");
        }
    }

    #[test]
    fn an_exit_status_tells_done_from_failed_from_not_known() {
        for (text, status) in [
            ("OK", ExitStatus::Ok),
            ("WARNINGS: 2", ExitStatus::Warnings(2)),
            ("unexpected status", ExitStatus::UnexpectedStatus),
            ("", ExitStatus::Unreadable("no exit status".into())),
            (
                "unable to extract last line",
                ExitStatus::Unreadable("unable to extract last line".into()),
            ),
            ("VM 310 already running", ExitStatus::Failed("VM 310 already running".into())),
            ("OK ", ExitStatus::Failed("OK".into())),
            ("WARNINGS: many", ExitStatus::Failed("WARNINGS: many".into())),
        ] {
            assert_eq!(ExitStatus::read(text), status, "{text}");
        }
        assert_eq!(ExitStatus::read("VM 310 already running").class(), Some(Class::AlreadyRunning));
        let locked = ExitStatus::read("CT is locked (backup)").class();
        assert_eq!(locked, Some(Class::Locked { lock: "backup".into() }));
    }

    proptest! {
        #[test]
        fn reading_any_text_as_a_upid_never_panics_and_keeps_the_text(text in ".{0,80}") {
            if let Ok(upid) = text.parse::<Upid>() {
                prop_assert_eq!(upid.to_string(), text);
            }
        }
    }
}
