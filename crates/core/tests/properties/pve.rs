//! A small Proxmox VE: guests with stored and waiting values, and what writes do to them.
//!
//! An own reading of PVE's behaviour, which shares nothing with core but names, so that both cannot be
//! wrong together. It stops the test when it is sent what a real one would refuse.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use evenkeel_core::actual::{
    self, ConfigEntry, GuestConfig, ListCoverage, Power, Snapshot, Unreadable,
};
use evenkeel_core::model::id::{GuestId, GuestKind, VmId};
use evenkeel_core::model::release::Release;
use evenkeel_core::plan::{Action, SetConfig, Step};
use evenkeel_core::registry::{self, Shape, ValueFormat};
use evenkeel_core::value::compare::{Cgroup, Conventions};

use crate::dice::Dice;
use crate::spelling::{respelled, split};

const MIB: u64 = 1 << 20;

/// One node.
#[derive(Debug, Clone)]
pub(crate) struct Pve {
    pub(crate) release: Release,
    pub(crate) conventions: Conventions,
    pub(crate) guests: BTreeMap<VmId, Guest>,
    /// Sizes in bytes of the volumes that exist.
    pub(crate) volumes: BTreeMap<String, u64>,
    macs_made: u32,
}

/// One guest.
#[derive(Debug, Clone)]
pub(crate) struct Guest {
    pub(crate) id: GuestId,
    pub(crate) power: Power,
    pub(crate) template: bool,
    pub(crate) lock: Option<String>,
    pub(crate) readable: bool,
    pub(crate) has_digest: bool,
    pub(crate) fields: BTreeMap<String, Stored>,
    pub(crate) writes: u32,
}

/// One key of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Stored {
    pub(crate) current: Option<String>,
    pub(crate) waiting: Option<Waits>,
}

/// What waits for a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Waits {
    Set(String),
    Delete,
    Destroy,
}

impl Stored {
    /// The value after a restart.
    pub(crate) fn after(&self) -> Option<&String> {
        match &self.waiting {
            None => self.current.as_ref(),
            Some(Waits::Set(text)) => Some(text),
            Some(Waits::Delete | Waits::Destroy) => None,
        }
    }
}

impl Guest {
    /// PVE's digest of the file; each write changes it.
    pub(crate) fn digest(&self) -> String {
        if self.has_digest {
            format!("digest-{}-{}", self.id.vmid, self.writes)
        } else {
            String::new()
        }
    }

    /// Whether anything waits for a restart.
    pub(crate) fn waits(&self) -> bool {
        self.fields.values().any(|field| field.waiting.is_some())
    }

    pub(crate) fn is_running(&self) -> bool {
        matches!(self.power, Power::Running | Power::Paused)
    }
}

impl Pve {
    pub(crate) fn new(release: Release, conventions: Conventions) -> Self {
        Self {
            release,
            conventions,
            guests: BTreeMap::new(),
            volumes: BTreeMap::new(),
            macs_made: 0,
        }
    }

