//! What destroys waits for a signature over exactly that; everything else than such a signature is refused.

use evenkeel_core::model::id::GuestId;
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_core::sign::Envelope;
use evenkeel_sim::Event;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::guests::{DemoGuest, OLD_SHOP, OLD_TEST, WEB};
use super::is_destructive;
use super::narration::{command, output, proof, say};
use super::sandbox::{CommandRun, Sandbox, demand, show_requests};
use crate::error::{CommandFailure, Exit};

/// What the simulator calls a guest that takes another's number.
const STRANGER: &str = "stranger";

/// Two guests shall go: nothing happens but two pending items.
pub(super) async fn waits(sandbox: &mut Sandbox) -> Result<(), CommandFailure> {
    sandbox.narration.chapter("Two guests shall go").await?;
    sandbox.asked_at = Timestamp::now();
    say(
        "Removing a file only ends the managing of a guest. To have one destroyed, its file must say so. Anybody \
         who can write files can write that, so the agent does not obey it:",
    )?;
    for part in [OLD_TEST, OLD_SHOP] {
        let text = absent(&part);
        sandbox.write(&part.file(), &text)?;
        command(&format!("cat {}", part.file()))?;
        output(&text)?;
    }
    sandbox
        .until("both guests wait for a signature", async || Ok(items(sandbox).await?.len() == 2))
        .await?;
    sandbox.shows(&["pending"]).await?.succeeds()?;
    say("What exactly would be done and lost, signed by this host:")?;
    let id = item_of(sandbox, OLD_TEST.id()).await?;
    sandbox.shows(&["pending", short(&id)]).await?.succeeds()?;
    demand(sandbox.writes(concerns_retired).is_empty(), "nothing is done about them")?;
    proof("both guests run on: Proxmox VE was sent nothing about them")
}

/// Four approvals that are none.
pub(super) async fn refused(sandbox: &mut Sandbox) -> Result<(), CommandFailure> {
    sandbox.narration.chapter("Approvals that are none").await?;
    say(
        "Root has enrolled two keys on this host: alice's, to approve such acts, and the recovery key in the vault, \
         which may replace lost keys and nothing else. Signing is done by ssh-keygen with ordinary SSH keys.",
    )?;
    sandbox.shows(&["signers", "list", "--trust", "trust.toml"]).await?.succeeds()?;
    let id = item_of(sandbox, OLD_TEST.id()).await?;
    fetch(sandbox, &id, "copy.json").await?;
    sandbox.write("known_hosts", &format!("demo {}", sandbox.read("state/host_key.pub")?))?;

    say("Nobody signed:")?;
    sign(sandbox, "copy.json", "alice", "alice.json").await?;
    sandbox.write("unsigned.json", &unsigned(&sandbox.read("alice.json")?)?)?;
    refuses(sandbox, "unsigned.json", &[ReasonCode::Envelope]).await?;

    say("Mallory signed, whose key nobody enrolled:")?;
    sign(sandbox, "copy.json", "mallory", "mallory.json").await?;
    refuses(sandbox, "mallory.json", &[ReasonCode::UnknownSigner]).await?;

    say("The recovery key signed. It is trusted, but not for this:")?;
    sign(sandbox, "copy.json", "vault", "vault.json").await?;
    refuses(sandbox, "vault.json", &[ReasonCode::RoleDenied]).await?;

    let from = OLD_TEST.id();
    let to = WEB.id();
    say(&format!(
        "Alice signed, and on the way somebody made {to} ({}) of {from}, under her signature:",
        WEB.name
    ))?;
    sandbox.write("tampered.json", &tampered(&sandbox.read("alice.json")?, from, to)?)?;
    refuses(sandbox, "tampered.json", &[ReasonCode::SigInvalid]).await?;
    demand(sandbox.writes(concerns_retired).is_empty(), "refusals send nothing")?;
    demand(sandbox.writes(is_destructive).is_empty(), "nothing was destroyed")?;
    proof("four refusals, each with its reason; destructive requests to Proxmox VE: 0")
}

