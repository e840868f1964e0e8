//! What happens to the node besides evenkeel: faults of wire, proxy and tasks, and other people.
//!
//! Bounded by what the design counts on: whatever PVE makes of a request, it has begun within a minute.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_core::model::id::{GuestId, GuestKind};
use evenkeel_sim::{
    Config, Effect, Event, Fault, InProcess, LostWorker, OddValue, SimGuest, SimOutcome, SimPower,
    SimRequest, SimTicket, Simulator, TOKENS, World,
};

use crate::oracle::Oracle;
use crate::scene::{AGENT_TOKEN, second_slot};
use evenkeel_testkit::dice::Dice;

/// A request may be delayed by so much, and then wait ten seconds for a file lock and five for its task.
const LATENCY_MAX_MS: u64 = 35_000;

/// A secret that tasks log: no line of the journal may have it.
pub(crate) const LOGGED_SECRET: &str = "logged-secret";

/// A task is forked at most so late: the design allows for a minute.
const LATE_FORK_MAX_MS: u64 = 55_000;

/// Lists, by a part of their path, and a field of their rows that is odd.
const ODD_FIELDS: [(&str, &str); 16] = [
    ("/pve1/tasks", "upid"),
    ("/pve1/tasks", "status"),
    ("/pve1/tasks", "endtime"),
    ("/pve1/lxc", "vmid"),
    ("/pve1/lxc", "status"),
    ("/pve1/qemu", "vmid"),
    ("/pve1/qemu", "template"),
    ("/content", "volid"),
    ("/content", "size"),
    ("/content", "vmid"),
    ("/pve1/storage", "storage"),
    ("/pve1/storage", "avail"),
    ("/cluster/status", "type"),
    ("/cluster/resources", "vmid"),
    ("/access/permissions", "Sys.Audit"),
    ("/snapshot", "name"),
];

/// Names that a directory gave.
const ODD_USERS: [&str; 4] = ["jürgen@pve", "日本@ad", "o'brien@ldap", "a\u{202E}b@pve"];

/// The other people on the node.
#[derive(Debug, Default)]
pub(crate) struct FaultMaker {
    requests: Vec<SimTicket>,
    /// Volumes that other people left attached to nothing, by guest number.
    pub(crate) foreign_loose: BTreeMap<u32, usize>,
    /// Guests from whom other people took a volume, which the file then lists as unused.
    pub(crate) detached: BTreeSet<u32>,
    /// Guests that somebody destroys, to make the very same again: the file, and the number of the request.
    rebirths: Vec<(SimGuest, usize)>,
    /// The files the guests began with.
    pub(crate) first_files: Vec<(GuestId, Config)>,
    /// Whether the node has forgotten its tasks.
    pub(crate) tasks_forgotten: bool,
    /// Whether the run is over and nobody else touches the node.
    is_calm: bool,
}

/// Locks of tasks that change nothing of a guest but its snapshots.
const WORKER_LOCKS: [&str; 4] = ["backup", "snapshot", "snapshot-delete", "rollback"];

impl FaultMaker {
    /// For a node that begins with these guests.
    pub(crate) fn of(first_files: Vec<(GuestId, Config)>) -> Self {
        Self { first_files, ..Self::default() }
    }

