//! The audit: who allowed or refused what, when, why and with which key, from the verified journal.
//!
//! ```text
//!   journal::verify::read ──each line, checked──> entry.rs ──> Entry, texts made safe to show
//! ```
//!
//! `evenkeel audit` calls it, also while the agent runs: it takes no lock and changes nothing. It reads lines as
//! JSON and not as the agent's types, because a record of another version must still be told, and it stops at
//! the first damage: what it gave before that is good.

mod entry;
#[cfg(test)]
mod tests;
mod text;

use evenkeel_core::id::{GuestId, VmId};
use jiff::Timestamp;

pub use entry::{AuditEntry, AuditEvent, Signature};

use crate::journal::verify::{self, VerifiedJournal};
use crate::journal::{Files, JournalError};
use entry::AuditReader;

/// What is asked for.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Only what concerns this guest.
    pub guest: Option<Guest>,
    /// Only what was written at this moment or later.
    pub since: Option<Timestamp>,
}

/// A guest as people name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guest {
    /// `lxc/101`.
    Id(GuestId),
    /// `101`, of whichever kind.
    Number(VmId),
}

impl std::str::FromStr for Guest {
    type Err = evenkeel_core::id::IdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.contains('/') { text.parse().map(Self::Id) } else { text.parse().map(Self::Number) }
    }
}

impl Filter {
    fn takes(&self, entry: &AuditEntry) -> bool {
        let guest = match (self.guest, &entry.guest) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(Guest::Id(wanted)), Some(found)) => wanted.to_string() == *found,
            (Some(Guest::Number(wanted)), Some(found)) => {
                found.rsplit('/').next() == Some(wanted.to_string().as_str())
            }
        };
        guest && self.since.is_none_or(|since| entry.at >= since)
    }
}

/// Reads the whole chain, the archive too, and hands over each entry, oldest first.
pub fn read(
    files: &impl Files,
    filter: &Filter,
    mut each: impl FnMut(AuditEntry),
) -> Result<VerifiedJournal, JournalError> {
    let mut reader = AuditReader::default();
    verify::read(files, |line| {
        if let Some(entry) = reader.entry(&line)
            && filter.takes(&entry)
        {
            each(entry);
        }
    })
}
