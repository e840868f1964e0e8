//! Which hosts are listed, and in which order: the same for programs and for the console.

use std::sync::Arc;

use super::fleet_index::{FleetHost, SeenFleet};
use super::fleet_tally::FleetTally;
use super::wire::HostStanding;
use crate::call::Call;
use crate::problem::Problem;
use crate::store::HubTime;

/// What somebody looks for in a fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FleetState {
    /// Hosts that stand so.
    Standing(HostStanding),
    /// Hosts with a guest on which something is held.
    Held,
    /// Hosts on which nothing is changed at all.
    Frozen,
    /// Hosts with something that waits for a signature.
    Waiting,
}

impl FleetState {
    /// Every one, in the order in which they are shown.
    pub(crate) const ALL: [Self; 9] = [
        Self::Standing(HostStanding::InSync),
        Self::Standing(HostStanding::Drifted),
        Self::Held,
        Self::Standing(HostStanding::Failing),
        Self::Standing(HostStanding::Refused),
        Self::Standing(HostStanding::Behind),
        Self::Standing(HostStanding::Silent),
        Self::Frozen,
        Self::Waiting,
    ];

    /// As it is written behind `state=`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Standing(standing) => standing.as_str(),
            Self::Held => "held",
            Self::Frozen => "frozen",
            Self::Waiting => "waiting",
        }
    }

    /// Whether a host is meant that stands so.
    pub(crate) fn fits(self, host: &FleetHost, stands: HostStanding) -> bool {
        match self {
            Self::Standing(standing) => stands == standing,
            Self::Held => host.sums.held > 0,
            Self::Frozen => host.frozen,
            Self::Waiting => host.pending > 0,
        }
    }
}

/// In which order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FleetOrder {
    /// By name.
    Host,
    /// What needs somebody first.
    State,
    /// Most that waits for a signature first.
    Waiting,
    /// Longest not heard of first.
    Seen,
}

impl FleetOrder {
    /// Every one.
    pub(crate) const ALL: [Self; 4] = [Self::Host, Self::State, Self::Waiting, Self::Seen];

    /// As it is written behind `sort=`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::State => "state",
            Self::Waiting => "waiting",
            Self::Seen => "seen",
        }
    }
}

/// Which hosts are listed.
#[derive(Debug, Clone)]
pub(crate) struct FleetFilter {
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) state: Option<FleetState>,
    pub(crate) text: String,
    pub(crate) order: FleetOrder,
}

/// A page of hosts.
pub(crate) struct ListedPage<'h> {
    pub(crate) hosts: Vec<&'h FleetHost>,
    /// How many come before it.
    pub(crate) start: usize,
    /// How many there are on all pages.
    pub(crate) found: usize,
}

impl FleetFilter {
    pub(crate) fn read(call: &Call) -> Result<Self, Problem> {
        let query = |name: &str| call.query.get(name).map_or("", String::as_str);
        let mut labels = Vec::new();
        for pair in query("label").split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or_else(|| {
                Problem::invalid("`label` is written name=value, several with commas between")
            })?;
            labels.push((name.to_owned(), value.to_owned()));
        }
        let state = match query("state") {
            "" => None,
            word => Some(
                FleetState::ALL
                    .into_iter()
                    .find(|state| state.as_str() == word)
                    .ok_or_else(|| Problem::invalid("`state` is no state of a host"))?,
            ),
        };
        let order = match query("sort") {
            "" => FleetOrder::Host,
            word => FleetOrder::ALL
                .into_iter()
                .find(|order| order.as_str() == word)
                .ok_or_else(|| Problem::invalid("`sort` is host, state, waiting or seen"))?,
        };
        let text = query("text").trim().to_lowercase();
        Ok(Self { labels, state, text, order })
    }

    /// Whether a host is listed, whatever its state.
    fn fits_but_state(&self, host: &FleetHost) -> bool {
        let has_label = |(name, value): &(String, String)| host.row.labels.get(name) == Some(value);
        self.labels.iter().all(has_label) && (self.text.is_empty() || host.mentions(&self.text))
    }

    /// What is counted of hosts that fit but for their state.
    pub(crate) fn tally(&self, seen: &SeenFleet) -> FleetTally {
        if self.labels.is_empty() && self.text.is_empty() {
            return seen.tally.clone();
        }
        let hosts = seen.hosts.iter().map(|host| &**host);
        FleetTally::of(hosts.filter(|host| self.fits_but_state(host)), seen.now)
    }

    /// A page of the hosts that are listed, in order, behind the host that the page before ended with.
    pub(crate) fn page<'h>(&self, seen: &'h SeenFleet, after: &str, size: usize) -> ListedPage<'h> {
        let is_whole = self.labels.is_empty() && self.text.is_empty() && self.state.is_none();
        if is_whole && self.order == FleetOrder::Host {
            let start = seen.hosts.partition_point(|host| host.row.id.as_str() <= after);
            let hosts = seen.hosts[start..].iter().take(size).map(|host| &**host).collect();
            return ListedPage { hosts, start, found: seen.hosts.len() };
        }
        let chosen = self.chosen(&seen.hosts, seen.now);
        let start = self.start_after(&chosen, after);
        let hosts = chosen.iter().skip(start).take(size).copied().collect();
        ListedPage { hosts, start, found: chosen.len() }
    }

    /// The hosts that are listed, in order.
    fn chosen<'h>(&self, hosts: &'h [Arc<FleetHost>], now: HubTime) -> Vec<&'h FleetHost> {
        let fits = |host: &&FleetHost| {
            self.state.is_none_or(|state| state.fits(host, host.standing(now)))
                && self.fits_but_state(host)
        };
        let mut hosts: Vec<&FleetHost> = hosts.iter().map(|host| &**host).filter(fits).collect();
        // They come in the order of their names, which a stable sort keeps among equals.
        match self.order {
            FleetOrder::Host => {}
            FleetOrder::State => hosts.sort_by_key(|host| host.standing(now)),
            FleetOrder::Waiting => hosts.sort_by_key(|host| std::cmp::Reverse(host.pending)),
            FleetOrder::Seen => hosts.sort_by_key(|host| host.row.last_seen),
        }
        hosts
    }

    /// Where the page begins that follows a host.
    fn start_after(&self, hosts: &[&FleetHost], after: &str) -> usize {
        if after.is_empty() {
            return 0;
        }
        match (hosts.iter().position(|host| host.row.id == after), self.order) {
            (Some(place), _) => place + 1,
            // The host the last page ended with is gone: by name the place is known, else it begins anew.
            (None, FleetOrder::Host) => hosts.partition_point(|host| host.row.id.as_str() <= after),
            (None, FleetOrder::State | FleetOrder::Waiting | FleetOrder::Seen) => 0,
        }
    }
}
