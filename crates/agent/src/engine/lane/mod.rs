//! What happens inside a guest's lane: one order, from its turn to its report.
//!
//! ```text
//!   turn ─> gate: a fresh look, judged ─> stop or freeze? ─> started (on disk) ─> request, or a destroy's steps ─> answer.rs
//!     ▲                                                                                                           │
//!     └── a lock file was taken, or a worker lost: again, as a new operation (planned orders only) <────────────────────────────────┤
//!                                                                         report, and what a failed destroy owes <┘
//! ```
//!
//! Nothing else in evenkeel sends a request that changes something. It must never send before `started` is on disk, nor
//! twice under one name; what an operator signed is tried once, because who wants it again signs again.

pub(super) mod answer;
pub(super) mod destroy_look;
pub(super) mod destroy_steps;
pub(super) mod ended_log;
pub(super) mod final_backup;
pub(super) mod follow_up;
pub(super) mod progress;
pub(super) mod step_walk;
pub(super) mod task_progress;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use evenkeel_core::gate::destroy::Destroy;
use evenkeel_core::gate::final_backup::note_of;
use evenkeel_core::model::id::OperationId;
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_core::operate::lane::LaneOutcome;
use evenkeel_core::operate::operation::{OpEvent, OpRecord};
use evenkeel_core::operate::pve_call::PveCall;
use evenkeel_core::plan::{Held, Step};
use tokio::sync::MutexGuard;

use crate::engine::approvals::pending;
use crate::engine::error::Fatal;
use crate::engine::gate::approved::JudgingLocks;
use crate::engine::gate::cleared::Cleared;
use crate::engine::gate::guest_look::GuestLook;
use crate::engine::gate::owed::{OwedOrder, note_given_back, owed};
use crate::engine::gate::{self, Clearance, NotCleared, Order};
use crate::engine::lane::answer::{OpAttempt, follow};
use crate::engine::lane::destroy_steps::{DestroyBasis, DestroySteps};
use crate::engine::lane::follow_up::follow_up;
use crate::engine::lane::step_walk::StepWalk;
use crate::engine::pass::report::{OpOutcome, OpReport};
use crate::engine::settle::load;
use crate::engine::{EngineContext, Progress};
use crate::journal::Record;
use crate::pve::error::Error;
use crate::pve::writes::{BackupOrder, DestroyFlags, Taken, VolumeMove};
use crate::queue::{Permit, Turn};
use crate::sometimes;

/// How often a planned action is tried when a lock file is taken or a worker lost: PVE itself waits ten seconds for a lock.
const TRIES_MAX: u32 = 4;

/// The first pause before trying again; it doubles.
const FIRST_PAUSE: Duration = Duration::from_secs(2);

/// What the engine hears of a job: the reports of its operation and of what followed from it, or that everything must end.
pub(super) type OpResult = Result<Vec<OpReport>, Fatal>;

/// Carries out an order. `first` names the job in its lane, and its first operation.
pub(super) async fn run(
    context: EngineContext,
    first: OperationId,
    order: Order,
    mut turn: Turn,
) -> (LaneOutcome, OpResult) {
    match run_order(&context, first, &order, &mut turn).await {
        Ok((outcome, reports)) => (outcome, Ok(reports)),
        // What was sent is not known to the journal: the lane stays shut, and the process ends.
        Err(fatal) => (LaneOutcome::Unknown, Err(fatal)),
    }
}

