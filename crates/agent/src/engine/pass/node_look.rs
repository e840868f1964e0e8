//! The first half of a pass: the node is read and planned, beside everything else.
//!
//! ```text
//!   begin_look ──> NodeLook: observe ─> what lanes do now ─> look beside guests, a moment ─> plan ─> Preview
//!                     │                        ▲
//!                     └── next ── asks ────────┘ whoever drives it answers, and serves others meanwhile
//! ```
//!
//! A look owns everything it reads with and borrows nothing of the engine, so that a slow node holds up nobody: the daemon
//! hears its socket while one is under way. Dropped in the middle it leaves nothing remembered, and the next pass reads
//! everything. It only reads.

use std::collections::BTreeMap;
use std::ops::Deref;

use evenkeel_core::actual::Snapshot;
use evenkeel_core::desired::Desired;
use evenkeel_core::desired::selection::PassScope;
use evenkeel_core::gate::create_policy::{CreateContext, hub_volumes};
use evenkeel_core::model::id::VmId;
use evenkeel_core::operate::back_off::FailureMemory;
use evenkeel_core::operate::operation::Provenance;
use evenkeel_core::plan::{GuestBusy, PlanContext};
use futures_util::future::{FutureExt as _, LocalBoxFuture};
use tokio::sync::{mpsc, oneshot};

use crate::engine::error::{Fatal, PassError};
use crate::engine::gate::create_bounds::{HubKnown, early};
use crate::engine::pass::findings::{Findings, LookWishes, MOMENT, PERSONS_PATIENCE};
use crate::engine::pass::reconcile::PassCause;
use crate::engine::{Engine, EngineContext};
use crate::lock_owners::name_lock_owners;
use crate::observe::remembering::{NodeMemory, SeenNode};
use crate::preview::{
    Preview, ReadInputs, guests_asked_about, journal_context, observe_declared,
    plan_knowing_others, shown,
};

/// A look at the node under way.
pub struct NodeLook<'d> {
    reading: LocalBoxFuture<'d, LookEnd>,
    asked: mpsc::Receiver<LanesAsked>,
}

/// A look wants to know which lanes are at work.
pub struct LanesAsked(oneshot::Sender<BTreeMap<VmId, GuestBusy>>);

/// What a look needs, or brought. The engine takes it.
pub enum LookTurn {
    /// It asks about the lanes.
    Asks(LanesAsked),
    /// It has ended.
    Ended(Box<LookEnd>),
}

/// What a look brought, with what it read by.
pub struct LookEnd {
    memory: NodeMemory,
    findings: Findings,
    seen: Result<Preview, PassError>,
}

impl NodeLook<'_> {
    /// What it needs next, or its end; not to be asked again after that. Dropping the future loses nothing.
    pub async fn next(&mut self) -> LookTurn {
        tokio::select! {
            biased;
            Some(asked) = self.asked.recv() => LookTurn::Asks(asked),
            end = &mut self.reading => LookTurn::Ended(Box::new(end)),
        }
    }
}

/// What a look reads by.
struct LookTask {
    context: EngineContext,
    memory: NodeMemory,
    findings: Findings,
    scope: PassScope,
    cause: PassCause,
    asking: mpsc::Sender<LanesAsked>,
}

impl Engine {
    /// Reads the node and plans. Nothing is sent.
    pub async fn look(
        &mut self,
        desired: &Desired,
        scope: PassScope,
        cause: PassCause,
    ) -> Result<Preview, PassError> {
        let mut look = self.begin_look(desired, scope, cause);
        loop {
            let next = async { Ok::<_, PassError>(look.next().await) };
            let turn = self.drive_lanes_until(next).await?;
            if let Some(seen) = self.take_turn(turn) {
                return seen;
            }
        }
    }

    /// Begins to read the node. Whoever calls this asks the look for its turns and hands them to `take_turn`.
    pub fn begin_look<'d>(
        &mut self,
        desired: impl Deref<Target = Desired> + 'd,
        scope: PassScope,
        cause: PassCause,
    ) -> NodeLook<'d> {
        self.context.modes.keep_modes(&desired);
        // Operations of unknown outcome are looked at once more; their lanes stay shut meanwhile.
        self.recheck_unknown();
        let mut memory = std::mem::take(&mut self.memory);
        match (cause, &scope) {
            // A person is shown what is there now, whatever is remembered.
            (PassCause::Person, PassScope::Whole) => memory.forget_all(),
            // Chosen guests are asked for whatever is remembered of them.
            (PassCause::Person, PassScope::Chosen(_)) | (PassCause::Schedule, _) => {}
        }
        for vmid in std::mem::take(&mut self.touched) {
            memory.forget(vmid);
        }
        let (asking, asked) = mpsc::channel(1);
        let findings = std::mem::take(&mut self.findings);
        let context = self.context.clone();
        let task = LookTask { context, memory, findings, scope, cause, asking };
        NodeLook { reading: task.carry_out(desired).boxed_local(), asked }
    }

    /// Gives a look what it asks for; its end, once it has come.
    pub fn take_turn(&mut self, turn: LookTurn) -> Option<Result<Preview, PassError>> {
        match turn {
            LookTurn::Asks(LanesAsked(answer)) => {
                // A look that was dropped meanwhile wants no answer.
                let _ = answer.send(self.lanes_at_work());
                None
            }
            LookTurn::Ended(end) => {
                let LookEnd { memory, findings, seen } = *end;
                (self.memory, self.findings) = (memory, findings);
                Some(seen)
            }
        }
    }

    fn lanes_at_work(&self) -> BTreeMap<VmId, GuestBusy> {
        let busy = self.queue.all_busy().into_iter().map(|(vmid, busy)| {
            let unknown = self.unknown_on(vmid);
            let op = unknown.map_or(busy.op, |(op, _)| op);
            let unknown = unknown.map(|(_, why)| why.to_owned());
            (vmid, GuestBusy { op, since: shown(busy.since), unknown, left: None })
        });
        busy.collect()
    }
}

