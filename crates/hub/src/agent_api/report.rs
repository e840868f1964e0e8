//! `POST /v1/agent/reports`: exact bytes that the host signed; verified, then read, then kept whole.

use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evenkeel_core::fleet::{
    HeadStatement, HostReport, PayloadHash, ReportAnswer, ReportStatement, SealedText,
};
use evenkeel_core::model::reason::Refusal;
use evenkeel_core::sign::{Namespace, PendingItem, PublicKey, SshSig};

use crate::call::Call;
use crate::problem::{Problem, ProblemCode};
use crate::routes::{Answer, Hub, json};
use crate::store::{LinkRow, NUMBER_MAX, NewHead, NewReport, sealed_text};

pub(super) async fn report(hub: Hub, call: Call) -> Answer {
    let host = call.host();
    let key = PublicKey::from_line(&host.key_line)
        .map_err(|_| Problem::new(ProblemCode::Internal, "the host's key cannot be read"))?;
    let statement = verified(&hub, host, &key, &call)?;
    let report =
        HostReport::read(&call.body).map_err(|error| Problem::invalid(error.to_string()))?;
    for pending in &report.pending {
        let envelope = pending.item.envelope().map_err(|refusal| refused("an item", &refusal))?;
        PendingItem::verify(&envelope, &key).map_err(|refusal| refused("an item", &refusal))?;
        if PendingItem::id(envelope.payload()) != pending.id {
            return Err(Problem::invalid("an item has another name than its bytes"));
        }
    }
    let head =
        report.head.as_ref().map(|head| verified_head(&hub, host, &key, head)).transpose()?;
    let seq = statement.seq;
    hub.store()
        .report(NewReport {
            host: host.id.clone(),
            key_fingerprint: key.fingerprint().to_string(),
            instance: statement.instance.as_str().to_owned(),
            seq: number(statement.seq)?,
            base: number(statement.base)?,
            report,
            head,
        })
        .await?;
    hub.metrics().reports.inc();
    json(&ReportAnswer { seq })
}

/// The statement over exactly this body, by exactly this host, to exactly this hub.
fn verified(
    hub: &Hub,
    host: &LinkRow,
    key: &PublicKey,
    call: &Call,
) -> Result<ReportStatement, Problem> {
    let bytes = in_header(&call.headers, "evenkeel-statement")?;
    let signature = in_header(&call.headers, "evenkeel-signature")?;
    let signed = SshSig::from_blob(&signature)
        .and_then(|signature| signature.verify(key, Namespace::Report, &bytes))
        .and_then(|_| ReportStatement::parse(&bytes));
    let statement = signed.map_err(|refusal| refused("the report", &refusal))?;
    let ours = statement.hub_id.as_str() == hub.store().hub_id()
        && statement.host.id.as_str() == host.id
        && statement.host.key == key.fingerprint();
    if !ours {
        return Err(Problem::invalid("the report was signed for another hub, host or key"));
    }
    if statement.sha256 != PayloadHash::of(&call.body) {
        return Err(Problem::invalid("the report's signature is over another body"));
    }
    Ok(statement)
}

fn verified_head(
    hub: &Hub,
    host: &LinkRow,
    key: &PublicKey,
    head: &SealedText,
) -> Result<NewHead, Problem> {
    let envelope = head.envelope().map_err(|refusal| refused("the head", &refusal))?;
    let statement =
        HeadStatement::verify(&envelope, key).map_err(|refusal| refused("the head", &refusal))?;
    if statement.hub_id.as_str() != hub.store().hub_id() || statement.host.id.as_str() != host.id {
        return Err(Problem::invalid("the head was signed for another hub or host"));
    }
    Ok(NewHead {
        epoch: number(statement.head.epoch)?,
        seq: number(statement.head.seq)?,
        sum: statement.head.sum.to_string(),
        sealed: sealed_text(head),
    })
}

fn in_header(headers: &HeaderMap, name: &str) -> Result<Vec<u8>, Problem> {
    let value = headers
        .get(name)
        .ok_or_else(|| Problem::invalid(format!("the header `{name}` is missing")))?;
    STANDARD
        .decode(value)
        .map_err(|_| Problem::invalid(format!("the header `{name}` is not base64")))
}

fn number(number: u64) -> Result<i64, Problem> {
    let small = i64::try_from(number).ok().filter(|number| *number <= NUMBER_MAX);
    small.ok_or_else(|| Problem::invalid("a number is too large"))
}

fn refused(what: &str, refusal: &Refusal) -> Problem {
    Problem::invalid(format!("{what} is refused: {}", refusal.detail))
}
