//! Volumes named in config values: `STORAGE:SIZE` is allocated, an existing one gets its real size.

use evenkeel_core::model::id::{GuestId, GuestKind};
use evenkeel_core::model::release::Release;

use crate::property::{self, Properties, print_size};
use crate::reply::ReplyFailure;
use crate::schema::Schema;
use crate::storage::{StorageKind, split_volid};
use crate::world::World;

/// `STORAGE:SIZE` with a number means a new volume of so many GiB.
pub(crate) fn wanted_size(file: &str) -> Option<(&str, f64)> {
    let (storage, size) = split_volid(file)?;
    let number = !size.is_empty() && size.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    Some((storage, size.parse().ok().filter(|_| number)?))
}

/// GiB to bytes as each kind rounds them: containers down to MiB, machines up to KiB.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "sizes are far below 2^52 and not negative; the factors are exact powers of two"
)]
fn bytes(kind: GuestKind, gib: f64) -> u64 {
    let units = |unit: u64| gib * (1_u64 << 30) as f64 / unit as f64;
    match kind {
        GuestKind::Lxc => (units(1 << 20).floor() as u64).saturating_mul(1 << 20),
        GuestKind::Qemu => (units(1 << 10).ceil() as u64).saturating_mul(1 << 10),
    }
}

/// Allocates a volume and gives its id.
pub(crate) fn allocate(
    world: &mut World,
    id: GuestId,
    storage: &str,
    size_bytes: u64,
    format: Option<&str>,
    now_ms: u64,
) -> Result<String, String> {
    let stamp = world.unix(now_ms);
    let Some(target) = world.storages.get_mut(storage) else {
        return Err(format!("storage '{storage}' does not exist"));
    };
    let name = target.allocate(id.kind, id.vmid, size_bytes, format, stamp)?;
    Ok(format!("{storage}:{name}"))
}

/// Copies a volume for a guest: a new one of the same size that remembers whose data it holds.
pub(crate) fn copy(
    world: &mut World,
    id: GuestId,
    source: &str,
    storage: &str,
    format: Option<&str>,
    now_ms: u64,
) -> Result<String, String> {
    let Some(found) = world.volume(source).cloned() else {
        return Err(format!("volume '{source}' does not exist"));
    };
    let origin = world.origin_of(source);
    let format = format.unwrap_or(&found.format);
    let new = allocate(world, id, storage, found.size_bytes, Some(format), now_ms)?;
    if let Some(volume) = world.volume_mut(&new) {
        volume.origin = Some(origin);
    }
    Ok(new)
}

/// A mount point of a new guest: what is allocated gets its size, a volume that exists is taken as it is given.
pub(crate) fn new_lxc_mount(
    world: &mut World,
    id: GuestId,
    format: &str,
    value: &str,
    now_ms: u64,
) -> Result<String, String> {
    let schema = Schema::shared();
    let mut mount = property::parse(schema, format, value, world.release())?;
    let volume = mount.get("volume").cloned().unwrap_or_default();
    if let Some((storage, gib)) = wanted_size(&volume) {
        let volid = allocate(world, id, storage, bytes(id.kind, gib), None, now_ms)?;
        let size = world.volume(&volid).map_or(0, |found| found.size_bytes);
        mount.insert("volume".into(), volid);
        mount.insert("size".into(), print_size(size));
    } else if volume.contains(':') && world.volume(&volume).is_none() {
        return Err(format!("volume '{volume}' does not exist"));
    }
    Ok(property::print(schema, format, &mount))
}

/// A mount point as it is stored: allocated if wanted, its size taken from the storage.
pub(crate) fn lxc_mount(
    world: &mut World,
    id: GuestId,
    value: &str,
    now_ms: u64,
) -> Result<String, String> {
    let schema = Schema::shared();
    let mut mount = property::parse(schema, "lxc-mp", value, world.release())?;
    let volume = mount.get("volume").cloned().unwrap_or_default();
    if let Some((storage, gib)) = wanted_size(&volume) {
        let volid = allocate(world, id, storage, bytes(id.kind, gib), None, now_ms)?;
        mount.insert("volume".into(), volid);
    } else if !volume.contains(':') {
        return Ok(property::print(schema, "lxc-mp", &mount));
    }
    let volid = mount.get("volume").cloned().unwrap_or_default();
    let Some(found) = world.volume(&volid) else {
        return Err(format!("volume '{volid}' does not exist"));
    };
    mount.insert("size".into(), print_size(found.size_bytes));
    Ok(property::print(schema, "lxc-mp", &mount))
}

