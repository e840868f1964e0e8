//! What an operation needs to act: the client, the journal, the clock, and somebody to tell.
//!
//! Shared by every operation under way. It must never hold anything that one operation changes for another.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard};

use evenkeel_core::back_off::{FailureMemory, TryFailure};
use evenkeel_core::create_policy::{CreatePolicy, GuestVolumes};
use evenkeel_core::desired::{DeclaredGuest, Desired, ReconcileMode};
use evenkeel_core::id::{GuestId, OperationId, VmId};
use evenkeel_core::new_guest::NewGuest;
use evenkeel_core::operation::{MakingMemory, OpEvent, OpRecord, Operation, UnixSeconds, Upid};
use evenkeel_core::plan::ObservedBy;
use evenkeel_core::quantity::Bytes;
use evenkeel_core::reason::{ReasonCode, Refusal};
use evenkeel_core::sign::clock::ClockReading;
use evenkeel_core::vmid_ranges::VmidRanges;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use super::approval_context::ApprovalContext;
use super::error::{EngineError, Fatal};
use super::report::OpReport;
use super::shared_readings::SharedReadings;
use super::task_progress::LogViewers;
use crate::ambient::{Ambient, new_operation};
use crate::cluster_files::ClusterFiles;
use crate::effective_clock;
use crate::first_secrets::FirstSecrets;
use crate::journal::{JournalHandle, Record, seconds};
use crate::pve::Client;

/// The shared handles of every operation.
#[derive(Clone)]
pub struct EngineContext {
    /// Proxmox VE.
    pub(super) client: Client,
    /// The journal.
    pub(super) journal: JournalHandle,
    /// Clock and randomness.
    pub(super) ambient: Arc<dyn Ambient>,
    /// Our token as tasks show it: `user@realm!token`.
    pub(super) owner: String,
    /// Whether an operator has frozen this host; asked before every act.
    pub(super) frozen: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Whether the host only observes, by its own policy; asked before every planned act.
    pub(super) observes: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Guests that the newest desired state only observes. What was planned from an older one asks here too.
    pub(super) observed: Arc<Mutex<BTreeSet<VmId>>>,
    /// What guests that are being made will take of each storage.
    pub(super) promises: Arc<Mutex<BTreeMap<VmId, StoragePromise>>>,
    /// Answers about the node that makings share.
    pub(super) shared: Arc<SharedReadings>,
    /// Who holds it spends of the budget of a hub's disruptive acts.
    pub(super) disruptive: Arc<tokio::sync::Mutex<()>>,
    /// What guests that count for a hub take of each storage, as the last pass saw it.
    pub(super) hub_volumes: Arc<Mutex<GuestVolumes>>,
    /// Who holds it counts what a hub's guests take, and begins an act that takes more.
    pub(super) counting: Arc<tokio::sync::Mutex<()>>,
    /// Who holds it waits for a storage that answers slowly while it has a turn: one at a time, so that a turn is left.
    pub(super) slow_storages: Arc<tokio::sync::Mutex<()>>,
    /// Where passwords of new guests are; without it no guest that wants one is made.
    pub(super) secrets: Option<FirstSecrets>,
    /// What judges destructive acts; without it they all wait.
    pub(super) approvals: Option<ApprovalContext>,
    /// The numbers at which guests may be scratch, by root's file.
    pub(super) scratch_vmids: VmidRanges,
    /// Who hears of progress while it happens.
    pub(super) listener: Arc<dyn Fn(Progress) + Send + Sync>,
    /// Who sees what tasks log while they are waited for; none if nobody ever does.
    pub(super) log_viewers: Option<LogViewers>,
    /// The node's cluster file system, if it can be read.
    pub(super) cluster_files: Option<Arc<dyn ClusterFiles>>,
}

/// What a guest that is being made will take of each storage.
#[derive(Debug)]
pub(super) struct StoragePromise {
    sizes: BTreeMap<String, Bytes>,
    /// When its making had ended.
    kept: Option<Instant>,
}

