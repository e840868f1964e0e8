//! Hosts: who is there and how each stands; their labels, their tokens, their end.

use std::collections::BTreeMap;

use axum::http::Method;
use evenkeel_core::fleet::RefusedGeneration;
use evenkeel_core::id::HostId;
use schemars::SchemaGenerator;
use serde_json::Value;

use super::SMALL_BODY_MAX;
use super::page::{PAGE_MAX, after, limit, page};
use super::report_wire::told;
use super::wire::{
    EnrolTokenAnswer, EnrolTokenRequest, HostBody, HostDetailBody, HostStanding, LabelsRequest,
    PageBody,
};
use crate::access::{Access, Person, Scope};
use crate::call::Call;
use crate::problem::Problem;
use crate::routes::{Answer, Hub, NO_BODY, RouteRow, json, no_content};
use crate::secret_text::{SecretKind, SecretText};
use crate::store::{HOSTS_MAX, HostRow, HostStateRow, HubTime, PersonRole};

/// A host that was not heard of for so long is silent: three long polls in a row, and the pause in which signs of life are
/// gathered.
const SILENT_AFTER_MS: i64 = 180_000;

/// The most labels of a host, and the longest name and value.
const LABELS_MAX: usize = 64;
const LABEL_BYTES_MAX: usize = 128;

pub(super) fn rows() -> Vec<RouteRow> {
    let see = Access::Person(PersonRole::Viewer, Scope::HostInPath);
    let manage = Access::Person(PersonRole::Admin, Scope::HostInPath);
    vec![
        RouteRow::new(
            (Method::GET, "/v1/hosts"),
            Access::Person(PersonRole::Viewer, Scope::InHandler),
            NO_BODY,
            "hosts, with how each stands",
            list,
        )
        .asks(&["label", "state", "text", "sort", "after", "limit"])
        .answers(SchemaGenerator::subschema_for::<PageBody<HostBody>>),
        RouteRow::new((Method::GET, "/v1/hosts/{host}"), see, NO_BODY, "one host", one)
            .answers(SchemaGenerator::subschema_for::<HostDetailBody>),
        RouteRow::new(
            (Method::DELETE, "/v1/hosts/{host}"),
            manage,
            NO_BODY,
            "forgets a host; its credential ends",
            remove,
        ),
        RouteRow::new(
            (Method::PUT, "/v1/hosts/{host}/labels"),
            manage,
            SMALL_BODY_MAX,
            "sets the labels of a host",
            set_labels,
        )
        .takes(SchemaGenerator::subschema_for::<LabelsRequest>),
        RouteRow::new(
            (Method::POST, "/v1/enrol-tokens"),
            Access::Person(PersonRole::Admin, Scope::InHandler),
            SMALL_BODY_MAX,
            "a token for one host to enrol with",
            enrol_token,
        )
        .takes(SchemaGenerator::subschema_for::<EnrolTokenRequest>)
        .answers(SchemaGenerator::subschema_for::<EnrolTokenAnswer>),
    ]
}

/// A host that somebody sees.
pub(super) async fn find(hub: &Hub, host: &str) -> Result<HostRow, Problem> {
    let row = hub.store().host(host).await?;
    row.ok_or_else(|| Problem::not_found(&format!("host {host}")))
}

async fn list(hub: Hub, call: Call) -> Answer {
    let filter = HostFilter::read(&call)?;
    let limit = limit(&call)?;
    let mut hosts = seen_hosts(&hub, call.person()).await?;
    hosts.retain(|host| filter.fits(host));
    if filter.by_standing {
        hosts.sort_by(|a, b| (a.standing, &a.host).cmp(&(b.standing, &b.host)));
    }
    let after = after(&call);
    let start = match hosts.iter().position(|host| host.host == after) {
        Some(place) => place + 1,
        // The host the last page ended with is gone: by name the place is known, else it begins anew.
        None if !filter.by_standing => hosts.partition_point(|host| host.host.as_str() <= after),
        None => 0,
    };
    let hosts = hosts.split_off(start.min(hosts.len()));
    json(&page(hosts, limit, |host| host.host.clone(), |host| host))
}

/// Every host in a person's scope, by id.
async fn seen_hosts(hub: &Hub, person: &Person) -> Result<Vec<HostBody>, Problem> {
    let rows = hub.store().hosts_after("", HOSTS_MAX).await?;
    let (mut states, pending) =
        (hub.store().host_states().await?, hub.store().pending_counts().await?);
    let now = HubTime::now();
    let seen = rows.into_iter().filter(|row| person.sees(&row.id));
    let body = |row: HostRow| {
        let state = states.remove(&row.id).unwrap_or_default();
        let waits = pending.get(&row.id).copied().unwrap_or_default();
        host_body(row, &state, waits, now)
    };
    Ok(seen.map(body).collect())
}

fn host_body(row: HostRow, state: &HostStateRow, pending: i64, now: HubTime) -> HostBody {
    let mut counts: BTreeMap<String, u64> = serde_json::from_str(&state.counts).unwrap_or_default();
    // Told beside the guests, not among them.
    counts.remove("pending");
    HostBody {
        standing: standing(&row, state, &counts, now),
        host: row.id,
        labels: row.labels,
        wanted: row.wanted.unsigned_abs(),
        in_effect: in_effect(state),
        counts,
        pending: pending.unsigned_abs(),
        last_seen: row.last_seen.to_text(),
        enrolled_at: row.enrolled_at.to_text(),
        key: row.key_fingerprint,
    }
}

