//! The node as evenkeel is shown it: whole, or with one thing hidden.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_core::actual::{
    ConfigEntry, Guest, GuestConfig, ListCoverage, Power, Snapshot, SnapshotPoint,
};
use evenkeel_core::gate::classify::saved_volumes;
use evenkeel_core::model::id::{GuestId, GuestKind};
use evenkeel_core::model::release::Release;
use evenkeel_core::operate::operation::MakingMemory;
use evenkeel_core::plan::{MovedVolumes, PlanContext};
use evenkeel_core::value::compare::Conventions;

use crate::journal::{NOW, vmid};
use crate::node::{Disk, Node, NodeGuest};
use crate::scene::{IMAGE, MANAGED, names};

/// The digest of every file: whoever writes has just read.
const DIGEST: &str = "da39a3ee5e6b4b0d3255bfef95601890afd80709";

/// What evenkeel does not see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hidden {
    Nothing,
    /// That a number is in use.
    TakenNumbers,
    /// Volumes that a former guest left under a number.
    LeftVolumes,
    /// That an image is somebody's.
    ImageOwners,
    /// That what is read in is a guest's disk.
    ImageNames,
    /// That a restore is forced.
    Force,
    /// That a restore is forced, and that its number is in use.
    ForceAndTakenNumbers,
    /// That a move frees its source.
    Freeing,
    /// That a backup removes older ones.
    Pruning,
    /// Whose a volume is.
    Owners,
    /// Which volumes a move left behind.
    Moved,
    /// That a making did not end well.
    FailedMakings,
    /// That a volume may have been in backups.
    Backups,
    /// That another guest gets a volume.
    OtherGuests,
    /// That nothing of a guest names a volume that bears its number.
    Unnamed,
    /// Tasks by which others made guests.
    OthersTasks,
    /// That others started a guest.
    Starts,
}

/// What evenkeel sees.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Eyes(pub(crate) Hidden);

impl Eyes {
    pub(crate) const OPEN: Self = Self(Hidden::Nothing);
}

/// A state as evenkeel sees it.
pub(crate) struct Look {
    pub(crate) snapshot: Snapshot,
    pub(crate) context: PlanContext,
}

/// The snapshots of a guest.
pub(crate) fn snapshots(node: &Node, number: u32) -> Vec<SnapshotPoint> {
    let taken = node.guests.get(&number).is_some_and(|guest| guest.snapshot);
    let point = SnapshotPoint {
        name: "before".to_owned(),
        taken_at: Some(NOW),
        parent: None,
        with_memory: false,
    };
    taken.then_some(point).into_iter().collect()
}

impl Eyes {
    pub(crate) fn sees_taken_numbers(self) -> bool {
        !matches!(self.0, Hidden::TakenNumbers | Hidden::ForceAndTakenNumbers)
    }

    /// Looks at the node.
    pub(crate) fn look(self, node: &Node) -> Look {
        let seen = node.guests.iter().filter(|(_, guest)| guest.listed);
        let guests = seen.map(|(number, guest)| (vmid(*number), self.guest(node, *number, guest)));
        let snapshot = Snapshot {
            node: "pve1".parse().expect("a node's name"),
            release: Release::V8_4,
            conventions: Conventions::default(),
            guests: guests.collect(),
            elsewhere: BTreeMap::new(),
            hidden: BTreeSet::new(),
            coverage: ListCoverage::Whole,
        };
        let mut memories = node.journal.memories();
        for memory in memories.values_mut().filter(|_| self.0 == Hidden::Moved) {
            memory.moved = MovedVolumes::default();
        }
        if self.0 == Hidden::Backups {
            for number in node.guests.keys() {
                let all = node.volumes.keys().cloned();
                memories.entry(vmid(*number)).or_default().backups =
                    evenkeel_core::gate::classify::BackupMemory::of(all);
            }
        }
        let making = if self.0 == Hidden::FailedMakings {
            MakingMemory::default()
        } else {
            node.journal.ledger(node.kind).making().clone()
        };
        let bins = node.journal.bin_memories();
        let removals = self.removals(node, &making);
        let now = NOW;
        let context =
            PlanContext { memories, making, bins, removals, now, ..PlanContext::default() };
        Look { snapshot, context }
    }

    /// A name of a volume as evenkeel is shown it.
    pub(crate) fn shown(self, name: &str) -> String {
        if self.0 == Hidden::Owners {
            return name.replace("store:103/", "store:101/");
        }
        if self.0 == Hidden::ImageNames {
            let read_in = names(GuestKind::Qemu).others[0];
            let [from, to] = [read_in, IMAGE].map(|image| format!("import-from={image}"));
            return name.replace(&from, &to);
        }
        name.to_owned()
    }

    /// The name that Proxmox VE is told.
    pub(crate) fn real(self, text: &str) -> String {
        if self.0 == Hidden::Owners {
            return text.replace("store:101/vm-101-disk-9.raw", "store:103/vm-101-disk-9.raw");
        }
        text.to_owned()
    }

