//! Damage that no crash makes: it stops the start, names the place and changes nothing.

use evenkeel_agent::journal::{
    Files as _, Journal, JournalError, JournalLimits, LineProblem, Seq, SimulatedDisk, Stamp,
    verify,
};

use evenkeel_core::operate::operation::IdentityHash;

use super::support::{SMALL, note, now, open, open_with, run, script, stamp};

const FIRST: &str = "journal-000001.jsonl";

/// One segment, one record in each batch.
fn five_records() -> SimulatedDisk {
    let disk = SimulatedDisk::default();
    let mut journal = open(&disk).unwrap();
    for number in 0..5 {
        journal.append(note(&format!("record {number}")), now()).unwrap();
    }
    disk
}

fn lines(disk: &SimulatedDisk, name: &str) -> Vec<Vec<u8>> {
    let bytes = disk.read(name).unwrap();
    bytes.split_inclusive(|b| *b == b'\n').map(<[u8]>::to_vec).collect()
}

/// The same disk with other lines in a segment.
fn with_lines(disk: &SimulatedDisk, name: &str, lines: &[Vec<u8>]) -> SimulatedDisk {
    let disk = disk.copy();
    disk.damage(name, lines.concat());
    disk
}

/// The start must fail, and leave every file as it was.
fn refused(disk: &SimulatedDisk) -> JournalError {
    let before: Vec<_> = files(disk);
    let error = open(disk).expect_err("damage must stop the start");
    assert_eq!(files(disk), before, "nothing may be changed: {error}");
    verify::verify(disk).expect_err("verify must see it too");
    error
}

fn files(disk: &SimulatedDisk) -> Vec<(String, Vec<u8>)> {
    let names = disk.list().unwrap();
    names.into_iter().map(|name| (name.clone(), disk.read(&name).unwrap())).collect()
}

fn place(error: &JournalError) -> (u64, u64, Seq) {
    let JournalError::Damaged { damage, .. } = error else { panic!("{error}") };
    (damage.line, damage.offset, damage.seq)
}

#[test]
fn j03_one_bit_flipped_anywhere_in_a_middle_record_stops_the_start() {
    let disk = five_records();
    let bytes = disk.read(FIRST).unwrap();
    let lines = lines(&disk, FIRST);
    // Header, snapshot, records 0 to 4: line 4 is record 1, with three behind it.
    let start: usize = lines[..3].iter().map(Vec::len).sum();
    for position in start..start + lines[3].len() {
        for bit in 0..8 {
            let disk = disk.copy();
            let mut bytes = bytes.clone();
            bytes[position] ^= 1 << bit;
            disk.damage(FIRST, bytes);
            let error = refused(&disk);
            assert_eq!(place(&error), (4, start as u64, Seq(3)), "bit {bit} of byte {position}");
        }
    }
}

#[test]
fn j03_a_bit_flipped_anywhere_but_in_the_last_batch_stops_the_start() {
    let disk = five_records();
    let bytes = disk.read(FIRST).unwrap();
    let lines = lines(&disk, FIRST);
    let last: usize = lines[..lines.len() - 1].iter().map(Vec::len).sum();
    for position in 0..last {
        let disk = disk.copy();
        let mut bytes = bytes.clone();
        bytes[position] ^= 1 << (position % 8);
        disk.damage(FIRST, bytes);
        refused(&disk);
    }
}

#[test]
fn j04_a_newline_lost_in_the_middle_is_no_torn_tail() {
    let disk = five_records();
    let mut lines = lines(&disk, FIRST);
    // The damage eats the newline between the last two records, so that no line stands whole
    // after it; yet the last one was written in the knowledge that the one before was durable.
    let at = lines.len() - 2;
    *lines[at].last_mut().unwrap() = b' ';
    refused(&with_lines(&disk, FIRST, &lines));
}

#[test]
fn j05_a_hole_of_zeros_or_garbage_in_the_middle_stops_the_start() {
    let disk = five_records();
    let lines = lines(&disk, FIRST);
    for filler in [0, b'x', b'\n', 0xff] {
        let mut damaged = lines.clone();
        damaged[4].fill(filler);
        refused(&with_lines(&disk, FIRST, &damaged));
        let mut inserted = lines.clone();
        inserted.insert(4, vec![filler; 600]);
        refused(&with_lines(&disk, FIRST, &inserted));
    }
}

#[test]
fn j06_zeros_after_the_last_record_are_a_torn_tail() {
    let disk = five_records();
    let mut lines = lines(&disk, FIRST);
    lines.push(vec![0; 700]);
    let disk = with_lines(&disk, FIRST, &lines);
    assert_eq!(verify::verify(&disk).unwrap().tail_bytes, 700);
    assert_eq!(open(&disk).unwrap().head().seq, Seq(7), "five records, a snapshot and the note");
}

#[test]
fn j07_a_clean_cut_shows_in_the_head_that_was_reported() {
    let disk = five_records();
    let head = verify::verify(&disk).unwrap().head.unwrap();
    let mut lines = lines(&disk, FIRST);
    lines.pop();
    let disk = with_lines(&disk, FIRST, &lines);
    let cut = open(&disk).unwrap().head();
    assert!(cut.seq < head.seq, "an older head than the anchored one is a rollback");
}

