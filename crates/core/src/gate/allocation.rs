//! The volumes of a guest around a write that allocates one.
//!
//! A volume is never allocated twice: what is there before is recorded, and a volume that is attached nowhere stops the
//! write, because it may be what an earlier one left behind.

use std::collections::{BTreeMap, BTreeSet};

use crate::action_registry::ActionKind;
use crate::actual::{Guest, GuestConfig, SnapshotVolumes};
use crate::model::id::GuestKind;
use crate::operate::operation::VolumeId;
use crate::registry;
use crate::value::VolumeRef;
use crate::value::read::written;

/// The storages on which an act with these parameters allocates.
pub fn allocates_on(
    op: ActionKind,
    kind: GuestKind,
    params: &BTreeMap<String, String>,
) -> BTreeSet<String> {
    if op == ActionKind::MoveVolume {
        return params.get("storage").cloned().into_iter().collect();
    }
    let fresh = |(key, text): (&String, &String)| {
        let value = written(&registry::find(kind, key)?.key().format, text);
        match value.as_property()?.volume()? {
            VolumeRef::Fresh { storage } => Some(storage.to_string()),
            VolumeRef::Existing { .. }
            | VolumeRef::CloudInit { .. }
            | VolumeRef::Path(_)
            | VolumeRef::Empty
            | VolumeRef::HostCdrom => None,
        }
    };
    params.iter().filter_map(fresh).collect()
}

/// Volumes that exist already and that a configuration write with these parameters brings into a slot where they are not.
pub fn attaches(guest: &Guest, params: &BTreeMap<String, String>) -> BTreeSet<(String, String)> {
    let config = guest.config.as_ref().ok();
    let comes = |(name, text): (&String, &String)| {
        let key = registry::find(guest.id.kind, name)?;
        let value = written(&key.key().format, text);
        let volume = value.as_property()?.data_volume()?;
        let field = config.and_then(|config| config.field(key));
        let is_there = field.is_some_and(|field| {
            let sides = field.current.iter().chain(field.after_restart());
            let mut held = sides.filter_map(|reading| reading.value.as_property()?.data_volume());
            held.any(|held| held == volume)
        });
        (!is_there).then_some((volume.storage()?.to_owned(), volume.volid()?))
    };
    params.iter().filter_map(comes).collect()
}

/// The volumes of the guest that nothing of it names: neither its configuration nor one of its snapshots, whose data it
/// would be.
pub fn loose_volumes<'v>(
    guest: &Guest,
    volumes: &'v BTreeSet<VolumeId>,
    snapshots: &SnapshotVolumes,
) -> impl Iterator<Item = &'v VolumeId> {
    let attached = guest.config.as_deref().map(GuestConfig::volumes).unwrap_or_default();
    let is_loose = move |volume: &&VolumeId| {
        let name = volume.as_str();
        is_disk(volume) && !attached.contains_key(name) && snapshots.snapshot_of(name).is_none()
    };
    volumes.iter().filter(is_loose)
}

/// A snapshot's memory and a cloud-init drive are volumes that come and go by themselves.
fn is_disk(volume: &VolumeId) -> bool {
    !volume.as_str().contains("-state-") && !volume.as_str().contains("-cloudinit")
}
