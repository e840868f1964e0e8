//! The engine: owns the lanes and brings guests to what is declared, one pass after the other.
//!
//! ```text
//!   start ── what was in flight: lanes held, settled by evidence ──┐
//!                                                                  ▼
//!   pass (reconcile.rs): observe ─> plan ─> submit ─> lanes (lane.rs): gate ─> send ─> settle ─> journal
//!                                                                  │
//!   work: awaits what becomes of it, and nothing else drives it <──┘
//! ```
//!
//! `apply` is one pass and its work; `run` is passes and work for ever; the harness drops the whole engine at any
//! await point, as a crash would. It must never decide what core decides, nor start a task nobody owns.

mod approvals;
mod context;
mod error;
mod gate;
mod lane;
mod memory;
mod pass;
mod settle;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use evenkeel_core::desired::selection::PassScope;
use evenkeel_core::model::id::{OperationId, VmId};
use evenkeel_core::model::reason::{ReasonCode, Refusal};
use evenkeel_core::operate::lane::{Job, LaneBusy, LaneLimits, LaneTable, Sharing, SourceLane};
use evenkeel_core::operate::operation::{OpEvent, OpRecord, OpState, Operation, Resolution};
use evenkeel_core::sign::{Nonce, PayloadHash};
use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::time::Instant;

pub use approvals::approval_context::{ApprovalContext, ApprovalContextError, HubSigner, ItemSeal};
pub use approvals::hub::{AnchorState, AnchorWatch};
pub use approvals::{ApprovalOrigin, Submitted};
pub(crate) use approvals::{RequestError, RequestTaken};
pub use context::EngineContext;
pub use error::{EngineError, Fatal, PassError};
pub use gate::cleared::Cleared;
pub(crate) use gate::create_bounds::{HubKnown, early as early_bounds, node_time};
pub(crate) use gate::volumes::{loose_of, volumes_of};
pub(crate) use memory::backups::memories_in;
pub(crate) use memory::bins::bins_in;
pub use memory::kept_warnings::{KeptWarning, heard_warnings, kept_warnings};
pub(crate) use pass::findings::{Findings, LookWishes, PERSONS_PATIENCE};
pub use pass::node_look::{LookTurn, NodeLook};

pub(crate) use approvals::collected::signatures_of;
pub use approvals::pending::{KeptItem, ReplacedItem};
pub(crate) use approvals::pending::{waiting, waiting_by_op};
pub use approvals::withdraw::{WithdrawError, records as withdraw_records};
pub use evenkeel_core::gate::approval::RaisedBy;
pub use lane::progress::Progress;
pub use lane::task_progress::{LogView, LogViewers};
pub use pass::reconcile::{BegunPass, PassCause, PassId};
pub use pass::report::{GuestError, Hold, OpOutcome, OpReport, Report};

use crate::journal::resolve::RESOLVED;
use crate::journal::{JournalState, Note, Record, Retry, seconds};
use crate::observe::remembering::NodeMemory;
use crate::pve::Client;
use crate::queue::{JobEvent as LaneEvent, Queue};
use approvals::RefusalCount;
use approvals::pending::NotRaised;
use lane::OpResult;
use settle::{Settled, SettledBy, settle, why};

