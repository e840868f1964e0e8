//! What a task does: checks and locks when it gets the file lock, effects when its time is over.
//!
//! The engine calls [`begin`] and, after the duration it gives, [`next`], again and again until the task has ended. An
//! error of either is the task's exit status. Nothing here may look at a clock.

mod aftermath;
mod backup;
mod clone;
mod create;
mod destroy;
mod disks;
mod power;
mod restore;
mod snapshots;

use std::fmt::Write as _;

use evenkeel_core::model::id::{GuestId, GuestKind};
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::world::World;
use crate::write::{WriteChange, locked_text, no_config};

pub(crate) use aftermath::{StopOutcome, failed, failed_uncleanly, killed, killed_exit, stopped};
pub(crate) use backup::{BackupRun, LOCK_TIMEOUT as BACKUP_LOCK_TIMEOUT};
pub(crate) use clone::CloneOrder;
pub(crate) use create::{AfterMaking, CreateOrder, MakingProgress, ha_sid, word};
pub(crate) use destroy::DestroyOrder;
pub(crate) use disks::MoveOrder;
pub(crate) use restore::{RestoreOrder, with_new_uuid};
pub(crate) use snapshots::available as snapshots_available;

/// The work of one task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum TaskJob {
    Start {
        guest: GuestId,
    },
    Stop {
        guest: GuestId,
    },
    Shutdown {
        guest: GuestId,
        timeout_s: u64,
        force: bool,
    },
    Reboot {
        guest: GuestId,
        timeout_s: u64,
    },
    Reset {
        guest: GuestId,
    },
    Pause {
        guest: GuestId,
    },
    Hibernate {
        guest: GuestId,
    },
    Resume {
        guest: GuestId,
    },
    /// A container is brought back from a checkpoint, of which there is none.
    Thaw {
        guest: GuestId,
    },
    Create {
        guest: GuestId,
        order: Box<CreateOrder>,
    },
    Restore {
        guest: GuestId,
        order: Box<RestoreOrder>,
    },
    Clone {
        source: GuestId,
        target: GuestId,
        order: Box<CloneOrder>,
    },
    /// A guest comes from somewhere whole, with its volumes: somebody else's create, restore or clone.
    Appear {
        guest: GuestId,
        config: Box<Config>,
        /// Whether a guest that has the number goes for it.
        replaces: bool,
    },
    /// The guest goes to another node, with its volumes.
    Leave {
        guest: GuestId,
    },
    Template {
        guest: GuestId,
    },
    Resize {
        guest: GuestId,
        disk: String,
        relative: bool,
        bytes: u64,
        digest: Option<String>,
    },
    Move {
        guest: GuestId,
        order: MoveOrder,
    },
    Reassign {
        guest: GuestId,
        disk: String,
        target: GuestId,
        target_disk: String,
    },
    Snapshot {
        guest: GuestId,
        name: String,
        description: String,
        state: bool,
    },
    Rollback {
        guest: GuestId,
        name: String,
        start: bool,
    },
    DeleteSnapshot {
        guest: GuestId,
        name: String,
        force: bool,
    },
    Destroy {
        guest: GuestId,
        order: DestroyOrder,
    },
    Configure {
        guest: GuestId,
        change: Box<WriteChange>,
        skip_lock: bool,
    },
    Backup {
        order: Box<BackupRun>,
    },
    DeleteVolume {
        volume: String,
    },
}

/// How long things take, in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Timings {
    /// Starting a guest.
    pub start_ms: u64,
    /// Killing a guest.
    pub stop_ms: u64,
    /// A guest going down by itself.
    pub shutdown_ms: u64,
    /// Unpacking a template or making disks.
    pub create_ms: u64,
    /// Copying disks: clone, move, backup.
    pub copy_ms: u64,
    /// Everything short: destroy, resize, snapshot, template.
    pub short_ms: u64,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            start_ms: 1500,
            stop_ms: 800,
            shutdown_ms: 2000,
            create_ms: 800,
            copy_ms: 1500,
            short_ms: 300,
        }
    }
}

