//! The classifier, act by act: what each call of Proxmox VE can cost, that anything unknown costs the
//! most, and that only our own journal can make a destroy benign.

#[expect(dead_code, reason = "the golden cases use the rest of it")]
mod support;

use std::collections::BTreeMap;

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::actual::identity::identity;
use evenkeel_core::actual::{ConfigEntry, Guest, GuestConfig, Power};
use evenkeel_core::gate::classify::ActionClass::{Benign, Destructive, Disruptive};
use evenkeel_core::gate::classify::{ActIntent, ActionClass, Judgement, Target, classify};
use evenkeel_core::model::id::{GuestId, GuestKind, OperationId};
use evenkeel_core::operate::operation::{
    self, IdentityHash, Ledger, OpEvent, OpRecord, Provenance, Resolution, UnixSeconds,
};
use evenkeel_core::registry;
use proptest::prelude::*;

/// Parameters as `name=value` words; an underscore in a value stands for a blank.
fn params(text: &str) -> BTreeMap<String, String> {
    let pairs = text
        .split_whitespace()
        .map(|pair| pair.split_once('=').expect("a parameter is name=value"));
    pairs.map(|(name, value)| (name.to_owned(), value.replace('_', " "))).collect()
}

/// The guest a case is about: actual state in the form of the golden cases.
fn guest(text: &str) -> Guest {
    let (snapshot, _) = support::actual(text);
    snapshot.guests.into_values().next().expect("a case has a guest")
}

fn judge(
    op: &str,
    kind: GuestKind,
    params: &BTreeMap<String, String>,
    target: Target<'_>,
) -> Judgement {
    classify(&ActIntent { op, kind, params, target }, &Provenance::none())
}

/// The acts of `cases/acts.txt`, one a line.
const ACTS: &str = include_str!("cases/acts.txt");

#[test]
fn g03_g04_g06_g07_g08_g09_g10_every_act_costs_what_the_table_says() {
    let mut named = BTreeMap::new();
    let mut checked = 0;
    let mut wrong = Vec::new();
    for line in ACTS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some((name, text)) =
            line.strip_prefix("let ").and_then(|rest| rest.split_once(" = "))
        {
            named.insert(name, text);
            continue;
        }
        let [class, what, act, target] = line.split(" | ").collect::<Vec<_>>()[..] else {
            panic!("four fields in `{line}`");
        };
        let judgement = judged(act, named.get(target).copied().unwrap_or(target));
        if judgement.class.to_string() != class.trim() {
            let Judgement { class: is, why } = &judgement;
            wrong.push(format!("{what}: {act} is {is} ({why})"));
        }
        let silent = judgement.why.is_empty();
        assert_eq!(silent, judgement.class == Benign, "{what}: all but benign acts have a reason");
        checked += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked > 180, "only {checked} acts were read");
}

/// The class of an act aimed at a guest given as text.
fn judged(act: &str, target: &str) -> Judgement {
    let (op, parameters) = act.split_once(' ').unwrap_or((act, ""));
    let params = params(parameters);
    match target {
        "free" => judge(op, GuestKind::Qemu, &params, Target::Free),
        "unknown" => judge(op, GuestKind::Qemu, &params, Target::Unknown),
        lines => {
            let seen = guest(&lines.replace(" / ", "\n"));
            judge(op, seen.id.kind, &params, Target::Seen(&seen))
        }
    }
}

/// Calls of Proxmox VE that are no ops of ours, and texts that only resemble an op.
const NO_OPS: &[&str] = &[
    "vzdump",
    "remote_migrate",
    "delete_content",
    "protect_backup",
    "prune_backups",
    "set_storage",
    "delete_storage",
    "wipedisk",
    "initgpt",
    "create_zfs",
    "delete_replication",
    "create_replication",
    "ha_add",
    "ha_remove",
    "stopall",
    "monitor",
    "agent_exec",
    "reset",
    "reboot",
    "unlink",
    "cloudinit",
    "destroy ",
    "Destroy",
    "destroy\0",
    "d\u{435}stroy",
    "",
    "destr",
    "set_config,destroy",
];

