//! Starting, stopping and what waits for either.

use evenkeel_core::model::id::{GuestId, GuestKind};
use evenkeel_core::model::release::Release;

use super::{Site, exists, unlocked};
use crate::config::Config;
use crate::schema::Errors;
use crate::storage::{split_volid, stored_name};
use crate::world::{SimPower, World, is_net_key};

/// What QEMU runs to put a card on its bridge.
const BRIDGE_SCRIPT: &str = "/usr/libexec/qemu-server/pve-bridge";

pub(super) fn begin_start(site: &mut Site<'_>, guest: GuestId) -> Result<(), String> {
    let config = exists(site.world, guest)?;
    let allowed = match guest.kind {
        GuestKind::Lxc => "mounted",
        GuestKind::Qemu => "suspended",
    };
    if config.is_set("template") {
        return Err(match guest.kind {
            GuestKind::Lxc => "you can't start a CT if it's a template",
            GuestKind::Qemu => "you can't start a vm if it's a template",
        }
        .to_owned());
    }
    // A machine that is being saved has a process already, which goes on as the machine.
    let saved = guest.kind == GuestKind::Qemu
        && config.lock() == Some("backup")
        && is_running(site.world, guest);
    if saved {
        return Ok(());
    }
    if let Some(lock) = config.lock().filter(|lock| *lock != allowed) {
        return Err(crate::write::locked_text(guest.kind, lock));
    }
    if is_running(site.world, guest) {
        return match guest.kind {
            GuestKind::Lxc => Ok(()),
            GuestKind::Qemu => Err(format!("VM {} already running", guest.vmid)),
        };
    }
    apply_waiting(site, guest);
    let config = exists(site.world, guest)?;
    if guest.kind == GuestKind::Lxc {
        if config.get("arch").is_none() {
            return Err(
                "missing 'arch' - internal error at /usr/share/perl5/PVE/LXC.pm line 676.".into()
            );
        }
        check_bridges(site.world, config)?;
    } else if let Err(message) = check_bridges(site.world, config) {
        // Before 9.0 only QEMU's script noticed: the exit status does not say it, the log does.
        let told = site.world.release() >= Release::V9_0;
        if told {
            return Err(message);
        }
        let tap = format!("tap{}i0", guest.vmid);
        site.log.push(message);
        site.log.push(format!(
            "kvm: -netdev type=tap,id=net0,ifname={tap},script={BRIDGE_SCRIPT}: network script {BRIDGE_SCRIPT} failed with status 512"
        ));
        return Err("start failed: QEMU exited with code 1".to_owned());
    }
    let disks = super::snapshots::disks(guest.kind, &config.active);
    if let Some(storage) = disks.iter().find_map(|volid| site.world.undefined_storage(volid)) {
        return Err(format!("storage '{storage}' does not exist"));
    }
    if has_read_only_base(site.world, guest, config) {
        return Err(match guest.kind {
            GuestKind::Lxc => format!("startup for container '{}' failed", guest.vmid),
            GuestKind::Qemu => "start failed: QEMU exited with code 1".to_owned(),
        });
    }
    Ok(())
}

/// The base volumes of what was a template are read-only files; a linked clone's own file is not.
fn has_read_only_base(world: &World, guest: GuestId, config: &Config) -> bool {
    super::snapshots::disks(guest.kind, &config.active).iter().any(|volid| {
        let Some((storage, name)) = split_volid(volid) else { return false };
        let files = world.storages.get(storage).is_some_and(|found| found.kind.keeps_files());
        files && stored_name(name).contains("/base-")
    })
}

fn check_bridges(world: &World, config: &Config) -> Result<(), String> {
    for (_, value) in config.active.iter().filter(|(key, _)| is_net_key(key)) {
        let bridge =
            value.split(',').find_map(|part| part.strip_prefix("bridge=")).unwrap_or_default();
        if !bridge.is_empty() && !world.bridges.contains(bridge) {
            return Err(format!("bridge '{bridge}' does not exist"));
        }
    }
    Ok(())
}

pub(super) fn started(site: &mut Site<'_>, guest: GuestId) -> Result<(), String> {
    exists(site.world, guest)?;
    let waits = |g: &crate::world::SimGuest| matches!(g.power, SimPower::Prelaunch { .. });
    if is_running(site.world, guest) && !site.world.guest(guest).is_some_and(waits) {
        return Ok(());
    }
    let pid = u32::try_from(2000 + site.world.random.below(60_000)).unwrap_or(2000);
    if let Some(record) = site.world.guest_mut(guest) {
        record.power = SimPower::Running { since_ms: site.now_ms, pid, paused: false };
        record.first_ran_ms.get_or_insert(site.now_ms);
        if record.config.lock() == Some("suspended") {
            record.config.set_lock(None);
            record.config.active.remove("vmstate");
        }
    }
    warn_about_threads(site, guest);
    Ok(())
}

