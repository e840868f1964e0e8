//! The volumes of a guest around an act that allocates or attaches one.
//!
//! The gate asks before the act, `evidence` after a lost answer. A volume is never allocated twice: what is there
//! before is recorded, and a volume that hangs on nothing stops the act. And none is attached that its storage does not
//! list as this guest's: Proxmox VE would take another guest's without a word.

use std::collections::BTreeSet;

use evenkeel_core::actual::Guest;
use evenkeel_core::allocation::{allocates_on, attaches, loose_volumes};
use evenkeel_core::id::{GuestId, IdError, VmId};
use evenkeel_core::operation::{StorageName, VolumeId};
use evenkeel_core::plan::Action;
use evenkeel_core::reason::{ReasonCode, Refusal};

use super::gate::NotCleared;
use crate::pve::error::Error;
use crate::pve::list::UnreadRow;
use crate::pve::{Client, ContentFilter};

/// Why the volumes of a guest cannot be told, or must stay as they are.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VolumesError {
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
    /// One that is listed cannot be read, and may be this guest's.
    #[error("{storage} lists a volume that cannot be read: it may be one of guest {vmid}")]
    Unread {
        /// Where.
        storage: String,
        /// Whose it may be.
        vmid: VmId,
    },
    /// One of them is attached nowhere: it may be what an earlier write left behind.
    #[error(
        "{0} bears this guest's number and hangs on nothing: have it attached by its name, which takes a signature, or \
         remove it, before another volume is allocated on its storage"
    )]
    Loose(VolumeId),
    /// One that would be attached is not listed as this guest's.
    #[error("{storage} does not list {volume} as a volume of {guest}: it is not attached")]
    NotListed {
        /// Where.
        storage: String,
        /// Which.
        volume: String,
        /// Whose it should be.
        guest: GuestId,
    },
}

impl From<VolumesError> for NotCleared {
    /// A volume that stands in the way does so until somebody does something about it.
    fn from(error: VolumesError) -> Self {
        match &error {
            VolumesError::Loose(_)
            | VolumesError::NotListed { .. }
            | VolumesError::Unread { .. } => {
                Self::Held(Refusal::new(ReasonCode::Storage, error.to_string()))
            }
            VolumesError::Name(_) | VolumesError::Unlisted { .. } => {
                Self::Failed(error.to_string())
            }
        }
    }
}

/// The guest's volumes where the action allocates; none if it does not.
pub(super) async fn volumes_before(
    client: &Client,
    guest: &Guest,
    action: &Action,
) -> Result<Option<BTreeSet<VolumeId>>, VolumesError> {
    let storages = allocates_on(action.step.kind(), guest.id.kind, &action.step.params());
    if storages.is_empty() {
        return Ok(None);
    }
    let volumes = volumes_of(client, guest.id.vmid, &storages).await?;
    let loose = loose_volumes(guest, &volumes).next().cloned();
    match loose {
        None => Ok(Some(volumes)),
        Some(loose) => Err(VolumesError::Loose(loose)),
    }
}

/// Refuses to attach what its storage does not list as this guest's.
pub(super) async fn check_attached(
    client: &Client,
    guest: &Guest,
    action: &Action,
) -> Result<(), VolumesError> {
    let comes = attaches(guest, &action.step.params());
    let storages: BTreeSet<String> = comes.iter().map(|(storage, _)| storage.clone()).collect();
    let listed = volumes_of(client, guest.id.vmid, &storages).await?;
    let strange = comes
        .into_iter()
        .find(|(_, volume)| !listed.iter().any(|listed| listed.as_str() == volume));
    match strange {
        None => Ok(()),
        Some((storage, volume)) => {
            Err(VolumesError::NotListed { storage, volume, guest: guest.id })
        }
    }
}

/// The volumes of a guest on these storages.
pub(crate) async fn volumes_of(
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
        // It may be this guest's, and what it is called is what everything here is about.
        let is_other =
            |row: &UnreadRow| row.parsed("vmid").is_some_and(|owner: VmId| owner != vmid);
        if !listed.unread.iter().all(is_other) {
            return Err(VolumesError::Unread { storage: storage.clone(), vmid });
        }
        for volume in listed.rows.into_iter().filter(|volume| volume.vmid == Some(vmid)) {
            // A backup belongs to the guest too, and is never what a write allocates.
            if volume.content.as_deref() != Some("backup") {
                found.insert(volume.volid.parse()?);
            }
        }
    }
    Ok(found)
}
