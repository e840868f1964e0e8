//! Every pair of state and event, and what a journal of operations proves.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const UPID: &str = "UPID:pve1:00001234:0123ABCD:65000000:vzdestroy:101:agent@pve!ek:";

fn guest() -> GuestId {
    "lxc/101".parse().unwrap()
}

fn op(number: u128) -> OperationId {
    OperationId::from_parts(1_700_000_000_000, number)
}

fn hash(byte: u8) -> IdentityHash {
    IdentityHash([byte; 32])
}

fn intent(kind: ActionKind) -> StartedIntent {
    StartedIntent {
        id_was_free: kind.creates_guest(),
        ..StartedIntent::new(guest(), kind, UnixSeconds(1000))
    }
}

fn started(intent: StartedIntent) -> OpEvent {
    OpEvent::Started(Box::new(intent))
}

fn succeeded(identity: Option<IdentityHash>) -> OpEvent {
    OpEvent::Succeeded { identity, warning: None }
}

fn failed() -> OpEvent {
    OpEvent::Failed { reason: "no".to_owned(), left_volume: None, tried: None, identity: None }
}

fn record(number: u128, event: OpEvent) -> OpRecord {
    OpRecord { op: op(number), event }
}

fn every_state() -> Vec<Option<OpState>> {
    let sent_at = UnixSeconds(1000);
    let upid: Upid = UPID.parse().unwrap();
    let reason = String::new();
    let mut states = vec![None];
    for request in OpPhase::ALL {
        states.push(Some(OpState::Started { request, sent_at }));
        for found in [false, true] {
            let upid = upid.clone();
            states.push(Some(OpState::TaskRunning { request, sent_at, upid, found }));
        }
        for upid in [None, Some(upid.clone())] {
            states.push(Some(OpState::Unknown { request, sent_at, upid, reason: reason.clone() }));
        }
    }
    for by in [Closer::Evidence, Closer::Operator] {
        states.push(Some(OpState::Succeeded { by }));
        states.push(Some(OpState::Failed { by, reason: reason.clone(), left_volume: None }));
    }
    states
}

fn every_event() -> Vec<OpEvent> {
    let mut events = vec![
        OpEvent::TaskRunning { upid: UPID.parse().unwrap(), found: false },
        OpEvent::TaskRunning { upid: UPID.parse().unwrap(), found: true },
        succeeded(Some(hash(1))),
        failed(),
        OpEvent::Unknown { reason: String::new() },
        OpEvent::Resolved { outcome: Resolution::Succeeded },
        OpEvent::Resolved { outcome: Resolution::Failed },
    ];
    for request in OpPhase::ALL {
        events.push(started(StartedIntent { first: request, ..intent(ActionKind::Destroy) }));
        events.push(OpEvent::RequestStarted { request, sent_at: UnixSeconds(2000) });
    }
    events
}

/// The table a reader can check by eye: state, event, result; `act` and `prep` say which request.
#[test]
fn exactly_the_listed_transitions_are_legal() {
    let legal = [
        ("nothing", "started", "started"),
        ("started", "request_started", "started"),
        ("started", "task_running", "task_running"),
        ("started", "succeeded", "succeeded"),
        ("started", "failed", "failed"),
        ("started", "unknown", "unknown"),
        ("task_running", "request_started", "started"),
        ("task_running", "succeeded", "succeeded"),
        ("task_running", "failed", "failed"),
        ("task_running", "unknown", "unknown"),
        ("unknown", "succeeded", "succeeded"),
        ("unknown", "failed", "failed"),
        ("unknown", "resolved", "succeeded"),
        ("unknown", "resolved", "failed"),
    ];
    let mut seen = BTreeSet::new();
    let mut pairs = 0;
    for state in every_state() {
        for event in every_event() {
            pairs += 1;
            let from = state.as_ref().map_or("nothing", OpState::as_str);
            match next(state.as_ref(), &event) {
                Ok(to) => {
                    let row = (from, event.as_str(), to.as_str());
                    assert!(legal.contains(&row), "{row:?} must be refused");
                    seen.insert(row);
                }
                Err(error) => assert_eq!((error.state, error.event), (from, event.as_str())),
            }
        }
    }
    assert_eq!(seen.len(), legal.len(), "each listed transition is reachable");
    assert_eq!(pairs, 25 * 15);
}

