//! What the journal knows of guests that we made, or tried to make.
//!
//! A guest we made starts for the first time only when it is as declared. A number for which a making of ours did not end
//! well is contested: a guest that is found there may be anybody's, and is left alone until a person says otherwise, or
//! until `compensation` proves that it is what our own making left. Nothing here proves that by itself (invariant 11).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{
    IdentityHash, OpEvent, Operation, Repeat, Resolution, StartedIntent, UnixSeconds, Upid,
    VolumeId,
};
use crate::action_registry::{ActionKind, OriginEffect};
use crate::id::{GuestId, OperationId, VmId};
use crate::identity_proof::TaskListMark;

/// Guests we made that never ran, and numbers at which a making did not end well.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MakingMemory {
    never_ran: BTreeSet<GuestId>,
    contested: BTreeMap<VmId, OperationId>,
    /// What was written down when a making began, for guests that we may have to remove again.
    #[serde(default)]
    made: BTreeMap<VmId, MadeGuest>,
}

/// What a guest is made from, as it was when its making began. What it is made from holds all data of a guest that
/// never ran: while it is unchanged, nothing is lost with the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "from", rename_all = "snake_case", deny_unknown_fields)]
pub enum SourceMark {
    /// Nothing: its disks are empty.
    Nothing,
    /// A template, an image or a backup.
    Volume {
        /// Its name.
        volume: VolumeId,
        /// Its size, as its storage lists it.
        size_bytes: u64,
        /// When it was made, as its storage lists it.
        made_at: UnixSeconds,
    },
    /// A guest that is copied.
    Guest {
        /// Which.
        guest: GuestId,
        /// Which one that is, whatever its number.
        identity: IdentityHash,
    },
}

/// One guest that we made or tried to make, with everything that a removal is compared with later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadeGuest {
    /// The operation that made it.
    pub making: OperationId,
    /// The guest.
    pub guest: GuestId,
    /// How it was made.
    pub kind: ActionKind,
    /// The task list when the making began: every task of the number, and every copy, that there was by then.
    pub mark: TaskListMark,
    /// What it is made from; none if that could not be told, and then it is never removed unsigned.
    pub source: Option<SourceMark>,
    /// Whether it was declared scratch, under a number at which that counts.
    pub scratch: bool,
    /// The tasks that answers to our own requests on this number named. One that was only found is none of them.
    pub tasks: BTreeSet<Upid>,
    /// How far it is.
    pub stage: MadeStage,
}

/// How far a guest of ours is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "stage", rename_all = "snake_case")]
pub enum MadeStage {
    /// It is being made.
    UnderWay,
    /// Its making failed; what it left has this identity, if it had one when that was seen.
    Half {
        /// The identity.
        identity: Option<IdentityHash>,
    },
    /// It was made.
    Whole,
    /// We began to remove it, which we do once.
    Removing,
}

/// More own tasks than this are not remembered of one guest: it is then no longer known as ours alone.
const OWN_TASKS_MAX: usize = 256;

impl MakingMemory {
    /// Whether we made the guest and have not started it yet.
    pub fn never_ran(&self, guest: GuestId) -> bool {
        self.never_ran.contains(&guest)
    }

    /// The making that did not end well, if a guest under this number may be anybody's.
    pub fn contested(&self, vmid: VmId) -> Option<OperationId> {
        self.contested.get(&vmid).copied()
    }

    /// What our own making left half way, as far as the journal knows.
    pub fn half_made(&self, guest: GuestId) -> Option<&MadeGuest> {
        let made = self.made.get(&guest.vmid).filter(|made| made.guest == guest)?;
        let is_half = matches!(made.stage, MadeStage::Half { .. });
        (is_half && self.contested(guest.vmid) == Some(made.making)).then_some(made)
    }

    /// A guest that we made as scratch, as far as the journal knows.
    pub fn scratch(&self, guest: GuestId) -> Option<&MadeGuest> {
        let made = self.made.get(&guest.vmid).filter(|made| made.guest == guest)?;
        (made.stage == MadeStage::Whole && made.scratch).then_some(made)
    }

    /// Whether a removal of what this making left has begun: it is sent once, whatever came of it.
    pub(super) fn is_being_removed(&self, vmid: VmId, making: OperationId) -> bool {
        let made = self.made.get(&vmid).filter(|made| made.making == making);
        made.is_some_and(|made| made.stage == MadeStage::Removing)
    }

    /// The part that is about one number.
    #[must_use]
    pub fn of(&self, vmid: VmId) -> Self {
        Self {
            never_ran: self.never_ran.iter().filter(|guest| guest.vmid == vmid).copied().collect(),
            contested: self.contested(vmid).map(|op| (vmid, op)).into_iter().collect(),
            made: self.made.get(&vmid).map(|made| (vmid, made.clone())).into_iter().collect(),
        }
    }

