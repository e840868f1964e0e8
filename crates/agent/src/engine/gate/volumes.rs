//! The volumes of a guest around an act that allocates, attaches, detaches or removes one.
//!
//! The gate asks before the act, `evidence` after it. A volume is never allocated twice: what is there before is recorded,
//! and a volume that hangs on nothing stops the act. None is attached that its storage does not list as this guest's:
//! Proxmox VE would take another guest's without a word. None is detached whose storage the node does not list: Proxmox
//! VE would forget it. What snapshots name is read only where a volume would otherwise be called nobody's, or removed.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::actual::{Guest, PRESENT, SnapshotVolumes};
use evenkeel_core::gate::allocation::{allocates_on, attaches, loose_volumes};
use evenkeel_core::gate::named_volumes::{leaving, storage_of, unnamed};
use evenkeel_core::model::id::{GuestId, IdError, VmId};
use evenkeel_core::model::reason::{ReasonCode, Refusal};
use evenkeel_core::operate::operation::{StartedIntent, StorageName, VolumeId};
use evenkeel_core::plan::Action;

use crate::engine::gate::NotCleared;
use crate::pve::error::Error;
use crate::pve::list::UnreadRow;
use crate::pve::site::ListedVolume;
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
    /// Which volumes snapshots name cannot be told.
    #[error("the volumes that snapshots of {guest} name cannot be read: {error}")]
    Snapshots {
        /// Whose.
        guest: GuestId,
        /// Why.
        #[source]
        error: Error,
    },
    /// The node's storages cannot be listed.
    #[error("the node's storages cannot be listed: {0}")]
    Storages(#[source] Error),
    /// One that would leave its slot is on a storage that the node does not list.
    #[error(
        "the node lists no storage {storage}: if {volume} left its slot now, Proxmox VE would forget it and nothing would \
         name it any more; define the storage again, or let the token see it"
    )]
    Undefined {
        /// Where.
        storage: String,
        /// Which.
        volume: VolumeId,
    },
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
            | VolumesError::Unread { .. }
            | VolumesError::Undefined { .. } => {
                Self::Held(Refusal::new(ReasonCode::Storage, error.to_string()))
            }
            // It answers again some day, and nothing was tried.
            VolumesError::Unlisted { error: why, .. } | VolumesError::Storages(why)
                if why.is_silent_storage() =>
            {
                Self::Held(Refusal::new(ReasonCode::Storage, error.to_string()))
            }
            VolumesError::Name(_)
            | VolumesError::Unlisted { .. }
            | VolumesError::Snapshots { .. }
            | VolumesError::Storages(_) => Self::Failed(error.to_string()),
        }
    }
}

/// The guest's volumes where the action allocates; none if it does not.
pub(in crate::engine) async fn volumes_before(
    client: &Client,
    guest: &Guest,
    action: &Action,
) -> Result<Option<BTreeSet<VolumeId>>, VolumesError> {
    let storages = allocates_on(action.step.kind(), guest.id.kind, &action.step.params());
    if storages.is_empty() {
        return Ok(None);
    }
    let volumes = volumes_of(client, guest.id.vmid, &storages).await?;
    match loose_of(client, guest, &volumes).await?.into_iter().next() {
        None => Ok(Some(volumes)),
        Some(loose) => Err(VolumesError::Loose(loose)),
    }
}

/// Those of a guest's volumes that nothing of it names. Who says so to people asks here: a snapshot's data hangs on
/// nothing that its configuration shows.
pub(crate) async fn loose_of(
    client: &Client,
    guest: &Guest,
    volumes: &BTreeSet<VolumeId>,
) -> Result<Vec<VolumeId>, VolumesError> {
    if loose_volumes(guest, volumes, &SnapshotVolumes::none()).next().is_none() {
        return Ok(Vec::new());
    }
    let snapshots = snapshot_volumes(client, guest.id).await;
    let unread = |error| VolumesError::Snapshots { guest: guest.id, error };
    Ok(loose_volumes(guest, volumes, &snapshots.map_err(unread)?).cloned().collect())
}

