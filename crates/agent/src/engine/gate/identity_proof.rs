//! Reads what tells whether a guest is still the one an item was raised for. Core's `identity_proof` judges.
//!
//! Called when an item is raised, in the lane before a signed act begins, and before each request of a destroy. The
//! token's rights are asked each time and never remembered: Proxmox hides other people's tasks without a word from who
//! may not see them.

use std::collections::BTreeSet;

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::actual::Guest;
use evenkeel_core::actual::identity_proof::{
    ListedTask, TaskAbout, TaskListMark, TaskReading, TaskState, UnreadTask, prove,
};
use evenkeel_core::gate::rights::{AUDIT, lacks_quorum, lacks_tasks};
use evenkeel_core::model::id::VmId;
use evenkeel_core::model::reason::{ReasonCode, Refusal};
use evenkeel_core::operate::operation::{UnixSeconds, Upid};
use evenkeel_core::sign::{FoundGuest, PayloadHash};

use crate::engine::EngineContext;
use crate::engine::error::Fatal;
use crate::observe::has_quorum;
use crate::pve::error::{Error, ErrorClass};
use crate::pve::list::UnreadRow;
use crate::pve::task::ExitStatus;
use crate::pve::wire::{RUNNING, TaskEntry};
use crate::pve::{Client, TaskFilter, TaskSource};

/// Both index files of a node hold some 1,500 tasks; more are not there to be listed.
pub(in crate::engine) const TASKS_LISTED_MAX: u32 = 5_000;

/// Where the task list stands now. The guest must be read after it.
pub(in crate::engine) async fn mark(
    context: &EngineContext,
    vmid: VmId,
) -> Result<TaskListMark, Refusal> {
    TaskListMark::of(&read_tasks(context).await?, vmid)
}

/// Where the task list stands before a guest is made. The number must be proved free after it. Without a list there is no
/// mark, and then nothing is ever removed by it; whether a later list is whole since the mark is asked then.
pub(in crate::engine) async fn mark_number(
    context: &EngineContext,
    vmid: VmId,
) -> Option<TaskListMark> {
    let reading = context.shared.tasks(context).await.ok()?;
    TaskListMark::of_number(&reading, vmid).ok()
}

/// The guest as found, if it can be told from every other.
pub(in crate::engine) async fn prove_identity(
    context: &EngineContext,
    guest: &Guest,
    mark: &TaskListMark,
) -> Result<FoundGuest, Fatal> {
    let reading = match read_tasks(context).await {
        Ok(reading) => reading,
        Err(refusal) => return Ok(FoundGuest::Unproven(refusal)),
    };
    Ok(prove(guest, mark, &reading, &our_tasks(context).await?))
}

/// Whether the end of this act could be proven; otherwise it must not begin. That a guest is gone is proved by its
/// number, and only a node with quorum knows whether that is free.
pub(in crate::engine) async fn end_is_provable(
    context: &EngineContext,
    op: ActionKind,
) -> Result<(), Refusal> {
    if op != ActionKind::Destroy {
        return Ok(());
    }
    let unproven = |why: String| Refusal::new(ReasonCode::IdentityUnproven, why);
    match context.client.cluster_status().await {
        Ok(entries) if has_quorum(&entries) => Ok(()),
        Ok(_) => Err(unproven("the cluster has no quorum".to_owned())),
        Err(error) if error.class() == Some(&ErrorClass::Permission) => {
            Err(Refusal::new(ReasonCode::Rights, lacks_quorum()))
        }
        Err(error) => Err(unproven(format!("quorum cannot be read: {error}"))),
    }
}

/// The whole task list. The right to see all of it is asked for before and after: who loses or gets it meanwhile is
/// shown a part.
pub(in crate::engine) async fn read_tasks(context: &EngineContext) -> Result<TaskReading, Refusal> {
    list_tasks(&context.client, || context.node_now()).await
}

/// The same for who has no engine. The node's time is asked for once the list is read.
pub(in crate::engine) async fn list_tasks(
    client: &Client,
    node_now: impl Fn() -> UnixSeconds,
) -> Result<TaskReading, Refusal> {
    let unread = |error: Error| {
        let why = format!("the task list cannot be read: {error}");
        Refusal::new(ReasonCode::IdentityUnproven, why)
    };
    let saw_all = sees_all_tasks(client).await.map_err(unread)?;
    let shown = tasks_as_shown(client, &node_now).await.map_err(unread)?;
    let sees_all = saw_all && sees_all_tasks(client).await.map_err(unread)?;
    Ok(TaskReading {
        filtered: (!sees_all).then(|| lacks_tasks(client.node())),
        node_now: node_now(),
        ..shown
    })
}

/// The task list as Proxmox shows it to this token, which may leave out tasks of others.
pub(in crate::engine) async fn tasks_as_shown(
    client: &Client,
    node_now: impl Fn() -> UnixSeconds,
) -> Result<TaskReading, Error> {
    let source = Some(TaskSource::All);
    let limit = Some(TASKS_LISTED_MAX);
    let filter = TaskFilter { source, limit, ..TaskFilter::default() };
    let listed = client.tasks(&filter).await?;
    let task = |entry: TaskEntry| {
        let state = match entry.exit_status() {
            None => TaskState::Running,
            Some(ExitStatus::Ok | ExitStatus::Warnings(_)) => TaskState::Done,
            Some(
                ExitStatus::Failed(_) | ExitStatus::UnexpectedStatus | ExitStatus::Unreadable(_),
            ) => TaskState::Undone,
        };
        ListedTask { state, upid: entry.upid }
    };
    let filtered = "nobody asked whether the list shows all tasks";
    Ok(TaskReading {
        tasks: listed.rows.into_iter().map(task).collect(),
        unread: listed.unread.iter().map(unread_task).collect(),
        filtered: Some(filtered.to_owned()),
        node_now: node_now(),
    })
}

/// A row that could not be read. Its name tells it from others if it has one, and otherwise everything in it.
pub(in crate::engine) fn unread_task(row: &UnreadRow) -> UnreadTask {
    let runs = row.text("status") == Some(RUNNING);
    // A process and the moment it began tell a task from every other; a row without them may stand for any.
    let is_one = row.text("pid").is_some() && row.text("starttime").is_some();
    let key = is_one.then(|| PayloadHash::of(format!("{runs} {}", row.whole()).as_bytes()));
    let key = key.map(|key| key.to_string());
    let about = row.text("type").zip(row.text("id"));
    let about = about.map(|(task_type, task_id)| TaskAbout {
        task_type: task_type.to_owned(),
        task_id: task_id.to_owned(),
    });
    UnreadTask { key, runs, about }
}

async fn sees_all_tasks(client: &Client) -> Result<bool, Error> {
    let path = format!("/nodes/{}", client.node());
    client.may(&path, AUDIT).await
}

/// The tasks of our own journal.
pub(in crate::engine) async fn our_tasks(context: &EngineContext) -> Result<BTreeSet<Upid>, Fatal> {
    context.journal.read(|state, _| state.ledger().tasks()).await.map_err(Fatal::Journal)
}
