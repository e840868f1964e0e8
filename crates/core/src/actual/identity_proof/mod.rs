//! The second leg of a guest's identity: what other people did to its number since an item was raised (invariant 12).
//!
//! A container that is made again can look the same in every part of its configuration; only Proxmox's task list tells.
//! Tasks are compared by their UPIDs with those that were listed when the item was raised, never by time: a node's clock
//! can be set. It must never say "the same guest" from a list that Proxmox filtered, or one that may have forgotten.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::action_registry::{ActionKind, Replacement};
use crate::actual::Guest;
use crate::actual::identity::identity;
use crate::model::id::{GuestKind, VmId};
use crate::model::reason::{ReasonCode, Refusal};
use crate::operate::operation::{IdentityHash, UnixSeconds, Upid};
use crate::sign::{ConfigDigest, FoundGuest};

/// The node's task list as it was read just now: running and ended tasks of all guests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskReading {
    /// The tasks, in any order.
    pub tasks: Vec<ListedTask>,
    /// Rows that could not be read: tasks of others, perhaps about any guest.
    pub unread: Vec<UnreadTask>,
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

/// A row of the list that could not be read. It counts as somebody else's task, perhaps about this guest, and as
/// nothing more: it is nobody's proof, and the rows beside it count as ever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadTask {
    /// The hash of the whole row: the same row has the same one at every reading, until its task ends. None if nothing in
    /// it tells it from another task's: such a row is never known from an earlier reading.
    pub key: Option<String>,
    /// Whether it says of itself that it runs.
    pub runs: bool,
    /// What it does and to what, where the row says that beside the name that could not be read.
    pub about: Option<TaskAbout>,
}

impl UnreadTask {
    /// Whether it may be one of these tasks.
    fn may_be(&self, is_one: impl Fn(&TaskAbout) -> bool) -> bool {
        self.about.as_ref().is_none_or(is_one)
    }

    /// Whether it may be about this number, or a copy of a guest to it.
    pub fn may_concern(&self, vmid: VmId) -> bool {
        self.may_be(|about| is_of_number(&about.task_id, vmid) || is_copy(&about.task_type))
    }

    fn may_replace(&self, least: Replacement, vmid: VmId) -> bool {
        self.may_be(|about| replaces(least, (&about.task_type, &about.task_id), vmid))
    }
}

/// What a task does, and to what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskAbout {
    /// `vzstart`, `qmclone`.
    pub task_type: String,
    /// Mostly a guest number.
    pub task_id: String,
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
    /// The rows that could not be read and may have been such tasks, by their keys.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub unread: BTreeSet<String>,
}

/// How the mark of an item stands by a later list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MarkStanding {
    /// Nobody but us replaced the guest since.
    Holds,
    /// It never will hold again, and a mark of today would: the item is over.
    Over(MarkEnd),
    /// Whether it holds cannot be told now; perhaps later.
    NotKnown,
}

/// Why a mark never holds again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkEnd {
    /// The list has forgotten the moment at which the item was raised.
    Forgotten,
    /// A task came that cannot be read, and that may have replaced the guest.
    Unread,
    /// Somebody else replaced the guest.
    Replaced,
}

impl MarkEnd {
    /// Why, for people.
    pub fn why(self) -> &'static str {
        match self {
            Self::Forgotten => "the task list no longer reaches back to when the item was raised",
            Self::Unread => {
                "the task list shows a task that cannot be read and came after the item was raised"
            }
            Self::Replaced => "another user replaced the guest after the item was raised",
        }
    }
}

/// More tasks than this are not written down for one number; without them nothing is removed unsigned.
const TASKS_OF_NUMBER_MAX: usize = 512;

