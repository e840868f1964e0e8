//! The second leg of a guest's identity: what other people did to its number since an item was raised (invariant 12).
//!
//! A container that is made again can look the same in every part of its configuration; only Proxmox's task list tells.
//! Tasks are compared by their UPIDs with those that were listed when the item was raised, never by time: a node's clock
//! can be set. It must never say "the same guest" from a list that Proxmox filtered, or one that may have forgotten.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::action_registry::{ActionKind, Replacement};
use crate::actual::Guest;
use crate::id::{GuestKind, VmId};
use crate::identity::identity;
use crate::operation::{IdentityHash, UnixSeconds, Upid};
use crate::reason::{ReasonCode, Refusal};
use crate::sign::{ConfigDigest, FoundGuest};

/// The node's task list as it was read just now: running and ended tasks of all guests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskReading {
    /// The tasks, in any order.
    pub tasks: Vec<ListedTask>,
    /// Why Proxmox may have left out tasks of others; none if it shows them all.
    pub filtered: Option<String>,
    /// The node's time.
    pub node_now: UnixSeconds,
}

/// One task of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedTask {
    /// Its name.
    pub upid: Upid,
    /// How far it is.
    pub state: TaskState,
}

/// How far a listed task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskState {
    /// It runs.
    Running,
    /// It has done what it is for, perhaps with warnings.
    Done,
    /// It failed, was killed, or nobody knows how it ended.
    Undone,
}

impl ListedTask {
    /// It has ended, and so stands in the archive.
    fn has_ended(&self) -> bool {
        self.state != TaskState::Running
    }
}

/// The task list when an item was raised: what a later list is compared with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskListMark {
    /// The node's time.
    pub at: UnixSeconds,
    /// A task that had ended. Proxmox forgets the oldest first: while this one is listed, nothing after it is forgotten.
    pub task: Option<Upid>,
    /// The tasks that had replaced the guest by then. One that is not among them came later, whatever its time says.
    /// Of a number at which a guest is to be made: every task of it, and every copy of a guest.
    #[serde(default)]
    pub replaced: BTreeSet<Upid>,
}

/// More tasks than this are not written down for one number; without them nothing is removed unsigned.
const TASKS_OF_NUMBER_MAX: usize = 512;

/// The node's time is known in whole seconds; two cover the rounding.
const CLOCK_SLACK_SECONDS: u64 = 2;

impl TaskListMark {
    /// The list as it stands now. The guest must be read after it: what replaces it from here on is in the list, and
    /// while somebody is at it already, nobody can tell which guest an item would be about.
    pub fn of(reading: &TaskReading, vmid: VmId) -> Result<Self, Refusal> {
        if let Some(why) = &reading.filtered {
            return Err(unproven(why));
        }
        Self::as_shown(reading, vmid)
    }

    fn as_shown(reading: &TaskReading, vmid: VmId) -> Result<Self, Refusal> {
        let mut replaced = BTreeSet::new();
        for task in
            reading.tasks.iter().filter(|task| replaces(Replacement::OtherData, &task.upid, vmid))
        {
            if !task.has_ended() {
                return Err(somebody_at_it(&task.upid));
            }
            replaced.insert(task.upid.clone());
        }
        let ended = reading.tasks.iter().filter(|task| task.has_ended()).map(|task| &task.upid);
        let task = ended.max_by_key(|upid| (upid.started_at(), *upid)).cloned();
        Ok(Self { at: reading.node_now, task, replaced })
    }

    /// The list as it stands when a guest is about to be made. It must be read before the number is proved free: what
    /// somebody does there from here on is in the list, and not among these. A list that leaves tasks out, or is a little
    /// older, is good enough here: what it does not tell counts as somebody else's later, and whether the list is whole
    /// since is asked when a guest shall be removed by it.
    pub fn of_number(reading: &TaskReading, vmid: VmId) -> Result<Self, Refusal> {
        let mark = Self::as_shown(reading, vmid)?;
        let tasks = reading.tasks.iter();
        let counts = tasks.filter(|task| is_of_number(&task.upid, vmid) || is_copy(&task.upid));
        let replaced: BTreeSet<_> = counts.map(|task| task.upid.clone()).collect();
        if replaced.len() > TASKS_OF_NUMBER_MAX {
            return Err(unproven("there are too many tasks to tell new ones from"));
        }
        Ok(Self { replaced, ..mark })
    }

