//! A small model of a node of Proxmox VE: guests, volumes, backups, and what became of each volume. Written from what
//! Proxmox VE does, not from evenkeel, so that both cannot be wrong together: it has its own names of volumes, its own
//! reading of property strings, and asks nobody whose a volume is.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_core::model::id::GuestKind;

use crate::journal::Journal;
use crate::loss::Loss;

/// How many volumes a number can have on one storage: then the storage is full.
const NUMBERS_MAX: u8 = 5;

/// The node, what happened on it, and what evenkeel remembers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    /// The kind of the guests that are looked at.
    pub(crate) kind: GuestKind,
    pub(crate) guests: BTreeMap<u32, NodeGuest>,
    /// By the names their storages list them under.
    pub(crate) volumes: BTreeMap<String, NodeVolume>,
    /// The slots each backup holds, with their sizes in GiB, and whose it is.
    pub(crate) archives: BTreeMap<String, (u32, BTreeMap<String, u8>)>,
    /// What was done and shows on no volume.
    pub(crate) sins: BTreeSet<Loss>,
    /// What evenkeel's journal remembers; Proxmox VE knows nothing of it.
    pub(crate) journal: Journal,
}

/// Who made a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Maker {
    /// It was there before.
    Before,
    Evenkeel,
    /// Somebody who was faster than we were.
    Somebody,
}

/// One guest.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each is a thing that is so or not")]
pub(crate) struct NodeGuest {
    pub(crate) kind: GuestKind,
    pub(crate) maker: Maker,
    /// Whether a list shows it: lists lag, and tokens do not see everything.
    pub(crate) listed: bool,
    pub(crate) running: bool,
    /// It ran at some time, so that somebody may have written something.
    pub(crate) ran: bool,
    pub(crate) template: bool,
    pub(crate) snapshot: bool,
    pub(crate) lock: Option<&'static str>,
    /// Keys that hold no volume.
    pub(crate) keys: BTreeMap<String, String>,
    pub(crate) slots: BTreeMap<String, Disk>,
    /// What waits for a restart of a container; nothing means that the slot goes.
    pub(crate) waiting: BTreeMap<String, Option<Disk>>,
    /// The volumes of `unused0` and so on.
    pub(crate) unused: BTreeMap<u8, String>,
}

/// The value of a slot.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Disk {
    pub(crate) volume: String,
    pub(crate) backup: Option<bool>,
    /// Where a container sees it.
    pub(crate) mount: Option<String>,
}

/// One volume and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct NodeVolume {
    pub(crate) gib: u8,
    /// The largest it ever was.
    pub(crate) largest: u8,
    /// Whose it is in truth. A former guest's mark is its number and a thousand.
    pub(crate) owner: u32,
    /// Somebody would miss it.
    pub(crate) holds_data: bool,
    /// A configuration named it at some time.
    pub(crate) was_named: bool,
    /// A backup held it at some time.
    pub(crate) was_saved: bool,
    /// What a linked clone stands on.
    pub(crate) base: Option<String>,
    /// The slot a move took it out of.
    pub(crate) moved_from: Option<(u32, String)>,
}

impl NodeGuest {
    pub(crate) fn new(kind: GuestKind, maker: Maker) -> Self {
        Self {
            kind,
            maker,
            listed: true,
            running: false,
            ran: false,
            template: false,
            snapshot: false,
            lock: None,
            keys: BTreeMap::new(),
            slots: BTreeMap::new(),
            waiting: BTreeMap::new(),
            unused: BTreeMap::new(),
        }
    }

    /// Whether vzdump saves what is in a slot.
    pub(crate) fn saves(&self, slot: &str, disk: &Disk) -> bool {
        match self.kind {
            GuestKind::Lxc => slot == "rootfs" || disk.backup == Some(true),
            GuestKind::Qemu => disk.backup != Some(false),
        }
    }

    /// Everything the configuration names, with how often slots do.
    pub(crate) fn names(&self, volume: &str) -> bool {
        let waits = self.waiting.values().flatten();
        self.slots.values().chain(waits).any(|disk| disk.volume == volume)
            || self.unused.values().any(|unused| unused == volume)
    }

