//! Upgrades: every format that was ever written is read, and one that is newer than this program is refused in words.
//!
//! `formats/` holds a journal of each format, as the version wrote it that had it. They are never changed. The newest
//! is compared with what is written today: a line that looks different needs a new number and a fixture of its own, or
//! an older agent would meet lines that it does not know under a number that it does.

use std::collections::BTreeSet;
use std::path::PathBuf;

use evenkeel_agent::journal::{
    Files as _, JournalError, JournalLimits, Kept, KeptSubject, Record, Retry, SimulatedDisk,
    verify,
};
use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::actual::identity_proof::TaskListMark;
use evenkeel_core::operate::operation::{
    IdentityHash, OpEvent, OpPhase, OpRecord, Repeat, StartedIntent, UnixSeconds,
};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::meaning::every_event;
use super::support::{
    SMALL, event, failed, fold, identity, note, now, op, open, open_with, started, unknown, upid,
};

/// The format that is written today.
const NEWEST: &str = "v3";

/// Two segments of which the newest has lines behind its snapshot, whatever the records of a format are.
const LIMITS: JournalLimits = JournalLimits { segment_bytes: 6_000, ..SMALL };

fn directory(format: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "journal", "formats", format].iter().collect()
}

fn fixture(format: &str) -> SimulatedDisk {
    let disk = SimulatedDisk::default();
    for entry in std::fs::read_dir(directory(format)).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        disk.damage(&name, std::fs::read(entry.path()).unwrap());
    }
    disk
}

fn files(disk: &SimulatedDisk) -> Vec<(String, Vec<u8>)> {
    let mut names = disk.list().unwrap();
    names.retain(|name| name.starts_with("journal-"));
    names.sort_unstable();
    names.into_iter().map(|name| (name.clone(), disk.read(&name).unwrap())).collect()
}

/// A making with everything that is written down of one. Every field is named, so that a new one must be given here.
fn making() -> StartedIntent {
    StartedIntent {
        guest: "qemu/120".parse().unwrap(),
        kind: ActionKind::Restore,
        repeat: Repeat::Convergent,
        first: OpPhase::Act,
        unprotects: false,
        restarts: false,
        sent_at: UnixSeconds(1_700_000_000),
        clone_source: None,
        id_was_free: true,
        volumes_before: Some(BTreeSet::new()),
        volumes_named: BTreeSet::from(["local:vm-120-disk-0".parse().unwrap()]),
        identity: None,
        identity_after: None,
        task_mark: Some(TaskListMark {
            at: UnixSeconds(7),
            task: None,
            replaced: BTreeSet::from([upid(120)]),
            unread: BTreeSet::new(),
        }),
        source: Some(
            serde_json::from_value(json!({
                "from": "volume", "volume": "local:backup/a.vma", "size_bytes": 7, "made_at": 5,
            }))
            .unwrap(),
        ),
        scratch: true,
        around: Some(serde_json::from_value(json!("cd".repeat(32))).unwrap()),
        for_hub: Some(serde_json::from_value(json!({ "local-lvm": 1024 })).unwrap()),
        attempt: Some(serde_json::from_value(json!("ab".repeat(32))).unwrap()),
    }
}

/// Every shape a line can have.
fn every_line() -> Vec<Record> {
    let mut records = every_event();
    let begun = |number, intent| {
        let event = OpEvent::Started(Box::new(intent));
        Record::op(OpRecord { op: op(number), event })
    };
    let destroy = |repeat| StartedIntent {
        kind: ActionKind::Destroy,
        repeat,
        restarts: true,
        source: None,
        scratch: false,
        around: None,
        for_hub: None,
        id_was_free: false,
        identity: Some(identity(3)),
        ..making()
    };
    records.extend([
        begun(20, making()),
        event(20, OpEvent::TaskRunning { upid: upid(120), found: true }),
        event(
            20,
            OpEvent::Failed {
                reason: "no space".to_owned(),
                left_volume: None,
                tried: Some(serde_json::from_value(json!({"at": 9, "lasting": true})).unwrap()),
                identity: Some(identity(3)),
            },
        ),
        begun(21, destroy(Repeat::OncePerMaking { making: op(20) })),
        failed(21),
        Record::Retry(Retry { guest: 120.try_into().unwrap(), by: "root".to_owned() }),
        note("a remark"),
    ]);
    records.extend(KeptSubject::ALL.into_iter().map(|subject| {
        Record::Kept(Kept::put(subject, "kept", 1, json!({ "of": subject.as_str() })))
    }));
    records.push(Record::Kept(
        Kept::put(KeptSubject::Approval, "clock", 1, json!({})).setting_mark(now()),
    ));
    records.extend([started(22, 122, Some("second")), unknown(22), started(23, 123, None)]);
    records
}