#[test]
fn g01_a_call_that_is_no_op_of_ours_is_destructive() {
    let seen = guest("lxc/101 stopped\ncores: 2");
    for op in NO_OPS {
        let judgement = judge(op, GuestKind::Lxc, &BTreeMap::new(), Target::Seen(&seen));
        assert_eq!(judgement.class, Destructive, "{op:?}");
    }
}

fn any_kind() -> impl Strategy<Value = GuestKind> {
    prop_oneof![Just(GuestKind::Lxc), Just(GuestKind::Qemu)]
}

/// Keys of the registry, and any text at all.
fn any_key() -> impl Strategy<Value = String> {
    let known: Vec<String> = GuestKind::ALL
        .into_iter()
        .flat_map(registry::table)
        .map(|key| if key.slots.is_some() { format!("{}0", key.name) } else { key.name.to_owned() })
        .collect();
    prop_oneof![4 => proptest::sample::select(known), 1 => any::<String>()]
}

/// Values that look like some, and any text at all.
fn any_value() -> impl Strategy<Value = String> {
    let likely = "(local-lvm:|tank:)?(vm-200-disk-0|8|none|cloudinit|/dev/sda)?(,[a-z-]{1,9}=[a-z0-9:]{0,9}){0,4}";
    prop_oneof![likely.prop_map(|text: String| text), "[0-9]{1,20}", any::<String>()]
}

fn any_guest() -> impl Strategy<Value = Guest> {
    let entry =
        (any_key(), proptest::option::of(any_value()), proptest::option::of(any_value()), 0..4_u8)
            .prop_map(|(key, value, pending, delete)| ConfigEntry { key, value, pending, delete });
    let entries = proptest::collection::btree_map(any_key(), entry, 0..6);
    let power = prop_oneof![
        Just(Power::Running),
        Just(Power::Stopped),
        Just(Power::Paused),
        Just(Power::Unknown)
    ];
    (any_kind(), power, entries).prop_map(|(kind, power, entries)| {
        let entries = entries.into_iter().map(|(key, entry)| ConfigEntry { key, ..entry });
        Guest {
            id: GuestId::new(kind, "200".parse().expect("a guest number")),
            power,
            template: false,
            ha: None,
            lock: None,
            config: Ok(GuestConfig::from_pending(kind, entries).into()),
        }
    })
}

fn any_params() -> impl Strategy<Value = BTreeMap<String, String>> {
    proptest::collection::btree_map(any_key(), any_value(), 0..4)
}

/// A name that no release has: the letters stand for nothing.
fn unknown_name() -> impl Strategy<Value = String> {
    any::<String>().prop_map(|text| format!("zz{text}"))
}

proptest! {
    #[test]
    fn g01_an_op_nobody_knows_is_destructive(op in any::<String>(), params in any_params(), guest in any_guest()) {
        prop_assume!(op.parse::<ActionKind>().is_err());
        prop_assert_eq!(judge(&op, guest.id.kind, &params, Target::Seen(&guest)).class, Destructive);
    }

    #[test]
    fn g02_g28_a_parameter_nobody_knows_is_destructive(
        name in unknown_name(), value in any_value(), mut params in any_params(), guest in any_guest(),
    ) {
        params.insert(name, value);
        for op in ActionKind::ALL {
            for target in [Target::Seen(&guest), Target::Free, Target::Unknown] {
                prop_assert_eq!(judge(op.as_str(), guest.id.kind, &params, target).class, Destructive);
            }
        }
    }

    #[test]
    fn g02_a_key_nobody_knows_is_not_deleted_or_reverted_unsigned(name in "zz[a-z0-9]{0,9}", guest in any_guest()) {
        for verb in ["delete", "revert"] {
            let params = BTreeMap::from([(verb.to_owned(), format!("cores,{name}"))]);
            prop_assert_eq!(judge("set_config", guest.id.kind, &params, Target::Seen(&guest)).class, Destructive);
        }
    }

    #[test]
    fn g02_a_part_nobody_knows_is_destructive(key in any_key(), part in "zz[a-z]{0,9}", guest in any_guest()) {
        let Some(found) = registry::find(guest.id.kind, &key) else { return Ok(()) };
        let registry::ValueFormat::Property(_) = found.key().format else { return Ok(()) };
        let params = BTreeMap::from([(key, format!("{part}=1"))]);
        prop_assert_eq!(judge("set_config", guest.id.kind, &params, Target::Seen(&guest)).class, Destructive);
    }

    #[test]
    fn g28_every_act_has_a_class_and_a_reason(params in any_params(), guest in any_guest()) {
        for op in ActionKind::ALL {
            let judgement = judge(op.as_str(), guest.id.kind, &params, Target::Seen(&guest));
            prop_assert_eq!(judgement.why.is_empty(), judgement.class == Benign);
        }
    }

    #[test]
    fn g28_without_provenance_a_destroy_is_destructive(params in any_params(), guest in any_guest()) {
        for target in [Target::Seen(&guest), Target::Free, Target::Unknown] {
            prop_assert_eq!(judge("destroy", guest.id.kind, &params, target).class, Destructive);
        }
    }

    #[test]
    fn while_a_destruction_waits_nothing_but_dropping_it_runs_unsigned(params in any_params(), guest in any_guest()) {
        let doomed = guest.config.as_deref().is_ok_and(GuestConfig::destruction_waits);
        if !doomed || params.contains_key("revert") {
            return Ok(());
        }
        for op in ActionKind::ALL {
            prop_assert_eq!(judge(op.as_str(), guest.id.kind, &params, Target::Seen(&guest)).class, Destructive);
        }
    }
}

