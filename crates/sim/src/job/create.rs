//! Guests coming into being: disks are made first, then the archive is unpacked, then the file is written.
//!
//! The stub with `lock: create` was written by the handler. A create that fails takes everything away again; one that
//! is killed takes nothing away, see [`super::aftermath`].

use evenkeel_core::model::id::{GuestId, GuestKind};
use evenkeel_core::model::release::Release;
use serde::{Deserialize, Serialize};

use super::{Site, exists};
use crate::config::Config;
use crate::property;
use crate::schema::Schema;
use crate::storage::split_volid;
use crate::world::{World, is_disk_key, is_net_key};
use crate::write::disk;

/// What is done when a guest has been made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AfterMaking {
    /// A task of its own starts it.
    pub(crate) start: bool,
    pub(crate) pool: Option<String>,
    pub(crate) ha_managed: bool,
}

/// How far the making of a guest has come.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct MakingProgress {
    /// The volumes made so far.
    pub(crate) made: Vec<String>,
    /// Why it will fail.
    pub(crate) broken: Option<String>,
}

/// What a create is to make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CreateOrder {
    /// The file; wanted disks become volumes when the worker begins.
    pub(crate) config: Config,
    /// What a container is unpacked from.
    pub(crate) template: Option<String>,
    pub(crate) after: AfterMaking,
    #[serde(flatten)]
    pub(crate) progress: MakingProgress,
}

pub(super) fn begin(
    site: &mut Site<'_>,
    guest: GuestId,
    order: &mut CreateOrder,
) -> Result<(), String> {
    exists(site.world, guest)?;
    let made = make_disks(site, guest, &mut order.config, &mut order.progress.made);
    order.progress.broken = made.and_then(|()| unpack(site, guest, order)).err();
    let template = order.template.as_deref().filter(|_| guest.kind == GuestKind::Lxc);
    if template.is_some_and(|template| is_oci_image(site.world, template)) {
        start_as_the_image_says(site.world.release(), &mut order.config);
    }
    Ok(())
}

/// The file is written, or everything goes again.
pub(super) fn created(
    site: &mut Site<'_>,
    guest: GuestId,
    order: &CreateOrder,
) -> Result<(), String> {
    if let Some(message) = &order.progress.broken {
        undo(site.world, guest, &order.progress.made);
        return Err(format!("unable to create {} {} - {message}", word(guest.kind), guest.vmid));
    }
    if let Some(record) = site.world.guest_mut(guest) {
        record.config = order.config.clone();
    }
    entered(site.world, guest, &order.after);
    Ok(())
}

/// The new guest joins its pool and becomes an HA resource.
pub(super) fn entered(world: &mut World, guest: GuestId, after: &AfterMaking) {
    if let Some(pool) = &after.pool {
        world.pool_of.insert(guest.vmid.get(), pool.clone());
    }
    if after.ha_managed {
        let state = if after.start { "started" } else { "stopped" };
        world.ha.insert(ha_sid(guest), state.to_owned());
    }
}

/// `ct:100` or `vm:200`.
pub(crate) fn ha_sid(guest: GuestId) -> String {
    match guest.kind {
        GuestKind::Lxc => format!("ct:{}", guest.vmid),
        GuestKind::Qemu => format!("vm:{}", guest.vmid),
    }
}

/// What PVE calls a guest of this kind.
pub(crate) fn word(kind: GuestKind) -> &'static str {
    match kind {
        GuestKind::Lxc => "CT",
        GuestKind::Qemu => "VM",
    }
}

/// Takes away what a failed worker made: its volumes, and the stub.
pub(super) fn undo(world: &mut World, guest: GuestId, made: &[String]) {
    for volid in made {
        world.free(volid);
    }
    world.guests.remove(&guest.vmid.get());
    // A container's worker takes the firewall file too, also one that was there before it.
    if guest.kind == GuestKind::Lxc {
        world.around.firewalls.remove(&guest.vmid.get());
    }
}

/// Makes every disk the file wants, in the order in which PVE numbers them.
fn make_disks(
    site: &mut Site<'_>,
    guest: GuestId,
    config: &mut Config,
    made: &mut Vec<String>,
) -> Result<(), String> {
    for key in disk_keys(guest.kind, config) {
        let value = config.active.get(&key).cloned().unwrap_or_default();
        let printed = match guest.kind {
            GuestKind::Lxc => {
                let format = if key == "rootfs" { "lxc-rootfs" } else { "lxc-mp" };
                disk::new_lxc_mount(site.world, guest, format, &value, site.now_ms)?
            }
            GuestKind::Qemu => disk::qemu_drive(site.world, guest, &key, &value, site.now_ms)
                .map_err(crate::reply::ReplyFailure::into_text)?,
        };
        let volid = printed.split(',').next().unwrap_or_default().to_owned();
        let wanted = value.split(',').next().unwrap_or_default();
        let wanted = wanted.trim_start_matches("volume=").trim_start_matches("file=");
        if disk::wanted_size(wanted).is_some() || wanted.ends_with(":cloudinit") {
            log_disk(site, guest, &key, &volid, &printed);
            if value.contains("import-from=") {
                site.log_transferred(&volid, false);
            }
            made.push(volid);
        }
        config.active.insert(key, printed);
    }
    Ok(())
}

