//! Reading guests: list, config, waiting changes, status, features.

use evenkeel_core::model::id::{GuestId, GuestKind};
use evenkeel_core::model::release::Release;
use serde_json::{Map, Value, json};

use super::{Answer, Context};
use crate::config::{Section, typed};
use crate::property::parse_size;
use crate::reply::{ReplyFailure, Success};
use crate::world::{SimGuest, SimPower, World, is_disk_key};

/// What a written password is shown as.
const MASK: &str = "**********";
/// A container without a size in its config is shown with this one.
const ASSUMED_ROOT_BYTES: u64 = 4 << 30;

/// The name in lists.
pub(super) fn name(guest: &SimGuest) -> String {
    let (key, default) = match guest.id.kind {
        GuestKind::Lxc => ("hostname", format!("CT{}", guest.id.vmid)),
        GuestKind::Qemu => ("name", format!("VM {}", guest.id.vmid)),
    };
    guest.config.get(key).map_or(default, str::to_owned)
}

/// The numbers of lists and status.
pub(super) fn numbers(world: &World, guest: &SimGuest, now_ms: u64) -> Map<String, Value> {
    let config = &guest.config;
    let number =
        |key: &str| -> Option<u64> { config.get(key)?.trim_start_matches("current=").parse().ok() };
    let main_disk = match guest.id.kind {
        GuestKind::Lxc => config.get("rootfs"),
        GuestKind::Qemu => boot_disk(&config.active),
    };
    let size = main_disk.and_then(|v| v.split(',').find_map(|part| part.strip_prefix("size=")));
    let size = size.and_then(parse_size).unwrap_or(match guest.id.kind {
        GuestKind::Lxc => ASSUMED_ROOT_BYTES,
        GuestKind::Qemu => 0,
    });
    let cpus = match guest.id.kind {
        GuestKind::Lxc => number("cores").unwrap_or(2),
        GuestKind::Qemu => number("cores").unwrap_or(1) * number("sockets").unwrap_or(1),
    };
    let uptime = match guest.power {
        SimPower::Stopped => 0,
        SimPower::Running { since_ms, .. } | SimPower::Prelaunch { since_ms, .. } => {
            now_ms.saturating_sub(since_ms) / 1000
        }
    };
    let mut all = json!({
        "vmid": guest.id.vmid.get(), "name": name(guest), "status": if guest.power.is_running() { "running" } else { "stopped" },
        "cpus": cpus, "maxmem": number("memory").unwrap_or(512).saturating_mul(1 << 20), "maxdisk": size, "uptime": uptime,
        "cpu": 0, "mem": 0, "disk": 0, "netin": 0, "netout": 0,
    });
    if let SimPower::Running { pid, .. } | SimPower::Prelaunch { pid, .. } = guest.power {
        all["pid"] = json!(pid);
        all["mem"] = json!(64_u64 << 20);
    }
    if guest.id.kind == GuestKind::Lxc {
        all["type"] = json!("lxc");
        all["swap"] = json!(0);
        all["maxswap"] = json!(number("swap").unwrap_or(0).saturating_mul(1 << 20));
    }
    if guest.id.kind == GuestKind::Lxc || guest.power.is_running() {
        all["diskread"] = json!(0);
        all["diskwrite"] = json!(0);
    }
    for key in ["lock", "tags"] {
        if let Some(value) = config.get(key).filter(|value| !value.is_empty()) {
            all[key] = json!(value);
        }
    }
    if config.is_set("template") {
        all["template"] = json!(1);
    }
    debug_assert!(world.guests.contains_key(&guest.id.vmid.get()));
    all.as_object().cloned().unwrap_or_default()
}

fn boot_disk(section: &Section) -> Option<&str> {
    let order =
        section.get("boot").and_then(|boot| boot.strip_prefix("order=")).unwrap_or_default();
    let listed = order
        .split(';')
        .find(|key| is_disk_key(GuestKind::Qemu, key) && section.contains_key(*key));
    let key = match listed {
        Some(key) => key.to_owned(),
        None => section
            .keys()
            .find(|key| is_disk_key(GuestKind::Qemu, key) && !key.starts_with("unused"))?
            .clone(),
    };
    section.get(&key).map(String::as_str)
}

