//! What other people do to guests behind the client's back, with the tasks that PVE would list for it.
//!
//! Called by [`Simulator::happen`]. Whoever is replaced here gets a successor with a birth mark of its own.

use evenkeel_core::model::id::{GuestId, GuestKind};

use super::Simulator;
use crate::access::Identity;
use crate::config::Config;
use crate::job::{DestroyOrder, TaskJob};
use crate::task::TaskStage;
use crate::world::SimPower;

/// Somebody who destroys a guest to make another needs so long in between.
const BETWEEN_MS: u64 = 1_000;

impl Simulator {
    /// Another guest takes the number, without a task: same kind, nothing else in common.
    pub(super) fn reuse(&mut self, guest: GuestId) {
        let Some(old) = self.world.guests.remove(&guest.vmid.get()) else { return };
        let config = self.strange(guest.kind, plain(old.config));
        self.world.put_guest(guest, config, SimPower::Stopped);
    }

    pub(super) fn restore(&mut self, guest: GuestId) {
        let Some(config) = self.stopped_copy(guest) else { return };
        let kind = match guest.kind {
            GuestKind::Lxc => "vzrestore",
            GuestKind::Qemu => "qmrestore",
        };
        let job = TaskJob::Appear { guest, config: Box::new(config), replaces: true };
        self.fork_as_root(kind, guest, job, 0);
    }

    pub(super) fn recreate(&mut self, guest: GuestId) {
        let Some(config) = self.stopped_copy(guest) else { return };
        let kind = match guest.kind {
            GuestKind::Lxc => "vzcreate",
            GuestKind::Qemu => "qmcreate",
        };
        self.fork_destroy(guest);
        let job = TaskJob::Appear { guest, config: Box::new(config), replaces: false };
        self.fork_as_root(kind, guest, job, BETWEEN_MS);
    }

    /// The task of a clone carries the number of its source.
    pub(super) fn clone_over(&mut self, source: GuestId, target: GuestId) {
        let Some(config) = self.stopped_copy(target) else { return };
        let config = Box::new(self.strange(target.kind, config));
        let kind = match target.kind {
            GuestKind::Lxc => "vzclone",
            GuestKind::Qemu => "qmclone",
        };
        self.fork_destroy(target);
        let job = TaskJob::Appear { guest: target, config, replaces: false };
        self.fork_as_root(kind, source, job, BETWEEN_MS);
    }

    pub(super) fn create(&mut self, guest: GuestId) {
        let kind = match guest.kind {
            GuestKind::Lxc => "vzcreate",
            GuestKind::Qemu => "qmcreate",
        };
        self.appear(kind, guest, guest);
    }

    pub(super) fn restore_as(&mut self, guest: GuestId) {
        let kind = match guest.kind {
            GuestKind::Lxc => "vzrestore",
            GuestKind::Qemu => "qmrestore",
        };
        self.appear(kind, guest, guest);
    }

    pub(super) fn clone_as(&mut self, source: GuestId, target: GuestId) {
        let kind = match target.kind {
            GuestKind::Lxc => "vzclone",
            GuestKind::Qemu => "qmclone",
        };
        self.appear(kind, source, target);
    }

    /// A plain guest that nobody knows comes to a free number; the task is about somebody, perhaps a source.
    fn appear(&mut self, kind: &str, about: GuestId, guest: GuestId) {
        if self.world.is_taken(guest.vmid.get()) {
            return;
        }
        let config = Box::new(self.newcomer(guest));
        let job = TaskJob::Appear { guest, config, replaces: false };
        self.fork_as_root(kind, about, job, 0);
    }

