//! What a hub may have made on this host, as it is known now: root's limits, and what of them is used.
//!
//! A pass counts what the configurations it read anyway tell; what the sources of guests that are not there hold, `findings`
//! tells it. A lane
//! counts what the storages list, and keeps others from counting until its own `started` is durable: two guests must not both
//! get the last room. Core judges both times. It must never take a storage that cannot be listed for an empty one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use evenkeel_core::actual::{Guest, Snapshot};
use evenkeel_core::desired::{DeclaredGuest, Desired, GuestSource, WantedState};
use evenkeel_core::gate::create_policy::{
    CreateContext, CreatePolicy, CreateUsage, GuestVolumes, hub_volumes, larger, sizes_in,
};
use evenkeel_core::gate::final_backup::saved_config;
use evenkeel_core::gate::new_guest::{SourceContent, SourceReading, wants_source};
use evenkeel_core::model::id::{GuestId, GuestKind, VmId};
use evenkeel_core::model::quantity::Bytes;
use evenkeel_core::model::reason::{ReasonCode, Refusal};
use evenkeel_core::operate::operation::{
    HubMakings, HubShare, Ledger, SourceMark, StorageName, UnixSeconds,
};
use evenkeel_core::plan::taken_for_hub;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use crate::engine::EngineContext;
use crate::engine::error::Fatal;
use crate::engine::gate::make::{listed, observed_source, storage_of};
use crate::engine::gate::{NotCleared, PlannedOrder};
use crate::journal::seconds;
use crate::pve::list::UnreadRow;
use crate::pve::{Client, ContentFilter};

/// What a pass knows of root's limits before any lane looks.
pub(crate) fn early(
    policy: Option<&CreatePolicy>,
    known: &HubKnown,
    desired: &Desired,
    actual: &Snapshot,
    now: UnixSeconds,
) -> CreateContext {
    let HubKnown { makings, promised } = known;
    let volumes = hub_volumes(desired, actual, makings);
    let usage = CreateUsage::of(&volumes, promised, makings.made_in_last_day(now));
    CreateContext { policy: policy.cloned(), usage }
}

/// What the journal knows of a hub's acts.
pub(crate) struct HubKnown {
    /// Those that were begun.
    pub(crate) makings: HubMakings,
    /// What those under way will take.
    promised: GuestVolumes,
}

impl HubKnown {
    /// By what a journal adds up to.
    pub(crate) fn of(ledger: &Ledger) -> Self {
        Self { makings: ledger.hub().clone(), promised: ledger.promised_to_hub() }
    }

    /// By the journal now.
    pub(in crate::engine) async fn read(context: &EngineContext) -> Result<Self, Fatal> {
        let known = context.journal.read(|state, _| Self::of(state.ledger()));
        known.await.map_err(Fatal::Journal)
    }
}

/// The node's time by its last answer; the beginning of time, by which everything counts, if it never answered.
pub(crate) fn node_time(client: &Client) -> UnixSeconds {
    client.node_clock().map_or(UnixSeconds(0), |clock| seconds(clock.at(Instant::now())))
}

/// A source that must be looked into before a declared guest that is not there is planned.
pub(in crate::engine) struct WantedSource<'d> {
    pub(in crate::engine) guest: VmId,
    pub(in crate::engine) kind: GuestKind,
    pub(in crate::engine) source: &'d GuestSource,
    /// Whether the pass itself has read it.
    pub(in crate::engine) reading: KnownSource,
}

/// What a pass knows of a source by what it read anyway.
pub(in crate::engine) enum KnownSource {
    /// Nothing: somebody must look.
    Unread,
    /// The guest that is copied, or that it is none to copy.
    Read(Option<SourceContent>),
}

