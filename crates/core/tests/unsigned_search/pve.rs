//! What Proxmox VE does upon a request: the model's transitions. Each rule names what it was read from.

use evenkeel_core::model::id::GuestKind;

use crate::model::{Disk, Life, Medium, Model, Slot};
use crate::request::{Request, Write};
use crate::{lxc, qemu};

/// The state after a request; none if Proxmox VE refuses it.
pub(crate) fn after(model: &Model, request: &Request) -> Option<Model> {
    let mut next = model.clone();
    match request {
        Request::Write(write) => write_config(&mut next, write)?,
        Request::Resize { slot, gib } => {
            let volume = next.now.get(*slot)?.volume()?;
            // Both kinds refuse to shrink.
            (*gib > next.life(volume).gib).then_some(())?;
            next.life_mut(volume).gib = *gib;
        }
        Request::Start => {
            (!next.running && !next.template).then_some(())?;
            apply_all(&mut next);
            next.running = true;
        }
        // What waits is applied by a stop that is asked for, also of a machine that is down.
        Request::Stop | Request::Shutdown => {
            (next.running || next.kind == GuestKind::Qemu).then_some(())?;
            next.running = false;
            apply_all(&mut next);
        }
        Request::Snapshot => next.snapshot = true,
        Request::Rollback | Request::DeleteSnapshot => {
            // Everything since the snapshot is lost, or the point in time: the volumes lose data either way.
            next.snapshot.then_some(())?;
            next.snapshot = false;
            for life in &mut next.lives {
                life.overwritten |= life.holds_data;
            }
        }
        Request::Template => {
            (!next.running).then_some(())?;
            next.template = true;
        }
        Request::Destroy => {
            (!next.running).then_some(())?;
            for life in &mut next.lives {
                life.exists = false;
            }
        }
        Request::Move { slot, delete, to_another } => {
            moved(&mut next, *slot, *delete, *to_another)?;
        }
        Request::Create { volume, .. } => next.life_mut(*volume).given_away = true,
    }
    next.note_what_happens();
    Some(next)
}

fn write_config(model: &mut Model, write: &Write) -> Option<()> {
    match model.kind {
        GuestKind::Lxc => lxc::write(model, write),
        GuestKind::Qemu => qemu::write(model, write),
    }
}

/// Start, stop and shutdown apply everything that waits.
fn apply_all(model: &mut Model) {
    match model.kind {
        GuestKind::Lxc => lxc::apply(model, None),
        GuestKind::Qemu => qemu::apply(model),
    }
}

/// A copy on another storage takes the slot; the source is kept as `unusedN`, or freed.
fn moved(model: &mut Model, slot: Slot, delete: bool, to_another: bool) -> Option<()> {
    let disk = model.now.get(slot)?;
    let source = disk.volume().filter(|_| !disk.cdrom)?;
    if to_another {
        (!model.running).then_some(())?;
        model.now.remove(slot);
        model.life_mut(source).given_away = true;
        return Some(());
    }
    // A container's volumes are moved while it is down.
    (!model.running || model.kind == GuestKind::Qemu).then_some(())?;
    let copy = model.allocate(slot)?;
    *model.life_mut(copy) = Life { holds_data: true, ..model.life(source) };
    model.now.insert(slot, Disk { medium: Medium::Volume(copy), ..disk });
    if delete {
        model.life_mut(source).exists = false;
    } else {
        // It is not asked whether what waits for the slot still names it.
        model.keep_unused(source);
    }
    Some(())
}
