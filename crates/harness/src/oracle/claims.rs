//! What the oracle knows of signatures: what people really signed, who was enrolled, which guest was meant.
//!
//! Told by the run when an operator signs, and by the journal's synced lines when something begins. A request that
//! only a signature allows is held against that, and against nothing the agent remembers. The rules:
//!
//! ```text
//!   (3)  somebody enrolled signed exactly this act, for this host, in its window, under these signers, for an item that
//!        still waits; and of several requests each leaves upon a look at which that is still so
//!        and where a final backup was signed, nothing is destroyed before an archive of that operation lies on the node,
//!        with every volume of the guest but those that were signed away
//!   (4)  a nonce leads to one act, ever; a preparation leaves once
//!   (12) the guest that was read before the request is the one the item was raised for, by a birth mark that no
//!        request shows. What takes its number after that reading is out of reach: a destroy, a rollback and the
//!        removal of a snapshot take no digest. A number is free when a node with quorum says so
//!   (16) the clock is neither behind the journal's latest line nor a day ahead of all it ever showed, and no line is
//!        dated by a leap
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use evenkeel_agent::ambient::Ambient as _;
use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::model::id::{GuestId, VmId};
use evenkeel_core::sign::{Expected, PayloadHash, PendingItem};
use evenkeel_sim::{InProcess, Simulator, World};
use serde_json::{Map, Value};

use super::archive::{is_saved, was_listed_since};
use super::promise::is_promised;
use super::readings::{GuestReading, birth_of};
use super::rollback::starts_as_signed;
use super::{Oracle, OracleState};
use crate::call::WriteRequest;
use crate::history::{HistoryOp, JournalHistory, RaisedItem};
use crate::rig::SeededAmbient;
use crate::signers::SignedPaper;

const DAY_S: u64 = 86_400;

/// A clock this far behind the mark of time is in doubt.
const BEHIND_MAX_S: u64 = 600;

/// One statement that somebody signed with a key of their own.
#[derive(Debug, Clone)]
pub(crate) struct SignedClaim {
    pub(crate) op: ActionKind,
    pub(crate) guest: GuestId,
    pub(crate) params: BTreeMap<String, String>,
    pub(crate) digest: String,
    pub(crate) nonce: String,
    pub(crate) not_before_s: u64,
    pub(crate) expires_s: u64,
    pub(crate) trust_version: u64,
    pub(crate) is_for_this_host: bool,
    /// The keys of all who signed these very bytes.
    pub(crate) by: BTreeSet<String>,
    /// The item it was made from.
    pub(crate) item: String,
}

/// A list of signers that somebody with the right to do so signed.
#[derive(Debug, Clone)]
pub(crate) struct NewSigners {
    pub(crate) version: u64,
    /// Whether a recovery key signed it: it may follow an older list and leap over numbers.
    pub(crate) recovers: bool,
    /// How many different keys with the right to do so signed it.
    pub(crate) authorised: usize,
    /// The fingerprints of its operational keys.
    pub(crate) operational: BTreeSet<String>,
    pub(crate) not_before_s: u64,
    pub(crate) expires_s: u64,
}

/// What a host with signers is bound by.
#[derive(Debug, Clone)]
pub(crate) struct HostRules {
    /// The fingerprints of the operational keys it begins with.
    pub(crate) operational: BTreeSet<String>,
    pub(crate) statement_life_s: u64,
    pub(crate) acts_per_day: u64,
    /// How many different operational keys an act and a planned rotation take.
    pub(crate) quorum: usize,
    /// The machine's clock, as whoever sets it knows it.
    pub(crate) clock: Arc<SeededAmbient>,
}