/// More rows than this that cannot be read are not written down for one item.
const UNREAD_ROWS_MAX: usize = 512;

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
        for task in reading.tasks.iter().filter(|task| task.replaces(Replacement::OtherData, vmid))
        {
            if !task.has_ended() {
                return Err(somebody_at_it(&task.upid));
            }
            replaced.insert(task.upid.clone());
        }
        let unread: Vec<&UnreadTask> = reading
            .unread
            .iter()
            .filter(|task| task.may_replace(Replacement::OtherData, vmid))
            .collect();
        if unread.iter().any(|task| task.runs) {
            return Err(unproven("a task runs that cannot be read, perhaps on it"));
        }
        let unread = keys(unread.into_iter())?;
        let ended = reading.tasks.iter().filter(|task| task.has_ended()).map(|task| &task.upid);
        let task = ended.max_by_key(|upid| (upid.started_at(), *upid)).cloned();
        Ok(Self { at: reading.node_now, task, replaced, unread })
    }

    /// The list as it stands when a guest is about to be made. It must be read before the number is proved free: what
    /// somebody does there from here on is in the list, and not among these. A list that leaves tasks out, or is a little
    /// older, is good enough here: what it does not tell counts as somebody else's later, and whether the list is whole
    /// since is asked when a guest shall be removed by it.
    pub fn of_number(reading: &TaskReading, vmid: VmId) -> Result<Self, Refusal> {
        let mark = Self::as_shown(reading, vmid)?;
        let tasks = reading.tasks.iter();
        let counts = tasks.filter(|task| task.is_of_number(vmid) || task.is_copy());
        let replaced: BTreeSet<_> = counts.map(|task| task.upid.clone()).collect();
        if replaced.len() > TASKS_OF_NUMBER_MAX {
            return Err(unproven("there are too many tasks to tell new ones from"));
        }
        let unread = keys(reading.unread.iter().filter(|task| task.may_concern(vmid)))?;
        Ok(Self { replaced, unread, ..mark })
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
        let tasks = tasks.filter_map(move |task| {
            if task.is_of_number(vmid) {
                Some(ForeignTask::OfNumber(task))
            } else {
                task.is_copy().then_some(ForeignTask::Copy(task))
            }
        });
        let unread = self.new_unread(reading).filter(move |task| task.may_concern(vmid));
        Ok(tasks.chain(unread.map(|_| ForeignTask::Unread)))
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
        if !self.is_listed(reading) {
            let why = format!("the node's task list does not reach back to when {what}");
            return Err(unproven(why));
        }
        Ok(())
    }

    fn is_listed(&self, reading: &TaskReading) -> bool {
        let listed = |upid: &Upid| reading.tasks.iter().any(|task| task.upid == *upid);
        self.task.as_ref().is_some_and(listed)
    }

    /// How the mark stands by a list of now. Over is one whose item nobody can ever execute, although a mark of now would
    /// do; what may pass (a right that was taken away, a clock, a task that runs) ends nothing.
    pub fn standing(
        &self,
        reading: &TaskReading,
        vmid: VmId,
        ours: &BTreeSet<Upid>,
    ) -> MarkStanding {
        if self.holds(reading, vmid, ours).is_ok() {
            return MarkStanding::Holds;
        }
        let would_do = Self::of(reading, vmid).is_ok_and(|fresh| fresh.task.is_some());
        if !would_do || reading.node_now.plus(CLOCK_SLACK_SECONDS) < self.at {
            return MarkStanding::NotKnown;
        }
        let replaced = Replacement::OtherData;
        MarkStanding::Over(if self.new_tasks(reading, replaced, vmid, ours).next().is_some() {
            MarkEnd::Replaced
        } else if self.is_listed(reading) {
            MarkEnd::Unread
        } else {
            MarkEnd::Forgotten
        })
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
        if let Some(task) = self.new_tasks(reading, Replacement::OtherData, vmid, ours).next() {
            let user = task.upid.shown_user();
            let kind = task.upid.task_type();
            return Err(unproven(format!("{user} ran {kind} on it after the item was raised")));
        }
        let may_replace = |task: &&UnreadTask| task.may_replace(Replacement::OtherData, vmid);
        if self.new_unread(reading).any(|task| may_replace(&task)) {
            let why = "a task that cannot be read came after the item was raised, perhaps on it";
            return Err(unproven(why));
        }
        Ok(())
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
        // One that has ended does not say what came of it, and would keep for ever what is owed from its guest.
        let mut unread = self.new_unread(reading).filter(|task| task.runs);
        if unread.any(|task| task.may_replace(Replacement::OtherGuest, vmid)) {
            return Err(unproven("a task runs that cannot be read, perhaps on it"));
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
        tasks.filter(move |task| is_new(&task.upid) && task.replaces(least, vmid))
    }

    /// Rows that could not be read and were not there when the item was raised. One whose task has ended since is
    /// another row: what it did meanwhile is not known.
    fn new_unread<'r>(&'r self, reading: &'r TaskReading) -> impl Iterator<Item = &'r UnreadTask> {
        let is_known =
            |task: &&UnreadTask| task.key.as_ref().is_some_and(|key| self.unread.contains(key));
        reading.unread.iter().filter(move |task| !is_known(task))
    }
}

fn keys<'u>(rows: impl Iterator<Item = &'u UnreadTask>) -> Result<BTreeSet<String>, Refusal> {
    let Some(keys) = rows.map(|row| row.key.clone()).collect::<Option<BTreeSet<String>>>() else {
        return Err(unproven("a row of the task list does not tell which task it is"));
    };
    if keys.len() > UNREAD_ROWS_MAX {
        return Err(unproven("too many rows of the task list cannot be read"));
    }
    Ok(keys)
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
    unproven(format!("{} runs {} on it", task.shown_user(), task.task_type()))
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
    /// Its row cannot be read, and may be either.
    Unread,
}

impl ListedTask {
    fn is_of_number(&self, vmid: VmId) -> bool {
        is_of_number(self.upid.task_id(), vmid)
    }

    fn is_copy(&self) -> bool {
        is_copy(self.upid.task_type())
    }

    fn replaces(&self, least: Replacement, vmid: VmId) -> bool {
        replaces(least, (self.upid.task_type(), self.upid.task_id()), vmid)
    }
}

fn is_of_number(task_id: &str, vmid: VmId) -> bool {
    task_id.parse() == Ok(vmid)
}

fn is_copy(task_type: &str) -> bool {
    GuestKind::ALL.iter().any(|kind| ActionKind::Clone.task_types(*kind).contains(&task_type))
}

/// Whether a task, by its type and id, replaces at least so much of a guest. Tasks of both kinds count: a container's
/// number may be taken by a machine.
fn replaces(least: Replacement, (task_type, task_id): (&str, &str), vmid: VmId) -> bool {
    // First, because a list has thousands of tasks of other guests.
    if !is_of_number(task_id, vmid) {
        return false;
    }
    let is_of = |kind: &ActionKind| {
        GuestKind::ALL.iter().any(|guest| kind.task_types(*guest).contains(&task_type))
    };
    let mut kinds = ActionKind::ALL.into_iter().filter(|kind| kind.row().replaces >= least);
    kinds.any(|kind| is_of(&kind))
}

#[cfg(test)]
mod tests;
