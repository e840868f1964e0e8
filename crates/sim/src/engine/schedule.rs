//! The order of events: what happens between two moments, one at a time.

use evenkeel_core::model::id::{GuestId, GuestKind};

use super::{Holder, Simulator};
use crate::access::Identity;
use crate::fault::{Effect, LostWorker};
use crate::job::{self, LockMode, Next, Site, StopOutcome, TaskJob};
use crate::task::TaskStage;

/// The statistics daemon broadcasts this often.
const BROADCAST_MS: u64 = 10_000;
/// The node's daily clean-up of task logs.
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

impl Simulator {
    /// Lets everything happen that happens until then, in order.
    pub fn advance(&mut self, now_ms: u64) {
        self.settle();
        while let Some(next) = self.next_event_ms().filter(|next| *next <= now_ms) {
            self.tick(next);
            self.settle();
        }
        self.tick(now_ms.max(self.now_ms));
        self.settle();
    }

    /// Moves the clock, noticing broadcasts and midnights on the way.
    fn tick(&mut self, to_ms: u64) {
        let from = self.now_ms;
        let to = to_ms.max(self.now_ms);
        self.now_ms = to;
        if from / BROADCAST_MS < to / BROADCAST_MS {
            self.lagging.retain(|_, until_ms| *until_ms > to);
            crate::endpoints::broadcast(&self.world, &mut self.seen, &self.lagging, to);
        }
        if from / DAY_MS < to / DAY_MS {
            self.tasks.clean_up();
        }
    }

    /// The next moment at which something changes by itself.
    pub fn next_event_ms(&self) -> Option<u64> {
        let tasks = self.tasks.all.iter().filter_map(|task| match task.stage {
            TaskStage::Unforked { at_ms } => Some(at_ms),
            TaskStage::Waiting { deadline_ms } => Some(deadline_ms),
            TaskStage::Running { until_ms } => Some(until_ms),
            TaskStage::Ended => None,
        });
        let locks = self.locks.values().filter_map(|holder| match holder {
            Holder::Foreign { until_ms } => Some(*until_ms),
            Holder::Task(_) | Holder::Readers(_) => None,
        });
        let requests = self.pending.values().filter_map(super::PendingRequest::next_event_ms);
        let hanging = self.hanging.next_event_ms();
        tasks.chain(locks).chain(requests).chain(hanging).min().map(|at| at.max(self.now_ms))
    }

    /// Does everything that can be done at this very moment.
    pub(super) fn settle(&mut self) {
        loop {
            let now_ms = self.now_ms;
            self.hanging.pass(now_ms);
            self.locks.retain(|_, holder| match holder {
                Holder::Foreign { until_ms } => *until_ms > now_ms,
                Holder::Task(_) | Holder::Readers(_) => true,
            });
            self.note_writes();
            let moved = self.run_requests() | self.step_tasks();
            if !moved {
                return;
            }
        }
    }

    /// Moves every task that can move; says whether any did.
    fn step_tasks(&mut self) -> bool {
        let mut moved = false;
        for at in self.active_tasks() {
            match self.tasks.all[at].stage {
                TaskStage::Unforked { at_ms } if at_ms <= self.now_ms => {
                    let deadline_ms = at_ms + self.tasks.all[at].job.patience_ms();
                    self.tasks.all[at].stage = TaskStage::Waiting { deadline_ms };
                }
                TaskStage::Waiting { deadline_ms } => {
                    if !self.try_begin(at, deadline_ms) {
                        continue;
                    }
                }
                TaskStage::Running { until_ms } if until_ms <= self.now_ms => self.finish(at),
                TaskStage::Unforked { .. } | TaskStage::Running { .. } | TaskStage::Ended => {
                    continue;
                }
            }
            self.note_writes();
            moved = true;
        }
        moved
    }

    fn active_tasks(&self) -> Vec<usize> {
        (0..self.tasks.all.len()).filter(|at| self.tasks.all[*at].is_running()).collect()
    }

    /// Gives a waiting task its locks, or its timeout.
    fn try_begin(&mut self, at: usize, deadline_ms: u64) -> bool {
        const TRYING: &str = "trying to acquire lock...";
        let wanted = self.tasks.all[at].job.locks(&self.world);
        let waited = self.tasks.all[at].log.last().is_some_and(|line| line == TRYING);
        let timeout = match wanted.iter().find(|(guest, mode)| !self.is_free(*guest, *mode)) {
            Some((guest, _)) => Some(lock_timeout_text(*guest)),
            None if self.must_queue(at) => Some(job::BACKUP_LOCK_TIMEOUT.to_owned()),
            None => None,
        };
        if let Some(message) = timeout {
            if !waited {
                self.tasks.all[at].log.push(TRYING.into());
            }
            if deadline_ms > self.now_ms {
                return false;
            }
            self.tasks.end(at, &message, self.world.unix(self.now_ms));
            return true;
        }
        if waited {
            self.tasks.all[at].log.push(" OK".into());
        }
        self.take(&wanted, self.tasks.all[at].upid.pid);
        self.begin(at);
        true
    }

