//! New guests: what is checked before the answer, in PVE's order, and the stub that is there when it comes.
//!
//! Refusals about templates, images and sizes are not made here: only the task finds out.

use evenkeel_core::model::id::{GuestId, GuestKind, VmId};
use evenkeel_core::model::release::Release;

use super::{Answer, Context};
use crate::config::{Config, stored_description};
use crate::job::{AfterMaking, CreateOrder, MakingProgress, TaskJob, word};
use crate::property;
use crate::reply::ReplyFailure;
use crate::request::Param;
use crate::schema::{Errors, Schema};
use crate::storage::split_volid;
use crate::world::{OTHER_NODE, SimPower, is_disk_key, is_net_key};
use crate::write::{self, WriteChange, disk, rights};

/// Creating waits only this long for the file lock.
pub(super) const STUB_WAIT_MS: u64 = 5_000;

/// `CT 100 already exists on node 'pve1'`, or nothing.
pub(super) fn taken(cx: &Context<'_>, vmid: VmId) -> Option<String> {
    if let Some(away) = cx.world.elsewhere.get(&vmid.get()) {
        let kind = away.guest.id.kind;
        return Some(format!("{} {vmid} already exists on node '{OTHER_NODE}'", word(kind)));
    }
    let guest = cx.world.guests.get(&vmid.get())?;
    Some(format!("{} {vmid} already exists on node '{}'", word(guest.id.kind), cx.world.node))
}

pub(super) fn create(cx: &mut Context<'_>) -> Answer {
    let guest = cx.guest_of(cx.text("vmid").unwrap_or_default())?;
    check_options(cx, guest.kind)?;
    match guest.kind {
        GuestKind::Lxc => container(cx, guest),
        GuestKind::Qemu => machine(cx, guest),
    }
}

/// What a schema would refuse that the tables cannot say.
fn check_options(cx: &Context<'_>, kind: GuestKind) -> Result<(), ReplyFailure> {
    let (needs, needed): (&[&str], &str) = match kind {
        GuestKind::Lxc => (&["unique"], "restore"),
        GuestKind::Qemu => (&["force", "live-restore", "unique"], "archive"),
    };
    let given = |name: &str| cx.params.contains_key(name);
    let mut errors = Errors::new();
    for option in needs.iter().filter(|option| given(option) && !given(needed)) {
        let text = if cx.world.release() >= Release::V9_0 {
            format!("missing property required by '{option}'")
        } else {
            format!("missing property - '{option}' requires this property")
        };
        errors.insert(needed.to_owned(), text);
    }
    if cx.text("password").is_some_and(|password| password.chars().count() < SHORTEST_PASSWORD) {
        let text = format!("value must be at least {SHORTEST_PASSWORD} characters long");
        errors.insert("password".to_owned(), text);
    }
    if errors.is_empty() { Ok(()) } else { Err(ReplyFailure::Params(errors)) }
}

/// PVE takes no shorter password for a container.
const SHORTEST_PASSWORD: usize = 5;

fn container(cx: &mut Context<'_>, guest: GuestId) -> Answer {
    let release = cx.world.release();
    let restore = cx.flag("restore");
    let given = cx.text("unprivileged").map(|text| text == "1");
    let unprivileged = given.unwrap_or(release >= Release::V9_0);
    if !restore && release >= Release::V9_0 && !unprivileged && !cx.who.is_root() {
        cx.need("/", &["Sys.Modify"])?;
    }
    let replaces = restore && cx.flag("force") && cx.world.guest(guest).is_some();
    if replaces {
        super::restore::check_replaced(cx, guest)?;
    } else if let Some(text) = taken(cx, guest.vmid) {
        // Existence is told before rights.
        return Err(ReplyFailure::Died(text));
    }
    if let Some(keys) = cx.text("ssh-public-keys") {
        write::check_ssh_keys(keys)?;
    }
    check_allocation(cx, guest, restore)?;
    if cx.flag("ha-managed") {
        cx.need("/", &["Sys.Console"])?;
    }
    let change = given_keys(cx, guest.kind);
    if restore && !replaces {
        cx.need(&format!("/vms/{}", guest.vmid), &["VM.Config.Options"])?;
    }
    rights::check(cx.world, cx.who, guest, &change, &Config::default(), unprivileged || restore)?;
    let archive = cx.text("ostemplate").unwrap_or_default().to_owned();
    let content = if restore { "backup" } else { "vztmpl" };
    check_volume(cx, guest, &archive, content)?;
    let storage = cx.text("storage").unwrap_or("local").to_owned();
    check_mounts(cx, guest, &change, &storage)?;
    cx.lock(guest, STUB_WAIT_MS)?;
    let order = after(cx);
    if restore {
        return super::restore::container(cx, guest, archive, &change, given, order);
    }
    let config = new_container(cx, guest, &change, unprivileged);
    put_stub(cx, guest);
    let order = CreateOrder {
        config,
        template: Some(archive),
        after: order,
        progress: MakingProgress::default(),
    };
    let job = TaskJob::Create { guest, order: Box::new(order) };
    cx.fork("vzcreate", &guest.vmid.to_string(), job)
}

