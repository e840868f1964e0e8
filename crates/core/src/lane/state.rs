//! The lane table's state and its one transition function.
//!
//! A waiting operation is looked at again only when one of its lanes changed or when it stood at the
//! head of its lane and could not start, so a step costs what it touches and not the whole table.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{
    Busy, Effect, Job, LaneError, LaneEvent, LaneLimits, Outcome, QUEUE_DEPTH_MAX, Refusal,
    Sharing, Source,
};
use crate::id::{OperationId, VmId};
use crate::operation::{StorageName, UnixSeconds};

/// All lanes of one node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct LaneTable {
    limits: LaneLimits,
    lanes: BTreeMap<VmId, Lane>,
    active: BTreeMap<OperationId, Active>,
    /// Where each waiting operation waits.
    queued: BTreeMap<OperationId, VmId>,
    /// Heads of free lanes that could not start, oldest first.
    blocked: BTreeSet<(Ticket, VmId)>,
    writing: BTreeSet<OperationId>,
    write_queue: VecDeque<OperationId>,
    next_ticket: Ticket,
    shut_down: bool,
}

/// The order of submission over all lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Ticket(u64);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Lane {
    queue: VecDeque<Queued>,
    /// The one operation that changes this guest.
    owner: Option<OperationId>,
    /// Clones being made from this guest.
    readers: BTreeMap<OperationId, Sharing>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Queued {
    ticket: Ticket,
    since: UnixSeconds,
    job: Job,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Active {
    since: UnixSeconds,
    job: Job,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Running,
    /// In doubt or under recovery: it keeps its lanes and nothing else.
    Held,
}

impl LaneTable {
    /// An empty table with its caps.
    pub fn new(limits: LaneLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// The one transition function: total, and an event that cannot be changes nothing.
    pub fn step(&mut self, event: LaneEvent, now: UnixSeconds) -> Result<Vec<Effect>, LaneError> {
        let mut effects = Vec::new();
        match event {
            LaneEvent::Submit { vmid, jobs } => self.submit(vmid, jobs, now, &mut effects)?,
            LaneEvent::Hold(job) => self.hold(job, now)?,
            LaneEvent::WantWrite(op) => self.want_write(op)?,
            LaneEvent::Wrote(op) => {
                if !self.writing.remove(&op) {
                    return Err(LaneError::NotWriting(op));
                }
            }
            LaneEvent::Finish { op, outcome } => self.finish(op, outcome, now, &mut effects)?,
            LaneEvent::Release(op) => {
                self.expect_phase(op, Phase::Held)?;
                self.leave(op, now, &mut effects);
            }
            LaneEvent::Shutdown => {
                self.shut_down = true;
                let lanes: Vec<VmId> = self.lanes.keys().copied().collect();
                for vmid in lanes {
                    self.skip_queue(vmid, &mut effects);
                }
            }
        }
        self.grant_writes(&mut effects);
        Ok(effects)
    }

    /// What a guest is busy with. A guest that others are only cloned from is not busy; its
    /// actions wait their turn.
    pub fn busy(&self, vmid: VmId) -> Option<Busy> {
        let lane = self.lanes.get(&vmid)?;
        let owner = lane.owner.and_then(|op| Some((op, self.active.get(&op)?.since)));
        let head = lane.queue.front().map(|queued| (queued.job.op, queued.since));
        owner.or(head).map(|(op, since)| Busy { op, since })
    }

    /// Whether nothing waits, runs or is held.
    pub fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    fn submit(
        &mut self,
        vmid: VmId,
        jobs: Vec<Job>,
        now: UnixSeconds,
        effects: &mut Vec<Effect>,
    ) -> Result<(), LaneError> {
        let mut named = BTreeSet::new();
        for job in &jobs {
            self.check_new(job)?;
            if job.target != vmid {
                return Err(LaneError::WrongLane(job.op));
            }
            if !named.insert(job.op) {
                return Err(LaneError::Duplicate(job.op));
            }
        }
        if let Some(refusal) = self.refusal(vmid, jobs.len()) {
            effects.push(Effect::Refuse { vmid, refusal });
            return Ok(());
        }
        for job in jobs {
            let ticket = self.next_ticket;
            self.next_ticket = Ticket(ticket.0 + 1);
            self.queued.insert(job.op, vmid);
            let lane = self.lanes.entry(vmid).or_default();
            lane.queue.push_back(Queued { ticket, since: now, job });
        }
        self.start_what_can([vmid], now, effects);
        Ok(())
    }

    fn refusal(&self, vmid: VmId, jobs: usize) -> Option<Refusal> {
        if self.shut_down {
            return Some(Refusal::ShuttingDown);
        }
        let too_many = (jobs > QUEUE_DEPTH_MAX).then_some(Refusal::TooMany);
        self.busy(vmid).map(Refusal::Busy).or(too_many)
    }

    fn check_new(&self, job: &Job) -> Result<(), LaneError> {
        if self.queued.contains_key(&job.op) || self.active.contains_key(&job.op) {
            return Err(LaneError::Duplicate(job.op));
        }
        match job.source {
            Some(source) if source.vmid == job.target => Err(LaneError::WrongLane(job.op)),
            Some(_) | None => Ok(()),
        }
    }

    /// Recovery does not ask whether the source is free: what runs in PVE runs.
    fn hold(&mut self, job: Job, now: UnixSeconds) -> Result<(), LaneError> {
        self.check_new(&job)?;
        if let Some(owner) = self.lanes.get(&job.target).and_then(|lane| lane.owner) {
            return Err(LaneError::Occupied { op: job.op, vmid: job.target, owner });
        }
        self.occupy(job, Phase::Held, now);
        Ok(())
    }

    fn occupy(&mut self, job: Job, phase: Phase, now: UnixSeconds) {
        self.lanes.entry(job.target).or_default().owner = Some(job.op);
        if let Some(Source { vmid, sharing }) = job.source {
            self.lanes.entry(vmid).or_default().readers.insert(job.op, sharing);
        }
        self.active.insert(job.op, Active { since: now, job, phase });
    }

    fn want_write(&mut self, op: OperationId) -> Result<(), LaneError> {
        self.expect_phase(op, Phase::Running)?;
        if self.writing.contains(&op) || self.write_queue.contains(&op) {
            return Err(LaneError::AskedTwice(op));
        }
        self.write_queue.push_back(op);
        Ok(())
    }

    fn grant_writes(&mut self, effects: &mut Vec<Effect>) {
        while self.writing.len() < self.limits.sync_writes
            && let Some(op) = self.write_queue.pop_front()
        {
            self.writing.insert(op);
            effects.push(Effect::Write(op));
        }
    }

    fn finish(
        &mut self,
        op: OperationId,
        outcome: Outcome,
        now: UnixSeconds,
        effects: &mut Vec<Effect>,
    ) -> Result<(), LaneError> {
        let target = self.expect_phase(op, Phase::Running)?;
        self.writing.remove(&op);
        self.write_queue.retain(|waiting| *waiting != op);
        match outcome {
            Outcome::Succeeded => self.leave(op, now, effects),
            Outcome::Failed => {
                self.skip_queue(target, effects);
                self.leave(op, now, effects);
            }
            Outcome::Unknown => {
                self.skip_queue(target, effects);
                if let Some(active) = self.active.get_mut(&op) {
                    active.phase = Phase::Held;
                }
                // What it allocated on has room again: a doubt about one guest delays no other.
                self.start_what_can([], now, effects);
            }
        }
        Ok(())
    }

    fn expect_phase(&self, op: OperationId, phase: Phase) -> Result<VmId, LaneError> {
        match (self.active.get(&op), phase) {
            (Some(active), _) if active.phase == phase => Ok(active.job.target),
            (Some(_) | None, Phase::Running) => Err(LaneError::NotRunning(op)),
            (Some(_) | None, Phase::Held) => Err(LaneError::NotHeld(op)),
        }
    }

    /// Takes an operation out of its lanes and lets the next ones start.
    fn leave(&mut self, op: OperationId, now: UnixSeconds, effects: &mut Vec<Effect>) {
        let Some(Active { job, .. }) = self.active.remove(&op) else { return };
        let touched = [Some(job.target), job.source.map(|source| source.vmid)];
        for vmid in touched.into_iter().flatten() {
            let lane = self.lanes.entry(vmid).or_default();
            lane.owner = lane.owner.filter(|owner| *owner != op);
            lane.readers.remove(&op);
        }
        self.start_what_can(touched.into_iter().flatten(), now, effects);
        for vmid in touched.into_iter().flatten() {
            self.drop_if_idle(vmid);
        }
    }

    fn skip_queue(&mut self, vmid: VmId, effects: &mut Vec<Effect>) {
        let Some(lane) = self.lanes.get_mut(&vmid) else { return };
        for Queued { ticket, job, .. } in lane.queue.drain(..) {
            self.blocked.remove(&(ticket, vmid));
            self.queued.remove(&job.op);
            effects.push(Effect::Skip(job.op));
        }
        self.drop_if_idle(vmid);
    }

    fn drop_if_idle(&mut self, vmid: VmId) {
        let idle =
            |lane: &Lane| lane.queue.is_empty() && lane.owner.is_none() && lane.readers.is_empty();
        if self.lanes.get(&vmid).is_some_and(idle) {
            self.lanes.remove(&vmid);
        }
    }

    /// Starts the heads that can start, oldest first, so that nobody is overtaken for a thing both
    /// of them need.
    fn start_what_can(
        &mut self,
        touched: impl IntoIterator<Item = VmId>,
        now: UnixSeconds,
        effects: &mut Vec<Effect>,
    ) {
        for vmid in touched {
            if let Some(head) = self.lanes.get(&vmid).and_then(|lane| lane.queue.front()) {
                self.blocked.insert((head.ticket, vmid));
            }
        }
        for (ticket, vmid) in self.blocked.clone() {
            let head = self.lanes.get(&vmid).and_then(|lane| lane.queue.front());
            if !head.is_some_and(|head| self.can_start(&head.job, ticket)) {
                continue;
            }
            self.blocked.remove(&(ticket, vmid));
            let head = self.lanes.get_mut(&vmid).and_then(|lane| lane.queue.pop_front());
            if let Some(Queued { job, .. }) = head {
                self.queued.remove(&job.op);
                effects.push(Effect::Start(job.op));
                self.occupy(job, Phase::Running, now);
            }
        }
    }

    fn can_start(&self, job: &Job, ticket: Ticket) -> bool {
        let free = |lane: &Lane| lane.owner.is_none() && lane.readers.is_empty();
        self.lanes.get(&job.target).is_none_or(free)
            && job.storage.as_ref().is_none_or(|storage| self.has_room(storage))
            && job.source.is_none_or(|source| self.can_read(source, ticket))
    }

    fn can_read(&self, source: Source, ticket: Ticket) -> bool {
        let goes_along = |other: Sharing| match (source.sharing, other) {
            (Sharing::Shared, Sharing::Shared) => true,
            (Sharing::Exclusive, _) | (_, Sharing::Exclusive) => false,
        };
        // An action of the source that was there first goes first, or a stream of clones would
        // keep it waiting for ever.
        let free = |lane: &Lane| {
            lane.owner.is_none()
                && lane.readers.values().all(|other| goes_along(*other))
                && lane.queue.front().is_none_or(|head| head.ticket > ticket)
        };
        self.lanes.get(&source.vmid).is_none_or(free)
    }

    fn has_room(&self, storage: &StorageName) -> bool {
        let running = self.active.values().filter(|active| {
            active.phase == Phase::Running && active.job.storage.as_ref() == Some(storage)
        });
        running.count() < self.limits.allocating_per_storage
    }
}
