//! Copies of guests, full and linked.
//!
//! The task carries the number of the source. A container's source is locked with `disk` and its target is a stub with
//! every copied key but the volumes; both were written by the handler. A machine's source is only held by its file
//! lock, and its target is written here.

use evenkeel_core::model::id::{GuestId, GuestKind};
use serde::{Deserialize, Serialize};

use super::create::{self, AfterMaking};
use super::{Site, exists};
use crate::config::Config;
use crate::storage::{split_volid, stored_name};
use crate::world::SimPower;
use crate::write::disk;

/// What a clone is to make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CloneOrder {
    /// The copy's file; its disks are still the source's until the worker has made others.
    pub(crate) config: Config,
    pub(crate) full: bool,
    pub(crate) storage: Option<String>,
    pub(crate) format: Option<String>,
    /// KiB a second.
    pub(crate) rate_limit: Option<u64>,
    pub(crate) after: AfterMaking,
    /// The volumes made so far, with their keys.
    #[serde(default)]
    pub(crate) made: Vec<(String, String)>,
    /// Who asked for it.
    #[serde(default)]
    pub(crate) maker: String,
}

impl CloneOrder {
    pub(super) fn volumes(&self) -> Vec<String> {
        self.made.iter().map(|(_, volid)| volid.clone()).collect()
    }
}

pub(super) fn begin(
    site: &mut Site<'_>,
    source: GuestId,
    target: GuestId,
    order: &mut CloneOrder,
) -> Result<(), String> {
    exists(site.world, source)?;
    match source.kind {
        GuestKind::Lxc => {
            exists(site.world, target)?;
        }
        GuestKind::Qemu => write_temporary_file(site, target, &order.maker)?,
    }
    site.world.copy_firewall(source.vmid, target.vmid);
    let copied = copy_disks(site, target, order);
    copied.map_err(|message| {
        undo(site.world, source, target, order);
        format!("clone failed: {message}")
    })
}

/// The number was free when the request was checked; it may be taken now, by a container even then.
fn write_temporary_file(site: &mut Site<'_>, target: GuestId, maker: &str) -> Result<(), String> {
    let number = target.vmid;
    match site.world.guests.get(&number.get()).map(|found| found.id.kind) {
        None => {
            let file = [("lock", "clone"), ("description", " qmclone temporary file")];
            site.world.put_guest(target, Config::of(&file), SimPower::Stopped);
            if let Some(record) = site.world.guest_mut(target) {
                record.maker = Some(maker.to_owned());
            }
            Ok(())
        }
        Some(GuestKind::Qemu) => {
            Err(format!("unable to create VM {number}: config file already exists"))
        }
        Some(GuestKind::Lxc) => Err(format!(
            "close (rename) atomic file '/etc/pve/nodes/{}/qemu-server/{number}.conf' failed: File exists",
            site.world.node
        )),
    }
}

fn copy_disks(site: &mut Site<'_>, target: GuestId, order: &mut CloneOrder) -> Result<(), String> {
    let mut keys = create::disk_keys(target.kind, &order.config);
    if target.kind == GuestKind::Lxc {
        // Perl walks the mount points in the order of its hash.
        for at in (1..keys.len()).rev() {
            let other = site.world.random.below(at as u64 + 1);
            keys.swap(at, usize::try_from(other).unwrap_or(0));
        }
    }
    for key in keys {
        let value = order.config.get(&key).unwrap_or_default().to_owned();
        let old = value.split(',').next().unwrap_or_default().to_owned();
        let cloud_init = old.contains("-cloudinit");
        if (value.contains("media=cdrom") && !cloud_init) || !old.contains(':') {
            continue;
        }
        let new = if cloud_init {
            site.log.push(format!("create full clone of drive {key} ({old})"));
            disk::cloud_init(site.world, target, &target_storage(&old, order), site.now_ms)?
        } else if order.full || key == "tpmstate0" {
            full_copy(site, target, &key, &old, order)?
        } else {
            linked_copy(site, target, &key, &old)?
        };
        order.made.push((key.clone(), new.clone()));
        let mut printed = value.replacen(&old, &new, 1);
        if cloud_init && let Some(volume) = site.world.volume(&new) {
            let size = crate::property::print_size(volume.size_bytes);
            printed = super::disks::with_size(&printed, &size);
        }
        order.config.active.insert(key, printed);
    }
    Ok(())
}

