//! The backup before a destroy: what its node and its storage say, and what is in the archive.
//!
//! The gate asks before anything is sent whether the storage takes one more, and the steps of a destroy what the backup
//! leaves out and whether the archive is there. It only reads; core's `final_backup` judges. What cannot be read is never taken for a backup.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use evenkeel_core::actual::Guest;
use evenkeel_core::gate::final_backup::{
    Archive, BackupContext, BackupLimits, ExcludedPaths, FinalBackup, ProtectedLimit, find_archive,
    holds_all, must_hold,
};
use evenkeel_core::model::id::{GuestId, GuestKind, OperationId};
use evenkeel_core::model::reason::{ReasonCode, Refusal};
use evenkeel_core::operate::operation::{StorageName, VolumeId};

use crate::engine::EngineContext;
use crate::observe::observe_snapshots;
use crate::pve::error::{Error, ErrorClass};
use crate::pve::site::{ListedVolume, StorageEntry};
use crate::pve::{Client, ContentFilter};

/// A backup that was made, and what must be in it.
#[derive(Debug)]
pub(in crate::engine) struct SavedGuest {
    pub(in crate::engine) storage: StorageName,
    /// The slots whose volumes it must hold.
    must_hold: BTreeMap<String, String>,
    /// The archive as it was listed first. A configuration stands at its beginning and can be read of one that has lost
    /// its end, so an archive that became another size is none.
    first_seen: OnceLock<(VolumeId, Option<u64>)>,
}

impl SavedGuest {
    /// A backup to be made of a guest as it is now.
    pub(in crate::engine) fn of(fresh: &Guest, storage: &StorageName) -> Result<Self, Refusal> {
        let config = fresh.config.as_ref().map_err(|error| refused(error.to_string()))?;
        let first_seen = OnceLock::new();
        Ok(Self { storage: storage.clone(), must_hold: must_hold(config), first_seen })
    }

    /// Whether its storage lists it now, whole; otherwise why not.
    pub(in crate::engine) async fn prove(
        &self,
        context: &EngineContext,
        op: OperationId,
        guest: GuestId,
    ) -> Result<(), Refusal> {
        let listed = archives(&context.client, &self.storage, guest).await?;
        let archive = find_archive(&listed.archives, op, guest)?;
        let seen = (archive.volume.clone(), archive.size_bytes);
        if *self.first_seen.get_or_init(|| seen.clone()) != seen {
            return Err(refused(format!(
                "the backup {} changed after it was made",
                archive.volume
            )));
        }
        let inside = context.client.backup_config(&archive.volume).await;
        let inside = inside
            .map_err(|error| refused(format!("{} cannot be read: {error}", archive.volume)))?;
        holds_all(guest.kind, &inside, &self.must_hold)
    }
}

fn refused(why: String) -> Refusal {
    Refusal::new(ReasonCode::Storage, why)
}

/// What a storage lists of a guest's backups.
pub(in crate::engine) struct ListedArchives {
    pub(in crate::engine) archives: Vec<Archive>,
    /// How many cannot be read.
    pub(in crate::engine) unread: usize,
}

/// The backups of a guest on a storage.
pub(in crate::engine) async fn archives(
    client: &Client,
    storage: &StorageName,
    guest: GuestId,
) -> Result<ListedArchives, Refusal> {
    let listed = client.volumes(storage, &ContentFilter::BackupsOf(guest.vmid)).await;
    let unlisted =
        |error: Error| refused(format!("the backups on {storage} cannot be listed: {error}"));
    let listed = listed.map_err(unlisted)?;
    let archive = |volume: ListedVolume| {
        Some(Archive {
            volume: volume.volid.parse().ok()?,
            size_bytes: volume.size_bytes,
            notes: volume.notes.unwrap_or_default(),
            protected: volume.protected,
        })
    };
    let of_guest = listed.rows.into_iter().filter(|volume| volume.vmid == Some(guest.vmid));
    let of_guest: Vec<Option<Archive>> = of_guest.map(archive).collect();
    // A row under a name that is none is one that cannot be read.
    let unread = listed.unread.len() + of_guest.iter().filter(|archive| archive.is_none()).count();
    Ok(ListedArchives { archives: of_guest.into_iter().flatten().collect(), unread })
}

/// Whether a backup leaves out of the guest what was signed for, no more and no less.
pub(in crate::engine) async fn check_left_out(
    context: &EngineContext,
    backup: &FinalBackup,
    fresh: &Guest,
) -> Result<(), Refusal> {
    let around = backup_context(&context.client, fresh.id, &backup.storage).await?;
    backup.check(fresh, &around)
}

/// What a backup to this storage leaves out of a guest besides what its configuration tells. What cannot be read is not
/// taken for nothing.
pub(in crate::engine) async fn backup_context(
    client: &Client,
    guest: GuestId,
    storage: &StorageName,
) -> Result<BackupContext, Refusal> {
    let unlisted = |error: Error| {
        let why = format!("the guest's snapshots cannot be listed: {error}");
        Refusal::new(ReasonCode::IdentityUnproven, why)
    };
    let snapshots = observe_snapshots(client, guest).await.map_err(unlisted)?;
    let excluded = match guest.kind {
        GuestKind::Lxc => {
            let unread = |error: Error| {
                refused(format!("what a backup to {storage} leaves out cannot be read: {error}"))
            };
            let defaults = client.backup_defaults(storage).await.map_err(unread)?;
            ExcludedPaths::read(defaults.get("exclude-path").map(String::as_str))
        }
        // Exclusions are of files, and of a machine whole drives are saved.
        GuestKind::Qemu => ExcludedPaths::default(),
    };
    Ok(BackupContext { snapshots, excluded })
}

/// Whether the storage takes one more backup of the guest, a protected one: asked before the guest is stopped for it.
pub(in crate::engine) async fn check_room(
    context: &EngineContext,
    storage: &StorageName,
    guest: GuestId,
) -> Result<(), Refusal> {
    let unread = |error: Error| refused(format!("storage {storage} cannot be read: {error}"));
    let all = context.client.storages().await.map_err(unread)?;
    match all.iter().find(|entry| entry.storage == storage.as_str()) {
        None => return Err(refused(format!("this node has no storage {storage} that we may see"))),
        Some(entry) if !entry.active => {
            return Err(refused(format!("storage {storage} is not active")));
        }
        Some(entry) if !holds_backups(entry) => {
            return Err(refused(format!("storage {storage} does not hold backups")));
        }
        Some(_) => {}
    }
    let defaults = context.client.backup_defaults(storage).await.map_err(unread)?;
    let retention = defaults.get("prune-backups").map_or("", String::as_str);
    let configured = match context.client.storage_config(storage).await {
        Ok(config) => {
            let limit = config.get("max-protected-backups").map(String::as_str);
            Some(ProtectedLimit::configured(limit))
        }
        Err(error) if error.class() == Some(&ErrorClass::Permission) => None,
        Err(error) => return Err(unread(error)),
    };
    let listed = archives(&context.client, storage, guest).await?;
    let limits = BackupLimits::of(retention, configured);
    if listed.unread > 0 && limits != BackupLimits::default() {
        let count = listed.unread;
        return Err(refused(format!(
            "{count} backups of {guest} on {storage} cannot be read, and it keeps only so many"
        )));
    }
    limits.judge(storage, &listed.archives)
}

/// Whether backups may be kept there.
pub(in crate::engine) fn holds_backups(storage: &StorageEntry) -> bool {
    let content = storage.content.as_deref().unwrap_or_default();
    content.split(',').any(|kind| kind == "backup")
}
