//! The whole product of evidence and operations, and the walks through it that a real agent makes.

mod matching;
mod volumes;

use crate::model::thorough;
use std::collections::BTreeSet;

use super::*;
use crate::model::id::{GuestId, GuestKind, OperationId, VmId};
use crate::operate::operation::{OpEvent, StartedIntent, VolumeId};

const SENT: UnixSeconds = UnixSeconds(0x6500_0000);
const OWNER: &str = "agent@pve!ek";

fn upid(task_type: &str, id: &str, after: u64, user: &str) -> Upid {
    let started = SENT.plus(after).0;
    format!("UPID:pve1:00001234:0123ABCD:{started:08X}:{task_type}:{id}:{user}:").parse().unwrap()
}

/// The task PVE would name for the act of this kind.
fn own_task(kind: ActionKind, guest: GuestKind) -> Upid {
    let task_type = kind.task_types(guest).first().copied().unwrap_or("none");
    upid(task_type, if kind == ActionKind::Clone { "9000" } else { "101" }, 1, OWNER)
}

/// The task PVE would name for the request that left last.
fn task_of(operation: &Operation) -> Upid {
    let kind = match operation.furthest {
        OpPhase::Stop => ActionKind::Stop,
        OpPhase::Backup => ActionKind::Backup,
        OpPhase::Unprotect => ActionKind::SetConfig,
        OpPhase::Act => operation.intent.kind,
    };
    own_task(kind, operation.intent.guest.kind)
}

fn operation(kind: ActionKind, guest: GuestKind) -> Operation {
    let intent = StartedIntent {
        clone_source: (kind == ActionKind::Clone).then(|| VmId::try_from(9000).unwrap()),
        id_was_free: kind.creates_guest(),
        ..StartedIntent::new(GuestId::new(guest, VmId::try_from(101).unwrap()), kind, SENT)
    };
    Operation::begin(OperationId::from_parts(1, 1), &OpEvent::Started(Box::new(intent))).unwrap()
}

fn signed(mut operation: Operation) -> Operation {
    operation.intent.repeat = Repeat::AtMostOnce {
        key: "00112233445566778899aabbccddeeff".parse().unwrap(),
        payload: crate::sign::PayloadHash::of(b"a statement"),
        expires_at: UnixSeconds(2_000),
    };
    operation
}

/// Every operation recovery can meet: kinds, guest kinds, repeat, preparations, allocation, whether
/// the number was proved free, and each open state.
fn every_operation() -> Vec<Operation> {
    let mut all = Vec::new();
    for kind in ActionKind::ALL {
        for guest in GuestKind::ALL {
            let mut bases = vec![operation(kind, guest), signed(operation(kind, guest))];
            if kind.creates_guest() {
                let mut over = operation(kind, guest);
                over.intent.id_was_free = false;
                bases.push(over);
            }
            if matches!(kind, ActionKind::SetConfig | ActionKind::MoveVolume) {
                let mut allocating = operation(kind, guest);
                allocating.intent.volumes_before = Some(BTreeSet::new());
                bases.push(allocating);
            }
            if kind == ActionKind::Destroy {
                for request in [OpPhase::Stop, OpPhase::Backup, OpPhase::Unprotect] {
                    let mut prepared = signed(operation(kind, guest));
                    prepared.intent.first = request;
                    prepared.furthest = request;
                    prepared.state = OpState::Started { request, sent_at: SENT };
                    bases.push(prepared);
                }
            }
            for base in bases {
                let lost = OpEvent::Unknown { reason: String::new() };
                let known = |found| OpEvent::TaskRunning { upid: task_of(&base), found };
                let events = [lost, known(false), known(true)];
                all.extend(events.iter().map(|event| base.after(event).unwrap()));
                all.push(base);
            }
        }
    }
    all
}

fn seen<T: Clone>(at: UnixSeconds, values: &[T]) -> Vec<Option<Seen<T>>> {
    let some = values.iter().map(|found| Some(Seen { at, found: found.clone() }));
    std::iter::once(None).chain(some).collect()
}

const STATUSES: [TaskFact; 7] = [
    TaskFact::Running,
    TaskFact::Succeeded,
    TaskFact::Warned,
    TaskFact::Failed,
    TaskFact::Unclear,
    TaskFact::Forgotten,
    TaskFact::Unreadable,
];

