//! The oracle of a run: sees requests, answers and synced bytes, never the agent's memory, and says which
//! invariant was broken.
//!
//! The wire shows it every request before the node gets it ([`Oracle::sent`]) and every answer before the agent
//! gets it ([`Oracle::answered`]); the run shows it the disk around every crash. It must never be asked by the
//! agent, nor change anything.

mod archive;
mod asked;
mod claims;
mod declared;
mod kept;
mod link;
mod making;
mod moves;
mod pauses;
mod promise;
mod readings;
mod removal;
mod rollback;
mod twins;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use evenkeel_agent::journal::{DiskFault, SimulatedDisk, verify};
use evenkeel_agent::pve::exchange::{ExchangeOutcome, HttpRequest};
use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::model::id::GuestId;
use evenkeel_core::operate::lane::SYNC_WRITES_PER_NODE_MAX;
use evenkeel_sim::{InProcess, World};
use serde_json::Value;

use asked::AskedActs;
use claims::SigningClaims;
pub(crate) use claims::{HostRules, NewSigners, SignedClaim};
use kept::KeptVolumes;
use link::LinkWatch;
pub(crate) use link::{LinkRules, PutBackJournal, STEP_MAX};
use moves::SentMoves;
use pauses::TriedRequests;
use readings::{GuestReadings, birth_of};

use crate::call::{
    RequestKind, WriteRequest, guest_of, has_a_digest, needs_signature, read_call, saved_number,
    write_of,
};
use crate::history::{CLOSED_UNREAD, HistoryOp, JournalHistory, fold};
use crate::scene::GuestModes;

/// More requests than these in one second are no work any more.
const REQUESTS_PER_SECOND_MAX: u32 = 5_000;

/// The longest time that what was planned may be in its lane: an ignored shutdown, and lost answers after it.
const LANE_WORK_MS_MAX: u64 = 20 * 60 * 1_000;

/// Hears everything of one run; clones are the same oracle.
#[derive(Debug, Clone, Default)]
pub struct Oracle(Arc<Mutex<OracleState>>);

#[derive(Debug, Default)]
struct OracleState {
    broken: Vec<String>,
    disk: SimulatedDisk,
    history: JournalHistory,
    /// What people really signed.
    claims: SigningClaims,
    /// Requests of the agent that changed something and may still be worked on.
    under_way: Vec<OpenOperation>,
    /// Those whose outcome the living agent does not know yet.
    awaited: BTreeSet<u64>,
    /// What the living agent was told.
    readings: GuestReadings,
    frozen_since_ms: Option<u64>,
    /// When the living agent was told to stop.
    stopped_ms: Option<u64>,
    /// What it must leave alone although it is declared, and since when it knows.
    modes: (u64, GuestModes),
    /// Whose cores it does not compare, and since when it knows.
    ignores_cores: BTreeMap<GuestId, u64>,
    /// What it tried, and what came of it.
    tried: TriedRequests,
    /// Which volumes it moved.
    moves: SentMoves,
    /// Which volumes left their slots, and which were to be removed.
    kept: KeptVolumes,
    /// What people asked for without a signature.
    asked: AskedActs,
    /// What it owes a hub, and what a hub may not.
    link: LinkWatch,
    /// How often somebody sent what we sent, by guest number.
    twins: BTreeMap<u32, usize>,
    /// What an older declaration asked for may still be in its lane, beside what the newest asks for.
    older_orders: bool,
    /// Keys that were ever declared, by guest.
    declared: BTreeMap<GuestId, BTreeSet<String>>,
    /// The call of the disk that goes wrong.
    armed: Option<(u64, DiskFault)>,
    /// When this life's disk was first seen to have failed.
    failed_ms: Option<u64>,
    next_ticket: u64,
    /// The second of virtual time the last request left in, and how many left in it.
    hurry: (u64, u32),
    /// When each rotation was first seen on the disk.
    rotated_ms: Vec<u64>,
    /// What happened, line by line, if somebody wants to read it.
    story: Option<Vec<String>>,
    writes: u64,
    trace: u64,
}

#[derive(Debug, Clone)]
struct OpenOperation {
    guest: GuestId,
    record: usize,
}

/// A request whose answer is awaited.
#[derive(Debug, Clone)]
pub(crate) struct RequestTicket {
    number: u64,
    sent_ms: u64,
    call: RequestKind,
    /// The birth mark of the guest that had the number it is about.
    birth: u64,
}

impl Oracle {
    /// What was broken so far, first thing first.
    pub fn broken(&self) -> Vec<String> {
        self.inner().broken.clone()
    }

