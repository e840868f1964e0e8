//! What lines mean: core's events come back as they went in, state survives compaction, time does
//! not run back, secrets stay out.

use std::collections::BTreeSet;

use evenkeel_agent::journal::{
    Details, Files as _, JournalLimits, JournalState, Kept, KeptSubject, Record, SimulatedDisk,
    verify,
};
use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::actual::identity_proof::TaskListMark;
use evenkeel_core::operate::operation::{
    OpEvent, OpPhase, OpRecord, Resolution, StartedIntent, UnixSeconds,
};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::support::{
    SMALL, event, failed, identity, intent, note, now, object, op, open, open_with, run, script,
    started, succeeded, task_running, unknown, upid,
};

/// Every event core knows, in an order it allows, with every optional field there and not there.
pub(super) fn every_event() -> Vec<Record> {
    let full = StartedIntent {
        first: OpPhase::Stop,
        unprotects: true,
        clone_source: Some(9000.try_into().unwrap()),
        id_was_free: true,
        volumes_before: Some(BTreeSet::from(["local:vm-1-disk-0".parse().unwrap()])),
        volumes_named: BTreeSet::from(["local:vm-1-disk-1".parse().unwrap()]),
        identity_after: Some("cd".repeat(32).parse().unwrap()),
        task_mark: Some(TaskListMark {
            at: UnixSeconds(7),
            task: Some(upid(101)),
            replaced: BTreeSet::from([upid(102)]),
            unread: BTreeSet::from(["of a row".to_owned()]),
        }),
        for_hub: Some(serde_json::from_value(json!({ "local-lvm": 8_589_934_592_u64 })).unwrap()),
        ..intent(102, ActionKind::Destroy, Some("nonce"))
    };
    let bare = StartedIntent { identity: None, ..intent(103, ActionKind::Start, None) };
    let next = |request| OpEvent::RequestStarted { request, sent_at: UnixSeconds(9) };
    let left = Some("local:vm-3-disk-1".parse().unwrap());
    let warning = Some("WARNINGS: 3".to_owned());
    vec![
        started(1, 101, None),
        event(2, OpEvent::Started(Box::new(full))),
        event(3, OpEvent::Started(Box::new(bare))),
        task_running(1, 101),
        event(2, next(OpPhase::Unprotect)),
        event(2, next(OpPhase::Act)),
        event(1, OpEvent::Succeeded { identity: None, warning }),
        unknown(2),
        event(2, OpEvent::Resolved { outcome: Resolution::Succeeded }),
        event(
            3,
            OpEvent::Failed {
                reason: String::new(),
                left_volume: left,
                tried: None,
                identity: None,
            },
        ),
        started(4, 101, None),
        unknown(4),
        event(4, OpEvent::Resolved { outcome: Resolution::Failed }),
        started(5, 101, None),
        failed(5),
        started(6, 101, None),
        event(6, OpEvent::Succeeded { identity: Some(identity(9)), warning: None }),
        Record::Kept(Kept::put(KeptSubject::Trust, "head", 2, json!({"version": 4}))),
        Record::Kept(Kept::put(KeptSubject::Decision, "lxc/101", 1, Value::Null)),
        Record::Kept(Kept::remove(KeptSubject::Txn, "none")),
        started(7, 107, None),
    ]
}

#[test]
fn every_event_is_replayed_to_the_state_it_made_when_it_was_written() {
    let disk = SimulatedDisk::default();
    let mut journal = open_with(&disk, JournalLimits::default()).unwrap();
    for record in every_event() {
        journal.append(record, now()).unwrap();
        let again = open_with(&disk, JournalLimits::default()).unwrap();
        assert_eq!(again.state(), journal.state());
        assert_eq!(again.head(), journal.head());
    }
    let details = journal.state().details(op(7)).unwrap();
    assert_eq!(details.params()["cores"], 4);
    assert_eq!(details.before()["cores"], 2);
    assert_eq!(details.reason(), "cores 2 -> 4");
    assert_eq!(details.decision()["class"], "benign");
    assert!(journal.state().details(op(6)).is_none(), "closed operations are not kept");
}

