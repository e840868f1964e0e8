//! Looks at the world for one operation: the readings `core::recover::decide` asks for.
//!
//! Called by `settle`, and by `answer` for its read-back. It only reads. What could not be read is said to be
//! unreadable, never taken for a negative answer (invariant 14).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evenkeel_core::action_registry::Proof;
use evenkeel_core::actual::SnapshotPoint;
use evenkeel_core::actual::identity::identity;
use evenkeel_core::gate::allocation::allocates_on;
use evenkeel_core::gate::final_backup::find_archive;
use evenkeel_core::model::id::{GuestId, VmId};
use evenkeel_core::operate::operation::{
    IdentityHash, OpState, Operation, StartedIntent, UnixSeconds, Upid, VolumeId,
};
use evenkeel_core::operate::recover::{
    Evidence, Lock, NewVolumes, NumberUse, Postcondition, ProofLists, Question, Seen, TaskFact,
    TaskList, TaskSearch, could_be_ours, leaves_task, postcondition, search_tasks,
};
use tokio::time::Instant;

use crate::engine::EngineContext;
use crate::engine::error::Fatal;
use crate::engine::gate::guest_look::GuestLook;
use crate::engine::gate::identity_proof::{TASKS_LISTED_MAX, read_tasks, unread_task};
use crate::engine::gate::volumes::{is_listed, unnamed_after, volumes_of};
use crate::engine::lane::final_backup::archives;
use crate::engine::settle::nothing_names;
use crate::journal::Details;
use crate::observe::{has_quorum, observe_guest, observe_snapshots, observe_whole_snapshots};
use crate::pve::error::{Error, ErrorClass};
use crate::pve::list::UnreadRow;
use crate::pve::task::ExitStatus;
use crate::pve::{TaskFilter, TaskSource, wire};

/// What was seen, and what is worth keeping besides the evidence.
#[derive(Debug)]
pub(in crate::engine) struct EvidenceReader {
    pub(in crate::engine) evidence: Evidence,
    /// The guest as last read.
    pub(in crate::engine) look: Option<GuestLook>,
    /// How the task ended, in PVE's words.
    pub(in crate::engine) exit: Option<ExitStatus>,
    /// Volumes that had to stay named and that nothing named when it was last looked.
    pub(in crate::engine) unnamed: BTreeSet<VolumeId>,
    /// The time everything is reckoned by.
    pub(in crate::engine) clock: SettleClock,
}

/// How long an operation has been waited for, as a time that goes on from the moment the node took its request. It follows
/// our own steady clock: a clock of the node that is set meanwhile neither cuts a wait short nor makes it last for years.
/// After a restart nobody can say how much time has passed, so it begins anew.
///
/// It stands still until the node is known to have taken the request: while all its worker processes hang, a request waits
/// for one of them, and is carried out whenever one is free, whether or not anybody still waits for the answer.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct SettleClock {
    sent_at: UnixSeconds,
    taken: Option<Instant>,
}

impl SettleClock {
    /// For an operation whose request the node had taken at `taken`, as far as that is known.
    pub(in crate::engine) fn new(operation: &Operation, taken: Option<Instant>) -> Self {
        let sent_at = operation.sent().map_or(UnixSeconds(0), |(_, sent_at)| sent_at);
        // Whoever was told of a task was answered.
        let answered = matches!(operation.state, OpState::TaskRunning { found: false, .. });
        let taken = taken.or_else(|| answered.then(Instant::now));
        Self { sent_at, taken }
    }

    /// When the node had taken the request, if that is known.
    pub(in crate::engine) fn taken(self) -> Option<Instant> {
        self.taken
    }

    /// The time by it.
    pub(in crate::engine) fn now(self) -> UnixSeconds {
        self.sent_at.plus(self.taken.map_or(0, |taken| taken.elapsed().as_secs()))
    }

    /// How long it is until then.
    pub(in crate::engine) fn until(self, then: UnixSeconds) -> Duration {
        Duration::from_secs(then.0.saturating_sub(self.now().0))
    }
}

