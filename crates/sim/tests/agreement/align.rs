//! Keeps the world where the captured server was. A capture may lack rows (other clients, commands
//! on the node, exchanges cut out), so what a row's own answer proves about the moment before it is
//! set up first, and what a config read shows is taken over after it was compared.

use evenkeel_core::model::id::{GuestId, GuestKind};
use evenkeel_sim::{Config, Event, Reply, SimPower};
use serde_json::Value;

use crate::replay::Replay;
use crate::row::Row;

impl Replay {
    /// Before a row: guests, power, locks.
    pub(crate) fn align(&mut self, at: usize, row: &Row) {
        let exit = row.upid().and_then(|upid| self.exits.get(upid)).cloned().unwrap_or_default();
        let errors = row.body["errors"].to_string();
        let message = row.body["message"].as_str().unwrap_or_default();
        let words = format!("{} {exit} {errors} {message}", row.reason);
        // Sent while others were under way, it is the end of those that frees the number.
        if let Some(newid) = created(row).filter(|_| !row.label.contains("during")) {
            self.end(newid);
        }
        // Existence is the first thing a create of a container is refused for.
        let later = matches!(row.status, 403 | 500) || row.body["errors"]["storage"].is_string();
        if let Some(newid) =
            asked(row, "lxc").filter(|_| later && !words.contains("already exists"))
        {
            self.sim.world.guests.remove(&newid.vmid.get());
        }
        let Some(guest) = row.guest() else { return };
        if row.method == "POST" && row.is("/clone") && row.status == 200 && exit == "OK" {
            self.remove_target(row);
        }
        self.let_restore_begin(row, guest);
        let gone = words.contains(&format!("/{}.conf' does not exist", guest.vmid))
            || words.contains("unable to find configuration file");
        // A second destroy of the same guest finds it gone only inside its task.
        let meanwhile = row.label.contains("during");
        if gone && !meanwhile && !(row.method == "DELETE" && row.status == 200) {
            self.sim.world.guests.remove(&guest.vmid.get());
            return;
        }
        if gone && meanwhile {
            self.let_it_go(guest);
            return;
        }
        let ours = self.rows[..at].iter().any(|row| created(row) == Some(guest));
        if self.sim.world.guest(guest).is_none() && !(meanwhile && ours) {
            self.materialise(at, guest);
        }
        self.align_power(row, guest, &words);
        self.align_locks(at, row, guest, &words);
        self.align_disks(row, guest);
        let ignores = exit == "container did not stop"
            || row.label.contains("ignored")
            || row.label.contains("to abort")
            || row.label.contains("long (")
            || row.label.contains("forceStop");
        self.sim.happen(Event::IgnoreShutdown { guest, ignores });
        if exit.contains("if it's a template")
            && let Some(record) = self.sim.world.guest_mut(guest)
        {
            record.config.active.insert("template".into(), "1".into());
        }
    }

    /// A guest that the captured server no longer had is gone with its volumes.
    fn end(&mut self, guest: GuestId) {
        let Some(record) = self.sim.world.guests.remove(&guest.vmid.get()) else { return };
        for value in record.config.active.values() {
            let volid = value.split(',').next().unwrap_or_default();
            let Some((storage, name)) = volid.split_once(':') else { continue };
            if let Some(storage) = self.sim.world.storages.get_mut(storage)
                && storage.volumes.get(name).is_some_and(|v| v.vmid == Some(guest.vmid))
            {
                storage.volumes.remove(name);
            }
        }
    }

    /// A guest that is being destroyed was gone by the time of a row.
    fn let_it_go(&mut self, guest: GuestId) {
        for _ in 0..STEPS_OF_A_DESTROY {
            if self.sim.world.guest(guest).is_some() && self.sim.is_at_work() {
                self.step();
            }
        }
    }

    /// The first moment of a machine's restore was over when a row shows what comes after it.
    fn let_restore_begin(&mut self, row: &Row, guest: GuestId) {
        let shows =
            row.is("/config") && row.data()["memory"] == "128" && row.data()["lock"].is_null();
        let locked = self
            .sim
            .world
            .guest(guest)
            .is_some_and(|g| g.config.active.get("lock").is_some_and(|lock| lock == "create"));
        if shows && locked && self.sim.is_task_running("qmrestore") {
            self.step();
        }
    }

    /// Lets the next thing happen.
    pub(crate) fn step(&mut self) {
        if let Some(next) = self.sim.next_event_ms() {
            self.sim.advance(next);
        }
    }

