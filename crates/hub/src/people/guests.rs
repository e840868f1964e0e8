//! What a host reported of its guests, and what it did and decided.

use axum::http::Method;
use evenkeel_core::fleet::{ReportedDecision, ToldOperation};
use schemars::SchemaGenerator;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::hosts::find;
use super::page::{PAGE_QUERY, after, before, limit, one_more, page};
use super::wire::{GuestBody, HistoryBody, PageBody};
use crate::access::{Access, Scope};
use crate::call::Call;
use crate::problem::Problem;
use crate::routes::{Answer, Hub, NO_BODY, RouteRow, json};
use crate::store::{GuestRow, HistoryKind, HistoryRow, PersonRole};

pub(super) fn rows() -> Vec<RouteRow> {
    let see = Access::Person(PersonRole::Viewer, Scope::HostInPath);
    vec![
        RouteRow::new(
            (Method::GET, "/v1/hosts/{host}/guests"),
            see,
            NO_BODY,
            "the guests of a host",
            list,
        )
        .asks(PAGE_QUERY)
        .answers(SchemaGenerator::subschema_for::<PageBody<GuestBody>>),
        RouteRow::new(
            (Method::GET, "/v1/hosts/{host}/guests/{kind}/{vmid}"),
            see,
            NO_BODY,
            "one guest",
            one,
        )
        .answers(SchemaGenerator::subschema_for::<GuestBody>),
        RouteRow::new(
            (Method::GET, "/v1/hosts/{host}/ops"),
            see,
            NO_BODY,
            "what was done on a host, newest first",
            ops,
        )
        .asks(PAGE_QUERY)
        .answers(SchemaGenerator::subschema_for::<PageBody<HistoryBody<ToldOperation>>>),
        RouteRow::new(
            (Method::GET, "/v1/hosts/{host}/decisions"),
            see,
            NO_BODY,
            "what was allowed or refused on a host, newest first",
            decisions,
        )
        .asks(PAGE_QUERY)
        .answers(SchemaGenerator::subschema_for::<PageBody<HistoryBody<ReportedDecision>>>),
    ]
}

async fn list(hub: Hub, call: Call) -> Answer {
    let host = find(&hub, call.part("host")?).await?;
    let limit = limit(&call)?;
    let rows = hub.store().guests_after(&host.id, after(&call), one_more(limit)).await?;
    // A page must stay small.
    let listed = |row| {
        let mut body = guest_body(row);
        body.report.declared.clear();
        body.report.actual.clear();
        body
    };
    json(&page(rows, limit, |row| row.guest.clone(), listed))
}

async fn one(hub: Hub, call: Call) -> Answer {
    let host = find(&hub, call.part("host")?).await?;
    let guest = format!("{}/{}", call.part("kind")?, call.part("vmid")?);
    let row = hub.store().guest(&host.id, &guest).await?;
    let row = row.ok_or_else(|| Problem::not_found(&format!("guest {guest}")))?;
    json(&guest_body(row))
}

fn guest_body(row: GuestRow) -> GuestBody {
    let GuestRow { guest, name, state, body, updated_at } = row;
    GuestBody { guest, name, state, updated_at: updated_at.to_text(), report: told(&body) }
}

async fn ops(hub: Hub, call: Call) -> Answer {
    history::<ToldOperation>(hub, call, HistoryKind::Ops).await
}

async fn decisions(hub: Hub, call: Call) -> Answer {
    history::<ReportedDecision>(hub, call, HistoryKind::Decisions).await
}

async fn history<T>(hub: Hub, call: Call, kind: HistoryKind) -> Answer
where
    T: DeserializeOwned + Serialize + Default,
{
    let host = find(&hub, call.part("host")?).await?;
    let limit = limit(&call)?;
    let rows = hub.store().history_before(kind, &host.id, before(&call)?, one_more(limit)).await?;
    let body = |HistoryRow { serial, body, received_at }: HistoryRow| HistoryBody::<T> {
        serial: serial.unsigned_abs(),
        received_at: received_at.to_text(),
        report: told(&body),
    };
    json(&page(rows, limit, |row| row.serial.to_string(), body))
}

/// What a host told, read back. It was written from core's own types, so what cannot be read was never told: it is empty.
pub(crate) fn told<T: DeserializeOwned + Default>(text: &str) -> T {
    serde_json::from_str(text).unwrap_or_default()
}
