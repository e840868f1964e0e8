//! The bin: a guest that is put aside instead of destroyed, and what it gets back when it is wanted again.
//!
//! Asked by the planner, and by the agent before it hands actions to a lane. In the bin a guest is down, is not started
//! with the node and carries a tag; what else is declared for it waits. What it was before is kept in our journal and
//! counts only for that very guest. It must never be a reason to destroy anything: that takes a signature, as ever.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::actual::{Guest, GuestConfig, Power};
use crate::desired::{DeclaredField, DeclaredGuest, IgnoreList, Run, Spec, WantedState};
use crate::id::GuestKind;
use crate::identity::identity;
use crate::operation::{IdentityHash, UnixSeconds};
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
        Some(Self { identity: identity(guest).ok()?, since: now, ran, onboot, tags })
    }

    /// Whether it is about this very guest.
    pub fn is_of(&self, guest: &Guest) -> bool {
        identity(guest) == Ok(self.identity)
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

/// A guest's tags as they will be after a restart; tags take effect at once.
fn tags(kind: GuestKind, config: &GuestConfig) -> BTreeSet<Box<str>> {
    match config.current(kind, "tags") {
        Some(Value::Set(tags)) => tags.clone(),
        Some(_) | None => BTreeSet::new(),
    }
}
