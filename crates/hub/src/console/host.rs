//! One host: how it stands and why, what its root allows, its guests, what it did, and what waits there.

use askama::Template;
use axum::http::Method;
use evenkeel_core::fleet::{AgentState, GuestReport, PassReport, RefusedGeneration};

use super::approvals::{EnvelopeLine, ItemCard};
use super::labels::labels_text;
use super::page;
use super::shell::{PagePlace, Shell};
use super::timeline::{DecisionLine, OpLine};
use super::words::{Moment, StateWord, guest_path, host_path, in_path};
use crate::access::{Access, Scope};
use crate::call::Call;
use crate::people::fleet_index::FleetHost;
use crate::people::guests::told;
use crate::people::hosts::find;
use crate::people::page::{after, one_more};
use crate::problem::Problem;
use crate::routes::{Answer, Hub, NO_BODY, RouteRow};
use crate::store::{AnchorRow, GuestRow, HistoryKind, HostRow, HubTime, PersonRole};

/// Guests of one page.
const GUESTS_PER_PAGE: usize = 100;
/// Ops of one page.
const OPS_PER_PAGE: usize = 20;
/// Decisions and envelopes shown beside.
const FEW: i64 = 8;

pub(super) fn rows() -> Vec<RouteRow> {
    vec![
        RouteRow::new(
            (Method::GET, "/console/hosts/{host}"),
            Access::Person(PersonRole::Viewer, Scope::HostInPath),
            NO_BODY,
            "one host, as a page",
            host,
        )
        .asks(&["after", "ops"])
        .page(),
    ]
}

/// A host as lists have it, from the store.
pub(super) async fn fleet_host(hub: &Hub, id: &str) -> Result<FleetHost, Problem> {
    let mut row = find(hub, id).await?;
    if let Some(heard) = hub.store().heard_lately(id) {
        row.last_seen = row.last_seen.max(heard);
    }
    let state = hub.store().host_state(id).await?;
    let pending = hub.store().pending_count_of(id).await?;
    Ok(FleetHost::new(row, &state, pending))
}

/// What stands above every page of a host.
pub(super) struct HostHead {
    pub(super) id: String,
    pub(super) path: String,
    pub(super) state: StateWord,
    pub(super) sentence: String,
    pub(super) frozen: bool,
    pub(super) labels: Vec<String>,
    pub(super) here: &'static str,
}

impl HostHead {
    pub(super) fn new(host: &FleetHost, here: &'static str, now: HubTime) -> Self {
        let standing = host.standing(now);
        Self {
            id: host.row.id.clone(),
            path: host_path(&host.row.id),
            state: StateWord::of_host(standing),
            sentence: standing.sentence().to_owned(),
            frozen: host.frozen,
            labels: host.row.labels.iter().map(|(name, value)| format!("{name}={value}")).collect(),
            here,
        }
    }
}

/// A guest in the list.
struct GuestLine {
    guest: String,
    path: Option<String>,
    name: String,
    state: StateWord,
    differs: Vec<String>,
    why: String,
}

impl GuestLine {
    fn new(host: &str, row: &GuestRow) -> Self {
        let report: GuestReport = told(&row.body);
        let problem = report.problems.first().cloned();
        let held = report.held.first().map(|held| held.why.clone());
        Self {
            path: guest_path(host, &row.guest),
            guest: row.guest.clone(),
            name: row.name.clone(),
            state: StateWord::of_guest(&row.state),
            differs: report.differences.into_iter().map(|differs| differs.key).collect(),
            why: held.or(problem).unwrap_or_default(),
        }
    }
}

/// How far a host's journal has come, as it signed it.
pub(super) struct AnchorLine {
    pub(super) host: String,
    pub(super) path: String,
    pub(super) epoch: i64,
    pub(super) seq: i64,
    pub(super) sum: String,
    pub(super) at: Moment,
    /// An epoch after the first begins when a rolled back journal was acknowledged.
    pub(super) was_rolled_back: bool,
}

impl AnchorLine {
    pub(super) fn new(row: AnchorRow, now: HubTime) -> Self {
        Self {
            path: host_path(&row.host),
            host: row.host,
            epoch: row.epoch,
            seq: row.seq,
            sum: row.sum,
            at: Moment::new(row.anchored_at, now),
            was_rolled_back: row.epoch > 1,
        }
    }
}

