//! The fleet at a glance: how many stand how, and a list that is filtered, sorted and paged by the server.

use askama::Template;
use axum::http::Method;

use super::shell::{PagePlace, Shell};
use super::words::{Moment, StateWord, host_path, in_path};
use super::{host, page};
use crate::access::{Access, Scope};
use crate::call::Call;
use crate::people::fleet_filter::{FleetFilter, FleetOrder, FleetState, ListedPage};
use crate::people::fleet_index::FleetHost;
use crate::people::fleet_tally::GuestSums;
use crate::people::page::after;
use crate::routes::{Answer, Hub, NO_BODY, RouteRow};
use crate::store::{HubTime, PersonRole};

/// Hosts of one page: what a person scrolls through, and far below the weight a page may have.
const HOSTS_PER_PAGE: usize = 50;

pub(super) fn rows() -> Vec<RouteRow> {
    vec![
        RouteRow::new(
            (Method::GET, "/console/fleet"),
            Access::Person(PersonRole::Viewer, Scope::InHandler),
            NO_BODY,
            "the fleet, as a page",
            fleet,
        )
        .asks(&["label", "state", "text", "sort", "after"])
        .page(),
        RouteRow::new(
            (Method::GET, "/console/hosts/{host}/row"),
            Access::Person(PersonRole::Viewer, Scope::HostInPath),
            NO_BODY,
            "one row of the fleet, to be put in its place",
            row,
        )
        .page(),
    ]
}

/// A host in the list.
pub(super) struct HostLine {
    id: String,
    path: String,
    state: StateWord,
    frozen: bool,
    labels: Vec<String>,
    wanted: i64,
    in_effect: u64,
    guests: Vec<(StateWord, u64)>,
    pending: u64,
    seen: Moment,
}

impl HostLine {
    pub(super) fn new(host: &FleetHost, now: HubTime) -> Self {
        let guests = host.counts.iter().filter(|(_, count)| **count > 0);
        let mut guests: Vec<_> =
            guests.map(|(state, count)| (StateWord::of_guest(state), *count)).collect();
        guests.sort_by_key(|(state, _)| state.tone == "good");
        Self {
            id: host.row.id.clone(),
            path: host_path(&host.row.id),
            state: StateWord::of_host(host.standing(now)),
            frozen: host.frozen,
            labels: host.row.labels.iter().map(|(name, value)| format!("{name}={value}")).collect(),
            wanted: host.row.wanted,
            in_effect: host.in_effect,
            guests,
            pending: host.pending,
            seen: Moment::new(host.row.last_seen, now),
        }
    }
}

/// A count with the link that shows what it counts.
struct StateCount {
    state: StateWord,
    count: u64,
    path: String,
    chosen: bool,
}

/// A way to sort.
struct SortChoice {
    value: &'static str,
    word: &'static str,
    chosen: bool,
}

#[derive(Template)]
#[template(path = "fleet.html")]
struct FleetPage {
    shell: Shell,
    counts: Vec<StateCount>,
    all_path: String,
    all_count: u64,
    all_chosen: bool,
    guest_counts: Vec<(StateWord, u64)>,
    text: String,
    label: String,
    state: &'static str,
    sorts: Vec<SortChoice>,
    hosts: Vec<HostLine>,
    first: usize,
    found: usize,
    first_path: Option<String>,
    next_path: Option<String>,
}

#[derive(Template)]
#[template(path = "fleet_row.html")]
struct FleetRow {
    line: HostLine,
}

async fn fleet(hub: Hub, call: Call) -> Answer {
    let filter = FleetFilter::read(&call)?;
    let seen = hub.people().fleet.seen_by(&hub, call.person()).await?;
    let tally = filter.tally(&seen);
    let ListedPage { hosts, start, found } = filter.page(&seen, after(&call), HOSTS_PER_PAGE);
    let more = start + HOSTS_PER_PAGE < found;
    let next = hosts.last().filter(|_| more).map(|host| host.row.id.clone());
    let path = |state: &str, after: &str| filtered_path(&call, state, after);
    let chosen = filter.state.map_or("", FleetState::as_str);
    let count = |(state, count): (FleetState, u64)| StateCount {
        state: StateWord::of_fleet(state),
        count,
        path: path(state.as_str(), ""),
        chosen: filter.state == Some(state),
    };
    page(&FleetPage {
        shell: Shell::new(&hub, &call, PagePlace::Fleet, "Fleet", path(chosen, after(&call)))
            .await?,
        counts: FleetState::ALL.into_iter().zip(tally.states).map(count).collect(),
        all_path: path("", ""),
        all_count: tally.hosts,
        all_chosen: filter.state.is_none(),
        guest_counts: guest_counts(tally.guests),
        text: call.query.get("text").cloned().unwrap_or_default(),
        label: call.query.get("label").cloned().unwrap_or_default(),
        state: chosen,
        sorts: sorts(filter.order),
        hosts: hosts.iter().map(|host| HostLine::new(host, seen.now)).collect(),
        first: start + 1,
        found,
        first_path: (start > 0).then(|| path(chosen, "")),
        next_path: next.map(|next| path(chosen, &next)),
    })
}

fn guest_counts(sums: GuestSums) -> Vec<(StateWord, u64)> {
    let counted = sums.each().into_iter().filter(|(_, count)| *count > 0);
    counted.map(|(state, count)| (StateWord::of_guest(state), count)).collect()
}

fn sorts(order: FleetOrder) -> Vec<SortChoice> {
    let choice = |each: FleetOrder| SortChoice {
        value: each.as_str(),
        word: match each {
            FleetOrder::Host => "name",
            FleetOrder::State => "urgency",
            FleetOrder::Waiting => "to sign",
            FleetOrder::Seen => "longest unheard",
        },
        chosen: each == order,
    };
    FleetOrder::ALL.into_iter().map(choice).collect()
}

/// The fleet page with what is asked for now, another state, and another beginning.
fn filtered_path(call: &Call, state: &str, after: &str) -> String {
    let asked = |name| call.query.get(name).map_or("", String::as_str);
    let pairs = [
        ("text", asked("text")),
        ("label", asked("label")),
        ("sort", asked("sort")),
        ("state", state),
        ("after", after),
    ];
    let pairs = pairs.into_iter().filter(|(_, value)| !value.is_empty());
    let query: Vec<String> =
        pairs.map(|(name, value)| format!("{name}={}", in_path(value))).collect();
    if query.is_empty() {
        return "/console/fleet".to_owned();
    }
    format!("/console/fleet?{}", query.join("&"))
}

async fn row(hub: Hub, call: Call) -> Answer {
    let host = host::fleet_host(&hub, call.part("host")?).await?;
    page(&FleetRow { line: HostLine::new(&host, HubTime::now()) })
}
