//! What the oracle knows of the link: what authors signed, what the host told the hub, and what a hub may not bring about.
//!
//! Told by the run when an author or an operator signs and when a disk is put back, by the hub when a report arrives, and by
//! the journal's synced lines. The rules:
//!
//! ```text
//!   a document is taken only if an author signed it for this host and number (where root demands that), within its window
//!   its number never goes down in an enrolment, never leaps, and stands for one content
//!   what an author signed was signed over the very document that was taken before it, in this enrolment or the last
//!   what the hub is told is on disk: an envelope's verdict after its operation ended, a head after its line
//!   on a journal that was put back no signed act begins before an operator acknowledged it, and none that was signed
//!   before that ever does; no head is told meanwhile, and no rollback is found where there was none
//!   a hub's stops and shutdowns keep to the host's own budget of an hour
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::fleet::{HostReport, JournalHead, ManifestHash, SignedBase};

use super::{Oracle, OracleState};
use crate::call::WriteRequest;
use crate::history::{HistoryOp, JournalHistory, KeptEpoch, TakenFloor};

/// How far a number may be ahead of the one before.
pub(crate) const STEP_MAX: u64 = 1 << 20;

/// How high the first of an enrolment may be.
const FIRST_MAX: u64 = 1 << 52;

/// An hour, less what two clocks that are read a moment apart may differ by.
const HOUR_MS: u64 = 3_500_000;

/// What is watched of the link; nothing in a run without a hub.
#[derive(Debug, Default)]
pub(super) struct LinkWatch {
    rules: Option<LinkRules>,
    /// What authors signed, by number and manifest.
    signed: BTreeMap<(u64, String), Vec<SignedDocument>>,
    /// How often root enrolled the host again, and no line tells it yet.
    enrolments: u64,
    floors: usize,
    epochs: usize,
    /// The heads of rollbacks that an operator really acknowledged.
    acknowledged: BTreeSet<(u64, u64)>,
    /// Whether the disk is an older one, and nobody has said yet that this is known.
    is_put_back: bool,
    /// Operations whose end was told before they were seen in the journal.
    told_early: BTreeSet<String>,
    /// When stops and shutdowns that the hub declares left.
    disruptive_ms: Vec<u64>,
    /// How often the disk was put back.
    put_back: u64,
}

#[derive(Debug)]
pub(crate) struct LinkRules {
    pub(crate) demands_author: bool,
    /// Whether root lets a document be taken whose author did not say what it was compared with.
    pub(crate) without_base: bool,
    pub(crate) disruptive_per_hour: u64,
}

/// What an author signed of a document.
#[derive(Debug)]
struct SignedDocument {
    base: SignedBase,
    window: Range<u64>,
}

/// How the journal stood when its disk was copied.
#[derive(Debug, Clone)]
pub(crate) struct PutBackJournal {
    history: JournalHistory,
    rotated: usize,
}

impl PutBackJournal {
    /// The number of its newest line.
    pub(crate) fn last(&self) -> u64 {
        self.history.sums.keys().next_back().copied().unwrap_or(0)
    }

    /// The latest moment it tells of, in seconds.
    pub(crate) fn high_s(&self) -> u64 {
        self.history.high_s
    }

    /// The number of its epoch.
    pub(crate) fn epoch(&self) -> u64 {
        self.history.epochs.last().map_or(0, |epoch| epoch.number)
    }
}

impl Oracle {
    /// The host takes its documents from a hub.
    pub(crate) fn link(&self, rules: LinkRules) {
        self.inner().link.rules = Some(rules);
    }

    /// Root enrols the host again before its next life.
    pub(crate) fn enrolled_again(&self) {
        self.inner().link.enrolments += 1;
    }

    /// An author signs a document for this host.
    pub(crate) fn document_signed(
        &self,
        generation: u64,
        manifest: ManifestHash,
        base: SignedBase,
        window: Range<u64>,
    ) {
        let key = (generation, manifest.to_string());
        self.inner().link.signed.entry(key).or_default().push(SignedDocument { base, window });
    }

