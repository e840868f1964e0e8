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

use evenkeel_core::desired::selection::GuestName;
use jiff::Timestamp;

pub use entry::{AuditEntry, AuditEvent, Signature};

pub(crate) use entry::AuditReader;

use crate::journal::verify::{self, VerifiedJournal};
use crate::journal::{Files, JournalError};

/// What is asked for.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Only what concerns this guest, named by its number.
    pub guest: Option<GuestName>,
    /// Only what was written at this moment or later.
    pub since: Option<Timestamp>,
    /// Only what the gate refused.
    pub refused: bool,
    /// Only what somebody signed.
    pub signed: bool,
}

impl Filter {
    fn takes(&self, entry: &AuditEntry) -> bool {
        let guest = self.guest.as_ref().is_none_or(|wanted| {
            let found = entry.guest.as_ref().and_then(|guest| guest.parse().ok());
            found.is_some_and(|found| wanted.has_number_of(found))
        });
        guest
            && self.since.is_none_or(|since| entry.at >= since)
            && (!self.refused || entry.is_refusal())
            && (!self.signed || !entry.signed_by.is_empty())
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
