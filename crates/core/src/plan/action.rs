//! What a plan is made of: actions so specific that the executor has nothing left to decide.
//!
//! Built by the planner alone. Each action names its guest, every parameter, the reason in words a
//! person can check, its class, when it takes effect and what holds it back.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use crate::action_registry::ActionKind;
use crate::desired::GuestSource;
use crate::gate::classify::ActionClass;
use crate::gate::compensation::{Removal, RemovalGround};
use crate::gate::destroy::Destroy;
use crate::gate::new_guest::NewGuest;
use crate::model::id::{GuestId, GuestKind};
use crate::model::quantity::Bytes;
use crate::model::reason::{ReasonCode, Refusal};
use crate::model::secret;
use crate::operate::back_off::FailedBefore;
use crate::registry::effect::When;
use crate::registry::{Compared, FormatPart, KeyRef, Shape, ValueFormat};
use crate::value::print::cut;
use crate::value::{Property, Value, VolumeRef, print};

use super::template::TemplateHold;
use super::volumes::VolumeHold;

/// One thing to do to one guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// The guest.
    pub guest: GuestId,
    /// What to do, with every parameter.
    pub step: Step,
    /// The changes it makes, for `set_config`.
    pub changes: Vec<Change>,
    /// What it can cost, and why.
    pub class: ActionClass,
    /// Why the class is not lower; empty for benign actions.
    pub why: String,
    /// What holds it back now.
    pub held: Option<Held>,
}

/// What to do, with every parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Write configuration keys.
    SetConfig(SetConfig),
    /// Grow a volume to an absolute size.
    Resize {
        /// The slot.
        disk: KeyRef,
        /// The size it has.
        from: Bytes,
        /// The size it shall have.
        to: Bytes,
        /// The configuration it was planned from.
        digest: String,
    },
    /// Copy a volume to another storage; the old one stays, detached.
    MoveVolume {
        /// The slot.
        disk: KeyRef,
        /// The volume it holds, which stays.
        volume: String,
        /// The storage it is on.
        from: String,
        /// The storage it shall be on.
        to: String,
        /// The configuration it was planned from.
        digest: String,
    },
    /// Start the guest.
    Start,
    /// Ask the guest to go down, without force.
    Shutdown {
        /// How long PVE waits for it.
        timeout_s: u32,
    },
    /// Cut the guest's power.
    Stop,
    /// Make the guest.
    Make(Box<NewGuest>),
    /// Remove the guest and its volumes, which needs a signature.
    Destroy(Destroy),
    /// Remove a guest of ours that nobody would miss, unsigned.
    Remove(Removal),
    /// Turn the guest into a template.
    Template,
}

/// A configuration write.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SetConfig {
    /// Keys to set, with the text PVE is sent.
    pub set: BTreeMap<KeyRef, String>,
    /// Keys to remove.
    pub delete: Vec<KeyRef>,
    /// Keys whose waiting change is dropped.
    pub revert: Vec<KeyRef>,
    /// The configuration it was planned from; never empty.
    pub digest: String,
}

impl Step {
    /// Its kind.
    pub fn kind(&self) -> ActionKind {
        match self {
            Self::SetConfig(_) => ActionKind::SetConfig,
            Self::Resize { .. } => ActionKind::Resize,
            Self::MoveVolume { .. } => ActionKind::MoveVolume,
            Self::Start => ActionKind::Start,
            Self::Shutdown { .. } => ActionKind::Shutdown,
            Self::Stop => ActionKind::Stop,
            Self::Make(new) => new.kind(),
            Self::Destroy(_) | Self::Remove(_) => ActionKind::Destroy,
            Self::Template => ActionKind::Template,
        }
    }

