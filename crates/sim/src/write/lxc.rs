//! Config writes of containers.
//!
//! A stopped container takes the written keys at once; a running one takes what can be changed
//! live and keeps the rest for its next start. If anything fails live, nothing is stored, except
//! where re-creating a network card had to store the file half-way.

use evenkeel_core::model::id::{GuestId, GuestKind};
use evenkeel_core::model::release::Release;

use super::{WriteChange, check_digest, check_lock, cleanup_pending, load};
use crate::config::{Config, stored_description};
use crate::format::split_list;
use crate::property::{self, Properties};
use crate::reply::ReplyFailure;
use crate::schema::{Errors, Schema};
use crate::world::{World, is_net_key};

/// Carries out one write while the file lock is free.
pub(crate) fn update(
    world: &mut World,
    id: GuestId,
    change: &WriteChange,
    now_ms: u64,
) -> Result<(), ReplyFailure> {
    let release = world.release();
    let config = load(world, id)?;
    check_lock(id, config)?;
    check_digest(id, config, change.digest.as_deref(), release)?;
    let mut config = config.clone();
    config.reread(id.kind, release);
    let running = world.guest(id).is_some_and(|guest| guest.power.is_running());
    stage(world, id, change, &mut config)?;
    cleanup_pending(&mut config);
    let mut errors = Errors::new();
    let written: Vec<String> = change.set.keys().chain(&change.delete).cloned().collect();
    if running {
        hotplug(world, id, &mut config, &written, now_ms, &mut errors);
    } else {
        apply_pending(world, id, &mut config, Some(&written), now_ms, &mut errors);
    }
    if !errors.is_empty() {
        // Until 8.2 the keys that went well were stored all the same.
        if release < Release::V8_3 {
            store(world, id, config);
        }
        return Err(ReplyFailure::Params(errors));
    }
    store(world, id, config.clone());
    regenerate(world, &config)
}

fn store(world: &mut World, id: GuestId, config: Config) {
    if let Some(guest) = world.guest_mut(id) {
        guest.config = config;
    }
}

/// PVE rewrites LXC's own config after storing the file, so what fails here has been stored.
fn regenerate(world: &World, config: &Config) -> Result<(), ReplyFailure> {
    if config.get("arch").is_none() {
        return Err(ReplyFailure::died(
            "missing 'arch' - internal error at /usr/share/perl5/PVE/LXC.pm line 676.",
        ));
    }
    if config.get("rootfs").is_none() {
        return Err(ReplyFailure::died("missing 'rootfs' configuration"));
    }
    for (_, value) in config.active.iter().filter(|(key, _)| is_net_key(key)) {
        let net = read_net(value, world.release());
        let bridge = net.get("bridge").map_or("", String::as_str);
        if !world.bridges.contains(bridge)
            && (!bridge.is_empty() || world.release() >= Release::V9_0)
        {
            return Err(ReplyFailure::Died(format!("bridge '{bridge}' does not exist")));
        }
    }
    Ok(())
}

/// Puts the request into the waiting section.
fn stage(
    world: &World,
    id: GuestId,
    change: &WriteChange,
    config: &mut Config,
) -> Result<(), ReplyFailure> {
    for key in &change.revert {
        config.pending.remove(key);
        config.pending_delete.remove(key);
    }
    for key in &change.delete {
        match key.as_str() {
            "memory" | "rootfs" | "ostype" => {
                return Err(ReplyFailure::Died(format!(
                    "unable to delete required option '{key}'"
                )));
            }
            "unprivileged" => {
                return Err(ReplyFailure::Died(format!(
                    "unable to delete read-only option: '{key}'"
                )));
            }
            _ => {}
        }
        if !config.active.contains_key(key) {
            continue;
        }
        if is_mount(key) || key.starts_with("unused") {
            check_protection(id, config, &format!("can't remove CT {} drive '{key}'", id.vmid))?;
        }
        // A value that waits stays beside the deletion, and is applied after it.
        config.pending_delete.insert(key.clone(), false);
    }
    for (key, value) in &change.set {
        if let Some(value) = staged(world, id, config, key, value.as_deref())? {
            config.pending_delete.remove(key);
            config.pending.insert(key.clone(), value);
        }
    }
    Ok(())
}

