//! What changed, told to whoever waits: long polls of hosts and event streams of people.
//!
//! Only a hint to look: whoever is woken reads the store. A listener that falls behind is told so and looks at everything; one
//! that was away names the last change it heard and is told the rest, if that is still remembered.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::broadcast;

use super::link_memory::LinkMemory;
use crate::secret_text::random_hex;

/// Changes a listener may fall behind, or be away for, before it loses some.
const CHANGES_KEPT: usize = 4_096;

/// Own lines of the audit that are remembered: as many as a look at the newest reads.
pub(super) const OWN_LINES_KEPT: usize = 1_000;
/// Random bytes in the name of a life: no two meet.
const LIFE_BYTES: usize = 8;

/// Something that was committed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum StoreChange {
    /// A host's row, or what it should poll for.
    Host(String),
    /// What a host said of itself.
    Report(String),
    /// Open items or envelopes of a host.
    Pending(String),
    /// A host's document.
    Document(String),
    /// Something of a host, written by another process: all that is known of it here.
    Elsewhere(String),
    /// Something a person did.
    Audit,
}

/// A change with its number in this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumberedChange {
    /// Each is one more than the one before.
    pub number: u64,
    /// What changed.
    pub change: StoreChange,
}

/// What somebody who was away gets.
pub struct Subscription {
    /// Everything from now on.
    pub receiver: broadcast::Receiver<NumberedChange>,
    /// What was missed; none if that is not known any more.
    pub missed: Option<Vec<StoreChange>>,
    /// The number of the newest change so far.
    pub newest: u64,
}

/// The channel of changes. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ChangeFeed {
    channel: Arc<ChangeChannel>,
}

#[derive(Debug)]
struct ChangeChannel {
    sender: broadcast::Sender<NumberedChange>,
    /// The name of this process's life: numbers of another mean nothing here.
    life: String,
    lately: Mutex<LateChanges>,
    written: Mutex<OwnWrites>,
    links: Arc<LinkMemory>,
}

/// What this process wrote itself, and has told: whoever looks for others' writes passes it over.
#[derive(Debug, Default)]
struct OwnWrites {
    /// The versions of each host's row that were written last, without one of another process between them.
    versions: HashMap<String, RangeInclusive<i64>>,
    /// The newest lines of the audit.
    lines: BTreeSet<i64>,
}

#[derive(Debug, Default)]
struct LateChanges {
    newest: u64,
    kept: VecDeque<StoreChange>,
}

impl ChangeFeed {
    /// A channel; what is told of a host is forgotten of its link first.
    pub(super) fn new(links: Arc<LinkMemory>) -> Self {
        let channel = ChangeChannel {
            sender: broadcast::channel(CHANGES_KEPT).0,
            life: random_hex(LIFE_BYTES),
            lately: Mutex::default(),
            written: Mutex::default(),
            links,
        };
        Self { channel: Arc::new(channel) }
    }

