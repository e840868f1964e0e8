//! What Proxmox VE does upon a request that was let through: the model's transitions. One request can end in several
//! ways: a making is done, is refused, is left half done, or somebody was faster.

use std::collections::BTreeMap;

use evenkeel_core::model::id::GuestKind;

use crate::loss::Loss;
use crate::node::{Disk, Maker, Node, NodeGuest};
use crate::{making, write};

/// Something that is sent.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// The op, by evenkeel's name for it.
    pub(crate) op: &'static str,
    pub(crate) guest: u32,
    /// The guest a clone is made from.
    pub(crate) source: Option<u32>,
    /// As they go over the wire.
    pub(crate) params: BTreeMap<String, String>,
}

/// How a request ended.
pub(crate) struct Ended {
    /// A word for people.
    pub(crate) how: &'static str,
    pub(crate) node: Node,
    /// Whether evenkeel is told that it is done.
    pub(crate) done: bool,
}

impl Request {
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.params.get(name).map(String::as_str)
    }

    fn is_on(&self, name: &str) -> bool {
        self.text(name) == Some("1")
    }
}

/// Every way in which a request can end; none if Proxmox VE refuses it.
pub(crate) fn after(node: &Node, request: &Request) -> Vec<Ended> {
    let mut endings = match request.op {
        "create" | "clone" | "restore" => make(node, request),
        _ => {
            let mut next = node.clone();
            let done = change(&mut next, request).is_some();
            let ended = done.then_some(Ended { how: "done", node: next, done: true });
            ended.into_iter().collect()
        }
    };
    for ended in &mut endings {
        ended.node.note_what_happens();
    }
    endings
}

fn make(node: &Node, request: &Request) -> Vec<Ended> {
    let ended = |how, node, done| Ended { how, node, done };
    let mut next = node.clone();
    if let Some(there) = node.guests.get(&request.guest) {
        // Whatever comes of it: it was sent where a guest is.
        next.sins.insert(Loss::MadeOver);
        if request.op == "restore" && request.is_on("force") && there.kind == node.kind {
            remove(&mut next, request.guest, false);
            making::make(&mut next, request);
        }
        return vec![ended("on a guest that is there", next, false)];
    }
    if making::make(&mut next, request).is_none() {
        return Vec::new();
    }
    let made = next.guests.get(&request.guest).map(|made| made.slots.clone()).unwrap_or_default();
    let used = made.values().filter_map(|disk| disk.volume.split(':').next());
    // What our own failed making left there is nobody's.
    let of_another = |name: &String| node.volumes[name].owner != request.guest;
    if used.into_iter().any(|storage| node.listed_of(storage, request.guest).any(of_another)) {
        next.sins.insert(Loss::MadeBeside);
    }
    let mut endings = vec![ended("done", next.clone(), true)];
    endings
        .extend(making::half_made(node, &next, request).map(|(how, half)| ended(how, half, false)));
    endings.push(ended("somebody was faster", making::by_somebody(node, request.guest), false));
    endings
}

/// A request on a guest that is there.
fn change(node: &mut Node, request: &Request) -> Option<()> {
    let number = request.guest;
    let guest = node.guests.get(&number)?;
    guest.lock.is_none().then_some(())?;
    if guest.maker == Maker::Somebody && !matches!(request.op, "snapshot" | "backup") {
        node.sins.insert(Loss::Touched);
    }
    match request.op {
        "set_config" => write::write(node, request),
        "resize" => resize(node, request),
        "move_volume" => move_volume(node, request),
        "start" => {
            let guest = node.guests.get_mut(&number)?;
            (!guest.running && !guest.template).then_some(())?;
            write::apply(node, number, None);
            node.guests.get_mut(&number)?.running = true;
            Some(())
        }
        "stop" | "shutdown" => {
            node.guests.get_mut(&number)?.running = false;
            write::apply(node, number, None);
            Some(())
        }
        "snapshot" => {
            let guest = node.guests.get_mut(&number)?;
            (!guest.snapshot && !guest.template).then_some(())?;
            guest.snapshot = true;
            Some(())
        }
        "backup" => back_up(node, request),
        "destroy" => {
            (!guest.running).then_some(())?;
            let all = request.is_on("destroy-unreferenced-disks");
            remove(node, number, all);
            Some(())
        }
        op => panic!("the model does not know {op}"),
    }
}