/// Alice approves: destroyed once, however often it is handed in.
pub(super) async fn signed(sandbox: &mut Sandbox) -> Result<(), CommandFailure> {
    sandbox.narration.chapter("Alice signs").await?;
    let test = OLD_TEST.id();
    let shop = OLD_SHOP.id();
    say(
        "She fetches the item, reads what is lost, and signs it on her own machine. Her key never leaves it; a key \
         on a YubiKey works the same. The approval is good for this act on this guest on this host, once, for an \
         hour.",
    )?;
    let id = item_of(sandbox, test).await?;
    sandbox.shows(&["pending", short(&id), "--out", "item.json"]).await?.succeeds()?;
    let reason = ["--reason", "not needed since May"];
    let line = signing("item.json", "alice", "approval.json");
    let line: Vec<&str> = line.iter().copied().chain(reason).collect();
    command(&super::sandbox::typed(&line))?;
    let ran = sandbox.runs(&line).await?.succeeds()?;
    let read = ran.stderr.split_once("You sign:").map_or("", |(_, read)| read);
    let read = read.split_once("The same by hand").map_or(read, |(read, _)| read);
    output(&format!("You sign:{}\n\n{}", read.trim_end(), ran.stdout))?;
    say(&format!("She signs the other one, {shop}, too, and keeps it for later. Then:"))?;
    let other = item_of(sandbox, shop).await?;
    fetch(sandbox, &other, "item-shop.json").await?;
    sign(sandbox, "item-shop.json", "alice", "approval-shop.json").await?;

    let done = submits(sandbox, "approval.json").await?.succeeds()?;
    let op = done.stdout.split(['(', ')']).find(|word| word.starts_with("op_")).unwrap_or_default();
    demand(!op.is_empty() && done.stdout.contains("done"), "the approved act is done")?;
    say("Once more the same approval, as somebody would who has copied it:")?;
    let again = submits(sandbox, "approval.json").await?;
    let replay = again.stdout.starts_with("replay") && again.stdout.contains(op);
    demand(replay, "the same approval is answered with the first operation")?;
    say(&format!("Everything that Proxmox VE was sent about {test}:"))?;
    let writes = sandbox.writes(|record| record.guest == Some(test));
    show_requests(&writes)?;
    let destroyed = writes.iter().filter(|record| is_destructive(record)).count();
    demand(destroyed == 1, "it was destroyed once")?;
    demand(sandbox.stored(test, "hostname").is_none(), "the guest is gone")?;
    proof(&format!("{test} is gone, destroyed once; the copy only tells of {op}"))
}

/// The number belongs to another guest now: the old approval is worth nothing.
pub(super) async fn number_taken(sandbox: &mut Sandbox) -> Result<(), CommandFailure> {
    sandbox.narration.chapter("The same number, another guest").await?;
    let guest = OLD_SHOP.id();
    say(&format!(
        "Alice's second approval, for {guest} ({}), is still good. But a colleague destroys that guest by hand and \
         makes a new one, which Proxmox VE gives the same number. Now the approval is handed in:",
        OLD_SHOP.name
    ))?;
    sandbox.happens(Event::Reuse { guest });
    // Which of them depends on whether the agent has looked since: each says that it is not the guest she meant.
    let codes = [
        ReasonCode::IdentityMismatch,
        ReasonCode::IdentityUnproven,
        ReasonCode::Stale,
        ReasonCode::NotPending,
    ];
    refuses(sandbox, "approval-shop.json", &codes).await?;
    say(&format!(
        "The file of {guest} still says absent, so the agent has put a new item in the place of the old one. It \
         tells of the new guest, and nobody has signed it:"
    ))?;
    sandbox
        .until("an item for the new guest waits", async || {
            let items = items(sandbox).await?;
            let is_stranger =
                |name: &Value| name.as_str().is_some_and(|name| name.starts_with(STRANGER));
            Ok(items
                .iter()
                .any(|item| item["guest"] == guest.to_string() && is_stranger(&item["name"])))
        })
        .await?;
    sandbox.shows(&["pending"]).await?.succeeds()?;
    let writes = sandbox.writes(|record| record.guest == Some(guest));
    demand(writes.is_empty(), "the new guest is left alone")?;
    let name = sandbox.stored(guest, "hostname").unwrap_or_default();
    demand(name.starts_with(STRANGER), "the new guest is there")?;
    proof("an approval is for a guest, not for a number: the new one is untouched")
}

