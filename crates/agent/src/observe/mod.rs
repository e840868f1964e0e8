//! Reads one node into core's snapshot, with what could not be read.
//!
//! Called at the start of every pass and by `evenkeel plan`. It only reads. It never takes an empty or
//! filtered list for absence (invariant 14): what the token may not see is detected by its permissions,
//! by quorum and by asking for single numbers, and said in the snapshot.
//!
//! ```text
//!   version, alone: a wrong token is refused once ──┐
//!   lists of both kinds ────────────────────────────┤
//!   cluster's guests, permissions, quorum, options  ├─> Snapshot
//!   and `pending` of each guest, 3 at a time ───────┘
//! ```
//!
//! A few chosen guests are asked for directly, and nothing else is read while all of them answer. What a pass of the
//! running agent need not read again is kept in `observe/remembering.rs`.

mod coverage;
pub(crate) mod remembering;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use evenkeel_core::actual::{
    ConfigEntry, Elsewhere, Guest, GuestConfig, ListCoverage, Power, Snapshot, SnapshotPoint,
    Unreadable,
};
use evenkeel_core::desired::selection::{Candidate, PassScope};
use evenkeel_core::desired::{DeclaredField, DeclaredGuest, Desired, WantedState};
use evenkeel_core::model::id::{GuestId, GuestKind, VmId};
use evenkeel_core::model::release::Release;
use evenkeel_core::operate::operation::UnixSeconds;
use evenkeel_core::plan::{PlanContext, plan};
use evenkeel_core::registry::ValueFormat;
use evenkeel_core::value::compare::{Cgroup, Conventions};
use futures_util::future::{self, FutureExt as _};
use futures_util::stream::{self, StreamExt};

pub(crate) use coverage::has_quorum;
use coverage::{ask_for, coverage, elsewhere};
use remembering::KnownSite;

use crate::pve::Client;
use crate::pve::error::{Error, Unknown};
use crate::pve::list::{ListReading, UnreadRow};
use crate::pve::site::{ClusterEntry, Permissions, Resource};
use crate::pve::wire::{GuestEntry, NamedEntry, PendingEntry, RunStatus, SnapshotEntry};

/// How many guests are read at a time. A real node has three worker processes: with three requests in
/// flight its throughput peaks, with sixteen it falls and every answer takes eight times as long.
pub const CONCURRENCY: usize = 3;

/// Reads the node. `declared` are the numbers somebody wants to know about: those that are not listed are
/// asked for, because a list that leaves one out proves nothing.
pub async fn observe(
    client: &Client,
    declared: &BTreeSet<VmId>,
    concurrency: usize,
) -> Result<Snapshot, Error> {
    observe_scope(client, declared, &PassScope::Whole, concurrency).await
}

/// The same, but only the configurations of the guests in scope are read; the others are as if they were not there.
pub async fn observe_scope(
    client: &Client,
    declared: &BTreeSet<VmId>,
    scope: &PassScope,
    concurrency: usize,
) -> Result<Snapshot, Error> {
    let release = client.version().await?.release;
    read_node(client, release, declared, scope, concurrency).await
}

/// Guests up to which each is asked for directly, by two requests. The lists and what surrounds them are eight.
pub(crate) const ASKED_DIRECTLY_MAX: usize = 8;

/// Reads what is declared and nothing else: what a plan of chosen guests needs. A few are asked for directly; if one of
/// them does not answer as declared, the lists say why.
pub(crate) async fn observe_chosen(
    client: &Client,
    desired: &Desired,
    known: Option<&KnownSite>,
    concurrency: usize,
) -> Result<Snapshot, Error> {
    let release = match known {
        Some(site) => site.release,
        None => client.version().await?.release,
    };
    let chosen: BTreeSet<VmId> = desired.guests.keys().copied().collect();
    if chosen.len() <= ASKED_DIRECTLY_MAX {
        let asked = desired.guests.values().map(|guest| look_at_guest(client, guest.id).boxed());
        let mut answers = stream::iter(asked).buffer_unordered(concurrency.max(1));
        let mut guests = BTreeMap::new();
        while let Some(Ok(guest)) = answers.next().await {
            guests.insert(guest.id.vmid, guest);
        }
        if guests.len() == chosen.len() {
            let coverage =
                ListCoverage::Partial("only the chosen guests were asked for".to_owned());
            let node = client.node().clone();
            let conventions = known.map_or_else(Conventions::default, |site| site.conventions);
            let elsewhere = BTreeMap::new();
            let hidden = BTreeSet::new();
            let mut snapshot =
                Snapshot { node, release, conventions, guests, elsewhere, hidden, coverage };
            if known.is_none() && depends_on_conventions(desired, &snapshot) {
                snapshot.conventions = self::conventions(client).await.conventions;
            }
            return Ok(snapshot);
        }
    }
    read_node(client, release, &chosen, &PassScope::Chosen(chosen.clone()), concurrency).await
}

