//! Copies of guests: what is checked before the answer, and what the copy's file says.

use evenkeel_core::model::id::{GuestId, GuestKind};
use evenkeel_core::model::release::Release;

use super::create::{check_content, taken};
use super::{Answer, Context};
use crate::config::{Config, stored_description};
use crate::job::{AfterMaking, CloneOrder, TaskJob};
use crate::property;
use crate::reply::ReplyFailure;
use crate::schema::Schema;
use crate::storage::split_volid;
use crate::world::{SimPower, is_disk_key, is_net_key};
use crate::write;

pub(super) fn clone(cx: &mut Context<'_>) -> Answer {
    let source = cx.guest()?;
    let target = cx.guest_of(cx.text("newid").unwrap_or_default())?;
    if let Some(pool) = cx.text("pool").filter(|pool| !cx.world.pools.contains(*pool)) {
        return Err(ReplyFailure::Denied(format!("pool '{pool}' does not exist")));
    }
    let in_pool =
        cx.text("pool").is_some_and(|pool| cx.may(&format!("/pool/{pool}"), &["VM.Allocate"]));
    if !in_pool {
        cx.need(&format!("/vms/{}", target.vmid), &["VM.Allocate"])?;
    }
    match source.kind {
        GuestKind::Lxc => container(cx, source, target),
        GuestKind::Qemu => machine(cx, source, target),
    }
}

/// Both config locks are taken before the answer, and given back by whatever refuses.
fn container(cx: &mut Context<'_>, source: GuestId, target: GuestId) -> Answer {
    if let Some(storage) = cx.text("storage").filter(|name| !cx.world.storages.contains_key(*name))
    {
        return Err(ReplyFailure::Died(format!("storage '{storage}' does not exist")));
    }
    cx.lock(source, super::LOCK_WAIT_MS)?;
    let config = cx.file(source)?.clone();
    write::check_lock(source, &config)?;
    if let Some(text) = taken(cx, target.vmid) {
        return Err(ReplyFailure::Died(text));
    }
    let full = cx.text("full").map_or(!config.is_set("template"), |full| full == "1");
    if cx.text("storage").is_some() && !full {
        return Err(ReplyFailure::died("parameter 'storage' not allowed for linked clones"));
    }
    let section = section_of(cx, &config)?;
    if full && cx.is_running(source) && cx.text("snapname").is_none() {
        return Err(ReplyFailure::died(if cx.world.release() >= Release::V9_0 {
            "Full clone of a running container is only possible from a snapshot"
        } else {
            "Cannot do full clones on a running container without snapshots"
        }));
    }
    check_disks(cx, source, &section, full)?;
    let mut copy = copied(cx, source.kind, section);
    if let Some(hostname) = cx.text("hostname") {
        copy.active.insert("hostname".into(), hostname.to_owned());
    }
    describe(cx, GuestKind::Lxc, &mut copy);
    if let Some(record) = cx.world.guest_mut(source) {
        record.config.set_lock(Some("disk"));
    }
    let mut stub = copy.clone();
    stub.active.retain(|key, _| !is_disk_key(GuestKind::Lxc, key));
    stub.set_lock(Some("create"));
    cx.world.put_guest(target, stub, SimPower::Stopped);
    let maker = cx.who.full();
    if let Some(record) = cx.world.guest_mut(target) {
        record.maker = Some(maker);
    }
    fork(cx, "vzclone", (source, target), copy, full)
}

/// Only the worker takes locks, so a second clone of the same source may run beside.
fn machine(cx: &mut Context<'_>, source: GuestId, target: GuestId) -> Answer {
    if let Some(storage) = cx.text("storage") {
        check_content(cx, storage, "images", "vm images")?;
    }
    let Some(config) = cx.world.guest(source).map(|record| record.config.clone()) else {
        let node = &cx.world.node;
        return Err(ReplyFailure::Died(format!(
            "unable to find configuration file for VM {} on node '{node}'",
            source.vmid
        )));
    };
    write::check_lock(source, &config)?;
    let section = section_of(cx, &config)?;
    let full = cx.text("full").map_or(!config.is_set("template"), |full| full == "1");
    for name in ["storage", "format"] {
        if cx.text(name).is_some() && !full {
            let text = format!("parameter '{name}' not allowed for linked clones");
            return Err(ReplyFailure::Died(text));
        }
    }
    let own = cx.world.guests.get(&target.vmid.get()).map(|found| found.id.kind);
    if own == Some(GuestKind::Qemu) || cx.world.elsewhere.contains_key(&target.vmid.get()) {
        return Err(ReplyFailure::Died(format!(
            "unable to create VM {}: config file already exists",
            target.vmid
        )));
    }
    check_disks(cx, source, &section, full)?;
    let name = section.active.get("name").cloned().unwrap_or_else(|| source.vmid.to_string());
    let mut copy = copied(cx, source.kind, section);
    let smbios = copy.active.get("smbios1").cloned().unwrap_or_default();
    let smbios = crate::job::with_new_uuid(cx.world, &smbios);
    copy.active.insert("smbios1".into(), smbios);
    if copy.active.contains_key("vmgenid") {
        copy.active.insert("vmgenid".into(), cx.world.random.uuid());
    }
    let name = cx.text("name").map_or(format!("Copy-of-VM-{name}"), str::to_owned);
    copy.active.insert("name".into(), name);
    describe(cx, GuestKind::Qemu, &mut copy);
    fork(cx, "qmclone", (source, target), copy, full)
}

