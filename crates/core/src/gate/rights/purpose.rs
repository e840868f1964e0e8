//! What making, copying, restoring, moving and saving guests takes of a token, by release.
//!
//! `doctor` names it for what is declared, and for what somebody may want tomorrow. The calls' own rights stand in the
//! registry of actions; here is what PVE asks besides.

use super::{Rights, to_see_surroundings};
use crate::action_registry::ActionKind;
use crate::desired::{GuestSource, Spec};
use crate::model::id::GuestKind;
use crate::model::release::Release;
use crate::value::Value;

/// Something a token is used for, beside keeping what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TokenPurpose {
    /// Make a guest from a template, an image or nothing.
    Make,
    /// Make a container that is privileged.
    MakePrivileged,
    /// Copy a guest.
    Clone,
    /// Make a guest from a backup.
    Restore,
    /// Turn a guest into a template.
    Template,
    /// Move a volume to another storage.
    Move,
    /// Back a guest up, on request or before its end.
    BackUp,
    /// Destroy a guest that somebody signed for: stop it, take its protection off, remove it.
    Destroy,
    /// Remove unsigned what a making of ours left, or a scratch guest.
    Remove,
}

impl TokenPurpose {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Make,
        Self::MakePrivileged,
        Self::Clone,
        Self::Restore,
        Self::Template,
        Self::Move,
        Self::BackUp,
        Self::Destroy,
        Self::Remove,
    ];

    /// What a declared guest may come to need.
    pub fn of(kind: GuestKind, spec: &Spec) -> Vec<Self> {
        let made = spec.source.as_ref().map(|source| match source {
            GuestSource::Empty | GuestSource::Template(_) | GuestSource::Image { .. } => Self::Make,
            GuestSource::Clone(_) => Self::Clone,
            GuestSource::Backup { .. } => Self::Restore,
        });
        let says_privileged = spec.fields.iter().any(|field| {
            field.key.key().name == "unprivileged" && field.want == Some(Value::Bool(false))
        });
        let is_privileged = kind == GuestKind::Lxc && says_privileged && made.is_some();
        let privileged = is_privileged.then_some(Self::MakePrivileged);
        let template = spec.template.then_some(Self::Template);
        [made, privileged, template].into_iter().flatten().collect()
    }

    /// Its name where somebody asks for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Make => "make",
            Self::MakePrivileged => "make-privileged",
            Self::Clone => "clone",
            Self::Restore => "restore",
            Self::Template => "template",
            Self::Move => "move",
            Self::BackUp => "backup",
            Self::Destroy => "destroy",
            Self::Remove => "remove",
        }
    }

    /// What it is called: `for making guests`.
    pub fn words(self) -> &'static str {
        match self {
            Self::Make => "making guests",
            Self::MakePrivileged => "making privileged containers",
            Self::Clone => "cloning guests",
            Self::Restore => "restoring backups",
            Self::Template => "converting guests to templates",
            Self::Move => "moving volumes",
            Self::BackUp => "backing guests up",
            Self::Destroy => "signed destroys",
            Self::Remove => "removing half-made and scratch guests",
        }
    }

    /// The rights it takes on a release. Those of the keys that are written come on top.
    pub fn rights(self, release: Release) -> Rights {
        let mut rights = Rights::new();
        let mut need = |path: &'static str, privilege: &'static str| {
            rights.entry(path).or_default().insert(privilege);
        };
        let action = match self {
            Self::Make => Some(ActionKind::Create),
            Self::MakePrivileged => {
                // Since 9.0 a root user that is the host's own is the administrator's to give.
                if release >= Release::V9_0 {
                    need("/", "Sys.Modify");
                }
                None
            }
            Self::Clone => {
                // `onboot` comes with the source; it is set before anything else.
                need("/vms", "VM.Config.Options");
                Some(ActionKind::Clone)
            }
            Self::Restore => {
                need("/vms", "VM.Config.Options");
                // A backup is its owner's data: whoever reads it must be allowed to make it.
                need("/vms", "VM.Backup");
                Some(ActionKind::Restore)
            }
            Self::Destroy => {
                // It is stopped, and its protection taken off.
                need("/vms", "VM.PowerMgmt");
                need("/vms", "VM.Config.Options");
                Some(ActionKind::Destroy)
            }
            Self::Remove => {
                need("/vms", "VM.PowerMgmt");
                Some(ActionKind::Destroy)
            }
            Self::Template => Some(ActionKind::Template),
            Self::Move => Some(ActionKind::MoveVolume),
            Self::BackUp => {
                need("/vms", "VM.Backup");
                need("/storage", "Datastore.AllocateSpace");
                None
            }
        };
        let calls = action.map(|action| action.row().rights).unwrap_or_default();
        for (path, privilege) in calls {
            need(path, privilege);
        }
        // Network cards come with the source, on bridges that since 8.0 are somebody's to allow.
        if matches!(self, Self::Clone | Self::Restore) && release >= Release::V8_0 {
            need("/sdn/zones", "SDN.Use");
        }
        if matches!(self, Self::Destroy | Self::Remove) {
            super::add(&mut rights, to_see_surroundings());
        }
        rights
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_purpose_but_one_takes_a_right_on_every_release() {
        for purpose in TokenPurpose::ALL {
            for release in [Release::V7_4, Release::V8_4, Release::V9_0] {
                let is_free = purpose == TokenPurpose::MakePrivileged && release < Release::V9_0;
                assert_eq!(purpose.rights(release).is_empty(), is_free, "{purpose:?} {release}");
            }
        }
        let clone = TokenPurpose::Clone.rights(Release::V8_4);
        assert_eq!(clone["/vms"], BTreeSet::from(["VM.Allocate", "VM.Clone", "VM.Config.Options"]));
        assert_eq!(clone["/storage"], BTreeSet::from(["Datastore.AllocateSpace"]));
        let moved = TokenPurpose::Move.rights(Release::V8_4);
        assert_eq!(moved["/vms"], BTreeSet::from(["VM.Config.Disk"]));
    }
}