#[test]
fn a_request_is_never_started_twice_or_out_of_order() {
    for state in every_state() {
        let Some(
            OpState::Started { request: open, .. } | OpState::TaskRunning { request: open, .. },
        ) = &state
        else {
            continue;
        };
        for request in OpPhase::ALL {
            let event = OpEvent::RequestStarted { request, sent_at: UnixSeconds(2000) };
            assert_eq!(next(state.as_ref(), &event).is_ok(), request > *open);
        }
    }
}

#[test]
fn an_operation_whose_act_never_left_cannot_have_succeeded() {
    for state in every_state() {
        let act = match &state {
            Some(
                OpState::Started { request, .. }
                | OpState::TaskRunning { request, .. }
                | OpState::Unknown { request, .. },
            ) => *request == OpPhase::Act,
            Some(OpState::Succeeded { .. } | OpState::Failed { .. }) | None => false,
        };
        assert_eq!(next(state.as_ref(), &succeeded(None)).is_ok(), act, "{state:?}");
        let resolved = OpEvent::Resolved { outcome: Resolution::Succeeded };
        let unknown = matches!(state, Some(OpState::Unknown { .. }));
        assert_eq!(next(state.as_ref(), &resolved).is_ok(), act && unknown, "{state:?}");
    }
}

#[test]
fn states_and_records_are_read_back_as_they_were_written() {
    for state in every_state().into_iter().flatten() {
        let json = serde_json::to_value(&state).unwrap();
        assert_eq!(json["state"], state.as_str());
        assert_eq!(serde_json::from_value::<OpState>(json).unwrap(), state);
    }
    for event in every_event() {
        let json = serde_json::to_string(&record(1, event.clone())).unwrap();
        assert_eq!(serde_json::from_str::<OpRecord>(&json).unwrap(), record(1, event));
    }
}

#[test]
fn protection_is_owed_only_after_a_failure_that_may_have_taken_it_off() {
    let prepared = |unprotects| StartedIntent {
        first: OpPhase::Stop,
        unprotects,
        ..intent(ActionKind::Destroy)
    };
    let unprotect =
        OpEvent::RequestStarted { request: OpPhase::Unprotect, sent_at: UnixSeconds(1001) };
    let act = OpEvent::RequestStarted { request: OpPhase::Act, sent_at: UnixSeconds(1002) };
    for (unprotects, events, owed) in [
        (true, vec![failed()], false),
        (true, vec![unprotect.clone(), failed()], true),
        (true, vec![unprotect.clone(), act.clone(), failed()], true),
        (true, vec![unprotect.clone(), act.clone(), succeeded(None)], false),
        (true, vec![unprotect, act.clone()], false),
        (false, vec![act, failed()], false),
    ] {
        let begun = Operation::begin(op(1), &started(prepared(unprotects))).unwrap();
        let end = events.iter().try_fold(begun, |op, event| op.after(event)).unwrap();
        assert_eq!(end.owes_protection(), owed, "{events:?}");
    }
}

#[test]
fn a_guest_that_we_destroyed_is_owed_nothing_whoever_has_its_number_then() {
    let key = |number: u8| -> IdempotencyKey { format!("{number:032x}").parse().unwrap() };
    let destroy = |number: u8| StartedIntent {
        first: OpPhase::Unprotect,
        unprotects: true,
        repeat: signed(&key(number)),
        ..intent(ActionKind::Destroy)
    };
    let act = OpEvent::RequestStarted { request: OpPhase::Act, sent_at: UnixSeconds(1002) };
    let owing = |ledger: &Ledger| ledger.indebted().map(|op| op.id).collect::<Vec<_>>();
    let mut ledger = Ledger::default();
    // Ids tell nothing about the order: clocks are set.
    for (number, end) in [(7, failed()), (3, failed()), (5, succeeded(None)), (4, failed())] {
        ledger.apply(&record(number.into(), started(destroy(number)))).unwrap();
        ledger.apply(&record(number.into(), act.clone())).unwrap();
        ledger.apply(&record(number.into(), end)).unwrap();
        match number {
            7 => assert_eq!(owing(&ledger), [op(7)]),
            3 => assert_eq!(owing(&ledger), [op(3), op(7)]),
            5 => assert_eq!(owing(&ledger), []),
            _ => assert_eq!(owing(&ledger), [op(4)], "another guest by then"),
        }
        ledger.forget_closed();
        let kept = serde_json::to_string(&ledger).unwrap();
        assert_eq!(serde_json::from_str::<Ledger>(&kept).unwrap(), ledger);
    }
}

