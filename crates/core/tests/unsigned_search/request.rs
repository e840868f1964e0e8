//! The requests that are tried in every state, each with its parameters as Proxmox VE's call takes them.

use std::collections::BTreeMap;

use evenkeel_core::model::id::GuestKind;

use crate::eyes::Eyes;
use crate::model::{Disk, FIRST, LOOSE, Medium, SECOND, Scene, Slot, UNSAVED, Volume};

/// Something that may be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    Write(Write),
    Resize {
        slot: Slot,
        gib: u8,
    },
    Start,
    Stop,
    Shutdown,
    Snapshot,
    Rollback,
    DeleteSnapshot,
    Template,
    Destroy,
    /// To another storage, or to another guest.
    Move {
        slot: Slot,
        delete: bool,
        to_another: bool,
    },
    /// Another guest is made with a volume that exists.
    Create {
        volume: Volume,
        cdrom: bool,
    },
}

/// A configuration write.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Write {
    pub(crate) set: Vec<(Slot, Disk)>,
    pub(crate) delete: Vec<Slot>,
    pub(crate) delete_unused: Option<u8>,
    pub(crate) revert: Vec<Slot>,
    pub(crate) force: bool,
    /// `bios`: OVMF, or its removal.
    pub(crate) ovmf: Option<bool>,
}

impl Write {
    fn set(slot: Slot, disk: Disk) -> Self {
        Self { set: vec![(slot, disk)], ..Self::default() }
    }
}

/// Every request on a guest of this scene.
pub(crate) fn all(scene: Scene) -> Vec<Request> {
    use Request::{
        Create, DeleteSnapshot, Destroy, Move, Resize, Rollback, Shutdown, Snapshot, Start, Stop,
        Template,
    };
    let mut requests =
        vec![Start, Stop, Shutdown, Snapshot, Rollback, DeleteSnapshot, Template, Destroy];
    for &slot in scene.slots() {
        if matches!(slot, Slot::Mount0 | Slot::Scsi0) {
            requests.extend([4, 16].map(|gib| Resize { slot, gib }));
        }
        for (delete, to_another) in [(false, false), (true, false), (false, true)] {
            requests.push(Move { slot, delete, to_another });
        }
        let disks = values(scene);
        requests.extend(disks.into_iter().map(|disk| Request::Write(Write::set(slot, disk))));
    }
    requests.extend(
        [FIRST, LOOSE]
            .into_iter()
            .flat_map(|volume| [false, true].map(|cdrom| Create { volume, cdrom })),
    );
    requests.extend(without_values(scene).into_iter().map(Request::Write));
    requests.extend(moves_in_one(scene).into_iter().map(Request::Write));
    requests
}

/// What a slot may be set to: each part from a small set.
fn values(scene: Scene) -> Vec<Disk> {
    let volumes = scene.volumes().iter().copied().map(Medium::Volume);
    let mut media: Vec<Medium> = volumes.chain([Medium::New]).collect();
    let (cdroms, formats): (&[bool], &[bool]) = match scene.kind() {
        GuestKind::Lxc => (&[false], &[false]),
        GuestKind::Qemu => {
            media.extend([Medium::Image, Medium::Nothing]);
            (&[false, true], &[false, true])
        }
    };
    let mut disks = Vec::new();
    for &medium in &media {
        for &cdrom in cdroms {
            for &format in formats {
                let disk = Disk { medium, cdrom, backup: None, format };
                disks.extend([None, Some(false), Some(true)].map(|backup| Disk { backup, ..disk }));
            }
        }
    }
    disks
}

fn without_values(scene: Scene) -> Vec<Write> {
    let mut writes = Vec::new();
    for &slot in scene.slots() {
        let delete = Write { delete: vec![slot], ..Write::default() };
        writes.push(Write { force: true, ..delete.clone() });
        writes.push(delete);
        writes.push(Write { revert: vec![slot], ..Write::default() });
    }
    for number in 0..3 {
        writes.push(Write { delete_unused: Some(number), ..Write::default() });
    }
    if scene == Scene::Firmware {
        writes.extend([true, false].map(|on| Write { ovmf: Some(on), ..Write::default() }));
    }
    writes
}

