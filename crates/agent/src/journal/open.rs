//! Opening the journal at start-up: replay, and repair of the one thing a crash may leave.
//!
//! Called once, before anything else is done. It reads the newest segment only; its snapshot holds
//! what the older ones said. It cuts a torn tail, with a copy kept, and stops at any other damage:
//! no line is ever skipped (invariant 6). Opening twice equals opening once.

use std::io;

use jiff::Timestamp;

use super::disk::{Disk, Files};
use super::error::{DiskFailure, JournalError, LineProblem};
use super::line::{Head, Seq, Sum};
use super::record::{Body, Note, Record};
use super::segment::{self, Header, SegmentWalk};
use super::space::{self, DiskSpace};
use super::state::JournalState;
use super::{AppendError, Journal, JournalLimits, Stamp, WallTime, begin_segment, mark, rotate_at};

/// Copies of cut tails; one is called so until the cut is noted in the journal.
const CUT: &str = "cut-";

/// So many copies of cut tails are kept; a crash loop must not fill the disk.
const CUT_COPIES_MAX: usize = 32;

impl<D: Disk> Journal<D> {
    /// Replays the journal, or makes a new one in an empty directory.
    pub fn open(
        mut disk: D,
        stamp: Stamp,
        limits: JournalLimits,
        now: impl Into<WallTime>,
    ) -> Result<Self, JournalError> {
        let now = now.into();
        let listed =
            disk.list().map_err(|error| DiskFailure::new("list", "the directory", error))?;
        for name in listed.iter().filter(|n| n.starts_with("journal-") && n.ends_with(segment::NEW))
        {
            // It never got its name, so nothing in it was acknowledged.
            disk.remove(name).map_err(|error| DiskFailure::new("remove", name, error))?;
        }
        let numbers = segment::numbers(&listed);
        check_no_gap(&numbers)?;
        let Some(newest) = numbers.last() else {
            check_never_used(&listed)?;
            return Self::make(disk, stamp, limits, now.at);
        };
        let reserve_found = listed.iter().any(|name| name == space::RESERVE);
        let replayed = replay(&disk, *newest, &stamp)?;
        if numbers.len() > 1 {
            check_link(&disk, &replayed)?;
        }
        let mut journal = Self::resume(disk, limits, replayed)?;
        journal.space = DiskSpace::unknown(limits.reserve_bytes, reserve_found);
        journal.note_cuts(now)?;
        Ok(journal)
    }

    fn make(
        mut disk: D,
        stamp: Stamp,
        limits: JournalLimits,
        at: Timestamp,
    ) -> Result<Self, JournalError> {
        let Stamp { machine, new_epoch } = stamp;
        let nothing = Head { seq: Seq(0), sum: Sum::NONE };
        let header = Header::new(1, new_epoch, machine, nothing.seq);
        let state = JournalState::default();
        let at = mark::in_milliseconds(at);
        let (head, length) = begin_segment(&mut disk, &header, nothing, at, &state)?;
        let end =
            LastSegment { header, before: Sum::NONE, head, at, length, snapshot_bytes: length };
        Ok(Self::at_end(disk, limits, end, state))
    }

    /// Makes sure that what was replayed is on disk, cuts what is torn, and goes on from there.
    fn resume(
        mut disk: D,
        limits: JournalLimits,
        replayed: ReplayedJournal,
    ) -> Result<Self, JournalError> {
        let ReplayedJournal { end, state, bytes, unproven, torn } = replayed;
        let file = segment::name_of(end.header.segment);
        let good = usize::try_from(end.length).expect("the file is in memory");
        let failed = |doing, error: io::Error| DiskFailure::new(doing, &file, error);
        if torn {
            keep_copy(&mut disk, &end, &bytes[good..])?;
            disk.truncate(&file, end.length)
                .map_err(|error| failed("cut the torn tail of", error))?;
        }
        // The last batch may be readable and yet not on disk, if the process died after a failed
        // sync. A second sync would prove nothing, so the same bytes are written again.
        if unproven < good {
            let again = disk.write_at(&file, unproven as u64, &bytes[unproven..good]);
            again.map_err(|error| failed("write the last batch again to", error))?;
        }
        disk.sync(&file).map_err(|error| failed("sync", error))?;
        let synced = disk.sync_directory();
        synced.map_err(|error| failed("sync the directory of", error))?;
        Ok(Self::at_end(disk, limits, end, state))
    }

    fn at_end(disk: D, limits: JournalLimits, end: LastSegment, state: JournalState) -> Self {
        let LastSegment { header, before: _, head, at, length, snapshot_bytes } = end;
        // After an upgrade the first record begins a segment of today's format, and until then the older version can
        // be installed again.
        let rotate_at = if header.is_older() { 0 } else { rotate_at(0, snapshot_bytes, &limits) };
        Self {
            file: segment::name_of(header.segment),
            rotate_at,
            space: DiskSpace::unknown(limits.reserve_bytes, false),
            durable: head.seq,
            clock_mark: at,
            staged: Vec::new(),
            poisoned: None,
            disk,
            limits,
            header,
            length,
            state,
            head,
        }
    }

    /// Tells of every cut that is not told yet, and then drops the oldest surplus copies.
    fn note_cuts(&mut self, now: WallTime) -> Result<(), JournalError> {
        for name in self.files()?.iter().filter(|name| name.starts_with(CUT)) {
            let Some(told) = name.strip_suffix(segment::NEW) else { continue };
            let text =
                format!("a crash tore the end of the journal; it was cut and kept as {told}");
            let note = Note { what: "tail_cut".to_owned(), text };
            self.append(Record::Note(note), now).map_err(|error| match error {
                AppendError::Failed(failure) => JournalError::Disk(failure),
                other @ (AppendError::Refused(_)
                | AppendError::TooLong { .. }
                | AppendError::Full { .. }
                | AppendError::Stopped) => unreachable!("a note is always taken: {other}"),
            })?;
            let renamed = self.disk.rename(name, told).and_then(|()| self.disk.sync_directory());
            renamed.map_err(|error| DiskFailure::new("rename", name, error))?;
        }
        Ok(self.drop_oldest_copies()?)
    }

