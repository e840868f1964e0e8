//! `evenkeel demo --fleet`: three hosts and a hub that none of them trusts, told and checked like the other story.
//!
//! A real hub, real agents, real keys, a simulated node for each host; every command that is shown is this executable in a
//! process of its own. What is told is demanded while it is told.

mod site;

use evenkeel_sim::Event;
use serde_json::Value;

use self::site::{DemoHost, FleetSite, HOSTS};
use super::files::{demand, until};
use super::guests::{OLD_TEST, WEB};
use super::is_destructive;
use super::narration::{command, lines, output, proof, say};
use super::sandbox::show_requests;
use crate::error::{CommandFailure, Exit};
use crate::interrupt::Interrupts;

/// The host whose guest shall go.
const OSLO: usize = 1;

pub(super) async fn run(headless: bool) -> Result<Exit, CommandFailure> {
    let mut stop = Interrupts::listen()?;
    let mut site = FleetSite::set(headless).await?;
    tokio::select! {
        // Dropped in the middle, the site still ends its processes and removes its directory.
        told = story(&mut site) => told.map_err(|failure| site.explain(failure))?,
        () = stop.next() => {
            return Err(CommandFailure::new(Exit::Failed, "the demo was interrupted")
                .hint("nothing is left behind; `evenkeel demo --fleet --headless` runs without pauses"));
        }
    }
    Ok(Exit::Ok)
}

async fn story(site: &mut FleetSite) -> Result<(), CommandFailure> {
    say(
        "A hub hands desired files to many hosts, shows how they stand, and carries approvals. Whoever holds it could \
         lie to every host at once, so no host trusts it. This is a real hub with three real agents, each with a \
         simulated Proxmox VE, in a temporary directory; nothing else on this machine is touched.",
    )?;
    enrolled(site).await?;
    pushed(site).await?;
    signed(site).await?;
    forged(site).await?;
    killed(site).await?;
    visited(site).await?;
    end(site)
}

/// A hub, an account, three hosts.
async fn enrolled(site: &mut FleetSite) -> Result<(), CommandFailure> {
    site.narration.chapter("A hub and three hosts").await?;
    say(
        "The hub makes a database, an id and a certificate of its own. Alice gets an account: a name and an SSH key, no password.",
    )?;
    command("evenkeel hub &")?;
    site.start_hub()?;
    output(&format!("{}\nfingerprint {}", site.hub_url, site.hub_pin))?;
    let account = ["hub", "account", "add", "alice", "--role", "admin", "--key", "alice.pub"];
    site.shows(&[&account[..], &["--state", "hub"]].concat()).await?.succeeds()?;
    say(
        "Each host enrols with a token that is good once, and prints the fingerprint of its own key. Alice pins those \
         keys from the hosts themselves; the hub is never asked whose key is whose.",
    )?;
    let mut pins = String::new();
    for place in 0..site.hosts.len() {
        let name = site.hosts[place].name;
        site.write_host(&site.hosts[place])?;
        command(&format!(
            "evenkeel hub enrol-token {name} | ssh {name} evenkeel enrol {}",
            site.hub_url
        ))?;
        output(&site.enrol(name).await?.stdout)?;
        let key = site.files.read(&format!("{name}/state/host_key.pub"))?;
        pins.extend([name, " ", &key]);
    }
    fs_err::create_dir_all(site.files.path(".config/evenkeel"))?;
    site.files.write(".config/evenkeel/known_hosts", &pins)?;
    site.start_agents()?;
    let url = site.hub_url.clone();
    let pin = site.hub_pin.clone();
    site.shows(&["fleet", "login", &url, "--as", "alice", "--key", "alice", "--fingerprint", &pin])
        .await?
        .succeeds()?;
    let hosts = site.shows(&["fleet", "hosts"]).await?.succeeds()?;
    demand(HOSTS.iter().all(|name| hosts.stdout.contains(name)), "three hosts are listed")?;
    proof("three hosts dial out to the hub; it holds no key that signs anything for them")
}

