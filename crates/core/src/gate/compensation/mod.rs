//! Whether a guest that we made may be removed without a signature: what a failed making of ours left half way, or a
//! guest that was declared scratch.
//!
//! One function judges, [`may_remove`], over what was read just now. A DELETE takes more than the guest, so it asks last
//! whether others have given the number anything (`surroundings`). The planner asks for its early answer, the lane on a
//! fresh read, and again directly before the DELETE leaves. Our own journal says that there is something to ask about
//! (invariant 11); everything here can only refuse. What is unreadable or unknown refuses (invariants 10 and 14).

use crate::action_registry::ActionKind;
use crate::actual::identity::identity;
use crate::actual::identity_proof::{ForeignTask, ListedTask, TaskReading, TaskState};
use crate::actual::surroundings::GuestSurroundings;
use crate::actual::{ConfigField, Guest, GuestConfig, Power};
use crate::gate::destroy::Destroy;
use crate::gate::new_guest::SourceReading;
use crate::model::id::{GuestKind, OperationId};
use crate::model::reason::{ReasonCode, Refusal};
use crate::model::vmid_ranges::VmidRanges;
use crate::operate::operation::{MadeGuest, MadeStage, Provenance, SourceMark, Upid};
use crate::registry::Hazard;
use crate::value::print;

/// A destroy that nobody signed, with the ground on which it may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// Why nobody would miss the guest.
    pub ground: RemovalGround,
    /// The operation of ours that made it.
    pub making: OperationId,
    /// What is sent.
    pub destroy: Destroy,
}

/// Why a guest may go without a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RemovalGround {
    /// Our making of it failed half way, and it never ran: everything in it is in what it was made from.
    HalfMade,
    /// We made it as scratch, and nobody else worked on it since.
    Scratch,
}

impl RemovalGround {
    /// Both.
    pub const ALL: [Self; 2] = [Self::HalfMade, Self::Scratch];
}

/// What the early answer or the lane found of a guest that may be removed unsigned.
pub type RemovalVerdict = Result<(), Refusal>;

/// What a guest was made from, as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceNow {
    /// As it was read.
    There(SourceMark),
    /// It is not there.
    Gone,
    /// It could not be read, or not be told from another.
    Unreadable(String),
}

impl SourceNow {
    /// The source as it was read, told so that another one of the same name differs.
    pub fn of(reading: &SourceReading) -> Self {
        match reading {
            SourceReading::None => Self::There(SourceMark::Nothing),
            SourceReading::Volume { listed: false, .. } | SourceReading::Guest(None) => Self::Gone,
            SourceReading::Volume { mark: Some(mark), .. } => Self::There(mark.clone()),
            SourceReading::Volume { mark: None, .. } => {
                Self::Unreadable("its storage does not report its size and time".to_owned())
            }
            SourceReading::Guest(Some(guest)) => match identity(guest) {
                Ok(identity) => Self::There(SourceMark::Guest { guest: guest.id, identity }),
                Err(error) => Self::Unreadable(error.to_string()),
            },
            SourceReading::Unreadable(why) => Self::Unreadable(why.clone()),
        }
    }

    /// What is written down of it.
    pub fn mark(self) -> Option<SourceMark> {
        match self {
            Self::There(mark) => Some(mark),
            Self::Gone | Self::Unreadable(_) => None,
        }
    }
}

/// Everything that is looked at. The tasks must be listed after the guest was read.
#[derive(Debug, Clone, Copy)]
pub struct RemovalEvidence<'a> {
    /// The guest as it is now.
    pub fresh: &'a Guest,
    /// What our journal wrote down when its making began, and since.
    pub made: &'a MadeGuest,
    /// What our journal knows of its origin and identity.
    pub provenance: &'a Provenance,
    /// The node's task list.
    pub tasks: &'a TaskReading,
    /// What it was made from.
    pub source: &'a SourceNow,
    /// The numbers at which scratch counts now, by root's file.
    pub scratch_vmids: &'a VmidRanges,
}

