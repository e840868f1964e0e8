//! What a refusal leaves behind, judged with a look at the guest after it.
//!
//! Asked by the executor when Proxmox answered that it does not do what was asked. It must never call something done
//! that the guest's state cannot prove (a guest may stand on its newest snapshot without any rollback).

use super::Postcondition;
use crate::action_kind::ActionKind;

/// How a refused operation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterRefusal {
    /// The guest is as it should be, and that proves it.
    Done,
    /// It was not done.
    Failed,
    /// The guest seems gone: only its number proves that.
    AskNumber,
    /// It may have been done in part.
    Unknown,
}

/// Judges a refusal of the act itself, by the guest as it was read after it.
pub fn after_refusal(kind: ActionKind, found: Postcondition) -> AfterRefusal {
    match found {
        Postcondition::Holds if kind == ActionKind::Destroy => AfterRefusal::AskNumber,
        Postcondition::Holds if kind.shows() => AfterRefusal::Done,
        Postcondition::Holds | Postcondition::DoesNotHold | Postcondition::NotYet => {
            AfterRefusal::Failed
        }
        Postcondition::AnotherGuest | Postcondition::Unreadable if only_forks(kind) => {
            AfterRefusal::Failed
        }
        Postcondition::AnotherGuest | Postcondition::Unreadable => AfterRefusal::Unknown,
    }
}

/// Whether the call does nothing but begin a task: refused, it began none. A write of a configuration may have taken
/// effect in part before it was refused.
fn only_forks(kind: ActionKind) -> bool {
    match kind {
        ActionKind::SetConfig | ActionKind::DeleteVolume | ActionKind::Resize => false,
        ActionKind::Start
        | ActionKind::Shutdown
        | ActionKind::Stop
        | ActionKind::Create
        | ActionKind::Clone
        | ActionKind::Restore
        | ActionKind::Snapshot
        | ActionKind::Destroy
        | ActionKind::Rollback
        | ActionKind::DeleteSnapshot
        | ActionKind::MoveVolume
        | ActionKind::Migrate
        | ActionKind::Template
        | ActionKind::WipeStorage
        | ActionKind::Decommission => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x06_what_looks_done_after_a_refusal_is_done_only_where_the_state_proves_it() {
        for kind in ActionKind::ALL {
            let after = |found| after_refusal(kind, found);
            let holds = match kind {
                ActionKind::Destroy => AfterRefusal::AskNumber,
                ActionKind::Create
                | ActionKind::Clone
                | ActionKind::Restore
                | ActionKind::Rollback => AfterRefusal::Failed,
                ActionKind::SetConfig
                | ActionKind::Start
                | ActionKind::Shutdown
                | ActionKind::Stop
                | ActionKind::Resize
                | ActionKind::Snapshot
                | ActionKind::DeleteSnapshot
                | ActionKind::DeleteVolume
                | ActionKind::MoveVolume
                | ActionKind::Migrate
                | ActionKind::Template
                | ActionKind::WipeStorage
                | ActionKind::Decommission => AfterRefusal::Done,
            };
            assert_eq!(after(Postcondition::Holds), holds, "{kind}");
            assert_eq!(after(Postcondition::DoesNotHold), AfterRefusal::Failed, "{kind}");
            assert_eq!(after(Postcondition::NotYet), AfterRefusal::Failed, "{kind}");
        }
        for (kind, expected) in [
            (ActionKind::SetConfig, AfterRefusal::Unknown),
            (ActionKind::Resize, AfterRefusal::Unknown),
            (ActionKind::DeleteVolume, AfterRefusal::Unknown),
            (ActionKind::Rollback, AfterRefusal::Failed),
            (ActionKind::Destroy, AfterRefusal::Failed),
        ] {
            for found in [Postcondition::AnotherGuest, Postcondition::Unreadable] {
                assert_eq!(after_refusal(kind, found), expected, "{kind}");
            }
        }
    }
}