    /// Writes down what happens from now on.
    pub(crate) fn write_story(&self) {
        self.inner().story = Some(Vec::new());
    }

    /// What was written down.
    pub fn story(&self) -> Vec<String> {
        self.inner().story.clone().unwrap_or_default()
    }

    /// A line of the story.
    pub(crate) fn tell(&self, now_ms: u64, line: impl FnOnce() -> String) {
        if let Some(story) = &mut self.inner().story {
            story.push(format!("{now_ms:>9} {}", line()));
        }
    }

    /// How many requests that change something the agent has sent.
    pub fn writes(&self) -> u64 {
        self.inner().writes
    }

    /// Two numbers that two runs share: the first if they sent the same requests at the same moments, the second if
    /// their journals have the same kinds of lines with the same fields.
    pub fn trace(&self) -> (u64, u64) {
        let inner = self.inner();
        (inner.trace, inner.history.shape)
    }

    /// Whether the agent asks without end.
    pub(crate) fn is_overrun(&self) -> bool {
        self.inner().hurry.1 >= REQUESTS_PER_SECOND_MAX
    }

    /// Says that something is broken that only the run can see.
    pub(crate) fn broke(&self, what: String) {
        self.inner().broken.push(what);
    }

    /// A new life begins on this disk: nothing was told to it yet.
    pub(crate) fn born(&self, disk: &SimulatedDisk) {
        let mut inner = self.inner();
        inner.disk = disk.clone();
        inner.history.moves();
        inner.read_disk();
        inner.readings.forget();
        inner.awaited.clear();
        inner.failed_ms = None;
        inner.stopped_ms = None;
        inner.tried.forget_all();
        inner.older_orders = false;
        (inner.modes, inner.ignores_cores) = Default::default();
    }

    /// What the agent must leave alone from now on.
    pub(crate) fn modes(&self, now_ms: u64, modes: GuestModes) {
        let mut inner = self.inner();
        let since = |guest: &GuestId| inner.ignores_cores.get(guest).copied().unwrap_or(now_ms);
        let ignores = modes.ignores_cores.iter().map(|guest| (*guest, since(guest))).collect();
        (inner.ignores_cores, inner.modes) = (ignores, (now_ms, modes));
    }

    /// The agent was told to stop: nothing new may begin.
    pub(crate) fn stopped(&self, now_ms: u64) {
        self.inner().stopped_ms.get_or_insert(now_ms);
    }

    /// Somebody wants what failed to be tried at once: on one guest, or on all.
    pub(crate) fn asked_to_try(&self, guest: Option<GuestId>) {
        let mut inner = self.inner();
        match guest {
            Some(guest) => inner.tried.forget(guest),
            None => inner.tried.forget_all(),
        }
    }

    /// People ask for a snapshot or a backup.
    pub(crate) fn asked_for(&self, op: ActionKind, guest: GuestId) {
        self.inner().asked.asked(op, guest);
    }

    /// Whether lanes may hold what an older declaration asked for: that fails for itself alone.
    pub(crate) fn older_orders(&self, may_be: bool) {
        self.inner().older_orders = may_be;
    }

    /// The call of the disk that goes wrong.
    pub(crate) fn armed(&self, armed: Option<(u64, DiskFault)>) {
        self.inner().armed = armed;
    }

    pub(crate) fn frozen(&self, since_ms: Option<u64>) {
        self.inner().frozen_since_ms = since_ms;
    }

    pub(crate) fn declare(&self, guest: GuestId, keys: impl IntoIterator<Item = String>) {
        self.inner().declared.entry(guest).or_default().extend(keys);
    }

    /// Everything that is synced now, to be compared with what a crash leaves.
    pub(crate) fn remember_synced(&self) {
        let mut inner = self.inner();
        inner.read_disk();
    }

    /// The disk after a crash, opened again: every synced line must still be there.
    pub(crate) fn check_nothing_lost(&self, reopened: &SimulatedDisk) {
        let mut found = BTreeMap::new();
        let read = verify::read(reopened, |line| {
            let sum = line.text.rsplit_once("\"sum\":\"").map(|(_, sum)| sum);
            let sum = sum.and_then(|sum| sum.strip_suffix("\"}")).unwrap_or_default();
            found.insert(line.seq.0, sum.to_owned());
        });
        let mut inner = self.inner();
        if let Err(error) = read {
            inner.broken.push(format!("(6) the journal does not verify after a crash: {error}"));
            return;
        }
        let first = found.keys().next().copied().unwrap_or(0);
        let lost = inner.history.sums.range(first..).find(|(seq, sum)| found.get(seq) != Some(sum));
        if let Some((seq, _)) = lost {
            let what = format!("(6) record {seq} was synced, and is lost after the crash");
            inner.broken.push(what);
        }
    }