    /// The parameters of a request as evenkeel is shown them.
    pub(crate) fn shown_params(
        self,
        params: &BTreeMap<String, String>,
    ) -> BTreeMap<String, String> {
        let mut shown: BTreeMap<String, String> =
            params.iter().map(|(name, text)| (name.clone(), self.shown(text))).collect();
        if matches!(self.0, Hidden::Force | Hidden::ForceAndTakenNumbers) {
            shown.remove("force");
        }
        if self.0 == Hidden::Freeing && shown.contains_key("delete") {
            shown.insert("delete".to_owned(), "0".to_owned());
        }
        if self.0 == Hidden::Pruning {
            shown.remove("remove");
        }
        if self.0 == Hidden::OtherGuests && shown.remove("target-vmid").is_some() {
            shown.insert("storage".to_owned(), "store".to_owned());
        }
        shown
    }

    /// A guest as it is observed.
    pub(crate) fn guest(self, node: &Node, number: u32, guest: &NodeGuest) -> Guest {
        let mut entries: BTreeMap<String, ConfigEntry> = BTreeMap::new();
        let mut tell = |key: &str, value: Option<String>, pending: Option<String>, delete: u8| {
            let key = key.to_owned();
            entries.insert(key.clone(), ConfigEntry { key, value, pending, delete });
        };
        tell("digest", Some(DIGEST.to_owned()), None, 0);
        for (key, text) in &guest.keys {
            tell(key, Some(text.clone()), None, 0);
        }
        let slots: BTreeSet<&String> = guest.slots.keys().chain(guest.waiting.keys()).collect();
        for slot in slots {
            let now = guest.slots.get(slot).map(|disk| self.stored(node, disk));
            let waits = guest.waiting.get(slot);
            let pending = waits.and_then(|disk| disk.as_ref()).map(|disk| self.stored(node, disk));
            // With owners hidden, what somebody else holds under a name of ours is not seen to be held.
            let theirs = self.0 == Hidden::Owners && number != MANAGED;
            if !(theirs && now.as_ref().is_some_and(|now| now.starts_with("store:"))) {
                tell(slot, now, pending, u8::from(waits == Some(&None)));
            }
        }
        for (unused, volume) in &guest.unused {
            tell(&format!("unused{unused}"), Some(self.shown(volume)), None, 0);
        }
        for (unused, volume) in (100..).zip(self.taken_for_detached(node, number, guest)) {
            tell(&format!("unused{unused}"), Some(volume), None, 0);
        }
        let id = GuestId { kind: guest.kind, vmid: vmid(number) };
        Guest {
            id,
            power: if guest.running { Power::Running } else { Power::Stopped },
            template: guest.template,
            ha: None,
            lock: guest.lock.map(str::to_owned),
            config: Ok(GuestConfig::from_pending(guest.kind, entries.into_values()).into()),
        }
    }

    /// Volumes that are not the guest's and look as if they hung on it.
    fn taken_for_detached(self, node: &Node, number: u32, guest: &NodeGuest) -> Vec<String> {
        if self.0 == Hidden::Owners && number == MANAGED {
            return vec![self.shown(names(guest.kind).others[1])];
        }
        if self.0 != Hidden::Unnamed {
            return Vec::new();
        }
        let listed = ["tank", "store"].map(|storage| node.listed_of(storage, number));
        let listed = listed.into_iter().flatten();
        listed.filter(|volume| !guest.names(volume)).cloned().collect()
    }

    fn stored(self, node: &Node, disk: &Disk) -> String {
        let mut text = self.shown(&disk.volume);
        for (part, value) in [
            ("mp", disk.mount.clone()),
            ("backup", disk.backup.map(|on| u8::from(on).to_string())),
            ("size", node.volumes.get(&disk.volume).map(|volume| format!("{}G", volume.gib))),
        ] {
            text.extend(value.map(|value| format!(",{part}={value}")));
        }
        text
    }

    /// What a pass strikes out of the journal once it sees the guests.
    pub(crate) fn forget(self, node: &mut Node) {
        let mut configs: BTreeMap<u32, (BTreeSet<String>, BTreeSet<String>)> = BTreeMap::new();
        let remembered = node.journal.unsaved.iter().map(|(guest, _)| *guest);
        let remembered = remembered.chain(node.journal.moved.keys().map(|(guest, _)| *guest));
        for number in remembered.collect::<BTreeSet<u32>>() {
            let there = node.guests.get(&number).map(|there| self.guest(node, number, there));
            let config = there.and_then(|there| there.config.ok());
            configs.extend(config.map(|config| {
                (number, (config.volumes().into_keys().collect(), saved_volumes(&config)))
            }));
        }
        node.journal.unsaved.retain(|(number, volume)| {
            let config = configs.get(number);
            config.is_some_and(|(named, saved)| named.contains(volume) && !saved.contains(volume))
        });
        node.journal.moved.retain(|(number, volume), _| {
            configs.get(number).is_some_and(|(named, _)| named.contains(volume))
        });
    }
}
