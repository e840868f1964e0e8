//! What a task list proves of a guest, and what it does not.

use super::*;

const OTHER: &str = "root@pam";

fn task(kind: &str, id: &str, started_at: u32) -> Upid {
    format!("UPID:pve1:00000457:00001111:{started_at:08X}:{kind}:{id}:{OTHER}:").parse().unwrap()
}

fn reading(tasks: &[&Upid], node_now: u64) -> TaskReading {
    let listed = |upid: &&Upid| ListedTask { upid: (*upid).clone(), state: TaskState::Done };
    let tasks = tasks.iter().map(listed).collect();
    let unread = Vec::new();
    TaskReading { tasks, unread, filtered: None, node_now: UnixSeconds(node_now) }
}

fn unread(key: &str, runs: bool, about: Option<(&str, &str)>) -> UnreadTask {
    let about = about.map(|(task_type, task_id)| TaskAbout {
        task_type: task_type.to_owned(),
        task_id: task_id.to_owned(),
    });
    UnreadTask { key: (!key.is_empty()).then(|| key.to_owned()), runs, about }
}

fn vmid() -> VmId {
    "100".parse().unwrap()
}

fn reason(judged: Result<(), Refusal>) -> Option<ReasonCode> {
    judged.err().map(|refusal| refusal.reason)
}

#[test]
fn x16_every_task_that_replaces_a_guest_counts_and_no_other() {
    let old = task("vzstart", "100", 1_000);
    let mark = TaskListMark::of(&reading(&[&old], 1_100), vmid()).unwrap();
    let after = |kind: &str, id: &str| {
        let new = task(kind, id, 1_200);
        reason(mark.holds(&reading(&[&old, &new], 1_300), vmid(), &BTreeSet::new()))
    };
    for kind in [
        "vzcreate",
        "qmcreate",
        "vzrestore",
        "qmrestore",
        "vzdestroy",
        "qmdestroy",
        "vzrollback",
        "qmrollback",
        "vzmigrate",
        "qmigrate",
        "hamigrate",
        "vztemplate",
        "qmtemplate",
    ] {
        assert_eq!(after(kind, "100"), Some(ReasonCode::IdentityUnproven), "{kind}");
        assert_eq!(after(kind, "101"), None, "{kind} of another guest");
    }
    for kind in ["vzstart", "qmstop", "vzdump", "qmsnapshot", "qmconfig", "vncproxy", "hastart"] {
        assert_eq!(after(kind, "100"), None, "{kind}");
    }
}

#[test]
fn x02_tasks_are_told_apart_by_name_and_not_by_time() {
    let old = task("vzstart", "7", 5_000);
    let before = task("vzcreate", "100", 4_000);
    let mark = TaskListMark::of(&reading(&[&old, &before], 5_100), vmid()).unwrap();
    let holds =
        |tasks: &[&Upid], now| reason(mark.holds(&reading(tasks, now), vmid(), &BTreeSet::new()));
    assert_eq!(holds(&[&old, &before], 5_200), None, "what was there before is no news");
    for started_at in [1, 3_999, 4_001, 5_099, 5_100, 5_101, 900_000] {
        let new = task("vzdestroy", "100", started_at);
        let expected = Some(ReasonCode::IdentityUnproven);
        assert_eq!(holds(&[&old, &before, &new], 5_200), expected, "{started_at}");
        let ours = BTreeSet::from([new.clone()]);
        let list = reading(&[&old, &before, &new], 5_200);
        assert_eq!(reason(mark.holds(&list, vmid(), &ours)), None, "our own is no news");
    }
    assert_eq!(holds(&[&old, &before], 5_098), None, "whole seconds round");
    for now in [5_097, 1_500, 0] {
        assert_eq!(holds(&[&old, &before], now), Some(ReasonCode::Clock), "{now}");
    }
}

