//! `fleet pending` and `fleet submit`: what waits on all hosts, and what was signed for one of them.
//!
//! An item is taken from the hub exactly as from its host: its bytes are the host's, and are believed by the pinned key
//! when they are signed. The hub only carries them.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use evenkeel_core::fleet::EnvelopeVerdict;
use evenkeel_core::id::HostId;
use evenkeel_core::reason::ReasonCode;
use evenkeel_core::sign::{ENVELOPE_BYTES_MAX, Envelope, PendingItem, render};
use evenkeel_hub::people::wire::{EnvelopeBody, EnvelopeRequest, PageBody, PendingBody};
use tokio::time::Instant;

use super::{ITEMS_MAX, all_pages};
use crate::cli::{FleetPendingArgs, FleetSubmitArgs, HubChoice, OutputFormat};
use crate::command::approvals::{COLUMNS, columns, short, tell_waiting, the_one};
use crate::error::{Exit, Failure};
use crate::fleet::hub_client::{HubClient, encoded};
use crate::format::fleet::{FleetPendingFormat, FleetSubmitFormat};
use crate::render::{PENDING_SHORT as SHORT, tamed};
use crate::signing::{file, refusal};
use crate::{format, terminal};

const INFALLIBLE: &str = "writing to a string cannot fail";

/// How often a verdict is asked for.
const ASK_EVERY: Duration = Duration::from_secs(1);

pub(super) async fn pending(arguments: &FleetPendingArgs) -> Result<Exit, Failure> {
    let client = HubClient::logged_in(&arguments.fleet.hub)?;
    let items = items(&client, arguments.host.as_ref().map(HostId::as_str)).await?;
    let Some(wanted) = &arguments.id else {
        return list(items, arguments.fleet.output.output);
    };
    let sealed = sealed(named(&items, wanted)?);
    if let Some(path) = &arguments.out {
        file::write(path, &sealed, arguments.force)?;
        writeln!(
            std::io::stdout(),
            "wrote {path}; sign it: evenkeel sign {path} --key KEY --out approval.json"
        )?;
        return Ok(Exit::Ok);
    }
    match arguments.fleet.output.output {
        OutputFormat::Json => {
            writeln!(std::io::stdout(), "{}", String::from_utf8_lossy(&sealed))?;
        }
        OutputFormat::Table => {
            let envelope = Envelope::parse(&sealed)?;
            write!(std::io::stdout(), "{}", render::pending(envelope.payload())?)?;
        }
    }
    Ok(Exit::Ok)
}

async fn items(client: &HubClient, host: Option<&str>) -> Result<Vec<PendingBody>, Failure> {
    match host {
        None => all_pages(client, "/v1/pending", ITEMS_MAX).await,
        Some(host) => {
            let path = format!("/v1/hosts/{}/pending", encoded(host));
            let page: PageBody<PendingBody> = client.get(&path).await?;
            Ok(page.items)
        }
    }
}

/// The bytes of an item that waits at a hub, for `evenkeel sign`.
pub(crate) async fn item_named(hub: Option<String>, wanted: &str) -> Result<Vec<u8>, Failure> {
    let client = HubClient::logged_in(&HubChoice { hub })?;
    let items = items(&client, None).await?;
    Ok(sealed(named(&items, wanted)?))
}

fn sealed(item: &PendingBody) -> Vec<u8> {
    item.item.sealed().to_bytes()
}

/// The one item whose name begins so. The name is that of its bytes, whatever the hub calls it.
fn named<'a>(items: &'a [PendingBody], wanted: &str) -> Result<&'a PendingBody, Failure> {
    let begins = |item: &PendingBody| name_of(item).is_some_and(|name| name.starts_with(wanted));
    the_one(items, begins, wanted)
        .map_err(|failure| failure.hint("`evenkeel fleet pending` lists what waits"))
}

fn name_of(item: &PendingBody) -> Option<String> {
    let envelope = item.item.sealed().envelope().ok()?;
    Some(PendingItem::id(envelope.payload()).to_string())
}

