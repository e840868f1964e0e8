//! What becomes of a guest's volumes when one of its slots changes.
//!
//! Called by `change` for every drive and mount point of a write. A volume can come into a slot, stay in it or leave
//! it, and each costs by what Proxmox VE then does: it keeps what leaves as `unusedN`, but not a CD-ROM's volume nor
//! another guest's; it saves what is in a slot, but not a CD-ROM's volume, nor one that is left out of backups; and it
//! takes a volume into as many slots as it is told to. What is not known of a volume is taken to be the worst.

use std::collections::{BTreeMap, BTreeSet};

use super::{ActIntent, ActionClass, Judgement, Target};
use crate::actual::{ConfigField, Guest, GuestConfig, WaitingChange};
use crate::model::id::{GuestKind, VmId};
use crate::registry::{self, Hazard, KeyRef};
use crate::value::read::written;
use crate::value::{Property, Value, VolumeRef};

/// What our own journal remembers of a guest's volumes: which ones left their slot while no backup held them. Any
/// other volume that is attached again may be in backups.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BackupMemory(BTreeSet<String>);

impl BackupMemory {
    /// Nothing is remembered, so everything may be in backups.
    pub const fn none() -> Self {
        Self(BTreeSet::new())
    }

    /// These volumes, by the names their storages list them under, left their slot while no backup held them.
    pub fn of(not_backed_up: impl IntoIterator<Item = String>) -> Self {
        Self(not_backed_up.into_iter().collect())
    }

    fn proves_unsaved(&self, volume: &VolumeRef) -> bool {
        volume.volid().is_some_and(|volid| self.0.contains(&volid))
    }
}

/// One slot's change, in the guest it is made to.
#[derive(Clone, Copy)]
pub(super) struct SlotChange<'a> {
    pub(super) key: KeyRef,
    pub(super) vmid: VmId,
    pub(super) config: &'a GuestConfig,
    pub(super) memory: &'a BackupMemory,
    pub(super) from: Option<&'a Value>,
    pub(super) to: Option<&'a Value>,
}

/// The worst that happens to the volume that was in the slot and to the one that will be.
pub(super) fn judge(change: &SlotChange<'_>) -> Judgement {
    let [old, new] = [change.from, change.to].map(|side| side.and_then(Value::as_property));
    let [had, gets] = [old, new].map(|side| side.and_then(Property::data_volume));
    let left = match (old, had) {
        (Some(old), Some(had)) if gets != Some(had) => leaves(change, old, had),
        (Some(_) | None, _) => Judgement::benign(),
    };
    let came = match (new, gets) {
        (Some(new), Some(gets)) if had != Some(gets) => comes(change, new, gets),
        (Some(new), Some(_)) => stays(change.key, old, new),
        (Some(_) | None, _) => Judgement::benign(),
    };
    left.worse(came)
}

/// A volume that leaves its slot stays in the configuration as `unusedN`, or nothing names it any more.
fn leaves(change: &SlotChange<'_>, old: &Property, volume: &VolumeRef) -> Judgement {
    let key = change.key;
    let name = volume.volid().unwrap_or_default();
    if old.is_cdrom() {
        return destructive(format!(
            "{name} is a disk shown as a CD-ROM in `{key}`: nothing would name it any more"
        ));
    }
    // For containers, PVE keeps whatever was mounted.
    if key.kind() == GuestKind::Qemu && !is_own(volume, change.vmid) {
        return destructive(format!(
            "{name} in `{key}` is not this guest's own: nothing would name it any more"
        ));
    }
    Judgement::benign()
}

