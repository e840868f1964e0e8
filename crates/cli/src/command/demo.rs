//! `evenkeel demo`: the whole thing on loopback, told as a story. Needs no Proxmox VE.
//!
//! Everything a real run uses is used: the simulator over TLS with a pinned certificate, the real client,
//! real files. Only the server pretends.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::sync::Arc;

use evenkeel_agent::observe::{CONCURRENCY, observe};
use evenkeel_agent::pve::Client;
use evenkeel_agent::pve::http::{HttpExchange, Timeouts};
use evenkeel_agent::pve::tls::Trust;
use evenkeel_agent::pve::token::Token;
use evenkeel_core::actual::{Guest, Snapshot};
use evenkeel_core::import::desired_file;
use evenkeel_core::plan::{Context, Plan, plan};
use evenkeel_sim::{Event, Http, HttpOptions, Scenario, Simulator, TOKENS};
use secrecy::SecretString;

use crate::command::import::file_name;
use crate::error::{Exit, Failure};
use crate::render;
use crate::render::counted;
use crate::render::style::{FAINT, GUEST, styled};

/// How many guests the demonstration has: enough to be a fleet, few enough to read.
const GUESTS: u32 = 12;

pub(crate) async fn run() -> Result<Exit, Failure> {
    let scenario = Scenario { guests: GUESTS, ..Scenario::default() };
    let http = Http::start(Simulator::new(scenario.build()), HttpOptions::default())
        .await
        .map_err(|error| Failure::wrapping(Exit::Failed, error))?;
    let client = client(&http)?;
    let directory = tempfile::tempdir()?;

    say(
        "1. A Proxmox VE that pretends",
        &format!(
            "{} guests on node {}, at {} with a pinned certificate.",
            GUESTS,
            scenario.node,
            http.url()
        ),
    )?;

    let before = look(&client).await?;
    for guest in before.guests.values() {
        let path = directory.path().join(file_name(guest.id));
        fs_err::write(path, desired_file(guest, before.conventions))?;
    }
    let first = before
        .guests
        .values()
        .next()
        .ok_or_else(|| Failure::new(Exit::Failed, "the simulator has no guests"))?;
    say(
        "2. evenkeel import",
        &format!(
            "Each guest as it is becomes a desired file. {}:\n\n{}",
            first.id,
            indented(&desired_file(first, before.conventions)),
        ),
    )?;

    let (planned, snapshot) = compare(&client, directory.path()).await?;
    say(
        "3. evenkeel plan",
        "Nothing differs, whatever Proxmox made of the values when it stored them.",
    )?;
    show(&planned, &snapshot)?;

    let touched = drift(&http, &before);
    say(
        "4. Somebody clicks around",
        &format!("Behind our back, {} changed in the web interface.", counted(touched, "guest")),
    )?;
    let (planned, snapshot) = compare(&client, directory.path()).await?;
    say("5. evenkeel plan", "Only what differs, with what it would cost:")?;
    show(&planned, &snapshot)?;

    let retired = before.guests.values().next_back().unwrap_or(first).id;
    let absent =
        format!("[guest.{}]\nkind = \"{}\"\nstate = \"absent\"\n", retired.vmid, retired.kind);
    fs_err::write(directory.path().join(file_name(retired)), &absent)?;
    say(
        "6. A guest shall go",
        &format!(
            "Removing a file only stops managing a guest. To have one destroyed, say so:\n\n{}",
            indented(&absent)
        ),
    )?;
    let (mut planned, snapshot) = compare(&client, directory.path()).await?;
    planned.guests.retain(|guest| guest.guest == retired);
    write!(anstream::stdout(), "{}", indented(&render::plan::guests(&planned, &snapshot)))?;

    say(
        "What is next",
        "Nothing was changed: this version reads and plans. Try it yourself: `evenkeel sim --guests 50` in one \
         terminal, `import` and `plan` in another.",
    )?;
    Ok(Exit::Ok)
}

fn client(http: &Http) -> Result<Client, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::new(Exit::Failed, error.to_string());
    let pin = http.certificate().fingerprint.parse().map_err(|error| failed(&error))?;
    let trust = Trust::pinned(vec![pin]).map_err(|error| failed(&error))?;
    let (id, secret, _) = TOKENS[0];
    let token = Token::from_text(&SecretString::from(format!("{id}={secret}")))
        .map_err(|error| failed(&error))?;
    let endpoint = http.url().parse().map_err(|error| failed(&error))?;
    let exchange = HttpExchange::new(endpoint, &trust, token, Timeouts::default())
        .map_err(|error| failed(&error))?;
    let node = Scenario::default().node.parse().map_err(|error| failed(&error))?;
    Ok(Client::new(Arc::new(exchange), node))
}

async fn look(client: &Client) -> Result<Snapshot, Failure> {
    Ok(observe(client, &BTreeSet::new(), CONCURRENCY).await?)
}

async fn compare(
    client: &Client,
    directory: &std::path::Path,
) -> Result<(Plan, Snapshot), Failure> {
    let loaded = evenkeel_agent::source::dir::load(directory)?;
    let desired = loaded.desired.map_err(|errors| {
        Failure::new(Exit::Failed, format!("what import wrote does not validate: {errors:?}"))
    })?;
    let snapshot = look(client).await?;
    Ok((plan(&desired, &snapshot, &Context::default()), snapshot))
}

/// Changes a few guests as a person at the web interface would; tells how many.
fn drift(http: &Http, before: &Snapshot) -> usize {
    let free = before.guests.values().filter(|guest| guest.lock.is_none() && !guest.template);
    let chosen: Vec<&Guest> = free.take(4).collect();
    let edits = [("cores", "7"), ("tags", "oops"), ("memory", "999"), ("net0", "")];
    for (guest, (key, value)) in chosen.iter().zip(edits) {
        let moved = stored(guest, "net0").map(|net| net.replace("vmbr0", "vmbr9"));
        let value = if key == "net0" { moved } else { Some(value.to_owned()) };
        let set = BTreeMap::from([(key.to_owned(), value)]);
        http.node.with(|simulator| simulator.happen(Event::Edit { guest: guest.id, set }));
    }
    if let Some(guest) = chosen.get(2) {
        let event = Event::Power { guest: guest.id, running: !guest.is_running() };
        http.node.with(|simulator| simulator.happen(event));
    }
    chosen.len()
}

/// A key of a guest as PVE stores it.
fn stored(guest: &Guest, name: &str) -> Option<String> {
    let key = evenkeel_core::registry::find(guest.id.kind, name)?;
    let field = guest.config.as_ref().ok()?.field(key)?;
    Some(field.current.as_ref()?.text.to_string())
}

fn show(planned: &Plan, snapshot: &Snapshot) -> Result<(), Failure> {
    write!(anstream::stdout(), "{}", indented(&render::plan::render(planned, snapshot)))?;
    Ok(())
}

fn say(title: &str, text: &str) -> Result<(), Failure> {
    let mut out = anstream::stdout();
    writeln!(out, "\n{}\n{}\n", styled(GUEST, title), styled(FAINT, text.trim_end()))?;
    out.flush()?;
    Ok(())
}

fn indented(text: &str) -> String {
    text.lines()
        .map(|line| if line.is_empty() { "\n".to_owned() } else { format!("    {line}\n") })
        .collect()
}