fn machine(cx: &mut Context<'_>, guest: GuestId) -> Answer {
    if let Some(keys) = cx.text("sshkeys") {
        write::check_ssh_keys(&crate::request::percent_decode(keys, false))?;
    }
    let archive = cx.text("archive").map(str::to_owned);
    check_allocation(cx, guest, archive.is_some())?;
    if cx.flag("ha-managed") {
        cx.need("/", &["Sys.Console"])?;
    }
    let change = given_keys(cx, guest.kind);
    if let Some(archive) = &archive {
        super::restore::check_archive(cx, guest, archive, &change)?;
    }
    check_drives(cx, guest, &change)?;
    rights::check(cx.world, cx.who, guest, &change, &Config::default(), false)?;
    let verb = if archive.is_some() { "restore" } else { "create" };
    let refused =
        |text: String| ReplyFailure::Died(format!("unable to {verb} VM {} - {text}", guest.vmid));
    cx.lock(guest, STUB_WAIT_MS)?;
    let replaces = archive.is_some() && cx.flag("force");
    let exists = taken(cx, guest.vmid);
    let own = cx.world.guest(guest).is_some();
    if let Some(text) = exists {
        if !replaces {
            return Err(refused(text));
        }
        if !own {
            return Err(refused(format!(
                "close (rename) atomic file '/etc/pve/nodes/{}/qemu-server/{}.conf' failed: File exists",
                cx.world.node, guest.vmid
            )));
        }
        super::restore::check_replaced(cx, guest)?;
    }
    let order = after(cx);
    if let Some(archive) = archive {
        return super::restore::machine(cx, guest, archive, &change, order);
    }
    let config = new_machine(cx, &change);
    put_stub(cx, guest);
    let order =
        CreateOrder { config, template: None, after: order, progress: MakingProgress::default() };
    let job = TaskJob::Create { guest, order: Box::new(order) };
    cx.fork("qmcreate", &guest.vmid.to_string(), job)
}

fn after(cx: &Context<'_>) -> AfterMaking {
    AfterMaking {
        start: cx.flag("start"),
        pool: cx.text("pool").map(str::to_owned),
        ha_managed: cx.flag("ha-managed"),
    }
}

/// The file that keeps the number while the task works.
pub(super) fn put_stub(cx: &mut Context<'_>, guest: GuestId) {
    cx.world.put_guest(guest, Config::of(&[("lock", "create")]), SimPower::Stopped);
    let maker = cx.who.full();
    if let Some(record) = cx.world.guest_mut(guest) {
        record.maker = Some(maker);
    }
}

/// The config keys among the parameters.
fn given_keys(cx: &Context<'_>, kind: GuestKind) -> WriteChange {
    let release = cx.world.release();
    let mut change = WriteChange::default();
    for (name, value) in cx.params {
        let name = if kind == GuestKind::Qemu && name == "cdrom" { "ide2" } else { name };
        if let (Some(_), Param::Text(text)) = (Schema::shared().key(kind, name, release), value) {
            change.set.insert(name.to_owned(), Some(text.clone()));
        }
    }
    change
}

/// The right to make a guest, of its number or of its pool; a backup may be brought back over its own guest.
fn check_allocation(cx: &Context<'_>, guest: GuestId, restore: bool) -> Result<(), ReplyFailure> {
    let pool = cx.text("pool");
    if let Some(pool) = pool.filter(|pool| !cx.world.pools.contains(*pool)) {
        return Err(ReplyFailure::Denied(format!("pool '{pool}' does not exist")));
    }
    let own = format!("/vms/{}", guest.vmid);
    let back = restore && cx.flag("force") && cx.world.guest(guest).is_some();
    let allowed = cx.may(&own, &["VM.Allocate"])
        || pool.is_some_and(|pool| cx.may(&format!("/pool/{pool}"), &["VM.Allocate"]))
        || (back && cx.may(&own, &["VM.Backup"]));
    if allowed { Ok(()) } else { Err(ReplyFailure::Denied(String::new())) }
}