    /// A report has come to the hub: everything in it must be on disk.
    pub(crate) fn reported(&self, report: &HostReport, head: Option<JournalHead>) {
        let mut inner = self.inner();
        inner.read_disk();
        let OracleState { history, link, broken, .. } = &mut *inner;
        for verdict in report.verdicts.iter().filter(|verdict| verdict.code == "allowed_signed") {
            // That nobody knows the end of what was begun may be told: it is spent all the same.
            let is_unknown = verdict.detail.starts_with("outcome unknown");
            let Some(name) = verdict.op.as_ref().filter(|_| !is_unknown) else { continue };
            match history.ops.get(name) {
                Some(op) if op.state == "started" => {
                    broken.push(format!("(5) the hub was told the end of {name}, which is open"));
                }
                Some(_) => {}
                // It may have come to nothing before it began; then it never begins.
                None => {
                    link.told_early.insert(name.clone());
                }
            }
        }
        // A page that was made before root enrolled the host again may come late, with the greater number of then.
        let on_disk = history.floors.iter().map(|floor| floor.generation.max(floor.inherited));
        let number = on_disk.max().unwrap_or(0);
        if let Some(told) = report.generation.as_ref().filter(|told| told.number.0 > number) {
            let what =
                format!("(5) the hub was told of generation {}, which is not on disk", told.number);
            broken.push(what);
        }
        let Some(head) = head else { return };
        let is_there = history.sums.get(&head.seq).is_some_and(|sum| *sum == head.sum.to_string());
        if !is_there && !history.has_gap {
            broken.push(format!("(6) head {} was told and is not on disk", head.seq));
        }
        if history.epochs.last().is_some_and(|epoch| epoch.rollback.is_some()) {
            broken.push(format!("(4) head {} was told while a rollback waits", head.seq));
        }
    }

    /// The rollback that waits for an operator.
    pub(crate) fn rollback(&self) -> Option<(JournalHead, JournalHead)> {
        let mut inner = self.inner();
        inner.read_disk();
        inner.history.epochs.last().and_then(|epoch| epoch.rollback)
    }

    /// An operator acknowledges a rollback.
    pub(crate) fn acknowledged(&self, (anchored, found): (JournalHead, JournalHead)) {
        self.inner().link.acknowledged.insert((anchored.seq, found.seq));
    }

    /// Whether the disk is an older one and nobody acknowledged that.
    pub(crate) fn is_put_back(&self) -> bool {
        let mut inner = self.inner();
        inner.read_disk();
        inner.link.is_put_back
    }

    /// Whether the host could ever write down that it is enrolled.
    pub(crate) fn is_enrolled(&self) -> bool {
        let mut inner = self.inner();
        inner.read_disk();
        !inner.history.floors.is_empty()
    }

    /// The document in effect, by the journal: its number and manifest.
    pub(crate) fn floor(&self) -> (u64, String) {
        let mut inner = self.inner();
        inner.read_disk();
        taken_last(&inner.history.floors)
    }

    /// How many documents were taken, and how often the disk was put back.
    pub(crate) fn linked(&self) -> (u64, u64) {
        let inner = self.inner();
        let taken = inner.history.floors.iter().filter(|floor| floor.generation > 0).count();
        (taken as u64, inner.link.put_back)
    }

    /// The node's clock was set: an hour is not an hour any more.
    pub(crate) fn node_clock_is_set(&self) {
        self.inner().link.disruptive_ms.clear();
    }

    /// How the journal stands, to be put back later with its disk.
    pub(crate) fn copied(&self) -> PutBackJournal {
        let mut inner = self.inner();
        inner.read_disk();
        PutBackJournal { history: inner.history.clone(), rotated: inner.rotated_ms.len() }
    }

    /// The disk is the one that was copied then. What left since has left.
    pub(crate) fn put_back(&self, then: &PutBackJournal) {
        let mut inner = self.inner();
        inner.history = then.history.clone();
        inner.rotated_ms.truncate(then.rotated);
        let OracleState { history, claims, link, .. } = &mut *inner;
        claims.put_back(history);
        (link.floors, link.epochs) = (history.floors.len(), history.epochs.len());
        link.is_put_back = true;
        link.put_back += 1;
        link.disruptive_ms.clear();
        link.told_early.clear();
    }
}

/// The number and manifest of the document that was taken last, in whatever enrolment.
fn taken_last(floors: &[TakenFloor]) -> (u64, String) {
    let last = floors.iter().rev().find(|floor| floor.generation > 0);
    last.map_or((0, String::new()), |floor| (floor.generation, floor.manifest.clone()))
}

impl LinkRules {
    /// What is wrong about who signed a document that was taken after another one.
    fn author_mistake(
        &self,
        signed: &BTreeMap<(u64, String), Vec<SignedDocument>>,
        floor: &TakenFloor,
        (before, manifest): &(u64, String),
        has_gap: bool,
    ) -> Option<String> {
        let number = floor.generation;
        if !floor.is_signed && !self.demands_author {
            return None;
        }
        let signed = signed.get(&(number, floor.manifest.clone())).filter(|_| floor.is_signed);
        let Some(signed) = signed else {
            return Some(format!("(3) nobody signed generation {number}, and it was taken"));
        };
        let is_over = |signed: &&SignedDocument| match signed.base {
            // Lines that nobody read may tell of another one between.
            SignedBase::First => *before == 0 || has_gap,
            SignedBase::Over(base) => {
                (base.generation.0, base.manifest.to_string()) == (*before, manifest.clone())
                    || has_gap
            }
            SignedBase::Unsaid => self.without_base,
        };
        let mut over = signed.iter().filter(is_over).peekable();
        if over.peek().is_none() {
            return Some(format!(
                "(23) generation {number} was taken over {before}, which its author did not sign"
            ));
        }
        // The clock is read a moment before the line is dated.
        let in_time = |signed: &SignedDocument| {
            signed.window.start <= floor.at_s && floor.at_s <= signed.window.end
        };
        let is_late = !over.any(in_time);
        is_late.then(|| format!("(3) generation {number} was taken outside of its window"))
    }
}

