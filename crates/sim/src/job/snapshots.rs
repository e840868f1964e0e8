//! Snapshots: taken, rolled back, deleted.

use evenkeel_core::model::id::{GuestId, GuestKind};

use super::{Site, exists, unlocked};
use crate::config::{Config, Section, SnapshotSection, stored_description};
use crate::storage::{split_volid, stored_name};
use crate::world::{SimPower, World, is_disk_key};

/// Whether every disk of the guest lies where snapshots work.
pub(crate) fn available(world: &World, guest: GuestId, config: &Config) -> bool {
    disks(guest.kind, &config.active).iter().all(|volid| {
        split_volid(volid).is_some_and(|(storage, _)| {
            let format = world.volume(volid).map_or("raw", |volume| volume.format.as_str());
            world.storages.get(storage).is_some_and(|storage| storage.can_snapshot(format))
        })
    })
}

/// The volumes attached in a section, without CD-ROMs and unused ones.
pub(crate) fn disks(kind: GuestKind, section: &Section) -> Vec<String> {
    section
        .iter()
        .filter(|(key, value)| {
            is_disk_key(kind, key) && !key.starts_with("unused") && !value.contains("media=cdrom")
        })
        .map(|(_, value)| value.split(',').next().unwrap_or_default().to_owned())
        .filter(|volid| volid.contains(':'))
        .collect()
}

pub(super) fn begin(site: &mut Site<'_>, guest: GuestId, name: &str) -> Result<(), String> {
    let config = unlocked(site.world, guest)?;
    if config.is_set("template") {
        return Err("you can't take a snapshot if it's a template".into());
    }
    if config.snapshot(name).is_some() {
        return Err(format!("snapshot name '{name}' already used"));
    }
    if !available(site.world, guest, config) {
        return Err("snapshot feature is not available".into());
    }
    set_lock(site, guest, Some("snapshot"));
    Ok(())
}

fn set_lock(site: &mut Site<'_>, guest: GuestId, lock: Option<&str>) {
    if let Some(record) = site.world.guest_mut(guest) {
        record.config.set_lock(lock);
    }
}

pub(super) fn taken(
    site: &mut Site<'_>,
    guest: GuestId,
    name: &str,
    description: &str,
    state: bool,
) {
    let now = site.world.unix(site.now_ms);
    set_lock(site, guest, None);
    let memory = if state { save_memory(site, guest, name) } else { None };
    let Some(record) = site.world.guest_mut(guest) else { return };
    let mut section = record.config.active.clone();
    section.retain(|key, _| key != "description" && !key.starts_with("unused"));
    section.insert("snaptime".into(), now.to_string());
    if let Some(volid) = memory {
        section.insert("vmstate".into(), volid);
    }
    if let Some(text) = stored_description(guest.kind, description) {
        section.insert("description".into(), text);
    }
    if guest.kind == GuestKind::Qemu {
        for volid in disks(guest.kind, &section) {
            let key = section.iter().find(|(_, v)| v.starts_with(&volid)).map(|(k, _)| k.clone());
            site.log.push(format!("snapshotting 'drive-{}' ({volid})", key.unwrap_or_default()));
        }
    }
    record.config.active.insert("parent".into(), name.to_owned());
    record.config.snapshots.push(SnapshotSection { name: name.to_owned(), section });
}

/// A running guest's memory goes into a volume beside its first disk.
fn save_memory(site: &mut Site<'_>, guest: GuestId, name: &str) -> Option<String> {
    let now = site.world.unix(site.now_ms);
    let record = site.world.guest(guest).filter(|record| record.power.is_running())?;
    let first = disks(guest.kind, &record.config.active).into_iter().next()?;
    let (storage, _) = split_volid(&first)?;
    let target = site.world.storages.get_mut(storage)?;
    let vmid = guest.vmid;
    let made = if target.kind.keeps_files() {
        format!("{vmid}/vm-{vmid}-state-{name}.raw")
    } else {
        format!("vm-{vmid}-state-{name}")
    };
    target.insert(&made, guest.kind, vmid, MEMORY_BYTES, "raw", now);
    Some(format!("{storage}:{made}"))
}

/// What a machine's saved memory takes.
const MEMORY_BYTES: u64 = 1 << 30;