const FACTS: [Postcondition; 7] = [
    Postcondition::Holds,
    Postcondition::DoesNotHold,
    Postcondition::NotYet,
    Postcondition::Half,
    Postcondition::AnotherGuest,
    Postcondition::VolumeUnnamed,
    Postcondition::Unreadable,
];

/// Calls back with the whole product of readings that can bear on the operation, all made at one
/// moment. The number and the volumes bear on few kinds only.
fn every_evidence(operation: &Operation, at: UnixSeconds, mut check: impl FnMut(&Evidence)) {
    let own = task_of(operation);
    let volume: VolumeId = "local:vm-101-disk-1".parse().unwrap();
    let searches = [
        TaskSearch::None,
        TaskSearch::One(own),
        TaskSearch::Ambiguous,
        TaskSearch::TooShort,
        TaskSearch::Unreadable,
    ];
    let new_volumes =
        [NewVolumes::None, NewVolumes::One(volume), NewVolumes::Several, NewVolumes::Unreadable];
    let kind = operation.intent.kind;
    let numbers: &[NumberUse] = if kind.creates_guest() || kind == ActionKind::Destroy {
        &[NumberUse::Free, NumberUse::Taken, NumberUse::Unreadable]
    } else {
        &[]
    };
    let new_volumes: &[NewVolumes] =
        if operation.intent.volumes_before.is_some() { &new_volumes } else { &[] };
    let mut evidence = Evidence::default();
    for task in seen(at, &STATUSES) {
        evidence.task = task;
        for search in seen(at, &searches) {
            evidence.search = search;
            for lock in seen(at, &[Lock::Free, Lock::Held, Lock::Unreadable]) {
                evidence.lock = lock;
                for postcondition in seen(at, &FACTS) {
                    evidence.postcondition = postcondition;
                    for number in seen(at, numbers) {
                        evidence.number = number;
                        for volumes in seen(at, new_volumes) {
                            evidence.volumes = volumes;
                            check(&evidence);
                        }
                    }
                }
            }
        }
    }
}

fn found<T>(seen: Option<&Seen<T>>) -> Option<&T> {
    seen.map(|seen| &seen.found)
}

/// What must be true of any one decision, said without looking at how it is made.
fn check_one(operation: &Operation, evidence: &Evidence, now: UnixSeconds) -> RecoveryDecision {
    let decision = decide(operation, evidence, now);
    if !operation.is_in_flight() {
        assert_eq!(decision, RecoveryDecision::Closed);
        return decision;
    }
    let rule = match &decision {
        RecoveryDecision::Succeed { .. } => {
            lane_may_open(operation, evidence, now) && success_is_proved(operation, evidence)
        }
        RecoveryDecision::Fail { left_volume, .. } => {
            lane_may_open(operation, evidence, now)
                && failure_is_proved(operation, evidence)
                && volume_is_kept(operation, evidence, left_volume.as_ref())
        }
        RecoveryDecision::Adopt(_) => {
            matches!(operation.state, OpState::Started { .. })
                && matches!(found(evidence.search.as_ref()), Some(TaskSearch::One(_)))
                && (!operation.intent.kind.creates_guest() || operation.intent.id_was_free)
        }
        RecoveryDecision::Wait { not_before, .. } => *not_before > now,
        RecoveryDecision::Look(_) | RecoveryDecision::Resume(_) | RecoveryDecision::Doubt(_) => {
            true
        }
        RecoveryDecision::Closed => false,
    };
    assert!(rule, "{decision:?} of {operation:?} on {evidence:?}");
    if let Some(event) = decision.event(&operation.state, None) {
        let after = operation.after(&event).expect("a decision is a legal event");
        assert_eq!(after.furthest, operation.furthest, "nothing further is sent");
    }
    decision
}