    /// Its parameters as PVE's call takes them, secrets included: the classifier judges and the executor sends
    /// exactly these. Everybody who shows or stores them asks [`Step::shown_params`].
    pub fn params(&self) -> BTreeMap<String, String> {
        let pairs: Vec<(String, String)> = match self {
            Self::SetConfig(write) => {
                let mut pairs: Vec<(String, String)> =
                    write.set.iter().map(|(key, text)| (key.to_string(), text.clone())).collect();
                for (name, keys) in [("delete", &write.delete), ("revert", &write.revert)] {
                    if !keys.is_empty() {
                        let names: Vec<String> = keys.iter().map(ToString::to_string).collect();
                        pairs.push((name.to_owned(), names.join(",")));
                    }
                }
                pairs.push(("digest".to_owned(), write.digest.clone()));
                pairs
            }
            Self::Resize { disk, to, digest, from: _ } => vec![
                ("disk".to_owned(), disk.to_string()),
                ("size".to_owned(), to.to_string()),
                ("digest".to_owned(), digest.clone()),
            ],
            Self::MoveVolume { disk, to, digest, volume: _, from: _ } => {
                let slot = match disk.kind() {
                    GuestKind::Lxc => "volume",
                    GuestKind::Qemu => "disk",
                };
                vec![
                    (slot.to_owned(), disk.to_string()),
                    ("storage".to_owned(), to.clone()),
                    // Spelled out: whether the source is freed is never left to a default.
                    ("delete".to_owned(), "0".to_owned()),
                    ("digest".to_owned(), digest.clone()),
                ]
            }
            Self::Shutdown { timeout_s } => vec![("timeout".to_owned(), timeout_s.to_string())],
            Self::Destroy(destroy) | Self::Remove(Removal { destroy, .. }) => {
                return destroy.params();
            }
            Self::Make(new) => return new.params(),
            Self::Start | Self::Stop | Self::Template => Vec::new(),
        };
        pairs.into_iter().collect()
    }

    /// The slot it is about, if it is about one volume: each of a guest's volumes grows and moves by an act of its own.
    pub fn slot(&self) -> Option<KeyRef> {
        match self {
            Self::Resize { disk, .. } | Self::MoveVolume { disk, .. } => Some(*disk),
            Self::SetConfig(_)
            | Self::Start
            | Self::Shutdown { .. }
            | Self::Stop
            | Self::Make(_)
            | Self::Destroy(_)
            | Self::Remove(_)
            | Self::Template => None,
        }
    }

    /// Its parameters as they may be shown or stored, secrets masked.
    pub fn shown_params(&self) -> BTreeMap<String, String> {
        let mut params = self.params();
        for (name, text) in &mut params {
            if let Cow::Owned(masked) = secret::masked_param(name, text) {
                *text = masked;
            }
        }
        params
    }

    /// The same as [`Step::params`] without the digest, which every write changes: what makes two steps the same act.
    pub fn params_but_digest(&self) -> BTreeMap<String, String> {
        let mut params = self.params();
        params.remove("digest");
        params
    }
}

/// One key that shall change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The key.
    pub key: KeyRef,
    /// What is in effect; none if it is absent.
    pub from: Option<Value>,
    /// What is declared; none if it must be absent.
    pub to: Option<Value>,
    /// How the write says it.
    pub how: How,
    /// When it reaches the guest.
    pub when: When,
    /// What it can cost by itself.
    pub class: ActionClass,
}

/// How a write says a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum How {
    /// The key is set to this text.
    Set(String),
    /// The key is removed.
    Delete,
    /// The change that waits is dropped; what is in effect is right.
    Revert,
}

impl Change {
    /// One line a difference: `cores 2 -> 4`; of a property string only the parts that differ, such as
    /// `net0.tag unset -> 5`.
    pub fn lines(&self) -> Vec<String> {
        let format = &self.key.key().format;
        match (&self.how, format, &self.from, &self.to) {
            (How::Revert, _, from, _) => {
                let stays = self.shown(from.as_ref());
                vec![format!("{} stays {stays} (drops the waiting change)", self.key)]
            }
            (
                _,
                ValueFormat::Property(shape),
                Some(Value::Property(from)),
                Some(Value::Property(to)),
            ) => changed_parts(self.key, shape, from, to),
            (How::Set(_) | How::Delete, _, from, to) => {
                let from = self.shown(from.as_ref());
                let to = self.shown(to.as_ref());
                vec![changed(&self.key, &from, &to)]
            }
        }
    }

