//! Storages that do not answer: whoever asks one waits in its worker, as long as the storage hangs.
//!
//! Real nodes behave so with a network file system whose server went away: the process that asks sleeps in the kernel, the
//! proxy gives up on it after 30 s, and the process sleeps on. Only reads hang here.

use std::collections::{BTreeMap, BTreeSet};

use super::Simulator;
use super::request::RequestWork;
use crate::request::Param;

/// What the statistics daemon has not heard of for so long is unknown.
const STATISTICS_KEPT_MS: u64 = 5 * 60 * 1_000;

/// A storage that hangs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HangingStorage {
    since_ms: u64,
    /// Until then; for ever if none.
    until_ms: Option<u64>,
    /// Whether the list of all storages hangs with it.
    lists: bool,
}

/// The storages that hang, by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct HangingStorages(BTreeMap<String, HangingStorage>);

impl HangingStorages {
    /// When the next one answers again.
    pub(super) fn next_event_ms(&self) -> Option<u64> {
        self.0.values().filter_map(|hanging| hanging.until_ms).min()
    }

    /// Those that the node's statistics have not seen for long.
    pub(super) fn unseen(&self, now_ms: u64) -> BTreeSet<String> {
        let is_unseen = |hanging: &HangingStorage| now_ms >= hanging.since_ms + STATISTICS_KEPT_MS;
        self.0.iter().filter(|(_, it)| is_unseen(it)).map(|(name, _)| name.clone()).collect()
    }

    /// Forgets those that answer again.
    pub(super) fn pass(&mut self, now_ms: u64) {
        self.0.retain(|_, hanging| hanging.until_ms.is_none_or(|until_ms| until_ms > now_ms));
    }
}

impl Simulator {
    /// A storage does not answer from now on, for so long, or for ever.
    pub(super) fn storage_hangs(&mut self, storage: String, ms: Option<u64>, lists: bool) {
        let until_ms = ms.map(|ms| self.now_ms + ms);
        self.hanging.0.insert(storage, HangingStorage { since_ms: self.now_ms, until_ms, lists });
    }

    /// A storage answers again.
    pub(super) fn storage_answers(&mut self, storage: &str) {
        self.hanging.0.remove(storage);
    }

    /// Whether a storage hangs now.
    pub fn is_hanging(&self, storage: &str) -> bool {
        self.hanging.0.contains_key(storage)
    }

    /// How many workers of the node wait for storages that hang.
    pub fn hanging_workers(&self) -> usize {
        self.pending.values().filter(|pending| pending.is_hanging()).count()
    }

    /// Whether what a request asks hangs.
    pub(super) fn hangs(&self, work: &RequestWork) -> bool {
        if self.hanging.0.is_empty() || work.method != "GET" {
            return false;
        }
        let segments: Vec<&str> = work.segments.iter().map(String::as_str).collect();
        match segments.as_slice() {
            ["nodes", _, "storage"] => self.hanging.0.values().any(|hanging| hanging.lists),
            ["nodes", _, "storage", storage, _, ..] => self.is_hanging(storage),
            ["nodes", _, "vzdump", "extractconfig"] => match work.params.get("volume") {
                Some(Param::Text(volume)) => {
                    volume.split_once(':').is_some_and(|(storage, _)| self.is_hanging(storage))
                }
                Some(_) | None => false,
            },
            _ => false,
        }
    }
}