const SCRATCH: &str = "lxc/101 stopped\nrootfs: local-lvm:vm-101-disk-0,size=8G\nostype: debian\n\
                       net0: name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:01";

fn started(guest: GuestId, kind: ActionKind, identity: Option<IdentityHash>) -> OpEvent {
    OpEvent::Started(Box::new(promise(guest, kind, identity)))
}

/// What a `started` record says.
fn promise(
    guest: GuestId,
    kind: ActionKind,
    identity: Option<IdentityHash>,
) -> operation::StartedIntent {
    operation::StartedIntent {
        id_was_free: kind.creates_guest(),
        identity,
        ..operation::StartedIntent::new(guest, kind, UnixSeconds(1000))
    }
}

/// A journal of whole operations, as the agent would have written it.
fn journal(operations: &[(OpEvent, OpEvent)]) -> Ledger {
    let mut ledger = Ledger::default();
    for (number, (first, last)) in (1..).zip(operations) {
        let op = OperationId::from_parts(1_700_000_000_000, number);
        for event in [first, last] {
            let record = OpRecord { op, event: event.clone() };
            ledger.apply(&record).expect("a journal that fits");
        }
    }
    ledger
}

fn made(scratch: &Guest) -> (OpEvent, OpEvent) {
    let identity = Some(identity(scratch).expect("it has a disk and an address"));
    (started(scratch.id, ActionKind::Create, None), OpEvent::Succeeded { identity, warning: None })
}

fn destroying(guest: &Guest, provenance: &Provenance, parameters: &str) -> ActionClass {
    let params = params(parameters);
    let intent = ActIntent {
        op: "destroy",
        kind: guest.id.kind,
        params: &params,
        target: Target::Seen(guest),
    };
    classify(&intent, provenance).class
}

#[test]
fn a_guest_our_journal_made_and_nobody_changed_is_ours_to_destroy() {
    let scratch = guest(SCRATCH);
    let provenance = journal(&[made(&scratch)]).provenance(scratch.id);
    assert_eq!(destroying(&scratch, &provenance, "purge=0 destroy-unreferenced-disks=0"), Benign);
    assert_eq!(
        destroying(&scratch, &Provenance::none(), ""),
        Destructive,
        "without a journal it is somebody's"
    );
}