/// One write that takes a volume out of a slot and puts it into another, or exchanges two.
fn moves_in_one(scene: Scene) -> Vec<Write> {
    let (one, other, held) = match scene {
        Scene::Container => (Slot::Mount0, Slot::Mount1, [SECOND, UNSAVED]),
        Scene::Disks => (Slot::Ide0, Slot::Scsi0, [SECOND, FIRST]),
        Scene::Unsaved => (Slot::Scsi1, Slot::Scsi0, [UNSAVED, FIRST]),
        Scene::Firmware => return Vec::new(),
    };
    let disk = |volume, backup| Disk { backup, ..Disk::of(Medium::Volume(volume)) };
    let mut writes = Vec::new();
    for backup in [None, Some(false), Some(true)] {
        let delete = vec![one];
        let set = vec![(other, disk(held[0], backup))];
        writes.push(Write { set, delete, ..Write::default() });
        let set = vec![(one, disk(held[1], backup)), (other, disk(held[0], backup))];
        writes.push(Write { set, ..Write::default() });
        let set = vec![(one, disk(LOOSE, backup)), (other, disk(LOOSE, backup))];
        writes.push(Write { set, ..Write::default() });
        let revert = vec![one];
        let set = vec![(other, disk(LOOSE, backup))];
        writes.push(Write { set, revert, ..Write::default() });
    }
    writes
}

impl Request {
    /// The op, by evenkeel's name for it.
    pub(crate) fn op(&self) -> &'static str {
        match self {
            Self::Write(_) => "set_config",
            Self::Resize { .. } => "resize",
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Shutdown => "shutdown",
            Self::Snapshot => "snapshot",
            Self::Rollback => "rollback",
            Self::DeleteSnapshot => "delete_snapshot",
            Self::Template => "template",
            Self::Destroy => "destroy",
            Self::Move { .. } => "move_volume",
            Self::Create { .. } => "create",
        }
    }

    /// Every parameter, as the classifier is shown it.
    pub(crate) fn params(&self, kind: GuestKind, eyes: Eyes) -> BTreeMap<String, String> {
        let pairs: Vec<(String, String)> = match self {
            Self::Write(write) => return write.params(kind, eyes),
            Self::Resize { slot, gib } => {
                vec![("disk".into(), slot.name().into()), ("size".into(), format!("{gib}G"))]
            }
            Self::Snapshot | Self::Rollback | Self::DeleteSnapshot => {
                vec![("snapname".into(), "a".into())]
            }
            Self::Move { slot, delete, to_another } => {
                let disk = if kind == GuestKind::Lxc { "volume" } else { "disk" };
                let mut pairs = vec![
                    (disk.into(), slot.name().into()),
                    ("delete".into(), u8::from(*delete).to_string()),
                ];
                if *to_another && eyes.see_other_guests {
                    pairs.push(("target-vmid".into(), "300".into()));
                } else {
                    pairs.push(("storage".into(), "tank".into()));
                }
                pairs
            }
            Self::Create { volume, cdrom } => {
                let disk = Disk { cdrom: *cdrom, ..Disk::of(Medium::Volume(*volume)) };
                let slot = if kind == GuestKind::Lxc { Slot::Mount0 } else { Slot::Ide3 };
                vec![(slot.name().into(), eyes.value(kind, slot, disk, None))]
            }
            Self::Start | Self::Stop | Self::Shutdown | Self::Template | Self::Destroy => {
                Vec::new()
            }
        };
        pairs.into_iter().collect()
    }
}

impl Write {
    fn params(&self, kind: GuestKind, eyes: Eyes) -> BTreeMap<String, String> {
        let names =
            |slots: &[Slot]| slots.iter().map(|slot| slot.name().to_owned()).collect::<Vec<_>>();
        let mut params: BTreeMap<String, String> = BTreeMap::new();
        for (slot, disk) in &self.set {
            params.insert(slot.name().into(), eyes.value(kind, *slot, *disk, None));
        }
        let mut delete = names(&self.delete);
        delete.extend(self.delete_unused.map(|number| format!("unused{number}")));
        match self.ovmf.filter(|_| eyes.see_firmware) {
            Some(true) => {
                params.insert("bios".into(), "ovmf".into());
            }
            Some(false) => delete.push("bios".into()),
            None => {}
        }
        for (verb, names) in [("delete", delete), ("revert", names(&self.revert))] {
            if !names.is_empty() {
                params.insert(verb.into(), names.join(","));
            }
        }
        if self.force {
            params.insert("force".into(), "1".into());
        }
        params
    }
}