impl EvidenceReader {
    /// Nothing seen yet.
    pub(in crate::engine) fn new(clock: SettleClock) -> Self {
        let look = None;
        let exit = None;
        let unnamed = BTreeSet::new();
        Self { evidence: Evidence::default(), look, exit, unnamed, clock }
    }

    /// Answers one question.
    pub(in crate::engine) async fn look(
        &mut self,
        context: &EngineContext,
        operation: &Operation,
        details: &Details,
        question: Question,
    ) -> Result<(), Fatal> {
        match question {
            Question::TaskStatus => {
                let found = self.task_status(context, operation).await;
                self.evidence.task = Some(self.seen(found));
            }
            Question::TaskList => {
                let found = task_list(context, operation).await?;
                self.evidence.search = Some(self.seen(found));
            }
            Question::Lock => {
                let found = lock(context, operation).await;
                self.evidence.lock = Some(self.seen(found));
            }
            Question::Postcondition => {
                let found = self.postcondition(context, operation, details).await;
                self.evidence.postcondition = Some(self.seen(found));
            }
            Question::NumberUse => {
                let found = number_use(context, operation.intent.guest.vmid).await;
                self.evidence.number = Some(self.seen(found));
            }
            Question::Volumes => {
                let found = new_volumes(context, operation, details).await;
                self.evidence.volumes = Some(self.seen(found));
            }
        }
        Ok(())
    }

    /// Asks something that the node's worker processes answer, too. They take requests in the order of their coming: once
    /// this one is answered, the operation's has been taken, and the clock goes. Tells whether it does.
    pub(in crate::engine) async fn see_taken(
        &mut self,
        context: &EngineContext,
        guest: GuestId,
    ) -> bool {
        let answered = match context.client.guest_status(guest).await {
            Ok(_) => true,
            Err(error) => is_gone(&error),
        };
        if answered {
            self.clock.taken.get_or_insert_with(Instant::now);
        }
        answered
    }

    /// Who the guest is as last read.
    pub(in crate::engine) fn identity(&self) -> Option<IdentityHash> {
        self.look.as_ref().and_then(|look| identity(&look.guest).ok())
    }

    /// Why nobody knows what became of it, if that is because volumes are named by nothing any more.
    pub(in crate::engine) fn doubt(&self, guest: GuestId) -> Option<String> {
        (!self.unnamed.is_empty()).then(|| nothing_names(guest, &self.unnamed))
    }

    fn seen<T>(&self, found: T) -> Seen<T> {
        Seen { at: self.clock.now(), found }
    }

    async fn task_status(&mut self, context: &EngineContext, operation: &Operation) -> TaskFact {
        let OpState::TaskRunning { upid, .. } = &operation.state else {
            return TaskFact::Unreadable;
        };
        let told = context.client.task_status(upid).await;
        self.task_fact(told)
    }

    /// How the operation's task was said to be.
    pub(in crate::engine) fn see_task(&mut self, told: Result<wire::TaskStatus, Error>) {
        let found = self.task_fact(told);
        self.evidence.task = Some(self.seen(found));
    }

    fn task_fact(&mut self, told: Result<wire::TaskStatus, Error>) -> TaskFact {
        match told {
            Ok(wire::TaskStatus::Running) => TaskFact::Running,
            Ok(wire::TaskStatus::Ended(exit)) => self.ended(exit),
            Err(error) if error.class() == Some(&ErrorClass::NoSuchTask) => TaskFact::Forgotten,
            Err(_) => TaskFact::Unreadable,
        }
    }

    fn ended(&mut self, exit: ExitStatus) -> TaskFact {
        let status = match &exit {
            ExitStatus::Ok => TaskFact::Succeeded,
            ExitStatus::Warnings(_) => TaskFact::Warned,
            ExitStatus::Failed(_) => TaskFact::Failed,
            ExitStatus::UnexpectedStatus | ExitStatus::Unreadable(_) => TaskFact::Unclear,
        };
        self.exit = Some(exit);
        status
    }

