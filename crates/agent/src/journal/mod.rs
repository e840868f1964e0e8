//! The durable journal: what is about to happen is on disk before it happens (invariants 5 and 6).
//!
//! ```text
//!  engine ──record──► JournalHandle ──► writer thread ──► Journal ──► Disk
//!     ▲                                  many records,     stage, commit
//!     └────────── after the sync ◄────── one fdatasync
//! ```
//!
//! [`Journal`] is a synchronous object with one owner: [`group`] drives it from one OS thread in
//! production, simulation drives it inline. A record is first folded into the state (which may
//! refuse it), then written, then synced, and only then acknowledged. When a segment is full a new
//! one begins with a snapshot of the state, and replay reads only that one. After an error of the
//! disk the journal is poisoned: it takes nothing more, never repeats a sync, and the process ends.
//! The format is described in `docs/formats/journal.md`.

pub mod group;
pub mod history;
pub mod resolve;
pub mod verify;

mod details;
mod disk;
mod error;
mod exact;
mod line;
mod mark;
pub mod op_history;
mod op_line;
mod open;
mod real_disk;
mod record;
mod redact;
mod segment;
mod simulated_disk;
mod space;
mod state;

use std::io;

use jiff::Timestamp;

pub use details::Details;
pub use disk::{Disk, Files};
pub use error::{AppendError, Damage, DiskFailure, JournalError, LineProblem};
pub use exact::{ExactBytes, NotExactBytes};
pub use group::JournalHandle;
pub use line::{Head, Seq, Sum};
pub use mark::{WallTime, moment, seconds};
pub(crate) use real_disk::{ANOTHER_USERS, sync_parent};
pub use real_disk::{ReadOnlyDirectory, RealDisk};
pub use record::{Kept, KeptSubject, NotUnderstood, Note, OpEntry, Record, Retry, Versioned};
pub use simulated_disk::{DiskFault, SimulatedDisk};
pub(crate) use space::is_full;
pub use state::JournalState;

use line::LineEnvelope;
use record::RecordLine;
use segment::Header;
use space::DiskSpace;

/// The journal, opened for writing.
#[derive(Debug)]
pub struct Journal<D> {
    disk: D,
    limits: JournalLimits,
    header: Header,
    /// The segment being written.
    file: String,
    /// Its length, all of it on disk.
    length: u64,
    /// The length at which the next segment is begun.
    rotate_at: u64,
    state: JournalState,
    /// The newest record, whether on disk or staged.
    head: Head,
    durable: Seq,
    /// The latest moment that is believed (invariant 16). At rest it is ahead of the newest record.
    clock_mark: Timestamp,
    staged: Vec<u8>,
    space: DiskSpace,
    poisoned: Option<DiskFailure>,
}

/// The sizes at which the journal acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalLimits {
    /// A segment that has grown by this much gets a successor. 8 MiB are some 20,000 records:
    /// read in a moment at start-up, and a month of work on a busy host.
    pub segment_bytes: u64,
    /// So many closed segments are kept, the oldest goes first. 64 times 8 MiB are half a
    /// gigabyte: years of history for a small host.
    pub archive_segments: usize,
    /// The longest line but for snapshots. An approval with eight signatures stays under 128 KiB.
    pub line_bytes: usize,
    /// Space given back when the disk is full. 1,000 operations in flight need two records each
    /// to be closed, and those are under 2 KiB; a recovery of the signers is under 128 KiB.
    pub reserve_bytes: u64,
}

impl Default for JournalLimits {
    fn default() -> Self {
        Self {
            segment_bytes: 8 << 20,
            archive_segments: 64,
            line_bytes: 256 << 10,
            reserve_bytes: 4 << 20,
        }
    }
}

/// Whose journal this is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    /// The machine-id. A journal written under another one is refused.
    pub machine: String,
    /// A random text, used only when a new journal is made.
    pub new_epoch: String,
}

impl<D: Disk> Journal<D> {
    /// Takes one record and waits until it is on disk. What simulation and tools use; the agent
    /// goes through [`group`].
    pub fn append(
        &mut self,
        record: Record,
        now: impl Into<WallTime>,
    ) -> Result<Head, AppendError> {
        let head = self.stage(record, now)?;
        self.commit().map_err(AppendError::Failed)?;
        Ok(head)
    }

