//! Guests that a run wants and the node does not have: they must be made, once each.
//!
//! Its dice are its own, so that a seed whose node makes nothing is as it always was. Now and then somebody else is
//! faster under one of their numbers, or removes one that was made.

use std::collections::BTreeSet;

use evenkeel_core::model::id::{GuestId, GuestKind};
use evenkeel_sim::{Event, InProcess, SimRequest, TOKENS};

use crate::scene::{Wish, Wishes};
use evenkeel_testkit::dice::Dice;

/// Makes the dice of newcomers differ from those of the run.
const OWN_DICE: u64 = 0x006e_6577_636f_6d65;

/// Where containers of the node can come from.
const TEMPLATE: &str = "store:vztmpl/debian-12-standard_12.7-1_amd64.tar.zst";

/// The numbers, which no node has at its beginning.
const NEWCOMERS: [(GuestKind, u32); 4] =
    [(GuestKind::Lxc, 130), (GuestKind::Lxc, 131), (GuestKind::Qemu, 132), (GuestKind::Lxc, 133)];

/// Guests that are to be made.
pub(crate) struct Newcomers {
    dice: Dice,
    /// None in a run in which nothing is made.
    pub(crate) guests: Vec<GuestId>,
    /// Numbers under which somebody else made a guest, which is as they wanted it.
    pub(crate) taken: BTreeSet<u32>,
    /// Those the node began with, to be copied.
    sources: Vec<GuestId>,
}

impl Newcomers {
    pub(crate) fn of(seed: u64, sources: &[GuestId]) -> Self {
        let mut dice = Dice::new(seed ^ OWN_DICE);
        let all = NEWCOMERS.iter().map(|(kind, vmid)| GuestId {
            kind: *kind,
            vmid: (*vmid).try_into().expect("a guest's number"),
        });
        let guests = if dice.percent(60) { all.collect() } else { Vec::new() };
        Self { dice, guests, taken: BTreeSet::new(), sources: sources.to_vec() }
    }

    /// Wants another newcomer, or wants one otherwise.
    pub(crate) fn change(&mut self, wishes: &mut Wishes) {
        if self.guests.is_empty() || !self.dice.percent(25) {
            return;
        }
        let guest = *self.dice.pick(&self.guests);
        if self.dice.percent(10) {
            wishes.guests.remove(&guest);
            return;
        }
        let dice = &mut self.dice;
        let wish = wishes.guests.entry(guest).or_default();
        if wish.source.is_none() {
            *wish = first_wish(dice, guest, &self.sources);
        }
        match dice.below(5) {
            // One is the default, which nobody has to write.
            0 | 1 => wish.cores = Some(dice.between(2, 4)),
            2 => wish.memory_mib = Some(*dice.pick(&[256, 384, 768])),
            3 => wish.run = *dice.pick(&[None, Some(true), Some(true), Some(false)]),
            _ => wish.onboot = Some(dice.percent(50)),
        }
    }

    /// Somebody else does something under one of the numbers.
    pub(crate) fn mischief(&mut self, node: &InProcess) -> Option<String> {
        if self.guests.is_empty() || !self.dice.percent(4) {
            return None;
        }
        let guest = *self.dice.pick(&self.guests);
        let vmid = guest.vmid.to_string();
        let kind = guest.kind;
        let (method, path) = match self.dice.below(3) {
            0 => {
                self.taken.insert(guest.vmid.get());
                ("POST", format!("{kind}"))
            }
            1 => ("DELETE", format!("{kind}/{vmid}")),
            _ => ("PUT", format!("{kind}/{vmid}/config")),
        };
        let template = ("ostemplate", TEMPLATE);
        let form: Vec<(&str, &str)> = match (method, kind) {
            ("POST", GuestKind::Lxc) => vec![("vmid", &vmid), template, ("rootfs", "tank:2")],
            ("POST", GuestKind::Qemu) => vec![("vmid", &vmid), ("scsi0", "tank:2")],
            ("PUT", _) => vec![("cores", "3")],
            (_, _) => Vec::new(),
        };
        let (name, secret, _) = TOKENS[0];
        let request = SimRequest::new(method, &format!("/api2/json/nodes/pve1/{path}"));
        let request = request.form(&form).token(&format!("{name}={secret}"));
        node.with(|sim| sim.submit(sim.now_ms(), request));
        Some(format!("somebody sends {method} {path} {form:?}"))
    }
}

/// An administrator removes what nobody works on any more: locked stubs, volumes without a guest, and left locks.
pub(crate) fn clear(guests: &[GuestId], node: &InProcess) {
    node.with(|sim| {
        for guest in guests {
            let number = guest.vmid.get();
            let is_stub = |locked: &str| matches!(locked, "create" | "clone" | "disk");
            let found = sim.world.guests.get(&number);
            let lock = found.and_then(|found| found.config.active.get("lock").cloned());
            match lock.as_deref() {
                Some(lock) if is_stub(lock) => {
                    sim.world.guests.remove(&number);
                }
                // Somebody's snapshot was killed, and its guest is whole.
                Some(_) => sim.happen(Event::Lock { guest: *guest, lock: None }),
                None => {}
            }
            if !sim.world.guests.contains_key(&number) {
                for storage in sim.world.storages.values_mut() {
                    let keeps = |volume: &evenkeel_sim::Volume| {
                        volume.vmid != Some(guest.vmid) || volume.content == "backup"
                    };
                    storage.volumes.retain(|_, volume| keeps(volume));
                }
            }
        }
    });
}

/// What a newcomer is made from, and how it shall be.
fn first_wish(dice: &mut Dice, guest: GuestId, sources: &[GuestId]) -> Wish {
    let copied: Vec<GuestId> =
        sources.iter().filter(|source| source.kind == guest.kind).copied().collect();
    let copies = guest.kind == GuestKind::Qemu || dice.percent(35);
    let mut wish = Wish::default();
    wish.run = Some(dice.percent(70));
    if copies && !copied.is_empty() {
        wish.source = Some(format!("{{ clone = {} }}", dice.pick(&copied).vmid));
    } else if guest.kind == GuestKind::Lxc {
        wish.source = Some(format!("{{ template = \"{TEMPLATE}\" }}"));
        let storage = *dice.pick(&["local-lvm", "tank"]);
        wish.first_disk = Some((storage.to_owned(), dice.between(1, 4)));
    }
    wish
}