    /// The operations the journal does not call closed: name, guest, state, reason.
    pub(crate) fn open_operations(&self) -> Vec<(String, GuestId, String, String)> {
        let mut inner = self.inner();
        inner.read_disk();
        let open = inner.history.open();
        open.map(|(name, op)| (name.clone(), op.guest, op.state.clone(), op.reason.clone()))
            .collect()
    }

    /// Volumes that moves have left on a guest.
    pub(crate) fn moved_out(&self, guest: GuestId) -> BTreeSet<String> {
        self.inner().moves.sources(guest).into_iter().map(str::to_owned).collect()
    }

    /// Somebody is about to strike a slot out of a guest's file.
    pub(crate) fn slot_is_struck_out(&self, world: &World, guest: GuestId, slot: &str) {
        self.inner().moves.struck_out(world, guest, slot);
    }

    /// Volumes that moves have lost.
    pub(crate) fn lost_by_moves(&self, world: &World) -> Vec<String> {
        self.inner().moves.lost(world)
    }

    /// How an operation stands in the journal.
    pub(crate) fn state_of(&self, op: &str) -> Option<String> {
        let mut inner = self.inner();
        inner.read_disk();
        let state = inner.history.ops.get(op).map(|op| op.state.clone());
        state.filter(|state| state != CLOSED_UNREAD)
    }

    pub(crate) fn sent(&self, node: &InProcess, request: &HttpRequest) -> RequestTicket {
        let (now_ms, record) = node.with(|sim| (sim.now_ms(), sim.records().len()));
        let mut inner = self.inner();
        inner.look_at_disk(now_ms);
        inner.read_disk();
        inner.date_rotations(now_ms);
        let target = request.target();
        inner.trace_of(&[&now_ms.to_string(), request.method().as_str(), &target]);
        inner.trace_of(&[&request.body().unwrap_or_default()]);
        if let Some(story) = inner.story.as_mut().filter(|_| !request.is_read()) {
            let body = request.body().unwrap_or_default();
            story.push(format!("{now_ms:>9} sends {} {body}", request.call()));
        }
        inner.count(now_ms, request);
        inner.next_ticket += 1;
        let number = inner.next_ticket;
        let call = if request.is_read() {
            read_call(&target)
        } else {
            inner.writes += 1;
            inner.judge(node, now_ms, number, request);
            let saved = saved_guest(node, request);
            let written = write_of(request, saved).map(|write| write.guest);
            if let Some(guest) = written.or_else(|| guest_of(&target)).or(saved) {
                inner.under_way.push(OpenOperation { guest, record });
            }
            inner.awaited.insert(number);
            RequestKind::Write
        };
        let birth = guest_of(&target).map_or(0, |guest| birth_of(node, guest));
        RequestTicket { number, sent_ms: now_ms, call, birth }
    }

    pub(crate) fn answered(
        &self,
        node: &InProcess,
        ticket: &RequestTicket,
        outcome: &ExchangeOutcome,
    ) {
        let now_ms = node.with(|sim| sim.now_ms());
        let mut inner = self.inner();
        // An item that is on the disk by now was raised upon what was read before.
        inner.read_disk();
        inner.date_rotations(now_ms);
        inner.awaited.remove(&ticket.number);
        let ExchangeOutcome::Answered(answer) = outcome else {
            inner.trace_of(&[&now_ms.to_string(), "lost"]);
            inner.tell_end(now_ms, ticket, "no answer");
            inner.readings.failed(ticket, now_ms);
            return;
        };
        inner.trace_of(&[&now_ms.to_string(), &answer.status.to_string()]);
        inner.tell_end(now_ms, ticket, &format!("{} {}", answer.status, answer.reason));
        inner.tried.refused(node, ticket.number, now_ms, answer.status, &answer.reason);
        if let RequestKind::Status(guest) | RequestKind::Pending(guest) = ticket.call {
            inner.tried.was_read(node, guest);
        }
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let OracleState { readings, claims, .. } = &mut *inner;
        if let Some((guest, told)) = readings.take(node, ticket, (answer.status, &body)) {
            claims.was_read(guest, &told.digest, told.births);
        }
    }

