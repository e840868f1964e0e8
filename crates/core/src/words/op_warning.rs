//! Which warnings of acts that were done are kept, and until when.
//!
//! A volume that grew without its file system is as declared, so no plan ever mentions it again: the warning is kept until
//! the next act on the same slot, or one that makes, replaces or removes the guest. Power and configuration in general do
//! not end it, because they mend nothing. Asked by the agent whenever an act was done; a kept warning decides nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::action_registry::ActionKind;

/// What a kept warning is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum WarningSubject {
    /// The guest as it was made or moved.
    Guest,
    /// The volume in a slot.
    Slot(String),
}

/// An act that was done, as far as warnings depend on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoneAct {
    kind: ActionKind,
    slots: BTreeSet<String>,
}

impl DoneAct {
    /// An act of this kind, sent with these parameters.
    pub fn new(kind: ActionKind, params: &BTreeMap<String, String>) -> Self {
        let named = |name: &str| params.get(name).cloned();
        let slots = match kind {
            ActionKind::Resize => named("disk").into_iter().collect(),
            ActionKind::MoveVolume => named("disk").or(named("volume")).into_iter().collect(),
            ActionKind::SetConfig => {
                let deleted = params.get("delete").into_iter().flat_map(|keys| keys.split(','));
                let keys = params.keys().map(String::as_str).chain(deleted);
                keys.filter(|key| is_slot(key)).map(str::to_owned).collect()
            }
            ActionKind::Start
            | ActionKind::Shutdown
            | ActionKind::Stop
            | ActionKind::Create
            | ActionKind::Clone
            | ActionKind::Restore
            | ActionKind::Snapshot
            | ActionKind::Backup
            | ActionKind::Destroy
            | ActionKind::Rollback
            | ActionKind::DeleteSnapshot
            | ActionKind::DeleteVolume
            | ActionKind::Migrate
            | ActionKind::Template
            | ActionKind::WipeStorage
            | ActionKind::Decommission => BTreeSet::new(),
        };
        Self { kind, slots }
    }

    /// What a warning about it is kept for; none if it is told once and that is all.
    pub fn subject(&self) -> Option<WarningSubject> {
        match self.kind {
            ActionKind::Resize | ActionKind::MoveVolume => {
                self.slots.first().cloned().map(WarningSubject::Slot)
            }
            ActionKind::Create | ActionKind::Clone | ActionKind::Restore | ActionKind::Migrate => {
                Some(WarningSubject::Guest)
            }
            ActionKind::SetConfig
            | ActionKind::Start
            | ActionKind::Shutdown
            | ActionKind::Stop
            | ActionKind::Snapshot
            | ActionKind::Backup
            | ActionKind::Destroy
            | ActionKind::Rollback
            | ActionKind::DeleteSnapshot
            | ActionKind::DeleteVolume
            | ActionKind::Template
            | ActionKind::WipeStorage
            | ActionKind::Decommission => None,
        }
    }

    /// Whether it can end a warning, or leave one, at all: most acts need not look.
    pub fn concerns_warnings(&self) -> bool {
        !self.slots.is_empty() || self.subject().is_some() || self.ends(&WarningSubject::Guest)
    }

    /// Whether a warning that was kept before is over by it.
    pub fn ends(&self, kept: &WarningSubject) -> bool {
        match self.kind {
            ActionKind::Create
            | ActionKind::Clone
            | ActionKind::Restore
            | ActionKind::Destroy
            | ActionKind::Rollback => true,
            ActionKind::Migrate => *kept == WarningSubject::Guest,
            ActionKind::Resize | ActionKind::MoveVolume | ActionKind::SetConfig => match kept {
                WarningSubject::Guest => false,
                WarningSubject::Slot(slot) => self.slots.contains(slot),
            },
            ActionKind::Start
            | ActionKind::Shutdown
            | ActionKind::Stop
            | ActionKind::Snapshot
            | ActionKind::Backup
            | ActionKind::DeleteSnapshot
            | ActionKind::DeleteVolume
            | ActionKind::Template
            | ActionKind::WipeStorage
            | ActionKind::Decommission => false,
        }
    }
}

/// Whether a key may be the slot of a volume; one of a card does no harm.
fn is_slot(key: &str) -> bool {
    key == "rootfs" || key.ends_with(|letter: char| letter.is_ascii_digit())
}

impl WarningSubject {
    /// Reads what [`fmt::Display`] prints.
    pub fn read(text: &str) -> Self {
        if text.is_empty() { Self::Guest } else { Self::Slot(text.to_owned()) }
    }
}

impl fmt::Display for WarningSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Guest => Ok(()),
            Self::Slot(slot) => f.write_str(slot),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn act(kind: ActionKind, params: &[(&str, &str)]) -> DoneAct {
        let params = params.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        DoneAct::new(kind, &params.collect())
    }

    fn slot(name: &str) -> WarningSubject {
        WarningSubject::Slot(name.to_owned())
    }

    #[test]
    fn y22_a_warning_about_a_volume_ends_with_the_next_act_on_its_slot_and_not_before() {
        let resize = act(ActionKind::Resize, &[("disk", "mp0"), ("size", "2G")]);
        assert_eq!(resize.subject(), Some(slot("mp0")));
        assert_eq!(WarningSubject::read(&slot("mp0").to_string()), slot("mp0"));
        for (later, ends) in [
            (resize.clone(), true),
            (act(ActionKind::Resize, &[("disk", "mp1")]), false),
            (act(ActionKind::MoveVolume, &[("volume", "mp0")]), true),
            (act(ActionKind::SetConfig, &[("cores", "2")]), false),
            (act(ActionKind::SetConfig, &[("delete", "cores,mp0")]), true),
            (act(ActionKind::SetConfig, &[("mp0", "store:x,mp=/y")]), true),
            (act(ActionKind::Start, &[]), false),
            (act(ActionKind::Backup, &[]), false),
            (act(ActionKind::Destroy, &[]), true),
            (act(ActionKind::Rollback, &[]), true),
        ] {
            assert_eq!(later.ends(&slot("mp0")), ends, "{later:?}");
            assert!(!ends || later.concerns_warnings(), "{later:?}");
        }
    }

    #[test]
    fn y22_a_warning_about_a_making_stays_until_the_guest_is_another() {
        assert_eq!(act(ActionKind::Clone, &[]).subject(), Some(WarningSubject::Guest));
        assert_eq!(act(ActionKind::Start, &[]).subject(), None);
        for kind in ActionKind::ALL {
            let ends = act(kind, &[("disk", "mp0")]).ends(&WarningSubject::Guest);
            let expected = kind.creates_guest()
                || matches!(kind, ActionKind::Destroy | ActionKind::Rollback | ActionKind::Migrate);
            assert_eq!(ends, expected, "{kind}");
        }
    }
}
