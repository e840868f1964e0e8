//! The node every sequence begins on: a guest with everything, a template, somebody else's guest, a number under which a
//! former guest left a volume, and a number whose guest no list shows.

use std::collections::BTreeMap;

use evenkeel_core::model::id::GuestKind;

use crate::journal::Journal;
use crate::node::{Disk, Maker, Node, NodeGuest, NodeVolume};
use crate::pve::archive;

/// The guest that is managed.
pub(crate) const MANAGED: u32 = 101;
/// Somebody else's.
pub(crate) const OTHER: u32 = 103;
/// A free number.
pub(crate) const FREE: u32 = 120;
/// A free number under which a former guest left a volume.
pub(crate) const HAUNTED: u32 = 130;
/// Another one, where it is on a storage that a new guest does not use.
pub(crate) const HAUNTED_ASIDE: u32 = 131;
/// A number whose guest no list shows.
pub(crate) const UNLISTED: u32 = 140;
/// A template.
pub(crate) const TEMPLATE: u32 = 9000;

/// The names of what there is, for a kind of guest.
pub(crate) struct Names {
    pub(crate) root: &'static str,
    pub(crate) second: &'static str,
    pub(crate) third: &'static str,
    /// The volumes of the managed guest, in the first two slots and detached.
    pub(crate) own: [&'static str; 3],
    /// Somebody else's volumes; the second is in its folder under a name of ours.
    pub(crate) others: [&'static str; 2],
    pub(crate) base: &'static str,
    pub(crate) left: &'static str,
}

pub(crate) fn names(kind: GuestKind) -> Names {
    match kind {
        GuestKind::Lxc => Names {
            root: "rootfs",
            second: "mp0",
            third: "mp1",
            own: [
                "tank:subvol-101-disk-0",
                "store:101/vm-101-disk-1.raw",
                "tank:subvol-101-disk-2",
            ],
            others: ["tank:subvol-103-disk-0", "store:103/vm-101-disk-9.raw"],
            base: "tank:basevol-9000-disk-0",
            left: "tank:subvol-130-disk-0",
        },
        GuestKind::Qemu => Names {
            root: "scsi0",
            second: "scsi1",
            third: "scsi2",
            own: ["tank:vm-101-disk-0", "store:101/vm-101-disk-1.raw", "tank:vm-101-disk-2"],
            others: ["tank:vm-103-disk-0", "store:103/vm-101-disk-9.raw"],
            base: "tank:base-9000-disk-0",
            left: "tank:vm-130-disk-0",
        },
    }
}

/// What the former guest of [`HAUNTED_ASIDE`] left.
pub(crate) const LEFT_ASIDE: &str = "store:131/vm-131-disk-0.raw";

/// An image for everybody, and one that its storage lists as somebody's.
pub(crate) const IMAGE: &str = "local:import/debian-12.qcow2";
pub(crate) const THEIR_IMAGE: &str = "local:import/theirs.qcow2";

/// The node, with the managed guest up or down.
pub(crate) fn node(kind: GuestKind, running: bool) -> Node {
    let Names { root, second, own, others, base, left, .. } = names(kind);
    let mut node = Node {
        kind,
        guests: BTreeMap::new(),
        volumes: BTreeMap::new(),
        archives: BTreeMap::new(),
        sins: std::collections::BTreeSet::new(),
        journal: Journal::default(),
    };
    let data = |gib, owner| NodeVolume { holds_data: true, ..NodeVolume::new(gib, owner) };
    for (name, volume) in [
        (own[0], data(8, MANAGED)),
        (own[1], data(4, MANAGED)),
        // It was in backups once.
        (own[2], NodeVolume { was_saved: true, was_named: true, ..data(4, MANAGED) }),
        (others[0], data(8, OTHER)),
        (others[1], data(4, OTHER)),
        (base, data(4, TEMPLATE)),
        (left, data(4, 1000 + HAUNTED)),
        (LEFT_ASIDE, data(4, 1000 + HAUNTED_ASIDE)),
        (IMAGE, NodeVolume::new(2, 0)),
        (THEIR_IMAGE, NodeVolume::new(2, OTHER)),
    ] {
        node.volumes.insert(name.to_owned(), volume);
    }
    let mount = |disk: Disk| match kind {
        GuestKind::Lxc => Disk { backup: Some(true), mount: Some("/m0".to_owned()), ..disk },
        GuestKind::Qemu => disk,
    };
    let guest = |slots: &[(&str, Disk)]| NodeGuest {
        slots: slots.iter().map(|(slot, disk)| ((*slot).to_owned(), disk.clone())).collect(),
        keys: match kind {
            GuestKind::Lxc => [("unprivileged".to_owned(), "1".to_owned())].into(),
            GuestKind::Qemu => BTreeMap::new(),
        },
        ..NodeGuest::new(kind, Maker::Before)
    };
    let mut managed = guest(&[(root, Disk::of(own[0])), (second, mount(Disk::of(own[1])))]);
    managed.running = running;
    managed.unused.insert(0, own[2].to_owned());
    let saved = [(root.to_owned(), 8), (second.to_owned(), 4)].into();
    node.archives.insert(archive(&managed, MANAGED, "then"), (MANAGED, saved));
    node.guests.insert(MANAGED, managed);
    node.guests
        .insert(OTHER, guest(&[(root, Disk::of(others[0])), (second, mount(Disk::of(others[1])))]));
    let mut template = guest(&[(root, Disk::of(base))]);
    template.template = true;
    template.keys.insert("onboot".to_owned(), "1".to_owned());
    node.guests.insert(TEMPLATE, template);
    // Of the other kind: whoever asks for one of this kind is told that there is none.
    let other = match kind {
        GuestKind::Lxc => GuestKind::Qemu,
        GuestKind::Qemu => GuestKind::Lxc,
    };
    let unlisted = NodeGuest { listed: false, ..NodeGuest::new(other, Maker::Before) };
    node.guests.insert(UNLISTED, unlisted);
    node.note_what_happens();
    node
}