#[test]
fn the_last_line_of_an_operation_tells_its_state_in_the_spelling_of_core() {
    let disk = SimulatedDisk::default();
    let mut journal = open_with(&disk, JournalLimits::default()).unwrap();
    for record in every_event() {
        journal.append(record, now()).unwrap();
    }
    verify::read(&disk, |line| {
        let fields: Value = serde_json::from_str(&line.text).unwrap();
        assert_eq!(fields["type"], line.kind);
        assert_eq!(fields["seq"], line.seq.0);
        let Some(number) = fields["op"].as_str() else { return };
        let known = fields["state"].as_str().unwrap();
        let states = ["started", "task_running", "succeeded", "failed", "unknown"];
        assert!(states.contains(&known), "{known}");
        let signed = number == op(2).to_string();
        if signed && known == "succeeded" {
            let operation = journal.state().ledger().get(op(2)).unwrap();
            assert_eq!(operation.state.as_str(), known);
            assert_eq!(fields["by"], "operator");
        }
    })
    .unwrap();
}

#[test]
fn j23_a_compacted_journal_knows_what_the_long_one_knows() {
    let long = SimulatedDisk::default();
    let short = SimulatedDisk::default();
    let mut one = open_with(&long, JournalLimits::default()).unwrap();
    let mut many = open_with(&short, JournalLimits { segment_bytes: 1, ..SMALL }).unwrap();
    for record in every_event() {
        one.append(record.clone(), now()).unwrap();
        many.append(record, now()).unwrap();
        assert_eq!(one.state().compacted(), many.state().compacted());
    }
    // Everything goes through two more snapshots.
    let newest = |disk: &SimulatedDisk| {
        disk.list().unwrap().into_iter().filter(|name| name.starts_with("journal-")).max()
    };
    for _ in 0..2 {
        let before = newest(&short);
        while newest(&short) == before {
            many.append(note("filler"), now()).unwrap();
        }
    }
    let reopened = open_with(&short, SMALL).unwrap();
    assert_eq!(reopened.state().compacted(), one.state().compacted());
    assert_eq!(reopened.state().details(op(7)), one.state().details(op(7)));
    let nonce = "nonce".parse().unwrap();
    let spent = reopened.state().ledger().spent_by(&nonce).expect("a spent key is never forgotten");
    assert_eq!(spent.id, op(2));
    let trust: Vec<_> = reopened.state().kept(KeptSubject::Trust).collect();
    assert_eq!((trust[0].0, trust[0].1.v, &trust[0].1.value), ("head", 2, &json!({"version": 4})));
    verify::verify(&short).unwrap();
}

#[test]
fn old_segments_are_kept_up_to_the_limit_and_start_up_reads_only_the_newest() {
    let disk = SimulatedDisk::default();
    run(&disk, &script());
    let segments = |disk: &SimulatedDisk| {
        let names = disk.list().unwrap();
        names.into_iter().filter(|name| name.starts_with("journal-")).collect::<Vec<_>>()
    };
    let names = segments(&disk);
    assert_eq!(names.len(), SMALL.archive_segments + 1);
    assert!(!names.contains(&"journal-000001.jsonl".to_owned()), "the oldest went first");
    let state = open(&disk).unwrap().state().clone();
    disk.lose(&names[0]);
    assert_eq!(*open(&disk).unwrap().state(), state, "an archive may be moved away");
}

