//! Names the task that holds a guest's lock: `waiting for vzdump of lxc/101, 34 %`; or that nobody does any more.
//!
//! Called once a pass, after planning. It only reads, and only what a person is told depends on it: where nothing can
//! be found out, the plan keeps PVE's own word for the lock.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use evenkeel_core::actual::Snapshot;
use evenkeel_core::model::id::GuestId;
use evenkeel_core::operate::operation::Upid;
use evenkeel_core::plan::{Action, GuestPlan, Held, Plan};

use crate::left_locks;
use crate::pve::wire::LogLine;
use crate::pve::{Client, TaskFilter, TaskSource};

/// How many tasks' logs are read in a pass: a node runs few at a time, and a backup of all guests is one task.
const LOGS_READ_MAX: usize = 4;

/// How many running tasks are looked at; PVE keeps the running ones among its newest.
const TASKS_LISTED_MAX: u32 = 500;

/// How many lines of a log are read. A backup writes a line a percent, or one a few seconds.
const LOG_LINES_MAX: u32 = 5_000;

/// Names the task behind every lock of the plan, as far as it can be found.
pub(crate) async fn name_lock_owners(client: &Client, plan: &mut Plan, actual: &Snapshot) {
    let lock_of = |guest: GuestId| actual.guests.get(&guest.vmid)?.lock.as_deref();
    let is_shut = |guest: &GuestPlan| guest.busy.is_some() && lock_of(guest.guest).is_some();
    let is_held = |action: &Action| matches!(action.held, Some(Held::Locked { .. }));
    if !plan.guests.iter().any(is_shut) && !plan.actions().any(is_held) {
        return;
    }
    let filter = TaskFilter {
        source: Some(TaskSource::Active),
        limit: Some(TASKS_LISTED_MAX),
        ..TaskFilter::default()
    };
    let Ok(listed) = client.tasks(&filter).await else {
        return;
    };
    let running: Vec<Upid> = listed
        .rows
        .into_iter()
        .filter(|task| task.exit_status().is_none())
        .map(|task| task.upid)
        .collect();
    // An operation that waits for a lock to go says so: it may be one that never goes by itself.
    for guest in plan.guests.iter_mut().filter(|guest| is_shut(guest)) {
        let id = guest.guest;
        let lock = lock_of(guest.guest).unwrap_or_default();
        let advice = left_locks::advice(client, &running, id, lock).await;
        if let Some(busy) = &mut guest.busy {
            busy.left = advice;
        }
    }
    let mut progress: BTreeMap<Upid, Option<u8>> = BTreeMap::new();
    let mut advice: BTreeMap<GuestId, Option<String>> = BTreeMap::new();
    for action in plan.guests.iter_mut().flat_map(|guest| &mut guest.actions) {
        let guest = action.guest;
        let Some(Held::Locked { lock, by, left }) = &mut action.held else {
            continue;
        };
        let Some(task) = owner(&running, guest, lock) else {
            let told = match advice.entry(guest) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(free) => {
                    free.insert(left_locks::advice(client, &running, guest, lock).await)
                }
            };
            left.clone_from(told);
            continue;
        };
        if !progress.contains_key(task) && progress.len() < LOGS_READ_MAX {
            let log = client.task_log(task, 0, LOG_LINES_MAX).await.unwrap_or_default();
            progress.insert(task.clone(), percent(&log));
        }
        *by = Some(sentence(task, guest, progress.get(task).copied().flatten()));
    }
}

/// The running task that is about this guest; a backup of several guests names none of them.
fn owner<'a>(running: &'a [Upid], guest: GuestId, lock: &str) -> Option<&'a Upid> {
    let vmid = guest.vmid.to_string();
    running.iter().find(|task| task.task_id() == vmid).or_else(|| {
        let backs_up_many =
            |task: &&Upid| task.task_type() == "vzdump" && task.task_id().is_empty();
        running.iter().find(backs_up_many).filter(|_| lock == "backup")
    })
}

fn sentence(task: &Upid, guest: GuestId, percent: Option<u8>) -> String {
    let what = task.task_type();
    match percent {
        Some(percent) if !task.task_id().is_empty() => format!("{what} of {guest}, {percent} %"),
        // How far a backup of many is with its present guest says nothing about this one.
        Some(_) | None => format!("{what} of {guest}"),
    }
}

/// The last percentage a log tells, such as in `INFO:  34% (3.4 GiB of 10.0 GiB) in 12s`.
pub(crate) fn percent(log: &[LogLine]) -> Option<u8> {
    log.iter().rev().filter_map(|line| line.t.as_deref()).find_map(|text| {
        let (before, _) = text.rsplit_once('%')?;
        let digits = |c: char| c.is_ascii_digit() || c == '.';
        let number = &before[before.trim_end_matches(digits).len()..];
        let whole = number.split('.').next()?;
        whole.parse().ok().filter(|percent| *percent <= 100)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(lines: &[&str]) -> Vec<LogLine> {
        lines.iter().map(|text| LogLine { n: None, t: Some((*text).to_owned()) }).collect()
    }

    fn task(kind: &str, id: &str) -> Upid {
        format!("UPID:pve1:0000ABCD:00112233:6553F100:{kind}:{id}:root@pam:").parse().unwrap()
    }

    #[test]
    fn the_last_percentage_of_a_log_counts() {
        let backup =
            ["INFO: starting", "INFO:   3% (1 GiB)", "INFO:  34% (3.4 GiB) in 12s", "INFO: x"];
        assert_eq!(percent(&log(&backup)), Some(34));
        assert_eq!(percent(&log(&["transferred 1.0 GiB of 8.0 GiB (12.50%)"])), Some(12));
        for nothing in [&["no content"][..], &["%"], &["400% of nothing"], &["x%y"], &[]] {
            assert_eq!(percent(&log(nothing)), None, "{nothing:?}");
        }
    }

    #[test]
    fn the_task_of_the_guest_itself_is_named_before_a_backup_of_many() {
        let guest: GuestId = "lxc/101".parse().unwrap();
        let many = task("vzdump", "");
        let own = task("vzmigrate", "101");
        let other = task("vzdump", "102");
        let both = [other.clone(), many.clone(), own.clone()];
        assert_eq!(owner(&both, guest, "backup"), Some(&own));
        assert_eq!(owner(&[other.clone(), many.clone()], guest, "backup"), Some(&many));
        assert_eq!(owner(&[other.clone(), many.clone()], guest, "snapshot"), None);
        assert_eq!(owner(&[other], guest, "backup"), None);
        let one = task("vzdump", "101");
        assert_eq!(sentence(&one, guest, Some(34)), "vzdump of lxc/101, 34 %");
        assert_eq!(sentence(&many, guest, Some(34)), "vzdump of lxc/101");
    }
}
