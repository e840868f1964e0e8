//! Carries out what an operator signed, in its lane, at most once (invariant 4).
//!
//! ```text
//!   gate (all over again) ─> started: nonce spent ─> [stop] ─> [unprotect] ─> the act ─> settle
//!                                                      │            │
//!                                    every preparation that fails ends it: the act is not sent,
//!                                    and a protection that was taken off is given back
//! ```
//!
//! Nothing here is tried again: who wants it again signs again.

use evenkeel_core::action_kind::ActionKind;
use evenkeel_core::destroy::Owed;
use evenkeel_core::id::{GuestId, OperationId};
use evenkeel_core::lane::Outcome;
use evenkeel_core::operation::Operation;
use evenkeel_core::reason::{ReasonCode, Refusal};

use super::approvals::note_refusal;
use super::court::Court;
use super::destroy::Destruction;
use super::error::Fatal;
use super::execute::{Told, follow, send, started};
use super::gate::Act;
use super::gate::signed::{Held, SignedOrder, clear_protection, clear_signed};
use super::identity_proof::{our_tasks, read_tasks};
use super::report::{End, OpReport};
use super::settle::load;
use super::{Hands, Progress, pending};
use crate::journal::{Kept, Record, Subject};
use crate::observe::observe_guest;
use crate::queue::{Done, Turn};

/// Carries out one approved act.
pub(super) async fn run(
    hands: Hands,
    court: Court,
    op: OperationId,
    order: SignedOrder,
    mut turn: Turn,
) -> Done<Told> {
    match act(&hands, &court, op, &order, &mut turn).await {
        Ok((end, begun)) => ended(&hands, op, &order, (end, begun), &mut turn).await,
        Err(fatal) => Err(fatal),
    }
    .unwrap_or_else(|fatal| Done { outcome: Outcome::Unknown, result: Err(fatal) })
}

/// Gives back what a failed act owes, and reports.
async fn ended(
    hands: &Hands,
    op: OperationId,
    order: &SignedOrder,
    (end, begun): (End, bool),
    turn: &mut Turn,
) -> Result<Done<Told>, Fatal> {
    let mut outcome = end.outcome();
    let upid = load(hands, op).await?.and_then(|(operation, _)| operation.task);
    let (guest, kind) = (order.item.guest, order.item.op);
    let reasons = vec![format!("signed: {}", order.statement.reason)];
    let report = OpReport { op, guest, kind, reasons, end, upid, started: usize::from(begun) };
    let mut reports = vec![report];
    if begun && outcome == Outcome::Failed && owed(hands).await?.iter().any(|owed| owed.id == op) {
        let given = give_back(hands, hands.new_operation(), op, guest, turn).await?;
        // An outcome nobody knows keeps the lane shut, whichever of the two it is of.
        if given.end.outcome() == Outcome::Unknown {
            outcome = Outcome::Unknown;
        }
        reports.push(given);
    }
    for report in &reports {
        hands.tell(Progress::Ended(Box::new(report.clone())));
    }
    Ok(Done { outcome, result: Ok(reports) })
}

/// Judges, begins and acts; whether it was begun.
async fn act(
    hands: &Hands,
    court: &Court,
    op: OperationId,
    order: &SignedOrder,
    turn: &mut Turn,
) -> Result<(End, bool), Fatal> {
    let Some(permit) = turn.take().await else {
        return Ok((End::Skipped, false));
    };
    let held = match clear_signed(hands, court, order).await? {
        Ok(held) => held,
        Err(refusal) => {
            // Its signature holds, so whoever sent it is somebody: no flood comes this way.
            note_refusal(hands, order.envelope.payload(), &refusal).await?;
            return Ok((refused(&refusal), false));
        }
    };
    let Held { cleared, authority, docket } = held;
    if let Err(error) = hands.begin(started(hands, op, &cleared)).await? {
        return Ok((End::Failed { why: format!("{error}; nothing was sent") }, false));
    }
    // The decision is on disk: from here on others are judged. The signers may change once the request has left, or,
    // where there are several requests, between them.
    drop(docket);
    pending::end(hands, order.id).await?;
    hands.tell(Progress::Started { op, guest: cleared.guest(), what: cleared.reason() });
    let end = match cleared.act() {
        Act::Destroy(destroy) => {
            let destroy = *destroy;
            drop((permit, authority));
            let destruction = Destruction { hands, court, op, cleared: &cleared, order };
            destruction.carry_out(destroy, turn).await?
        }
        Act::SetConfig(_)
        | Act::Resize { .. }
        | Act::Start
        | Act::Shutdown { .. }
        | Act::Stop
        | Act::Rollback { .. }
        | Act::DeleteSnapshot { .. } => {
            let answer = send(hands, &cleared).await;
            drop((permit, authority));
            follow(hands, op, answer).await?.0
        }
    };
    Ok((end, true))
}