    /// A fault to be put into force.
    pub(crate) fn fault(dice: &mut Dice, guests: &[GuestId]) -> Fault {
        if dice.percent(12) {
            return Self::odd_row(dice);
        }
        let effect = match dice.below(17) {
            0 | 1 => Effect::Latency { ms: dice.between(1, LATENCY_MAX_MS) },
            2 => Effect::ProxyStatus { status: 595, executed: false },
            3 => Effect::ProxyStatus { status: 596, executed: dice.percent(50) },
            4 | 5 => Effect::DropBefore,
            6 | 7 => Effect::DropAfter,
            8 if dice.percent(40) => {
                Effect::TaskFailsUncleanly { message: "it went wrong".to_owned() }
            }
            8 => Effect::TaskFails { message: "it went wrong".to_owned() },
            9 => Effect::TaskKilled,
            10 | 11 => Effect::LateFork { ms: dice.between(1, LATE_FORK_MAX_MS) },
            12 | 13 => Effect::WorkerLost { worker: lost_worker(dice) },
            14 => Effect::TaskLogs { lines: logged(dice) },
            15 => Effect::TaskWarns { warnings: 1 },
            _ => Effect::Garbage { body: "<html>oops".to_owned() },
        };
        let guest = *dice.pick(guests);
        let (method, contains) = match dice.below(8) {
            0 => (None, None),
            1 => (None, Some("/tasks".to_owned())),
            2 => (None, Some(format!("/{guest}/pending"))),
            3 => (None, Some(format!("/{guest}/status/current"))),
            4 => (None, Some("/content".to_owned())),
            5 => (Some("PUT".to_owned()), None),
            6 => (Some((*dice.pick(&["POST", "DELETE"])).to_owned()), None),
            _ => (Some((*dice.pick(&["PUT", "POST"])).to_owned()), Some(format!("/{guest}/"))),
        };
        // A task is known by its UPID alone.
        let of_task = matches!(
            effect,
            Effect::TaskFails { .. }
                | Effect::TaskFailsUncleanly { .. }
                | Effect::TaskKilled
                | Effect::TaskLogs { .. }
                | Effect::TaskWarns { .. }
        );
        let contains = if of_task { None } else { contains };
        let times = Some(u32::try_from(dice.between(1, 3)).unwrap_or(1));
        Fault { effect, method, contains, times }
    }

    /// A row of some list that no client expects.
    fn odd_row(dice: &mut Dice) -> Fault {
        let (list, field) = *dice.pick(&ODD_FIELDS);
        let field = dice.percent(80).then(|| field.to_owned());
        let becomes = *dice.pick(&OddValue::ALL);
        let effect = Effect::OddRow { row: None, field, becomes };
        let method = Some("GET".to_owned());
        let contains = Some(list.to_owned());
        let times = Some(u32::try_from(dice.between(1, 6)).unwrap_or(1));
        Fault { effect, method, contains, times }
    }

    /// Lets something happen behind evenkeel's back, and tells what.
    pub(crate) fn event(
        &mut self,
        dice: &mut Dice,
        node: &InProcess,
        oracle: &Oracle,
        guests: &[GuestId],
    ) -> String {
        let guest = *dice.pick(guests);
        let is_missing = node.with(|sim| !sim.world.undefined.is_empty());
        if is_missing && dice.percent(30) {
            return Self::define_storages(node);
        }
        let event = match dice.below(24) {
            // Not while a task works, which would find half of what it needs.
            23 if !is_missing && !node.with(|sim| sim.is_at_work()) => {
                let storage = *dice.pick(&["local-lvm", "tank"]);
                Event::UndefineStorage { storage: storage.to_owned() }
            }
            0 | 1 => {
                let lock = *dice.pick(&[None, Some("backup"), Some("snapshot")]);
                Event::Lock { guest, lock: lock.map(str::to_owned) }
            }
            2 | 3 => Event::HoldFileLock { guest, ms: dice.between(1, 40_000) },
            4 => Event::Quorum { quorate: dice.percent(60) },
            5 => Event::Restart,
            6..=8 => self.edit(dice, guest, node, oracle),
            9 if dice.percent(20) => Event::Reuse { guest },
            9 if dice.percent(10) => Event::Destroy { guest },
            9..=11 => Event::Power { guest, running: dice.percent(50) },
            12 => Event::IgnoreShutdown { guest, ignores: dice.percent(60) },
            13 => Event::ForgetTasks,
            14 => Event::TurnOverTasks { keep: usize::try_from(dice.below(4)).unwrap_or(0) },
            15 => {
                let (task, about) = *dice.pick(&[("aptupdate", false), ("vzdump", true)]);
                let id = if about { guest.vmid.to_string() } else { String::new() };
                let user = (*dice.pick(&ODD_USERS)).to_owned();
                Event::TaskBy { user, task: task.to_owned(), id }
            }
            16 => {
                let storage = (*dice.pick(&["local-lvm", "tank"])).to_owned();
                Event::HideSizes { storage, hidden: dice.percent(70) }
            }
            _ => return self.foreign_request(dice, node, guest),
        };
        self.tasks_forgotten |= matches!(event, Event::ForgetTasks | Event::TurnOverTasks { .. });
        let told = format!("{event:?}");
        node.with(|sim| sim.happen(event));
        told
    }

