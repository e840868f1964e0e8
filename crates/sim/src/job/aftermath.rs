//! What is left when a task does not come to its end: it fails by itself, its process is killed, or it is asked to stop.
//!
//! Failing takes away what was made, with one exception that is PVE's: a machine that was being restored. Killing takes
//! away nothing, and no lock.

use evenkeel_core::model::id::{GuestId, GuestKind};
use evenkeel_core::model::release::Release;

use super::{
    BackupRun, CloneOrder, CreateOrder, MoveOrder, RestoreOrder, TaskJob, backup, clone, create,
    disks, restore,
};
use crate::config::Config;
use crate::world::{World, is_disk_key};

/// The jobs that leave something of their own when they are cut short. Every other just ends where it was.
enum CutShort<'j> {
    Shutdown { guest: GuestId, timeout_s: u64 },
    Appear(GuestId),
    Create(GuestId, &'j CreateOrder),
    Restore(GuestId, &'j RestoreOrder),
    Clone { source: GuestId, target: GuestId, order: &'j CloneOrder },
    Move(GuestId, &'j MoveOrder),
    Backup(&'j BackupRun),
}

fn cut_short(job: &TaskJob) -> Option<CutShort<'_>> {
    match job {
        TaskJob::Shutdown { guest, timeout_s, .. } => {
            Some(CutShort::Shutdown { guest: *guest, timeout_s: *timeout_s })
        }
        TaskJob::Appear { guest, .. } => Some(CutShort::Appear(*guest)),
        TaskJob::Create { guest, order } => Some(CutShort::Create(*guest, order)),
        TaskJob::Restore { guest, order } => Some(CutShort::Restore(*guest, order)),
        TaskJob::Clone { source, target, order } => {
            Some(CutShort::Clone { source: *source, target: *target, order })
        }
        TaskJob::Move { guest, order } => Some(CutShort::Move(*guest, order)),
        TaskJob::Backup { order } => Some(CutShort::Backup(order)),
        TaskJob::Start { .. }
        | TaskJob::Stop { .. }
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
        | TaskJob::DeleteVolume { .. } => None,
    }
}

/// What a worker takes away again that failed by itself.
pub(crate) fn failed(world: &mut World, job: &TaskJob) {
    match cut_short(job) {
        Some(CutShort::Appear(guest)) => {
            world.guests.remove(&guest.vmid.get());
        }
        Some(CutShort::Create(guest, order)) => create::undo(world, guest, &order.progress.made),
        Some(CutShort::Restore(guest, order)) => match guest.kind {
            GuestKind::Lxc => create::undo(world, guest, &order.progress.made),
            GuestKind::Qemu => {
                order.progress.made.iter().for_each(|volid| world.free(volid));
                if let Some(record) = world.guest_mut(guest) {
                    record.config = Config::of(&[("memory", "128")]);
                }
            }
        },
        Some(CutShort::Clone { source, target, order }) => {
            clone::undo(world, source, target, order);
        }
        Some(CutShort::Move(guest, order)) => {
            if let Some(volid) = &order.made {
                world.free(volid);
            }
            disks::unlock(world, guest);
        }
        Some(CutShort::Backup(order)) => {
            for (guest, _) in &order.saving {
                backup::release(world, *guest);
            }
        }
        Some(CutShort::Shutdown { .. }) | None => {}
    }
}

/// The same for one whose clean-up fails too: the copy that a move had made stays.
pub(crate) fn failed_uncleanly(world: &mut World, job: &TaskJob) {
    match cut_short(job) {
        Some(CutShort::Move(guest, _)) => disks::unlock(world, guest),
        Some(
            CutShort::Shutdown { .. }
            | CutShort::Appear(_)
            | CutShort::Create(..)
            | CutShort::Restore(..)
            | CutShort::Clone { .. }
            | CutShort::Backup(_),
        )
        | None => failed(world, job),
    }
}

/// What a killed worker leaves behind: every lock, and the volumes it had come to. A shutdown says why it ended.
pub(crate) fn killed(world: &mut World, job: &TaskJob, log: &mut Vec<String>) {
    match cut_short(job) {
        Some(CutShort::Shutdown { guest, timeout_s }) => log.push(format!(
            "command 'lxc-stop -n {} --nokill --timeout {timeout_s}' failed: received interrupt",
            guest.vmid
        )),
        Some(CutShort::Create(_, order)) => keep_half(world, &order.progress.made),
        Some(CutShort::Restore(guest, order)) => {
            keep_half(world, &order.progress.made);
            let begun = guest.kind == GuestKind::Qemu && !order.config.active.is_empty();
            if let Some(record) = world.guest_mut(guest).filter(|_| begun) {
                record.config = Config::of(&[("memory", "128")]);
            }
        }
        Some(CutShort::Clone { target, order, .. }) => {
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
                if let Some(record) = world.guest_mut(target) {
                    record.config = half;
                }
            }
        }
        Some(CutShort::Appear(_) | CutShort::Move(..) | CutShort::Backup(_)) | None => {}
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
    match cut_short(job) {
        Some(CutShort::Create(guest, _)) if guest.kind == GuestKind::Lxc && old => {
            StopOutcome::GoesOn
        }
        Some(CutShort::Create(guest, order)) => {
            let made = order.progress.made.first().map(|volid| create::path_of(world, volid));
            let why = match (guest.kind, made) {
                (GuestKind::Qemu, Some(path)) => format!("disk image '{path}' already exists"),
                (GuestKind::Lxc | GuestKind::Qemu, _) => "received interrupt".to_owned(),
            };
            let what = create::word(guest.kind);
            StopOutcome::Fails(format!("unable to create {what} {} - {why}", guest.vmid))
        }
        Some(CutShort::Clone { source, .. }) if source.kind == GuestKind::Lxc && old => {
            StopOutcome::Killed
        }
        Some(CutShort::Clone { source, order, .. }) => match source.kind {
            GuestKind::Lxc => StopOutcome::Fails("clone failed: interrupted by signal".to_owned()),
            GuestKind::Qemu => {
                interrupted(format!("clone failed: copy failed: {}", copy_command(world, order)))
            }
        },
        Some(CutShort::Restore(guest, order)) => match guest.kind {
            GuestKind::Lxc => StopOutcome::Fails(format!(
                "unable to restore CT {} - received interrupt",
                guest.vmid
            )),
            GuestKind::Qemu => {
                interrupted(format!("command '{}'", restore::extract_command(world, order, pid)))
            }
        },
        // It has failed already, and only has to say so.
        Some(CutShort::Backup(order)) if order.saving.is_empty() => StopOutcome::GoesOn,
        Some(CutShort::Backup(_)) => StopOutcome::Fails("interrupted by signal".to_owned()),
        Some(CutShort::Shutdown { .. } | CutShort::Appear(_) | CutShort::Move(..)) | None => {
            StopOutcome::Killed
        }
    }
}

/// The command that copies the drive a clone has come to.
fn copy_command(world: &World, order: &CloneOrder) -> String {
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