    fn remove_target(&mut self, row: &Row) {
        let newid = row.params.iter().flatten().find(|(key, _)| *key == "newid");
        let number = newid.and_then(|(_, v)| v.as_str()?.parse::<u32>().ok());
        let taken = number.and_then(|number| self.sim.world.guests.get(&number));
        if let Some(guest) = taken.map(|found| found.id) {
            self.end(guest);
        }
    }

    /// A guest the file never creates is built from the nearest config the file shows.
    fn materialise(&mut self, at: usize, guest: GuestId) {
        let is_read = |row: &&Row| {
            row.guest() == Some(guest)
                && row.is("/config")
                && row.method == "GET"
                && row.status == 200
                && !row.path.contains("snapshot=")
        };
        let later = self.rows[at..].iter().find(is_read);
        let earlier = self.rows[..at].iter().rev().find(is_read);
        let Some(shown) = later.or(earlier) else {
            let exit = self.rows[at].upid().and_then(|upid| self.exits.get(upid));
            if self.proves_existence(at, guest) || exit.is_some_and(|exit| exit == "OK") {
                self.sim.world.put_guest(guest, default_config(guest), SimPower::Stopped);
            }
            return;
        };
        let mut config = Config::default();
        for (key, value) in shown.data().as_object().into_iter().flatten() {
            if !matches!(key.as_str(), "digest" | "lock" | "lxc") {
                config.active.insert(key.clone(), text(value));
            }
        }
        self.sim.world.put_guest(guest, config, SimPower::Stopped);
    }

    fn proves_existence(&self, at: usize, guest: GuestId) -> bool {
        let row = &self.rows[at];
        let reads = row.method == "GET"
            && row.status == 200
            && !row.is("/firewall/options")
            && !row.is("/rrddata");
        let writes = row.method == "PUT"
            && (row.is("/config") || guest.kind == GuestKind::Lxc)
            && (row.status == 200
                || row.status == 500
                || row.body["errors"].to_string().contains("hotplug"));
        reads || writes || (row.method == "DELETE" && row.status != 403 && row.status != 501)
    }

    fn align_power(&mut self, row: &Row, guest: GuestId, words: &str) {
        let lxc = guest.kind == GuestKind::Lxc;
        let posted = |verb: &str| {
            row.method == "POST" && row.is(&format!("/status/{verb}")) && row.upid().is_some()
        };
        let shown = row.data()["status"].as_str().filter(|_| row.is("/status/current"));
        let stopped = words.contains(" not running")
            || shown == Some("stopped")
            || row.label.starts_with("stopped:")
            || (lxc && (posted("start") || posted("resume")))
            || (row.method == "DELETE" && row.status == 200 && !row.path.contains("force=1"))
            || row.label.contains("on stopped")
            || (row.method == "POST" && row.is("/template"));
        let running = words.contains("already running")
            || words.contains(" is running")
            || words.contains("unable to hotplug")
            || words.contains("on a running container")
            || words.contains("hotplug problem")
            || shown == Some("running")
            || row.label.starts_with("running:")
            || row.label.starts_with("qemu running:")
            || (lxc && (posted("stop") || posted("shutdown") || posted("reboot")))
            || posted("suspend")
            // Only a container that does not run can be asked to come back from a checkpoint.
            || (!lxc && posted("resume"));
        let is = self.sim.world.guest(guest).is_some_and(|g| g.power.is_running());
        let busy = row.label.contains("immediately")
            && ["vzstart", "vzshutdown"].iter().any(|kind| self.sim.is_task_running(kind));
        if !busy && stopped != running && is != running {
            self.sim.happen(Event::Power { guest, running });
        }
        let prelaunch = row.data()["qmpstatus"] == "prelaunch";
        if let Some(record) = self.sim.world.guest_mut(guest).filter(|_| prelaunch) {
            record.power = SimPower::Prelaunch { since_ms: 0, pid: 1 };
        }
        let shown_paused = row.data()["qmpstatus"].as_str().map(|status| status == "paused");
        if let (Some(shown), Some(record)) = (shown_paused, self.sim.world.guest_mut(guest))
            && let SimPower::Running { paused, .. } = &mut record.power
        {
            *paused = shown;
        }
    }