    /// What is in effect, whole, as PVE stores it, secrets masked; none if the key is absent.
    pub fn before(&self) -> Option<String> {
        self.whole(self.from.as_ref())
    }

    /// What shall be, whole, as PVE is sent it, secrets masked; none if the key shall be absent.
    pub fn after(&self) -> Option<String> {
        self.whole(self.to.as_ref())
    }

    fn whole(&self, value: Option<&Value>) -> Option<String> {
        secret::stored_form(self.key, value?)
    }

    /// A value of the key, as a person may see it.
    fn shown(&self, value: Option<&Value>) -> String {
        let key = self.key.key();
        match value.filter(|value| !value.is_empty()) {
            Some(value) if key.secret => cut(secret::shown(key, value)),
            value => shown(&key.format, value),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines().join(", "))
    }
}

/// A value, or the word for its absence; an empty value is written by deleting its key.
fn shown(format: &ValueFormat, value: Option<&Value>) -> String {
    value
        .filter(|value| !value.is_empty())
        .map_or_else(|| "unset".to_owned(), |value| masked(print::shown(format, value)))
}

/// A part that the registry does not know may still be called a password.
fn masked(text: String) -> String {
    match secret::masked_text(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(clean) => clean,
    }
}

/// `cores 2 -> 4`; two secrets look the same and differ.
fn changed(name: &dyn fmt::Display, from: &str, to: &str) -> String {
    let hidden = if from == to { " (the hidden values differ)" } else { "" };
    format!("{name} {from} -> {to}{hidden}")
}

/// The parts of a property string that differ and count.
fn changed_parts(key: KeyRef, shape: &Shape, from: &Property, to: &Property) -> Vec<String> {
    let differs = |part: &&FormatPart| match part.compared {
        Compared::Always => from.get(part.name) != to.get(part.name),
        Compared::WhenDeclared => {
            part.name != "size"
                && to.get(part.name).is_some_and(|to| Some(to) != from.get(part.name))
        }
        Compared::Never => false,
    };
    // A volume still to be allocated is the one that is there, if its storage is.
    let same_volume = |part: &&FormatPart| {
        matches!(
            (from.get(part.name), to.get(part.name)),
            (Some(Value::Volume(have)), Some(Value::Volume(want)))
                if matches!(&**want, VolumeRef::Fresh { storage } if have.storage() == Some(storage))
        )
    };
    let parts = shape.parts.iter().filter(differs).filter(|part| !same_volume(part));
    parts
        .map(|part| {
            // The part that may stand without its name is what the key is about.
            let name = if shape.bare == Some(part.name) {
                key.to_string()
            } else {
                format!("{key}.{}", part.name)
            };
            let part_shown = |value: Option<&Value>| match value {
                Some(_) if part.secret => secret::MASK.to_owned(),
                value => shown(&part.format, value),
            };
            changed(&name, &part_shown(from.get(part.name)), &part_shown(to.get(part.name)))
        })
        .collect()
}

/// Why an action cannot run now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    /// It is shown and never done.
    Observed(ObservedBy),
    /// It needs an operator's signature.
    PendingSignature,
    /// A task of PVE's owns the guest.
    Locked {
        /// PVE's word for it, such as `backup`.
        lock: String,
        /// Which task it is and how far, where somebody looked: `vzdump of lxc/101, 34 %`.
        by: Option<String>,
        /// What to do about it, where somebody looked and nobody works on the guest any more.
        left: Option<String>,
    },
    /// The host is frozen.
    Frozen,
    /// It, or an action before it, failed and waits for its next try.
    FailedBefore(Box<FailedBefore>),
    /// A volume cannot be moved now.
    Volume(VolumeHold),
    /// The guest cannot become a template now.
    Template(TemplateHold),
    /// No executor for it exists.
    NotExecutable(&'static str),
    /// Something else that must change first.
    Until(Refusal),
}

/// Who wants an action to be shown only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObservedBy {
    /// The declaration of the guest.
    Guest,
    /// The host's own policy.
    Host,
}

