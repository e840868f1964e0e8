//! The real binary against crashes and failing disks, seen from outside. `evenkeel apply`: killed at every sync, refused
//! by the disk at every call, out of space on a file system of its own. `evenkeel run`: killed and refused at every call
//! and every request of a signed act, and killed at every sync and every request of the making of a guest.
//!
//! A sample runs with the other tests. `scripts/crash-loop` runs everything. Faults are injected with `strace`; where
//! that is not possible the sample says so and passes.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(
    clippy::print_stderr,
    reason = "a campaign of many minutes tells what it found when it found it"
)]

mod campaign;
mod full_disk;
mod hook;
mod host;
mod killed;
mod made;
mod made_verdict;
mod node;
mod oracle;
mod refused;
mod scene;
mod signed;
mod starved;
mod toll;
mod trace;
mod verdict;

use campaign::{Point, run};
use hook::{Hook, Resource, can_inject};
use host::can_attach;
use killed::{ConfigSide, Unsynced, opener, writer};
use made::{Making, Meanwhile};
use refused::End;
use scene::Scene;
use signed::{Act, StatePlace};
use trace::Event;

/// The run may sync a few times more than the one that was counted: operations share syncs as they happen to meet.
const MORE_SYNCS: usize = 4;

#[test]
fn a_sample_of_crashes_and_disk_errors_loses_nothing_and_sends_nothing_twice() {
    if let Err(why) = can_inject() {
        eprintln!("skipped: strace cannot inject faults here ({why})");
        return;
    }
    let mut points = vec![
        killed::before_sync(2, Unsynced::Kept),
        killed::before_sync(8, Unsynced::Kept),
        killed::before_sync(5, Unsynced::Lost),
        killed::before_sync(7, Unsynced::Torn),
        killed::after_sync(6),
        killed::making("rename", 1, ConfigSide::Before),
        killed::reopening("ftruncate", 1, ConfigSide::After),
        killed::answer_outstanding(3),
        refused::working(writer("fdatasync", 7), "EIO", false, End::Stops),
        refused::working(writer("pwrite64", 4), "EIO", false, End::Stops),
        refused::working(writer("pwrite64", 6), "ENOSPC", false, End::GoesOn),
        refused::working(writer("pwrite64", 7), "ENOSPC", true, End::Stops),
        refused::working(opener("fallocate", 1), "ENOSPC", true, End::BeginsNothing),
        refused::reopening("fdatasync", 2, "EIO"),
    ];
    points.extend(full_disk_points());
    assert_harmless(points);
}

#[test]
fn a_sample_of_crashes_in_signed_acts_sends_each_at_most_once() {
    if let Err(why) = can_inject().and_then(|()| can_attach()) {
        eprintln!("skipped: strace cannot strike a running agent here ({why})");
        return;
    }
    let lost = |nth| StatePlace::BeforeCall { call: "fdatasync", nth, unsynced: Unsynced::Lost };
    let torn = |nth| StatePlace::BeforeCall { call: "fdatasync", nth, unsynced: Unsynced::Torn };
    let after = |nth| StatePlace::AfterCall { call: "fdatasync", nth };
    let refused = |nth| StatePlace::Refused { call: "fdatasync", nth };
    let request = |nth, side| StatePlace::Request { nth, side };
    // None of these waits for the minute after which a request that never arrived counts as lost.
    let points: Vec<Point> = [
        (Act::DestroyContainer, lost(1)),
        (Act::DestroyContainer, request(3, ConfigSide::Before)),
        (Act::DestroyContainer, lost(7)),
        (Act::DestroyMachine, after(3)),
        (Act::DestroyMachine, refused(7)),
        (Act::Rollback, torn(1)),
        (Act::Rollback, after(4)),
        (Act::Template, lost(1)),
        (Act::Template, after(3)),
        (Act::Rotation, lost(1)),
        (Act::Rotation, after(1)),
        (Act::Recovery, refused(1)),
    ]
    .map(|(act, place)| signed::point(act, place))
    .into();
    assert_harmless(points);
}

#[test]
fn a_sample_of_crashes_while_guests_are_made_makes_each_once() {
    if let Err(why) = can_inject().and_then(|()| can_attach()) {
        eprintln!("skipped: strace cannot strike a running agent here ({why})");
        return;
    }
    let lost = StatePlace::BeforeCall { call: "fdatasync", nth: 1, unsynced: Unsynced::Lost };
    let adopted = StatePlace::AfterCall { call: "fdatasync", nth: 2 };
    let points = [(Making::Container, lost), (Making::Clone, adopted)];
    let points = points.map(|(making, place)| made::point(making, place, Meanwhile::Nobody));
    assert_harmless(points.into());
}

