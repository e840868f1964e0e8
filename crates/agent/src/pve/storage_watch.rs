//! Asks storages: one question at a time for each, and none for a while to one that does not answer.
//!
//! ```text
//!   reads ──> slot of the storage ──> left alone? slow and in haste? ──> one at a time ──> the exchange, within a budget
//! ```
//!
//! A node has three processes for such questions, and one that hangs in a storage is lost until the storage comes back. So two
//! questions are open at a time, over all storages; one in vain counts until its storage was heard or seen again. Core's
//! `storage_hearing` decides; here is the clock, the queue for each storage, and what the node's statistics say.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use evenkeel_core::actual::storage_hearing::{HASTE, PATIENCE, StorageHearing, StorageSilence};
use evenkeel_core::model::reason::{ReasonCode, Refusal};
use evenkeel_core::operate::operation::{StorageName, UnixSeconds};
use futures_util::future::{BoxFuture, FutureExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::Client;
use super::error::{Error, NotSent};
use super::exchange::HttpRequest;
use super::list::ListReading;

/// What is asked about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum StorageQuestion {
    /// One storage.
    One(StorageName),
    /// How all of them stand: the node looks at each to tell.
    All,
}

impl fmt::Display for StorageQuestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(storage) => write!(f, "the storage {storage}"),
            Self::All => f.write_str("the list of all storages"),
        }
    }
}

/// How long somebody waits for a storage.
#[derive(Debug, Clone, Default)]
pub(super) enum StoragePatience {
    /// As long as it may take.
    #[default]
    Whole,
    /// Only a moment, because others wait for it; notes whether a storage was given up for that.
    Hasty(Arc<AtomicBool>),
}

/// How many questions to storages may keep a process of the node: one of its three is left for everything else.
const QUESTIONS_AT_ONCE: usize = 2;

/// What is remembered of every storage that was asked.
#[derive(Debug)]
pub struct StorageWatch {
    began: Instant,
    questions: Arc<Semaphore>,
    slots: Mutex<BTreeMap<StorageQuestion, Arc<StorageSlot>>>,
}

#[derive(Default)]
struct StorageSlot {
    /// Who holds it asks.
    asking: tokio::sync::Mutex<OpenQuestions>,
    hearing: Mutex<StorageHearing>,
}

/// What may still keep a process of the node.
#[derive(Default)]
struct OpenQuestions {
    /// A question that somebody in haste gave up: it is not asked beside another.
    open: Option<OpenQuestion>,
    /// The place of a question in vain.
    lost: Option<OwnedSemaphorePermit>,
}

/// A question that was sent and whose answer nobody takes. It ends with whether the storage was heard.
struct OpenQuestion {
    asked: Instant,
    heard: BoxFuture<'static, bool>,
    place: OwnedSemaphorePermit,
}

/// A question to a storage: nothing is sent before it is polled.
type Asked<T> = BoxFuture<'static, Result<T, Error>>;

/// How a storage is heard of: an answer, or that none came in time.
type StorageAnswer<T> = Result<Result<T, Error>, NotSent>;

impl Default for StorageWatch {
    fn default() -> Self {
        let questions = Arc::new(Semaphore::new(QUESTIONS_AT_ONCE));
        Self { began: Instant::now(), questions, slots: Mutex::default() }
    }
}

impl StorageSlot {
    fn hearing(&self) -> MutexGuard<'_, StorageHearing> {
        self.hearing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StorageWatch {
    /// Every storage that keeps silent.
    pub(crate) fn silent(&self) -> Vec<(StorageQuestion, StorageSilence)> {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let silent = slots.iter().filter_map(|(about, slot)| {
            let silence = slot.hearing().silence()?;
            Some((about.clone(), silence))
        });
        silent.collect()
    }

    fn slot(&self, about: &StorageQuestion) -> Arc<StorageSlot> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(slots.entry(about.clone()).or_default())
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }
}

impl Client {
    /// The same client, with what is remembered of storages where others can read it.
    #[must_use]
    pub(crate) fn remembering_in(self, storages: Arc<StorageWatch>) -> Self {
        Self { storages, ..self }
    }

    /// The same client for somebody who keeps others waiting, and whether it gave up a storage for that.
    pub(crate) fn in_haste(&self) -> (Self, Arc<AtomicBool>) {
        let gave_up = Arc::new(AtomicBool::new(false));
        let patience = StoragePatience::Hasty(Arc::clone(&gave_up));
        (Self { patience, ..self.clone() }, gave_up)
    }