    /// Keeps a volume as `unusedN`.
    pub(crate) fn keep_unused(&mut self, volume: &str) {
        if !self.unused.values().any(|kept| kept == volume) {
            let free = (0..=u8::MAX).find(|number| !self.unused.contains_key(number));
            self.unused.insert(free.expect("there is a number for each"), volume.to_owned());
        }
    }

    /// Every time the file is written, `unusedN` is dropped for volumes that are in a slot.
    pub(crate) fn drop_used(&mut self) {
        let slots = &self.slots;
        self.unused.retain(|_, volume| !slots.values().any(|disk| disk.volume == *volume));
    }
}

impl Disk {
    pub(crate) fn of(volume: &str) -> Self {
        Self { volume: volume.to_owned(), backup: None, mount: None }
    }
}

impl NodeVolume {
    pub(crate) fn new(gib: u8, owner: u32) -> Self {
        Self {
            gib,
            largest: gib,
            owner,
            holds_data: false,
            was_named: false,
            was_saved: false,
            base: None,
            moved_from: None,
        }
    }
}

impl Node {
    /// A new volume of a guest; none if the storage is full.
    pub(crate) fn allocate(&mut self, storage: &str, guest: u32, gib: u8) -> Option<String> {
        let name = self.free_name(storage, guest)?;
        self.volumes.insert(name.clone(), NodeVolume::new(gib, guest));
        Some(name)
    }

    /// A new volume that stands on a base image, on the base's storage.
    pub(crate) fn link(&mut self, base: &str, guest: u32) -> Option<String> {
        let (storage, base_name) = base.split_once(':')?;
        let plain = self.free_name(storage, guest)?;
        let name = format!("{storage}:{base_name}/{}", plain.split_once(':')?.1);
        let volume = self.volumes.get(base)?;
        let volume =
            NodeVolume { base: Some(base.to_owned()), ..NodeVolume::new(volume.gib, guest) };
        self.volumes.insert(name.clone(), volume);
        Some(name)
    }

    fn free_name(&self, storage: &str, guest: u32) -> Option<String> {
        let named = |number: u8| match (storage, self.kind) {
            ("store", _) => format!("store:{guest}/vm-{guest}-disk-{number}.raw"),
            (_, GuestKind::Lxc) => format!("{storage}:subvol-{guest}-disk-{number}"),
            (_, GuestKind::Qemu) => format!("{storage}:vm-{guest}-disk-{number}"),
        };
        let is_taken = |name: &String| {
            let last = name.rsplit([':', '/']).next();
            self.volumes.keys().any(|other| {
                other.split(':').next() == Some(storage) && other.rsplit([':', '/']).next() == last
            })
        };
        (0..NUMBERS_MAX).map(named).find(|name| !is_taken(name))
    }

    /// What a storage lists as a guest's: it goes by the name, whoever filled the volume.
    pub(crate) fn listed_of(&self, storage: &str, guest: u32) -> impl Iterator<Item = &String> {
        let prefix = format!("{storage}:");
        let number = guest.to_string();
        self.volumes.keys().filter(move |name| {
            name.strip_prefix(&prefix).is_some_and(|name| named_after(name) == Some(&number))
        })
    }

    /// Backups run and guests write all the time.
    pub(crate) fn note_what_happens(&mut self) {
        for guest in self.guests.values_mut() {
            guest.ran |= guest.running;
            for (slot, disk) in &guest.slots {
                if let Some(volume) = self.volumes.get_mut(&disk.volume) {
                    volume.was_named = true;
                    volume.holds_data |= guest.running;
                    volume.was_saved |= volume.holds_data && guest.saves(slot, disk);
                }
            }
        }
        for volume in self.volumes.values_mut() {
            volume.largest = volume.largest.max(volume.gib);
        }
    }
}

/// The number in a volume's name: of its folder, or of its last part.
fn named_after(name: &str) -> Option<&str> {
    if let Some((folder, _)) =
        name.split_once('/').filter(|(folder, _)| folder.bytes().all(|byte| byte.is_ascii_digit()))
    {
        return Some(folder);
    }
    name.rsplit('/').next()?.split('-').nth(1)
}
