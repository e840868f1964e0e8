//! The closed list of everything evenkeel can ever be asked to do to a guest.
//!
//! Plans, statements, the gate and journalled operations name an action by this one enum, so adding
//! a kind breaks the build wherever a decision about it is due. It carries no parameters, and it
//! must never grow an "other" arm: a word that is not here is not an action.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What an action does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub enum ActionKind {
    /// Write configuration keys.
    SetConfig,
    /// Start the guest.
    Start,
    /// Ask the guest to go down.
    Shutdown,
    /// Take the guest down at once.
    Stop,
    /// Grow a volume.
    Resize,
    /// Make a new guest.
    Create,
    /// Make a new guest from another one.
    Clone,
    /// Make a guest from a backup.
    Restore,
    /// Take a snapshot.
    Snapshot,
    /// Remove the guest and its volumes.
    Destroy,
    /// Put the guest back to a snapshot.
    Rollback,
    /// Remove a snapshot.
    DeleteSnapshot,
    /// Remove a volume that is no longer attached.
    DeleteVolume,
    /// Move a volume to another storage or another guest.
    MoveVolume,
    /// Move the guest to another node.
    Migrate,
    /// Turn the guest into a template.
    Template,
    /// Known, never executed: empty a storage.
    WipeStorage,
    /// Known, never executed: take the host out of service.
    Decommission,
}

impl ActionKind {
    /// Every kind, in the order the documentation lists them.
    pub const ALL: [Self; 18] = [
        Self::SetConfig,
        Self::Start,
        Self::Shutdown,
        Self::Stop,
        Self::Resize,
        Self::Create,
        Self::Clone,
        Self::Restore,
        Self::Snapshot,
        Self::Destroy,
        Self::Rollback,
        Self::DeleteSnapshot,
        Self::DeleteVolume,
        Self::MoveVolume,
        Self::Migrate,
        Self::Template,
        Self::WipeStorage,
        Self::Decommission,
    ];

    /// The spelling used in plans, statements, journal and command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SetConfig => "set_config",
            Self::Start => "start",
            Self::Shutdown => "shutdown",
            Self::Stop => "stop",
            Self::Resize => "resize",
            Self::Create => "create",
            Self::Clone => "clone",
            Self::Restore => "restore",
            Self::Snapshot => "snapshot",
            Self::Destroy => "destroy",
            Self::Rollback => "rollback",
            Self::DeleteSnapshot => "delete_snapshot",
            Self::DeleteVolume => "delete_volume",
            Self::MoveVolume => "move_volume",
            Self::Migrate => "migrate",
            Self::Template => "template",
            Self::WipeStorage => "wipe_storage",
            Self::Decommission => "decommission",
        }
    }

    /// Whether the guest as it is afterwards proves that it was done. A guest under a number may be anybody's, and
    /// a guest that stands on a snapshot may have stood there before.
    pub fn shows(self) -> bool {
        !self.brings_forth() && self != Self::Rollback
    }

    /// Whether a guest comes into being by it, so that the journal can know where it is from.
    pub fn brings_forth(self) -> bool {
        match self {
            Self::Create | Self::Clone | Self::Restore => true,
            Self::SetConfig
            | Self::Start
            | Self::Shutdown
            | Self::Stop
            | Self::Resize
            | Self::Snapshot
            | Self::Destroy
            | Self::Rollback
            | Self::DeleteSnapshot
            | Self::DeleteVolume
            | Self::MoveVolume
            | Self::Migrate
            | Self::Template
            | Self::WipeStorage
            | Self::Decommission => false,
        }
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
        Self::ALL
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or_else(|| UnknownAction(text.to_owned()))
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
}