/// The property format of a drive key.
pub(crate) fn drive_format(key: &str) -> String {
    match key.trim_end_matches(|c: char| c.is_ascii_digit()) {
        "efidisk" => "qm-efidisk0".to_owned(),
        "tpmstate" => "qm-tpmstate0".to_owned(),
        bus => format!("qm-{bus}"),
    }
}

/// Reads a drive's value.
pub(crate) fn read_drive(key: &str, value: &str, release: Release) -> Properties {
    property::parse(Schema::shared(), &drive_format(key), value, release).unwrap_or_default()
}

/// Whether a drive is a CD-ROM (cloud-init drives are).
pub(crate) fn is_cdrom(drive: &Properties) -> bool {
    drive.get("media").map(String::as_str) == Some("cdrom")
}

const EFI_DISK_BYTES: u64 = 528 << 10;
const TPM_STATE_BYTES: u64 = 4 << 20;
const CLOUD_INIT_BYTES: u64 = 4 << 20;

/// A drive as it is stored: allocated if wanted, its size always that of the volume.
pub(crate) fn qemu_drive(
    world: &mut World,
    id: GuestId,
    key: &str,
    value: &str,
    now_ms: u64,
) -> Result<String, ReplyFailure> {
    let release = world.release();
    let mut drive = read_drive(key, value, release);
    let file = drive.get("file").cloned().unwrap_or_default();
    let format = drive.remove("format");
    let imported = drive.remove("import-from");
    if drive.remove("bps").is_some() {
        drive.insert("mbps".into(), "0.000".into());
    }
    if key == "ide2" && file == "none" {
        drive.insert("media".into(), "cdrom".into());
    }
    if file == "none" || file == "cdrom" {
        return Ok(print_drive(key, &drive));
    }
    if let Some((storage, "cloudinit")) = split_volid(&file) {
        let volid = cloud_init(world, id, storage, now_ms).map_err(ReplyFailure::Died)?;
        drive.insert("file".into(), volid);
        drive.insert("media".into(), "cdrom".into());
        return Ok(print_drive(key, &drive));
    }
    if let (Some((storage, _)), Some(source)) = (wanted_size(&file), &imported) {
        let missing = || format!("cannot import from '{source}' - could not get size of {source}");
        if world.volume(source).is_none() {
            return Err(ReplyFailure::Died(missing()));
        }
        let volid = copy(world, id, source, storage, format.as_deref(), now_ms)
            .map_err(ReplyFailure::Died)?;
        drive.insert("file".into(), volid);
    } else if let Some((storage, gib)) = wanted_size(&file) {
        let fixed = match key {
            "efidisk0" => Some(EFI_DISK_BYTES),
            "tpmstate0" => Some(TPM_STATE_BYTES),
            _ => None,
        };
        let size = fixed.unwrap_or_else(|| bytes(id.kind, gib));
        let volid = allocate(world, id, storage, size, format.as_deref(), now_ms)
            .map_err(ReplyFailure::Died)?;
        drive.insert("file".into(), volid);
    }
    let file = drive.get("file").cloned().unwrap_or_default();
    let Some(volume) = world.volume(&file) else {
        return Err(ReplyFailure::Died(format!("volume '{file}' does not exist")));
    };
    if volume.content == "iso" && !is_cdrom(&drive) && release >= Release::V8_0 {
        let message = "explicit 'media=cdrom' is required for iso images";
        return Err(ReplyFailure::param(key, message));
    }
    drive.insert("size".into(), print_size(volume.size_bytes));
    Ok(print_drive(key, &drive))
}

fn print_drive(key: &str, drive: &Properties) -> String {
    property::print(Schema::shared(), &drive_format(key), drive)
}

/// The cloud-init drive of a machine: one per machine and storage, under a name of its own.
pub(crate) fn cloud_init(
    world: &mut World,
    id: GuestId,
    storage: &str,
    now_ms: u64,
) -> Result<String, String> {
    let stamp = world.unix(now_ms);
    let vmid = id.vmid;
    let Some(target) = world.storages.get_mut(storage) else {
        return Err(format!("storage '{storage}' does not exist"));
    };
    let (name, format) = match target.kind {
        StorageKind::Dir => (format!("{vmid}/vm-{vmid}-cloudinit.qcow2"), "qcow2"),
        StorageKind::Btrfs => (format!("{vmid}/vm-{vmid}-cloudinit.raw"), "raw"),
        StorageKind::LvmThin | StorageKind::ZfsPool => (format!("vm-{vmid}-cloudinit"), "raw"),
    };
    target.insert(&name, id.kind, vmid, CLOUD_INIT_BYTES, format, stamp);
    Ok(format!("{storage}:{name}"))
}