/// Everything people signed.
#[derive(Debug, Default)]
pub(super) struct SigningClaims {
    rules: Option<HostRules>,
    /// Every statement, by its hash, and the birth marks of the guest that its signer was shown.
    signed: BTreeMap<String, (SignedClaim, Option<[u64; 2]>)>,
    lists: BTreeMap<String, NewSigners>,
    /// The version and the operational keys after each rotation on disk; the first are those it began with.
    enrolled: Vec<(u64, BTreeSet<String>)>,
    /// The birth marks of whoever showed a digest last: before and after it was read.
    digests: BTreeMap<(u32, String), [u64; 2]>,
    /// The line that raised an item last, and the birth marks of whom it is about: either of them.
    items: BTreeMap<String, (u64, Option<[u64; 2]>)>,
    /// How many destroys the journal calls done.
    destroyed: usize,
    /// Operations whose first request has left.
    begun: BTreeSet<String>,
    /// Nonces whose act has left.
    acted: BTreeSet<String>,
    /// The node's record of each operation's act.
    records: BTreeMap<String, usize>,
    /// Guests whose protection was taken off on the way to a destroy.
    unprotected: BTreeMap<u32, ProtectionDebt>,
    /// Operations that have sent a write which takes a protection off.
    took_protection_off: BTreeSet<String>,
    /// Whether a guest may have been exchanged for one that looks the same without a task that tells so.
    unseen_exchanges: bool,
    /// The latest time the agent can have believed.
    mark_max_s: u64,
    /// When the clock was last set, by the true time.
    clock_set_ms: i64,
    /// How many requests the node had heard when somebody last broke backups.
    pub(super) archives_broken: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct ProtectionDebt {
    op: String,
    birth: u64,
    outline: BTreeSet<String>,
}

impl Oracle {
    /// The host has signers from now on.
    pub(crate) fn enrol(&self, rules: HostRules) {
        let claims = &mut self.inner().claims;
        claims.enrolled = vec![(1, rules.operational.clone())];
        claims.mark_max_s = seconds(&rules.clock);
        claims.rules = Some(rules);
    }

    /// Somebody signs; the bytes are the statement. What they have before them is the item as it waits now.
    pub(crate) fn signed(&self, statement: &[u8], mut claim: SignedClaim) {
        let mut inner = self.inner();
        inner.read_disk();
        let claims = &mut inner.claims;
        let meant = claims.items.get(&claim.item).and_then(|(_, births)| *births);
        let payload = PayloadHash::of(statement).to_string();
        claim
            .by
            .extend(claims.signed.get(&payload).into_iter().flat_map(|(same, _)| same.by.clone()));
        claims.signed.insert(payload, (claim, meant));
    }

    /// Somebody with the right to do so signs a list of signers.
    pub(crate) fn rotation_signed(&self, payload: &[u8], list: &NewSigners) {
        // The same bytes may have been signed before, by more: the host's clock stands still while it is behind its mark.
        let mut inner = self.inner();
        let known = inner.claims.lists.entry(PayloadHash::of(payload).to_string());
        let known = known.or_insert_with(|| list.clone());
        known.authorised = known.authorised.max(list.authorised);
    }

    /// The machine's clock is about to be set, or has just been.
    pub(crate) fn clock_is_set(&self) {
        let mut inner = self.inner();
        let has_no_line = inner.history.high_s == 0;
        let claims = &mut inner.claims;
        claims.believe_the_clock(has_no_line);
        if let Some(rules) = &claims.rules {
            claims.clock_set_ms = rules.clock.true_now().as_millisecond();
        }
    }

    /// The latest moment of the journal and of the clock: what an operator's tool shows as the host's time.
    pub(crate) fn effective_s(&self, clock: &SeededAmbient) -> u64 {
        let mut inner = self.inner();
        inner.read_disk();
        inner.history.high_s.max(seconds(clock))
    }

    /// The node forgets its tasks, or a guest comes back from another node, where it may have been exchanged.
    pub(crate) fn exchanges_are_unseen(&self) {
        self.inner().claims.unseen_exchanges = true;
    }

    /// Somebody else decides about a guest's protection.
    pub(crate) fn protection_is_theirs(&self, guest: GuestId) {
        self.inner().claims.unprotected.remove(&guest.vmid.get());
    }

    /// What waits for a signature, by the journal: its name, the item, its envelope.
    pub(crate) fn items(&self) -> Vec<(String, PendingItem, Vec<u8>)> {
        let mut inner = self.inner();
        inner.read_disk();
        let items = inner.history.items.iter();
        items
            .map(|(id, raised)| (id.clone(), raised.item.clone(), raised.envelope.clone()))
            .collect()
    }

    /// Whether a signed act on the guest has begun and has its last request still before it, or has just sent it.
    pub(crate) fn has_come_to(&self, guest: GuestId, last: bool) -> bool {
        let mut inner = self.inner();
        inner.read_disk();
        let of_guest = inner.history.ops.values().filter(|op| op.guest == guest);
        let newest = of_guest.max_by_key(|op| op.started);
        let is_there =
            |op: &HistoryOp| if last { op.stage == "act" && op.sent } else { op.stage != "act" };
        newest.is_some_and(|op| op.is_signed() && op.is_open() && is_there(op))
    }

