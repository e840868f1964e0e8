//! The lane table's state and its one transition function.
//!
//! A waiting operation is looked at again only when one of its lanes changed or when it stood at the
//! head of its lane and could not start, so a step costs what it touches and not the whole table.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{
    Job, LaneBusy, LaneEffect, LaneError, LaneEvent, LaneLimits, LaneOutcome, LaneRefusal,
    QUEUE_DEPTH_MAX, Sharing, SourceLane,
};
use crate::model::id::{OperationId, VmId};
use crate::operate::operation::{StorageName, UnixSeconds};

/// All lanes of one node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct LaneTable {
    limits: LaneLimits,
    /// Each in a box: lanes come and go with every operation, and the map moves its values about.
    lanes: BTreeMap<VmId, Box<Lane>>,
    /// The lane of everything that waits, runs or is held.
    lane_of: BTreeMap<OperationId, VmId>,
    /// Heads of lanes that could not start, oldest first.
    blocked: Vec<(LaneTicket, VmId)>,
    /// What runs and allocates, and where: a thousand guests that wait for a place ask at every end of another.
    allocating: BTreeMap<OperationId, StorageName>,
    writing: BTreeSet<OperationId>,
    write_queue: VecDeque<OperationId>,
    next_ticket: LaneTicket,
    shut_down: bool,
}

/// The order of submission over all lanes. What was submitted together has one ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
struct LaneTicket(u64);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Lane {
    /// What waits of the one submission this lane took last: while it is here, no other is taken.
    queue: VecDeque<Job>,
    ticket: LaneTicket,
    submitted: UnixSeconds,
    /// The one operation that changes this guest.
    owner: Option<Owner>,
    /// Clones being made from this guest.
    readers: BTreeMap<OperationId, Sharing>,
}

