//! Signs of life, collected in memory and written every ten seconds: one commit for all hosts that polled.
//!
//! A hub killed before that has lost at most ten seconds of "last seen", which the next polls mend.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::transact::{StoreWrite, WriteTx};
use super::{HubStore, HubTime, StoreError};

/// How often they are written.
pub const FLUSH_EVERY: Duration = Duration::from_secs(10);

/// Who was heard, and when.
#[derive(Default)]
pub(super) struct Heartbeats {
    heard: Mutex<BTreeMap<String, HubTime>>,
    ever: Mutex<EverHeard>,
}

/// Every host that this process heard, written or not, for lists of hosts.
#[derive(Default)]
struct EverHeard {
    at: BTreeMap<String, HubTime>,
    /// Who was heard since the list took them in last.
    news: BTreeSet<String>,
}

impl HubStore {
    /// A host was heard just now.
    pub fn heard(&self, host: &str) {
        let now = HubTime::now();
        let mut heard = self.inner.heartbeats.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.insert(host.to_owned(), now);
        drop(heard);
        let mut ever = self.ever();
        ever.at.insert(host.to_owned(), now);
        ever.news.insert(host.to_owned());
    }

    /// When a host was last heard by this process, written or not.
    pub(crate) fn ever_heard(&self, host: &str) -> Option<HubTime> {
        self.ever().at.get(host).copied()
    }

    /// Who was heard by this process since the last call. For one caller: the list of hosts.
    pub(crate) fn newly_heard(&self) -> Vec<(String, HubTime)> {
        let mut ever = self.ever();
        let news = std::mem::take(&mut ever.news);
        news.into_iter().filter_map(|host| Some((host.clone(), *ever.at.get(&host)?))).collect()
    }

    /// A host is gone.
    pub(crate) fn forget_heard(&self, host: &str) {
        self.ever().at.remove(host);
    }

    fn ever(&self) -> MutexGuard<'_, EverHeard> {
        self.inner.heartbeats.ever.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When a host was heard, if that is not written yet.
    pub fn heard_lately(&self, host: &str) -> Option<HubTime> {
        let heard = self.inner.heartbeats.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.get(host).copied()
    }

    /// Writes what was heard.
    pub async fn flush_heartbeats(&self) -> Result<(), StoreError> {
        let heard = {
            let mut heard =
                self.inner.heartbeats.heard.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *heard)
        };
        if heard.is_empty() {
            return Ok(());
        }
        self.write(KeepHeard { heard }).await
    }
}

struct KeepHeard {
    /// Sorted, so that two replicas lock rows in the same order.
    heard: BTreeMap<String, HubTime>,
}

impl StoreWrite for KeepHeard {
    type Out = ();

    async fn run(&self, tx: &mut WriteTx<'_>) -> Result<(), StoreError> {
        for (host, at) in &self.heard {
            sqlx::query("UPDATE hosts SET last_seen = $1 WHERE id = $2 AND last_seen < $1")
                .bind(at.0)
                .bind(host.as_str())
                .execute(&mut *tx.connection)
                .await?;
        }
        Ok(())
    }
}
