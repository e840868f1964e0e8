//! Carries out what an operator signed, in its lane, at most once (invariant 4).
//!
//! ```text
//!   gate (all over again) ─> started: nonce spent ─> [stop] ─> [unprotect] ─> the act ─> settle
//!                                                      │            │
//!                                    every preparation that fails ends it: the act is not sent,
//!                                    and a protection that was taken off is given back
//! ```
//!
//! Nothing here is tried again: who wants it again signs again. Between two requests minutes may pass, so each leaves
//! upon a last look with the turn in hand: not frozen, unlocked, and by both legs of identity still the same guest.

use std::time::Duration;

use evenkeel_core::actual::{Config, Guest, Power};
use evenkeel_core::id::OperationId;
use evenkeel_core::identity::identity;
use evenkeel_core::lane::Outcome;
use evenkeel_core::operation::{OpEvent, Operation, Request, Upid};
use evenkeel_core::plan::Destroy;
use evenkeel_core::reason::Refusal;
use evenkeel_core::sign::{Expected, Found};
use tokio::time::Instant;

use super::approvals::note_refusal;
use super::court::Court;
use super::error::Fatal;
use super::execute::{Told, follow, send, started};
use super::gate::signed::{Held, SignedOrder, clear_protection, clear_signed};
use super::gate::{Act, Cleared};
use super::report::{End, OpReport};
use super::sameness::found;
use super::settle::{load, settle, why};
use super::{Hands, Progress, pending};
use crate::journal::{Kept, Record, Subject};
use crate::observe::observe_guest;
use crate::pve::error::Error;
use crate::pve::name::ConfigKey;
use crate::pve::wait::Waited;
use crate::pve::writes::{ConfigChange, Settings, Taken};
use crate::queue::{Done, Turn};

/// How long a stop or an unprotect may take before recovery's rules decide instead.
const PREPARATION_MAX: Duration = Duration::from_mins(10);

/// How long the guest may take to show it.
const SHOWS_WITHIN: Duration = Duration::from_secs(30);

/// The pause between two looks.
const LOOK_PAUSE: Duration = Duration::from_millis(500);

/// Why a step is not taken.
const GOES_DOWN: &str = "the agent goes down";
const ANOTHER: &str = "another guest has the number now";
const NOT_READY: &str =
    "the guest is not stopped and bare: it runs, is locked, protected, or a change waits";

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
            prepare_and_destroy(hands, op, (&cleared, order), destroy, turn).await?
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

/// The steps of a destroy. `started` has promised the first of them.
async fn prepare_and_destroy(
    hands: &Hands,
    op: OperationId,
    (cleared, order): (&Cleared, &SignedOrder),
    destroy: Destroy,
    turn: &mut Turn,
) -> Result<End, Fatal> {
    let guest = cleared.guest();
    let mut first = true;
    if destroy.stop {
        let Some(permit) = turn.take().await else {
            return abandon(hands, op, GOES_DOWN).await;
        };
        if let Err(why) = last_look(hands, cleared, order, first, |_| true).await? {
            return abandon(hands, op, &why).await;
        }
        let answer = hands.client.writes(cleared).stop(guest).await.map(Taken::Task);
        drop(permit);
        first = false;
        if let Some(end) = prepared(hands, op, answer).await? {
            return Ok(end);
        }
    }
    if destroy.unprotect {
        if let Err(why) = seen(hands, cleared, ready).await {
            return abandon(hands, op, &why).await;
        }
        let Some(permit) = turn.take().await else {
            return abandon(hands, op, GOES_DOWN).await;
        };
        let change = match last_look(hands, cleared, order, first, ready).await? {
            Ok(fresh) => unprotect(&fresh),
            Err(why) => return abandon(hands, op, &why).await,
        };
        let Some(change) = change else {
            return abandon(hands, op, "Proxmox gave no digest of its configuration").await;
        };
        if !std::mem::take(&mut first) {
            begin_next(hands, op, Request::Unprotect).await?;
        }
        let answer = hands.client.writes(cleared).set_config(guest, change).await;
        drop(permit);
        if let Some(end) = prepared(hands, op, answer).await? {
            return Ok(end);
        }
    }
    if let Err(why) = seen(hands, cleared, bare).await {
        return abandon(hands, op, &why).await;
    }
    let Some(permit) = turn.take().await else {
        return abandon(hands, op, GOES_DOWN).await;
    };
    if let Err(why) = last_look(hands, cleared, order, first, bare).await? {
        return abandon(hands, op, &why).await;
    }
    if !first {
        begin_next(hands, op, Request::Act).await?;
    }
    let answer = send(hands, cleared).await;
    drop(permit);
    Ok(follow(hands, op, answer).await?.0)
}

/// Down, with nothing that waits for a restart.
fn ready(fresh: &Guest) -> bool {
    let waits = fresh.config.as_ref().map_or(true, Config::anything_waits);
    !waits && fresh.power == Power::Stopped
}

/// And without protection.
fn bare(fresh: &Guest) -> bool {
    ready(fresh) && !Destroy::of(fresh).unprotect
}

