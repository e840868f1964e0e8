//! `evenkeel apply` on the real binary against crashes and failing disks, seen from outside: killed at every sync,
//! refused by the disk at every call, out of space on a file system of its own.
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
mod killed;
mod oracle;
mod refused;
mod scene;
mod trace;

use campaign::{Point, run};
use killed::{Side, Unsynced, opener, writer};
use refused::End;
use scene::{Hook, Scene, can_inject};
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
        killed::making("rename", 1, Side::Before),
        killed::reopening("ftruncate", 1, Side::After),
        killed::answer_outstanding(3),
        refused::working(writer("fdatasync", 7), "EIO", false, End::Stops),
        refused::working(writer("pwrite64", 4), "EIO", false, End::Stops),
        refused::working(writer("pwrite64", 6), "ENOSPC", false, End::GoesOn),
        refused::working(writer("pwrite64", 7), "ENOSPC", true, End::Stops),
        refused::working(opener("fallocate", 1), "ENOSPC", true, End::BeginsNothing),
        refused::reopening("fdatasync", 2, "EIO"),
    ];
    points.extend(full_disk_points());
    let count = points.len();
    let table = run(points, count);
    eprintln!("{}", table.render());
    assert!(table.violations.is_empty(), "{}", table.violations.join("\n"));
    assert_eq!(table.unreached(), 0, "every place of the sample is one a run comes to");
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

#[test]
#[ignore = "the whole loop takes many minutes: scripts/crash-loop"]
fn the_whole_loop() {
    can_inject().expect("strace must be able to inject faults");
    let part = std::env::var("EVENKEEL_CRASH_PART").unwrap_or_else(|_| "all".to_owned());
    let parallel =
        std::env::var("EVENKEEL_CRASH_PARALLEL").map_or(24, |text| text.parse().unwrap());
    let chosen = |name| part == "all" || part == name;
    let mut scene = Scene::new();
    let applied = scene.apply(&Hook::None);
    assert_eq!(applied.code, Some(0), "{}", applied.stderr);
    assert_eq!(scene.violations(), Vec::<String>::new());
    let (syncs, _) = trace::counts(&applied.log, "fdatasync");
    eprintln!("an undisturbed run: {} operations, {syncs} syncs of the journal\n", oracle::CHANGES);
    let mut points = Vec::new();
    if chosen("kill") {
        points.extend(killed::points(syncs + MORE_SYNCS));
    }
    if chosen("refuse") {
        points.extend(refused::points(syncs + MORE_SYNCS));
    }
    if chosen("full") {
        points.extend(full_disk_points());
    }
    assert!(!points.is_empty(), "there is no part {part:?}: all, kill, refuse or full");
    let table = run(points, parallel);
    eprintln!("\n{}", table.render());
    assert!(table.violations.is_empty(), "{} violations", table.violations.len());
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
