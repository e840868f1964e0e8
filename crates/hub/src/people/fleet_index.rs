//! Every host in a few words, in memory, so that a list of thousands is answered without reading thousands of rows.
//!
//! It holds nothing that the store does not: it is filled from the store when it is first asked, and then only rows that
//! changed are read again. What this process committed is always in it; what other replicas did after a quarter of a second
//! at most. Nothing is decided by it: whoever opens a host reads the store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex as PlainMutex, PoisonError};
use std::time::{Duration, Instant};

use evenkeel_core::fleet::{AgentState, RefusedGeneration};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::sync::broadcast::{self, error::TryRecvError};

use super::wire::{HostBody, HostStanding};
use crate::access::Person;
use crate::problem::Problem;
use crate::routes::Hub;
use crate::store::{
    DatabaseKind, HOSTS_MAX, HostRow, HostStateRow, HubTime, NumberedChange, StoreChange,
};

/// A host that was not heard of for so long is silent: three long polls in a row, and the pause in which signs of life are
/// gathered.
const SILENT_AFTER_MS: i64 = 180_000;
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

/// How many guests are in which state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct GuestSums {
    as_declared: u64,
    drifted: u64,
    pub(crate) held: u64,
    busy: u64,
    failed: u64,
    unreadable: u64,
}

impl GuestSums {
    fn of(counts: &BTreeMap<String, u64>) -> Self {
        let count = |state: &str| counts.get(state).copied().unwrap_or_default();
        Self {
            as_declared: count("as_declared"),
            drifted: count("drifted"),
            held: count("held"),
            busy: count("busy"),
            failed: count("failed"),
            unreadable: count("unreadable"),
        }
    }

    /// Both together.
    #[must_use]
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            as_declared: self.as_declared + other.as_declared,
            drifted: self.drifted + other.drifted,
            held: self.held + other.held,
            busy: self.busy + other.busy,
            failed: self.failed + other.failed,
            unreadable: self.unreadable + other.unreadable,
        }
    }

    /// Each state by the name that hosts have for it.
    pub(crate) fn each(self) -> [(&'static str, u64); 6] {
        let Self { as_declared, drifted, held, busy, failed, unreadable } = self;
        [
            ("as_declared", as_declared),
            ("drifted", drifted),
            ("held", held),
            ("busy", busy),
            ("failed", failed),
            ("unreadable", unreadable),
        ]
    }
}

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

/// Every host, by id. Cheap to clone.
pub(crate) type FleetList = Arc<Vec<Arc<FleetHost>>>;

/// The index.
#[derive(Default)]
pub(crate) struct FleetIndex {
    filled: Mutex<Option<FilledIndex>>,
    /// What was listed last, for who finds the index being filled and asks for nothing newer.
    list: PlainMutex<FleetList>,
}

struct FilledIndex {
    hosts: BTreeMap<String, Arc<FleetHost>>,
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
    pub(crate) async fn list(&self, hub: &Hub) -> Result<FleetList, Problem> {
        let mut filled = self.filled.lock().await;
        let news = match filled.as_mut() {
            None => None,
            Some(index) => index.news(hub).await?,
        };
        let changed = if let (Some(index), Some(hosts)) = (filled.as_mut(), news) {
            index.read_again(hub, hosts).await?
        } else {
            *filled = Some(FilledIndex::fill(hub).await?);
            true
        };
        let index = filled.as_mut().expect("it was filled above");
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = changed || index.listened_at.elapsed() >= HEAR_EVERY;
        if changed | (is_due && index.hear(hub)) {
            *list = Arc::new(index.hosts.values().cloned().collect());
        }
        Ok(list.clone())
    }

    /// Every host in a person's scope.
    pub(crate) async fn seen_by(&self, hub: &Hub, person: &Person) -> Result<FleetList, Problem> {
        let all = self.list(hub).await?;
        if person.account.scope == "*" {
            return Ok(all);
        }
        Ok(Arc::new(all.iter().filter(|host| person.sees(&host.row.id)).cloned().collect()))
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
            (row.id.clone(), Arc::new(FleetHost::new(row, &state, waits)))
        };
        let hosts = rows.into_iter().map(host).collect();
        let now = Instant::now();
        Ok(Self { hosts, changes, looked_at: now, heard_at: now, listened_at: now })
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
                self.hosts.get(id).is_some_and(|known| known.row.version == version)
            };
            let new = changed.into_iter().filter(|host| !is_known(&host.id, host.version));
            hosts.extend(new.map(|host| host.id));
            let count = usize::try_from(hub.store().host_count().await?).unwrap_or(usize::MAX);
            let unknown = hosts.iter().filter(|host| !self.hosts.contains_key(*host)).count();
            // A host that is gone leaves no row that changed.
            if count != self.hosts.len() + unknown {
                return Ok(None);
            }
        }
        let is_other_replicas = hub.store().database().kind() == DatabaseKind::Postgres;
        if is_other_replicas && self.heard_at.elapsed() >= HEARD_EVERY {
            return Ok(None);
        }
        Ok((hosts.len() <= ONE_BY_ONE_MAX).then_some(hosts))
    }

    /// Reads hosts again, and says whether there was one.
    async fn read_again(&mut self, hub: &Hub, hosts: BTreeSet<String>) -> Result<bool, Problem> {
        let changed = !hosts.is_empty();
        for id in hosts {
            let Some(row) = hub.store().host(&id).await? else {
                self.hosts.remove(&id);
                hub.store().forget_heard(&id);
                continue;
            };
            let state = hub.store().host_state(&id).await?;
            let waits = hub.store().pending_count_of(&id).await?;
            self.hosts.insert(id, Arc::new(FleetHost::new(row, &state, waits)));
        }
        Ok(changed)
    }

    /// Takes in who was heard by this process since; says whether somebody was.
    fn hear(&mut self, hub: &Hub) -> bool {
        self.listened_at = Instant::now();
        let hosts = &mut self.hosts;
        hub.store().look_at_heard(|heard| {
            let mut changed = false;
            for (id, at) in heard {
                if let Some(host) = hosts.get_mut(id)
                    && host.row.last_seen < *at
                {
                    Arc::make_mut(host).row.last_seen = *at;
                    changed = true;
                }
            }
            changed
        })
    }
}
