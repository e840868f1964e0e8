//! The spine: one pass, the stages in order.
//!
//! ```text
//!   look      look again at what is unknown ─> observe the node ─> plan ─> name the tasks behind locks
//!   submit    keep what was decided ─> raise what needs a signature ─> each guest's actions into its lane
//!   lane.rs   what happens inside a lane
//! ```
//!
//! A pass never waits for lanes: a guest whose lane is at work is reported busy and left alone. What becomes of the
//! submitted actions is told by `Engine::work`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use evenkeel_core::actual::Snapshot;
use evenkeel_core::back_off::{AttemptHash, FailureMemory};
use evenkeel_core::bin::effective;
use evenkeel_core::compensation::RemovalVerdict;
use evenkeel_core::create_policy::{CreateContext, hub_volumes};
use evenkeel_core::desired::{self, Desired};
use evenkeel_core::gate::NodeSite;
use evenkeel_core::id::{OperationId, VmId};
use evenkeel_core::lane::{Job, LaneRefusal};
use evenkeel_core::operation::Provenance;
use evenkeel_core::plan::{GuestBusy, GuestPlan, Plan, PlanContext};
use evenkeel_core::reason::ReasonCode;
use evenkeel_core::selection::PassScope;
use futures_util::future::FutureExt as _;

use super::create_bounds::{HubKnown, early, source_contents};
use super::error::{Fatal, PassError};
use super::gate::owed::owed;
use super::gate::{Order, PlannedOrder};
use super::lane::OpResult;
use super::pending::NotRaised;
use super::removals::RemovalReader;
use super::report::{GuestError, Hold, OpEnd, OpReport, Report};
use super::{Engine, RunningPass, backups, bins, decisions, lane, pending};
use crate::lock_owners::name_lock_owners;
use crate::observe::remembering::SeenNode;
use crate::preview::{
    Looked, Preview, guests_asked_about, journal_context, observe_declared, plan_knowing_others,
    shown,
};
use crate::queue::Work;
use crate::sometimes;

/// A job for a lane, and what is reported of it if it never gets its turn.
type LaneJob = ((Job, Work<OpResult>), OpReport);

/// A pass since the engine started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PassId(u64);

impl PassId {
    pub(super) const FIRST: Self = Self(1);
}

impl fmt::Display for PassId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Who wants a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassCause {
    /// The agent's own schedule: what failed a while ago waits.
    Schedule,
    /// A person, who sees what comes of it: everything is tried.
    Person,
}

/// A pass whose actions are in their lanes.
#[derive(Debug)]
pub struct BegunPass {
    /// Its number; `EngineEvent::Pass` carries it when all is done.
    pub id: PassId,
    /// What was planned.
    pub plan: Plan,
}

impl Engine {
    /// One pass of the agent's own: reads the node, plans, submits.
    pub async fn pass(&mut self, desired: &Desired) -> Result<BegunPass, PassError> {
        let preview = self.look(desired, PassScope::Whole, PassCause::Schedule).await?;
        Ok(self.submit(desired, preview).await?)
    }

    /// The first half: reads the node and plans. Nothing is sent.
    pub async fn look(
        &mut self,
        desired: &Desired,
        scope: PassScope,
        cause: PassCause,
    ) -> Result<Preview, PassError> {
        self.context.keep_modes(desired);
        // Of chosen guests nothing else is read or planned.
        let whole = desired;
        let desired = &scope.part_of(desired);
        // Operations of unknown outcome are looked at once more; their lanes stay shut meanwhile.
        self.recheck_unknown();
        // Read the node.
        let client = self.context.client.clone();
        let SeenNode { mut actual, compared } = self.observe(desired, &scope, cause).await?;
        // Plan, knowing what is frozen, busy, remembered, and failed a while ago.
        // In a box, because everybody who makes a pass would carry it.
        let known = Box::pin(self.known(whole, desired, &actual, cause)).await?;
        let planning = async {
            let planning = plan_knowing_others(&client, &compared, &mut actual, &known);
            planning.await.map_err(PassError::Actual)
        };
        let mut plan = self.drive_lanes_until(planning).await?;
        // Name the task behind each lock, for people.
        let naming = async {
            name_lock_owners(&client, &mut plan, &actual).await;
            Ok::<(), Fatal>(())
        };
        self.drive_lanes_until(naming).await?;
        Ok(Preview { actual, plan, scope })
    }

