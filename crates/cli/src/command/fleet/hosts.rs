//! `fleet hosts` and `fleet status`: who is there, and how one host stands.

use std::fmt::Write as _;
use std::io::Write as _;

use evenkeel_core::fleet::{
    AgentState, AuthorWordReport, Generation, GuestDifference, GuestReport, HeldReport,
    RefusedGeneration, ReportedDecision, ToldOperation,
};
use evenkeel_hub::people::wire::{GuestBody, HistoryBody, HostBody, HostStanding, PageBody};

use super::{ITEMS_MAX, all_pages};
use crate::cli::{FleetHostArgs, FleetHostsArgs, KnownHostsArgs, OutputFormat};
use crate::error::{CommandFailure, Exit};
use crate::fleet::host_at_hub::HostAtHub;
use crate::fleet::hub_client::{HubClient, encoded};
use crate::format;
use crate::format::fleet::{FleetHostsFormat, FleetStatusFormat};
use crate::render::style::{ADD, ALARM, CHANGE, FAINT, GUEST, WAITS, styled};
use crate::render::{counted, tamed};
use crate::terminal;

const INFALLIBLE: &str = "writing to a string cannot fail";

/// How many guests that are not as declared are shown one by one.
const GUESTS_TOLD_MAX: usize = 50;

/// How many ops and decisions are shown.
const HISTORY_TOLD: usize = 10;

/// How many mistakes of a refused document are shown.
const MISTAKES_TOLD_MAX: usize = 10;

/// What a fleet without hosts says.
const NO_HOST_YET: &str = "no host is enrolled that you may see\n\
    An admin adds one: `evenkeel fleet enrol-token HOST` prints a token, and the line to run on the host.\n";

/// Whose word a state is that a hub shows: no key of a host stands behind it.
const HUBS_WORD: &str = "as the hub says; the host's own word is `evenkeel status` there";

pub(super) async fn list(arguments: &FleetHostsArgs) -> Result<Exit, CommandFailure> {
    let client = HubClient::logged_in(&arguments.fleet.hub)?;
    let labels = encoded(&arguments.label.join(","));
    let path = format!("/v1/hosts?label={labels}");
    let mut hosts: Vec<HostBody> = all_pages(&client, &path, ITEMS_MAX).await?;
    if arguments.stale {
        hosts.retain(|host| host.standing.is_stale());
    }
    match arguments.fleet.output.output {
        OutputFormat::Json => format::print(&FleetHostsFormat { format_version: 1, hosts })?,
        OutputFormat::Table if hosts.is_empty() => {
            let is_filtered = arguments.stale || !arguments.label.is_empty();
            terminal::print(if is_filtered { "no such host\n" } else { NO_HOST_YET })?;
        }
        OutputFormat::Table => {
            terminal::print(&table(&hosts))?;
            writeln!(std::io::stderr(), "unverified: {HUBS_WORD}")?;
        }
    }
    Ok(Exit::Ok)
}

fn table(hosts: &[HostBody]) -> String {
    let width = hosts.iter().map(|host| host.host.chars().count()).max().unwrap_or(4).max(4);
    let mut text = format!(
        "{:<width$}  {:<8}  {:>11}  {:>6}  {:>7}  LAST SEEN\n",
        "HOST", "STATE", "GENERATION", "GUESTS", "PENDING"
    );
    for host in hosts {
        let guests: u64 = host.counts.values().sum();
        let generation = if host.wanted == host.in_effect {
            host.wanted.to_string()
        } else {
            format!("{} of {}", host.in_effect, host.wanted)
        };
        let name = tamed(&host.host, width);
        let word = drawn(host.standing);
        let pad = " ".repeat(8_usize.saturating_sub(host.standing.as_str().len()));
        writeln!(
            text,
            "{name:<width$}  {word}{pad}  {generation:>11}  {guests:>6}  {:>7}  {}",
            host.pending,
            tamed(&host.last_seen, 40)
        )
        .expect(INFALLIBLE);
    }
    text
}

fn drawn(standing: HostStanding) -> String {
    let style = match standing {
        HostStanding::Silent | HostStanding::Refused | HostStanding::Failing => ALARM,
        HostStanding::Behind => WAITS,
        HostStanding::Drifted => CHANGE,
        HostStanding::InSync => ADD,
    };
    styled(style, standing.as_str())
}