impl LinkWatch {
    /// Takes in what lines tell. What is wrong about that.
    pub(super) fn follow(&mut self, history: &JournalHistory) -> Vec<String> {
        let mut odd = Vec::new();
        let Some(rules) = &self.rules else { return odd };
        for at in self.floors..history.floors.len() {
            let floor = &history.floors[at];
            let number = floor.generation;
            if number == 0 {
                match self.enrolments.checked_sub(1) {
                    Some(left) => self.enrolments = left,
                    None if at == 0 || history.has_gap => {}
                    None => odd.push("numbers began anew, and nobody enrolled the host".to_owned()),
                }
                continue;
            }
            let before = taken_last(&history.floors[..at]);
            let begins_anew = at.checked_sub(1).is_none_or(|at| history.floors[at].generation == 0);
            if begins_anew && before == (number, floor.manifest.clone()) {
                // What was in effect when root enrolled the host again is its floor again.
                continue;
            }
            let last = if begins_anew { 0 } else { before.0 };
            let highest = if begins_anew { FIRST_MAX } else { last + STEP_MAX };
            let leaps = number > highest && !history.has_gap;
            if number < last || leaps {
                odd.push(format!("generation {number} follows {last}"));
            }
            if number == last && floor.manifest != before.1 {
                odd.push(format!("generation {number} has two contents"));
            }
            odd.extend(rules.author_mistake(&self.signed, floor, &before, history.has_gap));
        }
        self.floors = history.floors.len();
        for at in self.epochs..history.epochs.len() {
            let begins = KeptEpoch::default();
            let before = at.checked_sub(1).map_or(&begins, |before| &history.epochs[before]);
            let epoch = &history.epochs[at];
            if epoch.rollback.is_some() && !self.is_put_back {
                odd.push("(13) a rollback of the journal was found that never was".to_owned());
            }
            if epoch.number > before.number {
                let known = before.rollback.map(|(anchored, found)| (anchored.seq, found.seq));
                if known.is_none_or(|known| !self.acknowledged.contains(&known)) {
                    odd.push("(3) nobody acknowledged the rollback".to_owned());
                }
                self.is_put_back = false;
            }
        }
        self.epochs = history.epochs.len();
        let began = self.told_early.iter().find(|name| history.ops.contains_key(*name));
        if let Some(name) = began.cloned() {
            odd.push(format!("(5) the hub was told the end of {name} before it was on disk"));
            self.told_early.remove(&name);
        }
        odd
    }

    /// Whether a signed act may begin by what is known of the journal's past.
    pub(super) fn may_sign(
        &self,
        history: &JournalHistory,
        not_before_s: u64,
    ) -> Result<(), String> {
        if self.is_put_back {
            return Err("(4) it began on a journal that was put back, unacknowledged".to_owned());
        }
        let since_s = history.epochs.last().map_or(0, |epoch| epoch.since_s);
        if not_before_s < since_s {
            return Err("(4) it was signed before a rollback was acknowledged".to_owned());
        }
        Ok(())
    }
}

impl OracleState {
    /// A hub's stops and shutdowns have a budget; what somebody signed has its own.
    pub(super) fn is_within_the_hubs_hour(
        &mut self,
        now_ms: u64,
        write: &WriteRequest,
    ) -> Option<String> {
        let limit = self.link.rules.as_ref()?.disruptive_per_hour;
        if !matches!(write.kind, ActionKind::Shutdown | ActionKind::Stop) {
            return None;
        }
        let of_guest = self.history.ops.values().filter(|op| op.guest.vmid == write.guest.vmid);
        if of_guest.max_by_key(|op| op.started).is_some_and(HistoryOp::is_signed) {
            return None;
        }
        let sent = &mut self.link.disruptive_ms;
        sent.push(now_ms);
        sent.retain(|at_ms| at_ms + HOUR_MS > now_ms);
        let count = sent.len() as u64;
        (count > limit).then(|| format!("{count} disruptive acts of the hub within an hour"))
    }
}
