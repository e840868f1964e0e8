//! Whether a guest is as an operation would leave it: the last word on every outcome.
//!
//! Asked after a task ended, after a synchronous answer, after a refusal and by recovery. It compares with
//! what was *written*, not with what is declared today: the desired state may have changed meanwhile. It must
//! never answer "holds" for something it cannot see.

use std::collections::BTreeMap;

use super::Postcondition;
use crate::action_registry::Proof;
use crate::actual::identity::identity;
use crate::actual::{Guest, GuestConfig, PRESENT, Power, SnapshotPoint};
use crate::model::quantity::Bytes;
use crate::model::secret;
use crate::operate::operation::StartedIntent;
use crate::registry::{self, KeyRef};
use crate::value::VolumeRef;
use crate::value::compare::{Cgroup, Conventions, Difference, difference};
use crate::value::read::written;

/// What proves some kinds besides the guest itself; none of what was not asked for or could not be read.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProofLists<'a> {
    /// The guest's snapshots; for one that shall be there only those that are whole.
    pub snapshots: Option<&'a [SnapshotPoint]>,
    /// Whether a storage lists the backup with the operation's mark.
    pub archive: Option<bool>,
    /// Whether its storage still lists the volume that was to go.
    pub volume: Option<bool>,
}

/// Compares a guest, as it was just read, with what an operation with these parameters leaves behind. No guest
/// means that PVE said positively that there is none on this node.
pub fn postcondition(
    intent: &StartedIntent,
    params: &BTreeMap<String, String>,
    guest: Option<&Guest>,
    lists: ProofLists<'_>,
) -> Postcondition {
    let proof = intent.kind.row().proof;
    let snapshots = lists.snapshots;
    if proof == Proof::ArchiveListed {
        return archive_listed(lists.archive);
    }
    let Some(guest) = guest else {
        return without_guest(proof, lists);
    };
    match proof {
        Proof::Configuration => readable(guest, |config| config_holds(guest, config, params)),
        Proof::VolumeSize => readable(guest, |config| size_holds(guest, config, params)),
        Proof::VolumeOnStorage => readable(guest, |config| is_on_storage(guest, config, params)),
        Proof::IsTemplate => is_template(guest),
        Proof::PowerState(wanted) => power(intent, guest, wanted),
        Proof::NumberFree if intent.is_another(identity(guest).ok()) => Postcondition::AnotherGuest,
        Proof::NumberFree => Postcondition::DoesNotHold,
        Proof::SnapshotParent => listed(snapshots, |all| was_rolled_back(all, guest, params)),
        Proof::SnapshotListed => listed(snapshots, |all| {
            all.iter().any(|point| Some(&point.name) == params.get("snapname"))
        }),
        Proof::SnapshotGone => {
            listed(snapshots, |all| !all.iter().any(|point| is_it(point, params)))
        }
        Proof::GuestMade => made(guest, params),
        Proof::VolumeGone => volume_gone(guest, params, lists.volume),
        // Told by the list alone, above.
        Proof::ArchiveListed => Postcondition::Unreadable,
        // Not executed yet, so nothing of them can be in flight: what cannot be compared is not known.
        Proof::NotRead => Postcondition::Unreadable,
    }
}

fn archive_listed(archive: Option<bool>) -> Postcondition {
    match archive {
        Some(true) => Postcondition::Holds,
        Some(false) => Postcondition::DoesNotHold,
        None => Postcondition::Unreadable,
    }
}

/// What it proves that there is no guest.
fn without_guest(proof: Proof, lists: ProofLists<'_>) -> Postcondition {
    match proof {
        Proof::NumberFree => Postcondition::Holds,
        Proof::VolumeGone => no_longer_listed(lists.volume),
        Proof::Configuration
        | Proof::VolumeSize
        | Proof::VolumeOnStorage
        | Proof::IsTemplate
        | Proof::PowerState(_)
        | Proof::SnapshotParent
        | Proof::SnapshotListed
        | Proof::SnapshotGone
        | Proof::ArchiveListed
        | Proof::GuestMade
        | Proof::NotRead => Postcondition::DoesNotHold,
    }
}

/// The present follows the snapshot that was named, and the machine runs if it was to.
fn was_rolled_back(
    all: &[SnapshotPoint],
    guest: &Guest,
    params: &BTreeMap<String, String>,
) -> bool {
    let present = all.iter().find(|point| point.name == PRESENT);
    let stands = present.is_some_and(|present| present.parent.as_ref() == params.get("snapname"));
    // From a snapshot that holds memory the machine is started within the same task.
    let starts = params.get("start").is_some_and(|start| start == "1");
    stands && (!starts || matches!(guest.power, Power::Running | Power::Paused))
}

