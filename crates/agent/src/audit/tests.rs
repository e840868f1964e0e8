//! What the audit tells of a journal, and that it tells nothing of a journal it cannot verify.

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::model::id::OperationId;
use evenkeel_core::operate::operation::{
    OpEvent, OpRecord, Repeat, Resolution, StartedIntent, UnixSeconds,
};
use serde_json::{Map, Value, json};

use super::*;
use crate::journal::{
    Details, Journal, JournalLimits, Kept, KeptSubject, Note, Record, SimulatedDisk, Stamp,
};

fn now() -> Timestamp {
    "2026-11-15T20:00:00Z".parse().unwrap()
}

fn op(number: u64) -> OperationId {
    OperationId::from_parts(number, u128::from(number))
}

fn open(disk: &SimulatedDisk, limits: JournalLimits) -> Journal<SimulatedDisk> {
    let stamp = Stamp { machine: "m".to_owned(), new_epoch: "e".to_owned() };
    Journal::open(disk.clone(), stamp, limits, now()).unwrap()
}

fn started(number: u64, guest: &str, decision: &Value) -> Record {
    let intent = StartedIntent {
        repeat: Repeat::AtMostOnce {
            key: format!("{number:032x}").parse().unwrap(),
            payload: evenkeel_core::sign::PayloadHash::of(b"a statement"),
            expires_at: UnixSeconds(4_000),
        },
        ..StartedIntent::new(guest.parse().unwrap(), ActionKind::Destroy, UnixSeconds(7))
    };
    let decision = decision.as_object().cloned().unwrap_or_default();
    let details = Details::new(Map::new(), Map::new(), "destroy it".to_owned(), decision);
    let event = OpEvent::Started(Box::new(intent));
    Record::op_started(OpRecord { op: op(number), event }, details)
}

fn event(number: u64, event: OpEvent) -> Record {
    Record::op(OpRecord { op: op(number), event })
}

fn entries(disk: &SimulatedDisk, filter: &Filter) -> Vec<AuditEntry> {
    let mut entries = Vec::new();
    read(disk, filter, |entry| entries.push(entry)).unwrap();
    entries
}

fn signed() -> Value {
    json!({
        "reason": "allowed_signed", "class": "destructive", "why": "signed by alice",
        "signed_by": [{ "name": "alice", "key": "SHA256:abc", "touch": false },
                      { "name": "bob", "key": "SHA256:def", "touch": true }],
        "nonce": "0102", "payload": "ffee", "statement_reason": "old test box",
    })
}

fn journal(disk: &SimulatedDisk, limits: JournalLimits) {
    let mut journal = open(disk, limits);
    let unknown = OpEvent::Unknown { reason: "the answer was lost".to_owned() };
    let failed = OpEvent::Failed {
        reason: "no space".to_owned(),
        left_volume: None,
        tried: None,
        identity: None,
    };
    let refused = json!({
        "guest": "lxc/102", "op": "destroy", "reason": "unknown_signer", "why": "nobody knows the key",
        "class": "destructive", "at": 7,
    });
    let note = |what: &str, text: &str| {
        Record::Note(Note { what: what.to_owned(), text: text.to_owned() })
    };
    let records = [
        started(1, "lxc/101", &signed()),
        event(1, OpEvent::Succeeded { identity: None, warning: None }),
        Record::Kept(Kept::put(KeptSubject::Decision, "d1", 1, refused)),
        started(2, "qemu/101", &json!({ "reason": "allowed" })),
        event(2, unknown),
        event(2, OpEvent::Resolved { outcome: Resolution::Failed }),
        started(3, "lxc/103", &Value::Null),
        event(3, failed),
        note("tail_cut", "cut"),
        note("hub_claim_ignored", "x\nTASK OK\u{202e}"),
        Record::Kept(Kept::put(KeptSubject::Approval, "a1", 1, json!({ "surprise": [1] }))),
        Record::Kept(Kept::remove(KeptSubject::Decision, "d1")),
        Record::Kept(Kept::put(KeptSubject::Txn, "t1", 1, json!({}))),
    ];
    for record in records {
        journal.append(record, now()).unwrap();
    }
}

