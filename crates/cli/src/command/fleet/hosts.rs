//! `fleet hosts` and `fleet status`: who is there, and how one host stands.

use std::fmt::Write as _;

use evenkeel_hub::people::wire::{GuestBody, HostBody, HostStanding};
use serde_json::Value;

use super::{ITEMS_MAX, all_pages};
use crate::cli::{FleetHostArgs, FleetHostsArgs, OutputFormat};
use crate::error::{Exit, Failure};
use crate::fleet::document::HostAtHub;
use crate::fleet::hub_client::{HubClient, encoded};
use crate::format;
use crate::format::fleet::{FleetHostsFormat, FleetStatusFormat};
use crate::render::style::{ADD, ALARM, CHANGE, FAINT, GUEST, WAITS, styled};
use crate::render::{counted, tamed};
use crate::terminal;

const INFALLIBLE: &str = "writing to a string cannot fail";

/// How many guests that are not as declared are shown one by one.
const GUESTS_TOLD_MAX: usize = 50;

pub(super) async fn list(arguments: &FleetHostsArgs) -> Result<Exit, Failure> {
    let client = HubClient::logged_in(&arguments.hub)?;
    let labels = encoded(&arguments.label.join(","));
    let path = format!("/v1/hosts?label={labels}");
    let mut hosts: Vec<HostBody> = all_pages(&client, &path, ITEMS_MAX).await?;
    if arguments.stale {
        hosts.retain(|host| host.standing.is_stale());
    }
    match arguments.output.output {
        OutputFormat::Json => format::print(&FleetHostsFormat { format_version: 1, hosts })?,
        OutputFormat::Table if hosts.is_empty() => terminal::print("no such host\n")?,
        OutputFormat::Table => terminal::print(&table(&hosts))?,
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

pub(super) async fn status(arguments: &FleetHostArgs) -> Result<Exit, Failure> {
    let client = HubClient::logged_in(&arguments.hub)?;
    let at_hub = HostAtHub::find(&client, &arguments.host).await?;
    let guests: Vec<GuestBody> = all_pages(&client, &at_hub.below("guests"), ITEMS_MAX).await?;
    match arguments.output.output {
        OutputFormat::Json => {
            format::print(&FleetStatusFormat { format_version: 1, host: at_hub.detail, guests })?;
        }
        OutputFormat::Table => terminal::print(&drawn_status(&at_hub, &guests))?,
    }
    Ok(Exit::Ok)
}

fn drawn_status(at_hub: &HostAtHub<'_>, guests: &[GuestBody]) -> String {
    let detail = &at_hub.detail;
    let host = &detail.host;
    let said = |value: &Value, name: &str| tamed(value[name].as_str().unwrap_or_default(), 200);
    let mut text = format!(
        "{} {}\n  generation  {} in effect, {} is the newest\n  last seen   {} by the hub's clock\n",
        styled(GUEST, tamed(&host.host, 253)),
        drawn(host.standing),
        host.in_effect,
        host.wanted,
        tamed(&host.last_seen, 40),
    );
    let version = said(&detail.agent, "version");
    if !version.is_empty() {
        let (node, mode) = (said(&detail.agent, "node"), said(&detail.agent, "mode"));
        let mode = if mode.is_empty() { mode } else { format!(", {mode}") };
        writeln!(text, "  agent       {version} on {node}{mode}").expect(INFALLIBLE);
    }
    let frozen = said(&detail.agent, "frozen");
    if !frozen.is_empty() {
        writeln!(text, "  {}", styled(ALARM, format!("frozen since {frozen}"))).expect(INFALLIBLE);
    }
    for trouble in detail.agent["troubles"].as_array().into_iter().flatten() {
        let trouble = tamed(trouble.as_str().unwrap_or_default(), 500);
        writeln!(text, "  {} {trouble}", styled(ALARM, "trouble:")).expect(INFALLIBLE);
    }
    if detail.refused["generation"].as_u64().is_some_and(|number| number > 0) {
        let (number, code) = (&detail.refused["generation"], said(&detail.refused, "code"));
        let why = said(&detail.refused, "why");
        writeln!(text, "  {} generation {number} as {code}: {why}", styled(ALARM, "refused"))
            .expect(INFALLIBLE);
    }
    let others: Vec<&GuestBody> =
        guests.iter().filter(|guest| guest.state != "as_declared").collect();
    let quiet = guests.len() - others.len();
    writeln!(text, "  guests      {quiet} of {} as declared", guests.len()).expect(INFALLIBLE);
    for guest in others.iter().take(GUESTS_TOLD_MAX) {
        let (id, name) = (tamed(&guest.guest, 40), tamed(&guest.name, 64));
        writeln!(text, "    {id} {name} {}", styled(CHANGE, tamed(&guest.state, 20)))
            .expect(INFALLIBLE);
    }
    if others.len() > GUESTS_TOLD_MAX {
        let more = format!("    and {} more", others.len() - GUESTS_TOLD_MAX);
        writeln!(text, "{}", styled(FAINT, more)).expect(INFALLIBLE);
    }
    if host.pending > 0 {
        let count = counted(usize::try_from(host.pending).unwrap_or(usize::MAX), "item");
        writeln!(text, "  pending     {}", styled(WAITS, count)).expect(INFALLIBLE);
    }
    text
}
