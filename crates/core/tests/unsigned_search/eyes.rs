//! How evenkeel is shown a state of the model: as an actual guest, whole, or with one thing hidden from it. What a
//! rule looks at is hidden to see whether the search misses the rule.

use std::collections::BTreeMap;

use evenkeel_core::actual::{ConfigEntry, Guest, GuestConfig, Power};
use evenkeel_core::gate::classify::{
    ActIntent, ActionClass, BackupMemory, Target, classify_remembering,
};
use evenkeel_core::model::id::{GuestId, GuestKind};
use evenkeel_core::operate::operation::Provenance;

use crate::model::{Disk, FOREIGN, Medium, Model, Slot, Volume, all_volumes, name};
use crate::request::{Request, Write};

/// What evenkeel sees.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each is one rule that is taken away alone")]
pub(crate) struct Eyes {
    /// That a disk is shown as a CD-ROM.
    pub(crate) see_cdroms: bool,
    /// That a volume may have been in backups.
    pub(crate) see_backups: bool,
    /// In whose folder a volume is.
    pub(crate) see_folders: bool,
    /// That a volume is in another slot.
    pub(crate) see_slots: bool,
    /// The format beside a volume.
    pub(crate) see_formats: bool,
    /// What the firmware does with a volume, and when its own is saved.
    pub(crate) see_firmware: bool,
    /// A volume that waits in a slot that is removed.
    pub(crate) see_waiting: bool,
    /// That another guest gets a volume.
    pub(crate) see_other_guests: bool,
}

impl Eyes {
    pub(crate) const OPEN: Self = Self {
        see_cdroms: true,
        see_backups: true,
        see_folders: true,
        see_slots: true,
        see_formats: true,
        see_firmware: true,
        see_waiting: true,
        see_other_guests: true,
    };

    /// Whether evenkeel would send a request without a signature: the real classifier is asked.
    pub(crate) fn allow(
        self,
        model: &Model,
        guest: &Guest,
        memory: &BackupMemory,
        request: &Request,
        params: &BTreeMap<String, String>,
    ) -> bool {
        let hiding = (!self.see_slots || !self.see_waiting).then(|| self.guest(model, request));
        let guest = hiding.as_ref().unwrap_or(guest);
        let makes_another = matches!(request, Request::Create { .. });
        let target = if makes_another { Target::Free } else { Target::Seen(guest) };
        let intent = ActIntent { op: request.op(), kind: model.kind, params, target };
        classify_remembering(&intent, &Provenance::none(), memory).class != ActionClass::Destructive
    }

    /// What evenkeel remembers; with nothing that may have been in backups, it takes none for saved.
    pub(crate) fn memory(self, model: &Model) -> BackupMemory {
        let known =
            all_volumes().filter(|volume| !self.see_backups || model.memory[usize::from(*volume)]);
        BackupMemory::of(known.map(|volume| name(model.kind, volume).to_owned()))
    }

    /// The guest as it is observed.
    pub(crate) fn guest(self, model: &Model, request: &Request) -> Guest {
        let kind = model.kind;
        let mut entries: BTreeMap<String, ConfigEntry> = BTreeMap::new();
        let mut written = Vec::new();
        let mut removed = &Vec::new();
        if let Request::Write(Write { set, delete, .. }) = request {
            written.extend(set.iter().map(|(slot, _)| *slot));
            removed = delete;
        }
        for &slot in model.scene.slots() {
            let shown = |disk: Disk| {
                let alias = !self.see_slots && !written.contains(&slot);
                let size = disk.volume().map(|volume| model.life(volume).gib);
                self.stored(kind, slot, disk, size, alias)
            };
            let hidden = !self.see_waiting && removed.contains(&slot);
            let entry = ConfigEntry {
                key: slot.name().into(),
                value: model.now.get(slot).map(shown),
                pending: model.waiting.get(slot).filter(|_| !hidden).map(shown),
                delete: model.deletions.get(slot).map_or(0, |force| 1 + u8::from(force)),
            };
            if entry.value.is_some() || entry.pending.is_some() {
                entries.insert(entry.key.clone(), entry);
            }
        }
        let plain = |key: String, value: Option<&str>, pending: Option<&str>, delete| {
            let value = value.map(str::to_owned);
            let pending = pending.map(str::to_owned);
            (key.clone(), ConfigEntry { key, value, pending, delete })
        };
        for (number, volume) in model.unused.iter().enumerate() {
            let named = volume.map(|volume| name(kind, volume));
            entries.extend(named.map(|name| plain(format!("unused{number}"), Some(name), None, 0)));
        }
        // Two rules stand before it: a volume must be the guest's by its name, and its configuration must name it.
        if !self.see_folders {
            let theirs = self.volume(kind, FOREIGN);
            entries.extend([plain("unused9".to_owned(), Some(&theirs), None, 0)]);
        }
        if !self.see_slots {
            for (number, volume) in (10..).zip(model.scene.volumes()) {
                let name = name(kind, *volume);
                entries.extend([plain(format!("unused{number}"), Some(name), None, 0)]);
            }
        }
        let waits = model.ovmf_waits;
        if model.ovmf || waits == Some(true) {
            let value = model.ovmf.then_some("ovmf");
            let pending = (waits == Some(true)).then_some("ovmf");
            let delete = u8::from(waits == Some(false));
            entries.extend([plain("bios".into(), value, pending, delete)]);
        }
        Guest {
            id: GuestId::new(kind, 101.try_into().expect("a guest number")),
            power: if model.running { Power::Running } else { Power::Stopped },
            template: model.template,
            ha: None,
            lock: None,
            config: Ok(GuestConfig::from_pending(kind, entries.into_values()).into()),
        }
    }

    fn stored(
        self,
        kind: GuestKind,
        slot: Slot,
        disk: Disk,
        gib: Option<u8>,
        alias: bool,
    ) -> String {
        let text = self.value(kind, slot, disk, gib);
        if alias { text.replacen("disk-", "disk-10", 1) } else { text }
    }

    /// A slot's value as a property string.
    pub(crate) fn value(self, kind: GuestKind, slot: Slot, disk: Disk, gib: Option<u8>) -> String {
        let mut text = match disk.medium {
            Medium::Volume(_) if slot.is_firmware() && gib.is_none() && !self.see_firmware => {
                "tank:1".to_owned()
            }
            Medium::Volume(volume) => self.volume(kind, volume),
            Medium::Image => "local:iso/x.iso".to_owned(),
            Medium::Nothing => "none".to_owned(),
            Medium::New => "tank:8".to_owned(),
        };
        match slot {
            Slot::Mount0 => text.push_str(",mp=/zero"),
            Slot::Mount1 => text.push_str(",mp=/one"),
            Slot::Root
            | Slot::Scsi0
            | Slot::Scsi1
            | Slot::Ide0
            | Slot::Ide3
            | Slot::Firmware
            | Slot::Tpm => {}
        }
        if let Some(backup) = disk.backup {
            text.push_str(if backup { ",backup=1" } else { ",backup=0" });
        }
        if disk.cdrom && (self.see_cdroms || disk.volume().is_none()) {
            text.push_str(",media=cdrom");
        }
        if disk.format && self.see_formats {
            text.push_str(",format=qcow2");
        }
        if let Some(gib) = gib {
            text.extend([",size=", &gib.to_string(), "G"]);
        }
        text
    }

    fn volume(self, kind: GuestKind, volume: Volume) -> String {
        let name = name(kind, volume);
        if volume == FOREIGN && !self.see_folders {
            name.replace("103/", "101/")
        } else {
            name.to_owned()
        }
    }
}
