//! The bin: a guest that is put aside instead of destroyed, and what it gets back when it is wanted again.
//!
//! Asked by the planner, and by the agent before it hands actions to a lane. In the bin a guest is down, is not started
//! with the node and carries a tag; what else is declared for it waits. What it was before is kept in our journal and
//! counts only for that very guest. It must never be a reason to destroy anything: that takes a signature, as ever.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::actual::identity::{identity, marks};
use crate::actual::{Guest, GuestConfig, Power};
use crate::desired::{DeclaredField, DeclaredGuest, IgnoreList, Run, Spec, WantedState};
use crate::model::id::GuestKind;
use crate::operate::operation::{IdentityHash, UnixSeconds};
use crate::registry;
use crate::value::Value;

/// The tag of a guest in the bin.
pub const BIN_TAG: &str = "evenkeel-bin";

/// What is said of a guest that cannot be put into the bin.
pub const HA_MANAGED: &str =
    "HA manages the guest and would start it again: take it out of HA, then it is put into the bin";

/// What a guest was when it was put into the bin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BinMemory {
    /// Which guest it was.
    pub identity: IdentityHash,
    /// Since when it is in the bin, by the node's clock.
    pub since: UnixSeconds,
    /// Whether it ran.
    pub ran: bool,
    /// Whether it was started with the node; none if nothing was said.
    pub onboot: Option<bool>,
    /// Its tags.
    pub tags: BTreeSet<String>,
    /// What it is known by, one by one; empty in journals of before there was this.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub marks: BTreeSet<String>,
}

impl BinMemory {
    /// The guest as it is now; none if nobody can tell.
    pub fn of(guest: &Guest, now: UnixSeconds) -> Option<Self> {
        let config = guest.config.as_ref().ok()?;
        let onboot = match config.current(guest.id.kind, "onboot") {
            Some(Value::Bool(on)) => Some(*on),
            Some(_) | None => None,
        };
        let ran = match guest.power {
            Power::Running | Power::Paused => true,
            Power::Stopped => false,
            Power::Unknown => return None,
        };
        let tags = tags(guest.id.kind, config).iter().map(ToString::to_string).collect();
        let identity = identity(guest).ok()?;
        Some(Self { identity, since: now, ran, onboot, tags, marks: marks(guest) })
    }

    /// Whether it is about this very guest: the same by all its marks, or one that carries the mark of the bin and has
    /// some of them. While it is in there it may get another card or disk, and it is still the guest that was put aside.
    pub fn is_of(&self, guest: &Guest) -> bool {
        let is_known = || self.marks.is_empty() || !self.marks.is_disjoint(&marks(guest));
        self.is_exactly(guest) || (is_in_bin(guest) && is_known())
    }

    /// Whether it is about a guest that is the same by all its marks.
    pub fn is_exactly(&self, guest: &Guest) -> bool {
        identity(guest) == Ok(self.identity)
    }

    /// The same memory of the guest as it is now; none if nothing about it has changed, or it is another guest.
    pub fn rebound(&self, guest: &Guest) -> Option<Self> {
        let identity = identity(guest).ok().filter(|now| *now != self.identity)?;
        self.is_of(guest).then(|| Self { identity, marks: marks(guest), ..self.clone() })
    }

    /// Whether the guest has been in the bin for so long.
    pub fn is_over(&self, life_s: u64, now: UnixSeconds) -> bool {
        self.since.plus(life_s) <= now
    }
}

/// What shall be of a guest now: in the bin that it is down and put aside; out of it what is declared, and what nobody
/// declares as it was before.
pub fn effective<'d>(
    declared: &'d DeclaredGuest,
    here: Option<&Guest>,
    memory: Option<&BinMemory>,
) -> Cow<'d, DeclaredGuest> {
    let spec = match (&declared.state, here, memory) {
        (WantedState::Bin(spec), Some(here), _) => put_aside(spec, here),
        (WantedState::Present(spec), Some(here), Some(memory)) if memory.is_of(here) => {
            taken_out(spec, here, memory)
        }
        (WantedState::Present(_) | WantedState::Bin(_) | WantedState::Absent { .. }, _, _) => {
            return Cow::Borrowed(declared);
        }
    };
    Cow::Owned(DeclaredGuest { state: WantedState::Present(spec), ..declared.clone() })
}

