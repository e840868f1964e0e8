//! The classifier: what an act can cost, judged by its effect on data, not by its verb.
//!
//! Total and closed: an op, key, parameter or value it does not know is destructive (invariant 10). It
//! takes raw names and texts, because what must be judged may come from a file, a hub or a signed job;
//! the planner asks it about its own actions in the very same form. It never looks at tags or claims.

mod change;
mod volume;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

pub(crate) use change::change;
use change::creation;
pub use change::{opened_by_raw_line, opens_the_host};
pub use volume::{
    BackupMemory, DataSlot, data_slots, leaving_unsaved, never_written, saved_volumes,
};
pub(crate) use volume::{revert, slot_of};

use crate::action_registry::{ActionCost, ActionKind, AppliesWaiting, WorstEffect};
use crate::actual::identity;
use crate::actual::{ConfigField, Guest, GuestConfig, UnknownWaits};
use crate::model::id::GuestKind;
use crate::model::quantity::Bytes;
use crate::operate::operation::Provenance;
use crate::registry::{self, Hazard, KeyRef};
use crate::value::{Property, Value, read};

/// What an act can cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ActionClass {
    /// Nothing that cannot be set back.
    Benign,
    /// An interruption, or a guest that may not come up; no data on disk is lost.
    Disruptive,
    /// Data, or a guard over data. Needs a signature.
    Destructive,
}

impl fmt::Display for ActionClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Benign => "benign",
            Self::Disruptive => "disruptive",
            Self::Destructive => "destructive",
        })
    }
}

/// An act to be judged, as raw as it comes.
#[derive(Debug, Clone, Copy)]
pub struct ActIntent<'a> {
    /// The op, by name.
    pub op: &'a str,
    /// What kind of guest it is aimed at.
    pub kind: GuestKind,
    /// Every parameter, by name.
    pub params: &'a BTreeMap<String, String>,
    /// The guest it is aimed at.
    pub target: Target<'a>,
}

/// What is known of the guest an act is aimed at.
#[derive(Debug, Clone, Copy)]
pub enum Target<'a> {
    /// It was read.
    Seen(&'a Guest),
    /// It was proved that no guest has this number.
    Free,
    /// Nobody looked, or could not see.
    Unknown,
}

/// A class with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// The class.
    pub class: ActionClass,
    /// Why it is not lower, as a phrase. Empty for benign acts.
    pub why: String,
}

impl Judgement {
    fn new(class: ActionClass, why: impl Into<String>) -> Self {
        Self { class, why: why.into() }
    }

    fn benign() -> Self {
        Self::new(ActionClass::Benign, "")
    }

    /// The worse of two; the first reason wins between equals.
    fn worse(self, other: Self) -> Self {
        if other.class > self.class { other } else { self }
    }
}

/// Judges an act, with nothing remembered of the guest's volumes: each may be in backups.
pub fn classify(intent: &ActIntent<'_>, provenance: &Provenance) -> Judgement {
    classify_remembering(intent, provenance, &BackupMemory::none())
}

/// Judges an act.
pub fn classify_remembering(
    intent: &ActIntent<'_>,
    provenance: &Provenance,
    memory: &BackupMemory,
) -> Judgement {
    let Ok(op) = intent.op.parse::<ActionKind>() else {
        return Judgement::new(
            ActionClass::Destructive,
            format!("`{}` is not an op that evenkeel knows", intent.op),
        );
    };
    let verb = match op.row().cost {
        ActionCost::Always(class, why) => Judgement::new(class, why),
        ActionCost::ByChanges => config(intent, memory),
        ActionCost::ByGrowth => resize(intent),
        ActionCost::ByMove => volume::judge_move(intent),
        ActionCost::ByFreeNumber => into_free_number(intent, op),
        ActionCost::ByOrigin => destroy(intent, provenance),
    };
    verb.worse(parameters(intent, op)).worse(what_waits(intent, op))
}

fn parameters(intent: &ActIntent<'_>, op: ActionKind) -> Judgement {
    let mut judgement = Judgement::benign();
    for (name, value) in intent.params {
        let next = match op.param(intent.kind, name).map(|param| param.worst) {
            Some(WorstEffect::Harmless) => Judgement::benign(),
            Some(WorstEffect::Interrupts) => {
                Judgement::new(ActionClass::Disruptive, format!("`{name}` interrupts"))
            }
            Some(WorstEffect::DestroysIfOn(_)) if value == "0" => Judgement::benign(),
            Some(WorstEffect::DestroysIfOn(why)) => Judgement::new(ActionClass::Destructive, why),
            None if op.row().takes_keys && registry::find(intent.kind, name).is_some() => {
                Judgement::benign()
            }
            None => Judgement::new(
                ActionClass::Destructive,
                format!("`{name}` is not a parameter of {op} that evenkeel knows"),
            ),
        };
        judgement = judgement.worse(next);
    }
    judgement
}