#[test]
fn a_list_that_is_filtered_or_has_forgotten_proves_nothing() {
    let old = task("vzstart", "7", 5_000);
    let other = task("vzstart", "7", 4_000);
    let whole = reading(&[&old], 5_100);
    let mark = TaskListMark::of(&whole, vmid()).unwrap();
    let holds = |list: &TaskReading| reason(mark.holds(list, vmid(), &BTreeSet::new()));
    assert_eq!(holds(&whole), None);
    let unproven = Some(ReasonCode::IdentityUnproven);
    // An older task proves nothing: its time may be of a clock that was set.
    assert_eq!(holds(&reading(&[&other], 5_200)), unproven);
    assert_eq!(holds(&reading(&[], 5_200)), unproven);
    let filtered = TaskReading { filtered: Some("no right".to_owned()), ..whole };
    assert_eq!(holds(&filtered), unproven);
    assert_eq!(reason(TaskListMark::of(&filtered, vmid()).map(drop)), unproven);
    let empty = TaskListMark::of(&reading(&[], 5_100), vmid()).unwrap();
    let list = reading(&[&old], 5_200);
    assert_eq!(reason(empty.holds(&list, vmid(), &BTreeSet::new())), unproven);
}

#[test]
fn what_is_owed_to_a_guest_is_not_given_to_the_next_one_under_its_number() {
    let old = task("vzstart", "7", 4_000);
    let mark = TaskListMark::of(&reading(&[&old], 5_000), vmid()).unwrap();
    let destroyed = task("vzdestroy", "100", 5_100);
    let made = task("vzcreate", "100", 5_200);
    let another = |list: &TaskReading, ours: &BTreeSet<Upid>| {
        mark.another_guest(list, vmid(), ours).map_err(|refusal| refusal.reason)
    };
    let nobody = BTreeSet::new();
    assert_eq!(another(&reading(&[&old], 5_300), &nobody), Ok(false));
    let mut list = reading(&[&old, &destroyed, &made], 5_300);
    assert_eq!(another(&list, &nobody), Ok(true));
    assert_eq!(another(&list, &BTreeSet::from([destroyed, made])), Ok(false), "our own tasks");
    list.tasks[1].state = TaskState::Undone;
    list.tasks[2].state = TaskState::Undone;
    assert_eq!(another(&list, &nobody), Ok(false), "nothing came of them");
    list.tasks[2].state = TaskState::Running;
    assert_eq!(another(&list, &nobody), Err(ReasonCode::IdentityUnproven), "nobody knows yet");
}

#[test]
fn nothing_is_raised_about_a_guest_somebody_is_replacing_and_only_ended_tasks_are_held_on_to() {
    let ended = task("vzstart", "7", 4_000);
    let at_it = task("vzrestore", "100", 5_000);
    let mut list = reading(&[&ended, &at_it], 5_100);
    list.tasks[1].state = TaskState::Running;
    let refusal = TaskListMark::of(&list, vmid()).unwrap_err();
    assert_eq!(refusal.detail, "root@pam runs vzrestore on it");
    list.tasks[1].upid = task("vzdump", "100", 5_000);
    let mark = TaskListMark::of(&list, vmid()).unwrap();
    assert_eq!(mark.task, Some(ended), "a running task may be archived after what replaces");
}

#[test]
fn y03_a_row_that_cannot_be_read_is_perhaps_about_the_guest_and_nothing_more() {
    let old = task("vzstart", "7", 4_000);
    let nobody = BTreeSet::new();
    let with = |rows: &[UnreadTask], node_now| {
        let unread = rows.to_vec();
        TaskReading { unread, ..reading(&[&old], node_now) }
    };
    let odd = unread("odd", false, None);
    // One that was there when the item was raised is known, as the tasks are.
    let mark = TaskListMark::of(&with(std::slice::from_ref(&odd), 5_000), vmid()).unwrap();
    let holds = |rows: &[UnreadTask]| reason(mark.holds(&with(rows, 5_100), vmid(), &nobody));
    assert_eq!(holds(std::slice::from_ref(&odd)), None);
    assert_eq!(holds(&[]), None, "it may be forgotten");
    for (row, counts) in [
        (unread("new", false, None), true),
        (unread("new", true, None), true),
        (unread("new", false, Some(("vzrestore", "100"))), true),
        (unread("new", false, Some(("vzrestore", "101"))), false),
        (unread("new", false, Some(("vzdump", "100"))), false),
        (unread("new", false, Some(("aptupdate", ""))), false),
    ] {
        let expected = counts.then_some(ReasonCode::IdentityUnproven);
        assert_eq!(holds(&[odd.clone(), row.clone()]), expected, "{row:?}");
    }
    // While one runs nobody can tell which guest an item would be about.
    let runs = with(&[unread("odd", true, None)], 5_000);
    assert!(TaskListMark::of(&runs, vmid()).is_err());
    let elsewhere = with(&[unread("odd", true, Some(("vzrestore", "7")))], 5_000);
    assert!(TaskListMark::of(&elsewhere, vmid()).is_ok());
    // What is owed to a guest is given once nothing runs: what came of an odd row is never known.
    let another = |rows: &[UnreadTask]| {
        mark.another_guest(&with(rows, 5_100), vmid(), &nobody).map_err(|no| no.reason)
    };
    assert_eq!(another(&[unread("new", false, None)]), Ok(false));
    assert_eq!(another(&[unread("new", true, None)]), Err(ReasonCode::IdentityUnproven));
    let foreign = |rows: &[UnreadTask]| {
        let list = with(rows, 5_100);
        let found = mark.foreign_tasks(&list, vmid(), &nobody, "it was made");
        found.unwrap().collect::<Vec<_>>() == [ForeignTask::Unread]
    };
    assert!(foreign(&[unread("new", false, None)]));
    assert!(foreign(&[unread("new", false, Some(("qmclone", "7")))]));
    assert!(!foreign(&[unread("new", false, Some(("vzdump", "7")))]) && !foreign(&[odd]));
}