/// No slot holds the volume any more, and its storage does not list it either.
fn volume_gone(
    guest: &Guest,
    params: &BTreeMap<String, String>,
    volume: Option<bool>,
) -> Postcondition {
    let struck_out = readable(guest, |config| is_struck_out(config, params));
    let is_struck_out = struck_out == Postcondition::Holds;
    if is_struck_out { no_longer_listed(volume) } else { struck_out }
}

/// A making is over once the guest has no lock. It is whole if everything that was sent is there, and volumes where
/// volumes were to come.
fn made(guest: &Guest, params: &BTreeMap<String, String>) -> Postcondition {
    let Ok(config) = &guest.config else {
        return Postcondition::Unreadable;
    };
    if guest.lock.is_some() {
        return Postcondition::NotYet;
    }
    let keys: BTreeMap<String, String> = params
        .iter()
        .filter(|(name, _)| registry::find(guest.id.kind, name).is_some())
        .map(|(name, text)| (name.clone(), text.clone()))
        .collect();
    let copies = ["ostemplate", "archive", "newid"].iter().any(|name| params.contains_key(*name));
    let filled = !copies || !config.volumes().is_empty();
    if filled && config_holds(guest, config, &keys) {
        Postcondition::Holds
    } else {
        Postcondition::Half
    }
}

fn readable(guest: &Guest, holds: impl FnOnce(&GuestConfig) -> bool) -> Postcondition {
    match &guest.config {
        Ok(config) if holds(config) => Postcondition::Holds,
        Ok(_) => Postcondition::DoesNotHold,
        Err(_) => Postcondition::Unreadable,
    }
}

fn listed(
    snapshots: Option<&[SnapshotPoint]>,
    holds: impl FnOnce(&[SnapshotPoint]) -> bool,
) -> Postcondition {
    match snapshots {
        Some(snapshots) if holds(snapshots) => Postcondition::Holds,
        Some(_) => Postcondition::DoesNotHold,
        None => Postcondition::Unreadable,
    }
}

/// Whether it is the snapshot that was named, not another of its name.
fn is_it(point: &SnapshotPoint, params: &BTreeMap<String, String>) -> bool {
    let taken_at = point.taken_at.map(|at| at.0.to_string());
    Some(&point.name) == params.get("snapname") && taken_at.as_ref() == params.get("snaptime")
}

/// The slot holds a volume of the storage it was to be moved to.
fn is_on_storage(guest: &Guest, config: &GuestConfig, params: &BTreeMap<String, String>) -> bool {
    let slot = params.get("volume").or_else(|| params.get("disk"));
    let slot = slot.and_then(|slot| registry::find(guest.id.kind, slot));
    let held = slot.and_then(|slot| config.field(slot)?.current.as_ref());
    let volume = held.and_then(|reading| reading.value.as_property()?.data_volume());
    let storage = volume.and_then(VolumeRef::storage);
    storage.is_some() && storage == params.get("storage").map(String::as_str)
}

/// The flag comes before a machine's volumes are turned into base images, and after a container's.
fn is_template(guest: &Guest) -> Postcondition {
    if !guest.template {
        return Postcondition::DoesNotHold;
    }
    match &guest.config {
        Ok(config) if config.data_volumes().all(VolumeRef::is_base_image) => Postcondition::Holds,
        Ok(_) => Postcondition::NotYet,
        Err(_) => Postcondition::Unreadable,
    }
}

/// A container's file forgets a volume that a snapshot still names, and its data is whole: only its storage tells.
fn no_longer_listed(volume: Option<bool>) -> Postcondition {
    match volume {
        Some(false) => Postcondition::Holds,
        Some(true) => Postcondition::DoesNotHold,
        None => Postcondition::Unreadable,
    }
}

/// No slot holds it any more, in effect or waiting.
fn is_struck_out(config: &GuestConfig, params: &BTreeMap<String, String>) -> bool {
    params.get("volume").is_some_and(|volume| !config.volumes().contains_key(volume))
}