    /// Reads the node, with what earlier passes left. A person is shown what is there now, whatever is remembered.
    async fn observe<'d>(
        &mut self,
        desired: &'d Desired,
        scope: &PassScope,
        cause: PassCause,
    ) -> Result<SeenNode<'d>, PassError> {
        // Whoever drops this in the middle leaves nothing remembered, and the next pass reads everything.
        let mut memory = std::mem::take(&mut self.memory);
        match (cause, scope) {
            (PassCause::Person, PassScope::Whole) => memory.forget_all(),
            // Chosen guests are asked for whatever is remembered of them.
            (PassCause::Person, PassScope::Chosen(_)) | (PassCause::Schedule, _) => {}
        }
        for vmid in std::mem::take(&mut self.touched) {
            memory.forget(vmid);
        }
        let context = self.context.clone();
        let also = context.journal.read(|state, _| guests_asked_about(state));
        let also = also.await.map_err(Fatal::Journal)?;
        let looked = &mut Looked { memory: &mut memory, files: context.cluster_files(), also };
        let reading = async {
            let reading = observe_declared(&context.client, desired, scope, looked);
            reading.await.map_err(PassError::Actual)
        };
        let seen = self.drive_lanes_until(reading).await;
        self.memory = memory;
        seen
    }

    async fn known(
        &mut self,
        whole: &Desired,
        desired: &Desired,
        actual: &Snapshot,
        cause: PassCause,
    ) -> Result<PlanContext, Fatal> {
        let mut known = self.plan_context(desired, cause).await?;
        known.removals = self.removals(desired, actual, &known).await?;
        known.create = self.bounds(whole, actual).await?;
        let context = self.context.clone();
        let (client, policy) = (&context.client, context.create_policy());
        let reading =
            async { Ok::<_, Fatal>(source_contents(client, policy, desired, actual).await) };
        known.sources = self.drive_lanes_until(reading).await?;
        Ok(known)
    }

    /// What a hub may have made, by what this pass read. Lanes look again.
    async fn bounds(&self, desired: &Desired, actual: &Snapshot) -> Result<CreateContext, Fatal> {
        if !desired.guests.values().any(|guest| guest.by.is_hub()) {
            return Ok(CreateContext::default());
        }
        let known = HubKnown::read(&self.context).await?;
        self.context.keep_hub_volumes(hub_volumes(desired, actual, &known.makings));
        let (policy, now) = (self.context.create_policy(), self.context.node_now());
        Ok(early(policy, &known, desired, actual, now))
    }

    /// The early answers for guests of ours that may go unsigned. Their lanes ask again.
    async fn removals(
        &mut self,
        desired: &Desired,
        actual: &Snapshot,
        known: &PlanContext,
    ) -> Result<BTreeMap<VmId, RemovalVerdict>, Fatal> {
        // On most hosts evenkeel made nothing, and there is nobody to ask about.
        if known.making.made_none() {
            return Ok(BTreeMap::new());
        }
        let context = self.context.clone();
        let declared = desired.guests.values().map(|guest| guest.id);
        let ours: Vec<_> = declared.filter(|id| known.making.scratch(*id).is_some()).collect();
        let origins = context.journal.read(move |state, _| {
            let origins = ours.iter().map(|id| (*id, state.ledger().provenance(*id)));
            origins.collect::<BTreeMap<_, _>>()
        });
        let origins = origins.await.map_err(Fatal::Journal)?;
        let provenance = |guest| origins.get(&guest).cloned().unwrap_or_else(Provenance::none);
        let reading = async {
            let (client, scratch_vmids) = (&context.client, &context.scratch_vmids);
            let reader = RemovalReader { client, scratch_vmids };
            Ok(reader.early(desired, actual, known, provenance).await)
        };
        self.drive_lanes_until(reading).await
    }

    async fn plan_context(
        &self,
        desired: &Desired,
        cause: PassCause,
    ) -> Result<PlanContext, Fatal> {
        let told = self.context.journal.read(|state, _| journal_context(state));
        let told = told.await.map_err(Fatal::Journal)?;
        let failures = match cause {
            PassCause::Schedule => told.failures,
            PassCause::Person => FailureMemory::default(),
        };
        let busy = desired.guests.keys().filter_map(|vmid| Some((*vmid, self.queue.busy(*vmid)?)));
        let busy = busy.map(|(vmid, busy)| {
            let unknown = self.unknown_on(vmid);
            let op = unknown.map_or(busy.op, |(op, _)| op);
            let unknown = unknown.map(|(_, why)| why.to_owned());
            (vmid, GuestBusy { op, since: shown(busy.since), unknown, left: None })
        });
        let (frozen, now) = (self.context.is_frozen(), self.context.node_now());
        let (host_mode, busy) = (self.context.host_mode(), busy.collect());
        let bin_life_s = self.context.approvals.as_ref().map(|known| known.policy.bin_life_s());
        Ok(PlanContext { frozen, host_mode, busy, failures, now, bin_life_s, ..told })
    }

    /// The second half: hands each guest's actions to its lane, where they are judged again.
    pub async fn submit(
        &mut self,
        desired: &Desired,
        preview: Preview,
    ) -> Result<BegunPass, Fatal> {
        let Preview { actual, plan, scope } = preview;
        for held in plan.actions().filter_map(|action| action.held.as_ref()) {
            sometimes!("planned and held", held.reason());
        }
        // Forget what no longer needs to be remembered of backups and moves.
        backups::forget(&self.context, desired, &actual, &scope).await?;
        // Remember what a guest was before it is put into the bin.
        let bins = bins::follow(&self.context, desired, &actual, &plan, &scope).await?;
        // Write down what is newly held, and why.
        decisions::follow_plan(&self.context, &plan, &scope).await?;
        // Put what needs a signature before those who may give one.
        self.raise_pending(&plan, &actual, &scope).await?;
        // Hand every guest what is owed to it and then its own actions.
        let id = self.next_pass;
        self.next_pass = PassId(id.0 + 1);
        let mut running = RunningPass { report: early_report(&plan, &self.not_raised), open: 0 };
        let mut owed = self.owed_jobs().await?;
        owed.retain(|vmid, _| scope.has(*vmid));
        let site = NodeSite::of(&actual);
        for guest in &plan.guests {
            let Some(declared) = desired.guests.get(&guest.guest.vmid) else {
                continue;
            };
            let (vmid, here) = (guest.guest.vmid, actual.guests.get(&guest.guest.vmid));
            let here = here.filter(|here| here.id == declared.id);
            let declared = &*effective(declared, here, bins.get(&vmid));
            let owed = owed.remove(&guest.guest.vmid).unwrap_or_default();
            self.submit_guest(id, guest, declared, &site, owed, &mut running)?;
        }
        self.submit_owed(owed)?;
        // What becomes of it is told by `work`; a pass without actions has ended.
        self.passes.insert(id, running);
        self.close_pass(id);
        Ok(BegunPass { id, plan })
    }

    /// What needs a signature is put before those who may give one.
    async fn raise_pending(
        &mut self,
        plan: &Plan,
        actual: &Snapshot,
        scope: &PassScope,
    ) -> Result<(), Fatal> {
        let context = self.context.clone();
        let Some(approvals) = context.approvals.clone() else {
            return Ok(());
        };
        let following = pending::follow_plan(&context, &approvals, plan, actual, scope);
        let mut not_raised = self.drive_lanes_until(following).await?;
        // Logged when it changes, not at every pass.
        for ((guest, op), refusal) in &not_raised {
            sometimes!("an item is not raised", refusal.reason);
            if self.not_raised.get(&(*guest, *op)) != Some(refusal) {
                tracing::warn!(%guest, %op, %refusal, "cannot be put before somebody who could sign it");
            }
        }
        // What the last pass could not raise of other guests still holds.
        let others = std::mem::take(&mut self.not_raised);
        not_raised.extend(others.into_iter().filter(|((guest, _), _)| !scope.has(guest.vmid)));
        self.not_raised = not_raised;
        Ok(())
    }

    /// What was taken from a guest for a destroy that came to nothing is given back. Every pass does so; an agent
    /// for which nothing is declared makes no passes, and asks for it.
    pub(crate) async fn pay_debts(&mut self) -> Result<(), Fatal> {
        let owed = self.owed_jobs().await?;
        self.submit_owed(owed)
    }

    /// A job for everything that is owed, by the guest's number.
    async fn owed_jobs(&self) -> Result<BTreeMap<VmId, Vec<LaneJob>>, Fatal> {
        let mut jobs: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let owed = owed(&self.context).await?;
        if owed.is_empty() {
            return Ok(jobs);
        }
        let (failures, now) = (self.context.failures().await?, self.context.node_now());
        for owed in owed {
            let (op, guest) = (self.context.new_operation(), owed.operation.intent.guest);
            let attempt = AttemptHash::owed(owed.operation.id, owed.debt);
            if failures.pausing(guest.vmid, attempt, now).is_some() {
                continue;
            }
            jobs.entry(guest.vmid).or_default().push(self.job(op, Order::Owed(Box::new(owed))));
        }
        Ok(jobs)
    }

    /// The job of an order, and what is reported if it never gets its turn.
    pub(super) fn job(&self, op: OperationId, order: Order) -> LaneJob {
        let (guest, kind, reasons) = (order.guest(), order.kind(), order.reasons());
        let report =
            OpReport { op, guest, kind, reasons, end: OpEnd::Skipped, upid: None, started: 0 };
        let (context, job) = (self.context.clone(), order.job(op));
        let work: Work<_> = Box::new(move |turn| lane::run(context, op, order, turn).boxed());
        ((job, work), report)
    }

    fn submit_owed(&mut self, owed: BTreeMap<VmId, Vec<LaneJob>>) -> Result<(), Fatal> {
        for (vmid, owed) in owed {
            let (jobs, reports): (Vec<_>, Vec<_>) = owed.into_iter().unzip();
            match self.queue.submit(vmid, jobs) {
                Ok(()) => {
                    let reports = reports.into_iter().map(|report| (report.op, (None, report)));
                    self.submitted.extend(reports);
                }
                // A lane at work is asked again by the next pass.
                Err(error) => {
                    error.refusal()?;
                }
            }
        }
        Ok(())
    }

    /// Hands one guest's actions to its lane, in order, after what is owed to it: neither must starve the other.
    fn submit_guest(
        &mut self,
        id: PassId,
        planned: &GuestPlan,
        declared: &desired::DeclaredGuest,
        site: &NodeSite,
        owed: Vec<LaneJob>,
        running: &mut RunningPass,
    ) -> Result<(), Fatal> {
        let mut actions = planned.actions.iter().filter(|action| action.held.is_none()).peekable();
        if actions.peek().is_none() && owed.is_empty() {
            return Ok(());
        }
        let declared = Arc::new(declared.clone());
        let (mut jobs, owed): (Vec<_>, Vec<_>) = owed.into_iter().unzip();
        let mut reports = BTreeMap::new();
        for action in actions {
            let op = self.context.new_operation();
            let (action, site) = (action.clone(), site.clone());
            let order = PlannedOrder { action, desired: Arc::clone(&declared), site };
            let (job, report) = self.job(op, Order::Planned(Box::new(order)));
            jobs.push(job);
            reports.insert(op, report);
        }
        match self.queue.submit(planned.guest.vmid, jobs) {
            Ok(()) => {
                self.submitted.extend(owed.into_iter().map(|report| (report.op, (None, report))));
                running.open += reports.len();
                self.submitted
                    .extend(reports.into_iter().map(|(op, report)| (op, (Some(id), report))));
            }
            Err(error) => {
                running.report.hold(refused(planned, &error.refusal()?, reports.len()));
            }
        }
        Ok(())
    }
}