/// One value as it is put into the waiting section; `None` is ignored.
fn staged(
    world: &World,
    id: GuestId,
    config: &Config,
    key: &str,
    value: Option<&str>,
) -> Result<Option<String>, ReplyFailure> {
    let text = value.unwrap_or_default();
    let stored = match key {
        "unprivileged" => {
            return Err(ReplyFailure::Died(format!("unable to modify read-only option: '{key}'")));
        }
        _ if key.starts_with("unused") => return Ok(None),
        _ if key == "rootfs" || is_mount(key) => {
            check_protection(id, config, &format!("can't update CT {} drive '{key}'", id.vmid))?;
            text.to_owned()
        }
        "nameserver" | "searchdomain" => split_list(text).join(" "),
        "tags" => super::stored_tags(world, text),
        "cpuunits" => super::clamped_cpu_units(text),
        "hookscript" if world.volume(text).is_none() => {
            return Err(ReplyFailure::Died(format!("script '{text}' does not exist")));
        }
        "description" => text.to_owned(),
        _ => text.trim().to_owned(),
    };
    Ok(Some(stored))
}

fn check_protection(id: GuestId, config: &Config, what: &str) -> Result<(), ReplyFailure> {
    debug_assert_eq!(id.kind, GuestKind::Lxc);
    if config.is_set("protection") {
        return Err(ReplyFailure::Died(format!("{what} - protection mode enabled")));
    }
    Ok(())
}

