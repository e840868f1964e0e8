//! The spine: one pass, the stages in order.
//!
//! ```text
//!   node_look.rs   look again at what is unknown ─> observe the node ─> plan ─> name the tasks behind locks
//!   submit         keep what was decided ─> begin to raise what needs a signature ─> each guest's actions into its lane
//!   lane.rs        what happens inside a lane
//! ```
//!
//! A pass never waits for lanes, nor for anything that is read about one guest alone: a guest whose lane is at work is
//! reported busy and left alone, and an item that takes long to raise is raised beside the lanes. What becomes of the
//! submitted actions is told by `Engine::work`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use evenkeel_core::actual::Snapshot;
use evenkeel_core::desired::bin::effective;
use evenkeel_core::desired::selection::PassScope;
use evenkeel_core::desired::{self, Desired};
use evenkeel_core::gate::NodeSite;
use evenkeel_core::gate::destroy::OwedThing;
use evenkeel_core::model::id::{GuestId, OperationId, VmId};
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_core::operate::lane::{Job, LaneRefusal};
use evenkeel_core::plan::{GuestPlan, Held, Plan, Step};
use futures_util::future::FutureExt as _;
use tokio::time::Instant;

use crate::engine::approvals::pending::{NotRaised, PlanFollowing};
use crate::engine::error::{Fatal, PassError};
use crate::engine::gate::owed::{OwedOrder, owed};
use crate::engine::gate::{Order, PlannedOrder};
use crate::engine::lane::OpResult;
use crate::engine::memory::{backups, bins};
use crate::engine::pass::decisions;
use crate::engine::pass::findings::MOMENT;
use crate::engine::pass::report::{GuestError, Hold, OpOutcome, OpReport, Report};
use crate::engine::{Engine, FollowEnd, RunningPass, lane};
use crate::preview::Preview;
use crate::queue::LaneWork;
use crate::sometimes;

/// A job for a lane, and what is reported of it if it never gets its turn.
type LaneJob = ((Job, LaneWork<OpResult>), OpReport);

/// A pass since the engine started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PassId(u64);

impl PassId {
    pub(in crate::engine) const FIRST: Self = Self(1);
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
        // Put what needs a signature before those who may give one, or begin to: the pass has ended when that has too.
        let id = self.next_pass;
        self.next_pass = PassId(id.0 + 1);
        let is_raising = self.raise_pending(id, &plan, &actual, &scope).await?;
        // Hand every guest what is owed to it and then its own actions.
        let report = early_report(&plan, &self.not_raised);
        let mut running = RunningPass { report, open: usize::from(is_raising) };
        let is_due = |order: &OwedOrder| {
            let guest = order.operation.intent.guest;
            let is_planned = order.debt == OwedThing::Running && plan_starts(&plan, guest);
            scope.has(guest.vmid) && !is_planned
        };
        let mut owed = self.owed_jobs(is_due).await?;
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

    /// What needs a signature is put before those who may give one: within a moment, or beside the lanes; tells whether that
    /// still goes on. Meanwhile the next pass leaves it alone.
    async fn raise_pending(
        &mut self,
        pass: PassId,
        plan: &Plan,
        actual: &Snapshot,
        scope: &PassScope,
    ) -> Result<bool, Fatal> {
        let context = self.context.clone();
        let Some(approvals) = context.approvals.clone() else {
            return Ok(false);
        };
        if self.following.is_some() {
            return Ok(false);
        }
        let following = PlanFollowing::begin(context, approvals, plan, actual, scope).await?;
        let scope = scope.clone();
        let raising = async move { FollowEnd { pass, scope, ended: following.carry_out().await } };
        self.following = Some(raising.boxed());
        let deadline = Instant::now() + MOMENT;
        while self.following.is_some() {
            tokio::select! {
                biased;
                done = self.turn() => done?,
                () = tokio::time::sleep_until(deadline) => return Ok(true),
            }
        }
        Ok(false)
    }

    /// The items are as a plan wants them, but for what could not be raised.
    pub(in crate::engine) fn followed(&mut self, end: FollowEnd) -> Result<(), Fatal> {
        let FollowEnd { pass, scope, ended } = end;
        let mut not_raised = ended?;
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
        // A pass that did not wait for it has begun by now, and may end.
        if let Some(running) = self.passes.get_mut(&pass) {
            tell_not_raised(&mut running.report, &self.not_raised);
            running.open -= 1;
        }
        self.close_pass(pass);
        Ok(())
    }

    /// What was taken from a guest for a destroy that came to nothing is given back. Every pass does so; an agent
    /// for which nothing is declared makes no passes, and asks for it.
    pub(crate) async fn pay_debts(&mut self) -> Result<(), Fatal> {
        let owed = self.owed_jobs(|_| true).await?;
        self.submit_owed(owed)
    }

    /// A job for everything that is owed and due, by the guest's number.
    async fn owed_jobs(
        &self,
        is_due: impl Fn(&OwedOrder) -> bool,
    ) -> Result<BTreeMap<VmId, Vec<LaneJob>>, Fatal> {
        let mut jobs: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let mut owed = owed(&self.context).await?;
        owed.retain(is_due);
        if owed.is_empty() {
            return Ok(jobs);
        }
        let failures = self.context.failures().await?;
        let now = self.context.node_now();
        for owed in owed {
            let op = self.context.new_operation();
            let guest = owed.operation.intent.guest;
            if failures.pausing(guest.vmid, owed.attempt(), now).is_some() {
                continue;
            }
            jobs.entry(guest.vmid).or_default().push(self.job(op, Order::Owed(Box::new(owed))));
        }
        Ok(jobs)
    }

    /// The job of an order, and what is reported if it never gets its turn.
    pub(in crate::engine) fn job(&self, op: OperationId, order: Order) -> LaneJob {
        let guest = order.guest();
        let kind = order.kind();
        let reasons = order.reasons();
        let report =
            OpReport { op, guest, kind, reasons, end: OpOutcome::Skipped, upid: None, started: 0 };
        let context = self.context.clone();
        let job = order.job(op);
        let work: LaneWork<_> = Box::new(move |turn| lane::run(context, op, order, turn).boxed());
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
            let action = action.clone();
            let site = site.clone();
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

/// Whether the plan starts a guest, now or once the pause of a failed start is over. Then nobody else need start it.
fn plan_starts(plan: &Plan, guest: GuestId) -> bool {
    let planned = plan.guests.iter().filter(|planned| planned.guest == guest);
    planned.flat_map(|planned| &planned.actions).any(|action| {
        action.step == Step::Start && matches!(action.held, None | Some(Held::FailedBefore(_)))
    })
}

/// What could not be put before a signer waits for another reason than a signature.
fn tell_not_raised(report: &mut Report, not_raised: &NotRaised) {
    for hold in report.holds.iter_mut().filter(|hold| hold.reason == ReasonCode::PendingSignature) {
        let refusal = hold.kind.and_then(|kind| not_raised.get(&(hold.guest, kind)));
        if let Some(refusal) = refusal {
            (hold.reason, hold.why) = (refusal.reason, refusal.detail.clone());
        }
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
                let guest = guest.guest;
                let kind = action.step.kind();
                let (reason, why) = match not_raised.get(&(guest, kind)) {
                    Some(refusal) => (refusal.reason, refusal.detail.clone()),
                    None => (held.reason(), held.to_string()),
                };
                report.holds.push(Hold { guest, kind: Some(kind), reason, why });
            }
        }
        if let Some(busy) = &guest.busy {
            let why = busy.to_string();
            let kind = None;
            let reason = busy.reason();
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