fn fork(
    cx: &mut Context<'_>,
    kind: &str,
    (source, target): (GuestId, GuestId),
    config: Config,
    full: bool,
) -> Answer {
    let pool = cx.text("pool").map(str::to_owned);
    let order = CloneOrder {
        config,
        full,
        storage: cx.text("storage").map(str::to_owned),
        format: cx.text("format").map(str::to_owned),
        rate_limit: cx.number("bwlimit").filter(|kib| *kib > 0),
        after: AfterMaking { start: false, pool, ha_managed: false },
        made: Vec::new(),
        maker: cx.who.full(),
    };
    let job = TaskJob::Clone { source, target, order: Box::new(order) };
    cx.fork(kind, &source.vmid.to_string(), job)
}

/// The file that is copied: the guest's, without what waits, or a snapshot's.
fn section_of(cx: &Context<'_>, config: &Config) -> Result<Config, ReplyFailure> {
    let active = match cx.text("snapname") {
        None => config.active.clone(),
        Some(name) => match config.snapshot(name) {
            Some(snapshot) => snapshot.section.clone(),
            None => return Err(ReplyFailure::Died(format!("snapshot '{name}' does not exist"))),
        },
    };
    Ok(Config { active, raw: config.raw.clone(), ..Config::default() })
}

/// Every disk can be copied, or linked, to where it shall go.
fn check_disks(
    cx: &Context<'_>,
    source: GuestId,
    section: &Config,
    full: bool,
) -> Result<(), ReplyFailure> {
    for (key, value) in section.active.iter().filter(|(key, _)| is_disk_key(source.kind, key)) {
        let volid = value.split(',').next().unwrap_or_default();
        let cdrom = value.contains("media=cdrom") && !volid.contains("-cloudinit");
        if key.starts_with("unused") || cdrom {
            continue;
        }
        let Some((storage, name)) = split_volid(volid) else {
            return Err(ReplyFailure::Died(format!(
                "unable to clone mountpoint '{key}' (type bind)"
            )));
        };
        let target = cx.text("storage").unwrap_or(storage);
        cx.need(&format!("/storage/{target}"), &["Datastore.AllocateSpace"])?;
        let format = cx.world.volume(volid).map_or("raw", |volume| volume.format.as_str());
        let linkable = cx
            .world
            .storages
            .get(storage)
            .is_some_and(|found| found.can_link(source.kind, name, format));
        if full || linkable || volid.contains("-cloudinit") || key == "tpmstate0" {
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

/// The copy's keys: new addresses, no unused volumes, nothing of snapshots. Protection and autostart come along.
fn copied(cx: &mut Context<'_>, kind: GuestKind, section: Config) -> Config {
    let release = cx.world.release();
    let mut copy = section;
    copy.active.retain(|key, _| {
        !key.starts_with("unused")
            && !matches!(key.as_str(), "template" | "parent" | "lock" | "snaptime" | "vmstate")
    });
    let (format, address) = match kind {
        GuestKind::Lxc => ("lxc-net", "hwaddr"),
        GuestKind::Qemu => ("qm-net", "macaddr"),
    };
    for (key, value) in &mut copy.active {
        if is_net_key(key) {
            let mut net =
                property::parse(Schema::shared(), format, value, release).unwrap_or_default();
            net.insert(address.into(), cx.world.new_mac());
            *value = property::print(Schema::shared(), format, &net);
        }
    }
    copy
}

fn describe(cx: &Context<'_>, kind: GuestKind, copy: &mut Config) {
    let text = cx.text("description").and_then(|text| stored_description(kind, text));
    copy.active.extend(text.map(|text| ("description".to_owned(), text)));
}
