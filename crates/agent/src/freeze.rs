//! Freeze and thaw: a file in the state directory that stops every mutation, and who put it there.
//!
//! ```text
//!   freeze ──> frozen {at, by, reason}            the gate looks for this file before every act
//!   thaw ────> thawed {at, by, ended: {…}}, then frozen goes
//!                 └──> whoever owns the journal keeps both there, when they change: records_due
//! ```
//!
//! The verbs call it and need nothing but the directory: an operator must be able to stop a host whose agent
//! hangs. A file that cannot be read freezes as well. It must never need the journal's lock.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use fs_err as fs;
use fs_err::os::unix::fs::OpenOptionsExt as _;
use jiff::Timestamp;
use rustix::fs::{CWD, OFlags, RenameFlags};
use serde::{Deserialize, Serialize};

use crate::journal::{JournalState, Kept, KeptSubject, Record, is_full};
use crate::plain_file;
use crate::state_dir::{StateDir, StateError};

/// The longest reason that is kept.
pub const REASON_BYTES_MAX: usize = 1_024;

/// Under which keys the journal keeps what the files say.
pub(crate) const FROZEN_KEY: &str = "host/frozen";
pub(crate) const THAWED_KEY: &str = "host/thawed";

/// The version of the shapes below, in the files and in the journal.
const SHAPE: u32 = 1;

/// Why a host is frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Frozen {
    /// When, by the clock of the one who did it.
    pub at: String,
    /// Who.
    pub by: String,
    /// Why, in their words; may be empty.
    pub reason: String,
}

/// The end of a freeze.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Thawed {
    /// When.
    pub at: String,
    /// Who.
    pub by: String,
    /// What it ended; none if that could not be read.
    pub ended: Option<Frozen>,
}

/// What came of a freeze.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FreezeOutcome {
    /// It is frozen now.
    Done,
    /// It was frozen before, and that stays; none if why cannot be read.
    Already(Option<Frozen>),
}

