//! `fleet pending` and `fleet submit`: what waits on all hosts, and what was signed for one of them.
//!
//! An item is taken from the hub exactly as from its host: its bytes are the host's, and are believed by the pinned key
//! when they are signed. The hub only carries them.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use evenkeel_core::fleet::{EnvelopeVerdict, VerdictStatement};
use evenkeel_core::model::id::HostId;
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_core::sign::{ENVELOPE_BYTES_MAX, Envelope, PendingItem, render};
use evenkeel_hub::people::wire::{EnvelopeBody, EnvelopeRequest, PageBody, PendingBody};
use tokio::time::Instant;

use super::{ITEMS_MAX, all_pages};
use crate::cli::{FleetPendingArgs, FleetSubmitArgs, HubChoice, KnownHostsArgs, OutputFormat};
use crate::command::approvals::{COLUMNS, columns, short, tell_waiting, the_one};
use crate::command::confirm;
use crate::error::{CommandFailure, Exit};
use crate::fleet::awaited_verdict::AwaitedVerdict;
use crate::fleet::hub_client::{HubClient, encoded};
use crate::format::fleet::{FleetPendingFormat, FleetSubmitFormat};
use crate::render::{PENDING_SHORT as SHORT, tamed};
use crate::signing::known_hosts::{ItemProof, KnownHosts};
use crate::signing::{file, refusal};
use crate::{format, terminal};

const INFALLIBLE: &str = "writing to a string cannot fail";

/// How often a verdict is asked for.
const ASK_EVERY: Duration = Duration::from_secs(1);

pub(super) async fn pending(arguments: &FleetPendingArgs) -> Result<Exit, CommandFailure> {
    let client = HubClient::logged_in(&arguments.fleet.hub)?;
    let items = items(&client, arguments.host.as_ref().map(HostId::as_str)).await?;
    let known = KnownHosts::read(&KnownHostsArgs::default())?;
    let Some(wanted) = &arguments.id else {
        return list(items, &known, arguments.fleet.output.output);
    };
    let sealed = sealed(named(&items, wanted)?);
    let envelope = Envelope::parse(&sealed)?;
    match known.proof_of(&envelope) {
        ItemProof::Verified => {}
        ItemProof::Unpinned(host) => {
            let why = "is not pinned here, so nothing proves that the host wrote this item";
            writeln!(std::io::stderr(), "unverified: the key of {host} {why}\n")?;
        }
        ItemProof::Forged(why) => {
            let message = format!("the hub's item is not from its host: {}", tamed(&why, 300));
            let hint = "look on the host itself: evenkeel pending";
            return Err(CommandFailure::new(Exit::Denied, message).hint(hint));
        }
    }
    if let Some(path) = &arguments.out {
        file::write(path, &sealed, arguments.force)?;
        writeln!(
            std::io::stdout(),
            "wrote {path}; sign it where the key is: evenkeel sign {path} --key KEY"
        )?;
        return Ok(Exit::Ok);
    }
    match arguments.fleet.output.output {
        OutputFormat::Json => {
            writeln!(std::io::stdout(), "{}", String::from_utf8_lossy(&sealed))?;
        }
        OutputFormat::Table => {
            write!(std::io::stdout(), "{}", render::pending(envelope.payload())?)?;
        }
    }
    Ok(Exit::Ok)
}

async fn items(client: &HubClient, host: Option<&str>) -> Result<Vec<PendingBody>, CommandFailure> {
    match host {
        None => all_pages(client, "/v1/pending", ITEMS_MAX).await,
        Some(host) => {
            let path = format!("/v1/hosts/{}/pending", encoded(host));
            let page: PageBody<PendingBody> = client.get(&path).await?;
            Ok(page.items)
        }
    }
}

/// The bytes of an item that waits at a hub, for `evenkeel sign`. Its name must be long enough that the hub can make no
/// other bytes for it.
pub(crate) async fn item_named(
    hub: Option<String>,
    wanted: &str,
) -> Result<Vec<u8>, CommandFailure> {
    let is_name = wanted.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_name || wanted.len() < SHORT {
        let message = format!(
            "`{}` does not name an item of a hub: that takes at least {SHORT} digits of its name",
            tamed(wanted, 64)
        );
        return Err(CommandFailure::new(Exit::Usage, message).hint(
            "`evenkeel fleet pending` lists what waits, each with as many digits as are needed",
        ));
    }
    let client = HubClient::logged_in(&HubChoice { hub })?;
    let items = items(&client, None).await?;
    Ok(sealed(named(&items, wanted)?))
}