    /// Other people's tasks of the number since, and their copies, which are named after the guest that is copied and may
    /// have become this one; refused if the list does not tell. `what` is what the mark was kept for.
    pub fn foreign_tasks<'r>(
        &'r self,
        reading: &'r TaskReading,
        vmid: VmId,
        ours: &'r BTreeSet<Upid>,
        what: &str,
    ) -> Result<impl Iterator<Item = ForeignTask<'r>>, Refusal> {
        self.reaches_back(reading, what)?;
        let is_known = |upid: &Upid| self.replaced.contains(upid) || ours.contains(upid);
        let tasks = reading.tasks.iter().filter(move |task| !is_known(&task.upid));
        Ok(tasks.filter_map(move |task| {
            if is_of_number(&task.upid, vmid) {
                Some(ForeignTask::OfNumber(task))
            } else {
                is_copy(&task.upid).then_some(ForeignTask::Copy(task))
            }
        }))
    }

    /// Whether the list is whole since the mark.
    fn reaches_back(&self, reading: &TaskReading, what: &str) -> Result<(), Refusal> {
        if let Some(why) = &reading.filtered {
            return Err(unproven(why));
        }
        if reading.node_now.plus(CLOCK_SLACK_SECONDS) < self.at {
            let why = format!("the node's clock is before the moment at which {what}");
            return Err(Refusal::new(ReasonCode::Clock, why));
        }
        let listed = |upid: &Upid| reading.tasks.iter().any(|task| task.upid == *upid);
        if !self.task.as_ref().is_some_and(listed) {
            let why = format!("the node's task list does not reach back to when {what}");
            return Err(unproven(why));
        }
        Ok(())
    }

    /// Whether nobody but us replaced the guest since; otherwise why that cannot be said. `ours` are the tasks of our
    /// own journal.
    pub fn holds(
        &self,
        reading: &TaskReading,
        vmid: VmId,
        ours: &BTreeSet<Upid>,
    ) -> Result<(), Refusal> {
        self.reaches_back(reading, "the item was raised")?;
        match self.new_tasks(reading, Replacement::OtherData, vmid, ours).next() {
            Some(task) => {
                let (user, kind) = (task.upid.user(), task.upid.task_type());
                Err(unproven(format!("{user} ran {kind} on it after the item was raised")))
            }
            None => Ok(()),
        }
    }

    /// Whether somebody made another guest of it since, as far as the list tells; otherwise why that must be asked
    /// later. This is not enough to destroy a guest: a list that has forgotten says no.
    pub fn another_guest(
        &self,
        reading: &TaskReading,
        vmid: VmId,
        ours: &BTreeSet<Upid>,
    ) -> Result<bool, Refusal> {
        let mut tasks = self.new_tasks(reading, Replacement::OtherGuest, vmid, ours);
        if tasks.clone().any(|task| task.state == TaskState::Done) {
            return Ok(true);
        }
        if let Some(task) = tasks.find(|task| !task.has_ended()) {
            return Err(somebody_at_it(&task.upid));
        }
        reading.filtered.as_ref().map_or(Ok(false), |why| Err(unproven(why)))
    }

    /// Other people's tasks on the guest that replace at least so much of it, and that were not there when the item was raised.
    fn new_tasks<'r>(
        &'r self,
        reading: &'r TaskReading,
        least: Replacement,
        vmid: VmId,
        ours: &'r BTreeSet<Upid>,
    ) -> impl Iterator<Item = &'r ListedTask> + Clone {
        let is_new = |upid: &Upid| !self.replaced.contains(upid) && !ours.contains(upid);
        let tasks = reading.tasks.iter();
        tasks.filter(move |task| is_new(&task.upid) && replaces(least, &task.upid, vmid))
    }
}

/// The guest as found under its number, by both legs: what it is made of, and that nobody replaced it since the mark.
pub fn prove(
    guest: &Guest,
    mark: &TaskListMark,
    reading: &TaskReading,
    ours: &BTreeSet<Upid>,
) -> FoundGuest {
    let found = || {
        let (identity, digest) = identity_and_digest(guest)?;
        mark.holds(reading, guest.id.vmid, ours)?;
        Ok(FoundGuest::Guest { identity, digest })
    };
    found().unwrap_or_else(FoundGuest::Unproven)
}

