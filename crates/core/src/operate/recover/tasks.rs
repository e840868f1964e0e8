//! Which PVE task could be an operation's own.
//!
//! Recovery asks when an answer was lost, and once more before it trusts a recorded task. A task
//! belongs to an operation by type, guest, owner and start; a list that may have forgotten it proves
//! nothing, and two candidates are none.

use std::collections::BTreeSet;

use super::{LATE_FORK_SECONDS, TaskSearch};
use crate::action_registry::{ActionKind, TaskSubject};
use crate::actual::identity_proof::TaskReading;
use crate::model::id::{GuestKind, VmId};
use crate::operate::operation::{OpPhase, Operation, UnixSeconds, Upid};

/// The node's clock is known from an answer's `Date`, in whole seconds: two cover the rounding.
const CLOCK_SLACK_SECONDS: u64 = 2;

/// A task list as it was read: running and archived tasks of all guests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskList {
    /// The tasks, in any order. A vmid filter must not have been used: it misses moves between guests.
    pub tasks: Vec<Upid>,
    /// Every task that started at or after this moment is in the list (node's clock).
    pub complete_since: UnixSeconds,
}

/// A node keeps its last five hundred tasks or more: a list that is shorter has never lost one.
const TASKS_NEVER_FORGOTTEN: usize = 400;

impl TaskList {
    /// What a reading says of our own tasks, which Proxmox shows to every token. How many tasks the node has kept is
    /// known only of a list that shows everybody's: a filtered one is as long as we were busy.
    pub fn of(reading: TaskReading) -> Self {
        // A row that could not be read is nobody's proof, but it takes a place in the node's memory.
        let TaskReading { tasks, unread, filtered, node_now: _ } = reading;
        let rows = tasks.len() + unread.len();
        let tasks: Vec<Upid> = tasks.into_iter().map(|task| task.upid).collect();
        let oldest = tasks.iter().map(Upid::started_at).min();
        let complete_since = match (oldest, filtered) {
            (_, None) if rows <= TASKS_NEVER_FORGOTTEN => UnixSeconds(0),
            (Some(oldest), _) => oldest,
            (None, _) => UnixSeconds(u64::MAX),
        };
        Self { tasks, complete_since }
    }
}

/// Searches the task of an operation that has none recorded. `owner` is our `user@realm!token`;
/// `claimed` holds the tasks that our other operations have recorded, which cannot be this one's:
/// clones of one template by one agent look alike but for that.
pub fn search_tasks(
    operation: &Operation,
    list: &TaskList,
    owner: &str,
    claimed: &BTreeSet<Upid>,
) -> TaskSearch {
    let Some((_, sent_at)) = operation.sent() else {
        return TaskSearch::None;
    };
    if list.complete_since > earliest(sent_at) {
        return TaskSearch::TooShort;
    }
    let latest = sent_at.plus(LATE_FORK_SECONDS);
    // A list shows a task twice while it moves from the running to the archived ones.
    let candidates: BTreeSet<&Upid> = list
        .tasks
        .iter()
        .filter(|upid| is_candidate(operation, owner, upid) && !claimed.contains(upid))
        .collect();
    let mut in_window = candidates.iter().filter(|upid| upid.started_at() <= latest);
    match (in_window.next(), in_window.next()) {
        (Some(one), None) => TaskSearch::One(Upid::clone(one)),
        (None, _) if candidates.is_empty() => TaskSearch::None,
        // One that came too late may still be ours; ignoring it would open the lane beside it.
        (None, _) | (Some(_), Some(_)) => TaskSearch::Ambiguous,
    }
}

/// Whether a task could be the operation's own by its type, guest and owner. While such a one runs, the request may
/// still take effect, whenever the node's clock says that it began.
pub fn could_be_ours(operation: &Operation, owner: &str, upid: &Upid) -> bool {
    operation.sent().is_some_and(|(request, _)| {
        upid.user() == owner && could_be_task_of(operation, request, upid)
    })
}

/// The same, and not begun before the request left.
fn is_candidate(operation: &Operation, owner: &str, upid: &Upid) -> bool {
    let begun = |(_, sent_at)| upid.started_at() >= earliest(sent_at);
    operation.sent().is_some_and(begun) && could_be_ours(operation, owner, upid)
}

fn earliest(sent_at: UnixSeconds) -> UnixSeconds {
    sent_at.minus(CLOCK_SLACK_SECONDS)
}

/// Whether a task has the type and the guest that this request of the operation would give it.
pub fn could_be_task_of(operation: &Operation, request: OpPhase, upid: &Upid) -> bool {
    let intent = &operation.intent;
    let types = task_types(intent.kind, intent.guest.kind, request);
    if !types.contains(&upid.task_type()) {
        return false;
    }
    let vmid = intent.guest.vmid;
    let task_id = upid.task_id();
    let subject = match request {
        OpPhase::Act => intent.kind.row().tasks.subject,
        OpPhase::Stop | OpPhase::Backup | OpPhase::Unprotect => TaskSubject::Guest,
    };
    match subject {
        TaskSubject::Guest => is_number(task_id, vmid),
        TaskSubject::CloneSource => {
            intent.clone_source.is_some_and(|source| is_number(task_id, source))
        }
        TaskSubject::VolumeGiver => {
            let giver = task_id.split_once('>').and_then(|(from, _)| from.split_once('-'));
            is_number(giver.map_or(task_id, |(number, _)| number), vmid)
        }
    }
}

/// Whether a request leaves a task at all. Configuration writes of containers do not.
pub fn leaves_task(operation: &Operation, request: OpPhase) -> bool {
    let intent = &operation.intent;
    !task_types(intent.kind, intent.guest.kind, request).is_empty()
}

fn is_number(text: &str, vmid: VmId) -> bool {
    text.parse() == Ok(vmid)
}

/// The types of task a request can leave.
fn task_types(kind: ActionKind, guest: GuestKind, request: OpPhase) -> &'static [&'static str] {
    match request {
        OpPhase::Stop => ActionKind::Stop.task_types(guest),
        OpPhase::Backup => ActionKind::Backup.task_types(guest),
        OpPhase::Unprotect => ActionKind::SetConfig.task_types(guest),
        OpPhase::Act => kind.task_types(guest),
    }
}