#[test]
fn a_spent_key_is_never_spent_again() {
    let key: IdempotencyKey = "00112233445566778899aabbccddeeff".parse().unwrap();
    let signed = StartedIntent { repeat: signed(&key), ..intent(ActionKind::Destroy) };
    let mut ledger = Ledger::default();
    ledger.apply(&record(1, started(signed.clone()))).unwrap();
    ledger.apply(&record(1, failed())).unwrap();
    ledger.forget_closed();
    let again = ledger.apply(&record(2, started(signed)));
    assert_eq!(again, Err(ReplayError::KeyReused { op: op(2), key: key.clone(), first: op(1) }));
    assert_eq!(ledger.spent_by(&key).map(|first| first.state.as_str()), Some("failed"));
}

#[test]
fn two_open_operations_on_one_guest_number_are_a_damaged_journal() {
    let mut ledger = Ledger::default();
    ledger.apply(&record(1, started(intent(ActionKind::Start)))).unwrap();
    let other = StartedIntent { guest: "qemu/101".parse().unwrap(), ..intent(ActionKind::Start) };
    let error = ledger.apply(&record(2, started(other.clone()))).unwrap_err();
    assert_eq!(error, ReplayError::LaneBusy { op: op(2), vmid: guest().vmid, open: op(1) });
    ledger.apply(&record(1, failed())).unwrap();
    assert!(ledger.apply(&record(2, started(other))).is_ok());
}

/// A ledger after a create of ours that left identity 1.
fn created() -> Ledger {
    let mut ledger = Ledger::default();
    ledger.apply(&record(1, started(intent(ActionKind::Create)))).unwrap();
    ledger.apply(&record(1, succeeded(Some(hash(1))))).unwrap();
    ledger
}

#[test]
fn only_a_proved_creation_of_ours_begins_an_origin() {
    let sure = intent(ActionKind::Create);
    let lost = OpEvent::Unknown { reason: String::new() };
    let said = OpEvent::Resolved { outcome: Resolution::Succeeded };
    for (case, intent, events, ours) in [
        ("identity read back", sure.clone(), vec![succeeded(Some(hash(1)))], true),
        ("unknown, then seen", sure.clone(), vec![lost.clone(), succeeded(Some(hash(1)))], true),
        ("identity not read", sure.clone(), vec![succeeded(None)], false),
        ("failed", sure.clone(), vec![failed()], false),
        ("still running", sure.clone(), vec![], false),
        ("unknown", sure.clone(), vec![lost.clone()], false),
        ("an operator's word", sure.clone(), vec![lost, said], false),
        (
            "over a guest that may have been there",
            StartedIntent { id_was_free: false, ..intent(ActionKind::Restore) },
            vec![succeeded(Some(hash(1)))],
            false,
        ),
        ("not a creation", intent(ActionKind::Start), vec![succeeded(Some(hash(1)))], false),
    ] {
        let mut ledger = Ledger::default();
        ledger.apply(&record(1, started(intent))).unwrap();
        for event in events {
            ledger.apply(&record(1, event)).unwrap();
        }
        assert_eq!(ledger.provenance(guest()).proves(guest(), &hash(1)), ours, "{case}");
    }
    let provenance = created().provenance(guest());
    assert_eq!(provenance.origin().map(GuestOrigin::created_by), Some(op(1)));
    assert!(!provenance.proves(guest(), &hash(2)), "another identity is another guest");
    let other_kind: GuestId = "qemu/101".parse().unwrap();
    assert_eq!(created().provenance(other_kind), Provenance::none());
    assert!(!Provenance::none().proves(guest(), &hash(1)));
}

