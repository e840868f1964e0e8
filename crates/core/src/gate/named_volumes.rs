//! The data volumes that a guest names around an unsigned act: what was named before is named after it (invariants 18
//! and 21).
//!
//! The gate asks which volumes an act takes out of their slots, because Proxmox VE keeps one as `unusedN` only if it knows
//! its storage; and which must be named afterwards, which the journal keeps. Whoever reads the guest back asks what is
//! missing. It must never take a volume for named because it is not known to be lost.

use std::collections::{BTreeMap, BTreeSet};

use crate::action_registry::{ActionKind, AppliesWaiting};
use crate::actual::{ConfigField, Guest, GuestConfig, SnapshotVolumes, WaitingChange};
use crate::model::id::GuestKind;
use crate::operate::operation::VolumeId;
use crate::registry::Hazard;
use crate::value::read::written;
use crate::value::{Property, Value, VolumeRef};

/// Every data volume that a configuration names: attached, waiting for a restart, or detached.
pub fn named_volumes(config: &GuestConfig) -> BTreeSet<VolumeId> {
    config.fields.iter().flat_map(field_volumes).filter_map(name_of).collect()
}

/// The volumes that an act with these parameters takes out of the slots they are in: those that it writes, and those that
/// wait to be changed and that Proxmox VE changes along with it.
pub fn leaving(
    op: ActionKind,
    guest: &Guest,
    params: &BTreeMap<String, String>,
) -> BTreeSet<VolumeId> {
    let Ok(config) = &guest.config else {
        return BTreeSet::new();
    };
    let kind = guest.id.kind;
    let applies = match op.row().applies_waiting {
        AppliesWaiting::No => false,
        AppliesWaiting::Yes => true,
        // One that runs is changed where that can be done while it runs.
        AppliesWaiting::StoppedMachine => kind == GuestKind::Qemu,
    };
    let moved = ["volume", "disk"].into_iter().filter_map(|name| params.get(name));
    let moved: Vec<&String> = moved.filter(|_| op == ActionKind::MoveVolume).collect();
    let listed = ["delete", "revert"].into_iter().filter_map(|name| params.get(name));
    let listed: BTreeSet<&str> = listed
        .filter(|_| op == ActionKind::SetConfig)
        .flat_map(|list| list.split(','))
        .map(str::trim)
        .collect();
    let slots = config.fields.iter().filter(|field| field.key.key().hazard.is_volume_slot());
    let mut left = BTreeSet::new();
    for field in slots {
        let name = field.key.to_string();
        let set = params.get(&name).filter(|_| op == ActionKind::SetConfig);
        let value = set.map(|text| written(&field.key.key().format, text));
        let stays = if let Some(value) = &value {
            value.as_property().and_then(Property::data_volume)
        } else if listed.contains(name.as_str()) || moved.contains(&&name) {
            None
        } else if applies && field.waiting.is_some() {
            field.after_restart().and_then(|reading| data_volume(&reading.value))
        } else {
            continue;
        };
        left.extend(field_volumes(field).filter(|held| Some(*held) != stays).filter_map(name_of));
    }
    left
}

/// The volumes that must still be named once an act with these parameters is done. A write is bound to the configuration
/// that was read, so all of them; other people may change a guest while it starts, stops or is copied, so there only those
/// that the act itself moves.
pub fn kept_volumes(
    op: ActionKind,
    guest: &Guest,
    params: &BTreeMap<String, String>,
) -> BTreeSet<VolumeId> {
    match (op, &guest.config) {
        (ActionKind::SetConfig, Ok(config)) => named_volumes(config),
        (_, _) => leaving(op, guest, params),
    }
}

/// Volumes that a configuration does not name although it must, and no snapshot does.
pub fn unnamed(
    kept: &BTreeSet<VolumeId>,
    config: &GuestConfig,
    snapshots: &SnapshotVolumes,
) -> BTreeSet<VolumeId> {
    let named = named_volumes(config);
    let missing = kept.iter().filter(|volume| !named.contains(*volume));
    missing.filter(|volume| snapshots.snapshot_of(volume.as_str()).is_none()).cloned().collect()
}

/// The storage of a volume.
pub fn storage_of(volume: &VolumeId) -> Option<&str> {
    volume.as_str().split_once(':').map(|(storage, _)| storage)
}

/// What a key holds now and after a restart.
fn field_volumes(field: &ConfigField) -> impl Iterator<Item = &VolumeRef> {
    let waiting = match field.waiting.as_deref() {
        Some(WaitingChange::Set(reading)) => Some(reading),
        Some(WaitingChange::Delete | WaitingChange::ForceDelete) | None => None,
    };
    let is_detached = field.key.key().hazard == Hazard::UnusedVolume;
    field.current.iter().chain(waiting).filter_map(move |reading| {
        if is_detached {
            reading.value.as_property()?.volume()
        } else {
            data_volume(&reading.value)
        }
    })
}

