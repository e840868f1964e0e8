//! Reads what a new guest depends on, directly before the request leaves. Core's `new_guest` judges.
//!
//! `nextid` says whether a number is free and knows nothing of volumes that a former guest left; the list of
//! `/cluster/resources` still shows the former guest for a while. So the number, the tasks at work and the volumes named
//! after it are asked each for itself. It must never take silence for an answer (invariant 14).

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_core::actual::identity_proof::TaskListMark;
use evenkeel_core::actual::surroundings::{GuestSurroundings, SurroundingsHash};
use evenkeel_core::desired::{DeclaredGuest, GuestSource, VolumeContent, WantedState};
use evenkeel_core::gate::classify::opened_by_raw_line;
use evenkeel_core::gate::compensation::SourceNow;
use evenkeel_core::gate::create_policy::BroughtVolume;
use evenkeel_core::gate::new_guest::{
    MakeReading, NewGuest, SourceContent, SourceReading, StorageReading, brought_volumes,
    judge_making, may_bring_raw_lines, storages_used,
};
use evenkeel_core::model::id::{GuestId, VmId};
use evenkeel_core::model::quantity::Bytes;
use evenkeel_core::model::reason::{ReasonCode, Refusal};
use evenkeel_core::operate::operation::{SourceMark, StorageName, UnixSeconds, Upid, VolumeId};
use evenkeel_core::operate::recover::NumberUse;
use futures_util::future;

use crate::engine::EngineContext;
use crate::engine::gate::identity_proof::{TASKS_LISTED_MAX, mark_number, unread_task};
use crate::engine::gate::surroundings::observe_number;
use crate::engine::gate::volumes::volumes_of;
use crate::engine::settle::evidence::{free_by_quorum, number_use};
use crate::observe::observe_guest;
use crate::pve::error::{Error, ErrorClass};
use crate::pve::list::{ListReading, UnreadRow};
use crate::pve::site::{ListedVolume, StorageEntry};
use crate::pve::{Client, ConfigView, ContentFilter, TaskFilter, TaskSource};

/// The node has just called a number free. What that is worth is known once the node was found to have quorum.
pub(super) struct CalledFree {
    /// Where the task list stood before.
    pub(super) task_mark: Option<TaskListMark>,
    /// Whether nothing was waited for since.
    pub(super) is_recent: bool,
}

/// Asks whether a number is free; none if it is not, or nobody can tell.
pub(super) async fn called_free(context: &EngineContext, vmid: VmId) -> Option<CalledFree> {
    // First the list, then the number: whoever takes it in between is in the list later, and not by then.
    let task_mark = mark_number(context, vmid).await;
    let is_free = context.client.vmid_is_free(vmid).await.is_ok_and(|is_free| is_free);
    is_free.then_some(CalledFree { task_mark, is_recent: true })
}

/// Whether the guest may be made now, and from what exactly. Its number was called free just before, or not.
///
/// Everything here is asked after the number, because somebody who had it may still be at work there; and at the same time,
/// because no answer depends on another.
pub(super) async fn may_make(
    context: &EngineContext,
    new: &NewGuest,
    called_free: bool,
    brought: &BTreeMap<String, Bytes>,
) -> Result<MakingMarks, Refusal> {
    let vmid = new.guest.vmid;
    let source = source(context, new).await;
    let used = storages_used(new, &source);
    let (number, tasks, volumes, storages, around) = future::join5(
        number(context, vmid, called_free),
        tasks_at_work(context, vmid),
        volumes(context, new, &used),
        storages(context, new, &used),
        around(context, new.guest),
    )
    .await;
    let tasks = tasks?;
    let volumes = volumes?;
    let storages = storages?;
    let brought = brought.clone();
    let reading = MakeReading { number, tasks, volumes, storages, brought, source, around };
    judge_making(new, &reading)?;
    let around = reading.around.hash();
    Ok(MakingMarks { source: SourceNow::of(&reading.source).mark(), around })
}

/// What `started` keeps of the node as it was just before a making.
#[derive(Debug)]
pub(super) struct MakingMarks {
    /// What the guest is made from; none if that cannot be told from another of its name.
    pub(super) source: Option<SourceMark>,
    /// What others have given the number; none if a part of it could not be read.
    pub(super) around: Option<SurroundingsHash>,
}

async fn around(context: &EngineContext, guest: GuestId) -> GuestSurroundings {
    Box::pin(observe_number(&context.client, guest, context.shared.cluster_lists(context))).await
}

/// Refuses the first start of a container that came with raw lines which may open the host to it.
pub(super) async fn check_raw_lines(
    client: &Client,
    declared: &DeclaredGuest,
) -> Result<(), Refusal> {
    if !may_bring_raw_lines(declared) {
        return Ok(());
    }
    let read = client.config(declared.id, ConfigView::Current).await;
    let lines = read.map_err(|error| unread("its raw lines", &error))?.lxc;
    match opened_by_raw_line(lines.iter().map(|(name, _)| name.as_str())) {
        None => Ok(()),
        Some(why) => Err(Refusal::new(ReasonCode::Policy, format!("its first start waits: {why}"))),
    }
}

