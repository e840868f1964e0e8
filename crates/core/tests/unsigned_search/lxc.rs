//! How Proxmox VE writes a container's configuration: what is written waits or is applied at once, and only the keys
//! that were written are.

use crate::model::{Disk, Medium, Model, Slot};
use crate::request::Write;

/// `PUT config`. None if it is refused.
pub(crate) fn write(model: &mut Model, write: &Write) -> Option<()> {
    // `force` is not a parameter of it.
    (!write.force).then_some(())?;
    for &slot in &write.revert {
        model.waiting.remove(slot);
        model.deletions.remove(slot);
    }
    if let Some(number) = write.delete_unused {
        let volume = model.unused[usize::from(number)].take()?;
        if !model.snapshot {
            model.life_mut(volume).exists = false;
        }
    }
    for &slot in &write.delete {
        (slot != Slot::Root).then_some(())?;
        // A value that waits stays beside the deletion.
        model.deletions.insert(slot, false);
    }
    for &(slot, disk) in &write.set {
        match disk.medium {
            Medium::Volume(volume) => model.life(volume).exists.then_some(())?,
            Medium::New => {}
            Medium::Image | Medium::Nothing => return None,
        }
        if slot == Slot::Root && disk.backup.is_some() {
            return None;
        }
        // `backup=0` says what its absence says.
        model.waiting.insert(slot, Disk { backup: disk.backup.filter(|on| *on), ..disk });
        model.deletions.remove(slot);
    }
    model.drop_settled();
    let written: Vec<Slot> =
        write.set.iter().map(|(slot, _)| *slot).chain(write.delete.iter().copied()).collect();
    if model.running {
        mount(model, &written)?;
    } else {
        apply(model, Some(&written));
    }
    drop_used(model);
    Some(())
}

/// A running container takes a new mount point and nothing else.
fn mount(model: &mut Model, written: &[Slot]) -> Option<()> {
    for &slot in written.iter().filter(|slot| **slot != Slot::Root) {
        if model.now.get(slot).is_none()
            && let Some(disk) = model.waiting.remove(slot)
        {
            let disk = made(model, slot, disk)?;
            model.now.insert(slot, disk);
        }
    }
    Some(())
}

/// Applies what waits, all of it or the keys that were written. What a mount point held is kept as unused, whoever
/// owns it; of the root volume nothing is kept.
pub(crate) fn apply(model: &mut Model, only: Option<&[Slot]>) {
    let chosen = |slot: &Slot| only.is_none_or(|only| only.contains(slot));
    for slot in { model.deletions }.iter().map(|(slot, _)| slot).filter(chosen) {
        model.deletions.remove(slot);
        if let Some(volume) = model.now.remove(slot).and_then(Disk::volume) {
            model.keep_unused(volume);
        }
    }
    for slot in { model.waiting }.iter().map(|(slot, _)| slot).filter(chosen) {
        let Some(disk) = model.waiting.remove(slot) else { continue };
        let Some(disk) = made(model, slot, disk) else { continue };
        if let Some(old) = model.now.insert(slot, disk).and_then(Disk::volume)
            && slot != Slot::Root
        {
            model.keep_unused(old);
        }
    }
    drop_used(model);
}

/// A new volume is allocated when its mount point comes into effect.
fn made(model: &mut Model, slot: Slot, disk: Disk) -> Option<Disk> {
    match disk.medium {
        Medium::New => Some(Disk { medium: Medium::Volume(model.allocate(slot)?), ..disk }),
        Medium::Volume(_) | Medium::Image | Medium::Nothing => Some(disk),
    }
}

/// Every time the file is written, `unusedN` is dropped for volumes that are mounted; those that wait are not looked
/// at.
fn drop_used(model: &mut Model) {
    let now = model.now;
    model.drop_unused(now.iter().map(|(_, disk)| disk));
}