    fn edit(
        &mut self,
        dice: &mut Dice,
        guest: GuestId,
        node: &InProcess,
        oracle: &Oracle,
    ) -> Event {
        let (key, value) = match dice.below(8) {
            0..=2 => ("cores", Some(dice.between(1, 4).to_string())),
            3 | 4 => ("description", Some("somebody else was here\n".to_owned())),
            5 => ("description", None),
            6 => ("onboot", Some("1".to_owned())),
            _ => (second_slot(guest.kind), None),
        };
        let slot = key == second_slot(guest.kind);
        let there = node.with(|sim| {
            sim.world.guest(guest).is_some_and(|found| found.config.active.contains_key(key))
        });
        if slot && there {
            *self.foreign_loose.entry(guest.vmid.get()).or_default() += 1;
            node.with(|sim| oracle.slot_is_struck_out(&sim.world, guest, key));
        }
        Event::Edit { guest, set: [(key.to_owned(), value)].into() }
    }

    /// Somebody sends a request, with a token of their own or with ours.
    fn foreign_request(&mut self, dice: &mut Dice, node: &InProcess, guest: GuestId) -> String {
        let (ops, secret, _) = TOKENS[2];
        let (name, secret) = if dice.percent(60) { AGENT_TOKEN } else { (ops, secret) };
        let base = format!("/api2/json/nodes/pve1/{guest}");
        let post = |path: &str| SimRequest::new("POST", &format!("{base}/{path}"));
        let request = match dice.below(7) {
            0 | 1 => post("status/start").form(&[]),
            2 | 3 => post("status/shutdown").form(&[("timeout", "180")]),
            4 => post("status/stop").form(&[]),
            5 => post("snapshot").form(&[("snapname", &format!("s{}", dice.below(1000)))]),
            _ if guest.kind == GuestKind::Qemu => post("config").form(&[("onboot", "0")]),
            _ => SimRequest::new("PUT", &format!("{base}/config")).form(&[("onboot", "0")]),
        };
        let request = request.token(&format!("{name}={secret}"));
        let told = format!("somebody with {name} sends {} {}", request.method, request.target);
        let ticket = node.with(|sim| sim.submit(sim.now_ms(), request));
        self.requests.push(ticket);
        told
    }

    /// Somebody with our token brings the guest where we want it to be; the answer to the next such request is lost,
    /// and perhaps the task goes wrong or the tasks cannot be listed.
    pub(crate) fn twin(
        &mut self,
        dice: &mut Dice,
        node: &InProcess,
        guest: GuestId,
        runs: Option<bool>,
    ) -> String {
        let act = if runs.unwrap_or(true) { "start" } else { "shutdown" };
        let path = format!("/api2/json/nodes/pve1/{guest}/status/{act}");
        let (name, secret) = AGENT_TOKEN;
        let request = SimRequest::new("POST", &path).form(&[]).token(&format!("{name}={secret}"));
        let lost = match dice.below(3) {
            0 => Effect::DropBefore,
            1 => Effect::DropAfter,
            _ => Effect::LateFork { ms: dice.between(1, LATE_FORK_MAX_MS) },
        };
        let fails = dice.percent(50);
        let hidden = dice.percent(40);
        let comes_first = dice.percent(70);
        node.with(|sim| {
            if comes_first {
                self.requests.push(sim.submit(sim.now_ms(), request));
            }
            let method = Some("POST".to_owned());
            let contains = Some(path.clone());
            sim.inject(Fault { effect: lost.clone(), method, contains, times: Some(1) });
            if fails {
                sim.inject(Effect::TaskFails { message: "it went wrong".to_owned() }.once());
            }
            if hidden {
                sim.inject(Fault { times: Some(4), ..Effect::DropBefore.on("/pve1/tasks") });
            }
        });
        format!(
            "a twin of {path} first: {comes_first}; then {lost:?}, fails {fails}, hidden {hidden}"
        )
    }

