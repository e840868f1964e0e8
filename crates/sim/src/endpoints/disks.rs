//! Resizing and moving disks.

use evenkeel_core::model::id::{GuestId, GuestKind};
use evenkeel_core::model::release::Release;
use serde_json::Value;

use super::{Answer, Context, LOCK_WAIT_MS};
use crate::job::{MoveOrder, Site, TaskJob};
use crate::property::parse_resize;
use crate::reply::ReplyFailure;
use crate::schema::Errors;
use crate::write;

pub(super) fn resize(cx: &mut Context<'_>) -> Answer {
    let guest = cx.guest()?;
    cx.check_skiplock()?;
    let disk = cx.text("disk").unwrap_or_default().to_owned();
    let Some((relative, bytes)) = parse_resize(cx.text("size").unwrap_or_default()) else {
        return Err(ReplyFailure::param("size", "value does not match the regex pattern"));
    };
    let digest = cx.text("digest").map(str::to_owned);
    if guest.kind == GuestKind::Lxc {
        check_container(cx, guest, &disk, relative, bytes, digest.as_deref())?;
    }
    let job = TaskJob::Resize { guest, disk, relative, bytes, digest };
    if guest.kind == GuestKind::Qemu && cx.world.release() < Release::V8_0 {
        // Before 8.0 the call did the work itself.
        cx.lock(guest, LOCK_WAIT_MS)?;
        let timings = crate::job::Timings::default();
        let mut log = Vec::new();
        let site = &mut Site::new(cx.world, &timings, cx.now_ms, &mut log, 0);
        let mut job = job;
        crate::job::begin(site, &mut job)
            .and_then(|_| crate::job::finish(site, &job))
            .map_err(ReplyFailure::Died)?;
        return Ok(Value::Null.into());
    }
    cx.fork("resize", &guest.vmid.to_string(), job)
}

/// Containers are checked before the fork.
fn check_container(
    cx: &Context<'_>,
    guest: GuestId,
    disk: &str,
    relative: bool,
    bytes: u64,
    digest: Option<&str>,
) -> Result<(), ReplyFailure> {
    let config = cx.file(guest)?;
    // `disk` and `size` are looked at as if they were keys of the file that no other right is for.
    cx.need(&format!("/vms/{}", guest.vmid), &["VM.Config.Options"])?;
    write::check_lock(guest, config)?;
    write::check_digest(guest, config, digest, cx.world.release())?;
    let Some(value) = config.get(disk) else { return Err(no_mount()) };
    let volid = value.split(',').next().unwrap_or_default();
    let size = cx.world.volume(volid).map_or(0, |volume| volume.size_bytes);
    match bytes {
        _ if relative => Ok(()),
        bytes if bytes == size => Err(ReplyFailure::died("disk is already at specified size")),
        bytes if bytes < size => Err(ReplyFailure::died("unable to shrink disk size")),
        _ => Ok(()),
    }
}

pub(super) fn relocate(cx: &mut Context<'_>) -> Answer {
    let guest = cx.guest()?;
    match (guest.kind, cx.text("storage"), cx.text("target-vmid")) {
        (_, Some(_), None) => to_storage(cx, guest),
        (_, None, Some(_)) => to_guest(cx, guest),
        (GuestKind::Lxc, None, None) => {
            let text = "both 'storage' and 'target-vmid' missing, either needs to be set";
            let names = ["storage", "target-vmid"];
            let errors = names.map(|name| (name.to_owned(), text.to_owned()));
            Err(ReplyFailure::Params(Errors::from(errors)))
        }
        (GuestKind::Lxc, Some(_), Some(_)) => {
            let text = "either set 'storage' or 'target-vmid', but not both";
            let names = ["storage", "target-vmid"];
            let errors = names.map(|name| (name.to_owned(), text.to_owned()));
            Err(ReplyFailure::Params(Errors::from(errors)))
        }
        (GuestKind::Qemu, _, _) => Err(ReplyFailure::died(
            "Provide either a 'storage' to move the disk to a different storage or 'target-vmid' and 'target-disk' to move the disk to another VM",
        )),
    }
}

fn disk_word(kind: GuestKind) -> (&'static str, &'static str) {
    match kind {
        GuestKind::Lxc => ("volume", "move_volume"),
        GuestKind::Qemu => ("disk", "qmmove"),
    }
}

/// A mount point that is not there is parsed all the same.
fn no_mount() -> ReplyFailure {
    let missing = "property is missing and it is not optional".to_owned();
    let errors = Errors::from([("mp".to_owned(), missing.clone()), ("volume".to_owned(), missing)]);
    ReplyFailure::DiedWith("format error".into(), errors)
}

