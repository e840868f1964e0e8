//! Guests going: destroyed, replaced by somebody else's, or moved to another node.

use evenkeel_core::model::id::{GuestId, GuestKind};

use super::{Next, Site, exists, unlocked};
use crate::config::Config;
use crate::storage::{Volume, split_volid, stored_name};
use crate::world::{Away, SimPower, World, is_disk_key};

/// What a destroy was asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct DestroyOrder {
    pub(crate) purge: bool,
    pub(crate) unreferenced: bool,
    pub(crate) force: bool,
}

/// The handler has checked what it could before answering; the rest is decided here.
pub(super) fn begin(
    site: &mut Site<'_>,
    guest: GuestId,
    order: DestroyOrder,
) -> Result<(), String> {
    let config = exists(site.world, guest)?.clone();
    unlocked(site.world, guest)?;
    if let Some(volid) = base_in_use(site.world, guest, &config) {
        return Err(format!("base volume '{volid}' is still in use by linked cloned"));
    }
    // A container's volumes go one by one, and the first whose storage is unknown ends it; a machine's are left behind.
    let gone = named(guest, &config).into_iter().find_map(|volid| {
        site.world.undefined_storage(&volid).map(str::to_owned).filter(|_| volid.contains(':'))
    });
    if let Some(storage) = gone.filter(|_| guest.kind == GuestKind::Lxc) {
        return Err(format!("storage '{storage}' does not exist"));
    }
    if site.world.guest(guest).is_some_and(|g| g.power.is_running()) {
        if !order.force {
            return Err(match guest.kind {
                GuestKind::Lxc => {
                    format!("unable to destroy CT {} - container is running", guest.vmid)
                }
                GuestKind::Qemu => format!("VM {} is running - destroy failed", guest.vmid),
            });
        }
        site.log.push(format!("forced to stop CT {} before destroying!", guest.vmid));
        if let Some(record) = site.world.guest_mut(guest) {
            record.power = SimPower::Stopped;
        }
    }
    if order.purge && guest.kind == GuestKind::Lxc {
        site.log.push(format!("purging CT {} from related configurations..", guest.vmid));
    }
    Ok(())
}

/// The first volume that linked clones still read.
fn base_in_use(world: &World, guest: GuestId, config: &Config) -> Option<String> {
    super::snapshots::disks(guest.kind, &config.active).into_iter().find(|volid| {
        let (storage, name) = split_volid(volid).unwrap_or_default();
        let base = stored_name(name);
        world.storages.get(storage).is_some_and(|storage| {
            storage.volumes.values().any(|volume| volume.parent.as_deref() == Some(base))
        })
    })
}

/// First the guest goes, so that its number is free; a while later the task ends. A machine says `destroyed` meanwhile.
pub(super) fn next(site: &mut Site<'_>, guest: GuestId, order: DestroyOrder, step: u8) -> Next {
    match (step, guest.kind) {
        (0, GuestKind::Lxc) => {
            free_volumes(site.world, guest, order.unreferenced);
            remove(site.world, guest, order.purge);
        }
        (0, GuestKind::Qemu) => {
            free_volumes(site.world, guest, order.unreferenced);
            if let Some(record) = site.world.guest_mut(guest) {
                record.config = Config::of(&[("lock", "destroyed")]);
            }
        }
        (_, GuestKind::Lxc) => {}
        (_, GuestKind::Qemu) => remove(site.world, guest, order.purge),
    }
    match step {
        0 => Next::Step(site.timings.short_ms / TAIL_PART),
        _ => Next::Ended,
    }
}

/// A destroy goes on for this part of a short time after the guest has gone.
const TAIL_PART: u64 = 10;

fn remove(world: &mut World, guest: GuestId, purge: bool) {
    world.guests.remove(&guest.vmid.get());
    world.forget_number(guest, purge);
}

/// The volumes that go with a guest: what is attached, waits and is detached, and the memory of its snapshots. A volume
/// that only a snapshot names stays behind.
fn named(guest: GuestId, config: &Config) -> Vec<String> {
    let snapshots = config.snapshots.iter().flat_map(|snapshot| snapshot.section.iter());
    let memory = snapshots.filter(|(key, _)| key.as_str() == "vmstate");
    let disks = config.active.iter().chain(&config.pending);
    disks
        .filter(|(key, _)| is_disk_key(guest.kind, key))
        .chain(memory)
        .map(|(_, value)| value.split(',').next().unwrap_or_default().to_owned())
        .collect()
}

/// Frees what the file names; with `unreferenced` also what merely carries the number.
fn free_volumes(world: &mut World, guest: GuestId, unreferenced: bool) {
    let Some(config) = world.guest(guest).map(|record| record.config.clone()) else { return };
    for volid in named(guest, &config) {
        if world.volume(&volid).is_some_and(|volume| volume.vmid == Some(guest.vmid)) {
            world.free(&volid);
        }
    }
    if unreferenced {
        for storage in world.storages.values_mut() {
            storage.volumes.retain(|_, volume| {
                volume.vmid != Some(guest.vmid)
                    || !matches!(volume.content.as_str(), "images" | "rootdir")
            });
        }
    }
}

/// Somebody else's guest needs the number: free, or given up by whom it replaces.
pub(super) fn begin_appear(
    site: &mut Site<'_>,
    guest: GuestId,
    replaces: bool,
) -> Result<(), String> {
    if site.world.is_taken(guest.vmid.get()) {
        if !replaces {
            return Err(format!("unable to create guest {} - it exists", guest.vmid));
        }
        let running = site.world.guest(guest).is_some_and(|found| found.power.is_running());
        if running {
            return Err(format!("unable to restore guest {} - it is running", guest.vmid));
        }
        unlocked(site.world, guest)?;
        // A restore over a guest leaves everything that is kept by number.
        free_volumes(site.world, guest, true);
        site.world.guests.remove(&guest.vmid.get());
    }
    site.world.put_guest(guest, Config::of(&[("lock", "create")]), SimPower::Stopped);
    Ok(())
}

/// The file and new volumes under the names it tells; the birth mark is that of the beginning.
pub(super) fn appeared(site: &mut Site<'_>, guest: GuestId, config: &Config) {
    let Some(birth) = site.world.guest(guest).map(|stub| stub.birth) else { return };
    site.world.put_guest(guest, config.clone(), SimPower::Stopped);
    if let Some(record) = site.world.guest_mut(guest) {
        record.birth = birth;
    }
}

pub(super) fn begin_leave(site: &mut Site<'_>, guest: GuestId) -> Result<(), String> {
    unlocked(site.world, guest)?;
    if let Some(record) = site.world.guest_mut(guest) {
        record.config.set_lock(Some("migrate"));
    }
    Ok(())
}

pub(super) fn left(site: &mut Site<'_>, guest: GuestId) {
    let Some(mut record) = site.world.guests.remove(&guest.vmid.get()) else { return };
    record.config.set_lock(None);
    let mut volumes = Vec::new();
    for (storage, contents) in &mut site.world.storages {
        let own = |_: &String, volume: &mut Volume| {
            volume.vmid == Some(guest.vmid) && volume.content != "backup"
        };
        let taken = contents.volumes.extract_if(.., own);
        volumes.extend(taken.map(|(name, volume)| (storage.clone(), name, volume)));
    }
    site.world.elsewhere.insert(guest.vmid.get(), Away { guest: record, volumes });
}
