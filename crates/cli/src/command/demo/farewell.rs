//! A guest goes with a final backup, and comes back from it.

use evenkeel_core::model::id::GuestId;
use evenkeel_sim::RequestRecord;

use super::approval::{item_of, short};
use super::making::is_of_wiki;
use super::narration::{command, output, proof, say};
use super::sandbox::{Sandbox, demand, show_requests};
use crate::error::CommandFailure;

/// The desired file of a guest that shall go.
const GOING: &str = "\
[guest.120]
kind = \"lxc\"
state = \"absent\"
final_backup = \"store\"       # saved there first; without that backup it is not destroyed
";

/// Saved, checked, destroyed; and made again from what was saved.
pub(super) async fn gone_and_back(sandbox: &mut Sandbox) -> Result<(), CommandFailure> {
    sandbox.narration.chapter("Gone, and back again").await?;
    let guest: GuestId = "lxc/120".parse().expect("a guest's name");
    let earlier = sandbox.writes(is_of_wiki).len();
    say(
        "Nobody reads the wiki. It shall go, but as the advice above says, not without a last backup. That becomes \
         part of what is signed, and the host destroys nothing until the archive is listed, whole.",
    )?;
    declare(sandbox, GOING)?;
    sandbox
        .until("the wiki waits for a signature", async || Ok(item_of(sandbox, guest).await.is_ok()))
        .await?;
    let id = item_of(sandbox, guest).await?;
    sandbox.shows(&["pending", short(&id)]).await?.succeeds()?;
    say(
        "Alice reads it once more, signs and hands in, all in one, and the host carries it out step by step:",
    )?;
    let line = ["approve", short(&id), "--key", "alice", "--known-hosts", "known_hosts", "-y"];
    let line = [&line[..], &["--reason", "nobody reads it"]].concat();
    command(&super::sandbox::typed(&line))?;
    let done = sandbox.runs(&line).await?.succeeds()?;
    output(&done.stdout)?;
    demand(done.stdout.contains("done"), "the wiki is destroyed as signed")?;
    let writes =
        sandbox.writes(|record| is_of_wiki(record) || is_backup(record)).split_off(earlier);
    show_requests(&writes)?;
    let saved = writes.iter().position(is_backup);
    let destroyed = writes.iter().position(super::is_destructive);
    demand(saved.is_some() && saved < destroyed, "the wiki was saved before it was destroyed")?;
    demand(sandbox.stored(guest, "hostname").is_none(), "the wiki is gone")?;
    let archive = archive_of(sandbox, guest);
    demand(archive.is_some(), "the store has one archive of the wiki, protected")?;
    proof("saved first, then destroyed; the archive stays, protected against retention")?;
    comes_back(sandbox, guest, &archive.unwrap_or_default()).await
}

/// The guest is declared with its archive as the source.
async fn comes_back(
    sandbox: &Sandbox,
    guest: GuestId,
    archive: &str,
) -> Result<(), CommandFailure> {
    let earlier = sandbox.writes(is_of_wiki).len();
    say(
        "A week later somebody misses it. The same file, with the archive to make it from; nothing else needs to be \
         known of it, and making a guest needs no signature:",
    )?;
    let file = format!(
        "[guest.120]\nkind = \"lxc\"\nsource = {{ backup = \"{archive}\" }}\n\
         rootfs = {{ storage = \"local-lvm\", size = \"8GiB\" }}\nrun = \"running\"\n"
    );
    declare(sandbox, &file)?;
    sandbox.until("the wiki runs again", async || Ok(sandbox.is_running(guest))).await?;
    let name = guest.to_string();
    let of_guest = ["journal", "--guest", &name];
    sandbox
        .until("its start is known to be done", async || {
            Ok(super::crash::newest(sandbox, &of_guest).await?["state"] == "succeeded")
        })
        .await?;
    sandbox.shows(&of_guest).await?.succeeds()?;
    let writes = sandbox.writes(is_of_wiki).split_off(earlier);
    show_requests(&writes)?;
    let restores = |record: &&RequestRecord| record.params.iter().any(|name| name == "restore");
    demand(writes.iter().filter(restores).count() == 1, "the wiki was restored once")?;
    let last = writes.last().is_some_and(|record| record.path.ends_with("/status/start"));
    demand(last, "the wiki was started last")?;
    let stored = (sandbox.stored(guest, "hostname"), sandbox.stored(guest, "cores"));
    let as_before = (Some("wiki".to_owned()), Some("2".to_owned()));
    demand(
        stored == as_before,
        "the wiki is what it was, though its file does not say so any more",
    )?;
    proof("the wiki is back, restored once, with the name and the cores it had")
}

fn declare(sandbox: &Sandbox, file: &str) -> Result<(), CommandFailure> {
    sandbox.write("desired/wiki.toml", file)?;
    command("cat desired/wiki.toml")?;
    output(file)
}

fn is_backup(record: &RequestRecord) -> bool {
    record.path.ends_with("/vzdump")
}

/// The one archive of a guest that the store has, if it is protected.
fn archive_of(sandbox: &Sandbox, guest: GuestId) -> Option<String> {
    sandbox.http.node.with(|simulator| {
        let store = simulator.world.storages.get("store")?;
        let mut archives = store.volumes.iter().filter(|(_, volume)| {
            volume.content == "backup" && volume.vmid == Some(guest.vmid) && volume.protected
        });
        let (name, _) = archives.next()?;
        archives.next().is_none().then(|| format!("store:{name}"))
    })
}