/// The node's guests as its lists tell them, for whoever chooses among them.
pub async fn list_guests(client: &Client) -> Result<Vec<Candidate>, Error> {
    let (containers, machines) =
        future::join(client.guest_names(GuestKind::Lxc), client.guest_names(GuestKind::Qemu)).await;
    let listed = [(GuestKind::Lxc, containers?), (GuestKind::Qemu, machines?)];
    let candidate = |kind, entry: NamedEntry| {
        let tags = entry.tags.unwrap_or_default();
        Candidate::listed(GuestId::new(kind, entry.vmid), entry.name, &tags)
    };
    let of_kind =
        |(kind, rows): (_, Vec<_>)| rows.into_iter().map(move |entry| candidate(kind, entry));
    Ok(listed.into_iter().flat_map(of_kind).collect())
}

/// The guests of the node by its lists.
struct ListedGuests {
    entries: Vec<(GuestKind, GuestEntry)>,
    /// Guests whose row says nothing but their number. They are there, and nothing is done to them.
    unread: Vec<Guest>,
    /// Rows that do not even say whose they are. Each is some guest that is there.
    nameless: usize,
}

async fn listed(client: &Client) -> Result<ListedGuests, Error> {
    let (containers, machines) =
        future::join(client.guests(GuestKind::Lxc), client.guests(GuestKind::Qemu)).await;
    let mut listed = ListedGuests { entries: Vec::new(), unread: Vec::new(), nameless: 0 };
    for (kind, list) in [(GuestKind::Lxc, containers?), (GuestKind::Qemu, machines?)] {
        listed.entries.extend(list.rows.into_iter().map(|entry| (kind, entry)));
        for row in &list.unread {
            match row.parsed("vmid") {
                Some(vmid) => listed.unread.push(unread_guest(GuestId::new(kind, vmid))),
                None => listed.nameless += 1,
            }
        }
    }
    Ok(listed)
}

fn unread_guest(id: GuestId) -> Guest {
    let why = "its row in the node's list of guests cannot be read";
    let next = "look at the row: pvesh get /nodes/NODE/lxc (or qemu) --output-format json";
    let config = Err(Unreadable::new(why, next));
    Guest { id, power: Power::Unknown, template: false, ha: None, lock: None, config }
}

async fn read_node(
    client: &Client,
    release: Release,
    declared: &BTreeSet<VmId>,
    scope: &PassScope,
    concurrency: usize,
) -> Result<Snapshot, Error> {
    let ListedGuests { entries, unread, nameless } = listed(client).await?;
    let entries = entries.into_iter().filter(|(_, entry)| scope.has(entry.vmid));
    let mut parts = read_parts(client, entries, WantedParts::ALL, concurrency).await;
    let unread = unread.into_iter().filter(|guest| scope.has(guest.id.vmid));
    parts.guests.extend(unread.map(|guest| (guest.id.vmid, guest)));
    parts.nameless = nameless;
    let told = parts.conventions.as_ref();
    let conventions = told.map_or_else(Conventions::default, |told| told.conventions);
    let found = parts.located(client, declared, concurrency).await;
    Ok(found.snapshot(client, release, conventions))
}

/// What is read side by side once the guests are listed; none of what was not asked for.
#[derive(Default)]
struct Parts {
    guests: BTreeMap<VmId, Guest>,
    /// How many rows of the lists do not say whose they are.
    nameless: usize,
    everywhere: Option<Result<ListReading<Resource>, Error>>,
    permissions: Option<Result<Permissions, Error>>,
    status: Option<Result<ListReading<ClusterEntry>, Error>>,
    conventions: Option<ToldConventions>,
}

