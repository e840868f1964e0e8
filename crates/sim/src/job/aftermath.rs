//! What is left when a task does not come to its end: it fails by itself, its process is killed, or it is asked to stop.
//!
//! Failing takes away what was made, with one exception that is PVE's: a machine that was being restored. Killing takes
//! away nothing, and no lock.

use evenkeel_core::id::GuestKind;
use evenkeel_core::release::Release;

use super::{TaskJob, backup, clone, create, restore};
use crate::config::Config;
use crate::world::{World, is_disk_key};

/// What a worker takes away again that failed by itself.
pub(crate) fn failed(world: &mut World, job: &TaskJob) {
    match job {
        TaskJob::Appear { guest, .. } => {
            world.guests.remove(&guest.vmid.get());
        }
        TaskJob::Create { guest, order } => create::undo(world, *guest, &order.made),
        TaskJob::Restore { guest, order } => match guest.kind {
            GuestKind::Lxc => create::undo(world, *guest, &order.made),
            GuestKind::Qemu => {
                order.made.iter().for_each(|volid| world.free(volid));
                if let Some(record) = world.guest_mut(*guest) {
                    record.config = Config::of(&[("memory", "128")]);
                }
            }
        },
        TaskJob::Clone { source, target, order } => clone::undo(world, *source, *target, order),
        TaskJob::Move { guest, order } => {
            if let Some(volid) = &order.made {
                world.free(volid);
            }
            if let Some(record) = world.guest_mut(*guest)
                && record.config.lock() == Some("disk")
            {
                record.config.set_lock(None);
            }
        }
        TaskJob::Backup { order } => {
            for (guest, _) in &order.saving {
                backup::release(world, *guest);
            }
        }
        TaskJob::Start { .. }
        | TaskJob::Stop { .. }
        | TaskJob::Shutdown { .. }
        | TaskJob::Reboot { .. }
        | TaskJob::Reset { .. }
        | TaskJob::Pause { .. }
        | TaskJob::Hibernate { .. }
        | TaskJob::Resume { .. }
        | TaskJob::Thaw { .. }
        | TaskJob::Leave { .. }
        | TaskJob::Template { .. }
        | TaskJob::Resize { .. }
        | TaskJob::Reassign { .. }
        | TaskJob::Snapshot { .. }
        | TaskJob::Rollback { .. }
        | TaskJob::DeleteSnapshot { .. }
        | TaskJob::Destroy { .. }
        | TaskJob::Configure { .. }
        | TaskJob::DeleteVolume { .. } => {}
    }
}

/// What a killed worker leaves behind: every lock, and the volumes it had come to. A shutdown says why it ended.
pub(crate) fn killed(world: &mut World, job: &TaskJob, log: &mut Vec<String>) {
    match job {
        TaskJob::Shutdown { guest, timeout_s, .. } => log.push(format!(
            "command 'lxc-stop -n {} --nokill --timeout {timeout_s}' failed: received interrupt",
            guest.vmid
        )),
        TaskJob::Create { order, .. } => keep_half(world, &order.made),
        TaskJob::Restore { guest, order } => {
            keep_half(world, &order.made);
            let begun = guest.kind == GuestKind::Qemu && !order.config.active.is_empty();
            if let Some(record) = world.guest_mut(*guest).filter(|_| begun) {
                record.config = Config::of(&[("memory", "128")]);
            }
        }
        TaskJob::Clone { target, order, .. } => {
            keep_half(world, &order.volumes());
            // A machine's copy has its keys by then, and the drives that were done; a container's had them before.
            if target.kind == GuestKind::Qemu && !order.made.is_empty() {
                let done = order.made.len().div_ceil(2).saturating_sub(1);
                let done: Vec<&String> = order.made[..done].iter().map(|(key, _)| key).collect();
                let mut half = order.config.clone();
                half.active.retain(|key, _| {
                    !is_disk_key(GuestKind::Qemu, key)
                        || done.contains(&key)
                        || !order.made.iter().any(|(made, _)| made == key)
                });
                half.set_lock(Some("clone"));
                if let Some(record) = world.guest_mut(*target) {
                    record.config = half;
                }
            }
        }
        TaskJob::Start { .. }
        | TaskJob::Stop { .. }
        | TaskJob::Reboot { .. }
        | TaskJob::Reset { .. }
        | TaskJob::Pause { .. }
        | TaskJob::Hibernate { .. }
        | TaskJob::Resume { .. }
        | TaskJob::Thaw { .. }
        | TaskJob::Appear { .. }
        | TaskJob::Leave { .. }
        | TaskJob::Template { .. }
        | TaskJob::Resize { .. }
        | TaskJob::Move { .. }
        | TaskJob::Reassign { .. }
        | TaskJob::Snapshot { .. }
        | TaskJob::Rollback { .. }
        | TaskJob::DeleteSnapshot { .. }
        | TaskJob::Destroy { .. }
        | TaskJob::Configure { .. }
        | TaskJob::Backup { .. }
        | TaskJob::DeleteVolume { .. } => {}
    }
}