/// The order, what follows if it made the guest, and what it owes the guest if it failed.
async fn run_order(
    context: &EngineContext,
    first: OperationId,
    order: &Order,
    turn: &mut Turn,
) -> Result<(LaneOutcome, Vec<OpReport>), Fatal> {
    let mut look = None;
    let report = carry_out(context, first, order, turn, &mut look).await?;
    let mut outcome = report.end.outcome();
    let mut reports = vec![report];
    match order {
        Order::Planned(order) => {
            let is_made = matches!(reports[0].end, OpOutcome::Succeeded { .. });
            if is_made && order.action.step.kind().creates_guest() {
                outcome = follow_up(context, order, turn, look, &mut reports).await?;
            } else if let Step::Remove(_) = order.action.step {
                outcome = give_back(context, turn, &mut reports, outcome).await?;
            }
        }
        Order::Asked(_) => {}
        Order::Approved(_) => {
            outcome = give_back(context, turn, &mut reports, outcome).await?;
        }
        // What is declared for the guest comes next, whether this could be done or not.
        Order::Owed(_) => {
            if outcome == LaneOutcome::Failed {
                outcome = LaneOutcome::Succeeded;
            }
        }
    }
    Ok((outcome, reports))
}

/// Gives back what a failed act took from its guest. Tells the outcome for its lane.
async fn give_back(
    context: &EngineContext,
    turn: &mut Turn,
    reports: &mut Vec<OpReport>,
    outcome: LaneOutcome,
) -> Result<LaneOutcome, Fatal> {
    for debt in debts_of(context, &reports[0]).await? {
        let op = context.new_operation();
        let order = Order::Owed(Box::new(debt));
        let given = carry_out(context, op, &order, turn, &mut None).await?;
        // An outcome nobody knows keeps the lane shut, whichever of the two it is of.
        let is_unknown = given.end.outcome() == LaneOutcome::Unknown;
        reports.push(given);
        if is_unknown {
            return Ok(LaneOutcome::Unknown);
        }
    }
    Ok(outcome)
}

/// What a failed act took from its guest.
async fn debts_of(context: &EngineContext, report: &OpReport) -> Result<Vec<OwedOrder>, Fatal> {
    if report.started == 0 || report.end.outcome() != LaneOutcome::Failed {
        return Ok(Vec::new());
    }
    let all = owed(context).await?;
    Ok(all.into_iter().filter(|owed| owed.operation.id == report.op).collect())
}

/// Tries an order as often as it may be tried, and tells how it ended. `look` is what the lane has just read of the guest,
/// and becomes what proved this order.
pub(super) async fn carry_out(
    context: &EngineContext,
    first: OperationId,
    order: &Order,
    turn: &mut Turn,
    look: &mut Option<GuestLook>,
) -> Result<OpReport, Fatal> {
    let mut tries_left = match order {
        Order::Planned(_) => TRIES_MAX,
        Order::Approved(_) | Order::Asked(_) | Order::Owed(_) => 1,
    };
    let mut op = first;
    let mut started = 0;
    let mut pause = FIRST_PAUSE;
    let report = loop {
        let tried = try_once(context, op, order, turn, look.take()).await?;
        tries_left -= 1;
        started += usize::from(tried.started);
        // What fails for the second time in its pauses is not tried four times in each.
        let stands = context.failures().await?.stands(order.guest().vmid);
        let Some(cause) = tried.may_pass.filter(|_| tries_left > 0 && !stands) else {
            let guest = order.guest();
            let kind = order.kind();
            let reasons = order.reasons();
            let OpAttempt { end, upid, .. } = tried;
            *look = tried.look;
            break OpReport { op, guest, kind, reasons, end, upid, started };
        };
        sometimes!("the lane tries again", cause);
        let why = format!("{cause}; trying again");
        context.tell(Progress::Waiting { op, guest: order.guest(), why });
        turn.pause(jittered(context, pause)).await;
        pause *= 2;
        op = context.new_operation();
    };
    // What was not even begun is in the report of the pass; a line for each would bury the others.
    if report.end != OpOutcome::Skipped {
        context.tell(Progress::Ended(Box::new(report.clone())));
    }
    Ok(report)
}

/// Up to a quarter longer, so that lanes that met once do not meet again.
fn jittered(context: &EngineContext, pause: Duration) -> Duration {
    let quarter = u32::try_from(context.ambient.random() % 250).unwrap_or(0);
    pause + pause * quarter / 1_000
}