    fn begin(&mut self, at: usize) {
        let mut job = self.tasks.all[at].job.clone();
        let mut log = std::mem::take(&mut self.tasks.all[at].log);
        log.extend(self.faults.on_log(&self.tasks.all[at].upid.to_string()));
        let pid = self.tasks.all[at].upid.pid;
        let begun = if self.world.quorate {
            let site = &mut Site::new(&mut self.world, &self.timings, self.now_ms, &mut log, pid);
            job::begin(site, &mut job)
        } else {
            Err("cluster not ready - no quorum?".to_owned())
        };
        let task = &mut self.tasks.all[at];
        (task.log, task.job) = (log, job);
        let ms = begun.unwrap_or_else(|message| {
            // It takes a process to find out.
            task.doomed = Some(message);
            self.timings.short_ms / REFUSED_PART
        });
        task.stage = TaskStage::Running { until_ms: self.now_ms + ms };
    }

    fn is_free(&self, guest: GuestId, mode: LockMode) -> bool {
        match self.locks.get(&guest) {
            None => true,
            Some(Holder::Readers(_)) => mode == LockMode::Shared,
            Some(Holder::Task(_) | Holder::Foreign { .. }) => false,
        }
    }

    fn take(&mut self, wanted: &[(GuestId, LockMode)], pid: u32) {
        for (guest, mode) in wanted {
            match (self.locks.get_mut(guest), mode) {
                (Some(Holder::Readers(all)), LockMode::Shared) => {
                    all.insert(pid);
                }
                (_, LockMode::Shared) => {
                    self.locks.insert(*guest, Holder::Readers([pid].into()));
                }
                (_, LockMode::Alone) => {
                    self.locks.insert(*guest, Holder::Task(pid));
                }
            }
        }
    }

    fn release(&mut self, pid: u32) {
        self.locks.retain(|_, holder| match holder {
            Holder::Task(own) => *own != pid,
            Holder::Readers(all) => {
                all.remove(&pid);
                !all.is_empty()
            }
            Holder::Foreign { .. } => true,
        });
    }

    /// One backup works at a time, in the order in which they came.
    fn must_queue(&self, at: usize) -> bool {
        let backup = |job: &TaskJob| matches!(job, TaskJob::Backup { .. });
        backup(&self.tasks.all[at].job)
            && self.tasks.all.iter().enumerate().any(|(other, task)| {
                backup(&task.job)
                    && match task.stage {
                        TaskStage::Running { .. } => other != at,
                        TaskStage::Waiting { .. } => other < at,
                        TaskStage::Unforked { .. } | TaskStage::Ended => false,
                    }
            })
    }

    /// Whether a task waits for a guest's file lock since before that moment: it comes first.
    pub(super) fn task_waits_since(&self, guest: GuestId, since_ms: u64) -> bool {
        self.tasks.all.iter().any(|task| match task.stage {
            TaskStage::Waiting { deadline_ms } => {
                deadline_ms.saturating_sub(task.job.patience_ms()) < since_ms
                    && task.job.locks(&self.world).iter().any(|(own, _)| *own == guest)
            }
            TaskStage::Unforked { .. } | TaskStage::Running { .. } | TaskStage::Ended => false,
        })
    }

    /// A part of a task's work is done.
    fn finish(&mut self, at: usize) {
        if self.tasks.all[at].interrupted {
            return self.end_task(at, "unexpected status");
        }
        if let Some(message) = self.tasks.all[at].doomed.take() {
            return self.end_task(at, &message);
        }
        let step = self.tasks.all[at].step;
        if step == self.tasks.all[at].job.struck_at() && self.strike(at) {
            return;
        }
        let mut job = self.tasks.all[at].job.clone();
        let mut log = std::mem::take(&mut self.tasks.all[at].log);
        let pid = self.tasks.all[at].upid.pid;
        let site = &mut Site::new(&mut self.world, &self.timings, self.now_ms, &mut log, pid);
        let done = job::next(site, &mut job, step);
        let warnings = site.warnings;
        let task = &mut self.tasks.all[at];
        (task.log, task.job) = (log, job);
        task.warnings += warnings;
        match done {
            Ok(Next::Step(ms)) => {
                task.step += 1;
                task.stage = TaskStage::Running { until_ms: self.now_ms + ms };
            }
            Ok(Next::Ended) => {
                let exit = match task.warnings {
                    0 => "OK".to_owned(),
                    warnings => format!("WARNINGS: {warnings}"),
                };
                self.end_task(at, &exit);
                self.start_after(at);
            }
            Err(message) => self.end_task(at, &message),
        }
    }

