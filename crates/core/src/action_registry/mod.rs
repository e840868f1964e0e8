//! The registry of actions: everything evenkeel can ever be asked to do to a guest, one row each.
//!
//! A row holds every fact about a kind: whether it has an executor, its parameters, the PVE call and its tasks, what
//! proves it and what is lost with it. The classifier, statements, the gate, recovery, rights and documentation are
//! functions over these rows; none of them keeps a list of kinds of its own. The list is closed: it must never grow an
//! "other" row, because a word that is not here is not an action.

mod page;
mod param;
mod rows;

use std::fmt;
use std::str::FromStr;

pub use page::reference;
pub(crate) use param::is_word;
pub use param::{ParamForm, ParamRow, WorstEffect};
pub use rows::ActionKind;

use crate::actual::Power;
use crate::gate::classify::ActionClass;
use crate::model::id::GuestKind;
use crate::operate::operation::OpPhase;

/// All facts about one kind of action.
#[derive(Debug)]
pub struct ActionRow {
    /// Its spelling in plans, statements, journal and command line.
    pub name: &'static str,
    /// What it does, as a sentence.
    pub summary: &'static str,
    /// Who may have it carried out.
    pub execution: ExecutionRight,
    /// What it costs, its parameters aside.
    pub cost: ActionCost,
    /// Its parameters besides configuration keys.
    pub params: &'static [ParamRow],
    /// Whether configuration keys are parameters too.
    pub takes_keys: bool,
    /// Whether a statement may name the listed parameters alone.
    pub only_listed: bool,
    /// Where a request's parameters come from that nobody gave.
    pub filled_from: FilledFrom,
    /// The requests that may have to be sent before it.
    pub prepared_by: &'static [OpPhase],
    /// The PVE call, as method and path under the node.
    pub call: &'static str,
    /// The tasks the call leaves.
    pub tasks: TaskTypes,
    /// What an answer without a task says.
    pub null_answer: NullAnswer,
    /// What a refusal of the call says.
    pub refusal: RefusalMeaning,
    /// What proves that it was done.
    pub proof: Proof,
    /// What is lost with it.
    pub loss: LossRule,
    /// What becomes of what our journal knows of the guest's origin.
    pub origin: OriginEffect,
    /// What somebody else's task of this kind makes of a guest that was signed for.
    pub replaces: Replacement,
    /// Whether PVE applies along with it what waits for a restart.
    pub applies_waiting: AppliesWaiting,
    /// The lanes it holds.
    pub lanes: LaneUse,
    /// The rights it needs, as path and privilege; those of the keys it writes come on top.
    pub rights: &'static [(&'static str, &'static str)],
}

/// Who may have an action carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecutionRight {
    /// Planned from desired files, unless its parameters are destructive.
    Planned,
    /// Planned, and signed where its parameters are destructive.
    PlannedOrSigned,
    /// Signed alone. It can be declared.
    Signed,
    /// Signed alone, and asked for by hand: it cannot be declared.
    SignedRequest,
    /// Asked for by hand and done at once, without a signature: it cannot be declared.
    Asked,
    /// It has no executor yet, said so.
    NotYet(&'static str),
    /// It is known so that it can be refused by name.
    Never,
}

/// Where the parameters of a request come from that nobody gave: an operator signs no default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilledFrom {
    /// The defaults of the rows.
    Defaults,
    /// What destroying this guest takes.
    GuestToDestroy,
    /// The defaults, and the time of the snapshot that is named.
    Snapshot,
    /// The defaults, and the volume in the slot that is named.
    DetachedVolume,
}

/// What an action costs, its parameters aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActionCost {
    /// Always this class, for this reason.
    Always(ActionClass, &'static str),
    /// Whatever its changes of the configuration cost.
    ByChanges,
    /// Nothing, as long as the volume grows.
    ByGrowth,
    /// Nothing, as long as the guest's own volume is copied and the source stays.
    ByMove,
    /// Nothing, as long as no guest has the number.
    ByFreeNumber,
    /// Less for a guest that our journal knows as ours.
    ByOrigin,
}

/// The types of task a call leaves, by the kind of guest; `ha…` where HA manages the guest.
#[derive(Debug)]
pub struct TaskTypes {
    /// Of containers.
    pub lxc: &'static [&'static str],
    /// Of virtual machines.
    pub qemu: &'static [&'static str],
    /// Whose number the task carries.
    pub subject: TaskSubject,
}

/// Whose number a task carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskSubject {
    /// The guest's.
    Guest,
    /// The source's: PVE names a clone after it.
    CloneSource,
    /// The giver's: a move to another guest is named `100-mp0>101-mp0`.
    VolumeGiver,
}

