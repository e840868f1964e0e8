//! Many writers, one thread: answered after the sync, in order, and never half alive.

use std::io;
use std::sync::mpsc;

use evenkeel_agent::journal::{AppendError, Disk, DiskFault, Files, Journal, SimulatedDisk, group};

use super::support::{SMALL, history, note, now, open, stamp, started, succeeded};

/// A disk whose syncs wait for a word, or panic.
struct SlowDisk {
    disk: SimulatedDisk,
    /// Each sync takes one word: `true` lets it through, `false` makes it panic.
    syncs: mpsc::Receiver<bool>,
}

impl Files for SlowDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }
    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.disk.read(name)
    }
}

impl Disk for SlowDisk {
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
        assert!(self.syncs.recv().unwrap_or(true), "the disk's driver is broken");
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

fn slow() -> (SimulatedDisk, mpsc::Sender<bool>, Journal<SlowDisk>) {
    let disk = SimulatedDisk::default();
    let (words, syncs) = mpsc::channel();
    words.send(true).unwrap();
    let slow = SlowDisk { disk: disk.clone(), syncs };
    let journal = Journal::open(slow, stamp(), SMALL, now()).unwrap();
    (disk, words, journal)
}

#[tokio::test]
async fn j27_while_a_sync_stalls_nobody_is_answered_and_then_one_sync_answers_all() {
    let (disk, words, journal) = slow();
    let (handle, writer) = group::spawn(journal, now).unwrap();
    let mut appends = tokio::task::JoinSet::new();
    for number in 0..20 {
        let handle = handle.clone();
        appends.spawn(async move { handle.append(note(&format!("{number}"))).await });
    }
    // The writer sits in its first sync, and the bytes of that batch are not durable.
    while disk.growing() == 0 {
        tokio::task::yield_now().await;
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
        assert!(appends.try_join_next().is_none(), "acknowledged before the sync");
    }
    let calls = disk.calls();
    words.send(true).unwrap();
    words.send(true).unwrap();
    let mut heads = Vec::new();
    while let Some(head) = appends.join_next().await {
        heads.push(head.unwrap().unwrap().seq);
    }
    heads.sort_unstable();
    heads.dedup();
    assert_eq!(heads.len(), 20);
    assert!(disk.calls() <= calls + 3, "the first sync, one more write and its sync");
    drop(handle);
    drop(words);
    writer.join().unwrap().unwrap();
    assert_eq!(history(&disk.after_crash(0, 0)).len(), 20);
}

#[tokio::test]
async fn j25_a_record_stays_when_its_waiter_goes_away() {
    let (disk, words, journal) = slow();
    let (handle, writer) = group::spawn(journal, now).unwrap();
    let waiter = tokio::spawn({
        let handle = handle.clone();
        async move { handle.append(started(1, 101, Some("nonce-1"))).await }
    });
    while disk.growing() == 0 {
        tokio::task::yield_now().await;
    }
    waiter.abort();
    waiter.await.unwrap_err();
    words.send(true).unwrap();
    let key = "nonce-1".parse().unwrap();
    let spent = handle.read(move |state, _| state.ledger().spent_by(&key).is_some()).await.unwrap();
    assert!(spent);
    drop((handle, words));
    writer.join().unwrap().unwrap();
    assert_eq!(open(&disk).unwrap().state().ledger().in_flight().count(), 1);
}

#[tokio::test]
async fn j26_a_panicking_writer_leaves_nobody_waiting_and_takes_nothing_more() {
    let (_, words, journal) = slow();
    let (handle, writer) = group::spawn(journal, now).unwrap();
    words.send(false).unwrap();
    let error = handle.append(note("lost")).await.unwrap_err();
    assert!(matches!(error, AppendError::Stopped) && error.is_fatal());
    writer.join().unwrap_err();
    assert!(handle.append(note("later")).await.unwrap_err().is_fatal());
    assert!(handle.read(|_, head| head).await.unwrap_err().is_fatal());
}

#[tokio::test]
async fn a_failed_sync_fails_every_waiter_of_the_batch_and_ends_the_writer() {
    let disk = SimulatedDisk::default();
    let journal = open(&disk).unwrap();
    let (handle, requests) = group::channel();
    let appends = (0..8).map(|number| {
        let handle = handle.clone();
        tokio::spawn(async move { handle.append(note(&format!("{number}"))).await })
    });
    let appends: Vec<_> = appends.collect();
    let read = tokio::spawn({
        let handle = handle.clone();
        async move { handle.read(|_, head| head).await }
    });
    tokio::task::yield_now().await;
    // The next calls are the reserve, the write and the sync.
    disk.fail_at(disk.calls() + 2, DiskFault::Io);
    requests.serve(journal, now).await.unwrap_err();
    for append in appends {
        assert!(matches!(append.await.unwrap().unwrap_err(), AppendError::Failed(_)));
    }
    // Whoever hears of it first tells the operator: all know what the disk said, also those who come too late.
    assert!(matches!(read.await.unwrap().unwrap_err(), AppendError::Failed(_)));
    assert!(matches!(handle.append(note("later")).await.unwrap_err(), AppendError::Failed(_)));
    assert!(history(&disk.after_crash(0, 0)).is_empty());
}

#[tokio::test]
async fn a_refused_record_fails_alone_and_is_not_written() {
    let disk = SimulatedDisk::default();
    let (handle, requests) = group::channel();
    let served = tokio::spawn(requests.serve(open(&disk).unwrap(), now));
    handle.append(started(1, 101, Some("nonce"))).await.unwrap();
    let (busy, reused, other) = tokio::join!(
        handle.append(started(2, 101, None)),
        handle.append(started(3, 103, Some("nonce"))),
        handle.append(started(4, 104, None)),
    );
    assert!(matches!(busy.unwrap_err(), AppendError::Refused(_)));
    assert!(matches!(reused.unwrap_err(), AppendError::Refused(_)));
    other.unwrap();
    handle.append(succeeded(1)).await.unwrap();
    let open_ops = handle.read(|state, _| state.ledger().in_flight().count()).await.unwrap();
    assert_eq!(open_ops, 1);
    drop(handle);
    served.await.unwrap().unwrap();
    assert_eq!(history(&disk).len(), 3);
    let too_long = "x".repeat(SMALL.line_bytes);
    let error = open(&disk).unwrap().append(note(&too_long), now()).unwrap_err();
    assert!(matches!(error, AppendError::TooLong { .. }) && !error.is_fatal());
}
