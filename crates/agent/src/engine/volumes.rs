//! The volumes of a guest around a write that allocates one.
//!
//! The gate asks before the write, `world` after a lost answer. A volume is never allocated twice: what is there
//! before is recorded, and a volume that hangs on nothing stops the write.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_core::actual::{Config, Guest};
use evenkeel_core::id::{GuestKind, VmId};
use evenkeel_core::operation::{StorageName, VolumeId};
use evenkeel_core::plan::Action;
use evenkeel_core::registry;
use evenkeel_core::value::Volume;
use evenkeel_core::value::read::written;

use crate::pve::{Client, ContentFilter};

/// The storages on which a configuration write with these parameters allocates.
pub(super) fn allocates_on(kind: GuestKind, params: &BTreeMap<String, String>) -> BTreeSet<String> {
    let fresh = |(key, text): (&String, &String)| {
        let value = written(&registry::find(kind, key)?.key().format, text);
        match value.as_property()?.volume()? {
            Volume::Fresh { storage } => Some(storage.to_string()),
            Volume::Existing { .. }
            | Volume::CloudInit { .. }
            | Volume::Path(_)
            | Volume::Empty
            | Volume::HostCdrom => None,
        }
    };
    params.iter().filter_map(fresh).collect()
}

/// The guest's volumes where the action allocates; none if it does not. Refused, in words, while one of them is
/// attached nowhere: it may be what an earlier write left behind.
pub(super) async fn volumes_before(
    client: &Client,
    guest: &Guest,
    action: &Action,
) -> Result<Option<BTreeSet<VolumeId>>, String> {
    let storages = allocates_on(guest.id.kind, &action.step.params());
    if storages.is_empty() {
        return Ok(None);
    }
    let volumes = volumes_of(client, guest.id.vmid, &storages).await?;
    let attached = guest.config.as_ref().map(Config::volumes).unwrap_or_default();
    match volumes.iter().find(|volume| is_disk(volume) && !attached.contains_key(volume.as_str())) {
        None => Ok(Some(volumes)),
        Some(loose) => Err(format!(
            "{loose} belongs to this guest and is attached nowhere: attach it by its name, or remove it, \
             before another volume is allocated on its storage"
        )),
    }
}

/// The volumes of a guest on these storages.
pub(super) async fn volumes_of(
    client: &Client,
    vmid: VmId,
    storages: &BTreeSet<String>,
) -> Result<BTreeSet<VolumeId>, String> {
    let mut found = BTreeSet::new();
    for storage in storages {
        let name: StorageName = storage.parse().map_err(|error| format!("{error}"))?;
        let listed = client.volumes(&name, &ContentFilter::Guest(vmid)).await;
        let listed = listed
            .map_err(|error| format!("the volumes of {storage} cannot be listed: {error}"))?;
        for volume in listed.into_iter().filter(|volume| volume.vmid == Some(vmid)) {
            // A backup belongs to the guest too, and is never what a write allocates.
            if volume.content.as_deref() != Some("backup") {
                found.insert(volume.volid.parse().map_err(|error| format!("{error}"))?);
            }
        }
    }
    Ok(found)
}

/// A snapshot's memory and a cloud-init drive are volumes that come and go by themselves.
fn is_disk(volume: &VolumeId) -> bool {
    !volume.as_str().contains("-state-") && !volume.as_str().contains("-cloudinit")
}
