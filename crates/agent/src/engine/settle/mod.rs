//! Brings one operation to its end by evidence: the loop around `core::recover::decide`.
//!
//! One way for all: a live operation whose task runs or whose answer was lost, one found in flight at the start,
//! one whose outcome was unknown at the last pass. It reads and journals; it has no way to send anything
//! (invariants 4 and 13).

pub(super) mod evidence;
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use evenkeel_core::model::id::{GuestId, GuestKind, OperationId};
use evenkeel_core::operate::back_off::TryFailure;
use evenkeel_core::operate::operation::{OpEvent, OpState, Operation, Upid, VolumeId};
use evenkeel_core::operate::recover::{Evidence, FailReason, RecoveryDecision, WaitReason, decide};
use tokio::time::Instant;

use crate::engine::error::Fatal;
use crate::engine::gate::guest_look::GuestLook;
use crate::engine::memory::kept_warnings;
use crate::engine::settle::evidence::{EvidenceReader, SettleClock};
use crate::engine::{EngineContext, Progress};
use crate::journal::{AppendError, Details};
use crate::pve::error::{Error, ErrorClass};
use crate::pve::task::ExitStatus;
use crate::pve::wire::TaskStatus;
use crate::sometimes;

/// How long one wait for a task lasts before its status is journalled knowledge again: a hung task costs one
/// cheap question in this time and nothing else.
const TASK_WAIT: Duration = Duration::from_mins(1);

/// The longest pause between two looks: more than the minute in which Proxmox begins what it took.
const WAIT_MAX: Duration = Duration::from_secs(90);

/// The shortest pause: the node's time is known in whole seconds.
const WAIT_MIN: Duration = Duration::from_secs(1);

/// The pause before asking again whether the node takes requests.
const UNTAKEN_PAUSE: Duration = Duration::from_secs(5);

/// How an operation stands when there is nothing more to learn now.
#[derive(Debug)]
pub(super) struct Settled {
    /// Closed, or unknown.
    pub(super) operation: Operation,
    /// Why trying it again may help, by what its task failed with.
    pub(super) may_pass: Option<RetryCause>,
    /// Whether it came to nothing and left nothing behind.
    pub(super) left_nothing: bool,
    /// What is odd about its success.
    pub(super) warning: Option<String>,
    /// The guest as it was last read for it.
    pub(super) look: Option<GuestLook>,
    /// When the node had taken its request, if that is known.
    pub(super) taken: Option<Instant>,
}

/// What passes by itself, so that the lane tries a planned act again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RetryCause {
    /// Somebody else has the lock file.
    LockFile,
    /// Somebody else wrote the configuration first.
    ChangedMeanwhile,
    /// The node's daemon lost the worker it had begun.
    WorkerLost,
}

impl fmt::Display for RetryCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LockFile => "a lock file is taken",
            Self::ChangedMeanwhile => "the configuration was changed meanwhile",
            Self::WorkerLost => "Proxmox lost the worker that it began",
        })
    }
}

/// Who settles: it tells whether a failure without a task counts as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SettledBy {
    /// The lane that sent the request, or panicked over it: that it came to nothing is a failure, and one that comes
    /// every time must not be met every minute.
    Lane,
    /// Whoever found it in flight: perhaps it was never sent, and nothing speaks against trying it now.
    Recovery,
}

/// Follows an operation until it is closed or nothing more can be learned now. The node had taken its request at `taken`:
/// it answered, or it answered something that was asked later; `None` as long as nobody knows.
pub(super) async fn settle(
    context: &EngineContext,
    op: OperationId,
    taken: Option<Instant>,
    settler: SettledBy,
) -> Result<Option<Settled>, Fatal> {
    settle_seen(context, op, taken, settler, None).await
}