/// What a refusal of the call says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalMeaning {
    /// The call only begins a task: refused, it began none.
    NothingDone,
    /// The call itself writes, and may have done so in part.
    PerhapsInPart,
}

/// What an answer without a task says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NullAnswer {
    /// It is done, or nearly.
    Done,
    /// Nothing: the call has begun a task and does not name it, so the task must be looked for.
    TaskHidden,
}

/// What proves that an action was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// The configuration has what was written.
    Configuration,
    /// The volume has at least the size.
    VolumeSize,
    /// The slot's volume is on the storage. Before the move it was not, so this alone proves it; what the call answers
    /// differs by kind and release, and is not asked.
    VolumeOnStorage,
    /// The guest is a template, and all its volumes are base images: the flag alone can be set by anybody.
    IsTemplate,
    /// The guest has this power state.
    PowerState(Power),
    /// The guest is gone, and a node with quorum says that its number is free.
    NumberFree,
    /// The snapshot the guest stands on. It may have stood there before: this alone proves nothing.
    SnapshotParent,
    /// The snapshot is listed, whole.
    SnapshotListed,
    /// The snapshot is no longer listed.
    SnapshotGone,
    /// A storage lists the backup that carries the operation's mark.
    ArchiveListed,
    /// No slot holds the volume, and its storage lists it no more. The slot alone proves nothing: where a snapshot names
    /// the volume, a container's file only forgets it.
    VolumeGone,
    /// The guest is there, unlocked. Whose it is, only the task tells.
    GuestMade,
    /// Nothing that is read today.
    NotRead,
}

impl Proof {
    /// Whether it takes the list of the guest's snapshots.
    pub fn needs_snapshots(self) -> bool {
        match self {
            Self::SnapshotParent | Self::SnapshotListed | Self::SnapshotGone => true,
            Self::ArchiveListed
            | Self::Configuration
            | Self::VolumeSize
            | Self::VolumeOnStorage
            | Self::IsTemplate
            | Self::PowerState(_)
            | Self::NumberFree
            | Self::VolumeGone
            | Self::GuestMade
            | Self::NotRead => false,
        }
    }
}

/// What is lost with an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossRule {
    /// Nothing beyond what its parameters show.
    AsParameters,
    /// All volumes and all snapshots.
    WholeGuest,
    /// What was written since the snapshot.
    SinceSnapshot,
    /// The snapshot.
    OneSnapshot,
    /// The volume.
    OneVolume,
    /// That the guest starts, and that its volumes can be written.
    Running,
}

/// What an action that succeeded does to a guest's origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OriginEffect {
    /// The guest comes into being by it, and is ours.
    Begins,
    /// Gone, elsewhere, or something others build upon: no longer ours to destroy.
    Ends,
    /// The guest stays ours, with the identity it has afterwards.
    Keeps,
}

/// What somebody else's task makes of a guest that was signed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Replacement {
    /// The guest is the same.
    Nothing,
    /// The same guest may hold other data, or be elsewhere.
    OtherData,
    /// Another guest has the number.
    OtherGuest,
}

/// Whether PVE applies along with an action what waits for a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppliesWaiting {
    /// No.
    No,
    /// Yes.
    Yes,
    /// Where the guest is a virtual machine that does not run.
    StoppedMachine,
}

/// The lanes an action holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneUse {
    /// The guest's.
    Guest,
    /// The guest's, and that of the guest it is made from.
    GuestAndSource,
}

