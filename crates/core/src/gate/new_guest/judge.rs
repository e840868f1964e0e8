//! Whether a guest may be made now: what must be so on the node, directly before the request leaves.
//!
//! The number must be proved free, nobody may be at work under it, no volume may be left from before, and what the guest
//! is made from must be there. What could not be read makes nothing (invariant 14).

use std::collections::{BTreeMap, BTreeSet};

use super::{NewGuest, is_public_image};
use crate::actual::Guest;
use crate::actual::surroundings::GuestSurroundings;
use crate::desired::GuestSource;
use crate::gate::classify::data_slots;
use crate::model::id::GuestKind;
use crate::model::quantity::Bytes;
use crate::model::reason::{ReasonCode, Refusal};
use crate::operate::operation::{SourceMark, Upid, VolumeId};
use crate::operate::recover::NumberUse;

/// The node as it was read just now, as far as a new guest depends on it.
#[derive(Debug, Clone)]
pub struct MakeReading {
    /// Whether the number is in use.
    pub number: NumberUse,
    /// Tasks that run and carry the number.
    pub tasks: Vec<Upid>,
    /// Volumes that are named after the number, on the storages that are used: see [`storages_used`].
    pub volumes: BTreeSet<VolumeId>,
    /// The storages that are used; one that the node does not list is missing.
    pub storages: BTreeMap<String, StorageReading>,
    /// What its source takes of each storage beside what is declared, where that is known.
    pub brought: BTreeMap<String, Bytes>,
    /// What it is made from.
    pub source: SourceReading,
    /// What others have given the number.
    pub around: GuestSurroundings,
}

/// One storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageReading {
    /// Whether it can be reached.
    pub active: bool,
    /// What is free; none if it does not say, and then nothing is put there.
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
        /// Which one it is, where its storage tells size and time.
        mark: Option<SourceMark>,
    },
    /// A guest; none if there is none of this kind on this node.
    Guest(Option<Box<Guest>>),
    /// It could not be read.
    Unreadable(String),
}

/// The storages on which a new guest has its volumes, once its source was read: a copy that names none stays where its
/// source's volumes are.
pub fn storages_used(new: &NewGuest, source: &SourceReading) -> BTreeSet<String> {
    let mut used = new.storages();
    if let (GuestSource::Clone(from), SourceReading::Guest(Some(guest))) = (&new.source, source)
        && from.storage.is_none()
        && let Ok(config) = &guest.config
    {
        let volumes = data_slots(config).map(|slot| slot.volume);
        used.extend(volumes.filter_map(|volume| Some(volume.split_once(':')?.0.to_owned())));
    }
    used
}

