//! Which task is taken for an operation's own, and which never is.

use super::*;

fn search(operation: &Operation, tasks: Vec<Upid>) -> TaskSearch {
    let list = TaskList { tasks, complete_since: SENT.minus(1000) };
    search_tasks(operation, &list, OWNER, &BTreeSet::new())
}

#[test]
fn every_kind_finds_its_own_task_and_no_other_kinds() {
    for guest in GuestKind::ALL {
        for kind in ActionKind::ALL {
            let operation = operation(kind, guest);
            let leaves = leaves_task(&operation, OpPhase::Act);
            let own = own_task(kind, guest);
            let expected = if leaves { TaskSearch::One(own.clone()) } else { TaskSearch::None };
            assert_eq!(search(&operation, vec![own]), expected, "{guest} {kind}");
            let others: Vec<_> = ActionKind::ALL
                .into_iter()
                .flat_map(|other| GuestKind::ALL.map(|guest| own_task(other, guest)))
                .filter(|task| *task != own_task(kind, guest))
                .collect();
            assert_eq!(search(&operation, others), TaskSearch::None, "{guest} {kind}");
        }
    }
}

#[test]
fn a_task_matches_by_owner_guest_and_start_and_two_are_none() {
    let start = operation(ActionKind::Start, GuestKind::Lxc);
    let task = |after, user| upid("vzstart", "101", after, user);
    let own = task(3, OWNER);
    for (case, tasks, expected) in [
        ("ours", vec![own.clone()], TaskSearch::One(own.clone())),
        (
            "shown running and archived",
            vec![own.clone(), own.clone()],
            TaskSearch::One(own.clone()),
        ),
        (
            "ours and a human's",
            vec![own.clone(), task(3, "root@pam")],
            TaskSearch::One(own.clone()),
        ),
        ("the user without the token", vec![task(3, "agent@pve")], TaskSearch::None),
        ("another token of the user", vec![task(3, "agent@pve!other")], TaskSearch::None),
        ("two of our token", vec![own.clone(), task(9, OWNER)], TaskSearch::Ambiguous),
        ("too late for ours, yet alike", vec![task(61, OWNER)], TaskSearch::Ambiguous),
        (
            "ours, and a later one",
            vec![own.clone(), task(7200, OWNER)],
            TaskSearch::One(own.clone()),
        ),
        ("another guest", vec![upid("vzstart", "1011", 3, OWNER)], TaskSearch::None),
        (
            "the start through HA",
            vec![upid("hastart", "101", 3, OWNER)],
            TaskSearch::One(upid("hastart", "101", 3, OWNER)),
        ),
    ] {
        assert_eq!(search(&start, tasks), expected, "{case}");
    }
    let earlier = Upid::try_from(own.as_str().replace("65000003", "64FFFFFD")).unwrap();
    assert_eq!(search(&start, vec![earlier]), TaskSearch::None, "started before it was sent");
    let short = TaskList { tasks: vec![own.clone()], complete_since: SENT };
    assert_eq!(search_tasks(&start, &short, OWNER, &BTreeSet::new()), TaskSearch::TooShort);
    let list = TaskList { tasks: vec![own.clone(), task(4, OWNER)], complete_since: SENT.minus(9) };
    let claimed = BTreeSet::from([task(4, OWNER)]);
    assert_eq!(search_tasks(&start, &list, OWNER, &claimed), TaskSearch::One(own));
}

#[test]
fn a_clone_is_found_under_its_source_and_a_move_under_its_giver() {
    let clone = operation(ActionKind::Clone, GuestKind::Qemu);
    let of = |task_type, id| upid(task_type, id, 1, OWNER);
    assert_eq!(search(&clone, vec![of("qmclone", "101")]), TaskSearch::None);
    assert_eq!(search(&clone, vec![of("qmclone", "9000")]), TaskSearch::One(of("qmclone", "9000")));
    let shift = operation(ActionKind::MoveVolume, GuestKind::Lxc);
    for (id, ours) in [
        ("101", true),
        ("101-mp0>102-mp0", true),
        ("102-mp0>101-mp0", false),
        ("1010-mp0>1-mp0", false),
    ] {
        let task = of("move_volume", id);
        let expected = if ours { TaskSearch::One(task.clone()) } else { TaskSearch::None };
        assert_eq!(search(&shift, vec![task]), expected, "{id}");
    }
}