    /// Folds a record into the state and puts its line into the batch. It is not durable, and must
    /// not be acted upon, before [`Self::commit`]. On an error that is not fatal nothing happened.
    pub fn stage(&mut self, record: Record, now: impl Into<WallTime>) -> Result<Head, AppendError> {
        let line = RecordLine::of(&record);
        self.stage_line(record, &line, now)
    }

    fn stage_line(
        &mut self,
        record: Record,
        line: &RecordLine,
        now: impl Into<WallTime>,
    ) -> Result<Head, AppendError> {
        if let Some(failure) = &self.poisoned {
            return Err(AppendError::Failed(failure.clone()));
        }
        let now = now.into();
        if self.staged.is_empty() {
            let prepared = self.prepare_batch(now);
            prepared.map_err(|failure| AppendError::Failed(self.poison(failure)))?;
        }
        let bytes = line.fields.len();
        let limit = self.limits.line_bytes;
        let is_spared = record.begins_something()
            || record.is_from_reserve() && !self.space.has_room_for(self.staged.len() + bytes);
        if self.space.is_low() && is_spared {
            return Err(AppendError::Full { place: self.disk.place() });
        }
        if bytes > limit {
            return Err(AppendError::TooLong { bytes, limit });
        }
        let set = record.sets_mark();
        self.state.apply(record).map_err(AppendError::Refused)?;
        match set {
            Some(mark) => self.clock_mark = mark,
            None => self.notice(now),
        }
        let envelope = LineEnvelope {
            seq: self.head.seq.next(),
            at: self.clock_mark,
            durable: self.durable,
            kind: line.kind,
        };
        let sum = write_line(&mut self.staged, &envelope, &line.fields, &self.head.sum);
        self.head = Head { seq: envelope.seq, sum };
        Ok(self.head)
    }

    /// Writes the batch and syncs it once. After an error the journal takes nothing more.
    pub fn commit(&mut self) -> Result<(), DiskFailure> {
        if let Some(failure) = &self.poisoned {
            return Err(failure.clone());
        }
        self.write_batch().map_err(|failure| self.poison(failure))
    }

    /// How many bytes wait for [`Self::commit`].
    pub(crate) fn staged_bytes(&self) -> usize {
        self.staged.len()
    }

    /// What all records say, including those that are staged.
    pub fn state(&self) -> &JournalState {
        &self.state
    }

    /// The newest record.
    pub fn head(&self) -> Head {
        self.head
    }

    /// The mark of time: no earlier moment is believed (invariant 16).
    pub fn clock_mark(&self) -> Timestamp {
        self.clock_mark
    }

    /// Looks at the clock. An agent that looks often enough follows a clock nobody vouches for without
    /// writing a record for it; what it saw becomes durable with the next one.
    pub fn notice(&mut self, now: impl Into<WallTime>) {
        self.clock_mark = mark::raised(self.clock_mark, now.into());
    }

    fn write_batch(&mut self) -> Result<(), DiskFailure> {
        if self.staged.is_empty() {
            return Ok(());
        }
        let written = self.disk.write_at(&self.file, self.length, &self.staged);
        if let Err(error) = written {
            // Only a write is tried again, never a sync: the bytes go to the same place.
            self.space.release(&mut self.disk, error).map_err(|e| self.failed("write", e))?;
            let again = self.disk.write_at(&self.file, self.length, &self.staged);
            again.map_err(|error| self.failed("write", error))?;
        }
        self.disk.sync(&self.file).map_err(|error| self.failed("sync", error))?;
        self.length += self.staged.len() as u64;
        self.durable = self.head.seq;
        self.staged.clear();
        Ok(())
    }

    /// What is done before the first record of a batch, while everything is on disk.
    fn prepare_batch(&mut self, now: WallTime) -> Result<(), DiskFailure> {
        let looked = self.space.look(&mut self.disk);
        looked.map_err(|error| self.failed("measure the space for", error))?;
        if self.length >= self.rotate_at && !self.space.is_low() {
            self.rotate(now)?;
        }
        Ok(())
    }

