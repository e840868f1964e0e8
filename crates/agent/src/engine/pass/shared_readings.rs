//! Answers about the node that several makings of the same moment share: the task list, the storages, what is on them to
//! make guests from, and what the cluster keeps by number.
//!
//! Many guests are made at once, and each answer is the same for all of them. What a making must know of its own number is
//! asked for each guest in its lane: whether it is free, who works under it, which volumes bear it. What is shared here is
//! never what keeps a guest safe: an older task list makes a mark that knows less and so removes less, an older list of
//! storages counts everything that was promised since, what others gave a number since is found before it is removed, and
//! Proxmox itself refuses a source that is gone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use evenkeel_core::actual::identity_proof::TaskReading;
use evenkeel_core::operate::operation::StorageName;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::engine::EngineContext;
use crate::engine::approvals::raise_again::LOOKED_AT_EVERY;
use crate::engine::gate::identity_proof::tasks_as_shown;
use crate::engine::gate::surroundings::{ClusterLists, glance_at_lists};
use crate::pve::ContentFilter;
use crate::pve::error::Error;
use crate::pve::list::ListReading;
use crate::pve::site::{ListedVolume, StorageEntry};
use crate::pve::storage_watch::StorageQuestion;

/// How long an answer serves: less than the pause before a making is tried again.
const SERVES_FOR: Duration = Duration::from_secs(1);

/// The answers of the moment. Who asks while another asks the same waits for that answer.
#[derive(Debug, Default)]
pub(in crate::engine) struct SharedReadings {
    tasks: Mutex<Option<SharedAnswer<TaskReading>>>,
    storages: Mutex<Option<SharedAnswer<Vec<StorageEntry>>>>,
    lists: Mutex<Option<SharedAnswer<ClusterLists>>>,
    /// By storage and what is asked of it: one that hangs delays nobody who asks for another.
    sources: StdMutex<BTreeMap<(StorageName, ContentFilter), SharedSources>>,
    /// When a pass last looked whether the marks of items hold.
    marks: StdMutex<Option<Instant>>,
}

/// What a storage lists, once somebody has asked.
type SharedSources = Arc<Mutex<Option<SharedAnswer<ListReading<ListedVolume>>>>>;

/// What was answered, and when it was asked.
#[derive(Debug)]
pub(in crate::engine) struct SharedAnswer<T> {
    pub(in crate::engine) told: Arc<T>,
    pub(in crate::engine) asked: Instant,
}

impl<T> SharedAnswer<T> {
    fn new(told: T, asked: Instant) -> Self {
        Self { told: Arc::new(told), asked }
    }

    fn serves(&self) -> bool {
        self.asked.elapsed() <= SERVES_FOR
    }
}

impl<T> Clone for SharedAnswer<T> {
    fn clone(&self) -> Self {
        Self { told: Arc::clone(&self.told), asked: self.asked }
    }
}

impl SharedReadings {
    /// The task list, as far as Proxmox shows it.
    pub(in crate::engine) async fn tasks(
        &self,
        context: &EngineContext,
    ) -> Result<Arc<TaskReading>, Error> {
        let mut kept = self.tasks.lock().await;
        if let Some(known) = kept.as_ref().filter(|known| known.serves()) {
            return Ok(Arc::clone(&known.told));
        }
        let asked = Instant::now();
        let read = tasks_as_shown(&context.client, || context.node_now()).await?;
        Ok(Arc::clone(&kept.insert(SharedAnswer::new(read, asked)).told))
    }

    /// The node's storages.
    pub(in crate::engine) async fn storages(
        &self,
        context: &EngineContext,
    ) -> Result<SharedAnswer<Vec<StorageEntry>>, Error> {
        let waiting = context.client.wait_for(&StorageQuestion::All, self.storages.lock());
        let mut kept = waiting.await?;
        if let Some(known) = kept.as_ref().filter(|known| known.serves()) {
            return Ok(known.clone());
        }
        let asked = Instant::now();
        let read = context.client.storages().await?;
        Ok(kept.insert(SharedAnswer::new(read, asked)).clone())
    }

    /// What the cluster keeps by number.
    pub(in crate::engine) async fn cluster_lists(
        &self,
        context: &EngineContext,
    ) -> Arc<ClusterLists> {
        let mut kept = self.lists.lock().await;
        if let Some(known) = kept.as_ref().filter(|known| known.serves()) {
            return Arc::clone(&known.told);
        }
        let asked = Instant::now();
        let read = glance_at_lists(&context.client).await;
        Arc::clone(&kept.insert(SharedAnswer::new(read, asked)).told)
    }

    /// What a storage has to make guests from.
    pub(in crate::engine) async fn sources(
        &self,
        context: &EngineContext,
        storage: &StorageName,
        filter: &ContentFilter,
    ) -> Result<Arc<ListReading<ListedVolume>>, Error> {
        let kept = self.kept_sources(storage, filter);
        let about = StorageQuestion::One(storage.clone());
        let mut kept = context.client.wait_for(&about, kept.lock()).await?;
        if let Some(known) = kept.as_ref().filter(|known| known.serves()) {
            return Ok(Arc::clone(&known.told));
        }
        let asked = Instant::now();
        let read = context.client.volumes(storage, filter).await?;
        Ok(Arc::clone(&kept.insert(SharedAnswer::new(read, asked)).told))
    }

    /// Whether it is time to look at the marks of items; if so, this is counted as the look.
    pub(in crate::engine) fn marks_are_due(&self) -> bool {
        let mut last = self.marks.lock().expect("nobody panics while they hold the moment");
        let is_due = last.is_none_or(|last| last.elapsed() >= LOOKED_AT_EVERY);
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }

    fn kept_sources(&self, storage: &StorageName, filter: &ContentFilter) -> SharedSources {
        let mut all = self.sources.lock().expect("nobody panics while they hold the sources");
        Arc::clone(all.entry((storage.clone(), filter.clone())).or_default())
    }
}
