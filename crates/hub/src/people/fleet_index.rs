//! Every host in a few words, in memory, so that a list of thousands is answered without reading thousands of rows.
//!
//! It holds nothing that the store does not: it is filled from the store when it is first asked, and then only rows that
//! changed are read again. What this process committed is always in it; what other replicas did after a quarter of a second
//! at most. Nothing is decided by it: whoever opens a host reads the store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_core::fleet::{AgentState, RefusedGeneration};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::sync::broadcast::{self, error::TryRecvError};

use super::fleet_tally::{CountedFleet, FleetList, FleetTally, GuestSums};
use super::wire::{HostBody, HostStanding};
use crate::access::Person;
use crate::problem::Problem;
use crate::routes::Hub;
use crate::store::{
    DatabaseKind, HOSTS_MAX, HostRow, HostStateRow, HubTime, NumberedChange, StoreChange,
};

/// A host that was not heard of for so long is silent: three long polls in a row, and the pause in which signs of life are
/// gathered.
pub(super) const SILENT_AFTER_MS: i64 = 180_000;
/// How long what other processes wrote may be overlooked.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How far a look goes back beyond the one before: longer than a transaction takes.
const LOOK_BACK_MS: i64 = 10_000;
/// How often signs of life that other replicas heard are read: as often as they write them.
const HEARD_EVERY: Duration = Duration::from_secs(10);
/// How often signs of life that this process heard are taken in: they are shown in seconds.
const HEAR_EVERY: Duration = Duration::from_secs(1);
/// More changed rows than this are read faster all at once.
const ONE_BY_ONE_MAX: usize = 64;

/// One host in a few words.
#[derive(Debug, Clone)]
pub(crate) struct FleetHost {
    pub(crate) row: HostRow,
    pub(crate) in_effect: u64,
    pub(crate) refused: u64,
    pub(crate) counts: BTreeMap<String, u64>,
    /// The same as numbers: a page of a fleet looks at them for every host.
    pub(crate) sums: GuestSums,
    pub(crate) pending: u64,
    pub(crate) frozen: bool,
    /// What a search looks in: id and labels, in small letters.
    haystack: String,
}

impl FleetHost {
    /// What rows say of a host.
    pub(crate) fn new(row: HostRow, state: &HostStateRow, pending: i64) -> Self {
        let generation: Value = serde_json::from_str(&state.generation).unwrap_or_default();
        let refused: Option<RefusedGeneration> = serde_json::from_str(&state.refused).ok();
        let agent: AgentState = serde_json::from_str(&state.agent).unwrap_or_default();
        let mut counts: BTreeMap<String, u64> =
            serde_json::from_str(&state.counts).unwrap_or_default();
        // Told beside the guests, not among them.
        counts.remove("pending");
        let labels = row.labels.iter().map(|(name, value)| format!(" {name}={value}"));
        let haystack = format!("{}{}", row.id, labels.collect::<String>()).to_lowercase();
        Self {
            in_effect: generation.get("number").and_then(Value::as_u64).unwrap_or_default(),
            refused: refused.map_or(0, |refused| refused.generation.0),
            sums: GuestSums::of(&counts),
            counts,
            pending: pending.unsigned_abs(),
            frozen: agent.frozen.is_some(),
            haystack,
            row,
        }
    }

    /// How it stands at a moment.
    pub(crate) fn standing(&self, now: HubTime) -> HostStanding {
        let wanted = self.row.wanted.unsigned_abs();
        if now.0 - self.row.last_seen.0 > SILENT_AFTER_MS {
            HostStanding::Silent
        } else if self.refused > 0 && self.refused == wanted {
            HostStanding::Refused
        } else if self.in_effect != wanted {
            HostStanding::Behind
        } else if self.sums.failed + self.sums.unreadable > 0 {
            HostStanding::Failing
        } else if self.sums.drifted + self.sums.held + self.sums.busy > 0 {
            HostStanding::Drifted
        } else {
            HostStanding::InSync
        }
    }

    /// As it is told to programs.
    pub(crate) fn body(&self, now: HubTime) -> HostBody {
        HostBody {
            standing: self.standing(now),
            host: self.row.id.clone(),
            labels: self.row.labels.clone(),
            wanted: self.row.wanted.unsigned_abs(),
            in_effect: self.in_effect,
            counts: self.counts.clone(),
            pending: self.pending,
            last_seen: self.row.last_seen.to_text(),
            enrolled_at: self.row.enrolled_at.to_text(),
            key: self.row.key_fingerprint.clone(),
        }
    }

    /// Whether a text in small letters is in its id or labels.
    pub(crate) fn mentions(&self, text: &str) -> bool {
        self.haystack.contains(text)
    }
}

/// The hosts that somebody sees, at a moment.
#[derive(Debug, Clone)]
pub(crate) struct SeenFleet {
    pub(crate) hosts: FleetList,
    /// What is counted of them.
    pub(crate) tally: FleetTally,
    pub(crate) now: HubTime,
}

/// The index.
#[derive(Default)]
pub(crate) struct FleetIndex {
    filled: Mutex<Option<FilledIndex>>,
}

struct FilledIndex {
    fleet: CountedFleet,
    changes: broadcast::Receiver<NumberedChange>,
    looked_at: Instant,
    heard_at: Instant,
    listened_at: Instant,
}

impl std::fmt::Debug for FleetIndex {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("FleetIndex").finish_non_exhaustive()
    }
}