    /// How many signed acts have left.
    pub(crate) fn acts(&self) -> u64 {
        self.inner().claims.acted.len() as u64
    }

    /// Whether the journal tells what became of a paper: an operation, or a refusal of the envelope or the statement.
    pub(crate) fn is_answered(&self, paper: &SignedPaper) -> bool {
        let mut inner = self.inner();
        inner.read_disk();
        let payload = PayloadHash::of(&paper.payload).to_string();
        let envelope = PayloadHash::of(paper.bytes.as_bytes()).to_string();
        let JournalHistory { ops, refusals, has_gap, .. } = &inner.history;
        let refused = refusals.contains(&payload) || refusals.contains(&envelope);
        *has_gap || refused || ops.values().any(|op| op.payload == payload)
    }

    /// Whether any rollback of the guest left.
    pub(crate) fn was_rolled_back(&self, guest: GuestId) -> bool {
        let rolled = |op: &HistoryOp| op.guest == guest && op.kind == ActionKind::Rollback;
        self.inner().history.ops.values().any(rolled)
    }

    /// Rollbacks that the journal calls done although their own task went wrong: somebody else's was taken for it. Of
    /// other acts the guest itself tells whether they are done.
    pub(crate) fn belied(&self, sim: &Simulator) -> Vec<String> {
        let mut inner = self.inner();
        inner.read_disk();
        let belied = inner.claims.records.iter().filter(|(name, record)| {
            let op = inner.history.ops.get(*name);
            let done =
                op.is_some_and(|op| op.kind == ActionKind::Rollback && op.state == "succeeded");
            let upid = sim.records().get(**record).and_then(|record| record.upid.as_deref());
            let exit = upid.and_then(|upid| sim.exit_of(upid));
            done && exit.is_some_and(|exit| exit != "OK" && !exit.starts_with("WARNINGS"))
        });
        belied
            .map(|(name, _)| format!("(13) {name} is succeeded, yet its own task failed"))
            .collect()
    }

    /// Guests that are still there and still lack the protection a destroy took off.
    pub(crate) fn owed_protection(&self, world: &World) -> Vec<String> {
        let unpaid = self.unpaid_protection(world).into_iter();
        let owed = unpaid.filter(|(vmid, debt)| world.birth(*vmid) == Some(debt.birth));
        owed.map(|(vmid, debt)| format!("{} took the protection off {vmid} and kept it", debt.op))
            .collect()
    }

    /// Protections that the agent may still give back: to the guest it took them from, or to one that looks the same.
    pub(crate) fn unpaid_protection(&self, world: &World) -> Vec<(VmId, ProtectionDebt)> {
        let mut inner = self.inner();
        inner.read_disk();
        let unpaid = inner.claims.unprotected.iter().filter_map(|(vmid, debt)| {
            let op = inner.history.ops.get(&debt.op).filter(|op| op.state == "failed")?;
            let found = world.guests.get(vmid).filter(|found| found.id == op.guest)?;
            let is_on = found.config.active.get("protection").is_some_and(|on| on == "1");
            let looks_like_it = outline(world, op.guest) == debt.outline;
            (looks_like_it && !is_on).then(|| (op.guest.vmid, debt.clone()))
        });
        unpaid.collect()
    }
}

impl SigningClaims {
    /// The agent was told a digest. Who changed in between may be either.
    pub(super) fn was_read(&mut self, guest: GuestId, digest: &str, births: [u64; 2]) {
        self.digests.insert((guest.vmid.get(), digest.to_owned()), births);
    }

