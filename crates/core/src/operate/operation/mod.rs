//! One journalled execution as a state machine: events are stored, the state is their fold.
//!
//! ```text
//!            started ──────► Started ──task known──► TaskRunning
//!                             │  ▲ next request        │ │
//!                             │  └──────────────────────┘ │
//!                             ├── outcome ◄───────────────┤
//!                             ▼                           ▼
//!                  Succeeded · Failed ◄──evidence,──── Unknown
//!                                        operator
//! ```
//!
//! The agent appends an event to its journal and folds it with [`next`]; replay after a crash goes
//! through the same function. It must never let a request be started a second time: a request can
//! only follow an earlier one of the same operation (invariant 4).

mod hub_makings;
mod ledger;
mod making;
mod names;
mod provenance;
mod transition;
mod upid;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

pub use hub_makings::{HubMakings, HubShare};
pub use ledger::{Ledger, OpRecord, ReplayError, fold};
pub use making::{MadeGuest, MadeStage, MakingMemory, SourceMark};
pub use names::{IdempotencyKey, StorageName, VolumeId};
pub use provenance::{GuestOrigin, IdentityHash, NotAnIdentityHash, Provenance};
pub use transition::{IllegalTransition, next};
pub use upid::{UnixSeconds, Upid};

use crate::action_registry::ActionKind;
use crate::actual::identity_proof::TaskListMark;
use crate::actual::surroundings::SurroundingsHash;
use crate::model::id::{GuestId, OperationId, VmId};
use crate::operate::back_off::{AttemptHash, TryFailure};
use crate::sign::PayloadHash;

/// An operation as its journalled events tell it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// Its name in journal, logs and reports.
    pub id: OperationId,
    /// What its `started` record promised.
    pub intent: StartedIntent,
    /// Where it stands.
    pub state: OpState,
    /// The furthest of its requests that may have left. Kept beside the state, because a closed
    /// operation must still know whether it took the protection off a guest.
    pub furthest: OpPhase,
    /// The last task it had. Kept beside the state, because a closed operation's task must not be taken for
    /// another's.
    pub task: Option<Upid>,
}

impl Operation {
    /// Whether it is not closed: it keeps its lane, and recovery must look at it.
    pub fn is_in_flight(&self) -> bool {
        match self.state {
            OpState::Started { .. } | OpState::TaskRunning { .. } | OpState::Unknown { .. } => true,
            OpState::Succeeded { .. } | OpState::Failed { .. } => false,
        }
    }

    /// The request in flight and when it left, by the node's clock; none if the operation is closed.
    pub fn sent(&self) -> Option<(OpPhase, UnixSeconds)> {
        match &self.state {
            OpState::Started { request, sent_at }
            | OpState::TaskRunning { request, sent_at, .. }
            | OpState::Unknown { request, sent_at, .. } => Some((*request, *sent_at)),
            OpState::Succeeded { .. } | OpState::Failed { .. } => None,
        }
    }

    /// When its last request left, by the node's clock, and why nobody knows its outcome, if that is so.
    pub fn sent_and_doubt(&self) -> (UnixSeconds, Option<&str>) {
        let doubt = match &self.state {
            OpState::Unknown { reason, .. } => Some(reason.as_str()),
            OpState::Started { .. }
            | OpState::TaskRunning { .. }
            | OpState::Succeeded { .. }
            | OpState::Failed { .. } => None,
        };
        (self.sent().map_or(self.intent.sent_at, |(_, sent_at)| sent_at), doubt)
    }

    /// Whether it failed after it may have taken the protection off: the guest must get it back.
    pub fn owes_protection(&self) -> bool {
        let failed = matches!(self.state, OpState::Failed { .. });
        failed && self.intent.unprotects && self.furthest >= OpPhase::Unprotect
    }

    /// Whether it failed after it may have stopped the guest: it must run again.
    pub fn owes_start(&self) -> bool {
        matches!(self.state, OpState::Failed { .. }) && self.intent.restarts
    }

    /// The operation a first event begins.
    pub fn begin(id: OperationId, event: &OpEvent) -> Result<Self, IllegalTransition> {
        let OpEvent::Started(intent) = event else {
            let why = "an operation begins with `started`";
            return Err(IllegalTransition { state: "nothing", event: event.as_str(), why });
        };
        let state = next(None, event)?;
        let intent = StartedIntent::clone(intent);
        Ok(Self { id, furthest: intent.first, intent, state, task: None })
    }

