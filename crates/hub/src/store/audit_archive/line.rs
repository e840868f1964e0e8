//! One line of an archive: how it is sealed when written and checked when read.
//!
//! ```text
//! {"serial":7,"at":"…","who":"alice","act":"document.push", …, "prev":"<64 hex>","sum":"<64 hex>"}\n
//! └──────────────── content ────────────────────────────┘ └── at a fixed distance from the end ──┘
//! ```
//!
//! `sum` is the SHA-256 of every byte before `,"sum"`, and `prev` is the sum of the line before, as in the journal of a host. A line that
//! does not end in its own sum says nothing at all.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::store::{AuditLine, HubTime};

/// What the first line of all names as the one before it.
pub(super) const NO_SUM: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// The rules of these files.
pub(super) const FORMAT: &str = "evenkeel/hub-audit/v1";

const SUM_DIGITS: usize = NO_SUM.len();
const PREV: &str = ",\"prev\":\"";
const SUM: &str = ",\"sum\":\"";
const PREV_LENGTH: usize = PREV.len() + SUM_DIGITS + 1;
const SUM_LENGTH: usize = SUM.len() + SUM_DIGITS + 2;

/// The first line of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileHeader {
    /// The rules of the file.
    pub(super) format: String,
    /// The number in its name.
    pub(super) file: u32,
    /// The hub whose audit it is.
    pub(super) hub: String,
    /// The number of the last row in the files before.
    pub(super) after: i64,
    /// How many rows the files before hold.
    pub(super) lines: u64,
}

/// A row of the audit as a line holds it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RowFields {
    serial: i64,
    at: String,
    who: String,
    act: String,
    subject: String,
    detail: String,
}

/// Appends a line with its newline, and answers its sum.
pub(super) fn seal(out: &mut Vec<u8>, fields: &impl Serialize, prev: &str) -> String {
    let mut line = serde_json::to_string(fields).expect("these fields are JSON");
    let brace = line.pop();
    debug_assert_eq!(brace, Some('}'));
    line = line + PREV + prev + "\"";
    let sum = sum_of(line.as_bytes());
    line = line + SUM + &sum + "\"}\n";
    out.extend_from_slice(line.as_bytes());
    sum
}

/// Appends a row as a line, and answers its sum.
pub(super) fn seal_row(out: &mut Vec<u8>, row: &AuditLine, prev: &str) -> String {
    let AuditLine { serial, at, who, act, subject, detail } = row.clone();
    seal(out, &RowFields { serial, at: at.to_text(), who, act, subject, detail }, prev)
}

/// A line whose sum is right.
pub(super) struct SealedLine<'l> {
    content: &'l str,
    pub(super) prev: &'l str,
    pub(super) sum: &'l str,
}

impl<'l> SealedLine<'l> {
    /// Checks the end of a line (without its newline) and its sum.
    pub(super) fn read(line: &'l [u8]) -> Option<Self> {
        let line = str::from_utf8(line).ok()?;
        let (summed, sum) = line.split_at_checked(line.len().checked_sub(SUM_LENGTH)?)?;
        let sum = sum.strip_prefix(SUM)?.strip_suffix("\"}")?;
        let (content, prev) = summed.split_at_checked(summed.len().checked_sub(PREV_LENGTH)?)?;
        let prev = prev.strip_prefix(PREV)?.strip_suffix('"')?;
        (sum_of(summed.as_bytes()) == sum).then_some(Self { content, prev, sum })
    }

    /// It as a header.
    pub(super) fn header(&self) -> Option<FileHeader> {
        self.fields()
    }

    /// It as a row.
    pub(super) fn row(&self) -> Option<AuditLine> {
        let RowFields { serial, at, who, act, subject, detail } = self.fields()?;
        let at = HubTime(at.parse::<jiff::Timestamp>().ok()?.as_millisecond());
        Some(AuditLine { serial, at, who, act, subject, detail })
    }

    fn fields<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_str(&format!("{}}}", self.content)).ok()
    }
}

fn sum_of(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(SUM_DIGITS);
    for byte in Sha256::digest(bytes) {
        write!(text, "{byte:02x}").expect("a text takes every digit");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(detail: &str) -> AuditLine {
        AuditLine {
            serial: 7,
            at: HubTime(1_795_000_000_123),
            who: "alice".to_owned(),
            act: "document.push".to_owned(),
            subject: "pve1".to_owned(),
            detail: detail.to_owned(),
        }
    }

    #[test]
    fn a_row_comes_back_whatever_is_in_it() {
        for detail in ["", "because", "\",\"prev\":\"", "é\n\u{202e}\\", "a\"}"] {
            let mut bytes = Vec::new();
            let sum = seal_row(&mut bytes, &row(detail), NO_SUM);
            assert_eq!(bytes.pop(), Some(b'\n'));
            assert!(!bytes.contains(&b'\n'), "one row is one line");
            let sealed = SealedLine::read(&bytes).unwrap();
            assert_eq!((sealed.prev, sealed.sum), (NO_SUM, sum.as_str()));
            assert_eq!(sealed.row(), Some(row(detail)));
            let _: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        }
    }

    #[test]
    fn one_changed_byte_anywhere_is_noticed() {
        let mut bytes = Vec::new();
        seal_row(&mut bytes, &row("because"), NO_SUM);
        bytes.pop();
        for place in 0..bytes.len() {
            let mut bent = bytes.clone();
            bent[place] ^= 1;
            assert!(SealedLine::read(&bent).is_none(), "byte {place}");
            assert!(SealedLine::read(&bytes[..place]).is_none(), "cut at {place}");
        }
    }
}