pub(super) fn list(cx: &Context<'_>) -> Success {
    let guests = cx.world.guests.values().filter(|guest| Some(guest.id.kind) == cx.kind);
    let visible = guests.filter(|guest| cx.may(&format!("/vms/{}", guest.id.vmid), &["VM.Audit"]));
    visible
        .map(|guest| Value::Object(numbers(cx.world, guest, cx.now_ms)))
        .collect::<Value>()
        .into()
}

pub(super) fn index(cx: &Context<'_>) -> Success {
    let names: &[&str] = match (cx.hole("snapname"), cx.kind) {
        ("", _) => &[
            "config", "pending", "status", "clone", "rrd", "rrddata", "firewall", "snapshot",
            "resize",
        ],
        (_, _) => &["config", "rollback"],
    };
    let key = if cx.hole("snapname").is_empty() { "subdir" } else { "cmd" };
    names.iter().map(|name| json!({key: name})).collect::<Value>().into()
}

/// A section as JSON, secrets masked.
pub(super) fn section_json(
    kind: GuestKind,
    section: &Section,
    release: Release,
) -> Map<String, Value> {
    let shown = section.iter().map(|(key, value)| {
        let value = match key.as_str() {
            "cipassword" => json!(MASK),
            _ => typed(kind, key, value, release),
        };
        (key.clone(), value)
    });
    shown.collect()
}

/// From 9.1 on a container's environment makes its config unreadable to mere auditors.
fn check_environment(cx: &Context<'_>, guest: GuestId) -> Result<(), ReplyFailure> {
    let config = cx.file(guest)?;
    let set = config.active.contains_key("env") || config.pending.contains_key("env");
    if set && cx.world.release() >= Release::V9_1 {
        return cx.need(&format!("/vms/{}", guest.vmid), &["VM.Config.Options"]);
    }
    Ok(())
}

pub(super) fn config(cx: &Context<'_>) -> Answer {
    let guest = cx.guest()?;
    let release = cx.world.release();
    if let (Some(_), true) = (cx.text("snapshot"), cx.flag("current")) {
        let message = "cannot use 'snapshot' parameter with 'current'".to_owned();
        let errors = [("snapshot".to_owned(), message.clone()), ("current".to_owned(), message)];
        return Err(ReplyFailure::Params(errors.into()));
    }
    let config = cx.file(guest)?;
    check_environment(cx, guest)?;
    let section = match cx.text("snapshot") {
        Some(name) => match config.snapshot(name) {
            Some(snapshot) => snapshot.section.clone(),
            None => return Err(ReplyFailure::Died(format!("snapshot '{name}' does not exist"))),
        },
        None if cx.flag("current") => config.active.clone(),
        None => config.merged(),
    };
    let mut data = section_json(guest.kind, &section, release);
    data.insert("digest".into(), json!(config.digest(guest.kind)));
    if !config.raw.is_empty() {
        data.insert("lxc".into(), json!(config.raw));
    }
    Ok(Value::Object(data).into())
}

pub(super) fn pending(cx: &Context<'_>) -> Answer {
    let guest = cx.guest()?;
    let release = cx.world.release();
    let config = cx.file(guest)?;
    check_environment(cx, guest)?;
    let mut rows = Vec::new();
    let active = section_json(guest.kind, &config.active, release);
    let waiting = section_json(guest.kind, &config.pending, release);
    for (key, value) in &active {
        let mut row = json!({"key": key, "value": value});
        if let Some(value) = waiting.get(key) {
            row["pending"] = match key.as_str() {
                "cipassword" => json!(format!("{MASK} ")),
                _ => value.clone(),
            };
        }
        if let Some(force) = config.pending_delete.get(key) {
            row["delete"] = json!(if *force { 2 } else { 1 });
        }
        rows.push(row);
    }
    for (key, value) in waiting.iter().filter(|(key, _)| !active.contains_key(*key)) {
        rows.push(json!({"key": key, "pending": value}));
    }
    rows.push(json!({"key": "digest", "value": config.digest(guest.kind)}));
    Ok(Value::Array(rows).into())
}