/// A disk that asks for a thread of its own where the controller has none starts with a warning.
fn warn_about_threads(site: &mut Site<'_>, guest: GuestId) {
    let Some(config) = site.world.guest(guest).map(|record| &record.config) else { return };
    let single = config.get("scsihw") == Some("virtio-scsi-single");
    let asks =
        |(key, value): (&String, &String)| key.starts_with("scsi") && value.contains("iothread=1");
    if guest.kind == GuestKind::Qemu && !single && config.active.iter().any(asks) {
        site.log.push("WARN: iothread is only valid with virtio disk or virtio-scsi-single controller, ignoring".into());
        site.warnings += 1;
    }
}

fn is_running(world: &World, guest: GuestId) -> bool {
    world.guest(guest).is_some_and(|guest| guest.power.is_running())
}

/// A container that is gone has its own words; a machine's are shared with every config call.
fn missing(site: &Site<'_>, guest: GuestId) -> Result<(), String> {
    match (exists(site.world, guest), guest.kind) {
        (Ok(_), _) => Ok(()),
        (Err(message), GuestKind::Lxc) => Err(message),
        (Err(_), GuestKind::Qemu) => {
            let node = &site.world.node;
            Err(format!("unable to find configuration file for VM {} on node '{node}'", guest.vmid))
        }
    }
}

/// Whether there is anything to stop.
pub(super) fn begin_stop(site: &mut Site<'_>, guest: GuestId) -> Result<bool, String> {
    missing(site, guest)?;
    match guest.kind {
        GuestKind::Lxc => unlocked(site.world, guest).map(|_| true),
        GuestKind::Qemu if is_running(site.world, guest) => {
            unlocked(site.world, guest).map(|_| true)
        }
        GuestKind::Qemu => Ok(false),
    }
}

pub(super) fn stopped(site: &mut Site<'_>, guest: GuestId) {
    if let Some(record) = site.world.guest_mut(guest) {
        record.power = SimPower::Stopped;
    }
    apply_waiting(site, guest);
}

/// How long a shutdown takes: as long as the guest needs, or twice the timeout and a little more.
pub(super) fn begin_shutdown(
    site: &mut Site<'_>,
    guest: GuestId,
    timeout_s: u64,
    force: bool,
) -> Result<u64, String> {
    missing(site, guest)?;
    let Some(record) = site.world.guest(guest).filter(|record| record.power.is_running()) else {
        return Ok(0);
    };
    let polite = !record.ignores_shutdown;
    unlocked(site.world, guest)?;
    Ok(match (polite, guest.kind) {
        (true, _) => site.timings.shutdown_ms,
        (false, GuestKind::Qemu) => timeout_s * 1000,
        (false, GuestKind::Lxc) if force => timeout_s * 1000,
        (false, GuestKind::Lxc) => 2 * timeout_s * 1000 + 5000,
    })
}

pub(super) fn shut_down(
    site: &mut Site<'_>,
    guest: GuestId,
    timeout_s: u64,
    force: bool,
) -> Result<(), String> {
    let ignored =
        site.world.guest(guest).is_some_and(|g| g.power.is_running() && g.ignores_shutdown);
    if ignored {
        match guest.kind {
            GuestKind::Lxc => site.log.push(format!(
                "command 'lxc-stop -n {} --{}kill --timeout {timeout_s}' failed: exit code 1",
                guest.vmid,
                if force { "" } else { "no" }
            )),
            GuestKind::Qemu if force => {
                site.log.push("VM still running - terminating now with SIGTERM".into());
            }
            GuestKind::Qemu => {}
        }
        if !force {
            return Err(match guest.kind {
                GuestKind::Lxc => "container did not stop",
                GuestKind::Qemu => "VM quit/powerdown failed - got timeout",
            }
            .to_owned());
        }
    }
    stopped(site, guest);
    Ok(())
}

pub(super) fn rebooted(site: &mut Site<'_>, guest: GuestId) -> Result<(), String> {
    stopped(site, guest);
    // The start hook of a container checks the lock the reboot itself ignored.
    begin_start(site, guest)?;
    started(site, guest)
}

pub(super) fn paused(site: &mut Site<'_>, guest: GuestId, halt: bool) {
    if let Some(record) = site.world.guest_mut(guest)
        && let SimPower::Running { paused, .. } = &mut record.power
    {
        *paused = halt;
    }
}

pub(super) fn hibernated(site: &mut Site<'_>, guest: GuestId) {
    if let Some(record) = site.world.guest_mut(guest) {
        record.power = SimPower::Stopped;
        record.config.set_lock(Some("suspended"));
    }
}

/// Stop and start apply everything that waits, forced removals included.
pub(super) fn apply_waiting(site: &mut Site<'_>, guest: GuestId) {
    let Some(record) = site.world.guest(guest) else { return };
    let mut config = record.config.clone();
    if config.pending.is_empty() && config.pending_delete.is_empty() {
        return;
    }
    match guest.kind {
        GuestKind::Lxc => {
            let mut errors = Errors::new();
            crate::write::lxc::apply_pending(
                site.world,
                guest,
                &mut config,
                None,
                site.now_ms,
                &mut errors,
            );
            site.log.extend(errors.into_values().map(|line| line.trim_end().to_owned()));
        }
        GuestKind::Qemu => crate::write::qemu::apply_pending(site.world, guest, &mut config),
    }
    if let Some(record) = site.world.guest_mut(guest) {
        record.config = config;
    }
}