/// The guest directly before a request leaves; in words why it must not. Who froze the host or took the number since
/// the last request is heard here. Before the first request nothing of ours has changed the guest, so its configuration
/// is the one that was signed for; after it only who it is counts.
async fn last_look(
    hands: &Hands,
    cleared: &Cleared,
    order: &SignedOrder,
    first: bool,
    ready: impl Fn(&Guest) -> bool,
) -> Result<Result<Guest, String>, Fatal> {
    if (hands.frozen)() {
        return Ok(Err("this host was frozen meanwhile".to_owned()));
    }
    let fresh = match observe_guest(&hands.client, cleared.guest()).await {
        Ok(fresh) => fresh,
        Err(error) => return Ok(Err(error.to_string())),
    };
    match found(hands, &fresh, &order.anchor).await? {
        found @ Found::Guest { .. } if first && !is_expected(&order.item.expected, &found) => {
            return Ok(Err("it was changed after it was signed".to_owned()));
        }
        Found::Guest { identity, .. } if Some(identity) == cleared.identity() => {}
        Found::Guest { .. } | Found::Free => return Ok(Err(ANOTHER.to_owned())),
        Found::Unproven { why } => return Ok(Err(why)),
    }
    if fresh.lock.is_some() || !ready(&fresh) {
        return Ok(Err(NOT_READY.to_owned()));
    }
    Ok(Ok(fresh))
}

fn is_expected(expected: &Expected, found: &Found) -> bool {
    match (expected, found) {
        (Expected::Guest { identity, digest }, Found::Guest { identity: live, digest: now }) => {
            (identity, digest) == (live, now)
        }
        (Expected::Guest { .. } | Expected::Free, _) => false,
    }
}

fn unprotect(fresh: &Guest) -> Option<ConfigChange> {
    let digest = fresh.config.as_ref().ok()?.digest.parse().ok()?;
    let protection: ConfigKey = "protection".parse().ok()?;
    let set = Settings::new().set(&protection, "0");
    Some(ConfigChange { set, delete: Vec::new(), revert: Vec::new(), digest })
}

/// Makes the next request durable before it is sent.
async fn begin_next(hands: &Hands, op: OperationId, request: Request) -> Result<(), Fatal> {
    let sent_at = hands.node_now();
    hands.record(op, OpEvent::RequestStarted { request, sent_at }).await
}

/// Awaits a preparation; an end means that the act must not follow.
async fn prepared(
    hands: &Hands,
    op: OperationId,
    answer: Result<Taken, Error>,
) -> Result<Option<End>, Fatal> {
    match answer {
        Ok(Taken::Done) => Ok(None),
        Ok(Taken::Task(upid)) => {
            hands.record(op, OpEvent::TaskRunning { upid: upid.clone(), found: false }).await?;
            if has_ended(hands, &upid).await {
                Ok(None)
            } else {
                by_evidence(hands, op).await.map(Some)
            }
        }
        Err(Error::Unknown { .. }) => by_evidence(hands, op).await.map(Some),
        Err(error @ (Error::NotSent { .. } | Error::Refused(_))) => {
            abandon(hands, op, &error.to_string()).await.map(Some)
        }
    }
}

/// How it ended does not matter: the guest is looked at before anything follows.
async fn has_ended(hands: &Hands, upid: &Upid) -> bool {
    let deadline = Instant::now() + PREPARATION_MAX;
    while Instant::now() < deadline {
        if let Ok(Waited::Ended(_)) = hands.client.wait(upid, deadline).await {
            return true;
        }
        tokio::time::sleep(LOOK_PAUSE).await;
    }
    false
}

/// Waits until the guest is as it must be, still the same one, and unlocked.
async fn seen(
    hands: &Hands,
    cleared: &Cleared,
    ready: impl Fn(&Guest) -> bool,
) -> Result<(), String> {
    let deadline = Instant::now() + SHOWS_WITHIN;
    loop {
        let why = match observe_guest(&hands.client, cleared.guest()).await {
            Ok(fresh) if identity(&fresh).ok() != cleared.identity() => {
                return Err(ANOTHER.to_owned());
            }
            Ok(fresh) if ready(&fresh) && fresh.lock.is_none() => return Ok(()),
            Ok(_) => NOT_READY.to_owned(),
            Err(error) => error.to_string(),
        };
        if Instant::now() >= deadline {
            return Err(why);
        }
        tokio::time::sleep(LOOK_PAUSE).await;
    }
}

/// Ends it before the act: nothing of the guest's data was touched.
async fn abandon(hands: &Hands, op: OperationId, why: &str) -> Result<End, Fatal> {
    let reason = format!("the act was not sent: {why}");
    hands.record(op, OpEvent::Failed { reason: reason.clone(), left_volume: None }).await?;
    Ok(End::Failed { why: reason })
}

async fn by_evidence(hands: &Hands, op: OperationId) -> Result<End, Fatal> {
    let settled = settle(hands, op).await?;
    let reason = settled.map(|settled| {
        (settled.operation.is_in_flight(), why(&settled.operation.state).to_owned())
    });
    Ok(match reason {
        Some((true, why)) => End::Unknown { why },
        Some((false, why)) => End::Failed { why },
        None => End::Failed { why: "an operator closed it".to_owned() },
    })
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
    // Of a host that is frozen nothing is changed, not even for the better.
    if (hands.frozen)() {
        return Ok(());
    }
    let Ok(fresh) = observe_guest(&hands.client, owed.intent.guest).await else {
        // The next pass tries again.
        return Ok(());
    };
    let Some(cleared) = clear_protection(&owed, &fresh) else {
        return settle_debt(hands, &owed, &fresh).await;
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

/// Nothing is owed to another guest, nor to one that is protected; a locked one is asked again later.
async fn settle_debt(hands: &Hands, owed: &Operation, fresh: &Guest) -> Result<(), Fatal> {
    let is_it = identity(fresh).ok() == owed.intent.identity;
    if !is_it || Destroy::of(fresh).unprotect {
        note_given_back(hands, owed.id).await
    } else {
        Ok(())
    }
}

async fn note_given_back(hands: &Hands, op: OperationId) -> Result<(), Fatal> {
    let kept = Kept::put(Subject::Txn, given_back(op), 1, serde_json::Value::Bool(true));
    hands.begin(Record::Kept(kept)).await.map(drop)
}