/// What is told while it happens; what is durable is in the journal.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Progress {
    /// The `started` record is on disk and the request leaves.
    Started {
        /// Which operation.
        op: OperationId,
        /// On which guest.
        guest: GuestId,
        /// What it does, with its reasons.
        what: String,
    },
    /// PVE works on it.
    Task {
        /// Which operation.
        op: OperationId,
        /// On which guest.
        guest: GuestId,
        /// The task.
        upid: Upid,
    },
    /// It is waited for something: a lock, a lost answer, PVE itself.
    Waiting {
        /// Which operation.
        op: OperationId,
        /// On which guest.
        guest: GuestId,
        /// For what.
        why: String,
    },
    /// What the log of its task says by now. Only for those who asked to see it.
    Log {
        /// Which operation.
        op: OperationId,
        /// On which guest.
        guest: GuestId,
        /// The newest line, secrets masked.
        line: String,
        /// How far it is, where PVE tells.
        percent: Option<u8>,
    },
    /// It ended.
    Ended(Box<OpReport>),
}

impl Progress {
    /// Which operation it is about.
    pub fn op(&self) -> OperationId {
        match self {
            Self::Started { op, .. }
            | Self::Task { op, .. }
            | Self::Waiting { op, .. }
            | Self::Log { op, .. } => *op,
            Self::Ended(report) => report.op,
        }
    }

    /// On which guest.
    pub fn guest(&self) -> GuestId {
        match self {
            Self::Started { guest, .. }
            | Self::Task { guest, .. }
            | Self::Waiting { guest, .. }
            | Self::Log { guest, .. } => *guest,
            Self::Ended(report) => report.guest,
        }
    }
}

impl EngineContext {
    /// Of a host that nobody has frozen, on which nobody may sign, and that tells nobody; `owner` is our token as tasks
    /// show it: `user@realm!token`.
    pub fn new(
        client: Client,
        journal: JournalHandle,
        ambient: Arc<dyn Ambient>,
        owner: String,
    ) -> Self {
        let (frozen, observes, listener) =
            (Arc::new(|| false), Arc::new(|| false), Arc::new(|_| {}));
        Self {
            client,
            journal,
            ambient,
            owner,
            frozen,
            observes,
            observed: Arc::default(),
            promises: Arc::default(),
            shared: Arc::default(),
            disruptive: Arc::default(),
            hub_volumes: Arc::default(),
            counting: Arc::default(),
            slow_storages: Arc::default(),
            secrets: None,
            approvals: None,
            scratch_vmids: VmidRanges::default(),
            listener,
            log_viewers: None,
            cluster_files: None,
        }
    }

    /// Where the node tells which configuration files were written; passes keep their readings of the others.
    #[must_use]
    pub fn remembering_by(self, cluster_files: Option<Arc<dyn ClusterFiles>>) -> Self {
        Self { cluster_files, ..self }
    }

    /// The same for somebody who has a turn and keeps others waiting, and whether a storage was given up for that.
    pub(super) fn in_haste(&self) -> (Self, Arc<AtomicBool>) {
        let (client, gave_up) = self.client.in_haste();
        (Self { client, ..self.clone() }, gave_up)
    }

    /// The node's cluster file system, if it can be read.
    pub(super) fn cluster_files(&self) -> Option<&dyn ClusterFiles> {
        self.cluster_files.as_deref()
    }

    /// Asked before every act whether an operator has frozen the host.
    #[must_use]
    pub fn frozen_when(self, frozen: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { frozen: Arc::new(frozen), ..self }
    }

    /// Where passwords of new guests are read from.
    #[must_use]
    pub fn reading_secrets(self, secrets: FirstSecrets) -> Self {
        Self { secrets: Some(secrets), ..self }
    }

    /// The first password of a new guest, if it shall have one; refused if it cannot be read.
    pub(super) fn first_password(&self, new: &NewGuest) -> Result<Option<SecretString>, Refusal> {
        let Some(name) = &new.first.password else {
            return Ok(None);
        };
        let refused = |why: String| Refusal::new(ReasonCode::Policy, why);
        let Some(secrets) = &self.secrets else {
            return Err(refused("this host keeps no secrets".to_owned()));
        };
        let read = secrets.first_password(new.guest.vmid, name);
        read.map(Some).map_err(|error| refused(error.to_string()))
    }

