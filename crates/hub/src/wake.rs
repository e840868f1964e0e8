//! Who waits for news of a host, and how they are woken: at once by this process, within 250 ms by other replicas.
//!
//! A wake is a hint. Whoever is woken reads the store, so a wake too many costs a read and one too few costs the rest
//! of a long poll.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, broadcast};

use crate::routes::Hub;
use crate::store::{NumberedChange, StoreChange};

/// How often rows changed by others are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How far each look goes back: longer than any transaction may take, because rows become visible when it commits, not
/// when it wrote them.
const LOOK_BACK_MS: i64 = 10_000;

/// Who waits, by host.
#[derive(Default)]
pub struct WakeTable {
    waiting: Mutex<HashMap<String, Arc<Notify>>>,
    /// How many looks have ended, of hosts and of the audit, whether or not they could read.
    looks: AtomicU64,
}

/// A place in the table; leaving it takes it away.
pub(crate) struct WaitingHost<'t> {
    table: &'t WakeTable,
    host: String,
    notify: Arc<Notify>,
}

impl WakeTable {
    /// Waits for news of a host from now on.
    pub(crate) fn wait_for(&self, host: &str) -> WaitingHost<'_> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let notify = waiting.entry(host.to_owned()).or_default().clone();
        WaitingHost { table: self, host: host.to_owned(), notify }
    }

    /// How many looks have ended. What was written before a look began is known after the second one from there on.
    #[cfg(feature = "test-hooks")]
    pub fn looks(&self) -> u64 {
        self.looks.load(Ordering::Acquire)
    }

    /// Whether a poll waits for news of a host.
    #[cfg(feature = "test-hooks")]
    pub fn is_waited_for(&self, host: &str) -> bool {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).contains_key(host)
    }

    /// There is news of a host.
    fn wake(&self, host: &str) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(notify) = waiting.get(host) {
            notify.notify_waiters();
            notify.notify_one();
        }
    }

    /// There may be news of anybody.
    fn wake_all(&self) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.values().for_each(|notify| notify.notify_one());
    }
}

impl WaitingHost<'_> {
    /// Until there is news. A wake between the call before and this one is not lost.
    pub(crate) async fn woken(&self) {
        self.notify.notified().await;
    }
}

impl Drop for WaitingHost<'_> {
    fn drop(&mut self) {
        let mut waiting = self.table.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // The table and this place: nobody else waits for the host.
        if Arc::strong_count(&self.notify) <= 2 {
            waiting.remove(&self.host);
        }
    }
}

/// Wakes whom changes of this process and of others concern, until it is dropped.
pub(crate) async fn keep_waking(hub: Hub) {
    let mut changes = hub.store().changes().subscribe();
    let mut looks = tokio::time::interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut known: HashMap<String, i64> = HashMap::new();
    let mut audited = BTreeSet::new();
    loop {
        tokio::select! {
            change = changes.recv() => match change {
                Ok(NumberedChange { change, .. }) => wake_by(&hub, change),
                Err(broadcast::error::RecvError::Lagged(_)) => hub.wakes().wake_all(),
                Err(broadcast::error::RecvError::Closed) => return,
            },
            _ = looks.tick() => {
                look(&hub, &mut known).await;
                look_at_audit(&hub, &mut audited).await;
                hub.wakes().looks.fetch_add(1, Ordering::Release);
            }
        }
    }
}

fn wake_by(hub: &Hub, change: StoreChange) {
    match change {
        StoreChange::Host(host)
        | StoreChange::Pending(host)
        | StoreChange::Document(host)
        | StoreChange::Elsewhere(host) => hub.wakes().wake(&host),
        StoreChange::Audit | StoreChange::Report(_) => {}
    }
}

/// Tells polls and streams of rows that another process changed: a replica, or a command on the server. What this one wrote it
/// has told.
async fn look(hub: &Hub, known: &mut HashMap<String, i64>) {
    let began = Instant::now();
    let store = hub.store();
    let looked = store.hosts_changed_within(LOOK_BACK_MS).await;
    let removed = store.hosts_removed_within(LOOK_BACK_MS).await;
    let (changed, removed) = match looked.and_then(|changed| Ok((changed, removed?))) {
        Ok(looked) => looked,
        Err(error) => {
            tracing::warn!(%error, "cannot look for changes");
            return;
        }
    };
    for host in &removed {
        known.remove(host);
        store.links().forget(host);
        hub.wakes().wake(host);
    }
    for host in changed {
        let seen = known.insert(host.id.clone(), host.version);
        if seen == Some(host.version) {
            continue;
        }
        // Forgotten first: whoever is woken must not find what was there before.
        store.links().found(&host.id, host.version);
        if !store.changes().is_own(&host.id, seen, host.version) {
            store.changes().tell(StoreChange::Elsewhere(host.id));
        }
    }
    let back = Duration::from_millis(LOOK_BACK_MS.unsigned_abs());
    store.links().looked(began, Instant::now(), back);
}

/// Tells streams of people of lines that another process wrote.
async fn look_at_audit(hub: &Hub, known: &mut BTreeSet<i64>) {
    match hub.store().audited_within(LOOK_BACK_MS).await {
        Ok(written) => {
            let changes = hub.store().changes();
            if written.difference(known).any(|serial| !changes.is_own_line(*serial)) {
                changes.tell(StoreChange::Audit);
            }
            *known = written;
        }
        Err(error) => tracing::warn!(%error, "cannot look for changes"),
    }
}