/// What surrounds the guests and shall be read.
#[derive(Clone, Copy)]
struct WantedParts {
    /// The guests of the whole cluster.
    everywhere: bool,
    /// What tells whether a guest that is not listed is not there.
    coverage: bool,
    /// What the datacenter does to values.
    conventions: bool,
}

impl WantedParts {
    const ALL: Self = Self { everywhere: true, coverage: true, conventions: true };
}

/// The guests, and where those are that are declared and not among them.
struct Located {
    guests: BTreeMap<VmId, Guest>,
    elsewhere: BTreeMap<VmId, Elsewhere>,
    hidden: BTreeSet<VmId>,
    coverage: ListCoverage,
}

impl Located {
    fn snapshot(self, client: &Client, release: Release, conventions: Conventions) -> Snapshot {
        let Self { guests, elsewhere, hidden, coverage } = self;
        let node = client.node().clone();
        Snapshot { node, release, conventions, guests, elsewhere, hidden, coverage }
    }
}

impl Parts {
    /// Finds out about the declared guests that are not listed. What was not asked for is not known.
    async fn located(
        self,
        client: &Client,
        declared: &BTreeSet<VmId>,
        concurrency: usize,
    ) -> Located {
        let Self { mut guests, nameless, everywhere, permissions, status, .. } = self;
        let unlisted = everywhere.as_ref().and_then(|listed| listed.as_ref().err());
        let coverage = match (permissions, status) {
            _ if nameless > 0 => ListCoverage::Partial(
                "a row of the node's list of guests cannot be read".to_owned(),
            ),
            (Some(permissions), Some(status)) => coverage(unlisted, permissions, status),
            (None, _) | (_, None) => {
                ListCoverage::Partial("nobody asked whether others are there".to_owned())
            }
        };
        let everywhere = everywhere.and_then(Result::ok);
        if let Some(everywhere) = &everywhere {
            manage(&mut guests, &ha_states(everywhere));
        }
        let elsewhere =
            everywhere.map_or_else(BTreeMap::new, |listed| elsewhere(client, &listed.rows));
        let unlisted = declared
            .iter()
            .filter(|vmid| !guests.contains_key(vmid) && !elsewhere.contains_key(vmid));
        let (hidden, coverage) = ask_for(client, unlisted, coverage, concurrency).await;
        Located { guests, elsewhere, hidden, coverage }
    }
}

/// Whether HA manages them is known once the whole cluster has been listed.
fn manage(guests: &mut BTreeMap<VmId, Guest>, states: &BTreeMap<VmId, String>) {
    for (vmid, state) in states {
        if let Some(guest) = guests.get_mut(vmid) {
            guest.ha = Some(state.clone());
        }
    }
}

/// Reads the guests and what surrounds them, never more than `concurrency` at a time.
async fn read_parts(
    client: &Client,
    listed: impl Iterator<Item = (GuestKind, GuestEntry)> + Send,
    wanted: WantedParts,
    concurrency: usize,
) -> Parts {
    enum ObservedPart {
        Guest(Guest),
        Everywhere(Result<ListReading<Resource>, Error>),
        Permissions(Result<Permissions, Error>),
        Status(Result<ListReading<ClusterEntry>, Error>),
        Conventions(ToldConventions),
    }
    let mut surroundings = Vec::new();
    if wanted.everywhere {
        surroundings.push(client.cluster_guests().map(ObservedPart::Everywhere).boxed());
    }
    if wanted.coverage {
        surroundings.push(client.permissions().map(ObservedPart::Permissions).boxed());
        surroundings.push(client.cluster_status().map(ObservedPart::Status).boxed());
    }
    if wanted.conventions {
        surroundings.push(conventions(client).map(ObservedPart::Conventions).boxed());
    }
    let guests = listed
        .map(|(kind, entry)| read_guest(client, kind, entry).map(ObservedPart::Guest).boxed());
    let mut read =
        stream::iter(surroundings.into_iter().chain(guests)).buffer_unordered(concurrency.max(1));
    let mut parts = Parts::default();
    while let Some(part) = read.next().await {
        match part {
            ObservedPart::Guest(guest) => {
                parts.guests.insert(guest.id.vmid, guest);
            }
            ObservedPart::Everywhere(everywhere) => parts.everywhere = Some(everywhere),
            ObservedPart::Permissions(permissions) => parts.permissions = Some(permissions),
            ObservedPart::Status(status) => parts.status = Some(status),
            ObservedPart::Conventions(conventions) => parts.conventions = Some(conventions),
        }
    }
    parts
}

