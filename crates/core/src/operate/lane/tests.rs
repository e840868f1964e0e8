//! Small worlds of guests and operations, searched through to the last reachable state.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

const NOW: UnixSeconds = UnixSeconds(1000);

fn vmid(number: u32) -> VmId {
    VmId::try_from(number).unwrap()
}

fn op(number: u128) -> OperationId {
    OperationId::from_parts(1, number)
}

fn job(number: u128, target: u32) -> Job {
    Job { op: op(number), target: vmid(target), source: None, storage: None }
}

fn allocating(number: u128, target: u32) -> Job {
    Job { storage: Some("local-lvm".parse().unwrap()), ..job(number, target) }
}

fn clone(number: u128, source: u32, target: u32, sharing: Sharing) -> Job {
    let source = Some(SourceLane { vmid: vmid(source), sharing });
    Job { source, ..job(number, target) }
}

/// Tight caps, so that few operations reach them.
const TIGHT: LaneLimits = LaneLimits { sync_writes: 1, allocating_per_storage: 1 };

/// What an observer of events and effects knows of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Known {
    Unsubmitted,
    Queued,
    Running(Turn),
    Held,
    Ended,
    Skipped,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    NotAsked,
    Waiting,
    Writing,
    Had,
    Denied,
}

/// One pass's actions per guest, and what recovery holds, to be played in every order.
struct Scenario {
    batches: Vec<Vec<Job>>,
    recovered: Vec<Job>,
}

