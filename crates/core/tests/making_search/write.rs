//! How Proxmox VE writes a configuration, as far as drives on a bus that a running machine takes and mount points go; the
//! other search has the rest. What a container cannot take while it runs waits.

use evenkeel_core::model::id::GuestKind;

use crate::node::{Disk, Node};
use crate::pve::Request;

/// A value as it goes over the wire.
pub(crate) struct Written {
    /// A volume that exists, or `STORAGE:GIB`.
    pub(crate) medium: String,
    pub(crate) backup: Option<bool>,
    pub(crate) mount: Option<String>,
    pub(crate) import_from: Option<String>,
}

impl Written {
    pub(crate) fn read(text: &str) -> Self {
        let mut written =
            Self { medium: String::new(), backup: None, mount: None, import_from: None };
        for part in text.split(',') {
            match part.split_once('=') {
                None => part.clone_into(&mut written.medium),
                Some(("file" | "volume", medium)) => medium.clone_into(&mut written.medium),
                Some(("backup", on)) => written.backup = Some(on == "1"),
                Some(("mp", path)) => written.mount = Some(path.to_owned()),
                Some(("import-from", image)) => written.import_from = Some(image.to_owned()),
                Some(_) => {}
            }
        }
        written
    }

    /// The storage and the size of a new volume.
    pub(crate) fn fresh(&self) -> Option<(&str, u8)> {
        let (storage, size) = self.medium.split_once(':')?;
        Some((storage, size.parse().ok()?))
    }

    /// The slot's new value; a new volume is allocated.
    pub(crate) fn disk(&self, node: &mut Node, guest: u32) -> Option<Disk> {
        let volume = match self.fresh() {
            Some((storage, gib)) => node.allocate(storage, guest, gib)?,
            // Whoever owns it: it is taken without a word.
            None => node.volumes.get_key_value(&self.medium)?.0.clone(),
        };
        // What is said is stored, but for what says no more than its absence.
        let default = match node.kind {
            GuestKind::Lxc => Some(false),
            GuestKind::Qemu => Some(true),
        };
        let backup = self.backup.filter(|on| Some(*on) != default);
        Some(Disk { volume, backup, mount: self.mount.clone() })
    }
}

/// Whether a key is a place for a volume.
pub(crate) fn is_slot(name: &str) -> bool {
    name == "rootfs"
        || ["mp", "scsi"].iter().any(|family| {
            name.strip_prefix(family).is_some_and(|number| number.parse::<u8>().is_ok())
        })
}

/// `PUT config`. None if it is refused.
pub(crate) fn write(node: &mut Node, request: &Request) -> Option<()> {
    let number = request.guest;
    let listed = |name: &str| -> Vec<String> {
        let text = request.text(name).unwrap_or_default();
        text.split(',').filter(|key| !key.is_empty()).map(str::to_owned).collect()
    };
    for key in listed("revert") {
        node.guests.get_mut(&number)?.waiting.remove(&key);
    }
    for key in listed("delete") {
        let guest = node.guests.get_mut(&number)?;
        if let Some(unused) = key.strip_prefix("unused") {
            let volume = guest.unused.remove(&unused.parse().ok()?)?;
            node.volumes.remove(&volume);
        } else if is_slot(&key) {
            (key != "rootfs").then_some(())?;
            guest.waiting.insert(key.clone(), None);
            settle(node, number, &key);
        } else {
            guest.keys.remove(&key);
        }
    }
    for (key, text) in &request.params {
        match key.as_str() {
            "delete" | "revert" | "digest" | "force" | "background_delay" => {}
            key if is_slot(key) => {
                let disk = Written::read(text).disk(node, number)?;
                node.guests.get_mut(&number)?.waiting.insert(key.to_owned(), Some(disk));
                settle(node, number, key);
            }
            key => {
                node.guests.get_mut(&number)?.keys.insert(key.to_owned(), text.clone());
            }
        }
    }
    node.guests.get_mut(&number)?.drop_used();
    Some(())
}

/// Brings one slot into effect, if the guest takes it now: a running container only gets new mount points.
fn settle(node: &mut Node, number: u32, slot: &str) {
    let takes = node.guests.get(&number).is_some_and(|guest| match guest.kind {
        GuestKind::Qemu => true,
        GuestKind::Lxc => !guest.running || !guest.slots.contains_key(slot),
    });
    if takes {
        apply(node, number, Some(slot));
    }
}

/// Applies what waits, all of it or one slot. A machine keeps what it owns as `unusedN`, a container whatever was
/// mounted.
pub(crate) fn apply(node: &mut Node, number: u32, only: Option<&str>) {
    let Some(guest) = node.guests.get_mut(&number) else { return };
    let due: Vec<String> = guest
        .waiting
        .keys()
        .filter(|slot| only.is_none_or(|only| only == *slot))
        .cloned()
        .collect();
    for slot in due {
        let new = guest.waiting.remove(&slot).flatten();
        let old = guest.slots.remove(&slot);
        let stays = new.as_ref().map(|disk| disk.volume.clone());
        if let Some(disk) = new {
            guest.slots.insert(slot.clone(), disk);
        }
        if let Some(old) = old.filter(|old| Some(&old.volume) != stays.as_ref()) {
            let owned = node.volumes.get(&old.volume).is_some_and(|volume| volume.owner == number);
            if guest.kind == GuestKind::Lxc && slot != "rootfs" || owned {
                guest.keep_unused(&old.volume);
            }
        }
    }
    guest.drop_used();
}