/// Whether a volume may be read as this content: its storage and its name say so, whether it is there or not.
pub(super) fn check_volume(
    cx: &Context<'_>,
    guest: GuestId,
    volid: &str,
    content: &str,
) -> Result<(), ReplyFailure> {
    let Some((storage, name)) = split_volid(volid) else {
        return Err(only_root(cx.world.release()));
    };
    let Some(found) = cx.world.storages.get(storage) else {
        return Err(ReplyFailure::Died(format!("storage '{storage}' does not exist")));
    };
    let folder = name.split('/').next().unwrap_or_default();
    let file = matches!(folder, "backup" | "vztmpl" | "iso" | "import" | "snippets");
    if !file && !name.contains('-') {
        let word = found.kind.name_word();
        return Err(ReplyFailure::Died(format!("unable to parse {word} volume name '{name}'")));
    }
    if matches!(content, "backup" | "vztmpl") && folder != content {
        return Err(ReplyFailure::Died(format!(
            "unable to use volume {volid} - content type needs to be '{content}'"
        )));
    }
    let path = format!("/storage/{storage}");
    if cx.may(&path, &["Datastore.Allocate"]) {
        return Ok(());
    }
    let owner = owner_in_name(name);
    match folder {
        "vztmpl" | "iso" | "import" => {
            cx.need(&path, &["Datastore.AllocateSpace", "Datastore.Audit"])
        }
        _ if owner == Some(guest.vmid) => Ok(()),
        "backup" => {
            cx.need(&path, &["Datastore.AllocateSpace"])?;
            owner.map_or(Ok(()), |owner| cx.need(&format!("/vms/{owner}"), &["VM.Backup"]))
        }
        _ => {
            let Some(owner) = owner else {
                return Err(ReplyFailure::Died(format!("missing privileges to access {volid}")));
            };
            cx.need(&path, &["Datastore.Audit"])?;
            cx.need(&format!("/vms/{owner}"), &["VM.Config.Disk"])
        }
    }
}

/// Whose volume it is, by its name alone: the first number of a name with dashes.
fn owner_in_name(name: &str) -> Option<VmId> {
    let file = name.rsplit('/').next().unwrap_or_default();
    file.split('-').find_map(|part| part.parse::<VmId>().ok())
}

/// The text has no line feed, so Perl adds where it stands.
fn only_root(release: Release) -> ReplyFailure {
    let line = if release >= Release::V9_0 { 651 } else { 581 };
    ReplyFailure::Died(format!(
        "Only root can pass arbitrary filesystem paths. at /usr/share/perl5/PVE/Storage.pm line {line}."
    ))
}

/// Each storage must take containers; without a root disk the default storage must.
fn check_mounts(
    cx: &Context<'_>,
    guest: GuestId,
    change: &WriteChange,
    storage: &str,
) -> Result<(), ReplyFailure> {
    let mounts = || change.set.iter().filter(|(key, _)| *key == "rootfs" || key.starts_with("mp"));
    let rooted = change.set.contains_key("rootfs");
    if mounts().next().is_some() && !rooted {
        return Err(ReplyFailure::died("mount points configured, but 'rootfs' not set - aborting"));
    }
    for (key, value) in mounts() {
        let format = if key == "rootfs" { "lxc-rootfs" } else { "lxc-mp" };
        let value = value.as_deref().unwrap_or_default();
        let mount = property::parse(Schema::shared(), format, value, cx.world.release());
        let volume = mount.unwrap_or_default().remove("volume").unwrap_or_default();
        match split_volid(&volume) {
            Some((storage, _)) => {
                if disk::wanted_size(&volume).is_none() {
                    check_volume(cx, guest, &volume, "rootdir")?;
                }
                check_content(cx, storage, "rootdir", "container directories")?;
            }
            // A bare number would mean the default storage, but the check of rights comes first and takes it for a path.
            None if !cx.who.is_root() => return Err(only_root(cx.world.release())),
            None => {}
        }
    }
    if rooted { Ok(()) } else { check_content(cx, storage, "rootdir", "container directories") }
}

