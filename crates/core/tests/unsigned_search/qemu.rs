//! How Proxmox VE writes a machine's configuration: everything goes through the pending section, and is applied from
//! there, at once or by the next start or stop.

use crate::model::{Disk, Medium, Model, Slot, is_own};
use crate::request::Write;

/// `PUT config`: reverts, deletions, values, then what can be applied is. None if it is refused before anything is
/// written.
pub(crate) fn write(model: &mut Model, write: &Write) -> Option<()> {
    let mut set = write.set.clone();
    let mut delete = write.delete.clone();
    for &slot in &write.revert {
        // Reverting is writing what is in effect, or deleting what only waits.
        match (model.now.get(slot), model.waiting.get(slot)) {
            (Some(now), _) => set.push((slot, now)),
            (None, Some(_)) => delete.push(slot),
            (None, None) => {}
        }
    }
    if let Some(number) = write.delete_unused {
        let volume = model.unused[usize::from(number)].take()?;
        if !model.snapshot {
            model.life_mut(volume).exists = false;
        }
    }
    for &slot in &delete {
        remove(model, slot, write.force);
    }
    for &(slot, disk) in &set {
        put(model, slot, disk)?;
    }
    if let Some(on) = write.ovmf {
        model.ovmf_waits = Some(on);
    }
    clean_up(model);
    if model.running {
        let written: Vec<Slot> = set.iter().map(|(slot, _)| *slot).chain(delete).collect();
        hotplug(model, &written);
    } else {
        apply(model);
    }
    Some(())
}

/// Stages a deletion. If something waits, the value in effect is kept as unused (to no avail, being in use), and what
/// waits is dropped.
fn remove(model: &mut Model, slot: Slot, force: bool) {
    let waiting = model.waiting.remove(slot);
    let Some(value) = model.now.get(slot).or(waiting) else { return };
    if waiting.is_some() {
        register_unused(model, value);
    }
    model.deletions.insert(slot, force);
    drop_used(model);
}

/// Stages a value. What waited before is kept as unused; a new volume is allocated at once.
fn put(model: &mut Model, slot: Slot, disk: Disk) -> Option<()> {
    if model.waiting.get(slot) == Some(disk) {
        return Some(());
    }
    if slot.is_firmware() && (disk.cdrom || disk.backup.is_some()) {
        // The schema of these has no such parts.
        return None;
    }
    if let Some(waited) = model.waiting.get(slot) {
        register_unused(model, waited);
    }
    // `backup=1` says what its absence says.
    let mut stored = Disk { backup: disk.backup.filter(|on| !on), ..disk };
    match disk.medium {
        Medium::Volume(volume) => model.life(volume).exists.then_some(())?,
        Medium::New => {
            stored.medium = Medium::Volume(model.allocate(slot)?);
            stored.format = false;
        }
        // An image must be a CD-ROM.
        Medium::Image => disk.cdrom.then_some(())?,
        Medium::Nothing => stored.cdrom = true,
    }
    model.waiting.insert(slot, stored);
    model.deletions.remove(slot);
    drop_used(model);
    Some(())
}

/// A detached volume stays in the configuration if it is a disk, and this guest's own.
fn register_unused(model: &mut Model, disk: Disk) {
    if let Some(volume) = disk.volume().filter(|volume| !disk.cdrom && is_own(*volume)) {
        model.keep_unused(volume);
    }
}

/// Every time the file is written, `unusedN` is dropped for volumes that are in a slot or wait for one, as a CD-ROM or
/// not.
fn drop_used(model: &mut Model) {
    let now = model.now;
    let waiting = model.waiting;
    model.drop_unused(now.iter().chain(waiting.iter()).map(|(_, disk)| disk));
}

/// What waits and is as it is does not wait.
fn clean_up(model: &mut Model) {
    model.drop_settled();
    if model.ovmf_waits == Some(model.ovmf) {
        model.ovmf_waits = None;
    }
}

/// What a running machine takes.
fn hotplug(model: &mut Model, written: &[Slot]) {
    for slot in written.iter().filter(|slot| slot.is_hot()) {
        if let Some(force) = model.deletions.remove(*slot) {
            detach(model, *slot, force);
        }
    }
    for &slot in written {
        let Some(new) = model.waiting.get(slot) else { continue };
        let takes = match model.now.get(slot) {
            _ if slot.is_firmware() => false,
            // A disk does not become a CD-ROM while the machine runs; that waits.
            Some(old) if old.cdrom != new.cdrom => false,
            // The medium is changed, and nothing is kept of the old one.
            Some(old) if old.cdrom => true,
            Some(old) if old.medium != new.medium => {
                if slot.is_hot() {
                    register_unused(model, old);
                }
                slot.is_hot()
            }
            Some(_) => true,
            None => slot.is_hot(),
        };
        if takes {
            model.waiting.remove(slot);
            model.now.insert(slot, new);
        }
        drop_used(model);
    }
}

/// Everything that waits: deletions first, then values; what was there before is kept as unused.
pub(crate) fn apply(model: &mut Model) {
    for (slot, force) in std::mem::take(&mut model.deletions).iter() {
        detach(model, slot, force);
    }
    for (slot, new) in std::mem::take(&mut model.waiting).iter() {
        if let Some(old) = model.now.insert(slot, new) {
            register_unused(model, old);
        }
    }
    if let Some(on) = model.ovmf_waits.take() {
        model.ovmf = on;
    }
    drop_used(model);
}

fn detach(model: &mut Model, slot: Slot, force: bool) {
    let Some(old) = model.now.remove(slot) else { return };
    match old.volume() {
        Some(volume) if force && !old.cdrom && is_own(volume) && !model.snapshot => {
            model.life_mut(volume).exists = false;
        }
        Some(_) | None => register_unused(model, old),
    }
}
