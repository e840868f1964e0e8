//! Which privilege each config key needs, and what no token may ever set.

use std::collections::BTreeSet;

use evenkeel_core::model::id::{GuestId, GuestKind};
use evenkeel_core::model::release::Release;

use super::WriteChange;
use crate::access::Identity;
use crate::config::Config;
use crate::property;
use crate::reply::ReplyFailure;
use crate::schema::Schema;
use crate::world::{World, is_disk_key, is_net_key};

/// Refuses a change the caller may not make. `config` is the guest's file, empty for a new guest.
pub(crate) fn check(
    world: &World,
    who: &Identity,
    id: GuestId,
    change: &WriteChange,
    config: &Config,
    unprivileged: bool,
) -> Result<(), ReplyFailure> {
    if who.is_root() {
        return Ok(());
    }
    registered_tags(world, who, change, config)?;
    let set = change.set.iter().map(|(key, value)| (key, value.as_deref().unwrap_or_default()));
    let gone = change.delete.iter().chain(&change.revert).map(|key| (key, ""));
    for (key, value) in set.chain(gone) {
        match id.kind {
            GuestKind::Lxc => lxc(world, who, id, key, value, config, unprivileged)?,
            GuestKind::Qemu => qemu(world, who, id, key, value)?,
        }
    }
    Ok(())
}

/// Tags that are registered in the datacenter's options are an administrator's to add and to take away.
fn registered_tags(
    world: &World,
    who: &Identity,
    change: &WriteChange,
    config: &Config,
) -> Result<(), ReplyFailure> {
    let split = |text: &str| -> BTreeSet<String> {
        crate::format::split_list(text).into_iter().map(str::to_lowercase).collect()
    };
    let deleted = change.delete.iter().any(|key| key == "tags").then_some(None);
    let Some(new) = change.set.get("tags").cloned().or(deleted) else { return Ok(()) };
    let new = split(&new.unwrap_or_default());
    let old = split(config.get("tags").unwrap_or_default());
    let registered = split(world.options.get("registered-tags").map_or("", String::as_str));
    let changed = old.symmetric_difference(&new).find(|tag| registered.contains(*tag));
    match changed {
        Some(tag) if !world.access.may(who, "/", &["Sys.Modify"], world.release()) => {
            Err(ReplyFailure::Denied(format!("/, Sys.Modify for modifying tag '{tag}'")))
        }
        Some(_) | None => Ok(()),
    }
}

fn need(world: &World, who: &Identity, path: &str, any: &[&str]) -> Result<(), ReplyFailure> {
    if world.access.may(who, path, any, world.release()) {
        return Ok(());
    }
    Err(ReplyFailure::Denied(format!("{path}, {}", any.join("|"))))
}

fn lxc(
    world: &World,
    who: &Identity,
    id: GuestId,
    key: &str,
    value: &str,
    config: &Config,
    unprivileged: bool,
) -> Result<(), ReplyFailure> {
    let path = format!("/vms/{}", id.vmid);
    let need_vm = |privilege: &str| need(world, who, &path, &[privilege]);
    let root_only =
        |what: &str| Err(ReplyFailure::Denied(format!("{what} is only allowed for root@pam")));
    match key {
        "cores" | "cpulimit" | "cpuunits" => need_vm("VM.Config.CPU"),
        "memory" | "swap" => need_vm("VM.Config.Memory"),
        "nameserver" | "searchdomain" | "hostname" => need_vm("VM.Config.Network"),
        "hookscript" => root_only("changing the hookscript"),
        "features" => features(world, who, &path, value, config, unprivileged),
        _ if key.starts_with("dev") => root_only("configuring device passthrough"),
        _ if is_net_key(key) => {
            need_vm("VM.Config.Network")?;
            bridge(world, who, "lxc-net", value)
        }
        _ if key == "rootfs" || key.starts_with("mp") => {
            need_vm("VM.Config.Disk")?;
            let format = if key == "rootfs" { "lxc-rootfs" } else { "lxc-mp" };
            let read = property::parse(Schema::shared(), format, value, world.release());
            match read.unwrap_or_default().get("volume").map(String::as_str) {
                Some(device) if device.starts_with("/dev/") => root_only("mount point type device"),
                Some(path) if path.starts_with('/') => root_only("mount point type bind"),
                Some(volume) => space(world, who, volume),
                None => Ok(()),
            }
        }
        _ => need_vm("VM.Config.Options"),
    }
}

/// A new volume needs space on its storage, and the storage must exist.
fn space(world: &World, who: &Identity, volume: &str) -> Result<(), ReplyFailure> {
    let Some((storage, _)) = super::disk::wanted_size(volume) else { return Ok(()) };
    if !world.storages.contains_key(storage) {
        return Err(ReplyFailure::Died(format!("storage '{storage}' does not exist")));
    }
    need(world, who, &format!("/storage/{storage}"), &["Datastore.AllocateSpace"])
}