/// The lanes at work.
pub struct Engine {
    context: EngineContext,
    queue: Queue<OpResult>,
    settling: FuturesUnordered<BoxFuture<'static, SettleEnd>>,
    /// Operations of unknown outcome, and the job that holds their lane. Looked at again every pass.
    unknown: BTreeMap<OperationId, UnsettledOp>,
    passes: BTreeMap<PassId, RunningPass>,
    /// Which pass an operation belongs to, and what is said of it if it never runs.
    /// Approved acts belong to none.
    submitted: BTreeMap<OperationId, (Option<PassId>, OpReport)>,
    /// Nonces whose act is in its lane, and the statement each was used for.
    signed: BTreeMap<Nonce, (OperationId, PayloadHash)>,
    told: VecDeque<EngineEvent>,
    refusals: RefusalCount,
    /// The same for what a hub brings, which counts by itself.
    hub_refusals: RefusalCount,
    /// What the last pass could not put before a signer.
    not_raised: NotRaised,
    /// The items of the last pass, while they are being raised.
    following: Option<BoxFuture<'static, FollowEnd>>,
    /// What looks beside guests have found, and those under way.
    findings: Findings,
    next_pass: PassId,
    /// What passes keep of their readings.
    memory: NodeMemory,
    /// Guests something was done to, or tried: whatever is remembered of them is read again.
    touched: BTreeSet<VmId>,
}

/// An operation whose end is not known yet.
#[derive(Debug, Clone)]
struct UnsettledOp {
    /// The name its lane is held under.
    job: OperationId,
    vmid: VmId,
    /// When the node had taken its request, once that was found.
    taken: Option<Instant>,
    /// For whom it is settled: what was in flight at the start for recovery, what this life sent for its lane.
    settler: SettledBy,
    /// Whether somebody looks for evidence right now.
    looking: bool,
    /// The operation the journal has not closed and why nobody knows its end, once that was found.
    doubt: Option<(OperationId, String)>,
}

struct SettleEnd {
    op: OperationId,
    ended: Result<Option<Settled>, Fatal>,
}

/// What became of the items that the plan of a pass about these guests wants.
struct FollowEnd {
    pass: PassId,
    scope: PassScope,
    ended: Result<NotRaised, Fatal>,
}

/// A pass whose actions have not all ended.
struct RunningPass {
    report: Report,
    open: usize,
}

/// What became of something.
#[derive(Debug)]
pub enum EngineEvent {
    /// An action ended.
    Op(Box<OpReport>),
    /// An operation that was in flight at the start, or unknown, was closed by evidence.
    Settled(Box<Operation>),
    /// All actions of a pass have ended.
    Pass {
        /// Which.
        id: PassId,
        /// What came of it.
        report: Box<Report>,
    },
}

impl Engine {
    /// Takes up what the journal says is in flight, before anything new: those lanes are shut until evidence or an
    /// operator ends them. Waits for nothing, so a node that is down delays nobody.
    pub async fn start(context: EngineContext, limits: LaneLimits) -> Result<Self, Fatal> {
        let ambient = context.ambient.clone();
        let now = move || seconds(ambient.now());
        let queue = Queue::new(LaneTable::new(limits), std::sync::Arc::new(now));
        let in_flight = in_flight(&context).await?;
        let mut engine = Self {
            context,
            queue,
            settling: FuturesUnordered::new(),
            unknown: BTreeMap::new(),
            passes: BTreeMap::new(),
            submitted: BTreeMap::new(),
            signed: BTreeMap::new(),
            told: VecDeque::new(),
            refusals: RefusalCount::default(),
            hub_refusals: RefusalCount::default(),
            not_raised: NotRaised::new(),
            following: None,
            findings: Findings::default(),
            next_pass: PassId::FIRST,
            memory: NodeMemory::default(),
            touched: BTreeSet::new(),
        };
        for operation in in_flight {
            let job = held_job(&operation);
            engine.queue.hold(job)?;
            let vmid = operation.intent.guest.vmid;
            engine.mark_unknown(operation.id, operation.id, vmid, SettledBy::Recovery);
        }
        engine.recheck_unknown();
        Ok(engine)
    }

    /// The next thing that became of something; never returns while nothing is under way. Dropping the future loses
    /// nothing.
    pub async fn work(&mut self) -> Result<EngineEvent, Fatal> {
        loop {
            if let Some(event) = self.told.pop_front() {
                return Ok(event);
            }
            self.turn().await?;
        }
    }