    /// Takes in one more event, or stays as it was.
    pub fn advance(&mut self, event: &OpEvent) -> Result<(), IllegalTransition> {
        self.state = next(Some(&self.state), event)?;
        match event {
            OpEvent::RequestStarted { request, .. } => self.furthest = *request,
            OpEvent::TaskRunning { upid, .. } => self.task = Some(upid.clone()),
            OpEvent::Started(_)
            | OpEvent::Succeeded { .. }
            | OpEvent::Failed { .. }
            | OpEvent::Unknown { .. }
            | OpEvent::Resolved { .. } => {}
        }
        Ok(())
    }

    /// The same operation after one more event.
    pub fn after(&self, event: &OpEvent) -> Result<Self, IllegalTransition> {
        let mut operation = self.clone();
        operation.advance(event).map(|()| operation)
    }
}

/// What the `started` record says, durable before the first request leaves (invariant 5).
#[expect(clippy::struct_excessive_bools, reason = "each is a field of a line of the journal")]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartedIntent {
    /// The guest it acts on; for create, clone and restore the one that comes into being.
    pub guest: GuestId,
    /// What it does.
    pub kind: ActionKind,
    /// Whether it may ever be done again.
    pub repeat: Repeat,
    /// The first request it sends.
    pub first: OpPhase,
    /// Whether the protection flag is taken off on the way.
    pub unprotects: bool,
    /// Whether a guest that ran is stopped on the way, and must run again if the act comes to nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restarts: bool,
    /// When that request is sent, by the node's clock.
    pub sent_at: UnixSeconds,
    /// The guest a clone is made from. PVE names the clone task after it.
    pub clone_source: Option<VmId>,
    /// Whether a quorate node said that the guest's number was free just before.
    pub id_was_free: bool,
    /// For a write that allocates without leaving a task: the guest's volumes just before it, so
    /// that after a lost answer the new one is found and not allocated again.
    pub volumes_before: Option<BTreeSet<VolumeId>>,
    /// For an unsigned act: the volumes the guest names just before and must name after it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub volumes_named: BTreeSet<VolumeId>,
    /// The guest's identity just before, where there was a guest and it could be read.
    pub identity: Option<IdentityHash>,
    /// For a power action: the identity it has once everything that waits is applied, where that is another one. Proxmox
    /// applies what waits when a guest starts and when it stops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity_after: Option<IdentityHash>,
    /// For an act that takes the protection off: the task list when its item was raised. It tells later whether the
    /// guest that is there is still the one the protection is owed to. For a making: the task list when it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_mark: Option<TaskListMark>,
    /// For a making: what the guest is made from, as it was just before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceMark>,
    /// For a making: whether the guest is declared scratch, under a number at which that counts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub scratch: bool,
    /// For a making: what others had given the number just before, where all of it was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub around: Option<SurroundingsHash>,
    /// For an act that a hub declares and that makes a guest, or takes room of a storage: what the guest takes there then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_hub: Option<HubShare>,
    /// What it tries, to be known again if it fails; none of what is never tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<AttemptHash>,
}

impl StartedIntent {
    /// One request that may be sent again and prepares nothing; whoever means more says so.
    pub fn new(guest: GuestId, kind: ActionKind, sent_at: UnixSeconds) -> Self {
        Self {
            guest,
            kind,
            repeat: Repeat::Convergent,
            first: OpPhase::Act,
            unprotects: false,
            restarts: false,
            sent_at,
            clone_source: None,
            id_was_free: false,
            volumes_before: None,
            volumes_named: BTreeSet::new(),
            identity: None,
            identity_after: None,
            task_mark: None,
            source: None,
            scratch: false,
            around: None,
            for_hub: None,
            attempt: None,
        }
    }

    /// Whether this identity is another guest's than the one it acts on. What cannot be told is not another.
    pub fn is_another(&self, live: Option<IdentityHash>) -> bool {
        match (self.identity, live) {
            (Some(before), Some(live)) => live != before && Some(live) != self.identity_after,
            (None, _) | (_, None) => false,
        }
    }
}

/// Whether an operation may be done again under a new name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "repeat", rename_all = "snake_case")]
pub enum Repeat {
    /// It only brings a guest nearer to what is declared; the next pass may plan it again.
    Convergent,
    /// An operator signed it. Its key is spent by the `started` record, whatever comes after.
    AtMostOnce {
        /// The spent key: the nonce of its statement.
        key: IdempotencyKey,
        /// The statement, by its exact bytes: the same key with other bytes is an alarm.
        payload: PayloadHash,
        /// When the statement ends.
        expires_at: UnixSeconds,
    },
    /// It removes what a making of ours left, or a scratch guest that it made. Nobody signed it, so it is done at most
    /// once for each making, whatever comes of it.
    OncePerMaking {
        /// The making.
        making: OperationId,
    },
}