/// The world as a task sees it.
pub(crate) struct Site<'a> {
    pub(crate) world: &'a mut World,
    pub(crate) timings: &'a Timings,
    pub(crate) now_ms: u64,
    pub(crate) log: &'a mut Vec<String>,
    /// How many warnings the task has given so far.
    pub(crate) warnings: u32,
    /// The process id of its worker.
    pub(crate) pid: u32,
}

impl<'a> Site<'a> {
    pub(crate) fn new(
        world: &'a mut World,
        timings: &'a Timings,
        now_ms: u64,
        log: &'a mut Vec<String>,
        pid: u32,
    ) -> Self {
        Self { world, timings, now_ms, log, warnings: 0, pid }
    }
}

impl Site<'_> {
    /// How far the copy of a machine's volume is, as `qemu-img` tells it.
    fn log_transferred(&mut self, volid: &str, all: bool) {
        let total = self.world.volume(volid).map_or(0, |volume| volume.size_bytes);
        let (done, percent) = if all { (total, "100.00") } else { (0, "0.00") };
        let done = human_size(done);
        let total = human_size(total);
        self.log.push(format!("transferred {done} of {total} ({percent}%)"));
    }
}

/// A size with one digit behind the point: `102.4 MiB`.
fn human_size(bytes: u64) -> String {
    let unit = |shift: u32| {
        let tenths = (u128::from(bytes) * 10 + (1_u128 << shift) / 2) >> shift;
        format!("{}.{}", tenths / 10, tenths % 10)
    };
    match bytes {
        0..1_024 => format!("{bytes}.0 B"),
        1_024..1_048_576 => format!("{} KiB", unit(10)),
        1_048_576..1_073_741_824 => format!("{} MiB", unit(20)),
        _ => format!("{} GiB", unit(30)),
    }
}

/// A worker waits this long for the guest's file lock.
pub(crate) const LOCK_WAIT_MS: u64 = 10_000;

/// How a task holds a guest's file lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockMode {
    Alone,
    /// Beside others that only read.
    Shared,
}

/// What comes after a part of a task's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Ended,
    /// Another part, which takes so many milliseconds.
    Step(u64),
}

impl TaskJob {
    /// The guests whose file locks the task holds for its whole run. Clones and moves of containers hold config locks
    /// instead, and so do backups.
    pub(crate) fn locks(&self, world: &World) -> Vec<(GuestId, LockMode)> {
        match self {
            Self::Start { guest }
            | Self::Stop { guest }
            | Self::Shutdown { guest, .. }
            | Self::Reboot { guest, .. }
            | Self::Reset { guest }
            | Self::Pause { guest }
            | Self::Hibernate { guest }
            | Self::Resume { guest }
            | Self::Create { guest, .. }
            | Self::Restore { guest, .. }
            | Self::Appear { guest, .. }
            | Self::Leave { guest }
            | Self::Template { guest }
            | Self::Resize { guest, .. }
            | Self::Reassign { guest, .. }
            | Self::Snapshot { guest, .. }
            | Self::Rollback { guest, .. }
            | Self::DeleteSnapshot { guest, .. }
            | Self::Destroy { guest, .. }
            | Self::Configure { guest, .. } => vec![(*guest, LockMode::Alone)],
            Self::Clone { source, target, .. } => match source.kind {
                GuestKind::Lxc => Vec::new(),
                GuestKind::Qemu => {
                    let runs = world.guest(*source).is_some_and(|g| g.power.is_running());
                    let mode = if runs { LockMode::Alone } else { LockMode::Shared };
                    vec![(*source, mode), (*target, LockMode::Alone)]
                }
            },
            Self::Move { guest, .. } => match guest.kind {
                GuestKind::Lxc => Vec::new(),
                GuestKind::Qemu => vec![(*guest, LockMode::Alone)],
            },
            Self::Thaw { .. } | Self::Backup { .. } | Self::DeleteVolume { .. } => Vec::new(),
        }
    }

    /// How long the task waits for what it needs to begin.
    pub(crate) fn patience_ms(&self) -> u64 {
        if let Self::Backup { order } = self { order.patience_ms } else { LOCK_WAIT_MS }
    }

    /// The part at whose end a fault strikes: the one in which the work is done.
    pub(crate) fn struck_at(&self) -> u8 {
        let machine =
            |guest: &GuestId| if guest.kind == GuestKind::Qemu { restore::DATA_STEP } else { 0 };
        if let Self::Restore { guest, .. } = self { machine(guest) } else { 0 }
    }

