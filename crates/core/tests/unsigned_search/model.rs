//! A small model of one guest in Proxmox VE: its slots, what waits in them, its detached volumes, and what became of
//! each volume. Written from what Proxmox VE does, not from the classifier, so that both cannot be wrong together.

use evenkeel_core::model::id::GuestKind;

/// A volume, by its place in [`VOLUMES`].
pub(crate) type Volume = u8;

/// In backups from the start.
pub(crate) const FIRST: Volume = 0;
pub(crate) const SECOND: Volume = 1;
/// Detached from the start; it was in backups once.
pub(crate) const LOOSE: Volume = 2;
/// In a slot that is left out of backups, from the start.
pub(crate) const UNSAVED: Volume = 3;
/// Guest 103's, in its folder, under a name of ours.
pub(crate) const FOREIGN: Volume = 4;
/// What the firmware and the TPM keep.
pub(crate) const VARIABLES: Volume = 5;
pub(crate) const SECRETS: Volume = 6;
/// Not there at the start: allocated when a write asks for a new one, or a move for a copy. There is room for two, so
/// that what was moved once can be moved again.
const NEW: [Volume; 2] = [7, 8];

/// The names of volumes on their storages, of machines and of containers. A file's folder tells its owner.
pub(crate) const VOLUMES: [(&str, &str); 9] = [
    ("tank:vm-101-disk-0", "tank:subvol-101-disk-0"),
    ("store:101/vm-101-disk-1.raw", "store:101/vm-101-disk-1.raw"),
    ("tank:vm-101-disk-2", "tank:subvol-101-disk-2"),
    ("tank:base-9000-disk-0/vm-101-disk-3", "tank:basevol-9000-disk-0/subvol-101-disk-3"),
    ("store:103/vm-101-disk-9.raw", "store:103/vm-101-disk-9.raw"),
    ("tank:vm-101-disk-5", ""),
    ("tank:vm-101-disk-6", ""),
    ("tank:vm-101-disk-7", "tank:subvol-101-disk-7"),
    ("tank:vm-101-disk-8", "tank:subvol-101-disk-8"),
];

/// A place for a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Slot {
    Root,
    Mount0,
    Mount1,
    Scsi0,
    Scsi1,
    Ide0,
    Ide3,
    Firmware,
    Tpm,
}

impl Slot {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Root => "rootfs",
            Self::Mount0 => "mp0",
            Self::Mount1 => "mp1",
            Self::Scsi0 => "scsi0",
            Self::Scsi1 => "scsi1",
            Self::Ide0 => "ide0",
            Self::Ide3 => "ide3",
            Self::Firmware => "efidisk0",
            Self::Tpm => "tpmstate0",
        }
    }

    /// Whether a running machine takes a disk into it, and gives it up.
    pub(crate) fn is_hot(self) -> bool {
        matches!(self, Self::Scsi0 | Self::Scsi1)
    }

    /// Its place in [`Slots`].
    fn index(self) -> usize {
        match self {
            Self::Root | Self::Scsi0 => 0,
            Self::Mount0 | Self::Scsi1 => 1,
            Self::Mount1 | Self::Ide0 => 2,
            Self::Ide3 => 3,
            Self::Firmware => 4,
            Self::Tpm => 5,
        }
    }

    pub(crate) fn is_firmware(self) -> bool {
        matches!(self, Self::Firmware | Self::Tpm)
    }
}

/// A guest to begin with. Each is small, so that every sequence on it can be tried; together they have everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Scene {
    /// A container with a root volume, a mount point in backups and one that is not.
    Container,
    /// A machine with two disks, one of them on a bus that a running machine does not change, and a free slot there.
    Disks,
    /// A machine with a disk in backups and one that is not.
    Unsaved,
    /// A machine with a disk, firmware variables and a TPM.
    Firmware,
}

impl Scene {
    pub(crate) fn kind(self) -> GuestKind {
        match self {
            Self::Container => GuestKind::Lxc,
            Self::Disks | Self::Unsaved | Self::Firmware => GuestKind::Qemu,
        }
    }

