//! What a task does: checks and locks when it gets the file lock, effects when its time is over.
//!
//! The engine calls [`begin`] and, after the duration it gives, [`finish`]. An error of either is
//! the task's exit status. Nothing here may look at a clock.

mod create;
mod disks;
mod power;
mod snapshots;

use std::fmt::Write as _;

use evenkeel_core::id::GuestId;
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::world::World;
use crate::write::{WriteChange, locked_text, no_config};

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
    Create {
        guest: GuestId,
        config: Box<Config>,
        start: bool,
        broken: Option<String>,
    },
    Restore {
        guest: GuestId,
        config: Box<Config>,
        start: bool,
    },
    Clone {
        source: GuestId,
        target: GuestId,
        config: Box<Config>,
        full: bool,
        storage: Option<String>,
        format: Option<String>,
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
        disk: String,
        storage: String,
        delete: bool,
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
        purge: bool,
        unreferenced: bool,
        force: bool,
    },
    Configure {
        guest: GuestId,
        change: Box<WriteChange>,
        skip_lock: bool,
    },
    Backup {
        guests: Vec<GuestId>,
        storage: String,
        remove: bool,
        protected: bool,
        notes: Option<String>,
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
}

impl<'a> Site<'a> {
    pub(crate) fn new(
        world: &'a mut World,
        timings: &'a Timings,
        now_ms: u64,
        log: &'a mut Vec<String>,
    ) -> Self {
        Self { world, timings, now_ms, log, warnings: 0 }
    }
}

/// A worker waits this long for the guest's file lock.
pub(crate) const LOCK_WAIT_MS: u64 = 10_000;

impl TaskJob {
    /// The guest whose file lock the task holds for its whole run.
    pub(crate) fn lock(&self) -> Option<GuestId> {
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
            | Self::Clone { target: guest, .. }
            | Self::Appear { guest, .. }
            | Self::Leave { guest }
            | Self::Template { guest }
            | Self::Resize { guest, .. }
            | Self::Move { guest, .. }
            | Self::Reassign { guest, .. }
            | Self::Snapshot { guest, .. }
            | Self::Rollback { guest, .. }
            | Self::DeleteSnapshot { guest, .. }
            | Self::Destroy { guest, .. }
            | Self::Configure { guest, .. } => Some(*guest),
            Self::Backup { .. } | Self::DeleteVolume { .. } => None,
        }
    }
}

/// Begins a task that has its lock: gives how long it will run.
pub(crate) fn begin(site: &mut Site<'_>, job: &TaskJob) -> Result<u64, String> {
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
        TaskJob::Create { guest, config, .. } => {
            create::begin(site, *guest, config).map(|()| t.create_ms)
        }
        TaskJob::Restore { guest, .. } => exists(site.world, *guest).map(|_| t.create_ms),
        TaskJob::Clone { source, target, .. } => {
            create::begin_clone(site, *source, *target).map(|()| t.copy_ms)
        }
        TaskJob::Appear { guest, replaces, .. } => {
            create::begin_appear(site, *guest, *replaces).map(|()| t.create_ms)
        }
        TaskJob::Leave { guest } => create::begin_leave(site, *guest).map(|()| t.copy_ms),
        TaskJob::Template { guest } => disks::begin_template(site, *guest).map(|()| t.short_ms),
        TaskJob::Resize { guest, disk, relative, bytes, digest } => {
            disks::begin_resize(site, *guest, disk, *relative, *bytes, digest.as_deref())
                .map(|()| t.short_ms)
        }
        TaskJob::Move { guest, disk, .. } | TaskJob::Reassign { guest, disk, .. } => {
            disks::begin_move(site, *guest, disk).map(|()| t.copy_ms)
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
        TaskJob::Destroy { guest, purge, force, .. } => {
            create::begin_destroy(site, *guest, *purge, *force).map(|()| t.short_ms)
        }
        TaskJob::Configure { .. } => Ok(0),
        TaskJob::Backup { guests, .. } => {
            disks::begin_backup(site, guests);
            Ok(t.copy_ms)
        }
        TaskJob::DeleteVolume { .. } => Ok(t.short_ms),
    }
}

/// Ends a task whose time is over: its effects.
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
        TaskJob::Create { guest, config, start, broken } => {
            return create::created(site, *guest, config, *start, broken.as_deref());
        }
        TaskJob::Restore { guest, config, start } => {
            return create::created(site, *guest, config, *start, None);
        }
        TaskJob::Clone { source, target, config, full, storage, format } => {
            let (storage, format) = (storage.as_deref(), format.as_deref());
            return create::cloned(site, *source, *target, config, *full, storage, format);
        }
        TaskJob::Appear { guest, config, .. } => create::appeared(site, *guest, config),
        TaskJob::Leave { guest } => create::left(site, *guest),
        TaskJob::Template { guest } => disks::templated(site, *guest),
        TaskJob::Resize { guest, disk, relative, bytes, .. } => {
            disks::resized(site, *guest, disk, *relative, *bytes);
        }
        TaskJob::Move { guest, disk, storage, delete } => {
            return disks::moved(site, *guest, disk, storage, *delete);
        }
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
        TaskJob::Destroy { guest, unreferenced, .. } => {
            create::destroyed(site, *guest, *unreferenced);
        }
        TaskJob::Configure { guest, change, skip_lock } => {
            return configure(site, *guest, change, *skip_lock);
        }
        TaskJob::Backup { guests, storage, remove, protected, notes } => {
            return disks::backed_up(site, guests, storage, *remove, *protected, notes.as_deref());
        }
        TaskJob::DeleteVolume { volume } => return disks::volume_deleted(site, volume),
    }
    Ok(())
}

/// What a worker takes away again that failed by itself.
pub(crate) fn failed(world: &mut World, job: &TaskJob) {
    if let TaskJob::Appear { guest, .. } = job {
        world.guests.remove(&guest.vmid.get());
    }
}

/// What a killed worker leaves behind: config locks stay, a shutdown says why it ended.
pub(crate) fn killed(job: &TaskJob, log: &mut Vec<String>) {
    if let TaskJob::Shutdown { guest, timeout_s, .. } = job {
        log.push(format!(
            "command 'lxc-stop -n {} --nokill --timeout {timeout_s}' failed: received interrupt",
            guest.vmid
        ));
    }
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