    /// The guest against what the operation leaves behind.
    pub(in crate::engine) async fn postcondition(
        &mut self,
        context: &EngineContext,
        operation: &Operation,
        details: &Details,
    ) -> Postcondition {
        let params = written(details);
        let read = observe_guest(&context.client, operation.intent.guest).await;
        match read {
            Ok(guest) => {
                let look = GuestLook::new(guest);
                let intent = &operation.intent;
                let snapshots = snapshots(context, intent).await;
                let archive = archive(context, operation, &params).await;
                let volume = volume_listed(context, intent, &params).await;
                let lists = ProofLists { snapshots: snapshots.as_deref(), archive, volume };
                let found = postcondition(intent, &params, Some(&look.guest), lists);
                let unnamed = unnamed_after(&context.client, intent, &look.guest).await;
                self.look = Some(look);
                let Ok(unnamed) = unnamed else {
                    return Postcondition::Unreadable;
                };
                self.unnamed = unnamed;
                if self.unnamed.is_empty() { found } else { Postcondition::VolumeUnnamed }
            }
            Err(error) if is_gone(&error) => {
                let archive = archive(context, operation, &params).await;
                // A guest that went to another node took its volumes along: they are listed there.
                let vmid = operation.intent.guest.vmid;
                let volume = match number_use(context, vmid).await {
                    NumberUse::Free => volume_listed(context, &operation.intent, &params).await,
                    NumberUse::Taken | NumberUse::Unreadable => None,
                };
                let lists = ProofLists { snapshots: None, archive, volume };
                postcondition(&operation.intent, &params, None, lists)
            }
            Err(_) => Postcondition::Unreadable,
        }
    }
}

/// Whether its storage still lists the volume that was to go, where the outcome is told by that. A token that may not see
/// the guest's volumes is shown a list without them, which proves nothing.
async fn volume_listed(
    context: &EngineContext,
    intent: &StartedIntent,
    params: &BTreeMap<String, String>,
) -> Option<bool> {
    if intent.kind.row().proof != Proof::VolumeGone {
        return None;
    }
    let vmid = intent.guest.vmid;
    if is_listed(&context.client, vmid, params.get("volume")?).await.ok()? {
        return Some(true);
    }
    let sees = context.client.may(&format!("/vms/{vmid}"), "VM.Config.Disk").await;
    sees.ok().filter(|sees| *sees).map(|_| false)
}

/// The guest's snapshots, where the outcome is told by them; none if they cannot be read.
async fn snapshots(context: &EngineContext, intent: &StartedIntent) -> Option<Vec<SnapshotPoint>> {
    if !intent.kind.row().proof.needs_snapshots() {
        return None;
    }
    let read = match intent.kind.row().proof {
        // One that was cut off in the middle is listed, too.
        Proof::SnapshotListed => observe_whole_snapshots(&context.client, intent.guest).await,
        Proof::SnapshotParent
        | Proof::SnapshotGone
        | Proof::ArchiveListed
        | Proof::Configuration
        | Proof::VolumeSize
        | Proof::PowerState(_)
        | Proof::NumberFree
        | Proof::VolumeGone
        | Proof::VolumeOnStorage
        | Proof::IsTemplate
        | Proof::GuestMade
        | Proof::NotRead => observe_snapshots(&context.client, intent.guest).await,
    };
    read.ok()
}

/// Whether the backup with the operation's mark is listed, where the outcome is told by that.
async fn archive(
    context: &EngineContext,
    operation: &Operation,
    params: &BTreeMap<String, String>,
) -> Option<bool> {
    let intent = &operation.intent;
    if intent.kind.row().proof != Proof::ArchiveListed {
        return None;
    }
    let storage = params.get("storage")?.parse().ok()?;
    let listed = archives(&context.client, &storage, intent.guest).await.ok()?;
    let is_found = find_archive(&listed.archives, operation.id, intent.guest).is_ok();
    // One that is not found may be in a row that cannot be read.
    (is_found || listed.unread == 0).then_some(is_found)
}

fn is_gone(error: &Error) -> bool {
    error.class() == Some(&ErrorClass::GuestNotFound)
}

