//! What evenkeel's journal remembers, in a form that two states can be compared by; and the real values made of it.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::desired::bin::BinMemory;
use evenkeel_core::gate::classify::BackupMemory;
use evenkeel_core::model::id::{GuestId, GuestKind, OperationId, VmId};
use evenkeel_core::operate::operation::{
    IdentityHash, Ledger, OpEvent, OpRecord, SourceMark, StartedIntent, UnixSeconds,
};
use evenkeel_core::plan::{MovedVolumes, VolumeMemory};

use crate::removal;

/// When everything happens: nothing here waits for a time.
pub(crate) const NOW: UnixSeconds = UnixSeconds(1_800_000_000);

/// Everything that is remembered.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Journal {
    /// Volumes that left their slot while no backup held them.
    pub(crate) unsaved: BTreeSet<(u32, String)>,
    /// The slot that a move took each volume out of.
    pub(crate) moved: BTreeMap<(u32, String), String>,
    pub(crate) making: BTreeMap<u32, Making>,
    pub(crate) bins: BTreeMap<u32, BinFacts>,
}

/// What became of a making.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Making {
    /// It was done, and the guest has not run.
    Done,
    /// It did not end well; what was found under the number then has this identity.
    Failed(Option<[u8; 32]>),
}

/// What a guest was before it was put into the bin.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct BinFacts {
    identity: [u8; 32],
    ran: bool,
    onboot: Option<bool>,
    tags: BTreeSet<String>,
    marks: BTreeSet<String>,
}

impl BinFacts {
    pub(crate) fn of(memory: BinMemory) -> Self {
        let BinMemory { identity, since: _, ran, onboot, tags, marks } = memory;
        Self { identity: identity.0, ran, onboot, tags, marks }
    }

    fn memory(&self) -> BinMemory {
        let Self { identity, ran, onboot, tags, marks } = self.clone();
        BinMemory { identity: IdentityHash(identity), since: NOW, ran, onboot, tags, marks }
    }
}

impl Journal {
    /// What is remembered of every guest's volumes.
    pub(crate) fn memories(&self) -> BTreeMap<VmId, VolumeMemory> {
        let guests = self.unsaved.iter().map(|(guest, _)| *guest);
        let guests: BTreeSet<u32> =
            guests.chain(self.moved.keys().map(|(guest, _)| *guest)).collect();
        let memory = |guest: u32| {
            let unsaved = self.unsaved.iter().filter(|(of, _)| *of == guest);
            let moved = self.moved.iter().filter(|((of, _), _)| *of == guest);
            VolumeMemory {
                backups: BackupMemory::of(unsaved.map(|(_, volume)| volume.clone())),
                moved: MovedVolumes::of(
                    moved.map(|((_, volume), slot)| (volume.clone(), slot.clone())),
                ),
            }
        };
        guests.into_iter().map(|guest| (vmid(guest), memory(guest))).collect()
    }

    /// What is remembered of guests in the bin.
    pub(crate) fn bin_memories(&self) -> BTreeMap<VmId, BinMemory> {
        self.bins.iter().map(|(guest, facts)| (vmid(*guest), facts.memory())).collect()
    }

    /// The fold of the operations that made guests, or failed to.
    pub(crate) fn ledger(&self, kind: GuestKind) -> Ledger {
        let mut ledger = Ledger::default();
        for (number, outcome) in &self.making {
            let guest = GuestId { kind, vmid: vmid(*number) };
            let op = OperationId::from_parts(NOW.0 * 1000, u128::from(*number));
            let intent = StartedIntent {
                id_was_free: true,
                task_mark: Some(removal::mark()),
                source: Some(SourceMark::Nothing),
                ..StartedIntent::new(guest, ActionKind::Create, NOW)
            };
            let ended = match outcome {
                Making::Done => OpEvent::Succeeded { identity: None, warning: None },
                Making::Failed(identity) => OpEvent::Failed {
                    reason: "it failed".to_owned(),
                    left_volume: None,
                    tried: None,
                    identity: identity.map(IdentityHash),
                },
            };
            let task = OpEvent::TaskRunning { upid: removal::our_making(guest), found: false };
            for event in [OpEvent::Started(Box::new(intent)), task, ended] {
                ledger.apply(&OpRecord { op, event }).expect("an operation begins and ends");
            }
        }
        ledger
    }
}

pub(crate) fn vmid(number: u32) -> VmId {
    number.try_into().expect("a guest's number")
}