pub(super) async fn status(arguments: &FleetHostArgs) -> Result<Exit, CommandFailure> {
    let client = HubClient::logged_in(&arguments.fleet.hub)?;
    let at_hub =
        HostAtHub::find(&client, &arguments.host, &KnownHostsArgs::default(), None).await?;
    let guests: Vec<GuestBody> = all_pages(&client, &at_hub.below("guests"), ITEMS_MAX).await?;
    let newest = format!("?limit={HISTORY_TOLD}");
    let ops: PageBody<HistoryBody<ToldOperation>> =
        client.get(&(at_hub.below("ops") + &newest)).await?;
    let decisions: PageBody<HistoryBody<ReportedDecision>> =
        client.get(&(at_hub.below("decisions") + &newest)).await?;
    let ops = ops.items;
    let decisions = decisions.items;
    match arguments.fleet.output.output {
        OutputFormat::Json => {
            let host = at_hub.detail;
            format::print(&FleetStatusFormat { format_version: 1, host, guests, ops, decisions })?;
        }
        OutputFormat::Table => {
            let mut text = drawn_status(&at_hub, &guests);
            text.push_str(&drawn_history(&ops, &decisions));
            terminal::print(&text)?;
        }
    }
    Ok(Exit::Ok)
}

fn drawn_status(at_hub: &HostAtHub<'_>, guests: &[GuestBody]) -> String {
    let detail = &at_hub.detail;
    let host = &detail.host;
    let mut text = format!(
        "{} {}\n  unverified  {HUBS_WORD}\n  generation  {} in effect, {} is the newest\n  last seen   {} by the hub's clock\n",
        styled(GUEST, tamed(&host.host, 253)),
        drawn(host.standing),
        host.in_effect,
        host.wanted,
        tamed(&host.last_seen, 40),
    );
    text.push_str(&drawn_agent(&detail.agent));
    if detail.refused.generation != Generation::NONE {
        text.push_str(&drawn_refusal(&detail.refused));
    }
    text.push_str(&drawn_guests(guests));
    if host.pending > 0 {
        let count = counted(usize::try_from(host.pending).unwrap_or(usize::MAX), "item");
        writeln!(text, "  pending     {}", styled(WAITS, count)).expect(INFALLIBLE);
    }
    text
}

/// What an agent says of itself, a line each.
fn drawn_agent(agent: &AgentState) -> String {
    let said = |text: &str| tamed(text, 200);
    let mut text = String::new();
    let AgentState { version, node, mode, frozen, policy, troubles, author_word, since: _ } = agent;
    if !version.is_empty() {
        let mode = if mode.is_empty() { String::new() } else { format!(", {}", said(mode)) };
        writeln!(text, "  agent       {} on {}{mode}", said(version), said(node))
            .expect(INFALLIBLE);
    }
    if let Some(frozen) = frozen {
        writeln!(text, "  {}", styled(ALARM, format!("frozen since {}", said(frozen))))
            .expect(INFALLIBLE);
    }
    if !policy.is_empty() {
        let limits = policy.iter().filter(|(name, value)| *name != "mode" && !value.is_empty());
        let limits = limits.map(|(name, value)| format!("{}={}", said(name), said(value)));
        writeln!(text, "  policy      {}", limits.collect::<Vec<_>>().join(" ")).expect(INFALLIBLE);
    }
    if let Some(AuthorWordReport { generation, signer, signed_at, taken_at }) = author_word {
        let signer = said(signer);
        let signed_at = said(signed_at);
        let taken_at = said(taken_at);
        writeln!(
            text,
            "  last word   generation {generation} signed {signed_at} by {signer}, taken {taken_at}"
        )
        .expect(INFALLIBLE);
    }
    for trouble in troubles {
        writeln!(text, "  {} {}", styled(ALARM, "trouble:"), tamed(trouble, 500))
            .expect(INFALLIBLE);
    }
    text
}

/// How many guests are as declared, and the others one by one.
fn drawn_guests(guests: &[GuestBody]) -> String {
    let mut text = String::new();
    let others: Vec<&GuestBody> =
        guests.iter().filter(|guest| guest.state != "as_declared").collect();
    let quiet = guests.len() - others.len();
    writeln!(text, "  guests      {quiet} of {} as declared", guests.len()).expect(INFALLIBLE);
    for guest in others.iter().take(GUESTS_TOLD_MAX) {
        text.push_str(&drawn_guest(guest));
    }
    if others.len() > GUESTS_TOLD_MAX {
        let more = format!("    and {} more", others.len() - GUESTS_TOLD_MAX);
        writeln!(text, "{}", styled(FAINT, more)).expect(INFALLIBLE);
    }
    text
}

