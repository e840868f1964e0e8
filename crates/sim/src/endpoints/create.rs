//! New guests, copies, templates, and the end of guests.

use evenkeel_core::id::{GuestId, GuestKind, VmId};
use evenkeel_core::release::Release;
use serde_json::Value;

use super::{Answer, Context};
use crate::config::{Config, stored_description};
use crate::job::TaskJob;
use crate::property;
use crate::reply::ReplyFailure;
use crate::request::Param;
use crate::schema::Schema;
use crate::world::{OTHER_NODE, SimPower, is_disk_key, is_net_key};
use crate::write::{self, WriteChange, rights};

/// Creating waits only this long for the file lock.
const STUB_WAIT_MS: u64 = 5_000;

fn word(kind: GuestKind) -> &'static str {
    match kind {
        GuestKind::Lxc => "CT",
        GuestKind::Qemu => "VM",
    }
}

/// `CT 100 already exists on node 'pve1'`, or nothing.
fn taken(cx: &Context<'_>, vmid: VmId) -> Option<String> {
    if let Some(away) = cx.world.elsewhere.get(&vmid.get()) {
        let kind = away.guest.id.kind;
        return Some(format!("{} {vmid} already exists on node '{OTHER_NODE}'", word(kind)));
    }
    let guest = cx.world.guests.get(&vmid.get())?;
    Some(format!("{} {vmid} already exists on node '{}'", word(guest.id.kind), cx.world.node))
}