    /// Asked before every planned act whether the host only observes.
    #[must_use]
    pub fn observing_when(self, observes: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { observes: Arc::new(observes), ..self }
    }

    /// What judges destructive acts; without it they all wait.
    #[must_use]
    pub fn approved_by(self, approvals: Option<ApprovalContext>) -> Self {
        Self { approvals, ..self }
    }

    /// The numbers at which guests may be scratch; none unless root's file names them.
    #[must_use]
    pub fn with_scratch(self, scratch_vmids: VmidRanges) -> Self {
        Self { scratch_vmids, ..self }
    }

    /// Who hears of progress while it happens.
    #[must_use]
    pub fn telling(self, listener: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        Self { listener: Arc::new(listener), ..self }
    }

    /// Whether whoever listens sees what tasks log while they are waited for. That takes a request a second for each.
    #[must_use]
    pub fn showing_logs(self, shows_logs: bool) -> Self {
        Self { log_viewers: shows_logs.then(LogViewers::always), ..self }
    }

    /// The same for viewers that come and go.
    #[must_use]
    pub fn showing_logs_to(self, viewers: LogViewers) -> Self {
        Self { log_viewers: Some(viewers), ..self }
    }

    /// The node's time now; ours until the node has answered once.
    pub(crate) fn node_now(&self) -> UnixSeconds {
        let reading = self.client.node_clock().map(|clock| clock.at(Instant::now()));
        let now = reading.unwrap_or_else(|| self.ambient.now());
        seconds(now)
    }

    /// The time to judge by.
    pub(super) async fn reading(&self) -> Result<ClockReading, Fatal> {
        effective_clock::read(self.ambient.as_ref(), &self.journal).await.map_err(Fatal::Journal)
    }

    /// A fresh name.
    pub(crate) fn new_operation(&self) -> OperationId {
        new_operation(self.ambient.as_ref())
    }

    /// What failed and waits for its next try.
    pub(super) async fn failures(&self) -> Result<FailureMemory, Fatal> {
        let read = self.journal.read(|state, _| state.ledger().failures().clone());
        read.await.map_err(Fatal::Journal)
    }

    /// What root lets a hub have made; none if nothing.
    pub(super) fn create_policy(&self) -> Option<&CreatePolicy> {
        self.approvals.as_ref().and_then(|bench| bench.policy.create.as_ref())
    }

    /// Keeps what guests that count for a hub take, as a pass saw it.
    pub(super) fn keep_hub_volumes(&self, volumes: GuestVolumes) {
        *self.hub_volumes.lock().expect("nobody panics while they hold the volumes") = volumes;
    }

    /// What guests that count for a hub take of each storage, as the last pass saw it.
    pub(super) fn hub_volumes(&self) -> GuestVolumes {
        self.hub_volumes.lock().expect("nobody panics while they hold the volumes").clone()
    }

    /// Guests we made, or tried to make.
    pub(super) async fn making(&self) -> Result<MakingMemory, Fatal> {
        let read = self.journal.read(|state, _| state.ledger().making().clone());
        read.await.map_err(Fatal::Journal)
    }

    /// A guest that is about to be made will take this much; what it was promised before is forgotten.
    pub(super) fn promise(&self, vmid: VmId, sizes: BTreeMap<String, Bytes>) {
        self.lock_promises().insert(vmid, StoragePromise { sizes, kept: None });
    }

    /// Its making has ended: whoever asks from now on what is free is told without what it took.
    pub(super) fn keep_promise(&self, vmid: VmId) {
        if let Some(promise) = self.lock_promises().get_mut(&vmid) {
            promise.kept = Some(Instant::now());
        }
    }

