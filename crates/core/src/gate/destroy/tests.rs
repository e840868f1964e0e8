//! When a request of a destroy may leave, and what is owed to a guest that was not destroyed.

use std::collections::BTreeSet;

use super::*;
use crate::action_registry::ActionKind;
use crate::actual::identity::identity;
use crate::actual::identity_proof::{ListedTask, TaskListMark, TaskReading, TaskState};
use crate::actual::{ConfigEntry, Unreadable};
use crate::model::id::OperationId;
use crate::operate::operation::{OpEvent, Operation, StartedIntent, UnixSeconds};

const DIGEST: &str = "1f2e3d4c5b6a798897a6b5c4d3e2f1001f2e3d4c";

/// A stopped container with these keys.
fn guest(keys: &[(&str, &str)]) -> Guest {
    let entry = |(key, text): &(&str, &str)| ConfigEntry {
        key: (*key).to_owned(),
        value: Some((*text).to_owned()),
        pending: None,
        delete: 0,
    };
    let entries = [("digest", DIGEST)].iter().chain(keys).map(entry).collect::<Vec<_>>();
    Guest {
        id: "lxc/101".parse().unwrap(),
        power: Power::Stopped,
        template: false,
        ha: None,
        lock: None,
        config: Ok(GuestConfig::from_pending(GuestKind::Lxc, entries).into()),
    }
}

fn waiting(mut guest: Guest) -> Guest {
    let waits = ConfigEntry {
        key: "cores".to_owned(),
        value: Some("2".to_owned()),
        pending: Some("4".to_owned()),
        delete: 0,
    };
    guest.config = Ok(GuestConfig::from_pending(GuestKind::Lxc, vec![waits]).into());
    guest
}

#[test]
fn a_request_leaves_only_when_what_comes_before_it_has_taken_effect() {
    let bare = guest(&[("cores", "2")]);
    let protected = guest(&[("cores", "2"), ("protection", "1")]);
    let running = Guest { power: Power::Running, ..bare.clone() };
    let unclear = Guest { power: Power::Unknown, ..bare.clone() };
    let locked = Guest { lock: Some("backup".to_owned()), ..bare.clone() };
    let unreadable = Guest { config: Err(Unreadable::new("gone", "")), ..bare.clone() };
    // Stop, save, unprotect, act.
    for (name, guest, ready) in [
        ("bare", &bare, [true, true, true, true]),
        ("protected", &protected, [true, true, true, false]),
        ("running", &running, [true, false, false, false]),
        ("unclear", &unclear, [true, false, false, false]),
        ("waiting", &waiting(bare.clone()), [true, false, false, false]),
        ("locked", &locked, [false, false, false, false]),
        ("unreadable", &unreadable, [true, false, false, false]),
    ] {
        assert_eq!(OpPhase::ALL.map(|request| is_ready(request, guest)), ready, "{name}");
    }
}

#[test]
fn no_request_leaves_on_a_configuration_that_was_not_signed_for() {
    let signed = |digest: &str| Expected::Guest {
        identity: "00".repeat(32).parse().unwrap(),
        digest: digest.parse().unwrap(),
    };
    let bare = guest(&[("cores", "2")]);
    let unreadable = Guest { config: Err(Unreadable::new("gone", "")), ..bare.clone() };
    let other = DIGEST.replace('1', "2");
    for request in OpPhase::ALL {
        let leaves = |guest, expected: &Expected| {
            hindrance(request, guest, RequestBasis::Signed(expected)).is_none()
        };
        assert!(leaves(&bare, &signed(DIGEST)));
        assert!(!leaves(&bare, &signed(&other)));
        assert!(!leaves(&bare, &Expected::Free));
        assert!(!leaves(&unreadable, &signed(DIGEST)));
    }
}

