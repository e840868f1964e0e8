//! What waits for a signature, and what was signed, on its way to its host.
//!
//! An item is shown as its host signed it, so that the hub cannot misdescribe it. An envelope must name an open item, or be
//! a rotation, a recovery or an acknowledgement; its form is read here, and its worth is judged on the host alone.

use axum::http::Method;
use evenkeel_core::model::reason::Refusal;
use evenkeel_core::operate::operation::UnixSeconds;
use evenkeel_core::sign::{
    AnyStatement, ENVELOPE_BYTES_MAX, Envelope, HostBinding, Namespace, PublicKey,
};
use schemars::SchemaGenerator;
use serde_json::Value;

use super::guests::told;
use super::hosts::find;
use super::page::{PAGE_QUERY, after, before, limit, one_more, page};
use super::wire::{EnvelopeBody, EnvelopeRequest, PageBody, PendingBody, SealedBody};
use crate::access::{Access, Person, Scope};
use crate::call::Call;
use crate::problem::{Problem, ProblemCode};
use crate::routes::{Answer, Hub, NO_BODY, RouteRow, json};
use crate::secret_text::random_hex;
use crate::store::{EnvelopeKind, EnvelopeRow, HubTime, NewEnvelope, PendingRow, PersonRole};

/// The largest body with an envelope: the envelope and its name around it.
pub(crate) const ENVELOPE_BODY_MAX: usize = ENVELOPE_BYTES_MAX + 1024;

pub(super) fn rows() -> Vec<RouteRow> {
    let see = Access::Person(PersonRole::Viewer, Scope::HostInPath);
    vec![
        RouteRow::new(
            (Method::GET, "/v1/pending"),
            Access::Person(PersonRole::Viewer, Scope::InHandler),
            NO_BODY,
            "what waits for a signature on all hosts",
            pending,
        )
        .asks(PAGE_QUERY)
        .answers(SchemaGenerator::subschema_for::<PageBody<PendingBody>>),
        RouteRow::new(
            (Method::GET, "/v1/hosts/{host}/pending"),
            see,
            NO_BODY,
            "what waits for a signature on a host",
            pending_of,
        )
        .answers(SchemaGenerator::subschema_for::<PageBody<PendingBody>>),
        RouteRow::new(
            (Method::GET, "/v1/hosts/{host}/envelopes"),
            see,
            NO_BODY,
            "what was handed in for a host, and the host's verdicts",
            envelopes,
        )
        .asks(PAGE_QUERY)
        .answers(SchemaGenerator::subschema_for::<PageBody<EnvelopeBody>>),
        RouteRow::new(
            (Method::GET, "/v1/envelopes/{envelope}"),
            Access::Person(PersonRole::Viewer, Scope::InHandler),
            NO_BODY,
            "one envelope, and the host's verdict",
            envelope,
        )
        .answers(SchemaGenerator::subschema_for::<EnvelopeBody>),
        RouteRow::new(
            (Method::POST, "/v1/envelopes"),
            Access::Person(PersonRole::Editor, Scope::InHandler),
            ENVELOPE_BODY_MAX,
            "hands in an approval, a rotation, a recovery or an acknowledgement",
            submit,
        )
        .takes(SchemaGenerator::subschema_for::<EnvelopeRequest>)
        .answers(SchemaGenerator::subschema_for::<EnvelopeBody>),
    ]
}

async fn pending(hub: Hub, call: Call) -> Answer {
    let limit = limit(&call)?;
    let seen = pending_seen(&hub, call.person(), after(&call), limit).await?;
    json(&page(seen, limit, |row| format!("{}/{}", row.host, row.id), pending_body))
}

/// Items in a person's scope after `host/id`: one more than the limit if there are more.
pub(crate) async fn pending_seen(
    hub: &Hub,
    person: &Person,
    after: &str,
    limit: usize,
) -> Result<Vec<PendingRow>, Problem> {
    let (host, id) = after.split_once('/').unwrap_or_default();
    let fleet = hub.people().fleet.seen_by(hub, person).await?;
    let mut hosts: Vec<&str> = fleet
        .hosts
        .iter()
        .filter(|known| known.pending > 0 && known.row.id.as_str() >= host)
        .map(|known| known.row.id.as_str())
        .collect();
    hosts.sort_unstable();
    // Host by host, each by its index: however many items wait on hosts that the person does not see.
    let mut seen = Vec::new();
    for name in hosts {
        let after = if name == host { id } else { "" };
        let wanted = i64::try_from(limit + 1 - seen.len()).unwrap_or(i64::MAX);
        seen.extend(hub.store().pending_after((name, after), wanted).await?);
        if seen.len() > limit {
            break;
        }
    }
    Ok(seen)
}

async fn pending_of(hub: Hub, call: Call) -> Answer {
    let host = find(&hub, call.part("host")?).await?;
    let rows = hub.store().pending_of(&host.id).await?;
    // A host lets at most 256 wait, so that they are one page but for that.
    json(&PageBody { items: rows.into_iter().map(pending_body).collect(), next: None })
}