pub(super) fn create(cx: &mut Context<'_>) -> Answer {
    let guest = cx.guest_of(cx.text("vmid").unwrap_or_default())?;
    let release = cx.world.release();
    check_rights(cx, guest)?;
    let restore = cx.flag("restore") || cx.text("archive").is_some();
    check_options(cx, guest, restore)?;
    let change = given_keys(cx, guest.kind);
    let unprivileged = match cx.text("unprivileged") {
        Some(text) => text == "1",
        None => release >= Release::V9_0,
    };
    if guest.kind == GuestKind::Lxc
        && release >= Release::V9_0
        && !unprivileged
        && !cx.who.is_root()
    {
        cx.need("/", &["Sys.Modify"])?;
    }
    rights::check(cx.world, cx.who, guest, &change, &Config::default(), unprivileged)?;
    let exists = taken(cx, guest.vmid);
    if let Some(text) = exists.filter(|_| !(restore && cx.flag("force"))) {
        return Err(ReplyFailure::Died(format!(
            "unable to create {} {} - {text}",
            word(guest.kind),
            guest.vmid
        )));
    }
    cx.lock(guest, STUB_WAIT_MS)?;
    let config = match guest.kind {
        GuestKind::Lxc => new_container(cx, guest, &change, unprivileged),
        GuestKind::Qemu => new_machine(cx, &change),
    };
    if let Some(old) = cx.world.guests.remove(&guest.vmid.get()) {
        let values = old.config.active.iter().filter(|(key, _)| is_disk_key(guest.kind, key));
        for volid in values
            .map(|(_, v)| v.split(',').next().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
        {
            cx.world.free(&volid);
        }
    }
    cx.world.put_guest(guest, Config::of(&[("lock", "create")]), SimPower::Stopped);
    let (id, start) = (guest.vmid.to_string(), cx.flag("start"));
    if restore {
        let config = Box::new(config);
        let kind = match guest.kind {
            GuestKind::Lxc => "vzrestore",
            GuestKind::Qemu => "qmrestore",
        };
        return cx.fork(kind, &id, TaskJob::Restore { guest, config, start });
    }
    let broken = broken_template(cx, guest);
    let kind = match guest.kind {
        GuestKind::Lxc => "vzcreate",
        GuestKind::Qemu => "qmcreate",
    };
    cx.fork(kind, &id, TaskJob::Create { guest, config: Box::new(config), start, broken })
}

/// The config keys among the parameters.
fn given_keys(cx: &Context<'_>, kind: GuestKind) -> WriteChange {
    let release = cx.world.release();
    let mut change = WriteChange::default();
    for (name, value) in cx.params {
        if let (Some(_), Param::Text(text)) = (Schema::shared().key(kind, name, release), value) {
            change.set.insert(name.clone(), Some(text.clone()));
        }
    }
    change
}

fn check_rights(cx: &Context<'_>, guest: GuestId) -> Result<(), ReplyFailure> {
    if let Some(pool) = cx.text("pool").filter(|pool| !cx.world.pools.contains(*pool)) {
        return Err(ReplyFailure::Denied(format!("pool '{pool}' does not exist")));
    }
    if cx.may(&format!("/vms/{}", guest.vmid), &["VM.Allocate"]) {
        Ok(())
    } else {
        Err(ReplyFailure::Denied(String::new()))
    }
}

fn check_options(cx: &Context<'_>, guest: GuestId, restore: bool) -> Result<(), ReplyFailure> {
    for option in ["force", "unique"] {
        if cx.flag(option) && !restore {
            let needed = match guest.kind {
                GuestKind::Lxc => "restore",
                GuestKind::Qemu => "archive",
            };
            return Err(ReplyFailure::param(option, format!("missing property - '{needed}'")));
        }
    }
    if guest.kind == GuestKind::Qemu {
        return Ok(());
    }
    let rooted = cx.text("rootfs").is_some();
    let storage = cx.text("storage").unwrap_or("local");
    match cx.world.storages.get(storage) {
        None => Err(ReplyFailure::Died(format!("storage '{storage}' does not exist"))),
        Some(found) if !rooted && !found.content.contains("rootdir") => Err(ReplyFailure::param(
            "storage",
            format!("storage '{storage}' does not support container directories"),
        )),
        Some(_) if !rooted && cx.params.keys().any(|key| key.starts_with("mp")) => {
            Err(ReplyFailure::died("mount points configured, but 'rootfs' not set - aborting"))
        }
        Some(_) => check_archive(cx),
    }
}

fn check_archive(cx: &Context<'_>) -> Result<(), ReplyFailure> {
    let archive = cx.text("ostemplate").unwrap_or_default();
    match cx.world.volume(archive) {
        Some(_) => Ok(()),
        None => Err(ReplyFailure::Died(format!("volume '{archive}' does not exist"))),
    }
}

/// An archive too small to be one fails when it is unpacked.
fn broken_template(cx: &Context<'_>, guest: GuestId) -> Option<String> {
    const SMALLEST_ARCHIVE_BYTES: u64 = 1024;
    let archive = cx.text("ostemplate").filter(|_| guest.kind == GuestKind::Lxc)?;
    let volume =
        cx.world.volume(archive).filter(|volume| volume.size_bytes < SMALLEST_ARCHIVE_BYTES)?;
    debug_assert_eq!(volume.content, "vztmpl");
    Some("command 'tar xpf - -z --totals --one-file-system' failed: exit code 2".to_owned())
}

/// The operating system is guessed from the archive's name, as good as from its content.
fn detected_os(archive: &str) -> &'static str {
    const KNOWN: [&str; 9] = [
        "debian",
        "devuan",
        "ubuntu",
        "centos",
        "fedora",
        "opensuse",
        "archlinux",
        "alpine",
        "gentoo",
    ];
    KNOWN.into_iter().find(|name| archive.contains(name)).unwrap_or("unmanaged")
}

