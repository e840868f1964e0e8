//! Cluster-wide reads: resources as last broadcast, next free number, options, log.

use std::collections::BTreeMap;

use evenkeel_core::model::id::GuestKind;
use evenkeel_core::model::release::Release;
use serde_json::{Map, Value, json};

use super::{Answer, Context, guests};
use crate::reply::{ReplyFailure, Success};
use crate::world::{OTHER_NODE, SimPower, World};

/// What the statistics daemon saw of one guest; ten seconds old, or older.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ClusterView {
    /// When it was seen.
    at_ms: u64,
    power: SimPower,
    template: bool,
    numbers: Map<String, Value>,
}

/// What was seen of a guest is forgotten after so long, and no sooner: also not when the guest has gone.
const REMEMBERED_MS: u64 = 300_000;

/// Takes the picture the cluster will show until the next broadcast. Whoever lags is overlooked, and whoever has gone
/// leaves the picture there, for the next guest of that number to be shown with.
pub(crate) fn broadcast(
    world: &World,
    seen: &mut BTreeMap<u32, ClusterView>,
    lagging: &BTreeMap<u32, u64>,
    now_ms: u64,
) {
    seen.retain(|_, view| view.at_ms + REMEMBERED_MS > now_ms);
    for (vmid, guest) in &world.guests {
        if lagging.contains_key(vmid) {
            if let Some(view) = seen.get_mut(vmid) {
                view.at_ms = now_ms;
            }
            continue;
        }
        let view = ClusterView {
            at_ms: now_ms,
            power: guest.power,
            template: guest.config.is_set("template"),
            numbers: guests::numbers(world, guest, now_ms),
        };
        seen.insert(*vmid, view);
    }
}

pub(super) fn next_id(cx: &Context<'_>) -> Answer {
    match cx.text("vmid") {
        None => Ok(json!(cx.world.next_id().to_string()).into()),
        Some(vmid) => match vmid.parse::<u32>().ok().filter(|id| cx.world.is_taken(*id)) {
            Some(_) => Err(ReplyFailure::param("vmid", format!("VM {vmid} already exists"))),
            None => Ok(json!(vmid).into()),
        },
    }
}

pub(super) fn options(cx: &Context<'_>) -> Success {
    if !cx.may("/", &["Sys.Audit"]) {
        return json!({}).into();
    }
    let mut options: Map<String, Value> =
        cx.world.options.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
    options.entry("mac_prefix").or_insert_with(|| json!("BC:24:11"));
    if let Some(style) = cx.world.options.get("tag-style") {
        let parts = style.split(',').filter_map(|part| part.split_once('='));
        let parts: Map<String, Value> = parts.map(|(k, v)| (k.to_owned(), json!(v))).collect();
        options.insert("tag-style".into(), parts.into());
    }
    Value::Object(options).into()
}

pub(super) fn set_options(cx: &mut Context<'_>) -> Success {
    let gone = cx.text("delete").unwrap_or_default().to_owned();
    for name in crate::format::split_list(&gone) {
        cx.world.options.remove(name);
    }
    for name in cx.params.keys().filter(|name| *name != "delete") {
        if let Some(value) = cx.text(name).map(str::to_owned) {
            cx.world.options.insert(name.clone(), value);
        }
    }
    Value::Null.into()
}

pub(super) fn status(cx: &Context<'_>) -> Success {
    let node = &cx.world.node;
    let one = |name: &str, number: u8, local: bool, online: bool| {
        json!({"type": "node", "id": format!("node/{name}"), "name": name, "nodeid": number,
            "ip": format!("127.0.0.{}", number.max(1)), "local": u8::from(local), "online": u8::from(online), "level": ""})
    };
    if !cx.world.clustered {
        return json!([one(node, 0, true, true)]).into();
    }
    let quorate = cx.world.quorate;
    json!([
        {"type": "cluster", "id": "cluster", "name": "sim", "nodes": 2, "quorate": u8::from(quorate), "version": 2},
        one(node, 1, true, true),
        one(OTHER_NODE, 2, false, quorate),
    ])
    .into()
}

pub(super) fn log(cx: &Context<'_>) -> Success {
    if !cx.may("/", &["Sys.Syslog"]) {
        return json!([]).into();
    }
    let max = usize::try_from(cx.number("max").unwrap_or(50)).unwrap_or(usize::MAX);
    let lines = cx.world.cluster_log.iter().enumerate().rev().take(max);
    lines
        .map(|(uid, (time, user, message))| {
            json!({"uid": uid, "time": time, "node": cx.world.node, "user": user, "msg": message, "tag": "pvedaemon", "pri": 6, "pid": 1000})
        })
        .collect::<Value>()
        .into()
}