    fn drop_oldest_copies(&mut self) -> Result<(), DiskFailure> {
        let mut copies = self.files()?;
        copies.retain(|name| name.starts_with(CUT));
        copies.sort_unstable();
        for name in &copies[..copies.len().saturating_sub(CUT_COPIES_MAX)] {
            self.disk.remove(name).map_err(|error| DiskFailure::new("remove", name, error))?;
        }
        Ok(())
    }

    fn files(&self) -> Result<Vec<String>, DiskFailure> {
        self.disk.list().map_err(|error| DiskFailure::new("list", "the directory", error))
    }
}

/// Where a segment ends.
struct LastSegment {
    header: Header,
    /// The line before the header, in the segment before.
    before: Sum,
    head: Head,
    at: Timestamp,
    length: u64,
    snapshot_bytes: u64,
}

struct ReplayedJournal {
    end: LastSegment,
    state: JournalState,
    bytes: Vec<u8>,
    unproven: usize,
    torn: bool,
}

/// Folds the records of a segment. It changes nothing.
fn replay(disk: &impl Files, number: u64, stamp: &Stamp) -> Result<ReplayedJournal, JournalError> {
    let file = segment::name_of(number);
    let bytes = disk.read(&file).map_err(|error| DiskFailure::new("read", &file, error))?;
    let damaged = |damage| JournalError::in_segment(&file, damage);
    let mut walk = SegmentWalk::begin(&bytes).map_err(damaged)?;
    check_header(&walk.header, number, stamp)?;
    let mut state = JournalState::default();
    let torn = loop {
        match walk.next() {
            Ok(None) => break false,
            Ok(Some(line)) => match walk.body(&line).map_err(damaged)? {
                Body::Snapshot(snapshot) => state = snapshot,
                Body::Record(record) => state
                    .apply(record)
                    .map_err(|why| damaged(walk.damage_at(&line, LineProblem::Replay(why))))?,
            },
            Err(damage) if walk.is_torn_tail(&damage) => break true,
            Err(damage) => return Err(damaged(damage)),
        }
    };
    let unproven = walk.unproven;
    let length = walk.offset as u64;
    let snapshot_bytes = walk.snapshot_ends as u64;
    let SegmentWalk { header, before, head, at, .. } = walk;
    let end = LastSegment { header, before, head, at, length, snapshot_bytes };
    Ok(ReplayedJournal { end, state, bytes, unproven, torn })
}

fn check_header(header: &Header, number: u64, stamp: &Stamp) -> Result<(), JournalError> {
    let file = segment::name_of(number);
    if header.machine != stamp.machine {
        let found = header.machine.clone();
        let expected = stamp.machine.clone();
        return Err(JournalError::OtherMachine { file, found, expected });
    }
    if header.segment != number {
        let why = format!("its first line says that it is segment {}", header.segment);
        return Err(JournalError::Segments { file, why });
    }
    Ok(())
}

/// The reserve is made after the first segment. Where it is and no segment, somebody removed the
/// journal, and beginning anew would forget which keys are spent.
fn check_never_used(listed: &[String]) -> Result<(), JournalError> {
    let traces = |name: &&String| *name == space::RESERVE || name.starts_with(CUT);
    match listed.iter().find(traces) {
        None => Ok(()),
        Some(trace) => {
            let why = format!("it is missing, although {trace} shows that there was a journal");
            Err(JournalError::Segments { file: segment::name_of(1), why })
        }
    }
}

pub(super) fn check_no_gap(numbers: &[u64]) -> Result<(), JournalError> {
    match numbers.windows(2).find(|pair| pair[0] + 1 != pair[1]) {
        None => Ok(()),
        Some(pair) => {
            let why = format!("it is missing, although segment {} is there", pair[1]);
            Err(JournalError::Segments { file: segment::name_of(pair[0] + 1), why })
        }
    }
}

/// The newest segment must go on where the one before it ends.
fn check_link(disk: &impl Files, replayed: &ReplayedJournal) -> Result<(), JournalError> {
    let Header { segment, .. } = replayed.end.header;
    let file = segment::name_of(segment - 1);
    let bytes = disk.read(&file).map_err(|error| DiskFailure::new("read", &file, error))?;
    if segment::last_sum(&bytes) == Some(replayed.end.before) {
        return Ok(());
    }
    let why = "it does not go on where the segment before it ends".to_owned();
    Err(JournalError::Segments { file: segment::name_of(segment), why })
}

/// Puts the bytes about to be cut beside the journal. The name is made of the contents, so that a
/// crash half-way through leads to the same copy again.
fn keep_copy(disk: &mut impl Disk, end: &LastSegment, cut: &[u8]) -> Result<(), DiskFailure> {
    let sum = Sum::of(cut);
    let digits = &sum.as_str()[..16];
    let segment = end.header.segment;
    let offset = end.length;
    let name = format!("{CUT}{segment:06}-{offset:010}-{digits}{}", segment::NEW);
    disk.write_at(&name, 0, cut)
        .map_err(|error| DiskFailure::new("write the cut tail to", &name, error))?;
    disk.sync(&name).map_err(|error| DiskFailure::new("sync", &name, error))?;
    disk.sync_directory().map_err(|error| DiskFailure::new("sync the directory of", &name, error))
}
