//! Carries out one action in its lane: journal, request, task, postcondition, journal.
//!
//! ```text
//!   turn ─> gate ─> started (on disk) ─> request ─┬─ task ────────> settle
//!     ▲                                           ├─ done ────────> read back ─> succeeded
//!     │                                           ├─ refused ─────> read back ─> failed, or done already
//!     │                                           ├─ not sent ────> failed
//!     └── a lock file was taken: again, as a new operation          └─ lost ─> settle
//! ```
//!
//! Nothing else in evenkeel sends a request that changes something. It must never send before `started` is on
//! disk, nor twice under one name.

use std::time::Duration;

use evenkeel_core::id::OperationId;
use evenkeel_core::identity::identity;
use evenkeel_core::lane::Outcome;
use evenkeel_core::operation::{OpEvent, OpRecord, OpState, Upid};
use evenkeel_core::recover::{AfterRefusal, NewVolumes, Postcondition, Question, after_refusal};
use tokio::time::Instant;

use super::error::Fatal;
use super::gate::{self, Act, Cleared, Order, Stop};
use super::report::{End, OpReport};
use super::settle::{Settled, load, settle, why};
use super::world::{SettleClock, Sight};
use super::{Hands, Progress};
use crate::journal::Record;
use crate::pve::error::{Class, Error, Refusal};
use crate::pve::writes::{DestroyFlags, Taken};
use crate::queue::{Done, Turn};

/// How often an action is tried when a lock file is taken: PVE itself waits ten seconds each time.
const TRIES_MAX: u32 = 4;

/// The first pause before trying again; it doubles.
const FIRST_PAUSE: Duration = Duration::from_secs(2);

/// How long a synchronous write may take to show in what PVE tells of the guest.
const READ_BACK_DEADLINE: Duration = Duration::from_secs(10);

/// The pause between two looks at it.
const READ_BACK_PAUSE: Duration = Duration::from_millis(500);

/// What the engine hears of a job: the report of its operation and of one that followed from it, or that everything
/// must end.
pub(super) type Told = Result<Vec<OpReport>, Fatal>;

/// One try.
struct Tried {
    op: OperationId,
    end: End,
    upid: Option<Upid>,
    started: bool,
    /// The same may succeed a little later without anyone doing anything.
    may_pass: bool,
}

/// Carries out one action; what its lane's job is called is the first operation's name.
pub(super) async fn run(
    hands: Hands,
    first: OperationId,
    order: Order,
    mut turn: Turn,
) -> Done<Told> {
    let mut op = first;
    let mut started = 0;
    let mut pause = FIRST_PAUSE;
    for tries_left in (0..TRIES_MAX).rev() {
        let tried = match try_once(&hands, op, &order, &mut turn).await {
            Ok(tried) => tried,
            // What was sent is not known to the journal: the lane stays shut, and the process ends.
            Err(fatal) => return Done { outcome: Outcome::Unknown, result: Err(fatal) },
        };
        started += usize::from(tried.started);
        if !tried.may_pass || tries_left == 0 {
            return done(&hands, &order, tried, started);
        }
        let why = "a lock file is taken; trying again".to_owned();
        hands.tell(Progress::Waiting { op, guest: order.action.guest, why });
        tokio::time::sleep(jittered(&hands, pause)).await;
        pause *= 2;
        op = hands.new_operation();
    }
    unreachable!("the last try returns")
}

/// Up to a quarter longer, so that lanes that met once do not meet again.
fn jittered(hands: &Hands, pause: Duration) -> Duration {
    let quarter = u32::try_from(hands.ambient.random() % 250).unwrap_or(0);
    pause + pause * quarter / 1_000
}

fn done(hands: &Hands, order: &Order, tried: Tried, started: usize) -> Done<Told> {
    let Tried { op, end, upid, .. } = tried;
    let action = &order.action;
    let outcome = end.outcome();
    let (guest, kind, reasons) = (action.guest, action.step.kind(), action.reasons());
    let report = OpReport { op, guest, kind, reasons, end, upid, started };
    hands.tell(Progress::Ended(Box::new(report.clone())));
    Done { outcome, result: Ok(vec![report]) }
}

