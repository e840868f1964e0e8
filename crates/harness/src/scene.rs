//! What a run is about: a small node, and desired states that change now and then.
//!
//! Wishes are kept as plain numbers and texts, so that the end of a run can be judged on the node's own files,
//! without evenkeel's reading of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use evenkeel_core::desired::{self, Desired};
use evenkeel_core::model::id::{GuestId, GuestKind};
use evenkeel_core::model::release::Release;
use evenkeel_core::words::diagnostic::Sources;
use evenkeel_sim::{Scenario, SimGuest, Simulator, World};

use evenkeel_testkit::dice::Dice;

/// The agent's token. Its user may do everything there is to do, until somebody takes rights away.
pub(crate) const AGENT_TOKEN: (&str, &str) =
    ("keel@pve!agent", "00000000-0000-4000-8000-000000000009");

/// The user behind the agent's token.
pub(crate) const AGENT_USER: &str = "keel@pve";

/// A node of a random release with a few guests of both kinds.
pub(crate) fn node(dice: &mut Dice) -> Simulator {
    let releases: [Release; 3] = [Release::V7_4, Release::V8_4, Release::V9_2];
    let release = *dice.pick(&releases);
    let guests = u32::try_from(dice.between(3, 6)).unwrap_or(3);
    let mut world = Scenario { release, guests, seed: dice.any(), ..Scenario::default() }.build();
    let (token, secret) = AGENT_TOKEN;
    world.access.add_user(AGENT_USER, "secret");
    world.access.grant("/", AGENT_USER, "Administrator");
    world.access.add_token(token, secret, false);
    let mut sim = Simulator::new(world);
    sim.timings.shutdown_ms = *dice.pick(&[2_000, 20_000, 90_000]);
    sim.timings.start_ms = *dice.pick(&[1_500, 8_000]);
    sim.timings.stop_ms = *dice.pick(&[800, 800, 5_000, 20_000]);
    sim
}

/// What is wanted of each declared guest.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wishes {
    pub(crate) guests: BTreeMap<GuestId, Wish>,
    /// Whether they are written as profiles that override each other, and not guest by guest.
    pub(crate) layered: bool,
}

/// What must be left alone although it is declared.
#[derive(Debug, Clone, Default)]
pub(crate) struct GuestModes {
    pub(crate) observed: BTreeSet<GuestId>,
    pub(crate) ignores_cores: BTreeSet<GuestId>,
    /// What is wanted of each guest that may have to be made.
    pub(crate) newcomers: BTreeMap<GuestId, Wish>,
}

/// What is wanted of one guest; nothing is said about what is none.
#[expect(clippy::struct_excessive_bools, reason = "each is a word of a desired file")]
#[derive(Debug, Clone, Default)]
pub(crate) struct Wish {
    pub(crate) absent: bool,
    pub(crate) run: Option<bool>,
    force: bool,
    pub(crate) cores: Option<u64>,
    pub(crate) memory_mib: Option<u64>,
    pub(crate) onboot: Option<bool>,
    pub(crate) description: Option<String>,
    /// For containers: takes effect after a restart.
    pub(crate) nameserver: Option<String>,
    /// What it is made from, if it must be made, as a file says it.
    pub(crate) source: Option<String>,
    /// It may go unsigned.
    pub(crate) scratch: bool,
    /// The first disk: storage and GiB.
    pub(crate) first_disk: Option<(String, u64)>,
    /// A second one, to be allocated.
    pub(crate) second_disk: Option<(String, u64)>,
    /// No second one shall be attached.
    detaches: bool,
    undescribed: bool,
    /// It is only looked at.
    pub(crate) observed: bool,
    /// Its cores are not compared.
    pub(crate) ignores_cores: bool,
}