/// The volumes that a guest's snapshots name.
async fn snapshot_volumes(client: &Client, guest: GuestId) -> Result<SnapshotVolumes, Error> {
    let mut named = SnapshotVolumes::none();
    for entry in client.snapshots(guest).await?.iter().filter(|entry| entry.name != PRESENT) {
        let section = client.snapshot_config(guest, &entry.name).await?.values;
        named.add(&entry.name, section.iter().map(|(key, text)| (key.as_str(), text.as_str())));
    }
    Ok(named)
}

/// Refuses an act that takes a volume out of its slot while the node does not list its storage.
pub(in crate::engine) async fn check_detached(
    client: &Client,
    guest: &Guest,
    op: ActionKind,
    params: &BTreeMap<String, String>,
) -> Result<(), VolumesError> {
    let leaving = leaving(op, guest, params);
    if leaving.is_empty() {
        return Ok(());
    }
    let listed = client.storages().await.map_err(VolumesError::Storages)?;
    let is_listed = |storage: &str| listed.iter().any(|entry| entry.storage == storage);
    for volume in leaving {
        if let Some(storage) = storage_of(&volume).filter(|storage| !is_listed(storage)) {
            return Err(VolumesError::Undefined { storage: storage.to_owned(), volume });
        }
    }
    Ok(())
}

/// Volumes that an act had to leave named and that nothing names now.
pub(in crate::engine) async fn unnamed_after(
    client: &Client,
    intent: &StartedIntent,
    guest: &Guest,
) -> Result<BTreeSet<VolumeId>, Error> {
    let Ok(config) = &guest.config else {
        return Ok(BTreeSet::new());
    };
    let missing = unnamed(&intent.volumes_named, config, &SnapshotVolumes::none());
    if missing.is_empty() {
        return Ok(missing);
    }
    let snapshots = snapshot_volumes(client, guest.id).await?;
    Ok(unnamed(&intent.volumes_named, config, &snapshots))
}

/// Refuses to have a volume removed whose end nobody could see, or which a snapshot names: Proxmox VE would keep its data
/// and strike it out of the guest's file at most.
pub(in crate::engine) async fn check_removable(
    client: &Client,
    guest: &Guest,
    params: &BTreeMap<String, String>,
) -> Result<(), Refusal> {
    let Some(volume) = params.get("volume") else {
        return Err(Refusal::new(ReasonCode::Payload, "it names no volume"));
    };
    let storage = |why: String| Refusal::new(ReasonCode::Storage, why);
    match is_listed(client, guest.id.vmid, volume).await {
        Ok(true) => {}
        Ok(false) => {
            let why =
                format!("its storage does not list {volume}: nobody could see that it is gone");
            return Err(storage(why));
        }
        Err(error) => return Err(storage(error.to_string())),
    }
    let unread = |error| VolumesError::Snapshots { guest: guest.id, error };
    let snapshots = snapshot_volumes(client, guest.id).await.map_err(unread);
    let snapshots =
        snapshots.map_err(|error| Refusal::new(ReasonCode::IdentityUnproven, error.to_string()))?;
    match snapshots.snapshot_of(volume) {
        None => Ok(()),
        Some(name) => {
            let why = format!(
                "the snapshot `{name}` names {volume}: its data would stay; have the snapshot removed first"
            );
            Err(Refusal::new(ReasonCode::After, why))
        }
    }
}

/// Whether the storage of a volume lists it as this guest's.
pub(in crate::engine) async fn is_listed(
    client: &Client,
    vmid: VmId,
    volume: &str,
) -> Result<bool, VolumesError> {
    let volume: VolumeId = volume.parse()?;
    let storages = storage_of(&volume).map(str::to_owned).into_iter().collect();
    Ok(volumes_of(client, vmid, &storages).await?.contains(&volume))
}

/// Refuses to attach what its storage does not list as this guest's.
pub(in crate::engine) async fn check_attached(
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
        // Images of CDs and templates have no owner, and are listed whoever is asked about.
        let has_lost_owner = |row: &ListedVolume| {
            row.vmid.is_none()
                && matches!(row.content.as_deref(), None | Some("images" | "rootdir"))
        };
        if !listed.unread.iter().all(is_other) || listed.rows.iter().any(has_lost_owner) {
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