    fn inner(&self) -> MutexGuard<'_, OracleState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OracleState {
    fn read_disk(&mut self) {
        self.history.read(&self.disk);
        if std::mem::take(&mut self.history.leaks) {
            self.broken.push("(17) a secret that a task logged is in the journal".to_owned());
        }
        let odd = self.claims.follow(&self.history, &self.readings.free);
        self.broken.extend(odd);
        let odd = self.link.follow(&self.history);
        self.broken.extend(odd);
    }

    /// An agent that asks without end in one moment does nothing else any more.
    fn count(&mut self, now_ms: u64, request: &HttpRequest) {
        let second = now_ms / 1_000;
        self.hurry = if self.hurry.0 == second { (second, self.hurry.1 + 1) } else { (second, 1) };
        if self.hurry.1 == REQUESTS_PER_SECOND_MAX {
            let call = request.call();
            self.broken.push(format!("(7) it asks without end at {now_ms} ms, last {call}"));
        }
    }

    fn date_rotations(&mut self, now_ms: u64) {
        self.rotated_ms.resize(self.history.rotations.len().max(self.rotated_ms.len()), now_ms);
    }

    fn tell_end(&mut self, now_ms: u64, ticket: &RequestTicket, end: &str) {
        let writes = matches!(ticket.call, RequestKind::Write);
        if let Some(story) = self.story.as_mut().filter(|_| writes) {
            story.push(format!("{now_ms:>9} gets {end} for what left at {}", ticket.sent_ms));
        }
    }

    /// Notices when the disk has failed. Of a full one the journal may have made room.
    fn look_at_disk(&mut self, now_ms: u64) {
        let failed = self
            .armed
            .is_some_and(|(call, fault)| fault != DiskFault::NoSpace && self.disk.calls() > call);
        if failed {
            self.failed_ms.get_or_insert(now_ms);
        }
    }

    /// Folds words into the trace.
    fn trace_of(&mut self, words: &[&str]) {
        self.trace = words.iter().fold(self.trace, |trace, word| fold(trace, word));
    }

    /// Everything that must be true when a request that changes something leaves.
    fn judge(&mut self, node: &InProcess, now_ms: u64, ticket: u64, request: &HttpRequest) {
        let Some(write) = write_of(request, saved_guest(node, request)) else {
            self.broken.push(format!("(3) {} is nothing this engine may send", request.call()));
            return;
        };
        let found = [
            self.is_journalled(node, now_ms, &write),
            self.is_alone(node, &write),
            self.is_within_the_caps(),
            self.is_fresh(now_ms, &write),
            self.is_declared(now_ms, &write),
            self.allocates_once(&write),
            self.moves.sent(node, &write),
            self.keeps_volumes(node, &write),
            has_a_digest(&write),
            self.is_patient(node, now_ms, ticket, &write),
            self.is_ready_to_run(node, now_ms, &write),
            self.is_let_be(now_ms, &write),
            self.is_within_the_hubs_hour(now_ms, &write),
        ];
        let place = format!("{} at {now_ms} ms", request.call());
        self.broken.extend(found.into_iter().flatten().map(|what| format!("{what}: {place}")));
        if self.stopped_ms.is_some_and(|stopped_ms| stopped_ms < now_ms) {
            self.broken.push(format!("(19) sent after a stop: {place}"));
        }
        // What was synced before may leave in the same moment; then the agent must have ended.
        if self.failed_ms.is_some_and(|failed_ms| failed_ms < now_ms) {
            self.broken.push(format!("(5) sent after the disk failed: {place}"));
        }
    }

    /// Invariants 4 and 5: a synced `started` of its own, which it uses up.
    fn is_journalled(
        &mut self,
        node: &InProcess,
        now_ms: u64,
        write: &WriteRequest,
    ) -> Option<String> {
        self.read_disk();
        let of_guest =
            self.history.ops.iter_mut().filter(|(_, op)| op.guest.vmid == write.guest.vmid);
        let Some((name, op)) = of_guest.max_by_key(|(_, op)| op.started) else {
            return Some("(5) no operation on this guest was ever synced".to_owned());
        };
        if op.sent {
            return Some("(4) the newest operation has sent its request already".to_owned());
        }
        op.sent = true;
        if !op.is_open() || op.state != "started" {
            return Some(format!("(5) the newest operation is {}", op.state));
        }
        if op.is_signed() {
            let name = name.clone();
            let op = op.clone();
            return self.is_as_signed(node, now_ms, (&name, &op), write).err();
        }
        if op.is_removal() {
            let op = op.clone();
            return self.is_ours_to_remove(node, now_ms, &op, write);
        }
        if needs_signature(write) {
            return Some("(3) nobody signed it".to_owned());
        }
        if let Some(why) = self.asked.judge(write) {
            return Some(why);
        }
        if (op.guest, op.kind) != (write.guest, write.kind) {
            return Some(format!("(5) the newest operation is a {} of {}", op.kind, op.guest));
        }
        let told = op.params.iter().filter(|(key, _)| *key != "size");
        for (key, value) in told {
            if value.as_str() != write.params.get(key).map(String::as_str) {
                return Some(format!("(5) the journal tells another `{key}` than what is sent"));
            }
        }
        None
    }