/// Documents: imported, signed, pushed, in effect; then one change.
async fn pushed(site: &mut FleetSite) -> Result<(), CommandFailure> {
    site.narration.chapter("What is declared, signed by its author").await?;
    say(
        "The guests of each host become files, and the files a document. A host takes it only with the signature of an \
         author whom its root enrolled: here that is the key `pen`.",
    )?;
    for name in HOSTS {
        let out = format!("../{name}-files");
        site.runs_on(name, &["import", "--out", &out]).await?.succeeds()?;
        push(site, name, "as they were found", false).await?;
    }
    await_all(site, 1).await?;
    site.shows(&["fleet", "hosts"]).await?.succeeds()?;
    let host = HOSTS[0];
    say(&format!(
        "The web server of {host} shall have four cores. The file is edited and pushed; what changes is shown before it is signed:"
    ))?;
    let file = format!("{host}-files/{}", file_of(&WEB));
    let text = site.files.read(&file)?.replace("cores = 2", "cores = 4");
    site.files.write(&file, &text)?;
    push(site, host, "four cores for web", true).await?;
    until("the node of the first host has four cores", async || {
        Ok(site.hosts[0].stored(WEB.id(), "cores").as_deref() == Some("4"))
    })
    .await?;
    await_standing(site, host, 2).await?;
    let told = site.shows(&["fleet", "status", host]).await?.succeeds()?;
    demand(
        told.stdout.contains("cores 2 -> 4"),
        "the hub is told what was done, from what to what",
    )?;
    let others = site.hosts[1..].iter().all(|host| host.writes().is_empty());
    demand(others, "the other hosts were sent nothing")?;
    show_requests(&site.hosts[0].writes())?;
    proof(&format!("{host} was sent one change, the other two nothing"))
}

/// An item, signed through the hub.
async fn signed(site: &mut FleetSite) -> Result<(), CommandFailure> {
    let host = HOSTS[OSLO];
    let guest = OLD_TEST.id();
    site.narration.chapter("A guest shall go, and the hub only carries the approval").await?;
    say(&format!(
        "The document of {host} now says that {guest} shall be absent. The author signed it, and yet nothing happens: \
         destroying needs a signature over exactly that act, by somebody who may. The host raises an item and signs it.",
    ))?;
    let file = format!("{host}-files/{}", file_of(&OLD_TEST));
    let text = format!("[guest.{}]\nkind = \"{}\"\nstate = \"absent\"\n", guest.vmid, guest.kind);
    site.files.write(&file, &text)?;
    push(site, host, "old-test is not needed any more", true).await?;
    let mut id = String::new();
    until("an item waits", async || {
        let told = site.runs(&["fleet", "pending", "-o", "json"]).await?.succeeds()?.json()?;
        told["items"][0]["id"].as_str().unwrap_or_default().clone_into(&mut id);
        Ok(!id.is_empty())
    })
    .await?;
    site.shows(&["fleet", "pending"]).await?.succeeds()?;
    demand(site.hosts[OSLO].writes().is_empty(), "nothing is done about it")?;
    say(
        "Alice signs at her own desk. What she reads is the host's own words, verified by the key she pinned:",
    )?;
    let short = super::approval::short(&id).to_owned();
    let approve = ["approve", &short, "--hub", "--key", "alice", "--yes"];
    let approve = [&approve[..], &["--reason", "not needed since May"]].concat();
    let done = site.shows(&approve).await?.succeeds()?;
    demand(done.stdout.contains("allowed_signed"), "the host's own verdict comes back")?;
    let writes = site.hosts[OSLO].writes();
    show_requests(&writes)?;
    demand(
        writes.iter().filter(|record| is_destructive(record)).count() == 1,
        "it was destroyed once",
    )?;
    demand(site.hosts[OSLO].stored(guest, "hostname").is_none(), "the guest is gone")?;
    proof(&format!(
        "{guest} of {host} is gone, destroyed once; the hub carried the envelope and could not have made it"
    ))
}

/// Whoever holds the hub pushes a document of their own.
async fn forged(site: &mut FleetSite) -> Result<(), CommandFailure> {
    let host = HOSTS[0];
    site.narration.chapter("Somebody else holds the hub").await?;
    say(&format!(
        "Mallory got hold of the hub, with every right there is. The web server of {host} shall be reachable from \
         everywhere. The hub takes the document, and hands it out:",
    ))?;
    let mut files: Vec<String> = Vec::new();
    for entry in fs_err::read_dir(site.files.path(&format!("{host}-files")))? {
        files.push(entry?.file_name().to_string_lossy().into_owned());
    }
    fs_err::create_dir_all(site.files.path("forged"))?;
    for file in files {
        let text = site.files.read(&format!("{host}-files/{file}"))?;
        site.files.write(&format!("forged/{file}"), &text.replace("cores = 4", "cores = 8"))?;
    }
    let before = site.hosts[0].writes().len();
    let line = ["fleet", "push", host, "forged", "--key", "mallory", "--yes"];
    site.shows(&line).await?.succeeds()?;
    until("the host refuses it", async || {
        Ok(site.status(host).await?["host"]["standing"] == "refused")
    })
    .await?;
    let told = site.shows(&["fleet", "status", host]).await?.succeeds()?;
    demand(
        told.stdout.contains("unknown_signer"),
        "the refusal says that nobody enrolled this key",
    )?;
    demand(site.hosts[0].writes().len() == before, "the node was sent nothing")?;
    demand(
        site.hosts[0].stored(WEB.id(), "cores").as_deref() == Some("4"),
        "the guest is as it was",
    )?;
    proof("refused whole, by the host; the last good document holds")
}

