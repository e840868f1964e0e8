//! The first chapters: guests become files, and what somebody changes by hand is set right by the agent.

use std::collections::BTreeMap;

use evenkeel_core::model::id::GuestId;
use evenkeel_sim::Event;

use super::guests::{DB, MAIL, WEB};
use super::narration::{command, lines, output, proof, say};
use super::sandbox::{Sandbox, demand, show_requests};
use crate::error::CommandFailure;

/// What `plan` says of this node when there is nothing to do.
const NOTHING_DIFFERS: &str = "nothing to run; 6 guests as declared";

/// Import, and a plan that is empty.
pub(super) async fn written_down(sandbox: &mut Sandbox) -> Result<(), CommandFailure> {
    sandbox.narration.chapter("Your guests, written down").await?;
    say(
        "A Proxmox VE node, pve1, has six guests that somebody once clicked together. `import` writes each of them \
         to a file, as it is:",
    )?;
    sandbox.shows(&["import", "--out", "desired"]).await?.succeeds()?;
    let file = WEB.file();
    command(&format!("cat {file}"))?;
    output(&sandbox.read(&file)?)?;
    say(
        "From now on the files say how the guests shall be. A key or a guest that is in no file is left alone. \
         Right after an import nothing differs:",
    )?;
    let plan = sandbox.shows(&["plan"]).await?.succeeds()?;
    demand(plan.stdout.contains(NOTHING_DIFFERS), "nothing differs after an import")?;
    demand(sandbox.writes(|_| true).is_empty(), "import and plan only read")?;
    proof("Proxmox VE was asked to change nothing so far")
}

/// Drift, healed by the running agent.
pub(super) async fn healed(sandbox: &mut Sandbox) -> Result<(), CommandFailure> {
    sandbox.narration.chapter("Somebody clicks around").await?;
    say("The agent looks every few seconds. This is all it is told:")?;
    command("cat agent.toml")?;
    output(&sandbox.read("agent.toml")?)?;
    command("evenkeel run &")?;
    sandbox.start_agent().await?;
    say("A colleague is in a hurry, and uses the web interface:")?;
    let web = WEB.id();
    let mail = MAIL.id();
    let db = DB.id();
    edit(sandbox, web, &[("cores", "8"), ("tags", "oops")]);
    edit(sandbox, mail, &[("memory", "256")]);
    sandbox.happens(Event::Power { guest: db, running: false });
    lines(&[
        &format!("{:<8}  {:<4}  cores 2 -> 8, tags prod -> oops", web.to_string(), WEB.name),
        &format!("{:<8}  {:<4}  memory 1 GiB -> 256 MiB", mail.to_string(), MAIL.name),
        &format!("{:<8}  {:<4}  switched off", db.to_string(), DB.name),
    ])?;
    say("We do nothing. A few seconds later the agent has noticed:")?;
    let is = |guest, key, value: &str| sandbox.stored(guest, key).as_deref() == Some(value);
    sandbox
        .until("drift is healed", async || {
            let cores = is(web, "cores", "2") && is(web, "tags", "prod");
            let open = sandbox.runs(&["journal", "--open", "-o", "json"]).await?.json()?;
            let closed = open["operations"].as_array().is_some_and(Vec::is_empty);
            Ok(cores && is(mail, "memory", "1024") && sandbox.is_running(db) && closed)
        })
        .await?;
    sandbox.shows(&["journal"]).await?.succeeds()?;
    say("Each guest got only what differed, in what Proxmox VE itself logged:")?;
    let writes = sandbox.writes(|_| true);
    show_requests(&writes)?;
    demand(writes.len() == 3, "three requests set three guests right")?;
    sandbox.shows(&["plan"]).await?.succeeds()?;
    proof("all six guests are as declared again, after one request each for three of them")
}

fn edit(sandbox: &Sandbox, guest: GuestId, set: &[(&str, &str)]) {
    let set: BTreeMap<String, Option<String>> =
        set.iter().map(|(key, value)| ((*key).to_owned(), Some((*value).to_owned()))).collect();
    sandbox.happens(Event::Edit { guest, set });
}
