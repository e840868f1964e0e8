//! Guests coming into being and going: create, restore, clone, destroy.

use evenkeel_core::id::{GuestId, GuestKind};

use super::{Site, exists, unlocked};
use crate::config::Config;
use crate::property::print_size;
use crate::storage::{Volume, split_volid, stored_name};
use crate::world::{Away, SimPower, World, is_disk_key};
use crate::write::disk;

/// The stub with `lock: create` was written by the handler; the worker only checks it is still there.
pub(super) fn begin(site: &mut Site<'_>, guest: GuestId, _config: &Config) -> Result<(), String> {
    exists(site.world, guest).map(|_| ())
}

/// Disks are made, the file is written; if the archive is broken, everything goes again.
pub(super) fn created(
    site: &mut Site<'_>,
    guest: GuestId,
    config: &Config,
    start: bool,
    broken: Option<&str>,
) -> Result<(), String> {
    let what = match guest.kind {
        GuestKind::Lxc => "CT",
        GuestKind::Qemu => "VM",
    };
    let failed = |message: &str| format!("unable to create {what} {} - {message}", guest.vmid);
    let mut config = config.clone();
    let made = make_disks(site, guest, &mut config);
    if let Some(message) = made.err().or(broken.map(str::to_owned)) {
        for volid in super::snapshots::disks(guest.kind, &config.active) {
            if world_owns(site.world, guest, &volid) {
                site.world.free(&volid);
            }
        }
        site.world.guests.remove(&guest.vmid.get());
        return Err(failed(&message));
    }
    if guest.kind == GuestKind::Lxc {
        site.log.push(format!("extracting archive for container {}", guest.vmid));
    }
    if let Some(record) = site.world.guest_mut(guest) {
        record.config = config;
    }
    if start {
        super::power::begin_start(site, guest)?;
        return super::power::started(site, guest);
    }
    Ok(())
}

fn world_owns(world: &World, guest: GuestId, volid: &str) -> bool {
    world.volume(volid).is_some_and(|volume| volume.vmid == Some(guest.vmid))
}

fn make_disks(site: &mut Site<'_>, guest: GuestId, config: &mut Config) -> Result<(), String> {
    let mut keys: Vec<String> =
        config.active.keys().filter(|key| is_disk_key(guest.kind, key)).cloned().collect();
    // The root disk comes first, so that it gets the first number.
    keys.sort_by_key(|key| (key != "rootfs", key.clone()));
    for key in keys {
        let value = config.active.get(&key).cloned().unwrap_or_default();
        let printed = match (guest.kind, key.as_str()) {
            (GuestKind::Lxc, "rootfs") => root_disk(site, guest, &value)?,
            (GuestKind::Lxc, _) => disk::lxc_mount(site.world, guest, &value, site.now_ms)?,
            (GuestKind::Qemu, key) => disk::qemu_drive(site.world, guest, key, &value, site.now_ms)
                .map_err(|failure| match failure {
                    crate::reply::ReplyFailure::Params(errors) => {
                        errors.into_values().collect::<Vec<_>>().join(" ")
                    }
                    crate::reply::ReplyFailure::Died(message)
                    | crate::reply::ReplyFailure::DiedWith(message, _)
                    | crate::reply::ReplyFailure::Denied(message)
                    | crate::reply::ReplyFailure::NoMethod(message)
                    | crate::reply::ReplyFailure::Unauthorised(message)
                    | crate::reply::ReplyFailure::Awaits { failed: message, .. } => message,
                    crate::reply::ReplyFailure::Locked { .. } => "got timeout".to_owned(),
                })?,
        };
        let volid = printed.split(',').next().unwrap_or_default().to_owned();
        if disk::wanted_size(value.split(',').next().unwrap_or_default()).is_some() {
            log_disk(site, guest, &key, &volid, &printed);
        }
        config.active.insert(key, printed);
    }
    Ok(())
}

fn log_disk(site: &mut Site<'_>, guest: GuestId, key: &str, volid: &str, printed: &str) {
    let Some((storage, name)) = split_volid(volid) else { return };
    let path = site.world.storages.get(storage).map_or("", |s| s.path.as_str());
    let (bytes, format) =
        site.world.volume(volid).map_or((0, "raw"), |v| (v.size_bytes, v.format.as_str()));
    site.log.push(format!(
        "Formatting '{path}/images/{name}', fmt={format} size={bytes} preallocation=off"
    ));
    if guest.kind == GuestKind::Qemu {
        site.log.push(format!("{key}: successfully created disk '{printed}'"));
    }
}

/// A root disk is printed like a mount point, with its size.
fn root_disk(site: &mut Site<'_>, guest: GuestId, value: &str) -> Result<String, String> {
    let schema = crate::schema::Schema::shared();
    let mut root = crate::property::parse(schema, "lxc-rootfs", value, site.world.release())?;
    let volume = root.get("volume").cloned().unwrap_or_default();
    if let Some((storage, gib)) = disk::wanted_size(&volume) {
        let volid = disk::allocate(site.world, guest, storage, gib, None, site.now_ms)?;
        root.insert("volume".into(), volid);
    }
    let volid = root.get("volume").cloned().unwrap_or_default();
    if let Some(found) = site.world.volume(&volid) {
        root.insert("size".into(), print_size(found.size_bytes));
    }
    Ok(crate::property::print(schema, "lxc-rootfs", &root))
}

pub(super) fn begin_clone(
    site: &mut Site<'_>,
    source: GuestId,
    target: GuestId,
) -> Result<(), String> {
    exists(site.world, source)?;
    exists(site.world, target).map(|_| ())
}