fn put_aside(spec: &Spec, here: &Guest) -> Spec {
    let mut fields = Vec::new();
    if let Ok(config) = &here.config {
        let mut tags = tags(here.id.kind, config);
        tags.insert(BIN_TAG.into());
        declare(&mut fields, here.id.kind, "tags", Some(Value::Set(tags)));
        declare(&mut fields, here.id.kind, "onboot", Some(Value::Bool(false)));
    }
    let ignore = IgnoreList::default();
    Spec { run: Some(Run::Stopped), stop: spec.stop, ignore, fields, ..Spec::default() }
}

fn taken_out(spec: &Spec, here: &Guest, memory: &BinMemory) -> Spec {
    let mut spec = spec.clone();
    if spec.run.is_none() && memory.ran {
        spec.run = Some(Run::Running);
    }
    if let Ok(config) = &here.config {
        let mut tags = tags(here.id.kind, config);
        if !memory.tags.contains(BIN_TAG) {
            tags.remove(BIN_TAG);
        }
        let tags = (!tags.is_empty()).then_some(Value::Set(tags));
        declare(&mut spec.fields, here.id.kind, "tags", tags);
        declare(&mut spec.fields, here.id.kind, "onboot", memory.onboot.map(Value::Bool));
    }
    spec
}

/// Declares a key that nobody declared.
fn declare(fields: &mut Vec<DeclaredField>, kind: GuestKind, name: &str, want: Option<Value>) {
    let Some(key) = registry::find(kind, name) else {
        return;
    };
    if let Err(at) = fields.binary_search_by_key(&key, |field| field.key) {
        fields.insert(at, DeclaredField { key, want });
    }
}

/// Whether a guest carries the tag of the bin. What is remembered of it is never replaced by what it is now.
pub fn is_in_bin(guest: &Guest) -> bool {
    let config = guest.config.as_ref().ok();
    config.is_some_and(|config| tags(guest.id.kind, config).contains(BIN_TAG))
}

/// A guest's tags as they will be after a restart; tags take effect at once.
fn tags(kind: GuestKind, config: &GuestConfig) -> BTreeSet<Box<str>> {
    match config.current(kind, "tags") {
        Some(Value::Set(tags)) => tags.clone(),
        Some(_) | None => BTreeSet::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actual::ConfigEntry;

    fn guest(tags: &str, mac: &str) -> Guest {
        let card = format!("name=eth0,bridge=vmbr0,hwaddr={mac}");
        let entries = [
            ("rootfs", "tank:subvol-101-disk-0,size=8G"),
            ("ostype", "debian"),
            ("net0", &card),
            ("tags", tags),
        ];
        let entries = entries.into_iter().filter(|(_, text)| !text.is_empty());
        let entries = entries.map(|(key, text)| ConfigEntry {
            key: key.to_owned(),
            value: Some(text.to_owned()),
            pending: None,
            delete: 0,
        });
        let id: crate::model::id::GuestId = "lxc/101".parse().unwrap();
        let config = Ok(GuestConfig::from_pending(id.kind, entries).into());
        Guest { id, power: Power::Stopped, template: false, ha: None, lock: None, config }
    }

    #[test]
    fn y10_a_guest_that_carries_the_mark_is_remembered_whatever_else_it_gets() {
        let before = Guest { power: Power::Running, ..guest("web", "02:00:00:00:00:01") };
        let memory = BinMemory::of(&before, UnixSeconds(7)).unwrap();
        let same = guest("web;evenkeel-bin", "02:00:00:00:00:01");
        assert!(memory.is_of(&same));
        assert_eq!(memory.rebound(&same), None, "nothing to write");
        let changed = guest("web;evenkeel-bin", "02:00:00:00:00:02");
        assert!(memory.is_of(&changed));
        let rebound = memory.rebound(&changed).unwrap();
        assert_eq!((rebound.since, rebound.ran, &rebound.tags), (memory.since, true, &memory.tags));
        // Once the mark is off, it is known by what it is.
        assert!(rebound.is_of(&guest("web", "02:00:00:00:00:02")));
        let unmarked = guest("web", "02:00:00:00:00:03");
        assert!(!memory.is_of(&unmarked));
        assert_eq!(memory.rebound(&unmarked), None);
        // A copy of another guest that was in the bin carries the mark, and nothing else of this one.
        let marks = ["mac 02:00:00:00:00:09".to_owned()].into();
        let stranger = BinMemory { marks, ..memory };
        assert!(!stranger.is_of(&changed) && stranger.rebound(&changed).is_none());
    }
}