pub(super) fn begin_rollback(
    site: &mut Site<'_>,
    guest: GuestId,
    name: &str,
) -> Result<(), String> {
    let config = exists(site.world, guest)?;
    if config.snapshot(name).is_none() {
        return Err(format!("snapshot '{name}' does not exist"));
    }
    let newest = config.snapshots.last().is_some_and(|snapshot| snapshot.name == name);
    unlocked(site.world, guest)?;
    let zfs = |volid: &String| {
        split_volid(volid)
            .and_then(|(storage, _)| site.world.storages.get(storage))
            .is_some_and(|storage| storage.kind == crate::storage::StorageKind::ZfsPool)
    };
    if let Some(volid) = disks(guest.kind, &config.active).iter().find(|volid| zfs(volid))
        && !newest
    {
        return Err(format!("can't rollback, '{name}' is not most recent snapshot on '{volid}'"));
    }
    set_lock(site, guest, Some("rollback"));
    Ok(())
}

/// The whole file becomes the snapshot's; description and unused volumes stay, newer disks become
/// unused, a running guest is stopped hard.
pub(super) fn rolled_back(
    site: &mut Site<'_>,
    guest: GuestId,
    name: &str,
    start: bool,
) -> Result<(), String> {
    let Some(record) = site.world.guest_mut(guest) else { return Ok(()) };
    record.power = SimPower::Stopped;
    let config = &mut record.config;
    let Some(snapshot) = config.snapshot(name).cloned() else { return Ok(()) };
    let had_state = snapshot.section.contains_key("vmstate");
    let mut active = snapshot.section;
    active
        .retain(|key, _| !matches!(key.as_str(), "snaptime" | "vmstate" | "description" | "lock"));
    for (key, value) in &config.active {
        if key == "description" || key.starts_with("unused") {
            active.insert(key.clone(), value.clone());
        }
    }
    active.insert("parent".into(), name.to_owned());
    let newer: Vec<String> = disks(guest.kind, &config.active)
        .into_iter()
        .filter(|volid| !disks(guest.kind, &active).contains(volid))
        .collect();
    config.active = active;
    config.pending.clear();
    config.pending_delete.clear();
    for volid in newer {
        config.add_unused(&volid);
    }
    let attached = disks(guest.kind, &config.active);
    config.drop_used(&attached);
    shrink_back(site.world, guest);
    if start || had_state {
        super::power::begin_start(site, guest)?;
        return super::power::started(site, guest);
    }
    Ok(())
}

/// A volume has the size again that it had when the snapshot was taken, as its file says.
fn shrink_back(world: &mut World, guest: GuestId) {
    let Some(record) = world.guest(guest) else { return };
    let is_disk = |(key, _): &(&String, &String)| is_disk_key(guest.kind, key);
    let values: Vec<String> =
        record.config.active.iter().filter(is_disk).map(|(_, value)| value.clone()).collect();
    for value in values {
        let mut parts = value.split(',');
        let volid = parts.next().unwrap_or_default();
        let size = parts.find_map(|part| part.strip_prefix("size="));
        let (Some((storage, name)), Some(size)) =
            (split_volid(volid), size.and_then(crate::property::parse_size))
        else {
            continue;
        };
        let volumes = world.storages.get_mut(storage).map(|storage| &mut storage.volumes);
        if let Some(volume) = volumes.and_then(|volumes| volumes.get_mut(stored_name(name))) {
            volume.size_bytes = size;
        }
    }
}

pub(super) fn begin_delete(site: &mut Site<'_>, guest: GuestId, name: &str) -> Result<(), String> {
    let config = unlocked(site.world, guest)?;
    if config.snapshot(name).is_none() {
        return Err(format!("snapshot '{name}' does not exist"));
    }
    set_lock(site, guest, Some("snapshot-delete"));
    Ok(())
}

pub(super) fn deleted(site: &mut Site<'_>, guest: GuestId, name: &str) {
    set_lock(site, guest, None);
    let Some(record) = site.world.guest_mut(guest) else { return };
    let config = &mut record.config;
    let Some(gone) = config.snapshot(name).cloned() else { return };
    config.snapshots.retain(|snapshot| snapshot.name != name);
    // What it named is kept as unused, unless the guest has it attached.
    for volid in disks(guest.kind, &gone.section) {
        config.add_unused(&volid);
    }
    let attached = disks(guest.kind, &config.active);
    config.drop_used(&attached);
    let parent = gone.section.get("parent").cloned();
    let sections = config.snapshots.iter_mut().map(|snapshot| &mut snapshot.section);
    for section in sections.chain([&mut config.active]) {
        if section.get("parent").map(String::as_str) == Some(name) {
            match &parent {
                Some(parent) => section.insert("parent".into(), parent.clone()),
                None => section.remove("parent"),
            };
        }
    }
    if let Some(memory) = gone.section.get("vmstate") {
        site.world.free(memory);
    }
}