fn new_container(
    cx: &mut Context<'_>,
    guest: GuestId,
    change: &WriteChange,
    unprivileged: bool,
) -> Config {
    let storage = cx.text("storage").unwrap_or("local").to_owned();
    let archive = cx.text("ostemplate").unwrap_or_default();
    let mut config = Config::of(&[
        ("arch", "amd64"),
        ("memory", "512"),
        ("swap", "512"),
        ("ostype", detected_os(archive)),
    ]);
    config.active.insert("hostname".into(), format!("CT{}", guest.vmid));
    config.active.insert("rootfs".into(), format!("{storage}:4"));
    for (key, value) in &change.set {
        let text = value.clone().unwrap_or_default();
        let stored = match key.as_str() {
            _ if key.starts_with("unused") => None,
            "unprivileged" => None,
            "description" => stored_description(GuestKind::Lxc, &text),
            "tags" => Some(write::stored_tags(cx.world, &text)),
            "nameserver" | "searchdomain" => Some(crate::format::split_list(&text).join(" ")),
            "cpuunits" => Some(write::clamped_cpu_units(&text)),
            _ if is_net_key(key) => {
                let net = write::lxc::complete_net(cx.world, &text);
                Some(property::print(Schema::shared(), "lxc-net", &net))
            }
            // A bare number is a size on the default storage.
            _ if is_disk_key(GuestKind::Lxc, key)
                && text.split(',').next().is_some_and(|v| v.parse::<f64>().is_ok()) =>
            {
                Some(format!("{storage}:{text}"))
            }
            _ => Some(text),
        };
        if let Some(stored) = stored {
            config.active.insert(key.clone(), stored);
        }
    }
    if unprivileged {
        config.active.insert("unprivileged".into(), "1".into());
    } else if cx.text("unprivileged") == Some("0") {
        config.active.insert("unprivileged".into(), "0".into());
    }
    config
}

fn new_machine(cx: &mut Context<'_>, change: &WriteChange) -> Config {
    let release = cx.world.release();
    let mut config = Config::default();
    for (key, value) in &change.set {
        let text = value.clone().unwrap_or_default();
        let stored = match key.as_str() {
            _ if key.starts_with("unused") => None,
            "description" => stored_description(GuestKind::Qemu, &text),
            "tags" if release >= Release::V9_2 => Some(write::stored_tags(cx.world, &text)),
            "cipassword" => Some(format!("$5${:016x}$simulated", cx.world.random.next())),
            "cpuunits" => Some(write::clamped_cpu_units(&text)),
            _ if is_net_key(key) => Some(write::qemu::complete_net(cx.world, &text)),
            _ => Some(text),
        };
        if let Some(stored) = stored {
            config.active.insert(key.clone(), stored);
        }
    }
    let stamp = cx.world.unix(cx.now_ms);
    config.active.insert("meta".into(), format!("creation-qemu=9.2.0,ctime={stamp}"));
    let (smbios, generation) = (cx.world.random.uuid(), cx.world.random.uuid());
    config.active.entry("smbios1".into()).or_insert(format!("uuid={smbios}"));
    config.active.entry("vmgenid".into()).or_insert(generation);
    if !config.active.contains_key("boot") {
        let order = default_boot(&config);
        let boot =
            if order.is_empty() { String::new() } else { format!("order={}", order.join(";")) };
        config.active.insert("boot".into(), boot);
    }
    let windows = config.get("ostype").is_some_and(|os| os.starts_with('w'));
    if windows && config.get("machine").is_none() {
        config.active.insert("machine".into(), "pc-i440fx-9.2+pve1".into());
    }
    config
}

/// The first disk, the first CD-ROM, the first network card.
fn default_boot(config: &Config) -> Vec<String> {
    let drive = |cdrom: bool| {
        config.active.iter().find(|(key, value)| {
            is_disk_key(GuestKind::Qemu, key)
                && !key.starts_with("unused")
                && !matches!(key.as_str(), "efidisk0" | "tpmstate0")
                && (value.contains("media=cdrom") || value.contains(":cloudinit")) == cdrom
        })
    };
    let net = config.active.iter().find(|(key, _)| is_net_key(key));
    [drive(false), drive(true), net].into_iter().flatten().map(|(key, _)| key.clone()).collect()
}

