//! What the link needs of each host, in memory: a request of a host that nothing happened to reads no database.
//!
//! ```text
//!  credential ──> known? ──> the row as it was read
//!                   └ no ──> database ──> kept, unless anything was forgotten meanwhile
//!  this process writes ──> forgotten before the write is answered
//!  another one writes  ──> forgotten by the next look of `wake`, which also says that it looked
//! ```
//!
//! A credential that ended must not open anything, so memory is believed only while looks succeed: without them, or with
//! the last one too long ago, everything is read from the database; and no row is believed for long, whatever a look may have
//! missed (a clock that was set, a transaction that took longer than a look goes back). Only hints are made from it otherwise; what a write
//! does it reads itself.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::hosts::LinkRow;
use super::limits::HOSTS_MAX;
use crate::secret_text::SecretHash;

/// How old the last look may be: two of its rounds. Another replica's write counts here after one round at the latest.
const LOOK_AGE_MAX: Duration = Duration::from_millis(500);

/// How long a row is believed: a host at rest asks about once a minute.
const ROW_AGE_MAX: Duration = Duration::from_mins(1);

/// The rows that were read lately.
#[derive(Debug, Default)]
pub(crate) struct LinkMemory {
    state: Mutex<RememberedLinks>,
}

#[derive(Debug, Default)]
struct RememberedLinks {
    /// By the credential's hash.
    rows: HashMap<String, RememberedRow>,
    /// The credential's hash by host.
    hashes: HashMap<String, String>,
    /// How often something was forgotten. A row that was read before the last time may be the one that was meant.
    forgotten: u64,
    /// When the last look began that saw what other processes wrote.
    looked_at: Option<Instant>,
}

#[derive(Debug)]
struct RememberedRow {
    link: LinkRow,
    version: i64,
    read_at: Instant,
}

/// How much was forgotten before a row is read, and when that was.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) struct ReadMark {
    forgotten: u64,
    at: Instant,
}

impl LinkMemory {
    /// The host that holds a credential, if that is known and may be believed.
    pub(in crate::store) fn known(&self, hash: &SecretHash) -> Option<LinkRow> {
        self.with(|links| {
            let is_believed = links.looked_at.is_some_and(|at| at.elapsed() <= LOOK_AGE_MAX);
            let row = links.rows.get(hash.as_str()).filter(|_| is_believed)?;
            (row.read_at.elapsed() <= ROW_AGE_MAX).then(|| row.link.clone())
        })
    }

    /// To be taken before a row is read.
    pub(in crate::store) fn mark(&self) -> ReadMark {
        self.with(|links| ReadMark { forgotten: links.forgotten, at: Instant::now() })
    }

    /// Remembers a row that was read after the mark.
    pub(in crate::store) fn keep(
        &self,
        mark: ReadMark,
        hash: &SecretHash,
        link: LinkRow,
        version: i64,
    ) {
        let hosts_max = usize::try_from(HOSTS_MAX).unwrap_or(usize::MAX);
        self.with(|links| {
            // Nobody looks, so nobody would tell that it is over.
            if links.forgotten != mark.forgotten || links.looked_at.is_none() {
                return;
            }
            if links.rows.len() >= hosts_max {
                links.forget_all();
            }
            // A host has one credential: one that was known before has ended.
            if let Some(before) = links.hashes.insert(link.id.clone(), hash.as_str().to_owned()) {
                links.rows.remove(&before);
            }
            let row = RememberedRow { link, version, read_at: mark.at };
            links.rows.insert(hash.as_str().to_owned(), row);
        });
    }

    /// Something about a host was written, or it is gone.
    pub(crate) fn forget(&self, host: &str) {
        self.with(|links| links.forget(host));
    }

    /// A look found a host's row in this version.
    pub(crate) fn found(&self, host: &str, version: i64) {
        self.with(|links| {
            let row = links.hashes.get(host).and_then(|hash| links.rows.get(hash));
            if row.is_none_or(|row| row.version != version) {
                links.forget(host);
            }
        });
    }

    /// A look is over and saw everything written in the time before it, so far back. The database may have been read as
    /// late as the look's end: what was written after the look before began must be within reach even then.
    pub(crate) fn looked(&self, began: Instant, ended: Instant, back: Duration) {
        self.with(|links| {
            let is_whole =
                links.looked_at.is_some_and(|before| ended.duration_since(before) < back);
            if !is_whole {
                links.forget_all();
            }
            links.looked_at = Some(began);
        });
    }

