//! A disk that fails: the error comes out, nothing is acknowledged that is not durable, and the next
//! start is clean.

use evenkeel_agent::journal::{
    AppendError, DiskFault, Files as _, JournalLimits, Record, SimulatedDisk, verify,
};

use super::support::{
    Expected, SMALL, note, now, open, open_with, run, script, started, succeeded, task_running,
};

#[test]
fn j11_j13_after_an_error_at_any_call_nothing_acknowledged_is_lost() {
    let records = script().concat();
    let expected = Expected::of(&records);
    let calls = {
        let disk = SimulatedDisk::default();
        run(&disk, &script());
        disk.calls()
    };
    let mut surfaced = 0;
    for fault in [DiskFault::Io, DiskFault::NoSpace] {
        for call in 0..calls {
            let disk = SimulatedDisk::default();
            disk.fail_at(call, fault);
            let (acknowledged, error) = run(&disk, &script());
            surfaced += u32::from(error.is_some());
            match error {
                // A full disk is survived where there is a reserve, or nothing depends on it.
                None => assert_eq!((fault, acknowledged), (DiskFault::NoSpace, records.len())),
                Some(error) => {
                    let refused =
                        matches!(error, AppendError::Full { .. }) && fault == DiskFault::NoSpace;
                    assert!(error.is_fatal() || refused, "{error}");
                }
            }
            // The power goes at once: what was not synced is lost.
            expected.check_start(&disk.after_crash(0, 0), acknowledged);
            expected.check_start(&disk.after_crash(u64::MAX, 0), acknowledged);
            // Or the process starts again, reads what the kernel still shows although a sync of it
            // failed, goes on, and then the power goes.
            let found = expected.check_start(&disk, acknowledged);
            let mut journal = open(&disk).unwrap();
            journal.append(note("goes on"), now()).unwrap();
            drop(journal);
            let after = disk.after_crash(0, 0);
            let head = open(&disk).unwrap().head();
            assert_eq!(open(&after).unwrap().head(), head, "{fault:?} at call {call}");
            assert!(found >= acknowledged);
        }
    }
    assert!(surfaced > 60, "{surfaced}");
}

#[test]
fn a_failed_journal_takes_nothing_more_and_never_syncs_again() {
    let disk = SimulatedDisk::default();
    let mut journal = open(&disk).unwrap();
    journal.append(note("good"), now()).unwrap();
    disk.fail_at(disk.calls() + 1, DiskFault::Io);
    let error = journal.append(note("bad"), now()).unwrap_err();
    assert!(error.is_fatal(), "{error}");
    let calls = disk.calls();
    for _ in 0..3 {
        assert!(journal.append(note("later"), now()).unwrap_err().is_fatal());
        journal.commit().unwrap_err();
    }
    assert_eq!(disk.calls(), calls);
}

#[test]
fn j13_a_nearly_full_disk_begins_nothing_new_and_says_so() {
    let disk = SimulatedDisk::default();
    let mut journal = open(&disk).unwrap();
    journal.append(started(1, 101, None), now()).unwrap();
    disk.limit_space(Some(SMALL.reserve_bytes - 1));
    let before = disk.read("journal-000001.jsonl").unwrap();
    let error = journal.append(started(2, 102, None), now()).unwrap_err();
    assert!(matches!(error, AppendError::Full { .. }) && !error.is_fatal());
    assert_eq!(disk.read("journal-000001.jsonl").unwrap(), before);
    assert_eq!(journal.state().ledger().in_flight().count(), 1, "the refused one left no trace");
    journal.append(succeeded(1), now()).unwrap();
    disk.limit_space(None);
    journal.append(started(2, 102, None), now()).unwrap();
}

#[test]
fn j14_j15_operations_in_flight_are_closed_from_the_reserve() {
    let limits = JournalLimits { reserve_bytes: 128 << 10, segment_bytes: 8 << 20, ..SMALL };
    let disk = SimulatedDisk::default();
    let mut journal = open_with(&disk, limits).unwrap();
    for number in 0..64 {
        journal.append(started(number, 100 + u32::try_from(number).unwrap(), None), now()).unwrap();
    }
    disk.limit_space(Some(0));
    for number in 0..64 {
        let vmid = 100 + u32::try_from(number).unwrap();
        journal.append(task_running(number, vmid), now()).unwrap();
        journal.append(succeeded(number), now()).unwrap();
    }
    assert_eq!(journal.state().ledger().in_flight().count(), 0);
    assert!(!disk.list().unwrap().contains(&"reserve".to_owned()), "it was given back");
    let error = journal.append(started(64, 999, None), now()).unwrap_err();
    assert!(matches!(error, AppendError::Full { .. }));
    verify::verify(&disk.after_crash(0, 0)).unwrap();
    // When there is space again the reserve is taken again, and work goes on.
    disk.limit_space(Some(4 * limits.reserve_bytes));
    journal.append(started(64, 999, None), now()).unwrap();
    assert!(disk.list().unwrap().contains(&"reserve".to_owned()));
}

#[test]
fn the_reserve_of_the_process_before_counts_after_a_restart() {
    let disk = SimulatedDisk::default();
    open(&disk).unwrap().append(started(1, 101, None), now()).unwrap();
    disk.limit_space(Some(SMALL.reserve_bytes * 3 / 2));
    open(&disk).unwrap().append(started(2, 102, None), now()).unwrap();
}

#[test]
fn after_a_restart_on_a_full_disk_operations_are_closed_from_the_reserve_of_the_process_before() {
    let disk = SimulatedDisk::default();
    let mut journal = open(&disk).unwrap();
    for number in 0..4 {
        journal.append(started(number, 100 + u32::try_from(number).unwrap(), None), now()).unwrap();
    }
    disk.limit_space(Some(0));
    let mut journal = open(&disk).unwrap();
    let error = journal.append(started(4, 104, None), now()).unwrap_err();
    assert!(matches!(error, AppendError::Full { .. }));
    for number in 0..4 {
        journal.append(succeeded(number), now()).unwrap();
    }
    assert_eq!(open(&disk).unwrap().state().ledger().in_flight().count(), 0);
}

#[test]
fn a_full_disk_still_starts_and_reads() {
    let disk = SimulatedDisk::default();
    run(&disk, &script());
    disk.lose("reserve");
    disk.limit_space(Some(0));
    let mut journal = open(&disk).unwrap();
    assert_eq!(journal.state().ledger().in_flight().count(), 1);
    let error = journal.append(started(90, 190, None), now()).unwrap_err();
    assert!(matches!(error, AppendError::Full { .. }));
}

#[test]
fn a_rotation_without_space_waits_and_the_record_is_written() {
    let disk = SimulatedDisk::default();
    let mut journal = open(&disk).unwrap();
    let length = || disk.read("journal-000001.jsonl").unwrap().len() as u64;
    let full = length() + SMALL.segment_bytes;
    while length() < full {
        journal.append(note("filler"), now()).unwrap();
    }
    let record: Record = note("after the failed rotation");
    disk.fail_at(disk.calls(), DiskFault::NoSpace);
    journal.append(record, now()).unwrap();
    assert!(!disk.list().unwrap().iter().any(|name| name.contains("2.jsonl")), "no rotation");
    assert!(disk.list().unwrap().contains(&"reserve".to_owned()), "which is not worth the reserve");
    assert_eq!(open(&disk).unwrap().head(), journal.head());
}