pub(super) fn clone(cx: &mut Context<'_>) -> Answer {
    let source = cx.guest()?;
    let target = cx.guest_of(cx.text("newid").unwrap_or_default())?;
    let release = cx.world.release();
    cx.need(&format!("/vms/{}", target.vmid), &["VM.Allocate"])?;
    let config = match cx.file(source) {
        Ok(config) => config.clone(),
        Err(ReplyFailure::Died(_)) if source.kind == GuestKind::Qemu => {
            let node = &cx.world.node;
            return Err(ReplyFailure::Died(format!(
                "unable to find configuration file for VM {} on node '{node}'",
                source.vmid
            )));
        }
        Err(failure) => return Err(failure),
    };
    cx.lock(source, super::LOCK_WAIT_MS)?;
    write::check_lock(source, &config)?;
    let template = config.is_set("template");
    let full = cx.text("full").map_or(!template, |full| full == "1");
    if source.kind == GuestKind::Lxc && cx.is_running(source) && cx.text("snapname").is_none() {
        let how = if full { "full clones" } else { "clones" };
        return Err(ReplyFailure::Died(format!(
            "Cannot do {how} on a running container without snapshots"
        )));
    }
    if let Some(text) = taken(cx, target.vmid) {
        return Err(ReplyFailure::Died(match source.kind {
            GuestKind::Lxc => text,
            GuestKind::Qemu => {
                format!("unable to create VM {}: config file already exists", target.vmid)
            }
        }));
    }
    if !full {
        check_linkable(source, &config)?;
    }
    let copy = copied(cx, source, &config, release)?;
    let stub = stub_of(cx, source, &copy);
    cx.world.put_guest(target, stub, SimPower::Stopped);
    let job = TaskJob::Clone {
        source,
        target,
        config: Box::new(copy),
        full,
        storage: cx.text("storage").map(str::to_owned),
        format: cx.text("format").map(str::to_owned),
    };
    let kind = match source.kind {
        GuestKind::Lxc => "vzclone",
        GuestKind::Qemu => "qmclone",
    };
    cx.fork(kind, &source.vmid.to_string(), job)
}

/// What stands in the target's file while it is copied; a container's source is locked meanwhile.
fn stub_of(cx: &mut Context<'_>, source: GuestId, copy: &Config) -> Config {
    match source.kind {
        GuestKind::Lxc => {
            let mut stub = copy.clone();
            stub.active.retain(|key, _| !is_disk_key(GuestKind::Lxc, key));
            stub.set_lock(Some("create"));
            if let Some(record) = cx.world.guest_mut(source) {
                record.config.set_lock(Some("disk"));
            }
            stub
        }
        GuestKind::Qemu => {
            Config::of(&[("lock", "clone"), ("description", " qmclone temporary file")])
        }
    }
}

fn check_linkable(source: GuestId, config: &Config) -> Result<(), ReplyFailure> {
    for (key, value) in config.active.iter().filter(|(key, _)| is_disk_key(source.kind, key)) {
        let volid = value.split(',').next().unwrap_or_default();
        let base = volid.contains("base-") || volid.contains("basevol-");
        if key.starts_with("unused") || value.contains("media=cdrom") || base {
            continue;
        }
        return Err(ReplyFailure::Died(match source.kind {
            GuestKind::Qemu => {
                format!("Linked clone feature is not supported for '{volid}' ({key})")
            }
            GuestKind::Lxc => format!("Linked clone feature for '{volid}' is not available"),
        }));
    }
    Ok(())
}