    /// Takes in what lines tell: items are raised, signers change. What is wrong about that.
    pub(super) fn follow(
        &mut self,
        history: &JournalHistory,
        free: &BTreeMap<u32, bool>,
    ) -> Vec<String> {
        let mut odd = Vec::new();
        for (name, vmid) in history.destroyed.iter().skip(self.destroyed) {
            // Lines that nobody read in time may tell of a number that has a guest again.
            if free.get(vmid) == Some(&false) && !history.has_gap {
                odd.push(format!(
                    "(12) {name} is done: no node with quorum called its number free"
                ));
            }
        }
        self.destroyed = history.destroyed.len();
        self.believe_the_clock(history.high_s == 0);
        if self.rules.is_some() && history.high_s > self.mark_max_s {
            odd.push("(16) a line is dated by a clock that leapt".to_owned());
        }
        for (id, RaisedItem { item, seq, .. }) in &history.items {
            if self.items.get(id).is_none_or(|(known, _)| known != seq) {
                let birth = match &item.expected {
                    Expected::Free => None,
                    Expected::Guest { digest, .. } => {
                        let read = (item.guest.vmid.get(), digest.to_string());
                        self.digests.get(&read).copied()
                    }
                };
                self.items.insert(id.clone(), (*seq, birth));
            }
        }
        let Some(rules) = &self.rules else { return odd };
        for accepted in history.rotations.iter().skip(self.enrolled.len() - 1) {
            let newest = self.enrolled.last().map_or(1, |(version, _)| *version);
            let mut version = newest + 1;
            let mut keys = rules.operational.clone();
            match self.lists.get(&PayloadHash::of(&accepted.payload).to_string()) {
                None => odd.push(format!("(3) nobody signed the rotation to {}", accepted.version)),
                Some(list) => {
                    version = list.version;
                    let is_next = version == newest + 1
                        || list.recovers && version > newest
                        || history.has_gap;
                    if accepted.version != list.version.to_string() || !is_next {
                        odd.push(format!("the rotation {} does not follow", accepted.version));
                    }
                    let in_time = (list.not_before_s..list.expires_s).contains(&accepted.judged_s);
                    // Set in this very moment, the clock was another when it was judged.
                    let is_same = self.clock_set_ms != rules.clock.true_now().as_millisecond();
                    if !in_time || is_same && accepted.judged_s < accepted.mark_s {
                        odd.push(format!("(3) the rotation {} is out of time", accepted.version));
                    }
                    if !list.recovers && list.authorised < rules.quorum {
                        odd.push(format!("(3) too few signed the rotation {}", accepted.version));
                    }
                    keys.clone_from(&list.operational);
                }
            }
            self.enrolled.push((version, keys));
        }
        odd
    }

    /// The journal is an older one again: what its lost lines told counts no longer, what was sent still does.
    pub(super) fn put_back(&mut self, history: &JournalHistory) {
        self.enrolled.truncate(history.rotations.len() + 1);
        self.destroyed = history.destroyed.len();
        self.items.retain(|id, _| history.items.contains_key(id));
    }

    /// What the clock shows may become the mark of time, if it is no leap. A host without a line begins with its clock.
    fn believe_the_clock(&mut self, has_no_line: bool) {
        if let Some(rules) = &self.rules {
            let wall_s = seconds(&rules.clock);
            if has_no_line || wall_s <= self.mark_max_s + DAY_S {
                self.mark_max_s = self.mark_max_s.max(wall_s);
            }
        }
    }
}

impl OracleState {
    /// Whether a request belongs to a signed act, or gives back what one took.
    pub(super) fn is_undeclared_by_right(&self, now_ms: u64, write: &WriteRequest) -> bool {
        let of_guest = self.history.ops.values().filter(|op| op.guest.vmid == write.guest.vmid);
        let newest = of_guest.max_by_key(|op| op.started);
        let own = ["digest", "background_delay"];
        let mut keys = write.params.keys().filter(|key| !own.contains(&key.as_str()));
        let protects = write.params.get("protection").is_some_and(|on| on == "1")
            && keys.all(|key| key == "protection");
        newest.is_some_and(|op| op.is_signed() || op.is_removal())
            || self.asked.covers(write)
            || (protects && self.may_owe(now_ms, write))
            || (write.kind == ActionKind::Start && self.may_owe_start(write))
    }

    /// Whether a guest may have been stopped for a backup before a destroy that came to nothing.
    fn may_owe_start(&self, write: &WriteRequest) -> bool {
        let stopped = |op: &HistoryOp| {
            let signed =
                |name: &str| op.params.get(name).and_then(Value::as_str).unwrap_or_default();
            op.is_signed()
                && op.kind == ActionKind::Destroy
                && op.guest == write.guest
                && signed("stop") == "1"
                && !signed("final_backup").is_empty()
        };
        self.history.ops.values().any(stopped)
    }