/// What people have said since the order was judged.
fn held_by_now(context: &EngineContext, order: &Order) -> Option<Held> {
    if context.modes.is_frozen() {
        return Some(Held::Frozen);
    }
    match order {
        Order::Planned(order) => {
            context.modes.observed_by(order.action.guest.vmid).map(Held::Observed)
        }
        // A signature and a person's word go before a mode, and what we owe a guest is its own.
        Order::Approved(_) | Order::Asked(_) | Order::Owed(_) => None,
    }
}

/// One try. Whoever needs a storage that answers slowly gives the turn back first and then waits for such storages one
/// after the other: of the two turns one is always left for everybody else.
async fn try_once(
    context: &EngineContext,
    op: OperationId,
    order: &Order,
    turn: &mut Turn,
    look: Option<GuestLook>,
) -> Result<OpAttempt, Fatal> {
    let (hasty, gave_up) = context.in_haste();
    let judge = OrderJudge { context: &hasty, gave_up: Some(&gave_up), alone: None };
    let tried = try_in_turn(context, op, order, turn, look, judge).await?;
    if !tried.gave_up {
        return Ok(tried);
    }
    let alone = Some(context.limits.slow_storages.lock().await);
    let judge = OrderJudge { context, gave_up: None, alone };
    try_in_turn(context, op, order, turn, None, judge).await
}

/// With how much patience an order is judged.
struct OrderJudge<'c> {
    context: &'c EngineContext,
    /// Whether a storage was given up in haste; none for who waits.
    gave_up: Option<&'c AtomicBool>,
    /// Who waits for slow storages does so alone.
    alone: Option<MutexGuard<'c, ()>>,
}

async fn try_in_turn(
    context: &EngineContext,
    op: OperationId,
    order: &Order,
    turn: &mut Turn,
    look: Option<GuestLook>,
    judge: OrderJudge<'_>,
) -> Result<OpAttempt, Fatal> {
    let Some(permit) = turn.take().await else {
        return Ok(OpAttempt::not_started(OpOutcome::Skipped));
    };
    let look = look.filter(|look| permit.was_free() && look.serves());
    let started = Box::pin(clear_and_start(context, op, order, &permit, look, judge)).await?;
    let Clearance { cleared, locks, counting } = match started {
        Ok(clearance) => clearance,
        Err(attempt) => return Ok(attempt),
    };
    // From here on the journal tells what this act takes for a hub.
    drop(counting);
    // The decision is on disk, and the item has ended: from here on others are judged. Nothing is waited for in between,
    // because what was read must not grow old. The signers may change once the request has left, or, where there are
    // several requests, between them.
    if let Order::Approved(order) = order {
        pending::end_judged(context, order.id).await?;
    }
    let signers = locks.map(|JudgingLocks { signers, judging }| {
        drop(judging);
        signers
    });
    context.tell(Progress::Started { op, guest: cleared.guest(), what: cleared.reason() });
    let held = (permit, signers);
    let attempt = match destroy_of(cleared.call(), order) {
        Some((destroy, basis)) => {
            // Each of its requests takes the turn and the signers again.
            drop(held);
            let walk = StepWalk { context, op, cleared: &cleared };
            let steps = DestroySteps { walk, basis };
            OpAttempt::ended(Box::pin(steps.carry_out(destroy, turn)).await?)
        }
        None => send_and_follow(context, op, &cleared, held).await?,
    };
    if let (Order::Owed(owing), OpOutcome::Succeeded { .. }) = (order, &attempt.end) {
        note_given_back(context, owing.operation.id, owing.debt).await?;
    }
    // A closed operation may be forgotten at once.
    let found = load(context, op).await?.and_then(|(operation, _)| operation.task);
    Ok(OpAttempt { upid: found.or(attempt.upid), ..attempt })
}