/// Why neither can be done.
#[derive(Debug, thiserror::Error)]
pub enum FreezeError {
    /// The state directory cannot be made.
    #[error(transparent)]
    State(#[from] StateError),
    /// A file in it cannot be written or removed.
    #[error("cannot {doing} {}", path.display())]
    File {
        /// What was tried.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// The user this process acts for: what the system knows, not what a variable says, but for sudo's word about
/// who called it.
pub fn this_user() -> String {
    let uid = rustix::process::getuid().as_raw();
    match std::env::var("SUDO_USER") {
        Ok(name) => format!("uid {uid}, by sudo of {}", name.escape_debug()),
        Err(_) => format!("uid {uid}"),
    }
}

/// Freezes the host: durable when it returns. A host that is frozen stays frozen by whoever was first.
pub fn freeze(state: &StateDir, frozen: &Frozen) -> Result<FreezeOutcome, FreezeError> {
    state.create()?;
    let path = state.freeze_file();
    let new = match write_beside(&path, frozen) {
        // An empty file freezes as well: without room for the reason it is stopped all the same.
        Err(FreezeError::File { source, .. }) if is_full(&source) => empty_beside(&path)?,
        written => written?,
    };
    // Not over one that is there: the first reason is the one to keep.
    let placed = rustix::fs::renameat_with(CWD, &new, CWD, &path, RenameFlags::NOREPLACE);
    match placed {
        Ok(()) => {
            sync_directory(state)?;
            Ok(FreezeOutcome::Done)
        }
        Err(rustix::io::Errno::EXIST) => {
            let removed = fs::remove_file(&new);
            removed.map_err(|source| failed("remove", &new, source))?;
            Ok(FreezeOutcome::Already(frozen_by(state)))
        }
        Err(errno) => Err(failed("create", &path, errno.into())),
    }
}

/// Thaws the host. Gives what was ended, or none if it was not frozen.
pub fn thaw(state: &StateDir, at: Timestamp, by: &str) -> Result<Option<Thawed>, FreezeError> {
    if !state.is_frozen() {
        return Ok(None);
    }
    let thawed = Thawed { at: at.to_string(), by: by.to_owned(), ended: frozen_by(state) };
    let path = state.freeze_file();
    let kept = thaw_file(state);
    let new = write_beside(&kept, &thawed)?;
    fs::rename(&new, &kept).map_err(|source| failed("create", &kept, source))?;
    // Who thawed is on disk before the freeze is gone.
    sync_directory(state)?;
    match fs::remove_file(&path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(source) => return Err(failed("remove", &path, source)),
    }
    sync_directory(state)?;
    Ok(Some(thawed))
}

/// Why the host is frozen; none if it is not, or if that cannot be read.
pub fn frozen_by(state: &StateDir) -> Option<Frozen> {
    read(&state.freeze_file())
}

/// What the journal does not know yet of freezes and thaws. Whoever owns the journal appends these at its start
/// and with each pass; when nothing has changed there are none.
pub(crate) fn records_due(state_dir: &StateDir, state: &JournalState) -> Vec<Record> {
    let mut due = Vec::new();
    let unreadable = || Frozen {
        at: "unknown".to_owned(),
        by: "unknown".to_owned(),
        reason: "the file `frozen` exists but cannot be read".to_owned(),
    };
    let frozen = state_dir.is_frozen().then(|| frozen_by(state_dir).unwrap_or_else(unreadable));
    let thawed: Option<Thawed> = read(&thaw_file(state_dir));
    let known = |key: &str| {
        let found = state.kept(KeptSubject::Decision).find(|(kept, _)| *kept == key);
        found.map(|(_, kept)| kept.value.clone())
    };
    // The thaw first: it ends what the journal may still hold as frozen.
    if let Some(thawed) = &thawed {
        keep_if_new(THAWED_KEY, thawed, known(THAWED_KEY).as_ref(), &mut due);
    }
    match &frozen {
        Some(frozen) => keep_if_new(FROZEN_KEY, frozen, known(FROZEN_KEY).as_ref(), &mut due),
        None if known(FROZEN_KEY).is_some() => {
            due.push(Record::Kept(Kept::remove(KeptSubject::Decision, FROZEN_KEY)));
        }
        None => {}
    }
    due
}

/// Compared as it is kept: with secrets masked.
fn keep_if_new(
    key: &str,
    shape: &impl Serialize,
    known: Option<&serde_json::Value>,
    due: &mut Vec<Record>,
) {
    let value = serde_json::to_value(shape).expect("our own shapes are JSON");
    // Somebody who stops a host is heard on a nearly full disk too.
    let kept = Kept::put(KeptSubject::Decision, key, SHAPE, value).from_the_reserve();
    if kept.value.as_ref().map(|versioned| &versioned.value) != known {
        due.push(Record::Kept(kept));
    }
}

fn thaw_file(state: &StateDir) -> PathBuf {
    state.path().join("thawed")
}

fn read<T: for<'de> Deserialize<'de>>(path: &Path) -> Option<T> {
    // A link is none of ours, wherever it leads. A reason of a kilobyte, escaped, fits many times.
    let ours = fs::symlink_metadata(path).ok()?.is_file();
    let file = ours.then(|| plain_file::read(path, 64 << 10).ok())??;
    serde_json::from_slice(&file.bytes).ok()
}

/// Writes a file under a passing name beside its place, synced.
fn write_beside(path: &Path, shape: &impl Serialize) -> Result<PathBuf, FreezeError> {
    let new = passing_name(path);
    // One of a process that died under the same number.
    match fs::remove_file(&new) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(source) => return Err(failed("remove", &new, source)),
    }
    let mut text = serde_json::to_vec(shape).expect("our own shapes are JSON");
    text.push(b'\n');
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).custom_flags(no_follow());
    let written = options.open(&new).and_then(|mut file| {
        file.write_all(&text)?;
        file.sync_all()
    });
    written.map_err(|source| failed("write", &new, source))?;
    Ok(new)
}

/// An empty file under the same passing name: it takes no block.
fn empty_beside(path: &Path) -> Result<PathBuf, FreezeError> {
    let new = passing_name(path);
    let made = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(no_follow())
        .open(&new)
        .and_then(|file| file.sync_all());
    made.map_err(|source| failed("write", &new, source))?;
    Ok(new)
}

fn passing_name(path: &Path) -> PathBuf {
    path.with_extension(format!("{}.new", std::process::id()))
}

fn sync_directory(state: &StateDir) -> Result<(), FreezeError> {
    let synced = fs::File::open(state.path()).and_then(|directory| directory.sync_all());
    synced.map_err(|source| failed("sync the directory", state.path(), source))
}

fn no_follow() -> i32 {
    OFlags::NOFOLLOW.union(OFlags::CLOEXEC).bits().cast_signed()
}

fn failed(doing: &'static str, path: &Path, source: io::Error) -> FreezeError {
    FreezeError::File { doing, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory() -> (tempfile::TempDir, StateDir) {
        let temporary = tempfile::tempdir().unwrap();
        let state = StateDir::new(temporary.path().join("state"));
        (temporary, state)
    }

    fn frozen(reason: &str) -> Frozen {
        let at = "2026-11-15T20:00:00Z".to_owned();
        Frozen { at, by: "uid 0".to_owned(), reason: reason.to_owned() }
    }

    fn now() -> Timestamp {
        "2026-11-15T21:00:00Z".parse().unwrap()
    }

    fn apply_due(state: &mut JournalState, state_dir: &StateDir) -> usize {
        let due = records_due(state_dir, state);
        let count = due.len();
        for record in due {
            state.apply(record).unwrap();
        }
        count
    }

    #[test]
    fn the_first_freeze_stays_and_a_thaw_ends_it_once() {
        let (_temporary, state) = directory();
        assert!(!state.is_frozen());
        assert_eq!(freeze(&state, &frozen("fire")).unwrap(), FreezeOutcome::Done);
        assert!(state.is_frozen());
        let again = freeze(&state, &frozen("flood")).unwrap();
        assert_eq!(again, FreezeOutcome::Already(Some(frozen("fire"))));
        let thawed = thaw(&state, now(), "uid 7").unwrap().unwrap();
        assert_eq!((thawed.by.as_str(), thawed.ended), ("uid 7", Some(frozen("fire"))));
        assert!(!state.is_frozen());
        assert_eq!(thaw(&state, now(), "uid 7").unwrap(), None);
        let left: Vec<_> =
            fs::read_dir(state.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["thawed"], "no passing file stays");
    }

    #[test]
    fn n09_the_file_is_private_and_a_link_in_its_place_freezes_and_is_not_followed() {
        use std::os::unix::fs::PermissionsExt as _;
        let (temporary, state) = directory();
        freeze(&state, &frozen("fire")).unwrap();
        let mode = fs::metadata(state.freeze_file()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        thaw(&state, now(), "uid 0").unwrap();

        let elsewhere = temporary.path().join("elsewhere");
        std::os::unix::fs::symlink(&elsewhere, state.freeze_file()).unwrap();
        assert!(state.is_frozen(), "n09: a dangling link is something that is there");
        assert_eq!(freeze(&state, &frozen("x")).unwrap(), FreezeOutcome::Already(None));
        assert!(!elsewhere.exists());
        assert_eq!(thaw(&state, now(), "uid 0").unwrap().unwrap().ended, None);
        assert!(!state.is_frozen());
    }

    #[test]
    fn what_the_journal_does_not_know_is_due_once() {
        let (_temporary, state_dir) = directory();
        let mut state = JournalState::default();
        assert_eq!(records_due(&state_dir, &state), []);
        freeze(&state_dir, &frozen("fire, password=hunter2")).unwrap();
        assert_eq!(apply_due(&mut state, &state_dir), 1);
        assert_eq!(records_due(&state_dir, &state), [], "at rest nothing is written");
        thaw(&state_dir, now(), "uid 0").unwrap();
        assert_eq!(apply_due(&mut state, &state_dir), 2);
        assert_eq!(records_due(&state_dir, &state), []);
    }

    #[test]
    fn a_freeze_and_a_thaw_while_nobody_had_the_journal_are_both_told() {
        let (_temporary, state_dir) = directory();
        freeze(&state_dir, &frozen("fire")).unwrap();
        thaw(&state_dir, now(), "uid 0").unwrap();
        let due = records_due(&state_dir, &JournalState::default());
        let told = format!("{due:?}");
        assert!(due.len() == 1 && told.contains("fire") && told.contains("uid 0"), "{told}");
    }
}