/// A guest that is ours to remove by everything but its surroundings, which are read only of such a guest.
#[derive(Debug)]
#[must_use = "what others have given its number is still to be asked"]
pub struct OursToRemove<'a> {
    made: &'a MadeGuest,
}

impl OursToRemove<'_> {
    /// Whether it may go although nobody signed: nobody has given its number anything that would go with it.
    pub fn may_go(self, around: &GuestSurroundings) -> RemovalVerdict {
        around.allow_unsigned(self.made.around)
    }
}

/// Whether the guest may be removed unsigned; otherwise why not.
pub fn may_remove(
    ground: RemovalGround,
    evidence: &RemovalEvidence<'_>,
    around: &GuestSurroundings,
) -> RemovalVerdict {
    is_ours_to_remove(ground, evidence)?.may_go(around)
}

/// Whether the guest is ours to remove, as far as it, its tasks and its source tell.
pub fn is_ours_to_remove<'a>(
    ground: RemovalGround,
    evidence: &RemovalEvidence<'a>,
) -> Result<OursToRemove<'a>, Refusal> {
    let config = is_untouched(evidence)?;
    match ground {
        RemovalGround::HalfMade => half_made(config, evidence)?,
        RemovalGround::Scratch => scratch(config, evidence)?,
    }
    Ok(OursToRemove { made: evidence.made })
}

/// What both grounds ask: nobody holds the guest, and nothing of it is beside what its making made.
fn is_untouched<'a>(evidence: &RemovalEvidence<'a>) -> Result<&'a GuestConfig, Refusal> {
    let RemovalEvidence { fresh, made, .. } = evidence;
    if fresh.id != made.guest {
        return Err(another());
    }
    if let Some(lock) = &fresh.lock {
        return Err(Refusal::new(ReasonCode::Locked, format!("it is locked ({lock})")));
    }
    let config = fresh.config.as_ref().map_err(|error| unproven(error.to_string()))?;
    if fresh.ha.is_some() {
        return Err(signed("HA manages it"));
    }
    if fresh.template {
        return Err(signed("it is a template"));
    }
    if config.anything_waits() {
        return Err(signed("a change waits for its restart"));
    }
    if !config.unknown.is_empty() {
        return Err(signed("its configuration has keys that evenkeel does not know"));
    }
    let is_unused = |field: &ConfigField| field.key.key().hazard == Hazard::UnusedVolume;
    if config.fields.iter().any(is_unused) {
        return Err(signed("a detached volume hangs on it"));
    }
    Ok(config)
}

fn half_made(config: &GuestConfig, evidence: &RemovalEvidence<'_>) -> RemovalVerdict {
    let RemovalEvidence { fresh, made, tasks, source, .. } = evidence;
    let MadeStage::Half { identity: left } = made.stage else {
        return Err(unproven("its making did not fail"));
    };
    match fresh.power {
        Power::Stopped => {}
        Power::Running | Power::Paused => return Err(signed("it runs")),
        Power::Unknown => return Err(unproven("its run state is unknown")),
    }
    // Only the answer to our own request can name our own task; without it nothing here is proved to be ours.
    if made.tasks.is_empty() {
        return Err(unproven("evenkeel knows no task of its own that made it"));
    }
    if let Some(task) = foreign(made, tasks)?.find(|task| !is_backup_that_ended(task)) {
        return Err(match task {
            ForeignTask::OfNumber(task) => ran(&task.upid),
            ForeignTask::Copy(task) => unproven(format!(
                "{} copied a guest since its making began, and the task does not say to which number",
                task.upid.shown_user()
            )),
            ForeignTask::Unread => unread(),
        });
    }
    if fresh.is_protected() && made.kind != ActionKind::Clone {
        return Err(signed("it is protected"));
    }
    if !is_what_proxmox_leaves(config) && (left.is_none() || identity(fresh).ok() != left) {
        return Err(unproven("it is not the guest that the failed creation left"));
    }
    is_unchanged(made.source.as_ref(), source)
}