/// Disks are made one after another, and a kill strikes in between: the later half was never made.
fn keep_half(world: &mut World, made: &[String]) {
    for volid in made.iter().skip(made.len().div_ceil(2)) {
        world.free(volid);
    }
}

/// The exit of a killed worker. The log's last line tells it, and there may be none.
pub(crate) fn killed_exit(job: &TaskJob, log: &[String]) -> &'static str {
    let makes =
        matches!(job, TaskJob::Create { .. } | TaskJob::Restore { .. } | TaskJob::Clone { .. });
    if makes && log.is_empty() { "unable to read tail (got 0 bytes)" } else { "unexpected status" }
}

/// What a worker does when somebody stops its task.
pub(crate) enum StopOutcome {
    /// It goes on, and ends well.
    GoesOn,
    /// It does not end in time and is killed.
    Killed,
    /// It takes away what it made and ends with this.
    Fails(String),
}

pub(crate) fn stopped(world: &World, job: &TaskJob, pid: u32) -> StopOutcome {
    let old = world.release() < Release::V9_0;
    let interrupted =
        |what: String| StopOutcome::Fails(format!("{what} failed: interrupted by signal"));
    match job {
        TaskJob::Create { guest, .. } if guest.kind == GuestKind::Lxc && old => StopOutcome::GoesOn,
        TaskJob::Create { guest, order } => {
            let made = order.made.first().map(|volid| create::path_of(world, volid));
            let why = match (guest.kind, made) {
                (GuestKind::Qemu, Some(path)) => format!("disk image '{path}' already exists"),
                (GuestKind::Lxc | GuestKind::Qemu, _) => "received interrupt".to_owned(),
            };
            let what = create::word(guest.kind);
            StopOutcome::Fails(format!("unable to create {what} {} - {why}", guest.vmid))
        }
        TaskJob::Clone { source, .. } if source.kind == GuestKind::Lxc && old => {
            StopOutcome::Killed
        }
        TaskJob::Clone { source, order, .. } => match source.kind {
            GuestKind::Lxc => StopOutcome::Fails("clone failed: interrupted by signal".to_owned()),
            GuestKind::Qemu => {
                interrupted(format!("clone failed: copy failed: {}", copy_command(world, order)))
            }
        },
        TaskJob::Restore { guest, order } => match guest.kind {
            GuestKind::Lxc => StopOutcome::Fails(format!(
                "unable to restore CT {} - received interrupt",
                guest.vmid
            )),
            GuestKind::Qemu => {
                interrupted(format!("command '{}'", restore::extract_command(world, order, pid)))
            }
        },
        // It has failed already, and only has to say so.
        TaskJob::Backup { order } if order.saving.is_empty() => StopOutcome::GoesOn,
        TaskJob::Backup { .. } => StopOutcome::Fails("interrupted by signal".to_owned()),
        TaskJob::Start { .. }
        | TaskJob::Stop { .. }
        | TaskJob::Shutdown { .. }
        | TaskJob::Reboot { .. }
        | TaskJob::Reset { .. }
        | TaskJob::Pause { .. }
        | TaskJob::Hibernate { .. }
        | TaskJob::Resume { .. }
        | TaskJob::Thaw { .. }
        | TaskJob::Appear { .. }
        | TaskJob::Leave { .. }
        | TaskJob::Template { .. }
        | TaskJob::Resize { .. }
        | TaskJob::Move { .. }
        | TaskJob::Reassign { .. }
        | TaskJob::Snapshot { .. }
        | TaskJob::Rollback { .. }
        | TaskJob::DeleteSnapshot { .. }
        | TaskJob::Destroy { .. }
        | TaskJob::Configure { .. }
        | TaskJob::DeleteVolume { .. } => StopOutcome::Killed,
    }
}

/// The command that copies the drive a clone has come to.
fn copy_command(world: &World, order: &clone::CloneOrder) -> String {
    let drive = order.made.iter().find(|(_, volid)| !volid.contains("-cloudinit"));
    let new = drive.map_or("", |(_, volid)| volid.as_str());
    let copy = world.volume(new);
    let old = copy.and_then(|volume| volume.origin.as_ref()).map_or("", |from| from.volid.as_str());
    let format = |volid: &str| world.volume(volid).map_or("raw", |volume| volume.format.as_str());
    let limit = order.rate_limit.map(|kib| format!("-r {kib}K ")).unwrap_or_default();
    format!(
        "command '/usr/bin/qemu-img convert -p -n {limit}-f {} -O {} {} zeroinit:{}'",
        format(old),
        format(new),
        create::path_of(world, old),
        create::path_of(world, new)
    )
}