fn data_volume(value: &Value) -> Option<&VolumeRef> {
    value.as_property().and_then(Property::data_volume)
}

fn name_of(volume: &VolumeRef) -> Option<VolumeId> {
    volume.volid()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actual::{ConfigEntry, Power};

    fn guest(id: &str, power: Power, entries: &[(&str, &str, Option<&str>, u8)]) -> Guest {
        let id: crate::model::id::GuestId = id.parse().unwrap();
        let entries = entries.iter().map(|(key, value, pending, delete)| ConfigEntry {
            key: (*key).to_owned(),
            value: Some((*value).to_owned()).filter(|value| !value.is_empty()),
            pending: pending.map(str::to_owned),
            delete: *delete,
        });
        let config = Ok(GuestConfig::from_pending(id.kind, entries).into());
        Guest { id, power, template: false, ha: None, lock: None, config }
    }

    fn left(op: ActionKind, guest: &Guest, params: &[(&str, &str)]) -> Vec<String> {
        let params = params.iter().map(|(name, text)| ((*name).into(), (*text).into())).collect();
        leaving(op, guest, &params).iter().map(ToString::to_string).collect()
    }

    const DISK: &str = "tank:vm-101-disk-1";

    #[test]
    fn y05_a_write_takes_out_what_it_deletes_replaces_or_applies() {
        let machine = |entries: &[_]| guest("qemu/101", Power::Stopped, entries);
        let attached = [("scsi0", "tank:vm-101-disk-0,size=8G", None, 0), ("scsi1", DISK, None, 0)];
        let plain = machine(&attached);
        let write = |params: &[_]| left(ActionKind::SetConfig, &plain, params);
        assert_eq!(write(&[("delete", "scsi1,cores")]), [DISK]);
        assert_eq!(write(&[("scsi1", "tank:8")]), [DISK]);
        assert_eq!(write(&[("scsi1", "tank:vm-101-disk-1,discard=on")]), [""; 0]);
        assert_eq!(write(&[("cores", "2")]), [""; 0]);
        let waits = machine(&[("scsi1", DISK, None, 1)]);
        for op in [ActionKind::SetConfig, ActionKind::Start, ActionKind::Shutdown] {
            assert_eq!(left(op, &waits, &[("cores", "2")]), [DISK], "{op}");
        }
        let resized = [("disk", "scsi1"), ("size", "8G")];
        assert_eq!(left(ActionKind::Resize, &waits, &resized), [""; 0]);
        let moved = [("disk", "scsi1"), ("storage", "fast")];
        assert_eq!(left(ActionKind::MoveVolume, &plain, &moved), [DISK]);
    }

    #[test]
    fn y05_a_container_applies_what_waits_with_its_power_alone() {
        let mount = "tank:subvol-101-disk-1,mp=/data";
        let waits = guest("lxc/101", Power::Running, &[("mp0", mount, None, 1)]);
        assert_eq!(left(ActionKind::SetConfig, &waits, &[("cores", "2")]), [""; 0]);
        assert_eq!(left(ActionKind::Stop, &waits, &[]), ["tank:subvol-101-disk-1"]);
    }

    #[test]
    fn y05_what_a_configuration_or_a_snapshot_names_is_not_missing() {
        let before = guest(
            "qemu/101",
            Power::Stopped,
            &[
                ("scsi1", DISK, None, 0),
                ("scsi2", "tank:vm-101-disk-2", Some("tank:vm-101-disk-3"), 0),
                ("unused0", "tank:vm-101-disk-4", None, 0),
                ("ide2", "local:iso/x.iso,media=cdrom", None, 0),
            ],
        );
        let kept = kept_volumes(ActionKind::SetConfig, &before, &BTreeMap::new());
        assert_eq!(kept.len(), 4, "{kept:?}");
        let after = guest("qemu/101", Power::Stopped, &[("unused1", DISK, None, 0)]);
        let mut snapshots = SnapshotVolumes::none();
        snapshots.add("s", [("scsi2", "tank:vm-101-disk-2,size=8G")]);
        let missing = unnamed(&kept, after.config.as_ref().unwrap(), &snapshots);
        let missing: Vec<&str> = missing.iter().map(VolumeId::as_str).collect();
        assert_eq!(missing, ["tank:vm-101-disk-3", "tank:vm-101-disk-4"]);
    }
}
