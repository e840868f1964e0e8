//! A guest that is declared and not there is made; the agent is killed while Proxmox VE makes it.

use evenkeel_core::model::id::GuestId;
use evenkeel_sim::RequestRecord;

use super::crash::newest;
use super::narration::{command, output, proof, say};
use super::sandbox::{Sandbox, demand, show_requests};
use crate::error::CommandFailure;

/// How long the template takes to unpack: enough to kill an agent and start another meanwhile.
const SLOW_CREATE_MS: u64 = 6_000;

/// The desired file of the new guest.
const FILE: &str = "\
[guest.120]
kind = \"lxc\"
source = { template = \"local:vztmpl/debian-12-standard_12.7-1_amd64.tar.zst\" }
hostname = \"wiki\"
cores = 2
rootfs = { storage = \"local-lvm\", size = \"8GiB\" }
run = \"running\"
";

/// Killed in the middle of making; found and finished, not made twice.
pub(super) async fn made(sandbox: &mut Sandbox) -> Result<(), CommandFailure> {
    sandbox.narration.chapter("A guest is declared that is not there").await?;
    let guest: GuestId = "lxc/120".parse().expect("a guest's name");
    let usual_ms = sandbox
        .http
        .node
        .with(|simulator| std::mem::replace(&mut simulator.timings.create_ms, SLOW_CREATE_MS));
    say(
        "A wiki is wanted. Nobody makes it by hand: a file says what it is made from, and how it shall be.",
    )?;
    command("cat desired/wiki.toml")?;
    output(FILE)?;
    sandbox.write("desired/wiki.toml", FILE)?;
    say("The agent asks Proxmox VE to make it, and is killed while the template is unpacked:")?;
    let name = guest.to_string();
    let of_guest = ["journal", "--guest", &name];
    sandbox
        .until("the agent makes the wiki", async || {
            Ok(newest(sandbox, &of_guest).await?["state"] == "task_running")
        })
        .await?;
    let pid = sandbox.kill_agent()?;
    command(&format!("kill -9 {pid}"))?;
    let half_made = sandbox.http.node.with(|simulator| simulator.is_task_running("vzcreate"));
    demand(half_made, "the wiki is half made")?;
    say(
        "Half a guest is there now, and nobody waits for it. A new agent must neither make it again nor start it as it \
         is. It reads its journal, finds the task, waits for it, and goes on with what is missing:",
    )?;
    command("evenkeel run &")?;
    sandbox.start_agent().await?;
    sandbox.until("the wiki runs", async || Ok(sandbox.is_running(guest))).await?;
    sandbox
        .until("its start is known to be done", async || {
            Ok(newest(sandbox, &of_guest).await?["state"] == "succeeded")
        })
        .await?;
    sandbox.shows(&of_guest).await?.succeeds()?;
    let writes = sandbox.writes(is_of_wiki);
    show_requests(&writes)?;
    demand(writes.len() == 2, "the wiki was made once and started once")?;
    let cores = sandbox.stored(guest, "cores");
    demand(cores.as_deref() == Some("2"), "the wiki is as declared")?;
    sandbox.http.node.with(|simulator| simulator.timings.create_ms = usual_ms);
    proof("one guest, made once, started once, as declared")
}

/// Whether a request is about the wiki; the one that makes it names it in its body only, and no other guest is made.
pub(super) fn is_of_wiki(record: &RequestRecord) -> bool {
    let is_its = record.guest.is_some_and(|guest| guest.to_string() == "lxc/120");
    is_its || (record.method == "POST" && record.path.ends_with("/lxc"))
}