pub(crate) fn pending_body(row: PendingRow) -> PendingBody {
    let PendingRow { host, id, item, received_at } = row;
    let nothing = SealedBody { payload: String::new(), signatures: Vec::new() };
    let item = serde_json::from_str(&item).unwrap_or(nothing);
    PendingBody { host, id, item, received_at: received_at.to_text() }
}

async fn envelopes(hub: Hub, call: Call) -> Answer {
    let host = find(&hub, call.part("host")?).await?;
    let limit = limit(&call)?;
    let rows = hub.store().envelopes_before(&host.id, before(&call)?, one_more(limit)).await?;
    json(&page(rows, limit, |row| row.cursor.to_string(), envelope_body))
}

async fn envelope(hub: Hub, call: Call) -> Answer {
    let id = call.part("envelope")?;
    let row = hub.store().envelope(id).await?;
    let row = row.filter(|row| call.person().sees(&row.host));
    json(&envelope_body(row.ok_or_else(|| Problem::not_found(&format!("envelope {id}")))?))
}

async fn submit(hub: Hub, call: Call) -> Answer {
    let EnvelopeRequest { envelope } = call.json()?;
    json(&hand_in(&hub, call.person(), &envelope).await?)
}

/// Takes something signed in, for its host to judge.
pub(crate) async fn hand_in(
    hub: &Hub,
    person: &Person,
    sealed: &SealedBody,
) -> Result<EnvelopeBody, Problem> {
    let sealed = sealed.sealed();
    let envelope = sealed.envelope().map_err(|refusal| refused(&refusal))?;
    let signed = SignedAct::read(&envelope).map_err(|refusal| refused(&refusal))?;
    let host = signed.host.id.as_str();
    if !person.sees(host) {
        return Err(Problem::not_found(&format!("host {host}")));
    }
    let row = find(hub, host).await?;
    if signed.host.key.to_string() != row.key_fingerprint {
        return Err(Problem::invalid("it was signed for another key than the host has")
            .hint("the host may have been set up anew: sign what waits now"));
    }
    let id = hub.store().submit(NewEnvelope {
        id: format!("env_{}", random_hex(16)),
        host: host.to_owned(),
        kind: signed.kind,
        item: signed.item,
        body: String::from_utf8(sealed.to_bytes()).expect("JSON is text"),
        expires_at: hub_time(signed.expires_at),
        submitted_by: person.account.name.clone(),
    });
    let row = hub.store().envelope(&id.await?).await?;
    let gone = || Problem::new(ProblemCode::Conflict, "it was handed in, and is gone already");
    Ok(envelope_body(row.ok_or_else(gone)?))
}

/// What the hub reads of something signed.
struct SignedAct {
    kind: EnvelopeKind,
    host: HostBinding,
    item: String,
    expires_at: UnixSeconds,
}

impl SignedAct {
    /// Reads the form, and that every signature is over these bytes; who may sign is for the host to say.
    fn read(envelope: &Envelope) -> Result<Self, Refusal> {
        let (act, namespace) = Self::parse(envelope.payload())?;
        for signature in envelope.signatures() {
            let key = PublicKey::from_blob(signature.key_blob())?;
            signature.verify(&key, namespace, envelope.payload())?;
        }
        Ok(act)
    }

    fn parse(payload: &[u8]) -> Result<(Self, Namespace), Refusal> {
        let statement = AnyStatement::parse(payload)?;
        let (kind, item) = match &statement {
            AnyStatement::Op(statement) => (EnvelopeKind::Approval, statement.item.to_string()),
            AnyStatement::Deny(denial) => (EnvelopeKind::Denial, denial.item.to_string()),
            AnyStatement::Rotation(_) => (EnvelopeKind::Rotation, String::new()),
            AnyStatement::Acknowledge(_) => (EnvelopeKind::Acknowledgement, String::new()),
        };
        let host = statement.host().clone();
        let expires_at = statement.window().expires_at();
        Ok((Self { kind, host, item, expires_at }, statement.namespace()))
    }
}

fn hub_time(at: UnixSeconds) -> HubTime {
    HubTime(i64::try_from(at.0).unwrap_or(i64::MAX).saturating_mul(1000))
}

pub(crate) fn envelope_body(row: EnvelopeRow) -> EnvelopeBody {
    let EnvelopeRow { id, host, cursor: _, kind, item, state, submitted_by, submitted_at, verdict } =
        row;
    let submitted_at = submitted_at.to_text();
    let verdict: Value = told(&verdict);
    EnvelopeBody { id, host, kind, item, state, submitted_by, submitted_at, verdict }
}

fn refused(refusal: &Refusal) -> Problem {
    Problem::invalid(format!("refused as {}: {}", refusal.reason, refusal.detail))
}
