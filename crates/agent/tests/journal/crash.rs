//! Every crash: at every call of a script, every subset of what was not synced, every length.

use evenkeel_agent::journal::{Fault, SimulatedDisk};

use super::support::{Expected, history, note, now, open, run, script, thorough};

/// All subsets up to here, samples above.
const ALL_SUBSETS_MAX: u32 = 12;

/// Calls `check` with every disk a crash now may leave behind.
fn each_image(disk: &SimulatedDisk, mut check: impl FnMut(&SimulatedDisk)) -> u64 {
    let uncertain = disk.uncertain();
    let mut images = 0;
    let mut look = |kept, cut| {
        check(&disk.after_crash(kept, cut));
        images += 1;
    };
    if uncertain <= ALL_SUBSETS_MAX {
        (0..1 << uncertain).for_each(|kept| look(kept, 0));
    } else {
        let mut seed: u64 = 0x9e37_79b9_7f4a_7c15;
        for _ in 0..4_096 {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            look(seed >> 20, 0);
        }
    }
    // Every length in the long run; a step that meets every place within a sector in the short one.
    let step = if thorough() { 1 } else { 23 };
    (0..=disk.growing()).step_by(step).for_each(|cut| look(u64::MAX, cut));
    images
}

fn flat() -> (usize, Expected) {
    let records = script().concat();
    (records.len(), Expected::of(&records))
}

#[test]
fn j01_after_a_crash_at_any_call_with_any_unsynced_bytes_lost_nothing_acknowledged_is_missing() {
    let (records, expected) = flat();
    let calls = {
        let disk = SimulatedDisk::default();
        assert_eq!(run(&disk, &script()).0, records);
        assert!(disk.calls() > 40, "the script must rotate");
        disk.calls()
    };
    let mut images = 0;
    let mut ends = std::collections::BTreeSet::new();
    for call in 0..=calls {
        let disk = SimulatedDisk::default();
        disk.fail_at(call, Fault::PowerLoss);
        let (acknowledged, _) = run(&disk, &script());
        images += each_image(&disk, |image| {
            ends.insert(expected.check_start(image, acknowledged));
        });
    }
    println!("{images} crash images over {calls} calls");
    assert_eq!(ends.len(), records + 1, "a crash can leave any number of records");
}

#[test]
fn j01_a_crash_during_recovery_is_recovered_from() {
    let (_, expected) = flat();
    let step = if thorough() { 1 } else { 41 };
    let mut rounds = 0;
    for call in 0..50 {
        let disk = SimulatedDisk::default();
        disk.fail_at(call, Fault::PowerLoss);
        let (acknowledged, _) = run(&disk, &script());
        let torn =
            (1..disk.growing()).step_by(step * 23).map(|cut| disk.after_crash(u64::MAX, cut));
        let torn = torn.chain([disk.after_crash(0b1010_1010, 0), disk.after_crash(0b101, 0)]);
        for image in torn {
            for recovery_call in 0..12 {
                let image = image.copy();
                image.fail_at(recovery_call, Fault::PowerLoss);
                if open(&image).is_ok() {
                    break;
                }
                each_image(&image, |image| {
                    rounds += 1;
                    if rounds % step == 0 {
                        expected.check_start(image, acknowledged);
                    }
                });
            }
        }
    }
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
        disk.fail_at(disk.calls() + round % 5, Fault::PowerLoss);
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