    /// A fault that waits for this task; says whether it has ended by it.
    fn strike(&mut self, at: usize) -> bool {
        let upid = self.tasks.all[at].upid.to_string();
        match self.faults.on_task(&upid) {
            Some(Effect::TaskFails { message }) => {
                job::failed(&mut self.world, &self.tasks.all[at].job);
                self.end_task(at, &message);
                true
            }
            Some(Effect::TaskFailsUncleanly { message }) => {
                job::failed_uncleanly(&mut self.world, &self.tasks.all[at].job);
                self.end_task(at, &message);
                true
            }
            Some(Effect::TaskKilled) => {
                self.kill(at);
                true
            }
            Some(Effect::TaskWarns { warnings }) => {
                let task = &mut self.tasks.all[at];
                task.warnings += warnings;
                task.log.push("WARN: something is not as it should be".to_owned());
                false
            }
            Some(_) | None => false,
        }
    }

    /// A guest that was to start when it was made is started by a task of its own, which nobody is told of.
    fn start_after(&mut self, at: usize) {
        let Some(guest) = self.tasks.all[at].job.starts_after() else { return };
        let (user, token) = self.tasks.all[at].upid.owner();
        let who = Identity { user: user.to_owned(), token: token.map(str::to_owned) };
        let kind = match guest.kind {
            GuestKind::Lxc => "vzstart",
            GuestKind::Qemu => "qmstart",
        };
        let id = guest.vmid.to_string();
        let now = (self.now_ms, self.unix_s());
        self.tasks.fork(&self.world.node, kind, &id, &who, TaskJob::Start { guest }, now);
    }

    fn end_task(&mut self, at: usize, exit: &str) {
        self.release(self.tasks.all[at].upid.pid);
        self.tasks.end(at, exit, self.world.unix(self.now_ms));
    }

    /// After loading a state: whoever was running holds its locks again.
    pub(crate) fn take_locks_of_running_tasks(&mut self) {
        let running =
            |task: &&crate::task::SimTask| matches!(task.stage, TaskStage::Running { .. });
        let held: Vec<_> = self
            .tasks
            .all
            .iter()
            .filter(running)
            .map(|task| (task.job.locks(&self.world), task.upid.pid))
            .collect();
        for (wanted, pid) in held {
            self.take(&wanted, pid);
        }
    }

    /// The task's process is killed: it takes nothing away, and its log stops where it is.
    pub(super) fn kill(&mut self, at: usize) {
        let begun = matches!(self.tasks.all[at].stage, TaskStage::Running { .. });
        let job = self.tasks.all[at].job.clone();
        let exit = job::killed_exit(&job, &self.tasks.all[at].log);
        if begun && self.tasks.all[at].doomed.is_none() {
            job::killed(&mut self.world, &job, &mut self.tasks.all[at].log);
        }
        self.end_task(at, exit);
    }

    /// The daemon of a task that was just forked did not hear of its worker.
    pub(super) fn lose_worker(&mut self, at: usize, worker: LostWorker) {
        match worker {
            LostWorker::Unborn => {
                self.tasks.all.remove(at);
            }
            LostWorker::Killed => self.kill(at),
            LostWorker::Orphaned => self.end_task(at, "parent setup error"),
            LostWorker::Working => {}
        }
    }

    /// Somebody stops a task, which proves nothing: it may go on, clean up, or be killed in the end.
    pub(crate) fn stop_task(&mut self, upid: &str) {
        let Some(at) = self
            .tasks
            .all
            .iter()
            .position(|task| task.is_running() && task.upid.to_string() == upid)
        else {
            return;
        };
        let begun = matches!(self.tasks.all[at].stage, TaskStage::Running { .. });
        let task = &self.tasks.all[at];
        match job::stopped(&self.world, &task.job, task.upid.pid) {
            StopOutcome::GoesOn if begun => {}
            StopOutcome::Fails(message) if begun => {
                job::failed(&mut self.world, &self.tasks.all[at].job);
                self.end_task(at, &message);
            }
            StopOutcome::GoesOn | StopOutcome::Fails(_) | StopOutcome::Killed => self.kill(at),
        }
    }
}

/// A task that is refused by its own worker needs this part of a short time to find out.
const REFUSED_PART: u64 = 6;

/// What PVE says when ten seconds were not enough.
pub(crate) fn lock_timeout_text(guest: GuestId) -> String {
    match guest.kind {
        GuestKind::Lxc => {
            format!("can't lock file '/run/lock/lxc/pve-config-{}.lock' - got timeout", guest.vmid)
        }
        GuestKind::Qemu => {
            format!(
                "can't lock file '/var/lock/qemu-server/lock-{}.conf' - got timeout",
                guest.vmid
            )
        }
    }
}
