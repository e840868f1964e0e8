//! Guests coming back from backups.
//!
//! A container is a locked stub until it is whole, and a restore that fails leaves nothing. A virtual machine is a stub
//! for a moment only: while its data is read its file says `memory: 128` without any lock, and that is also what a
//! restore leaves behind that fails on the way.

use std::collections::BTreeMap;

use evenkeel_core::model::id::{GuestId, GuestKind};
use serde::{Deserialize, Serialize};

use super::create::{self, AfterMaking, MakingProgress};
use super::{Next, Site, exists};
use crate::config::Config;
use crate::property::{self, parse_size, print_size};
use crate::schema::Schema;
use crate::storage::{StoredArchive, split_volid};
use crate::world::{World, is_disk_key, is_net_key};
use crate::write::disk;

/// What a restore is to make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RestoreOrder {
    pub(crate) archive: String,
    /// The keys the request gave, as they are stored.
    pub(crate) given: BTreeMap<String, String>,
    /// Where volumes go; machines keep each in its own storage without it.
    pub(crate) storage: Option<String>,
    pub(crate) unique: bool,
    pub(crate) unprivileged: Option<bool>,
    /// KiB a second.
    pub(crate) rate_limit: Option<u64>,
    pub(crate) after: AfterMaking,
    /// What stands in the file at the end.
    #[serde(default)]
    pub(crate) config: Config,
    #[serde(flatten)]
    pub(crate) progress: MakingProgress,
}

pub(super) fn begin(
    site: &mut Site<'_>,
    guest: GuestId,
    order: &mut RestoreOrder,
) -> Result<u64, String> {
    exists(site.world, guest)?;
    let time = site.timings.create_ms;
    match guest.kind {
        GuestKind::Lxc => {
            order.progress.broken = recover_container(site, guest, order).err();
            Ok(time)
        }
        GuestKind::Qemu => Ok(time / STUB_PART),
    }
}

/// Of a machine's restore its file is a locked stub for this part of the time.
const STUB_PART: u64 = 8;

/// The part of a machine's restore in which its data is read.
pub(super) const DATA_STEP: u8 = 1;

pub(super) fn next(
    site: &mut Site<'_>,
    guest: GuestId,
    order: &mut RestoreOrder,
    step: u8,
) -> Result<Next, String> {
    match (guest.kind, step) {
        (GuestKind::Qemu, 0) => {
            let found = recover_machine(site, guest, order);
            let left = match &found {
                Ok(()) => Config::of(&[("memory", "128")]),
                Err(_) => Config::default(),
            };
            replace(site.world, guest, left);
            found.map(|()| Next::Step(site.timings.create_ms - site.timings.create_ms / STUB_PART))
        }
        (GuestKind::Lxc | GuestKind::Qemu, _) => restored(site, guest, order).map(|()| Next::Ended),
    }
}

fn replace(world: &mut World, guest: GuestId, config: Config) {
    if let Some(record) = world.guest_mut(guest) {
        record.config = config;
    }
}

fn restored(site: &mut Site<'_>, guest: GuestId, order: &RestoreOrder) -> Result<(), String> {
    if let Some(message) = &order.progress.broken {
        match guest.kind {
            GuestKind::Lxc => {
                create::undo(site.world, guest, &order.progress.made);
                return Err(format!("unable to restore CT {} - {message}", guest.vmid));
            }
            // The volumes go, the file stays as it is.
            GuestKind::Qemu => order.progress.made.iter().for_each(|volid| site.world.free(volid)),
        }
        return Err(message.clone());
    }
    replace(site.world, guest, order.config.clone());
    create::entered(site.world, guest, &order.after);
    Ok(())
}

/// The archive a restore reads, of whichever kind.
fn archive_of(world: &World, volid: &str) -> Result<(Option<StoredArchive>, u64), String> {
    match world.volume(volid) {
        None => Err(format!("volume '{volid}' does not exist")),
        Some(volume) => {
            Ok((volume.archive.as_ref().map(|archive| (**archive).clone()), volume.size_bytes))
        }
    }
}