async fn try_once(
    hands: &Hands,
    op: OperationId,
    order: &Order,
    turn: &mut Turn,
) -> Result<Tried, Fatal> {
    let not_started = |end| Tried { op, end, upid: None, started: false, may_pass: false };
    let Some(permit) = turn.take().await else {
        return Ok(not_started(End::Skipped));
    };
    let cleared = match gate::clear(hands, order).await {
        Ok(cleared) => cleared,
        Err(stop) => return Ok(not_started(stopped(stop)?)),
    };
    if let Err(error) = hands.begin(started(hands, op, &cleared)).await? {
        let why = format!("{error}; nothing was sent");
        return Ok(not_started(End::Failed { why }));
    }
    hands.tell(Progress::Started { op, guest: cleared.guest(), what: cleared.reason() });
    let answer = send(hands, &cleared).await;
    drop(permit);
    let told = answer.as_ref().ok().and_then(|taken| match taken {
        Taken::Task(upid) => Some(upid.clone()),
        Taken::Done => None,
    });
    let (end, may_pass) = follow(hands, op, answer).await?;
    let found = load(hands, op).await?.and_then(|(operation, _)| operation.task);
    // A closed operation may be forgotten at once.
    let upid = found.or(told);
    Ok(Tried { op, end, upid, started: true, may_pass })
}

fn stopped(stop: Stop) -> Result<End, Fatal> {
    Ok(match stop {
        Stop::Unneeded => End::Unneeded,
        Stop::Stale(why) => End::Stale { why },
        Stop::Held(reason, why) => End::Held { reason, why },
        Stop::Refused(why) => End::Failed { why },
        Stop::Fatal(fatal) => return Err(fatal),
    })
}

/// The record that must be on disk before anything leaves (invariant 5).
pub(super) fn started(hands: &Hands, op: OperationId, cleared: &Cleared) -> Record {
    let event = OpEvent::Started(Box::new(cleared.intent(hands.node_now())));
    Record::op_started(OpRecord { op, event }, cleared.details())
}

pub(super) async fn send(hands: &Hands, cleared: &Cleared) -> Result<Taken, Error> {
    let guest = cleared.guest();
    let writes = hands.client.writes(cleared);
    match cleared.act() {
        Act::SetConfig(change) => writes.set_config(guest, change.clone()).await,
        Act::Resize { slot, to_bytes, digest } => {
            writes.resize(guest, slot, *to_bytes, digest).await
        }
        Act::Start => writes.start(guest).await.map(Taken::Task),
        Act::Shutdown { timeout_s } => {
            writes.shutdown(guest, *timeout_s, false).await.map(Taken::Task)
        }
        Act::Stop => writes.stop(guest).await.map(Taken::Task),
        Act::Rollback { snapshot } => writes.rollback(guest, snapshot).await.map(Taken::Task),
        Act::DeleteSnapshot { snapshot } => {
            writes.delete_snapshot(guest, snapshot).await.map(Taken::Task)
        }
        Act::Destroy(destroy) => {
            let flags = DestroyFlags { purge: destroy.purge, unreferenced_disks: false };
            writes.destroy(guest, flags).await.map(Taken::Task)
        }
    }
}

/// From PVE's answer to the end, and whether trying again may help.
pub(super) async fn follow(
    hands: &Hands,
    op: OperationId,
    answer: Result<Taken, Error>,
) -> Result<(End, bool), Fatal> {
    match answer {
        Ok(Taken::Task(upid)) => {
            hands.record(op, OpEvent::TaskRunning { upid: upid.clone(), found: false }).await?;
            if let Some((operation, _)) = load(hands, op).await? {
                hands.tell(Progress::Task { op, guest: operation.intent.guest, upid });
            }
            Ok(settled(settle(hands, op, Instant::now()).await?))
        }
        Ok(Taken::Done) => read_back(hands, op).await,
        Err(Error::Unknown { .. }) => Ok(settled(settle(hands, op, Instant::now()).await?)),
        Err(error @ Error::NotSent { .. }) => {
            let why = error.to_string();
            hands.record(op, failed(&why)).await?;
            Ok((End::Failed { why }, false))
        }
        Err(Error::Refused(refusal)) => close_refused(hands, op, &refusal).await,
    }
}

fn settled(settled: Option<Settled>) -> (End, bool) {
    let Some(Settled { operation, may_pass, warning }) = settled else {
        // Closed and already forgotten: somebody resolved it by hand meanwhile.
        return (End::Failed { why: "an operator closed it".to_owned() }, false);
    };
    let reason = why(&operation.state).to_owned();
    match &operation.state {
        OpState::Succeeded { .. } => (End::Succeeded { warning }, false),
        OpState::Failed { .. } => (End::Failed { why: reason }, may_pass),
        OpState::Unknown { .. } | OpState::Started { .. } | OpState::TaskRunning { .. } => {
            (End::Unknown { why: reason }, false)
        }
    }
}

fn failed(why: &str) -> OpEvent {
    OpEvent::Failed { reason: why.to_owned(), left_volume: None }
}