#[test]
fn y06_a_mark_is_over_when_it_never_holds_again_and_one_of_today_would() {
    let nobody = BTreeSet::new();
    let old = task("vzstart", "7", 4_000);
    let mark = TaskListMark::of(&reading(&[&old], 5_000), vmid()).unwrap();
    let stands = |list: &TaskReading| mark.standing(list, vmid(), &nobody);
    assert_eq!(stands(&reading(&[&old], 5_100)), MarkStanding::Holds);
    let new = task("vzstart", "7", 5_050);
    let forgotten = reading(&[&new], 5_100);
    assert_eq!(stands(&forgotten), MarkStanding::Over(MarkEnd::Forgotten));
    // Nothing better can be raised: it waits.
    assert_eq!(stands(&reading(&[], 5_100)), MarkStanding::NotKnown);
    let hidden = TaskReading { filtered: Some("no right".to_owned()), ..forgotten.clone() };
    assert_eq!(stands(&hidden), MarkStanding::NotKnown);
    assert_eq!(stands(&reading(&[&new], 4_000)), MarkStanding::NotKnown, "the clock is set");
    let mut at_it = reading(&[&new, &task("vzrestore", "100", 5_060)], 5_100);
    assert_eq!(stands(&at_it), MarkStanding::Over(MarkEnd::Replaced));
    at_it.tasks[1].state = TaskState::Running;
    assert_eq!(stands(&at_it), MarkStanding::NotKnown, "nobody knows what comes of it");
    let odd = vec![unread("odd", false, None)];
    let odd = TaskReading { unread: odd, ..reading(&[&old], 5_100) };
    assert_eq!(stands(&odd), MarkStanding::Over(MarkEnd::Unread));
    let fresh = TaskListMark::of(&odd, vmid()).unwrap();
    assert_eq!(fresh.standing(&odd, vmid(), &nobody), MarkStanding::Holds);
    let empty = TaskListMark::of(&reading(&[], 5_000), vmid()).unwrap();
    let stands = empty.standing(&forgotten, vmid(), &nobody);
    assert_eq!(stands, MarkStanding::Over(MarkEnd::Forgotten), "raised upon an empty list");
}

/// The same odd row may stand for another task at every reading.
#[test]
fn y03_a_row_that_tells_nothing_of_its_task_is_never_known() {
    let old = task("vzstart", "102", 1_000);
    let before = reading(&[&old], 1_100);
    let mark = TaskListMark::of(&before, vmid()).unwrap();
    let mut now = before.clone();
    now.unread.push(unread("", false, None));
    assert!(mark.holds(&now, vmid(), &BTreeSet::new()).is_err(), "it may be anything");
    assert!(TaskListMark::of(&now, vmid()).is_err(), "and cannot be known later");
    let elsewhere = unread("", false, Some(("vzstart", "7")));
    let now = TaskReading { unread: vec![elsewhere], ..before };
    assert_eq!(mark.holds(&now, vmid(), &BTreeSet::new()), Ok(()), "it says that it is not");
}