/// What an act on a guest is bound to; refused if either cannot be told.
pub fn identity_and_digest(guest: &Guest) -> Result<(IdentityHash, ConfigDigest), Refusal> {
    let identity = identity(guest).map_err(|error| unproven(error.to_string()))?;
    let config = guest.config.as_ref().map_err(|error| unproven(error.to_string()))?;
    let no_digest = |_| unproven("Proxmox gave no digest of its configuration");
    Ok((identity, config.digest.parse().map_err(no_digest)?))
}

fn somebody_at_it(task: &Upid) -> Refusal {
    unproven(format!("{} runs {} on it", task.user(), task.task_type()))
}

fn unproven(why: impl Into<String>) -> Refusal {
    Refusal::new(ReasonCode::IdentityUnproven, why)
}

/// A task of somebody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForeignTask<'r> {
    /// It carries the number.
    OfNumber(&'r ListedTask),
    /// It copied some guest to a number that its name does not tell.
    Copy(&'r ListedTask),
}

fn is_of_number(task: &Upid, vmid: VmId) -> bool {
    task.task_id().parse() == Ok(vmid)
}

fn is_copy(task: &Upid) -> bool {
    GuestKind::ALL
        .iter()
        .any(|kind| ActionKind::Clone.task_types(*kind).contains(&task.task_type()))
}

/// Whether a task replaces at least so much of a guest. Tasks of both kinds count: a container's number may be taken by
/// a machine.
fn replaces(least: Replacement, task: &Upid, vmid: VmId) -> bool {
    // First, because a list has thousands of tasks of other guests.
    if !is_of_number(task, vmid) {
        return false;
    }
    let is_of = |kind: &ActionKind| {
        GuestKind::ALL.iter().any(|guest| kind.task_types(*guest).contains(&task.task_type()))
    };
    let mut kinds = ActionKind::ALL.into_iter().filter(|kind| kind.row().replaces >= least);
    kinds.any(|kind| is_of(&kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHER: &str = "root@pam";

    fn task(kind: &str, id: &str, started_at: u32) -> Upid {
        format!("UPID:pve1:00000457:00001111:{started_at:08X}:{kind}:{id}:{OTHER}:")
            .parse()
            .unwrap()
    }

    fn reading(tasks: &[&Upid], node_now: u64) -> TaskReading {
        let listed = |upid: &&Upid| ListedTask { upid: (*upid).clone(), state: TaskState::Done };
        let tasks = tasks.iter().map(listed).collect();
        TaskReading { tasks, filtered: None, node_now: UnixSeconds(node_now) }
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
        for kind in ["vzstart", "qmstop", "vzdump", "qmsnapshot", "qmconfig", "vncproxy", "hastart"]
        {
            assert_eq!(after(kind, "100"), None, "{kind}");
        }
    }

    #[test]
    fn x02_tasks_are_told_apart_by_name_and_not_by_time() {
        let (old, before) = (task("vzstart", "7", 5_000), task("vzcreate", "100", 4_000));
        let mark = TaskListMark::of(&reading(&[&old, &before], 5_100), vmid()).unwrap();
        let holds = |tasks: &[&Upid], now| {
            reason(mark.holds(&reading(tasks, now), vmid(), &BTreeSet::new()))
        };
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
        let (old, other) = (task("vzstart", "7", 5_000), task("vzstart", "7", 4_000));
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
        let (destroyed, made) = (task("vzdestroy", "100", 5_100), task("vzcreate", "100", 5_200));
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
        let (ended, at_it) = (task("vzstart", "7", 4_000), task("vzrestore", "100", 5_000));
        let mut list = reading(&[&ended, &at_it], 5_100);
        list.tasks[1].state = TaskState::Running;
        let refusal = TaskListMark::of(&list, vmid()).unwrap_err();
        assert_eq!(refusal.detail, "root@pam runs vzrestore on it");
        list.tasks[1].upid = task("vzdump", "100", 5_000);
        let mark = TaskListMark::of(&list, vmid()).unwrap();
        assert_eq!(mark.task, Some(ended), "a running task may be archived after what replaces");
    }
}