#[test]
fn g14_g15_g16_a_guest_that_is_not_as_our_journal_left_it_is_somebodys() {
    let scratch = guest(SCRATCH);
    let provenance = journal(&[made(&scratch)]).provenance(scratch.id);
    for (what, text) in [
        (
            "its number was taken by another guest",
            "lxc/101 stopped\nrootfs: local-lvm:vm-101-disk-9\nostype: debian",
        ),
        (
            "its number was taken by the other kind",
            "qemu/101 stopped\nscsi0: local-lvm:vm-101-disk-0",
        ),
        ("a data disk was attached", &format!("{SCRATCH}\nmp0: tank:vm-101-disk-7,mp=/data")),
        ("its network card was replaced", &SCRATCH.replace("00:01", "00:02")),
        ("a volume was moved in and detached", &format!("{SCRATCH}\nunused0: tank:vm-101-disk-7")),
        (
            "a volume waits to be attached",
            &format!("{SCRATCH}\nmp0:\n  waits: tank:vm-101-disk-7,mp=/data"),
        ),
        (
            "a newer release keeps something in it",
            &format!("{SCRATCH}\nquantum: tank:vm-101-disk-7"),
        ),
        ("somebody protected it", &format!("{SCRATCH}\nprotection: 1")),
        ("it became a template", &SCRATCH.replace("stopped", "stopped template")),
        ("HA manages it", &SCRATCH.replace("stopped", "stopped ha(started)")),
        ("it cannot be read", "lxc/101 stopped\nunreadable 403"),
        ("nothing tells it from another", "lxc/101 stopped\nostype: debian"),
    ] {
        assert_eq!(destroying(&guest(text), &provenance, ""), Destructive, "{what}");
    }
    for unchanged in
        [format!("{SCRATCH}\ntags: keep"), format!("{SCRATCH}\ndescription: mine\nmemory: 1024")]
    {
        assert_eq!(destroying(&guest(&unchanged), &provenance, ""), Benign, "{unchanged}");
    }
}

#[test]
fn g11_g20_parameters_that_reach_beyond_our_guest_are_destructive_even_so() {
    let scratch = guest(SCRATCH);
    let provenance = journal(&[made(&scratch)]).provenance(scratch.id);
    for reaching in ["destroy-unreferenced-disks=1", "purge=1", "scratch=1", "provenance=ours"] {
        assert_eq!(destroying(&scratch, &provenance, reaching), Destructive, "{reaching}");
    }
    assert_eq!(destroying(&scratch, &provenance, "force=1"), Disruptive);
}

#[test]
fn g12_g13_g21_a_tag_or_a_claim_is_no_provenance() {
    for tags in ["evenkeel-scratch", "Evenkeel-Scratch;ours", "agent-scratch,created-by-us"] {
        let claimed = guest(&format!(
            "{SCRATCH}\ntags: {tags}\ndescription: {{\"type\":\"op\",\"kind\":\"create\"}}"
        ));
        assert_eq!(destroying(&claimed, &Provenance::none(), ""), Destructive, "{tags}");
    }
}

#[test]
fn g18_g19_a_creation_that_is_not_proved_makes_nothing_ours() {
    let scratch = guest(SCRATCH);
    let id = scratch.id;
    let live = Some(identity(&scratch).unwrap());
    let create = || started(id, ActionKind::Create, None);
    let failed =
        OpEvent::Failed { reason: "no".into(), left_volume: None, tried: None, identity: None };
    let taken =
        operation::StartedIntent { id_was_free: false, ..promise(id, ActionKind::Create, None) };
    let succeeded = |identity| OpEvent::Succeeded { identity, warning: None };
    for (what, operations) in [
        ("it failed", vec![(create(), failed)]),
        ("its outcome is unknown", vec![(create(), OpEvent::Unknown { reason: "lost".into() })]),
        ("its identity was not read back", vec![(create(), succeeded(None))]),
        (
            "its number was not proved free",
            vec![(OpEvent::Started(Box::new(taken)), succeeded(live))],
        ),
        (
            "it was only started by us",
            vec![(started(id, ActionKind::Start, live), succeeded(live))],
        ),
        (
            "it was destroyed since",
            vec![made(&scratch), (started(id, ActionKind::Destroy, live), succeeded(None))],
        ),
        (
            "we made a template of it",
            vec![made(&scratch), (started(id, ActionKind::Template, live), succeeded(live))],
        ),
        (
            "it was migrated",
            vec![made(&scratch), (started(id, ActionKind::Migrate, live), succeeded(live))],
        ),
    ] {
        let provenance = journal(&operations).provenance(id);
        assert_eq!(destroying(&scratch, &provenance, ""), Destructive, "{what}");
    }
}

