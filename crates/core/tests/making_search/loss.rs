//! What counts as lost: judged on the model alone, by what somebody would miss.

use std::fmt;

use crate::node::{Node, NodeGuest};

/// How something was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Loss {
    /// A volume with data is gone.
    Deleted,
    /// Nothing names it any more.
    Unreferenced,
    Shrunk,
    OutOfBackups,
    /// Two slots name it.
    Shared,
    /// A guest has a volume that is another's.
    OthersGot,
    /// What a linked clone stands on is gone.
    BaseGone,
    /// A backup is gone.
    ArchiveGone,
    /// A second copy of a slot was left behind.
    PiledUp,
    /// A guest was to be made where one is.
    MadeOver,
    /// A guest was made beside volumes that were left under its number, where its own are.
    MadeBeside,
    /// Another guest's disk was read in.
    ReadIn,
    /// Something was done to a guest that somebody else made in our place.
    Touched,
}

/// A loss, and of what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lost {
    pub(crate) loss: Loss,
    pub(crate) what: String,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.loss, self.what)
    }
}

/// What one act took away. Nothing of it shows in the state afterwards, which may well be one that was seen before.
pub(crate) fn taken_away(before: &Node, now: &Node) -> Vec<Lost> {
    let held = before.volumes.iter().filter(|(_, volume)| volume.holds_data);
    let lost = held.filter_map(|(name, volume)| {
        let loss = match now.volumes.get(name) {
            None => Loss::Deleted,
            Some(now) if now.owner != volume.owner => Loss::OthersGot,
            Some(_) => return None,
        };
        Some(Lost { loss, what: name.clone() })
    });
    lost.collect()
}

/// Everything that was there, or came to hold data on the way, and is not as safe as it was.
pub(crate) fn losses(start: &Node, now: &Node) -> Vec<Lost> {
    let mut lost: Vec<Lost> = Vec::new();
    let mut tell = |loss, what: &str| lost.push(Lost { loss, what: what.to_owned() });
    for &sin in &now.sins {
        tell(sin, "");
    }
    for name in start.archives.keys().filter(|name| !now.archives.contains_key(*name)) {
        tell(Loss::ArchiveGone, name);
    }
    for (name, volume) in &now.volumes {
        if volume.base.as_ref().is_some_and(|base| !now.volumes.contains_key(base)) {
            tell(Loss::BaseGone, name);
        }
        if volume.gib < volume.largest {
            tell(Loss::Shrunk, name);
        }
        let (named, slots, saved) = uses(now, name);
        if named.iter().any(|guest| *guest != volume.owner) {
            tell(Loss::OthersGot, name);
        }
        if slots > 1 {
            tell(Loss::Shared, name);
        }
        if volume.holds_data && volume.was_named && named.is_empty() {
            tell(Loss::Unreferenced, name);
        }
        if volume.holds_data && volume.was_saved && slots > 0 && !saved {
            tell(Loss::OutOfBackups, name);
        }
    }
    for (number, guest) in &now.guests {
        if let Some(slot) = piled(now, *number, guest) {
            tell(Loss::PiledUp, &slot);
        }
    }
    lost
}

/// The guests that name a volume, the slots it is in, and whether vzdump saves one of them.
fn uses(node: &Node, volume: &str) -> (Vec<u32>, usize, bool) {
    let guests = node.guests.iter().filter(|(_, guest)| guest.names(volume));
    let slots = node.guests.values().flat_map(|guest| {
        let held = guest.slots.iter().filter(|(_, disk)| disk.volume == volume);
        held.map(|(slot, disk)| guest.saves(slot, disk))
    });
    let slots: Vec<bool> = slots.collect();
    (guests.map(|(number, _)| *number).collect(), slots.len(), slots.contains(&true))
}

/// A slot of which two former volumes hang on the guest.
fn piled(node: &Node, number: u32, guest: &NodeGuest) -> Option<String> {
    let from = |volume: &String| node.volumes.get(volume)?.moved_from.clone();
    let left: Vec<(u32, String)> = guest.unused.values().filter_map(from).collect();
    let twice = |slot: &&(u32, String)| left.iter().filter(|other| other == slot).count() > 1;
    left.iter().filter(|(guest, _)| *guest == number).find(twice).map(|(_, slot)| slot.clone())
}