/// A synchronous answer is success once the guest shows it.
async fn read_back(hands: &Hands, op: OperationId) -> Result<(End, bool), Fatal> {
    let deadline = Instant::now() + READ_BACK_DEADLINE;
    let Some((operation, _)) = load(hands, op).await? else {
        return Ok(settled(None));
    };
    let mut sight = Sight::new(SettleClock::new(&operation, Instant::now()));
    loop {
        let Some((operation, details)) = load(hands, op).await? else {
            return Ok(settled(None));
        };
        let found = sight.postcondition(hands, &operation, &details).await;
        let late = Instant::now() >= deadline;
        match found {
            Postcondition::Holds => return succeed(hands, op, &sight, None).await,
            Postcondition::DoesNotHold if late => {
                let why = "Proxmox took the write, but the guest does not show it";
                return close_failed(hands, op, &mut sight, why, false).await;
            }
            Postcondition::AnotherGuest | Postcondition::NotYet | Postcondition::Unreadable
                if late =>
            {
                return doubt(
                    hands,
                    op,
                    "the write was taken, but the guest could not be read back",
                )
                .await;
            }
            Postcondition::DoesNotHold
            | Postcondition::AnotherGuest
            | Postcondition::NotYet
            | Postcondition::Unreadable => tokio::time::sleep(READ_BACK_PAUSE).await,
        }
    }
}

/// A refusal does not prove that nothing changed, and "already running" is what was wanted: the guest tells.
async fn close_refused(
    hands: &Hands,
    op: OperationId,
    refusal: &Refusal,
) -> Result<(End, bool), Fatal> {
    let Some((operation, details)) = load(hands, op).await? else {
        return Ok(settled(None));
    };
    let mut sight = Sight::new(SettleClock::new(&operation, Instant::now()));
    let why = refusal.to_string();
    let found = sight.postcondition(hands, &operation, &details).await;
    match after_refusal(operation.intent.kind, found) {
        AfterRefusal::AskNumber => Ok(settled(settle(hands, op, Instant::now()).await?)),
        AfterRefusal::Done => {
            let warning = is_worth_a_word(&refusal.class)
                .then(|| format!("{why}; yet the guest is as it should be"));
            succeed(hands, op, &sight, warning).await
        }
        AfterRefusal::Failed => {
            // Somebody was faster, or has the lock file: the guest is read anew and judged again.
            let may_pass = matches!(refusal.class, Class::LockTimeout | Class::DigestMismatch);
            close_failed(hands, op, &mut sight, &why, may_pass).await
        }
        AfterRefusal::Unknown => {
            doubt(hands, op, &format!("{why}; and the guest could not be read after it")).await
        }
    }
}

/// Whether a refusal says more than that there was nothing to do.
fn is_worth_a_word(class: &Class) -> bool {
    !matches!(
        class,
        Class::AlreadyRunning | Class::NotRunning | Class::AlreadyAtSize | Class::NothingToDo
    )
}

async fn succeed(
    hands: &Hands,
    op: OperationId,
    sight: &Sight,
    warning: Option<String>,
) -> Result<(End, bool), Fatal> {
    let identity = sight.guest.as_ref().and_then(|guest| identity(guest).ok());
    hands.record(op, OpEvent::Succeeded { identity, warning: warning.clone() }).await?;
    Ok((End::Succeeded { warning }, false))
}

/// Closes as failed; an allocating write may have left its volume behind.
async fn close_failed(
    hands: &Hands,
    op: OperationId,
    sight: &mut Sight,
    why: &str,
    may_pass: bool,
) -> Result<(End, bool), Fatal> {
    let Some((operation, details)) = load(hands, op).await? else {
        return Ok(settled(None));
    };
    sight.look(hands, &operation, &details, Question::Volumes).await?;
    let left_volume = match sight.evidence.volumes.take().map(|seen| seen.found) {
        None | Some(NewVolumes::None) => None,
        Some(NewVolumes::One(volume)) => Some(volume),
        Some(NewVolumes::Several | NewVolumes::Unreadable) => {
            return doubt(hands, op, &format!("{why}; and it is not known which volume it left"))
                .await;
        }
    };
    let may_pass = may_pass && left_volume.is_none();
    hands.record(op, OpEvent::Failed { reason: why.to_owned(), left_volume }).await?;
    Ok((End::Failed { why: why.to_owned() }, may_pass))
}

async fn doubt(hands: &Hands, op: OperationId, why: &str) -> Result<(End, bool), Fatal> {
    hands.record(op, OpEvent::Unknown { reason: why.to_owned() }).await?;
    Ok((End::Unknown { why: why.to_owned() }, false))
}