pub(super) fn status(cx: &Context<'_>) -> Answer {
    let id = cx.guest()?;
    cx.file(id)?;
    let Some(guest) = cx.world.guest(id) else { return Err(ReplyFailure::died("guest vanished")) };
    let mut all = numbers(cx.world, guest, cx.now_ms);
    all.insert("ha".into(), super::ha::of_guest(cx, id));
    if id.kind == GuestKind::Qemu {
        all.insert("qmpstatus".into(), json!(guest.power.word()));
        let agent = guest.config.get("agent").unwrap_or_default();
        if agent.split(',').any(|part| matches!(part, "1" | "enabled=1")) {
            all.insert("agent".into(), json!(1));
        }
        if guest.config.active.keys().any(|key| key.starts_with("serial")) {
            all.insert("serial".into(), json!(1));
        }
    } else if cx.world.release() >= Release::V9_0 && guest.power.is_running() {
        for name in ["cpusome", "cpufull", "iosome", "iofull", "memorysome", "memoryfull"] {
            all.insert(format!("pressure{name}"), Value::Null);
        }
    }
    Ok(Value::Object(all).into())
}

pub(super) fn feature(cx: &Context<'_>) -> Answer {
    let guest = cx.guest()?;
    let config = cx.file(guest)?;
    let has = match cx.text("feature") {
        Some("snapshot") => crate::job::snapshots_available(cx.world, guest, config),
        Some("clone") => {
            config.is_set("template") && crate::job::snapshots_available(cx.world, guest, config)
        }
        Some(_) | None => true,
    };
    let mut data = json!({"hasFeature": u8::from(has)});
    if guest.kind == GuestKind::Qemu {
        data["nodes"] = json!([cx.world.node]);
    }
    Ok(data.into())
}

pub(super) fn interfaces(cx: &Context<'_>) -> Answer {
    let guest = cx.guest()?;
    let config = cx.file(guest)?;
    let mut all = vec![
        json!({"name": "lo", "hwaddr": "00:00:00:00:00:00", "hardware-address": "00:00:00:00:00:00", "ip-addresses": []}),
    ];
    for (_, value) in config.active.iter().filter(|(key, _)| crate::world::is_net_key(key)) {
        let part = |name: &str| {
            value.split(',').find_map(|p| p.strip_prefix(name)).unwrap_or_default().to_lowercase()
        };
        let mac = part("hwaddr=");
        all.push(json!({"name": part("name="), "hwaddr": mac, "hardware-address": mac, "ip-addresses": []}));
    }
    Ok(Value::Array(all).into())
}

/// An hour of minutes without values: nobody measures here.
pub(super) fn rrd(cx: &Context<'_>) -> Answer {
    cx.file(cx.guest()?)?;
    let now = cx.world.unix(cx.now_ms) / 60 * 60;
    Ok((0..70).map(|minute| json!({"time": now - 60 * (69 - minute)})).collect::<Value>().into())
}

pub(super) fn cloud_init(cx: &Context<'_>) -> Answer {
    let guest = cx.guest()?;
    let config = cx.file(guest)?;
    let keys = [
        "cicustom",
        "cipassword",
        "citype",
        "ciuser",
        "nameserver",
        "searchdomain",
        "sshkeys",
        "ipconfig0",
    ];
    let shown = section_json(guest.kind, &config.merged(), cx.world.release());
    let rows = keys.iter().filter_map(|key| Some(json!({"key": key, "value": shown.get(*key)?})));
    Ok(rows.collect::<Value>().into())
}

pub(super) fn regenerate_cloud_init(cx: &Context<'_>) -> Answer {
    let guest = cx.guest()?;
    crate::write::check_lock(guest, cx.file(guest)?)?;
    Ok(Value::Null.into())
}