/// Judges an order and writes down that it begins; the attempt as it ended if it does not begin.
async fn clear_and_start<'o>(
    context: &EngineContext,
    op: OperationId,
    order: &'o Order,
    permit: &Permit<'_>,
    look: Option<GuestLook>,
    judge: OrderJudge<'_>,
) -> Result<Result<Clearance<'o>, OpAttempt>, Fatal> {
    let clearing = gate::clear(judge.context, order, look).await;
    if judge.gave_up.is_some_and(|gave_up| gave_up.load(Ordering::Relaxed)) {
        // What was judged without an answer does not count, whatever it was.
        let end = match clearing {
            Err(NotCleared::Fatal(fatal)) => return Err(fatal),
            Ok(_) | Err(_) => held_by_storage(),
        };
        return Ok(Err(OpAttempt { gave_up: true, ..OpAttempt::not_started(end) }));
    }
    drop(judge.alone);
    let clearance = match clearing {
        Ok(clearance) => clearance,
        Err(not_cleared) => {
            count_not_cleared(order, &not_cleared);
            return Ok(Err(OpAttempt::not_started(end_of(not_cleared)?)));
        }
    };
    if let Some(end) = stopped_by_now(context, order, permit) {
        return Ok(Err(OpAttempt::not_started(end)));
    }
    if let Err(error) = context.append(started(context, op, &clearance.cleared)).await {
        sometimes!("`started` was refused by the disk");
        let why = format!("{}; nothing was sent", error.refusal()?.detail);
        return Ok(Err(OpAttempt::not_started(OpOutcome::Failed { why })));
    }
    Ok(Ok(clearance))
}

/// What ends a try directly before it begins. Asked last, because reading took its time: after a stop or a freeze nothing
/// begins (invariant 19), not even for the better, and what is only observed by now is let be.
fn stopped_by_now(
    context: &EngineContext,
    order: &Order,
    permit: &Permit<'_>,
) -> Option<OpOutcome> {
    if permit.is_stopping() {
        sometimes!("told to stop between the last look and `started`");
        return Some(OpOutcome::Skipped);
    }
    let held = held_by_now(context, order)?;
    sometimes!("held between the last look and `started`", held.reason());
    Some(OpOutcome::Held { reason: held.reason(), why: held.to_string() })
}

/// The destroy that an order is, and what lets it happen.
fn destroy_of<'o>(call: &'o PveCall, order: &'o Order) -> Option<(&'o Destroy, DestroyBasis<'o>)> {
    match (call, order) {
        (PveCall::Destroy(destroy), Order::Approved(order)) => {
            Some((destroy, DestroyBasis::Signed(order)))
        }
        (PveCall::Destroy(destroy), Order::Planned(_)) => Some((destroy, DestroyBasis::Ours)),
        (_, Order::Planned(_) | Order::Approved(_) | Order::Asked(_) | Order::Owed(_)) => None,
    }
}

/// Sends a single request and follows it to its end. What is held is let go once the request has left.
async fn send_and_follow<H>(
    context: &EngineContext,
    op: OperationId,
    cleared: &Cleared,
    held: H,
) -> Result<OpAttempt, Fatal> {
    let answer = send(context, op, cleared).await;
    drop(held);
    let named = answer.as_ref().ok().and_then(|taken| taken.task().cloned());
    let attempt = Box::pin(follow(context, op, answer)).await?;
    context.limits.keep_promise(cleared.guest().vmid);
    Ok(OpAttempt { upid: named, ..attempt })
}

/// How a try ends in which a storage was not waited for.
fn held_by_storage() -> OpOutcome {
    OpOutcome::Held { reason: ReasonCode::Storage, why: "a storage answers slowly".to_owned() }
}