fn is_mount(key: &str) -> bool {
    key.strip_prefix("mp").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// Keys that only stand in the file: they hold at once.
const AT_ONCE: [&str; 8] =
    ["description", "onboot", "startup", "protection", "hookscript", "tags", "lock", "hostname"];
/// Keys PVE can change in a running container.
const LIVE: [&str; 5] = ["cores", "memory", "swap", "cpulimit", "cpuunits"];

fn hotplug(
    world: &mut World,
    id: GuestId,
    config: &mut Config,
    written: &[String],
    now_ms: u64,
    errors: &mut Errors,
) {
    let release = world.release();
    for key in written
        .iter()
        .filter(|key| config.pending_delete.contains_key(*key))
        .cloned()
        .collect::<Vec<_>>()
    {
        // Only the first ten cards are matched: PVE's pattern takes a single digit.
        let single_digit_net = is_net_key(&key) && key.len() == 4;
        let live = AT_ONCE.contains(&key.as_str())
            || LIVE.contains(&key.as_str())
            || single_digit_net
            || key.starts_with("unused");
        if live {
            match remove(world, config, &key) {
                Ok(()) => drop(config.pending_delete.remove(&key)),
                Err(message) => {
                    errors.insert(key.clone(), format!("unable to hotplug {key}: {message}\n"));
                }
            }
        }
    }
    let mut keys: Vec<String> =
        written.iter().filter(|key| config.pending.contains_key(*key)).cloned().collect();
    keys.sort();
    for key in keys {
        let value = config.pending.get(&key).cloned().unwrap_or_default();
        let new_mount = is_mount(&key) && !config.active.contains_key(&key);
        let new_device =
            key.starts_with("dev") && release >= Release::V9_0 && !config.active.contains_key(&key);
        if AT_ONCE.contains(&key.as_str()) || LIVE.contains(&key.as_str()) || new_device {
            config.pending.remove(&key);
            set(config, &key, value);
        } else if is_net_key(&key) {
            if let Err(message) = plug_net(world, id, config, &key, &value) {
                errors.insert(key.clone(), format!("unable to hotplug {key}: {message}\n"));
            }
        } else if new_mount {
            match super::disk::lxc_mount(world, id, &value, now_ms) {
                Ok(printed) => {
                    config.pending.remove(&key);
                    drop_unused(config, &printed);
                    set(config, &key, printed);
                }
                Err(message) => {
                    errors.insert(key.clone(), format!("unable to hotplug {key}: {message}\n"));
                }
            }
        }
    }
}

/// Plugs a card into a running container. Another address or name means taking the old card out
/// first, and PVE stores the file in between: what fails after that stays waiting.
fn plug_net(
    world: &mut World,
    id: GuestId,
    config: &mut Config,
    key: &str,
    value: &str,
) -> Result<(), String> {
    let release = world.release();
    let net = complete_net(world, value);
    let get = |net: &Properties, name: &str| net.get(name).cloned().unwrap_or_default();
    if let Some(old) = config.active.get(key).map(|old| read_net(old, release))
        && ["hwaddr", "name"].iter().any(|name| get(&old, name) != get(&net, name))
    {
        config.active.remove(key);
        store(world, id, config.clone());
    }
    let bridge = get(&net, "bridge");
    if !world.bridges.contains(&bridge) {
        return Err(format!("bridge '{bridge}' does not exist"));
    }
    let name = get(&net, "name");
    let taken = config.active.iter().any(|(other, value)| {
        other != key && is_net_key(other) && get(&read_net(value, release), "name") == name
    });
    if taken {
        let slot = key.trim_start_matches("net");
        return Err(format!(
            "command 'lxc-device -n {} add veth{}i{slot}p {name}' failed: exit code 1",
            id.vmid, id.vmid
        ));
    }
    config.pending.remove(key);
    set(config, key, property::print(Schema::shared(), "lxc-net", &net));
    Ok(())
}

fn read_net(value: &str, release: Release) -> Properties {
    property::parse(Schema::shared(), "lxc-net", value, release).unwrap_or_default()
}

/// A card as PVE fills it in: an address if none was given, and its type.
pub(crate) fn complete_net(world: &mut World, value: &str) -> Properties {
    let mut net = read_net(value, world.release());
    if !net.contains_key("hwaddr") {
        net.insert("hwaddr".into(), world.new_mac());
    }
    net.insert("type".into(), "veth".into());
    net
}

/// Applies waiting changes for good: all of them at start and stop, the written ones on a write.
pub(crate) fn apply_pending(
    world: &mut World,
    id: GuestId,
    config: &mut Config,
    only: Option<&[String]>,
    now_ms: u64,
    errors: &mut Errors,
) {
    let chosen = |key: &String| only.is_none_or(|only| only.contains(key));
    for key in config.pending_delete.keys().filter(|key| chosen(key)).cloned().collect::<Vec<_>>() {
        match remove(world, config, &key) {
            Ok(()) => drop(config.pending_delete.remove(&key)),
            Err(message) => {
                let told = format!("unable to apply pending change {key} : {message}\n");
                errors.insert(key.clone(), told);
            }
        }
    }
    for key in config.pending.keys().filter(|key| chosen(key)).cloned().collect::<Vec<_>>() {
        let value = config.pending.get(&key).cloned().unwrap_or_default();
        let printed = if is_net_key(&key) {
            Ok(property::print(Schema::shared(), "lxc-net", &complete_net(world, &value)))
        } else if is_mount(&key) {
            super::disk::lxc_mount(world, id, &value, now_ms)
        } else {
            Ok(value)
        };
        match printed {
            Ok(printed) => {
                config.pending.remove(&key);
                if is_mount(&key) {
                    replace_mount(config, &key, &printed);
                }
                set(config, &key, printed);
            }
            Err(message) => {
                errors.insert(
                    key.clone(),
                    format!("unable to apply pending change {key} : {message}\n"),
                );
            }
        }
    }
}

fn set(config: &mut Config, key: &str, value: String) {
    let value = match key {
        "description" => stored_description(GuestKind::Lxc, &value),
        _ => Some(value),
    };
    match value {
        Some(value) => config.active.insert(key.to_owned(), value),
        None => config.active.remove(key),
    };
}

/// Removes an active key; a mount point's volume is kept as unused, wherever it is. An unused one is destroyed, unless a
/// snapshot names it: then only the key goes, without a word.
fn remove(world: &mut World, config: &mut Config, key: &str) -> Result<(), String> {
    let Some(value) = config.active.get(key) else { return Ok(()) };
    let volume = value.split(',').next().unwrap_or_default().to_owned();
    let frees = key.starts_with("unused") && !config.is_in_a_snapshot(&volume);
    if let Some(storage) = world.undefined_storage(&volume).filter(|_| frees) {
        return Err(format!("storage '{storage}' does not exist"));
    }
    config.active.remove(key);
    if frees {
        world.free(&volume);
    } else if is_mount(key) && volume.contains(':') {
        config.add_unused(&volume);
    }
    Ok(())
}

fn replace_mount(config: &mut Config, key: &str, printed: &str) {
    let volume = |value: &str| value.split(',').next().unwrap_or_default().to_owned();
    if let Some(old) = config.active.get(key).map(|old| volume(old))
        && old != volume(printed)
        && old.contains(':')
    {
        config.add_unused(&old);
    }
    drop_unused(config, printed);
}

/// A volume that is attached again leaves the list of unused ones.
fn drop_unused(config: &mut Config, printed: &str) {
    let volume = printed.split(',').next().unwrap_or_default();
    config.active.retain(|key, value| !key.starts_with("unused") || value != volume);
}
