//! Volumes that shall be on another storage, and volumes that hang on a guest without a slot.
//!
//! A declared storage that is not the volume's own is a move: a copy takes the slot, and the old volume stays on the guest
//! as `unusedN`. Asked by `diff`; what is decided here is whether a move may run now. It must never plan one that
//! frees the old volume, nor a second one of a slot whose old volume still hangs there: copies would pile up.

use std::collections::BTreeMap;
use std::fmt;

use super::problem::PlanProblem;
use crate::actual::{ConfigField, Guest, GuestConfig, Power, Snapshot};
use crate::desired::DeclaredField;
use crate::gate::classify::BackupMemory;
use crate::model::id::{GuestId, GuestKind};
use crate::model::reason::ReasonCode;
use crate::registry::{Hazard, KeyRef};
use crate::value::{Property, Value, VolumeRef};

/// What our own journal remembers of a guest's volumes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VolumeMemory {
    /// Which ones left their slot while no backup held them.
    pub backups: BackupMemory,
    /// Which ones a move left behind.
    pub moved: MovedVolumes,
}

impl VolumeMemory {
    /// Nothing is remembered.
    pub const fn none() -> Self {
        Self { backups: BackupMemory::none(), moved: MovedVolumes(BTreeMap::new()) }
    }
}

/// Volumes that a move left behind, with the slot each was moved out of. Proxmox VE does not tell it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MovedVolumes(BTreeMap<String, String>);

impl MovedVolumes {
    /// These volumes, by the names their storages list them under, were moved out of these slots.
    pub fn of(moved: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(moved.into_iter().collect())
    }

    /// The slot a volume was moved out of.
    pub fn slot_of(&self, volume: &str) -> Option<&str> {
        self.0.get(volume).map(String::as_str)
    }
}

/// A detached volume that hangs on a guest: no drift, but somebody may have forgotten it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusedVolume {
    /// The guest.
    pub guest: GuestId,
    /// Where it hangs: `unused0`.
    pub slot: KeyRef,
    /// Its name on its storage.
    pub volume: String,
    /// The slot a move of ours took it out of, if it was one.
    pub moved_from: Option<String>,
}

/// The detached volumes of a guest.
pub(super) fn unused_volumes<'a>(
    guest: &'a Guest,
    memory: &'a MovedVolumes,
) -> impl Iterator<Item = UnusedVolume> + 'a {
    let fields = guest.config.as_ref().map(|config| &*config.fields).unwrap_or_default();
    fields.iter().filter_map(|field| {
        let volume = detached(field)?.volid()?;
        let moved_from = memory.slot_of(&volume).map(str::to_owned);
        Some(UnusedVolume { guest: guest.id, slot: field.key, volume, moved_from })
    })
}

/// The volume of `unusedN`.
pub(super) fn detached(field: &ConfigField) -> Option<&VolumeRef> {
    let is_unused = field.key.key().hazard == Hazard::UnusedVolume;
    let reading = field.current.as_ref().filter(|_| is_unused)?;
    reading.value.as_property()?.volume()
}

/// A move that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlannedMove {
    pub(super) disk: KeyRef,
    /// The volume that is in the slot.
    pub(super) volume: String,
    /// The storage it is on.
    pub(super) from: String,
    /// The storage that is declared.
    pub(super) to: String,
    pub(super) hold: Option<VolumeHold>,
}

/// Why what is planned for a volume cannot be done now, though nothing is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeHold {
    /// A container's volumes are moved only while it is down.
    ContainerUp(KeyRef),
    /// The state of a TPM is moved only while the machine is down.
    TpmInUse(KeyRef),
    /// A change of the slot waits, and would put the old volume back.
    ChangeWaits(KeyRef),
    /// The volume that the last move left behind is still there.
    OldVolumeLeft {
        /// The slot that would be moved.
        disk: KeyRef,
        /// Where the old volume hangs.
        unused: KeyRef,
        /// Its name.
        volume: String,
        /// The guest.
        guest: GuestId,
    },
}

impl VolumeHold {
    /// The reason code.
    pub fn reason(&self) -> ReasonCode {
        match self {
            Self::ContainerUp(_) | Self::TpmInUse(_) | Self::ChangeWaits(_) => ReasonCode::After,
            Self::OldVolumeLeft { .. } => ReasonCode::Storage,
        }
    }
}

impl fmt::Display for VolumeHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ContainerUp(_) => {
                f.write_str("a container's volumes move only while it is stopped")
            }
            Self::TpmInUse(_) => {
                f.write_str("a TPM's state moves only while the machine is stopped")
            }
            Self::ChangeWaits(disk) => write!(f, "a change of {disk} waits for a restart"),
            Self::OldVolumeLeft { disk, unused, volume, guest } => write!(
                f,
                "{volume} in {unused} is what {disk} was moved from: have it removed first \
                 (evenkeel request delete_volume {guest} slot={unused})"
            ),
        }
    }
}

