//! No sequence of unsigned acts loses data (invariant 18): an exhaustive search over what evenkeel would send.
//!
//! A model of Proxmox VE's drives, mount points, detached volumes and backups is taken through every sequence of up to
//! four requests, the real classifier asked before each. It finds nothing; and with any one rule on volumes hidden from
//! the classifier it finds the loss that rule prevents, so it would have found each hole.
//!
//! One model stands for releases 7.4, 8.4 and 9.2. They differ in one of its rules, and it has the worst: 7.4 obeys a
//! `format` beside a volume that exists.
#![expect(clippy::print_stdout, reason = "the numbers of a search are what it has to show")]

mod eyes;
mod lxc;
mod model;
mod pve;
mod qemu;
mod request;
mod search;
#[path = "../support/sequences.rs"]
mod sequences;

use eyes::Eyes;
use model::{Model, Scene};
use search::{Loss, Searched, search};

/// How long a sequence may be: four requests when the whole is asked for, else three.
#[expect(clippy::disallowed_methods, reason = "a test asks how much of it is wanted")]
fn depth() -> usize {
    if std::env::var_os("EVENKEEL_THOROUGH").is_some() { 4 } else { 3 }
}

/// Searches a scene, from a guest that runs and from one that does not.
fn nothing_is_lost(scene: Scene) {
    for running in [false, true] {
        let searched = search(&Model::new(scene, running), depth(), Eyes::OPEN);
        let Searched { states, judged, sequences, took, findings } = searched;
        let power = if running { "running" } else { "stopped" };
        println!(
            "{scene:?} {power}: {states} states, {sequences} sequences of up to {} unsigned requests and every request \
             after them, {judged} judgements, {:.1} s",
            depth() - 1,
            took.as_secs_f64()
        );
        let told: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert!(findings.is_empty(), "{}", told.join("\n"));
        assert!(states > 10, "only {states} states");
    }
}

#[test]
fn no_sequence_of_unsigned_requests_on_a_container_loses_data() {
    nothing_is_lost(Scene::Container);
}

#[test]
fn no_sequence_of_unsigned_requests_on_a_machine_with_disks_loses_data() {
    nothing_is_lost(Scene::Disks);
}

#[test]
fn no_sequence_of_unsigned_requests_on_a_machine_with_a_disk_out_of_backups_loses_data() {
    nothing_is_lost(Scene::Unsaved);
}

#[test]
fn no_sequence_of_unsigned_requests_on_a_machine_with_firmware_loses_data() {
    nothing_is_lost(Scene::Firmware);
}

/// The shortest ways to each loss that a search finds with something hidden.
fn found(scene: Scene, eyes: Eyes) -> Vec<(Loss, String)> {
    let mut found = Vec::new();
    for running in [false, true] {
        let searched = search(&Model::new(scene, running), 2, eyes);
        found.extend(searched.findings.iter().map(|finding| (finding.loss, finding.to_string())));
    }
    found
}

fn finds(scene: Scene, eyes: Eyes, losses: &[Loss]) {
    let found = found(scene, eyes);
    for loss in losses {
        let way = found.iter().find(|(found, _)| found == loss);
        let (_, way) = way.unwrap_or_else(|| panic!("{loss:?} is not found: {found:?}"));
        println!("{way}");
    }
}

#[test]
fn x03_without_an_eye_for_cdroms_a_disk_is_orphaned_and_leaves_backups() {
    let eyes = Eyes { see_cdroms: false, ..Eyes::OPEN };
    finds(Scene::Disks, eyes, &[Loss::Unreferenced, Loss::OutOfBackups]);
}

#[test]
fn x11_without_a_memory_of_backups_a_volume_leaves_them_in_two_steps() {
    for scene in [Scene::Container, Scene::Disks] {
        finds(scene, Eyes { see_backups: false, ..Eyes::OPEN }, &[Loss::OutOfBackups]);
    }
}

#[test]
fn x12_without_an_eye_for_folders_another_guests_volume_is_taken() {
    for scene in [Scene::Container, Scene::Disks] {
        finds(scene, Eyes { see_folders: false, ..Eyes::OPEN }, &[Loss::OthersGot]);
    }
}

#[test]
fn x12_without_an_eye_for_other_slots_two_disks_write_to_one_volume() {
    for scene in [Scene::Container, Scene::Disks] {
        finds(scene, Eyes { see_slots: false, ..Eyes::OPEN }, &[Loss::Shared]);
    }
}

#[test]
fn x13_without_an_eye_for_formats_a_volume_is_read_as_another() {
    finds(Scene::Disks, Eyes { see_formats: false, ..Eyes::OPEN }, &[Loss::Misread]);
}

#[test]
fn without_an_eye_for_firmware_a_disk_is_written_over_and_its_variables_leave_backups() {
    let eyes = Eyes { see_firmware: false, ..Eyes::OPEN };
    finds(Scene::Firmware, eyes, &[Loss::Overwritten, Loss::OutOfBackups]);
}

#[test]
fn without_an_eye_for_what_waits_a_volume_is_forgotten_with_the_slot_it_waits_for() {
    finds(Scene::Disks, Eyes { see_waiting: false, ..Eyes::OPEN }, &[Loss::Unreferenced]);
}

#[test]
fn without_an_eye_for_other_guests_a_volume_is_given_away() {
    for scene in [Scene::Container, Scene::Disks] {
        finds(scene, Eyes { see_other_guests: false, ..Eyes::OPEN }, &[Loss::OthersGot]);
    }
}
