//! A journal larger than anybody's: start-up follows what is live, and memory with it.

use evenkeel_agent::journal::{
    Files, Journal, JournalLimits, ReadOnlyDirectory, RealDisk, SimulatedDisk, verify,
};

use super::support::{by_extent, now, stamp, started, succeeded};

#[test]
fn j22_a_hundred_thousand_operations_in_flight_are_read_back_through_a_snapshot() {
    let count: u64 = by_extent(5_000, 100_000, 100_000);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let limits = JournalLimits { archive_segments: 2, ..JournalLimits::default() };
    let open = || Journal::open(RealDisk::open(&path).unwrap(), stamp(), limits, now()).unwrap();
    let mut journal = open();
    for number in 0..count {
        let vmid = 100 + u32::try_from(number).unwrap();
        journal.stage(started(number, vmid, None), now()).unwrap();
        if number % 1_000 == 999 {
            journal.commit().unwrap();
        }
    }
    journal.commit().unwrap();
    drop(journal);
    let journal = open();
    assert_eq!(journal.state().ledger().in_flight().count() as u64, count);
    // A segment holds its snapshot and at least as much again, however large the state is: what is
    // kept on disk stays within a few times the state, and each record is not paid for again.
    let files = ReadOnlyDirectory::open(&path).unwrap();
    let names = files.list().unwrap();
    let segments: Vec<_> = names.iter().filter(|name| name.starts_with("journal-")).collect();
    assert!(segments.len() <= 3, "{segments:?}");
    let bytes: usize = segments.iter().map(|name| files.read(name).unwrap().len()).sum();
    let state = serde_json::to_vec(&journal.state()).unwrap().len();
    assert!(bytes < 8 * state + (32 << 20), "{bytes} bytes on disk for a state of {state}");
}

#[test]
fn j22_start_up_reads_two_segments_however_long_the_history_is() {
    let disk = SimulatedDisk::default();
    let limits =
        JournalLimits { segment_bytes: 20_000, archive_segments: 999, ..JournalLimits::default() };
    let mut journal = Journal::open(disk.clone(), stamp(), limits, now()).unwrap();
    for number in 0..2_000 {
        journal.stage(started(number, 101, None), now()).unwrap();
        journal.stage(succeeded(number), now()).unwrap();
        journal.commit().unwrap();
    }
    drop(journal);
    let before = disk.bytes_read();
    let verified = verify::verify(&disk).unwrap();
    let whole = disk.bytes_read() - before;
    assert!(verified.segments > 20);
    drop(Journal::open(disk.clone(), stamp(), limits, now()).unwrap());
    let read = disk.bytes_read() - before - whole;
    assert!(read < 2 * 25_000, "{read} of {whole} bytes");
}