    /// Volumes, sizes and bridges that exchanges outside the file made.
    fn align_disks(&mut self, row: &Row, guest: GuestId) {
        let params = row.params.clone().unwrap_or_default();
        let accepted = row.method == "PUT" && row.status == 200 && row.is("/config");
        let store = self.sim.world.storages.get_mut("store").expect("the replayed node has it");
        for value in params.values().filter_map(Value::as_str).filter(|_| accepted) {
            let volume = value.split(',').next().and_then(|v| v.strip_prefix("store:"));
            if let Some(volume) =
                volume.filter(|v| v.contains("-disk-") && !store.volumes.contains_key(*v))
            {
                store.put_file(volume, "images", "raw", 1 << 30);
            }
        }
        let exit = row.upid().and_then(|upid| self.exits.get(upid)).cloned().unwrap_or_default();
        self.align_size(row, guest, &exit);
        let Some(record) = self.sim.world.guest_mut(guest).filter(|_| accepted) else { return };
        for (key, value) in &mut record.config.active {
            if key.starts_with("net")
                && value.contains("bridge=vmbr77")
                && !params.contains_key(key)
            {
                *value = value.replace("bridge=vmbr77", "bridge=vmbr0");
            }
        }
        let names_arch = row.written().contains(&"arch".to_owned());
        if guest.kind == GuestKind::Lxc && (record.power.is_running() || !names_arch) {
            record.config.active.entry("arch".into()).or_insert_with(|| "amd64".into());
        }
    }

    /// A resize answers by the size the volume had.
    fn align_size(&mut self, row: &Row, guest: GuestId, exit: &str) {
        let text = |key: &str| {
            row.params.as_ref().and_then(|p| p.get(key)?.as_str()).unwrap_or_default().to_owned()
        };
        let wanted =
            text("size").strip_suffix('G').and_then(|n| n.parse::<u64>().ok()).map(|gib| gib << 30);
        let value =
            self.sim.world.guest(guest).and_then(|g| g.config.active.get(&text("disk")).cloned());
        let disk =
            value.and_then(|v| Some(v.split(',').next()?.strip_prefix("store:")?.to_owned()));
        let (Some(wanted), Some(disk), true) = (wanted, disk, row.is("/resize")) else { return };
        let store = self.sim.world.storages.get_mut("store").expect("the replayed node has it");
        let Some(volume) = store.volumes.get_mut(&disk) else { return };
        match row.reason.as_str() {
            "disk is already at specified size" => volume.size_bytes = wanted,
            "unable to shrink disk size" => volume.size_bytes = wanted + (1 << 30),
            // A machine's disk is found too large by the task.
            _ if exit.contains("shrinking") => volume.size_bytes = wanted + (1 << 30),
            _ if row.status == 200 && volume.size_bytes >= wanted => volume.size_bytes = wanted / 2,
            _ => {}
        }
    }

    fn align_locks(&mut self, at: usize, row: &Row, guest: GuestId, words: &str) {
        let lock = words.split("is locked (").nth(1).and_then(|rest| rest.split(')').next());
        let shown = if row.is("/config") || row.is("/status/current") {
            row.data()["lock"].as_str()
        } else {
            None
        };
        let current =
            self.sim.world.guest(guest).and_then(|g| g.config.active.get("lock").cloned());
        let done = (row.status == 200
            || words.contains("already exists")
            || words.contains("missing 'rootfs'"))
            && matches!(row.method.as_str(), "PUT" | "POST" | "DELETE");
        let own = at > 0
            && self.rows[at - 1].status == 200
            && self.rows[at - 1].written().contains(&"lock".to_owned());
        let reads_none = row.method == "GET" && row.is("/config") && row.status == 200 && !own;
        if let Some(lock) = lock.or(shown) {
            if current.as_deref() != Some(lock) {
                if row.method == "GET" {
                    self.borrowed_lock = Some((guest, current));
                }
                self.sim.happen(Event::Lock { guest, lock: Some(lock.to_owned()) });
            }
        } else if current.is_some() && (done || reads_none) && !self.sim.is_task_running("vzclone")
        {
            self.sim.happen(Event::Lock { guest, lock: None });
        }
        if words.contains("protection mode")
            && let Some(record) = self.sim.world.guest_mut(guest)
        {
            record.config.active.insert("protection".into(), "1".into());
        }
        let hold_ms =
            if words.contains("got timeout") && !words.contains("powerdown") { 14_000 } else { 0 };
        if hold_ms > 0 {
            self.sim.happen(Event::HoldFileLock { guest, ms: hold_ms });
        }
    }

    /// After a row: UPIDs, written keys, and what the row showed.
    pub(crate) fn follow(&mut self, row: &Row, reply: &Reply) {
        if let Some((guest, lock)) = self.borrowed_lock.take() {
            self.sim.happen(Event::Lock { guest, lock });
        }
        if let (Some(captured), Some(own)) =
            (row.upid(), reply.json().and_then(|b| b["data"].as_str()))
        {
            self.upids.insert(captured.to_owned(), own.to_owned());
        }
        self.learn_names(row, reply);
        let Some(guest) = row.guest() else { return };
        if row.is("/config")
            && row.method == "GET"
            && row.status == 200
            && !row.path.contains("snapshot=")
        {
            self.take_over(guest, row);
        }
    }