/// The copy's file: new addresses and identities, nothing that waits, no unused volumes.
fn copied(
    cx: &mut Context<'_>,
    source: GuestId,
    config: &Config,
    release: Release,
) -> Result<Config, ReplyFailure> {
    let section = match cx.text("snapname") {
        None => config.active.clone(),
        Some(name) => match config.snapshot(name) {
            Some(snapshot) => snapshot.section.clone(),
            None => return Err(ReplyFailure::Died(format!("snapshot '{name}' does not exist"))),
        },
    };
    let mut copy = Config { active: section, ..Config::default() };
    copy.active.retain(|key, _| {
        !key.starts_with("unused")
            && !matches!(key.as_str(), "template" | "parent" | "lock" | "snaptime" | "vmstate")
    });
    let (smbios, generation) = (cx.world.random.uuid(), cx.world.random.uuid());
    let format = match source.kind {
        GuestKind::Lxc => ("lxc-net", "hwaddr"),
        GuestKind::Qemu => ("qm-net", "macaddr"),
    };
    for (key, value) in &mut copy.active {
        if is_net_key(key) {
            let mut net =
                property::parse(Schema::shared(), format.0, value, release).unwrap_or_default();
            net.insert(format.1.into(), cx.world.new_mac());
            *value = property::print(Schema::shared(), format.0, &net);
        }
    }
    if source.kind == GuestKind::Qemu {
        copy.active.insert("smbios1".into(), format!("uuid={smbios}"));
        copy.active.insert("vmgenid".into(), generation);
        let default = format!(
            "Copy-of-VM-{}",
            config.get("name").map_or_else(|| source.vmid.to_string(), str::to_owned)
        );
        copy.active.insert("name".into(), cx.text("name").map_or(default, str::to_owned));
    } else if let Some(hostname) = cx.text("hostname") {
        copy.active.insert("hostname".into(), hostname.to_owned());
    }
    if let Some(text) =
        cx.text("description").and_then(|text| stored_description(source.kind, text))
    {
        copy.active.insert("description".into(), text);
    }
    Ok(copy)
}

pub(super) fn template(cx: &mut Context<'_>) -> Answer {
    let guest = cx.guest()?;
    let config = cx.file(guest)?;
    write::check_lock(guest, config)?;
    let refused = match (guest.kind, cx.is_running(guest)) {
        _ if !config.snapshots.is_empty() => Some(format!(
            "unable to create template, because {} contains snapshots",
            word(guest.kind)
        )),
        _ if config.is_set("template") => {
            Some("you can't convert a template to a template".to_owned())
        }
        (GuestKind::Lxc, true) => {
            Some("you can't convert a container to template if it's running".to_owned())
        }
        (GuestKind::Qemu, true) => {
            Some("you can't convert a VM to template if VM is running".to_owned())
        }
        (GuestKind::Lxc | GuestKind::Qemu, false) => None,
    };
    if let Some(text) = refused {
        return Err(ReplyFailure::Died(text));
    }
    let id = guest.vmid.to_string();
    match guest.kind {
        GuestKind::Qemu => cx.fork("qmtemplate", &id, TaskJob::Template { guest }),
        // The container's call answers nothing although it forks.
        GuestKind::Lxc => {
            cx.fork("vztemplate", &id, TaskJob::Template { guest }).map(|_| Value::Null.into())
        }
    }
}

pub(super) fn destroy(cx: &mut Context<'_>) -> Answer {
    let guest = cx.guest()?;
    cx.check_skiplock()?;
    let config = cx.file(guest)?;
    let name = word(guest.kind);
    if guest.kind == GuestKind::Lxc {
        write::check_lock(guest, config)?;
    }
    if config.is_set("protection") {
        return Err(ReplyFailure::Died(format!(
            "can't remove {name} {} - protection mode enabled",
            guest.vmid
        )));
    }
    let force = cx.flag("force");
    if cx.is_running(guest) && !force {
        return Err(ReplyFailure::Died(match guest.kind {
            GuestKind::Lxc => format!("unable to destroy CT {} - container is running", guest.vmid),
            GuestKind::Qemu => format!("VM {} is running - destroy failed", guest.vmid),
        }));
    }
    let job = TaskJob::Destroy {
        guest,
        purge: cx.flag("purge"),
        unreferenced: cx.flag("destroy-unreferenced-disks"),
        force,
    };
    let kind = match guest.kind {
        GuestKind::Lxc => "vzdestroy",
        GuestKind::Qemu => "qmdestroy",
    };
    cx.fork(kind, &guest.vmid.to_string(), job)
}
