//! A journal larger than anybody's: start-up follows what is live, and memory with it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use evenkeel_agent::journal::{
    Disk, Files, Journal, JournalLimits, ReadOnlyDirectory, RealDisk, SimulatedDisk, verify,
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

/// Counts what is read.
struct Counting {
    disk: SimulatedDisk,
    bytes: Arc<AtomicUsize>,
}

impl Files for Counting {
    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }
    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let bytes = self.disk.read(name)?;
        self.bytes.fetch_add(bytes.len(), Ordering::Relaxed);
        Ok(bytes)
    }
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
    let bytes = Arc::new(AtomicUsize::new(0));
    let counting = Counting { disk, bytes: Arc::clone(&bytes) };
    let verified = verify::verify(&counting).unwrap();
    let whole = bytes.swap(0, Ordering::Relaxed);
    assert!(verified.segments > 20);
    drop(Journal::open(counting, stamp(), limits, now()).unwrap());
    let read = bytes.load(Ordering::Relaxed);
    assert!(read < 2 * 25_000, "{read} of {whole} bytes");
}

impl Disk for Counting {
    fn place(&self) -> String {
        self.disk.place()
    }

    fn write_at(&mut self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.disk.write_at(name, offset, bytes)
    }
    fn truncate(&mut self, name: &str, length: u64) -> io::Result<()> {
        self.disk.truncate(name, length)
    }
    fn sync(&mut self, name: &str) -> io::Result<()> {
        self.disk.sync(name)
    }
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }
    fn sync_directory(&mut self) -> io::Result<()> {
        self.disk.sync_directory()
    }
    fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes()
    }
    fn allocate(&mut self, name: &str, bytes: u64) -> io::Result<()> {
        self.disk.allocate(name, bytes)
    }
}