#[test]
fn every_decision_is_told_with_who_what_and_why() {
    let disk = SimulatedDisk::default();
    journal(&disk, JournalLimits::default());
    let told: Vec<(&str, String, String, String)> = entries(&disk, &Filter::default())
        .into_iter()
        .map(|e| (e.event.as_str(), e.guest.unwrap_or_default(), e.reason, e.why))
        .collect();
    let expected = [
        ("started", "lxc/101", "allowed_signed", "signed by alice"),
        ("succeeded", "lxc/101", "", ""),
        ("decision", "lxc/102", "unknown_signer", "nobody knows the key"),
        ("started", "qemu/101", "allowed", "destroy it"),
        ("unknown", "qemu/101", "", "the answer was lost"),
        ("resolved", "qemu/101", "", "an operator says: failed"),
        ("started", "lxc/103", "", "destroy it"),
        ("failed", "lxc/103", "", "no space"),
        ("tail_cut", "", "", "cut"),
        ("note", "", "", "x\\nTASK OK\\u{202e}"),
        ("approval", "", "", "a1"),
        ("decision", "lxc/102", "unknown_signer", "holds no longer: nobody knows the key"),
    ];
    let expected = expected.map(|(event, guest, reason, why)| {
        (event, guest.to_owned(), reason.to_owned(), why.to_owned())
    });
    assert_eq!(told, expected);
}

#[test]
fn a_signed_start_tells_key_nonce_payload_and_the_operator_s_own_words() {
    let disk = SimulatedDisk::default();
    journal(&disk, JournalLimits::default());
    let entry = entries(&disk, &Filter::default()).swap_remove(0);
    assert_eq!(entry.statement_reason, "old test box");
    assert_eq!((entry.nonce.as_str(), entry.payload.as_str()), ("0102", "ffee"));
    assert_eq!((entry.kind.as_str(), entry.class.as_str()), ("destroy", "destructive"));
    let signature = &entry.signed_by[0];
    assert_eq!((signature.name.as_str(), signature.key.as_str()), ("alice", "SHA256:abc"));
    let touches: Vec<&str> = entry.signed_by.iter().map(|by| by.touch.as_str()).collect();
    assert_eq!(touches, ["", "touched"]);
    let json = serde_json::to_value(&entry).unwrap();
    assert_eq!(json["event"], "started");
    assert!(json["signed_by"][0].get("touch").is_none() && json["at"] == "2026-11-15T20:00:00Z");
}

#[test]
fn filters_take_a_guest_by_name_or_number_and_a_moment() {
    let disk = SimulatedDisk::default();
    journal(&disk, JournalLimits::default());
    let count = |guest: Option<&str>, since: Option<&str>| {
        let guest = guest.map(|text| text.parse().unwrap());
        entries(
            &disk,
            &Filter { guest, since: since.map(|s| s.parse().unwrap()), ..Filter::default() },
        )
        .len()
    };
    assert_eq!(count(Some("lxc/101"), None), 2);
    assert_eq!(count(Some("101"), None), 5);
    assert_eq!(count(Some("1010"), None) + count(Some("lxc/999"), None), 0);
    assert_eq!(count(None, Some("2026-11-15T20:00:00Z")), 12);
    assert_eq!(count(None, Some("2026-11-15T20:00:01Z")), 0);
}

#[test]
fn an_operation_that_began_in_a_lost_segment_is_still_told_with_its_guest() {
    let disk = SimulatedDisk::default();
    let tiny =
        JournalLimits { segment_bytes: 600, archive_segments: 1, ..JournalLimits::default() };
    let mut journal = open(&disk, tiny);
    journal.append(started(1, "lxc/101", &signed()), now()).unwrap();
    for _ in 0..40 {
        let note = Note { what: "x".to_owned(), text: "y".repeat(100) };
        journal.append(Record::Note(note), now()).unwrap();
    }
    journal.append(event(1, OpEvent::Succeeded { identity: None, warning: None }), now()).unwrap();
    let all = entries(&disk, &Filter::default());
    assert!(all.iter().all(|entry| entry.event != AuditEvent::Started), "its segment is gone");
    let end = all.last().unwrap();
    assert_eq!((end.event, end.guest.as_deref()), (AuditEvent::Succeeded, Some("lxc/101")));
}

#[test]
fn n14_a_bent_line_ends_the_audit_with_file_and_offset() {
    let disk = SimulatedDisk::default();
    journal(&disk, JournalLimits::default());
    let file = "journal-000001.jsonl";
    let text = String::from_utf8(disk.read(file).unwrap()).unwrap();
    let bent = text.replace("unknown_signer", "allowed_signed");
    disk.damage(file, bent.into_bytes());
    let mut told = 0;
    let error = read(&disk, &Filter::default(), |_| told += 1).unwrap_err();
    let JournalError::Damaged { file: named, damage } = &error else { panic!("{error}") };
    assert_eq!((named.as_str(), told), (file, 2), "what stands before it is good");
    let offset = text.find("{\"seq\":4,").unwrap() as u64;
    assert_eq!(damage.offset, offset);
}