    /// A person says that the guest is the one that is meant: it is no longer what a making left.
    pub(super) fn retry(&mut self, vmid: VmId) {
        self.contested.remove(&vmid);
        if self.made.get(&vmid).is_some_and(|made| made.stage != MadeStage::Whole) {
            self.made.remove(&vmid);
        }
    }

    /// Keeps it true after an event.
    pub(super) fn trace(&mut self, operation: &Operation, event: &OpEvent) {
        self.trace_made(operation, event);
        let (guest, kind) = (operation.intent.guest, operation.intent.kind);
        match event {
            OpEvent::Started(_) if kind.creates_guest() => {
                self.forget(guest.vmid);
                self.contested.insert(guest.vmid, operation.id);
            }
            OpEvent::Succeeded { .. } | OpEvent::Resolved { outcome: Resolution::Succeeded } => {
                match kind.row().origin {
                    OriginEffect::Begins => {
                        self.forget(guest.vmid);
                        self.never_ran.insert(guest);
                    }
                    OriginEffect::Ends => self.forget(guest.vmid),
                    OriginEffect::Keeps if kind == ActionKind::Start => {
                        self.never_ran.remove(&guest);
                    }
                    OriginEffect::Keeps => {}
                }
            }
            OpEvent::Started(_)
            | OpEvent::RequestStarted { .. }
            | OpEvent::TaskRunning { .. }
            | OpEvent::Failed { .. }
            | OpEvent::Unknown { .. }
            | OpEvent::Resolved { outcome: Resolution::Failed } => {}
        }
    }

    fn forget(&mut self, vmid: VmId) {
        self.never_ran.retain(|guest| guest.vmid != vmid);
        self.contested.remove(&vmid);
    }

    /// Keeps what a removal is compared with. Every doubt ends it; only a making of ours begins it.
    fn trace_made(&mut self, operation: &Operation, event: &OpEvent) {
        let (vmid, kind) = (operation.intent.guest.vmid, operation.intent.kind);
        match event {
            OpEvent::Started(intent) if kind.creates_guest() => {
                self.made.remove(&vmid);
                if let Some(made) = MadeGuest::begun(operation.id, intent) {
                    self.made.insert(vmid, made);
                }
            }
            OpEvent::Started(intent) => self.trace_start(vmid, intent),
            OpEvent::TaskRunning { upid, found: false } => {
                let Some(made) = self.made.get_mut(&vmid) else { return };
                made.tasks.insert(upid.clone());
                if made.tasks.len() > OWN_TASKS_MAX {
                    self.made.remove(&vmid);
                }
            }
            OpEvent::Succeeded { .. } => match kind.row().origin {
                OriginEffect::Begins => self.trace_made_whole(vmid),
                OriginEffect::Ends => {
                    self.made.remove(&vmid);
                }
                OriginEffect::Keeps => {}
            },
            OpEvent::Failed { identity, .. } if kind.creates_guest() => {
                if let Some(made) = self.made.get_mut(&vmid) {
                    made.stage = MadeStage::Half { identity: *identity };
                }
            }
            // An operator's word closes an operation, but it proves no origin.
            OpEvent::Resolved { .. }
                if kind.creates_guest() || kind.row().origin == OriginEffect::Ends =>
            {
                self.made.remove(&vmid);
            }
            OpEvent::RequestStarted { .. }
            | OpEvent::TaskRunning { found: true, .. }
            | OpEvent::Failed { .. }
            | OpEvent::Unknown { .. }
            | OpEvent::Resolved { .. } => {}
        }
    }

    /// An operation of ours on the guest begins: its removal, or something that makes more of it than a making left.
    fn trace_start(&mut self, vmid: VmId, intent: &StartedIntent) {
        let Some(made) = self.made.get_mut(&vmid) else { return };
        match (&intent.repeat, made.stage) {
            (Repeat::OncePerMaking { making }, _) if *making == made.making => {
                made.stage = MadeStage::Removing;
            }
            (_, MadeStage::Half { .. } | MadeStage::UnderWay) => {
                self.made.remove(&vmid);
            }
            (_, MadeStage::Whole | MadeStage::Removing) => {}
        }
    }

    fn trace_made_whole(&mut self, vmid: VmId) {
        match self.made.get_mut(&vmid) {
            Some(made) if made.scratch => made.stage = MadeStage::Whole,
            Some(_) | None => {
                self.made.remove(&vmid);
            }
        }
    }
}

impl MadeGuest {
    /// What a making wrote down; none if it wrote down too little to ever prove anything.
    fn begun(making: OperationId, intent: &StartedIntent) -> Option<Self> {
        let mark = intent.task_mark.clone().filter(|_| intent.id_was_free)?;
        Some(Self {
            making,
            guest: intent.guest,
            kind: intent.kind,
            mark,
            source: intent.source.clone(),
            scratch: intent.scratch,
            tasks: BTreeSet::new(),
            stage: MadeStage::UnderWay,
        })
    }
}