impl LookTask {
    async fn carry_out(mut self, desired: impl Deref<Target = Desired>) -> LookEnd {
        let seen = self.look(&desired).await;
        let Self { memory, findings, .. } = self;
        LookEnd { memory, findings, seen }
    }

    async fn look(&mut self, whole: &Desired) -> Result<Preview, PassError> {
        // Of chosen guests nothing else is read or planned.
        let scope = self.scope.clone();
        let desired = &*scope.part_of(whole);
        let context = self.context.clone();
        let client = &context.client;
        // Read the node.
        let also = context.journal.read(|state, _| guests_asked_about(state));
        let also = also.await.map_err(Fatal::Journal)?;
        let memory = &mut self.memory;
        let looked = &mut ReadInputs { memory, files: context.cluster_files(), also };
        let reading = observe_declared(client, desired, &scope, looked);
        let SeenNode { mut actual, compared } = reading.await.map_err(PassError::Actual)?;
        // Plan, knowing what is frozen, busy, remembered, and failed a while ago.
        // In a box, because everybody who makes a pass would carry it.
        let known = Box::pin(self.known(whole, desired, &actual)).await?;
        let planning = plan_knowing_others(client, &compared, &mut actual, &known);
        let mut plan = planning.await.map_err(PassError::Actual)?;
        // Name the task behind each lock, for people, as far as that takes only a moment.
        let (hasty, _) = client.in_haste();
        let naming = name_lock_owners(&hasty, &mut plan, &actual);
        let _ = tokio::time::timeout(self.patience(), naming).await;
        Ok(Preview { actual, plan, scope })
    }

    fn patience(&self) -> std::time::Duration {
        match self.cause {
            PassCause::Schedule => MOMENT,
            PassCause::Person => PERSONS_PATIENCE,
        }
    }

    async fn known(
        &mut self,
        whole: &Desired,
        desired: &Desired,
        actual: &Snapshot,
    ) -> Result<PlanContext, Fatal> {
        let mut known = self.plan_context().await?;
        known.create = self.bounds(whole, actual).await?;
        let origins = self.origins(desired, &known).await?;
        let provenance = |guest| origins.get(&guest).cloned().unwrap_or_else(Provenance::none);
        let wishes = LookWishes {
            client: &self.context.client,
            policy: self.context.create_policy(),
            scratch_vmids: &self.context.limits.scratch_vmids,
            desired,
            actual,
        };
        self.findings.wish(&wishes, &known, provenance);
        let patience = self.patience();
        self.findings.wait(patience).await;
        self.findings.tell(&mut known);
        Ok(known)
    }

    /// What our journal knows of declared guests that we made.
    async fn origins(
        &self,
        desired: &Desired,
        known: &PlanContext,
    ) -> Result<BTreeMap<evenkeel_core::model::id::GuestId, Provenance>, Fatal> {
        if known.making.made_none() {
            return Ok(BTreeMap::new());
        }
        let declared = desired.guests.values().map(|guest| guest.id);
        let ours: Vec<_> = declared.filter(|id| known.making.scratch(*id).is_some()).collect();
        let origins = self.context.journal.read(move |state, _| {
            let origins = ours.iter().map(|id| (*id, state.ledger().provenance(*id)));
            origins.collect::<BTreeMap<_, _>>()
        });
        origins.await.map_err(Fatal::Journal)
    }

    /// What a hub may have made, by what this pass read. Lanes look again.
    async fn bounds(&self, desired: &Desired, actual: &Snapshot) -> Result<CreateContext, Fatal> {
        if !desired.guests.values().any(|guest| guest.by.is_hub()) {
            return Ok(CreateContext::default());
        }
        let known = HubKnown::read(&self.context).await?;
        self.context.limits.keep_hub_volumes(hub_volumes(desired, actual, &known.makings));
        let policy = self.context.create_policy();
        let now = self.context.node_now();
        Ok(early(policy, &known, desired, actual, now))
    }

    async fn plan_context(&self) -> Result<PlanContext, Fatal> {
        let told = self.context.journal.read(|state, _| journal_context(state));
        let told = told.await.map_err(Fatal::Journal)?;
        let failures = match self.cause {
            PassCause::Schedule => told.failures,
            PassCause::Person => FailureMemory::default(),
        };
        let busy = self.lanes_at_work().await;
        let frozen = self.context.modes.is_frozen();
        let now = self.context.node_now();
        let host_mode = self.context.modes.host_mode();
        let bin_life_s = self.context.approvals.as_ref().map(|known| known.policy.bin_life_s());
        Ok(PlanContext { frozen, host_mode, busy, failures, now, bin_life_s, ..told })
    }

    /// Which guests are left alone because their lane is at work. A lane takes nothing while it is, whatever a plan says.
    async fn lanes_at_work(&self) -> BTreeMap<VmId, GuestBusy> {
        let (answer, answered) = oneshot::channel();
        if self.asking.send(LanesAsked(answer)).await.is_err() {
            return BTreeMap::new();
        }
        answered.await.unwrap_or_default()
    }
}

impl std::fmt::Debug for NodeLook<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeLook").finish_non_exhaustive()
    }
}
