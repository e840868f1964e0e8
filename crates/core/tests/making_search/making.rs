//! How Proxmox VE makes a guest: from nothing, from a template, an image, another guest or a backup; and what it leaves
//! behind when that does not come to an end.

use evenkeel_core::model::id::GuestKind;

use crate::loss::Loss;
use crate::node::{Disk, Maker, Node, NodeGuest, NodeVolume};
use crate::pve::Request;
use crate::write::{Written, is_slot};

/// Makes the guest whole. None if it is refused and nothing is left.
pub(crate) fn make(node: &mut Node, request: &Request) -> Option<()> {
    let mut guest = NodeGuest::new(node.kind, Maker::Evenkeel);
    match request.op {
        "create" => create(node, request, &mut guest)?,
        "clone" => clone(node, request, &mut guest)?,
        "restore" => restore(node, request, &mut guest)?,
        op => panic!("{op} makes no guest"),
    }
    let parameters = [
        "archive",
        "force",
        "full",
        "newid",
        "ostemplate",
        "restore",
        "snapname",
        "storage",
        "unique",
    ];
    for (key, text) in &request.params {
        if !is_slot(key) && !parameters.contains(&key.as_str()) {
            guest.keys.insert(key.clone(), text.clone());
        }
    }
    node.guests.insert(request.guest, guest);
    Some(())
}

fn create(node: &mut Node, request: &Request, guest: &mut NodeGuest) -> Option<()> {
    for (key, text) in request.params.iter().filter(|(key, _)| is_slot(key)) {
        let written = Written::read(text);
        let disk = written.disk(node, request.guest)?;
        if let Some(image) = &written.import_from {
            // It is copied, whoever owns it, and brings its size.
            let source = node.volumes.get(image)?.clone();
            node.volumes.get_mut(&disk.volume)?.gib = source.gib;
            if source.owner != 0 {
                node.sins.insert(Loss::ReadIn);
            }
        }
        guest.slots.insert(key.clone(), disk);
    }
    if node.kind == GuestKind::Lxc {
        request.text("ostemplate")?;
        guest.slots.contains_key("rootfs").then_some(())?;
    }
    Some(())
}

/// The configuration is copied, with what it says of starts and of protection. A linked clone stands on its source's
/// volumes; a full one has its own. Nothing detached comes along.
fn clone(node: &mut Node, request: &Request, guest: &mut NodeGuest) -> Option<()> {
    let source = node.guests.get(&request.source?)?.clone();
    (source.lock.is_none() && source.kind == node.kind).then_some(())?;
    let full = request.text("full") == Some("1");
    (full || source.template).then_some(())?;
    (source.kind == GuestKind::Qemu || !source.running).then_some(())?;
    guest.keys = source.keys;
    for (slot, disk) in source.slots {
        let from = node.volumes.get(&disk.volume)?.clone();
        let volume = if full {
            let storage = request.text("storage").or(disk.volume.split(':').next())?.to_owned();
            node.allocate(&storage, request.guest, from.gib)?
        } else {
            node.link(&disk.volume, request.guest)?
        };
        guest.slots.insert(slot, Disk { volume, ..disk });
    }
    Some(())
}

/// Everything the backup holds is made anew on one storage. A container that is told its root volume gets no other mount
/// point than those it is told.
fn restore(node: &mut Node, request: &Request, guest: &mut NodeGuest) -> Option<()> {
    let archive = request.text("archive").or(request.text("ostemplate"))?;
    let (_, slots) = node.archives.get(archive)?.clone();
    let given: Vec<(&String, &String)> =
        request.params.iter().filter(|(key, _)| is_slot(key)).collect();
    if !given.is_empty() {
        (node.kind == GuestKind::Lxc).then_some(())?;
        for (key, text) in given {
            let disk = Written::read(text).disk(node, request.guest)?;
            guest.slots.insert(key.clone(), disk);
        }
        return guest.slots.contains_key("rootfs").then_some(());
    }
    let storage = request.text("storage")?.to_owned();
    for (slot, gib) in slots {
        let volume = node.allocate(&storage, request.guest, gib)?;
        let mount = slot.strip_prefix("mp").map(|number| format!("/m{number}"));
        let backup = mount.is_some().then_some(true);
        guest.slots.insert(slot, Disk { volume, backup, mount });
    }
    Some(())
}

/// What is left when a making does not come to an end. A plain failure leaves nothing; a killed worker leaves a locked
/// stub and its volumes, a machine's restore a machine without a lock.
pub(crate) fn half_made<'n>(
    before: &'n Node,
    made: &'n Node,
    request: &'n Request,
) -> impl Iterator<Item = (&'static str, Node)> + 'n {
    let number = request.guest;
    let failed = before.clone();
    let mut killed = made.clone();
    let mut stub = NodeGuest::new(made.kind, Maker::Evenkeel);
    match (request.op, made.kind) {
        ("restore", GuestKind::Qemu) => {
            stub.keys.insert("memory".to_owned(), "128".to_owned());
        }
        ("clone", GuestKind::Qemu) => stub.lock = Some("clone"),
        ("clone", GuestKind::Lxc) => {
            stub.lock = Some("create");
            let source = request.source.and_then(|source| killed.guests.get_mut(&source));
            if let Some(source) = source {
                source.lock = Some("disk");
            }
        }
        (_, _) => stub.lock = Some("create"),
    }
    killed.guests.insert(number, stub);
    let mut half = killed.clone();
    half.guests.insert(
        number,
        NodeGuest {
            // An administrator unlocked a stub that has its volumes: nothing of the configuration tells it from a whole one.
            lock: None,
            slots: made.guests.get(&number).map(|guest| guest.slots.clone()).unwrap_or_default(),
            ..NodeGuest::new(made.kind, Maker::Evenkeel)
        },
    );
    [("failed", failed), ("killed", killed), ("half made", half)].into_iter()
}

/// The number went to somebody else in the last moment: a guest with data.
pub(crate) fn by_somebody(before: &Node, number: u32) -> Node {
    let mut node = before.clone();
    let mut guest = NodeGuest::new(node.kind, Maker::Somebody);
    let slot = match node.kind {
        GuestKind::Lxc => "rootfs",
        GuestKind::Qemu => "scsi0",
    };
    if let Some(volume) = node.allocate("tank", number, 4) {
        let made = NodeVolume { holds_data: true, ..NodeVolume::new(4, number) };
        node.volumes.insert(volume.clone(), made);
        guest.slots.insert(slot.to_owned(), Disk::of(&volume));
    }
    node.guests.insert(number, guest);
    node
}