impl FleetIndex {
    /// Every host as it stands now.
    async fn whole(&self, hub: &Hub) -> Result<SeenFleet, Problem> {
        let mut filled = self.filled.lock().await;
        // Taken out meanwhile: whoever fails or goes away in the middle has heard of changes and read none of them. The next
        // one fills it anew.
        let known = match filled.take() {
            Some(index) => index.up_to_date(hub).await?,
            None => None,
        };
        let index = match known {
            Some(index) => index,
            None => FilledIndex::fill(hub).await?,
        };
        let FilledIndex { fleet, listened_at, .. } = filled.insert(index);
        if listened_at.elapsed() >= HEAR_EVERY {
            *listened_at = Instant::now();
            for (id, at) in hub.store().newly_heard() {
                fleet.hear(&id, at);
            }
        }
        // Taken under the lock: for a moment before the last one everything would be counted anew.
        let now = HubTime::now();
        Ok(SeenFleet { tally: fleet.tally(now), hosts: fleet.hosts().clone(), now })
    }

    /// Every host in a person's scope.
    pub(crate) async fn seen_by(&self, hub: &Hub, person: &Person) -> Result<SeenFleet, Problem> {
        let whole = self.whole(hub).await?;
        if person.account.scope == "*" {
            return Ok(whole);
        }
        let hosts = whole.hosts.iter().filter(|host| person.sees(&host.row.id)).cloned();
        let hosts: FleetList = Arc::new(hosts.collect());
        let tally = FleetTally::of(hosts.iter().map(|host| &**host), whole.now);
        Ok(SeenFleet { hosts, tally, now: whole.now })
    }
}

impl FilledIndex {
    async fn fill(hub: &Hub) -> Result<Self, Problem> {
        // Whoever writes while this is read is heard of here and read again.
        let changes = hub.store().changes().subscribe();
        let rows = hub.store().hosts_after("", HOSTS_MAX).await?;
        let mut states = hub.store().host_states().await?;
        let pending = hub.store().pending_counts().await?;
        let host = |row: HostRow| {
            let state = states.remove(&row.id).unwrap_or_default();
            let waits = pending.get(&row.id).copied().unwrap_or_default();
            FleetHost::new(lately_heard(hub, row), &state, waits)
        };
        let fleet = CountedFleet::new(rows.into_iter().map(host), HubTime::now());
        let now = Instant::now();
        Ok(Self { fleet, changes, looked_at: now, heard_at: now, listened_at: now })
    }

    /// The same with what changed since; none if everything is to be read again.
    async fn up_to_date(mut self, hub: &Hub) -> Result<Option<Self>, Problem> {
        let Some(hosts) = self.news(hub).await? else { return Ok(None) };
        self.read_again(hub, hosts).await?;
        Ok(Some(self))
    }

    /// Which hosts are to be read again; none for all.
    async fn news(&mut self, hub: &Hub) -> Result<Option<BTreeSet<String>>, Problem> {
        let mut hosts = BTreeSet::new();
        loop {
            match self.changes.try_recv() {
                Ok(NumberedChange { change, .. }) => match change {
                    StoreChange::Host(host)
                    | StoreChange::Report(host)
                    | StoreChange::Pending(host)
                    | StoreChange::Document(host)
                    | StoreChange::Elsewhere(host) => {
                        hosts.insert(host);
                    }
                    StoreChange::Audit => {}
                },
                Err(TryRecvError::Lagged(_)) => return Ok(None),
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        let since = self.looked_at.elapsed();
        if since >= LOOK_EVERY {
            self.looked_at = Instant::now();
            let since_ms = i64::try_from(since.as_millis()).unwrap_or(i64::MAX / 2);
            let changed = hub.store().hosts_changed_within(since_ms + LOOK_BACK_MS).await?;
            let is_known = |id: &str, version| {
                self.fleet.get(id).is_some_and(|known| known.row.version == version)
            };
            let new = changed.into_iter().filter(|host| !is_known(&host.id, host.version));
            hosts.extend(new.map(|host| host.id));
            let count = usize::try_from(hub.store().host_count().await?).unwrap_or(usize::MAX);
            let unknown = hosts.iter().filter(|host| self.fleet.get(host).is_none()).count();
            // A host that is gone leaves no row that changed.
            if count != self.fleet.hosts().len() + unknown {
                return Ok(None);
            }
        }
        let is_other_replicas = hub.store().database().kind() == DatabaseKind::Postgres;
        if is_other_replicas && self.heard_at.elapsed() >= HEARD_EVERY {
            return Ok(None);
        }
        Ok((hosts.len() <= ONE_BY_ONE_MAX).then_some(hosts))
    }

    /// Reads hosts again.
    async fn read_again(&mut self, hub: &Hub, hosts: BTreeSet<String>) -> Result<(), Problem> {
        for id in hosts {
            let Some(row) = hub.store().host(&id).await? else {
                self.fleet.remove(&id);
                hub.store().forget_heard(&id);
                continue;
            };
            let state = hub.store().host_state(&id).await?;
            let waits = hub.store().pending_count_of(&id).await?;
            self.fleet.put(FleetHost::new(lately_heard(hub, row), &state, waits));
        }
        Ok(())
    }
}

/// A row with the sign of life that this process heard and has not written yet.
fn lately_heard(hub: &Hub, mut row: HostRow) -> HostRow {
    if let Some(at) = hub.store().ever_heard(&row.id) {
        row.last_seen = row.last_seen.max(at);
    }
    row
}