/// The same line as it was before a `started` told which volumes must stay named, and which rows of the task list could
/// not be read.
fn as_before_3(mut record: Record) -> Record {
    if let Record::Op(entry) = &mut record
        && let OpEvent::Started(intent) = &mut entry.record.event
    {
        intent.volumes_named.clear();
        if let Some(mark) = &mut intent.task_mark {
            mark.unread.clear();
        }
        intent.around = None;
        if let Some(mark) = &mut intent.task_mark {
            mark.unread.clear();
        }
    }
    record
}

fn written_today() -> SimulatedDisk {
    let disk = SimulatedDisk::default();
    let mut journal = open_with(&disk, LIMITS).unwrap();
    for record in every_line() {
        journal.append(record, now()).unwrap();
    }
    disk
}

#[test]
fn every_format_that_was_ever_written_is_read_and_gone_on_from() {
    for format in ["v1-early", "v1", "v2", "v3"] {
        let disk = fixture(format);
        let before = files(&disk);
        verify::verify(&disk).unwrap();
        let mut journal = open_with(&disk, JournalLimits::default()).unwrap();
        assert_eq!(files(&disk), before, "{format}: reading it changes nothing");
        let nonce = "nonce".parse().unwrap();
        let spent = journal.state().ledger().spent_by(&nonce).map(|operation| operation.id);
        assert_eq!(spent, Some(op(2)), "{format}: a spent nonce is never forgotten");
        assert!(journal.state().details(op(7)).is_some(), "{format}: what is in flight is known");

        journal.append(started(31, 131, None), now()).unwrap();
        let state = journal.state().compacted();
        let head = journal.head();
        drop(journal);
        let after = files(&disk);
        let (newest, bytes) = after.last().unwrap();
        let first = str::from_utf8(bytes).unwrap().lines().next().unwrap();
        assert!(first.starts_with("{\"format\":\"evenkeel/journal/v3\""), "{format}: {first}");
        for (name, bytes) in before.iter().filter(|(name, _)| name != newest) {
            assert!(
                after.contains(&(name.clone(), bytes.clone())),
                "{format}: {name} is as it was"
            );
        }
        let again = open(&disk).unwrap();
        assert_eq!((again.state().compacted(), again.head()), (state, head), "{format}");
        verify::verify(&disk).unwrap();
    }
}

#[test]
fn what_was_written_is_what_is_read_whatever_the_format() {
    let older: Vec<Record> = every_line().into_iter().map(as_before_3).collect();
    for (format, lines) in [("v1", older.clone()), ("v2", older), ("v3", every_line())] {
        let journal = open(&fixture(format)).unwrap();
        assert_eq!(journal.state().compacted(), fold(&lines).compacted(), "{format}");
    }
}

#[test]
fn an_older_agent_on_a_newer_journal_refuses_in_words_and_changes_nothing() {
    // As a version of the year after next may write it: other fields, but the first one and the seal are the same.
    let summed = "{\"format\":\"evenkeel/journal/v4\",\"shard\":7,\"prev\":\"".to_owned()
        + &"0".repeat(64)
        + "\"";
    let sum = IdentityHash(Sha256::digest(summed.as_bytes()).into());
    let first = format!("{summed},\"sum\":\"{sum}\"}}\n");
    let disk = fixture("v3");
    let newest = files(&disk).pop().unwrap().0;
    let next = newest.replace('3', "4");
    assert_ne!(next, newest);
    disk.damage(&next, first.into_bytes());
    let before = files(&disk);
    let told =
        [open(&disk).expect_err("it is refused"), verify::verify(&disk).expect_err("here too")];
    for error in told {
        assert!(matches!(error, JournalError::Newer { found: 4, known: 3, .. }), "{error:?}");
        let sentence = "was written by a newer evenkeel: it has format 4, and this version reads up to 3. Nothing was \
                        changed; install that version again";
        assert_eq!(error.to_string(), format!("{next} {sentence}"));
    }
    assert_eq!(files(&disk), before);
}

#[test]
fn a_line_that_looks_different_needs_a_new_number() {
    let written = files(&written_today());
    let place = directory(NEWEST);
    if std::env::var_os("EVENKEEL_BLESS").is_some() {
        std::fs::create_dir_all(&place).unwrap();
        for (name, bytes) in &written {
            std::fs::write(place.join(name), bytes).unwrap();
        }
    }
    let kept = files(&fixture(NEWEST));
    assert!(
        written == kept,
        "today's lines are not those of {NEWEST}: raise FORMAT in segment.rs and NEWEST here, bless, and leave the old \
         fixture as it is"
    );
}
