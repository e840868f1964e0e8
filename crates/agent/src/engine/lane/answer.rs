//! From PVE's answer to the end of an operation.
//!
//! ```text
//!   task ──────> settle                    done ─────> read back ─> succeeded, failed, unknown
//!   hidden ────> settle
//!   lost ──────> settle                    refused ──> read back ─> failed, or done already
//!   not sent ──> failed
//! ```
//!
//! It reads and journals; core says what an answer leaves behind. It must never send anything.

use std::time::Duration;

use evenkeel_core::action_registry::{NullAnswer, Proof};
use evenkeel_core::model::id::OperationId;
use evenkeel_core::operate::operation::{OpEvent, OpState, Operation, Upid};
use evenkeel_core::operate::recover::{
    AnswerKind, AnswerVerdict, Question, judge_answer, left_volume,
};
use futures_util::future;
use tokio::time::Instant;

use crate::engine::error::Fatal;
use crate::engine::gate::guest_look::GuestLook;
use crate::engine::memory::kept_warnings;
use crate::engine::pass::report::OpOutcome;
use crate::engine::settle::evidence::{EvidenceReader, SettleClock};
use crate::engine::settle::{RetryCause, Settled, SettledBy, load, settle, settle_seen, why};
use crate::engine::{EngineContext, Progress};
use crate::journal::Details;
use crate::pve::error::{Error, ErrorClass, PveRefusal, Unknown};
use crate::pve::writes::Taken;
use crate::sometimes;

/// How long a synchronous write may take to show in what PVE tells of the guest.
const READ_BACK_DEADLINE: Duration = Duration::from_secs(10);

/// The pause between two looks at it.
const READ_BACK_PAUSE: Duration = Duration::from_millis(500);

/// One try of an order, and how it ended.
pub(in crate::engine) struct OpAttempt {
    pub(in crate::engine) end: OpOutcome,
    pub(in crate::engine) upid: Option<Upid>,
    /// `started` is on disk.
    pub(in crate::engine) started: bool,
    /// The same may succeed a little later without anyone doing anything.
    pub(in crate::engine) may_pass: Option<RetryCause>,
    /// A storage was not waited for: it must be tried again with patience.
    pub(in crate::engine) gave_up: bool,
    /// The guest that proved a success.
    pub(in crate::engine) look: Option<GuestLook>,
}

impl OpAttempt {
    /// One that began, with an end that another try would not change.
    pub(in crate::engine) fn ended(end: OpOutcome) -> Self {
        Self { end, upid: None, started: true, may_pass: None, gave_up: false, look: None }
    }

    /// One that ended before anything was begun.
    pub(in crate::engine) fn not_started(end: OpOutcome) -> Self {
        Self { started: false, ..Self::ended(end) }
    }
}

/// Follows an answer to the end of its operation.
pub(in crate::engine) async fn follow(
    context: &EngineContext,
    op: OperationId,
    answer: Result<Taken, Error>,
) -> Result<OpAttempt, Fatal> {
    match answer {
        Ok(Taken::Task(upid)) => {
            // The first look at the task does not wait for the disk: it only reads.
            let sent = Instant::now();
            let running = OpEvent::TaskRunning { upid: upid.clone(), found: false };
            let (recorded, first) =
                future::join(context.record(op, running), context.client.task_status(&upid)).await;
            recorded?;
            if let Some((operation, _)) = load(context, op).await? {
                context.tell(Progress::Task { op, guest: operation.intent.guest, upid });
            }
            Ok(settled(settle_seen(context, op, Some(sent), SettledBy::Lane, Some(first)).await?))
        }
        Ok(Taken::Done) if hides_task(context, op).await? => {
            Ok(settled(settle(context, op, Some(Instant::now()), SettledBy::Lane).await?))
        }
        Ok(Taken::Done) => read_back(context, op).await,
        Err(Error::Unknown { why: Unknown::WorkerLost { .. }, .. }) => {
            follow_lost_worker(context, op).await
        }
        Err(Error::Unknown { .. }) => {
            sometimes!("the answer to an act was lost");
            Ok(settled(settle(context, op, None, SettledBy::Lane).await?))
        }
        Err(error @ Error::NotSent { .. }) => {
            sometimes!("`started` is on disk and the act did not leave");
            let why = error.to_string();
            let Some((operation, _)) = load(context, op).await? else {
                return Ok(settled(None));
            };
            let tried = context.failed_now(&operation, false);
            let failed =
                OpEvent::Failed { reason: why.clone(), left_volume: None, tried, identity: None };
            context.record(op, failed).await?;
            Ok(OpAttempt::ended(OpOutcome::Failed { why }))
        }
        Err(Error::Refused(refusal)) => close_refused(context, op, &refusal).await,
    }
}