    /// Invariant 1: nothing of ours is under way on the guest's number.
    fn is_alone(&mut self, node: &InProcess, write: &WriteRequest) -> Option<String> {
        let works = |under_way: &OpenOperation| {
            node.with(|sim| {
                let record = sim.records().get(under_way.record);
                record.is_some_and(|record| {
                    record.ended_ms.is_none()
                        || record.upid.as_ref().is_some_and(|upid| sim.is_running(upid))
                })
            })
        };
        self.under_way.retain(works);
        let other = self.under_way.iter().find(|other| other.guest.vmid == write.guest.vmid)?;
        Some(format!("(1) {} is still worked on", other.guest))
    }

    fn is_within_the_caps(&self) -> Option<String> {
        let awaited = self.awaited.len();
        (awaited >= SYNC_WRITES_PER_NODE_MAX)
            .then(|| format!("(1) {awaited} requests that change something are under way already"))
    }

    /// Invariants 2 and 9: the guest was read directly before, and was free to be written.
    fn is_fresh(&self, now_ms: u64, write: &WriteRequest) -> Option<String> {
        if write.kind.creates_guest() {
            let proved = self.readings.proved_free(now_ms, write.guest.vmid.get());
            return (!proved)
                .then(|| "(2) the number was not proved free directly before".to_owned());
        }
        if !self.readings.knows(write.guest) {
            return Some("(2) this life never read the guest".to_owned());
        }
        let readings = self.readings.directly_before(now_ms, write.guest);
        if readings.is_empty() {
            return Some("(2) the guest was not read directly before".to_owned());
        }
        if readings.iter().all(|(status, _)| status.locked) {
            return Some("(9) the guest was read as locked".to_owned());
        }
        let was_frozen = |asked_ms| self.frozen_since_ms.is_some_and(|since| since < asked_ms);
        let was_frozen = readings.iter().all(|(status, _)| was_frozen(status.asked_ms));
        was_frozen.then(|| "(2) the host was frozen".to_owned())
    }

    /// Invariant 20: what failed is not tried again before its pause is over.
    fn is_patient(
        &mut self,
        node: &InProcess,
        now_ms: u64,
        ticket: u64,
        write: &WriteRequest,
    ) -> Option<String> {
        self.tried.documents_taken(self.history.floors.len());
        // What is signed or asked for is tried once.
        let of_guest = self.history.ops.values().filter(|op| op.guest.vmid == write.guest.vmid);
        let is_signed = of_guest.max_by_key(|op| op.started).is_some_and(HistoryOp::is_signed);
        if is_signed || self.older_orders || self.asked.covers(write) {
            return None;
        }
        let told = self.readings.directly_before(now_ms, write.guest);
        let told: BTreeSet<&str> = told.iter().map(|(_, told)| told.digest.as_str()).collect();
        let told = format!("{told:?}");
        self.tried.sent(node, now_ms, ticket, write, &told)
    }

    /// Nothing is allocated beside a volume that may be what an earlier write left.
    fn allocates_once(&self, write: &WriteRequest) -> Option<String> {
        let fresh = |value: &String| {
            let volume = value.split(',').next().unwrap_or_default();
            let fresh = volume.split_once(':').filter(|(_, size)| size.parse::<u32>().is_ok());
            fresh.map(|(storage, _)| storage.to_owned())
        };
        let is_set = write.kind == ActionKind::SetConfig;
        let set = write.params.values().filter(|_| is_set).filter_map(fresh);
        let copies = write.params.get("storage").filter(|_| write.kind == ActionKind::MoveVolume);
        let mut storages = set.chain(copies.cloned());
        let loose = storages.find_map(|on| self.readings.hangs_loose(write.guest, &on))?;
        Some(format!("a volume is allocated beside {loose}, which hangs on nothing"))
    }
}

/// The guest that a request saves, by the number it names.
fn saved_guest(node: &InProcess, request: &HttpRequest) -> Option<GuestId> {
    let number = saved_number(request)?;
    node.with(|sim| sim.world.guests.get(&number).map(|found| found.id))
}