    /// The next thing that happens in the lanes or beside them. Dropping the future loses nothing.
    async fn turn(&mut self) -> Result<(), Fatal> {
        // In a fixed order, so that a run can be replayed.
        tokio::select! {
            biased;
            event = next_of(&mut self.queue) => self.lane_told(event?),
            Some(end) = self.settling.next() => self.settled(end),
            end = next_followed(&mut self.following) => self.followed(end),
            () = self.findings.hear() => Ok(()),
        }
    }

    /// Whether nothing is under way or waits to be told. Operations of unknown outcome that nobody looks at now do not
    /// count.
    pub fn is_idle(&self) -> bool {
        let is_raising = self.following.is_some();
        self.told.is_empty() && self.settling.is_empty() && self.submitted.is_empty() && !is_raising
    }

    /// Whether evidence is being looked for on operations that were in flight or unknown.
    pub fn is_settling(&self) -> bool {
        !self.settling.is_empty()
    }

    /// What a guest is busy with.
    pub fn busy(&self, vmid: VmId) -> Option<LaneBusy> {
        self.queue.busy(vmid)
    }

    /// Operations submitted and not ended.
    pub fn queue_depth(&self) -> usize {
        self.submitted.len()
    }

    /// The way to the node.
    pub(crate) fn client(&self) -> &Client {
        &self.context.client
    }

    /// Operations whose outcome is not known.
    pub fn unknown(&self) -> impl Iterator<Item = (OperationId, VmId)> {
        self.unknown.iter().map(|(op, unsettled)| (*op, unsettled.vmid))
    }

    /// What the journal says is in flight: sent, and its end not known.
    pub async fn in_flight(&self) -> Result<Vec<Operation>, Fatal> {
        in_flight(&self.context).await
    }

    /// Begins nothing more and awaits what was sent until the deadline; what is then still in flight is in the journal,
    /// and the next start takes it up.
    pub async fn shut_down(&mut self, within: Duration) -> Result<Vec<EngineEvent>, Fatal> {
        self.queue.shut_down()?;
        let deadline = Instant::now() + within;
        let mut events = Vec::new();
        while !self.submitted.is_empty() || !self.told.is_empty() {
            match tokio::time::timeout_at(deadline, self.work()).await {
                Ok(event) => events.push(event?),
                Err(_) => break,
            }
        }
        Ok(events)
    }

    /// Takes an operator's word on an operation of unknown outcome: into the journal, with a note of who says so and
    /// why, and its lane opens. Refused, with nothing changed, if it is not unknown now.
    pub async fn resolve(
        &mut self,
        op: OperationId,
        outcome: Resolution,
        note: String,
    ) -> Result<(), EngineError> {
        let found = settle::load(&self.context, op).await?.map(|(operation, _)| operation.state);
        if !matches!(found, Some(OpState::Unknown { .. })) {
            let state = found.as_ref().map_or("not open", OpState::as_str);
            let why = format!("{op} is {state}, and only an unknown outcome is closed by hand");
            return Err(Refusal::new(ReasonCode::Stale, why).into());
        }
        // The note first: no crash leaves a closed operation without the name of the one who closed it.
        let note = Record::Note(Note { what: RESOLVED.to_owned(), text: note });
        let event = OpEvent::Resolved { outcome };
        for record in [note, Record::op(OpRecord { op, event })] {
            self.context.append(record).await?;
        }
        Ok(self.release(op)?)
    }

    /// A person wants a guest to be tried at once, whatever failed before and whoever made it, and has heard what its acts
    /// warned of. Tells whether there was anything.
    pub async fn retry(&mut self, guest: VmId, by: String) -> Result<bool, EngineError> {
        let contested = self.context.making().await?.contested(guest).is_some();
        let waited = contested || self.context.failures().await?.knows(guest);
        if waited {
            self.context.append(Record::Retry(Retry { guest, by })).await?;
        }
        let read = self.context.journal.read(move |state, _| heard_warnings(state, guest)).await;
        let heard = read.map_err(Fatal::Journal)?;
        let found = waited || !heard.is_empty();
        for record in heard {
            self.context.append(record).await?;
        }
        Ok(found)
    }

