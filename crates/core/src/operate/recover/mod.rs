//! What became of an operation that was in flight when the agent ended, decided from evidence.
//!
//! The agent holds the operation's lane, asks [`decide`], reads what it is told to read, and asks
//! again until there is something to record:
//!
//! ```text
//! task known ──► its status ── running ─► Resume
//!                    │ ended, forgotten
//!                    ▼
//!                the world (postcondition) ─► Succeed · Fail · Doubt
//!                    ▲
//!                    │ none: 60 s after sending, guest unlocked, a second look
//! no task known ─► task list ── exactly one ─► Adopt        several ─► Doubt
//! ```
//!
//! A [`RecoveryDecision`] has no form that sends a request, so nothing can be sent again from here
//! (invariants 4 and 13). What could not be read decides nothing (invariant 14).

mod answer;
mod decision;
mod evidence;
mod postcondition;
mod tasks;

pub use answer::{AnswerKind, AnswerVerdict, UnknownVolume, judge_answer, left_volume};
pub use decision::{FailReason, OutcomeDoubt, Question, RecoveryDecision, WaitReason, Warning};
pub use evidence::{
    Evidence, Lock, NewVolumes, NumberUse, Postcondition, Seen, TaskFact, TaskSearch,
};
pub use postcondition::{ProofLists, postcondition};
pub use tasks::{TaskList, could_be_ours, could_be_task_of, leaves_task, search_tasks};

use crate::action_registry::ActionKind;
use crate::operate::operation::{OpPhase, OpState, Operation, Repeat, UnixSeconds, Upid};

/// PVE may fork a task this long after the request: it waits for locks and activates storage first.
pub const LATE_FORK_SECONDS: u64 = 60;

/// How long a fact may follow its ended task: HA acts in rounds of some ten seconds and needs a few.
pub const POSTCONDITION_DEADLINE_SECONDS: u64 = 120;

/// The pause before looking again at something that is locked, unfinished or could not be read.
pub const LOOK_AGAIN_SECONDS: u64 = 5;

/// The one decision function: total over every operation, evidence and moment (node's clock).
pub fn decide(operation: &Operation, evidence: &Evidence, now: UnixSeconds) -> RecoveryDecision {
    let case = Case { operation, evidence, now };
    let decided = match &operation.state {
        OpState::Started { request, sent_at } => case.without_task(*request, *sent_at),
        OpState::TaskRunning { request, sent_at, upid, found } => {
            case.with_task(*request, upid, found.then_some(*sent_at))
        }
        OpState::Unknown { request, sent_at, .. } => case.unknown(*request, *sent_at),
        OpState::Succeeded { .. } | OpState::Failed { .. } => Ok(RecoveryDecision::Closed),
    };
    decided.unwrap_or_else(|pause| match pause {
        Pause::Look(question) => RecoveryDecision::Look(question),
        Pause::Wait { not_before, reason } => RecoveryDecision::Wait { not_before, reason },
    })
}

/// Why nothing can be decided yet. As an error it lets `?` spell the order of looking.
#[derive(Debug, Clone, Copy)]
enum Pause {
    Look(Question),
    Wait { not_before: UnixSeconds, reason: WaitReason },
}

type Decided = Result<RecoveryDecision, Pause>;

#[derive(Clone, Copy)]
struct Case<'a> {
    operation: &'a Operation,
    evidence: &'a Evidence,
    now: UnixSeconds,
}

/// The world, once it could be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fact {
    Holds,
    DoesNotHold,
    NotYet,
    Half,
    AnotherGuest,
    VolumeUnnamed,
}