pub(super) fn resources(cx: &Context<'_>) -> Success {
    let wanted = cx.text("type");
    let wants = |kind: &str| wanted.is_none_or(|wanted| wanted == kind);
    let mut all: Vec<Value> = Vec::new();
    if wants("vm") {
        for guest in cx.world.guests.values() {
            if cx.may(&format!("/vms/{}", guest.id.vmid), &["VM.Audit"]) {
                all.push(guest_resource(cx, guest));
            }
        }
        for away in cx.world.elsewhere.values() {
            let id = away.guest.id;
            if cx.may(&format!("/vms/{}", id.vmid), &["VM.Audit"]) {
                all.push(json!({
                    "id": id.to_string(), "vmid": id.vmid.get(), "type": id.kind.as_str(), "node": OTHER_NODE,
                    "status": if away.guest.power.is_running() { "running" } else { "stopped" },
                    "name": guests::name(&away.guest), "template": u8::from(away.guest.config.is_set("template")),
                }));
            }
        }
    }
    let node = &cx.world.node;
    if wants("node") {
        let mut entry = super::node::summary(cx);
        entry["cgroup-mode"] = json!(2);
        all.push(entry);
    }
    if wants("storage") {
        for (name, storage) in &cx.world.storages {
            if cx.may(&format!("/storage/{name}"), &["Datastore.Audit", "Datastore.AllocateSpace"])
            {
                let content: Vec<&str> = storage.content.iter().map(String::as_str).collect();
                let status =
                    if cx.unseen_storages.contains(name) { "unknown" } else { "available" };
                all.push(json!({
                    "id": format!("storage/{node}/{name}"), "type": "storage", "storage": name, "node": node,
                    "status": status, "plugintype": storage.kind.as_str(), "shared": 0,
                    "content": content.join(","), "disk": storage.used_bytes(), "maxdisk": storage.total_bytes,
                }));
            }
        }
    }
    if wants("sdn") && cx.may("/sdn/zones/localnetwork", &["SDN.Audit", "SDN.Use"]) {
        all.push(if cx.world.release() >= Release::V9_0 {
            json!({"id": format!("network/{node}/zone/localnetwork"), "type": "network", "network": "localnetwork", "network-type": "zone", "node": node, "status": "ok"})
        } else {
            json!({"id": format!("sdn/{node}/localnetwork"), "type": "sdn", "sdn": "localnetwork", "node": node, "status": "ok"})
        });
    }
    Value::Array(all).into()
}

/// Lock, tags and pool are read live; everything else is as old as the last broadcast, and may be another guest's.
fn guest_resource(cx: &Context<'_>, guest: &crate::world::SimGuest) -> Value {
    let id = guest.id;
    let mut entry = json!({
        "id": id.to_string(), "vmid": id.vmid.get(), "type": id.kind.as_str(), "node": cx.world.node,
        "status": "unknown",
    });
    for key in ["lock", "tags"] {
        if let Some(value) = guest.config.get(key).filter(|value| !value.is_empty()) {
            entry[key] = json!(value);
        }
    }
    let pool = cx.world.pool_of.get(&id.vmid.get());
    // Who may not see the pool is not told of it.
    if let Some(pool) = pool.filter(|pool| cx.may(&format!("/pool/{pool}"), &["Pool.Audit"])) {
        entry["pool"] = json!(pool);
    }
    let Some(seen) = cx.seen.get(&id.vmid.get()) else { return entry };
    entry["status"] = json!(match (id.kind, seen.power.word()) {
        (GuestKind::Lxc, "paused") => "running",
        (GuestKind::Lxc | GuestKind::Qemu, status) => status,
    });
    entry["template"] = json!(u8::from(seen.template));
    for key in [
        "name",
        "maxmem",
        "maxdisk",
        "disk",
        "mem",
        "cpu",
        "netin",
        "netout",
        "diskread",
        "diskwrite",
        "uptime",
    ] {
        entry[key] = seen.numbers.get(key).cloned().unwrap_or(json!(0));
    }
    entry["maxcpu"] = seen.numbers.get("cpus").cloned().unwrap_or(json!(1));
    if cx.world.release() >= Release::V9_0 {
        entry["memhost"] = json!(0);
    }
    entry
}