/// The storage is there, takes such volumes, and may be used.
pub(super) fn check_content(
    cx: &Context<'_>,
    storage: &str,
    content: &str,
    what: &str,
) -> Result<(), ReplyFailure> {
    match cx.world.storages.get(storage) {
        None => Err(ReplyFailure::Died(format!("storage '{storage}' does not exist"))),
        Some(found) if !found.content.contains(content) => Err(ReplyFailure::param(
            "storage",
            format!("storage '{storage}' does not support {what}"),
        )),
        Some(_) => cx.need(&format!("/storage/{storage}"), &["Datastore.AllocateSpace"]),
    }
}

fn check_drives(
    cx: &Context<'_>,
    guest: GuestId,
    change: &WriteChange,
) -> Result<(), ReplyFailure> {
    let drives = change.set.iter().filter(|(key, _)| is_disk_key(GuestKind::Qemu, key));
    for (key, value) in drives.filter(|(key, _)| !key.starts_with("unused")) {
        let value = value.as_deref().unwrap_or_default();
        let drive = disk::read_drive(key, value, cx.world.release());
        let file = drive.get("file").map_or("", String::as_str);
        if matches!(file, "none" | "cdrom") {
            continue;
        }
        let source = drive.get("import-from");
        if source.is_some() && !file.ends_with(":0") {
            return Err(ReplyFailure::param(key, SPECIAL_SYNTAX));
        }
        let wanted = disk::wanted_size(file).map(|(storage, _)| storage);
        match (wanted, split_volid(file)) {
            (Some(storage), _) | (None, Some((storage, "cloudinit"))) => {
                check_content(cx, storage, "images", "vm images")?;
            }
            (None, _) => check_volume(cx, guest, file, "images")?,
        }
        if let Some(source) = source {
            check_volume(cx, guest, source, "images")?;
        }
    }
    Ok(())
}

const SPECIAL_SYNTAX: &str =
    "'import-from' requires special syntax - use <storage ID>:0,import-from=<source>";

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

/// A given key as a container's file has it; `None` is not stored.
pub(super) fn container_value(cx: &mut Context<'_>, key: &str, text: &str) -> Option<String> {
    match key {
        _ if key.starts_with("unused") => None,
        "unprivileged" => None,
        "description" => stored_description(GuestKind::Lxc, text),
        "tags" => Some(write::stored_tags(cx.world, text)),
        "nameserver" | "searchdomain" => Some(crate::format::split_list(text).join(" ")),
        "cpuunits" => Some(write::clamped_cpu_units(text)),
        _ if is_net_key(key) => {
            let net = write::lxc::complete_net(cx.world, text);
            Some(property::print(Schema::shared(), "lxc-net", &net))
        }
        _ => Some(text.to_owned()),
    }
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
        let bare = is_disk_key(GuestKind::Lxc, key)
            && text.split(',').next().is_some_and(|v| v.parse::<f64>().is_ok());
        // A bare number is a size on the default storage.
        let stored =
            if bare { Some(format!("{storage}:{text}")) } else { container_value(cx, key, &text) };
        if let Some(stored) = stored {
            config.active.insert(key.clone(), stored);
        }
    }
    if unprivileged {
        config.active.insert("unprivileged".into(), "1".into());
    }
    config
}

/// A given key as a machine's file has it; `None` is not stored.
pub(super) fn machine_value(cx: &mut Context<'_>, key: &str, text: &str) -> Option<String> {
    let release = cx.world.release();
    match key {
        _ if key.starts_with("unused") => None,
        "description" => stored_description(GuestKind::Qemu, text),
        "tags" if release >= Release::V9_2 => Some(write::stored_tags(cx.world, text)),
        "cipassword" => Some(format!("$5${:016x}$simulated", cx.world.random.next())),
        "cpuunits" => Some(write::clamped_cpu_units(text)),
        _ if is_net_key(key) => Some(write::qemu::complete_net(cx.world, text)),
        _ => Some(text.to_owned()),
    }
}

fn new_machine(cx: &mut Context<'_>, change: &WriteChange) -> Config {
    let mut config = Config::default();
    for (key, value) in &change.set {
        let text = value.clone().unwrap_or_default();
        if let Some(stored) = machine_value(cx, key, &text) {
            config.active.insert(key.clone(), stored);
        }
    }
    let stamp = cx.world.unix(cx.now_ms);
    config.active.insert("meta".into(), format!("creation-qemu=9.2.0,ctime={stamp}"));
    let smbios = cx.world.random.uuid();
    let generation = cx.world.random.uuid();
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