fn in_effect(state: &HostStateRow) -> u64 {
    let generation: Value = serde_json::from_str(&state.generation).unwrap_or_default();
    generation.get("number").and_then(Value::as_u64).unwrap_or_default()
}

fn standing(
    row: &HostRow,
    state: &HostStateRow,
    counts: &BTreeMap<String, u64>,
    now: HubTime,
) -> HostStanding {
    let refused: Option<RefusedGeneration> = serde_json::from_str(&state.refused).ok();
    let refused = refused.map_or(0, |refused| refused.generation.0);
    let some = |names: &[&str]| names.iter().any(|name| counts.get(*name).is_some_and(|n| *n > 0));
    if now.0 - row.last_seen.0 > SILENT_AFTER_MS {
        HostStanding::Silent
    } else if refused > 0 && refused == row.wanted.unsigned_abs() {
        HostStanding::Refused
    } else if in_effect(state) != row.wanted.unsigned_abs() {
        HostStanding::Behind
    } else if some(&["failed", "unreadable"]) {
        HostStanding::Failing
    } else if some(&["drifted", "held", "busy"]) {
        HostStanding::Drifted
    } else {
        HostStanding::InSync
    }
}

/// Which hosts are listed.
struct HostFilter {
    labels: Vec<(String, String)>,
    state: Option<HostStanding>,
    text: String,
    by_standing: bool,
}

impl HostFilter {
    fn read(call: &Call) -> Result<Self, Problem> {
        let query = |name: &str| call.query.get(name).map_or("", String::as_str);
        let mut labels = Vec::new();
        for pair in query("label").split(',').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or_else(|| {
                Problem::invalid("`label` is written name=value, several with commas between")
            })?;
            labels.push((name.to_owned(), value.to_owned()));
        }
        let state = match query("state") {
            "" => None,
            word => Some(
                HostStanding::ALL
                    .into_iter()
                    .find(|standing| standing.as_str() == word)
                    .ok_or_else(|| Problem::invalid("`state` is no state of a host"))?,
            ),
        };
        let by_standing = match query("sort") {
            "" | "host" => false,
            "state" => true,
            _ => return Err(Problem::invalid("`sort` is host or state")),
        };
        let text = query("text").to_ascii_lowercase();
        Ok(Self { labels, state, text, by_standing })
    }

    fn fits(&self, host: &HostBody) -> bool {
        let has_label = |(name, value): &(String, String)| host.labels.get(name) == Some(value);
        self.labels.iter().all(has_label)
            && self.state.is_none_or(|state| host.standing == state)
            && host.host.to_ascii_lowercase().contains(&self.text)
    }
}

async fn one(hub: Hub, call: Call) -> Answer {
    let row = find(&hub, call.part("host")?).await?;
    let state = hub.store().host_state(&row.id).await?;
    let pending = hub.store().pending_of(&row.id).await?.len();
    let next_generation = (row.wanted.max(row.reported) + 1).unsigned_abs();
    let reported_at =
        if state.reported_at == 0 { String::new() } else { HubTime(state.reported_at).to_text() };
    let pending = i64::try_from(pending).unwrap_or(i64::MAX);
    json(&HostDetailBody {
        host: host_body(row, &state, pending, HubTime::now()),
        next_generation,
        hub_id: hub.store().hub_id().to_owned(),
        refused: told(&state.refused),
        agent: told(&state.agent),
        pass: told(&state.pass),
        reported_at,
        host_time: state.host_time,
    })
}

async fn remove(hub: Hub, call: Call) -> Answer {
    hub.store().remove_host(call.part("host")?, &call.person().account.name).await?;
    no_content()
}

async fn set_labels(hub: Hub, call: Call) -> Answer {
    let LabelsRequest { labels } = call.json()?;
    let fits = |text: &str| {
        text.len() <= LABEL_BYTES_MAX && !text.contains(|c: char| c.is_control() || c == ',')
    };
    let all_fit = labels
        .iter()
        .all(|(name, value)| !name.is_empty() && !name.contains('=') && fits(name) && fits(value));
    if labels.len() > LABELS_MAX || !all_fit {
        return Err(Problem::invalid(format!(
            "a host has at most {LABELS_MAX} labels, of at most {LABEL_BYTES_MAX} bytes, without commas"
        )));
    }
    hub.store().set_labels(call.part("host")?, labels, &call.person().account.name).await?;
    no_content()
}

async fn enrol_token(hub: Hub, call: Call) -> Answer {
    let EnrolTokenRequest { host, replace } = call.json()?;
    let host: HostId =
        host.parse().map_err(|error| Problem::invalid(format!("the host's id: {error}")))?;
    let person = call.person();
    // The same whether such a host exists or not: there is none of that name for this person.
    if !person.sees(host.as_str()) {
        return Err(Problem::forbidden());
    }
    let token = SecretText::draw(SecretKind::EnrolToken);
    let name = &person.account.name;
    let ends = hub.store().make_enrol_token(token.hash(), host.as_str(), replace, name).await?;
    json(&EnrolTokenAnswer { token: token.reveal().to_owned(), expires_at: ends.to_text() })
}

const _: () = assert!(PAGE_MAX <= 200, "the contract bounds pages");