/// The sources that a plan depends on.
pub(in crate::engine) fn wanted_sources<'d>(
    policy: Option<&CreatePolicy>,
    desired: &'d Desired,
    actual: &Snapshot,
) -> Vec<WantedSource<'d>> {
    let mut wanted = Vec::new();
    for guest in desired.guests.values() {
        let GuestId { kind, vmid } = guest.id;
        // Without limits a hub has nothing made, whatever its source holds.
        let is_idle = guest.by.is_hub() && policy.is_none();
        if is_idle || !wants_source(guest) || actual.guests.contains_key(&vmid) {
            continue;
        }
        let Some(source) = source_of(guest) else { continue };
        let reading = match source {
            GuestSource::Clone(from) if is_read(actual, guest.id, from.guest) => {
                KnownSource::Read(content_in(actual, from.guest))
            }
            GuestSource::Empty
            | GuestSource::Template(_)
            | GuestSource::Image { .. }
            | GuestSource::Clone(_)
            | GuestSource::Backup { .. } => KnownSource::Unread,
        };
        wanted.push(WantedSource { guest: vmid, kind, source, reading });
    }
    wanted
}

fn is_read(actual: &Snapshot, new: GuestId, source: VmId) -> bool {
    let there = actual.guests.get(&source).filter(|there| there.id.kind == new.kind);
    there.is_some_and(|there| there.config.is_ok())
}

fn content_in(actual: &Snapshot, source: VmId) -> Option<SourceContent> {
    let config = actual.guests.get(&source)?.config.as_ref().ok()?;
    Some(SourceContent::Guest(Arc::clone(config)))
}

fn source_of(guest: &DeclaredGuest) -> Option<&GuestSource> {
    match &guest.state {
        WantedState::Present(spec) => spec.source.as_ref(),
        WantedState::Bin(_) | WantedState::Absent { .. } => None,
    }
}

/// The storage that a source is on; none for a guest that is copied.
pub(in crate::engine) fn storage_of_source(source: &GuestSource) -> Option<StorageName> {
    match source {
        GuestSource::Template(volume)
        | GuestSource::Image { volume, .. }
        | GuestSource::Backup { volume, .. } => storage_of(volume),
        GuestSource::Empty | GuestSource::Clone(_) => None,
    }
}

/// What is in a source now; none if it cannot be read, refused if its storage does not answer.
pub(in crate::engine) async fn source_content(
    client: &Client,
    kind: GuestKind,
    source: &GuestSource,
) -> Result<Option<SourceContent>, Refusal> {
    let content = match source {
        GuestSource::Empty | GuestSource::Template(_) => None,
        GuestSource::Image { volume, .. } => match listed(client, volume, "import").await {
            SourceReading::Volume { mark: Some(SourceMark::Volume { size_bytes, .. }), .. } => {
                Some(SourceContent::Image(Bytes(size_bytes)))
            }
            SourceReading::Volume { .. }
            | SourceReading::None
            | SourceReading::Guest(_)
            | SourceReading::Unreadable(_) => None,
        },
        GuestSource::Clone(from) => {
            let id = GuestId { kind, vmid: from.guest };
            match observed_source(client, id).await {
                SourceReading::Guest(Some(source)) => source.config.ok().map(SourceContent::Guest),
                SourceReading::Guest(None)
                | SourceReading::None
                | SourceReading::Volume { .. }
                | SourceReading::Unreadable(_) => None,
            }
        }
        GuestSource::Backup { volume, .. } => {
            let text = client.backup_config(volume).await.ok();
            text.map(|text| SourceContent::Guest(saved_config(kind, &text).into()))
        }
    };
    let silence = storage_of_source(source).and_then(|storage| client.silence_of(&storage));
    match (content, silence) {
        (None, Some(silence)) => Err(silence),
        (content, _) => Ok(content),
    }
}

/// What a lane knows of root's limits directly before its act.
pub(in crate::engine) struct LaneBounds {
    /// What the judge is asked with.
    pub(in crate::engine) create: CreateContext,
    /// What is in the source of a guest that is to be made.
    pub(in crate::engine) source: Option<SourceContent>,
    /// What the guest takes once the act is done, if a hub declares it and it takes anything.
    pub(in crate::engine) share: Option<HubShare>,
    /// Who holds it counts; held until the act is in the journal.
    pub(in crate::engine) counting: Option<OwnedMutexGuard<()>>,
}