#[test]
fn j08_a_missing_swapped_foreign_or_older_segment_stops_the_start() {
    let disk = SimulatedDisk::default();
    run(&disk, &script());
    let names: Vec<String> =
        disk.list().unwrap().into_iter().filter(|n| n.starts_with("journal-")).collect();
    let [oldest, middle, newest] = names.as_slice() else { panic!("{names:?}") };

    let missing = disk.copy();
    missing.lose(middle);
    assert!(matches!(refused(&missing), JournalError::Segments { .. }));

    let swapped = disk.copy();
    swapped.damage(middle, disk.read(newest).unwrap());
    swapped.damage(newest, disk.read(middle).unwrap());
    assert!(matches!(refused(&swapped), JournalError::Segments { .. }));

    // The same machine made another journal, and one of its segments got here.
    let other = SimulatedDisk::default();
    let stamp = Stamp { new_epoch: "e2".to_owned(), ..stamp() };
    let mut journal = Journal::open(other.clone(), stamp, SMALL, now()).unwrap();
    for record in script().concat() {
        journal.append(record, now()).unwrap();
    }
    let foreign = disk.copy();
    foreign.damage(newest, other.read(newest).unwrap());
    assert!(matches!(refused(&foreign), JournalError::Segments { .. }));

    // The archive is not read at start-up, but verify reads it.
    let edited = disk.copy();
    let mut bytes = disk.read(oldest).unwrap();
    bytes[200] ^= 1;
    edited.damage(oldest, bytes);
    open(&edited).unwrap();
    let error = verify::verify(&edited).unwrap_err();
    assert!(error.to_string().contains(oldest), "{error}");
}

#[test]
fn j08_a_directory_whose_segments_were_removed_does_not_begin_anew() {
    let disk = five_records();
    disk.lose(FIRST);
    let error = open(&disk).unwrap_err();
    assert!(matches!(error, JournalError::Segments { .. }), "{error}");
}

#[test]
fn j09_a_repeated_missing_or_reordered_record_stops_the_start() {
    let disk = five_records();
    let lines = lines(&disk, FIRST);
    let mut repeated = lines.clone();
    repeated.insert(4, lines[3].clone());
    let mut missing = lines.clone();
    missing.remove(4);
    let mut reordered = lines.clone();
    reordered.swap(4, 5);
    let mut repeated_last = lines.clone();
    repeated_last.push(lines.last().unwrap().clone());
    for damaged in [repeated, missing, reordered, repeated_last] {
        let error = refused(&with_lines(&disk, FIRST, &damaged));
        let JournalError::Damaged { damage, .. } = error else { panic!("{error}") };
        assert!(matches!(damage.problem, LineProblem::Chain(_)), "{damage}");
    }
}

#[test]
fn j10_records_of_another_journal_behind_the_end_stop_the_start() {
    let disk = five_records();
    let other = SimulatedDisk::default();
    let stamp = Stamp { new_epoch: "e2".to_owned(), ..stamp() };
    let mut journal = Journal::open(other.clone(), stamp, SMALL, now()).unwrap();
    for number in 0..9 {
        journal.append(note(&format!("record {number}")), now()).unwrap();
    }
    let mut both = lines(&disk, FIRST);
    both.extend_from_slice(&lines(&other, FIRST)[7..]);
    refused(&with_lines(&disk, FIRST, &both));
}

#[test]
fn j19_a_journal_of_another_machine_is_refused() {
    let disk = five_records();
    let stamp = Stamp { machine: "another".to_owned(), ..stamp() };
    let error = Journal::open(disk.clone(), stamp, SMALL, now()).unwrap_err();
    assert!(matches!(error, JournalError::OtherMachine { .. }), "{error}");
}

#[test]
fn j21_a_newer_format_or_record_type_stops_the_start_and_nothing_is_cut() {
    use sha2::{Digest as _, Sha256};
    // A line with its sum made right again, as a later version would write it.
    let reseal = |line: &[u8], from: &str, to: &str| {
        let text = str::from_utf8(line).unwrap().replace(from, to);
        let (summed, _) = text.rsplit_once(",\"sum\":").unwrap();
        let sum = Sha256::digest(summed.as_bytes());
        format!("{summed},\"sum\":\"{}\"}}\n", IdentityHash(sum.into())).into_bytes()
    };
    let disk = five_records();
    let lines = lines(&disk, FIRST);
    let last = lines.len() - 1;
    for (at, from, to) in [
        (0, "journal/v3", "journal/v4"),
        (0, "journal/v3", "journal/v0"),
        (0, "journal/v3", "journal/two"),
        (last, "\"type\":\"note\"", "\"type\":\"novel\""),
        (last, "\"what\":", "\"whatever\":"),
        (last, "\"type\":\"note\"", "\"type\":\"snapshot\""),
        (last, "\"durable\":5", "\"durable\":6"),
        (last, "\"seq\":6", "\"seq\":7"),
    ] {
        let mut newer = lines.clone();
        newer[at] = reseal(&lines[at], from, to);
        assert_ne!(newer[at], lines[at], "{from}");
        refused(&with_lines(&disk, FIRST, &newer));
    }
}

#[test]
fn the_error_names_file_line_and_byte() {
    let disk = five_records();
    let mut lines = lines(&disk, FIRST);
    lines[3][20] ^= 1;
    let offset: usize = lines[..3].iter().map(Vec::len).sum();
    let error = refused(&with_lines(&disk, FIRST, &lines)).to_string();
    assert!(error.contains(FIRST) && error.contains(&format!("line 4, byte {offset}")), "{error}");
}

#[test]
fn verify_counts_the_archive_too() {
    let disk = SimulatedDisk::default();
    let mut journal = open_with(&disk, JournalLimits { archive_segments: 99, ..SMALL }).unwrap();
    let records = script().concat();
    for record in records.clone() {
        journal.append(record, now()).unwrap();
    }
    let verified = verify::verify(&disk).unwrap();
    assert!(verified.segments > 3);
    let written = records.len() + verified.segments;
    assert_eq!(verified.records, written as u64, "one snapshot each");
    assert_eq!(verified.head, Some(journal.head()));
}