    /// Somebody prepares what can be lost: snapshots, detached volumes, protections, a guest made again.
    pub(crate) fn stranger(
        &mut self,
        dice: &mut Dice,
        node: &InProcess,
        guest: GuestId,
        oracle: &Oracle,
    ) -> String {
        let base = format!("/api2/json/nodes/pve1/{guest}");
        let name = format!("s{}", dice.below(3));
        let request = match dice.below(10) {
            0 | 1 => {
                let path = format!("{base}/snapshot");
                let form = [("snapname", name.as_str()), ("vmstate", "1")];
                // Of a machine that runs the memory may be kept, too.
                let with_memory = guest.kind == GuestKind::Qemu && dice.percent(50);
                SimRequest::new("POST", &path).form(&form[..=usize::from(with_memory)])
            }
            2 => SimRequest::new("DELETE", &format!("{base}/snapshot/{name}")),
            3 => {
                self.detached.insert(guest.vmid.get());
                let method = if guest.kind == GuestKind::Qemu { "POST" } else { "PUT" };
                let slot = *dice.pick(&["mp0", "mp1", "scsi1"]);
                SimRequest::new(method, &format!("{base}/config")).form(&[("delete", slot)])
            }
            4 | 5 => {
                let on = dice.percent(70).then(|| "1".to_owned());
                let set = BTreeMap::from([("protection".to_owned(), on)]);
                let told = format!("somebody edits {guest}: {set:?}");
                oracle.protection_is_theirs(guest);
                node.with(|sim| sim.happen(Event::Edit { guest, set }));
                return told;
            }
            6 => {
                let running = dice.percent(30);
                node.with(|sim| sim.happen(Event::Power { guest, running }));
                return format!("{guest} runs now: {running}");
            }
            _ => {
                let found = node.with(|sim| {
                    sim.happen(Event::Power { guest, running: false });
                    let found = sim.world.guest(guest)?.clone();
                    Some((found, sim.records().len()))
                });
                self.rebirths.extend(found);
                SimRequest::new("DELETE", &base)
            }
        };
        let (token, secret, _) = TOKENS[2];
        let request = request.token(&format!("{token}={secret}"));
        let told = format!("somebody else sends {} {}", request.method, request.target);
        self.requests.push(node.with(|sim| sim.submit(sim.now_ms(), request)));
        told
    }

    /// Somebody defines every storage again: whoever makes a guest needs them.
    pub(crate) fn define_storages(node: &InProcess) -> String {
        node.with(|sim| {
            let missing: Vec<String> = sim.world.undefined.keys().cloned().collect();
            for storage in missing.iter().cloned() {
                sim.happen(Event::DefineStorage { storage });
            }
            format!("somebody defines {missing:?} again")
        })
    }

    /// New guests take the numbers that are free.
    pub(crate) fn recreate(node: &InProcess, files: &[(GuestId, Config)]) -> String {
        let mut made = Vec::new();
        Self::define_storages(node);
        node.with(|sim| {
            for (guest, file) in files {
                if sim.world.birth(guest.vmid).is_none() {
                    clear_volumes(&mut sim.world, *guest);
                    sim.world.put_guest(*guest, file.clone(), SimPower::Stopped);
                    sim.happen(Event::Reuse { guest: *guest });
                    made.push(*guest);
                }
            }
        });
        format!("new guests take free numbers: {made:?}")
    }

    /// Whoever was destroyed to be made again is there again, and looks the same.
    fn bring_back(&mut self, node: &InProcess, oracle: &Oracle) {
        let mut waiting = std::mem::take(&mut self.rebirths);
        Self::define_storages(node);
        node.with(|sim| {
            waiting.retain(|(copy, record)| {
                let sent = sim.records().get(*record).cloned();
                let works = sent.as_ref().is_some_and(|sent| {
                    sent.ended_ms.is_none()
                        || sent.upid.as_ref().is_some_and(|upid| sim.is_running(upid))
                });
                let forked = sent.is_some_and(|sent| sent.upid.is_some());
                if !works && forked && sim.world.birth(copy.id.vmid).is_none() {
                    clear_volumes(&mut sim.world, copy.id);
                    sim.world.put_guest(copy.id, copy.config.clone(), SimPower::Stopped);
                    oracle.tell(sim.now_ms(), || format!("{} is there again", copy.id));
                }
                works
            });
        });
        self.rebirths = waiting;
    }