/// A guest that took the number since may run or not: its power says nothing about this operation.
fn power(intent: &StartedIntent, guest: &Guest, wanted: Power) -> Postcondition {
    if intent.is_another(identity(guest).ok()) {
        return Postcondition::AnotherGuest;
    }
    match guest.power {
        Power::Unknown => Postcondition::Unreadable,
        power if power == wanted => Postcondition::Holds,
        // HA's task ends when the order is taken, long before the guest follows.
        Power::Running | Power::Paused | Power::Stopped if guest.ha.is_some() => {
            Postcondition::NotYet
        }
        Power::Running | Power::Paused | Power::Stopped => Postcondition::DoesNotHold,
    }
}

/// Everything that was written is there, now or after the restart it waits for. Of a secret that the journal does not
/// keep nothing can be compared: PVE takes a write whole, so the rest of the write speaks for it, and if there is no
/// rest it does not hold. The next pass then compares the secret itself.
fn config_holds(guest: &Guest, config: &GuestConfig, params: &BTreeMap<String, String>) -> bool {
    let (hidden, seen): (Vec<_>, Vec<_>) = params
        .iter()
        .filter(|(name, _)| name.as_str() != "digest")
        .partition(|(_, text)| secret::is_masked(text));
    if seen.is_empty() && !hidden.is_empty() {
        return false;
    }
    seen.into_iter().all(|(name, text)| match name.as_str() {
        "delete" => keys(guest, text)
            .all(|key| key.is_some_and(|key| after_restart_is(guest, config, key, None))),
        "revert" => keys(guest, text).all(|key| {
            key.is_some_and(|key| config.field(key).is_none_or(|field| field.waiting.is_none()))
        }),
        _ => registry::find(guest.id.kind, name)
            .is_some_and(|key| after_restart_is(guest, config, key, Some(text))),
    })
}

fn keys(guest: &Guest, list: &str) -> impl Iterator<Item = Option<KeyRef>> {
    list.split(',').map(|name| registry::find(guest.id.kind, name.trim()))
}

fn after_restart_is(guest: &Guest, config: &GuestConfig, key: KeyRef, text: Option<&str>) -> bool {
    let row = key.key();
    let want = text.map(|text| written(&row.format, text));
    let have = config.field(key).and_then(|field| field.after_restart()).map(|have| &have.value);
    // Which kernel interface clamped a weight is not known here; either explains it.
    [Cgroup::V2, Cgroup::V1].into_iter().any(|cgroup| {
        let conventions = Conventions { tags_have_case: false, cgroup };
        match difference(row, guest.id.vmid, want.as_ref(), have, conventions) {
            Difference::Same => true,
            // A volume that has grown beyond what was written is still the one that was written.
            Difference::Size { want, have } => have.is_some_and(|have| have >= want),
            Difference::Other => false,
        }
    })
}

/// The volume has at least the size it was grown to.
fn size_holds(guest: &Guest, config: &GuestConfig, params: &BTreeMap<String, String>) -> bool {
    let slot = params.get("disk").and_then(|disk| registry::find(guest.id.kind, disk));
    let wanted = params.get("size").and_then(|size| Bytes::from_pve(size).ok());
    let (Some(slot), Some(wanted)) = (slot, wanted) else {
        return false;
    };
    let stored = config.field(slot).and_then(|field| field.current.as_ref());
    let size = stored.and_then(|reading| reading.value.as_property()?.size());
    size.is_some_and(|size| size >= wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actual::ConfigEntry;

    #[test]
    fn x08_a_secret_the_journal_does_not_keep_is_never_taken_for_seen() {
        let stored = |key: &str, text: &str| ConfigEntry {
            key: key.into(),
            value: Some(text.into()),
            pending: None,
            delete: 0,
        };
        let id: crate::model::id::GuestId = "lxc/101".parse().unwrap();
        let entries = [stored("cores", "2"), stored("env", "A=1")];
        let config = GuestConfig::from_pending(id.kind, entries);
        let power = Power::Stopped;
        let config = Ok(config.into());
        let guest = Guest { id, power, template: false, ha: None, lock: None, config };
        let holds = |params: &[(&str, &str)]| {
            let params = params.iter().map(|(name, text)| ((*name).into(), (*text).into()));
            config_holds(&guest, guest.config.as_ref().unwrap(), &params.collect())
        };
        let hidden = ("env", secret::MASK);
        assert!(holds(&[("env", "A=1")]), "whoever sent it knows it");
        assert!(!holds(&[("env", "A=2")]));
        assert!(!holds(&[hidden, ("digest", "x")]), "nothing speaks for it");
        assert!(holds(&[hidden, ("cores", "2")]), "the rest of the write speaks for it");
        assert!(!holds(&[hidden, ("cores", "3")]));
    }
}