impl Scenario {
    fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.batches.iter().flatten().chain(&self.recovered)
    }

    fn job(&self, op: OperationId) -> &Job {
        self.jobs().find(|job| job.op == op).unwrap()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Moment {
    table: LaneTable,
    known: BTreeMap<OperationId, Known>,
    shut_down: bool,
}

impl Moment {
    fn first(scenario: &Scenario) -> Self {
        let known = scenario.jobs().map(|job| (job.op, Known::Unsubmitted)).collect();
        let mut moment = Self { table: LaneTable::new(TIGHT), known, shut_down: false };
        for job in &scenario.recovered {
            assert_eq!(moment.table.step(LaneEvent::Hold(job.clone()), NOW), Ok(vec![]));
            moment.known.insert(job.op, Known::Held);
        }
        moment
    }

    /// Every event that can come next.
    fn events(&self, scenario: &Scenario) -> Vec<LaneEvent> {
        let mut events = Vec::new();
        for batch in &scenario.batches {
            if self.known[&batch[0].op] == Known::Unsubmitted {
                events.push(LaneEvent::Submit { vmid: batch[0].target, jobs: batch.clone() });
            }
        }
        for (&op, known) in &self.known {
            if let Known::Running(turn) = known {
                for outcome in [LaneOutcome::Succeeded, LaneOutcome::Failed, LaneOutcome::Unknown] {
                    events.push(LaneEvent::Finish { op, outcome });
                }
                match turn {
                    Turn::NotAsked => events.push(LaneEvent::WantWrite(op)),
                    Turn::Writing => events.push(LaneEvent::Wrote(op)),
                    Turn::Waiting | Turn::Had | Turn::Denied => {}
                }
            }
            if *known == Known::Held {
                events.push(LaneEvent::Release(op));
            }
        }
        if !self.shut_down {
            events.push(LaneEvent::Shutdown);
        }
        events
    }

    /// The next moment; panics where the table does what it must not.
    fn after(&self, scenario: &Scenario, event: &LaneEvent) -> Self {
        let mut next = self.clone();
        let effects = next.table.step(event.clone(), NOW).unwrap();
        let refused = effects.iter().any(|effect| matches!(effect, LaneEffect::Refuse { .. }));
        match event {
            LaneEvent::Submit { vmid, jobs } => {
                let busy = self.known.iter().any(|(op, known)| {
                    let waits = matches!(known, Known::Queued | Known::Running(_) | Known::Held);
                    waits && scenario.job(*op).target == *vmid
                });
                assert_eq!(refused, busy || self.shut_down, "refused iff busy: {effects:?}");
                assert_eq!(self.table.busy(*vmid).is_some(), busy);
                if !refused {
                    next.known.extend(jobs.iter().map(|job| (job.op, Known::Queued)));
                }
            }
            LaneEvent::WantWrite(op) => drop(next.known.insert(*op, Known::Running(Turn::Waiting))),
            LaneEvent::Wrote(op) => drop(next.known.insert(*op, Known::Running(Turn::Had))),
            LaneEvent::Finish { op, outcome } => {
                let known =
                    if *outcome == LaneOutcome::Unknown { Known::Held } else { Known::Ended };
                next.known.insert(*op, known);
            }
            LaneEvent::Release(op) => drop(next.known.insert(*op, Known::Ended)),
            LaneEvent::Shutdown => next.shut_down = true,
            LaneEvent::Hold(_) => unreachable!("held before the first event"),
        }
        for effect in effects {
            let (op, from, to) = match effect {
                LaneEffect::Start(op) => (op, Known::Queued, Known::Running(Turn::NotAsked)),
                LaneEffect::Write(op) => {
                    (op, Known::Running(Turn::Waiting), Known::Running(Turn::Writing))
                }
                LaneEffect::Deny(op) => {
                    assert!(next.shut_down, "no turn is denied while work is taken: {effect:?}");
                    (op, Known::Running(Turn::Waiting), Known::Running(Turn::Denied))
                }
                LaneEffect::Skip(op) => (op, Known::Queued, Known::Skipped),
                LaneEffect::Refuse { .. } => continue,
            };
            assert_eq!(next.known.insert(op, to), Some(from), "lost or doubled: {effect:?}");
        }
        next.check(scenario, event);
        next
    }

    /// Every event that cannot come next is an error and changes nothing.
    fn check_refusals(&self, scenario: &Scenario) {
        let possible = self.events(scenario);
        let stranger = op(99);
        let mut events = vec![
            LaneEvent::Submit { vmid: vmid(101), jobs: vec![job(99, 100)] },
            LaneEvent::Submit { vmid: vmid(100), jobs: vec![job(99, 100), job(99, 100)] },
            LaneEvent::Hold(clone(99, 100, 100, Sharing::Shared)),
        ];
        for op in self.known.keys().copied().chain([stranger]) {
            let outcome = LaneOutcome::Succeeded;
            events.extend([
                LaneEvent::Finish { op, outcome },
                LaneEvent::Release(op),
                LaneEvent::WantWrite(op),
                LaneEvent::Wrote(op),
            ]);
        }
        for (op, known) in &self.known {
            let job = scenario.job(*op).clone();
            if matches!(known, Known::Queued | Known::Running(_) | Known::Held) {
                events.push(LaneEvent::Submit { vmid: job.target, jobs: vec![job.clone()] });
                events.push(LaneEvent::Hold(job.clone()));
            }
            if matches!(known, Known::Running(_) | Known::Held) {
                events.push(LaneEvent::Hold(Job { op: stranger, source: None, ..job }));
            }
        }
        let mut table = self.table.clone();
        for event in events {
            // An operation that had its turn may ask for another one: it has several requests. One that was denied
            // is denied again.
            let again = matches!(event, LaneEvent::WantWrite(op) if matches!(
                self.known.get(&op),
                Some(Known::Running(Turn::Had | Turn::Denied))
            ));
            if !again && !possible.contains(&event) {
                assert!(table.step(event.clone(), NOW).is_err(), "{event:?} at {self:#?}");
            }
        }
        assert_eq!(table, self.table, "an error changes nothing");
    }

    fn check(&self, scenario: &Scenario, event: &LaneEvent) {
        let running = |op: &OperationId| matches!(self.known[op], Known::Running(_));
        let occupies = |op: &OperationId| running(op) || self.known[op] == Known::Held;
        let here = || format!("after {event:?}: {self:#?}");
        for guest in [100, 101, 102].map(vmid) {
            let owners = scenario.jobs().filter(|job| job.target == guest && occupies(&job.op));
            let owners = owners.count();
            assert!(owners <= 1, "two at one guest {}", here());
            let readers: Vec<_> = scenario
                .jobs()
                .filter(|job| occupies(&job.op))
                .filter_map(|job| job.source.filter(|source| source.vmid == guest))
                .collect();
            let exclusive = readers.iter().any(|source| source.sharing == Sharing::Exclusive);
            assert!(readers.is_empty() || owners == 0, "changed while cloned {}", here());
            assert!(!exclusive || readers.len() == 1, "two clones of a locked one {}", here());
        }
        let writing = self.known.values().filter(|known| **known == Known::Running(Turn::Writing));
        let writing = writing.count();
        assert!(writing <= TIGHT.sync_writes, "{}", here());
        let waits = self.known.values().any(|known| *known == Known::Running(Turn::Waiting));
        assert!(!waits || writing == TIGHT.sync_writes, "a free turn is not given {}", here());
        assert!(!waits || !self.shut_down, "it waits for a turn that never comes {}", here());
        let allocating = scenario.jobs().filter(|job| job.storage.is_some() && running(&job.op));
        let full = allocating.count() >= TIGHT.allocating_per_storage;
        let allocating = scenario.jobs().filter(|job| job.storage.is_some() && running(&job.op));
        assert!(allocating.count() <= TIGHT.allocating_per_storage, "{}", here());
        self.check_order(scenario, &here);
        self.check_progress(scenario, full, &here);
    }

    /// In each lane the operations leave the queue in the order they entered it.
    fn check_order(&self, scenario: &Scenario, here: &impl Fn() -> String) {
        for batch in &scenario.batches {
            let waiting = batch.iter().skip_while(|job| self.known[&job.op] != Known::Queued);
            for job in waiting {
                let known = self.known[&job.op];
                assert!(known == Known::Queued, "overtaken in its lane {}", here());
            }
        }
    }

    /// Nothing waits that could run: no deadlock, and no guest waits for a stranger.
    fn check_progress(&self, scenario: &Scenario, full: bool, here: &impl Fn() -> String) {
        let occupies = |op: &OperationId| matches!(self.known[op], Known::Running(_) | Known::Held);
        let queued = |op: &OperationId| self.known[op] == Known::Queued;
        let anything_occupies = self.known.keys().any(occupies);
        let anything_queued = self.known.keys().any(queued);
        assert!(!anything_queued || anything_occupies, "all wait for nothing {}", here());
        assert_eq!(self.table.is_empty(), !anything_queued && !anything_occupies, "{}", here());
        for job in scenario.jobs().filter(|job| queued(&job.op)) {
            let touches = |other: &Job, guest: VmId| {
                other.target == guest || other.source.is_some_and(|source| source.vmid == guest)
            };
            let lanes = [Some(job.target), job.source.map(|source| source.vmid)];
            // A clone that cannot start for its own guest's sake is no reason for its source to wait.
            let counts = |other: &Job| {
                let own = scenario.jobs().filter(|job| job.target == other.target);
                let shut = own.filter(|job| job.op != other.op).any(|job| occupies(&job.op));
                other.target == job.target || !(shut || other.storage.is_some() && full)
            };
            let reason = lanes.into_iter().flatten().any(|guest| {
                let others = scenario.jobs().filter(|other| other.op != job.op);
                others
                    .filter(|other| touches(other, guest))
                    .any(|other| occupies(&other.op) || queued(&other.op) && counts(other))
            });
            let for_storage = job.storage.is_some() && full;
            assert!(reason || for_storage, "{} waits for a stranger {}", job.op, here());
        }
    }
}

/// Plays a scenario in every order; returns how many moments and steps there are.
fn search(scenario: &Scenario) -> (usize, usize) {
    let first = Moment::first(scenario);
    let mut visited = BTreeSet::from([first.clone()]);
    let mut frontier = vec![first];
    let mut steps = 0;
    while let Some(moment) = frontier.pop() {
        moment.check_refusals(scenario);
        for event in moment.events(scenario) {
            steps += 1;
            let next = moment.after(scenario, &event);
            if visited.insert(next.clone()) {
                frontier.push(next);
            }
        }
    }
    (visited.len(), steps)
}

#[test]
fn every_order_of_events_keeps_the_rules_of_the_lanes() {
    let with_storage = |job: Job| Job { storage: allocating(0, 100).storage, ..job };
    let scenarios = [
        (
            "two actions, a stranger, and a clone of a container",
            vec![
                vec![job(1, 100), job(2, 100)],
                vec![allocating(3, 101)],
                vec![with_storage(clone(4, 100, 102, Sharing::Exclusive)), job(5, 102)],
                vec![job(6, 100)],
            ],
            vec![],
        ),
        (
            "two clones of a virtual machine that is changed too",
            vec![
                vec![job(1, 100)],
                vec![clone(2, 100, 101, Sharing::Shared)],
                vec![clone(3, 100, 102, Sharing::Shared), job(4, 102)],
                vec![job(5, 101)],
            ],
            vec![],
        ),
        (
            "two clones of a container",
            vec![
                vec![job(1, 100)],
                vec![clone(2, 100, 101, Sharing::Exclusive)],
                vec![clone(3, 100, 102, Sharing::Exclusive)],
            ],
            vec![],
        ),
        (
            "a ring of clones",
            vec![
                vec![clone(1, 101, 100, Sharing::Exclusive)],
                vec![clone(2, 102, 101, Sharing::Exclusive)],
                vec![clone(3, 100, 102, Sharing::Exclusive)],
            ],
            vec![],
        ),
        (
            "a recovered clone and a recovered action",
            vec![
                vec![job(1, 100), job(2, 100)],
                vec![allocating(3, 101)],
                vec![clone(4, 100, 102, Sharing::Shared)],
            ],
            vec![with_storage(clone(8, 100, 102, Sharing::Exclusive)), job(9, 101)],
        ),
    ];
    let mut total = (0, 0);
    for (name, batches, recovered) in scenarios {
        // The two large ones take seconds.
        if !crate::model::thorough::whole() && batches.len() > 3 {
            continue;
        }
        let (moments, steps) = search(&Scenario { batches, recovered });
        println!("{name}: {moments} states, {steps} steps");
        total = (total.0 + moments, total.1 + steps);
    }
    println!("{} states, {} steps in all", total.0, total.1);
    assert!(total.1 > if crate::model::thorough::whole() { 10_000 } else { 100 });
}

fn submit(table: &mut LaneTable, jobs: Vec<Job>, now: UnixSeconds) -> Vec<LaneEffect> {
    table.step(LaneEvent::Submit { vmid: jobs[0].target, jobs }, now).unwrap()
}

#[test]
fn a_busy_guest_says_with_what_and_since_when() {
    let mut table = LaneTable::default();
    assert_eq!(table.busy(vmid(100)), None);
    submit(&mut table, vec![job(1, 100), job(2, 100)], UnixSeconds(5));
    let busy = LaneBusy { op: op(1), since: UnixSeconds(5) };
    let refused = LaneEffect::Refuse { vmid: vmid(100), refusal: LaneRefusal::Busy(busy) };
    assert_eq!(submit(&mut table, vec![job(3, 100)], UnixSeconds(9)), vec![refused]);
    let finish = LaneEvent::Finish { op: op(1), outcome: LaneOutcome::Succeeded };
    assert_eq!(table.step(finish, UnixSeconds(7)), Ok(vec![LaneEffect::Start(op(2))]));
    assert_eq!(table.busy(vmid(100)), Some(LaneBusy { op: op(2), since: UnixSeconds(7) }));
}

#[test]
fn the_caps_are_two_requests_per_node_and_two_allocations_per_storage() {
    let mut table = LaneTable::default();
    let started: Vec<_> = (0..4)
        .flat_map(|n| submit(&mut table, vec![job(n, 100 + u32::try_from(n).unwrap())], NOW))
        .collect();
    assert_eq!(started.len(), 4, "lanes of different guests run in parallel");
    let writes: Vec<_> =
        (0..4).flat_map(|n| table.step(LaneEvent::WantWrite(op(n)), NOW).unwrap()).collect();
    assert_eq!(writes, vec![LaneEffect::Write(op(0)), LaneEffect::Write(op(1))]);
    let wrote = table.step(LaneEvent::Wrote(op(1)), NOW);
    assert_eq!(wrote, Ok(vec![LaneEffect::Write(op(2))]), "in the order of asking");
    let allocated: Vec<_> = (10..13)
        .flat_map(|n| submit(&mut table, vec![allocating(n, 200 + u32::try_from(n).unwrap())], NOW))
        .collect();
    assert_eq!(allocated, vec![LaneEffect::Start(op(10)), LaneEffect::Start(op(11))]);
    // A doubt keeps its own guest shut and gives the storage back.
    let unknown = LaneEvent::Finish { op: op(10), outcome: LaneOutcome::Unknown };
    assert_eq!(table.step(unknown, NOW), Ok(vec![LaneEffect::Start(op(12))]));
}

#[test]
fn more_than_one_pass_can_have_is_refused_whole() {
    let mut table = LaneTable::default();
    let jobs = (0..=QUEUE_DEPTH_MAX).map(|n| job(n as u128, 100)).collect();
    let refused = LaneEffect::Refuse { vmid: vmid(100), refusal: LaneRefusal::TooMany };
    assert_eq!(submit(&mut table, jobs, NOW), vec![refused]);
    assert!(table.is_empty());
}

#[test]
fn a_failure_skips_the_rest_of_the_pass_and_the_next_pass_starts_afresh() {
    let mut table = LaneTable::default();
    submit(&mut table, vec![job(1, 100), job(2, 100), job(3, 100)], NOW);
    let failed = LaneEvent::Finish { op: op(1), outcome: LaneOutcome::Failed };
    assert_eq!(table.step(failed, NOW), Ok(vec![LaneEffect::Skip(op(2)), LaneEffect::Skip(op(3))]));
    assert!(table.is_empty());
    assert_eq!(submit(&mut table, vec![job(2, 100)], NOW), vec![LaneEffect::Start(op(2))]);
}

#[test]
fn a_clone_whose_own_guest_is_shut_does_not_keep_its_source_waiting() {
    let mut table = LaneTable::default();
    // Guest 102 is the source of a clone into 103, so that an action on 102 has to wait.
    submit(&mut table, vec![clone(1, 102, 103, Sharing::Shared)], NOW);
    assert_eq!(submit(&mut table, vec![clone(2, 100, 102, Sharing::Exclusive)], NOW), vec![]);
    assert_eq!(submit(&mut table, vec![job(3, 100)], NOW), vec![LaneEffect::Start(op(3))]);
    // Once its own guest is free, the clone waits for the source alone.
    let finish = |op, outcome| LaneEvent::Finish { op, outcome };
    assert_eq!(table.step(finish(op(1), LaneOutcome::Succeeded), NOW), Ok(vec![]));
    let done = table.step(finish(op(3), LaneOutcome::Succeeded), NOW);
    assert_eq!(done, Ok(vec![LaneEffect::Start(op(2))]));
    assert_eq!(submit(&mut table, vec![job(4, 100)], NOW), vec![], "the source is being cloned");
    let done = table.step(finish(op(2), LaneOutcome::Failed), NOW);
    assert_eq!(done, Ok(vec![LaneEffect::Start(op(4))]));
}

#[test]
fn a_stream_of_clones_does_not_overtake_an_action_of_their_source() {
    let mut table = LaneTable::default();
    let first = submit(&mut table, vec![clone(1, 100, 101, Sharing::Shared)], NOW);
    assert_eq!(first, vec![LaneEffect::Start(op(1))]);
    assert_eq!(submit(&mut table, vec![job(2, 100)], NOW), vec![], "its source is being read");
    let later = submit(&mut table, vec![clone(3, 100, 102, Sharing::Shared)], NOW);
    assert_eq!(later, vec![]);
    let finish = |op| LaneEvent::Finish { op, outcome: LaneOutcome::Succeeded };
    assert_eq!(table.step(finish(op(1)), NOW), Ok(vec![LaneEffect::Start(op(2))]));
    assert_eq!(table.step(finish(op(2)), NOW), Ok(vec![LaneEffect::Start(op(3))]));
}