    /// Takes the answers nobody waits for.
    pub(crate) fn pass(&mut self, node: &InProcess, oracle: &Oracle) {
        if !self.rebirths.is_empty() {
            self.bring_back(node, oracle);
        }
        if self.is_calm {
            self.mend_guests(node);
        }
        if self.requests.is_empty() {
            return;
        }
        node.with(|sim| {
            let now_ms = sim.now_ms();
            let waits = |sim: &mut Simulator, ticket: &SimTicket| {
                matches!(sim.poll(now_ms, *ticket), SimOutcome::Wait { .. })
            };
            self.requests.retain(|ticket| waits(sim, ticket));
        });
    }

    /// Nobody is made again any more.
    pub(crate) fn let_rest(&mut self) {
        self.rebirths.clear();
        self.is_calm = true;
    }

    /// Who is away comes home, a template is a guest again, and what a killed task left half made is whole.
    pub(crate) fn mend_guests(&self, node: &InProcess) {
        Self::define_storages(node);
        node.with(|sim| {
            for guest in sim.world.elsewhere.values().map(|away| away.guest.id).collect::<Vec<_>>()
            {
                sim.happen(Event::MigrateBack { guest, another: false });
            }
            for (guest, file) in &self.first_files {
                let Some(found) = sim.world.guest(*guest) else { continue };
                if found.config.active.contains_key("template") {
                    sim.world.unmake_template(*guest);
                }
                let Some(found) = sim.world.guest(*guest) else { continue };
                let mark = match guest.kind {
                    GuestKind::Lxc => "rootfs",
                    GuestKind::Qemu => "smbios1",
                };
                if !found.config.active.contains_key(mark) && !sim.is_at_work() {
                    clear_volumes(&mut sim.world, *guest);
                    sim.world.put_guest(*guest, file.clone(), SimPower::Stopped);
                }
            }
        });
    }

    /// An administrator clears up after workers that died over a snapshot or a backup. Tells whether anything was left.
    pub(crate) fn clear_dead_work(node: &InProcess) -> bool {
        node.with(|sim| {
            let mut is_cleared = false;
            let idle = !sim.is_at_work();
            for guest in sim.world.guests.values_mut().filter(|_| idle) {
                let waits = matches!(guest.power, SimPower::Prelaunch { .. });
                let lock = guest.config.active.get("lock").map(String::as_str);
                let is_locked = lock.is_some_and(|lock| WORKER_LOCKS.contains(&lock));
                if waits {
                    guest.power = SimPower::Stopped;
                }
                if is_locked {
                    guest.config.active.remove("lock");
                }
                is_cleared |= waits || is_locked;
            }
            is_cleared
        })
    }

    /// Everything is well again.
    pub(crate) fn heal(node: &InProcess, guests: &[GuestId]) {
        Self::define_storages(node);
        node.with(|sim| {
            sim.clear_faults();
            sim.world.storages.values_mut().for_each(|storage| storage.hides_sizes = false);
            sim.happen(Event::Quorum { quorate: true });
            for guest in guests.iter().copied() {
                sim.happen(Event::Lock { guest, lock: None });
            }
            // Also those that are on another node now and come back.
            let here = sim.world.guests.values_mut();
            let away = sim.world.elsewhere.values_mut().map(|away| &mut away.guest);
            here.chain(away).for_each(|guest| guest.ignores_shutdown = false);
        });
    }
}

/// What became of a worker that the daemon did not hear of.
fn lost_worker(dice: &mut Dice) -> LostWorker {
    *dice.pick(&[
        LostWorker::Unborn,
        LostWorker::Killed,
        LostWorker::Killed,
        LostWorker::Orphaned,
        LostWorker::Working,
    ])
}

/// What a task says before its last line; a secret in it must be seen nowhere.
fn logged(dice: &mut Dice) -> Vec<String> {
    let line = *dice.pick(&[
        "Failed to update the container's filesystem: exit code 32",
        "WARN: something was slow",
        "login --password LOGGED refused",
        "\u{1b}[2Ja line that steers a terminal",
    ]);
    vec![line.replace("LOGGED", LOGGED_SECRET); usize::try_from(dice.between(1, 700)).unwrap_or(1)]
}

/// A new guest has new volumes: whatever its number left behind is gone.
fn clear_volumes(world: &mut World, guest: GuestId) {
    for storage in world.storages.values_mut() {
        storage
            .volumes
            .retain(|_, volume| volume.vmid != Some(guest.vmid) || volume.content == "backup");
    }
}