    /// Begins the next segment with a snapshot of the state, and lets the oldest ones go.
    fn rotate(&mut self, now: WallTime) -> Result<(), DiskFailure> {
        let Header { segment, epoch, machine, .. } = self.header.clone();
        let header = Header::new(segment + 1, epoch, machine, self.head.seq);
        self.notice(now);
        self.state = self.state.compacted();
        let begun = begin_segment(&mut self.disk, &header, self.head, self.clock_mark, &self.state);
        match begun {
            Ok((head, length)) => {
                self.file = segment::name_of(header.segment);
                self.header = header;
                (self.head, self.durable, self.length) = (head, head.seq, length);
                self.rotate_at = rotate_at(length, length, &self.limits);
                self.drop_oldest_segments()
            }
            // Rotation can wait until there is space; closing operations cannot.
            Err(failure) if failure.doing == WRITE_SNAPSHOT && is_full(&failure.source) => {
                self.rotate_at = self.length + self.limits.segment_bytes;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// One at a time, each made durable: a gap between segments would stop the next start.
    fn drop_oldest_segments(&mut self) -> Result<(), DiskFailure> {
        let listed = self.disk.list().map_err(|error| self.failed("list", error))?;
        let numbers = segment::numbers(&listed);
        let archived = numbers.len().saturating_sub(1);
        let surplus = archived.saturating_sub(self.limits.archive_segments);
        for number in &numbers[..surplus] {
            let name = segment::name_of(*number);
            let removed = self.disk.remove(&name).and_then(|()| self.disk.sync_directory());
            removed.map_err(|error| DiskFailure::new("remove", &name, error))?;
        }
        Ok(())
    }

    fn poison(&mut self, failure: DiskFailure) -> DiskFailure {
        self.poisoned = Some(failure.clone());
        failure
    }

    fn failed(&self, doing: &'static str, source: io::Error) -> DiskFailure {
        DiskFailure::new(doing, &self.file, source)
    }
}

const WRITE_SNAPSHOT: &str = "write the snapshot to";

/// Writes a segment's first two lines under a passing name, and gives it its own once they are on
/// disk: a segment is never there in part. `last` is the end of the segment before.
fn begin_segment(
    disk: &mut impl Disk,
    header: &Header,
    last: Head,
    at: Timestamp,
    state: &JournalState,
) -> Result<(Head, u64), DiskFailure> {
    let mut bytes = Vec::new();
    let sum = header.write(&mut bytes, &last.sum);
    let mut fields = Vec::new();
    let kind = record::encode_snapshot(state, &mut fields);
    let envelope = LineEnvelope { seq: last.seq.next(), at, durable: last.seq, kind };
    let sum = write_line(&mut bytes, &envelope, &fields, &sum);

    let name = segment::name_of(header.segment);
    let new = format!("{name}{}", segment::NEW);
    if let Err(error) = disk.write_at(&new, 0, &bytes) {
        // What was written of it would keep the space that operations need to be closed.
        disk.remove(&new).map_err(|error| DiskFailure::new("remove", &new, error))?;
        return Err(DiskFailure::new(WRITE_SNAPSHOT, &new, error));
    }
    disk.sync(&new).map_err(|error| DiskFailure::new("sync", &new, error))?;
    disk.rename(&new, &name).map_err(|error| DiskFailure::new("rename", &new, error))?;
    disk.sync_directory()
        .map_err(|error| DiskFailure::new("sync the directory of", &name, error))?;
    Ok((Head { seq: envelope.seq, sum }, bytes.len() as u64))
}

/// A segment may grow by the limit, or by as much as its snapshot if that is more: otherwise a
/// large state would be written again with every record.
fn rotate_at(length: u64, snapshot_bytes: u64, limits: &JournalLimits) -> u64 {
    length.max(snapshot_bytes + limits.segment_bytes.max(snapshot_bytes))
}

/// One whole line: `fields` is a JSON object.
fn write_line(out: &mut Vec<u8>, envelope: &LineEnvelope<'_>, fields: &[u8], prev: &Sum) -> Sum {
    let start = out.len();
    line::begin(out, envelope);
    let inner = &fields[1..fields.len() - 1];
    if !inner.is_empty() {
        out.push(b',');
        out.extend_from_slice(inner);
    }
    line::seal(out, start, prev)
}
