//! The state directory: everything that must survive a restart, and what tells other processes about us.
//!
//! ```text
//!   /var/lib/evenkeel/           0700
//!     journal/                   segments; its lock says that an agent works here
//!     agent.sock                 a running agent listens here
//!     frozen, thawed             there while an operator has frozen this host; the last thaw
//! ```
//!
//! `run`, `apply` and the verbs that look use it. It must never be shared by two machines: the journal is stamped.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use crate::ambient::Ambient;
use crate::effective_clock::wall;
use crate::freeze::records_due;
use crate::journal::{
    ANOTHER_USERS, AppendError, DiskFailure, Journal, JournalError, JournalHandle, JournalLimits,
    RealDisk, Stamp, group, sync_parent,
};

/// Where it is if nobody says and we are root.
pub(crate) const DEFAULT_DIR: &str = "/var/lib/evenkeel";

/// Which machine this is, by the file systemd keeps.
const MACHINE_ID: &str = "/etc/machine-id";

/// What journals of this machine are stamped with.
pub fn this_machine() -> io::Result<String> {
    Ok(std::fs::read_to_string(MACHINE_ID)?.trim().to_owned())
}

/// The state directory of one agent.
#[derive(Debug, Clone)]
pub struct StateDir {
    path: PathBuf,
}