/// The node forked a worker and did not hear of it. A task may be listed, ended or even at work: that is looked up like any
/// lost answer. What came to nothing and left nothing is no failure of the act, and may be tried again by the lane; what an
/// operator signed never is.
async fn follow_lost_worker(context: &EngineContext, op: OperationId) -> Result<OpAttempt, Fatal> {
    sometimes!("a worker was lost and its task is looked for");
    let found = settle(context, op, Some(Instant::now()), SettledBy::Lane).await?;
    let left_nothing = found.as_ref().is_some_and(|found| found.left_nothing);
    let answered = settled(found);
    let may_pass = left_nothing.then_some(RetryCause::WorkerLost).or(answered.may_pass);
    Ok(OpAttempt { may_pass, ..answered })
}

/// Whether the call has begun a task that its answer does not name: then nothing is done yet.
async fn hides_task(context: &EngineContext, op: OperationId) -> Result<bool, Fatal> {
    let operation = load(context, op).await?.map(|(operation, _)| operation);
    Ok(operation.is_some_and(|op| op.intent.kind.row().null_answer == NullAnswer::TaskHidden))
}

fn settled(settled: Option<Settled>) -> OpAttempt {
    let Some(Settled { operation, may_pass, warning, look, .. }) = settled else {
        // Closed and already forgotten: somebody resolved it by hand meanwhile.
        return OpAttempt::ended(OpOutcome::Failed { why: "an operator closed it".to_owned() });
    };
    let why = why(&operation.state).to_owned();
    match &operation.state {
        OpState::Succeeded { .. } => {
            OpAttempt { look, ..OpAttempt::ended(OpOutcome::Succeeded { warning }) }
        }
        OpState::Failed { .. } => {
            OpAttempt { may_pass, ..OpAttempt::ended(OpOutcome::Failed { why }) }
        }
        OpState::Unknown { .. } | OpState::Started { .. } | OpState::TaskRunning { .. } => {
            OpAttempt::ended(OpOutcome::Unknown { why })
        }
    }
}

/// A synchronous answer is success once the guest shows it.
async fn read_back(context: &EngineContext, op: OperationId) -> Result<OpAttempt, Fatal> {
    let deadline = Instant::now() + READ_BACK_DEADLINE;
    let Some((operation, _)) = load(context, op).await? else {
        return Ok(settled(None));
    };
    let mut reader = EvidenceReader::new(SettleClock::new(&operation, Some(Instant::now())));
    loop {
        let Some((operation, details)) = load(context, op).await? else {
            return Ok(settled(None));
        };
        let found = reader.postcondition(context, &operation, &details).await;
        let answer = AnswerKind::Taken { late: Instant::now() >= deadline };
        match judge_answer(operation.intent.kind, answer, found) {
            AnswerVerdict::Done => {
                return succeed(context, &operation, &details, reader, None).await;
            }
            AnswerVerdict::LookAgain => tokio::time::sleep(READ_BACK_PAUSE).await,
            AnswerVerdict::Failed => {
                let why = if operation.intent.kind.row().proof == Proof::VolumeGone {
                    "Proxmox took the write, but the volume is still there"
                } else {
                    "Proxmox took the write, but the guest does not show it"
                };
                return close_failed(context, op, &mut reader, why, RetryAdvice::Later).await;
            }
            AnswerVerdict::AskNumber | AnswerVerdict::Unknown => {
                let why = reader.doubt(operation.intent.guest).unwrap_or_else(|| {
                    "the write was taken, but the guest could not be read back".to_owned()
                });
                return close_unknown(context, op, &why).await;
            }
        }
    }
}

/// A refusal does not prove that nothing changed, and "already running" is what was wanted: the guest tells.
async fn close_refused(
    context: &EngineContext,
    op: OperationId,
    refusal: &PveRefusal,
) -> Result<OpAttempt, Fatal> {
    let Some((operation, details)) = load(context, op).await? else {
        return Ok(settled(None));
    };
    let mut reader = EvidenceReader::new(SettleClock::new(&operation, Some(Instant::now())));
    let why = refusal.to_string();
    let found = reader.postcondition(context, &operation, &details).await;
    match judge_answer(operation.intent.kind, AnswerKind::Refused, found) {
        AnswerVerdict::AskNumber => {
            Ok(settled(settle(context, op, Some(Instant::now()), SettledBy::Lane).await?))
        }
        AnswerVerdict::Done => {
            let warning = is_worth_a_word(&refusal.class)
                .then(|| format!("{why}; yet the guest is as it should be"));
            succeed(context, &operation, &details, reader, warning).await
        }
        AnswerVerdict::Failed => {
            close_failed(context, op, &mut reader, &why, RetryAdvice::after(&refusal.class)).await
        }
        AnswerVerdict::LookAgain | AnswerVerdict::Unknown => {
            let doubt = reader.doubt(operation.intent.guest);
            let doubt = doubt.unwrap_or_else(|| "the guest could not be read after it".to_owned());
            close_unknown(context, op, &format!("{why}; and {doubt}")).await
        }
    }
}

