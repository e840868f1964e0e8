//! One line of the journal: how it is sealed when written and checked when read.
//!
//! ```text
//! {"seq":7,"at":"…","durable":6,"type":"op", …fields…, "prev":"<64 hex>","sum":"<64 hex>"}\n
//! └───────── envelope ────────┘ └── body ──┘ └────── at a fixed distance from the end ──────┘
//! ```
//!
//! `sum` is the SHA-256 of every byte before `,"sum"`, and `prev` is the sum of the line before, so
//! the lines form a chain. A line that does not end in its own sum says nothing at all: no field of
//! it may be believed.

use std::fmt;
use std::io::Write as _;

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

/// The number of a record: 1 for the first, no gaps, never reused.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    serde::Serialize,
    serde::Deserialize,
)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl Seq {
    /// The one after it.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

const SUM_DIGITS: usize = 64;

/// A SHA-256 as the 64 lower-case hexadecimal digits the line holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Sum([u8; SUM_DIGITS]);

impl Sum {
    /// What the first line of all names as its predecessor.
    pub(crate) const NONE: Self = Self([b'0'; SUM_DIGITS]);

    /// The sum of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; SUM_DIGITS];
        for (pair, byte) in text.chunks_exact_mut(2).zip(Sha256::digest(bytes)) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        Self(text)
    }

    /// The digits.
    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.0).unwrap_or("not hexadecimal")
    }
}

impl fmt::Debug for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The newest record: its number and its sum. It goes out with each report, so that a journal put
/// back to an older state is noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Its number.
    pub seq: Seq,
    /// Its sum.
    pub sum: Sum,
}

/// What stands before the fields of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LineEnvelope<'a> {
    /// The record's number.
    pub(super) seq: Seq,
    /// When it was written, in whole milliseconds; never earlier than the record before it.
    pub(super) at: Timestamp,
    /// The highest record known to be on disk when this one was written.
    pub(super) durable: Seq,
    /// The `type`.
    pub(super) kind: &'a str,
}

const PREV: &[u8] = b",\"prev\":\"";
const SUM: &[u8] = b",\"sum\":\"";
const PREV_LENGTH: usize = PREV.len() + SUM_DIGITS + 1;
const SUM_LENGTH: usize = SUM.len() + SUM_DIGITS + 2;
/// How every record line begins. Quotes inside strings are escaped, so no text that somebody else
/// chose can hold these bytes.
pub(super) const RECORD_START: &str = "{\"seq\":";

/// Writes the envelope of a record; its body and [`seal`] follow.
pub(super) fn begin(out: &mut Vec<u8>, envelope: &LineEnvelope<'_>) {
    let LineEnvelope { seq, at, durable, kind } = envelope;
    write!(out, "{{\"seq\":{seq},\"at\":\"{at:.3}\",\"durable\":{durable},\"type\":\"{kind}\"")
        .expect("a vector takes every byte");
}

/// Ends the line that began at `start`: `prev`, `sum`, newline.
pub(super) fn seal(out: &mut Vec<u8>, start: usize, prev: &Sum) -> Sum {
    out.extend_from_slice(PREV);
    out.extend_from_slice(&prev.0);
    out.push(b'"');
    let sum = Sum::of(&out[start..]);
    out.extend_from_slice(SUM);
    out.extend_from_slice(&sum.0);
    out.extend_from_slice(b"\"}\n");
    sum
}

/// A line whose sum is right.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sealed<'a> {
    /// Everything before `,"prev"`: an object without its closing brace.
    pub(super) content: &'a [u8],
    pub(super) prev: Sum,
    pub(super) sum: Sum,
}

/// Checks the end of a line (without its newline) and its sum.
pub(super) fn unseal(line: &[u8]) -> Option<Sealed<'_>> {
    let (summed, sum) = line.split_at_checked(line.len().checked_sub(SUM_LENGTH)?)?;
    let sum = digits(sum, SUM, b"\"}")?;
    let (content, prev) = summed.split_at_checked(summed.len().checked_sub(PREV_LENGTH)?)?;
    let prev = digits(prev, PREV, b"\"")?;
    (Sum::of(summed) == sum).then_some(Sealed { content, prev, sum })
}

fn digits(field: &[u8], before: &[u8], after: &[u8]) -> Option<Sum> {
    let text = field.strip_prefix(before)?.strip_suffix(after)?;
    text.try_into().ok().map(Sum)
}

/// Takes the content of a sealed line apart: envelope, and the fields after it with their leading
/// comma. `None` means that another program, or a later one, wrote it.
pub(super) fn open(content: &[u8]) -> Option<(LineEnvelope<'_>, &str)> {
    // Once for the whole line: a start-up reads many, and each has many strings.
    let rest = str::from_utf8(content).ok()?.strip_prefix(RECORD_START)?;
    let (seq, rest) = number(rest)?;
    let (at, rest) = quoted(rest.strip_prefix(",\"at\":")?)?;
    let (durable, rest) = number(rest.strip_prefix(",\"durable\":")?)?;
    let (kind, fields) = quoted(rest.strip_prefix(",\"type\":")?)?;
    let at = at.parse().ok()?;
    Some((LineEnvelope { seq: Seq(seq), at, durable: Seq(durable), kind }, fields))
}

fn number(text: &str) -> Option<(u64, &str)> {
    let (digits, rest) = text.split_at(text.bytes().position(|byte| !byte.is_ascii_digit())?);
    Some((digits.parse().ok()?, rest))
}

fn quoted(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix('"')?.split_once('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> Vec<u8> {
        let mut out = Vec::new();
        let at = "2026-11-15T20:00:00.125Z".parse().unwrap();
        begin(&mut out, &LineEnvelope { seq: Seq(7), at, durable: Seq(6), kind: "note" });
        out.extend_from_slice(b",\"text\":\"hello\"");
        seal(&mut out, 0, &Sum::NONE);
        out
    }

    #[test]
    fn a_line_reads_back_as_it_was_written() {
        let line = line();
        let sealed = unseal(line.strip_suffix(b"\n").unwrap()).unwrap();
        let (envelope, fields) = open(sealed.content).unwrap();
        assert_eq!((envelope.seq, envelope.durable, envelope.kind), (Seq(7), Seq(6), "note"));
        assert_eq!(envelope.at, "2026-11-15T20:00:00.125Z".parse().unwrap());
        assert_eq!(fields, ",\"text\":\"hello\"");
        assert_eq!(sealed.prev, Sum::NONE);
        let json: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(json["sum"], sealed.sum.as_str());
    }

    #[test]
    fn a_line_with_any_bit_flipped_or_any_byte_missing_is_not_sealed() {
        let line = line();
        let line = line.strip_suffix(b"\n").unwrap();
        for position in 0..line.len() {
            assert!(unseal(&line[..position]).is_none(), "cut at {position}");
            for bit in 0..8 {
                let mut flipped = line.to_vec();
                flipped[position] ^= 1 << bit;
                assert!(unseal(&flipped).is_none(), "bit {bit} of byte {position}");
            }
        }
    }

    #[test]
    fn the_sum_is_the_sha_256_that_sha256sum_prints() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Sum::of(b"").as_str(), empty);
    }
}
