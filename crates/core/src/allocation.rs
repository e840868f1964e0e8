//! The volumes of a guest around a write that allocates one.
//!
//! A volume is never allocated twice: what is there before is recorded, and a volume that is attached nowhere stops the
//! write, because it may be what an earlier one left behind.

use std::collections::{BTreeMap, BTreeSet};

use crate::actual::{Guest, GuestConfig};
use crate::id::GuestKind;
use crate::operation::VolumeId;
use crate::registry;
use crate::value::VolumeRef;
use crate::value::read::written;

/// The storages on which a configuration write with these parameters allocates.
pub fn allocates_on(kind: GuestKind, params: &BTreeMap<String, String>) -> BTreeSet<String> {
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

/// A volume of the guest that is attached nowhere.
pub fn loose_volume<'v>(guest: &Guest, volumes: &'v BTreeSet<VolumeId>) -> Option<&'v VolumeId> {
    let attached = guest.config.as_ref().map(GuestConfig::volumes).unwrap_or_default();
    volumes.iter().find(|volume| is_disk(volume) && !attached.contains_key(volume.as_str()))
}

/// A snapshot's memory and a cloud-init drive are volumes that come and go by themselves.
fn is_disk(volume: &VolumeId) -> bool {
    !volume.as_str().contains("-state-") && !volume.as_str().contains("-cloudinit")
}
