//! Hosts: who is there and how each stands; their labels, their tokens, their end.

use std::collections::BTreeMap;

use axum::http::Method;
use evenkeel_core::fleet::GenerationState;
use evenkeel_core::model::id::HostId;
use schemars::SchemaGenerator;

use super::SMALL_BODY_MAX;
use super::fleet_filter::FleetFilter;
use super::fleet_index::FleetHost;
use super::guests::told;
use super::page::{PAGE_MAX, after, limit, page};
use super::wire::{
    EnrolTokenAnswer, EnrolTokenRequest, HostBody, HostDetailBody, LabelsRequest, PageBody,
};
use crate::access::{Access, Person, Scope};
use crate::call::Call;
use crate::problem::Problem;
use crate::routes::{Answer, Hub, NO_BODY, RouteRow, json, no_content};
use crate::secret_text::{SecretKind, SecretText};
use crate::store::{HostRow, HubTime, PersonRole};

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
pub(crate) async fn find(hub: &Hub, host: &str) -> Result<HostRow, Problem> {
    let row = hub.store().host(host).await?;
    row.ok_or_else(|| Problem::not_found(&format!("host {host}")))
}

async fn list(hub: Hub, call: Call) -> Answer {
    let filter = FleetFilter::read(&call)?;
    let limit = limit(&call)?;
    let seen = hub.people().fleet.seen_by(&hub, call.person()).await?;
    let hosts = filter.page(&seen, after(&call), limit + 1).hosts;
    json(&page(hosts, limit, |host| host.row.id.clone(), |host| host.body(seen.now)))
}

async fn one(hub: Hub, call: Call) -> Answer {
    let row = find(&hub, call.part("host")?).await?;
    let state = hub.store().host_state(&row.id).await?;
    let pending = hub.store().pending_of(&row.id).await?.len();
    let next_generation = (row.wanted.max(row.reported) + 1).unsigned_abs();
    let reported_at =
        if state.reported_at == 0 { String::new() } else { HubTime(state.reported_at).to_text() };
    let pending = i64::try_from(pending).unwrap_or(i64::MAX);
    let in_effect: Option<GenerationState> = serde_json::from_str(&state.generation).ok();
    let in_effect_manifest = in_effect.and_then(|state| state.manifest);
    json(&HostDetailBody {
        host: FleetHost::new(row, &state, pending).body(HubTime::now()),
        next_generation,
        hub_id: hub.store().hub_id().to_owned(),
        in_effect_manifest: in_effect_manifest.map_or_else(String::new, |hash| hash.to_string()),
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
    change_labels(&hub, call.person(), call.part("host")?, labels).await?;
    no_content()
}

/// Sets the labels of a host, as somebody who may.
pub(crate) async fn change_labels(
    hub: &Hub,
    person: &Person,
    host: &str,
    labels: BTreeMap<String, String>,
) -> Result<(), Problem> {
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
    hub.store().set_labels(host, labels, &person.account.name).await?;
    Ok(())
}

async fn enrol_token(hub: Hub, call: Call) -> Answer {
    let EnrolTokenRequest { host, replace } = call.json()?;
    json(&make_enrol_token(&hub, call.person(), &host, replace).await?)
}

/// A token for one host to enrol with, made by somebody who manages hosts.
pub(crate) async fn make_enrol_token(
    hub: &Hub,
    person: &Person,
    host: &str,
    replace: bool,
) -> Result<EnrolTokenAnswer, Problem> {
    let host: HostId =
        host.parse().map_err(|error| Problem::invalid(format!("the host's id: {error}")))?;
    // The same whether such a host exists or not: there is none of that name for this person.
    if !person.sees(host.as_str()) {
        return Err(Problem::forbidden());
    }
    let token = SecretText::draw(SecretKind::EnrolToken);
    let name = &person.account.name;
    let ends = hub.store().make_enrol_token(token.hash(), host.as_str(), replace, name).await?;
    Ok(EnrolTokenAnswer { token: token.reveal().to_owned(), expires_at: ends.to_text() })
}

const _: () = assert!(PAGE_MAX <= 200, "the contract bounds pages");