/// The same by who has asked for the operation's task already.
pub(super) async fn settle_seen(
    context: &EngineContext,
    op: OperationId,
    taken: Option<Instant>,
    settler: SettledBy,
    first: Option<Result<TaskStatus, Error>>,
) -> Result<Option<Settled>, Fatal> {
    let Some((operation, _)) = load(context, op).await? else {
        return Ok(None);
    };
    let mut reader = EvidenceReader::new(SettleClock::new(&operation, taken));
    if let Some(first) = first {
        reader.see_task(first);
    }
    loop {
        let Some((operation, details)) = load(context, op).await? else {
            return Ok(None);
        };
        let decision = decide(&operation, &reader.evidence, reader.clock.now());
        match settler {
            SettledBy::Lane => sometimes!("its lane settles", decision.arm()),
            SettledBy::Recovery => sometimes!("recovery", decision.arm()),
        }
        match &decision {
            RecoveryDecision::Look(question) => {
                reader.look(context, &operation, &details, *question).await?;
            }
            RecoveryDecision::Wait { reason: WaitReason::LateFork, .. }
                if reader.clock.taken().is_none() =>
            {
                see_taken_or_wait(context, &operation, &mut reader).await;
            }
            RecoveryDecision::Wait { not_before, reason } => {
                wait(context, &operation, reader.clock.until(*not_before), *reason).await;
                reader.evidence = std::mem::take(&mut reader.evidence).after_wait();
            }
            RecoveryDecision::Resume(upid) => {
                // How it ended is asked anew; here only time passes.
                let deadline = Instant::now() + TASK_WAIT;
                let guest = operation.intent.guest;
                let _ = context.wait_for_task(op, guest, upid, deadline).await;
                reader.evidence = Evidence::default();
            }
            RecoveryDecision::Adopt(_)
            | RecoveryDecision::Succeed { .. }
            | RecoveryDecision::Fail { .. }
            | RecoveryDecision::Doubt(_)
            | RecoveryDecision::Closed => {
                let decided = (operation, &details, &decision);
                let settled = carry_out(context, decided, settler, &mut reader).await?;
                if settled.is_some() {
                    return Ok(settled);
                }
                reader.evidence = Evidence::default();
            }
        }
    }
}

/// Asks whether the node has taken the request, and waits a little if nobody knows.
async fn see_taken_or_wait(
    context: &EngineContext,
    operation: &Operation,
    reader: &mut EvidenceReader,
) {
    if !reader.see_taken(context, operation.intent.guest).await {
        sometimes!("nobody knows yet whether the node has taken a request");
        wait(context, operation, UNTAKEN_PAUSE, WaitReason::LateFork).await;
    }
}

/// Journals a decision and tells of it; none if there is more to learn: a task was adopted, or somebody else closed the
/// operation first.
async fn carry_out(
    context: &EngineContext,
    (operation, details, decision): (Operation, &Details, &RecoveryDecision),
    settler: SettledBy,
    reader: &mut EvidenceReader,
) -> Result<Option<Settled>, Fatal> {
    let event = event_of(context, &operation, details, decision, (settler, reader)).await;
    let warning = warning(event.as_ref());
    let Some(after) = journalled(context, operation, event).await? else {
        return Ok(None);
    };
    if let RecoveryDecision::Adopt(upid) = decision {
        adopted(context, &after, upid);
        return Ok(None);
    }
    if let OpState::Succeeded { .. } = after.state {
        kept_warnings::note(context, &after, details, warning.as_deref()).await?;
    }
    Ok(Some(Settled {
        operation: after,
        may_pass: reader.exit.as_ref().and_then(may_pass),
        left_nothing: left_nothing(decision),
        warning,
        look: reader.look.take(),
        taken: reader.clock.taken(),
    }))
}

/// What the journal is told of a decision, with what is known of its task.
async fn event_of(
    context: &EngineContext,
    operation: &Operation,
    details: &Details,
    decision: &RecoveryDecision,
    (settler, reader): (SettledBy, &EvidenceReader),
) -> Option<OpEvent> {
    let event = decision.event(&operation.state, reader.identity())?;
    let was_sent = matches!(operation.state, OpState::Unknown { .. });
    let counts = settler == SettledBy::Lane || reader.exit.is_some() || was_sent;
    let tried = counts.then(|| context.failed_now(operation, false)).flatten();
    let event = with_try(event, tried);
    let event = context.with_log_words(operation, details, event, reader.exit.as_ref()).await;
    Some(naming(event, operation, &reader.unnamed))
}

