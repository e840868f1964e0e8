//! What the journal knows of guests that we made, or tried to make.
//!
//! A guest we made starts for the first time only when it is as declared. A number for which a making of ours did not end
//! well is contested: a guest that is found there may be anybody's, and is left alone until a person says otherwise, or
//! until `compensation` proves that it is what our own making left. Nothing here proves that by itself (invariant 11).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{IdentityHash, OpEvent, Operation, Repeat, StartedIntent, UnixSeconds, Upid, VolumeId};
use crate::action_registry::{ActionKind, OriginEffect};
use crate::actual::identity_proof::TaskListMark;
use crate::actual::surroundings::SurroundingsHash;
use crate::model::id::{GuestId, OperationId, VmId};

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
    /// What others had given its number when the making began, where all of it was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub around: Option<SurroundingsHash>,
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
    /// Whether no guest is known that we made or tried to make.
    pub fn made_none(&self) -> bool {
        self.made.is_empty()
    }

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

    /// The tasks that answers to our own requests named since this making began, those of its removal too.
    pub fn own_tasks(&self, vmid: VmId, making: OperationId) -> BTreeSet<Upid> {
        let made = self.made.get(&vmid).filter(|made| made.making == making);
        made.map(|made| made.tasks.clone()).unwrap_or_default()
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
        let guest = operation.intent.guest;
        let kind = operation.intent.kind;
        if matches!(event, OpEvent::Started(_)) && kind.creates_guest() {
            self.forget(guest.vmid);
            self.contested.insert(guest.vmid, operation.id);
        }
        if event.is_success() {
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
    }

    fn forget(&mut self, vmid: VmId) {
        self.never_ran.retain(|guest| guest.vmid != vmid);
        self.contested.remove(&vmid);
    }

    /// Keeps what a removal is compared with. Every doubt ends it; only a making of ours begins it.
    fn trace_made(&mut self, operation: &Operation, event: &OpEvent) {
        let vmid = operation.intent.guest.vmid;
        let kind = operation.intent.kind;
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
            around: intent.around,
            tasks: BTreeSet::new(),
            stage: MadeStage::UnderWay,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operate::operation::{Ledger, OpRecord, ReplayError, Resolution};

    const UPID: &str = "UPID:pve1:00001234:0123ABCD:65000000:qmrestore:120:agent@pve!ek:";

    fn guest() -> GuestId {
        "qemu/120".parse().unwrap()
    }

    fn op(number: u128) -> OperationId {
        OperationId::from_parts(1_700_000_000_000, number)
    }

    fn making(scratch: bool) -> StartedIntent {
        let mark = TaskListMark {
            at: UnixSeconds(1),
            task: None,
            replaced: BTreeSet::new(),
            unread: BTreeSet::new(),
        };
        StartedIntent {
            id_was_free: true,
            task_mark: Some(mark),
            source: Some(SourceMark::Nothing),
            scratch,
            ..StartedIntent::new(guest(), ActionKind::Restore, UnixSeconds(1))
        }
    }

    fn removal(making: u128) -> StartedIntent {
        StartedIntent {
            repeat: Repeat::OncePerMaking { making: op(making) },
            ..StartedIntent::new(guest(), ActionKind::Destroy, UnixSeconds(2))
        }
    }

    fn started(intent: StartedIntent) -> OpEvent {
        OpEvent::Started(Box::new(intent))
    }

    fn task(found: bool) -> OpEvent {
        OpEvent::TaskRunning { upid: UPID.parse().unwrap(), found }
    }

    fn failed() -> OpEvent {
        let reason = "no".to_owned();
        OpEvent::Failed { reason, left_volume: None, tried: None, identity: None }
    }

    fn succeeded() -> OpEvent {
        OpEvent::Succeeded { identity: Some(IdentityHash([1; 32])), warning: None }
    }

    fn unknown() -> OpEvent {
        OpEvent::Unknown { reason: "lost".to_owned() }
    }

    fn ledger(events: impl IntoIterator<Item = (u128, OpEvent)>) -> Ledger {
        let mut ledger = Ledger::default();
        for (number, event) in events {
            ledger.apply(&OpRecord { op: op(number), event }).unwrap();
        }
        ledger
    }

    #[test]
    fn only_a_making_that_failed_by_evidence_leaves_something_to_remove() {
        let half = |events: Vec<OpEvent>| {
            let events = events.into_iter().map(|event| (1, event));
            ledger(events).making().half_made(guest()).is_some()
        };
        let begun = || started(making(false));
        assert!(half(vec![begun(), task(false), failed()]));
        assert!(!half(vec![begun(), task(false)]), "it may still come");
        assert!(!half(vec![begun(), task(false), succeeded()]));
        let by_hand = OpEvent::Resolved { outcome: Resolution::Failed };
        assert!(!half(vec![begun(), unknown(), by_hand]), "an operator's word proves no origin");
        let taken = StartedIntent { id_was_free: false, ..making(false) };
        assert!(!half(vec![started(taken), task(false), failed()]));
        let unmarked = StartedIntent { task_mark: None, ..making(false) };
        assert!(!half(vec![started(unmarked), task(false), failed()]), "an older journal's");
    }

    #[test]
    fn only_a_task_that_an_answer_named_is_remembered_as_ours() {
        for found in [false, true] {
            let events = [(1, started(making(false))), (1, task(found)), (1, failed())];
            let ledger = ledger(events);
            let made = ledger.making().half_made(guest()).unwrap();
            assert_eq!(made.tasks.is_empty(), found);
        }
    }

    #[test]
    fn what_a_making_left_is_removed_at_most_once() {
        let half = || [(1, started(making(false))), (1, task(false)), (1, failed())];
        for end in [failed(), unknown()] {
            let mut ledger = ledger(half());
            let begun = OpRecord { op: op(2), event: started(removal(1)) };
            ledger.apply(&begun).unwrap();
            assert!(ledger.making().half_made(guest()).is_none(), "it has begun");
            ledger.apply(&OpRecord { op: op(2), event: end }).unwrap();
            ledger.forget_closed();
            assert!(ledger.making().half_made(guest()).is_none(), "whatever came of it");
            let again = ledger.apply(&OpRecord { op: op(3), event: started(removal(1)) });
            let busy = matches!(again, Err(ReplayError::LaneBusy { .. }));
            assert!(busy || matches!(again, Err(ReplayError::RemovedBefore { .. })), "{again:?}");
        }
        let mut ledger = ledger(half());
        ledger.apply(&OpRecord { op: op(2), event: started(removal(1)) }).unwrap();
        ledger.apply(&OpRecord { op: op(2), event: succeeded() }).unwrap();
        assert_eq!(*ledger.making(), MakingMemory::default(), "the number is nobody's any more");
    }

    #[test]
    fn a_person_or_another_act_makes_more_of_it_than_a_making_left() {
        let half = || [(1, started(making(false))), (1, task(false)), (1, failed())];
        let mut retried = ledger(half());
        retried.retry(guest().vmid);
        assert!(retried.making().half_made(guest()).is_none());
        let write = StartedIntent::new(guest(), ActionKind::SetConfig, UnixSeconds(3));
        let written = ledger(half().into_iter().chain([(2, started(write)), (2, failed())]));
        assert!(written.making().half_made(guest()).is_none());
    }

    #[test]
    fn scratch_is_remembered_of_a_guest_that_was_made_as_such_until_its_removal_begins() {
        let made = |scratch| [(1, started(making(scratch))), (1, task(false)), (1, succeeded())];
        assert!(ledger(made(false)).making().scratch(guest()).is_none());
        let mut ours = ledger(made(true));
        assert!(ours.making().scratch(guest()).is_some());
        let start = StartedIntent::new(guest(), ActionKind::Start, UnixSeconds(3));
        for event in [started(start), succeeded()] {
            ours.apply(&OpRecord { op: op(2), event }).unwrap();
        }
        assert!(ours.making().scratch(guest()).is_some(), "a start does not end it");
        ours.retry(guest().vmid);
        assert!(ours.making().scratch(guest()).is_some());
        ours.apply(&OpRecord { op: op(3), event: started(removal(1)) }).unwrap();
        assert!(ours.making().scratch(guest()).is_none());
        // What a snapshot of the journal keeps is the same.
        let kept = serde_json::to_string(&ours).unwrap();
        assert_eq!(serde_json::from_str::<Ledger>(&kept).unwrap(), ours);
    }

    #[test]
    fn an_older_journal_knows_of_nothing_to_remove() {
        let older = r#"{"never_ran":[],"contested":{"120":"op_01HF7YAT000000000000000007"}}"#;
        let memory: MakingMemory = serde_json::from_str(older).unwrap();
        assert!(memory.contested(guest().vmid).is_some());
        assert!(memory.half_made(guest()).is_none());
    }
}