    /// Asks a storage for a list.
    pub(super) async fn list_of_storage<T: DeserializeOwned + Send + 'static>(
        &self,
        about: StorageQuestion,
        request: HttpRequest,
    ) -> Result<ListReading<T>, Error> {
        let client = self.clone();
        let call = request.call();
        let question = async move { client.list(request).await };
        self.ask_storage(about, call, question.boxed()).await
    }

    /// Asks a storage for one thing.
    pub(super) async fn told_by_storage<T: DeserializeOwned + Send + 'static>(
        &self,
        about: StorageQuestion,
        request: HttpRequest,
    ) -> Result<T, Error> {
        let client = self.clone();
        let call = request.call();
        let question = async move { client.call(request).await };
        self.ask_storage(about, call, question.boxed()).await
    }

    /// Asks a storage, within what the asker has of patience.
    async fn ask_storage<T: Send + 'static>(
        &self,
        about: StorageQuestion,
        call: String,
        question: Asked<T>,
    ) -> Result<T, Error> {
        let slot = self.storages.slot(&about);
        let heard = match &self.patience {
            StoragePatience::Whole => self.ask_patiently(&slot, &about, question).await,
            StoragePatience::Hasty(gave_up) => {
                let heard = self.ask_in_haste(&slot, &about, question).await;
                if let Err(NotSent::StorageSlow { .. }) = heard {
                    gave_up.store(true, Ordering::Relaxed);
                    slot.hearing().given_up();
                }
                heard
            }
        };
        heard.unwrap_or_else(|why| Err(Error::NotSent { call, why }))
    }

    /// Waits for the answer that somebody else is about to get, no longer than for one of our own.
    pub(crate) async fn wait_for<T>(
        &self,
        about: &StorageQuestion,
        answer: impl Future<Output = T>,
    ) -> Result<T, Error> {
        let slow = || {
            let why = NotSent::StorageSlow { about: about.clone() };
            Error::NotSent { call: format!("a question to {about}"), why }
        };
        let slot = self.storages.slot(about);
        match &self.patience {
            // Who is asked before has to give an answer within as long.
            StoragePatience::Whole => {
                tokio::time::timeout(PATIENCE * 2, answer).await.map_err(|_| slow())
            }
            StoragePatience::Hasty(gave_up) => {
                let answered = tokio::time::timeout(HASTE, answer).await;
                answered.map_err(|_| {
                    gave_up.store(true, Ordering::Relaxed);
                    slot.hearing().given_up();
                    slow()
                })
            }
        }
    }

    /// Why one storage is not asked now, in words; none if it answers.
    pub(crate) fn silence_of(&self, storage: &StorageName) -> Option<Refusal> {
        let about = StorageQuestion::One(storage.clone());
        let silence = self.storages.slot(&about).hearing().silence()?;
        let why = NotSent::StorageSilent { about, silence };
        Some(Refusal::new(ReasonCode::Storage, why.to_string()))
    }

    async fn ask_patiently<T: Send + 'static>(
        &self,
        slot: &StorageSlot,
        about: &StorageQuestion,
        question: Asked<T>,
    ) -> StorageAnswer<T> {
        self.left_alone(slot, about)?;
        let slow = || NotSent::StorageSlow { about: about.clone() };
        let waiting = tokio::time::timeout(PATIENCE, slot.asking.lock());
        let mut asking = waiting.await.map_err(|_| slow())?;
        // Who asked before may have found out.
        self.left_alone(slot, about)?;
        if slot.hearing().silence().is_some() && !self.is_seen(about).await {
            slot.hearing().not_seen(self.storages.now(), self.clock_now());
            self.left_alone(slot, about)?;
        }
        let mut place = asking.lost.take();
        if let Some(open) = asking.open.take() {
            let ended = tokio::time::timeout_at(open.asked + PATIENCE, open.heard).await;
            let Ok(is_heard) = ended else {
                asking.lost = Some(open.place);
                return Err(self.kept_silent(slot, about));
            };
            if is_heard {
                slot.hearing().answered(open.asked.elapsed());
            }
            place = Some(open.place);
        }
        let place = match place {
            Some(place) => place,
            None => self.place_for(about, Instant::now() + PATIENCE).await?,
        };
        let asked = Instant::now();
        let Ok(answered) = tokio::time::timeout(PATIENCE, question).await else {
            asking.lost = Some(place);
            return Err(self.kept_silent(slot, about));
        };
        if is_heard(&answered) {
            slot.hearing().answered(asked.elapsed());
        }
        Ok(answered)
    }

    async fn ask_in_haste<T: Send + 'static>(
        &self,
        slot: &StorageSlot,
        about: &StorageQuestion,
        mut question: Asked<T>,
    ) -> StorageAnswer<T> {
        self.left_alone(slot, about)?;
        let slow = || NotSent::StorageSlow { about: about.clone() };
        if slot.hearing().is_slow() {
            return Err(slow());
        }
        let deadline = Instant::now() + HASTE;
        let waiting = tokio::time::timeout_at(deadline, slot.asking.lock());
        let mut asking = waiting.await.map_err(|_| slow())?;
        self.left_alone(slot, about)?;
        let place = self.place_for(about, deadline).await?;
        let asked = Instant::now();
        let Ok(answered) = tokio::time::timeout_at(deadline, &mut question).await else {
            let heard = async move { is_heard(&question.await) }.boxed();
            asking.open = Some(OpenQuestion { asked, heard, place });
            return Err(slow());
        };
        if is_heard(&answered) {
            slot.hearing().answered(asked.elapsed());
        }
        Ok(answered)
    }

    /// A place among the questions that may keep a process of the node.
    async fn place_for(
        &self,
        about: &StorageQuestion,
        deadline: Instant,
    ) -> Result<OwnedSemaphorePermit, NotSent> {
        let questions = Arc::clone(&self.storages.questions);
        if let Ok(place) = Arc::clone(&questions).try_acquire_owned() {
            return Ok(place);
        }
        let taking = async {
            self.take_places_back().await;
            questions.acquire_owned().await.ok()
        };
        let taken = tokio::time::timeout_at(deadline, taking).await.ok().flatten();
        taken.ok_or_else(|| NotSent::StoragesCrowded { about: about.clone() })
    }

    /// Takes back the places of storages that kept silent and that the node has seen since.
    async fn take_places_back(&self) {
        let now = self.storages.now();
        for (about, _) in self.storages.silent() {
            let slot = self.storages.slot(&about);
            let is_due = slot.hearing().left_alone(now).is_none();
            if let Some(mut asking) = slot.asking.try_lock().ok().filter(|_| is_due) {
                if self.is_seen(&about).await {
                    asking.lost = None;
                } else {
                    slot.hearing().not_seen(now, self.clock_now());
                }
            }
        }
    }

    /// Refuses to ask a storage that is left alone now.
    fn left_alone(&self, slot: &StorageSlot, about: &StorageQuestion) -> Result<(), NotSent> {
        match slot.hearing().left_alone(self.storages.now()) {
            Some(silence) => Err(NotSent::StorageSilent { about: about.clone(), silence }),
            None => Ok(()),
        }
    }

    fn kept_silent(&self, slot: &StorageSlot, about: &StorageQuestion) -> NotSent {
        let now = self.storages.now();
        let clock = self.clock_now();
        let silence = slot.hearing().kept_silent(now, clock);
        tracing::warn!(%about, "does not answer; what needs it waits, and nothing else does");
        NotSent::StorageSilent { about: about.clone(), silence }
    }

    /// Whether the node's statistics show a storage, or all of them. They cost no process that could hang.
    async fn is_seen(&self, about: &StorageQuestion) -> bool {
        let listed = tokio::time::timeout(HASTE, self.cluster_storages()).await;
        let Ok(Ok(listed)) = listed else { return false };
        let mut here = listed.rows.iter().filter(|entry| entry.node.as_ref() == Some(self.node()));
        let is_there = |status: &Option<String>| status.as_deref() == Some("available");
        match about {
            StorageQuestion::One(storage) => {
                let id = format!("storage/{}/{storage}", self.node());
                here.any(|entry| entry.id == id && is_there(&entry.status))
            }
            StorageQuestion::All => here.all(|entry| is_there(&entry.status)),
        }
    }

    /// The node's time; the beginning of time if it never answered.
    fn clock_now(&self) -> UnixSeconds {
        let now = self.node_clock().map(|clock| clock.at(Instant::now()).as_second());
        UnixSeconds(now.and_then(|now| u64::try_from(now).ok()).unwrap_or(0))
    }
}

/// Whether a storage was heard. A node that was not reached, or lost, says nothing of its storages.
fn is_heard<T>(answered: &Result<T, Error>) -> bool {
    match answered {
        Ok(_) | Err(Error::Refused(_)) => true,
        Err(Error::NotSent { .. } | Error::Unknown { .. }) => false,
    }
}

impl fmt::Debug for StorageSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StorageSlot").field("hearing", &self.hearing).finish_non_exhaustive()
    }
}