#[test]
fn j24_time_never_runs_back_across_records_rotation_and_restart() {
    let disk = SimulatedDisk::default();
    let mut journal = open(&disk).unwrap();
    let late: Timestamp = "2026-11-15T21:00:00.5Z".parse().unwrap();
    let early: Timestamp = "2020-01-01T00:00:00Z".parse().unwrap();
    journal.append(note("late"), late).unwrap();
    for _ in 0..20 {
        journal.append(note("the clock went back"), early).unwrap();
    }
    assert_eq!(journal.clock_mark(), late);
    drop(journal);
    let journal = open(&disk).unwrap();
    assert_eq!(journal.clock_mark(), late, "the mark is durable");
    let mut times = Vec::new();
    verify::read(&disk, |line| times.push(line.at)).unwrap();
    assert!(times.is_sorted() && times.contains(&late));
}

#[test]
fn no_secret_reaches_the_disk() {
    let params = object(json!({
        "cipassword": "hunter2", "password": "hunter2", "ssh-public-keys": "ssh-ed25519 AAAA",
    }));
    let decision = object(json!({"statement": {"password": "hunter2"}}));
    let reason = "password=hunter2".to_owned();
    let details = Details::new(params.clone(), params, reason, decision);
    let start = OpEvent::Started(Box::new(intent(101, ActionKind::SetConfig, None)));
    let disk = SimulatedDisk::default();
    let mut journal = open_with(&disk, JournalLimits { segment_bytes: 1, ..SMALL }).unwrap();
    let kept = Kept::put(KeptSubject::Pending, "p", 1, json!([{"token": "hunter2"}]));
    for record in
        [Record::op_started(OpRecord { op: op(1), event: start }, details), Record::Kept(kept)]
    {
        journal.append(record, now()).unwrap();
    }
    // Until both stand in a snapshot.
    while disk.list().unwrap().iter().filter(|name| name.starts_with("journal-")).count() < 3 {
        journal.append(note("filler"), now()).unwrap();
    }
    for name in disk.list().unwrap() {
        let text = String::from_utf8(disk.read(&name).unwrap()).unwrap();
        assert!(!text.contains("hunter2"), "{name}");
    }
    assert!(
        String::from_utf8(disk.read("journal-000003.jsonl").unwrap()).unwrap().contains("AAAA")
    );
}

#[test]
fn an_operation_can_be_closed_whatever_pve_said() {
    let disk = SimulatedDisk::default();
    let mut journal = open(&disk).unwrap();
    journal.append(started(1, 101, None), now()).unwrap();
    let reason = "ä".repeat(SMALL.line_bytes);
    journal.append(event(1, OpEvent::Unknown { reason: reason.clone() }), now()).unwrap();
    journal
        .append(
            event(1, OpEvent::Failed { reason, left_volume: None, tried: None, identity: None }),
            now(),
        )
        .unwrap();
    assert_eq!(journal.state().ledger().in_flight().count(), 0);
    assert_eq!(open(&disk).unwrap().state(), journal.state());
}

#[test]
fn memory_follows_what_is_live() {
    let mut state = JournalState::default();
    for number in 0..5_000 {
        state.apply(started(number, 101, None)).unwrap();
        state.apply(succeeded(number)).unwrap();
    }
    let json = serde_json::to_value(&state).unwrap();
    let known = json["ledger"]["operations"].as_object().map_or(0, Map::len);
    assert!(known < 1_100, "{known} operations are kept");
}

#[test]
fn hostile_text_stays_inside_its_line() {
    let disk = SimulatedDisk::default();
    let mut journal = open(&disk).unwrap();
    let text = "a\n{\"seq\":9}\r\u{202e}\u{0}\u{2028}\",\"sum\":\"0\"}\n";
    journal.append(note(text), now()).unwrap();
    let bytes = disk.read("journal-000001.jsonl").unwrap();
    assert_eq!(bytes.split_inclusive(|b| *b == b'\n').count(), 3);
    let mut found = None;
    verify::read(&disk, |line| found = Some(line.text)).unwrap();
    let fields: Value = serde_json::from_str(&found.unwrap()).unwrap();
    assert_eq!(fields["text"], text);
}
