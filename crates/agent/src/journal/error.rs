//! Why the journal stopped, and why a record was not taken.
//!
//! [`JournalError`] ends the process: after it nothing is known about the disk, and nothing may be
//! sent to PVE. [`AppendError`] says whether it was that or only one record that was refused.

use std::io;
use std::sync::Arc;

use evenkeel_core::operate::operation::ReplayError;

use super::line::Seq;
use super::record::NotUnderstood;

/// The journal cannot go on, and so the process must end.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The disk refused. A sync is never tried again: the kernel may have dropped the bytes.
    #[error(transparent)]
    Disk(#[from] DiskFailure),
    /// A line is not what was written there, and it was known to be on disk.
    #[error("{file} is damaged: {damage}. Nothing was changed; restore the file or ask for help")]
    Damaged {
        /// The segment.
        file: String,
        /// Where and how.
        #[source]
        damage: Box<Damage>,
    },
    /// A later version wrote it. Going on would mean to act without what its lines say.
    #[error(
        "{file} was written by a newer evenkeel: it has format {found}, and this version reads up to {known}. Nothing \
         was changed; install that version again"
    )]
    Newer {
        /// The segment.
        file: String,
        /// The number of its format.
        found: u32,
        /// The newest one that this version knows.
        known: u32,
    },
    /// The directory does not hold the segments it must.
    #[error("{file}: {why}. Nothing was changed; restore the directory")]
    Segments {
        /// The first segment concerned.
        file: String,
        /// What is wrong.
        why: String,
    },
    /// The journal was made on another machine.
    #[error(
        "{file} was written on machine {found}, and this is {expected}: a copied journal is refused"
    )]
    OtherMachine {
        /// The segment.
        file: String,
        /// Who wrote it.
        found: String,
        /// Who we are.
        expected: String,
    },
}

impl JournalError {
    /// What stops the reading of a segment.
    pub(super) fn in_segment(file: &str, damage: Damage) -> Self {
        let file = file.to_owned();
        match damage.problem {
            LineProblem::Newer { found, known } => Self::Newer { file, found, known },
            LineProblem::Unsealed
            | LineProblem::Chain(_)
            | LineProblem::NotUnderstood(_)
            | LineProblem::Replay(_) => Self::Damaged { file, damage: Box::new(damage) },
        }
    }
}

/// What was asked of the disk and what the system said.
#[derive(Debug, Clone, thiserror::Error)]
#[error("cannot {doing} {file}")]
pub struct DiskFailure {
    /// What was tried.
    pub doing: &'static str,
    /// With which file of the journal's directory.
    pub file: String,
    /// What the system said. Shared, because every waiter of a batch is told.
    #[source]
    pub source: Arc<io::Error>,
}

impl DiskFailure {
    pub(crate) fn new(doing: &'static str, file: &str, source: io::Error) -> Self {
        Self { doing, file: file.to_owned(), source: Arc::new(source) }
    }
}

/// The first place where a segment is not as it was written.
#[derive(Debug, thiserror::Error)]
#[error("line {line}, byte {offset}, where record {seq} must be: {problem}")]
pub struct Damage {
    /// The line, from 1.
    pub line: u64,
    /// Where the line begins, in bytes from the beginning of the file.
    pub offset: u64,
    /// The record that must be there.
    pub seq: Seq,
    /// What is wrong with it.
    pub problem: LineProblem,
}

/// What is wrong with a line.
#[derive(Debug, thiserror::Error)]
pub enum LineProblem {
    /// It does not end in its own sum. Only this can be a torn tail.
    #[error("it does not end in its own sum")]
    Unsealed,
    /// It begins a segment of a format that a later version writes.
    #[error("it has format {found}, and this version reads up to {known}")]
    Newer {
        /// The number of the format.
        found: u32,
        /// The newest one that is known here.
        known: u32,
    },
    /// It is whole but does not follow the line before it.
    #[error("it is whole but {0}")]
    Chain(String),
    /// It is whole but this program does not understand it: a later version may have written it.
    #[error("it is whole but not understood: {0}")]
    NotUnderstood(NotUnderstood),
    /// It is whole but cannot have happened after the records before it.
    #[error("it is whole but cannot have happened: {0}")]
    Replay(ReplayError),
}

/// A record was not taken.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AppendError {
    /// It cannot follow the records before it; nothing was written.
    #[error("the journal refuses the record")]
    Refused(#[source] ReplayError),
    /// It is too long; nothing was written.
    #[error("the record has {bytes} bytes, and {limit} is the limit")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The longest one that is taken.
        limit: usize,
    },
    /// The disk is nearly full: only what closes an operation is taken; nothing was written.
    #[error("the disk of {place} is nearly full: free some space, nothing new is begun until then")]
    Full {
        /// The directory of the journal.
        place: String,
    },
    /// Whether it was written is not known: the process must end.
    #[error("the journal has failed; the agent must stop and recover")]
    Failed(#[source] DiskFailure),
    /// The writer is gone: the process must end.
    #[error("the journal's writer is gone; the agent must stop and recover")]
    Stopped,
}

impl AppendError {
    /// Whether the process must end.
    pub fn is_fatal(&self) -> bool {
        match self {
            Self::Refused(_) | Self::TooLong { .. } | Self::Full { .. } => false,
            Self::Failed(_) | Self::Stopped => true,
        }
    }
}
