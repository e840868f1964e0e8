//! One file of the journal: its name, its first line, and walking its lines with every check.
//!
//! Opening, verifying and printing all read a segment through [`SegmentWalk`], so there is one notion of
//! what is right. It reads and judges; it never repairs.

use std::io::BufRead as _;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::error::{Damage, LineProblem};
use super::line::{self, Head, Seq, Sum};
use super::record::{self, Body, NotUnderstood};

/// What a segment's format begins with; a number follows.
const FORMAT_NAME: &str = "evenkeel/journal/v";

/// The format that is written: the lines and the rules for reading them. It rises with every field and every type that
/// a line gets, so that an older program stops at the first line and says why. 1 was written up to version 0.1, 2 by 0.2.
pub(super) const FORMAT: u32 = 3;

/// A segment being written, before it is whole and gets its name.
pub(super) const NEW: &str = ".new";

/// The name of a segment.
pub(super) fn name_of(segment: u64) -> String {
    format!("journal-{segment:06}.jsonl")
}

/// The segments among these files, oldest first.
pub(super) fn numbers(files: &[String]) -> Vec<u64> {
    let number = |name: &String| {
        let digits = name.strip_prefix("journal-")?.strip_suffix(".jsonl")?;
        digits.parse().ok().filter(|number| name_of(*number) == *name)
    };
    let mut numbers: Vec<u64> = files.iter().filter_map(number).collect();
    numbers.sort_unstable();
    numbers
}

/// The first line of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Header {
    pub(super) format: String,
    pub(super) segment: u64,
    /// Drawn once when the journal is made: two journals of one machine never fit together.
    pub(super) epoch: String,
    pub(super) machine: String,
    /// The last record before this segment.
    pub(super) after: Seq,
}

impl Header {
    pub(super) fn new(segment: u64, epoch: String, machine: String, after: Seq) -> Self {
        Self { format: format!("{FORMAT_NAME}{FORMAT}"), segment, epoch, machine, after }
    }

    /// Whether an earlier version wrote it. Such a segment gets no line more: what follows begins a new one.
    pub(super) fn is_older(&self) -> bool {
        format_number(&self.format).is_some_and(|number| number < FORMAT)
    }

    pub(super) fn write(&self, out: &mut Vec<u8>, prev: &Sum) -> Sum {
        let start = out.len();
        serde_json::to_writer(&mut *out, self).expect("a header is JSON, and a vector takes it");
        out.pop();
        line::seal(out, start, prev)
    }
}

/// One checked line.
pub(super) struct SegmentLine<'a> {
    pub(super) offset: usize,
    pub(super) text: &'a [u8],
    pub(super) seq: Seq,
    pub(super) at: Timestamp,
    pub(super) kind: &'a str,
    fields: &'a str,
}

/// Goes through the lines of a segment in order.
pub(super) struct SegmentWalk<'a> {
    bytes: &'a [u8],
    /// Where the next line begins.
    pub(super) offset: usize,
    lines: u64,
    pub(super) header: Header,
    /// What the header names as the line before it, in the segment before.
    pub(super) before: Sum,
    pub(super) head: Head,
    pub(super) at: Timestamp,
    /// The date of the line before.
    earlier: Timestamp,
    durable: Seq,
    /// Where the lines begin that no later line calls durable.
    pub(super) unproven: usize,
    pub(super) snapshot_ends: usize,
    fields: String,
}

impl<'a> SegmentWalk<'a> {
    /// Checks the header.
    pub(super) fn begin(bytes: &'a [u8]) -> Result<Self, Damage> {
        let damage = |problem| Damage { line: 1, offset: 0, seq: Seq(0), problem };
        let text = next_line(bytes, 0).ok_or_else(|| damage(LineProblem::Unsealed))?;
        let sealed = line::unseal(text).ok_or_else(|| damage(LineProblem::Unsealed))?;
        // Before its fields are looked at, of which a later version may have others. That it is sealed so, and begins with
        // its format, holds for every version: a flipped bit is damage and nothing else.
        if let Some(found) = named_number(sealed.content).filter(|found| *found > FORMAT) {
            return Err(damage(LineProblem::Newer { found, known: FORMAT }));
        }
        let json = [sealed.content, b"}"].concat();
        let header: Header = serde_json::from_slice(&json)
            .map_err(|error| damage(LineProblem::NotUnderstood(NotUnderstood::Fields(error))))?;
        if !format_number(&header.format).is_some_and(|number| (1..=FORMAT).contains(&number)) {
            let format = format!("has the format {:?}, which never was", header.format);
            return Err(damage(LineProblem::Chain(format)));
        }
        Ok(Self {
            bytes,
            offset: text.len() + 1,
            lines: 1,
            before: sealed.prev,
            head: Head { seq: header.after, sum: sealed.sum },
            durable: header.after,
            header,
            at: Timestamp::MIN,
            earlier: Timestamp::MIN,
            unproven: 0,
            snapshot_ends: 0,
            fields: String::new(),
        })
    }