fn absent(part: &DemoGuest) -> String {
    let id = part.id();
    format!("[guest.{}]\nkind = \"{}\"\nstate = \"absent\"\n", id.vmid, id.kind)
}

fn concerns_retired(record: &evenkeel_sim::RequestRecord) -> bool {
    [OLD_TEST, OLD_SHOP].iter().any(|part| record.guest == Some(part.id()))
}

/// Everything that waits.
async fn items(sandbox: &Sandbox) -> Result<Vec<Value>, CommandFailure> {
    let mut answer = sandbox.runs(&["pending", "-o", "json"]).await?.json()?;
    Ok(answer["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
}

/// The name of the item of a guest.
pub(super) async fn item_of(sandbox: &Sandbox, guest: GuestId) -> Result<String, CommandFailure> {
    let items = items(sandbox).await?;
    let item = items.iter().find(|item| item["guest"] == guest.to_string());
    let id = item.and_then(|item| item["pending"].as_str());
    id.map(str::to_owned).ok_or_else(|| {
        CommandFailure::new(
            Exit::Failed,
            format!("the demo did not go as told: nothing waits for {guest}"),
        )
    })
}

/// As much of a name as `pending` lists.
pub(super) fn short(id: &str) -> &str {
    id.get(..16).unwrap_or(id)
}

async fn fetch(sandbox: &Sandbox, id: &str, file: &str) -> Result<CommandRun, CommandFailure> {
    sandbox.runs(&["pending", id, "--out", file]).await?.succeeds()
}

fn signing<'a>(item: &'a str, key: &'a str, out: &'a str) -> [&'a str; 9] {
    ["sign", item, "--key", key, "--known-hosts", "known_hosts", "-y", "--out", out]
}

async fn sign(
    sandbox: &Sandbox,
    item: &str,
    key: &str,
    out: &str,
) -> Result<CommandRun, CommandFailure> {
    sandbox.runs(&signing(item, key, out)).await?.succeeds()
}

/// Hands a file in. What it says of the file before was read when it was signed.
async fn submits(sandbox: &Sandbox, file: &str) -> Result<CommandRun, CommandFailure> {
    let line = ["submit", file];
    command(&super::sandbox::typed(&line))?;
    let ran = sandbox.runs(&line).await?;
    output(&ran.stdout)?;
    output(ran.stderr.find("error: ").map_or("", |at| &ran.stderr[at..]))?;
    Ok(ran)
}

/// Hands something in that must be refused for one of these reasons.
async fn refuses(
    sandbox: &Sandbox,
    file: &str,
    codes: &[ReasonCode],
) -> Result<(), CommandFailure> {
    let ran = submits(sandbox, file).await?;
    let told = format!("{}{}", ran.stdout, ran.stderr);
    // Early refusals begin with the code, those of the guest's lane have it in brackets.
    let is_named = |code: &ReasonCode| {
        told.contains(&format!("error: {code}:")) || told.contains(&format!("({code})"))
    };
    let named = codes.iter().any(is_named);
    let words: Vec<&str> = codes.iter().map(|code| code.as_str()).collect();
    let what = format!("{file} is refused as {}", words.join(" or "));
    demand(ran.has_failed() && named, &what)
}

/// The same statement, signed by nobody.
fn unsigned(approval: &str) -> Result<String, CommandFailure> {
    let mut envelope = read(approval)?;
    envelope["signatures"] = json!([]);
    Ok(format!("{envelope}\n"))
}

/// The same signature under a statement that names another guest.
fn tampered(approval: &str, from: GuestId, to: GuestId) -> Result<String, CommandFailure> {
    let signed = Envelope::parse(approval.as_bytes())?;
    let statement =
        String::from_utf8_lossy(signed.payload()).replace(&from.to_string(), &to.to_string());
    let envelope = read(approval)?;
    let armour = envelope["signatures"][0].as_str().unwrap_or_default();
    Ok(Envelope::seal(statement.as_bytes(), &[armour])?)
}

fn read(approval: &str) -> Result<Value, CommandFailure> {
    serde_json::from_str(approval).map_err(|error| {
        CommandFailure::new(Exit::Failed, format!("an approval is not JSON: {error}"))
    })
}
