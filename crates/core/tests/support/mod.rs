//! What the tests of core share: the text form of actual state, and the text form of a plan.
#![expect(clippy::unwrap_used, reason = "a case that cannot be read shall stop its test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use evenkeel_core::actual::identity::{identity, marks};
use evenkeel_core::actual::{
    ConfigEntry, Elsewhere, Guest, GuestConfig, ListCoverage, Power, Snapshot, Unreadable,
};
use evenkeel_core::desired::bin::BinMemory;
use evenkeel_core::desired::{self, Desired};
use evenkeel_core::gate::classify::BackupMemory;
use evenkeel_core::model::id::{GuestId, OperationId, VmId};
use evenkeel_core::model::reason::{ReasonCode, Refusal};
use evenkeel_core::model::release::Release;
use evenkeel_core::operate::operation::{IdentityHash, UnixSeconds};
use evenkeel_core::plan::{Action, GuestBusy, GuestPlan, MovedVolumes, Plan, PlanContext};
use evenkeel_core::value::compare::{Cgroup, Conventions};
use evenkeel_core::words::diagnostic::Sources;

/// What a case hears from whoever could not read a guest.
const NEXT: &str = "run `evenkeel doctor` to see what the token may read";

/// Reads desired state from TOML; a case that means to be wrong has no place here.
pub(crate) fn desired(text: &str) -> Desired {
    let mut sources = Sources::default();
    sources.add("desired.toml", text);
    desired::load(&sources)
        .unwrap_or_else(|errors| panic!("the desired state does not check: {errors:#?}"))
}

/// A snapshot that is still empty.
pub(crate) fn empty_snapshot(release: Release) -> Snapshot {
    Snapshot {
        node: "pve1".parse().unwrap(),
        release,
        conventions: Conventions::default(),
        guests: BTreeMap::new(),
        elsewhere: BTreeMap::new(),
        hidden: BTreeSet::new(),
        coverage: ListCoverage::Whole,
    }
}

/// Reads actual state:
///
/// ```text
/// release 8.4 · tags have case · cgroup v1 · partial WHY · hidden VMID · frozen · observes · busy VMID · elsewhere lxc/102 pve2
/// made lxc/101 (by us, and it never ran) · contested 101 (a making of ours did not end well)
/// half qemu/101 (what a failed restore of ours left) · scratch qemu/101 (made by us as such)
/// removable 101 (it was proved) · removable 101 but WHY
/// lxc/101 running template locked(backup) ha(started)
/// unreadable WHY
/// no digest
/// was running onboot tags(a,b) 40 days ago    (before it was put into the bin)
/// remembers VOLUME     (the journal knows that no backup held it when it left its slot)
/// moved VOLUME from SLOT (the journal knows that a move of ours left it behind)
/// cores: 2
///   waits: 4            or  waits to be deleted   or  waits to be destroyed
/// nameserver:           a key that is absent now (its next line says what waits)
/// ```
pub(crate) fn actual(text: &str) -> (Snapshot, PlanContext) {
    let mut snapshot = empty_snapshot(Release::V8_4);
    let mut context = PlanContext::default();
    let mut guests: Vec<(Guest, Vec<ConfigEntry>)> = Vec::new();
    let mut binned: BTreeMap<VmId, String> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        if let Some(waits) =
            line.trim_start().strip_prefix("waits").filter(|_| line.starts_with(' '))
        {
            let entry = guests.last_mut().unwrap().1.last_mut().unwrap();
            match waits {
                " to be deleted" => entry.delete = 1,
                " to be destroyed" => entry.delete = 2,
                _ => entry.pending = Some(unescape(waits.strip_prefix(": ").unwrap())),
            }
        } else if let Some((key, value)) = line.split_once(':').filter(|(key, _)| is_key(key)) {
            let value = value.strip_prefix(' ').map(unescape);
            let entry = ConfigEntry { key: key.into(), value, pending: None, delete: 0 };
            guests.last_mut().unwrap().1.push(entry);
        } else if let Some(was) = line.strip_prefix("was ") {
            binned.insert(guests.last().unwrap().0.id.vmid, was.to_owned());
        } else if line.starts_with("lxc/") || line.starts_with("qemu/") {
            guests.push((guest(line), vec![digest("digest-of-the-file")]));
        } else {
            setting(line, &mut snapshot, &mut context, &mut guests);
        }
    }
    for (mut guest, entries) in guests {
        if guest.config.is_ok() {
            guest.config = Ok(GuestConfig::from_pending(guest.id.kind, entries).into());
        }
        if let Some(was) = binned.get(&guest.id.vmid) {
            context.bins.insert(guest.id.vmid, bin_memory(was, &guest));
        }
        snapshot.guests.insert(guest.id.vmid, guest);
    }
    context.now = NOW;
    context.bin_life_s = Some(30 * 86_400);
    (snapshot, context)
}