/// The volume in effect and the storage where another one is declared, if that is all that the volume lacks.
pub(super) fn other_storage<'a>(
    field: &'a DeclaredField,
    have: Option<&'a ConfigField>,
) -> Option<(&'a VolumeRef, &'a str)> {
    let VolumeRef::Fresh { storage } = field.want.as_ref()?.as_property()?.volume()? else {
        return None;
    };
    let on_it = |value: &Value| {
        let volume = value.as_property().and_then(Property::data_volume);
        volume.and_then(VolumeRef::storage) == Some(storage)
    };
    let have = have?;
    let current = have.current.as_ref()?.value.as_property()?;
    // Most are where they shall be, and then nothing else about them is asked.
    if current.volume()?.storage() == Some(storage) {
        return None;
    }
    // An image and a disk shown as a CD-ROM are nothing that moves; a base image is what clones stand on.
    let volume = current.data_volume().filter(|_| !current.is_cdrom())?;
    let comes =
        have.waiting.is_some() && have.after_restart().is_some_and(|reading| on_it(&reading.value));
    (!comes && !volume.is_base_image()).then_some((volume, storage))
}

/// The same declaration, on the storage where the volume is: all else of it is compared by this.
pub(super) fn where_it_is(field: &DeclaredField, volume: &VolumeRef) -> DeclaredField {
    let mut field = field.clone();
    if let (Some(Value::Property(property)), Some(storage)) = (&mut field.want, volume.storage()) {
        put_volume(property, VolumeRef::Fresh { storage: storage.into() });
    }
    field
}

/// A declared template's volume that is a base image by now: it is the one that was declared.
pub(super) fn as_base(field: &DeclaredField, have: Option<&ConfigField>) -> Option<DeclaredField> {
    let declared = field.want.as_ref()?.as_property()?.volume()?;
    let stored = have?.current.as_ref()?.value.as_property()?.volume()?;
    let VolumeRef::Fresh { storage } = declared else {
        return None;
    };
    if !stored.is_base_image() || stored.storage() != Some(storage) {
        return None;
    }
    let mut field = field.clone();
    if let Some(Value::Property(property)) = &mut field.want {
        put_volume(property, stored.clone());
        property.remove("format");
        property.remove("import-from");
    }
    Some(field)
}

fn put_volume(property: &mut Property, volume: VolumeRef) {
    let name = if property.get("file").is_some() { "file" } else { "volume" };
    property.set(name, Value::Volume(volume.into()));
}

/// Plans a move, or says why the volume is none to be moved.
pub(super) fn plan_move(
    disk: KeyRef,
    volume: &VolumeRef,
    to: &str,
    guest: &Guest,
    config: &GuestConfig,
    memory: &MovedVolumes,
) -> Result<PlannedMove, PlanProblem> {
    let (Some(name), Some(from)) = (volume.volid(), volume.storage()) else {
        return Err(PlanProblem::SlotTaken(disk));
    };
    if volume.owner() != Some(guest.id.vmid.to_string().as_str()) {
        return Err(PlanProblem::NotOwnVolume { disk, volume: name });
    }
    let hold = hold_of(disk, guest, config, memory);
    Ok(PlannedMove { disk, volume: name, from: from.to_owned(), to: to.to_owned(), hold })
}

fn hold_of(
    disk: KeyRef,
    guest: &Guest,
    config: &GuestConfig,
    memory: &MovedVolumes,
) -> Option<VolumeHold> {
    if config.field(disk).is_some_and(|field| field.waiting.is_some()) {
        return Some(VolumeHold::ChangeWaits(disk));
    }
    match guest.id.kind {
        GuestKind::Lxc if guest.power != Power::Stopped => {
            return Some(VolumeHold::ContainerUp(disk));
        }
        GuestKind::Qemu
            if disk.key().hazard == Hazard::TpmState && guest.power != Power::Stopped =>
        {
            return Some(VolumeHold::TpmInUse(disk));
        }
        GuestKind::Lxc | GuestKind::Qemu => {}
    }
    let left = unused_volumes(guest, memory)
        .find(|unused| unused.moved_from.as_deref() == Some(disk.to_string().as_str()))?;
    let UnusedVolume { slot: unused, volume, .. } = left;
    Some(VolumeHold::OldVolumeLeft { disk, unused, volume, guest: guest.id })
}

/// Another guest of the node whose configuration names a volume, now or after a restart.
pub(super) fn other_user(actual: &Snapshot, but: GuestId, volume: &VolumeRef) -> Option<GuestId> {
    let name = volume.volid()?;
    let others = actual.guests.values().filter(|guest| guest.id != but);
    let uses = |guest: &&Guest| {
        guest.config.as_ref().is_ok_and(|config| config.volumes().contains_key(&name))
    };
    others.into_iter().find(uses).map(|guest| guest.id)
}