/// No lane is opened while the request may still take effect.
fn lane_may_open(operation: &Operation, evidence: &Evidence, now: UnixSeconds) -> bool {
    let settled =
        now >= SENT.plus(LATE_FORK_SECONDS) && found(evidence.lock.as_ref()) == Some(&Lock::Free);
    let none_found = found(evidence.search.as_ref()) == Some(&TaskSearch::None);
    match &operation.state {
        OpState::TaskRunning { upid, found: by_search, .. } => {
            let runs = matches!(
                found(evidence.task.as_ref()),
                None | Some(TaskFact::Running | TaskFact::Unreadable)
            );
            let alone = match found(evidence.search.as_ref()) {
                Some(TaskSearch::One(one)) => one == upid,
                Some(TaskSearch::None | TaskSearch::TooShort) => true,
                Some(TaskSearch::Ambiguous | TaskSearch::Unreadable) | None => false,
            };
            !runs && (!by_search || (settled && alone))
        }
        OpState::Started { request, .. } => {
            settled && (none_found || !leaves_task(operation, *request))
        }
        OpState::Unknown { .. } => settled,
        OpState::Succeeded { .. } | OpState::Failed { .. } => true,
    }
}

/// Success is seen, never concluded; and a new guest is ours by its task only.
fn success_is_proved(operation: &Operation, evidence: &Evidence) -> bool {
    let proof = if operation.intent.kind == ActionKind::Destroy {
        found(evidence.number.as_ref()) == Some(&NumberUse::Free)
    } else {
        let by_task =
            matches!(found(evidence.task.as_ref()), Some(TaskFact::Succeeded | TaskFact::Warned));
        match found(evidence.postcondition.as_ref()) {
            Some(Postcondition::Holds) => true,
            // Proxmox itself says that it is made; keys may read back otherwise.
            Some(Postcondition::Half) => by_task,
            _ => false,
        }
    };
    // A create or rollback that failed or is forgotten leaves nothing to call ours.
    let made = match found(evidence.task.as_ref()) {
        Some(TaskFact::Succeeded | TaskFact::Warned) => true,
        Some(TaskFact::Unclear) => operation.intent.kind.creates_guest(),
        _ => false,
    };
    let known = matches!(operation.state, OpState::TaskRunning { .. });
    let ours = (known && made) || operation.intent.kind.proved_by_state();
    operation.furthest == OpPhase::Act && proof && ours
}

/// A failure is seen too, unless the act never left or its own task made no guest.
fn failure_is_proved(operation: &Operation, evidence: &Evidence) -> bool {
    let kind = operation.intent.kind;
    let known = matches!(operation.state, OpState::TaskRunning { .. });
    let task_failed = known && found(evidence.task.as_ref()) == Some(&TaskFact::Failed);
    let number = found(evidence.number.as_ref());
    let not_so = match found(evidence.postcondition.as_ref()) {
        Some(Postcondition::DoesNotHold) => true,
        Some(Postcondition::Half) => !kind.creates_guest(),
        _ => false,
    };
    let absent = not_so
        && (!kind.creates_guest() || number == Some(&NumberUse::Free))
        && (kind != ActionKind::Destroy || number == Some(&NumberUse::Taken));
    // A worker that was killed does nothing more, whatever it left.
    let left_over = known
        && kind.creates_guest()
        && found(evidence.task.as_ref()) == Some(&TaskFact::Unclear)
        && matches!(
            found(evidence.postcondition.as_ref()),
            Some(Postcondition::Half | Postcondition::NotYet | Postcondition::DoesNotHold)
        );
    let not_made = left_over || (task_failed && !kind.proved_by_state());
    operation.furthest != OpPhase::Act || absent || not_made
}

/// A volume that was allocated is never forgotten, so that it is never allocated again.
fn volume_is_kept(operation: &Operation, evidence: &Evidence, left: Option<&VolumeId>) -> bool {
    match found(evidence.volumes.as_ref()) {
        _ if operation.intent.volumes_before.is_none() => left.is_none(),
        Some(NewVolumes::One(volume)) => left == Some(volume),
        Some(NewVolumes::None) => left.is_none(),
        Some(NewVolumes::Several | NewVolumes::Unreadable) | None => false,
    }
}

#[test]
fn every_combination_of_operation_and_evidence_has_one_safe_decision() {
    let mut combinations = 0_u32;
    let step = thorough::every(101);
    for operation in every_operation() {
        for after in [1, LATE_FORK_SECONDS, 10_000] {
            let now = SENT.plus(after);
            every_evidence(&operation, now, |evidence| {
                combinations += 1;
                if combinations.is_multiple_of(step) {
                    check_one(&operation, evidence, now);
                }
            });
        }
    }
    println!("{combinations} combinations of operation, evidence and moment");
    assert!(combinations > 1_000_000);
}

