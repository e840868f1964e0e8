//! What recovery may decide, and how it is said to the journal and to people.
//!
//! The forms here are the whole list: none of them sends a request.

use std::fmt;

use crate::operate::operation::{IdentityHash, OpEvent, OpState, UnixSeconds, Upid, VolumeId};

/// What to do next. There is deliberately no form that sends anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecoveryDecision {
    /// Read this, put it into the evidence, ask again.
    Look(Question),
    /// The lane stays closed; keep [`super::Evidence::after_wait`] and ask again, not before then.
    Wait {
        /// By the node's clock.
        not_before: UnixSeconds,
        /// What is waited for.
        reason: WaitReason,
    },
    /// Go on waiting for the known task.
    Resume(Upid),
    /// Record this task as the operation's own, then go on.
    Adopt(Upid),
    /// Close as succeeded.
    Succeed {
        /// What the operator should hear of it.
        warning: Option<Warning>,
    },
    /// Close as failed; what is still wanted is planned anew.
    Fail {
        /// Why.
        reason: FailReason,
        /// A volume that was allocated and not attached: to be used, never allocated again.
        left_volume: Option<VolumeId>,
    },
    /// Record as unknown, or leave it so: evidence may still end it, or an operator.
    Doubt(OutcomeDoubt),
    /// The operation is closed; there is nothing to recover.
    Closed,
}

impl RecoveryDecision {
    /// Which of all the arms it is, in a few words.
    pub fn arm(&self) -> &'static str {
        match self {
            Self::Look(question) => match question {
                Question::TaskStatus => "look at the task",
                Question::TaskList => "look at the task list",
                Question::Lock => "look at the lock",
                Question::Postcondition => "look at the guest",
                Question::NumberUse => "look whether the number is free",
                Question::Volumes => "look at the volumes",
            },
            Self::Wait { reason, .. } => match reason {
                WaitReason::LateFork => "wait, the task may still fork",
                WaitReason::Locked => "wait for the lock",
                WaitReason::NotYet => "wait for the fact",
                WaitReason::Unreadable(question) => match question {
                    Question::TaskStatus => "wait, the task is unreadable",
                    Question::TaskList => "wait, the task list is unreadable",
                    Question::Lock => "wait, the lock is unreadable",
                    Question::Postcondition => "wait, the guest is unreadable",
                    Question::NumberUse => "wait, the number is unreadable",
                    Question::Volumes => "wait, the volumes are unreadable",
                },
            },
            Self::Resume(_) => "resume its task",
            Self::Adopt(_) => "adopt a task",
            Self::Succeed { warning } => match warning {
                None => "succeeded",
                Some(Warning::TaskWarned) => "succeeded, the task warned",
                Some(Warning::StatusMismatch) => "succeeded, the task did not end well",
            },
            Self::Fail { reason, left_volume } => match (reason, left_volume) {
                (FailReason::TaskFailed, None) => "failed, the task failed",
                (FailReason::TaskFailed, Some(_)) => "failed, the task failed and left a volume",
                (FailReason::FactMissing, None) => "failed, the fact is missing",
                (FailReason::FactMissing, Some(_)) => {
                    "failed, the fact is missing, a volume is left"
                }
                (FailReason::HalfMade, None) => "failed, half made",
                (FailReason::HalfMade, Some(_)) => "failed, half made, a volume is left",
                (FailReason::DidNotHappen, None) => "failed, never carried out",
                (FailReason::DidNotHappen, Some(_)) => {
                    "failed, never carried out, a volume is left"
                }
                (FailReason::ActNotSent, _) => "failed, only prepared",
            },
            Self::Doubt(doubt) => match doubt {
                OutcomeDoubt::SeveralTasks => "unknown, several tasks",
                OutcomeDoubt::ListTooShort => "unknown, the task list is too short",
                OutcomeDoubt::ForeignTask => "unknown, the task is another's",
                OutcomeDoubt::OriginUnproven => "unknown, origin unproven",
                OutcomeDoubt::AnotherGuest => "unknown, another guest",
                OutcomeDoubt::VolumeUnnamed => "unknown, a volume is unnamed",
                OutcomeDoubt::FactLate => "unknown, the fact is late",
                OutcomeDoubt::SeveralVolumes => "unknown, several volumes",
                OutcomeDoubt::StillUnknown => "unknown still",
            },
            Self::Closed => "closed already",
        }
    }

    /// The event to append to the journal, if there is something to say. An operation that is
    /// unknown already is not said to be so again: recovering at rest must not grow the journal.
    pub fn event(&self, state: &OpState, identity_after: Option<IdentityHash>) -> Option<OpEvent> {
        match self {
            Self::Look(_) | Self::Wait { .. } | Self::Resume(_) | Self::Closed => None,
            Self::Adopt(upid) => Some(OpEvent::TaskRunning { upid: upid.clone(), found: true }),
            Self::Succeed { warning } => Some(OpEvent::Succeeded {
                identity: identity_after,
                warning: warning.map(|warning| warning.to_string()),
            }),
            Self::Fail { reason, left_volume } => Some(OpEvent::Failed {
                tried: None,
                reason: reason.to_string(),
                left_volume: left_volume.clone(),
                // What is found later must be what was left, and nothing that somebody put there since.
                identity: identity_after.filter(|_| *reason == FailReason::HalfMade),
            }),
            Self::Doubt(doubt) => match state {
                OpState::Unknown { .. } | OpState::Succeeded { .. } | OpState::Failed { .. } => {
                    None
                }
                OpState::Started { .. } | OpState::TaskRunning { .. } => {
                    Some(OpEvent::Unknown { reason: doubt.to_string() })
                }
            },
        }
    }
}

