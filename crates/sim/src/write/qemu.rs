//! Config writes of virtual machines.
//!
//! Keys are stored one by one, in no order a client could rely on: when one fails, those before it
//! stay waiting. On a stopped machine a write applies everything that waits, not only its own keys.

use evenkeel_core::model::id::{GuestId, GuestKind};
use evenkeel_core::model::release::Release;

use super::disk::{is_cdrom, qemu_drive, read_drive};
use super::{WriteChange, check_digest, check_lock, cleanup_pending, load};
use crate::config::{Config, stored_description};
use crate::property;
use crate::reply::ReplyFailure;
use crate::schema::{Errors, Schema};
use crate::world::{World, is_disk_key, is_net_key};

/// Carries out one write while the file lock is free.
pub(crate) fn update(
    world: &mut World,
    id: GuestId,
    change: &WriteChange,
    skip_lock: bool,
    now_ms: u64,
) -> Result<(), ReplyFailure> {
    let release = world.release();
    let config = load(world, id)?;
    check_digest(id, config, change.digest.as_deref(), release)?;
    if !skip_lock {
        check_lock(id, config)?;
    }
    let mut config = config.clone();
    config.reread(id.kind, release);
    for key in &change.revert {
        revert(world, id, &mut config, key);
    }
    for key in &change.delete {
        stage_delete(world, id, &mut config, key, change.force)?;
        store(world, id, &config);
    }
    let mut keys: Vec<&String> = change.set.keys().collect();
    // Perl's hash order: from the seed, so that it is as arbitrary and yet repeatable.
    let salt = world.random.next();
    keys.sort_by_key(|key| {
        key.bytes().fold(salt, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
    });
    for key in keys {
        let value = change.set.get(key).and_then(Option::as_deref);
        stage_set(world, id, &mut config, key, value, now_ms)?;
        store(world, id, &config);
    }
    cleanup_pending(&mut config);
    let running = world.guest(id).is_some_and(|guest| guest.power.is_running());
    let mut errors = Errors::new();
    if running {
        hotplug(world, id, &mut config, &mut errors);
    } else {
        apply_pending(world, id, &mut config);
    }
    store(world, id, &config);
    if errors.is_empty() { Ok(()) } else { Err(ReplyFailure::Params(errors)) }
}

fn store(world: &mut World, id: GuestId, config: &Config) {
    if let Some(guest) = world.guest_mut(id) {
        guest.config = config.clone();
    }
}

/// Dropping a waiting new disk keeps its volume as unused.
fn revert(world: &World, id: GuestId, config: &mut Config, key: &str) {
    config.pending_delete.remove(key);
    let Some(value) = config.pending.remove(key) else { return };
    if is_disk_key(GuestKind::Qemu, key) {
        keep_as_unused(world, id, config, key, &value);
    }
}

/// Keeps what leaves a slot, if PVE can tell that it is the machine's own: of a storage that is not defined it cannot, and
/// then nothing names the volume any more.
fn keep_as_unused(world: &World, id: GuestId, config: &mut Config, key: &str, value: &str) {
    let drive = read_drive(key, value, world.release());
    let file = drive.get("file").cloned().unwrap_or_default();
    let is_anothers = world.volume(&file).is_some_and(|volume| volume.vmid != Some(id.vmid));
    if world.undefined_storage(&file).is_some() || is_anothers {
        return;
    }
    let held = config.active.iter().any(|(other, v)| {
        other != key && is_disk_key(GuestKind::Qemu, other) && v.split(',').next() == Some(&file)
    });
    if !is_cdrom(&drive) && file.contains(':') && !held {
        config.add_unused(&file);
    }
}

fn stage_delete(
    world: &mut World,
    id: GuestId,
    config: &mut Config,
    key: &str,
    force: bool,
) -> Result<(), ReplyFailure> {
    let Some(value) = config.active.get(key).or_else(|| config.pending.get(key)).cloned() else {
        return Ok(());
    };
    let protected = |what: String| {
        if config.is_set("protection") {
            Err(ReplyFailure::Died(format!("{what} - protection mode enabled")))
        } else {
            Ok(())
        }
    };
    if key.starts_with("unused") {
        protected(format!("can't remove unused disk '{value}'"))?;
        // Of a storage that is not defined nobody can tell whose the volume is: only the key goes.
        if world.undefined_storage(&value).is_none() && config.is_in_a_snapshot(&value) {
            let message =
                format!("unable to delete '{value}' - volume is still in use (snapshot?)");
            return Err(ReplyFailure::Died(message));
        }
        config.active.remove(key);
        world.free(&value);
        return Ok(());
    }
    if is_disk_key(GuestKind::Qemu, key) {
        protected(format!("can't remove drive '{key}'"))?;
        if let Some(waiting) = config.pending.remove(key) {
            keep_as_unused(world, id, config, key, &waiting);
        }
    }
    config.pending.remove(key);
    if config.active.contains_key(key) {
        config.pending_delete.insert(key.to_owned(), force);
    }
    if is_disk_key(GuestKind::Qemu, key) || is_net_key(key) {
        without_boot_device(config, key);
    }
    debug_assert_eq!(id.kind, GuestKind::Qemu);
    Ok(())
}

fn boot_order(config: &Config) -> Option<Vec<String>> {
    let boot = config.pending.get("boot").or_else(|| config.active.get("boot"))?;
    Some(boot.strip_prefix("order=")?.split(';').map(str::to_owned).collect())
}

fn without_boot_device(config: &mut Config, key: &str) {
    if let Some(mut order) = boot_order(config)
        && order.iter().any(|device| device == key)
    {
        order.retain(|device| device != key);
        config.pending.insert("boot".into(), format!("order={}", order.join(";")));
    }
}

fn stage_set(
    world: &mut World,
    id: GuestId,
    config: &mut Config,
    key: &str,
    value: Option<&str>,
    now_ms: u64,
) -> Result<(), ReplyFailure> {
    let release = world.release();
    let Some(text) = value else {
        let message = format!("unable to parse value of '{key}' - got undefined value");
        return Err(ReplyFailure::Died(message));
    };
    let stored = match key {
        "smp" => return Ok(()),
        _ if key.starts_with("unused") => return Ok(()),
        _ if is_disk_key(GuestKind::Qemu, key) => {
            if let Some(waiting) = config.pending.remove(key) {
                keep_as_unused(world, id, config, key, &waiting);
            }
            let printed = qemu_drive(world, id, key, text, now_ms)?;
            boot_from_cdrom(config, key, &printed, release);
            printed
        }
        _ if is_net_key(key) => complete_net(world, text),
        "boot" => {
            check_boot(config, text, release)?;
            text.to_owned()
        }
        _ => plain_value(world, config, key, text)?,
    };
    config.pending_delete.remove(key);
    config.pending.insert(key.to_owned(), stored);
    Ok(())
}

fn plain_value(
    world: &mut World,
    config: &mut Config,
    key: &str,
    text: &str,
) -> Result<String, ReplyFailure> {
    Ok(match key {
        "tags" => super::stored_tags(world, text),
        "cpuunits" => super::clamped_cpu_units(text),
        "cpulimit" if text.starts_with('.') => {
            let message = format!("type check ('number') failed - got '{text}'");
            return Err(ReplyFailure::Died(format!(
                "unable to parse value of '{key}' - {message}"
            )));
        }
        "vmgenid" if text == "1" => world.random.uuid(),
        "cipassword" => format!("$5${:016x}$simulated", world.random.next()),
        "sshkeys" => {
            super::check_ssh_keys(&crate::request::percent_decode(text, false))?;
            text.to_owned()
        }
        "hookscript" if world.volume(text).is_none() => {
            return Err(ReplyFailure::Died(format!("script '{text}' does not exist")));
        }
        "ostype" if text.starts_with('w') && config.get("machine").is_none() => {
            config.pending.insert("machine".into(), "pc-i440fx-9.2+pve1".into());
            text.to_owned()
        }
        "description" => text.to_owned(),
        "ciuser" | "searchdomain" | "args" => {
            let trimmed = text.trim();
            let inner = trimmed.strip_prefix('"').and_then(|t| t.strip_suffix('"'));
            inner.unwrap_or(trimmed).to_owned()
        }
        _ => text.trim().to_owned(),
    })
}

/// A new CD-ROM drive is appended to an existing boot order.
fn boot_from_cdrom(config: &mut Config, key: &str, printed: &str, release: Release) {
    if !is_cdrom(&read_drive(key, printed, release)) || config.active.contains_key(key) {
        return;
    }
    if let Some(mut order) = boot_order(config)
        && !order.iter().any(|device| device == key)
    {
        order.push(key.to_owned());
        config.pending.insert("boot".into(), format!("order={}", order.join(";")));
    }
}

fn check_boot(config: &mut Config, text: &str, release: Release) -> Result<(), ReplyFailure> {
    let read = property::parse(Schema::shared(), "qm-boot", text, release).unwrap_or_default();
    let Some(order) = read.get("order") else { return Ok(()) };
    for device in crate::format::split_list(order) {
        if !config.active.contains_key(device) && !config.pending.contains_key(device) {
            let message = format!("invalid bootorder: device '{device}' does not exist'");
            return Err(ReplyFailure::Died(message));
        }
    }
    if config.active.contains_key("bootdisk") {
        config.pending_delete.insert("bootdisk".into(), false);
    }
    Ok(())
}

pub(crate) fn complete_net(world: &mut World, text: &str) -> String {
    let schema = Schema::shared();
    let mut net = property::parse(schema, "qm-net", text, world.release()).unwrap_or_default();
    if !net.contains_key("macaddr") {
        net.insert("macaddr".into(), world.new_mac());
    }
    property::print(schema, "qm-net", &net)
}

/// The keys that only stand in the file.
const AT_ONCE: [&str; 20] = [
    "description",
    "hookscript",
    "lock",
    "migrate_speed",
    "name",
    "onboot",
    "protection",
    "shares",
    "startup",
    "tags",
    "vmstatestorage",
    "cicustom",
    "cipassword",
    "citype",
    "ciupgrade",
    "ciuser",
    "nameserver",
    "searchdomain",
    "sshkeys",
    "cpulimit",
];

fn hotplugs(config: &Config, what: &str) -> bool {
    match config.get("hotplug").unwrap_or("1") {
        "1" => matches!(what, "network" | "disk" | "usb"),
        "0" => false,
        list => crate::format::split_list(list).contains(&what),
    }
}

/// Whether a running machine takes this change at once. `new` is `None` for a removal.
fn is_live(config: &Config, key: &str, new: Option<&str>, release: Release) -> bool {
    let old = config.get(key);
    let stem = key.trim_end_matches(|c: char| c.is_ascii_digit());
    match stem {
        _ if AT_ONCE.contains(&key) => true,
        "cpuunits" | "tablet" | "ipconfig" => true,
        "migrate_downtime" => release >= Release::V8_0,
        "balloon" => {
            let ballooning = |value: Option<&str>| value != Some("0");
            ballooning(old) && new.is_some() && ballooning(new)
        }
        "net" => hotplugs(config, "network"),
        "usb" => hotplugs(config, "usb"),
        "vcpus" => hotplugs(config, "cpu"),
        "memory" => hotplugs(config, "memory") && config.is_set("numa"),
        "hotplug" => {
            let heavy = |value: Option<&str>| {
                value.is_some_and(|v| v.contains("cpu") || v.contains("memory"))
            };
            !heavy(old) && !heavy(new)
        }
        "agent" => differs_only_in(old, new, &["fstrim_cloned_disks"]),
        "scsi" | "virtio" if old.is_none() || new.is_none() => hotplugs(config, "disk"),
        "ide" | "sata" | "scsi" | "virtio" => match (old, new) {
            (Some(old), Some(new)) => {
                let cdrom = |value| is_cdrom(&read_drive(key, value, release));
                (cdrom(old) && cdrom(new)) || differs_only_in(Some(old), Some(new), &THROTTLES)
            }
            (None, _) | (_, None) => false,
        },
        _ => false,
    }
}

/// What may change on an attached disk without detaching it.
const THROTTLES: [&str; 9] =
    ["backup", "iops", "iops_rd", "iops_wr", "mbps", "mbps_rd", "mbps_wr", "replicate", "size"];

fn differs_only_in(old: Option<&str>, new: Option<&str>, names: &[&str]) -> bool {
    let (Some(old), Some(new)) = (old, new) else { return false };
    let rest = |value: &str| -> Vec<String> {
        value
            .split(',')
            .filter(|part| !part.split_once('=').is_some_and(|(name, _)| names.contains(&name)))
            .map(str::to_owned)
            .collect()
    };
    rest(old) == rest(new)
}

fn hotplug(world: &mut World, id: GuestId, config: &mut Config, errors: &mut Errors) {
    let release = world.release();
    for (key, force) in config.pending_delete.clone() {
        if is_live(config, &key, None, release) {
            config.pending_delete.remove(&key);
            remove(world, id, config, &key, force);
        }
    }
    for (key, value) in config.pending.clone() {
        if !is_live(config, &key, Some(&value), release) {
            continue;
        }
        if is_net_key(&key) {
            let net =
                property::parse(Schema::shared(), "qm-net", &value, release).unwrap_or_default();
            let bridge = net.get("bridge").cloned().unwrap_or_default();
            if !bridge.is_empty() && !world.bridges.contains(&bridge) {
                let message = format!("hotplug problem - bridge '{bridge}' does not exist\n");
                errors.insert(key, message);
                continue;
            }
        }
        config.pending.remove(&key);
        set(world, id, config, &key, value);
    }
}

/// Applies everything that waits: at start, at stop, and on any write to a stopped machine.
pub(crate) fn apply_pending(world: &mut World, id: GuestId, config: &mut Config) {
    for (key, force) in std::mem::take(&mut config.pending_delete) {
        remove(world, id, config, &key, force);
    }
    for (key, value) in std::mem::take(&mut config.pending) {
        set(world, id, config, &key, value);
    }
}

fn set(world: &World, id: GuestId, config: &mut Config, key: &str, value: String) {
    if is_disk_key(GuestKind::Qemu, key) {
        let file = |value: &str| value.split(',').next().unwrap_or_default().to_owned();
        let old = config.active.get(key).cloned();
        let new = file(&value);
        config.active.retain(|k, v| !(k.starts_with("unused") && *v == new));
        config.active.insert(key.to_owned(), value);
        if let Some(old) = old.filter(|old| file(old) != new) {
            keep_as_unused(world, id, config, key, &old);
        }
        return;
    }
    let value = match key {
        "description" => stored_description(GuestKind::Qemu, &value),
        _ => Some(value),
    };
    match value {
        Some(value) => config.active.insert(key.to_owned(), value),
        None => config.active.remove(key),
    };
}

/// Removes an active key; a drive's volume is kept as unused, or destroyed by force.
fn remove(world: &mut World, id: GuestId, config: &mut Config, key: &str, force: bool) {
    let Some(value) = config.active.remove(key) else { return };
    if !is_disk_key(GuestKind::Qemu, key) {
        return;
    }
    let release = world.release();
    let file = value.split(',').next().unwrap_or_default().to_owned();
    if force || file.contains("-cloudinit") {
        if !is_cdrom(&read_drive(key, &value, release)) || file.contains("-cloudinit") {
            world.free(&file);
        }
    } else {
        keep_as_unused(world, id, config, key, &value);
    }
}