/// The copy gets its own disks; the source loses the lock the handler set.
pub(super) fn cloned(
    site: &mut Site<'_>,
    source: GuestId,
    target: GuestId,
    config: &Config,
    full: bool,
    storage: Option<&str>,
    format: Option<&str>,
) -> Result<(), String> {
    let mut config = config.clone();
    let keys: Vec<String> =
        config.active.keys().filter(|key| is_disk_key(target.kind, key)).cloned().collect();
    for key in keys {
        let value = config.active.get(&key).cloned().unwrap_or_default();
        if value.contains("media=cdrom") && !value.contains("-cloudinit") {
            continue;
        }
        let old = value.split(',').next().unwrap_or_default().to_owned();
        let new = if full {
            full_copy(site, target, &key, &old, storage, format)?
        } else {
            linked_copy(site, target, &key, &old)?
        };
        config.active.insert(key, value.replacen(&old, &new, 1));
    }
    config.set_lock(None);
    if let Some(record) = site.world.guest_mut(target) {
        record.config = config;
    }
    if let Some(record) = site.world.guest_mut(source)
        && record.config.lock() == Some("disk")
    {
        record.config.set_lock(None);
    }
    Ok(())
}

fn full_copy(
    site: &mut Site<'_>,
    target: GuestId,
    key: &str,
    old: &str,
    storage: Option<&str>,
    format: Option<&str>,
) -> Result<String, String> {
    let what = match target.kind {
        GuestKind::Lxc => "mountpoint",
        GuestKind::Qemu => "drive",
    };
    site.log.push(format!("create full clone of {what} {key} ({old})"));
    let Some(volume) = site.world.volume(old).cloned() else {
        return Err(format!("clone failed: volume '{old}' does not exist"));
    };
    let storage = storage.map_or_else(
        || split_volid(old).map_or_else(String::new, |(storage, _)| storage.to_owned()),
        str::to_owned,
    );
    let format = format.unwrap_or(&volume.format);
    disk::allocate_bytes(site.world, target, &storage, volume.size_bytes, Some(format), site.now_ms)
}

fn linked_copy(
    site: &mut Site<'_>,
    target: GuestId,
    key: &str,
    old: &str,
) -> Result<String, String> {
    site.log.push(format!("create linked clone of drive {key} ({old})"));
    let Some(volume) = site.world.volume(old).cloned() else {
        return Err(format!("clone failed: volume '{old}' does not exist"));
    };
    let (storage, base) = split_volid(old).unwrap_or_default();
    let new = disk::allocate_bytes(
        site.world,
        target,
        storage,
        volume.size_bytes,
        Some(&volume.format),
        site.now_ms,
    )?;
    let (_, name) = split_volid(&new).unwrap_or_default();
    if let Some(copy) = site.world.volume_mut(&new) {
        copy.parent = Some(stored_name(base).to_owned());
    }
    Ok(format!("{storage}:{base}/{name}"))
}

/// The handler has checked what it could before answering; the rest is decided here.
pub(super) fn begin_destroy(
    site: &mut Site<'_>,
    guest: GuestId,
    purge: bool,
    force: bool,
) -> Result<(), String> {
    let config = exists(site.world, guest)?.clone();
    unlocked(site.world, guest)?;
    for volid in super::snapshots::disks(guest.kind, &config.active) {
        let (storage, name) = split_volid(&volid).unwrap_or_default();
        let base = stored_name(name);
        let in_use = site.world.storages.get(storage).is_some_and(|storage| {
            storage.volumes.values().any(|volume| volume.parent.as_deref() == Some(base))
        });
        if in_use {
            return Err(format!("base volume '{volid}' is still in use by linked cloned"));
        }
    }
    if site.world.guest(guest).is_some_and(|g| g.power.is_running()) {
        if !force {
            return Err(format!("unable to destroy CT {} - container is running", guest.vmid));
        }
        site.log.push(format!("forced to stop CT {} before destroying!", guest.vmid));
        if let Some(record) = site.world.guest_mut(guest) {
            record.power = SimPower::Stopped;
        }
    }
    if purge && guest.kind == GuestKind::Lxc {
        site.log.push(format!("purging CT {} from related configurations..", guest.vmid));
    }
    Ok(())
}

/// Every volume the file names goes; with `unreferenced` also what merely carries the number.
pub(super) fn destroyed(site: &mut Site<'_>, guest: GuestId, unreferenced: bool) {
    let Some(record) = site.world.guests.remove(&guest.vmid.get()) else { return };
    let config = record.config;
    let snapshots = config.snapshots.iter().flat_map(|snapshot| snapshot.section.iter());
    let volumes: Vec<String> = config
        .active
        .iter()
        .chain(&config.pending)
        .chain(snapshots)
        .filter(|(key, _)| is_disk_key(guest.kind, key))
        .map(|(_, value)| value.split(',').next().unwrap_or_default().to_owned())
        .collect();
    for volid in volumes {
        if world_owns(site.world, guest, &volid) {
            site.world.free(&volid);
        }
    }
    if unreferenced {
        for storage in site.world.storages.values_mut() {
            storage.volumes.retain(|_, volume| {
                volume.vmid != Some(guest.vmid)
                    || !matches!(volume.content.as_str(), "images" | "rootdir")
            });
        }
    }
    site.world.access.acl.retain(|grant| grant.path != format!("/vms/{}", guest.vmid));
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
        destroyed(site, guest, true);
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