    /// The file of a guest somebody makes, with a disk of its own.
    fn newcomer(&mut self, guest: GuestId) -> Config {
        let content = match guest.kind {
            GuestKind::Lxc => "rootdir",
            GuestKind::Qemu => "images",
        };
        let mut storages = self.world.storages.iter_mut();
        let storage = storages.find(|(_, storage)| storage.content.contains(content));
        let disk = storage.map(|(name, storage)| {
            let made = storage.allocate(guest.kind, guest.vmid, 1 << 30, None, 0);
            let made = made.unwrap_or_default();
            // The volume comes into being with the guest; here only its name was wanted.
            storage.volumes.remove(&made);
            format!("{name}:{made},size=1G")
        });
        let mut config = match guest.kind {
            GuestKind::Lxc => Config::of(&[
                ("arch", "amd64"),
                ("memory", "512"),
                ("swap", "512"),
                ("ostype", "debian"),
                ("unprivileged", "1"),
                ("net0", ""),
            ]),
            GuestKind::Qemu => Config::of(&[
                ("memory", "512"),
                ("ostype", "l26"),
                ("boot", "order=scsi0"),
                ("smbios1", ""),
                ("vmgenid", ""),
                ("meta", ""),
            ]),
        };
        let slot = match guest.kind {
            GuestKind::Lxc => "rootfs",
            GuestKind::Qemu => "scsi0",
        };
        config.active.extend(disk.map(|value| (slot.to_owned(), value)));
        self.strange(guest.kind, config)
    }

    pub(super) fn remove(&mut self, guest: GuestId) {
        if let Some(found) = self.world.guest_mut(guest) {
            found.power = SimPower::Stopped;
            found.config.active.remove("protection");
            self.fork_destroy(guest);
        }
    }

    pub(super) fn kill_tasks(&mut self, contains: &str) {
        for at in 0..self.tasks.all.len() {
            let task = &self.tasks.all[at];
            if task.is_running() && task.is_visible() && task.upid.to_string().contains(contains) {
                self.kill(at);
            }
        }
    }

    pub(super) fn truncate(&mut self, volid: &str) {
        if let Some(volume) = self.world.volume_mut(volid) {
            volume.size_bytes /= 2;
            if let Some(archive) = &mut volume.archive {
                archive.truncated = true;
            }
        }
    }

    pub(super) fn roll_back(&mut self, guest: GuestId) {
        let snapshots = self.world.guest(guest).map(|found| &found.config.snapshots);
        let Some(newest) = snapshots.and_then(|all| all.last()) else { return };
        let job = TaskJob::Rollback { guest, name: newest.name.clone(), start: false };
        let kind = match guest.kind {
            GuestKind::Lxc => "vzrollback",
            GuestKind::Qemu => "qmrollback",
        };
        self.fork_as_root(kind, guest, job, 0);
    }

    pub(super) fn make_template(&mut self, guest: GuestId) {
        // Not while something waits for a restart: that names volumes as they are called before.
        let Some(found) = self.world.guest(guest).filter(|found| !found.power.is_running()) else {
            return;
        };
        if found.config.is_set("template") || !found.config.pending.is_empty() {
            return;
        }
        let kind = match guest.kind {
            GuestKind::Lxc => "vztemplate",
            GuestKind::Qemu => "qmtemplate",
        };
        self.fork_as_root(kind, guest, TaskJob::Template { guest }, 0);
    }

    pub(super) fn migrate_away(&mut self, guest: GuestId) {
        self.world.clustered = true;
        let kind = match guest.kind {
            GuestKind::Lxc => "vzmigrate",
            GuestKind::Qemu => "qmigrate",
        };
        self.fork_as_root(kind, guest, TaskJob::Leave { guest }, 0);
    }

    pub(super) fn migrate_back(&mut self, guest: GuestId, another: bool) {
        if self.world.guests.contains_key(&guest.vmid.get()) {
            return;
        }
        let Some(mut away) = self.world.elsewhere.remove(&guest.vmid.get()) else { return };
        for (storage, name, mut volume) in away.volumes {
            if let Some(storage) = self.world.storages.get_mut(&storage) {
                if another {
                    volume.birth = storage.next_birth();
                }
                storage.volumes.insert(name, volume);
            }
        }
        if another {
            away.guest.birth = self.world.next_birth();
            away.guest.maker = None;
        }
        self.world.guests.insert(guest.vmid.get(), away.guest);
    }

