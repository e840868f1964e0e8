//! Reading the journal without changing it: the whole chain checked, and lines for printing.
//!
//! `evenkeel journal` and `evenkeel journal verify` call it, also while the agent runs. It goes
//! through the archive too, which start-up does not, and compares each snapshot with what the
//! segment before it adds up to.

use jiff::Timestamp;

use super::disk::Files;
use super::error::{DiskFailure, JournalError, LineProblem};
use super::line::{Head, Seq};
use super::open::check_no_gap;
use super::record::Body;
use super::segment::{self, Header, SegmentLine, SegmentWalk};
use super::state::JournalState;

/// A journal without damage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedJournal {
    /// The newest record; none if there is no journal.
    pub head: Option<Head>,
    /// How many records were checked.
    pub records: u64,
    /// How many segments were checked.
    pub segments: usize,
    /// Bytes after the newest record: a torn tail that the next start will cut, or a write that is
    /// under way just now.
    pub tail_bytes: u64,
}

/// One record, for printing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrintedLine {
    /// The segment it stands in.
    pub file: String,
    /// Its number.
    pub seq: Seq,
    /// When it was written.
    pub at: Timestamp,
    /// Its `type`.
    pub kind: String,
    /// The line itself: one JSON object.
    pub text: String,
}

/// Checks every line of every segment; the first damage is the error.
pub fn verify(files: &impl Files) -> Result<VerifiedJournal, JournalError> {
    read(files, |_| {})
}

/// The same, and hands each record to `print`, oldest first. What was printed before an error is
/// good.
pub fn read(
    files: &impl Files,
    mut print: impl FnMut(PrintedLine),
) -> Result<VerifiedJournal, JournalError> {
    each_line(files, |file, line, _| print(PrintedLine::of(file, line)))
}

impl PrintedLine {
    pub(super) fn of(file: &str, line: &SegmentLine<'_>) -> Self {
        Self {
            file: file.to_owned(),
            seq: line.seq,
            at: line.at,
            kind: line.kind.to_owned(),
            text: String::from_utf8_lossy(line.text).into_owned(),
        }
    }
}