/// A volume that exists comes into a slot where it was not.
fn comes(change: &SlotChange<'_>, new: &Property, volume: &VolumeRef) -> Judgement {
    let SlotChange { key, vmid, config, memory, .. } = *change;
    let name = volume.volid().unwrap_or_default();
    match volume.owner() {
        Some(owner) if owner == vmid.to_string() => {}
        Some(owner) => {
            return destructive(format!("the volume for `{key}` belongs to guest {owner}"));
        }
        None => {
            return destructive(format!("the owner of the volume for `{key}` is unknown"));
        }
    }
    // Numbers are used again, and names of volumes with them.
    if !config.volumes().contains_key(&name) {
        return destructive(format!(
            "no key of this guest names {name}: a former guest of this number may have left it"
        ));
    }
    if new.is_cdrom() {
        return destructive(format!(
            "{name} is a disk: as a CD-ROM no backup holds it, and nothing names it once `{key}` is removed"
        ));
    }
    if new.get("format").is_some() {
        return destructive(format!(
            "`format` in `{key}` changes how Proxmox VE reads bytes that a guest wrote"
        ));
    }
    if let Some(other) = slot_of(config, key, volume) {
        return destructive(format!("{name} is in `{other}` too: two disks would write to it"));
    }
    if is_firmware(key) {
        return destructive(format!("{name} may hold data, and `{key}` would overwrite it"));
    }
    if new.get("replicate") == Some(&Value::Bool(false)) {
        return destructive(format!("leaves `{key}` out of replicates"));
    }
    if !is_saved(key, new, config) && !memory.proves_unsaved(volume) {
        return destructive(format!(
            "no backup would hold {name} in `{key}`, and it may have been in backups"
        ));
    }
    Judgement::benign()
}

/// A copy on another storage takes the slot, and the source stays as `unusedN`: nothing is lost, as long as Proxmox VE
/// keeps the source and nothing that waits would put it back under the guest's hands.
pub(super) fn judge_move(intent: &ActIntent<'_>) -> Judgement {
    let Target::Seen(Guest { id, config: Ok(config), .. }) = intent.target else {
        return destructive("the configuration it would change is unknown".to_owned());
    };
    if intent.params.get("delete").map(String::as_str) != Some("0") {
        return destructive("it does not say that the source stays".to_owned());
    }
    if !intent.params.contains_key("storage") {
        return destructive("it does not say where the volume goes".to_owned());
    }
    let name = match intent.kind {
        GuestKind::Lxc => "volume",
        GuestKind::Qemu => "disk",
    };
    let slot = intent.params.get(name).and_then(|slot| registry::find(intent.kind, slot));
    let field = slot.and_then(|slot| config.field(slot)).filter(|field| is_slot(field));
    let Some(field) = field else {
        return destructive("it names no volume that evenkeel knows".to_owned());
    };
    if field.waiting.is_some() {
        return destructive(format!("a change of `{}` waits, and names the source", field.key));
    }
    let property = field.current.as_ref().and_then(|reading| reading.value.as_property());
    let volume = property.and_then(|property| Some((property, property.data_volume()?)));
    match volume {
        None => destructive(format!("`{}` holds no volume that could be moved", field.key)),
        Some((property, volume)) if property.is_cdrom() || !is_own(volume, id.vmid) => {
            let name = volume.volid().unwrap_or_default();
            destructive(format!(
                "{name} in `{}` is not this guest's own disk: nothing would name it any more",
                field.key
            ))
        }
        Some(_) => Judgement::benign(),
    }
}

/// The same volume stays in its slot, with other options.
fn stays(key: KeyRef, old: Option<&Property>, new: &Property) -> Judgement {
    let Some(old) = old else {
        return Judgement::benign();
    };
    if old.is_cdrom() != new.is_cdrom() {
        return destructive(format!(
            "a disk becomes or ceases to be a CD-ROM in `{key}`: backups leave it out, and so does `unusedN`"
        ));
    }
    if old.get("format") != new.get("format") {
        return destructive(format!(
            "`format` in `{key}` changes how Proxmox VE reads bytes that a guest wrote"
        ));
    }
    Judgement::benign()
}

/// The class of dropping what waits in a slot: PVE keeps a volume that waited there as `unusedN`, unless it waited as
/// a CD-ROM.
pub(crate) fn revert(key: KeyRef, vmid: VmId, config: &GuestConfig) -> Judgement {
    let (current, waiting) = volumes(config.field(key));
    match waiting {
        Some((property, volume))
            if property.is_cdrom() && is_own(volume, vmid) && current != Some(volume) =>
        {
            let name = volume.volid().unwrap_or_default();
            destructive(format!(
                "{name} waits as a CD-ROM in `{key}`: nothing would name it any more"
            ))
        }
        Some(_) | None => Judgement::benign(),
    }
}

