//! What people did. Whoever is bounded to some hosts sees what was done to those, and what they did themselves.

use axum::http::Method;
use schemars::SchemaGenerator;

use super::page::{PAGE_QUERY, before, limit, one_more, page};
use super::wire::{AuditBody, PageBody};
use crate::access::{Access, Person, Scope};
use crate::call::Call;
use crate::routes::{Answer, Hub, NO_BODY, RouteRow, json};
use crate::store::{AuditLine, PersonRole};

/// Acts whose subject is a host. Of an act that is not here nobody with a bounded scope hears.
const ABOUT_HOSTS: [&str; 5] = ["host.", "document.", "draft.", "envelope.", "enrol"];

/// How many lines are read to fill one page of somebody who sees few of them.
const LINES_READ_MAX: usize = 20_000;

pub(super) fn rows() -> Vec<RouteRow> {
    vec![
        RouteRow::new(
            (Method::GET, "/v1/audit"),
            Access::Person(PersonRole::Viewer, Scope::InHandler),
            NO_BODY,
            "what people did, newest first",
            list,
        )
        .asks(PAGE_QUERY)
        .answers(SchemaGenerator::subschema_for::<PageBody<AuditBody>>),
    ]
}

async fn list(hub: Hub, call: Call) -> Answer {
    let limit = limit(&call)?;
    let person = call.person();
    let mut from = before(&call)?;
    let mut seen = Vec::new();
    let mut read = 0;
    let more = loop {
        let rows = hub.store().audit_page(None, from, one_more(limit)).await?;
        let is_last = rows.len() <= limit;
        read += rows.len();
        from = rows.last().map_or(from, |row| row.serial);
        seen.extend(rows.into_iter().filter(|row| is_seen(person, row)));
        if is_last || seen.len() > limit {
            break false;
        }
        if read > LINES_READ_MAX {
            break true;
        }
    };
    let mut body = page(seen, limit, |row| row.serial.to_string(), audit_body);
    if more {
        // Nothing was missed: the next page goes on where this reading stopped.
        body.next = Some(from.to_string());
    }
    json(&body)
}

/// Whether a line is a person's to see.
pub(crate) fn is_seen(person: &Person, entry: &AuditLine) -> bool {
    let about_host = ABOUT_HOSTS.iter().any(|prefix| entry.act.starts_with(prefix));
    person.account.scope == "*"
        || entry.who == person.account.name
        || (about_host && person.sees(&entry.subject))
}

fn audit_body(entry: AuditLine) -> AuditBody {
    let AuditLine { serial, at, who, act, subject, detail } = entry;
    AuditBody { serial: serial.unsigned_abs(), at: at.to_text(), who, act, subject, detail }
}
