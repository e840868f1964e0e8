//! The lane table: which operation may run now (invariant 1).
//!
//! One first-in-first-out lane per guest number, made on demand and gone when idle. The agent's queue
//! feeds every event to [`LaneTable::step`] and does what the returned effects say; nothing else
//! starts an operation. The table must never let two operations change one guest at a time, nor let
//! one guest's trouble keep another guest waiting.
//!
//! ```text
//! submit ─► queued ── Start ─► running ── finish ─► gone, next one
//!              │                  │  └ unknown ─► held ── release ─► gone, next one
//!              └ a failure, an unknown outcome or shutdown before it: Skip
//! ```
//!
//! A running operation asks for its turn before each request. After a shutdown no turn is given: what has not sent
//! anything ends without having begun, what has sent something is awaited.
//!
//! A clone also uses its source's lane. It takes both lanes at once or none, and waits in the order
//! of submission, so two clones can never wait for each other.

mod state;

use serde::{Deserialize, Serialize};

pub use state::LaneTable;

use crate::model::id::{OperationId, VmId};
use crate::operate::operation::{StorageName, UnixSeconds};

/// PVE has three processes for calls that change something; with all three stuck the node's whole
/// API stands still. Two leave one for reading.
pub const SYNC_WRITES_PER_NODE_MAX: usize = 2;

/// Clones and restores on one storage share its disks: more at a time end no sooner and slow every
/// guest that lives there.
pub const ALLOCATING_TASKS_PER_STORAGE_MAX: usize = 2;

/// One pass's actions for one guest: a configuration write, a change of run state and a resize of
/// each of the 257 volumes a container can have, rounded up.
pub const QUEUE_DEPTH_MAX: usize = 300;

/// The caps of one table. The operator may set them lower or higher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LaneLimits {
    /// Requests that change something, in flight at a time.
    pub sync_writes: usize,
    /// Running operations that allocate on one storage.
    pub allocating_per_storage: usize,
}

impl Default for LaneLimits {
    fn default() -> Self {
        Self {
            sync_writes: SYNC_WRITES_PER_NODE_MAX,
            allocating_per_storage: ALLOCATING_TASKS_PER_STORAGE_MAX,
        }
    }
}

/// One operation as the lanes see it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Job {
    /// Its name.
    pub op: OperationId,
    /// The guest it changes or brings forth.
    pub target: VmId,
    /// The guest it is cloned from.
    pub source: Option<SourceLane>,
    /// The storage it allocates on for as long as it runs.
    pub storage: Option<StorageName>,
}

impl Job {
    /// An operation that uses its guest's lane and nothing else.
    pub fn on(target: VmId, op: OperationId) -> Self {
        Self { op, target, source: None, storage: None }
    }
}

/// The second lane of a clone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceLane {
    /// The guest it is cloned from.
    pub vmid: VmId,
    /// Whether others may be cloned from it meanwhile.
    pub sharing: Sharing,
}

/// How a clone uses its source; it follows from the source's kind, so all clones of one guest use it
/// alike. Neither way may the source be changed meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sharing {
    /// PVE locks a container while it is cloned.
    Exclusive,
    /// Virtual machines can be cloned several times at once.
    Shared,
}

/// What happens to the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaneEvent {
    /// One pass's actions for one guest, in order.
    Submit {
        /// The guest.
        vmid: VmId,
        /// Its actions; all have it as their target.
        jobs: Vec<Job>,
    },
    /// Recovery found this operation in flight: its lanes are shut until it is released.
    Hold(Job),
    /// A running operation is about to send a request and asks for its turn.
    WantWrite(OperationId),
    /// That request is answered, or given up.
    Wrote(OperationId),
    /// A running operation ended.
    Finish {
        /// Which.
        op: OperationId,
        /// How.
        outcome: LaneOutcome,
    },
    /// A held operation ended, by evidence or by an operator.
    Release(OperationId),
    /// No more work is taken, nothing that waits is started, and no further request is sent (invariant 19).
    Shutdown,
}

/// How a running operation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneOutcome {
    /// Done; the guest's next action may start.
    Succeeded,
    /// Not done; the guest's later actions of the pass are skipped.
    Failed,
    /// Not known; they are skipped, and the lanes stay shut.
    Unknown,
}

/// What the queue has to do, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaneEffect {
    /// Run it.
    Start(OperationId),
    /// It is its turn to send its request.
    Write(OperationId),
    /// Its turn never comes: it sends nothing more, and ends.
    Deny(OperationId),
    /// It will not run; report it as skipped.
    Skip(OperationId),
    /// The submitted actions were not taken.
    Refuse {
        /// The guest.
        vmid: VmId,
        /// Why.
        refusal: LaneRefusal,
    },
}

/// Why submitted actions were not taken: an ordinary answer, not a mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaneRefusal {
    /// The guest has an operation that waits, runs or is held.
    Busy(LaneBusy),
    /// More than [`QUEUE_DEPTH_MAX`].
    TooMany,
    /// The agent is going down.
    ShuttingDown,
}

/// What a guest is busy with, for reports: `busy (op, since)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneBusy {
    /// The operation that has the lane, or the first that waits for it.
    pub op: OperationId,
    /// Since when, by the agent's clock.
    pub since: UnixSeconds,
}

/// An event that cannot be: the queue has a bug. The table is left as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LaneError {
    /// The operation is in the table already.
    #[error("{0} is in the lane table already")]
    Duplicate(OperationId),
    /// The action is for another guest than the lane, or clones a guest onto itself.
    #[error("{0} does not belong into this lane")]
    WrongLane(OperationId),
    /// Two operations cannot hold one lane.
    #[error("{op} cannot hold the lane of guest {vmid}: {owner} has it")]
    Occupied {
        /// The one that would.
        op: OperationId,
        /// The guest.
        vmid: VmId,
        /// The one that does.
        owner: OperationId,
    },
    /// It is not running.
    #[error("{0} is not running")]
    NotRunning(OperationId),
    /// It is not held.
    #[error("{0} is not held")]
    NotHeld(OperationId),
    /// It asked already.
    #[error("{0} has asked for its turn to write already")]
    AskedTwice(OperationId),
    /// It is not writing.
    #[error("{0} has no turn to write")]
    NotWriting(OperationId),
}

#[cfg(test)]
mod tests;
