//! What a destroy that came to nothing took from its guest, and whether it can be given back now.
//!
//! It goes to the guest it was taken from and to no other. It can only refuse or wait: nothing here starts anything.

use std::collections::{BTreeMap, BTreeSet};

use crate::action_registry::ActionKind;
use crate::actual::identity::identity;
use crate::actual::identity_proof::{ListedTask, TaskReading};
use crate::actual::{Guest, Power};
use crate::gate::classify::{ActIntent, ActionClass, Target, classify};
use crate::model::reason::{ReasonCode, Refusal};
use crate::operate::operation::{Operation, Provenance, Upid};

/// What an operation took from a guest and could not use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OwedThing {
    /// Its protection.
    Protection,
    /// That it runs.
    Running,
}

impl OwedThing {
    /// All of them, in the order in which they are given back.
    pub const ALL: [Self; 2] = [Self::Protection, Self::Running];

    /// Whether an operation that came to nothing left it.
    pub fn is_of(self, operation: &Operation) -> bool {
        match self {
            Self::Protection => operation.owes_protection(),
            Self::Running => operation.owes_start(),
        }
    }
}

/// Whether a debt can be paid now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owed {
    /// Yes.
    Now,
    /// Perhaps, but not now: it is locked, or nobody can tell which guest it is.
    Later(Refusal),
    /// Nothing is owed any more: somebody made it another guest since, or it has again what was taken.
    Nothing,
}

impl Owed {
    /// To the guest as it is now. `tasks` were listed after it was read; `ours` are those of our own journal.
    pub fn to(
        fresh: &Guest,
        operation: &Operation,
        debt: OwedThing,
        tasks: &TaskReading,
        ours: &BTreeSet<Upid>,
    ) -> Self {
        let live = match identity(fresh) {
            Ok(live) => live,
            Err(error) => {
                return Self::Later(Refusal::new(ReasonCode::IdentityUnproven, error.to_string()));
            }
        };
        let has_it = match debt {
            OwedThing::Protection => fresh.is_protected(),
            OwedThing::Running => fresh.is_running() || was_started(fresh, operation, tasks, ours),
        };
        if Some(live) != operation.intent.identity || has_it {
            return Self::Nothing;
        }
        // A journal from before the mark was kept has none, and a list may have forgotten: then the identity alone
        // tells. A flag too many on a guest that looks the same harms nobody; one that is missing may.
        let mark = operation.intent.task_mark.as_ref();
        match mark.map_or(Ok(false), |mark| mark.another_guest(tasks, fresh.id.vmid, ours)) {
            Ok(true) => return Self::Nothing,
            Ok(false) => {}
            Err(refusal) => return Self::Later(refusal),
        }
        if let Some(lock) = &fresh.lock {
            let why = format!("it is locked ({lock})");
            return Self::Later(Refusal::new(ReasonCode::Locked, why));
        }
        match debt {
            OwedThing::Protection => Self::Now,
            OwedThing::Running => start_is_harmless(fresh),
        }
    }
}

/// Whether somebody started it since: then whether it runs is theirs to say.
fn was_started(
    fresh: &Guest,
    operation: &Operation,
    tasks: &TaskReading,
    ours: &BTreeSet<Upid>,
) -> bool {
    let started = |task: &ListedTask| {
        let upid = &task.upid;
        ActionKind::Start.task_types(fresh.id.kind).contains(&upid.task_type())
            && upid.task_id() == fresh.id.vmid.to_string()
            && upid.started_at() >= operation.intent.sent_at
            && !ours.contains(upid)
    };
    tasks.tasks.iter().any(started)
}

/// A start applies what came to wait meanwhile, and a deletion that waits destroys: that is nobody's to set off unsigned.
fn start_is_harmless(fresh: &Guest) -> Owed {
    let params = BTreeMap::new();
    let op = ActionKind::Start.as_str();
    let kind = fresh.id.kind;
    let target = Target::Seen(fresh);
    let judged = classify(&ActIntent { op, kind, params: &params, target }, &Provenance::none());
    match judged.class {
        ActionClass::Benign | ActionClass::Disruptive if fresh.power == Power::Stopped => Owed::Now,
        ActionClass::Benign | ActionClass::Disruptive => {
            Owed::Later(Refusal::new(ReasonCode::IdentityUnproven, "its run state is unknown"))
        }
        ActionClass::Destructive => {
            Owed::Later(Refusal::new(ReasonCode::PendingSignature, judged.why))
        }
    }
}
