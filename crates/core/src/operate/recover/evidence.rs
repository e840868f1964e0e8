//! What recovery can know of the world: the readings the agent hands to the decision.
//!
//! Every reading has its own form for "could not be read", so that a missing answer is never taken
//! for a negative one (invariant 14).

use std::collections::BTreeSet;

use crate::operate::operation::{UnixSeconds, Upid, VolumeId};

/// A thing that was read, and when (node's clock).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen<T> {
    /// When.
    pub at: UnixSeconds,
    /// What.
    pub found: T,
}

/// What the agent has read so far. `None` means not yet looked. An unreachable PVE shows as
/// `Unreadable` in whatever was asked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Evidence {
    /// The status of the known task. Kept from the first time it was seen ended.
    pub task: Option<Seen<TaskFact>>,
    /// The search in the task list.
    pub search: Option<Seen<TaskSearch>>,
    /// Whether the guest carries a lock.
    pub lock: Option<Seen<Lock>>,
    /// Whether the guest is as the operation would leave it.
    pub postcondition: Option<Seen<Postcondition>>,
    /// Whether the guest's number is in use.
    pub number: Option<Seen<NumberUse>>,
    /// What an allocating write added.
    pub volumes: Option<Seen<NewVolumes>>,
}

impl Evidence {
    /// What is still worth something after a wait: only that the task has ended, and when that was
    /// first seen. Everything else is read anew.
    #[must_use]
    pub fn after_wait(self) -> Self {
        let ended = |seen: &Seen<TaskFact>| match seen.found {
            TaskFact::Running | TaskFact::Unreadable => false,
            TaskFact::Succeeded
            | TaskFact::Warned
            | TaskFact::Failed
            | TaskFact::Unclear
            | TaskFact::Forgotten => true,
        };
        Self { task: self.task.filter(ended), ..Self::default() }
    }
}

/// What PVE says of the known task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskFact {
    /// It works.
    Running,
    /// It ended with `OK`.
    Succeeded,
    /// It ended with `WARNINGS: n`, which is success.
    Warned,
    /// It ended with an error text.
    Failed,
    /// It ended, and how cannot be read (`unexpected status` after a kill or power cut).
    Unclear,
    /// PVE has forgotten it; only tasks that ended are forgotten.
    Forgotten,
    /// It could not be asked.
    Unreadable,
}

/// What the task list says of an operation without a known task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskSearch {
    /// No task can be it.
    None,
    /// Exactly one can.
    One(Upid),
    /// More than one can, or one that came later than a task of ours should.
    Ambiguous,
    /// The list does not reach back to the moment of sending.
    TooShort,
    /// It could not be read.
    Unreadable,
}

/// Whether something works on the guest: its `lock`, or a running task that could be the operation's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// None, or PVE says positively that there is no such guest.
    Free,
    /// Some.
    Held,
    /// It could not be read.
    Unreadable,
}

/// The guest against what the operation would leave behind. It must be specific to the operation:
/// a snapshot of that name taken before it was sent is not its postcondition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Postcondition {
    /// It is so.
    Holds,
    /// It is not so.
    DoesNotHold,
    /// It is on its way there.
    NotYet,
    /// A guest is there, but not all that a making would leave: half of it, or somebody else's.
    Half,
    /// The number belongs to a guest of another identity.
    AnotherGuest,
    /// A volume that had to stay named is named by nothing.
    VolumeUnnamed,
    /// It could not be read.
    Unreadable,
}

/// Whether the guest's number is in use: the only proof that a guest is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumberUse {
    /// A quorate node says it is free.
    Free,
    /// It is taken.
    Taken,
    /// It could not be read, or the node is not quorate.
    Unreadable,
}

/// The guest's volumes now against those before an allocating write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewVolumes {
    /// No further one.
    None,
    /// Exactly one.
    One(VolumeId),
    /// More than one.
    Several,
    /// They could not be read.
    Unreadable,
}

impl NewVolumes {
    /// What came to the volumes recorded before an allocating write.
    pub fn between(before: &BTreeSet<VolumeId>, now: &BTreeSet<VolumeId>) -> Self {
        let mut new = now.difference(before);
        match (new.next(), new.next()) {
            (None, _) => Self::None,
            (Some(volume), None) => Self::One(volume.clone()),
            (Some(_), Some(_)) => Self::Several,
        }
    }
}