/// What the agent should read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Question {
    /// The known task's status.
    TaskStatus,
    /// The node's task list, searched with [`super::search_tasks`].
    TaskList,
    /// The guest's lock.
    Lock,
    /// The guest against the postcondition.
    Postcondition,
    /// Whether the number is free.
    NumberUse,
    /// The guest's volumes.
    Volumes,
}

/// Why the lane stays closed for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitReason {
    /// PVE may still fork the task.
    LateFork,
    /// The guest is locked.
    Locked,
    /// The fact has not followed the task yet.
    NotYet,
    /// PVE cannot be reached, or does not answer this.
    Unreadable(Question),
}

/// What is odd about a success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Warning {
    /// The task ended with warnings.
    TaskWarned,
    /// The task did not end well, and yet the fact is there.
    StatusMismatch,
}

/// Why it is closed as failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailReason {
    /// The task failed.
    TaskFailed,
    /// The task ended, and the fact did not follow.
    FactMissing,
    /// The guest's making ended half way, and something is left under its number.
    HalfMade,
    /// No task, no effect: the request was never carried out.
    DidNotHappen,
    /// Only preparations were sent, never the act.
    ActNotSent,
}

/// Why the outcome is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutcomeDoubt {
    /// More than one task could be it.
    SeveralTasks,
    /// The task list does not reach back.
    ListTooShort,
    /// The recorded task does not belong to such an operation.
    ForeignTask,
    /// There is a guest, and it cannot be proved that this operation made it.
    OriginUnproven,
    /// Another guest has the number now.
    AnotherGuest,
    /// A volume that was named before is named by nothing now.
    VolumeUnnamed,
    /// The fact is still on its way after the deadline.
    FactLate,
    /// More than one new volume.
    SeveralVolumes,
    /// It was unknown before, and nothing new has been seen.
    StillUnknown,
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LateFork => "the answer was lost; Proxmox may still begin its task",
            Self::Locked => "the guest is locked, or a task works on it",
            Self::NotYet => "the change has not shown yet",
            Self::Unreadable(question) => match question {
                Question::TaskStatus => "the task's status cannot be read",
                Question::TaskList => "the task list cannot be read",
                Question::Lock | Question::Postcondition => "the guest cannot be read",
                Question::NumberUse => "whether the number is free cannot be read",
                Question::Volumes => "the guest's volumes cannot be listed",
            },
        })
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TaskWarned => "the task ended with warnings; its log says which",
            Self::StatusMismatch => "the task did not end well, yet the guest is as it should be",
        })
    }
}

impl fmt::Display for FailReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TaskFailed => "the task failed; its log says why",
            Self::FactMissing => "the task ended, but the guest is not as it should be",
            Self::HalfMade => "its making ended half way, and something is left under its number",
            Self::DidNotHappen => "the request was never carried out",
            Self::ActNotSent => "it was interrupted during its preparations; the act was not sent",
        })
    }
}

impl fmt::Display for OutcomeDoubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SeveralTasks => "more than one task could be this operation's",
            Self::ListTooShort => "the task list does not reach back to this operation",
            Self::ForeignTask => "the recorded task does not belong to such an operation",
            Self::OriginUnproven => {
                "the guest is as it should be, but nothing proves that this operation made it so"
            }
            Self::AnotherGuest => "another guest has the number now",
            Self::VolumeUnnamed => "nothing names a volume any more that the guest named before",
            Self::FactLate => "the change is still on its way after the deadline",
            Self::SeveralVolumes => "more than one new volume could be this operation's",
            Self::StillUnknown => "nothing new has been seen",
        })
    }
}