    /// What an agent reads.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot {
            node: "pve1".parse().unwrap(),
            release: self.release,
            conventions: self.conventions,
            guests: self.guests.iter().map(|(vmid, guest)| (*vmid, read(guest))).collect(),
            elsewhere: BTreeMap::new(),
            hidden: std::collections::BTreeSet::new(),
            coverage: ListCoverage::Whole,
        }
    }

    /// Does what an action says.
    pub(crate) fn apply(&mut self, action: &Action, dice: &mut Dice) {
        let vmid = action.guest.vmid;
        assert!(self.guests[&vmid].lock.is_none(), "nothing is sent to a locked guest");
        match &action.step {
            Step::SetConfig(write) => self.write(vmid, write, dice),
            Step::Resize { disk, to, .. } => self.resize(vmid, &disk.to_string(), to.0),
            Step::MoveVolume { disk, to, .. } => self.relocate(vmid, &disk.to_string(), to),
            Step::Start => {
                assert!(!self.guests[&vmid].is_running() && !self.guests[&vmid].template);
                self.apply_waiting(vmid, |_| true);
                self.guest(vmid).power = Power::Running;
            }
            Step::Shutdown { .. } | Step::Stop => {
                assert!(self.guests[&vmid].is_running());
                self.guest(vmid).power = Power::Stopped;
                // A machine that goes down from inside keeps what waits; a container does not.
                if action.guest.kind == GuestKind::Lxc || dice.chance(50) {
                    self.apply_waiting(vmid, |_| true);
                }
            }
            Step::Make(_) | Step::Destroy(_) | Step::Remove(_) | Step::Template => {
                panic!("{} must not run", action.step.kind())
            }
        }
    }

    /// Stores a value as a write would, and hands out what is then stored.
    pub(crate) fn accept(
        &mut self,
        id: GuestId,
        name: &str,
        text: &str,
        dice: &mut Dice,
    ) -> String {
        let key = registry::find(id.kind, name).unwrap();
        let stored = match (key.key().name, &key.key().format) {
            ("net", ValueFormat::Property(shape)) => self.network(id.kind, shape, text),
            ("tags", _) => {
                let folded = if self.conventions.tags_have_case {
                    text.to_owned()
                } else {
                    text.to_lowercase()
                };
                let mut tags: Vec<&str> = folded.split([';', ',', ' ']).collect();
                tags.sort_unstable();
                tags.dedup();
                tags.join(";")
            }
            ("description", _) if id.kind == GuestKind::Lxc => format!("{text}\n"),
            ("cpuunits", _) => {
                let weight: i64 = text.parse().unwrap();
                let weight = match self.conventions.cgroup {
                    Cgroup::V2 => weight.min(10_000),
                    Cgroup::V1 => weight.max(2),
                };
                weight.to_string()
            }
            (_, ValueFormat::SshKeys) if !text.contains('%') || text.contains(' ') => encoded(text),
            (_, ValueFormat::Property(shape)) if volume_part(shape).is_some() => {
                self.drive(id, name, shape, text)
            }
            _ => text.to_owned(),
        };
        respelled(dice, &key.key().format, &stored, self.conventions.tags_have_case)
    }

    fn guest(&mut self, vmid: VmId) -> &mut Guest {
        self.guests.get_mut(&vmid).unwrap()
    }

    fn write(&mut self, vmid: VmId, write: &SetConfig, dice: &mut Dice) {
        let id = self.guests[&vmid].id;
        let names = |keys: &[registry::KeyRef]| {
            keys.iter().map(ToString::to_string).collect::<Vec<String>>()
        };
        for name in names(&write.revert) {
            let dropped =
                self.guest(vmid).fields.get_mut(&name).and_then(|field| field.waiting.take());
            if let Some(Waits::Set(text)) = dropped {
                self.detach(vmid, &name, &text);
            }
        }
        for name in names(&write.delete) {
            assert!(
                !matches!(name.as_str(), "rootfs" | "unprivileged"),
                "PVE refuses to delete {name}"
            );
            assert!(id.kind == GuestKind::Qemu || !matches!(name.as_str(), "memory" | "ostype"));
            let live = self.is_live(vmid, &name, None, dice);
            self.change(vmid, &name, None, live);
        }
        for (key, text) in &write.set {
            let name = key.to_string();
            let text = self.accept(id, &name, text, dice);
            let live = self.is_live(vmid, &name, Some(&text), dice);
            self.change(vmid, &name, Some(text), live);
        }
        let guest = self.guest(vmid);
        guest.writes += 1;
        if id.kind == GuestKind::Qemu && !guest.is_running() {
            self.apply_waiting(vmid, |_| true);
        }
    }

    fn change(&mut self, vmid: VmId, name: &str, to: Option<String>, live: bool) {
        let mut field = self.guest(vmid).fields.remove(name).unwrap_or_default();
        let old = field.current.clone();
        match (live, to) {
            (true, to) => field = Stored { current: to, waiting: None },
            (false, Some(to)) => {
                field.waiting = (field.current.as_ref() != Some(&to)).then_some(Waits::Set(to));
            }
            (false, None) => field.waiting = field.current.is_some().then_some(Waits::Delete),
        }
        let gone = old.filter(|_| live);
        let left = field.current.clone();
        if field != Stored::default() {
            self.guest(vmid).fields.insert(name.to_owned(), field);
        }
        if let Some(gone) =
            gone.filter(|gone| left.as_ref().and_then(|text| held(text)) != held(gone))
        {
            self.detach(vmid, name, &gone);
        }
    }

    /// A volume that is no longer attached stays as `unusedN`.
    fn detach(&mut self, vmid: VmId, name: &str, text: &str) {
        let kind = self.guests[&vmid].id.kind;
        let is_slot = matches!(registry::find(kind, name).unwrap().key().format,
            ValueFormat::Property(shape) if volume_part(shape).is_some());
        let Some(volume) = held(text).filter(|_| is_slot && !name.starts_with("unused")) else {
            return;
        };
        let fields = &mut self.guest(vmid).fields;
        let free = (0..256)
            .map(|slot| format!("unused{slot}"))
            .find(|slot| !fields.contains_key(slot))
            .unwrap();
        fields.insert(free, Stored { current: Some(volume), waiting: None });
    }

    fn apply_waiting(&mut self, vmid: VmId, which: impl Fn(&str) -> bool) {
        let waiting: Vec<(String, Waits)> = self.guests[&vmid]
            .fields
            .iter()
            .filter(|(name, _)| which(name))
            .filter_map(|(name, field)| Some((name.clone(), field.waiting.clone()?)))
            .collect();
        for (name, waits) in waiting {
            match waits {
                Waits::Set(text) => self.change(vmid, &name, Some(text), true),
                Waits::Delete => self.change(vmid, &name, None, true),
                Waits::Destroy => {
                    panic!("a waiting destruction of {name} was set off without a signature")
                }
            }
        }
        if self.guests[&vmid].id.kind == GuestKind::Qemu {
            self.guest(vmid).writes += 1;
        }
    }

    /// A slot's text once its volume has another size.
    pub(crate) fn sized(&mut self, text: &str, size: u64) -> String {
        self.volumes.insert(held(text).expect("a volume that exists"), size);
        let pieces =
            text.split(',').filter(|piece| !piece.is_empty() && !piece.starts_with("size="));
        format!("{},size={}", pieces.collect::<Vec<&str>>().join(","), printed(size))
    }

    fn resize(&mut self, vmid: VmId, disk: &str, to: u64) {
        let text = self.guests[&vmid].fields[disk].current.clone().expect("a volume to grow");
        let volume = held(&text).expect("a volume that exists");
        let size = self.volumes.get(&volume).expect("a volume that exists");
        assert!(to > *size, "PVE does not shrink {text} to {to}");
        let text = self.sized(&text, to.div_ceil(4 * MIB) * 4 * MIB);
        let guest = self.guest(vmid);
        guest.fields.get_mut(disk).unwrap().current = Some(text);
        guest.writes += 1;
    }

    /// A copy takes the slot; the source stays as `unusedN`.
    fn relocate(&mut self, vmid: VmId, disk: &str, to: &str) {
        let guest = &self.guests[&vmid];
        assert!(guest.id.kind == GuestKind::Qemu || guest.power == Power::Stopped);
        assert!(guest.fields[disk].waiting.is_none(), "what waits would put the source back");
        let text = guest.fields[disk].current.clone().expect("a volume to move");
        let old = held(&text).expect("a volume that exists");
        let size = self.volumes[&old];
        let new = (0..256).map(|number| format!("{to}:vm-{vmid}-disk-{number}"));
        let new = new.into_iter().find(|name| !self.volumes.contains_key(name)).unwrap();
        self.volumes.insert(new.clone(), size);
        self.guest(vmid).fields.get_mut(disk).unwrap().current = Some(text.replacen(&old, &new, 1));
        self.detach(vmid, disk, &text);
        self.guest(vmid).writes += 1;
    }

    fn network(&mut self, kind: GuestKind, shape: &Shape, text: &str) -> String {
        let mut parts = split(shape, text);
        let mac = if kind == GuestKind::Lxc { "hwaddr" } else { "macaddr" };
        if !parts.iter().any(|(name, _)| name == mac) {
            self.macs_made += 1;
            parts.push((mac.to_owned(), format!("BC:24:11:FF:00:{:02X}", self.macs_made)));
        }
        if kind == GuestKind::Lxc {
            parts.retain(|(name, _)| name != "type");
            parts.push(("type".to_owned(), "veth".to_owned()));
        }
        print_parts(&parts)
    }

    fn drive(&mut self, id: GuestId, slot: &str, shape: &Shape, text: &str) -> String {
        let mut parts = split(shape, text);
        let at = parts.iter().position(|(name, _)| name == volume_part(shape).unwrap()).unwrap();
        let volume = parts[at].1.clone();
        let size = parts.iter().find(|(name, _)| name == "size").and_then(|(_, size)| bytes(size));
        let cdrom = parts.iter().any(|(name, value)| name == "media" && value == "cdrom");
        parts.retain(|(name, _)| name != "size" && name != "format");
        let at = parts.iter().position(|(_, value)| *value == volume).unwrap();
        let rest =
            volume.split_once(':').map(|(storage, rest)| (storage.to_owned(), rest.to_owned()));
        let size = match rest {
            Some((storage, rest)) if rest == "cloudinit" || rest.contains("cloudinit") => {
                parts[at].1 = format!("{storage}:vm-{}-cloudinit", id.vmid);
                parts.retain(|(name, _)| name != "media");
                parts.push(("media".to_owned(), "cdrom".to_owned()));
                Some(4 * MIB)
            }
            Some((storage, gib)) if gib.parse::<f64>().is_ok() => {
                let number = (0..256).find(|n| {
                    !self.volumes.contains_key(&format!("{storage}:vm-{}-disk-{n}", id.vmid))
                });
                parts[at].1 = format!("{storage}:vm-{}-disk-{}", id.vmid, number.unwrap());
                let asked = bytes(&format!("{gib}G")).unwrap();
                let unit = if id.kind == GuestKind::Lxc { MIB } else { 1024 };
                let size = match slot {
                    "efidisk0" => 528 * 1024,
                    "tpmstate0" => 4 * MIB,
                    _ => asked / unit * unit,
                };
                self.volumes.insert(parts[at].1.clone(), size);
                Some(size)
            }
            Some(_) if cdrom => Some(600 * MIB),
            Some(_) => Some(*self.volumes.entry(volume).or_insert(size.unwrap_or(8 << 30))),
            None => None,
        };
        if let Some(size) = size {
            parts.push(("size".to_owned(), printed(size)));
        }
        print_parts(&parts)
    }

    /// Whether a running guest takes a change at once.
    fn is_live(&self, vmid: VmId, name: &str, to: Option<&str>, dice: &mut Dice) -> bool {
        let guest = &self.guests[&vmid];
        if !guest.is_running() {
            return true;
        }
        let old = guest.fields.get(name).and_then(|field| field.current.as_deref());
        let family = name.trim_end_matches(|c: char| c.is_ascii_digit());
        match guest.id.kind {
            GuestKind::Lxc => match family {
                "description" | "onboot" | "startup" | "protection" | "tags" | "hostname"
                | "cores" | "memory" | "swap" | "cpulimit" | "cpuunits" => true,
                "net" => to.is_some() || name.len() == "net0".len(),
                "mp" => old.is_none() && to.is_some(),
                _ => false,
            },
            GuestKind::Qemu => match family {
                "description" | "migrate_speed" | "name" | "onboot" | "protection" | "shares"
                | "startup" | "tags" | "vmstatestorage" | "cicustom" | "citype" | "ciupgrade"
                | "ciuser" | "ipconfig" | "nameserver" | "searchdomain" | "sshkeys"
                | "cpulimit" | "cpuunits" | "tablet" => true,
                "migrate_downtime" => self.release >= Release::V8_0,
                // Depends on the hot-plug set, the machine's version and the guest's own help.
                "net" | "scsi" | "virtio" | "usb" | "vcpus" | "memory" | "balloon" | "hotplug"
                | "ide" | "sata" => dice.chance(50),
                _ => false,
            },
        }
    }
}