/// A waiting force-delete frees its volume at the next start, stop or write, whatever that one is for.
fn what_waits(intent: &ActIntent<'_>, op: ActionKind) -> Judgement {
    let sets_off = op.row().applies_waiting == AppliesWaiting::Yes;
    let config = match intent.target {
        Target::Seen(Guest { config: Ok(config), .. }) => config,
        Target::Seen(_) | Target::Unknown if sets_off => {
            return Judgement::new(
                ActionClass::Destructive,
                "the changes that wait for a restart could not be read",
            );
        }
        Target::Seen(_) | Target::Free | Target::Unknown => return Judgement::benign(),
    };
    let applies_waiting = match (op.row().applies_waiting, intent.target) {
        (AppliesWaiting::No, _) => false,
        (AppliesWaiting::StoppedMachine, Target::Seen(guest)) => {
            intent.kind == GuestKind::Qemu && !guest.is_running()
        }
        (AppliesWaiting::Yes, _)
        | (AppliesWaiting::StoppedMachine, Target::Free | Target::Unknown) => true,
    };
    if config.destruction_waits() && !drops_every_destruction(intent, config, op) {
        Judgement::new(ActionClass::Destructive, "a waiting deletion would destroy its volume")
    } else if applies_waiting && config.anything_waits() {
        Judgement::new(ActionClass::Disruptive, "applies changes that wait for a restart")
    } else {
        Judgement::benign()
    }
}

/// Whether a write drops every waiting destruction: PVE does that before it applies anything, so the
/// volumes are saved, and saving them must not wait for a signature.
fn drops_every_destruction(intent: &ActIntent<'_>, config: &GuestConfig, op: ActionKind) -> bool {
    let reverted = intent.params.get("revert").map_or("", String::as_str);
    let mut doomed = config.fields.iter().filter(|field| field.destruction_waits());
    op == ActionKind::SetConfig
        && config.unknown_waits != UnknownWaits::DestroySteps
        && doomed.all(|field| names_in(reverted).any(|name| field.key.to_string() == name))
}

/// The keys of a `delete` or `revert` parameter, split as PVE splits lists.
fn names_in(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| c == ',' || c == ';' || c.is_whitespace()).filter(|name| !name.is_empty())
}

fn resize(intent: &ActIntent<'_>) -> Judgement {
    let disk = intent.params.get("disk").and_then(|disk| registry::find(intent.kind, disk));
    if !disk.is_some_and(|disk| disk.key().hazard.is_volume_slot()) {
        return Judgement::new(ActionClass::Destructive, "it names no volume that evenkeel knows");
    }
    let size = intent.params.get("size").map(|size| Bytes::from_pve(size));
    match size {
        Some(Ok(size)) if size_of(intent, disk).is_some_and(|has| size < has) => {
            Judgement::new(ActionClass::Destructive, "the new size is smaller than the volume")
        }
        Some(Ok(_)) => Judgement::benign(),
        // A relative size grows again with each repeat.
        Some(Err(_)) | None => {
            Judgement::new(ActionClass::Destructive, "the new size is not an absolute size")
        }
    }
}

/// The size of the volume in a slot, as far as it is known.
fn size_of(intent: &ActIntent<'_>, disk: Option<KeyRef>) -> Option<Bytes> {
    let Target::Seen(Guest { config: Ok(config), .. }) = intent.target else {
        return None;
    };
    config.field(disk?)?.current.as_ref()?.value.as_property()?.size()
}

fn into_free_number(intent: &ActIntent<'_>, op: ActionKind) -> Judgement {
    match (intent.target, op) {
        (Target::Free, ActionKind::Create | ActionKind::Restore) => {
            let keys = intent
                .params
                .iter()
                .filter_map(|(name, text)| Some((find(intent.kind, name)?, text)));
            keys.map(|(key, text)| creation(key, &read::written(&key.key().format, text)))
                .fold(Judgement::benign(), Judgement::worse)
        }
        (Target::Free, _) => Judgement::benign(),
        // A clone is aimed at its source, which it does not change.
        (Target::Seen(_), ActionKind::Clone) => Judgement::benign(),
        (Target::Seen(_) | Target::Unknown, _) => Judgement::new(
            ActionClass::Destructive,
            "evenkeel has not proved that the number is free",
        ),
    }
}