    pub(crate) fn slots(self) -> &'static [Slot] {
        match self {
            Self::Container => &[Slot::Root, Slot::Mount0, Slot::Mount1],
            Self::Disks => &[Slot::Scsi0, Slot::Ide0, Slot::Ide3],
            Self::Unsaved => &[Slot::Scsi0, Slot::Scsi1],
            Self::Firmware => &[Slot::Scsi0, Slot::Firmware, Slot::Tpm],
        }
    }

    /// The volumes that requests name.
    pub(crate) fn volumes(self) -> &'static [Volume] {
        match self {
            Self::Container => &[FIRST, SECOND, LOOSE, UNSAVED, FOREIGN],
            Self::Disks => &[FIRST, SECOND, LOOSE, FOREIGN],
            Self::Unsaved => &[FIRST, LOOSE, UNSAVED],
            Self::Firmware => &[FIRST, LOOSE, VARIABLES, SECRETS],
        }
    }

    fn disks(self) -> Vec<(Slot, Disk)> {
        let disk = |volume| Disk::of(Medium::Volume(volume));
        let with = |volume, backup| Disk { backup: Some(backup), ..disk(volume) };
        match self {
            Self::Container => vec![
                (Slot::Root, disk(FIRST)),
                (Slot::Mount0, with(SECOND, true)),
                (Slot::Mount1, disk(UNSAVED)),
            ],
            Self::Disks => vec![(Slot::Scsi0, disk(FIRST)), (Slot::Ide0, disk(SECOND))],
            Self::Unsaved => vec![(Slot::Scsi0, disk(FIRST)), (Slot::Scsi1, with(UNSAVED, false))],
            Self::Firmware => vec![
                (Slot::Scsi0, disk(FIRST)),
                (Slot::Firmware, disk(VARIABLES)),
                (Slot::Tpm, disk(SECRETS)),
            ],
        }
    }
}

/// What is in a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Medium {
    Volume(Volume),
    /// An image for CD-ROM drives.
    Image,
    Nothing,
    /// To be allocated: only in requests.
    New,
}

/// The value of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Disk {
    pub(crate) medium: Medium,
    pub(crate) cdrom: bool,
    pub(crate) backup: Option<bool>,
    /// `format=qcow2` stands beside it.
    pub(crate) format: bool,
}

impl Disk {
    pub(crate) fn of(medium: Medium) -> Self {
        Self { medium, cdrom: false, backup: None, format: false }
    }

    pub(crate) fn volume(self) -> Option<Volume> {
        match self.medium {
            Medium::Volume(volume) => Some(volume),
            Medium::Image | Medium::Nothing | Medium::New => None,
        }
    }
}

/// One thing a slot, for some of the slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Slots<T>([Option<(Slot, T)>; 6]);

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self([const { None }; 6])
    }
}

impl<T: Copy> Slots<T> {
    pub(crate) fn get(&self, slot: Slot) -> Option<T> {
        self.0[slot.index()].map(|(_, thing)| thing)
    }

    pub(crate) fn insert(&mut self, slot: Slot, thing: T) -> Option<T> {
        self.0[slot.index()].replace((slot, thing)).map(|(_, old)| old)
    }

    pub(crate) fn remove(&mut self, slot: Slot) -> Option<T> {
        self.0[slot.index()].take().map(|(_, old)| old)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Slot, T)> + Clone + '_ {
        self.0.iter().flatten().copied()
    }
}

/// What became of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a thing that can happen by itself")]
pub(crate) struct Life {
    pub(crate) exists: bool,
    pub(crate) gib: u8,
    /// A guest wrote to it.
    pub(crate) holds_data: bool,
    /// The slot of the firmware it was made for, if it was.
    pub(crate) made_for: Option<Slot>,
    /// A backup held it at some time.
    pub(crate) was_saved: bool,
    /// The firmware wrote over it.
    pub(crate) overwritten: bool,
    /// Its bytes were read in another format, on a release that obeys the one beside a volume.
    pub(crate) misread: bool,
    /// Another guest got it.
    pub(crate) given_away: bool,
}

/// One guest and all volumes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each is a thing that is so or not")]
pub(crate) struct Model {
    pub(crate) scene: Scene,
    pub(crate) kind: GuestKind,
    pub(crate) running: bool,
    pub(crate) template: bool,
    pub(crate) snapshot: bool,
    pub(crate) now: Slots<Disk>,
    pub(crate) waiting: Slots<Disk>,
    /// Deletions that wait; with force the volume goes too.
    pub(crate) deletions: Slots<bool>,
    /// The volumes of `unused0` and so on.
    pub(crate) unused: [Option<Volume>; VOLUMES.len()],
    pub(crate) ovmf: bool,
    pub(crate) ovmf_waits: Option<bool>,
    pub(crate) lives: [Life; VOLUMES.len()],
    /// What evenkeel's journal remembers; Proxmox VE knows nothing of it.
    pub(crate) memory: [bool; VOLUMES.len()],
}

