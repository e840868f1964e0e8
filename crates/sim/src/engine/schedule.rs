//! The order of events: what happens between two moments, one at a time.

use evenkeel_core::id::{GuestId, GuestKind};

use super::{Holder, Simulator};
use crate::fault::Effect;
use crate::job::{self, Site};
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
        let (from, to) = (self.now_ms, to_ms.max(self.now_ms));
        self.now_ms = to;
        if from / BROADCAST_MS < to / BROADCAST_MS {
            self.seen = (to / BROADCAST_MS, crate::endpoints::broadcast(&self.world));
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
            Holder::Task(_) => None,
        });
        let requests = self.pending.values().filter_map(super::PendingRequest::next_event_ms);
        tasks.chain(locks).chain(requests).min().map(|at| at.max(self.now_ms))
    }

    /// Does everything that can be done at this very moment.
    pub(super) fn settle(&mut self) {
        loop {
            let now_ms = self.now_ms;
            self.locks.retain(|_, holder| match holder {
                Holder::Foreign { until_ms } => *until_ms > now_ms,
                Holder::Task(_) => true,
            });
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
                    let deadline_ms = at_ms + job::LOCK_WAIT_MS;
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
            moved = true;
        }
        moved
    }

    fn active_tasks(&self) -> Vec<usize> {
        (0..self.tasks.all.len()).filter(|at| self.tasks.all[*at].is_running()).collect()
    }

    /// Gives a waiting task its lock, or its timeout.
    fn try_begin(&mut self, at: usize, deadline_ms: u64) -> bool {
        const TRYING: &str = "trying to acquire lock...";
        let lock = self.tasks.all[at].lock();
        let waited = self.tasks.all[at].log.last().is_some_and(|line| line == TRYING);
        if let Some(guest) = lock.filter(|guest| self.locks.contains_key(guest)) {
            if !waited {
                self.tasks.all[at].log.push(TRYING.into());
            }
            if deadline_ms > self.now_ms {
                return false;
            }
            let message = lock_timeout_text(guest);
            self.tasks.end(at, &message, self.world.unix(self.now_ms));
            return true;
        }
        if waited {
            self.tasks.all[at].log.push(" OK".into());
        }
        if let Some(guest) = lock {
            self.locks.insert(guest, Holder::Task(self.tasks.all[at].upid.pid));
        }
        let job = self.tasks.all[at].job.clone();
        let mut log = std::mem::take(&mut self.tasks.all[at].log);
        let begun = if self.world.quorate {
            let site = &mut Site::new(&mut self.world, &self.timings, self.now_ms, &mut log);
            job::begin(site, &job)
        } else {
            Err("cluster not ready - no quorum?".to_owned())
        };
        self.tasks.all[at].log = log;
        match begun {
            Ok(ms) => self.tasks.all[at].stage = TaskStage::Running { until_ms: self.now_ms + ms },
            Err(message) => self.end_task(at, &message),
        }
        true
    }

    fn finish(&mut self, at: usize) {
        if self.tasks.all[at].interrupted {
            return self.end_task(at, "unexpected status");
        }
        let upid = self.tasks.all[at].upid.to_string();
        match self.faults.on_task(&upid) {
            Some(Effect::TaskFails { message }) => {
                job::failed(&mut self.world, &self.tasks.all[at].job);
                return self.end_task(at, &message);
            }
            Some(Effect::TaskKilled) => return self.end_task(at, "unexpected status"),
            Some(_) | None => {}
        }
        let job = self.tasks.all[at].job.clone();
        let mut log = std::mem::take(&mut self.tasks.all[at].log);
        let site = &mut Site::new(&mut self.world, &self.timings, self.now_ms, &mut log);
        let done = job::finish(site, &job).map(|()| site.warnings);
        self.tasks.all[at].log = log;
        match done {
            Ok(0) => self.end_task(at, "OK"),
            Ok(warnings) => self.end_task(at, &format!("WARNINGS: {warnings}")),
            Err(message) => self.end_task(at, &message),
        }
    }

    fn end_task(&mut self, at: usize, exit: &str) {
        if let Some(guest) = self.tasks.all[at].lock()
            && self.locks.get(&guest) == Some(&Holder::Task(self.tasks.all[at].upid.pid))
        {
            self.locks.remove(&guest);
        }
        self.tasks.end(at, exit, self.world.unix(self.now_ms));
    }

    /// After loading a state: whoever was running holds its lock again.
    pub(crate) fn take_locks_of_running_tasks(&mut self) {
        for task in &self.tasks.all {
            if let (TaskStage::Running { .. }, Some(guest)) = (task.stage, task.lock()) {
                self.locks.insert(guest, Holder::Task(task.upid.pid));
            }
        }
    }

    /// Ends a task by a signal: its log stops where it is.
    pub(crate) fn kill_task(&mut self, upid: &str) {
        let Some(at) = self
            .tasks
            .all
            .iter()
            .position(|task| task.is_running() && task.upid.to_string() == upid)
        else {
            return;
        };
        let job = self.tasks.all[at].job.clone();
        job::killed(&job, &mut self.tasks.all[at].log);
        self.end_task(at, "unexpected status");
    }
}

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