fn drawn_refusal(refused: &RefusedGeneration) -> String {
    let RefusedGeneration { generation, code, why, next, diagnostics, manifest: _ } = refused;
    let code = tamed(code, 40);
    let why = tamed(why, 500);
    let mut text =
        format!("  {} generation {generation} as {code}: {why}\n", styled(ALARM, "refused"));
    for line in diagnostics.iter().take(MISTAKES_TOLD_MAX).flat_map(|told| told.lines()) {
        writeln!(text, "    {}", tamed(line, 500)).expect(INFALLIBLE);
    }
    if !next.is_empty() {
        writeln!(text, "    next: {}", tamed(next, 200)).expect(INFALLIBLE);
    }
    text
}

/// A guest that is not as declared: what differs and where that is declared, what holds it, and what to do.
fn drawn_guest(guest: &GuestBody) -> String {
    let GuestReport { differences, held, problems, after_restart, .. } = &guest.report;
    let id = tamed(&guest.guest, 40);
    let name = tamed(&guest.name, 64);
    let mut text = format!("    {id} {name} {}\n", styled(CHANGE, tamed(&guest.state, 20)));
    for GuestDifference { key, declared, actual, origin } in differences {
        let shown = |value: &Option<String>| {
            value.as_deref().map_or("unset".to_owned(), |value| tamed(value, 120))
        };
        let place = origin.as_ref().map(|origin| {
            let layer = if origin.layer == "guest" { "" } else { &origin.layer };
            let comma = if layer.is_empty() { "" } else { ", " };
            let place = format!("  # {}:{}{comma}{layer}", origin.file, origin.line);
            styled(FAINT, tamed(&place, 200))
        });
        let key = tamed(key, 60);
        let actual = shown(actual);
        let declared = shown(declared);
        writeln!(text, "      {key}: {actual} -> {declared}{}", place.unwrap_or_default())
            .expect(INFALLIBLE);
    }
    for HeldReport { code, why, next } in held {
        let code = styled(WAITS, tamed(code, 40));
        let why = tamed(why, 500);
        writeln!(text, "      {code}: {why}").expect(INFALLIBLE);
        if !next.is_empty() {
            writeln!(text, "        next: {}", tamed(next, 200)).expect(INFALLIBLE);
        }
    }
    for problem in problems {
        writeln!(text, "      {} {}", styled(ALARM, "problem:"), tamed(problem, 500))
            .expect(INFALLIBLE);
    }
    for waiting in after_restart {
        writeln!(text, "      after restart: {}", tamed(waiting, 200)).expect(INFALLIBLE);
    }
    text
}

/// What was done and decided last, newest first.
fn drawn_history(
    ops: &[HistoryBody<ToldOperation>],
    decisions: &[HistoryBody<ReportedDecision>],
) -> String {
    let mut text = String::new();
    if !ops.is_empty() {
        text.push_str("  last ops\n");
    }
    for HistoryBody { report: op, .. } in ops {
        let signer = op.signer.as_ref().map(|name| format!(", signed by {}", tamed(name, 64)));
        let outcome = if op.outcome.is_empty() { &op.reason } else { &op.outcome };
        writeln!(
            text,
            "    {}  {} {} {}: {}{}",
            tamed(&op.at, 40),
            tamed(&op.guest, 40),
            tamed(&op.kind, 40),
            tamed(&op.state, 40),
            tamed(outcome, 200),
            signer.unwrap_or_default()
        )
        .expect(INFALLIBLE);
    }
    if !decisions.is_empty() {
        text.push_str("  last decisions\n");
    }
    for HistoryBody { report: decision, .. } in decisions {
        let words = [&decision.guest, &decision.op, &decision.event, &decision.code];
        let words = words.into_iter().filter(|word| !word.is_empty());
        let words: Vec<String> = words.map(|word| tamed(word, 60)).collect();
        let at = tamed(&decision.at, 40);
        let detail = tamed(&decision.detail, 200);
        writeln!(text, "    {at}  {}: {detail}", words.join(" ")).expect(INFALLIBLE);
    }
    text
}