/// Why the journal of a state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Another process has it.
    #[error("another evenkeel works with {}", .0.display())]
    Busy(PathBuf),
    /// The system said no.
    #[error("cannot use the state directory {}", .path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The machine has no id to stamp the journal with.
    #[error("cannot read {MACHINE_ID}, which tells one machine from another")]
    NoMachine(#[source] io::Error),
    /// The journal itself refuses.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// A journal at work: the handle to it, and the thread that writes.
#[derive(Debug)]
pub struct OpenJournal {
    /// The way to it.
    pub handle: JournalHandle,
    /// Ends when the last handle is dropped, or with what must end the process.
    pub writer: JoinHandle<Result<(), DiskFailure>>,
}

impl StateDir {
    /// The directory at a path; nothing is touched yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Where it is if nobody says: root's, or the user's own.
    pub fn default_path() -> PathBuf {
        let home = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).or_else(|| {
            std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"))
        });
        match home {
            Some(home) if !rustix::process::geteuid().is_root() => home.join("evenkeel"),
            Some(_) | None => PathBuf::from(DEFAULT_DIR),
        }
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the journal's segments are.
    pub fn journal(&self) -> PathBuf {
        self.path.join("journal")
    }

    /// Where a running agent listens.
    pub fn socket(&self) -> PathBuf {
        self.path.join("agent.sock")
    }

    /// The file whose presence freezes this host.
    pub fn freeze_file(&self) -> PathBuf {
        self.path.join("frozen")
    }

    /// Whether an operator has frozen this host. What cannot be told counts as frozen, and so does a link that
    /// leads nowhere.
    pub fn is_frozen(&self) -> bool {
        match std::fs::symlink_metadata(self.freeze_file()) {
            Ok(_) => true,
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    /// Whether an agent works or has worked with this directory: its journal or its socket is there. What cannot be
    /// told counts as used, so that nobody is kept from freezing by a right that is missing.
    pub fn is_used(&self) -> bool {
        let there = |path: &Path| match std::fs::symlink_metadata(path) {
            Ok(_) => true,
            Err(error) => {
                !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
            }
        };
        there(&self.journal()) || there(&self.socket())
    }

    /// Makes the directory if there is none, with everything above it, so that a loss of power does not take it and
    /// the journal in it away again.
    pub fn create(&self) -> Result<(), StateError> {
        use std::os::unix::fs::DirBuilderExt as _;
        let missing: Vec<&Path> = self.path.ancestors().take_while(|path| !path.exists()).collect();
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.path);
        let synced = || missing.iter().try_for_each(|path| sync_parent(path));
        made.and_then(|()| synced())
            .map_err(|source| StateError::Directory { path: self.path.clone(), source })
    }

    /// Opens the journal for writing: there is one writer, and everybody else is told so.
    pub fn lock_journal(&self, ambient: &dyn Ambient) -> Result<Journal<RealDisk>, StateError> {
        self.check_owner()?;
        self.create()?;
        let machine = this_machine().map_err(StateError::NoMachine)?;
        let disk = RealDisk::open(self.journal()).map_err(|error| {
            if error.kind() == io::ErrorKind::WouldBlock {
                StateError::Busy(self.path.clone())
            } else {
                self.unusable(error)
            }
        })?;
        if let Some(why) = disk.doubt().map_err(|error| self.unusable(error))? {
            let directory = self.journal();
            tracing::warn!(directory = %directory.display(), "the file system of the journal: {why}");
        }
        let new_epoch = format!("{:032x}", ambient.random());
        let stamp = Stamp { machine, new_epoch };
        let mut journal = Journal::open(disk, stamp, JournalLimits::default(), wall(ambient))?;
        self.tell_freezes(&mut journal, ambient)?;
        Ok(journal)
    }

    /// The same, with a thread that writes.
    pub fn open_journal(
        &self,
        ambient: &std::sync::Arc<dyn Ambient>,
    ) -> Result<OpenJournal, StateError> {
        let journal = self.lock_journal(ambient.as_ref())?;
        let clock = std::sync::Arc::clone(ambient);
        let spawned = group::spawn(journal, move || wall(clock.as_ref()));
        let (handle, writer) = spawned.map_err(|error| self.unusable(error))?;
        Ok(OpenJournal { handle, writer })
    }

    /// Refuses another user's directory before anything is made in it: what root leaves there, its owner cannot go on with.
    fn check_owner(&self) -> Result<(), StateError> {
        let us = rustix::process::geteuid().as_raw();
        match std::fs::metadata(&self.path) {
            Ok(found) if found.uid() != us => {
                let source = io::Error::other(ANOTHER_USERS);
                Err(StateError::Directory { path: self.path.clone(), source })
            }
            // One that cannot be looked at is told by whoever makes it.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn unusable(&self, source: io::Error) -> StateError {
        StateError::Directory { path: self.journal(), source }
    }
}

impl StateDir {
    /// Freezes and thaws that happened while nobody had the journal.
    fn tell_freezes(
        &self,
        journal: &mut Journal<RealDisk>,
        ambient: &dyn Ambient,
    ) -> Result<(), StateError> {
        for record in records_due(self, journal.state()) {
            match journal.append(record, wall(ambient)) {
                // On a full disk it waits for the next start: the freeze itself needs no record.
                Ok(_) | Err(AppendError::Full { .. }) => {}
                Err(AppendError::Failed(failure)) => {
                    return Err(StateError::Journal(failure.into()));
                }
                Err(
                    other @ (AppendError::Refused(_)
                    | AppendError::TooLong { .. }
                    | AppendError::Stopped),
                ) => unreachable!("a short value is always taken: {other}"),
            }
        }
        Ok(())
    }
}

impl StateError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Busy(_) => "wait for it, or ask the running agent: `evenkeel status`",
            Self::Directory { .. } => {
                "name another with `dir` under [state] in agent.toml or --state, or run as its owner"
            }
            Self::NoMachine(_) => "systemd-machine-id-setup makes one",
            Self::Journal(JournalError::Disk(_)) => {
                "nothing was sent; mend the disk of the state directory or make room on it, then start again"
            }
            Self::Journal(JournalError::Newer { .. }) => {
                "docs/guide/upgrade.md tells how far one can go back; the state directory of another host is no help"
            }
            Self::Journal(
                JournalError::Damaged { .. }
                | JournalError::Segments { .. }
                | JournalError::OtherMachine { .. },
            ) => "`evenkeel journal verify` shows the place; nothing was changed",
        }
    }
}