impl Wishes {
    /// Changes one guest's wishes; the guest is one of those the node began with.
    pub(crate) fn change(&mut self, dice: &mut Dice, guests: &[GuestId], world: &World) {
        let guest = *dice.pick(guests);
        if dice.percent(8) {
            self.guests.remove(&guest);
            return;
        }
        let wish = self.guests.entry(guest).or_default();
        for _ in 0..dice.between(1, 4) {
            wish.change(dice, guest, world.guest(guest));
        }
    }

    /// The declared keys of each guest, as the node names them.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (GuestId, Vec<String>)> {
        self.guests.iter().map(|(guest, wish)| (*guest, wish.keys(guest.kind)))
    }

    /// Which guests are only looked at, and whose cores are not compared.
    pub(crate) fn modes(&self) -> GuestModes {
        let those = |is: fn(&Wish) -> bool| {
            let those = self.guests.iter().filter(move |(_, wish)| !wish.absent && is(wish));
            those.map(|(guest, _)| *guest).collect()
        };
        GuestModes {
            observed: those(|wish| wish.observed),
            ignores_cores: those(|wish| wish.ignores_cores),
            newcomers: self
                .guests
                .iter()
                .filter(|(_, wish)| wish.source.is_some())
                .map(|(guest, wish)| (*guest, wish.clone()))
                .collect(),
        }
    }

    /// As a desired file would say it.
    pub(crate) fn desired(&self) -> Desired {
        let text = self.text();
        let mut sources = Sources::default();
        sources.add("wishes.toml", text.clone());
        desired::load(&sources).unwrap_or_else(|errors| panic!("{errors:?} in\n{text}"))
    }

    /// Leaves out what a hub cannot have done: nothing is allocated for it, and without an author's word no power is cut.
    pub(crate) fn as_a_hub_may(&mut self, is_signed: bool) {
        for wish in self.guests.values_mut() {
            (wish.first_disk, wish.second_disk, wish.detaches) = (None, None, false);
            wish.force &= is_signed;
        }
    }

    /// The text of that file.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for (guest, wish) in &self.guests {
            wish.print(*guest, self.layered, &mut text);
        }
        if self.layered {
            text.push_str("[profile.nobody]\nkind = \"lxc\"\ncores = 8\nrun = \"stopped\"\n");
        }
        text
    }
}

impl Wish {
    fn change(&mut self, dice: &mut Dice, guest: GuestId, found: Option<&SimGuest>) {
        let storages = ["local-lvm", "tank"];
        match dice.below(14) {
            0 | 1 => self.cores = Some(dice.between(1, 4)),
            2 => self.memory_mib = Some(*dice.pick(&[256, 384, 768, 1024])),
            3 => self.onboot = Some(dice.percent(50)),
            4 | 5 => {
                let text =
                    *dice.pick(&["kept by evenkeel", "line one\nline two", "ünïcode = 100%"]);
                (self.description, self.undescribed) = (Some(text.to_owned()), false);
            }
            6 => (self.description, self.undescribed) = (None, true),
            7 if guest.kind == GuestKind::Lxc => {
                self.nameserver = Some((*dice.pick(&["1.1.1.1", "9.9.9.9"])).to_owned());
            }
            7..=9 => {
                self.run = *dice.pick(&[None, Some(true), Some(true), Some(false), Some(false)]);
            }
            10 => self.grow(dice, guest, found),
            11 if self.second_disk.is_some() && dice.percent(40) => {
                (self.second_disk, self.detaches) = (None, true);
            }
            11 => {
                let storage = (*dice.pick(&storages)).to_owned();
                self.second_disk.get_or_insert((storage, dice.between(1, 2)));
                self.detaches = false;
            }
            12 => {
                self.observed = dice.percent(40);
                self.ignores_cores = dice.percent(40);
            }
            _ => {
                self.absent = dice.percent(15);
                self.force = dice.percent(30);
            }
        }
    }