/// Only our own journal, confirmed by the live identity, can make a destroy benign.
fn destroy(intent: &ActIntent<'_>, provenance: &Provenance) -> Judgement {
    let own_scratch = match intent.target {
        Target::Seen(guest) => {
            !guest.template
                && guest.ha.is_none()
                && guest.config.as_deref().is_ok_and(holds_only_what_identity_covers)
                && identity::identity(guest).is_ok_and(|live| provenance.proves(guest.id, &live))
        }
        Target::Free | Target::Unknown => false,
    };
    if own_scratch {
        Judgement::benign()
    } else {
        Judgement::new(ActionClass::Destructive, "the guest and all its volumes are lost")
    }
}

/// Whether everything a destroy would take is in the identity, and nobody says that it must stay. Detached and waiting volumes and keys of a
/// newer release are not, so somebody may have put data there; protection says that somebody cares.
fn holds_only_what_identity_covers(config: &GuestConfig) -> bool {
    let guarded = |field: &ConfigField| {
        let current = field.current.as_ref().map(|reading| &reading.value);
        match field.key.key().hazard {
            Hazard::UnusedVolume => true,
            Hazard::Guard => current == Some(&Value::Bool(true)),
            Hazard::Safe
            | Hazard::Disrupts
            | Hazard::GuestName
            | Hazard::RootVolume
            | Hazard::VolumeSlot
            | Hazard::TpmState
            | Hazard::Forbidden => false,
        }
    };
    config.unknown.is_empty() && !config.anything_waits() && !config.fields.iter().any(guarded)
}

fn config(intent: &ActIntent<'_>, memory: &BackupMemory) -> Judgement {
    let (vmid, seen) = match intent.target {
        Target::Seen(Guest { id, config: Ok(config), .. }) => (id.vmid, config),
        Target::Seen(_) | Target::Free | Target::Unknown => {
            return Judgement::new(
                ActionClass::Destructive,
                "the configuration it would change is unknown",
            );
        }
    };
    let mut judgement = Judgement::benign();
    for (name, text) in intent.params {
        let next = match name.as_str() {
            "delete" => names_in(text)
                .map(|name| match find(intent.kind, name) {
                    Some(key) => change(key, vmid, seen, memory, None),
                    None => unknown_key(name),
                })
                .fold(Judgement::benign(), Judgement::worse),
            // Reverting drops what waits; a volume allocated for it stays as unusedN.
            "revert" => names_in(text)
                .map(|name| match find(intent.kind, name) {
                    Some(key) => revert(key, vmid, seen),
                    None => unknown_key(name),
                })
                .fold(Judgement::benign(), Judgement::worse),
            _ => match find(intent.kind, name) {
                Some(key) => {
                    let to = read::written(&key.key().format, text);
                    change(key, vmid, seen, memory, Some(&to)).worse(set_twice(intent, name, &to))
                }
                // Judged with the other parameters.
                None => Judgement::benign(),
            },
        };
        judgement = judgement.worse(next);
    }
    judgement
}

/// A write that puts one volume into two slots at once.
fn set_twice(intent: &ActIntent<'_>, name: &str, value: &Value) -> Judgement {
    let Some(volume) = value.as_property().and_then(Property::data_volume) else {
        return Judgement::benign();
    };
    let twice = intent.params.iter().filter(|(other, _)| *other != name).find(|(other, text)| {
        find(intent.kind, other).is_some_and(|key| {
            let value = read::written(&key.key().format, text);
            value.as_property().and_then(Property::data_volume) == Some(volume)
        })
    });
    match twice {
        Some((other, _)) => Judgement::new(
            ActionClass::Destructive,
            format!("`{name}` and `{other}` get one volume: two disks would write to it"),
        ),
        None => Judgement::benign(),
    }
}

/// The key a parameter writes: `cdrom` is another name of `ide2`.
fn find(kind: GuestKind, name: &str) -> Option<KeyRef> {
    match (kind, name) {
        (GuestKind::Qemu, "cdrom") => registry::find(kind, "ide2"),
        (GuestKind::Lxc | GuestKind::Qemu, _) => registry::find(kind, name),
    }
}

fn unknown_key(name: &str) -> Judgement {
    Judgement::new(ActionClass::Destructive, format!("`{name}` is not a key that evenkeel knows"))
}