/// Whether what the datacenter does to values could change this plan, or the writes that follow from it.
fn depends_on_conventions(desired: &Desired, snapshot: &Snapshot) -> bool {
    let nothing = PlanContext::default();
    let planned = plan(desired, snapshot, &nothing);
    let another = |tags_have_case: bool, cgroup: Cgroup| {
        let conventions = Conventions { tags_have_case, cgroup };
        plan(desired, &Snapshot { conventions, ..snapshot.clone() }, &nothing) != planned
    };
    let has_some = || desired.guests.values().any(obeys_conventions);
    another(true, Cgroup::V1)
        || another(true, Cgroup::V2)
        || another(false, Cgroup::V1)
        || (planned.actions().next().is_some() && has_some())
}

/// Whether a guest declares a key whose values the datacenter or the kernel has a say in.
fn obeys_conventions(guest: &DeclaredGuest) -> bool {
    let spec = match &guest.state {
        WantedState::Present(spec) => spec,
        // It is tagged.
        WantedState::Bin(_) => return true,
        WantedState::Absent { .. } => return false,
    };
    let format = |field: &DeclaredField| &field.key.key().format;
    spec.fields
        .iter()
        .any(|field| matches!(format(field), ValueFormat::Tags | ValueFormat::Weight { .. }))
}

async fn read_guest(client: &Client, kind: GuestKind, entry: GuestEntry) -> Guest {
    let id = GuestId::new(kind, entry.vmid);
    let config = match client.pending(id).await {
        Ok(entries) => Ok(read_config(kind, entries)),
        Err(error) => Err(Unreadable::new(error.to_string(), error.hint())),
    };
    guest(id, &entry, config, None)
}

/// One guest, read anew: what a lane looks at directly before it acts.
pub async fn observe_guest(client: &Client, id: GuestId) -> Result<Guest, Error> {
    let status = client.guest_status(id).await?;
    let entries = client.pending(id).await?;
    Ok(seen(id, &status, entries))
}

/// The same at one go, for a look that decides nothing yet.
async fn look_at_guest(client: &Client, id: GuestId) -> Result<Guest, Error> {
    let (status, entries) = future::try_join(client.guest_status(id), client.pending(id)).await?;
    Ok(seen(id, &status, entries))
}

fn seen(id: GuestId, status: &GuestEntry, entries: Vec<PendingEntry>) -> Guest {
    let config = read_config(id.kind, entries);
    let managed = status.ha.as_ref().filter(|ha| ha.managed);
    let ha = managed.map(|ha| ha.state.clone().unwrap_or_else(|| "managed".to_owned()));
    guest(id, status, Ok(config), ha)
}

/// Reads the guests of the node that are not in a snapshot yet: what a plan must know that attaches a volume.
pub(crate) async fn read_others(
    client: &Client,
    snapshot: &mut Snapshot,
    concurrency: usize,
) -> Result<(), Error> {
    let ListedGuests { entries, unread, nameless } = listed(client).await?;
    if nameless > 0 {
        // What hangs on a guest that cannot be named may be the very volume.
        let detail = "a row of the list does not say whose it is".to_owned();
        let call = format!("GET /nodes/{}/lxc and /qemu", client.node());
        return Err(Error::Unknown { call, why: Unknown::Unreadable { status: 200, detail } });
    }
    let is_new = |vmid: &VmId| !snapshot.guests.contains_key(vmid);
    let unread: Vec<_> = unread.into_iter().filter(|guest| is_new(&guest.id.vmid)).collect();
    let others: Vec<_> = entries.into_iter().filter(|(_, entry)| is_new(&entry.vmid)).collect();
    let nothing = WantedParts { everywhere: false, coverage: false, conventions: false };
    let parts = read_parts(client, others.into_iter(), nothing, concurrency).await;
    snapshot.guests.extend(parts.guests);
    snapshot.guests.extend(unread.into_iter().map(|guest| (guest.id.vmid, guest)));
    Ok(())
}

