//! No sequence of unsigned acts loses data (invariant 18), where guests are made, copied, brought back, moved, put aside and
//! taken away again.
//!
//! A model of a node is taken through every sequence of declarations, requests and mishaps. What runs is decided by the real
//! planner, gate and judges; what comes of it, by the model. It finds nothing; and with any one thing hidden that a rule
//! looks at, it finds the loss which that rule prevents.
#![expect(clippy::print_stdout, reason = "the numbers of a search are what it has to show")]

mod acts;
mod journal;
mod keel;
mod loss;
mod making;
mod node;
mod pve;
mod removal;
mod scene;
mod search;
#[path = "../support/sequences.rs"]
mod sequences;
mod sight;
mod write;

use evenkeel_core::model::id::GuestKind;

use loss::Loss;
use search::{Searched, search};
use sight::{Eyes, Hidden};

/// How long a sequence may be. A fourth act takes fifteen times as long.
const DEPTH: usize = 3;

fn nothing_is_lost(kind: GuestKind, running: bool) {
    let acts = acts::all(kind, Eyes::OPEN);
    let searched = search(&scene::node(kind, running), &acts, DEPTH, Eyes::OPEN);
    let Searched { states, judged, sequences, took, findings, ran } = searched;
    let power = if running { "running" } else { "stopped" };
    println!(
        "{kind} {power}: {states} states, {sequences} sequences of up to {} unsigned acts, {judged} judgements, {:.1} s",
        DEPTH,
        took.as_secs_f64()
    );
    for (act, ran) in acts.iter().zip(&ran) {
        println!("{ran:7} {}", act.name);
        assert!(*ran > 0 || !act.runs, "never ran: {}", act.name);
    }
    let told: Vec<String> = findings
        .iter()
        .map(|found| format!("{}: {}", found.lost, found.steps.join("; ")))
        .collect();
    assert!(findings.is_empty(), "{}", told.join("\n"));
}

#[test]
fn no_sequence_of_unsigned_acts_around_a_stopped_container_loses_data() {
    nothing_is_lost(GuestKind::Lxc, false);
}

#[test]
fn no_sequence_of_unsigned_acts_around_a_running_container_loses_data() {
    nothing_is_lost(GuestKind::Lxc, true);
}

#[test]
fn no_sequence_of_unsigned_acts_around_a_stopped_machine_loses_data() {
    nothing_is_lost(GuestKind::Qemu, false);
}

#[test]
fn no_sequence_of_unsigned_acts_around_a_running_machine_loses_data() {
    nothing_is_lost(GuestKind::Qemu, true);
}

/// A short search with something hidden.
fn searched(kind: GuestKind, hidden: Hidden) -> Searched {
    searched_to(2, kind, hidden)
}

fn searched_to(depth: usize, kind: GuestKind, hidden: Hidden) -> Searched {
    let eyes = Eyes(hidden);
    search(&scene::node(kind, false), &acts::all(kind, eyes), depth, eyes)
}

fn finds(kind: GuestKind, hidden: Hidden, losses: &[Loss]) {
    told(&searched(kind, hidden), losses);
}

fn told(searched: &Searched, losses: &[Loss]) {
    for loss in losses {
        let found = searched.finds(*loss);
        let found = found.unwrap_or_else(|| panic!("{loss:?} is not found"));
        println!("{}: {}", found.lost, found.steps.join("; "));
    }
}

#[test]
fn without_an_eye_for_taken_numbers_a_guest_is_made_over_another() {
    for kind in GuestKind::ALL {
        finds(kind, Hidden::TakenNumbers, &[Loss::MadeOver]);
    }
}

#[test]
fn without_an_eye_for_what_is_left_a_guest_is_made_beside_it() {
    for kind in GuestKind::ALL {
        finds(kind, Hidden::LeftVolumes, &[Loss::MadeBeside]);
    }
}

#[test]
fn without_an_eye_for_what_nothing_names_a_new_guest_gets_a_former_ones_volume() {
    for kind in GuestKind::ALL {
        finds(kind, Hidden::Unnamed, &[Loss::OthersGot]);
    }
}

#[test]
fn without_an_eye_for_owners_of_images_somebodys_is_read_in() {
    finds(GuestKind::Qemu, Hidden::ImageOwners, &[Loss::ReadIn]);
}

#[test]
fn without_an_eye_for_names_of_images_another_guests_disk_is_read_in() {
    finds(GuestKind::Qemu, Hidden::ImageNames, &[Loss::ReadIn]);
}

/// Two rules stand before it, and each is enough: a number in use, and the force.
#[test]
fn without_an_eye_for_force_and_taken_numbers_a_restore_destroys_a_guest() {
    for kind in GuestKind::ALL {
        finds(kind, Hidden::ForceAndTakenNumbers, &[Loss::Deleted]);
        assert!(searched(kind, Hidden::Force).finds(Loss::Deleted).is_none());
        assert!(searched(kind, Hidden::TakenNumbers).finds(Loss::Deleted).is_none());
    }
}

#[test]
fn without_an_eye_for_freeing_a_move_destroys_its_source_and_what_clones_stand_on() {
    for kind in GuestKind::ALL {
        finds(kind, Hidden::Freeing, &[Loss::Deleted, Loss::BaseGone]);
    }
}

#[test]
fn without_an_eye_for_pruning_a_backup_removes_another() {
    for kind in GuestKind::ALL {
        finds(kind, Hidden::Pruning, &[Loss::ArchiveGone]);
    }
}

#[test]
fn without_an_eye_for_owners_another_guests_volume_is_attached() {
    for kind in GuestKind::ALL {
        finds(kind, Hidden::Owners, &[Loss::OthersGot]);
    }
}

#[test]
fn without_a_memory_of_moves_copies_pile_up() {
    for kind in GuestKind::ALL {
        finds(kind, Hidden::Moved, &[Loss::PiledUp]);
    }
}

#[test]
fn without_a_memory_of_failed_makings_somebody_elses_guest_is_touched() {
    for kind in GuestKind::ALL {
        finds(kind, Hidden::FailedMakings, &[Loss::Touched]);
    }
}

#[test]
fn without_a_memory_of_backups_a_volume_leaves_them() {
    for kind in GuestKind::ALL {
        finds(kind, Hidden::Backups, &[Loss::OutOfBackups]);
    }
}

#[test]
fn without_an_eye_for_other_guests_a_volume_is_given_away() {
    for kind in GuestKind::ALL {
        finds(kind, Hidden::OtherGuests, &[Loss::OthersGot]);
    }
}

#[test]
fn without_an_eye_for_others_tasks_somebody_elses_guest_is_removed() {
    for kind in GuestKind::ALL {
        finds(kind, Hidden::OthersTasks, &[Loss::Touched, Loss::Deleted]);
    }
}

/// Made half, used by somebody, and looked at again: three acts.
#[test]
fn without_an_eye_for_starts_what_somebody_wrote_is_removed() {
    for kind in GuestKind::ALL {
        told(&searched_to(3, kind, Hidden::Starts), &[Loss::Deleted]);
    }
}
