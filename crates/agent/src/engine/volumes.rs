//! The volumes of a guest around a write that allocates one.
//!
//! The gate asks before the write, `evidence` after a lost answer. A volume is never allocated twice: what is there
//! before is recorded, and a volume that hangs on nothing stops the write.

use std::collections::BTreeSet;

use evenkeel_core::actual::Guest;
use evenkeel_core::allocation::{allocates_on, loose_volume};
use evenkeel_core::id::{IdError, VmId};
use evenkeel_core::operation::{StorageName, VolumeId};
use evenkeel_core::plan::Action;

use crate::pve::error::Error;
use crate::pve::{Client, ContentFilter};

/// Why the volumes of a guest cannot be told, or must stay as they are.
#[derive(Debug, thiserror::Error)]
pub(super) enum VolumesError {
    /// A name Proxmox gave, or was given, is none.
    #[error(transparent)]
    Name(#[from] IdError),
    /// They cannot be listed.
    #[error("the volumes of {storage} cannot be listed: {error}")]
    Unlisted {
        /// Where.
        storage: String,
        /// Why.
        #[source]
        error: Error,
    },
    /// One of them is attached nowhere: it may be what an earlier write left behind.
    #[error(
        "{0} belongs to this guest and is attached nowhere: attach it by its name, or remove it, before another volume is \
         allocated on its storage"
    )]
    Loose(VolumeId),
}

/// The guest's volumes where the action allocates; none if it does not.
pub(super) async fn volumes_before(
    client: &Client,
    guest: &Guest,
    action: &Action,
) -> Result<Option<BTreeSet<VolumeId>>, VolumesError> {
    let storages = allocates_on(guest.id.kind, &action.step.params());
    if storages.is_empty() {
        return Ok(None);
    }
    let volumes = volumes_of(client, guest.id.vmid, &storages).await?;
    match loose_volume(guest, &volumes).cloned() {
        None => Ok(Some(volumes)),
        Some(loose) => Err(VolumesError::Loose(loose)),
    }
}

/// The volumes of a guest on these storages.
pub(super) async fn volumes_of(
    client: &Client,
    vmid: VmId,
    storages: &BTreeSet<String>,
) -> Result<BTreeSet<VolumeId>, VolumesError> {
    let mut found = BTreeSet::new();
    for storage in storages {
        let name: StorageName = storage.parse()?;
        let listed = client.volumes(&name, &ContentFilter::Guest(vmid)).await;
        let unlisted = |error| VolumesError::Unlisted { storage: storage.clone(), error };
        let listed = listed.map_err(unlisted)?;
        for volume in listed.into_iter().filter(|volume| volume.vmid == Some(vmid)) {
            // A backup belongs to the guest too, and is never what a write allocates.
            if volume.content.as_deref() != Some("backup") {
                found.insert(volume.volid.parse()?);
            }
        }
    }
    Ok(found)
}