#[test]
fn n15_without_descriptors_or_memory_it_fails_closed_and_the_next_run_gets_it_done() {
    if let Err(why) = can_inject() {
        eprintln!("skipped: strace cannot be used here ({why})");
        return;
    }
    let mut points = vec![starved::point(Resource::Mebibytes, 16)];
    points.extend([3, 8, 12].map(|limit| starved::point(Resource::Descriptors, limit)));
    assert_harmless(points);
}

/// The crash falls between the unprotect and the destroy. It is settled by the rules of a lost answer, which takes a
/// minute.
#[test]
fn protection_is_given_back_after_a_crash_though_nothing_is_declared() {
    if let Err(why) = can_inject().and_then(|()| can_attach()) {
        eprintln!("skipped: strace cannot strike a running agent here ({why})");
        return;
    }
    let place = StatePlace::BeforeCall { call: "fdatasync", nth: 5, unsynced: Unsynced::Lost };
    assert_harmless(vec![signed::point(Act::DestroyMachine, place)]);
}

#[test]
fn a_new_state_directory_is_on_disk_before_anything_is_sent() {
    if let Err(why) = can_inject() {
        eprintln!("skipped: strace cannot be used here ({why})");
        return;
    }
    let mut scene = Scene::new();
    let state = scene.state().with_file_name("new").join("state");
    scene.keep_state_in(state.clone());
    let applied = scene.apply(&Hook::KillOnRequest { nth: 1 });
    let sent = applied.events.iter().position(|event| matches!(event, Event::Sent { .. })).unwrap();
    let above = state.ancestors().take(3);
    for directory in above.chain([&*scene.journal()]) {
        let path = directory.to_str().unwrap().to_owned();
        let synced = applied.events[..sent].contains(&Event::Synced { path });
        assert!(synced, "{} is not synced", directory.display());
    }
}

/// Runs all of them at once. A run comes to every place of a sample, and nothing is wrong after it.
fn assert_harmless(points: Vec<Point>) {
    let count = points.len();
    let table = run(points, count);
    eprintln!("{}", table.render());
    assert!(table.violations.is_empty(), "{}", table.violations.join("\n"));
    assert_eq!(table.unreached(), 0, "every place of the sample is one a run comes to");
}

#[test]
#[ignore = "the whole loop takes many minutes: scripts/crash-loop"]
fn the_whole_loop() {
    can_inject().expect("strace must be able to inject faults");
    let part = std::env::var("EVENKEEL_CRASH_PART").unwrap_or_else(|_| "all".to_owned());
    let parallel =
        std::env::var("EVENKEEL_CRASH_PARALLEL").map_or(24, |text| text.parse().unwrap());
    let chosen = |name| part == "all" || part == name;
    if chosen("signed") || chosen("lifecycle") {
        can_attach().expect("strace must be able to attach to an agent that runs");
    }
    let mut points = Vec::new();
    if chosen("kill") {
        points.extend(killed::points(undisturbed_syncs() + MORE_SYNCS));
    }
    if chosen("refuse") {
        points.extend(refused::points(undisturbed_syncs() + MORE_SYNCS));
    }
    if chosen("full") {
        points.extend(full_disk_points());
    }
    if chosen("signed") {
        points.extend(signed::points());
    }
    if chosen("lifecycle") {
        points.extend(made::points());
    }
    if chosen("starve") {
        points.extend(starved::points());
    }
    let only = std::env::var("EVENKEEL_CRASH_ONLY").unwrap_or_default();
    points.retain(|point| format!("{}, {}", point.row, point.name).contains(&only));
    assert!(
        !points.is_empty(),
        "there is no part {part:?} with {only:?}: all, kill, refuse, full, signed, lifecycle or starve"
    );
    let table = run(points, parallel);
    eprintln!("\n{}", table.render());
    assert!(table.violations.is_empty(), "{} violations", table.violations.len());
}

/// How often an `apply` that nobody strikes syncs its journal.
fn undisturbed_syncs() -> usize {
    let mut scene = Scene::new();
    let applied = scene.apply(&Hook::None);
    assert_eq!(applied.code, Some(0), "{}", applied.stderr);
    assert_eq!(scene.violations(), Vec::<String>::new());
    let (syncs, _) = trace::counts(&applied.log, "fdatasync");
    eprintln!("an undisturbed run: {} operations, {syncs} syncs of the journal\n", oracle::CHANGES);
    syncs
}

/// None where no file system can be mounted, which is said.
fn full_disk_points() -> Vec<Point> {
    match full_disk::can_mount() {
        Ok(()) => full_disk::points(),
        Err(why) => {
            eprintln!("skipped: no small file system can be mounted here ({why})");
            Vec::new()
        }
    }
}
