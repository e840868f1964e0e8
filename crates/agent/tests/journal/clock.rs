//! The mark of time: it follows an honest clock, no wrong one poisons it, and a signature sets it right.

use evenkeel_agent::journal::{
    Disk as _, Files as _, Journal, Kept, KeptSubject, Record, SimulatedDisk, Sum, WallTime, verify,
};
use jiff::Timestamp;
use serde_json::json;

use super::support::{SMALL, note, now, open, stamp};

/// The mark as it is after a start, on a disk that somebody used before.
fn mark_after_a_start(disk: &SimulatedDisk, wall: WallTime) -> Timestamp {
    Journal::open(disk.clone(), stamp(), SMALL, wall).unwrap().clock_mark()
}

#[test]
fn t10_a_leap_nobody_vouches_for_dates_no_record_and_poisons_no_mark() {
    let disk = SimulatedDisk::default();
    let mut journal = open(&disk).unwrap();
    let leap: Timestamp = "2046-11-15T20:00:00Z".parse().unwrap();
    // Enough of them to begin new segments, whose snapshots are dated too.
    for _ in 0..30 {
        journal.append(note("the clock is twenty years ahead"), leap).unwrap();
    }
    assert_eq!(journal.clock_mark(), now(), "the mark stays");
    drop(journal);
    assert_eq!(mark_after_a_start(&disk, leap.into()), now(), "across a start too");
    verify::read(&disk, |line| assert_eq!(line.at, now())).unwrap();
    // A clock that comes back finds everything as it was.
    let mut journal = open(&disk).unwrap();
    let later: Timestamp = "2026-11-15T20:00:05Z".parse().unwrap();
    journal.append(note("the clock came back"), later).unwrap();
    assert_eq!(journal.clock_mark(), later);
}

#[test]
fn t10_a_leap_the_kernel_vouches_for_dates_the_next_record() {
    let disk = SimulatedDisk::default();
    let mut journal = open(&disk).unwrap();
    let at: Timestamp = "2027-11-15T20:00:00Z".parse().unwrap();
    journal.append(note("a year in a drawer"), WallTime { at, synchronised: true }).unwrap();
    assert_eq!(journal.clock_mark(), at);
    drop(journal);
    assert_eq!(mark_after_a_start(&disk, now().into()), at);
}

#[test]
fn the_mark_follows_a_clock_that_is_looked_at_although_nothing_is_written() {
    let disk = SimulatedDisk::default();
    let mut journal = open(&disk).unwrap();
    let written = journal.head();
    let mut at = now();
    for _ in 0..10 {
        at += jiff::SignedDuration::from_hours(20);
        journal.notice(at);
    }
    assert_eq!(journal.head(), written, "looking writes nothing");
    journal.append(note("after a week of rest"), at).unwrap();
    assert_eq!(journal.clock_mark(), at);
}

#[test]
fn t10_a_signed_clock_change_sets_the_mark_back_and_is_durable_with_its_record() {
    let disk = SimulatedDisk::default();
    let poisoned: Timestamp = "2046-11-15T20:00:00Z".parse().unwrap();
    let mut journal =
        Journal::open(disk.clone(), stamp(), SMALL, WallTime::from(poisoned)).unwrap();
    assert_eq!(journal.clock_mark(), poisoned);
    let kept = Kept::put(KeptSubject::Trust, "2", 1, json!({})).setting_mark(now());
    journal.append(Record::Kept(kept), poisoned).unwrap();
    assert_eq!(journal.clock_mark(), now());
    drop(journal);
    assert_eq!(open(&disk).unwrap().clock_mark(), now());
    for _ in 0..30 {
        open(&disk).unwrap().append(note("on"), now()).unwrap();
    }
    assert_eq!(open(&disk).unwrap().clock_mark(), now(), "in later segments too");
    verify::verify(&disk).unwrap();
}

#[test]
fn j24_a_line_dated_before_the_one_before_it_is_damage() {
    let disk = SimulatedDisk::default();
    let mut journal = open(&disk).unwrap();
    let later: Timestamp = "2026-11-15T20:00:09Z".parse().unwrap();
    journal.append(note("one"), later).unwrap();
    let head = journal.head();
    drop(journal);
    let content = format!(
        "{{\"seq\":{},\"at\":\"2026-11-15T20:00:01.000Z\",\"durable\":{},\"type\":\"note\",\
         \"what\":\"x\",\"text\":\"y\",\"prev\":\"{}\"",
        head.seq.next(),
        head.seq,
        head.sum
    );
    let line = format!("{content},\"sum\":\"{}\"}}\n", Sum::of(content.as_bytes()));
    let file = "journal-000001.jsonl";
    let length = disk.read(file).unwrap().len() as u64;
    let mut writer = disk.clone();
    writer.write_at(file, length, line.as_bytes()).unwrap();
    writer.sync(file).unwrap();
    let told = open(&disk).unwrap_err().to_string();
    assert!(told.contains("dated before the line before it"), "{told}");
    assert!(verify::verify(&disk).is_err());
}