#[derive(Template)]
#[template(path = "host.html")]
struct HostPage {
    shell: Shell,
    head: HostHead,
    wanted: i64,
    in_effect: u64,
    signer: String,
    /// Its labels as the form has them.
    labels: String,
    key: String,
    seen: Moment,
    reported: Moment,
    host_time: String,
    agent: AgentState,
    pass: Option<PassReport>,
    refused: Option<RefusedGeneration>,
    anchor: Option<AnchorLine>,
    items: Vec<ItemCard>,
    envelopes: Vec<EnvelopeLine>,
    guests: Vec<GuestLine>,
    next_guests: Option<String>,
    ops: Vec<OpLine>,
    next_ops: Option<String>,
    decisions: Vec<DecisionLine>,
}

async fn host(hub: Hub, call: Call) -> Answer {
    let fleet_host = fleet_host(&hub, call.part("host")?).await?;
    let now = HubTime::now();
    let row = fleet_host.row.clone();
    let head = HostHead::new(&fleet_host, "overview", now);
    let state = hub.store().host_state(&row.id).await?;
    let generation: serde_json::Value = told(&state.generation);
    let refused: Option<RefusedGeneration> = told(&state.refused);
    let (guests, next_guests) = guests(&hub, &call, &row).await?;
    let (ops, next_ops) = ops(&hub, &call, &row, now).await?;
    let items = hub.store().pending_of(&row.id).await?;
    let envelopes = hub.store().envelopes_before(&row.id, i64::MAX, FEW).await?;
    let decisions =
        hub.store().history_before(HistoryKind::Decisions, &row.id, i64::MAX, FEW).await?;
    let anchor = hub.store().anchor_row(&row.id).await?;
    let address =
        format!("{}?after={}&ops={}", head.path, in_path(after(&call)), ops_before(&call)?);
    page(&HostPage {
        shell: Shell::new(&hub, &call, PagePlace::Fleet, &row.id, address).await?,
        wanted: row.wanted,
        in_effect: fleet_host.in_effect,
        signer: generation["signer"].as_str().unwrap_or_default().to_owned(),
        labels: labels_text(&row.labels),
        key: row.key_fingerprint.clone(),
        seen: Moment::new(row.last_seen, now),
        reported: Moment::new(HubTime(state.reported_at), now),
        host_time: state.host_time.clone(),
        agent: told(&state.agent),
        pass: told(&state.pass),
        refused: refused.filter(|refused| refused.generation.0 > 0),
        anchor: anchor.map(|anchor| AnchorLine::new(anchor, now)),
        items: items.iter().map(|item| ItemCard::new(item, now)).collect(),
        envelopes: envelopes.into_iter().map(|row| EnvelopeLine::new(row, now)).collect(),
        guests,
        next_guests,
        ops,
        next_ops,
        decisions: decisions.iter().map(|line| DecisionLine::new(&row.id, line, now)).collect(),
        head,
    })
}

async fn guests(
    hub: &Hub,
    call: &Call,
    row: &HostRow,
) -> Result<(Vec<GuestLine>, Option<String>), Problem> {
    let mut guests =
        hub.store().guests_after(&row.id, after(call), one_more(GUESTS_PER_PAGE)).await?;
    let more = guests.len() > GUESTS_PER_PAGE;
    guests.truncate(GUESTS_PER_PAGE);
    let next = guests.last().filter(|_| more);
    let next =
        next.map(|last| format!("{}?after={}#guests", host_path(&row.id), in_path(&last.guest)));
    Ok((guests.iter().map(|guest| GuestLine::new(&row.id, guest)).collect(), next))
}

fn ops_before(call: &Call) -> Result<i64, Problem> {
    call.number("ops", i64::MAX)
}

async fn ops(
    hub: &Hub,
    call: &Call,
    row: &HostRow,
    now: HubTime,
) -> Result<(Vec<OpLine>, Option<String>), Problem> {
    let before = ops_before(call)?;
    let limit = one_more(OPS_PER_PAGE);
    let mut ops = hub.store().history_before(HistoryKind::Ops, &row.id, before, limit).await?;
    let more = ops.len() > OPS_PER_PAGE;
    ops.truncate(OPS_PER_PAGE);
    let next = ops.last().filter(|_| more);
    let next = next.map(|last| format!("{}?ops={}#ops", host_path(&row.id), last.serial));
    Ok((ops.iter().map(|op| OpLine::new(&row.id, op, now)).collect(), next))
}