    /// Hears everything from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<NumberedChange> {
        self.channel.sender.subscribe()
    }

    /// Hears everything after a mark that somebody remembered.
    pub fn subscribe_after(&self, mark: &str) -> Subscription {
        let lately = self.lately();
        // Nothing is told while the lock is held, so nothing falls between what was missed and what comes.
        let receiver = self.channel.sender.subscribe();
        let missed = mark
            .strip_prefix(self.channel.life.as_str())
            .and_then(|rest| rest.strip_prefix('-')?.parse::<u64>().ok())
            .and_then(|seen| lately.newest.checked_sub(seen))
            .and_then(|count| lately.kept.len().checked_sub(usize::try_from(count).ok()?));
        let missed = missed.map(|start| lately.kept.range(start..).cloned().collect());
        Subscription { receiver, missed, newest: lately.newest }
    }

    /// Where the telling stands: whoever reads the store after this has missed nothing before it.
    pub fn mark(&self) -> String {
        let newest = self.lately().newest;
        self.mark_of(newest)
    }

    /// The mark of a change.
    pub fn mark_of(&self, number: u64) -> String {
        format!("{}-{number}", self.channel.life)
    }

    /// Tells everybody; nobody listening is no mistake.
    pub(crate) fn tell(&self, change: StoreChange) {
        if let StoreChange::Host(host)
        | StoreChange::Pending(host)
        | StoreChange::Document(host)
        | StoreChange::Elsewhere(host) = &change
        {
            // Here, and not by whoever hears of it: a credential is over before its end is acknowledged.
            self.channel.links.forget(host);
        }
        let mut lately = self.lately();
        lately.newest += 1;
        if lately.kept.len() == CHANGES_KEPT {
            lately.kept.pop_front();
        }
        lately.kept.push_back(change.clone());
        let _ = self.channel.sender.send(NumberedChange { number: lately.newest, change });
    }

    /// This process wrote a host's row, and tells of it itself.
    pub(crate) fn wrote(&self, host: String, version: i64) {
        let mut own = self.own();
        let run = own.versions.entry(host).or_insert(version..=version);
        let first = *run.start();
        let last = *run.end();
        // Two writes may be told the other way round.
        *run = if (first - 1..=last + 1).contains(&version) {
            first.min(version)..=last.max(version)
        } else {
            version..=version
        };
    }

    /// The same of a line of the audit.
    pub(crate) fn wrote_line(&self, serial: i64) {
        let mut own = self.own();
        own.lines.insert(serial);
        if own.lines.len() > OWN_LINES_KEPT {
            own.lines.pop_first();
        }
    }

    /// Whether this process wrote this version of a host's row, and every other since the one that was seen last.
    pub fn is_own(&self, host: &str, seen: Option<i64>, version: i64) -> bool {
        let own = self.own();
        let run = own.versions.get(host).filter(|run| run.contains(&version));
        run.is_some_and(|run| seen.is_none_or(|seen| *run.start() <= seen + 1))
    }

    /// Whether this process wrote this line of the audit.
    pub(crate) fn is_own_line(&self, serial: i64) -> bool {
        self.own().lines.contains(&serial)
    }

    fn own(&self) -> MutexGuard<'_, OwnWrites> {
        self.channel.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lately(&self) -> MutexGuard<'_, LateChanges> {
        self.channel.lately.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(number: usize) -> StoreChange {
        StoreChange::Host(format!("pve{number}"))
    }

    #[test]
    fn who_was_away_is_told_what_they_missed_and_then_what_comes() {
        let changes = ChangeFeed::new(Arc::default());
        changes.tell(host(1));
        let mark = changes.mark();
        assert_eq!(changes.subscribe_after(&mark).missed, Some(Vec::new()));
        changes.tell(host(2));
        changes.tell(host(3));
        let mut again = changes.subscribe_after(&mark);
        assert_eq!(again.missed, Some(vec![host(2), host(3)]));
        changes.tell(host(4));
        assert_eq!(again.receiver.try_recv().unwrap().change, host(4));
        assert_eq!(changes.mark(), changes.mark_of(again.newest + 1));
    }

    #[test]
    fn a_mark_that_is_not_remembered_is_said_to_be_so() {
        let changes = ChangeFeed::new(Arc::default());
        let mark = changes.mark();
        for number in 0..CHANGES_KEPT {
            changes.tell(host(number));
        }
        assert_eq!(changes.subscribe_after(&mark).missed.map(|all| all.len()), Some(CHANGES_KEPT));
        changes.tell(host(0));
        let later = changes.mark_of(CHANGES_KEPT as u64 + 9);
        let other = ChangeFeed::new(Arc::default()).mark();
        for strange in [mark.as_str(), "", "1", "-", later.as_str(), other.as_str()] {
            assert_eq!(changes.subscribe_after(strange).missed, None, "{strange}");
        }
    }

    #[test]
    fn a_process_knows_its_own_versions() {
        let changes = ChangeFeed::new(Arc::default());
        changes.wrote("pve1".to_owned(), 7);
        assert!(changes.is_own("pve1", None, 7));
        assert!(!changes.is_own("pve1", None, 8) && !changes.is_own("pve2", None, 7));
        // Told the other way round, with one of another process before them.
        changes.wrote("pve1".to_owned(), 10);
        changes.wrote("pve1".to_owned(), 9);
        assert!(changes.is_own("pve1", Some(8), 10) && changes.is_own("pve1", Some(9), 10));
        assert!(!changes.is_own("pve1", Some(7), 10), "8 was another's");
        (1..=2_000).for_each(|serial| changes.wrote_line(serial));
        assert!(changes.is_own_line(2_000) && changes.is_own_line(1_001));
        assert!(!changes.is_own_line(1_000) && !changes.is_own_line(2_001));
    }
}