    /// An operator closed an operation by hand: its lane opens.
    pub fn release(&mut self, op: OperationId) -> Result<(), Fatal> {
        if let Some(unsettled) = self.unknown.remove(&op) {
            self.queue.release(unsettled.job)?;
        }
        Ok(())
    }

    /// Makes durable what is due by what the journal says; on a nearly full disk it stays due.
    pub async fn keep_due(
        &self,
        due: impl FnOnce(&JournalState) -> Vec<Record> + Send + 'static,
    ) -> Result<(), Fatal> {
        let due = self.context.journal.read(|state, _| due(state)).await.map_err(Fatal::Journal)?;
        for record in due {
            self.context.append_if_room(record).await?;
        }
        Ok(())
    }

    /// Awaits something that does not need the lanes, while they go on.
    pub(crate) async fn drive_lanes_until<T, E: From<Fatal>>(
        &mut self,
        other: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        tokio::pin!(other);
        loop {
            tokio::select! {
                biased;
                done = &mut other => return done,
                done = self.turn() => done?,
            }
        }
    }

    fn lane_told(&mut self, event: LaneEvent<OpResult>) -> Result<(), Fatal> {
        match event {
            LaneEvent::Ended { op: job, result } => {
                let reports = result?;
                for report in &reports {
                    if let OpOutcome::Unknown { why } = &report.end {
                        self.mark_unknown(report.op, job, report.guest.vmid, SettledBy::Lane);
                        self.note_doubt(report.op, report.op, why);
                    }
                }
                self.ended(job, reports);
            }
            LaneEvent::Panicked { op: job, message } => {
                if let Some((_, mut report)) = self.submitted.get(&job).cloned() {
                    report.end = OpOutcome::Unknown { why: format!("evenkeel failed: {message}") };
                    self.mark_unknown(job, job, report.guest.vmid, SettledBy::Lane);
                    self.recheck_unknown();
                    self.ended(job, vec![report]);
                }
            }
            LaneEvent::Skipped(job) => {
                if let Some((_, report)) = self.submitted.get(&job).cloned() {
                    self.ended(job, vec![report]);
                }
            }
        }
        Ok(())
    }

    fn ended(&mut self, job: OperationId, reports: Vec<OpReport>) {
        let Some((pass, _)) = self.submitted.remove(&job) else {
            return;
        };
        self.signed.retain(|_, (op, _)| *op != job);
        self.touched.extend(reports.iter().map(|report| report.guest.vmid));
        let told = reports.iter().map(|report| EngineEvent::Op(Box::new(report.clone())));
        self.told.extend(told);
        let Some(pass) = pass else {
            return;
        };
        if let Some(running) = self.passes.get_mut(&pass) {
            for report in reports {
                running.report.count(report);
            }
            running.open -= 1;
        }
        self.close_pass(pass);
    }

    fn close_pass(&mut self, id: PassId) {
        if self.passes.get(&id).is_some_and(|running| running.open == 0)
            && let Some(running) = self.passes.remove(&id)
        {
            self.told.push_back(EngineEvent::Pass { id, report: Box::new(running.report) });
        }
    }

    fn mark_unknown(&mut self, op: OperationId, job: OperationId, vmid: VmId, settler: SettledBy) {
        let unsettled =
            UnsettledOp { job, vmid, taken: None, settler, looking: false, doubt: None };
        self.unknown.insert(op, unsettled);
    }

    /// Remembers why nobody knows how an operation ended. It is logged when it changes, not at every look.
    fn note_doubt(&mut self, known_as: OperationId, op: OperationId, why: &str) {
        let Some(unsettled) = self.unknown.get_mut(&known_as) else {
            return;
        };
        let doubt = Some((op, why.to_owned()));
        if unsettled.doubt != doubt {
            let vmid = unsettled.vmid;
            tracing::warn!(%op, guest = %vmid, why, "the outcome is unknown; the guest's lane stays shut");
            unsettled.doubt = doubt;
        }
    }