fn refused(refusal: &Refusal) -> End {
    End::Held { reason: refusal.reason, why: refusal.detail.clone() }
}

/// The mark that a protection was given back.
fn given_back(op: OperationId) -> String {
    format!("protection of {op}")
}

/// Operations that took a protection off and could not use it, and have not given it back.
pub(super) async fn owed(hands: &Hands) -> Result<Vec<Operation>, Fatal> {
    let owed = hands.journal.read(|state, _| {
        let done = |op: OperationId| state.kept(Subject::Txn).any(|(key, _)| key == given_back(op));
        let signed = state.ledger().signed().filter(|operation| operation.owes_protection());
        signed.filter(|operation| !done(operation.id)).cloned().collect()
    });
    owed.await.map_err(Fatal::Journal)
}

/// A job of its own that gives a protection back: after a crash, or where it could not be done at once.
pub(super) async fn run_give_back(
    hands: Hands,
    op: OperationId,
    owing: Operation,
    mut turn: Turn,
) -> Done<Told> {
    match give_back(&hands, op, owing.id, owing.intent.guest, &mut turn).await {
        Ok(report) => {
            hands.tell(Progress::Ended(Box::new(report.clone())));
            // What is declared for the guest comes next, whether this could be done or not.
            let outcome = match report.end.outcome() {
                Outcome::Unknown => Outcome::Unknown,
                Outcome::Succeeded | Outcome::Failed => Outcome::Succeeded,
            };
            Done { outcome, result: Ok(vec![report]) }
        }
        Err(fatal) => Done { outcome: Outcome::Unknown, result: Err(fatal) },
    }
}

/// Gives back the protection that `owing` took off, under the name `op`, and reports what really came of it. What is
/// not done now is tried again by the next pass.
async fn give_back(
    hands: &Hands,
    op: OperationId,
    owing: OperationId,
    guest: GuestId,
    turn: &mut Turn,
) -> Result<OpReport, Fatal> {
    let (end, begun) = write_protection(hands, op, owing, turn).await?;
    if let End::Succeeded { .. } = end {
        note_given_back(hands, owing).await?;
    }
    let reasons = vec![format!("protection taken off by {owing}")];
    let (kind, started) = (ActionKind::SetConfig, usize::from(begun));
    Ok(OpReport { op, guest, kind, reasons, end, upid: None, started })
}

/// Judges, begins and writes; whether it was begun.
async fn write_protection(
    hands: &Hands,
    op: OperationId,
    owing: OperationId,
    turn: &mut Turn,
) -> Result<(End, bool), Fatal> {
    let not_begun = |end| Ok((end, false));
    let Some(permit) = turn.take().await else {
        return not_begun(End::Skipped);
    };
    let Some(owed) = owed(hands).await?.into_iter().find(|owed| owed.id == owing) else {
        return not_begun(End::Unneeded);
    };
    // A frozen host is not changed, not even for the better: a pass after the thaw gives it back.
    if (hands.frozen)() {
        let why = "this host is frozen".to_owned();
        return not_begun(End::Held { reason: ReasonCode::Frozen, why });
    }
    let fresh = match observe_guest(&hands.client, owed.intent.guest).await {
        Ok(fresh) => fresh,
        Err(error) => return not_begun(End::Failed { why: error.to_string() }),
    };
    let tasks = match read_tasks(hands).await {
        Ok(tasks) => tasks,
        Err(refusal) => return not_begun(refused(&refusal)),
    };
    match Owed::to(&fresh, &owed, &tasks, &our_tasks(hands).await?) {
        Owed::Protection => {}
        Owed::Later(refusal) => return not_begun(refused(&refusal)),
        Owed::Nothing => {
            note_given_back(hands, owing).await?;
            return not_begun(End::Unneeded);
        }
    }
    let Some(cleared) = clear_protection(&owed, &fresh) else {
        let why = "Proxmox gave no digest of its configuration".to_owned();
        return not_begun(End::Failed { why });
    };
    if let Err(error) = hands.begin(started(hands, op, &cleared)).await? {
        return not_begun(End::Failed { why: format!("{error}; nothing was sent") });
    }
    hands.tell(Progress::Started { op, guest: cleared.guest(), what: cleared.reason() });
    let answer = send(hands, &cleared).await;
    drop(permit);
    Ok((follow(hands, op, answer).await?.0, true))
}

async fn note_given_back(hands: &Hands, op: OperationId) -> Result<(), Fatal> {
    let kept = Kept::put(Subject::Txn, given_back(op), 1, serde_json::Value::Bool(true));
    hands.begin(Record::Kept(kept)).await.map(drop)
}