/// A backup reads a guest; while it does, a stopped machine looks as if it ran.
fn is_backup_that_ended(task: &ForeignTask<'_>) -> bool {
    match task {
        ForeignTask::OfNumber(ListedTask { upid, state }) => {
            *state != TaskState::Running && is_of(ActionKind::Backup, upid)
        }
        ForeignTask::Copy(_) | ForeignTask::Unread => false,
    }
}

/// A restore of a machine that fails leaves an empty file, or one that says `memory: 128`. Whoever added anything has
/// seen the guest, and may want it.
fn is_what_proxmox_leaves(config: &GuestConfig) -> bool {
    config.fields.iter().all(|field| {
        let key = field.key.key();
        let text = field.current.as_ref().map(|reading| print::pve(&key.format, &reading.value));
        key.name == "memory" && text.as_deref() == Some("128")
    })
}

fn is_unchanged(then: Option<&SourceMark>, now: &SourceNow) -> RemovalVerdict {
    match (then, now) {
        (None, _) => Err(unproven("its source was not recorded")),
        (Some(_), SourceNow::Unreadable(why)) => Err(unproven(why)),
        (Some(_), SourceNow::Gone) => Err(signed("its source no longer exists")),
        (Some(then), SourceNow::There(now)) if then == now => Ok(()),
        (Some(_), SourceNow::There(_)) => Err(signed("its source has changed since")),
    }
}

fn scratch(config: &GuestConfig, evidence: &RemovalEvidence<'_>) -> RemovalVerdict {
    let RemovalEvidence { fresh, made, provenance, tasks, scratch_vmids, .. } = evidence;
    if !made.scratch || made.stage != MadeStage::Whole {
        return Err(signed("it was not made as scratch"));
    }
    if !scratch_vmids.has(fresh.id.vmid) {
        let why = format!("{} is not among the scratch_vmids of agent.toml", fresh.id.vmid);
        return Err(Refusal::new(ReasonCode::Policy, why));
    }
    match fresh.power {
        Power::Stopped | Power::Running => {}
        Power::Paused => return Err(signed("it is paused")),
        Power::Unknown => return Err(unproven("its run state is unknown")),
    }
    if config.is_protected(fresh.id.kind) {
        return Err(signed("it is protected"));
    }
    let live = identity(fresh).map_err(|error| unproven(error.to_string()))?;
    if !provenance.proves(fresh.id, &live) {
        return Err(another());
    }
    // Somebody's copy cannot have become this guest: its number was taken by it all the time.
    let mut foreign = foreign(made, tasks)?;
    // A start shows nobody's care, for a node starts guests by itself. Whoever saves it or opens its console may miss it.
    let ends_it = foreign.find_map(|task| match task {
        ForeignTask::OfNumber(task) if !is_of(ActionKind::Start, &task.upid) => {
            Some(ran(&task.upid))
        }
        ForeignTask::Unread => Some(unread()),
        ForeignTask::OfNumber(_) | ForeignTask::Copy(_) => None,
    });
    ends_it.map_or(Ok(()), Err)
}

fn is_of(act: ActionKind, task: &Upid) -> bool {
    GuestKind::ALL.iter().any(|kind| act.task_types(*kind).contains(&task.task_type()))
}

fn foreign<'a>(
    made: &'a MadeGuest,
    tasks: &'a TaskReading,
) -> Result<impl Iterator<Item = ForeignTask<'a>>, Refusal> {
    made.mark.foreign_tasks(tasks, made.guest.vmid, &made.tasks, "its making began")
}

fn ran(task: &Upid) -> Refusal {
    let user = task.shown_user();
    let kind = task.task_type();
    signed(&format!("{user} ran {kind} on it since its making began"))
}

fn unread() -> Refusal {
    unproven("evenkeel cannot read a task since its making began, which may be on it")
}

fn another() -> Refusal {
    Refusal::new(ReasonCode::IdentityMismatch, "it is not the guest that evenkeel made")
}

fn signed(why: &str) -> Refusal {
    Refusal::new(ReasonCode::PendingSignature, why)
}

fn unproven(why: impl Into<String>) -> Refusal {
    Refusal::new(ReasonCode::IdentityUnproven, why)
}

#[cfg(test)]
mod tests;
