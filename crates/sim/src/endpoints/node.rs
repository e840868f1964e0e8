//! Version, indexes, and the node itself.

use serde_json::{Value, json};

use super::Context;
use crate::reply::Success;
use evenkeel_core::model::release::Release;

/// Package version and build id per release.
fn package(release: Release) -> (String, &'static str) {
    match (release.major, release.minor) {
        (7, 4) => ("7.4-20".into(), "6d7b0f3ba0dbd87c"),
        (8, 4) => ("8.4.21".into(), "2606ac850d46da29"),
        (9, 2) => ("9.2.11".into(), "14a22df35955d97d"),
        (major, minor) => (format!("{major}.{minor}.1"), "0123456789abcdef"),
    }
}

pub(super) fn version(cx: &Context<'_>) -> Success {
    let release = cx.world.release();
    let (version, repoid) = package(release);
    json!({"release": release.to_string(), "version": version, "repoid": repoid}).into()
}

pub(super) fn index(cx: &Context<'_>) -> Success {
    let names: &[&str] = match cx.holes.len() {
        0 => &["version", "cluster", "nodes", "storage", "access", "pools"],
        1 => &["qemu", "lxc", "tasks", "storage", "vzdump", "status", "version"],
        _ => &["status", "content"],
    };
    names.iter().map(|name| json!({"subdir": name})).collect::<Value>().into()
}

/// What the node reports about itself; a machine of two processors and 24 GiB.
const MEMORY_BYTES: u64 = 25_274_793_984;
const DISK_BYTES: u64 = 270_553_174_016;

pub(super) fn summary(cx: &Context<'_>) -> Value {
    let node = &cx.world.node;
    let mut entry = json!({
        "id": format!("node/{node}"), "node": node, "type": "node", "status": "online", "level": "",
    });
    if cx.may(&format!("/nodes/{node}"), &["Sys.Audit"])
        && let Some(entry) = entry.as_object_mut()
    {
        let numbers = json!({
            "cpu": 0.05, "maxcpu": 2, "mem": 1_860_435_968_u64, "maxmem": MEMORY_BYTES,
            "disk": 24_331_468_800_u64, "maxdisk": DISK_BYTES, "uptime": 2000 + cx.now_ms / 1000,
        });
        entry.extend(numbers.as_object().cloned().unwrap_or_default());
    }
    entry
}

pub(super) fn nodes(cx: &Context<'_>) -> Success {
    let mut entry = summary(cx);
    entry["ssl_fingerprint"] = json!(FINGERPRINT);
    json!([entry]).into()
}

/// Shown in listings; clients pin what the connection presents, not this.
const FINGERPRINT: &str = "47:ED:A3:AF:AE:23:F9:7F:72:5E:C8:FB:98:95:2E:77:0C:15:3D:93:FB:3B:D3:C2:B6:BC:6E:02:63:0C:4F:96";

pub(super) fn status(cx: &Context<'_>) -> Success {
    let (version, repoid) = package(cx.world.release());
    json!({
        "uptime": 2000 + cx.now_ms / 1000,
        "pveversion": format!("pve-manager/{version}/{repoid}"),
        "kversion": "Linux 6.8.12-1-pve #1 SMP PREEMPT_DYNAMIC",
        "cpu": 0.05, "idle": 0, "wait": 0,
        "boot-info": {"mode": "legacy-bios"},
        "cpuinfo": {"cpus": 2, "cores": 2, "sockets": 1, "model": "Simulated", "mhz": "2400.000", "hvm": "1", "user_hz": 100, "flags": "fpu"},
        "current-kernel": {"sysname": "Linux", "release": "6.8.12-1-pve", "machine": "x86_64", "version": "#1 SMP"},
        "ksm": {"shared": 0},
        "loadavg": ["0.10", "0.10", "0.10"],
        "memory": {"total": MEMORY_BYTES, "used": 1_860_435_968_u64, "free": 23_414_358_016_u64},
        "rootfs": {"total": DISK_BYTES, "used": 24_331_468_800_u64, "free": 246_221_705_216_u64, "avail": 73_241_272_320_u64},
        "swap": {"total": 0, "used": 0, "free": 0},
    })
    .into()
}
