//! Whether a guest is still the one an item was raised for: both legs of identity (invariant 12).
//!
//! The first leg is the hash of what PVE made at creation. The second is the task list: since the item was raised,
//! nobody else destroyed, restored, rolled back or moved that number. A list that may have forgotten proves nothing.

use std::collections::BTreeSet;

use evenkeel_core::actual::Guest;
use evenkeel_core::id::VmId;
use evenkeel_core::identity::identity;
use evenkeel_core::operation::{UnixSeconds, Upid};
use evenkeel_core::sign::Found;
use serde::{Deserialize, Serialize};

use super::Hands;
use super::error::Fatal;
use crate::pve::wire::TaskEntry;
use crate::pve::{TaskFilter, TaskSource};

/// The node's task list when an item was raised: what must still be in it for the list to prove anything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Anchor {
    /// The node's time.
    pub(super) at: UnixSeconds,
    /// The newest task there was.
    pub(super) task: Option<Upid>,
}

/// More than both index files of a node hold.
const TASKS_LISTED_MAX: u32 = 5_000;

/// After one of these the number may belong to another guest, or the guest hold other data.
const REPLACING: [&str; 12] = [
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
];

/// Where the task list stands now. The guest must be read after it: what replaces it from here on is in the list, and
/// what is at it already, in words, lets nobody tell which guest an item would be about.
pub(super) async fn anchor(hands: &Hands, vmid: VmId) -> Result<Anchor, String> {
    let listed = listed(hands).await?;
    let at_it =
        |entry: &&TaskEntry| entry.exit_status().is_none() && is_replacing(&entry.upid, vmid);
    if let Some(entry) = listed.iter().find(at_it) {
        let (kind, user) = (entry.upid.task_type(), entry.upid.user());
        return Err(format!("{user} runs {kind} on it"));
    }
    let task = listed.into_iter().map(|entry| entry.upid);
    let task = task.max_by_key(|upid| (upid.started_at(), upid.clone()));
    Ok(Anchor { at: hands.node_now(), task })
}

/// The guest as found, if it can be told from every other.
pub(super) async fn found(hands: &Hands, guest: &Guest, since: &Anchor) -> Result<Found, Fatal> {
    let unproven = |why: String| Ok(Found::Unproven { why });
    let identity = match identity(guest) {
        Ok(identity) => identity,
        Err(error) => return unproven(error.to_string()),
    };
    let digest = match &guest.config {
        Ok(config) => config.digest.parse(),
        Err(error) => return unproven(error.to_string()),
    };
    let Ok(digest) = digest else {
        return unproven("Proxmox gave no digest of its configuration".to_owned());
    };
    let tasks = match tasks(hands).await {
        Ok(tasks) => tasks,
        Err(why) => return unproven(why),
    };
    let reaches_back = since.task.as_ref().is_some_and(|anchor| tasks.contains(anchor))
        || tasks.iter().any(|task| task.started_at() < since.at.minus(1));
    if !reaches_back {
        let why = "the node's task list does not reach back to when the item was raised";
        return unproven(why.to_owned());
    }
    let ours = our_tasks(hands).await?;
    match tasks.iter().find(|task| !ours.contains(*task) && replaces(task, guest.id.vmid, since)) {
        Some(task) => {
            let (kind, user) = (task.task_type(), task.user());
            unproven(format!("{user} ran {kind} on it after the item was raised"))
        }
        None => Ok(Found::Guest { identity, digest }),
    }
}

fn replaces(task: &Upid, vmid: VmId, since: &Anchor) -> bool {
    task.started_at() >= since.at.minus(1)
        && since.task.as_ref() != Some(task)
        && is_replacing(task, vmid)
}

fn is_replacing(task: &Upid, vmid: VmId) -> bool {
    REPLACING.contains(&task.task_type()) && task.task_id().parse() == Ok(vmid)
}

async fn tasks(hands: &Hands) -> Result<Vec<Upid>, String> {
    Ok(listed(hands).await?.into_iter().map(|entry| entry.upid).collect())
}

async fn listed(hands: &Hands) -> Result<Vec<TaskEntry>, String> {
    let (source, limit) = (Some(TaskSource::All), Some(TASKS_LISTED_MAX));
    let filter = TaskFilter { source, limit, ..TaskFilter::default() };
    let listed = hands.client.tasks(&filter).await;
    listed.map_err(|error| format!("the task list cannot be read: {error}"))
}

async fn our_tasks(hands: &Hands) -> Result<BTreeSet<Upid>, Fatal> {
    hands.journal.read(|state, _| state.ledger().tasks()).await.map_err(Fatal::Journal)
}