fn features(
    world: &World,
    who: &Identity,
    path: &str,
    value: &str,
    config: &Config,
    unprivileged: bool,
) -> Result<(), ReplyFailure> {
    let denied =
        |what: &str| Err(ReplyFailure::Denied(format!("{what} is only allowed for root@pam")));
    if !unprivileged {
        return denied("changing feature flags for privileged container");
    }
    let read = |text: &str| {
        property::parse(Schema::shared(), "lxc-features", text, world.release()).unwrap_or_default()
    };
    let old = read(config.get("features").unwrap_or_default());
    let new = read(value);
    let changed = |name: &String| old.get(name) != new.get(name);
    if old.keys().chain(new.keys()).any(|name| name != "nesting" && changed(name)) {
        return denied("changing feature flags (except nesting)");
    }
    need(world, who, path, &["VM.Allocate"])
}

/// From 8.0 on using a bridge is a right of its own.
fn bridge(world: &World, who: &Identity, format: &str, value: &str) -> Result<(), ReplyFailure> {
    let release = world.release();
    if value.is_empty() || release < Release::V8_0 {
        return Ok(());
    }
    let net = property::parse(Schema::shared(), format, value, release).unwrap_or_default();
    match net.get("bridge") {
        Some(bridge) => {
            let path = format!("/sdn/zones/localnetwork/{bridge}");
            need(world, who, &path, &["SDN.Use"])
        }
        // Only the 8.x check for containers insists on a bridge.
        None if format == "lxc-net" && release < Release::V9_0 => {
            Err(ReplyFailure::died("no sdn vnet ID specified"))
        }
        None => Ok(()),
    }
}

/// A device or a directory of the host is used by its mapping, which is a right of its own.
fn mapping(world: &World, who: &Identity, kind: &str, value: &str) -> Result<(), ReplyFailure> {
    let named = value.split(',').find_map(|part| part.strip_prefix("mapping="));
    let first = value.split(',').next().filter(|part| !part.is_empty() && !part.contains('='));
    // The directory's name may stand without its key.
    let named = named.or_else(|| first.filter(|_| kind == "dir"));
    let dirid = value.split(',').find_map(|part| part.strip_prefix("dirid="));
    match named.or(dirid) {
        Some(id) => need(world, who, &format!("/mapping/{kind}/{id}"), &["Mapping.Use"]),
        None => Ok(()),
    }
}

/// Keys of a machine that only a root session may touch.
const ROOT_ONLY: [&str; 13] = [
    "affinity",
    "amd-sev",
    "arch",
    "args",
    "hookscript",
    "hugepages",
    "intel-tdx",
    "ivshmem",
    "keephugepages",
    "lock",
    "spice_enhancements",
    "vmgenid",
    "parallel",
];

fn qemu(
    world: &World,
    who: &Identity,
    id: GuestId,
    key: &str,
    value: &str,
) -> Result<(), ReplyFailure> {
    let path = format!("/vms/{}", id.vmid);
    let need_vm = |any: &[&str]| need(world, who, &path, any);
    let root_only = || Err(ReplyFailure::Died(format!("only root can set '{key}' config")));
    let stem = key.trim_end_matches(|c: char| c.is_ascii_digit());
    let first = value.split(',').next().unwrap_or_default();
    match stem {
        _ if ROOT_ONLY.contains(&stem) || ROOT_ONLY.contains(&key) => root_only(),
        "rng" if world.release() < Release::V8_0 => root_only(),
        "serial" if !matches!(first, "" | "socket") => root_only(),
        "usb"
            if !first.is_empty()
                && first != "spice"
                && first != "host=spice"
                && !value.contains("mapping=") =>
        {
            root_only()
        }
        "hostpci" if !value.is_empty() && !value.contains("mapping=") => root_only(),
        "cores" | "cpu" | "cpulimit" | "cpuunits" | "numa" | "smp" | "sockets" | "vcpus" => {
            need_vm(&["VM.Config.CPU"])
        }
        "memory" | "balloon" | "shares" | "allow-ksm" => need_vm(&["VM.Config.Memory"]),
        "acpi" | "hotplug" | "kvm" | "machine" | "scsihw" | "smbios" | "tablet" | "vga"
        | "watchdog" | "audio" | "rng" | "serial" => need_vm(&["VM.Config.HWType"]),
        "usb" | "hostpci" => {
            need_vm(&["VM.Config.HWType"])?;
            mapping(world, who, if stem == "usb" { "usb" } else { "pci" }, value)
        }
        "virtiofs" => {
            need_vm(&["VM.Config.Disk"])?;
            mapping(world, who, "dir", value)
        }
        "startup" => {
            need_vm(&["VM.Config.Options"])?;
            need(world, who, "/", &["Sys.Modify"])
        }
        "freeze" => need_vm(&["VM.PowerMgmt"]),
        "boot" | "bootdisk" | "vmstatestorage" => need_vm(&["VM.Config.Disk"]),
        "net" => {
            need_vm(&["VM.Config.Network"])?;
            bridge(world, who, "qm-net", value)
        }
        "cicustom" | "cipassword" | "citype" | "ciupgrade" | "ciuser" | "ipconfig"
        | "nameserver" | "searchdomain" | "sshkeys" => {
            need_vm(&["VM.Config.Cloudinit", "VM.Config.Network"])
        }
        _ if is_disk_key(GuestKind::Qemu, key) => {
            if value.contains("media=cdrom") || first == "none" {
                return need_vm(&["VM.Config.CDROM"]);
            }
            need_vm(&["VM.Config.Disk"])?;
            space(world, who, first.strip_prefix("file=").unwrap_or(first))
        }
        _ => need_vm(&["VM.Config.Options"]),
    }
}
