//! What Proxmox's answer leaves behind, judged with a look at the guest after it.
//!
//! Asked while the agent lives and has an answer; what a lost answer or a crash leaves is [`decide`](super::decide)d by
//! evidence. It must never call something done that the guest's state cannot prove (a guest may stand on its newest
//! snapshot without any rollback).

use super::{NewVolumes, Postcondition};
use crate::action_registry::{ActionKind, Proof, RefusalMeaning};
use crate::operate::operation::VolumeId;

/// An answer that names no task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerKind {
    /// Proxmox took the write.
    Taken {
        /// Whether the guest had its time to show it.
        late: bool,
    },
    /// Proxmox refused the act itself.
    Refused,
}

/// How an answered operation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerVerdict {
    /// The guest is as it should be, and that proves it.
    Done,
    /// It was not done.
    Failed,
    /// The guest seems gone: only its number proves that.
    AskNumber,
    /// The guest may still show it.
    LookAgain,
    /// It may have been done in part.
    Unknown,
}

/// Judges an answer, by the guest as it was read after it.
pub fn judge_answer(kind: ActionKind, answer: AnswerKind, found: Postcondition) -> AnswerVerdict {
    match answer {
        AnswerKind::Taken { late } => after_write(found, late),
        AnswerKind::Refused => after_refusal(kind, found),
    }
}

fn after_write(found: Postcondition, late: bool) -> AnswerVerdict {
    match found {
        Postcondition::Holds => AnswerVerdict::Done,
        Postcondition::DoesNotHold
        | Postcondition::AnotherGuest
        | Postcondition::NotYet
        | Postcondition::Half
        | Postcondition::VolumeUnnamed
        | Postcondition::Unreadable
            if !late =>
        {
            AnswerVerdict::LookAgain
        }
        Postcondition::DoesNotHold => AnswerVerdict::Failed,
        Postcondition::AnotherGuest
        | Postcondition::NotYet
        | Postcondition::Half
        | Postcondition::VolumeUnnamed
        | Postcondition::Unreadable => AnswerVerdict::Unknown,
    }
}

fn after_refusal(kind: ActionKind, found: Postcondition) -> AnswerVerdict {
    match found {
        Postcondition::Holds if kind.row().proof == Proof::NumberFree => AnswerVerdict::AskNumber,
        Postcondition::Holds if kind.proved_by_state() => AnswerVerdict::Done,
        Postcondition::Holds
        | Postcondition::DoesNotHold
        | Postcondition::NotYet
        | Postcondition::Half => AnswerVerdict::Failed,
        // Whatever was refused, something was done.
        Postcondition::VolumeUnnamed => AnswerVerdict::Unknown,
        Postcondition::AnotherGuest | Postcondition::Unreadable => match kind.row().refusal {
            RefusalMeaning::NothingDone => AnswerVerdict::Failed,
            RefusalMeaning::PerhapsInPart => AnswerVerdict::Unknown,
        },
    }
}

/// The volume a failed write left behind, if it is known which.
pub fn left_volume(volumes: Option<NewVolumes>) -> Result<Option<VolumeId>, UnknownVolume> {
    match volumes {
        None | Some(NewVolumes::None) => Ok(None),
        Some(NewVolumes::One(volume)) => Ok(Some(volume)),
        Some(NewVolumes::Several | NewVolumes::Unreadable) => Err(UnknownVolume),
    }
}

/// A failed write may have left a volume, and nobody can say which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not known which volume it left")]
pub struct UnknownVolume;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x06_what_looks_done_after_a_refusal_is_done_only_where_the_state_proves_it() {
        let unproved =
            [ActionKind::Create, ActionKind::Clone, ActionKind::Restore, ActionKind::Rollback];
        for kind in ActionKind::ALL {
            let after = |found| judge_answer(kind, AnswerKind::Refused, found);
            let holds = if kind == ActionKind::Destroy {
                AnswerVerdict::AskNumber
            } else if unproved.contains(&kind) {
                AnswerVerdict::Failed
            } else {
                AnswerVerdict::Done
            };
            assert_eq!(after(Postcondition::Holds), holds, "{kind}");
            assert_eq!(after(Postcondition::DoesNotHold), AnswerVerdict::Failed, "{kind}");
            assert_eq!(after(Postcondition::NotYet), AnswerVerdict::Failed, "{kind}");
        }
        for (kind, expected) in [
            (ActionKind::SetConfig, AnswerVerdict::Unknown),
            (ActionKind::Resize, AnswerVerdict::Unknown),
            (ActionKind::DeleteVolume, AnswerVerdict::Unknown),
            (ActionKind::Rollback, AnswerVerdict::Failed),
            (ActionKind::Destroy, AnswerVerdict::Failed),
        ] {
            for found in [Postcondition::AnotherGuest, Postcondition::Unreadable] {
                assert_eq!(judge_answer(kind, AnswerKind::Refused, found), expected, "{kind}");
            }
        }
    }

    #[test]
    fn a_write_that_was_taken_is_done_once_the_guest_shows_it_and_never_before() {
        let taken =
            |late, found| judge_answer(ActionKind::SetConfig, AnswerKind::Taken { late }, found);
        for late in [false, true] {
            assert_eq!(taken(late, Postcondition::Holds), AnswerVerdict::Done);
        }
        for found in [
            Postcondition::DoesNotHold,
            Postcondition::AnotherGuest,
            Postcondition::NotYet,
            Postcondition::Unreadable,
        ] {
            assert_eq!(taken(false, found), AnswerVerdict::LookAgain, "{found:?}");
            let end = if found == Postcondition::DoesNotHold {
                AnswerVerdict::Failed
            } else {
                AnswerVerdict::Unknown
            };
            assert_eq!(taken(true, found), end, "{found:?}");
        }
    }
}