/// What is known before any lane has run.
fn early_report(plan: &Plan, not_raised: &NotRaised) -> Report {
    let mut report = Report { in_sync: plan.in_sync, ..Report::default() };
    for guest in &plan.guests {
        report.planned += guest.actions.len();
        let told = guest.problems.iter().map(ToString::to_string);
        report.errors.extend(told.map(|why| GuestError { guest: guest.guest, why }));
        for action in &guest.actions {
            if let Some(held) = &action.held {
                let (guest, kind) = (guest.guest, action.step.kind());
                let (reason, why) = match not_raised.get(&(guest, kind)) {
                    Some(refusal) => (refusal.reason, refusal.detail.clone()),
                    None => (held.reason(), held.to_string()),
                };
                report.holds.push(Hold { guest, kind: Some(kind), reason, why });
            }
        }
        if let Some(busy) = &guest.busy {
            let (why, kind, reason) = (busy.to_string(), None, busy.reason());
            report.holds.push(Hold { guest: guest.guest, kind, reason, why });
        }
    }
    report.held = report.holds.len();
    report
}

fn refused(planned: &GuestPlan, refusal: &LaneRefusal, actions: usize) -> Hold {
    let why = match refusal {
        LaneRefusal::Busy(busy) => format!("busy with {}", busy.op),
        LaneRefusal::TooMany => format!("{actions} actions are more than a lane takes"),
        LaneRefusal::ShuttingDown => "the agent is going down".to_owned(),
    };
    Hold { guest: planned.guest, kind: None, reason: ReasonCode::Busy, why }
}