/// Counts why an order got its turn and was not cleared.
fn count_not_cleared(order: &Order, not_cleared: &NotCleared) {
    match (not_cleared, order) {
        (NotCleared::Unneeded, _) => sometimes!("its turn came when nothing was left to do"),
        (NotCleared::Stale(_), _) => sometimes!("its turn came when the plan was stale"),
        (NotCleared::Held(refusal), Order::Approved(_)) => {
            sometimes!("an approval is refused in its lane", refusal.reason);
        }
        (NotCleared::Held(refusal), Order::Planned(_)) => {
            sometimes!("held in its lane", refusal.reason);
        }
        (NotCleared::Held(_), Order::Asked(_)) => sometimes!("a request is held in its lane"),
        (NotCleared::Held(_), Order::Owed(_)) => sometimes!("a debt is held in its lane"),
        (NotCleared::Failed(_), _) => sometimes!("its turn came and the gate could not read"),
        (NotCleared::Fatal(_), _) => sometimes!("its turn came and the journal was broken"),
    }
}

fn end_of(not_cleared: NotCleared) -> Result<OpOutcome, Fatal> {
    Ok(match not_cleared {
        NotCleared::Unneeded => OpOutcome::Unneeded,
        NotCleared::Stale(why) => OpOutcome::Stale { why },
        NotCleared::Held(refusal) => {
            OpOutcome::Held { reason: refusal.reason, why: refusal.detail }
        }
        NotCleared::Failed(why) => OpOutcome::Failed { why },
        NotCleared::Fatal(fatal) => return Err(fatal),
    })
}

/// The record that must be on disk before anything leaves (invariant 5).
fn started(context: &EngineContext, op: OperationId, cleared: &Cleared) -> Record {
    let event = OpEvent::Started(Box::new(cleared.intent(context.node_now())));
    Record::op_started(OpRecord { op, event }, cleared.details())
}

/// Sends the act itself.
pub(super) async fn send(
    context: &EngineContext,
    op: OperationId,
    cleared: &Cleared,
) -> Result<Taken, Error> {
    let guest = cleared.guest();
    let writes = context.client.writes(cleared);
    match cleared.call() {
        PveCall::SetConfig(change) => writes.set_config(guest, change.clone()).await,
        PveCall::Resize { slot, to_bytes, digest } => {
            writes.resize(guest, slot, *to_bytes, digest).await
        }
        PveCall::MoveVolume { slot, storage, digest } => {
            let order = VolumeMove {
                slot: slot.clone(),
                storage: storage.clone(),
                delete_source: false,
                digest: digest.clone(),
            };
            writes.move_volume(guest, order).await.map(Taken::Task)
        }
        PveCall::Start => writes.start(guest).await.map(Taken::Task),
        PveCall::Shutdown { timeout_s } => {
            writes.shutdown(guest, *timeout_s, false).await.map(Taken::Task)
        }
        PveCall::Stop => writes.stop(guest).await.map(Taken::Task),
        PveCall::Make(new) => writes.make(new, cleared.password()).await.map(Taken::Task),
        PveCall::Rollback { snapshot } => writes.rollback(guest, snapshot).await.map(Taken::Task),
        PveCall::DeleteSnapshot { snapshot } => {
            writes.delete_snapshot(guest, snapshot).await.map(Taken::Task)
        }
        PveCall::Snapshot { snapshot, description } => {
            let description = Some(description.as_str()).filter(|text| !text.is_empty());
            writes.snapshot(guest, snapshot, description).await.map(Taken::Task)
        }
        PveCall::Backup { storage } => {
            let storage = storage.clone();
            let note = note_of(op, guest);
            let order = BackupOrder { storage, note };
            writes.backup(guest, order).await.map(Taken::Task)
        }
        PveCall::Destroy(destroy) => {
            let flags = DestroyFlags { purge: destroy.purge, unreferenced_disks: false };
            writes.destroy(guest, flags).await.map(Taken::Task)
        }
        PveCall::Template => writes.template(guest).await,
    }
}