fn list(items: Vec<PendingBody>, output: OutputFormat) -> Result<Exit, Failure> {
    if output == OutputFormat::Json {
        format::print(&FleetPendingFormat { format_version: 1, items })?;
        return Ok(Exit::Ok);
    }
    if items.is_empty() {
        terminal::print("nothing waits for a signature\n")?;
        return Ok(Exit::Ok);
    }
    let width = items.iter().map(|item| item.host.chars().count()).max().unwrap_or(4).max(4);
    let mut text = format!("{:<SHORT$}  {:<width$}  {COLUMNS}\n", "PENDING", "HOST");
    for body in &items {
        let read = body.item.sealed().envelope().ok().and_then(|envelope| {
            let id = PendingItem::id(envelope.payload());
            Some((id, PendingItem::parse(envelope.payload()).ok()?))
        });
        let host = tamed(&body.host, width);
        let Some((id, item)) = read else {
            writeln!(text, "{:<SHORT$}  {host:<width$}  cannot be read", "?").expect(INFALLIBLE);
            continue;
        };
        writeln!(text, "{}  {host:<width$}  {}", short(id), columns(&item)).expect(INFALLIBLE);
    }
    terminal::print(&text)?;
    tell_waiting(items.len(), "`evenkeel sign PENDING --hub --key KEY --out approval.json`")?;
    Ok(Exit::Ok)
}

pub(super) async fn submit(arguments: &FleetSubmitArgs) -> Result<Exit, Failure> {
    let text = file::read_text(&arguments.file, ENVELOPE_BYTES_MAX)?;
    let sealed = evenkeel_core::fleet::SealedText::of(&text)
        .map_err(|refused| refusal::refused(&refused).in_file(&arguments.file))?;
    let client = HubClient::logged_in(&arguments.fleet.hub)?;
    let request = EnvelopeRequest { envelope: sealed.into() };
    let handed_in: EnvelopeBody = client.post("/v1/envelopes", &request, None).await?;
    let path = format!("/v1/envelopes/{}", encoded(&handed_in.id));
    let deadline = Instant::now() + Duration::from_secs(arguments.wait);
    let mut envelope = handed_in;
    while envelope.state == "waiting" && Instant::now() < deadline {
        tokio::time::sleep(ASK_EVERY).await;
        envelope = client.get(&path).await?;
    }
    let (words, exit) = outcome(&envelope, arguments.wait);
    match arguments.fleet.output.output {
        OutputFormat::Json => {
            format::print(&FleetSubmitFormat { format_version: 1, envelope })?;
        }
        OutputFormat::Table => terminal::print(&format!("{words}\n"))?,
    }
    Ok(exit)
}

/// What became of it, in words, and the code to end with.
fn outcome(envelope: &EnvelopeBody, waited_s: u64) -> (String, Exit) {
    let (id, host) = (tamed(&envelope.id, 40), tamed(&envelope.host, 253));
    let verdict: Option<EnvelopeVerdict> = serde_json::from_value(envelope.verdict.clone()).ok();
    match (envelope.state.as_str(), verdict) {
        ("waiting", _) if waited_s == 0 => (format!("{id} is on its way to {host}"), Exit::Ok),
        ("waiting", _) => (
            format!("{id} waits for {host}, which said nothing within {waited_s} s"),
            Exit::Transient,
        ),
        ("expired", _) => (format!("{id} was over before {host} saw it"), Exit::Transient),
        (_, Some(verdict)) => {
            let (code, detail) = (tamed(&verdict.code, 64), tamed(&verdict.detail, 1000));
            let op = verdict.op.as_deref().map(|op| format!(" ({})", tamed(op, 64)));
            let words = format!("{host} says {code}{}: {detail}", op.unwrap_or_default());
            let reason = ReasonCode::ALL.iter().find(|known| known.as_str() == verdict.code);
            let exit = reason.map_or(Exit::Failed, |reason| refusal::exit(*reason));
            (words.trim_end_matches([':', ' ']).to_owned(), exit)
        }
        (_, None) => (format!("{host} judged {id} without saying how"), Exit::Failed),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_verdict_ends_with_the_code_of_its_reason() {
        let envelope = |state: &str, verdict: Value| EnvelopeBody {
            id: "env_1".to_owned(),
            host: "pve1".to_owned(),
            kind: "approval".to_owned(),
            item: String::new(),
            state: state.to_owned(),
            submitted_by: "alice".to_owned(),
            submitted_at: String::new(),
            verdict,
        };
        let id = format!("env_{}", "0".repeat(32));
        let judged = |code: &str| {
            outcome(&envelope("judged", json!({"envelope": id, "code": code, "detail": "why"})), 60)
                .1
        };
        assert_eq!(judged("allowed_signed"), Exit::Ok);
        assert_eq!(judged("unknown_signer"), Exit::Denied);
        assert_eq!(judged("expired"), Exit::Transient);
        assert_eq!(judged("of a newer agent"), Exit::Failed);
        assert_eq!(outcome(&envelope("waiting", Value::Null), 60).1, Exit::Transient);
        assert_eq!(outcome(&envelope("waiting", Value::Null), 0).1, Exit::Ok);
        assert_eq!(outcome(&envelope("expired", Value::Null), 60).1, Exit::Transient);
    }
}
