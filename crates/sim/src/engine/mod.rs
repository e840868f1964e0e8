//! Time and order: requests queue for workers, wait for file locks, fork tasks; tasks end.
//!
//! ```text
//! submit ─► log in ─► front call ───────────────► answer
//!                 └─► one of 3 workers ─► handler ─► answer
//!                                   waits: file lock (10 s), its own task
//! advance: locks free up, tasks begin and end, waiting handlers run again
//! ```
//! Nothing here reads a clock: every entry takes the moment as an argument, so a paused clock gives
//! the same run every time.

mod hang;
mod others;
mod request;
mod schedule;

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_core::model::id::GuestId;

use crate::cluster_fs::ClusterFs;
use crate::fault::{Event, Fault, Faults};
use crate::job::Timings;
use crate::record::RequestRecord;
use crate::reply::Reply;
use crate::request::SimRequest;
use crate::task::{TaskStage, Tasks};
use crate::world::{SimPower, World};

pub(crate) use request::PendingRequest;

/// A Proxmox VE node in memory: state, tasks, faults and a log of what arrived.
#[derive(Debug)]
pub struct Simulator {
    /// What the node keeps; tests may look and change between requests.
    pub world: World,
    /// How long things take.
    pub timings: Timings,
    /// Whether refused log-ins wait three seconds, as PVE's do.
    pub delay_unauthorised: bool,
    /// Whether calls of the root daemon close their connection, as measured on a busy server.
    pub close_after_protected: bool,
    pub(crate) tasks: Tasks,
    pub(crate) faults: Faults,
    pub(crate) records: Vec<RequestRecord>,
    /// Where the log begins for its readers; requests on their way keep their place before it.
    first_record: usize,
    pub(crate) pending: BTreeMap<u64, PendingRequest>,
    /// Who holds which guest's file lock.
    pub(crate) locks: BTreeMap<GuestId, Holder>,
    pub(crate) now_ms: u64,
    /// What the statistics daemon last broadcast, by guest number.
    pub(crate) seen: BTreeMap<u32, crate::endpoints::ClusterView>,
    /// Guests it does not notice, until then.
    pub(crate) lagging: BTreeMap<u32, u64>,
    next_ticket: u64,
    /// Grows with every certificate renewal; HTTP fronts compare it.
    pub(crate) certificate: u64,
    /// Grows with every restart; fronts drop connections older than it.
    pub(crate) restarts: u64,
    /// What `/etc/pve` tells of configuration files.
    pub(crate) cluster_fs: ClusterFs,
    /// Storages that do not answer.
    hanging: hang::HangingStorages,
}

/// Beyond this the request log loses its older half; a test that reads it sends far fewer.
const RECORDS_KEPT: usize = 400_000;
/// Beyond this, tasks no index lists are dropped at once instead of at midnight.
const TASKS_KEPT: usize = 4_096;

/// The holder of a file lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Holder {
    /// The task with this process id.
    Task(u32),
    /// Tasks that only read the guest.
    Readers(BTreeSet<u32>),
    /// Somebody outside, until then.
    Foreign { until_ms: u64 },
}

/// A request that was submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SimTicket(pub(crate) u64);

/// What became of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum SimOutcome {
    /// Answered.
    Reply(Reply),
    /// The connection breaks without an answer.
    Dropped,
    /// Not yet; ask again at this moment, or when anything else happened.
    Wait {
        /// The next moment at which something can change, if one is known.
        until_ms: Option<u64>,
    },
}

impl Simulator {
    /// A node with this state, at the beginning of its time.
    pub fn new(world: World) -> Self {
        let cluster_fs = ClusterFs::start(&world, world.unix(0));
        Self {
            world,
            cluster_fs,
            timings: Timings::default(),
            delay_unauthorised: true,
            close_after_protected: true,
            tasks: Tasks::default(),
            faults: Faults::default(),
            records: Vec::new(),
            first_record: 0,
            pending: BTreeMap::new(),
            locks: BTreeMap::new(),
            now_ms: 0,
            seen: BTreeMap::new(),
            lagging: BTreeMap::new(),
            next_ticket: 0,
            certificate: 0,
            restarts: 0,
            hanging: hang::HangingStorages::default(),
        }
    }

