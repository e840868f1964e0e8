//! What an operation needs to act: the client, the journal, the clock, and somebody to tell.
//!
//! Shared by every operation under way. It must never hold anything that one operation changes for another.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use evenkeel_core::gate::create_policy::CreatePolicy;
use evenkeel_core::gate::new_guest::NewGuest;
use evenkeel_core::model::id::OperationId;
use evenkeel_core::model::reason::{ReasonCode, Refusal};
use evenkeel_core::model::vmid_ranges::VmidRanges;
use evenkeel_core::operate::back_off::{FailureMemory, TryFailure};
use evenkeel_core::operate::operation::{MakingMemory, OpEvent, OpRecord, Operation, UnixSeconds};
use evenkeel_core::sign::clock::ClockReading;
use secrecy::SecretString;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use crate::ambient::{Ambient, new_operation};
use crate::cluster_files::ClusterFiles;
use crate::effective_clock;
use crate::engine::approvals::approval_context::ApprovalContext;
use crate::engine::error::{EngineError, Fatal};
use crate::engine::gate::host_modes::HostModes;
use crate::engine::gate::shared_limits::SharedLimits;
use crate::engine::lane::progress::{Progress, ProgressWatchers};
use crate::engine::lane::task_progress::LogViewers;
use crate::engine::pass::shared_readings::SharedReadings;
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
    /// The node, as far as the agent knows it without asking.
    pub(super) node: LocalNode,
    /// What holds every act, or every planned one: freeze and modes.
    pub(super) modes: HostModes,
    /// Answers about the node that makings share.
    pub(super) shared: Arc<SharedReadings>,
    /// What operations count together, and take turns for.
    pub(super) limits: SharedLimits,
    /// Where passwords of new guests are; without it no guest that wants one is made.
    pub(super) secrets: Option<FirstSecrets>,
    /// What judges destructive acts; without it they all wait.
    pub(super) approvals: Option<ApprovalContext>,
    /// Who hears of progress, and sees what tasks log.
    pub(super) watchers: ProgressWatchers,
}

/// The node, as far as the agent knows it without asking.
#[derive(Clone)]
pub(super) struct LocalNode {
    /// Our token as tasks show it: `user@realm!token`.
    pub(super) owner: String,
    /// Its cluster file system, if it can be read.
    pub(super) cluster_files: Option<Arc<dyn ClusterFiles>>,
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
        Self {
            client,
            journal,
            ambient,
            node: LocalNode { owner, cluster_files: None },
            modes: HostModes::default(),
            shared: Arc::default(),
            limits: SharedLimits::default(),
            secrets: None,
            approvals: None,
            watchers: ProgressWatchers::default(),
        }
    }

    /// Where the node tells which configuration files were written; passes keep their readings of the others.
    #[must_use]
    pub fn remembering_by(mut self, cluster_files: Option<Arc<dyn ClusterFiles>>) -> Self {
        self.node.cluster_files = cluster_files;
        self
    }

    /// The same for somebody who has a turn and keeps others waiting, and whether a storage was given up for that.
    pub(super) fn in_haste(&self) -> (Self, Arc<AtomicBool>) {
        let (client, gave_up) = self.client.in_haste();
        (Self { client, ..self.clone() }, gave_up)
    }

    /// The node's cluster file system, if it can be read.
    pub(super) fn cluster_files(&self) -> Option<&dyn ClusterFiles> {
        self.node.cluster_files.as_deref()
    }

    /// Asked before every act whether an operator has frozen the host.
    #[must_use]
    pub fn frozen_when(mut self, frozen: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.modes.frozen = Arc::new(frozen);
        self
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
    pub fn observing_when(mut self, observes: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.modes.observes = Arc::new(observes);
        self
    }

    /// What judges destructive acts; without it they all wait.
    #[must_use]
    pub fn approved_by(self, approvals: Option<ApprovalContext>) -> Self {
        Self { approvals, ..self }
    }

    /// The numbers at which guests may be scratch; none unless root's file names them.
    #[must_use]
    pub fn with_scratch(mut self, scratch_vmids: VmidRanges) -> Self {
        self.limits.scratch_vmids = scratch_vmids;
        self
    }

    /// Who hears of progress while it happens.
    #[must_use]
    pub fn telling(mut self, listener: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.watchers.listener = Arc::new(listener);
        self
    }

    /// Whether whoever listens sees what tasks log while they are waited for. That takes a request a second for each.
    #[must_use]
    pub fn showing_logs(mut self, shows_logs: bool) -> Self {
        self.watchers.log_viewers = shows_logs.then(LogViewers::always);
        self
    }

    /// The same for viewers that come and go.
    #[must_use]
    pub fn showing_logs_to(mut self, viewers: LogViewers) -> Self {
        self.watchers.log_viewers = Some(viewers);
        self
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

    /// Guests we made, or tried to make.
    pub(super) async fn making(&self) -> Result<MakingMemory, Fatal> {
        let read = self.journal.read(|state, _| state.ledger().making().clone());
        read.await.map_err(Fatal::Journal)
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

    pub(super) fn tell(&self, progress: Progress) {
        (self.watchers.listener)(progress);
    }
}

impl fmt::Debug for EngineContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineContext").field("owner", &self.node.owner).finish_non_exhaustive()
    }
}
