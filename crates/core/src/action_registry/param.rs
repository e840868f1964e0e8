//! Parameters of actions: what each may look like, and the worst it can do.
//!
//! Names that end in a path are held to PVE's grammar, so that no `..` or `?` is ever signed or sent.

use crate::gate::final_backup::is_exclusion;
use crate::model::id::{GuestKind, NodeName, VmId};

/// One parameter of an action.
#[derive(Debug)]
pub struct ParamRow {
    /// Its name.
    pub name: &'static str,
    /// What it may look like.
    pub form: ParamForm,
    /// The worst it can do.
    pub worst: WorstEffect,
    /// Whether a statement must spell it out: left out it would take PVE's default, which differs between releases.
    pub spelled_out: bool,
    /// What it is when somebody asks for the action and does not say.
    pub default: Option<&'static str>,
    /// The one kind of guest whose call has it.
    pub only: Option<GuestKind>,
}

/// The worst a parameter can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorstEffect {
    /// Nothing.
    Harmless,
    /// It interrupts.
    Interrupts,
    /// It destroys, unless it is plainly off.
    DestroysIfOn(&'static str),
}

/// What a value may look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParamForm {
    /// `0` or `1`.
    Flag,
    /// Digits without leading zeros.
    Count,
    /// A guest's number.
    VmId,
    /// A node.
    Node,
    /// A storage.
    Storage,
    /// A storage, or nothing.
    StorageOrNothing,
    /// What a backup leaves out: `mp1=store:vm-101-disk-1`, `snapshot=before` and `path=/data/*` with commas between, or
    /// nothing.
    LeftOut,
    /// A volume: storage, colon, name.
    Volume,
    /// A configuration slot.
    Slot,
    /// Slots or keys with commas between.
    Keys,
    /// A snapshot's name.
    Snapshot,
    /// Any text: PVE is sent it as one form-encoded value.
    Text,
}

/// A harmless parameter that may be left out.
pub(super) const fn param(name: &'static str, form: ParamForm) -> ParamRow {
    let worst = WorstEffect::Harmless;
    ParamRow { name, form, worst, spelled_out: false, default: None, only: None }
}

/// A flag.
pub(super) const fn flag(name: &'static str) -> ParamRow {
    param(name, ParamForm::Flag)
}

/// Any text.
pub(super) const fn text(name: &'static str) -> ParamRow {
    param(name, ParamForm::Text)
}

impl ParamRow {
    pub(super) const fn interrupts(self) -> Self {
        Self { worst: WorstEffect::Interrupts, ..self }
    }

    pub(super) const fn destroys_if_on(self, why: &'static str) -> Self {
        Self { worst: WorstEffect::DestroysIfOn(why), ..self }
    }

    pub(super) const fn spelled_out(self) -> Self {
        Self { spelled_out: true, ..self }
    }

    pub(super) const fn default(self, text: &'static str) -> Self {
        Self { default: Some(text), ..self }
    }

    pub(super) const fn only(self, guest: GuestKind) -> Self {
        Self { only: Some(guest), ..self }
    }

    /// Whether the call for this kind of guest has it.
    pub fn is_of(&self, guest: GuestKind) -> bool {
        self.only.is_none_or(|only| only == guest)
    }
}

impl ParamForm {
    /// Whether a value looks so.
    pub fn fits(self, value: &str) -> bool {
        match self {
            Self::Flag => matches!(value, "0" | "1"),
            Self::Count => value.parse::<u64>().is_ok_and(|number| number.to_string() == value),
            Self::VmId => value.parse::<VmId>().is_ok(),
            Self::Node => value.parse::<NodeName>().is_ok(),
            Self::Storage => is_word(value, "._-"),
            Self::StorageOrNothing => value.is_empty() || Self::Storage.fits(value),
            Self::LeftOut => value.is_empty() || value.split(',').all(is_left_out),
            Self::Volume => value.split_once(':').is_some_and(|(storage, name)| {
                is_word(storage, "._-") && name.split('/').all(is_part)
            }),
            Self::Slot => is_word(value, "_"),
            Self::Keys => value.split(',').all(|key| is_word(key, "_-")),
            Self::Snapshot => is_word(value, "_-") && value.len() <= 40,
            Self::Text => true,
        }
    }

    /// A word for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Flag => "flag",
            Self::Count => "number",
            Self::VmId => "guest number",
            Self::Node => "node",
            Self::Storage => "storage",
            Self::StorageOrNothing => "storage, or nothing",
            Self::LeftOut => "slots, snapshots and paths, or nothing",
            Self::Volume => "volume",
            Self::Slot => "slot",
            Self::Keys => "list of keys",
            Self::Snapshot => "snapshot name",
            Self::Text => "text",
        }
    }
}

/// A letter, then letters, digits and the given marks.
pub(crate) fn is_word(text: &str, marks: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(|letter| letter.is_ascii_alphanumeric() || marks.contains(letter))
}

/// A slot with its volume, a snapshot, an excluded path, something that is never saved, or a key nobody knows.
fn is_left_out(text: &str) -> bool {
    text.split_once('=').is_some_and(|(slot, what)| {
        let is_named =
            is_word(slot, "_.-") && (is_word(what, "_-") || ParamForm::Volume.fits(what));
        is_named || is_exclusion(slot, what)
    })
}

/// One part of a volume's path: never empty, never a step upwards.
fn is_part(part: &str) -> bool {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "._+:@-".contains(letter);
    !part.is_empty() && !part.bytes().all(|byte| byte == b'.') && part.chars().all(plain)
}
