//! What proves a move and a template, and what a killed worker leaves behind.

use std::collections::BTreeMap;

use super::*;
use crate::actual::{ConfigEntry, Guest, GuestConfig, PRESENT, Power, SnapshotPoint};

fn guest(kind: GuestKind, template: bool, keys: &[(&str, &str)]) -> Guest {
    let entries = keys.iter().map(|(key, text)| ConfigEntry {
        key: (*key).to_owned(),
        value: Some((*text).to_owned()),
        pending: None,
        delete: 0,
    });
    Guest {
        id: GuestId::new(kind, VmId::try_from(101).unwrap()),
        power: Power::Stopped,
        template,
        ha: None,
        lock: None,
        config: Ok(GuestConfig::from_pending(kind, entries).into()),
    }
}

fn proved(kind: ActionKind, params: &[(&str, &str)], guest: &Guest) -> Postcondition {
    let operation = operation(kind, guest.id.kind);
    let params: BTreeMap<String, String> =
        params.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    let lists = ProofLists::default();
    postcondition(&operation.intent, &params, Some(guest), lists)
}

#[test]
fn a_move_is_proved_by_the_storage_of_what_the_slot_holds() {
    for (kind, slot, name) in
        [(GuestKind::Lxc, "mp0", "volume"), (GuestKind::Qemu, "scsi0", "disk")]
    {
        let params = [(name, slot), ("storage", "tank"), ("delete", "0"), ("digest", "x")];
        let holds = |text: &str| {
            proved(ActionKind::MoveVolume, &params, &guest(kind, false, &[(slot, text)]))
        };
        assert_eq!(holds("tank:vm-101-disk-0,mp=/a,size=8G"), Postcondition::Holds, "{kind}");
        for other in ["local-lvm:vm-101-disk-0,mp=/a,size=8G", "tanker:vm-101-disk-0,mp=/a"] {
            assert_eq!(holds(other), Postcondition::DoesNotHold, "{kind} {other}");
        }
        let empty = guest(kind, false, &[("unused0", "tank:vm-101-disk-0")]);
        let found = proved(ActionKind::MoveVolume, &params, &empty);
        assert_eq!(found, Postcondition::DoesNotHold, "a copy that hangs there is no move");
    }
}

#[test]
fn a_template_is_proved_by_its_flag_and_its_base_images_together() {
    let proof = |template, keys: &[(&str, &str)]| {
        proved(ActionKind::Template, &[], &guest(GuestKind::Qemu, template, keys))
    };
    let disk = ("scsi0", "tank:vm-101-disk-0,size=8G");
    let base = ("scsi0", "tank:base-101-disk-0,size=8G");
    let drive = ("ide2", "tank:vm-101-cloudinit,media=cdrom");
    assert_eq!(proof(false, &[disk]), Postcondition::DoesNotHold);
    assert_eq!(proof(true, &[disk]), Postcondition::NotYet, "anybody can set the flag");
    assert_eq!(proof(true, &[base, ("efidisk0", "tank:vm-101-disk-1")]), Postcondition::NotYet);
    assert_eq!(proof(true, &[base, drive]), Postcondition::Holds, "its drive is made anew");
    let kept = ("unused0", "tank:vm-101-disk-7");
    assert_eq!(proof(true, &[base, kept]), Postcondition::Holds, "what is detached stays");
    let root = [("rootfs", "tank:basevol-101-disk-0,size=8G")];
    let container = guest(GuestKind::Lxc, true, &root);
    assert_eq!(proved(ActionKind::Template, &[], &container), Postcondition::Holds);
}