/// The keys of disks: the root disk first, mount points by number, drives by name.
pub(super) fn disk_keys(kind: GuestKind, config: &Config) -> Vec<String> {
    let mut keys: Vec<String> =
        config.active.keys().filter(|key| is_disk_key(kind, key)).cloned().collect();
    if kind == GuestKind::Lxc {
        let number = |key: &String| key.trim_start_matches("mp").parse::<u32>().unwrap_or(0);
        keys.sort_by_key(|key| (key != "rootfs", number(key)));
    }
    keys
}

fn log_disk(site: &mut Site<'_>, guest: GuestId, key: &str, volid: &str, printed: &str) {
    let path = path_of(site.world, volid);
    let (bytes, format) =
        site.world.volume(volid).map_or((0, "raw"), |v| (v.size_bytes, v.format.as_str()));
    site.log.push(format!("Formatting '{path}', fmt={format} size={bytes} preallocation=off"));
    if guest.kind == GuestKind::Qemu {
        site.log.push(format!("{key}: successfully created disk '{printed}'"));
    }
}

/// Where the node keeps a volume, as its messages name it.
pub(super) fn path_of(world: &World, volid: &str) -> String {
    let Some((storage, name)) = split_volid(volid) else { return volid.to_owned() };
    let path = world.storages.get(storage).map_or("", |found| found.path.as_str());
    let folder = match name.split('/').next() {
        Some("backup") => "dump",
        Some("vztmpl") => "template/cache",
        Some(_) | None => return format!("{path}/images/{name}"),
    };
    format!("{path}/{folder}/{}", name.rsplit('/').next().unwrap_or_default())
}

/// An archive too small to be one cannot be unpacked, nor one that is larger than its disk.
fn unpack(site: &mut Site<'_>, guest: GuestId, order: &CreateOrder) -> Result<(), String> {
    const SMALLEST_ARCHIVE_BYTES: u64 = 1024;
    let Some(archive) = order.template.as_ref().filter(|_| guest.kind == GuestKind::Lxc) else {
        return Ok(());
    };
    let Some(volume) = site.world.volume(archive) else {
        return Err(format!("volume '{archive}' does not exist"));
    };
    let packed_bytes = volume.size_bytes;
    site.log.push(format!("extracting archive '{}'", path_of(site.world, archive)));
    if packed_bytes < SMALLEST_ARCHIVE_BYTES || !fits(site.world, &order.config, packed_bytes) {
        return Err(unpack_failed(guest, archive, order.config.is_set("unprivileged")));
    }
    Ok(())
}

/// Whether a template is an OCI image. PVE looks into it; here the name tells.
fn is_oci_image(world: &World, template: &str) -> bool {
    world.release() >= Release::V9_1
        && std::path::Path::new(template).extension().is_some_and(|extension| extension == "tar")
}

/// An OCI image says how it is started. PVE writes that over what the request said, has the host manage the network, and
/// adds lines of its own to what LXC is told.
fn start_as_the_image_says(release: Release, config: &mut Config) {
    config.active.insert("entrypoint".into(), "/entry.sh serve".into());
    config.active.insert("env".into(), "PATH=/usr/bin".into());
    config.active.insert("cmode".into(), "console".into());
    for (_, value) in config.active.iter_mut().filter(|(key, _)| is_net_key(key)) {
        let schema = Schema::shared();
        let mut net = property::parse(schema, "lxc-net", value, release).unwrap_or_default();
        net.entry("host-managed".to_owned()).or_insert_with(|| "1".to_owned());
        *value = property::print(schema, "lxc-net", &net);
    }
    for (key, value) in [("lxc.init.cwd", "/srv"), ("lxc.signal.halt", "SIGTERM")] {
        config.raw.push((key.to_owned(), value.to_owned()));
    }
}

/// Whether a root disk can hold what comes out of an archive. A directory without a size can.
pub(super) fn fits(world: &World, config: &Config, packed_bytes: u64) -> bool {
    let volid = config.get("rootfs").and_then(|value| value.split(',').next()).unwrap_or_default();
    match world.volume(volid) {
        Some(volume) if volume.format != "subvol" => {
            volume.size_bytes >= packed_bytes.saturating_mul(UNPACKED)
        }
        Some(_) | None => true,
    }
}

/// Archives are at least so many times larger when they are unpacked.
const UNPACKED: u64 = 2;

/// The command that unpacks a container, which PVE names whole when it fails.
pub(super) fn unpack_failed(guest: GuestId, archive: &str, unprivileged: bool) -> String {
    let by = match archive.rsplit('.').next() {
        Some("gz") => "-z ",
        Some("zst") => "--zstd ",
        Some("xz") => "-J ",
        Some(_) | None => "",
    };
    let mapped = "lxc-usernsexec -m u:0:100000:65536 -m g:0:100000:65536 -- ";
    let mapped = if unprivileged { mapped } else { "" };
    format!(
        "command '{mapped}tar xpf - {by}--totals --one-file-system -p --sparse --numeric-owner --acls --xattrs \
         '--xattrs-include=user.*' '--xattrs-include=security.capability' '--warning=no-file-ignored' \
         '--warning=no-xattr-write' -C /var/lib/lxc/{}/rootfs --skip-old-files --anchored --exclude './dev/*'' \
         failed: exit code 2",
        guest.vmid
    )
}
