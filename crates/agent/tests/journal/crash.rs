//! Every crash: at every call of a script, every subset of what was not synced, every length.

use std::collections::BTreeSet;

use evenkeel_agent::journal::{DiskFault, Record, SimulatedDisk};

use super::support::{Expected, by_extent, history, note, now, open, run, script};

/// So many subsets are always looked at, all of them.
const UNCERTAIN_MAX: u32 = 14;

/// How densely lengths are tried.
#[derive(Debug, Clone, Copy)]
struct Steps {
    /// Where everything that was written is there, up to the length.
    prefix: usize,
    /// Where some of it is lost as well.
    mixed: usize,
}

/// Calls `check` with every disk a crash now may leave behind: every subset of the uncertain things, each
/// with the lengths of what was growing.
fn each_image(disk: &SimulatedDisk, steps: Steps, mut check: impl FnMut(&SimulatedDisk)) -> u64 {
    let uncertain = disk.uncertain();
    assert!(
        uncertain <= UNCERTAIN_MAX,
        "{uncertain} uncertain things are too many to try them all"
    );
    let everything = (1_u64 << uncertain) - 1;
    let mut images = 0;
    for kept in 0..=everything {
        let step = if kept == everything { steps.prefix } else { steps.mixed };
        for cut in (0..=disk.growing()).step_by(step) {
            check(&disk.after_crash(kept, cut));
            images += 1;
        }
    }
    images
}

/// Only the full length.
const NONE_BUT_WHOLE: usize = usize::MAX;

/// The same records in other batches: few that are long, so that many sectors are lost together.
fn in_long_batches() -> Vec<Vec<Record>> {
    script().chunks(4).map(<[_]>::concat).collect()
}

/// Says how much was tried.
fn crash_at_every_call(batches: &[Vec<Record>], steps: Steps) -> String {
    let records = batches.concat();
    let expected = Expected::of(&records);
    let calls = {
        let disk = SimulatedDisk::default();
        assert_eq!(run(&disk, batches).0, records.len());
        let segments = names(&disk).iter().filter(|name| name.starts_with("journal-")).count();
        assert!(segments > 1, "the script must rotate");
        disk.calls()
    };
    let mut images = 0;
    let mut most = 0;
    let mut ends = BTreeSet::new();
    for call in 0..=calls {
        let disk = SimulatedDisk::default();
        disk.fail_at(call, DiskFault::PowerLoss);
        let (acknowledged, _) = run(&disk, batches);
        most = most.max(disk.uncertain());
        images += each_image(&disk, steps, |image| {
            ends.insert(expected.check_start(image, acknowledged));
        });
    }
    assert_eq!(ends.len(), records.len() + 1, "a crash can leave any number of records");
    format!("{images} crash images over {calls} calls, up to {most} uncertain things at once")
}

#[test]
fn j01_after_a_crash_at_any_call_with_any_unsynced_bytes_lost_nothing_acknowledged_is_missing() {
    let (prefix, mixed) = by_extent((23, NONE_BUT_WHOLE), (1, 97), (1, 1));
    println!("{}", crash_at_every_call(&script(), Steps { prefix, mixed }));
}

#[test]
fn j01_the_same_with_batches_of_many_sectors() {
    let (prefix, mixed) = by_extent((23, NONE_BUT_WHOLE), (1, 97), (1, 7));
    println!("{}", crash_at_every_call(&in_long_batches(), Steps { prefix, mixed }));
}

#[test]
fn j01_a_crash_during_recovery_is_recovered_from() {
    let expected = Expected::of(&script().concat());
    let every = by_extent(41, 7, 1);
    let (prefix, mixed) = by_extent((23, NONE_BUT_WHOLE), (23, NONE_BUT_WHOLE), (7, 97));
    let steps = Steps { prefix, mixed };
    let mut rounds = 0_u64;
    let mut checked = 0_u64;
    for call in 0..50 {
        let disk = SimulatedDisk::default();
        disk.fail_at(call, DiskFault::PowerLoss);
        let (acknowledged, _) = run(&disk, &script());
        let step = by_extent(943, 943, 23);
        let torn = (1..disk.growing()).step_by(step).map(|cut| disk.after_crash(u64::MAX, cut));
        let torn = torn.chain([disk.after_crash(0b1010_1010, 0), disk.after_crash(0b101, 0)]);
        for image in torn {
            for recovery_call in 0..12 {
                let image = image.copy();
                image.fail_at(recovery_call, DiskFault::PowerLoss);
                if open(&image).is_ok() {
                    break;
                }
                each_image(&image, steps, |image| {
                    rounds += 1;
                    if rounds.is_multiple_of(every) {
                        expected.check_start(image, acknowledged);
                        checked += 1;
                    }
                });
            }
        }
    }
    println!("{checked} of {rounds} crash images during recovery");
    assert!(rounds > 1_000, "{rounds}");
}

#[test]
fn j02_a_last_record_torn_at_any_length_is_cut_kept_and_noted_once() {
    let disk = SimulatedDisk::default();
    let mut journal = open(&disk).unwrap();
    journal.append(note("whole"), now()).unwrap();
    let before = journal_bytes(&disk);
    journal.append(note("torn"), now()).unwrap();
    let after = journal_bytes(&disk);
    drop(journal);
    for length in before.len() + 1..after.len() {
        let disk = disk.copy();
        disk.damage("journal-000001.jsonl", after[..length].to_vec());
        let journal = open(&disk).unwrap();
        drop(journal);
        let bytes = journal_bytes(&disk);
        assert!(bytes.starts_with(&before), "what was there stays");
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(text.matches("\"tail_cut\"").count(), 1);
        assert_eq!(history(&disk).len(), 1);
        let copies: Vec<String> =
            names(&disk).into_iter().filter(|n| n.starts_with("cut-")).collect();
        assert_eq!(copies.len(), 1, "{copies:?}");
        assert_eq!(read(&disk, &copies[0]), after[before.len()..length]);
        let head = open(&disk).unwrap().head();
        assert_eq!(open(&disk).unwrap().head(), head, "noted once");
    }
}

#[test]
fn a_hundred_crashes_in_recovery_leave_no_more_behind_than_one() {
    let disk = SimulatedDisk::default();
    run(&disk, &script());
    let size =
        |disk: &SimulatedDisk| names(disk).iter().map(|n| read(disk, n).len()).sum::<usize>();
    let before = size(&disk);
    let mut disk = disk;
    for round in 0..100 {
        disk.fail_at(disk.calls() + round % 5, DiskFault::PowerLoss);
        drop(open(&disk));
        disk = disk.after_crash(round, 0);
    }
    assert_eq!(size(&disk), before);
}

fn journal_bytes(disk: &SimulatedDisk) -> Vec<u8> {
    read(disk, "journal-000001.jsonl")
}

fn names(disk: &SimulatedDisk) -> Vec<String> {
    evenkeel_agent::journal::Files::list(disk).unwrap()
}

fn read(disk: &SimulatedDisk, name: &str) -> Vec<u8> {
    evenkeel_agent::journal::Files::read(disk, name).unwrap()
}