impl Model {
    pub(crate) fn new(scene: Scene, running: bool) -> Self {
        let kind = scene.kind();
        let mut lives = [Life::default(); VOLUMES.len()];
        for (volume, life) in (0..).zip(&mut lives) {
            let there = volume == FOREIGN || scene.volumes().contains(&volume);
            *life = Life { exists: there, holds_data: there, gib: 8, ..Life::default() };
        }
        lives[usize::from(LOOSE)].was_saved = true;
        lives[usize::from(VARIABLES)].made_for = Some(Slot::Firmware);
        lives[usize::from(SECRETS)].made_for = Some(Slot::Tpm);
        let mut unused = [None; VOLUMES.len()];
        unused[0] = Some(LOOSE);
        let mut model = Self {
            scene,
            kind,
            running,
            template: false,
            snapshot: false,
            now: Slots::default(),
            waiting: Slots::default(),
            deletions: Slots::default(),
            unused,
            ovmf: scene == Scene::Firmware,
            ovmf_waits: None,
            lives,
            memory: [false; VOLUMES.len()],
        };
        for (slot, disk) in scene.disks() {
            model.now.insert(slot, disk);
        }
        model.note_what_happens();
        model
    }

    pub(crate) fn life(&self, volume: Volume) -> Life {
        self.lives[usize::from(volume)]
    }

    pub(crate) fn life_mut(&mut self, volume: Volume) -> &mut Life {
        &mut self.lives[usize::from(volume)]
    }

    /// Whether vzdump saves what is in a slot.
    pub(crate) fn saves(&self, slot: Slot, disk: Disk) -> bool {
        match (self.kind, slot) {
            (GuestKind::Lxc, Slot::Root) => true,
            (GuestKind::Lxc, _) => disk.backup == Some(true),
            (GuestKind::Qemu, Slot::Firmware) => self.ovmf,
            (GuestKind::Qemu, _) => !disk.cdrom && disk.backup != Some(false),
        }
    }

    /// What evenkeel can see of it: not what became of volumes, but their sizes.
    pub(crate) fn seen(&self) -> Self {
        let lives = self.lives.map(|life| Life { gib: life.gib, ..Life::default() });
        Self { lives, snapshot: false, ..self.clone() }
    }

    /// Backups run and guests write all the time.
    pub(crate) fn note_what_happens(&mut self) {
        for (slot, disk) in { self.now }.iter() {
            let Some(volume) = disk.volume() else { continue };
            let saved = self.saves(slot, disk);
            let running = self.running;
            let misreads = running && disk.format;
            let life = self.life_mut(volume);
            let overwrites = running && slot.is_firmware() && life.made_for != Some(slot);
            life.was_saved |= saved;
            life.misread |= misreads && life.holds_data;
            life.overwritten |= overwrites && life.holds_data;
            life.holds_data |= running;
        }
    }

    /// A new volume; none if the storage is full.
    pub(crate) fn allocate(&mut self, slot: Slot) -> Option<Volume> {
        let new = NEW.into_iter().find(|volume| !self.life(*volume).exists)?;
        let made_for = Some(slot).filter(|slot| slot.is_firmware());
        *self.life_mut(new) = Life { exists: true, gib: 8, made_for, ..Life::default() };
        Some(new)
    }

    /// What waits to become what it is already waits no longer.
    pub(crate) fn drop_settled(&mut self) {
        for (slot, disk) in { self.waiting }.iter() {
            if self.now.get(slot) == Some(disk) {
                self.waiting.remove(slot);
            }
        }
        for (slot, _) in { self.deletions }.iter() {
            if self.now.get(slot).is_none() {
                self.deletions.remove(slot);
            }
        }
    }

    /// Keeps a volume as `unusedN`.
    pub(crate) fn keep_unused(&mut self, volume: Volume) {
        if !self.unused.contains(&Some(volume)) {
            let free = self.unused.iter_mut().find(|kept| kept.is_none());
            *free.expect("there is a number for each volume") = Some(volume);
        }
    }

    /// Drops `unusedN` of volumes that are in these slots.
    pub(crate) fn drop_unused(&mut self, used: impl Iterator<Item = Disk>) {
        for volume in used.filter_map(Disk::volume) {
            for kept in self.unused.iter_mut().filter(|kept| **kept == Some(volume)) {
                *kept = None;
            }
        }
    }
}

/// All volumes there can be.
pub(crate) fn all_volumes() -> impl Iterator<Item = Volume> {
    (0..).take(VOLUMES.len())
}

/// The name of a volume on its storage.
pub(crate) fn name(kind: GuestKind, volume: Volume) -> &'static str {
    match kind {
        GuestKind::Qemu => VOLUMES[usize::from(volume)].0,
        GuestKind::Lxc => VOLUMES[usize::from(volume)].1,
    }
}

/// Whether the storage says that a volume is this guest's: all but the one in another's folder.
pub(crate) fn is_own(volume: Volume) -> bool {
    volume != FOREIGN
}