/// The worker is killed: its status is unclear, the slot holds what it held, and the copy hangs on nothing.
#[test]
fn a_killed_move_is_closed_with_the_copy_it_left_and_two_copies_are_not_guessed() {
    for guest in GuestKind::ALL {
        let mut moved = operation(ActionKind::MoveVolume, guest);
        moved.intent.volumes_before = Some(BTreeSet::new());
        let upid = own_task(ActionKind::MoveVolume, guest);
        let moved = moved.after(&OpEvent::TaskRunning { upid, found: false }).unwrap();
        let late = SENT.plus(POSTCONDITION_DEADLINE_SECONDS + 10);
        let evidence = |volumes| Evidence {
            task: Some(Seen { at: SENT.plus(1), found: TaskFact::Unclear }),
            postcondition: Some(Seen { at: late, found: Postcondition::DoesNotHold }),
            volumes: Some(Seen { at: late, found: volumes }),
            ..Evidence::default()
        };
        let copy: VolumeId = "tank:vm-101-disk-3".parse().unwrap();
        let decided = decide(&moved, &evidence(NewVolumes::One(copy.clone())), late);
        let reason = FailReason::FactMissing;
        let left_volume = Some(copy);
        assert_eq!(decided, RecoveryDecision::Fail { reason, left_volume }, "{guest}");
        let decided = decide(&moved, &evidence(NewVolumes::Several), late);
        assert_eq!(decided, RecoveryDecision::Doubt(OutcomeDoubt::SeveralVolumes), "{guest}");
        let decided = decide(&moved, &evidence(NewVolumes::Unreadable), late);
        assert!(matches!(decided, RecoveryDecision::Wait { .. }), "{guest}: {decided:?}");
    }
}

#[test]
fn y13_a_rollback_that_starts_the_machine_is_proved_by_its_running_too() {
    let operation = operation(ActionKind::Rollback, GuestKind::Qemu);
    let present = SnapshotPoint {
        name: PRESENT.to_owned(),
        taken_at: None,
        parent: Some("before".to_owned()),
        with_memory: false,
    };
    for (start, power, proof) in [
        ("0", Power::Stopped, Postcondition::Holds),
        ("1", Power::Stopped, Postcondition::DoesNotHold),
        ("1", Power::Unknown, Postcondition::DoesNotHold),
        ("1", Power::Running, Postcondition::Holds),
        ("1", Power::Paused, Postcondition::Holds),
    ] {
        let params = [("snapname", "before"), ("start", start)];
        let params = params.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
        let found = Guest { power, ..guest(GuestKind::Qemu, false, &[]) };
        let snapshots = Some(std::slice::from_ref(&present));
        let lists = ProofLists { snapshots, ..ProofLists::default() };
        let judged = postcondition(&operation.intent, &params, Some(&found), lists);
        assert_eq!(judged, proof, "start={start}, {power:?}");
    }
}

#[test]
fn y07_a_volume_is_removed_once_its_storage_lists_it_no_more() {
    let volume = "tank:vm-101-disk-1";
    let params = [("slot", "unused0"), ("volume", volume)];
    let params: BTreeMap<String, String> =
        params.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
    for kind in GuestKind::ALL {
        let operation = operation(ActionKind::DeleteVolume, kind);
        let proof = |guest: Option<&Guest>, volume: Option<bool>| {
            let lists = ProofLists { volume, ..ProofLists::default() };
            postcondition(&operation.intent, &params, guest, lists)
        };
        let held = guest(kind, false, &[("unused0", volume)]);
        let struck = guest(kind, false, &[]);
        for listed in [None, Some(true), Some(false)] {
            assert_eq!(proof(Some(&held), listed), Postcondition::DoesNotHold, "{kind}");
        }
        // Its file has forgotten it, and the guest may be gone: neither says that the data is.
        for seen in [Some(&struck), None] {
            assert_eq!(proof(seen, Some(true)), Postcondition::DoesNotHold, "{kind}");
            assert_eq!(proof(seen, None), Postcondition::Unreadable, "{kind}");
            assert_eq!(proof(seen, Some(false)), Postcondition::Holds, "{kind}");
        }
    }
}

#[test]
fn y05_an_act_after_which_nothing_names_a_volume_is_never_closed_by_itself() {
    for (kind, operation) in every_operation().into_iter().map(|op| (op.intent.kind, op)) {
        let late = SENT.plus(LATE_FORK_SECONDS + POSTCONDITION_DEADLINE_SECONDS + 10);
        let evidence = Evidence {
            task: Some(Seen { at: late, found: TaskFact::Succeeded }),
            search: Some(Seen { at: late, found: TaskSearch::None }),
            lock: Some(Seen { at: late, found: Lock::Free }),
            postcondition: Some(Seen { at: late, found: Postcondition::VolumeUnnamed }),
            number: Some(Seen { at: late, found: NumberUse::Taken }),
            volumes: Some(Seen { at: late, found: NewVolumes::None }),
        };
        let decided = decide(&operation, &evidence, late);
        let sent = operation.furthest == OpPhase::Act;
        let doubts = matches!(decided, RecoveryDecision::Doubt(_));
        assert!(doubts || !sent, "{kind}: {decided:?}");
    }
}