/// When the same may succeed without anybody doing anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RetryAdvice {
    /// In a moment: somebody was faster, or has the lock file. The guest is read anew and judged again.
    Soon(RetryCause),
    /// Later, perhaps.
    Later,
    /// Not by waiting: the node refuses a parameter, or the token lacks a right.
    Never,
}

impl RetryAdvice {
    fn after(class: &ErrorClass) -> Self {
        match class {
            ErrorClass::LockTimeout => Self::Soon(RetryCause::LockFile),
            ErrorClass::DigestMismatch => Self::Soon(RetryCause::ChangedMeanwhile),
            ErrorClass::ParameterRefused
            | ErrorClass::Authentication
            | ErrorClass::Permission
            | ErrorClass::RootOnly
            | ErrorClass::NotImplemented
            | ErrorClass::BodyTooLarge
            | ErrorClass::Shrink
            | ErrorClass::IsTemplate
            | ErrorClass::TooManyUnused => Self::Never,
            ErrorClass::GuestNotFound
            | ErrorClass::NotFound
            | ErrorClass::UnknownNode
            | ErrorClass::NoSuchTask
            | ErrorClass::Locked { .. }
            | ErrorClass::NoQuorum
            | ErrorClass::AlreadyExists
            | ErrorClass::AlreadyRunning
            | ErrorClass::NotRunning
            | ErrorClass::GuestRunning
            | ErrorClass::DidNotStop
            | ErrorClass::AlreadyAtSize
            | ErrorClass::Protected
            | ErrorClass::UsedInHa
            | ErrorClass::NothingToDo
            | ErrorClass::Redirected
            | ErrorClass::Other => Self::Later,
        }
    }
}

/// Whether a refusal says more than that there was nothing to do.
fn is_worth_a_word(class: &ErrorClass) -> bool {
    !matches!(
        class,
        ErrorClass::AlreadyRunning
            | ErrorClass::NotRunning
            | ErrorClass::AlreadyAtSize
            | ErrorClass::NothingToDo
    )
}

async fn succeed(
    context: &EngineContext,
    operation: &Operation,
    details: &Details,
    reader: EvidenceReader,
    warning: Option<String>,
) -> Result<OpAttempt, Fatal> {
    let identity = reader.identity();
    let done = OpEvent::Succeeded { identity, warning: warning.clone() };
    context.record(operation.id, done).await?;
    kept_warnings::note(context, operation, details, warning.as_deref()).await?;
    Ok(OpAttempt { look: reader.look, ..OpAttempt::ended(OpOutcome::Succeeded { warning }) })
}

/// Closes as failed; an allocating write may have left its volume behind.
async fn close_failed(
    context: &EngineContext,
    op: OperationId,
    reader: &mut EvidenceReader,
    why: &str,
    prospect: RetryAdvice,
) -> Result<OpAttempt, Fatal> {
    let Some((operation, details)) = load(context, op).await? else {
        return Ok(settled(None));
    };
    reader.look(context, &operation, &details, Question::Volumes).await?;
    let volumes = reader.evidence.volumes.take().map(|seen| seen.found);
    let left_volume = match left_volume(volumes) {
        Ok(left) => left,
        Err(unknown) => return close_unknown(context, op, &format!("{why}; and {unknown}")).await,
    };
    let may_pass = match prospect {
        RetryAdvice::Soon(cause) if left_volume.is_none() => Some(cause),
        RetryAdvice::Soon(_) | RetryAdvice::Later | RetryAdvice::Never => None,
    };
    let tried = context.failed_now(&operation, prospect == RetryAdvice::Never);
    let failed = OpEvent::Failed { reason: why.to_owned(), left_volume, tried, identity: None };
    context.record(op, failed).await?;
    Ok(OpAttempt { may_pass, ..OpAttempt::ended(OpOutcome::Failed { why: why.to_owned() }) })
}

async fn close_unknown(
    context: &EngineContext,
    op: OperationId,
    why: &str,
) -> Result<OpAttempt, Fatal> {
    context.record(op, OpEvent::Unknown { reason: why.to_owned() }).await?;
    Ok(OpAttempt::ended(OpOutcome::Unknown { why: why.to_owned() }))
}