impl Case<'_> {
    /// The request may have left, no task is known.
    fn without_task(self, request: OpPhase, sent_at: UnixSeconds) -> Decided {
        if leaves_task(self.operation, request) {
            match self.search(UnixSeconds(0))? {
                TaskSearch::One(upid) => return Ok(self.adopt(request, upid)),
                TaskSearch::Ambiguous => {
                    return Ok(RecoveryDecision::Doubt(OutcomeDoubt::SeveralTasks));
                }
                TaskSearch::TooShort => {
                    return Ok(RecoveryDecision::Doubt(OutcomeDoubt::ListTooShort));
                }
                TaskSearch::None | TaskSearch::Unreadable => {}
            }
        }
        let unlocked_at = self.settled(sent_at)?;
        let mut looked_at = unlocked_at;
        if leaves_task(self.operation, request) {
            self.search(unlocked_at)?;
            looked_at = self.evidence.search.as_ref().map_or(unlocked_at, |seen| seen.at);
        }
        if request != OpPhase::Act {
            return Ok(fail(FailReason::ActNotSent));
        }
        match self.fact(looked_at)? {
            Fact::Holds if !self.operation.intent.kind.proved_by_state() => {
                Ok(RecoveryDecision::Doubt(OutcomeDoubt::OriginUnproven))
            }
            Fact::Half => Ok(RecoveryDecision::Doubt(OutcomeDoubt::OriginUnproven)),
            Fact::Holds => Ok(RecoveryDecision::Succeed { warning: None }),
            Fact::DoesNotHold => self.did_not_happen(FailReason::DidNotHappen, looked_at),
            Fact::NotYet => self.not_yet(sent_at.plus(LATE_FORK_SECONDS)),
            Fact::AnotherGuest => Ok(RecoveryDecision::Doubt(OutcomeDoubt::AnotherGuest)),
            Fact::VolumeUnnamed => Ok(RecoveryDecision::Doubt(OutcomeDoubt::VolumeUnnamed)),
        }
    }

    /// A new guest is ours only if its number was free before; any other task is adopted as found.
    fn adopt(self, request: OpPhase, upid: &Upid) -> RecoveryDecision {
        let intent = &self.operation.intent;
        if !could_be_task_of(self.operation, request, upid) {
            return RecoveryDecision::Doubt(OutcomeDoubt::ForeignTask);
        }
        if intent.kind.creates_guest() && !intent.id_was_free {
            return RecoveryDecision::Doubt(OutcomeDoubt::OriginUnproven);
        }
        RecoveryDecision::Adopt(upid.clone())
    }

    /// The task is known: its status once, then the world. One that was found, after a request sent at
    /// `found_after`, may be somebody else's who uses our token: nothing is closed while ours may still come.
    fn with_task(self, request: OpPhase, upid: &Upid, found_after: Option<UnixSeconds>) -> Decided {
        if !could_be_task_of(self.operation, request, upid) {
            return Ok(RecoveryDecision::Doubt(OutcomeDoubt::ForeignTask));
        }
        let Some(seen) = &self.evidence.task else {
            return Err(Pause::Look(Question::TaskStatus));
        };
        let status = match seen.found {
            TaskFact::Running => return Ok(RecoveryDecision::Resume(upid.clone())),
            TaskFact::Unreadable => return Err(self.unreadable(Question::TaskStatus)),
            TaskFact::Succeeded
            | TaskFact::Warned
            | TaskFact::Failed
            | TaskFact::Unclear
            | TaskFact::Forgotten => seen.found,
        };
        let mut looked_at = seen.at;
        if let Some(sent_at) = found_after {
            looked_at = self.settled(sent_at)?.max(seen.at);
            if self.has_another_task(upid, looked_at)? {
                return Ok(RecoveryDecision::Doubt(OutcomeDoubt::SeveralTasks));
            }
        }
        if request != OpPhase::Act {
            return Ok(fail(FailReason::ActNotSent));
        }
        self.after_task(status, seen.at, looked_at)
    }

    /// Whether the list has a task besides the one that was found, read no earlier than `since`.
    fn has_another_task(self, upid: &Upid, since: UnixSeconds) -> Result<bool, Pause> {
        Ok(match self.search(since)? {
            TaskSearch::One(other) => other != upid,
            TaskSearch::Ambiguous => true,
            // A list may have forgotten it meanwhile; it has ended.
            TaskSearch::None | TaskSearch::TooShort | TaskSearch::Unreadable => false,
        })
    }

    /// The task of the act has ended so, as was seen at `ended_at`: the world as it was no earlier than `looked_at`.
    fn after_task(
        self,
        status: TaskFact,
        ended_at: UnixSeconds,
        looked_at: UnixSeconds,
    ) -> Decided {
        let makes = self.operation.intent.kind.creates_guest();
        match self.fact(looked_at)? {
            // Proxmox has said that the making failed: nothing follows, and what is there may be anybody's.
            Fact::Holds | Fact::Half | Fact::NotYet if makes && status == TaskFact::Failed => {
                Ok(fail(FailReason::HalfMade))
            }
            // Its worker is dead, and left a stub that is locked, or a part of the guest.
            Fact::Half | Fact::NotYet if makes && status == TaskFact::Unclear => {
                Ok(fail(FailReason::HalfMade))
            }
            Fact::Half if status == TaskFact::Forgotten => {
                Ok(RecoveryDecision::Doubt(OutcomeDoubt::OriginUnproven))
            }
            // What was made is compared with what is declared by the next plan.
            Fact::Holds | Fact::Half => Ok(self.held_after(status)),
            Fact::AnotherGuest => Ok(RecoveryDecision::Doubt(OutcomeDoubt::AnotherGuest)),
            Fact::VolumeUnnamed => Ok(RecoveryDecision::Doubt(OutcomeDoubt::VolumeUnnamed)),
            Fact::DoesNotHold if status == TaskFact::Failed => {
                self.did_not_happen(FailReason::TaskFailed, looked_at)
            }
            // A fact may follow its task: it is awaited, not read once.
            Fact::DoesNotHold if self.now < ended_at.plus(POSTCONDITION_DEADLINE_SECONDS) => {
                Err(self.recheck_unknown(WaitReason::NotYet))
            }
            Fact::DoesNotHold => self.did_not_happen(FailReason::FactMissing, looked_at),
            Fact::NotYet => self.not_yet(ended_at),
        }
    }

    /// The fact is there after the task ended so. The fact wins, but it does not say who made it:
    /// a guest under our number after a create that failed or is forgotten may be anybody's.
    fn held_after(self, status: TaskFact) -> RecoveryDecision {
        let shows = self.operation.intent.kind.proved_by_state();
        match status {
            TaskFact::Succeeded => RecoveryDecision::Succeed { warning: None },
            TaskFact::Warned => RecoveryDecision::Succeed { warning: Some(Warning::TaskWarned) },
            TaskFact::Failed if !shows => fail(FailReason::TaskFailed),
            TaskFact::Forgotten if !shows => RecoveryDecision::Doubt(OutcomeDoubt::OriginUnproven),
            // A rollback that was cut off has left something between two states.
            TaskFact::Unclear if !shows && !self.operation.intent.kind.creates_guest() => {
                RecoveryDecision::Doubt(OutcomeDoubt::OriginUnproven)
            }
            TaskFact::Failed
            | TaskFact::Unclear
            | TaskFact::Forgotten
            | TaskFact::Running
            | TaskFact::Unreadable => {
                RecoveryDecision::Succeed { warning: Some(Warning::StatusMismatch) }
            }
        }
    }

    /// Looked at again every pass. Only the world ends it; nothing found in a task list can, since a
    /// list that forgets turns several candidates into one.
    fn unknown(self, request: OpPhase, sent_at: UnixSeconds) -> Decided {
        let unlocked_at = self.settled(sent_at)?;
        if request != OpPhase::Act {
            return Ok(fail(FailReason::ActNotSent));
        }
        let fact = self.fact(unlocked_at)?;
        let shows = self.operation.intent.kind.proved_by_state();
        match (fact, &self.operation.intent.repeat) {
            (Fact::Holds, _) if shows => Ok(RecoveryDecision::Succeed { warning: None }),
            (Fact::DoesNotHold, Repeat::Convergent) => {
                self.did_not_happen(FailReason::DidNotHappen, unlocked_at)
            }
            (
                Fact::Holds
                | Fact::NotYet
                | Fact::Half
                | Fact::AnotherGuest
                | Fact::VolumeUnnamed
                | Fact::DoesNotHold,
                Repeat::Convergent | Repeat::AtMostOnce { .. } | Repeat::OncePerMaking { .. },
            ) => Ok(RecoveryDecision::Doubt(OutcomeDoubt::StillUnknown)),
        }
    }

    /// When the guest was seen unlocked after PVE can no longer fork the task late.
    fn settled(self, sent_at: UnixSeconds) -> Result<UnixSeconds, Pause> {
        let settles_at = sent_at.plus(LATE_FORK_SECONDS);
        if self.now < settles_at {
            let reason = WaitReason::LateFork;
            return Err(Pause::Wait { not_before: settles_at, reason });
        }
        match fresh(self.evidence.lock.as_ref(), settles_at) {
            None => Err(Pause::Look(Question::Lock)),
            Some(Seen { found: Lock::Unreadable, .. }) => Err(self.unreadable(Question::Lock)),
            Some(Seen { found: Lock::Held, .. }) => Err(self.recheck_unknown(WaitReason::Locked)),
            Some(Seen { found: Lock::Free, at }) => Ok(*at),
        }
    }

    /// The task list, read no earlier than `since`.
    fn search(&self, since: UnixSeconds) -> Result<&TaskSearch, Pause> {
        match fresh(self.evidence.search.as_ref(), since) {
            None => Err(Pause::Look(Question::TaskList)),
            Some(Seen { found: TaskSearch::Unreadable, .. }) => {
                Err(self.unreadable(Question::TaskList))
            }
            Some(Seen { found, .. }) => Ok(found),
        }
    }

    /// The world as the operation's kind has to see it, read no earlier than `since`.
    fn fact(self, since: UnixSeconds) -> Result<Fact, Pause> {
        let kind = self.operation.intent.kind;
        // Only a free number proves that a guest is gone.
        if kind == ActionKind::Destroy && self.number_is_free(since)? {
            return Ok(Fact::Holds);
        }
        let found = match fresh(self.evidence.postcondition.as_ref(), since) {
            None => return Err(Pause::Look(Question::Postcondition)),
            Some(seen) => seen.found,
        };
        match found {
            Postcondition::Unreadable => Err(self.unreadable(Question::Postcondition)),
            Postcondition::AnotherGuest => Ok(Fact::AnotherGuest),
            Postcondition::VolumeUnnamed => Ok(Fact::VolumeUnnamed),
            Postcondition::NotYet => Ok(Fact::NotYet),
            Postcondition::Half if kind.creates_guest() => Ok(Fact::Half),
            // The number is still taken, so "gone" is not true yet.
            Postcondition::Holds if kind == ActionKind::Destroy => Ok(Fact::NotYet),
            Postcondition::Holds => Ok(Fact::Holds),
            // Something sits under the number: half a guest, not the absence of one.
            Postcondition::DoesNotHold
                if kind.creates_guest() && !self.number_is_free(since)? =>
            {
                Ok(Fact::NotYet)
            }
            Postcondition::DoesNotHold | Postcondition::Half => Ok(Fact::DoesNotHold),
        }
    }

    fn number_is_free(self, since: UnixSeconds) -> Result<bool, Pause> {
        match fresh(self.evidence.number.as_ref(), since) {
            None => Err(Pause::Look(Question::NumberUse)),
            Some(Seen { found: NumberUse::Unreadable, .. }) => {
                Err(self.unreadable(Question::NumberUse))
            }
            Some(Seen { found: NumberUse::Free, .. }) => Ok(true),
            Some(Seen { found: NumberUse::Taken, .. }) => Ok(false),
        }
    }

    /// Closed as failed, but an allocating write may have left a volume behind.
    fn did_not_happen(self, reason: FailReason, since: UnixSeconds) -> Decided {
        if self.operation.intent.volumes_before.is_none() {
            return Ok(fail(reason));
        }
        match fresh(self.evidence.volumes.as_ref(), since) {
            None => Err(Pause::Look(Question::Volumes)),
            Some(Seen { found: NewVolumes::Unreadable, .. }) => {
                Err(self.unreadable(Question::Volumes))
            }
            Some(Seen { found: NewVolumes::None, .. }) => Ok(fail(reason)),
            Some(Seen { found: NewVolumes::One(volume), .. }) => {
                Ok(RecoveryDecision::Fail { reason, left_volume: Some(volume.clone()) })
            }
            Some(Seen { found: NewVolumes::Several, .. }) => {
                Ok(RecoveryDecision::Doubt(OutcomeDoubt::SeveralVolumes))
            }
        }
    }

    fn not_yet(self, since: UnixSeconds) -> Decided {
        if self.now < since.plus(POSTCONDITION_DEADLINE_SECONDS) {
            Err(self.recheck_unknown(WaitReason::NotYet))
        } else {
            Ok(RecoveryDecision::Doubt(OutcomeDoubt::FactLate))
        }
    }

    fn unreadable(&self, question: Question) -> Pause {
        self.recheck_unknown(WaitReason::Unreadable(question))
    }

    fn recheck_unknown(&self, reason: WaitReason) -> Pause {
        Pause::Wait { not_before: self.now.plus(LOOK_AGAIN_SECONDS), reason }
    }
}

/// What was seen, unless it is older than what it has to follow.
fn fresh<T>(seen: Option<&Seen<T>>, since: UnixSeconds) -> Option<&Seen<T>> {
    seen.filter(|seen| seen.at >= since)
}

fn fail(reason: FailReason) -> RecoveryDecision {
    RecoveryDecision::Fail { reason, left_volume: None }
}

#[cfg(test)]
mod tests;
