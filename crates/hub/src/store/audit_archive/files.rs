//! The files of an archive: read along their chain, begun and continued. Knows nothing of the database.
//!
//! ```text
//! audit/audit-000001.jsonl   a header, then a line a row; full at 8 MiB
//!       audit-000002.jsonl   the newest: lines are added at its end, and synced
//!       cut-000002-81920     what stood after the last whole line when the hub came back
//!       lock                 held while lines are added
//! ```

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use fs_err as fs;
use fs_err::os::unix::fs::OpenOptionsExt as _;
use rustix::fs::{FlockOperation, flock};

use super::line::{self, FORMAT, FileHeader, NO_SUM, SealedLine};
use crate::death_point;
use crate::store::{AuditLine, StoreError};

/// Bytes of one write: a death between two of them leaves a line by half.
const WRITE_BYTES: usize = 64 * 1024;

/// Where a chain stands: its last line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChainEnd {
    /// The file it is in; 0 before the first.
    pub(super) file: u32,
    /// The last row.
    pub(super) serial: i64,
    /// The sum of the last line.
    pub(super) sum: String,
    /// Rows up to there, in all files.
    pub(super) lines: u64,
}

impl ChainEnd {
    /// Before the first line.
    pub(super) fn start(after: i64) -> Self {
        Self { file: 0, serial: after, sum: NO_SUM.to_owned(), lines: 0 }
    }
}

/// Damage: where, and what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LineFault {
    pub(super) line: usize,
    pub(super) why: &'static str,
}

/// One file, read as far as its chain holds.
pub(super) struct ReadFile {
    pub(super) header: FileHeader,
    /// The rows, each with the sum of its line.
    pub(super) rows: Vec<(AuditLine, String)>,
    pub(super) end: ChainEnd,
    /// Bytes that hold.
    pub(super) whole: u64,
    /// What comes after those.
    pub(super) fault: Option<LineFault>,
}

/// The files that are there, by their numbers.
pub(super) fn list(directory: &Path) -> Result<BTreeMap<u32, PathBuf>, StoreError> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        entries => entries?,
    };
    let mut files = BTreeMap::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| {
            let digits = name.strip_prefix("audit-")?.strip_suffix(".jsonl")?;
            digits.parse().ok().filter(|number| file_name(*number) == name)
        });
        if let Some(number) = number {
            files.insert(number, entry.path());
        }
    }
    Ok(files)
}

/// The name of a file.
pub(super) fn file_name(number: u32) -> String {
    format!("audit-{number:06}.jsonl")
}

/// Reads a file that must continue a chain; where the chain begins nobody knows what came before.
pub(super) fn read(
    path: &Path,
    number: u32,
    hub_id: &str,
    before: Option<&ChainEnd>,
) -> Result<Result<ReadFile, LineFault>, StoreError> {
    Ok(read_bytes(&fs::read(path)?, number, hub_id, before))
}

fn read_bytes(
    bytes: &[u8],
    number: u32,
    hub_id: &str,
    before: Option<&ChainEnd>,
) -> Result<ReadFile, LineFault> {
    let fault = |why| LineFault { line: 1, why };
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let first = lines.next().and_then(|line| line.strip_suffix(b"\n"));
    let first = first.ok_or_else(|| fault("the header is not whole"))?;
    let sealed = SealedLine::read(first).ok_or_else(|| fault("it does not end in its own sum"))?;
    let header = sealed.header().ok_or_else(|| fault("it is no header of an archive"))?;
    if header.format != FORMAT {
        return Err(fault("another version wrote it"));
    }
    if header.hub != hub_id {
        return Err(fault("it belongs to another hub"));
    }
    if header.file != number {
        return Err(fault("its name has another number than its header"));
    }
    let continues = before.is_none_or(|before| {
        let ChainEnd { file, serial, sum, lines } = before;
        sealed.prev == sum
            && header.after == *serial
            && header.lines == *lines
            && header.file == file + 1
    });
    if !continues {
        return Err(fault("it does not continue the file before it"));
    }
    let serial = header.after;
    let sum = sealed.sum.to_owned();
    let end = ChainEnd { file: number, serial, sum, lines: header.lines };
    let whole = first.len() as u64 + 1;
    let mut file = ReadFile { header, rows: Vec::new(), end, whole, fault: None };
    for (index, line) in lines.enumerate() {
        if let Err(why) = file.take(line) {
            file.fault = Some(LineFault { line: index + 2, why });
            break;
        }
    }
    Ok(file)
}

