//! Which event may follow which state of an operation; it must never let a request follow that was sent before.

use super::{Closer, OpEvent, OpPhase, OpState, Resolution, UnixSeconds, Upid, VolumeId};

/// An event that cannot follow: the journal is damaged or the agent has a bug. Nothing goes on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{event}` cannot follow `{state}`: {why}")]
pub struct IllegalTransition {
    /// The state it met, or `nothing`.
    pub state: &'static str,
    /// The event.
    pub event: &'static str,
    /// The rule it breaks.
    pub why: &'static str,
}

/// The one transition function: total, and every pair it does not allow is an error.
pub fn next(state: Option<&OpState>, event: &OpEvent) -> Result<OpState, IllegalTransition> {
    let illegal = |why| {
        let state = state.map_or("nothing", OpState::as_str);
        Err(IllegalTransition { state, event: event.as_str(), why })
    };
    match state {
        None => match event {
            OpEvent::Started(intent) => {
                Ok(OpState::Started { request: intent.first, sent_at: intent.sent_at })
            }
            OpEvent::RequestStarted { .. }
            | OpEvent::TaskRunning { .. }
            | OpEvent::Succeeded { .. }
            | OpEvent::Failed { .. }
            | OpEvent::Unknown { .. }
            | OpEvent::Resolved { .. } => illegal("an operation begins with `started`"),
        },
        Some(OpState::Started { request, sent_at }) => match event {
            OpEvent::TaskRunning { upid, found } => Ok(OpState::TaskRunning {
                request: *request,
                sent_at: *sent_at,
                upid: upid.clone(),
                found: *found,
            }),
            OpEvent::Started(_)
            | OpEvent::RequestStarted { .. }
            | OpEvent::Succeeded { .. }
            | OpEvent::Failed { .. }
            | OpEvent::Unknown { .. }
            | OpEvent::Resolved { .. } => {
                from_open(*request, *sent_at, None, event).or_else(illegal)
            }
        },
        Some(OpState::TaskRunning { request, sent_at, upid, .. }) => {
            from_open(*request, *sent_at, Some(upid), event).or_else(illegal)
        }
        Some(OpState::Unknown { request, .. }) => from_unknown(*request, event).or_else(illegal),
        Some(OpState::Succeeded { .. } | OpState::Failed { .. }) => {
            illegal("a closed operation stays closed")
        }
    }
}

/// What may follow a request that has left, whether or not its task is known.
fn from_open(
    open: OpPhase,
    sent_at: UnixSeconds,
    upid: Option<&Upid>,
    event: &OpEvent,
) -> Result<OpState, &'static str> {
    match event {
        OpEvent::Started(_) => Err("it has started already"),
        OpEvent::RequestStarted { request, sent_at } if *request > open => {
            Ok(OpState::Started { request: *request, sent_at: *sent_at })
        }
        OpEvent::RequestStarted { .. } => Err("a request is sent at most once, and in order"),
        OpEvent::TaskRunning { .. } => Err("a request has one task"),
        OpEvent::Succeeded { .. } => closed_as_succeeded(open, Closer::Evidence),
        OpEvent::Failed { reason, left_volume, tried: _, identity: _ } => {
            Ok(closed_as_failed(Closer::Evidence, reason, left_volume.as_ref()))
        }
        OpEvent::Unknown { reason } => Ok(OpState::Unknown {
            request: open,
            sent_at,
            upid: upid.cloned(),
            reason: reason.clone(),
        }),
        OpEvent::Resolved { .. } => Err("only an unknown outcome is resolved by an operator"),
    }
}

/// What may follow an unknown outcome: an end, and nothing that sends or waits.
fn from_unknown(open: OpPhase, event: &OpEvent) -> Result<OpState, &'static str> {
    match event {
        OpEvent::Succeeded { .. } => closed_as_succeeded(open, Closer::Evidence),
        OpEvent::Failed { reason, left_volume, tried: _, identity: _ } => {
            Ok(closed_as_failed(Closer::Evidence, reason, left_volume.as_ref()))
        }
        OpEvent::Resolved { outcome: Resolution::Succeeded } => {
            closed_as_succeeded(open, Closer::Operator)
        }
        OpEvent::Resolved { outcome: Resolution::Failed } => {
            Ok(closed_as_failed(Closer::Operator, "", None))
        }
        OpEvent::Started(_)
        | OpEvent::RequestStarted { .. }
        | OpEvent::TaskRunning { .. }
        | OpEvent::Unknown { .. } => Err("an unknown outcome can only end"),
    }
}

fn closed_as_succeeded(open: OpPhase, by: Closer) -> Result<OpState, &'static str> {
    match open {
        OpPhase::Act => Ok(OpState::Succeeded { by }),
        OpPhase::Stop | OpPhase::Backup | OpPhase::Unprotect => {
            Err("the act itself was never sent")
        }
    }
}

fn closed_as_failed(by: Closer, reason: &str, left_volume: Option<&VolumeId>) -> OpState {
    OpState::Failed { by, reason: reason.to_owned(), left_volume: left_volume.cloned() }
}
