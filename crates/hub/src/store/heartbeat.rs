//! Signs of life, collected in memory and written every ten seconds: one commit for all hosts that polled.
//!
//! A hub killed before that has lost at most ten seconds of "last seen", which the next polls mend.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::transact::{StoreWrite, WriteTx};
use super::{HubStore, HubTime, StoreError};

/// How often they are written.
pub const FLUSH_EVERY: Duration = Duration::from_secs(10);

/// Who was heard, and when.
#[derive(Default)]
pub(super) struct Heartbeats {
    heard: Mutex<BTreeMap<String, HubTime>>,
    /// The same for every host that was ever heard by this process, written or not, for lists of hosts.
    ever: Mutex<BTreeMap<String, HubTime>>,
}

impl HubStore {
    /// A host was heard just now.
    pub fn heard(&self, host: &str) {
        let now = HubTime::now();
        let mut heard = self.inner.heartbeats.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.insert(host.to_owned(), now);
        drop(heard);
        let mut ever = self.inner.heartbeats.ever.lock().unwrap_or_else(PoisonError::into_inner);
        ever.insert(host.to_owned(), now);
    }

    /// Looks at when each host was last heard by this process.
    pub(crate) fn look_at_heard<T>(&self, look: impl FnOnce(&BTreeMap<String, HubTime>) -> T) -> T {
        look(&self.inner.heartbeats.ever.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A host is gone.
    pub(crate) fn forget_heard(&self, host: &str) {
        let mut ever = self.inner.heartbeats.ever.lock().unwrap_or_else(PoisonError::into_inner);
        ever.remove(host);
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