    /// Whether the agent may believe that it owes a protection to whom it has read: it promised to take one off that
    /// very guest, or no task tells who was exchanged.
    fn may_owe(&self, now_ms: u64, write: &WriteRequest) -> bool {
        let readings = self.readings.directly_before(now_ms, write.guest);
        let births: Vec<u64> = readings.iter().flat_map(|(_, told)| told.births).collect();
        let took = |op: &&HistoryOp| {
            let meant = self.claims.signed.get(&op.payload).and_then(|(_, meant)| *meant);
            let is_it = meant.is_none_or(|meant| meant.iter().any(|birth| births.contains(birth)));
            op.kind == ActionKind::Destroy
                && op.guest.vmid == write.guest.vmid
                && op.stage != "stop"
                && op.params.get("unprotect").is_some_and(|on| on == "1")
                && (is_it || self.claims.unseen_exchanges)
        };
        self.history.ops.values().filter(|op| op.is_signed()).any(|op| took(&op))
    }

    /// Everything that must be true of a request of a signed operation.
    pub(super) fn is_as_signed(
        &mut self,
        node: &InProcess,
        now_ms: u64,
        (name, op): (&str, &HistoryOp),
        write: &WriteRequest,
    ) -> Result<(), String> {
        is_promised(op, write)?;
        let Some(rules) = self.claims.rules.clone() else {
            return Err("(3) this host has no signers".to_owned());
        };
        let Some((claim, meant)) = self.claims.signed.get(&op.payload).cloned() else {
            return Err("(3) nobody signed this statement".to_owned());
        };
        if self.claims.begun.insert(name.to_owned()) {
            self.may_begin(op, &claim, &rules)?;
        }
        // Of what an operation sends, only taking off a protection changes the file.
        let is_untouched = !self.claims.took_protection_off.contains(name);
        let readings = self.readings.directly_before(now_ms, write.guest);
        let look_ms = readings.iter().map(|(status, _)| status.asked_ms).max().unwrap_or(now_ms);
        self.still_holds((op, &claim, &rules), now_ms, look_ms)?;
        let mut readings = readings.into_iter().map(|(_, pending)| pending);
        let is_meant = |read: &&GuestReading| {
            meant.is_none_or(|meant| read.births.iter().any(|birth| meant.contains(birth)))
        };
        if !readings.clone().any(|read| is_meant(&read)) {
            return Err(format!(
                "(12) another guest has the number than was signed for: {meant:?}"
            ));
        }
        let gone = op.params.get("slot").and_then(Value::as_str);
        let volume = op.params.get("volume").and_then(Value::as_str);
        let holds = |read: &GuestReading| {
            gone.is_none_or(|slot| read.unused.get(slot).map(String::as_str) == volume)
        };
        if op.kind == ActionKind::DeleteVolume && !readings.clone().any(holds) {
            return Err("(3) the slot holds another volume than was signed for".to_owned());
        }
        if is_untouched && !readings.any(|read| is_meant(&read) && read.digest == claim.digest) {
            return Err("(3) the guest was changed after it was signed".to_owned());
        }
        if op.stage == "act" && !self.claims.acted.insert(op.nonce.clone()) {
            return Err("(4) this nonce led to an act before".to_owned());
        }
        if op.stage == "act" && op.kind == ActionKind::Destroy {
            let saved = node.with(|sim| is_saved(&sim.world, name, op.guest, &claim));
            // Nobody can see what happens to a backup after the last look at it.
            if node.with(|sim| was_listed_since(sim, self.claims.archives_broken)) {
                saved?;
            }
        }
        if op.stage == "act" && op.kind == ActionKind::Rollback {
            node.with(|sim| starts_as_signed(&sim.world, op.guest, &claim))?;
        }
        if op.stage == "act" {
            let record = node.with(|sim| sim.records().len());
            self.claims.records.insert(name.to_owned(), record);
        }
        if op.stage == "unprotect" {
            let birth = birth_of(node, op.guest);
            let outline = node.with(|sim| outline(&sim.world, op.guest));
            let debt = ProtectionDebt { op: name.to_owned(), birth, outline };
            self.claims.took_protection_off.insert(name.to_owned());
            self.claims.unprotected.insert(op.guest.vmid.get(), debt);
        } else if op.kind == ActionKind::SetConfig {
            self.claims.unprotected.remove(&op.guest.vmid.get());
        }
        Ok(())
    }

