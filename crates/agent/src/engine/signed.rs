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

use evenkeel_core::destroy::Owed;
use evenkeel_core::id::OperationId;
use evenkeel_core::lane::Outcome;
use evenkeel_core::operation::Operation;
use evenkeel_core::reason::Refusal;

use super::approvals::note_refusal;
use super::court::Court;
use super::destroy::Destruction;
use super::error::Fatal;
use super::execute::{Told, follow, send, started};
use super::gate::Act;
use super::gate::signed::{Held, SignedOrder, clear_protection, clear_signed};
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
    let (end, begun) = match act(&hands, &court, op, &order, &mut turn).await {
        Ok(done) => done,
        Err(fatal) => return Done { outcome: Outcome::Unknown, result: Err(fatal) },
    };
    let outcome = match &end {
        End::Succeeded { .. } | End::Unneeded => Outcome::Succeeded,
        End::Stale { .. } | End::Held { .. } | End::Failed { .. } | End::Skipped => Outcome::Failed,
        End::Unknown { .. } => Outcome::Unknown,
    };
    if let (true, Outcome::Failed) = (begun, outcome)
        && let Err(fatal) = give_back_protection(&hands, op, &mut turn).await
    {
        return Done { outcome: Outcome::Unknown, result: Err(fatal) };
    }
    let upid = match load(&hands, op).await {
        Ok(found) => found.and_then(|(operation, _)| operation.task),
        Err(fatal) => return Done { outcome: Outcome::Unknown, result: Err(fatal) },
    };
    let (guest, kind) = (order.item.guest, order.item.op);
    let reasons = vec![format!("signed: {}", order.statement.reason)];
    let report = OpReport { op, guest, kind, reasons, end, upid, started: usize::from(begun) };
    hands.tell(Progress::Ended(Box::new(report.clone())));
    Done { outcome, result: Ok(report) }
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
    // The decision is on disk: from here on the signers may change, and others are judged.
    drop((authority, docket));
    pending::end(hands, order.id).await?;
    hands.tell(Progress::Started { op, guest: cleared.guest(), what: cleared.reason() });
    let end = match cleared.act() {
        Act::Destroy(destroy) => {
            let destroy = *destroy;
            drop(permit);
            Destruction { hands, op, cleared: &cleared, order }.carry_out(destroy, turn).await?
        }
        Act::SetConfig(_)
        | Act::Resize { .. }
        | Act::Start
        | Act::Shutdown { .. }
        | Act::Stop
        | Act::Rollback { .. }
        | Act::DeleteSnapshot { .. } => {
            let answer = send(hands, &cleared).await;
            drop(permit);
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

/// Gives the protection back if this operation owes it.
pub(super) async fn give_back_protection(
    hands: &Hands,
    op: OperationId,
    turn: &mut Turn,
) -> Result<(), Fatal> {
    let Some(owed) = owed(hands).await?.into_iter().find(|owed| owed.id == op) else {
        return Ok(());
    };
    let Some(permit) = turn.take().await else {
        return Ok(());
    };
    // A frozen host is not changed, not even for the better: a pass after the thaw gives it back.
    if (hands.frozen)() {
        return Ok(());
    }
    let Ok(fresh) = observe_guest(&hands.client, owed.intent.guest).await else {
        // The next pass tries again.
        return Ok(());
    };
    match Owed::to(&fresh, &owed) {
        Owed::Protection => {}
        Owed::Later => return Ok(()),
        Owed::Nothing => return note_given_back(hands, op).await,
    }
    let Some(cleared) = clear_protection(&owed, &fresh) else {
        return Ok(());
    };
    let restoring = hands.new_operation();
    if hands.begin(started(hands, restoring, &cleared)).await?.is_err() {
        return Ok(());
    }
    hands.tell(Progress::Started { op: restoring, guest: cleared.guest(), what: cleared.reason() });
    let answer = send(hands, &cleared).await;
    drop(permit);
    if let (End::Succeeded { .. }, _) = follow(hands, restoring, answer).await? {
        note_given_back(hands, op).await?;
    }
    Ok(())
}

async fn note_given_back(hands: &Hands, op: OperationId) -> Result<(), Fatal> {
    let kept = Kept::put(Subject::Txn, given_back(op), 1, serde_json::Value::Bool(true));
    hands.begin(Record::Kept(kept)).await.map(drop)
}
