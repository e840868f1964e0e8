//! Disks of existing guests: resize, move, hand over, template, and deleting volumes.

use evenkeel_core::model::id::{GuestId, GuestKind};

use serde::{Deserialize, Serialize};

use super::{Site, exists, unlocked};
use crate::property::print_size;
use crate::storage::{split_volid, stored_name};
use crate::world::{World, is_disk_key};
use crate::write::disk;

/// What a move was asked to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MoveOrder {
    pub(crate) disk: String,
    pub(crate) storage: String,
    pub(crate) format: Option<String>,
    /// Whether the old volume goes; else it stays as an unused one.
    pub(crate) delete: bool,
    /// The copy, once there is one.
    #[serde(default)]
    pub(crate) made: Option<String>,
    /// The birth mark of the guest whose disk it is, once it has begun.
    #[serde(default)]
    pub(crate) of: Option<u64>,
}

fn volume_of(site: &Site<'_>, guest: GuestId, key: &str) -> Option<String> {
    let value = site.world.guest(guest)?.config.get(key)?;
    Some(value.split(',').next()?.to_owned())
}

pub(super) fn begin_resize(
    site: &mut Site<'_>,
    guest: GuestId,
    key: &str,
    relative: bool,
    bytes: u64,
    digest: Option<&str>,
) -> Result<(), String> {
    let release = site.world.release();
    let config = exists(site.world, guest)?;
    if let Err(crate::reply::ReplyFailure::Died(message)) =
        crate::write::check_digest(guest, config, digest, release)
    {
        return Err(message);
    }
    unlocked(site.world, guest)?;
    let Some(volid) = volume_of(site, guest, key) else {
        return Err(format!("disk '{key}' does not exist"));
    };
    let before = site.world.volume(&volid).map_or(0, |volume| volume.size_bytes);
    if !relative && bytes < before {
        return Err("shrinking disks is not supported".into());
    }
    Ok(())
}

pub(super) fn resized(site: &mut Site<'_>, guest: GuestId, key: &str, relative: bool, bytes: u64) {
    let Some(volid) = volume_of(site, guest, key) else { return };
    let Some(volume) = site.world.volume_mut(&volid) else { return };
    volume.size_bytes = if relative { volume.size_bytes.saturating_add(bytes) } else { bytes };
    let printed = print_size(volume.size_bytes);
    let running = site.world.guest(guest).is_some_and(|g| g.power.is_running());
    if !running || guest.kind == GuestKind::Lxc {
        site.log.push("Image resized.".into());
    }
    if let Some(record) = site.world.guest_mut(guest)
        && let Some(value) = record.config.active.get_mut(key)
    {
        *value = with_size(value, &printed);
    }
}

/// Replaces or adds `size=`; both printers put it where the alphabet wants it.
pub(crate) fn with_size(value: &str, size: &str) -> String {
    let mut parts: Vec<String> =
        value.split(',').filter(|part| !part.starts_with("size=")).map(str::to_owned).collect();
    let fixed = 1 + usize::from(parts.get(1).is_some_and(|part| part.starts_with("mp=")));
    let at = parts
        .iter()
        .skip(fixed)
        .position(|part| part.as_str() > "size")
        .map_or(parts.len(), |at| at + fixed);
    parts.insert(at, format!("size={size}"));
    parts.join(",")
}

/// The copy is made beside the old volume; a container was locked by the handler.
pub(super) fn begin_move(
    site: &mut Site<'_>,
    guest: GuestId,
    order: &mut MoveOrder,
) -> Result<(), String> {
    let config = match guest.kind {
        GuestKind::Lxc => exists(site.world, guest)?,
        GuestKind::Qemu => unlocked(site.world, guest)?,
    };
    if config.get(&order.disk).is_none() {
        return Err(format!("disk '{}' does not exist", order.disk));
    }
    order.of = site.world.birth(guest.vmid);
    copy_beside(site, guest, order).inspect_err(|_| unlock(site.world, guest))
}

fn copy_beside(site: &mut Site<'_>, guest: GuestId, order: &mut MoveOrder) -> Result<(), String> {
    let old = volume_of(site, guest, &order.disk).unwrap_or_default();
    let content = match guest.kind {
        GuestKind::Lxc => "rootdir",
        GuestKind::Qemu => "images",
    };
    let storage = &order.storage;
    match site.world.storages.get(storage) {
        None => return Err(format!("storage '{storage}' does not exist")),
        Some(found) if !found.content.contains(content) => {
            return Err(format!(
                "content type '{content}' is not available or configured on storage '{storage}'"
            ));
        }
        Some(_) => {}
    }
    if guest.kind == GuestKind::Qemu {
        site.log.push(format!("create full clone of drive {} ({old})", order.disk));
    }
    let (birth, origin) =
        site.world.volume(&old).map_or((0, None), |volume| (volume.birth, volume.origin.clone()));
    let format = order.format.clone();
    let new = disk::copy(site.world, guest, &old, storage, format.as_deref(), site.now_ms)?;
    // It is the same data at another place.
    if let Some(volume) = site.world.volume_mut(&new) {
        (volume.birth, volume.origin) = (birth, origin);
    }
    if guest.kind == GuestKind::Qemu {
        site.log_transferred(&new, false);
    }
    order.made = Some(new);
    Ok(())
}