/// A guest's snapshots, and the present among them.
pub(crate) async fn observe_snapshots(
    client: &Client,
    id: GuestId,
) -> Result<Vec<SnapshotPoint>, Error> {
    Ok(client.snapshots(id).await?.into_iter().map(point).collect())
}

/// The snapshots of a guest but those that were cut off while they were taken or removed.
pub(crate) async fn observe_whole_snapshots(
    client: &Client,
    id: GuestId,
) -> Result<Vec<SnapshotPoint>, Error> {
    let listed = client.snapshots(id).await?.into_iter();
    Ok(listed.filter(|entry| entry.snapstate.is_none()).map(point).collect())
}

fn point(entry: SnapshotEntry) -> SnapshotPoint {
    SnapshotPoint {
        name: entry.name,
        taken_at: entry.taken_unix_s.map(UnixSeconds),
        parent: entry.parent,
        with_memory: entry.vmstate,
    }
}

fn guest(
    id: GuestId,
    entry: &GuestEntry,
    config: Result<Arc<GuestConfig>, Unreadable>,
    ha: Option<String>,
) -> Guest {
    Guest {
        id,
        power: power(entry),
        template: entry.template,
        ha,
        lock: entry.lock.clone(),
        config,
    }
}

fn read_config(kind: GuestKind, entries: Vec<PendingEntry>) -> Arc<GuestConfig> {
    GuestConfig::from_pending(kind, entries.into_iter().map(to_entry)).into()
}

fn to_entry(entry: PendingEntry) -> ConfigEntry {
    let PendingEntry { key, value, pending, delete } = entry;
    ConfigEntry { key, value, pending, delete: delete.unwrap_or(0) }
}

fn power(entry: &GuestEntry) -> Power {
    match (&entry.status, entry.qmpstatus.as_deref()) {
        (RunStatus::Running, Some("paused" | "prelaunch" | "suspended")) => Power::Paused,
        (RunStatus::Running, _) => Power::Running,
        (RunStatus::Stopped, _) => Power::Stopped,
        (RunStatus::Other(_), _) => Power::Unknown,
    }
}

/// Whose row cannot be read may be managed.
fn ha_states(everywhere: &ListReading<Resource>) -> BTreeMap<VmId, String> {
    let state = |resource: &Resource| Some((resource.vmid?, resource.hastate.clone()?));
    let unread = |row: &UnreadRow| Some((row.parsed("vmid")?, "not readable".to_owned()));
    let unread = everywhere.unread.iter().filter_map(unread);
    everywhere.rows.iter().filter_map(state).chain(unread).collect()
}

/// What the datacenter does to values, as far as it was told.
struct ToldConventions {
    conventions: Conventions,
    /// Whether every question was answered.
    is_whole: bool,
}

/// What the datacenter does to values; without the right to know, PVE's defaults.
async fn conventions(client: &Client) -> ToldConventions {
    let options = client.cluster_options().await;
    let nodes = client.cluster_nodes().await;
    let is_whole = options.is_ok() && nodes.as_ref().is_ok_and(|nodes| nodes.unread.is_empty());
    let options = options.unwrap_or_default();
    let style = options.get("tag-style").map(String::as_str).unwrap_or_default();
    // Either the property string itself or the JSON object newer releases answer with.
    let tags_have_case = ["case-sensitive=1", "\"case-sensitive\":1", "\"case-sensitive\":\"1\""]
        .iter()
        .any(|set| style.contains(set));
    let nodes = nodes.map(|nodes| nodes.rows).unwrap_or_default();
    let this = nodes.iter().find(|resource| resource.node.as_ref() == Some(client.node()));
    let cgroup = match this.and_then(|node| node.cgroup_mode) {
        Some(1) => Cgroup::V1,
        Some(_) | None => Cgroup::V2,
    };
    ToldConventions { conventions: Conventions { tags_have_case, cgroup }, is_whole }
}