/// Both kinds refuse to shrink.
fn resize(node: &mut Node, request: &Request) -> Option<()> {
    let disk = node.guests.get(&request.guest)?.slots.get(request.text("disk")?)?;
    let gib: u8 = gib_of(request.text("size")?)?;
    let volume = node.volumes.get_mut(&disk.volume)?;
    (gib > volume.gib).then_some(())?;
    volume.gib = gib;
    Some(())
}

/// A copy on another storage takes the slot; the source is kept as `unusedN`, or freed. A guest that gets it has it.
fn move_volume(node: &mut Node, request: &Request) -> Option<()> {
    let number = request.guest;
    let guest = node.guests.get(&number)?;
    let slot = request.text("disk").or(request.text("volume"))?.to_owned();
    let disk = guest.slots.get(&slot)?.clone();
    let source = node.volumes.get(&disk.volume)?.clone();
    if let Some(target) = request.text("target-vmid") {
        (!guest.running).then_some(())?;
        node.volumes.get_mut(&disk.volume)?.owner = target.parse().ok()?;
        node.guests.get_mut(&number)?.slots.remove(&slot);
        return Some(());
    }
    // A container's volumes are moved while it is down; a machine's not to where they are.
    let storage = request.text("storage")?;
    let here = disk.volume.split(':').next() == Some(storage);
    let takes = match guest.kind {
        GuestKind::Lxc => !guest.running,
        GuestKind::Qemu => !here,
    };
    takes.then_some(())?;
    let copy = node.allocate(storage, number, source.gib)?;
    let made = node.volumes.get_mut(&copy)?;
    (made.holds_data, made.was_saved) = (source.holds_data, source.was_saved);
    let guest = node.guests.get_mut(&number)?;
    guest.slots.insert(slot.clone(), Disk { volume: copy, ..disk.clone() });
    if request.text("delete") == Some("0") {
        guest.keep_unused(&disk.volume);
        node.volumes.get_mut(&disk.volume)?.moved_from = Some((number, slot));
    } else {
        node.volumes.remove(&disk.volume);
    }
    Some(())
}

/// A backup holds what vzdump saves; pruning removes the guest's older ones.
fn back_up(node: &mut Node, request: &Request) -> Option<()> {
    let guest = node.guests.get(&request.guest)?;
    let slots = guest.slots.iter().filter(|(slot, disk)| guest.saves(slot, disk));
    let sizes =
        slots.filter_map(|(slot, disk)| Some((slot.clone(), node.volumes.get(&disk.volume)?.gib)));
    let content = (request.guest, sizes.collect());
    if request.is_on("remove") {
        node.archives.retain(|_, (of, _)| *of != request.guest);
    }
    node.archives.insert(archive(guest, request.guest, "now"), content);
    Some(())
}

/// The name of a backup.
pub(crate) fn archive(guest: &NodeGuest, number: u32, at: &str) -> String {
    let (kind, end) = match guest.kind {
        GuestKind::Lxc => ("lxc", "tar.zst"),
        GuestKind::Qemu => ("qemu", "vma.zst"),
    };
    let at = if at == "now" { "2026_11_02-02_00_00" } else { "2026_11_01-02_00_00" };
    format!("store:backup/vzdump-{kind}-{number}-{at}.{end}")
}

/// Everything the configuration names and the guest owns goes with it; on demand all that bears its number.
fn remove(node: &mut Node, number: u32, all: bool) {
    let Some(guest) = node.guests.remove(&number) else { return };
    let named =
        guest.slots.values().map(|disk| disk.volume.clone()).chain(guest.unused.into_values());
    for volume in named {
        if node.volumes.get(&volume).is_some_and(|volume| volume.owner == number) {
            node.volumes.remove(&volume);
        }
    }
    if all {
        for storage in ["tank", "store"] {
            let left: Vec<String> = node.listed_of(storage, number).cloned().collect();
            for volume in left {
                node.volumes.remove(&volume);
            }
        }
    }
}

/// Whole GiB, as `8G`, bytes or `8589934592`.
pub(crate) fn gib_of(text: &str) -> Option<u8> {
    let bytes = match text.strip_suffix('G') {
        Some(gib) => return gib.parse().ok(),
        None => text.parse::<u64>().ok()?,
    };
    (bytes >> 30).try_into().ok()
}