const NOW: UnixSeconds = UnixSeconds(1_800_000_000);

/// How a guest was before it was put into the bin; `another` means that another guest has its number now,
/// `changed` that the guest got another card or disk since.
fn bin_memory(was: &str, guest: &Guest) -> BinMemory {
    let mut memory = BinMemory {
        identity: identity(guest).unwrap_or(IdentityHash([0; 32])),
        since: NOW,
        ran: false,
        onboot: None,
        tags: BTreeSet::new(),
        marks: marks(guest),
    };
    let words: Vec<&str> = was.split_whitespace().collect();
    for (at, word) in words.iter().enumerate() {
        match *word {
            "running" => memory.ran = true,
            "onboot" => memory.onboot = Some(true),
            "another" => {
                memory.identity = IdentityHash([0; 32]);
                memory.marks = ["mac 02:00:00:00:00:09".to_owned()].into();
            }
            "changed" => memory.identity = IdentityHash([0; 32]),
            "days" => memory.since = NOW.minus(words[at - 1].parse::<u64>().unwrap() * 86_400),
            _ => {}
        }
    }
    memory
}

fn is_key(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

fn unescape(text: &str) -> String {
    text.replace("\\n", "\n").replace("\\0", "\0")
}

fn digest(text: &str) -> ConfigEntry {
    ConfigEntry { key: "digest".into(), value: Some(text.into()), pending: None, delete: 0 }
}

fn guest(line: &str) -> Guest {
    let mut words = line.split_whitespace();
    let id: GuestId = words.next().unwrap().parse().unwrap();
    let mut guest = Guest {
        id,
        power: Power::Unknown,
        template: false,
        ha: None,
        lock: None,
        config: Ok(GuestConfig::default().into()),
    };
    for word in words {
        let inner = |name: &str| {
            Some(word.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')')?.to_owned())
        };
        match word {
            "running" => guest.power = Power::Running,
            "paused" => guest.power = Power::Paused,
            "stopped" => guest.power = Power::Stopped,
            "power-unknown" => guest.power = Power::Unknown,
            "template" => guest.template = true,
            _ if inner("locked").is_some() => guest.lock = inner("locked"),
            _ if inner("ha").is_some() => guest.ha = inner("ha"),
            _ => panic!("what is `{word}` in `{line}`?"),
        }
    }
    guest
}

fn setting(
    line: &str,
    snapshot: &mut Snapshot,
    context: &mut PlanContext,
    guests: &mut [(Guest, Vec<ConfigEntry>)],
) {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    match word {
        "release" => snapshot.release = rest.parse().unwrap(),
        "tags" => snapshot.conventions.tags_have_case = true,
        "cgroup" => snapshot.conventions.cgroup = Cgroup::V1,
        "partial" => snapshot.coverage = ListCoverage::Partial(rest.into()),
        "hidden" => {
            snapshot.hidden.insert(rest.parse().unwrap());
        }
        "frozen" => context.frozen = true,
        "observes" => context.host_mode = desired::ReconcileMode::Observe,
        "busy" => {
            let op = OperationId::from_parts(1_700_000_000_000, 7);
            context.busy.insert(
                rest.parse().unwrap(),
                GuestBusy { op, since: "12:00:00".into(), unknown: None, left: None },
            );
        }
        "elsewhere" => {
            let (id, node) = rest.split_once(' ').unwrap();
            let id: GuestId = id.parse().unwrap();
            let there = Elsewhere { kind: id.kind, node: node.parse().unwrap() };
            snapshot.elsewhere.insert(id.vmid, there);
        }
        "unreadable" => guests.last_mut().unwrap().0.config = Err(Unreadable::new(rest, NEXT)),
        "remembers" => {
            let vmid = guests.last().unwrap().0.id.vmid;
            context.memories.entry(vmid).or_default().backups = BackupMemory::of([rest.to_owned()]);
        }
        "moved" => {
            let vmid = guests.last().unwrap().0.id.vmid;
            let (volume, slot) = rest.split_once(" from ").unwrap();
            let moved = MovedVolumes::of([(volume.to_owned(), slot.to_owned())]);
            context.memories.entry(vmid).or_default().moved = moved;
        }
        "made" => making(context, "never_ran", &serde_json::json!([rest])),
        "contested" => {
            let op = OperationId::from_parts(1_700_000_000_000, 7).to_string();
            making(context, "contested", &serde_json::json!({ rest: op }));
        }
        "half" => made_by_us(context, rest, &serde_json::json!({ "stage": "half" })),
        "scratch" => made_by_us(context, rest, &serde_json::json!({ "stage": "whole" })),
        "removable" => {
            let (vmid, why) = rest.split_once(" but ").unwrap_or((rest, ""));
            let refusal = Refusal::new(ReasonCode::PendingSignature, why);
            let verdict = if why.is_empty() { Ok(()) } else { Err(refusal) };
            context.removals.insert(vmid.parse().unwrap(), verdict);
        }
        "no" => guests.last_mut().unwrap().1.retain(|entry| entry.key != "digest"),
        _ => panic!("what is `{line}`?"),
    }
}

