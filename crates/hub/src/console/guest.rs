//! One guest: declared against actual, key by key, with where each is declared; why something is held; what was done to it.

use std::collections::BTreeMap;

use askama::Template;
use axum::http::Method;
use evenkeel_core::fleet::GuestReport;

use super::approvals::ItemCard;
use super::host::{HostHead, fleet_host};
use super::page;
use super::shell::{Place, Shell};
use super::timeline::{DecisionLine, OpLine};
use super::words::{Moment, StateWord};
use crate::access::{Access, Scope};
use crate::call::Call;
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
    differing: usize,
    items: Vec<ItemCard>,
    ops: Vec<OpLine>,
    decisions: Vec<DecisionLine>,
}

async fn guest(hub: Hub, call: Call) -> Answer {
    let fleet_host = fleet_host(&hub, call.part("host")?).await?;
    let (now, host) = (HubTime::now(), fleet_host.row.id.clone());
    let guest = format!("{}/{}", call.part("kind")?, call.part("vmid")?);
    let row = hub.store().guest(&host, &guest).await?;
    let row = row.ok_or_else(|| Problem::not_found(&format!("guest {guest}")))?;
    let report: GuestReport = serde_json::from_str(&row.body).unwrap_or_default();
    let keys = key_lines(&report);
    let history = |kind| hub.store().history_of_guest(kind, (&host, &guest), HISTORY_SHOWN);
    let (ops, decisions) =
        (history(HistoryKind::Ops).await?, history(HistoryKind::Decisions).await?);
    let items = hub.store().pending_of(&host).await?;
    let items = items.iter().map(|item| ItemCard::new(item, now));
    let head = HostHead::new(&fleet_host, "guest", now);
    let title = format!("{guest} on {host}");
    let address = format!("{}/guests/{guest}", head.path);
    page(&GuestPage {
        shell: Shell::new(&hub, &call, Place::Fleet, &title, address).await?,
        name: row.name,
        state: StateWord::of_guest(&row.state),
        updated: Moment::new(row.updated_at, now),
        held: report.held.into_iter().map(held_line).collect(),
        problems: report.problems,
        after_restart: report.after_restart,
        differing: keys.iter().filter(|line| line.differs).count(),
        keys,
        items: items.filter(|item| item.guest == guest).collect(),
        ops: ops.iter().map(|op| OpLine::new(&host, op, now)).collect(),
        decisions: decisions.iter().map(|line| DecisionLine::new(&host, line, now)).collect(),
        guest,
        head,
    })
}

fn held_line(held: evenkeel_core::fleet::HeldReport) -> HeldLine {
    let evenkeel_core::fleet::HeldReport { code, why } = held;
    HeldLine { code, why, next: String::new() }
}

/// Every key that is known of: what differs first, then the rest of what is declared.
fn key_lines(report: &GuestReport) -> Vec<KeyLine> {
    let differs: BTreeMap<&str, KeyLine> = report
        .differences
        .iter()
        .map(|each| {
            let line = KeyLine {
                key: each.key.clone(),
                declared: each.declared.clone(),
                actual: each.actual.clone(),
                origin: each.origin.clone(),
                differs: true,
            };
            (each.key.as_str(), line)
        })
        .collect();
    let same = report.config.iter().filter(|(key, _)| !differs.contains_key(key.as_str()));
    let same: Vec<KeyLine> = same
        .map(|(key, value)| KeyLine {
            key: key.clone(),
            declared: Some(value.clone()),
            actual: Some(value.clone()),
            origin: String::new(),
            differs: false,
        })
        .collect();
    differs.into_values().chain(same).collect()
}