/// The operation after the event, which is on disk; none if an operator closed it first. It is not read back: the
/// journal may forget an operation as soon as it is closed.
async fn journalled(
    context: &EngineContext,
    operation: Operation,
    event: Option<OpEvent>,
) -> Result<Option<Operation>, Fatal> {
    let Some(event) = event else {
        return Ok(Some(operation));
    };
    let after = operation.after(&event);
    match context.record(operation.id, event).await {
        Ok(()) => Ok(after.ok()),
        Err(Fatal::Journal(AppendError::Refused(_)))
            if load(context, operation.id).await?.is_none_or(|(now, _)| !now.is_in_flight()) =>
        {
            Ok(None)
        }
        Err(fatal) => Err(fatal),
    }
}

/// The operation and what its `started` record told; none if the journal has forgotten it, being closed.
pub(super) async fn load(
    context: &EngineContext,
    op: OperationId,
) -> Result<Option<(Operation, Details)>, Fatal> {
    let found = context.journal.read(move |state, _| {
        let operation = state.ledger().get(op)?.clone();
        let details = state.details(op).cloned().unwrap_or_default();
        Some((operation, details))
    });
    found.await.map_err(Fatal::Journal)
}

/// A failure says whether it counts.
fn with_try(event: OpEvent, tried: Option<TryFailure>) -> OpEvent {
    if let OpEvent::Failed { reason, left_volume, identity, .. } = event {
        OpEvent::Failed { reason, left_volume, tried, identity }
    } else {
        event
    }
}

/// What is not known because volumes are named by nothing any more says which.
fn naming(event: OpEvent, operation: &Operation, unnamed: &BTreeSet<VolumeId>) -> OpEvent {
    let doubts = matches!(event, OpEvent::Unknown { .. });
    if doubts && !unnamed.is_empty() {
        return OpEvent::Unknown { reason: nothing_names(operation.intent.guest, unnamed) };
    }
    event
}

/// What people are told of volumes that an act had to leave named and that nothing names now.
pub(super) fn nothing_names(guest: GuestId, unnamed: &BTreeSet<VolumeId>) -> String {
    let names: Vec<&str> = unnamed.iter().map(VolumeId::as_str).collect();
    let tool = match guest.kind {
        GuestKind::Lxc => "pct",
        GuestKind::Qemu => "qm",
    };
    let names = names.join(", ");
    tracing::error!(%guest, names, "nothing names volumes any more that the guest named before");
    format!(
        "nothing names {names} any more, which {guest} named before; its data was not freed: have its storage defined, then run \
         `{tool} rescan --vmid {}` on the node",
        guest.vmid
    )
}

/// A lock file that could not be taken in time.
fn may_pass(exit: &ExitStatus) -> Option<RetryCause> {
    (exit.class() == Some(ErrorClass::LockTimeout)).then_some(RetryCause::LockFile)
}

fn left_nothing(decision: &RecoveryDecision) -> bool {
    match decision {
        RecoveryDecision::Fail { reason, left_volume: None } => *reason != FailReason::HalfMade,
        RecoveryDecision::Fail { left_volume: Some(_), .. }
        | RecoveryDecision::Look(_)
        | RecoveryDecision::Wait { .. }
        | RecoveryDecision::Resume(_)
        | RecoveryDecision::Adopt(_)
        | RecoveryDecision::Succeed { .. }
        | RecoveryDecision::Doubt(_)
        | RecoveryDecision::Closed => false,
    }
}

async fn wait(context: &EngineContext, operation: &Operation, pause: Duration, reason: WaitReason) {
    let op = operation.id;
    let guest = operation.intent.guest;
    context.tell(Progress::Waiting { op, guest, why: reason.to_string() });
    tokio::time::sleep(pause.clamp(WAIT_MIN, WAIT_MAX)).await;
}

fn adopted(context: &EngineContext, operation: &Operation, upid: &Upid) {
    let op = operation.id;
    let guest = operation.intent.guest;
    context.tell(Progress::Task { op, guest, upid: upid.clone() });
}

fn warning(event: Option<&OpEvent>) -> Option<String> {
    if let Some(OpEvent::Succeeded { warning, .. }) = event { warning.clone() } else { None }
}

/// Why it failed or is unknown; empty otherwise.
pub(super) fn why(state: &OpState) -> &str {
    match state {
        OpState::Failed { reason, .. } | OpState::Unknown { reason, .. } => reason,
        OpState::Started { .. } | OpState::TaskRunning { .. } | OpState::Succeeded { .. } => "",
    }
}
