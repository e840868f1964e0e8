//! Reads what a new guest depends on, directly before the request leaves. Core's `new_guest` judges.
//!
//! `nextid` says whether a number is free and knows nothing of volumes that a former guest left; the list of
//! `/cluster/resources` still shows the former guest for a while. So the number, the tasks at work and the volumes named
//! after it are asked each for itself. It must never take silence for an answer (invariant 14).

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_core::compensation::SourceNow;
use evenkeel_core::create_policy::BroughtVolume;
use evenkeel_core::desired::{DeclaredGuest, GuestSource, WantedState};
use evenkeel_core::id::{GuestId, VmId};
use evenkeel_core::new_guest::{
    MakeReading, NewGuest, SourceContent, SourceReading, StorageReading, brought_volumes,
    judge_making, storages_used,
};
use evenkeel_core::operation::{SourceMark, StorageName, UnixSeconds, Upid, VolumeId};
use evenkeel_core::quantity::Bytes;
use evenkeel_core::reason::{ReasonCode, Refusal};

use super::super::EngineContext;
use super::super::evidence::number_use;
use super::super::identity_proof::TASKS_LISTED_MAX;
use super::super::volumes::volumes_of;
use crate::observe::observe_guest;
use crate::pve::error::{Error, ErrorClass};
use crate::pve::site::{ListedVolume, StorageEntry};
use crate::pve::{Client, ContentFilter, TaskFilter, TaskSource};

/// Whether the guest may be made now, and from what exactly.
pub(super) async fn may_make(
    context: &EngineContext,
    new: &NewGuest,
    brought: &BTreeMap<String, Bytes>,
) -> Result<Option<SourceMark>, Refusal> {
    let vmid = new.guest.vmid;
    let source = source(context, new).await;
    let used = storages_used(new, &source);
    let reading = MakeReading {
        number: number_use(context, vmid).await,
        tasks: tasks_at_work(context, vmid).await?,
        volumes: volumes(context, new, &used).await?,
        storages: storages(context, new, &used).await?,
        brought: brought.clone(),
        source,
    };
    judge_making(new, &reading)?;
    Ok(SourceNow::of(&reading.source).mark())
}

/// What a backup will take of each storage, as far as its archive tells. A copy may share its source's volumes, and an
/// image is counted as it is declared.
pub(super) fn brought(
    declared: &DeclaredGuest,
    content: Option<&SourceContent>,
) -> BTreeMap<String, Bytes> {
    let mut sizes: BTreeMap<String, Bytes> = BTreeMap::new();
    let WantedState::Present(spec) = &declared.state else { return sizes };
    let Some(GuestSource::Backup { .. }) = &spec.source else { return sizes };
    let volumes = brought_volumes(declared.id.kind, spec, content).unwrap_or_default();
    for BroughtVolume { storage, size } in volumes.into_values() {
        let sum = sizes.entry(storage.as_str().to_owned()).or_insert(Bytes(0));
        sum.0 = sum.0.saturating_add(size.0);
    }
    sizes
}

fn unread(what: &str, error: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(ReasonCode::IdentityUnproven, format!("{what} cannot be read: {error}"))
}

/// Running tasks that carry the number. The plain list shows ended ones only.
async fn tasks_at_work(context: &EngineContext, vmid: VmId) -> Result<Vec<Upid>, Refusal> {
    let (source, limit) = (Some(TaskSource::Active), Some(TASKS_LISTED_MAX));
    let filter = TaskFilter { source, limit, ..TaskFilter::default() };
    let listed = context.client.tasks(&filter).await;
    let listed = listed.map_err(|error| unread("the tasks at work", &error))?;
    let works = listed.into_iter().filter(|task| task.exit_status().is_none());
    let ours = works.filter(|task| task.upid.task_id().parse() == Ok(vmid));
    Ok(ours.map(|task| task.upid).collect())
}

/// Volumes that are named after the number, where the new guest would have its own.
async fn volumes(
    context: &EngineContext,
    new: &NewGuest,
    used: &BTreeSet<String>,
) -> Result<BTreeSet<VolumeId>, Refusal> {
    let found = volumes_of(&context.client, new.guest.vmid, used).await;
    found.map_err(|error| Refusal::new(ReasonCode::Storage, error.to_string()))
}

async fn storages(
    context: &EngineContext,
    new: &NewGuest,
    used: &BTreeSet<String>,
) -> Result<BTreeMap<String, StorageReading>, Refusal> {
    if used.is_empty() {
        return Ok(BTreeMap::new());
    }
    let listed = context.client.storages().await.map_err(|error| unread("the storages", &error))?;
    let promised = context.promised_but(new.guest.vmid);
    let reading = |entry: StorageEntry| {
        let promised = promised.get(&entry.storage).copied().unwrap_or(Bytes(0));
        let (active, free) = (entry.active, entry.free_bytes.map(Bytes));
        (entry.storage, StorageReading { active, free, promised })
    };
    Ok(listed.into_iter().filter(|entry| used.contains(&entry.storage)).map(reading).collect())
}

async fn source(context: &EngineContext, new: &NewGuest) -> SourceReading {
    match &new.source {
        GuestSource::Empty => SourceReading::None,
        GuestSource::Template(volume) => listed(&context.client, volume, "vztmpl").await,
        GuestSource::Image { volume, .. } => listed(&context.client, volume, "import").await,
        GuestSource::Backup { volume, .. } => listed(&context.client, volume, "backup").await,
        GuestSource::Clone(from) => {
            let id = GuestId { kind: new.guest.kind, vmid: from.guest };
            observed_source(&context.client, id).await
        }
    }
}

/// A guest that is copied.
pub(in crate::engine) async fn observed_source(client: &Client, id: GuestId) -> SourceReading {
    match observe_guest(client, id).await {
        Ok(guest) => SourceReading::Guest(Some(Box::new(guest))),
        Err(error) if is_gone(&error) => SourceReading::Guest(None),
        Err(error) => SourceReading::Unreadable(format!("{id} cannot be read: {error}")),
    }
}

fn is_gone(error: &Error) -> bool {
    error.class() == Some(&ErrorClass::GuestNotFound)
}

/// Whether a volume is listed by its storage as this content.
pub(in crate::engine) async fn listed(
    client: &Client,
    volume: &VolumeId,
    content: &'static str,
) -> SourceReading {
    let storage = volume.as_str().split_once(':').map(|(storage, _)| storage.parse());
    let Some(Ok(storage)) = storage else {
        return SourceReading::Unreadable(format!("{volume} names no storage"));
    };
    let storage: StorageName = storage;
    match client.volumes(&storage, &ContentFilter::Type(content)).await {
        Ok(volumes) => {
            let found = volumes.into_iter().find(|entry| entry.volid == volume.as_str());
            let owner = found.as_ref().and_then(|entry| entry.vmid).map(VmId::get);
            let mark = found.as_ref().and_then(|entry| mark_of(volume, entry));
            SourceReading::Volume { listed: found.is_some(), owner, mark }
        }
        Err(error) => SourceReading::Unreadable(format!("{storage} cannot be listed: {error}")),
    }
}

/// Which one a listed volume is: another file of the same name has another time or size.
fn mark_of(volume: &VolumeId, entry: &ListedVolume) -> Option<SourceMark> {
    let (size_bytes, made_at) = (entry.size_bytes?, UnixSeconds(entry.made_unix_s?));
    Some(SourceMark::Volume { volume: volume.clone(), size_bytes, made_at })
}