impl ReadFile {
    fn take(&mut self, line: &[u8]) -> Result<(), &'static str> {
        let text = line.strip_suffix(b"\n").ok_or("it has no end")?;
        let sealed = SealedLine::read(text).ok_or("it does not end in its own sum")?;
        if sealed.prev != self.end.sum {
            return Err("it does not continue the line before it");
        }
        let row = sealed.row().ok_or("it is no row of an audit")?;
        if row.serial <= self.end.serial {
            return Err("its row is not newer than the one before it");
        }
        sealed.sum.clone_into(&mut self.end.sum);
        self.end.serial = row.serial;
        self.end.lines += 1;
        self.whole += line.len() as u64;
        self.rows.push((row, self.end.sum.clone()));
        Ok(())
    }
}

/// An archive that lines can be added to. Nobody else adds any meanwhile.
pub(super) struct OpenArchive {
    directory: PathBuf,
    hub_id: String,
    /// Where it ends.
    pub(super) end: ChainEnd,
    /// Rows after the place that the database knows: written, and perhaps not taken out of the table.
    pub(super) ahead: Vec<AuditLine>,
    length: u64,
    _lock: fs::File,
}

/// Why lines are not added now.
pub(super) enum NotOpened {
    /// Another process adds lines.
    Busy,
    /// The files that the database tells of are not in this directory.
    Elsewhere,
    Failed(StoreError),
}

impl<E: Into<StoreError>> From<E> for NotOpened {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

impl OpenArchive {
    /// Reads on from the place that the database knows. A tail that is not whole is put aside: its rows are in the table still.
    pub(super) fn open(
        directory: &Path,
        hub_id: &str,
        known: &ChainEnd,
    ) -> Result<Self, NotOpened> {
        let files = list(directory)?;
        if known.file > 0 && !files.contains_key(&known.file) {
            return Err(NotOpened::Elsewhere);
        }
        let lock = lock(directory)?;
        // Once more: whoever held the lock may have begun a file.
        let files = list(directory)?;
        let newest = files.keys().last().copied().unwrap_or_default();
        let mut end = known.clone();
        let mut ahead = Vec::new();
        let mut length = 0;
        let mut is_known = known.file == 0;
        for number in known.file.max(1)..=newest {
            let path = directory.join(file_name(number));
            let before = if number == known.file { None } else { Some(&end) };
            let read = read(&path, number, hub_id, before)?;
            let mut file = read.map_err(|fault| damaged(&path, &fault))?;
            for (row, sum) in file.rows.drain(..) {
                if is_known {
                    ahead.push(row);
                } else {
                    is_known = row.serial == known.serial && sum == known.sum;
                }
            }
            if let Some(fault) = file.fault {
                if !is_known || number < newest {
                    return Err(damaged(&path, &fault).into());
                }
                put_tail_aside(directory, number, &path, file.whole)?;
            }
            (end, length) = (file.end, file.whole);
        }
        if !is_known {
            let why =
                format!("the archive in {} ends before what was put into it", directory.display());
            return Err(StoreError::Archive(why).into());
        }
        if !ahead.is_empty() {
            // Read, and perhaps not on the disk: the process that wrote it may have died before its sync.
            fs::File::open(directory.join(file_name(end.file)))?.sync_all()?;
        }
        let directory = directory.to_owned();
        let hub_id = hub_id.to_owned();
        Ok(Self { directory, hub_id, end, ahead, length, _lock: lock })
    }