    /// What is promised to other guests, by storage, and cannot be in what was asked for then.
    pub(super) fn promised_but(&self, vmid: VmId, asked: Instant) -> BTreeMap<String, Bytes> {
        let mut sums: BTreeMap<String, Bytes> = BTreeMap::new();
        let mut promises = self.lock_promises();
        promises.retain(|_, promise| promise.kept.is_none_or(|kept| kept >= asked));
        let others = promises.iter().filter(|(of, _)| **of != vmid);
        for (storage, size) in others.flat_map(|(_, promise)| &promise.sizes) {
            let sum = sums.entry(storage.clone()).or_insert(Bytes(0));
            sum.0 = sum.0.saturating_add(size.0);
        }
        sums
    }

    fn lock_promises(&self) -> MutexGuard<'_, BTreeMap<VmId, StoragePromise>> {
        self.promises.lock().expect("nobody panics while they hold the promises")
    }

    /// That a try failed now; none of what is never tried again.
    pub(super) fn failed_now(&self, operation: &Operation, lasting: bool) -> Option<TryFailure> {
        operation.intent.attempt.map(|_| TryFailure { at: self.node_now(), lasting })
    }

    /// Writes what happened to an operation that is under way. It was started, so nothing but a broken
    /// journal can refuse it.
    pub(super) async fn record(&self, op: OperationId, event: OpEvent) -> Result<(), Fatal> {
        let appended = self.journal.append(Record::op(OpRecord { op, event })).await;
        appended.map(drop).map_err(Fatal::Journal)
    }

    /// Makes a record durable that something depends on: the caller sends nothing unless this succeeds. Refused on a
    /// disk that is nearly full.
    pub(super) async fn append(&self, record: Record) -> Result<(), EngineError> {
        match self.journal.append(record).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_fatal() => Err(Fatal::Journal(error).into()),
            Err(error) => Err(Refusal::new(ReasonCode::Storage, error.to_string()).into()),
        }
    }

    /// The same for a record that nothing depends on: on a nearly full disk it is left out.
    pub(super) async fn append_if_room(&self, record: Record) -> Result<(), Fatal> {
        match self.append(record).await {
            Ok(()) => Ok(()),
            Err(error) => error.refusal().map(drop),
        }
    }

    /// Keeps approvals from being judged while it is held. Whoever waits for it lets the lanes go on.
    pub(super) async fn judging(&self) -> Option<OwnedMutexGuard<()>> {
        let lock = Arc::clone(&self.approvals.as_ref()?.judging_lock);
        Some(lock.lock_owned().await)
    }

    /// Whether an operator has frozen this host.
    pub(super) fn is_frozen(&self) -> bool {
        (self.frozen)()
    }

    /// Whether this host changes guests, by its own policy.
    pub(super) fn host_mode(&self) -> ReconcileMode {
        if (self.observes)() { ReconcileMode::Observe } else { ReconcileMode::Enforce }
    }

    /// Keeps which guests are only observed now, for what was planned before.
    pub(super) fn keep_modes(&self, desired: &Desired) {
        let is_observed = |guest: &&DeclaredGuest| guest.mode == ReconcileMode::Observe;
        let observed = desired.guests.values().filter(is_observed).map(|guest| guest.id.vmid);
        *self.lock_observed() = observed.collect();
    }

    /// Who says by now, in the host's policy or the newest desired state, that a guest is only observed.
    pub(super) fn observed_by(&self, vmid: VmId) -> Option<ObservedBy> {
        let guest = self.lock_observed().contains(&vmid).then_some(ObservedBy::Guest);
        match self.host_mode() {
            ReconcileMode::Observe => Some(ObservedBy::Host),
            ReconcileMode::Enforce => guest,
        }
    }

    fn lock_observed(&self) -> MutexGuard<'_, BTreeSet<VmId>> {
        self.observed.lock().expect("nobody panics while they hold the modes")
    }

    pub(super) fn tell(&self, progress: Progress) {
        (self.listener)(progress);
    }
}

impl fmt::Debug for EngineContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineContext").field("owner", &self.owner).finish_non_exhaustive()
    }
}