fn sealed(item: &PendingBody) -> Vec<u8> {
    item.item.sealed().to_bytes()
}

/// The one item whose name begins so. The name is that of its bytes, whatever the hub calls it.
fn named<'a>(items: &'a [PendingBody], wanted: &str) -> Result<&'a PendingBody, CommandFailure> {
    let begins = |item: &PendingBody| name_of(item).is_some_and(|name| name.starts_with(wanted));
    the_one(items, begins, wanted)
        .map_err(|failure| failure.hint("`evenkeel fleet pending` lists what waits"))
}

fn name_of(item: &PendingBody) -> Option<String> {
    let envelope = item.item.sealed().envelope().ok()?;
    Some(PendingItem::id(envelope.payload()).to_string())
}

fn list(
    items: Vec<PendingBody>,
    known: &KnownHosts,
    output: OutputFormat,
) -> Result<Exit, CommandFailure> {
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
            Some((id, PendingItem::parse(envelope.payload()).ok()?, known.proof_of(&envelope)))
        });
        let host = tamed(&body.host, width);
        let Some((id, item, proof)) = read else {
            writeln!(text, "{:<SHORT$}  {host:<width$}  cannot be read", "?").expect(INFALLIBLE);
            continue;
        };
        let mark = match proof {
            ItemProof::Verified => "",
            ItemProof::Unpinned(_) => "  unverified: its host is not pinned here",
            ItemProof::Forged(_) => "  unverified: its host did not sign it",
        };
        writeln!(text, "{}  {host:<width$}  {}{mark}", short(id), columns(&item))
            .expect(INFALLIBLE);
    }
    terminal::print(&text)?;
    tell_waiting(items.len(), "`evenkeel approve PENDING --hub --key KEY`")?;
    Ok(Exit::Ok)
}

pub(super) async fn submit(arguments: &FleetSubmitArgs) -> Result<Exit, CommandFailure> {
    let text = file::read_text(&arguments.file, ENVELOPE_BYTES_MAX)?;
    confirm::hand_in(&text, arguments.yes)?;
    let client = HubClient::logged_in(&arguments.fleet.hub)?;
    let in_file = |failure: CommandFailure| {
        if failure.exit == Exit::Invalid { failure.in_file(&arguments.file) } else { failure }
    };
    let known = KnownHosts::read(&arguments.hosts)?;
    let awaited = AwaitedVerdict::of(&client, &text, &known).map_err(in_file)?;
    let handed_in = send(&client, &text).await.map_err(in_file)?;
    let output = arguments.fleet.output.output;
    await_verdict(&client, handed_in, &awaited, (arguments.wait, output)).await
}

/// Hands something signed in at a hub, and waits for what its host says of it.
pub(crate) async fn hand_in(
    hub: Option<String>,
    text: &str,
    known: &KnownHosts,
    (wait_s, output): (u64, OutputFormat),
) -> Result<Exit, CommandFailure> {
    let client = HubClient::logged_in(&HubChoice { hub })?;
    let awaited = AwaitedVerdict::of(&client, text, known)?;
    let handed_in = send(&client, text).await?;
    await_verdict(&client, handed_in, &awaited, (wait_s, output)).await
}

async fn send(client: &HubClient, text: &str) -> Result<EnvelopeBody, CommandFailure> {
    let sealed = evenkeel_core::fleet::SealedText::of(text)?;
    client.post("/v1/envelopes", &EnvelopeRequest { envelope: sealed.into() }, None).await
}

async fn await_verdict(
    client: &HubClient,
    handed_in: EnvelopeBody,
    awaited: &AwaitedVerdict,
    (wait_s, output): (u64, OutputFormat),
) -> Result<Exit, CommandFailure> {
    let path = format!("/v1/envelopes/{}", encoded(&handed_in.id));
    let deadline = Instant::now() + Duration::from_secs(wait_s);
    let mut envelope = handed_in;
    while envelope.state == "waiting" && Instant::now() < deadline {
        tokio::time::sleep(ASK_EVERY).await;
        envelope = client.get(&path).await?;
    }
    let told: Option<EnvelopeVerdict> = serde_json::from_value(envelope.verdict.clone()).ok();
    let said = told.as_ref().map(|told| awaited.read(told));
    let (words, exit) = outcome(&envelope, told.as_ref().zip(said.as_ref()), wait_s);
    match output {
        OutputFormat::Json => {
            let verified = said.is_some_and(|said| said.is_ok());
            format::print(&FleetSubmitFormat { format_version: 1, envelope, verified })?;
        }
        OutputFormat::Table => terminal::print(&format!("{words}\n"))?,
    }
    Ok(exit)
}