    /// Adds rows at the end, of the next file if this one is full. When this answers they are on the disk.
    pub(super) fn append(&mut self, rows: &[AuditLine], full_at: u64) -> Result<(), StoreError> {
        if self.end.file == 0 || self.length >= full_at {
            self.begin_file()?;
        }
        let mut bytes = Vec::new();
        let mut end = self.end.clone();
        for row in rows {
            end.sum = line::seal_row(&mut bytes, row, &end.sum);
            end.serial = row.serial;
            end.lines += 1;
        }
        let path = self.directory.join(file_name(end.file));
        let mut file = fs::OpenOptions::new().append(true).open(path)?;
        for part in bytes.chunks(WRITE_BYTES) {
            death_point::pass();
            file.write_all(part)?;
        }
        death_point::pass();
        file.sync_all()?;
        death_point::pass();
        self.length += bytes.len() as u64;
        self.end = end;
        Ok(())
    }

    /// The next file, with its header: it is there whole or not at all.
    fn begin_file(&mut self) -> Result<(), StoreError> {
        let ChainEnd { file, serial, sum, lines } = &self.end;
        let number = file + 1;
        let header = FileHeader {
            format: FORMAT.to_owned(),
            file: number,
            hub: self.hub_id.clone(),
            after: *serial,
            lines: *lines,
        };
        let mut bytes = Vec::new();
        let sum = line::seal(&mut bytes, &header, sum);
        let path = self.directory.join(file_name(number));
        let new = path.with_extension("jsonl.new");
        let mut file = owned_file().truncate(true).open(&new)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        death_point::pass();
        fs::rename(&new, &path)?;
        fs::File::open(&self.directory)?.sync_all()?;
        death_point::pass();
        (self.end.file, self.end.sum) = (number, sum);
        self.length = bytes.len() as u64;
        Ok(())
    }
}

fn owned_file() -> fs::OpenOptions {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).mode(0o600);
    options
}

/// The lock of a directory, which is made if it is not there.
fn lock(directory: &Path) -> Result<fs::File, NotOpened> {
    use std::os::unix::fs::DirBuilderExt as _;
    if !directory.exists() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(
            |error| {
                let text = format!("cannot make {}: {error}", directory.display());
                std::io::Error::new(error.kind(), text)
            },
        )?;
        let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty());
        fs::File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
    }
    let lock = owned_file().truncate(false).open(directory.join("lock"))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(NotOpened::Busy),
        Err(error) => Err(std::io::Error::from(error).into()),
    }
}

/// Copies what stands after the last whole line, then cuts it off.
fn put_tail_aside(
    directory: &Path,
    number: u32,
    path: &Path,
    whole: u64,
) -> Result<(), StoreError> {
    let bytes = fs::read(path)?;
    let tail = usize::try_from(whole).ok().and_then(|whole| bytes.get(whole..)).unwrap_or_default();
    let mut copy =
        owned_file().truncate(true).open(directory.join(format!("cut-{number:06}-{whole}")))?;
    copy.write_all(tail)?;
    copy.sync_all()?;
    fs::File::open(directory)?.sync_all()?;
    death_point::pass();
    let file = fs::OpenOptions::new().write(true).open(path)?;
    file.set_len(whole)?;
    file.sync_all()?;
    Ok(())
}

/// Damage as an error that names file and line.
pub(super) fn damaged(path: &Path, fault: &LineFault) -> StoreError {
    StoreError::Archive(format!("the archive of the audit is damaged: {}", fault_text(path, fault)))
}

/// Damage as text that names file and line.
pub(super) fn fault_text(path: &Path, fault: &LineFault) -> String {
    format!("{}, line {}: {}", path.display(), fault.line, fault.why)
}