/// A world that answers every question the same way each time.
#[derive(Debug, Clone)]
struct World(Evidence);

impl World {
    fn answer(&self, evidence: &mut Evidence, question: Question, now: UnixSeconds) {
        fn at<T: Clone>(now: UnixSeconds, seen: Option<&Seen<T>>) -> Option<Seen<T>> {
            seen.map(|seen| Seen { at: now, found: seen.found.clone() })
        }
        let World(world) = self;
        match question {
            Question::TaskStatus => evidence.task = at(now, world.task.as_ref()),
            Question::TaskList => evidence.search = at(now, world.search.as_ref()),
            Question::Lock => evidence.lock = at(now, world.lock.as_ref()),
            Question::Postcondition => {
                evidence.postcondition = at(now, world.postcondition.as_ref());
            }
            Question::NumberUse => evidence.number = at(now, world.number.as_ref()),
            Question::Volumes => evidence.volumes = at(now, world.volumes.as_ref()),
        }
    }

    /// Recovers as the agent does, until nothing changes any more, and returns what was recorded.
    fn recover(&self, operation: &Operation, mut now: UnixSeconds) -> (Operation, Vec<OpEvent>) {
        let mut operation = operation.clone();
        let mut events = Vec::new();
        let mut evidence = Evidence::default();
        let mut waits = 0;
        // After two long waits every deadline is past: a third one is for the world to change.
        while waits < 3 {
            let decision = check_one(&operation, &evidence, now);
            match &decision {
                RecoveryDecision::Look(question) => self.answer(&mut evidence, *question, now),
                RecoveryDecision::Wait { not_before, .. } => {
                    now = not_before.plus(POSTCONDITION_DEADLINE_SECONDS);
                    waits += 1;
                    evidence = evidence.after_wait();
                }
                RecoveryDecision::Resume(_) | RecoveryDecision::Closed => {
                    return (operation, events);
                }
                RecoveryDecision::Adopt(_)
                | RecoveryDecision::Succeed { .. }
                | RecoveryDecision::Fail { .. }
                | RecoveryDecision::Doubt(_) => match decision.event(&operation.state, None) {
                    None => return (operation, events),
                    Some(event) => {
                        operation = operation.after(&event).unwrap();
                        events.push(event);
                        if !operation.is_in_flight() {
                            return (operation, events);
                        }
                    }
                },
            }
        }
        (operation, events)
    }
}

/// The worlds in which every question has an answer.
fn every_world(operation: &Operation, mut check: impl FnMut(&World)) {
    every_evidence(operation, SENT, |evidence| {
        let kind = operation.intent.kind;
        let asks_number = kind.creates_guest() || kind == ActionKind::Destroy;
        let whole = evidence.task.is_some()
            && evidence.search.is_some()
            && evidence.lock.is_some()
            && evidence.postcondition.is_some()
            && (evidence.number.is_some() || !asks_number)
            && (evidence.volumes.is_some() || operation.intent.volumes_before.is_none());
        // Readings that this operation never asks for need not vary.
        let found_one = matches!(found(evidence.search.as_ref()), Some(TaskSearch::One(_)));
        let plain_task = found(evidence.task.as_ref()) == Some(&TaskFact::Succeeded);
        let plain_search = found(evidence.search.as_ref()) == Some(&TaskSearch::None);
        let asked = match operation.state {
            OpState::Started { .. } => found_one || plain_task,
            OpState::TaskRunning { .. } => plain_search,
            OpState::Unknown { .. } => plain_search && plain_task,
            OpState::Succeeded { .. } | OpState::Failed { .. } => false,
        };
        if whole && asked {
            check(&World(evidence.clone()));
        }
    });
}