/// Takes off the lock of a move.
pub(super) fn unlock(world: &mut World, guest: GuestId) {
    if let Some(record) = world.guest_mut(guest)
        && record.config.lock() == Some("disk")
    {
        record.config.set_lock(None);
    }
}

pub(super) fn moved(site: &mut Site<'_>, guest: GuestId, order: &MoveOrder) -> Result<(), String> {
    // The configuration is read once more and held against the one that it began with.
    if order.of.is_some() && order.of != site.world.birth(guest.vmid) {
        if let Some(copy) = &order.made {
            site.world.free(copy);
        }
        return Err(
            "detected modified configuration - file changed by other user? Try again.".into()
        );
    }
    unlock(site.world, guest);
    let key = &order.disk;
    let (Some(old), Some(new)) = (volume_of(site, guest, key), &order.made) else { return Ok(()) };
    if guest.kind == GuestKind::Qemu {
        site.log_transferred(new, true);
    }
    if let Some(record) = site.world.guest_mut(guest) {
        if let Some(value) = record.config.active.get_mut(key) {
            *value = value.replacen(&old, new, 1);
        }
        if !order.delete {
            record.config.add_unused(&old);
        }
    }
    if order.delete {
        site.world.free(&old);
    }
    Ok(())
}

pub(super) fn begin_reassign(site: &mut Site<'_>, guest: GuestId, key: &str) -> Result<(), String> {
    unlocked(site.world, guest)?;
    match volume_of(site, guest, key) {
        Some(_) => Ok(()),
        None => Err(format!("disk '{key}' does not exist")),
    }
}

pub(super) fn reassigned(
    site: &mut Site<'_>,
    guest: GuestId,
    key: &str,
    target: GuestId,
    target_key: &str,
) -> Result<(), String> {
    exists(site.world, target)?;
    let Some(value) =
        site.world.guest_mut(guest).and_then(|record| record.config.active.remove(key))
    else {
        return Ok(());
    };
    let old = value.split(',').next().unwrap_or_default().to_owned();
    let Some((storage, name)) = split_volid(&old) else { return Ok(()) };
    let Some(found) = site.world.storages.get_mut(storage) else { return Ok(()) };
    let new = format!("{storage}:{}", found.hand_over(stored_name(name), target.vmid));
    if let Some(record) = site.world.guest_mut(target) {
        record.config.active.insert(target_key.to_owned(), value.replacen(&old, &new, 1));
    }
    Ok(())
}

pub(super) fn begin_template(site: &mut Site<'_>, guest: GuestId) -> Result<(), String> {
    let config = unlocked(site.world, guest)?;
    if !config.snapshots.is_empty() {
        let word = super::create::word(guest.kind);
        return Err(format!("unable to create template, because {word} contains snapshots"));
    }
    Ok(())
}

pub(super) fn templated(site: &mut Site<'_>, guest: GuestId) {
    let Some(record) = site.world.guest(guest) else { return };
    let mut config = record.config.clone();
    for (key, value) in &mut config.active {
        if !is_disk_key(guest.kind, key)
            || key.starts_with("unused")
            || value.contains("media=cdrom")
        {
            continue;
        }
        let old = value.split(',').next().unwrap_or_default().to_owned();
        if let Some((storage, name)) = split_volid(&old)
            && let Some(target) = site.world.storages.get_mut(storage)
        {
            let base = target.make_base(stored_name(name));
            *value = value.replacen(&old, &format!("{storage}:{base}"), 1);
        }
    }
    config.active.insert("template".into(), "1".into());
    if let Some(record) = site.world.guest_mut(guest) {
        record.config = config;
    }
}

pub(super) fn volume_deleted(site: &mut Site<'_>, volid: &str) -> Result<(), String> {
    match site.world.volume(volid) {
        None => Err(format!("volume '{volid}' does not exist")),
        Some(volume) if volume.protected => {
            let (storage, name) = split_volid(volid).unwrap_or_default();
            Err(format!("cannot remove protected volume '{name}' on '{storage}'"))
        }
        Some(_) => {
            site.world.free(volid);
            site.log.push(format!("Removed volume '{volid}'"));
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::with_size;

    #[test]
    fn the_size_stands_where_the_printer_puts_it() {
        assert_eq!(with_size("s:100/a.raw", "2G"), "s:100/a.raw,size=2G");
        assert_eq!(with_size("s:a,mp=/d,backup=1,size=1G", "2G"), "s:a,mp=/d,backup=1,size=2G");
        assert_eq!(with_size("s:a,discard=on,size=1G,ssd=1", "2G"), "s:a,discard=on,size=2G,ssd=1");
    }
}