#[test]
fn a_protection_is_owed_to_the_same_guest_alone_and_never_forgotten_for_want_of_proof() {
    let task = |kind: &str, state| ListedTask {
        upid: format!("UPID:pve1:00000457:00001111:00000064:{kind}:101:root@pam:").parse().unwrap(),
        state,
    };
    let tasks = |tasks: &[ListedTask]| TaskReading {
        tasks: tasks.to_vec(),
        unread: Vec::new(),
        filtered: None,
        node_now: UnixSeconds(200),
    };
    let old = task("vzstart", TaskState::Done);
    let quiet = tasks(&[task("vzstart", TaskState::Done)]);
    let mine = guest(&[("mp0", "a:b,mp=/x")]);
    let operation = |task_mark| {
        let intent = StartedIntent {
            first: OpPhase::Unprotect,
            unprotects: true,
            identity: identity(&mine).ok(),
            task_mark,
            ..StartedIntent::new(mine.id, ActionKind::Destroy, UnixSeconds(1))
        };
        Operation::begin(OperationId::from_parts(1, 1), &OpEvent::Started(Box::new(intent)))
    };
    let operation = |mark| operation(mark).unwrap();
    let marked = operation(TaskListMark::of(&quiet, mine.id.vmid).ok());
    let to = |guest: &Guest, tasks: &TaskReading, operation: &Operation| match Owed::to(
        guest,
        operation,
        OwedThing::Protection,
        tasks,
        &BTreeSet::new(),
    ) {
        Owed::Now => "protection",
        Owed::Later(refusal) => refusal.reason.as_str(),
        Owed::Nothing => "nothing",
    };
    let locked = Guest { lock: Some("backup".to_owned()), ..mine.clone() };
    let unreadable = Guest { config: Err(Unreadable::new("gone", "")), ..mine.clone() };
    for (name, guest, owed) in [
        ("mine", &mine, "protection"),
        ("locked", &locked, "locked"),
        ("unreadable", &unreadable, "identity_unproven"),
        ("an empty answer", &guest(&[]), "identity_unproven"),
        ("another", &guest(&[("mp0", "a:c,mp=/x")]), "nothing"),
        ("protected", &guest(&[("mp0", "a:b,mp=/x"), ("protection", "1")]), "nothing"),
    ] {
        assert_eq!(to(guest, &quiet, &marked), owed, "{name}");
    }
    let again = tasks(&[old.clone(), task("vzcreate", TaskState::Done)]);
    let filtered = TaskReading { filtered: Some("no right".to_owned()), ..quiet.clone() };
    let early = TaskReading { node_now: UnixSeconds(100), ..quiet.clone() };
    for (name, tasks, owed) in [
        ("made again the same", &again, "nothing"),
        (
            "made again, and seen all the same",
            &TaskReading { filtered: filtered.filtered.clone(), ..again.clone() },
            "nothing",
        ),
        (
            "somebody is at it",
            &tasks(&[old.clone(), task("vzrestore", TaskState::Running)]),
            "identity_unproven",
        ),
        ("tasks are hidden", &filtered, "identity_unproven"),
        (
            "a restore that failed",
            &tasks(&[old.clone(), task("vzrestore", TaskState::Undone)]),
            "protection",
        ),
        ("rolled back", &tasks(&[old, task("vzrollback", TaskState::Done)]), "protection"),
        ("tasks are forgotten", &tasks(&[]), "protection"),
        ("the clock was set back", &early, "protection"),
    ] {
        assert_eq!(to(&mine, tasks, &marked), owed, "{name}");
    }
    assert_eq!(to(&mine, &again, &operation(None)), "protection", "a journal without marks");
}

#[test]
fn a_guest_that_was_stopped_for_nothing_runs_again_unless_somebody_else_decided() {
    let mine = guest(&[("mp0", "a:b,mp=/x")]);
    let intent = StartedIntent {
        first: OpPhase::Stop,
        restarts: true,
        identity: identity(&mine).ok(),
        ..StartedIntent::new(mine.id, ActionKind::Destroy, UnixSeconds(90))
    };
    let operation =
        Operation::begin(OperationId::from_parts(1, 1), &OpEvent::Started(Box::new(intent)));
    let failed =
        OpEvent::Failed { reason: String::new(), left_volume: None, tried: None, identity: None };
    let operation = operation.unwrap().after(&failed).unwrap();
    assert!(OwedThing::Running.is_of(&operation) && !OwedThing::Protection.is_of(&operation));
    let tasks = |kinds: &[&str]| TaskReading {
        unread: Vec::new(),
        tasks: kinds
            .iter()
            .map(|kind| ListedTask {
                upid: format!("UPID:pve1:00000457:00001111:00000064:{kind}:root@pam:")
                    .parse()
                    .unwrap(),
                state: TaskState::Done,
            })
            .collect(),
        filtered: None,
        node_now: UnixSeconds(200),
    };
    let mut doomed = waiting(mine.clone());
    let force = ConfigEntry {
        key: "mp0".to_owned(),
        value: Some("a:b,mp=/x".to_owned()),
        pending: None,
        delete: 2,
    };
    doomed.config = Ok(GuestConfig::from_pending(GuestKind::Lxc, [force]).into());
    let running = Guest { power: Power::Running, ..mine.clone() };
    let unclear = Guest { power: Power::Unknown, ..mine.clone() };
    let locked = Guest { lock: Some("backup".to_owned()), ..mine.clone() };
    for (name, guest, tasks, owed) in [
        ("stopped", &mine, tasks(&["vzstop:101"]), "now"),
        ("another's start", &mine, tasks(&["vzstart:102"]), "now"),
        ("started by somebody", &mine, tasks(&["vzstart:101"]), "nothing"),
        ("runs", &running, tasks(&[]), "nothing"),
        ("unclear", &unclear, tasks(&[]), "later"),
        ("locked", &locked, tasks(&[]), "later"),
        ("a deletion waits", &doomed, tasks(&[]), "later"),
        ("another guest", &guest(&[("mp0", "a:c,mp=/x")]), tasks(&[]), "nothing"),
    ] {
        let to = Owed::to(guest, &operation, OwedThing::Running, &tasks, &BTreeSet::new());
        let told = match to {
            Owed::Now => "now",
            Owed::Later(_) => "later",
            Owed::Nothing => "nothing",
        };
        assert_eq!(told, owed, "{name}");
    }
}