#[test]
fn recovering_twice_equals_recovering_once_in_every_world() {
    let mut worlds = 0_u32;
    let step = thorough::every(31);
    for operation in every_operation() {
        every_world(&operation, |world| {
            worlds += 1;
            if !worlds.is_multiple_of(step) {
                return;
            }
            // A long time after, so that what is left to wait for is the world and not a deadline.
            let now = SENT.plus(100_000);
            let (once, events) = world.recover(&operation, now);
            assert!(events.len() <= 3, "adopted, unknown, closed at most: {events:?}");
            let (twice, more) = world.recover(&once, now.plus(100_000));
            let settled = if let OpState::Unknown { .. } = once.state {
                more.len() <= 1
            } else {
                more.is_empty()
            };
            assert!(settled, "{events:?} then {more:?}");
            // Whatever was recorded before a second crash, the end is the same.
            for cut in 0..events.len() {
                let crashed = events[..cut].iter().try_fold(operation.clone(), |op, e| op.after(e));
                let (again, _) = world.recover(&crashed.unwrap(), now);
                assert_eq!(again, once);
            }
            let (thrice, last) = world.recover(&twice, now.plus(200_000));
            assert_eq!((thrice, last), (twice, vec![]), "a third recovery has nothing to say");
        });
    }
    println!("{worlds} worlds recovered");
    assert!(worlds > 20_000);
}

#[test]
fn a_silent_pve_closes_nothing_and_keeps_the_lane_shut() {
    let silent = World(Evidence {
        task: Some(Seen { at: SENT, found: TaskFact::Unreadable }),
        search: Some(Seen { at: SENT, found: TaskSearch::Unreadable }),
        lock: Some(Seen { at: SENT, found: Lock::Unreadable }),
        postcondition: Some(Seen { at: SENT, found: Postcondition::Unreadable }),
        number: Some(Seen { at: SENT, found: NumberUse::Unreadable }),
        volumes: Some(Seen { at: SENT, found: NewVolumes::Unreadable }),
    });
    for operation in every_operation() {
        let (after, events) = silent.recover(&operation, SENT.plus(3600));
        // Only a task recorded for a request that leaves none is said to be unknown.
        let unknown = events.iter().all(|event| matches!(event, OpEvent::Unknown { .. }));
        assert!(after.is_in_flight() && unknown, "{events:?}");
    }
}

#[test]
fn a_task_that_may_be_forked_late_is_looked_for_a_second_time() {
    let operation = operation(ActionKind::Start, GuestKind::Lxc);
    let none = |after| Some(Seen { at: SENT.plus(after), found: TaskSearch::None });
    let mut evidence = Evidence { search: none(1), ..Evidence::default() };
    let wait = RecoveryDecision::Wait { not_before: SENT.plus(60), reason: WaitReason::LateFork };
    assert_eq!(decide(&operation, &evidence, SENT.plus(1)), wait);
    let now = SENT.plus(61);
    assert_eq!(decide(&operation, &evidence, now), RecoveryDecision::Look(Question::Lock));
    evidence.lock = Some(Seen { at: now, found: Lock::Free });
    assert_eq!(decide(&operation, &evidence, now), RecoveryDecision::Look(Question::TaskList));
    evidence.search = none(61);
    assert_eq!(decide(&operation, &evidence, now), RecoveryDecision::Look(Question::Postcondition));
    let late = own_task(ActionKind::Start, GuestKind::Lxc);
    evidence.search = Some(Seen { at: now, found: TaskSearch::One(late.clone()) });
    assert_eq!(decide(&operation, &evidence, now), RecoveryDecision::Adopt(late));
}

#[test]
fn what_was_read_before_the_guest_was_unlocked_proves_nothing() {
    let operation = operation(ActionKind::SetConfig, GuestKind::Lxc);
    let now = SENT.plus(100);
    let mut evidence = Evidence {
        lock: Some(Seen { at: SENT.plus(90), found: Lock::Free }),
        postcondition: Some(Seen { at: SENT.plus(80), found: Postcondition::DoesNotHold }),
        ..Evidence::default()
    };
    assert_eq!(decide(&operation, &evidence, now), RecoveryDecision::Look(Question::Postcondition));
    evidence.postcondition = Some(Seen { at: SENT.plus(90), found: Postcondition::DoesNotHold });
    assert_eq!(decide(&operation, &evidence, now), fail(FailReason::DidNotHappen));
}