fn target_storage(old: &str, order: &CloneOrder) -> String {
    let own = split_volid(old).map_or("", |(storage, _)| storage);
    order.storage.clone().unwrap_or_else(|| own.to_owned())
}

fn full_copy(
    site: &mut Site<'_>,
    target: GuestId,
    key: &str,
    old: &str,
    order: &CloneOrder,
) -> Result<String, String> {
    let (what, content) = match target.kind {
        GuestKind::Lxc => ("mountpoint", "rootdir"),
        GuestKind::Qemu => ("drive", "images"),
    };
    site.log.push(format!("create full clone of {what} {key} ({old})"));
    let storage = target_storage(old, order);
    if site.world.storages.get(&storage).is_some_and(|found| !found.content.contains(content)) {
        return Err(format!(
            "content type '{content}' is not available or configured on storage '{storage}'"
        ));
    }
    let format = order.format.as_deref();
    let new = disk::copy(site.world, target, old, &storage, format, site.now_ms)?;
    if target.kind == GuestKind::Qemu {
        site.log_transferred(&new, false);
    }
    Ok(new)
}

fn linked_copy(
    site: &mut Site<'_>,
    target: GuestId,
    key: &str,
    old: &str,
) -> Result<String, String> {
    site.log.push(format!("create linked clone of drive {key} ({old})"));
    let (storage, base) = split_volid(old).unwrap_or_default();
    let new = disk::copy(site.world, target, old, storage, None, site.now_ms)?;
    let btrfs = site
        .world
        .storages
        .get(storage)
        .is_some_and(|found| found.kind == crate::storage::StorageKind::Btrfs);
    if btrfs {
        // A snapshot of its own: it needs its base no more.
        return Ok(new);
    }
    let (_, name) = split_volid(&new).unwrap_or_default();
    if let Some(copy) = site.world.volume_mut(&new) {
        copy.parent = Some(stored_name(base).to_owned());
    }
    Ok(format!("{storage}:{base}/{name}"))
}

/// The copy gets its file; the source of a container loses the lock the handler set.
pub(super) fn cloned(site: &mut Site<'_>, source: GuestId, target: GuestId, order: &CloneOrder) {
    if target.kind == GuestKind::Qemu && order.full {
        for volid in order.volumes().iter().filter(|volid| !volid.contains("-cloudinit")) {
            site.log_transferred(volid, true);
        }
    }
    let mut config = order.config.clone();
    config.set_lock(None);
    let files = site.world.guest(source).map(|found| found.files.clone());
    if let Some(record) = site.world.guest_mut(target) {
        record.config = config;
        record.files = files.unwrap_or_default();
    }
    unlock_source(site.world, source);
    create::entered(site.world, target, &order.after);
}

fn unlock_source(world: &mut crate::world::World, source: GuestId) {
    if let Some(record) = world.guest_mut(source)
        && source.kind == GuestKind::Lxc
        && record.config.lock() == Some("disk")
    {
        record.config.set_lock(None);
    }
}

/// What a clone takes away that fails by itself. A machine that has the number already is not ours.
pub(super) fn undo(
    world: &mut crate::world::World,
    source: GuestId,
    target: GuestId,
    order: &CloneOrder,
) {
    unlock_source(world, source);
    for volid in order.volumes() {
        world.free(&volid);
    }
    world.guests.remove(&target.vmid.get());
    world.around.firewalls.remove(&target.vmid.get());
}