/// Removing a machine's drive keeps the volume in effect and forgets another one that waits to take its place.
pub(super) fn forgets_waiting(key: KeyRef, config: &GuestConfig) -> Judgement {
    let field = config.field(key);
    let covered = field.is_some_and(|field| field.current.is_some());
    let (current, waiting) = volumes(field);
    match waiting {
        Some((_, volume))
            if key.kind() == GuestKind::Qemu && covered && current != Some(volume) =>
        {
            let name = volume.volid().unwrap_or_default();
            destructive(format!(
                "{name} waits in `{key}`: nothing would name it once that is removed"
            ))
        }
        Some(_) | None => Judgement::benign(),
    }
}

/// Whether leaving OVMF takes the firmware's variables out of backups: vzdump leaves them out for any other BIOS.
pub(super) fn unsaves_firmware(key: KeyRef, config: &GuestConfig, to: Option<&Value>) -> bool {
    let ovmf = |value: Option<&Value>| value.and_then(Value::as_text) == Some("ovmf");
    let is_bios = key.kind() == GuestKind::Qemu && key.key().name == "bios";
    let was = config.field(key).is_some_and(|field| {
        let sides = [field.current.as_ref(), field.after_restart()];
        sides.into_iter().flatten().any(|reading| ovmf(Some(&reading.value)))
    });
    is_bios && was && !ovmf(to) && slots(config).any(|(slot, _, _)| slot.key().name == "efidisk0")
}

/// Volumes that leave their slot by these deletions and settings and are in no backup there: what the journal
/// remembers before the write is sent.
pub fn leaving_unsaved<'a>(
    config: &GuestConfig,
    write: impl IntoIterator<Item = (KeyRef, Option<&'a Value>)>,
) -> BTreeSet<String> {
    let mut left = BTreeSet::new();
    for (key, to) in write {
        let current = config.field(key).and_then(|field| field.current.as_ref());
        let Some(old) = current.and_then(|reading| reading.value.as_property()) else {
            continue;
        };
        let stays = to.and_then(Value::as_property).and_then(Property::data_volume);
        let had = old.data_volume().filter(|had| stays != Some(had));
        left.extend(had.filter(|_| !is_saved(key, old, config)).and_then(VolumeRef::volid));
    }
    left
}

/// Every volume that is in backups where it is now, or will be after a restart.
pub fn saved_volumes(config: &GuestConfig) -> BTreeSet<String> {
    let saved = slots(config).filter(|(key, property, _)| is_saved(*key, property, config));
    saved.filter_map(|(_, _, volume)| volume.volid()).collect()
}

/// A slot that holds data now, attached or detached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataSlot {
    /// The slot.
    pub key: KeyRef,
    /// The name its storage lists the volume under.
    pub volume: String,
    /// Whether vzdump saves it.
    pub saved: bool,
}

/// Every slot that holds data now. What is detached is in no backup.
pub fn data_slots(config: &GuestConfig) -> impl Iterator<Item = DataSlot> {
    config.fields.iter().filter_map(|field| {
        let key = field.key;
        let property = field.current.as_ref()?.value.as_property()?;
        let (volume, saved) = match key.key().hazard {
            Hazard::RootVolume | Hazard::VolumeSlot | Hazard::TpmState => {
                (property.data_volume()?, is_saved(key, property, config))
            }
            Hazard::UnusedVolume => (property.volume()?, false),
            Hazard::Safe
            | Hazard::Disrupts
            | Hazard::Guard
            | Hazard::GuestName
            | Hazard::Forbidden => return None,
        };
        Some(DataSlot { key, volume: volume.volid()?, saved })
    })
}