/// What became of it, in words, and the code to end with. What no signature of the host proves is told as the hub's word, and
/// is no success.
fn outcome(
    envelope: &EnvelopeBody,
    verdict: Option<(&EnvelopeVerdict, &Result<VerdictStatement, String>)>,
    waited_s: u64,
) -> (String, Exit) {
    let id = tamed(&envelope.id, 40);
    let host = tamed(&envelope.host, 253);
    match (envelope.state.as_str(), verdict) {
        ("waiting", _) if waited_s == 0 => (format!("{id} is on its way to {host}"), Exit::Ok),
        ("waiting", _) => (
            format!("{id} waits for {host}, which said nothing within {waited_s} s"),
            Exit::Transient,
        ),
        ("expired", _) => (format!("{id} was over before {host} saw it"), Exit::Transient),
        (_, Some((_, Ok(said)))) => {
            let reason = ReasonCode::ALL.iter().find(|known| known.as_str() == said.code);
            let exit = reason.map_or(Exit::Failed, |reason| refusal::exit(*reason));
            let host = &said.host.id;
            let words = verdict_words((&said.code, &said.op, &said.detail));
            (format!("{host} says {words}"), exit)
        }
        (_, Some((told, Err(why)))) => {
            let op = told.op.as_deref().unwrap_or_default();
            let words = verdict_words((&told.code, op, &told.detail));
            let why = tamed(why, 300);
            let next = "look on the host itself: evenkeel journal";
            let words =
                format!("unverified: the hub tells that {host} says {words}\n  {why}; {next}");
            (words, Exit::Failed)
        }
        (_, None) => (format!("{host} judged {id} without saying how"), Exit::Failed),
    }
}

fn verdict_words((code, op, detail): (&str, &str, &str)) -> String {
    let op = if op.is_empty() { String::new() } else { format!(" ({})", tamed(op, 64)) };
    let words = format!("{}{op}: {}", tamed(code, 64), tamed(detail, 1000));
    words.trim_end_matches([':', ' ']).to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use evenkeel_core::sign::{HostBinding, PayloadHash};

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
        let told = |code: &str| EnvelopeVerdict {
            envelope: format!("env_{}", "0".repeat(32)).parse().unwrap(),
            code: code.to_owned(),
            op: None,
            detail: "why".to_owned(),
            sealed: None,
        };
        let said = |code: &str| {
            let host = HostBinding { id: "pve1".parse().unwrap(), key: key_print() };
            let hub_id = "a".repeat(32).parse().unwrap();
            VerdictStatement::of(hub_id, host, PayloadHash::of(b"it"), &told(code))
        };
        let judged = |code: &str| {
            let judged = envelope("judged", Value::Null);
            outcome(&judged, Some((&told(code), &Ok(said(code)))), 60)
        };
        assert_eq!(
            judged("allowed_signed"),
            ("pve1 says allowed_signed: why".to_owned(), Exit::Ok)
        );
        assert_eq!(judged("unknown_signer").1, Exit::Denied);
        assert_eq!(judged("expired").1, Exit::Transient);
        assert_eq!(judged("of a newer agent").1, Exit::Failed);
        let waiting = envelope("waiting", Value::Null);
        assert_eq!(outcome(&waiting, None, 60).1, Exit::Transient);
        assert_eq!(outcome(&waiting, None, 0).1, Exit::Ok);
        assert_eq!(outcome(&envelope("expired", Value::Null), None, 60).1, Exit::Transient);
        let unsigned = Err("the hub shows no signature of the host".to_owned());
        let judged = envelope("judged", Value::Null);
        let (words, exit) = outcome(&judged, Some((&told("allowed_signed"), &unsigned)), 60);
        assert_eq!(exit, Exit::Failed);
        assert!(
            words.starts_with("unverified: the hub tells that pve1 says allowed_signed"),
            "{words}"
        );
    }

    fn key_print() -> evenkeel_core::sign::Fingerprint {
        let key =
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl";
        evenkeel_core::sign::PublicKey::from_line(key).unwrap().fingerprint()
    }
}