    /// Lists show names nobody was told: tasks that were forked without an answer, and archives.
    fn learn_names(&mut self, row: &Row, reply: &Reply) {
        let empty = Vec::new();
        let captured = row.data().as_array().unwrap_or(&empty);
        let ours = reply.json().and_then(|body| body["data"].as_array()).unwrap_or(&empty);
        if row.is("/tasks") {
            for task in captured {
                let same = |own: &&Value| own["type"] == task["type"] && own["id"] == task["id"];
                let (Some(theirs), Some(own)) = (
                    task["upid"].as_str(),
                    ours.iter().find(same).and_then(|own| own["upid"].as_str()),
                ) else {
                    continue;
                };
                if !self.upids.values().any(|known| known == own) {
                    self.upids.entry(theirs.to_owned()).or_insert_with(|| own.to_owned());
                }
            }
        }
        if row.is("/content") && row.names("content=backup") {
            let names = |rows: &[Value]| {
                let mut names: Vec<(u64, String)> = rows
                    .iter()
                    .filter_map(|row| {
                        let name = row["volid"].as_str()?.rsplit('/').next()?;
                        Some((row["ctime"].as_u64()?, name.to_owned()))
                    })
                    .collect();
                names.sort();
                names
            };
            for ((_, theirs), (_, own)) in names(captured).into_iter().zip(names(ours)) {
                self.archives.insert(theirs, own);
            }
        }
    }

    /// The captured config becomes ours, each value in the section where ours has the key.
    fn take_over(&mut self, guest: GuestId, row: &Row) {
        let Some(captured) = row.data().as_object() else { return };
        let current_only = row.path.contains("current=1");
        let Some(record) = self.sim.world.guest_mut(guest) else { return };
        let config = &mut record.config;
        for (key, value) in
            captured.iter().filter(|(key, _)| !matches!(key.as_str(), "digest" | "lxc" | "lock"))
        {
            let new = text(value);
            if new.contains("...<") || key == "cipassword" {
                continue;
            }
            if !current_only && let Some(waiting) = config.pending.get_mut(key) {
                *waiting = new;
            } else if !(config.pending_delete.contains_key(key)
                && config.active.get(key) == Some(&new))
            {
                config.pending_delete.remove(key);
                config.active.insert(key.clone(), new);
            }
        }
        if !current_only {
            config.pending.retain(|key, _| captured.contains_key(key));
        }
        let pending = config.pending.clone();
        let deleted = config.pending_delete.clone();
        config.active.retain(|key, _| {
            captured.contains_key(key)
                || key == "lock"
                || pending.contains_key(key)
                || deleted.contains_key(key)
        });
        let config = config.clone();
        let power = record.power;
        self.sim.world.put_guest(guest, config, power);
        self.last_config.insert(guest, captured.clone());
    }
}

/// A destroy, and what it waits for, have no more parts than these.
const STEPS_OF_A_DESTROY: usize = 6;

/// The guest a successful create makes.
pub(crate) fn created(row: &Row) -> Option<GuestId> {
    ["lxc", "qemu"].into_iter().find_map(|kind| asked(row, kind)).filter(|_| row.status == 200)
}

/// The guest of that kind a create asks for.
fn asked(row: &Row, kind: &str) -> Option<GuestId> {
    if row.method != "POST" || !row.is(&format!("/{kind}")) {
        return None;
    }
    let vmid = row.params.as_ref()?.get("vmid")?.as_str()?;
    format!("{kind}/{vmid}").parse().ok()
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) if text == " " => String::new(),
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    }
}

fn default_config(guest: GuestId) -> Config {
    let name = guest.vmid.to_string();
    match guest.kind {
        GuestKind::Lxc => Config::of(&[
            ("arch", "amd64"),
            ("hostname", &format!("ct{name}")),
            ("memory", "64"),
            ("swap", "0"),
            ("ostype", "alpine"),
            ("unprivileged", "1"),
            ("rootfs", &format!("store:{name}/vm-{name}-disk-0.raw,size=1G")),
        ]),
        GuestKind::Qemu => Config::of(&[
            ("name", &format!("vm{name}")),
            ("memory", "128"),
            ("boot", "order=scsi0;net0"),
            ("scsi0", &format!("store:{name}/vm-{name}-disk-0.raw,size=1G")),
            ("net0", "virtio=BC:24:11:00:00:01,bridge=vmbr0"),
        ]),
    }
}