async fn number(context: &EngineContext, vmid: VmId, called_free: bool) -> NumberUse {
    if called_free { free_by_quorum(context).await } else { number_use(context, vmid).await }
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
    let source = Some(TaskSource::Active);
    let limit = Some(TASKS_LISTED_MAX);
    let filter = TaskFilter { source, limit, ..TaskFilter::default() };
    let listed = context.client.tasks(&filter).await;
    let listed = listed.map_err(|error| unread("the tasks at work", &error))?;
    let may_work = |row: &UnreadRow| {
        let task = unread_task(row);
        task.runs && task.may_concern(vmid)
    };
    if listed.unread.iter().any(may_work) {
        let why = format!("a task runs that cannot be read, perhaps under the number {vmid}");
        return Err(Refusal::new(ReasonCode::Busy, why));
    }
    let works = listed.rows.into_iter().filter(|task| task.exit_status().is_none());
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
    let listed = context.shared.storages(context).await;
    let listed = listed.map_err(|error| {
        if error.is_silent_storage() {
            return Refusal::new(ReasonCode::Storage, error.to_string());
        }
        unread("the storages", &error)
    })?;
    let promised = context.limits.promised_but(new.guest.vmid, listed.asked);
    let reading = |entry: &StorageEntry| {
        let promised = promised.get(&entry.storage).copied().unwrap_or(Bytes(0));
        let active = entry.active;
        let free = entry.free_bytes.map(Bytes);
        (entry.storage.clone(), StorageReading { active, free, promised })
    };
    let listed = listed.told.iter().filter(|entry| used.contains(&entry.storage));
    Ok(listed.map(reading).collect())
}

async fn source(context: &EngineContext, new: &NewGuest) -> SourceReading {
    match &new.source {
        GuestSource::Empty => SourceReading::None,
        GuestSource::Template(volume) => {
            shared_source(context, volume, ContentFilter::Type("vztmpl")).await
        }
        GuestSource::Image { volume, .. } => {
            shared_source(context, volume, ContentFilter::Type("import")).await
        }
        GuestSource::Backup { volume, .. } => {
            // A storage may hold years of backups of every guest: only those of the one that was saved are asked for.
            let filter = VolumeContent::saved_guest(volume)
                .map_or(ContentFilter::Type("backup"), ContentFilter::BackupsOf);
            shared_source(context, volume, filter).await
        }
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
    let Some(storage) = storage_of(volume) else {
        return SourceReading::Unreadable(format!("{volume} names no storage"));
    };
    let read = client.volumes(&storage, &ContentFilter::Type(content)).await;
    among(volume, &storage, read.as_ref())
}

/// The same of a list that the makings of a moment share.
async fn shared_source(
    context: &EngineContext,
    volume: &VolumeId,
    filter: ContentFilter,
) -> SourceReading {
    let Some(storage) = storage_of(volume) else {
        return SourceReading::Unreadable(format!("{volume} names no storage"));
    };
    let read = context.shared.sources(context, &storage, &filter).await;
    among(volume, &storage, read.as_deref())
}

pub(in crate::engine) fn storage_of(volume: &VolumeId) -> Option<StorageName> {
    volume.as_str().split_once(':')?.0.parse().ok()
}

fn among(
    volume: &VolumeId,
    storage: &StorageName,
    read: Result<&ListReading<ListedVolume>, &Error>,
) -> SourceReading {
    match read {
        Ok(volumes) => {
            let found = volumes.rows.iter().find(|entry| entry.volid == volume.as_str());
            // Of a row that cannot be read it is known at best that it is another volume's.
            let may_be = |row: &UnreadRow| row.text("volid").is_none_or(|id| id == volume.as_str());
            if found.is_none() && volumes.unread.iter().any(may_be) {
                let why = format!("{storage} lists a row that cannot be read: it may be {volume}");
                return SourceReading::Unreadable(why);
            }
            let owner = found.and_then(|entry| entry.vmid).map(VmId::get);
            let mark = found.and_then(|entry| mark_of(volume, entry));
            SourceReading::Volume { listed: found.is_some(), owner, mark }
        }
        Err(error) => SourceReading::Unreadable(format!("{storage} cannot be listed: {error}")),
    }
}

/// Which one a listed volume is: another file of the same name has another time or size.
fn mark_of(volume: &VolumeId, entry: &ListedVolume) -> Option<SourceMark> {
    let size_bytes = entry.size_bytes?;
    let made_at = UnixSeconds(entry.made_unix_s?);
    Some(SourceMark::Volume { volume: volume.clone(), size_bytes, made_at })
}
