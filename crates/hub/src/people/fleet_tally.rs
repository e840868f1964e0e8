//! How many hosts stand how, and how many guests of theirs are in which state.
//!
//! Every page shows such numbers. Those of the whole fleet are kept: a host that changes is taken out and put in again, and
//! one that falls silent is found by when it was heard of last. So a page costs the same however many hosts there are. Who
//! sees fewer hosts, or asks for fewer, has those counted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::fleet_filter::FleetState;
use super::fleet_index::{FleetHost, SILENT_AFTER_MS};
use crate::store::HubTime;

/// How many guests are in which state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct GuestSums {
    pub(crate) as_declared: u64,
    pub(crate) drifted: u64,
    pub(crate) held: u64,
    pub(crate) busy: u64,
    pub(crate) failed: u64,
    pub(crate) unreadable: u64,
}

impl GuestSums {
    /// What a host told.
    pub(crate) fn of(counts: &BTreeMap<String, u64>) -> Self {
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

    fn change(&mut self, by: Self, change: Change) {
        self.as_declared = change(self.as_declared, by.as_declared);
        self.drifted = change(self.drifted, by.drifted);
        self.held = change(self.held, by.held);
        self.busy = change(self.busy, by.busy);
        self.failed = change(self.failed, by.failed);
        self.unreadable = change(self.unreadable, by.unreadable);
    }
}

/// Adds to a count, or takes from it.
type Change = fn(u64, u64) -> u64;

/// What is counted of hosts at a moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FleetTally {
    pub(crate) hosts: u64,
    /// By the places of [`FleetState::ALL`].
    pub(crate) states: [u64; FleetState::ALL.len()],
    pub(crate) guests: GuestSums,
    /// Items that wait for a signature.
    pub(crate) pending: u64,
}

impl FleetTally {
    /// Looks at every host.
    pub(crate) fn of<'h>(hosts: impl IntoIterator<Item = &'h FleetHost>, now: HubTime) -> Self {
        let mut tally = Self::default();
        for host in hosts {
            tally.add(host, now);
        }
        tally
    }

    fn add(&mut self, host: &FleetHost, now: HubTime) {
        self.change(host, now, |count, by| count + by);
    }

    /// Takes out a host that was added at the same moment.
    fn take(&mut self, host: &FleetHost, now: HubTime) {
        self.change(host, now, |count, by| count - by);
    }

    fn change(&mut self, host: &FleetHost, now: HubTime, change: Change) {
        let stands = host.standing(now);
        for (count, state) in self.states.iter_mut().zip(FleetState::ALL) {
            *count = change(*count, u64::from(state.fits(host, stands)));
        }
        self.hosts = change(self.hosts, 1);
        self.guests.change(host.sums, change);
        self.pending = change(self.pending, host.pending);
    }
}

/// Hosts in the order of their ids. Cheap to clone.
pub(crate) type FleetList = Arc<Vec<Arc<FleetHost>>>;

/// Every host, and the tally of all of them.
pub(super) struct CountedFleet {
    hosts: FleetList,
    /// Who was heard of when, so that who falls silent is found without looking at the others.
    heard: BTreeSet<(HubTime, String)>,
    tally: FleetTally,
    /// The moment that the tally is for.
    counted_at: HubTime,
}

impl CountedFleet {
    pub(super) fn new(hosts: impl Iterator<Item = FleetHost>, now: HubTime) -> Self {
        let mut hosts: Vec<_> = hosts.map(Arc::new).collect();
        // Here and not by the database, whose order depends on its locale.
        hosts.sort_by(|a, b| a.row.id.cmp(&b.row.id));
        Self {
            heard: hosts.iter().map(|host| heard(host)).collect(),
            tally: FleetTally::of(hosts.iter().map(|host| &**host), now),
            counted_at: now,
            hosts: Arc::new(hosts),
        }
    }

    /// Every host.
    pub(super) fn hosts(&self) -> &FleetList {
        &self.hosts
    }

    pub(super) fn get(&self, id: &str) -> Option<&FleetHost> {
        place(&self.hosts, id).ok().map(|place| &*self.hosts[place])
    }

    /// Puts a host in, in place of what was known of it.
    pub(super) fn put(&mut self, host: FleetHost) {
        let place = place(&self.hosts, &host.row.id);
        let host = Arc::new(host);
        self.tally.add(&host, self.counted_at);
        let entry = heard(&host);
        match place {
            Ok(place) => {
                let before = std::mem::replace(&mut self.hosts_mut()[place], host);
                self.forget(&before);
            }
            Err(place) => self.hosts_mut().insert(place, host),
        }
        // After the old entry is gone, which may be the same.
        self.heard.insert(entry);
    }

    pub(super) fn remove(&mut self, id: &str) {
        if let Ok(place) = place(&self.hosts, id) {
            let before = self.hosts_mut().remove(place);
            self.forget(&before);
        }
    }

    /// A host was heard of.
    pub(super) fn hear(&mut self, id: &str, at: HubTime) {
        if let Some(host) = self.get(id).filter(|host| host.row.last_seen < at) {
            let mut host = host.clone();
            host.row.last_seen = at;
            self.put(host);
        }
    }