/// Looks at what is used now. From then on nobody else does until the answer's lock is dropped.
pub(in crate::engine) async fn in_lane(
    context: &EngineContext,
    order: &PlannedOrder,
    found: Option<&Guest>,
) -> Result<LaneBounds, NotCleared> {
    let policy = context.create_policy().cloned();
    let declared = &*order.desired;
    let is_backup = matches!(source_of(declared), Some(GuestSource::Backup { .. }));
    let wanted = found.is_none() && (is_backup || wants_source(declared));
    let source = match source_of(declared).filter(|_| wanted) {
        Some(source) => {
            let content = source_content(&context.client, declared.id.kind, source).await;
            content.map_err(NotCleared::Held)?
        }
        None => None,
    };
    let create = CreateContext { policy, usage: CreateUsage::default() };
    let taken = taken_for_hub(&order.action, declared, found, source.as_ref());
    let (Some(taken), Some(limits)) = (taken, &create.policy) else {
        return Ok(LaneBounds { create, source, share: None, counting: None });
    };
    let counting = Arc::clone(&context.limits.counting).lock_owned().await;
    let own = declared.id.vmid;
    let HubKnown { makings, promised } = HubKnown::read(context).await?;
    let mut seen = context.limits.hub_volumes();
    for guest in makings.guests().iter().chain([&own]) {
        seen.entry(*guest).or_default();
    }
    let storages = taken.keys().filter(|storage| limits.storages.contains_key(*storage));
    let counted = seen.keys().copied().collect();
    let there = listed_volumes(&context.client, storages, &counted).await?;
    let volumes = larger(&seen, &there);
    let usage = CreateUsage::of(&volumes, &promised, makings.made_in_last_day(context.node_now()));
    let mut share = CreateUsage::default();
    share.take(volumes.get(&own).unwrap_or(&BTreeMap::new()));
    share.take(&taken);
    Ok(LaneBounds {
        create: CreateContext { usage, ..create },
        source,
        share: Some(HubShare::of(&share.bytes)),
        counting: Some(counting),
    })
}

/// What these guests' volumes take of storages, as the storages list them: detached ones and forgotten ones too.
async fn listed_volumes<'s>(
    client: &Client,
    storages: impl Iterator<Item = &'s StorageName>,
    guests: &BTreeSet<VmId>,
) -> Result<GuestVolumes, NotCleared> {
    let mut sizes = GuestVolumes::new();
    for storage in storages {
        let unread = |why: String| {
            let why = format!("how much of {storage} a hub's guests use cannot be read: {why}");
            NotCleared::Held(Refusal::new(ReasonCode::Storage, why))
        };
        let listed = client.volumes(storage, &ContentFilter::All).await;
        let listed = listed.map_err(|error| unread(error.to_string()))?;
        let is_other =
            |row: &UnreadRow| row.parsed("vmid").is_some_and(|owner| !guests.contains(&owner));
        if !listed.unread.iter().all(is_other) {
            return Err(unread("a row of its list cannot be read".to_owned()));
        }
        for volume in
            listed.rows.into_iter().filter(|volume| volume.content.as_deref() != Some("backup"))
        {
            let Some(guest) = volume.vmid.filter(|guest| guests.contains(guest)) else { continue };
            let Some(size) = volume.size_bytes else {
                return Err(unread(format!("{} has no size", volume.volid)));
            };
            let sum = sizes.entry(guest).or_default().entry(storage.clone()).or_insert(Bytes(0));
            sum.0 = sum.0.saturating_add(size);
        }
    }
    Ok(sizes)
}

/// What a hub may have made of a guest that was just made, by its configuration and what the last pass saw.
pub(in crate::engine) async fn following(
    context: &EngineContext,
    declared: &DeclaredGuest,
    guest: &Guest,
) -> Result<CreateContext, Fatal> {
    let policy = context.create_policy().cloned();
    if !declared.by.is_hub() {
        return Ok(CreateContext { policy, usage: CreateUsage::default() });
    }
    let HubKnown { makings, promised } = HubKnown::read(context).await?;
    let own =
        [(declared.id.vmid, guest.config.as_deref().map(sizes_in).unwrap_or_default())].into();
    let volumes = larger(&context.limits.hub_volumes(), &own);
    let usage = CreateUsage::of(&volumes, &promised, makings.made_in_last_day(context.node_now()));
    Ok(CreateContext { policy, usage })
}