    /// The guest that is started by a task of its own when this one has ended well.
    pub(crate) fn starts_after(&self) -> Option<GuestId> {
        let made = if let Self::Create { guest, order } = self {
            Some((guest, &order.after))
        } else if let Self::Restore { guest, order } = self {
            Some((guest, &order.after))
        } else {
            None
        };
        made.filter(|(_, after)| after.start).map(|(guest, _)| *guest)
    }
}

/// Begins a task that has its lock: gives how long it will run.
pub(crate) fn begin(site: &mut Site<'_>, job: &mut TaskJob) -> Result<u64, String> {
    let t = site.timings.clone();
    match job {
        TaskJob::Start { guest } => power::begin_start(site, *guest).map(|()| t.start_ms),
        TaskJob::Stop { guest } => {
            power::begin_stop(site, *guest).map(|running| if running { t.stop_ms } else { 0 })
        }
        TaskJob::Shutdown { guest, timeout_s, force } => {
            power::begin_shutdown(site, *guest, *timeout_s, *force)
        }
        TaskJob::Reboot { guest, timeout_s } => {
            power::begin_shutdown(site, *guest, *timeout_s, true)
        }
        TaskJob::Reset { guest }
        | TaskJob::Pause { guest }
        | TaskJob::Hibernate { guest }
        | TaskJob::Resume { guest } => {
            unlocked(site.world, *guest)?;
            Ok(t.short_ms)
        }
        TaskJob::Thaw { .. } => Ok(t.short_ms),
        TaskJob::Create { guest, order } => {
            create::begin(site, *guest, order).map(|()| t.create_ms)
        }
        TaskJob::Restore { guest, order } => restore::begin(site, *guest, order),
        TaskJob::Clone { source, target, order } => {
            clone::begin(site, *source, *target, order).map(|()| t.copy_ms)
        }
        TaskJob::Appear { guest, replaces, .. } => {
            destroy::begin_appear(site, *guest, *replaces).map(|()| t.create_ms)
        }
        TaskJob::Leave { guest } => destroy::begin_leave(site, *guest).map(|()| t.copy_ms),
        TaskJob::Template { guest } => disks::begin_template(site, *guest).map(|()| t.short_ms),
        TaskJob::Resize { guest, disk, relative, bytes, digest } => {
            disks::begin_resize(site, *guest, disk, *relative, *bytes, digest.as_deref())
                .map(|()| t.short_ms)
        }
        TaskJob::Move { guest, order } => {
            disks::begin_move(site, *guest, order).map(|()| t.copy_ms)
        }
        TaskJob::Reassign { guest, disk, .. } => {
            disks::begin_reassign(site, *guest, disk).map(|()| t.short_ms)
        }
        TaskJob::Snapshot { guest, name, .. } => {
            snapshots::begin(site, *guest, name).map(|()| t.short_ms)
        }
        TaskJob::Rollback { guest, name, .. } => {
            snapshots::begin_rollback(site, *guest, name).map(|()| t.short_ms)
        }
        TaskJob::DeleteSnapshot { guest, name, .. } => {
            snapshots::begin_delete(site, *guest, name).map(|()| t.short_ms)
        }
        TaskJob::Destroy { guest, order } => {
            destroy::begin(site, *guest, *order).map(|()| t.short_ms)
        }
        TaskJob::Configure { .. } => Ok(0),
        TaskJob::Backup { order } => backup::begin(site, order).map(|()| t.copy_ms),
        TaskJob::DeleteVolume { .. } => Ok(t.short_ms),
    }
}

/// The effects of a part of a task whose time is over.
pub(crate) fn next(site: &mut Site<'_>, job: &mut TaskJob, step: u8) -> Result<Next, String> {
    if let TaskJob::Restore { guest, order } = job {
        return restore::next(site, *guest, order, step);
    }
    if let TaskJob::Destroy { guest, order } = job {
        return Ok(destroy::next(site, *guest, *order, step));
    }
    finish(site, job).map(|()| Next::Ended)
}

