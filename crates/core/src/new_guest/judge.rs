//! Whether a guest may be made now: what must be so on the node, directly before the request leaves.
//!
//! The number must be proved free, nobody may be at work under it, no volume may be left from before, and what the guest
//! is made from must be there. What could not be read makes nothing (invariant 14).

use std::collections::{BTreeMap, BTreeSet};

use super::{NewGuest, is_public_image};
use crate::actual::Guest;
use crate::desired::GuestSource;
use crate::id::GuestKind;
use crate::operation::{Upid, VolumeId};
use crate::quantity::Bytes;
use crate::reason::{ReasonCode, Refusal};
use crate::recover::NumberUse;

/// The node as it was read just now, as far as a new guest depends on it.
#[derive(Debug, Clone)]
pub struct MakeReading {
    /// Whether the number is in use.
    pub number: NumberUse,
    /// Tasks that run and carry the number.
    pub tasks: Vec<Upid>,
    /// Volumes that are named after the number, on the storages that are used.
    pub volumes: BTreeSet<VolumeId>,
    /// The storages that are used; one that the node does not list is missing.
    pub storages: BTreeMap<String, StorageReading>,
    /// What it is made from.
    pub source: SourceReading,
}

/// One storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageReading {
    /// Whether it can be reached.
    pub active: bool,
    /// What is free; none if it does not say.
    pub free: Option<Bytes>,
    /// What requests that are under way will take of it.
    pub promised: Bytes,
}

/// What a guest is made from, as it is now.
#[derive(Debug, Clone)]
pub enum SourceReading {
    /// Nothing is needed.
    None,
    /// A volume, and whether its storage lists it as what it must be.
    Volume {
        /// It is listed.
        listed: bool,
        /// A guest that owns it.
        owner: Option<u32>,
    },
    /// A guest; none if there is none of this kind on this node.
    Guest(Option<Box<Guest>>),
    /// It could not be read.
    Unreadable(String),
}

/// Refuses what must not be made now, with the reason that holds it.
pub fn judge_making(new: &NewGuest, reading: &MakeReading) -> Result<(), Refusal> {
    let vmid = new.guest.vmid;
    match reading.number {
        NumberUse::Free => {}
        NumberUse::Taken => {
            let why = format!("somebody has taken the number {vmid}");
            return Err(Refusal::new(ReasonCode::IdentityMismatch, why));
        }
        NumberUse::Unreadable => {
            let why = format!("it cannot be proved that the number {vmid} is free");
            return Err(Refusal::new(ReasonCode::IdentityUnproven, why));
        }
    }
    if let Some(task) = reading.tasks.first() {
        let why = format!("{} by {} works under the number {vmid}", task.task_type(), task.user());
        return Err(Refusal::new(ReasonCode::Busy, why));
    }
    if !reading.volumes.is_empty() {
        let names: Vec<&str> = reading.volumes.iter().map(VolumeId::as_str).collect();
        let why = format!(
            "volumes are left under the number {vmid}: {}; keep what you need, then remove them: \
             pvesm free VOLUME",
            names.join(", ")
        );
        return Err(Refusal::new(ReasonCode::Storage, why));
    }
    judge_room(new, reading)?;
    judge_source(new, &reading.source)
}

fn judge_room(new: &NewGuest, reading: &MakeReading) -> Result<(), Refusal> {
    let refused = |why: String| Err(Refusal::new(ReasonCode::Storage, why));
    for (name, wanted) in new.allocates() {
        let Some(storage) = reading.storages.get(&name) else {
            return refused(format!("the node has no storage {name}, or does not show it"));
        };
        if !storage.active {
            return refused(format!("the storage {name} is not active"));
        }
        let promised = storage.promised;
        let needed = Bytes(wanted.0.saturating_add(promised.0));
        if storage.free.is_some_and(|free| free < needed) {
            let free = storage.free.unwrap_or(Bytes(0)).shown();
            let also = if promised.0 == 0 {
                String::new()
            } else {
                format!(", and {} are promised to others", promised.shown())
            };
            let wanted = wanted.shown();
            return refused(format!("{name} has {free} free of the {wanted} it takes{also}"));
        }
    }
    Ok(())
}

fn judge_source(new: &NewGuest, source: &SourceReading) -> Result<(), Refusal> {
    let refused = |code, why: String| Err(Refusal::new(code, why));
    match (&new.source, source) {
        (_, SourceReading::Unreadable(why)) => refused(ReasonCode::Storage, why.clone()),
        (GuestSource::Empty, _) => Ok(()),
        (
            GuestSource::Template(volume)
            | GuestSource::Image { volume, .. }
            | GuestSource::Backup { volume, .. },
            SourceReading::Volume { listed: true, owner },
        ) => match &new.source {
            GuestSource::Image { .. } if !is_public_image(volume.as_str()) || owner.is_some() => {
                refused(ReasonCode::Policy, format!("{volume} is no image for everybody"))
            }
            GuestSource::Empty
            | GuestSource::Template(_)
            | GuestSource::Image { .. }
            | GuestSource::Clone(_)
            | GuestSource::Backup { .. } => Ok(()),
        },
        (
            GuestSource::Template(volume)
            | GuestSource::Image { volume, .. }
            | GuestSource::Backup { volume, .. },
            SourceReading::Volume { .. } | SourceReading::None | SourceReading::Guest(_),
        ) => refused(ReasonCode::Storage, format!("{volume} is not there")),
        (GuestSource::Clone(from), SourceReading::Guest(Some(guest))) => {
            if let Some(lock) = &guest.lock {
                let why = format!("{} is locked ({lock})", guest.id);
                return refused(ReasonCode::Locked, why);
            }
            if !from.full && !guest.template {
                let why = format!("{} is no template: only a full copy can be made", guest.id);
                return refused(ReasonCode::Storage, why);
            }
            let busy = new.guest.kind == GuestKind::Lxc && guest.is_running();
            if busy && from.snapshot.is_none() {
                let why = format!("{} runs: stop it, or copy one of its snapshots", guest.id);
                return refused(ReasonCode::Busy, why);
            }
            Ok(())
        }
        (
            GuestSource::Clone(from),
            SourceReading::Guest(None) | SourceReading::None | SourceReading::Volume { .. },
        ) => {
            let why = format!("{}/{} is not on this node", new.guest.kind, from.guest);
            refused(ReasonCode::Storage, why)
        }
    }
}