/// Whoever has the number goes: its volumes, and its place. The guest that comes has a birth mark of its own.
fn take_place(world: &mut World, guest: GuestId) {
    let birth = world.next_birth();
    let Some(record) = world.guest_mut(guest) else { return };
    (record.birth, record.maker, record.first_ran_ms) = (birth, None, None);
    let old = std::mem::replace(&mut record.config, Config::of(&[("lock", "create")]));
    let values = old.active.iter().filter(|(key, _)| is_disk_key(guest.kind, key));
    let volumes: Vec<String> =
        values.map(|(_, v)| v.split(',').next().unwrap_or_default().to_owned()).collect();
    for volid in volumes {
        if world.volume(&volid).is_some_and(|volume| volume.vmid == Some(guest.vmid)) {
            world.free(&volid);
        }
    }
}

fn recover_container(
    site: &mut Site<'_>,
    guest: GuestId,
    order: &mut RestoreOrder,
) -> Result<(), String> {
    let (archive, packed_bytes) = archive_of(site.world, &order.archive)?;
    site.log.push(format!("recovering backed-up configuration from '{}'", order.archive));
    let Some(archive) = archive.filter(|archive| archive.guest.kind == GuestKind::Lxc) else {
        return Err("ERROR: archive contains no configuration file".to_owned());
    };
    let replaces = site.world.guest(guest).is_some_and(|record| record.config.active.len() > 1);
    order.config = container_file(site.world, &archive.config, order);
    let mounts = container_mounts(&archive.config, order)?;
    for (key, value) in mounts {
        let format = if key == "rootfs" { "lxc-rootfs" } else { "lxc-mp" };
        let mut printed = disk::new_lxc_mount(site.world, guest, format, &value, site.now_ms)?;
        let volid = printed.split(',').next().unwrap_or_default().to_owned();
        // Sizes of the backup are exact, those of the request were rounded.
        if let Some(bytes) = exact_size(&archive.config, order, &key)
            && let Some(volume) = site.world.volume_mut(&volid)
        {
            volume.size_bytes = bytes;
            printed = super::disks::with_size(&printed, &print_size(bytes));
        }
        let origin = site.world.origin_of(&order.archive);
        if let Some(volume) = site.world.volume_mut(&volid) {
            volume.origin = Some(origin);
        }
        site.log.push(format!("Formatting '{}'", create::path_of(site.world, &volid)));
        order.progress.made.push(volid);
        order.config.active.insert(key, printed);
    }
    if replaces {
        take_place(site.world, guest);
    }
    site.log.push(format!("restoring '{}' now..", order.archive));
    if archive.truncated || !create::fits(site.world, &order.config, packed_bytes) {
        let unprivileged = order.config.is_set("unprivileged");
        return Err(create::unpack_failed(guest, &order.archive, unprivileged));
    }
    if let Some(record) = site.world.guest_mut(guest) {
        record.files = archive.files;
    }
    site.log.push("merging backed-up and given configuration..".to_owned());
    Ok(())
}