#[test]
fn the_baseline_follows_our_own_operations_and_no_others() {
    let change = |before| StartedIntent { identity: before, ..intent(ActionKind::SetConfig) };
    for (case, before, after, now_ours) in [
        ("ours", Some(hash(1)), Some(hash(2)), Some(hash(2))),
        ("no change of identity", Some(hash(1)), None, Some(hash(1))),
        ("identity before not read", None, Some(hash(2)), Some(hash(1))),
        ("somebody attached a disk before", Some(hash(9)), Some(hash(2)), None),
        ("somebody attached a disk, we changed nothing", Some(hash(9)), Some(hash(9)), None),
    ] {
        let mut ledger = created();
        ledger.apply(&record(2, started(change(before)))).unwrap();
        assert_eq!(ledger.provenance(guest()), Provenance::none(), "{case}: still open");
        ledger.apply(&record(2, succeeded(after))).unwrap();
        let provenance = ledger.provenance(guest());
        assert_eq!(provenance.origin().map(|origin| *origin.baseline()), now_ours, "{case}");
    }
}

#[test]
fn an_origin_ends_with_the_guest_or_when_others_may_build_on_it() {
    for kind in [ActionKind::Destroy, ActionKind::Migrate, ActionKind::Template] {
        let mut ledger = created();
        let intent = StartedIntent { identity: Some(hash(1)), ..intent(kind) };
        ledger.apply(&record(2, started(intent))).unwrap();
        ledger.apply(&record(2, succeeded(Some(hash(1))))).unwrap();
        assert_eq!(ledger.provenance(guest()), Provenance::none(), "{kind}");
    }
    let mut ledger = created();
    ledger.apply(&record(2, started(intent(ActionKind::Create)))).unwrap();
    ledger.apply(&record(2, failed())).unwrap();
    assert_eq!(ledger.provenance(guest()), Provenance::none(), "a new guest was begun");
}

#[test]
fn an_identity_prints_as_it_is_read_and_nothing_else_is_read() {
    let text = "00ff".repeat(16);
    assert_eq!(text.parse::<IdentityHash>().unwrap().to_string(), text);
    for text in [String::new(), "00".repeat(31), "0G".repeat(32), "FF".repeat(32), "é".repeat(32)]
    {
        assert!(text.parse::<IdentityHash>().is_err(), "{text}");
    }
}

/// Any events for a few operations; the legal ones among them make a journal.
fn journal() -> impl Strategy<Value = Vec<OpRecord>> {
    let count = every_event().len();
    proptest::collection::vec((0..4_u128, 0..count), 0..60).prop_map(|picks| {
        let mut ledger = Ledger::default();
        let events = every_event();
        let records =
            picks.into_iter().map(|(number, event)| record(number, events[event].clone()));
        records.filter(|record| ledger.apply(record).is_ok()).collect()
    })
}

proptest! {
    #[test]
    fn replaying_twice_equals_replaying_once(records in journal(), cut in 0..60_usize) {
        let whole = fold(&records).unwrap();
        prop_assert_eq!(&fold(&records).unwrap(), &whole);
        // Live running and replay after a crash at any record meet in the same state.
        let mut ledger = Ledger::default();
        let cut = cut.min(records.len());
        for record in &records[..cut] {
            ledger.apply(record).unwrap();
        }
        let stored = serde_json::to_string(&ledger).unwrap();
        let mut ledger: Ledger = serde_json::from_str(&stored).unwrap();
        for record in &records[cut..] {
            ledger.apply(record).unwrap();
        }
        let open: BTreeMap<_, _> = ledger.in_flight().map(|op| (op.id, op.clone())).collect();
        let expected: BTreeMap<_, _> =
            whole.into_iter().filter(|(_, op)| op.is_in_flight()).collect();
        prop_assert_eq!(open, expected);
    }

    #[test]
    fn a_refused_record_leaves_the_ledger_as_it_was(records in journal()) {
        let mut ledger = Ledger::default();
        for record in &records {
            ledger.apply(record).unwrap();
        }
        for event in every_event() {
            for number in 0..4 {
                let before = ledger.clone();
                let mut after = ledger.clone();
                if after.apply(&record(number, event.clone())).is_err() {
                    prop_assert_eq!(&after, &before);
                }
            }
        }
    }

    #[test]
    fn a_repeated_journal_is_refused(records in journal()) {
        prop_assume!(!records.is_empty());
        let twice: Vec<_> = records.iter().chain(&records).cloned().collect();
        prop_assert!(fold(&twice).is_err());
    }
}

fn signed(key: &IdempotencyKey) -> Repeat {
    let payload = PayloadHash::of(key.as_str().as_bytes());
    Repeat::AtMostOnce { key: key.clone(), payload, expires_at: UnixSeconds(2_000) }
}