/// The parameters that were written. Of a secret nothing can be compared once the process that sent it has ended.
pub(in crate::engine) fn written(details: &Details) -> BTreeMap<String, String> {
    let text = |(key, value): (String, serde_json::Value)| Some((key, value.as_str()?.to_owned()));
    details.sent().into_iter().filter_map(text).collect()
}

async fn task_list(context: &EngineContext, operation: &Operation) -> Result<TaskSearch, Fatal> {
    let Ok(reading) = read_tasks(context).await else {
        return Ok(TaskSearch::Unreadable);
    };
    let claimed = claimed_by_others(context, operation).await?;
    Ok(search_tasks(operation, &TaskList::of(reading), &context.node.owner, &claimed))
}

/// Tasks that our other operations have recorded as theirs.
async fn claimed_by_others(
    context: &EngineContext,
    operation: &Operation,
) -> Result<BTreeSet<Upid>, Fatal> {
    let this = operation.id;
    let claimed = context.journal.read(move |state, _| state.ledger().tasks_of_others(this)).await;
    claimed.map_err(Fatal::Journal)
}

async fn lock(context: &EngineContext, operation: &Operation) -> Lock {
    let makes = operation.intent.kind.creates_guest();
    match context.client.guest_status(operation.intent.guest).await {
        // The lock of a stub tells only that somebody began: a worker that was killed leaves it for ever.
        Ok(status) if status.lock.is_some() && !makes => Lock::Held,
        Ok(_) => still_works(context, operation).await,
        Err(error) if is_gone(&error) => still_works(context, operation).await,
        Err(_) => Lock::Unreadable,
    }
}

/// Most tasks hold only a lock file while they work. Of several that could be the operation's none is adopted, and
/// yet one of them is: the lane must not open beside it.
async fn still_works(context: &EngineContext, operation: &Operation) -> Lock {
    if !leaves_task(operation, operation.furthest) {
        return Lock::Free;
    }
    let filter = TaskFilter {
        source: Some(TaskSource::Active),
        limit: Some(TASKS_LISTED_MAX),
        ..TaskFilter::default()
    };
    // The list of active tasks also shows those that have just ended.
    let makes = operation.intent.kind.creates_guest();
    let works = |task: &wire::TaskEntry| {
        let under_number = task.upid.task_id().parse() == Ok(operation.intent.guest.vmid);
        let ours = could_be_ours(operation, &context.node.owner, &task.upid);
        task.exit_status().is_none() && (ours || (makes && under_number))
    };
    // Whose row cannot be read may be at this guest until it has ended.
    let may_work = |row: &UnreadRow| {
        let task = unread_task(row);
        task.runs && task.may_concern(operation.intent.guest.vmid)
    };
    match context.client.tasks(&filter).await {
        Ok(tasks) if tasks.rows.iter().any(works) => Lock::Held,
        Ok(tasks) if tasks.unread.iter().any(may_work) => Lock::Held,
        Ok(_) => Lock::Free,
        Err(_) => Lock::Unreadable,
    }
}

/// Free only by a node that has quorum: another one may not have heard.
pub(in crate::engine) async fn number_use(context: &EngineContext, vmid: VmId) -> NumberUse {
    match context.client.vmid_is_free(vmid).await {
        Ok(false) => NumberUse::Taken,
        Ok(true) => free_by_quorum(context).await,
        Err(_) => NumberUse::Unreadable,
    }
}

/// What it is worth that a node has just called a number free.
pub(in crate::engine) async fn free_by_quorum(context: &EngineContext) -> NumberUse {
    match context.client.cluster_status().await {
        Ok(entries) if has_quorum(&entries) => NumberUse::Free,
        Ok(_) | Err(_) => NumberUse::Unreadable,
    }
}

async fn new_volumes(
    context: &EngineContext,
    operation: &Operation,
    details: &Details,
) -> NewVolumes {
    let Some(before) = &operation.intent.volumes_before else {
        return NewVolumes::None;
    };
    let guest = operation.intent.guest;
    let storages = allocates_on(operation.intent.kind, guest.kind, &written(details));
    match volumes_of(&context.client, guest.vmid, &storages).await {
        Ok(now) => NewVolumes::between(before, &now),
        Err(_) => NewVolumes::Unreadable,
    }
}