impl Held {
    /// The reason code.
    pub fn reason(&self) -> ReasonCode {
        match self {
            Self::Observed(_) => ReasonCode::Observe,
            Self::PendingSignature => ReasonCode::PendingSignature,
            Self::Locked { .. } => ReasonCode::Locked,
            Self::Frozen => ReasonCode::Frozen,
            Self::FailedBefore(_) => ReasonCode::FailedBefore,
            Self::Volume(hold) => hold.reason(),
            Self::Template(_) => ReasonCode::After,
            Self::NotExecutable(_) => ReasonCode::NotExecutable,
            Self::Until(refusal) => refusal.reason,
        }
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Observed(ObservedBy::Guest) => f.write_str("the guest is in observe mode"),
            Self::Observed(ObservedBy::Host) => f.write_str("this host is in observe mode"),
            Self::PendingSignature => f.write_str("needs a signature"),
            Self::Locked { by: Some(task), .. } => write!(f, "waiting for {task}"),
            Self::Locked { lock, by: None, left: None } => {
                write!(f, "the guest is locked ({lock})")
            }
            Self::Locked { lock, by: None, left: Some(left) } => {
                write!(f, "the guest is locked ({lock}) and no task runs on it: {left}")
            }
            Self::Frozen => f.write_str("this host is frozen"),
            Self::FailedBefore(failed) => failed.fmt(f),
            Self::Volume(hold) => hold.fmt(f),
            Self::Template(hold) => hold.fmt(f),
            Self::NotExecutable(why) => f.write_str(why),
            Self::Until(refusal) => f.write_str(&refusal.detail),
        }
    }
}

impl Action {
    /// The effect shown beside the action.
    pub fn effect(&self) -> &'static str {
        match self.class {
            ActionClass::Destructive => "destructive",
            ActionClass::Disruptive => "disruptive",
            ActionClass::Benign => {
                let latest = self.changes.iter().map(|change| change.when).max();
                match latest {
                    Some(When::AfterRestart) => "after restart",
                    Some(When::Live) | None => "live",
                }
            }
        }
    }

    /// The reasons, one a line: `cores 2 -> 4`, `run stopped -> running`.
    pub fn reasons(&self) -> Vec<String> {
        match &self.step {
            Step::SetConfig(_) => self.changes.iter().map(ToString::to_string).collect(),
            Step::Resize { disk, from, to, .. } => {
                vec![format!("{disk} {} -> {}", from.shown(), to.shown())]
            }
            Step::MoveVolume { disk, volume, from, to, .. } => vec![
                format!("{disk} {from} -> {to}"),
                format!("{volume} stays as an unused volume"),
            ],
            Step::Start => vec!["run stopped -> running".to_owned()],
            Step::Shutdown { .. } | Step::Stop => vec!["run running -> stopped".to_owned()],
            Step::Make(new) => vec![made_from(new)],
            Step::Destroy(_) => vec!["state present -> absent".to_owned()],
            Step::Remove(removal) => vec![removed_as(removal)],
            Step::Template => vec!["template false -> true".to_owned()],
        }
    }
}

/// `state half made -> absent (op_… failed to make it; it is made again)`.
fn removed_as(removal: &Removal) -> String {
    let making = removal.making;
    match removal.ground {
        RemovalGround::HalfMade => {
            format!("state half made -> absent ({making} failed to make it; it is made again)")
        }
        RemovalGround::Scratch => format!("state present -> absent (scratch, made by {making})"),
    }
}

/// `state absent -> present, from local:vztmpl/debian-12.tar.zst`.
fn made_from(new: &NewGuest) -> String {
    let from = match &new.source {
        GuestSource::Empty => "with empty disks".to_owned(),
        GuestSource::Template(volume)
        | GuestSource::Image { volume, .. }
        | GuestSource::Backup { volume, .. } => format!("from {volume}"),
        GuestSource::Clone(from) => {
            let snapshot = from.snapshot.as_ref().map(|name| format!(" at {name}"));
            format!("from {}/{}{}", new.guest.kind, from.guest, snapshot.unwrap_or_default())
        }
    };
    format!("state absent -> present, {from}")
}
