//! What a host reported of its guests, and what it did and decided.

use axum::http::Method;
use schemars::SchemaGenerator;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::hosts::find;
use super::page::{PAGE_QUERY, after, before, limit, one_more, page};
use super::report_wire::{DecisionReportBody, OpReportBody, told};
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
        .answers(SchemaGenerator::subschema_for::<PageBody<HistoryBody<OpReportBody>>>),
        RouteRow::new(
            (Method::GET, "/v1/hosts/{host}/decisions"),
            see,
            NO_BODY,
            "what was allowed or refused on a host, newest first",
            decisions,
        )
        .asks(PAGE_QUERY)
        .answers(SchemaGenerator::subschema_for::<PageBody<HistoryBody<DecisionReportBody>>>),
    ]
}

async fn list(hub: Hub, call: Call) -> Answer {
    let host = find(&hub, call.part("host")?).await?;
    let limit = limit(&call)?;
    let rows = hub.store().guests_after(&host.id, after(&call), one_more(limit)).await?;
    let listed = |row| {
        let body = guest_body(row);
        GuestBody { report: body.report.listed(), ..body }
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
    history::<OpReportBody>(hub, call, HistoryKind::Ops).await
}

async fn decisions(hub: Hub, call: Call) -> Answer {
    history::<DecisionReportBody>(hub, call, HistoryKind::Decisions).await
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

/// What a host said, as it said it.
pub(crate) fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or(Value::Null)
}