    /// The operation that keeps a guest's lane shut because nobody knows how it ended, and why.
    fn unknown_on(&self, vmid: VmId) -> Option<(OperationId, &str)> {
        let mut doubts = self.unknown.values().filter(|unsettled| unsettled.vmid == vmid);
        let (op, why) = doubts.find_map(|unsettled| unsettled.doubt.as_ref())?;
        Some((*op, why))
    }

    /// Looks for evidence on every operation in doubt that nobody looks at. Every pass does so; an agent for which
    /// nothing is declared makes no passes, and asks for it.
    pub fn recheck_unknown(&mut self) {
        for (op, unsettled) in &mut self.unknown {
            if !std::mem::replace(&mut unsettled.looking, true) {
                let context = self.context.clone();
                let op = *op;
                let UnsettledOp { vmid, taken, settler, .. } = *unsettled;
                let looking = async move {
                    SettleEnd { op, ended: settle_lane(&context, op, vmid, taken, settler).await }
                };
                self.settling.push(looking.boxed());
            }
        }
    }

    fn settled(&mut self, end: SettleEnd) -> Result<(), Fatal> {
        let SettleEnd { op, ended } = end;
        match ended? {
            Some(Settled { operation, taken, .. }) if operation.is_in_flight() => {
                self.note_doubt(op, operation.id, why(&operation.state));
                if let Some(unsettled) = self.unknown.get_mut(&op) {
                    unsettled.looking = false;
                    unsettled.taken = taken;
                }
            }
            closed => {
                self.release(op)?;
                if let Some(Settled { operation, .. }) = closed {
                    self.told.push_back(EngineEvent::Settled(Box::new(operation)));
                }
            }
        }
        Ok(())
    }
}

async fn in_flight(context: &EngineContext) -> Result<Vec<Operation>, Fatal> {
    let read = context.journal.read(|state, _| state.ledger().in_flight().cloned().collect());
    read.await.map_err(Fatal::Journal)
}

/// Settles what holds a lane. An operation that was tried again and then panicked is known by the name of its
/// first try; the one in doubt is the one the journal has not closed, and a guest never has two of those.
async fn settle_lane(
    context: &EngineContext,
    op: OperationId,
    vmid: VmId,
    taken: Option<Instant>,
    settler: SettledBy,
) -> Result<Option<Settled>, Fatal> {
    let open = context.journal.read(move |state, _| {
        let mut in_flight = state.ledger().in_flight();
        in_flight.find(|operation| operation.intent.guest.vmid == vmid).map(|found| found.id)
    });
    let open = open.await.map_err(Fatal::Journal)?;
    settle(context, open.unwrap_or(op), taken, settler).await
}

/// The next event of a queue; never if nothing runs.
async fn next_of(queue: &mut Queue<OpResult>) -> Result<LaneEvent<OpResult>, Fatal> {
    match queue.next().await? {
        Some(event) => Ok(event),
        None => std::future::pending().await,
    }
}

/// The end of what is under way; never if nothing is.
async fn next_followed(following: &mut Option<BoxFuture<'static, FollowEnd>>) -> FollowEnd {
    let end = match following {
        Some(raising) => raising.await,
        None => std::future::pending().await,
    };
    *following = None;
    end
}

/// The lanes an operation in flight holds.
fn held_job(operation: &Operation) -> Job {
    let intent = &operation.intent;
    // Which kind the source has is not recorded; alone is right for both.
    let source = intent.clone_source.map(|vmid| SourceLane { vmid, sharing: Sharing::Exclusive });
    Job { op: operation.id, target: intent.guest.vmid, source, storage: None }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("unknown", &self.unknown).finish_non_exhaustive()
    }
}