/// What the journal would know of a guest that we made from a backup, or tried to.
fn made_by_us(context: &mut PlanContext, id: &str, stage: &serde_json::Value) {
    let op = OperationId::from_parts(1_700_000_000_000, 7).to_string();
    let (_, vmid) = id.split_once('/').unwrap();
    let is_half = stage["stage"] == "half";
    let made = serde_json::json!({
        "making": op, "guest": id, "kind": "restore", "source": null, "scratch": !is_half,
        "mark": { "at": 1_700_000_000, "task": null }, "tasks": [], "stage": stage,
    });
    making(context, "made", &serde_json::json!({ vmid: made }));
    if is_half {
        making(context, "contested", &serde_json::json!({ vmid: op }));
    }
}

/// What the journal would know of guests we made, one word of it.
fn making(context: &mut PlanContext, word: &str, value: &serde_json::Value) {
    let mut known = serde_json::to_value(&context.making).unwrap();
    known[word] = value.clone();
    context.making = serde_json::from_value(known).unwrap();
}

/// A plan as a reviewer reads it: every parameter that would be sent, the reasons, what is held.
pub(crate) fn shown(plan: &Plan) -> String {
    let mut text = String::new();
    for guest in &plan.guests {
        show_guest(guest, &mut text);
    }
    for unused in &plan.unused {
        let from = unused.moved_from.as_ref().map(|slot| format!(", moved from {slot}"));
        let from = from.unwrap_or_default();
        writeln!(text, "unused: {} {} {}{from}", unused.guest, unused.slot, unused.volume).unwrap();
    }
    let run = plan.runnable().count();
    let held = plan.actions().count() - run;
    writeln!(text, "{run} to run, {held} held, {} in sync", plan.in_sync).unwrap();
    text
}

fn show_guest(guest: &GuestPlan, text: &mut String) {
    writeln!(text, "{}", guest.guest).unwrap();
    if let Some(busy) = &guest.busy {
        writeln!(text, "  busy ({}, since {})", busy.op, busy.since).unwrap();
    }
    for action in &guest.actions {
        show_action(action, text);
    }
    for change in &guest.waiting {
        writeln!(text, "  after restart: {change}").unwrap();
    }
    for problem in &guest.problems {
        writeln!(text, "  problem: {problem}").unwrap();
        if let Some(hint) = problem.hint() {
            writeln!(text, "    next: {hint}").unwrap();
        }
    }
}

fn show_action(action: &Action, text: &mut String) {
    writeln!(text, "  {} ({})", action.step.kind(), action.effect()).unwrap();
    for (reason, at) in action.reasons().iter().zip(0..) {
        match action.changes.get(at) {
            Some(change) => writeln!(text, "    {reason} ({})", change.when).unwrap(),
            None => writeln!(text, "    {reason}").unwrap(),
        }
    }
    for (name, value) in action.step.params() {
        if name != "digest" {
            writeln!(text, "    > {name}={}", value.replace('\n', "\\n").replace('\0', "\\0"))
                .unwrap();
        }
    }
    if !action.why.is_empty() {
        writeln!(text, "    why: {}", action.why).unwrap();
    }
    if let Some(held) = &action.held {
        writeln!(text, "    held: {} ({held})", held.reason()).unwrap();
    }
}