/// The requests of one operation, in the only order in which they may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OpPhase {
    /// Preparation of a signed destroy: take the guest down.
    Stop,
    /// Preparation of a signed destroy: save the guest.
    Backup,
    /// Preparation of a signed destroy: take the protection flag off.
    Unprotect,
    /// The act itself. Most operations have only this one.
    Act,
}

impl OpPhase {
    /// All of them, in order.
    pub const ALL: [Self; 4] = [Self::Stop, Self::Backup, Self::Unprotect, Self::Act];

    /// The spelling used in the journal.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Backup => "backup",
            Self::Unprotect => "unprotect",
            Self::Act => "act",
        }
    }
}

/// What happened to an operation: the unit the journal stores.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum OpEvent {
    /// It is about to send its first request.
    Started(Box<StartedIntent>),
    /// It is about to send a later request; the one before it is done.
    RequestStarted {
        /// Which.
        request: OpPhase,
        /// When, by the node's clock.
        sent_at: UnixSeconds,
    },
    /// PVE's task is known.
    TaskRunning {
        /// The task.
        upid: Upid,
        /// Found in the task list, where somebody else's can look the same, and not named by the answer.
        found: bool,
    },
    /// The postcondition was seen to hold.
    Succeeded {
        /// The guest's identity after it: the new baseline.
        identity: Option<IdentityHash>,
        /// PVE's task ended with warnings, or disagreed with what was then found.
        warning: Option<String>,
    },
    /// It was seen not to have happened, or PVE refused it.
    Failed {
        /// Why, for a person.
        reason: String,
        /// A volume it allocated and did not attach, to be used instead of a further one.
        left_volume: Option<VolumeId>,
        /// That the same would likely fail again; none if a crash or a lost connection is all that is known.
        tried: Option<TryFailure>,
        /// Of a making: the identity of what it left, if that has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        identity: Option<IdentityHash>,
    },
    /// What happened cannot be told.
    Unknown {
        /// Why, for a person.
        reason: String,
    },
    /// An operator said how an unknown outcome ended.
    Resolved {
        /// As what.
        outcome: Resolution,
    },
}

/// What an operator may say of an unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resolution {
    /// It happened.
    Succeeded,
    /// It did not.
    Failed,
}

/// Where an operation stands, with what is known there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum OpState {
    /// A request may have left; no task is known.
    Started {
        /// The request.
        request: OpPhase,
        /// When it was sent, by the node's clock.
        sent_at: UnixSeconds,
    },
    /// PVE works on it.
    TaskRunning {
        /// The request.
        request: OpPhase,
        /// When it was sent, by the node's clock.
        sent_at: UnixSeconds,
        /// The task.
        upid: Upid,
        /// Whether it was found in the task list: then the request's own may be another one, and still come.
        found: bool,
    },
    /// Closed: the act is done.
    Succeeded {
        /// Who says so.
        by: Closer,
    },
    /// Closed: the act is not done.
    Failed {
        /// Who says so.
        by: Closer,
        /// Why, for a person; empty when an operator closed it.
        reason: String,
        /// A volume it left behind.
        left_volume: Option<VolumeId>,
    },
    /// Not closed: the lane stays shut until evidence or an operator ends it (invariant 13).
    Unknown {
        /// The request in doubt.
        request: OpPhase,
        /// When it was sent, by the node's clock.
        sent_at: UnixSeconds,
        /// The task, if one was known.
        upid: Option<Upid>,
        /// Why, for a person.
        reason: String,
    },
}

/// Who closed an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Closer {
    /// The agent, by what it saw.
    Evidence,
    /// An operator, by hand.
    Operator,
}

impl OpState {
    /// The spelling used in journal, reports and error texts.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Started { .. } => "started",
            Self::TaskRunning { .. } => "task_running",
            Self::Succeeded { .. } => "succeeded",
            Self::Failed { .. } => "failed",
            Self::Unknown { .. } => "unknown",
        }
    }
}

impl OpEvent {
    /// The spelling used in error texts.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Started(_) => "started",
            Self::RequestStarted { .. } => "request_started",
            Self::TaskRunning { .. } => "task_running",
            Self::Succeeded { .. } => "succeeded",
            Self::Failed { .. } => "failed",
            Self::Unknown { .. } => "unknown",
            Self::Resolved { .. } => "resolved",
        }
    }

    /// Whether it closes the operation as done, by evidence or by an operator's word.
    pub(super) fn is_success(&self) -> bool {
        match self {
            Self::Succeeded { .. } | Self::Resolved { outcome: Resolution::Succeeded } => true,
            Self::Started(_)
            | Self::RequestStarted { .. }
            | Self::TaskRunning { .. }
            | Self::Failed { .. }
            | Self::Unknown { .. }
            | Self::Resolved { outcome: Resolution::Failed } => false,
        }
    }
}

#[cfg(test)]
mod tests;