    /// The next line, or none at the end.
    pub(super) fn next(&mut self) -> Result<Option<SegmentLine<'a>>, Damage> {
        if self.offset == self.bytes.len() {
            return match self.snapshot_ends {
                0 => Err(self.damage(LineProblem::Unsealed)),
                _ => Ok(None),
            };
        }
        let Some((text, sealed)) = next_line(self.bytes, self.offset)
            .and_then(|text| line::unseal(text).map(|sealed| (text, sealed)))
        else {
            return Err(self.damage(LineProblem::Unsealed));
        };
        let Some((envelope, fields)) = line::open(sealed.content) else {
            return Err(self.damage(LineProblem::Chain("is not one of our records".to_owned())));
        };
        if let Some(why) = self.misfit(&envelope, &sealed.prev) {
            return Err(self.damage(LineProblem::Chain(why)));
        }
        let line = SegmentLine {
            offset: self.offset,
            text,
            seq: envelope.seq,
            at: envelope.at,
            kind: envelope.kind,
            fields,
        };
        if envelope.durable > self.durable {
            self.durable = envelope.durable;
            self.unproven = self.offset;
        }
        self.head = Head { seq: envelope.seq, sum: sealed.sum };
        (self.earlier, self.at) = (self.at, envelope.at);
        self.offset += text.len() + 1;
        self.lines += 1;
        if self.snapshot_ends == 0 {
            // The segment got its name only after both first lines were on disk.
            self.snapshot_ends = self.offset;
            self.unproven = self.offset;
        }
        Ok(Some(line))
    }

    /// What the line says.
    pub(super) fn body(&mut self, line: &SegmentLine<'a>) -> Result<Body, Damage> {
        self.fields.clear();
        self.fields.push('{');
        self.fields.push_str(line.fields.strip_prefix(',').unwrap_or(line.fields));
        self.fields.push('}');
        let body = record::decode(line.kind, &self.fields)
            .map_err(|why| self.damage_at(line, LineProblem::NotUnderstood(why)))?;
        match misdated(&body, line.at, self.earlier) {
            None => Ok(body),
            Some(why) => Err(self.damage_at(line, LineProblem::Chain(why.to_owned()))),
        }
    }

    /// Blames a line that was read before.
    pub(super) fn damage_at(&self, line: &SegmentLine<'_>, problem: LineProblem) -> Damage {
        Damage { line: self.lines, offset: line.offset as u64, seq: line.seq, problem }
    }

    /// Whether the damage is what a crash during the last write leaves: the line is not sealed, and
    /// no whole line after it was written in the knowledge that it is on disk. The header and the
    /// snapshot were on disk before the segment had its name, so they are never torn.
    pub(super) fn is_torn_tail(&self, damage: &Damage) -> bool {
        let torn = matches!(damage.problem, LineProblem::Unsealed) && self.snapshot_ends != 0;
        torn && !self.later_durables().any(|durable| durable >= damage.seq)
    }

    /// The `durable` of every whole line after the damage. They are looked for at each place where
    /// a record could begin, because the damage may have eaten a newline.
    fn later_durables(&self) -> impl Iterator<Item = Seq> {
        let tail = &self.bytes[self.offset..];
        let begins = line::RECORD_START.as_bytes();
        let starts = tail.windows(begins.len()).enumerate();
        starts.filter(move |(_, bytes)| *bytes == begins).filter_map(move |(start, _)| {
            let rest = &tail[start..];
            let end = rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
            let sealed = line::unseal(&rest[..end])?;
            Some(line::open(sealed.content)?.0.durable)
        })
    }

    /// Why a whole line cannot stand here, if it cannot.
    fn misfit(&self, envelope: &line::LineEnvelope<'_>, prev: &Sum) -> Option<String> {
        let expected = self.head.seq.next();
        if envelope.seq != expected {
            return Some(format!("has the number {}", envelope.seq));
        }
        if *prev != self.head.sum {
            return Some("does not name the line before it".to_owned());
        }
        if envelope.durable < self.durable || envelope.durable >= expected {
            return Some(format!("claims that {} was durable", envelope.durable));
        }
        let first = self.snapshot_ends == 0;
        if first != (envelope.kind == "snapshot") {
            return Some("a snapshot is the first record of a segment, and only there".to_owned());
        }
        None
    }

    fn damage(&self, problem: LineProblem) -> Damage {
        let seq = self.head.seq.next();
        Damage { line: self.lines + 1, offset: self.offset as u64, seq, problem }
    }
}

/// The number of a format, as a header spells it.
fn format_number(format: &str) -> Option<u32> {
    let digits = format.strip_prefix(FORMAT_NAME)?;
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0');
    plain.then(|| digits.parse().ok()).flatten()
}

/// The number of the format that a first line begins with; that it begins so holds for every version.
fn named_number(line: &[u8]) -> Option<u32> {
    let rest = line.strip_prefix(b"{\"format\":\"")?;
    let end = rest.iter().position(|byte| *byte == b'"')?;
    format_number(str::from_utf8(&rest[..end]).ok()?)
}

/// Time runs back in one place only: where an operator signed for it.
fn misdated(body: &Body, at: Timestamp, earlier: Timestamp) -> Option<&'static str> {
    let set = match body {
        Body::Record(record) => record.sets_mark(),
        Body::Snapshot(_) => None,
    };
    match set {
        Some(mark) if mark != at => Some("is not dated with the mark of time it sets"),
        None if at < earlier => Some("is dated before the line before it"),
        Some(_) | None => None,
    }
}

/// The line that begins at `offset`, without its newline; none if the newline is missing.
fn next_line(bytes: &[u8], offset: usize) -> Option<&[u8]> {
    let rest = &bytes[offset..];
    // The standard library's own search looks at many bytes at once; a slice cannot fail to be read.
    let length = (&mut &*rest).skip_until(b'\n').expect("a slice is read");
    rest[..length].strip_suffix(b"\n")
}

/// The sum of the last line, as it stands there.
pub(super) fn last_sum(bytes: &[u8]) -> Option<Sum> {
    let lines = bytes.strip_suffix(b"\n")?;
    let start = lines.iter().rposition(|b| *b == b'\n').map_or(0, |newline| newline + 1);
    line::unseal(&lines[start..]).map(|sealed| sealed.sum)
}