/// The hub is gone; the hosts go on.
async fn killed(site: &mut FleetSite) -> Result<(), CommandFailure> {
    site.narration.chapter("The hub is gone").await?;
    let pid = site.kill_hub()?;
    command(&format!("kill -9 {pid}"))?;
    say(
        "Nobody can push, look or approve now. On every host a colleague sets the web server to one core:",
    )?;
    let before: Vec<usize> = site.hosts.iter().map(|host| host.writes().len()).collect();
    for host in &site.hosts {
        let set = [("cores".to_owned(), Some("1".to_owned()))].into();
        host.happens(Event::Edit { guest: WEB.id(), set });
    }
    let wanted = |host: &DemoHost| if host.name == HOSTS[0] { "4" } else { "2" };
    until("every host sets it right without the hub", async || {
        let right =
            |host: &DemoHost| host.stored(WEB.id(), "cores").as_deref() == Some(wanted(host));
        Ok(site.hosts.iter().all(right))
    })
    .await?;
    let told: Vec<String> = site
        .hosts
        .iter()
        .map(|host| format!("{:<8} {} web: cores 1 -> {}", host.name, WEB.id(), wanted(host)))
        .collect();
    lines(&told.iter().map(String::as_str).collect::<Vec<_>>())?;
    for (host, before) in site.hosts.iter().zip(before) {
        demand(host.writes().len() == before + 1, "each host sent one change")?;
    }
    let gone = site.shows(&["fleet", "hosts"]).await?;
    demand(gone.has_failed(), "the hub does not answer")?;
    proof("each host went on alone, by the last document it took; one change each")
}

/// The console, for as long as the reader likes. Hub, agents and nodes stay until then.
async fn visited(site: &mut FleetSite) -> Result<(), CommandFailure> {
    if !site.narration.has_reader() {
        return Ok(());
    }
    site.narration.chapter("The console").await?;
    say("The hub starts again, and the hosts dial in by themselves.")?;
    command("evenkeel hub &")?;
    site.start_hub()?;
    say(
        "Everything keeps running, so that you can look around. Open this page in a browser on this machine. The browser \
         warns you, because the hub made its own certificate; its fingerprint stands in chapter 1. The page then shows a word.",
    )?;
    output(&format!("{}/console", site.hub_url))?;
    let question = "type the word to log in as alice, or press Enter to end the demo:";
    while let Some(word) = site.narration.ask(question).await? {
        // A mistyped word is told by the command, and asked for again.
        site.shows(&["fleet", "console", "--browser", &word]).await?;
    }
    Ok(())
}

fn end(site: &FleetSite) -> Result<(), CommandFailure> {
    let destroyed: usize = site
        .hosts
        .iter()
        .map(|host| host.writes().iter().filter(|record| is_destructive(record)).count())
        .sum();
    demand(destroyed == 1, "one guest of the whole fleet was destroyed: the one that was signed")?;
    proof("guests destroyed in the whole fleet: 1, exactly what was signed")?;
    say("Where to go next:")?;
    lines(&[
        "docs/guide/fleet.md          your own fleet, from nothing to three hosts in ten minutes",
        "docs/guide/hub.md            running a hub: the unit, PostgreSQL, backups",
        "docs/security.md             what a stolen hub can do, and what it cannot",
        "evenkeel fleet --help        everything else",
    ])
}

fn file_of(part: &super::guests::DemoGuest) -> String {
    part.file().trim_start_matches("desired/").to_owned()
}

async fn push(
    site: &FleetSite,
    host: &str,
    message: &str,
    shown: bool,
) -> Result<(), CommandFailure> {
    let files = format!("{host}-files");
    let line = ["fleet", "push", host, &files, "--key", "pen", "--message", message, "--yes"];
    let ran = if shown { site.shows(&line).await? } else { site.runs(&line).await? };
    ran.succeeds().map(drop)
}

async fn await_all(site: &FleetSite, generation: u64) -> Result<(), CommandFailure> {
    for host in HOSTS {
        await_standing(site, host, generation).await?;
    }
    Ok(())
}

/// Until the hub has heard that a document is in effect, and everything is as it says.
async fn await_standing(
    site: &FleetSite,
    host: &str,
    generation: u64,
) -> Result<(), CommandFailure> {
    until("the host stands as declared", async || {
        let told: Value = site.status(host).await?;
        let standing = &told["host"];
        Ok(standing["standing"] == "in_sync" && standing["in_effect"] == generation)
    })
    .await
}