    /// What is counted now.
    pub(super) fn tally(&mut self, now: HubTime) -> FleetTally {
        if now < self.counted_at {
            // The clock was set back: who had fallen silent may not have.
            self.tally = FleetTally::of(self.hosts.iter().map(|host| &**host), now);
        } else {
            let bound = |at: HubTime| (HubTime(at.0 - SILENT_AFTER_MS), String::new());
            for (_, id) in self.heard.range(bound(self.counted_at)..bound(now)) {
                let place = place(&self.hosts, id).expect("who was heard of is a host");
                self.tally.take(&self.hosts[place], self.counted_at);
                self.tally.add(&self.hosts[place], now);
            }
        }
        self.counted_at = now;
        self.tally.clone()
    }

    /// Changes the list where it is, unless somebody still reads it.
    fn hosts_mut(&mut self) -> &mut Vec<Arc<FleetHost>> {
        Arc::make_mut(&mut self.hosts)
    }

    fn forget(&mut self, host: &FleetHost) {
        self.tally.take(host, self.counted_at);
        self.heard.remove(&heard(host));
    }
}

/// Where a host is, or would be.
fn place(hosts: &[Arc<FleetHost>], id: &str) -> Result<usize, usize> {
    hosts.binary_search_by(|host| host.row.id.as_str().cmp(id))
}

fn heard(host: &FleetHost) -> (HubTime, String) {
    (host.row.last_seen, host.row.id.clone())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::store::{HostRow, HostStateRow};

    /// What happens to a fleet.
    #[derive(Debug, Clone)]
    enum FleetEvent {
        Put(Box<FleetHost>),
        Remove(String),
        Hear(String, HubTime),
        Pass(i64),
    }

    /// Few ids, so that hosts are put again and removed; names whose order differs from their numbers'.
    fn id() -> impl Strategy<Value = String> {
        (0..12_u8).prop_map(|number| format!("node-{number}"))
    }

    fn moment() -> impl Strategy<Value = HubTime> {
        (0..12 * SILENT_AFTER_MS / 4).prop_map(|ms| HubTime(ms / 45_000 * 45_000))
    }

    fn host() -> impl Strategy<Value = FleetHost> {
        let numbers = (0..3_i64, 0..3_u64, 0..3_u64, 0..3_i64);
        let guests = (0..3_u64, 0..2_u64, 0..2_u64, 0..2_u64, 0..2_u64, 0..2_u64);
        (id(), moment(), numbers, guests, any::<bool>()).prop_map(
            |(id, last_seen, (wanted, in_effect, refused, pending), guests, frozen)| {
                let (as_declared, drifted, held, busy, failed, unreadable) = guests;
                let row = HostRow {
                    id,
                    key_line: String::new(),
                    key_fingerprint: String::new(),
                    labels: BTreeMap::new(),
                    wanted,
                    cursor: 0,
                    reported: 0,
                    enrolled_at: HubTime(0),
                    last_seen,
                    version: 1,
                };
                let mut host = FleetHost::new(row, &HostStateRow::default(), pending);
                host.in_effect = in_effect;
                host.refused = refused;
                host.frozen = frozen;
                host.sums = GuestSums { as_declared, drifted, held, busy, failed, unreadable };
                host
            },
        )
    }

    fn event() -> impl Strategy<Value = FleetEvent> {
        prop_oneof![
            4 => host().prop_map(|host| FleetEvent::Put(Box::new(host))),
            1 => id().prop_map(FleetEvent::Remove),
            3 => (id(), moment()).prop_map(|(id, at)| FleetEvent::Hear(id, at)),
            3 => (-1..5_i64).prop_map(|steps| FleetEvent::Pass(steps * 45_000)),
        ]
    }

    proptest! {
        #[test]
        fn what_is_kept_is_what_a_fresh_count_finds(
            begun in prop::collection::vec(host(), 0..6),
            events in prop::collection::vec(event(), 1..60),
        ) {
            let mut now = HubTime(SILENT_AFTER_MS);
            let begun: BTreeMap<String, FleetHost> =
                begun.into_iter().map(|host| (host.row.id.clone(), host)).collect();
            let mut known = begun.clone();
            let mut fleet = CountedFleet::new(begun.into_values(), now);
            for event in events {
                match event {
                    FleetEvent::Put(host) => {
                        known.insert(host.row.id.clone(), (*host).clone());
                        fleet.put(*host);
                    }
                    FleetEvent::Remove(id) => {
                        known.remove(&id);
                        fleet.remove(&id);
                    }
                    FleetEvent::Hear(id, at) => {
                        fleet.hear(&id, at);
                        if let Some(host) = known.get_mut(&id) {
                            host.row.last_seen = host.row.last_seen.max(at);
                        }
                    }
                    // Not every change is followed by a page, and not every page by a change.
                    FleetEvent::Pass(ms) => {
                        now.0 += ms;
                        prop_assert_eq!(fleet.tally(now), FleetTally::of(known.values(), now));
                    }
                }
            }
            prop_assert_eq!(fleet.tally(now), FleetTally::of(known.values(), now));
            let listed: Vec<&String> = fleet.hosts().iter().map(|host| &host.row.id).collect();
            prop_assert_eq!(listed, known.keys().collect::<Vec<_>>());
        }
    }
}
