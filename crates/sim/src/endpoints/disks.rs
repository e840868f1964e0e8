//! Resizing and moving disks.

use evenkeel_core::id::{GuestId, GuestKind};
use evenkeel_core::release::Release;
use serde_json::Value;

use super::{Answer, Context, LOCK_WAIT_MS};
use crate::job::{Site, TaskJob};
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
        let site = &mut Site {
            world: cx.world,
            timings: &timings,
            now_ms: cx.now_ms,
            log: &mut log,
            warnings: 0,
        };
        crate::job::begin(site, &job)
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
    write::check_lock(guest, config)?;
    write::check_digest(guest, config, digest, cx.world.release())?;
    let Some(value) = config.get(disk) else {
        let missing = "property is missing and it is not optional".to_owned();
        let errors =
            Errors::from([("mp".to_owned(), missing.clone()), ("volume".to_owned(), missing)]);
        return Err(ReplyFailure::DiedWith("format error".into(), errors));
    };
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
    let name = match guest.kind {
        GuestKind::Lxc => "volume",
        GuestKind::Qemu => "disk",
    };
    let disk = cx.text(name).unwrap_or_default().to_owned();
    let config = cx.file(guest)?;
    write::check_lock(guest, config)?;
    if let Some(digest) = cx.text("digest").filter(|digest| !digest.is_empty())
        && digest != config.digest(guest.kind)
    {
        return Err(ReplyFailure::died(write::MODIFIED));
    }
    if config.get(&disk).is_none() {
        return Err(ReplyFailure::Died(format!("{name} '{disk}' does not exist")));
    }
    if guest.kind == GuestKind::Lxc && cx.is_running(guest) {
        return Err(ReplyFailure::died("cannot move volumes of a running container"));
    }
    let kind = match guest.kind {
        GuestKind::Lxc => "move_volume",
        GuestKind::Qemu => "qmmove",
    };
    match (cx.text("storage"), cx.text("target-vmid")) {
        (Some(storage), None) => {
            if !cx.world.storages.contains_key(storage) {
                return Err(ReplyFailure::Died(format!("storage '{storage}' does not exist")));
            }
            let job = TaskJob::Move {
                guest,
                disk,
                storage: storage.to_owned(),
                delete: cx.flag("delete"),
            };
            cx.fork(kind, &guest.vmid.to_string(), job)
        }
        (None, Some(target)) => {
            let target = cx.guest_of(target)?;
            let slot = cx.text(&format!("target-{name}")).unwrap_or(&disk).to_owned();
            let id = format!("{}-{disk}>{}-{slot}", guest.vmid, target.vmid);
            cx.fork(kind, &id, TaskJob::Reassign { guest, disk, target, target_disk: slot })
        }
        (Some(_), Some(_)) | (None, None) => Err(ReplyFailure::died(
            "Provide either a 'storage' to move the mount point to a different storage or 'target-vmid' and 'target-volume' to move the mount point to another container",
        )),
    }
}