    /// Whether the first disk is on the storage it shall be on, or cannot be moved there now: a container runs, an old
    /// volume hangs on the guest, something waits, or the volume is another guest's.
    pub(crate) fn is_where_wanted(&self, found: &SimGuest) -> bool {
        let slot = first_slot(found.id.kind);
        let (Some((storage, _)), Some(value)) = (&self.first_disk, found.config.active.get(slot))
        else {
            return true;
        };
        let runs = found.id.kind == GuestKind::Lxc && found.power.is_running();
        let left = found.config.active.keys().any(|key| key.starts_with("unused"));
        let own = value.contains(&format!("-{}-disk-", found.id.vmid));
        let movable = !runs && !left && own && !found.config.pending.contains_key(slot);
        value.starts_with(&format!("{storage}:")) || !movable || value.contains("base")
    }

    /// Whether the first disk is larger than it shall be: it came so with a copy, and nothing is ever shrunk, so the guest
    /// is kept from its first start.
    pub(crate) fn is_smaller_than(&self, found: &SimGuest) -> bool {
        let wanted = self.first_disk.as_ref().map(|(_, gib)| *gib);
        wanted.zip(first_disk_gib(found)).is_some_and(|(wanted, found)| wanted < found)
    }

    /// Wants the first disk as large as it is, or larger, there or elsewhere.
    fn grow(&mut self, dice: &mut Dice, guest: GuestId, found: Option<&SimGuest>) {
        let value = found.and_then(|found| found.config.active.get(first_slot(guest.kind)));
        let Some((storage, _)) = value.and_then(|value| value.split_once(':')) else { return };
        let Some(gib) = found.and_then(first_disk_gib) else { return };
        // Now and then it shall be somewhere else.
        let elsewhere = if storage == "tank" { "local-lvm" } else { "tank" };
        let storage = if dice.percent(35) { elsewhere } else { storage };
        self.first_disk = Some((storage.to_owned(), gib + dice.below(3)));
    }

    fn keys(&self, kind: GuestKind) -> Vec<String> {
        let mut keys = Vec::new();
        let mut key = |wanted: bool, name: &str| keys.extend(wanted.then(|| name.to_owned()));
        key(self.cores.is_some() && !self.ignores_cores, "cores");
        key(self.memory_mib.is_some(), "memory");
        key(self.onboot.is_some(), "onboot");
        key(self.description.is_some() || self.undescribed, "description");
        key(self.nameserver.is_some(), "nameserver");
        key(self.first_disk.is_some(), first_slot(kind));
        key(self.second_disk.is_some() || self.detaches, second_slot(kind));
        keys
    }

    /// The nearer of two profiles says what is wanted, the farther one something else.
    fn print_profiles(&self, guest: GuestId, out: &mut String) {
        let GuestId { kind, vmid, .. } = guest;
        for (name, more) in [("far", 1), ("near", 0)] {
            let cores = self.cores.map(|cores| format!("cores = {}\n", cores + more));
            let memory = self.memory_mib.map(|memory| format!("memory = {}\n", memory + more * 16));
            let onboot = self.onboot.map(|onboot| format!("onboot = {}\n", onboot ^ (more == 1)));
            let undescribed = self.undescribed.then(|| "description = \"unwanted\"\n".to_owned());
            let words = [cores, memory, onboot, undescribed].into_iter().flatten();
            out.extend([format!("[profile.{name}{vmid}]\nkind = \"{kind}\"\n")]);
            out.extend(words);
        }
    }