    /// Stops the guest, as somebody does who is about to replace it, and gives what its successor looks like.
    fn stopped_copy(&mut self, guest: GuestId) -> Option<Config> {
        let found = self.world.guest_mut(guest)?;
        found.power = SimPower::Stopped;
        Some(plain(found.config.clone()))
    }

    /// Starts or stops a guest, as root@pam.
    pub(super) fn switch(&mut self, guest: GuestId, running: bool) {
        let (start, stop) = match guest.kind {
            GuestKind::Lxc => ("vzstart", "vzstop"),
            GuestKind::Qemu => ("qmstart", "qmstop"),
        };
        if running {
            self.fork_as_root(start, guest, TaskJob::Start { guest }, 0);
        } else {
            self.fork_as_root(stop, guest, TaskJob::Stop { guest }, 0);
        }
    }

    fn fork_destroy(&mut self, guest: GuestId) {
        let kind = match guest.kind {
            GuestKind::Lxc => "vzdestroy",
            GuestKind::Qemu => "qmdestroy",
        };
        let order = DestroyOrder { purge: true, unreferenced: true, force: true };
        let job = TaskJob::Destroy { guest, order };
        self.fork_as_root(kind, guest, job, 0);
    }

    /// Forks a task of root@pam, at once or so much later.
    /// Somebody of any name did something that left nothing but its row in the task list.
    pub(super) fn task_by(&mut self, user: String, task: &str, id: &str) {
        let who = Identity { user, token: None };
        let now = (self.now_ms, self.unix_s());
        let job = TaskJob::DeleteVolume { volume: String::new() };
        self.tasks.fork(&self.world.node, task, id, &who, job, now);
        self.tasks.end(self.tasks.all.len() - 1, "OK", now.1);
    }

    fn fork_as_root(&mut self, kind: &str, about: GuestId, job: TaskJob, after_ms: u64) {
        let who = Identity { user: "root@pam".to_owned(), token: None };
        let at_ms = self.now_ms + after_ms;
        let now = (at_ms, self.world.unix(at_ms));
        let node = &self.world.node;
        let id = about.vmid.to_string();
        self.tasks.fork(node, kind, &id, &who, job, now);
        if let Some(task) = self.tasks.all.last_mut().filter(|_| after_ms > 0) {
            task.stage = TaskStage::Unforked { at_ms };
        }
    }

    /// The file of a guest that has nothing in common with this one but its shape.
    fn strange(&mut self, kind: GuestKind, mut config: Config) -> Config {
        let mac = self.world.new_mac();
        let uuid = self.world.random.uuid();
        let now_s = self.unix_s();
        // A name of its own: a guest that came without a task must differ in its file, or nobody could tell.
        let name = match kind {
            GuestKind::Lxc => "hostname",
            GuestKind::Qemu => "name",
        };
        let own = format!("stranger{}", self.world.random.below(1 << 32));
        config.active.insert(name.to_owned(), own);
        for (key, value) in &mut config.active {
            match key.as_str() {
                "smbios1" => *value = format!("uuid={uuid}"),
                "vmgenid" => value.clone_from(&uuid),
                "meta" => *value = format!("creation-qemu=9.2.0,ctime={now_s}"),
                "net0" => {
                    *value = match kind {
                        GuestKind::Lxc => format!("name=eth0,bridge=vmbr0,hwaddr={mac},type=veth"),
                        GuestKind::Qemu => format!("virtio={mac},bridge=vmbr0"),
                    }
                }
                _ => {}
            }
        }
        config.active.remove("description");
        config.active.remove("tags");
        config
    }
}

/// A file without snapshots, locks and what waits for a restart.
fn plain(mut config: Config) -> Config {
    config.snapshots.clear();
    config.pending.clear();
    config.pending_delete.clear();
    config.active.remove("parent");
    config.set_lock(None);
    config
}