fn read(guest: &Guest) -> actual::Guest {
    let digest =
        ConfigEntry { key: "digest".into(), value: Some(guest.digest()), pending: None, delete: 0 };
    let entries = guest.fields.iter().map(|(name, field)| ConfigEntry {
        key: name.clone(),
        value: field.current.clone(),
        pending: match &field.waiting {
            Some(Waits::Set(text)) => Some(text.clone()),
            Some(Waits::Delete | Waits::Destroy) | None => None,
        },
        delete: match &field.waiting {
            Some(Waits::Delete) => 1,
            Some(Waits::Destroy) => 2,
            Some(Waits::Set(_)) | None => 0,
        },
    });
    actual::Guest {
        id: guest.id,
        power: guest.power,
        template: guest.template,
        ha: None,
        lock: guest.lock.clone(),
        config: if guest.readable {
            Ok(GuestConfig::from_pending(guest.id.kind, entries.chain([digest])).into())
        } else {
            Err(Unreadable::new("403 Permission check failed", ""))
        },
    }
}

/// The volume a slot's text names, if it is one that holds data.
pub(crate) fn held(text: &str) -> Option<String> {
    let pieces = text.split(',').map(|piece| piece.strip_prefix("file=").unwrap_or(piece));
    let mut pieces = pieces.map(|piece| piece.strip_prefix("volume=").unwrap_or(piece));
    pieces.find(|piece| piece.contains("-disk-") && !piece.contains('=')).map(ToOwned::to_owned)
}

fn volume_part(shape: &Shape) -> Option<&'static str> {
    shape.parts.iter().find(|part| matches!(part.format, ValueFormat::Volume)).map(|part| part.name)
}

fn print_parts(parts: &[(String, String)]) -> String {
    parts.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<String>>().join(",")
}

/// PVE's size as bytes.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = match text.strip_suffix(['K', 'M', 'G', 'T']) {
        Some(number) => (number, &text[number.len()..]),
        None => (text, ""),
    };
    let shift = ["", "K", "M", "G", "T"].iter().position(|other| *other == unit)? * 10;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let fraction = (fraction.parse::<u128>().ok()? << shift) / scale;
    Some((whole.parse::<u64>().ok()? << shift) + u64::try_from(fraction).ok()?)
}

fn printed(size: u64) -> String {
    let units = [("T", 40), ("G", 30), ("M", 20), ("K", 10)];
    let unit = units.iter().find(|(_, shift)| size.trailing_zeros() >= *shift);
    unit.map_or_else(|| size.to_string(), |(unit, shift)| format!("{}{unit}", size >> shift))
}

fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.!~*'()".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            write!(encoded, "%{byte:02X}").unwrap();
        }
    }
    encoded
}