impl Lane {
    fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.owner.is_none() && self.readers.is_empty()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Owner {
    job: Job,
    phase: Phase,
    since: UnixSeconds,
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
    pub fn step(
        &mut self,
        event: LaneEvent,
        now: UnixSeconds,
    ) -> Result<Vec<LaneEffect>, LaneError> {
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
                let vmid = self.owned(op, Phase::Held).ok_or(LaneError::NotHeld(op))?;
                self.leave(op, vmid, now, &mut effects);
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
    pub fn busy(&self, vmid: VmId) -> Option<LaneBusy> {
        let lane = self.lanes.get(&vmid)?;
        let owner =
            lane.owner.as_ref().map(|owner| LaneBusy { op: owner.job.op, since: owner.since });
        let head = || lane.queue.front().map(|job| LaneBusy { op: job.op, since: lane.submitted });
        owner.or_else(head)
    }

    /// What every busy guest is busy with.
    pub fn all_busy(&self) -> Vec<(VmId, LaneBusy)> {
        self.lanes.keys().filter_map(|vmid| Some((*vmid, self.busy(*vmid)?))).collect()
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
        effects: &mut Vec<LaneEffect>,
    ) -> Result<(), LaneError> {
        for (place, job) in jobs.iter().enumerate() {
            self.check_new(job)?;
            if job.target != vmid {
                return Err(LaneError::WrongLane(job.op));
            }
            if jobs[..place].iter().any(|other| other.op == job.op) {
                return Err(LaneError::Duplicate(job.op));
            }
        }
        if let Some(refusal) = self.refusal(vmid, jobs.len()) {
            effects.push(LaneEffect::Refuse { vmid, refusal });
            return Ok(());
        }
        if jobs.is_empty() {
            return Ok(());
        }
        let ticket = self.next_ticket;
        self.next_ticket = LaneTicket(ticket.0 + 1);
        self.lane_of.extend(jobs.iter().map(|job| (job.op, vmid)));
        let lane = self.lanes.entry(vmid).or_default();
        (lane.queue, lane.ticket, lane.submitted) = (jobs.into(), ticket, now);
        // Nobody has a later ticket, so the order is kept.
        self.blocked.push((ticket, vmid));
        self.start_what_can([], now, effects);
        Ok(())
    }

    fn refusal(&self, vmid: VmId, jobs: usize) -> Option<LaneRefusal> {
        if self.shut_down {
            return Some(LaneRefusal::ShuttingDown);
        }
        let too_many = (jobs > QUEUE_DEPTH_MAX).then_some(LaneRefusal::TooMany);
        self.busy(vmid).map(LaneRefusal::Busy).or(too_many)
    }

    fn check_new(&self, job: &Job) -> Result<(), LaneError> {
        if self.lane_of.contains_key(&job.op) {
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
        let Job { op, target, source, .. } = job;
        let lane = self.lanes.entry(target).or_default();
        if let Some(owner) = &lane.owner {
            return Err(LaneError::Occupied { op, vmid: target, owner: owner.job.op });
        }
        lane.owner = Some(Owner { job, phase: Phase::Held, since: now });
        self.lane_of.insert(op, target);
        self.read_from(source, op);
        Ok(())
    }

    fn read_from(&mut self, source: Option<SourceLane>, op: OperationId) {
        if let Some(SourceLane { vmid, sharing }) = source {
            self.lanes.entry(vmid).or_default().readers.insert(op, sharing);
        }
    }

    fn want_write(&mut self, op: OperationId) -> Result<(), LaneError> {
        self.owned(op, Phase::Running).ok_or(LaneError::NotRunning(op))?;
        if self.writing.contains(&op) || self.write_queue.contains(&op) {
            return Err(LaneError::AskedTwice(op));
        }
        self.write_queue.push_back(op);
        Ok(())
    }

    fn grant_writes(&mut self, effects: &mut Vec<LaneEffect>) {
        if self.shut_down {
            effects.extend(self.write_queue.drain(..).map(LaneEffect::Deny));
        }
        while self.writing.len() < self.limits.sync_writes
            && let Some(op) = self.write_queue.pop_front()
        {
            self.writing.insert(op);
            effects.push(LaneEffect::Write(op));
        }
    }

    fn finish(
        &mut self,
        op: OperationId,
        outcome: LaneOutcome,
        now: UnixSeconds,
        effects: &mut Vec<LaneEffect>,
    ) -> Result<(), LaneError> {
        let vmid = self.owned(op, Phase::Running).ok_or(LaneError::NotRunning(op))?;
        self.writing.remove(&op);
        self.write_queue.retain(|waiting| *waiting != op);
        match outcome {
            LaneOutcome::Succeeded => self.leave(op, vmid, now, effects),
            LaneOutcome::Failed => {
                self.skip_queue(vmid, effects);
                self.leave(op, vmid, now, effects);
            }
            LaneOutcome::Unknown => {
                self.skip_queue(vmid, effects);
                if let Some(owner) = self.lanes.get_mut(&vmid).and_then(|lane| lane.owner.as_mut())
                {
                    owner.phase = Phase::Held;
                }
                self.allocating.remove(&op);
                // What it allocated on has room again: a doubt about one guest delays no other.
                self.start_what_can([], now, effects);
            }
        }
        Ok(())
    }

    /// The lane an operation has, if it is in that phase.
    fn owned(&self, op: OperationId, phase: Phase) -> Option<VmId> {
        let vmid = *self.lane_of.get(&op)?;
        let owner = self.lanes.get(&vmid)?.owner.as_ref()?;
        (owner.job.op == op && owner.phase == phase).then_some(vmid)
    }

    /// Takes an operation out of its lanes and lets the next ones start.
    fn leave(
        &mut self,
        op: OperationId,
        vmid: VmId,
        now: UnixSeconds,
        effects: &mut Vec<LaneEffect>,
    ) {
        self.lane_of.remove(&op);
        self.allocating.remove(&op);
        let owner = self.lanes.get_mut(&vmid).and_then(|lane| lane.owner.take());
        let source = owner.and_then(|owner| owner.job.source).map(|source| source.vmid);
        if let Some(lane) = source.and_then(|source| self.lanes.get_mut(&source)) {
            lane.readers.remove(&op);
        }
        let touched = [Some(vmid), source];
        for vmid in touched.into_iter().flatten() {
            self.drop_if_idle(vmid);
        }
        self.start_what_can(touched.into_iter().flatten(), now, effects);
    }

    fn skip_queue(&mut self, vmid: VmId, effects: &mut Vec<LaneEffect>) {
        let Some(lane) = self.lanes.get_mut(&vmid) else { return };
        for job in lane.queue.drain(..) {
            self.lane_of.remove(&job.op);
            effects.push(LaneEffect::Skip(job.op));
        }
        self.blocked.retain(|(_, blocked)| *blocked != vmid);
        self.drop_if_idle(vmid);
    }

    fn drop_if_idle(&mut self, vmid: VmId) {
        if let Entry::Occupied(lane) = self.lanes.entry(vmid)
            && lane.get().is_idle()
        {
            lane.remove();
        }
    }

    /// Starts the heads that can start, oldest first, so that nobody is overtaken for a thing both
    /// of them need.
    fn start_what_can(
        &mut self,
        touched: impl IntoIterator<Item = VmId>,
        now: UnixSeconds,
        effects: &mut Vec<LaneEffect>,
    ) {
        for vmid in touched {
            if let Some(lane) = self.lanes.get(&vmid).filter(|lane| !lane.queue.is_empty()) {
                let head = (lane.ticket, vmid);
                if let Err(place) = self.blocked.binary_search(&head) {
                    self.blocked.insert(place, head);
                }
            }
        }
        let mut place = 0;
        while let Some(&(_, vmid)) = self.blocked.get(place) {
            if let Some(op) = self.start_head(vmid, now) {
                effects.push(LaneEffect::Start(op));
                self.blocked.remove(place);
            } else {
                place += 1;
            }
        }
    }

    /// Starts the first that waits in a lane, if everything it needs is free.
    fn start_head(&mut self, vmid: VmId, now: UnixSeconds) -> Option<OperationId> {
        if !self.can_start(self.lanes.get(&vmid)?) {
            return None;
        }
        let lane = self.lanes.get_mut(&vmid)?;
        let job = lane.queue.pop_front()?;
        let op = job.op;
        let source = job.source;
        self.allocating.extend(job.storage.clone().map(|storage| (op, storage)));
        lane.owner = Some(Owner { job, phase: Phase::Running, since: now });
        self.read_from(source, op);
        Some(op)
    }

    /// Whether the head of this lane has everything it needs.
    fn can_start(&self, lane: &Lane) -> bool {
        let needs = |job: &Job| {
            job.storage.as_ref().is_none_or(|storage| self.has_room(storage))
                && job.source.is_none_or(|source| self.can_read(source, lane.ticket))
        };
        lane.owner.is_none() && lane.readers.is_empty() && lane.queue.front().is_some_and(needs)
    }

    fn can_read(&self, source: SourceLane, ticket: LaneTicket) -> bool {
        let goes_along = |other: Sharing| match (source.sharing, other) {
            (Sharing::Shared, Sharing::Shared) => true,
            (Sharing::Exclusive, _) | (_, Sharing::Exclusive) => false,
        };
        // An action of the source that was there first goes first, or a stream of clones would
        // keep it waiting for ever.
        let free = |lane: &Lane| {
            lane.owner.is_none()
                && lane.readers.values().all(|other| goes_along(*other))
                && (lane.queue.is_empty() || lane.ticket > ticket)
        };
        self.lanes.get(&source.vmid).is_none_or(|lane| free(lane))
    }

    fn has_room(&self, storage: &StorageName) -> bool {
        let there = self.allocating.values().filter(|other| *other == storage);
        there.count() < self.limits.allocating_per_storage
    }
}