    fn with<T>(&self, act: impl FnOnce(&mut RememberedLinks) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl RememberedLinks {
    fn forget(&mut self, host: &str) {
        self.forgotten += 1;
        if let Some(hash) = self.hashes.remove(host) {
            self.rows.remove(&hash);
        }
    }

    fn forget_all(&mut self) {
        self.forgotten += 1;
        self.hashes.clear();
        self.rows.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACK: Duration = Duration::from_secs(10);

    fn link(wanted: i64) -> LinkRow {
        LinkRow { id: "pve1".to_owned(), key_line: String::new(), wanted, cursor: 0 }
    }

    fn hash() -> SecretHash {
        SecretHash::of("credential")
    }

    /// A memory that looks, and knows `pve1` in version 1.
    fn memory() -> LinkMemory {
        let memory = LinkMemory::default();
        look_at(&memory, Instant::now());
        memory.keep(memory.mark(), &hash(), link(1), 1);
        assert_eq!(memory.known(&hash()), Some(link(1)));
        memory
    }

    /// A look that takes no time.
    fn look_at(memory: &LinkMemory, moment: Instant) {
        memory.looked(moment, moment, BACK);
    }

    #[test]
    fn what_was_written_is_forgotten_and_only_that() {
        let memory = memory();
        memory.forget("pve2");
        memory.found("pve1", 1);
        assert_eq!(memory.known(&hash()), Some(link(1)));
        memory.found("pve1", 2);
        assert_eq!(memory.known(&hash()), None);
        memory.keep(memory.mark(), &hash(), link(2), 2);
        memory.forget("pve1");
        assert_eq!(memory.known(&hash()), None);
    }

    #[test]
    fn a_row_that_was_read_before_something_was_forgotten_is_not_kept() {
        let memory = memory();
        for forget in [
            (|memory: &LinkMemory| memory.forget("pve1")) as fn(&LinkMemory),
            |memory| memory.found("pve1", 2),
            |memory| look_at(memory, Instant::now() + 2 * BACK),
        ] {
            let mark = memory.mark();
            forget(&memory);
            memory.keep(mark, &hash(), link(1), 1);
            assert_eq!(memory.known(&hash()), None);
        }
    }

    #[test]
    fn nothing_is_believed_while_nobody_looks() {
        let memory = LinkMemory::default();
        memory.keep(memory.mark(), &hash(), link(1), 1);
        look_at(&memory, Instant::now());
        assert_eq!(memory.known(&hash()), None, "kept before the first look");
        let long_ago = Instant::now().checked_sub(2 * LOOK_AGE_MAX).unwrap();
        let memory = LinkMemory::default();
        look_at(&memory, long_ago);
        memory.keep(memory.mark(), &hash(), link(1), 1);
        assert_eq!(memory.known(&hash()), None, "the last look is too long ago");
        look_at(&memory, Instant::now());
        assert_eq!(memory.known(&hash()), Some(link(1)), "and the next one saw all since");
    }

    #[test]
    fn a_host_has_one_credential() {
        let memory = memory();
        let newer = SecretHash::of("newer");
        memory.keep(memory.mark(), &newer, link(1), 2);
        memory.found("pve1", 2);
        assert_eq!((memory.known(&hash()), memory.known(&newer)), (None, Some(link(1))));
    }

    #[test]
    fn no_row_is_believed_for_long() {
        let memory = memory();
        let mut mark = memory.mark();
        mark.at -= ROW_AGE_MAX + Duration::from_secs(1);
        memory.keep(mark, &hash(), link(1), 1);
        assert_eq!(memory.known(&hash()), None);
        memory.keep(memory.mark(), &hash(), link(1), 1);
        assert_eq!(memory.known(&hash()), Some(link(1)));
    }

    #[test]
    fn a_gap_between_looks_ends_everything() {
        let memory = memory();
        look_at(&memory, Instant::now() + BACK);
        look_at(&memory, Instant::now());
        assert_eq!(memory.known(&hash()), None);
    }

    #[test]
    fn a_look_that_took_long_may_have_read_too_late_and_ends_everything() {
        let memory = memory();
        let began = Instant::now();
        memory.looked(began, began + BACK, BACK);
        look_at(&memory, began);
        assert_eq!(memory.known(&hash()), None);
    }
}