/// Ends a task of one part.
pub(crate) fn finish(site: &mut Site<'_>, job: &TaskJob) -> Result<(), String> {
    match job {
        TaskJob::Start { guest } => return power::started(site, *guest),
        TaskJob::Stop { guest } => power::stopped(site, *guest),
        TaskJob::Shutdown { guest, timeout_s, force } => {
            return power::shut_down(site, *guest, *timeout_s, *force);
        }
        TaskJob::Reboot { guest, .. } => return power::rebooted(site, *guest),
        TaskJob::Reset { .. } => {}
        TaskJob::Pause { guest } => power::paused(site, *guest, true),
        TaskJob::Hibernate { guest } => power::hibernated(site, *guest),
        TaskJob::Resume { guest } => power::paused(site, *guest, false),
        TaskJob::Thaw { guest } => {
            return Err(format!(
                "command 'lxc-checkpoint -n {} -r --foreground -D /var/lib/vz/dump' failed: exit code 1",
                guest.vmid
            ));
        }
        TaskJob::Create { guest, order } => return create::created(site, *guest, order),
        TaskJob::Clone { source, target, order } => clone::cloned(site, *source, *target, order),
        TaskJob::Appear { guest, config, .. } => destroy::appeared(site, *guest, config),
        TaskJob::Leave { guest } => destroy::left(site, *guest),
        TaskJob::Template { guest } => disks::templated(site, *guest),
        TaskJob::Resize { guest, disk, relative, bytes, .. } => {
            disks::resized(site, *guest, disk, *relative, *bytes);
        }
        TaskJob::Move { guest, order } => return disks::moved(site, *guest, order),
        TaskJob::Reassign { guest, disk, target, target_disk } => {
            return disks::reassigned(site, *guest, disk, *target, target_disk);
        }
        TaskJob::Snapshot { guest, name, description, state } => {
            snapshots::taken(site, *guest, name, description, *state);
        }
        TaskJob::Rollback { guest, name, start } => {
            return snapshots::rolled_back(site, *guest, name, *start);
        }
        TaskJob::DeleteSnapshot { guest, name, .. } => snapshots::deleted(site, *guest, name),
        // These have parts of their own.
        TaskJob::Restore { .. } | TaskJob::Destroy { .. } => {}
        TaskJob::Configure { guest, change, skip_lock } => {
            return configure(site, *guest, change, *skip_lock);
        }
        TaskJob::Backup { order } => return backup::finished(site, order),
        TaskJob::DeleteVolume { volume } => return disks::volume_deleted(site, volume),
    }
    Ok(())
}

fn configure(
    site: &mut Site<'_>,
    guest: GuestId,
    change: &WriteChange,
    skip_lock: bool,
) -> Result<(), String> {
    site.log.push(describe(guest, change));
    match crate::write::qemu::update(site.world, guest, change, skip_lock, site.now_ms) {
        Ok(()) => Ok(()),
        Err(crate::reply::ReplyFailure::Died(message)) => Err(message),
        Err(crate::reply::ReplyFailure::Params(errors)) => {
            let lines: Vec<String> =
                errors.iter().map(|(k, v)| format!("{k}: {}", v.trim_end())).collect();
            Err(format!("400 Parameter verification failed. {}", lines.join(" ")))
        }
        Err(_) => Err("internal error".to_owned()),
    }
}

/// `update VM 310: -description y`, as the task and the cluster log show it.
pub(crate) fn describe(guest: GuestId, change: &WriteChange) -> String {
    let mut words = String::new();
    if !change.delete.is_empty() {
        let _infallible = write!(words, " -delete {}", change.delete.join(","));
    }
    for (key, value) in &change.set {
        let shown =
            if key == "cipassword" { "<hidden>" } else { value.as_deref().unwrap_or_default() };
        let _infallible = write!(words, " -{key} {shown}");
    }
    format!("update VM {}:{words}", guest.vmid)
}

fn exists(world: &World, guest: GuestId) -> Result<&Config, String> {
    world.guest(guest).map(|guest| &guest.config).ok_or_else(|| no_config(world, guest))
}

/// The file, unless a config lock is set.
fn unlocked(world: &World, guest: GuestId) -> Result<&Config, String> {
    let config = exists(world, guest)?;
    match config.lock() {
        Some(lock) => Err(locked_text(guest.kind, lock)),
        None => Ok(config),
    }
}