/// Why a write of these parameters is never made, not even signed: it would let two disks write to one volume, or say
/// how bytes are read that a guest wrote.
pub fn never_written(guest: &Guest, params: &BTreeMap<String, String>) -> Option<String> {
    let config = guest.config.as_ref().ok()?;
    let removed = params.get("delete").map_or("", String::as_str);
    let is_removed = |key: KeyRef| removed.split(',').any(|name| name.trim() == key.to_string());
    let mut seen: Vec<(KeyRef, VolumeRef)> = Vec::new();
    for (name, text) in params {
        let Some(key) = registry::find(guest.id.kind, name) else { continue };
        let value = written(&key.key().format, text);
        let Some(property) = value.as_property() else { continue };
        let Some(volume) = property.data_volume() else { continue };
        let was = config.field(key).and_then(|field| field.current.as_ref()?.value.as_property());
        let format = property.get("format");
        if format.is_some() && format != was.and_then(|was| was.get("format")) {
            return Some(format!(
                "`format` in `{key}` changes how Proxmox VE reads bytes that a guest wrote"
            ));
        }
        let held = slot_of(config, key, volume).filter(|other| !is_removed(*other));
        let twice = seen.iter().find(|(_, other)| other == volume).map(|(other, _)| *other);
        if let Some(other) = held.or(twice) {
            let name = volume.volid().unwrap_or_default();
            return Some(format!("{name} is in `{other}` too: two disks would write to it"));
        }
        seen.push((key, volume.clone()));
    }
    None
}

/// Another slot that holds a volume, now or after a restart. Two disks on one volume destroy it.
pub(crate) fn slot_of(config: &GuestConfig, but: KeyRef, volume: &VolumeRef) -> Option<KeyRef> {
    slots(config).find(|(key, _, held)| *key != but && *held == volume).map(|(key, _, _)| key)
}

/// The volumes in all slots, in effect and waiting.
fn slots(config: &GuestConfig) -> impl Iterator<Item = (KeyRef, &Property, &VolumeRef)> {
    config.fields.iter().filter(|field| is_slot(field)).flat_map(|field| {
        let readings = field.current.iter().chain(field.after_restart());
        readings.filter_map(|reading| {
            let property = reading.value.as_property()?;
            Some((field.key, property, property.data_volume()?))
        })
    })
}

/// Whether a key is a place for volumes, in use.
fn is_slot(field: &ConfigField) -> bool {
    field.key.key().hazard.is_volume_slot()
}

/// The volume in effect, and the one that waits with the value it waits in.
fn volumes(field: Option<&ConfigField>) -> (Option<&VolumeRef>, Option<(&Property, &VolumeRef)>) {
    let current = field.and_then(|field| field.current.as_ref());
    let current = current.and_then(|reading| reading.value.as_property()?.data_volume());
    let waiting = match field.and_then(|field| field.waiting.as_deref()) {
        Some(WaitingChange::Set(reading)) => reading.value.as_property(),
        Some(WaitingChange::Delete | WaitingChange::ForceDelete) | None => None,
    };
    (current, waiting.and_then(|property| Some((property, property.data_volume()?))))
}

/// Whether vzdump saves what is in a slot.
fn is_saved(key: KeyRef, property: &Property, config: &GuestConfig) -> bool {
    match (key.kind(), key.key().name) {
        (GuestKind::Lxc, "rootfs") => true,
        (GuestKind::Lxc, _) => property.is_on("backup"),
        (GuestKind::Qemu, "efidisk0") => {
            config.current(GuestKind::Qemu, "bios").and_then(Value::as_text) == Some("ovmf")
        }
        (GuestKind::Qemu, _) => {
            !property.is_cdrom() && property.get("backup") != Some(&Value::Bool(false))
        }
    }
}

/// Slots whose volume the firmware or the TPM writes by itself.
fn is_firmware(key: KeyRef) -> bool {
    key.kind() == GuestKind::Qemu && matches!(key.key().name, "efidisk0" | "tpmstate0")
}

fn is_own(volume: &VolumeRef, vmid: VmId) -> bool {
    volume.owner().is_some_and(|owner| owner == vmid.to_string())
}

fn destructive(why: String) -> Judgement {
    Judgement::new(ActionClass::Destructive, why)
}