#[test]
fn a_fact_that_follows_its_task_is_awaited_until_the_deadline() {
    let base = operation(ActionKind::Start, GuestKind::Qemu);
    let known = base
        .after(&OpEvent::TaskRunning { upid: upid("hastart", "101", 1, OWNER), found: false })
        .unwrap();
    let ended = SENT.plus(5);
    let at = |after: u64, found| {
        let now = ended.plus(after);
        let evidence = Evidence {
            task: Some(Seen { at: ended, found: TaskFact::Succeeded }),
            postcondition: Some(Seen { at: now, found }),
            ..Evidence::default()
        };
        decide(&known, &evidence, now)
    };
    let wait = RecoveryDecision::Wait { not_before: SENT.plus(20), reason: WaitReason::NotYet };
    assert_eq!(at(10, Postcondition::DoesNotHold), wait);
    assert_eq!(at(119, Postcondition::Holds), RecoveryDecision::Succeed { warning: None });
    assert_eq!(at(120, Postcondition::DoesNotHold), fail(FailReason::FactMissing));
    assert_eq!(at(120, Postcondition::NotYet), RecoveryDecision::Doubt(OutcomeDoubt::FactLate));
}

#[test]
fn the_volume_of_a_lost_allocation_is_the_one_that_was_not_there_before() {
    let volumes = |names: &[&str]| -> BTreeSet<VolumeId> {
        names.iter().map(|name| name.parse().unwrap()).collect()
    };
    let before = volumes(&["s:a", "s:b"]);
    for (now, expected) in [
        (volumes(&["s:a", "s:b"]), NewVolumes::None),
        (volumes(&["s:a"]), NewVolumes::None),
        (volumes(&["s:a", "s:b", "s:c"]), NewVolumes::One("s:c".parse().unwrap())),
        (volumes(&["s:b", "s:c", "s:d"]), NewVolumes::Several),
    ] {
        assert_eq!(NewVolumes::between(&before, &now), expected);
    }
}

#[test]
fn a_recorded_task_of_another_guest_or_type_is_never_trusted() {
    let started = operation(ActionKind::Destroy, GuestKind::Lxc);
    for (task_type, id, ours) in
        [("vzdestroy", "101", true), ("vzdestroy", "102", false), ("qmdestroy", "101", false)]
    {
        let task = OpEvent::TaskRunning { upid: upid(task_type, id, 1, OWNER), found: false };
        let decision = decide(&started.after(&task).unwrap(), &Evidence::default(), SENT);
        let look = RecoveryDecision::Look(Question::TaskStatus);
        let expected = if ours { look } else { RecoveryDecision::Doubt(OutcomeDoubt::ForeignTask) };
        assert_eq!(decision, expected, "{task_type} {id}");
    }
}

#[test]
fn a_destroy_interrupted_in_its_preparations_waits_for_them_and_then_fails() {
    let steps = [(OpPhase::Stop, ActionKind::Stop), (OpPhase::Backup, ActionKind::Backup)];
    for (guest, (request, task)) in
        GuestKind::ALL.into_iter().flat_map(|guest| steps.map(|step| (guest, step)))
    {
        let mut prepared = signed(operation(ActionKind::Destroy, guest));
        prepared.intent.first = request;
        prepared.furthest = request;
        prepared.state = OpState::Started { request, sent_at: SENT };
        let stop = own_task(task, guest);
        let found_one = Some(Seen { at: SENT, found: TaskSearch::One(stop.clone()) });
        let evidence = Evidence { search: found_one, ..Evidence::default() };
        let adopt = decide(&prepared, &evidence, SENT);
        assert_eq!(adopt, RecoveryDecision::Adopt(stop.clone()));
        let adopted = prepared.after(&adopt.event(&prepared.state, None).unwrap()).unwrap();
        let with = |found| Evidence { task: Some(Seen { at: SENT, found }), ..Evidence::default() };
        let running = decide(&adopted, &with(TaskFact::Running), SENT);
        assert_eq!(running, RecoveryDecision::Resume(stop.clone()));
        let early = decide(&adopted, &with(TaskFact::Succeeded), SENT);
        assert!(
            matches!(early, RecoveryDecision::Wait { reason: WaitReason::LateFork, .. }),
            "{early:?}"
        );
        let late = SENT.plus(LATE_FORK_SECONDS);
        let evidence = Evidence {
            lock: Some(Seen { at: late, found: Lock::Free }),
            search: Some(Seen { at: late, found: TaskSearch::One(stop) }),
            ..with(TaskFact::Succeeded)
        };
        let ended = decide(&adopted, &evidence, late);
        assert_eq!(ended, fail(FailReason::ActNotSent), "the act is not sent after a crash");
    }
}
