//! Guests whose making fails half way, and guests that nobody would miss: what the agent may remove unsigned.
//!
//! Its dice and its numbers are its own, so that a seed without them is as it always was. Other people start, change and
//! remove them too, and exchange the backup they come from for another file of its name.

use std::collections::BTreeMap;

use evenkeel_core::model::id::GuestId;
use evenkeel_sim::{
    BackupFile, Config, Effect, Event, Fault, InProcess, NumberThing, SimRequest, TOKENS,
};

use crate::rig::Rig;
use crate::scene::{Wish, Wishes};
use evenkeel_testkit::dice::Dice;

/// Makes the dice of leftovers differ from those of the run and of newcomers.
const OWN_DICE: u64 = 0x6c65_6674_6f76_6572;

/// A machine that comes from a backup, and one that is scratch.
const NUMBERS: [&str; 2] = ["qemu/140", "qemu/141"];

/// Whether root lists the number as one of scratch guests.
pub(crate) fn is_scratch_number(vmid: u32) -> bool {
    vmid == 141
}

/// The guests, and what they come from.
pub(crate) struct Leftovers {
    dice: Dice,
    /// None in a run without them.
    pub(crate) guests: Vec<GuestId>,
    archive: String,
}

impl Leftovers {
    pub(crate) fn of(seed: u64, rig: &mut Rig) -> Self {
        let mut dice = Dice::new(seed ^ OWN_DICE);
        if !dice.percent(40) {
            return Self { dice, guests: Vec::new(), archive: String::new() };
        }
        let numbers = NUMBERS.map(|text| text.parse().expect("a guest"));
        let guests: Vec<GuestId> = numbers.to_vec();
        rig.scratch_vmids = "141".parse().expect("a number");
        let archive = rig.node.with(|sim| {
            let config = Config::of(&[
                ("memory", "256"),
                ("net0", "virtio=BC:24:11:77:00:01,bridge=vmbr0"),
                ("scsi0", "local-lvm:vm-140-disk-0,size=1G"),
            ]);
            let ctime = 1_700_000_000;
            let format = "vma.zst".to_owned();
            let size_bytes = 1 << 20;
            let excludes = Vec::new();
            let file =
                BackupFile { ctime, format, size_bytes, notes: None, protected: false, excludes };
            sim.world.put_backup("store", guests[0], &config, &file)
        });
        Self { dice, guests, archive: archive.expect("the node has a storage for backups") }
    }

    /// Wants one of them, wants it otherwise, or no more.
    pub(crate) fn change(&mut self, wishes: &mut Wishes) {
        if self.guests.is_empty() || !self.dice.percent(30) {
            return;
        }
        let guest = *self.dice.pick(&self.guests);
        if self.dice.percent(10) {
            wishes.guests.remove(&guest);
            return;
        }
        let wish = wishes.guests.entry(guest).or_default();
        let is_scratch = is_scratch_number(guest.vmid.get());
        if wish.source.is_none() {
            *wish = first_wish(&self.archive, is_scratch);
            wish.run = Some(self.dice.percent(50));
        } else if is_scratch {
            wish.absent = !wish.absent;
        } else {
            wish.cores = Some(self.dice.between(2, 4));
        }
    }

    /// What is wanted of one of them at first.
    pub(crate) fn first_wish(&self, is_scratch: bool) -> Wish {
        first_wish(&self.archive, is_scratch)
    }

    /// Its making fails, or somebody else does something to one of them.
    pub(crate) fn mischief(&mut self, node: &InProcess) -> Option<String> {
        if self.guests.is_empty() || !self.dice.percent(8) {
            return None;
        }
        let guest = *self.dice.pick(&self.guests);
        let dice = &mut self.dice;
        let (method, path, form): (&str, &str, &[(&str, &str)]) = match dice.below(15) {
            12..=14 => return Some(surround(node, dice, guest)),
            0..=4 => return Some(fail(node, dice.percent(80))),
            5 | 6 => ("POST", "/status/start", &[]),
            7 => ("POST", "/status/stop", &[]),
            8 => ("POST", "/snapshot", &[("snapname", "theirs")]),
            9 => ("PUT", "/config", &[("description", "theirs")]),
            10 => ("DELETE", "", &[]),
            _ => return Some(exchange(node, &self.archive)),
        };
        let (name, secret, _) = TOKENS[0];
        let path = format!("/api2/json/nodes/pve1/{guest}{path}");
        let form: BTreeMap<_, _> = form.iter().copied().collect();
        let pairs: Vec<(&str, &str)> = form.into_iter().collect();
        let request = SimRequest::new(method, &path).form(&pairs);
        let request = request.token(&format!("{name}={secret}"));
        node.with(|sim| sim.submit(sim.now_ms(), request));
        Some(format!("somebody sends {method} {path}"))
    }
}

fn first_wish(archive: &str, is_scratch: bool) -> Wish {
    let mut wish = Wish::default();
    wish.source = Some(format!("{{ backup = \"{archive}\" }}"));
    wish.first_disk = Some(("local-lvm".to_owned(), 1));
    wish.scratch = is_scratch;
    wish
}

/// Somebody gives the number something that is kept beside guests, or takes it away again.
fn surround(node: &InProcess, dice: &mut Dice, guest: GuestId) -> String {
    let thing = *dice.pick(&NumberThing::ALL);
    let present = dice.percent(60);
    node.with(|sim| sim.happen(Event::Around { guest, thing, present }));
    format!("somebody gives the number of {guest} {thing:?}: {present}")
}

/// Others take back what they gave a number.
pub(crate) fn clear_around(node: &InProcess, guest: GuestId) {
    node.with(|sim| {
        for thing in NumberThing::ALL {
            sim.happen(Event::Around { guest, thing, present: false });
        }
    });
}

/// An administrator removes a guest with everything that bears its number, but for backups.
pub(crate) fn wipe(node: &InProcess, guest: GuestId) {
    clear_around(node, guest);
    node.with(|sim| {
        sim.world.guests.remove(&guest.vmid.get());
        for storage in sim.world.storages.values_mut() {
            storage
                .volumes
                .retain(|_, volume| volume.vmid != Some(guest.vmid) || volume.content == "backup");
        }
    });
}

/// The next restore fails, or its worker is killed.
pub(crate) fn fail(node: &InProcess, by_itself: bool) -> String {
    let message = "command 'vma extract' failed: exit code 255".to_owned();
    let effect = if by_itself { Effect::TaskFails { message } } else { Effect::TaskKilled };
    let told = format!("the next restore meets {effect:?}");
    let contains = Some(":qmrestore:14".to_owned());
    node.with(|sim| sim.inject(Fault { effect, method: None, contains, times: Some(1) }));
    told
}

/// Another file takes the name of the backup.
fn exchange(node: &InProcess, archive: &str) -> String {
    node.with(|sim| {
        let (storage, name) = archive.split_once(':').expect("a volume's id");
        let storage = sim.world.storages.get_mut(storage);
        if let Some(volume) = storage.and_then(|storage| storage.volumes.get_mut(name)) {
            volume.ctime += 1;
        }
    });
    format!("{archive} is another file now")
}