    /// A request arrives. Ask [`Self::poll`] what became of it.
    #[expect(clippy::needless_pass_by_value, reason = "a request that was sent is gone")]
    pub fn submit(&mut self, now_ms: u64, request: SimRequest) -> SimTicket {
        self.advance(now_ms);
        self.forget_the_oldest();
        self.next_ticket += 1;
        let ticket = self.next_ticket;
        let pending = self.receive(&request);
        self.pending.insert(ticket, pending);
        self.settle();
        SimTicket(ticket)
    }

    /// Keeps memory bounded in long runs.
    fn forget_the_oldest(&mut self) {
        if self.tasks.all.len() > TASKS_KEPT {
            self.tasks.clean_up();
        }
        if self.records.len() > RECORDS_KEPT && self.pending.is_empty() {
            self.records.drain(..RECORDS_KEPT / 2);
            self.first_record = self.first_record.saturating_sub(RECORDS_KEPT / 2);
        }
    }

    /// The node's clock in Unix seconds, as its `Date` header and its tasks show it.
    pub fn unix_s(&self) -> u64 {
        self.world.unix(self.now_ms)
    }

    /// What became of a request; a final outcome is given once.
    pub fn poll(&mut self, now_ms: u64, ticket: SimTicket) -> SimOutcome {
        self.advance(now_ms);
        match self.pending.get_mut(&ticket.0).and_then(PendingRequest::take_outcome) {
            Some(outcome) => {
                self.pending.retain(|number, pending| *number != ticket.0 || pending.is_working());
                outcome
            }
            None if self.pending.contains_key(&ticket.0) => {
                SimOutcome::Wait { until_ms: self.next_event_ms() }
            }
            None => SimOutcome::Dropped,
        }
    }

    /// A request from submission to its final outcome, letting virtual time pass as needed.
    pub fn call(&mut self, request: SimRequest) -> SimOutcome {
        let ticket = self.submit(self.now_ms, request);
        loop {
            match self.poll(self.now_ms, ticket) {
                SimOutcome::Wait { until_ms: Some(until_ms) } => self.advance(until_ms),
                SimOutcome::Wait { until_ms: None } => return SimOutcome::Dropped,
                done @ (SimOutcome::Reply(_) | SimOutcome::Dropped) => return done,
            }
        }
    }

    /// The virtual clock, in milliseconds since the beginning.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Lets time pass until no task is running.
    pub fn run_tasks(&mut self) {
        while self.tasks.all.iter().any(super::task::SimTask::is_running) {
            let Some(next) = self.next_event_ms() else { return };
            self.advance(next);
        }
    }

    /// Puts a fault into force.
    pub fn inject(&mut self, fault: Fault) {
        self.faults.add(fault);
    }

    /// Takes all faults out of force.
    pub fn clear_faults(&mut self) {
        self.faults.clear();
    }

    /// The request log, oldest first.
    pub fn records(&self) -> &[RequestRecord] {
        self.records.get(self.first_record..).unwrap_or_default()
    }

    /// Empties the request log.
    pub fn clear_records(&mut self) {
        self.first_record = self.records.len();
    }