/// Refuses what must not be made now, with the reason that holds it.
pub fn judge_making(new: &NewGuest, reading: &MakeReading) -> Result<(), Refusal> {
    let vmid = new.guest.vmid;
    match reading.number {
        NumberUse::Free => {}
        NumberUse::Taken => {
            let why = format!("the number {vmid} is taken");
            return Err(Refusal::new(ReasonCode::IdentityMismatch, why));
        }
        NumberUse::Unreadable => {
            let why = format!("evenkeel cannot prove that the number {vmid} is free");
            return Err(Refusal::new(ReasonCode::IdentityUnproven, why));
        }
    }
    if let Some(task) = reading.tasks.first() {
        let why =
            format!("{} by {} runs under the number {vmid}", task.task_type(), task.shown_user());
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
    let brings_firewall = match &new.source {
        GuestSource::Clone(_) | GuestSource::Backup { .. } => true,
        GuestSource::Empty | GuestSource::Template(_) | GuestSource::Image { .. } => false,
    };
    if let Some(refusal) = reading.around.hinder_copy().filter(|_| brings_firewall) {
        return Err(refusal);
    }
    judge_room(new, reading)?;
    judge_source(new, &reading.source)
}

fn judge_room(new: &NewGuest, reading: &MakeReading) -> Result<(), Refusal> {
    let refused = |why: String| Err(Refusal::new(ReasonCode::Storage, why));
    let certain = new.takes(&reading.brought);
    for name in storages_used(new, &reading.source) {
        let wanted = certain.get(&name).copied().unwrap_or(Bytes(0));
        let Some(storage) = reading.storages.get(&name) else {
            return refused(format!("the node has no storage {name}, or does not show it"));
        };
        if !storage.active {
            return refused(format!("the storage {name} is not active"));
        }
        let promised = storage.promised;
        let needed = Bytes(wanted.0.saturating_add(promised.0));
        let Some(free) = storage.free else {
            return refused(format!("the storage {name} does not report its free space"));
        };
        if free < needed {
            let free = free.shown();
            let also = if promised.0 == 0 {
                String::new()
            } else {
                format!(", and {} are reserved for others", promised.shown())
            };
            let wanted = wanted.shown();
            return refused(format!("{name} has {free} free, and the guest needs {wanted}{also}"));
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
            SourceReading::Volume { listed: true, owner, mark: _ },
        ) => match &new.source {
            GuestSource::Image { .. } if !is_public_image(volume.as_str()) || owner.is_some() => {
                refused(ReasonCode::Policy, format!("{volume} is not a public image"))
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
        ) => refused(ReasonCode::Storage, format!("{volume} does not exist")),
        (GuestSource::Clone(from), SourceReading::Guest(Some(guest))) => {
            if let Some(lock) = &guest.lock {
                let why = format!("{} is locked ({lock})", guest.id);
                return refused(ReasonCode::Locked, why);
            }
            if let Err(error) = &guest.config {
                let why = format!("evenkeel cannot read the volumes of {}: {error}", guest.id);
                return refused(ReasonCode::Storage, why);
            }
            if !from.full && !guest.template {
                let why = format!("{} is not a template: only a full copy is possible", guest.id);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actual::{GuestConfig, Power};
    use crate::desired::{CloneSource, FirstUse};
    use crate::registry;

    const IMAGE: &str = "local:import/debian-12.qcow2";

    fn new(kind: GuestKind, source: GuestSource) -> NewGuest {
        let slot = match kind {
            GuestKind::Lxc => "rootfs",
            GuestKind::Qemu => "scsi0",
        };
        let slot = registry::find(kind, slot).unwrap();
        let guest = format!("{kind}/120").parse().unwrap();
        let settings = [(slot, "tank:8".to_owned())].into();
        NewGuest { guest, source, settings, storage: None, first: FirstUse::default(), run: None }
    }

    fn container() -> NewGuest {
        new(GuestKind::Lxc, GuestSource::Template("local:vztmpl/a.tar.zst".parse().unwrap()))
    }

    fn copy(full: bool) -> NewGuest {
        let guest = 100.try_into().unwrap();
        let from = CloneSource { guest, full, storage: None, snapshot: None };
        new(GuestKind::Lxc, GuestSource::Clone(from))
    }

    fn well() -> MakeReading {
        let room = StorageReading { active: true, free: Some(Bytes(20 << 30)), promised: Bytes(0) };
        MakeReading {
            number: NumberUse::Free,
            tasks: Vec::new(),
            volumes: BTreeSet::new(),
            storages: [("tank".to_owned(), room)].into(),
            brought: BTreeMap::new(),
            source: SourceReading::Volume { listed: true, owner: None, mark: None },
            around: GuestSurroundings::empty(),
        }
    }

    fn source(power: Power, template: bool, lock: Option<&str>) -> SourceReading {
        let id = "lxc/100".parse().unwrap();
        let config = Ok(GuestConfig::default().into());
        let lock = lock.map(str::to_owned);
        SourceReading::Guest(Some(Box::new(Guest { id, power, template, ha: None, lock, config })))
    }

    fn refused(new: &NewGuest, reading: &MakeReading) -> (ReasonCode, String) {
        let refusal = judge_making(new, reading).unwrap_err();
        (refusal.reason, refusal.detail)
    }

    #[test]
    fn what_is_well_is_made() {
        assert_eq!(judge_making(&container(), &well()), Ok(()));
    }

    #[test]
    fn a_number_that_is_taken_or_not_proved_free_makes_nothing() {
        let taken = MakeReading { number: NumberUse::Taken, ..well() };
        assert_eq!(refused(&container(), &taken).0, ReasonCode::IdentityMismatch);
        let unread = MakeReading { number: NumberUse::Unreadable, ..well() };
        assert_eq!(refused(&container(), &unread).0, ReasonCode::IdentityUnproven);
    }

    #[test]
    fn somebody_at_work_under_the_number_makes_nothing() {
        let task = "UPID:pve1:00001234:0123ABCD:65000001:vzdestroy:120:root@pam:";
        let busy = MakeReading { tasks: vec![task.parse().unwrap()], ..well() };
        let (reason, why) = refused(&container(), &busy);
        assert_eq!(reason, ReasonCode::Busy);
        assert!(why.contains("vzdestroy by root@pam"), "{why}");
    }

    #[test]
    fn volumes_left_under_the_number_are_named_and_hold_it() {
        let left = "tank:vm-120-disk-0".parse().unwrap();
        let left = MakeReading { volumes: [left].into(), ..well() };
        let (reason, why) = refused(&container(), &left);
        assert_eq!(reason, ReasonCode::Storage);
        assert!(why.contains("tank:vm-120-disk-0") && why.contains("pvesm free"), "{why}");
    }

    #[test]
    fn a_storage_must_be_there_active_and_have_the_room_that_is_not_promised() {
        let with = |room: Option<StorageReading>| MakeReading {
            storages: room.map(|room| ("tank".to_owned(), room)).into_iter().collect(),
            ..well()
        };
        let room = |active, free: u64, promised: u64| StorageReading {
            active,
            free: Some(Bytes(free << 30)),
            promised: Bytes(promised << 30),
        };
        assert!(refused(&container(), &with(None)).1.contains("no storage tank"));
        assert!(refused(&container(), &with(Some(room(false, 20, 0)))).1.contains("not active"));
        assert!(refused(&container(), &with(Some(room(true, 7, 0)))).1.contains("free"));
        let (_, why) = refused(&container(), &with(Some(room(true, 20, 13))));
        assert!(why.contains("reserved"), "{why}");
        assert_eq!(judge_making(&container(), &with(Some(room(true, 20, 12)))), Ok(()));
    }

    #[test]
    fn y17_a_storage_that_does_not_tell_its_room_has_none() {
        let room = StorageReading { active: true, free: None, promised: Bytes(0) };
        let reading = MakeReading { storages: [("tank".to_owned(), room)].into(), ..well() };
        let (reason, why) = refused(&container(), &reading);
        assert_eq!(reason, ReasonCode::Storage);
        assert!(why.contains("does not report"), "{why}");
    }

    #[test]
    fn what_it_is_made_from_must_be_there() {
        for gone in [
            SourceReading::Volume { listed: false, owner: None, mark: None },
            SourceReading::None,
            SourceReading::Unreadable("local cannot be listed".to_owned()),
        ] {
            let reading = MakeReading { source: gone, ..well() };
            assert_eq!(refused(&container(), &reading).0, ReasonCode::Storage);
        }
        let gone = MakeReading { source: SourceReading::Guest(None), ..well() };
        assert!(refused(&copy(true), &gone).1.contains("not on this node"));
    }

    #[test]
    fn another_guests_disk_is_no_image() {
        let into = registry::find(GuestKind::Qemu, "scsi0").unwrap();
        let image = |volume: &str| {
            let volume = volume.parse().unwrap();
            new(GuestKind::Qemu, GuestSource::Image { volume, into })
        };
        assert_eq!(judge_making(&image(IMAGE), &well()), Ok(()));
        for theirs in ["local-lvm:vm-200-disk-0", "local:200/vm-200-disk-0.qcow2"] {
            assert_eq!(refused(&image(theirs), &well()).0, ReasonCode::Policy, "{theirs}");
        }
        let owned = SourceReading::Volume { listed: true, owner: Some(200), mark: None };
        let owned = MakeReading { source: owned, ..well() };
        assert_eq!(refused(&image(IMAGE), &owned).0, ReasonCode::Policy);
    }

    #[test]
    fn a_copy_that_names_no_storage_is_made_where_its_sources_volumes_are() {
        let entry = |key: &str, value: &str| crate::actual::ConfigEntry {
            key: key.to_owned(),
            value: Some(value.to_owned()),
            pending: None,
            delete: 0,
        };
        let entries =
            [entry("rootfs", "fast:subvol-100-disk-0,size=4G"), entry("mp0", "/srv,mp=/srv")];
        let config = Ok(GuestConfig::from_pending(GuestKind::Lxc, entries).into());
        let SourceReading::Guest(Some(guest)) = source(Power::Stopped, true, None) else {
            panic!("it is a guest");
        };
        let there = SourceReading::Guest(Some(Box::new(Guest { config, ..*guest.clone() })));
        let mut copy = copy(true);
        copy.settings.clear();
        assert_eq!(storages_used(&copy, &there), ["fast".to_owned()].into());
        // It must be there and active like any other.
        let (reason, why) = refused(&copy, &MakeReading { source: there.clone(), ..well() });
        assert_eq!(reason, ReasonCode::Storage);
        assert!(why.contains("no storage fast"), "{why}");
        // With a storage of its own it is made there alone.
        if let GuestSource::Clone(from) = &mut copy.source {
            from.storage = Some("tank".parse().unwrap());
        }
        assert_eq!(storages_used(&copy, &there), ["tank".to_owned()].into());
        // Of a source that cannot be read nobody knows where a copy would be.
        let unread = crate::actual::Unreadable::new("403", "look");
        let unread = SourceReading::Guest(Some(Box::new(Guest { config: Err(unread), ..*guest })));
        let (reason, why) = refused(&copy, &MakeReading { source: unread, ..well() });
        assert_eq!(reason, ReasonCode::Storage);
        assert!(why.contains("cannot read"), "{why}");
    }

    #[test]
    fn a_source_that_is_locked_running_or_no_template_is_not_copied() {
        let with = |source| MakeReading { source, ..well() };
        let plain = with(source(Power::Stopped, false, None));
        assert_eq!(judge_making(&copy(true), &plain), Ok(()));
        assert_eq!(refused(&copy(false), &plain).0, ReasonCode::Storage);
        let template = with(source(Power::Stopped, true, None));
        assert_eq!(judge_making(&copy(false), &template), Ok(()));
        let locked = with(source(Power::Stopped, false, Some("disk")));
        assert_eq!(refused(&copy(true), &locked).0, ReasonCode::Locked);
        let running = with(source(Power::Running, false, None));
        assert_eq!(refused(&copy(true), &running).0, ReasonCode::Busy);
    }
}
