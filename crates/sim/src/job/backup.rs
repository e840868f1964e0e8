//! Backups: guests are locked while they are saved, and an archive is listed only when it is whole.
//!
//! One backup task works at a time on a node; others wait for it. A stopped virtual machine has a process meanwhile.

use evenkeel_core::model::id::{GuestId, GuestKind};
use serde::{Deserialize, Serialize};

use super::Site;
use crate::config::Config;
use crate::property::parse_size;
use crate::storage::Storage;
use crate::world::{BackupFile, SimPower, World, is_disk_key};

/// What a backup task was asked to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BackupRun {
    /// Guests by number; some may not be there.
    pub(crate) vmids: Vec<u32>,
    pub(crate) storage: String,
    /// Whether old backups go by the storage's retention.
    pub(crate) remove: bool,
    pub(crate) protected: bool,
    /// What comes after `tar` and `vma` in a name: `.zst`, or nothing.
    pub(crate) suffix: String,
    pub(crate) notes: Option<String>,
    /// How long it waits for another backup to end.
    pub(crate) patience_ms: u64,
    /// The patterns that are left out of containers; the node's own come in when the work begins.
    #[serde(default)]
    pub(crate) excludes: Vec<String>,
    /// A guest that the caller may not save.
    #[serde(default)]
    pub(crate) denied: Option<u32>,
    /// Who was locked for it, with when it began.
    #[serde(default)]
    pub(crate) saving: Vec<(GuestId, u64)>,
    #[serde(default)]
    pub(crate) failed: bool,
}

/// The text of a task that waited for another backup in vain.
pub(crate) const LOCK_TIMEOUT: &str = "can't acquire lock '/var/run/vzdump.lock' - got timeout";

pub(super) fn begin(site: &mut Site<'_>, order: &mut BackupRun) -> Result<(), String> {
    let storage = &order.storage;
    let Some(target) = site.world.storages.get(storage) else {
        let missing = format!("storage '{storage}' does not exist");
        return Err(format!(
            "could not activate storage '{storage}': {missing}\ncould not get storage information for '{storage}': {missing}"
        ));
    };
    if !target.content.contains("backup") {
        return Err(format!(
            "could not get storage information for '{storage}': can't use storage '{storage}' for backups - wrong content type"
        ));
    }
    order.excludes.extend(site.world.backup_excludes.iter().cloned());
    if let Some(vmid) = order.denied {
        return Err(format!("Permission check failed (/vms/{vmid}, VM.Backup)"));
    }
    for vmid in order.vmids.clone() {
        if let Err(why) = begin_one(site, order, vmid) {
            site.log.push(format!("ERROR: Backup of VM {vmid} failed - {why}"));
            order.failed = true;
        }
    }
    Ok(())
}

fn begin_one(site: &mut Site<'_>, order: &mut BackupRun, vmid: u32) -> Result<(), String> {
    let Some(record) = site.world.guests.get(&vmid) else {
        return Err(format!("unable to find VM '{vmid}'"));
    };
    let guest = record.id;
    site.log.push(format!("INFO: Starting Backup of VM {vmid} ({})", guest.kind));
    site.log.push(format!("INFO: status = {}", record.power.word()));
    super::unlocked(site.world, guest)?;
    if let Some(limit) = retention_reached(site.world, guest, order) {
        return Err(format!(
            "There is a max backup limit of {limit} enforced by the target storage or the vzdump parameters. Either increase the limit or delete old backup(s)."
        ));
    }
    let (now_ms, now_s) = (site.now_ms, site.world.unix(site.now_ms));
    if let Some(record) = site.world.guest_mut(guest) {
        record.config.set_lock(Some("backup"));
        if guest.kind == GuestKind::Qemu && record.power == SimPower::Stopped {
            site.log.push("INFO: starting kvm to execute backup task".to_owned());
            record.power = SimPower::Prelaunch { since_ms: now_ms, pid: 3000 + vmid % 30_000 };
        }
    }
    if guest.kind == GuestKind::Qemu {
        site.log.push(
            "INFO:   1% (88.0 MiB of 8.0 GiB) in 1s, read: 88.0 MiB/s, write: 40.0 MiB/s"
                .to_owned(),
        );
    }
    order.saving.push((guest, now_s));
    Ok(())
}

/// The retention that keeps a backup from being made when nothing old may go for it.
fn retention_reached(world: &World, guest: GuestId, order: &BackupRun) -> Option<usize> {
    let storage = world.storages.get(&order.storage)?;
    let limit = storage.keep_last.filter(|_| !order.remove)?;
    (backups(storage, guest, false).len() >= limit).then_some(limit)
}