impl ActionKind {
    /// Its spelling.
    pub fn as_str(self) -> &'static str {
        self.row().name
    }

    /// Whether a guest comes into being by it, so that the journal can know where it is from.
    pub fn creates_guest(self) -> bool {
        self.row().origin == OriginEffect::Begins
    }

    /// Whether the guest as it is afterwards proves that it was done. A guest under a number may be anybody's, and
    /// a guest that stands on a snapshot may have stood there before.
    pub fn proved_by_state(self) -> bool {
        !self.creates_guest() && self.row().proof != Proof::SnapshotParent
    }

    /// The types of task that its call can leave.
    pub fn task_types(self, guest: GuestKind) -> &'static [&'static str] {
        match guest {
            GuestKind::Lxc => self.row().tasks.lxc,
            GuestKind::Qemu => self.row().tasks.qemu,
        }
    }

    /// Why nobody can have it done at all; none if somebody can.
    pub fn no_executor(self) -> Option<&'static str> {
        match self.row().execution {
            ExecutionRight::Planned
            | ExecutionRight::PlannedOrSigned
            | ExecutionRight::Signed
            | ExecutionRight::SignedRequest
            | ExecutionRight::Asked => None,
            ExecutionRight::NotYet(why) => Some(why),
            ExecutionRight::Never => Some("evenkeel never does it"),
        }
    }

    /// Why nobody can have it done with a signature; none if that is possible.
    pub fn not_signable(self) -> Option<String> {
        match self.row().execution {
            ExecutionRight::PlannedOrSigned
            | ExecutionRight::Signed
            | ExecutionRight::SignedRequest => None,
            ExecutionRight::Planned => Some(format!("a signed {self} has no executor: declare it")),
            ExecutionRight::Asked => Some(format!("{self} needs no signature: ask for it")),
            ExecutionRight::NotYet(why) => Some(format!("{self}: {why}")),
            ExecutionRight::Never => Some(format!("evenkeel never does a {self}")),
        }
    }

    /// Whether it is done at once when somebody asks for it, without a signature.
    pub fn runs_when_asked(self) -> bool {
        self.row().execution == ExecutionRight::Asked
    }

    /// Why nobody can ask for it by hand; none if that is possible.
    pub fn not_requestable(self) -> Option<String> {
        match self.row().execution {
            ExecutionRight::PlannedOrSigned
            | ExecutionRight::Signed
            | ExecutionRight::SignedRequest
            | ExecutionRight::Asked => None,
            ExecutionRight::Planned => {
                Some(format!("{self} is not requested by hand: declare it in the desired files"))
            }
            ExecutionRight::NotYet(_) | ExecutionRight::Never => self.not_signable(),
        }
    }

    /// The row of one of its parameters.
    pub fn param(self, guest: GuestKind, name: &str) -> Option<&'static ParamRow> {
        self.row().params.iter().find(|row| row.name == name && row.is_of(guest))
    }
}

impl fmt::Display for ActionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<ActionKind> for &'static str {
    fn from(kind: ActionKind) -> Self {
        kind.as_str()
    }
}

/// A word that names no action.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an action evenkeel knows")]
pub struct UnknownAction(String);

impl FromStr for ActionKind {
    type Err = UnknownAction;

    /// Exact spellings only: a prefix, another case or a blank names nothing.
    fn from_str(text: &str) -> Result<Self, UnknownAction> {
        let named = Self::ALL.into_iter().find(|kind| kind.as_str() == text);
        named.ok_or_else(|| UnknownAction(text.to_owned()))
    }
}

impl TryFrom<String> for ActionKind {
    type Error = UnknownAction;

    fn try_from(text: String) -> Result<Self, UnknownAction> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_kind_is_read_back_from_its_one_spelling() {
        for (place, kind) in ActionKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, place, "{kind} is listed once and in order");
            assert_eq!(kind.as_str().parse(), Ok(kind));
            let json = serde_json::to_string(&kind).unwrap();
            assert_eq!(json, format!("\"{kind}\""));
            assert_eq!(serde_json::from_str::<ActionKind>(&json).unwrap(), kind);
        }
    }

    #[test]
    fn a_word_that_only_resembles_an_action_names_none() {
        for text in ["", "Destroy", "destroy ", "destroy\0", "destr", "set-config", "ѕtop"] {
            assert!(text.parse::<ActionKind>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn rows_do_not_contradict_themselves() {
        for kind in ActionKind::ALL {
            let row = kind.row();
            for guest in [GuestKind::Lxc, GuestKind::Qemu] {
                let params = row.params.iter().filter(|param| param.is_of(guest));
                let names: Vec<_> = params.map(|param| param.name).collect();
                let once: BTreeSet<_> = names.iter().collect();
                assert_eq!(names.len(), once.len(), "{kind}: a parameter is listed twice");
            }
            for param in row.params {
                assert!(
                    param.default.is_none_or(|text| param.form.fits(text)),
                    "{kind}: the default of {} has another form",
                    param.name
                );
            }
            let unsigned =
                [ExecutionRight::Planned, ExecutionRight::Asked].contains(&row.execution);
            let sendable = kind.not_signable().is_none() || unsigned;
            assert_eq!(sendable, row.proof != Proof::NotRead, "{kind}: what is sent can be proven");
            assert_eq!(
                kind.creates_guest() || kind == ActionKind::Destroy,
                row.replaces == Replacement::OtherGuest || kind == ActionKind::Clone,
                "{kind}"
            );
            assert!(
                row.prepared_by.is_empty() || kind.not_signable().is_none(),
                "{kind}: only signed acts are prepared"
            );
        }
    }
}
