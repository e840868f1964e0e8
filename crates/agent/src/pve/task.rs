//! How a task ended. What names one is core's `Upid`.

use std::fmt;

use super::classify::class_of_text;
use super::error::ErrorClass;

pub use evenkeel_core::operate::operation::Upid;

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
    pub fn class(&self) -> Option<ErrorClass> {
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
    use super::*;

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
        assert_eq!(
            ExitStatus::read("VM 310 already running").class(),
            Some(ErrorClass::AlreadyRunning)
        );
        let locked = ExitStatus::read("CT is locked (backup)").class();
        assert_eq!(locked, Some(ErrorClass::Locked { lock: "backup".into() }));
    }
}
