//! Actual state: one node as it was read at one moment, with what could not be read.
//!
//! Built by the agent's observation, consumed by the planner and the gate. A snapshot never pretends:
//! a configuration that was refused, a list that may be filtered and a power state PVE did not tell
//! are all said, because absence of evidence is not evidence of absence.

pub mod active_tasks;
mod config;
pub mod identity;
pub mod identity_proof;
pub mod remembered;
mod snapshot_volumes;
pub mod storage_hearing;
pub mod surroundings;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

pub use config::{
    ConfigEntry, ConfigField, GuestConfig, UnknownWaits, ValueReading, WaitingChange,
};
pub use snapshot_volumes::SnapshotVolumes;

use crate::model::id::{GuestId, GuestKind, NodeName, VmId};
use crate::model::release::Release;
use crate::operate::operation::UnixSeconds;
use crate::value::compare::Conventions;

/// One node at one moment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The node.
    pub node: NodeName,
    /// What it runs.
    pub release: Release,
    /// What it does to values.
    pub conventions: Conventions,
    /// The guests on this node.
    pub guests: BTreeMap<VmId, Guest>,
    /// Guests of the cluster that are on other nodes.
    pub elsewhere: BTreeMap<VmId, Elsewhere>,
    /// Numbers that are taken although no guest of that number could be listed.
    pub hidden: BTreeSet<VmId>,
    /// Whether a guest that is not listed can be taken as absent.
    pub coverage: ListCoverage,
}

impl Snapshot {
    /// Whether a declared number has no guest, here or elsewhere. Of other numbers this says nothing: nobody asks
    /// whether a guest that is not listed is only hidden from the token.
    pub fn proves_gone(&self, declared: VmId) -> bool {
        let is_somewhere = self.guests.contains_key(&declared)
            || self.elsewhere.contains_key(&declared)
            || self.hidden.contains(&declared);
        self.coverage == ListCoverage::Whole && !is_somewhere
    }
}

/// A guest on another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elsewhere {
    /// Its kind.
    pub kind: GuestKind,
    /// The node it is on.
    pub node: NodeName,
}

/// Whether the list of guests is known to be whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListCoverage {
    /// Every guest was listed: rights and quorum were checked.
    Whole,
    /// Guests may be missing from the list, for this reason.
    Partial(String),
}

/// One guest as it is.
#[derive(Debug, Clone)]
pub struct Guest {
    /// Kind and number.
    pub id: GuestId,
    /// Running or not.
    pub power: Power,
    /// Whether it is a template.
    pub template: bool,
    /// Whether the cluster's HA manages it, and in which state.
    pub ha: Option<String>,
    /// PVE's lock, if one is set: some task owns the guest.
    pub lock: Option<String>,
    /// The configuration, or why it could not be read. Shared, because what is remembered is handed to every pass.
    pub config: Result<Arc<GuestConfig>, Unreadable>,
}

impl Guest {
    /// Whether its processes exist: a paused machine is running to PVE.
    pub fn is_running(&self) -> bool {
        match self.power {
            Power::Running | Power::Paused => true,
            Power::Stopped | Power::Unknown => false,
        }
    }

    /// Whether nothing happened to it between two readings that an act is judged by: the same run state, lock and file.
    pub fn is_same_state(&self, earlier: &Self) -> bool {
        let digest = |guest: &Self| guest.config.as_ref().ok().map(|config| config.digest.clone());
        let Self { id, power, template, ha, lock, config: _ } = self;
        let file = digest(self).filter(|digest| !digest.is_empty());
        (*id, *power, *template) == (earlier.id, earlier.power, earlier.template)
            && (ha, lock) == (&earlier.ha, &earlier.lock)
            && file.is_some()
            && file == digest(earlier)
    }

    /// Whether PVE refuses to destroy it and its disks.
    pub fn is_protected(&self) -> bool {
        self.config.as_ref().is_ok_and(|config| config.is_protected(self.id.kind))
    }
}

/// A snapshot of a guest, or its present state as PVE's list of snapshots tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotPoint {
    /// Its name; `current` is the present.
    pub name: String,
    /// When it was taken. Names are used again, moments are not.
    pub taken_at: Option<UnixSeconds>,
    /// The snapshot it stands on.
    pub parent: Option<String>,
    /// Whether it holds the memory of a machine, which then runs after a rollback to it.
    pub with_memory: bool,
}

/// What PVE calls the present in a list of snapshots.
pub const PRESENT: &str = "current";

/// The power state of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Power {
    /// It runs.
    Running,
    /// A virtual machine whose CPUs stand still.
    Paused,
    /// It does not run.
    Stopped,
    /// PVE did not tell.
    Unknown,
}

impl fmt::Display for Power {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
            Self::Unknown => "unknown",
        })
    }
}

/// Why a configuration could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Unreadable {
    /// What was answered, or that nothing was.
    pub why: String,
    /// What to do about it; whoever read knows whether a right or an answer was missing.
    pub next: &'static str,
}

impl Unreadable {
    /// A configuration that could not be read.
    pub fn new(why: impl Into<String>, next: &'static str) -> Self {
        Self { why: why.into(), next }
    }
}