/// The request's keys, then those of the backup; with `unique` a network card of the backup wins, with a new address.
fn container_file(world: &mut World, saved: &Config, order: &RestoreOrder) -> Config {
    let mut config = Config::default();
    for (key, value) in &order.given {
        if !is_disk_key(GuestKind::Lxc, key) {
            config.active.insert(key.clone(), value.clone());
        }
    }
    for (key, value) in &saved.active {
        let kept = !is_disk_key(GuestKind::Lxc, key)
            && !matches!(key.as_str(), "unprivileged" | "template" | "parent" | "lock");
        if !kept {
            continue;
        }
        if order.unique && is_net_key(key) {
            let printed = with_new_address(world, "lxc-net", "hwaddr", value);
            config.active.insert(key.clone(), printed);
        } else {
            config.active.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
    let unprivileged = order.unprivileged.unwrap_or_else(|| saved.is_set("unprivileged"));
    if unprivileged {
        config.active.insert("unprivileged".into(), "1".into());
    }
    config
}

fn with_new_address(world: &mut World, format: &str, name: &str, value: &str) -> String {
    let schema = Schema::shared();
    let mut net = property::parse(schema, format, value, world.release()).unwrap_or_default();
    net.insert(name.to_owned(), world.new_mac());
    property::print(schema, format, &net)
}

/// The request's mounts, if it names any; else those of the backup, each anew in the storage.
fn container_mounts(saved: &Config, order: &RestoreOrder) -> Result<Vec<(String, String)>, String> {
    if order.given.contains_key("rootfs") {
        let given = Config { active: order.given.clone(), ..Config::default() };
        let keys = create::disk_keys(GuestKind::Lxc, &given).into_iter();
        let value = |key: &String| given.active.get(key).cloned().unwrap_or_default();
        return Ok(keys.map(|key| (key.clone(), value(&key))).collect());
    }
    let storage = order.storage.as_deref().unwrap_or("local");
    let mut mounts = Vec::new();
    for key in create::disk_keys(GuestKind::Lxc, saved) {
        if key.starts_with("unused") {
            continue;
        }
        let value = saved.get(&key).unwrap_or_default();
        let (volume, options) = value.split_once(',').unwrap_or((value, ""));
        if !volume.contains(':') {
            return Err(format!("restoring '{key}' to bind mount is only possible for root"));
        }
        if !options.split(',').any(|part| part.starts_with("size=")) {
            return Err(format!("unable to detect disk size - please specify {key} (size)"));
        }
        let options: Vec<&str> =
            options.split(',').filter(|part| !part.starts_with("size=")).collect();
        // One GiB stands for whatever the backup says: the size is set to the byte afterwards.
        let gib = u8::from(exact_size(saved, order, &key) != Some(0));
        let volume = format!("{storage}:{gib}");
        let parts: Vec<&str> = [volume.as_str()].into_iter().chain(options).collect();
        mounts.push((key.clone(), parts.join(",")));
    }
    Ok(mounts)
}

fn exact_size(saved: &Config, order: &RestoreOrder, key: &str) -> Option<u64> {
    if order.given.contains_key("rootfs") {
        return None;
    }
    parse_size(saved.get(key)?.split(',').find_map(|part| part.strip_prefix("size="))?)
}

fn recover_machine(
    site: &mut Site<'_>,
    guest: GuestId,
    order: &mut RestoreOrder,
) -> Result<(), String> {
    let (archive, _) = archive_of(site.world, &order.archive)?;
    let path = create::path_of(site.world, &order.archive);
    let Some(archive) = archive.filter(|archive| archive.guest.kind == GuestKind::Qemu) else {
        return Err(format!("ERROR: file '{path}' does not look like a QemuServer vzdump backup"));
    };
    let command = extract_command(site.world, order, site.pid);
    let failed = |why: &str| format!("command '{command}' failed: {why}");
    let replaces = site.world.guest(guest).is_some_and(|record| record.config.active.len() > 1);
    if replaces {
        take_place(site.world, guest);
    }
    site.log.push(format!("restore vma archive: {}", command.replace("set -o pipefail && ", "")));
    machine_file(site, guest, &archive, order).map_err(|why| failed(&why))?;
    site.log.push("progress 1% (read 1114112 bytes, duration 0 sec)".to_owned());
    if archive.truncated {
        order.progress.broken = Some(failed("exit code 255"));
    }
    Ok(())
}

/// The command that reads a machine's archive, which PVE names whole when it fails.
pub(super) fn extract_command(world: &World, order: &RestoreOrder, pid: u32) -> String {
    let path = create::path_of(world, &order.archive);
    let unpacker = match path.rsplit('.').next() {
        Some("zst") => Some("zstd -q -d -c"),
        Some("gz") => Some("zcat"),
        Some("lzo") => Some("lzop -d -c"),
        Some(_) | None => None,
    };
    let limiter = order.rate_limit.map(|kib| format!("cstream -t {} --", kib * 1024));
    let directory = format!("/var/tmp/vzdumptmp{pid}");
    let (source, input) = match (limiter, unpacker) {
        (None, None) => (String::new(), path.as_str()),
        (Some(limiter), None) => (format!("{limiter} {path} | "), "-"),
        (None, Some(unpacker)) => (format!("{unpacker} {path} | "), "-"),
        (Some(limiter), Some(unpacker)) => (format!("{limiter} {path} | {unpacker} - | "), "-"),
    };
    format!("set -o pipefail && {source}vma extract -v -r {directory}.fifo {input} {directory}")
}

fn machine_file(
    site: &mut Site<'_>,
    guest: GuestId,
    archive: &StoredArchive,
    order: &mut RestoreOrder,
) -> Result<(), String> {
    let mut config = Config::default();
    let mut left_out = Vec::new();
    for (key, value) in &archive.config.active {
        let printed = match key.as_str() {
            "lock" | "parent" => continue,
            _ if key.starts_with("unused") => continue,
            _ if is_disk_key(GuestKind::Qemu, key) => {
                let Some(printed) = machine_drive(site, guest, value, order)? else {
                    left_out.push(format!("{key}: {value}"));
                    continue;
                };
                printed
            }
            _ if is_net_key(key) && order.unique => {
                with_new_address(site.world, "qm-net", "macaddr", value)
            }
            "vmgenid" => site.world.random.uuid(),
            "smbios1" if order.unique => with_new_uuid(site.world, value),
            _ => value.clone(),
        };
        config.active.insert(key.clone(), printed);
    }
    if !left_out.is_empty() {
        let text = config.active.remove("description").into_iter().chain(left_out);
        config.active.insert("description".into(), text.collect::<Vec<_>>().join("\n"));
    }
    config.active.extend(order.given.clone());
    order.config = config;
    Ok(())
}

/// `smbios1` with another uuid and everything else as it was.
pub(crate) fn with_new_uuid(world: &mut World, value: &str) -> String {
    let uuid = format!("uuid={}", world.random.uuid());
    let rest = value.split(',').filter(|part| !part.starts_with("uuid=") && !part.is_empty());
    rest.map(str::to_owned).chain([uuid]).collect::<Vec<_>>().join(",")
}

/// A drive as it comes back: `None` if its data was left out of the backup.
fn machine_drive(
    site: &mut Site<'_>,
    guest: GuestId,
    value: &str,
    order: &mut RestoreOrder,
) -> Result<Option<String>, String> {
    let old = value.split(',').next().unwrap_or_default();
    let Some((own, _)) = split_volid(old) else { return Ok(Some(value.to_owned())) };
    let storage = order.storage.clone().unwrap_or_else(|| own.to_owned());
    if old.contains("-cloudinit") {
        let new = disk::cloud_init(site.world, guest, &storage, site.now_ms)?;
        order.progress.made.push(new.clone());
        return Ok(Some(format!("{new},media=cdrom")));
    }
    if value.contains("media=cdrom") {
        return Ok(Some(value.to_owned()));
    }
    if value.split(',').any(|part| part == "backup=0") {
        return Ok(None);
    }
    match site.world.storages.get(&storage) {
        None => return Err(format!("storage '{storage}' does not exist")),
        Some(found) if !found.content.contains("images") => {
            return Err(format!("Content type 'images' is not available on storage '{storage}'"));
        }
        Some(_) => {}
    }
    let size = value.split(',').find_map(|part| part.strip_prefix("size=")).and_then(parse_size);
    let format = old.rsplit_once('.').map(|(_, format)| format);
    let new =
        disk::allocate(site.world, guest, &storage, size.unwrap_or(1 << 30), format, site.now_ms)?;
    let origin = site.world.origin_of(&order.archive);
    if let Some(volume) = site.world.volume_mut(&new) {
        volume.origin = Some(origin);
    }
    site.log.push(format!("new volume ID is '{new}'"));
    order.progress.made.push(new.clone());
    Ok(Some(value.replacen(old, &new, 1)))
}