/// A guest's backups in a storage, oldest first: the protected ones or the others.
fn backups(storage: &Storage, guest: GuestId, protected: bool) -> Vec<String> {
    let mut found: Vec<(u64, String)> = storage
        .volumes
        .iter()
        .filter(|(name, v)| {
            let subtype = name.starts_with(&format!("backup/vzdump-{}-", guest.kind));
            v.content == "backup"
                && v.vmid == Some(guest.vmid)
                && v.protected == protected
                && subtype
        })
        .map(|(name, volume)| (volume.ctime, name.clone()))
        .collect();
    found.sort();
    found.into_iter().map(|(_, name)| name).collect()
}

pub(super) fn finished(site: &mut Site<'_>, order: &BackupRun) -> Result<(), String> {
    let mut failed = order.failed;
    for (guest, began_s) in &order.saving {
        let config = release(site.world, *guest);
        let Some(config) = config else {
            site.log.push(format!(
                "ERROR: Backup of VM {} failed - unable to find VM '{}'",
                guest.vmid, guest.vmid
            ));
            failed = true;
            continue;
        };
        if let Err(why) = store(site, order, *guest, &config, *began_s) {
            site.log.push(format!("ERROR: Backup of VM {} failed - {why}", guest.vmid));
            failed = true;
            continue;
        }
        site.log.push(format!("INFO: Finished Backup of VM {}", guest.vmid));
    }
    if failed { Err("job errors".into()) } else { Ok(()) }
}

/// Takes the lock off and ends the process that only served the backup; gives the file, without the lock.
pub(super) fn release(world: &mut World, guest: GuestId) -> Option<Config> {
    let record = world.guest_mut(guest)?;
    if record.config.lock() == Some("backup") {
        record.config.set_lock(None);
    }
    if matches!(record.power, SimPower::Prelaunch { .. }) {
        record.power = SimPower::Stopped;
    }
    Some(record.config.clone())
}

fn store(
    site: &mut Site<'_>,
    order: &BackupRun,
    guest: GuestId,
    config: &Config,
    began_s: u64,
) -> Result<(), String> {
    let kind = match guest.kind {
        GuestKind::Lxc => "tar",
        GuestKind::Qemu => "vma",
    };
    let notes = order.notes.as_ref().map(|text| expand(text, &site.world.node, guest, config));
    let file = BackupFile {
        ctime: began_s,
        format: format!("{kind}{}", order.suffix),
        size_bytes: packed_size(guest.kind, config),
        notes,
        protected: false,
        excludes: order.excludes.clone(),
    };
    let Some(volid) = site.world.put_backup(&order.storage, guest, config, &file) else {
        return Err(format!("storage '{}' does not exist", order.storage));
    };
    site.log.push(format!("INFO: creating vzdump archive '{volid}'"));
    let Some(storage) = site.world.storages.get_mut(&order.storage) else { return Ok(()) };
    if order.protected {
        let kept = backups(storage, guest, true).len();
        if let Some(limit) = storage.max_protected.filter(|limit| kept >= *limit) {
            return Err(format!(
                "unable to set protected flag - The number of protected backups per guest is limited to {limit} on storage '{}'",
                order.storage
            ));
        }
        let name = volid.split_once(':').map_or("", |(_, name)| name);
        if let Some(volume) = storage.volumes.get_mut(name) {
            volume.protected = true;
        }
    }
    if order.remove
        && let Some(keep) = storage.keep_last
    {
        let old = backups(storage, guest, false);
        let surplus = old.len().saturating_sub(keep);
        for name in old.into_iter().take(surplus) {
            storage.volumes.remove(&name);
        }
    }
    Ok(())
}

/// A hundredth of what it holds: sparse disks pack well.
fn packed_size(kind: GuestKind, config: &Config) -> u64 {
    const HEADER_BYTES: u64 = 1 << 20;
    let included = config.active.iter().filter(|(key, value)| {
        let data = is_disk_key(kind, key) && !key.starts_with("unused");
        let chosen = match kind {
            GuestKind::Lxc => *key == "rootfs" || value.contains("backup=1"),
            GuestKind::Qemu => !value.contains("backup=0") && !value.contains("media=cdrom"),
        };
        data && chosen
    });
    let sizes = included.filter_map(|(_, value)| {
        parse_size(value.split(',').find_map(|part| part.strip_prefix("size="))?)
    });
    HEADER_BYTES + sizes.sum::<u64>() / 100
}

/// Notes with their variables filled in; `\n` is a line feed.
fn expand(template: &str, node: &str, guest: GuestId, config: &Config) -> String {
    let name = match guest.kind {
        GuestKind::Lxc => config.get("hostname"),
        GuestKind::Qemu => config.get("name"),
    };
    let default = format!("{}{}", super::create::word(guest.kind), guest.vmid);
    template
        .replace("\\n", "\n")
        .replace("{{guestname}}", name.unwrap_or(&default))
        .replace("{{vmid}}", &guest.vmid.to_string())
        .replace("{{node}}", node)
        .replace("{{cluster}}", "standalone node - no cluster")
}