    /// The signers and the window as they were when the last look before a request began.
    fn still_holds(
        &self,
        (op, claim, rules): (&HistoryOp, &SignedClaim, &HostRules),
        now_ms: u64,
        look_ms: u64,
    ) -> Result<(), String> {
        let voided = self.rotated_ms.get(op.rotations).is_some_and(|voided| *voided < look_ms);
        if voided && !self.history.has_gap {
            return Err("(3) a rotation had voided it before the last look".to_owned());
        }
        let ago_ms = now_ms - look_ms;
        let ago = i64::try_from(ago_ms).unwrap_or(i64::MAX);
        let is_same = self.claims.clock_set_ms < rules.clock.true_now().as_millisecond() - ago;
        let then_s = seconds(&rules.clock).saturating_sub(ago_ms.div_ceil(1_000));
        if is_same && then_s >= claim.expires_s {
            return Err("(3) it had expired before the last look".to_owned());
        }
        Ok(())
    }

    /// The signature, the signers, the time and the budget at the moment an operation began.
    fn may_begin(
        &mut self,
        op: &HistoryOp,
        claim: &SignedClaim,
        rules: &HostRules,
    ) -> Result<(), String> {
        let told = (op.kind, op.guest, op.nonce.as_str(), texts(&op.params));
        if told != (claim.op, claim.guest, claim.nonce.as_str(), claim.params.clone()) {
            return Err("(3) another act was signed".to_owned());
        }
        self.link.may_sign(&self.history, claim.not_before_s)?;
        if !claim.is_for_this_host {
            return Err("(3) it was signed for another host".to_owned());
        }
        if claim.expires_s - claim.not_before_s > rules.statement_life_s {
            return Err("(3) it lives longer than this host allows".to_owned());
        }
        let wall_s = seconds(&rules.clock);
        // Set in this very moment, the clock was another when the operation began.
        let is_same = self.claims.clock_set_ms != rules.clock.true_now().as_millisecond();
        if is_same && !(claim.not_before_s..claim.expires_s).contains(&op.at_s) {
            return Err("(3) it began outside its window".to_owned());
        }
        if op.at_s < op.mark_s || is_same && wall_s + BEHIND_MAX_S < op.mark_s {
            return Err("(16) time ran back".to_owned());
        }
        if is_same && wall_s > self.claims.mark_max_s + DAY_S {
            return Err("(16) it began by a clock that leapt".to_owned());
        }
        // Lines that nobody read may have been rotations or acts.
        if self.history.has_gap {
            return Ok(());
        }
        if !op.item_waited {
            return Err("(3) the item it was signed for no longer waited".to_owned());
        }
        let in_force = self.claims.enrolled.get(op.rotations);
        if in_force.is_none_or(|(version, _)| claim.trust_version != *version) {
            return Err("(3) a rotation had voided it".to_owned());
        }
        if in_force.is_none_or(|(_, keys)| keys.is_disjoint(&claim.by)) {
            return Err("(3) its key was not enrolled as operational".to_owned());
        }
        let counted = in_force.map_or(0, |(_, keys)| keys.intersection(&claim.by).count());
        if counted < rules.quorum {
            return Err(format!("(3) {counted} of {} operational keys signed it", rules.quorum));
        }
        let recent = |other: &&HistoryOp| {
            let is_before = other.started < op.started;
            other.is_signed() && is_before && other.node_s + DAY_S > op.node_s
        };
        let begun = self.history.ops.values().filter(recent).count() as u64;
        if begun >= rules.acts_per_day {
            return Err(format!("(3) {begun} acts are over this host's budget"));
        }
        Ok(())
    }
}

/// What makes a guest this guest, by its file: its volumes, its addresses, what was made at its creation.
fn outline(world: &World, guest: GuestId) -> BTreeSet<String> {
    let Some(found) = world.guest(guest) else { return BTreeSet::new() };
    let of_it = |(key, value): (&String, &String)| {
        let name = key.trim_end_matches(|digit: char| digit.is_ascii_digit());
        match name {
            "rootfs" | "mp" | "scsi" | "virtio" | "sata" | "ide" => {
                value.split(',').next().map(str::to_owned)
            }
            "net" | "smbios" | "vmgenid" | "meta" | "ostype" => Some(value.clone()),
            _ => None,
        }
    };
    found.config.active.iter().filter_map(of_it).collect()
}

fn texts(params: &Map<String, Value>) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    params.iter().map(|(key, value)| (key.clone(), text(value))).collect()
}

fn seconds(clock: &SeededAmbient) -> u64 {
    u64::try_from(clock.now().as_second()).unwrap_or(0)
}