    /// Something happens behind the client's back.
    pub fn happen(&mut self, event: Event) {
        match event {
            Event::Lock { guest, lock } => {
                if let Some(record) = self.world.guest_mut(guest) {
                    record.config.set_lock(lock.as_deref());
                }
            }
            Event::HoldFileLock { guest, ms } => {
                let until_ms = self.now_ms + ms;
                self.locks.insert(guest, Holder::Foreign { until_ms });
            }
            Event::Quorum { quorate } => {
                self.world.quorate = quorate;
                self.world.clustered = true;
            }
            Event::Restart => self.restart(),
            Event::NewCertificate => self.certificate += 1,
            Event::Edit { guest, set } => {
                if let Some(record) = self.world.guest_mut(guest) {
                    for (key, value) in set {
                        match value {
                            Some(value) => record.config.active.insert(key, value),
                            None => record.config.active.remove(&key),
                        };
                    }
                }
            }
            Event::Reuse { guest } => self.reuse(guest),
            Event::Destroy { guest } => {
                self.world.guests.remove(&guest.vmid.get());
            }
            Event::Power { guest, running } => {
                let since_ms = self.now_ms;
                if let Some(record) = self.world.guest_mut(guest) {
                    if running {
                        record.first_ran_ms.get_or_insert(since_ms);
                    }
                    record.power = if running {
                        SimPower::Running { since_ms, pid: 4242, paused: false }
                    } else {
                        SimPower::Stopped
                    };
                }
            }
            Event::Switch { guest, running } => self.switch(guest, running),
            Event::IgnoreShutdown { guest, ignores } => {
                if let Some(record) = self.world.guest_mut(guest) {
                    record.ignores_shutdown = ignores;
                }
            }
            Event::ForgetTasks => self.tasks.forget(),
            Event::TurnOverTasks { keep } => self.tasks.turn_over(keep),
            Event::TaskBy { user, task, id } => self.task_by(user, &task, &id),
            Event::HideSizes { storage, hidden } => {
                if let Some(storage) = self.world.storages.get_mut(&storage) {
                    storage.hides_sizes = hidden;
                }
            }
            Event::Clock { step_s } => {
                self.world.epoch_s = self.world.epoch_s.saturating_add_signed(step_s);
            }
            Event::Withhold { holder, path, privilege } => {
                let release = self.world.release();
                self.world.access.withhold(&path, &holder, &privilege, release);
            }
            Event::Revoke { holder, path } => self.world.access.revoke(&path, &holder),
            Event::Restore { guest } => self.restore(guest),
            Event::Recreate { guest } => self.recreate(guest),
            Event::CloneOver { source, target } => self.clone_over(source, target),
            Event::Rollback { guest } => self.roll_back(guest),
            Event::Template { guest } => self.make_template(guest),
            Event::Create { guest } => self.create(guest),
            Event::RestoreAs { guest } => self.restore_as(guest),
            Event::CloneAs { source, target } => self.clone_as(source, target),
            Event::Remove { guest } => self.remove(guest),
            Event::KillTask { contains } => self.kill_tasks(&contains),
            Event::Truncate { volid } => self.truncate(&volid),
            Event::LoseVolume { volid } => self.world.free(&volid),
            Event::Retention { storage, keep_last, max_protected } => {
                if let Some(storage) = self.world.storages.get_mut(&storage) {
                    (storage.keep_last, storage.max_protected) = (keep_last, max_protected);
                }
            }
            Event::BackupExcludes { paths } => self.world.backup_excludes = paths,
            Event::UndefineStorage { storage } => {
                let world = &mut self.world;
                world.undefined.extend(world.storages.remove_entry(&storage));
            }
            Event::DefineStorage { storage } => {
                let world = &mut self.world;
                world.storages.extend(world.undefined.remove_entry(&storage));
            }
            Event::Around { guest, thing, present } => {
                self.world.around.given_ms.insert(guest.vmid.get(), self.now_ms);
                self.world.set_thing(guest, thing, present);
            }
            Event::StorageHangs { storage, ms, lists } => self.storage_hangs(storage, ms, lists),
            Event::StorageAnswers { storage } => self.storage_answers(&storage),
            Event::Lag { guest, ms } => {
                self.lagging.insert(guest.vmid.get(), self.now_ms + ms);
            }
            Event::MigrateAway { guest } => self.migrate_away(guest),
            Event::MigrateBack { guest, another } => self.migrate_back(guest, another),
            Event::RestartClusterFs => self.restart_cluster_fs(),
            Event::ResyncClusterFs => self.resync_cluster_fs(),
        }
        self.settle();
    }

    /// Running tasks are interrupted, requests in flight lose their connection.
    fn restart(&mut self) {
        self.restarts += 1;
        for at in 0..self.tasks.all.len() {
            if self.tasks.all[at].is_running() {
                self.tasks.all[at].log.push("received interrupt".into());
                self.kill(at);
            }
        }
        for pending in self.pending.values_mut() {
            pending.drop_connection();
        }
    }

    /// Whether any task or request is still under way.
    pub fn is_at_work(&self) -> bool {
        self.tasks.all.iter().any(crate::task::SimTask::is_running)
            || self.pending.values().any(PendingRequest::is_working)
    }

    /// Whether this task has not ended; also while its fork is still to come.
    pub fn is_running(&self, upid: &str) -> bool {
        self.tasks.all.iter().any(|task| task.is_running() && task.upid.to_string() == upid)
    }

    /// How a task ended, while the node remembers it.
    pub fn exit_of(&self, upid: &str) -> Option<&str> {
        let task = self.tasks.all.iter().find(|task| task.upid.to_string() == upid)?;
        task.exit.as_deref()
    }

    /// The stage of the newest task of a type, for tests that wait for one.
    pub fn is_task_running(&self, kind: &str) -> bool {
        self.tasks.all.iter().any(|task| task.upid.kind == kind && task.stage != TaskStage::Ended)
    }
}
