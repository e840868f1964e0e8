//! Disks of existing guests: resize, move, template, backup, and deleting volumes.

use evenkeel_core::id::{GuestId, GuestKind};

use super::{Site, exists, unlocked};
use crate::property::print_size;
use crate::storage::split_volid;
use crate::world::is_disk_key;
use crate::write::disk;

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

pub(super) fn begin_move(site: &mut Site<'_>, guest: GuestId, key: &str) -> Result<(), String> {
    unlocked(site.world, guest)?;
    if volume_of(site, guest, key).is_none() {
        return Err(format!("disk '{key}' does not exist"));
    }
    if let Some(record) = site.world.guest_mut(guest)
        && guest.kind == GuestKind::Lxc
    {
        record.config.set_lock(Some("disk"));
    }
    Ok(())
}

pub(super) fn moved(
    site: &mut Site<'_>,
    guest: GuestId,
    key: &str,
    storage: &str,
    delete: bool,
) -> Result<(), String> {
    if let Some(record) = site.world.guest_mut(guest)
        && record.config.lock() == Some("disk")
    {
        record.config.set_lock(None);
    }
    let Some(old) = volume_of(site, guest, key) else { return Ok(()) };
    let (bytes, birth) =
        site.world.volume(&old).map_or((0, 0), |volume| (volume.size_bytes, volume.birth));
    let new = disk::allocate_bytes(site.world, guest, storage, bytes, None, site.now_ms)?;
    if let Some(volume) = site.world.volume_mut(&new) {
        volume.birth = birth;
    }
    if let Some(record) = site.world.guest_mut(guest) {
        if let Some(value) = record.config.active.get_mut(key) {
            *value = value.replacen(&old, &new, 1);
        }
        if !delete {
            record.config.add_unused(&old);
        }
    }
    if delete {
        site.world.free(&old);
    }
    Ok(())
}

pub(super) fn reassigned(
    site: &mut Site<'_>,
    guest: GuestId,
    key: &str,
    target: GuestId,
    target_key: &str,
) -> Result<(), String> {
    exists(site.world, target)?;
    let Some(value) = site.world.guest_mut(guest).and_then(|record| {
        record.config.set_lock(None);
        record.config.active.remove(key)
    }) else {
        return Ok(());
    };
    let volid = value.split(',').next().unwrap_or_default().to_owned();
    if let Some(volume) = site.world.volume_mut(&volid) {
        volume.vmid = Some(target.vmid);
    }
    if let Some(record) = site.world.guest_mut(target) {
        record.config.active.insert(target_key.to_owned(), value);
    }
    Ok(())
}

pub(super) fn begin_template(site: &mut Site<'_>, guest: GuestId) -> Result<(), String> {
    let config = unlocked(site.world, guest)?;
    if !config.snapshots.is_empty() {
        return Err("unable to create template, because VM contains snapshots".into());
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
            let base = target.make_base(crate::storage::stored_name(name));
            *value = value.replacen(&old, &format!("{storage}:{base}"), 1);
        }
    }
    config.active.insert("template".into(), "1".into());
    if let Some(record) = site.world.guest_mut(guest) {
        record.config = config;
    }
}

pub(super) fn begin_backup(site: &mut Site<'_>, guests: &[GuestId]) {
    for guest in guests {
        site.log.push(format!("INFO: Starting Backup of VM {} ({})", guest.vmid, guest.kind));
        if unlocked(site.world, *guest).is_ok()
            && let Some(record) = site.world.guest_mut(*guest)
        {
            record.config.set_lock(Some("backup"));
        }
    }
}

pub(super) fn backed_up(
    site: &mut Site<'_>,
    guests: &[GuestId],
    storage: &str,
    remove: bool,
    protected: bool,
    notes: Option<&str>,
) -> Result<(), String> {
    let now_s = site.world.unix(site.now_ms);
    let mut failed = false;
    for guest in guests {
        let locked = site.world.guest(*guest).and_then(|g| g.config.lock().map(str::to_owned));
        if locked.as_deref() != Some("backup") {
            site.log.push(format!(
                "ERROR: Backup of VM {} failed - {}",
                guest.vmid,
                locked.map_or_else(
                    || "no such guest".to_owned(),
                    |lock| crate::write::locked_text(guest.kind, &lock)
                )
            ));
            failed = true;
            continue;
        }
        if let Some(record) = site.world.guest_mut(*guest) {
            record.config.set_lock(None);
        }
        let (kind, suffix) = match guest.kind {
            GuestKind::Lxc => ("lxc", "tar.zst"),
            GuestKind::Qemu => ("qemu", "vma.zst"),
        };
        let name = format!("backup/vzdump-{kind}-{}-{now_s}.{suffix}", guest.vmid);
        let archive = site.world.guest(*guest).map(|record| {
            let active = record.config.active.clone();
            let config = crate::config::Config { active, ..crate::config::Config::default() };
            let (guest, guest_birth) = (*guest, record.birth);
            Box::new(crate::storage::Archive { guest, guest_birth, config, truncated: false })
        });
        if let Some(target) = site.world.storages.get_mut(storage) {
            let of_guest = |protected: bool| {
                let all = target.volumes.values().filter(|v| v.content == "backup");
                all.filter(|v| v.vmid == Some(guest.vmid) && v.protected == protected).count()
            };
            if !remove && target.keep_last.is_some_and(|keep| of_guest(false) >= keep)
                || protected && target.max_protected.is_some_and(|max| of_guest(true) >= max)
            {
                site.log.push(format!("ERROR: Backup of VM {} failed - no room", guest.vmid));
                failed = true;
                continue;
            }
            target.put_file(&name, "backup", suffix, 1 << 20);
            if let Some(volume) = target.volumes.get_mut(&name) {
                (volume.vmid, volume.ctime, volume.protected) =
                    (Some(guest.vmid), now_s, protected);
                (volume.notes, volume.archive) = (notes.map(str::to_owned), archive);
            }
            if remove {
                prune(target, *guest);
            }
        }
        site.log.push(format!("INFO: Finished Backup of VM {}", guest.vmid));
    }
    if failed { Err("job errors".into()) } else { Ok(()) }
}

/// Retention after a backup: of this guest's unprotected backups only the newest are kept.
fn prune(storage: &mut crate::storage::Storage, guest: GuestId) {
    let Some(keep) = storage.keep_last else { return };
    let mut backups: Vec<(u64, String)> = storage
        .volumes
        .iter()
        .filter(|(_, v)| v.content == "backup" && v.vmid == Some(guest.vmid) && !v.protected)
        .map(|(name, volume)| (volume.ctime, name.clone()))
        .collect();
    backups.sort();
    let surplus = backups.len().saturating_sub(keep);
    for (_, name) in backups.into_iter().take(surplus) {
        storage.volumes.remove(&name);
    }
}

pub(super) fn volume_deleted(site: &mut Site<'_>, volid: &str) -> Result<(), String> {
    match site.world.volume(volid) {
        None => Err(format!("volume '{volid}' does not exist")),
        Some(volume) if volume.protected => {
            Err(format!("cannot remove protected volume '{volid}'"))
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