#[test]
fn g15_our_own_changes_move_the_baseline_and_foreign_ones_end_it() {
    let scratch = guest(SCRATCH);
    let grown = guest(&format!("{SCRATCH}\nmp0: tank:vm-101-disk-1,mp=/data"));
    let before = Some(identity(&scratch).unwrap());
    let after = Some(identity(&grown).unwrap());
    let attached = |before| {
        let event = OpEvent::Succeeded { identity: after, warning: None };
        (started(scratch.id, ActionKind::SetConfig, before), event)
    };
    let ours = journal(&[made(&scratch), attached(before)]).provenance(scratch.id);
    assert_eq!(destroying(&grown, &ours, ""), Benign, "we attached the volume");
    assert_eq!(
        destroying(&scratch, &ours, ""),
        Destructive,
        "the guest is older than our last change"
    );
    let blind = journal(&[made(&scratch), attached(None)]).provenance(scratch.id);
    assert_eq!(destroying(&grown, &blind, ""), Destructive, "nobody read it before our write");
    let foreign = journal(&[made(&scratch), attached(after)]).provenance(scratch.id);
    assert_eq!(destroying(&grown, &foreign, ""), Destructive, "it was attached before our write");
}

#[test]
fn g19_an_operators_word_closes_an_operation_and_proves_nothing() {
    let scratch = guest(SCRATCH);
    let op = OperationId::from_parts(1_700_000_000_000, 1);
    let mut ledger = Ledger::default();
    for event in [
        started(scratch.id, ActionKind::Create, None),
        OpEvent::Unknown { reason: "lost".into() },
        OpEvent::Resolved { outcome: Resolution::Succeeded },
    ] {
        ledger.apply(&OpRecord { op, event }).unwrap();
    }
    assert_eq!(destroying(&scratch, &ledger.provenance(scratch.id), ""), Destructive);
}

/// Everything at once: whatever the op, the parameters and the journal, there is an answer; what nobody knows is
/// destructive; and the journal can make a destroy of our own guest milder and nothing else.
#[test]
fn g28_every_op_every_subset_of_parameters_and_any_provenance_are_judged_and_only_a_destroy_is_milder()
 {
    const WORDS: [&str; 9] = [
        "purge=0",
        "destroy-unreferenced-disks=0",
        "force=1",
        "delete=mp0",
        "cores=2",
        "protection=0",
        "snapname=a",
        "size=16G",
        "quantum=1",
    ];
    let scratch = guest(SCRATCH);
    let live = Some(identity(&scratch).unwrap());
    let destroyed = OpEvent::Succeeded { identity: None, warning: None };
    let gone = (started(scratch.id, ActionKind::Destroy, live), destroyed);
    let ours = journal(&[made(&scratch)]).provenance(scratch.id);
    let was_ours = journal(&[made(&scratch), gone]).provenance(scratch.id);
    let ops = ActionKind::ALL.iter().map(|op| op.as_str()).chain(["", "Destroy", "vzdump"]);
    let mut milder = 0;
    for op in ops {
        for subset in 0_u32..1 << WORDS.len() {
            let chosen = WORDS.iter().enumerate().filter(|(bit, _)| subset >> bit & 1 == 1);
            let text: Vec<&str> = chosen.map(|(_, word)| *word).collect();
            let params = params(&text.join(" "));
            for target in [Target::Seen(&scratch), Target::Free, Target::Unknown] {
                let class = |provenance: &Provenance| {
                    let intent = ActIntent { op, kind: scratch.id.kind, params: &params, target };
                    classify(&intent, provenance).class
                };
                let bare = class(&Provenance::none());
                assert_eq!(class(&was_ours), bare, "{op} {text:?}: a former guest proves nothing");
                if op.parse::<ActionKind>().is_err() || params.contains_key("quantum") {
                    assert_eq!(class(&ours), Destructive, "{op} {text:?}");
                }
                if class(&ours) != bare {
                    milder += 1;
                    assert_eq!(op, "destroy", "{text:?}");
                    assert!(matches!(target, Target::Seen(_)), "{text:?}");
                }
            }
        }
    }
    assert_eq!(milder, 8, "a destroy with any of purge=0, unreferenced=0 and force=1");
}