#[test]
fn less_than_what_was_signed_is_done_and_never_more() {
    let protected = guest(&[("protection", "1")]);
    let running = Guest { power: Power::Running, ..guest(&[("cores", "2")]) };
    let both = Guest { power: Power::Running, ..protected.clone() };
    let bare = guest(&[("cores", "2")]);
    for guest in [&bare, &protected, &running, &both] {
        let now = Destroy::of(guest);
        for (stop, unprotect) in [(false, false), (false, true), (true, false), (true, true)] {
            let params = Destroy { stop, unprotect, ..now.clone() }.params();
            let done = Destroy::signed(&params, guest);
            if now.stop && !stop || now.unprotect && !unprotect {
                let refused = done.map_err(|refusal| refusal.reason);
                assert_eq!(refused, Err(ReasonCode::Stale), "{now:?}, signed: {params:?}");
            } else {
                assert_eq!(done, Ok(now.clone()), "signed: {params:?}");
            }
        }
    }
    let signed = |name: &str, guest: &Guest| {
        let mut params = Destroy::of(guest).params();
        params.insert(name.to_owned(), "1".to_owned());
        Destroy::signed(&params, guest)
    };
    for name in ["force", "destroy-unreferenced-disks"] {
        let refused = signed(name, &bare).map_err(|refusal| refusal.reason);
        assert_eq!(refused, Err(ReasonCode::NotExecutable), "{name}");
    }
    assert!(signed("purge", &bare).unwrap().purge, "although it no longer is in HA");
    let refused = signed("stop", &waiting(running)).map_err(|refusal| refusal.reason);
    assert_eq!(refused, Err(ReasonCode::Stale), "a stop would apply what waits");
}

#[test]
fn after_an_unprotect_nothing_else_may_differ() {
    let before = guest(&[("cores", "2"), ("protection", "1"), ("mp0", "a:b,mp=/x")]);
    let leaves = |keys: &[(&str, &str)]| {
        hindrance(OpPhase::Act, &guest(keys), RequestBasis::Unprotected(&before)).is_none()
    };
    assert!(leaves(&[("cores", "2"), ("mp0", "a:b,mp=/x")]));
    assert!(leaves(&[("cores", "2"), ("mp0", "a:b,mp=/x"), ("protection", "0")]));
    assert!(!leaves(&[("cores", "4"), ("mp0", "a:b,mp=/x")]), "a value was changed");
    assert!(!leaves(&[("cores", "2")]), "a disk was taken off");
    assert!(!leaves(&[("cores", "2"), ("mp0", "a:b,mp=/x"), ("mp1", "a:c,mp=/y")]));
    assert!(!leaves(&[("cores", "2"), ("mp0", "a:b,mp=/x"), ("novel", "1")]), "an unknown key");
    assert!(!leaves(&[("cores", "2"), ("mp0", "a:b,mp=/x"), ("protection", "1")]));
    let unreadable = Guest { config: Err(Unreadable::new("gone", "")), ..before.clone() };
    assert!(!is_unchanged(&unreadable, RequestBasis::Unprotected(&unreadable)));
}