    fn print(&self, guest: GuestId, layered: bool, out: &mut String) {
        let GuestId { kind, vmid, .. } = guest;
        if layered && !self.absent {
            self.print_profiles(guest, out);
        }
        let mut line = |text: String| writeln!(out, "{text}").expect("a string takes every line");
        line(format!("[guest.{vmid}]\nkind = \"{kind}\""));
        if self.absent {
            line("state = \"absent\"".to_owned());
            // Whoever would cut its power wants it saved.
            if self.force {
                line("final_backup = \"store\"".to_owned());
            }
            return;
        }
        let run = |runs| if runs { "running" } else { "stopped" };
        self.source.iter().for_each(|source| line(format!("source = {source}")));
        if self.scratch {
            line("scratch = true".to_owned());
        }
        self.run.into_iter().for_each(|runs| line(format!("run = \"{}\"", run(runs))));
        if self.force {
            line("stop = \"force\"".to_owned());
        }
        if self.observed {
            line("mode = \"observe\"".to_owned());
        }
        if self.ignores_cores {
            line("ignore = [\"cores\"]".to_owned());
        }
        if layered {
            line(format!("use = [\"far{vmid}\", \"near{vmid}\"]"));
        } else {
            self.cores.into_iter().for_each(|cores| line(format!("cores = {cores}")));
            self.memory_mib.into_iter().for_each(|memory| line(format!("memory = {memory}")));
            self.onboot.into_iter().for_each(|onboot| line(format!("onboot = {onboot}")));
        }
        self.description.iter().for_each(|text| line(format!("description = {text:?}")));
        self.nameserver.iter().for_each(|text| line(format!("nameserver = {text:?}")));
        let unset = [("description", self.undescribed), (second_slot(kind), self.detaches)];
        let unset = unset.into_iter().filter(|(_, unset)| *unset);
        let unset: Vec<String> = unset.map(|(key, _)| format!("{key:?}")).collect();
        if !unset.is_empty() {
            line(format!("unset = [{}]", unset.join(", ")));
        }
        if let Some((storage, gib)) = &self.first_disk {
            let slot = first_slot(kind);
            line(format!("{slot} = {{ storage = \"{storage}\", size = \"{gib}GiB\" }}"));
        }
        if let Some((storage, gib)) = &self.second_disk {
            let (slot, path) = match kind {
                GuestKind::Lxc => ("mp1", ", mp = \"/srv\""),
                GuestKind::Qemu => ("scsi1", ""),
            };
            line(format!("{slot} = {{ storage = \"{storage}\", size = \"{gib}GiB\"{path} }}"));
        }
    }
}

/// How large the first disk is, where that is whole GiB.
fn first_disk_gib(found: &SimGuest) -> Option<u64> {
    let value = found.config.active.get(first_slot(found.id.kind))?;
    let size = value.split(',').find_map(|part| part.strip_prefix("size="))?;
    size.strip_suffix('G')?.parse().ok()
}

fn first_slot(kind: GuestKind) -> &'static str {
    match kind {
        GuestKind::Lxc => "rootfs",
        GuestKind::Qemu => "scsi0",
    }
}

/// Where the second disk goes.
pub(crate) fn second_slot(kind: GuestKind) -> &'static str {
    match kind {
        GuestKind::Lxc => "mp1",
        GuestKind::Qemu => "scsi1",
    }
}

/// Volumes of a guest that its file does not mention, nor a snapshot's section in it.
pub(crate) fn loose(world: &World, guest: GuestId) -> BTreeSet<String> {
    let Some(found) = world.guest(guest) else { return BTreeSet::new() };
    let sections = found.config.snapshots.iter().flat_map(|snapshot| snapshot.section.values());
    let values = found.config.active.values().chain(found.config.pending.values()).chain(sections);
    let mentioned: BTreeSet<&str> = values.filter_map(|value| value.split(',').next()).collect();
    let mut loose = BTreeSet::new();
    for (storage, contents) in &world.storages {
        for (name, volume) in &contents.volumes {
            // A machine's saved memory is nothing that a write allocates.
            let is_memory = name.contains("-state-");
            let of_guest =
                volume.vmid == Some(guest.vmid) && volume.content != "backup" && !is_memory;
            let mentioned = mentioned.iter().any(|value| {
                value.split_once(':').is_some_and(|(on, volume)| {
                    on == storage && (volume == name || volume.ends_with(&format!("/{name}")))
                })
            });
            if of_guest && !mentioned {
                loose.insert(format!("{storage}:{name}"));
            }
        }
    }
    loose
}
