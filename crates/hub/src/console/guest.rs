//! One guest: declared against actual, key by key, with where each is declared; why something is held; what was done to it.

use std::collections::{BTreeMap, BTreeSet};

use askama::Template;
use axum::http::Method;
use evenkeel_core::fleet::{GuestDifference, GuestReport, HeldReport, ReportedOrigin};
use evenkeel_core::model::id::GuestId;

use super::approvals::ItemCard;
use super::host::{HostHead, fleet_host};
use super::page;
use super::shell::{PagePlace, Shell};
use super::timeline::{DecisionLine, OpLine};
use super::words::{Moment, StateWord};
use crate::access::{Access, Scope};
use crate::call::Call;
use crate::people::document_check::origins_of;
use crate::people::documents::stored;
use crate::people::fleet_index::FleetHost;
use crate::problem::Problem;
use crate::routes::{Answer, Hub, NO_BODY, RouteRow};
use crate::store::{HistoryKind, HubTime, PersonRole};

/// Ops and decisions of a guest that are shown.
const HISTORY_SHOWN: i64 = 30;

pub(super) fn rows() -> Vec<RouteRow> {
    vec![
        RouteRow::new(
            (Method::GET, "/console/hosts/{host}/guests/{kind}/{vmid}"),
            Access::Person(PersonRole::Viewer, Scope::HostInPath),
            NO_BODY,
            "one guest, as a page",
            guest,
        )
        .page(),
    ]
}

/// One key, as it is declared and as it is.
struct KeyLine {
    key: String,
    declared: Option<String>,
    actual: Option<String>,
    origin: String,
    differs: bool,
}

/// Something that is not done now.
struct HeldLine {
    code: String,
    why: String,
    next: String,
}

#[derive(Template)]
#[template(path = "guest.html")]
struct GuestPage {
    shell: Shell,
    head: HostHead,
    guest: String,
    name: String,
    state: StateWord,
    updated: Moment,
    held: Vec<HeldLine>,
    problems: Vec<String>,
    after_restart: Vec<String>,
    keys: Vec<KeyLine>,
    undeclared: Vec<(String, String)>,
    power: String,
    is_cut: bool,
    differing: usize,
    items: Vec<ItemCard>,
    ops: Vec<OpLine>,
    decisions: Vec<DecisionLine>,
}

async fn guest(hub: Hub, call: Call) -> Answer {
    let fleet_host = fleet_host(&hub, call.part("host")?).await?;
    let now = HubTime::now();
    let host = fleet_host.row.id.clone();
    let guest = format!("{}/{}", call.part("kind")?, call.part("vmid")?);
    let row = hub.store().guest(&host, &guest).await?;
    let row = row.ok_or_else(|| Problem::not_found(&format!("guest {guest}")))?;
    let report: GuestReport = serde_json::from_str(&row.body).unwrap_or_default();
    let origins = declared_at(&hub, &fleet_host, &guest).await?;
    let keys = key_lines(&report, &origins);
    let history = |kind| hub.store().history_of_guest(kind, (&host, &guest), HISTORY_SHOWN);
    let ops = history(HistoryKind::Ops).await?;
    let decisions = history(HistoryKind::Decisions).await?;
    let items = hub.store().pending_of(&host).await?;
    let items = items.iter().map(|item| ItemCard::new(item, now));
    let head = HostHead::new(&fleet_host, "guest", now);
    let title = format!("{guest} on {host}");
    let address = format!("{}/guests/{guest}", head.path);
    page(&GuestPage {
        shell: Shell::new(&hub, &call, PagePlace::Fleet, &title, address).await?,
        name: row.name,
        state: StateWord::of_guest(&row.state),
        updated: Moment::new(row.updated_at, now),
        held: report.held.iter().cloned().map(held_line).collect(),
        problems: report.problems.clone(),
        after_restart: report.after_restart.clone(),
        differing: keys.iter().filter(|line| line.differs).count(),
        undeclared: undeclared(&report),
        power: report.power.clone(),
        is_cut: report.cut,
        keys,
        items: items.filter(|item| item.guest == guest).collect(),
        ops: ops.iter().map(|op| OpLine::new(&host, op, now)).collect(),
        decisions: decisions.iter().map(|line| DecisionLine::new(&host, line, now)).collect(),
        guest,
        head,
    })
}

fn held_line(HeldReport { code, why, next }: HeldReport) -> HeldLine {
    HeldLine { code, why, next }
}

/// `web.toml:4, profile small`.
fn origin_words(origin: Option<&ReportedOrigin>) -> String {
    let Some(ReportedOrigin { file, line, layer }) = origin else { return String::new() };
    let layer =
        if layer.is_empty() || layer == "guest" { String::new() } else { format!(", {layer}") };
    format!("{file}:{line}{layer}")
}

/// Where the guest's keys are declared, in the document that is in effect. A host tells it of what differs alone; the hub has
/// the document and reads it as the host does. Nothing where the host takes its files from elsewhere.
async fn declared_at(
    hub: &Hub,
    host: &FleetHost,
    guest: &str,
) -> Result<BTreeMap<String, ReportedOrigin>, Problem> {
    let in_effect = i64::try_from(host.in_effect).unwrap_or_default();
    let document = stored(hub, &host.row.id, in_effect).await?;
    match (document, guest.parse::<GuestId>()) {
        (Some(document), Ok(guest)) => origins_of(document, guest).await,
        (None, _) | (_, Err(_)) => Ok(BTreeMap::new()),
    }
}

/// Every key that is known of: what differs first, then the rest of what is declared.
fn key_lines(report: &GuestReport, origins: &BTreeMap<String, ReportedOrigin>) -> Vec<KeyLine> {
    let line = |each: &GuestDifference| KeyLine {
        key: each.key.clone(),
        declared: each.declared.clone(),
        actual: each.actual.clone(),
        // What the host says of itself comes first.
        origin: origin_words(each.origin.as_ref().or_else(|| origins.get(&each.key))),
        differs: true,
    };
    let differing: BTreeSet<&str> = report.differences.iter().map(|each| &*each.key).collect();
    let rest = report.declared.iter().filter(|(key, _)| !differing.contains(key.as_str()));
    let rest = rest.map(|(key, declared)| KeyLine {
        key: key.clone(),
        declared: declared.clone(),
        actual: report.actual.get(key).cloned(),
        origin: origin_words(origins.get(key)),
        differs: false,
    });
    report.differences.iter().map(line).chain(rest).collect()
}

/// What is set on the node and not declared: told, because nobody else says it, and left alone.
fn undeclared(report: &GuestReport) -> Vec<(String, String)> {
    let differing: BTreeSet<&str> = report.differences.iter().map(|each| &*each.key).collect();
    let is_other = |key: &str| !report.declared.contains_key(key) && !differing.contains(key);
    let other = report.actual.iter().filter(|(key, _)| is_other(key));
    other.map(|(key, value)| (key.clone(), value.clone())).collect()
}