fn check_unchanged(cx: &Context<'_>, guest: GuestId) -> Result<(), ReplyFailure> {
    match cx.text("digest").filter(|digest| !digest.is_empty()) {
        Some(digest) if digest != cx.file(guest)?.digest(guest.kind) => {
            Err(ReplyFailure::died(write::MODIFIED))
        }
        Some(_) | None => Ok(()),
    }
}

/// Whether a container's target storage is there and takes containers is its task's affair.
fn to_storage(cx: &mut Context<'_>, guest: GuestId) -> Answer {
    let (name, kind) = disk_word(guest.kind);
    let disk = cx.text(name).unwrap_or_default().to_owned();
    let storage = cx.text("storage").unwrap_or_default().to_owned();
    let config = cx.file(guest)?;
    write::check_lock(guest, config)?;
    let value = config.get(&disk).map(str::to_owned);
    match guest.kind {
        GuestKind::Lxc => {
            if cx.is_running(guest) {
                return Err(ReplyFailure::died("cannot move volumes of a running container"));
            }
            if disk.starts_with("unused") {
                return Err(ReplyFailure::Died(format!(
                    "cannot move volume '{disk}', only configured volumes can be moved to another storage"
                )));
            }
            if value.is_none() {
                return Err(no_mount());
            }
            check_unchanged(cx, guest)?;
            if let Some(record) = cx.world.guest_mut(guest) {
                record.config.set_lock(Some("disk"));
            }
        }
        GuestKind::Qemu => {
            super::create::check_content(cx, &storage, "images", "vm images")?;
            check_unchanged(cx, guest)?;
            let Some(value) = value else {
                return Err(ReplyFailure::Died(format!("disk '{disk}' does not exist")));
            };
            let volid = value.split(',').next().unwrap_or_default();
            let format = cx.world.volume(volid).map_or("raw", |volume| volume.format.as_str());
            let same = volid.split(':').next() == Some(storage.as_str());
            if same && cx.text("format").is_none_or(|wanted| wanted == format) {
                return Err(ReplyFailure::died(
                    "you can't move to the same storage with same format",
                ));
            }
        }
    }
    let order = MoveOrder {
        disk,
        storage,
        format: cx.text("format").map(str::to_owned),
        delete: cx.flag("delete"),
        made: None,
        of: None,
    };
    cx.fork(kind, &guest.vmid.to_string(), TaskJob::Move { guest, order })
}

fn to_guest(cx: &mut Context<'_>, guest: GuestId) -> Answer {
    let (name, kind) = disk_word(guest.kind);
    let disk = cx.text(name).unwrap_or_default().to_owned();
    let target = cx.guest_of(cx.text("target-vmid").unwrap_or_default())?;
    let slot = cx.text(&format!("target-{name}")).unwrap_or(&disk).to_owned();
    let config = cx.file(guest)?;
    write::check_lock(guest, config)?;
    let there = config.get(&disk).is_some();
    let loose = disk.starts_with("unused");
    let refused = match guest.kind {
        GuestKind::Lxc if disk == "rootfs" || slot == "rootfs" => {
            Some("Cannot move to/from 'rootfs'".to_owned())
        }
        GuestKind::Lxc if cx.is_running(guest) && !loose => Some(
            "Cannot move in-use volume while the source CT is running - detach or shutdown first"
                .to_owned(),
        ),
        GuestKind::Qemu if cx.is_running(guest) && !loose => Some(
            "Cannot move disk to another VM while the source VM is running - detach first"
                .to_owned(),
        ),
        GuestKind::Lxc | GuestKind::Qemu => None,
    };
    if let Some(text) = refused {
        return Err(ReplyFailure::Died(text));
    }
    check_unchanged(cx, guest)?;
    if !there {
        return Err(match guest.kind {
            GuestKind::Lxc => no_mount(),
            GuestKind::Qemu => ReplyFailure::Died(format!("disk '{disk}' does not exist")),
        });
    }
    if cx.file(target)?.get(&slot).is_some() {
        return Err(ReplyFailure::Died(match guest.kind {
            GuestKind::Lxc => {
                format!(
                    "Target volume key '{slot}' is already in use for container '{}'",
                    target.vmid
                )
            }
            GuestKind::Qemu => {
                format!("Target disk key '{slot}' is already in use for VM '{}'", target.vmid)
            }
        }));
    }
    let id = format!("{}-{disk}>{}-{slot}", guest.vmid, target.vmid);
    cx.fork(kind, &id, TaskJob::Reassign { guest, disk, target, target_disk: slot })
}