/// Every line of the newest segments that hold something behind a record, but of no more than so many segments. None if
/// there is no journal.
pub(super) fn each_line_since(
    files: &impl Files,
    after: Seq,
    segments_max: usize,
    mut look: impl FnMut(&str, &SegmentLine<'_>, &Body),
) -> Result<Option<Head>, JournalError> {
    let listed = files.list().map_err(|error| DiskFailure::new("list", "the directory", error))?;
    let numbers = segment::numbers(&listed);
    let mut wanted = Vec::new();
    for number in numbers.iter().rev().take(segments_max) {
        let file = segment::name_of(*number);
        let bytes = files.read(&file).map_err(|error| DiskFailure::new("read", &file, error))?;
        let damaged =
            |damage| JournalError::Damaged { file: file.clone(), damage: Box::new(damage) };
        let is_enough = SegmentWalk::begin(&bytes).map_err(damaged)?.header.after <= after;
        wanted.push((*number, file, bytes));
        if is_enough {
            break;
        }
    }
    let mut before: Option<SegmentEnd> = None;
    let mut left = wanted.len();
    for (number, file, bytes) in wanted.into_iter().rev() {
        left -= 1;
        let newest = left == 0;
        let mut each = |line: &SegmentLine<'_>, body: &Body| look(&file, line, body);
        before = Some(read_segment(&file, &bytes, number, before.as_ref(), newest, &mut each)?);
    }
    Ok(before.map(|end| end.head))
}

/// The same with what each line means, before it is folded.
pub(super) fn each_line(
    files: &impl Files,
    mut look: impl FnMut(&str, &SegmentLine<'_>, &Body),
) -> Result<VerifiedJournal, JournalError> {
    let listed = files.list().map_err(|error| DiskFailure::new("list", "the directory", error))?;
    let numbers = segment::numbers(&listed);
    check_no_gap(&numbers)?;
    let mut so_far = VerifiedJournal { head: None, records: 0, segments: 0, tail_bytes: 0 };
    let mut before: Option<SegmentEnd> = None;
    for (index, number) in numbers.iter().enumerate() {
        let file = segment::name_of(*number);
        let bytes = files.read(&file).map_err(|error| DiskFailure::new("read", &file, error))?;
        let newest = index + 1 == numbers.len();
        let end =
            read_segment(&file, &bytes, *number, before.as_ref(), newest, &mut |line, body| {
                so_far.records += 1;
                look(&file, line, body);
            })?;
        so_far.segments += 1;
        so_far.head = Some(end.head);
        so_far.tail_bytes = end.tail_bytes;
        before = Some(end);
    }
    Ok(so_far)
}

/// The newest segment alone, and what it adds up to: what an agent reads when it starts. None if there is no journal.
pub fn newest(files: &impl Files) -> Result<Option<(Head, JournalState)>, JournalError> {
    Ok(newest_segment(files)?.map(|end| (end.head, end.state)))
}

/// The machine whose journal it is; none if there is no journal.
pub fn machine(files: &impl Files) -> Result<Option<String>, JournalError> {
    Ok(newest_segment(files)?.map(|end| end.header.machine))
}

fn newest_segment(files: &impl Files) -> Result<Option<SegmentEnd>, JournalError> {
    let listed = files.list().map_err(|error| DiskFailure::new("list", "the directory", error))?;
    let numbers = segment::numbers(&listed);
    check_no_gap(&numbers)?;
    let Some(number) = numbers.last() else {
        return Ok(None);
    };
    let file = segment::name_of(*number);
    let bytes = files.read(&file).map_err(|error| DiskFailure::new("read", &file, error))?;
    read_segment(&file, &bytes, *number, None, true, &mut |_, _| {}).map(Some)
}

struct SegmentEnd {
    header: Header,
    head: Head,
    state: JournalState,
    tail_bytes: u64,
}

fn read_segment(
    file: &str,
    bytes: &[u8],
    number: u64,
    before: Option<&SegmentEnd>,
    newest: bool,
    look: &mut impl FnMut(&SegmentLine<'_>, &Body),
) -> Result<SegmentEnd, JournalError> {
    let damaged = |damage| JournalError::in_segment(file, damage);
    let mut walk = SegmentWalk::begin(bytes).map_err(damaged)?;
    check_follows(file, &walk, number, before)?;
    let mut state = JournalState::default();
    let tail_bytes = loop {
        let line = match walk.next() {
            Ok(Some(line)) => line,
            Ok(None) => break 0,
            Err(damage) if newest && walk.is_torn_tail(&damage) => {
                break (bytes.len() - walk.offset) as u64;
            }
            Err(damage) => return Err(damaged(damage)),
        };
        let body = walk.body(&line).map_err(damaged)?;
        look(&line, &body);
        match body {
            Body::Snapshot(snapshot) => {
                if before.is_some_and(|before| before.state.compacted() != snapshot) {
                    let why = "is not what the segment before adds up to".to_owned();
                    return Err(damaged(walk.damage_at(&line, LineProblem::Chain(why))));
                }
                state = snapshot;
            }
            Body::Record(record) => state
                .apply(record)
                .map_err(|why| damaged(walk.damage_at(&line, LineProblem::Replay(why))))?,
        }
    };
    Ok(SegmentEnd { header: walk.header, head: walk.head, state, tail_bytes })
}

/// The header must name its own file and go on where the segment before ends.
fn check_follows(
    file: &str,
    walk: &SegmentWalk<'_>,
    number: u64,
    before: Option<&SegmentEnd>,
) -> Result<(), JournalError> {
    let Header { format: _, segment, epoch, machine, after } = &walk.header;
    let wrong = if *segment != number {
        Some(format!("its first line says that it is segment {segment}"))
    } else if let Some(SegmentEnd { header, head, .. }) = before {
        let same = *epoch == header.epoch && *machine == header.machine;
        let follows = walk.before == head.sum && *after == head.seq;
        let why = "it does not go on where the segment before it ends";
        (!same || !follows).then(|| why.to_owned())
    } else {
        None
    };
    match wrong {
        None => Ok(()),
        Some(why) => Err(JournalError::Segments { file: file.to_owned(), why }),
    }
}
