//! Back-off: how long an action that failed waits until it is tried again (invariant 20).
//!
//! ```text
//!   started (what it tries) ─> failed ─> pause of 1, 2, 4 … 60 minutes ─> the agent's own passes hold it meanwhile
//!                                │                                         as `failed_before`
//!                                └─ what it tries is another thing (declaration, digest, run state): no pause
//! ```
//!
//! The memory is a fold over the journal's operation records, so that a restart forgets nothing. It must never hold
//! what a person asks for, and never hold an action for longer than the longest pause.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::actual::identity::identity;
use crate::actual::{Guest, Power};
use crate::desired::{DeclaredGuest, Run, StopMode, WantedState};
use crate::gate::destroy::OwedThing;
use crate::model::id::{OperationId, VmId};
use crate::model::secret::masked_param;
use crate::operate::operation::{IdentityHash, UnixSeconds};
use crate::plan::Step;
use crate::sign::PayloadHash;
use crate::value::print;

/// The first pause.
pub const FIRST_PAUSE_S: u64 = 60;

/// The longest pause, and the only one after a refusal that no waiting changes.
pub const PAUSE_MAX_S: u64 = 60 * 60;

/// A pause is up to this many per cent longer, so that guests that failed together are not tried together.
const JITTER_PERCENT: u64 = 10;

/// How many failed attempts of one guest are remembered. One action stands in the way of a guest's others, and a
/// protection may be owed beside it; the rest are attempts at what is no longer declared.
const ATTEMPTS_PER_GUEST_MAX: usize = 4;

/// A failure older than this holds nothing back any more and is forgotten.
const FORGOTTEN_AFTER_S: u64 = 24 * 60 * 60;

/// What an operation tries: the same step, on the same configuration and run state, for the same declaration. Secrets
/// are no part of it, because the journal keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AttemptHash(PayloadHash);

impl AttemptHash {
    /// What a planned step tries on a guest as it is.
    pub fn of(step: &Step, declared: &DeclaredGuest, here: Option<&Guest>) -> Self {
        let config = here.and_then(|guest| guest.config.as_ref().ok());
        Self::over(&(
            step.kind(),
            step.shown_params(),
            declaration(declared),
            config.map(|config| config.digest.as_str()),
            here.map(|guest| told_alike(guest.power).to_string()),
        ))
    }

    /// What a planned step may try on a guest as a list tells of it: a run state that could not be read may be any, and the
    /// lane reads it. A start is the same request as giving a guest back that it runs.
    pub fn candidates(
        step: &Step,
        declared: &DeclaredGuest,
        here: Option<&Guest>,
    ) -> impl Iterator<Item = Self> {
        let powers = match here.map(|guest| guest.power) {
            Some(Power::Unknown) => &[Power::Unknown, Power::Running, Power::Stopped][..],
            Some(Power::Running | Power::Paused | Power::Stopped) | None => &[][..],
        };
        let guessed = powers.iter().map(move |power| {
            let here = here.cloned().map(|guest| Guest { power: *power, ..guest });
            Self::of(step, declared, here.as_ref())
        });
        let told = powers.is_empty().then(|| Self::of(step, declared, here));
        let owed = here.filter(|_| *step == Step::Start);
        let owed = owed.map(|here| Self::owed(identity(here).ok(), OwedThing::Running));
        told.into_iter().chain(guessed).chain(owed)
    }

    /// Giving a guest back what was taken from it. Two operations that took the same share the attempt: the request is one.
    pub fn owed(identity: Option<IdentityHash>, debt: OwedThing) -> Self {
        Self::over(&match debt {
            OwedThing::Protection => ("protection", identity),
            OwedThing::Running => ("run", identity),
        })
    }

    fn over(what: &impl Serialize) -> Self {
        let bytes = serde_json::to_vec(what).expect("texts and maps of texts are JSON");
        Self(PayloadHash::of(&bytes))
    }
}

/// A run state as far as everybody is told it: a list calls a paused machine running, and only its own status says more.
fn told_alike(power: Power) -> Power {
    match power {
        Power::Running | Power::Paused => Power::Running,
        Power::Stopped => Power::Stopped,
        Power::Unknown => Power::Unknown,
    }
}

/// What is declared, key by key, secrets masked.
fn declaration(guest: &DeclaredGuest) -> BTreeMap<String, String> {
    let WantedState::Present(spec) = &guest.state else {
        return [("state".to_owned(), "absent".to_owned())].into();
    };
    let fields = spec.fields.iter().map(|field| {
        let name = field.key.to_string();
        let format = &field.key.key().format;
        let text = field.want.as_ref().map(|value| print::pve(format, value)).unwrap_or_default();
        let masked = masked_param(&name, &text).into_owned();
        (name, masked)
    });
    let run = spec.run.map(|run| match run {
        Run::Running => "running",
        Run::Stopped => "stopped",
    });
    let stop = match spec.stop {
        StopMode::Shutdown => None,
        StopMode::Force => Some("force"),
    };
    let template = spec.template.then_some("true");
    let words = [("run", run), ("stop", stop), ("template", template)].into_iter();
    let words = words.filter_map(|(name, word)| Some((name.to_owned(), word?.to_owned())));
    fields.chain(words).collect()
}

/// That a try failed, as its record tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TryFailure {
    /// When, by the node's clock.
    pub at: UnixSeconds,
    /// No waiting changes it: the node refused a parameter or a right.
    pub lasting: bool,
}

/// An attempt that failed, and how often.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedBefore {
    /// How often in a row.
    pub failures: u32,
    /// The last time.
    pub last: TryFailure,
    /// The last operation.
    pub op: OperationId,
    /// What came of it, in words.
    pub why: String,
}

impl FailedBefore {
    /// When it is tried again.
    pub fn next_try(&self) -> UnixSeconds {
        let doublings = self.failures.saturating_sub(1).min(16);
        let pause = FIRST_PAUSE_S.saturating_mul(1 << doublings).min(PAUSE_MAX_S);
        let pause = if self.last.lasting { PAUSE_MAX_S } else { pause };
        // From the operation's name, so that everybody who asks gets the same answer.
        let jitter = pause * u64::from(self.op.random_byte()) * JITTER_PERCENT / (100 * 256);
        UnixSeconds(self.last.at.0.saturating_add(pause + jitter))
    }

    /// Whether its pause is not over. A clock that was set back ends it.
    fn is_pausing(&self, now: UnixSeconds) -> bool {
        self.last.at <= now && now < self.next_try()
    }
}

impl fmt::Display for FailedBefore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times =
            if self.failures == 1 { "once".to_owned() } else { format!("{} times", self.failures) };
        write!(f, "failed {times}, tried again at {}", moment(self.next_try()))?;
        if self.why.is_empty() { Ok(()) } else { write!(f, ": {}", self.why) }
    }
}

fn moment(at: UnixSeconds) -> String {
    let second = i64::try_from(at.0).ok();
    let moment = second.and_then(|second| jiff::Timestamp::from_second(second).ok());
    moment.map_or_else(|| "a time far away".to_owned(), |moment| moment.to_string())
}

/// What failed and waits, guest by guest.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FailureMemory(BTreeMap<VmId, BTreeMap<AttemptHash, FailedBefore>>);

impl FailureMemory {
    /// The failure that holds an attempt now.
    pub fn pausing(
        &self,
        vmid: VmId,
        attempt: AttemptHash,
        now: UnixSeconds,
    ) -> Option<&FailedBefore> {
        self.0.get(&vmid)?.get(&attempt).filter(|failed| failed.is_pausing(now))
    }

    /// Whether anything is remembered of a guest.
    pub fn knows(&self, vmid: VmId) -> bool {
        self.0.contains_key(&vmid)
    }

    /// Whether something of a guest failed, paused and failed again.
    pub fn stands(&self, vmid: VmId) -> bool {
        self.0
            .get(&vmid)
            .is_some_and(|of_guest| of_guest.values().any(|failed| failed.failures > 1))
    }

    /// A try failed. One that fails again before its pause is over, because the lane itself tried again, counts as
    /// the same failure.
    pub(crate) fn failed(
        &mut self,
        vmid: VmId,
        attempt: AttemptHash,
        failure: TryFailure,
        op: OperationId,
        why: &str,
    ) {
        self.forget_old(failure.at);
        let of_guest = self.0.entry(vmid).or_default();
        let before = of_guest.get(&attempt);
        let again = before.is_some_and(|before| before.is_pausing(failure.at));
        let failures = before.map_or(0, |before| before.failures);
        let failures = if again { failures } else { failures.saturating_add(1) };
        of_guest.insert(attempt, FailedBefore { failures, last: failure, op, why: why.to_owned() });
        while of_guest.len() > ATTEMPTS_PER_GUEST_MAX {
            let oldest = of_guest
                .iter()
                .min_by_key(|(_, failed)| failed.last.at)
                .map(|(attempt, _)| *attempt);
            oldest.map(|oldest| of_guest.remove(&oldest));
        }
    }

    /// It was done.
    pub(crate) fn succeeded(&mut self, vmid: VmId, attempt: AttemptHash) {
        if let Some(of_guest) = self.0.get_mut(&vmid) {
            of_guest.remove(&attempt);
            if of_guest.is_empty() {
                self.0.remove(&vmid);
            }
        }
    }

    /// A person wants the guest to be tried at once.
    pub fn retry(&mut self, vmid: VmId) {
        self.0.remove(&vmid);
    }

    /// Forgets what is old, and what failed at a time that is still to come: the clock was set back since, and it would
    /// push out what is new.
    fn forget_old(&mut self, now: UnixSeconds) {
        let holds = |at: UnixSeconds| at <= now && at.0.saturating_add(FORGOTTEN_AFTER_S) > now.0;
        self.0.retain(|_, of_guest| {
            of_guest.retain(|_, failed| holds(failed.last.at));
            !of_guest.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actual::GuestConfig;
    use crate::desired::{DeclaredBy, ReconcileMode, Spec};
    use crate::model::id::{GuestId, GuestKind};

    fn op(number: u64) -> OperationId {
        OperationId::from_parts(number, 0)
    }

    fn vmid() -> VmId {
        VmId::try_from(101).unwrap()
    }

    fn attempt(number: u64) -> AttemptHash {
        let identity = IdentityHash([u8::try_from(number).unwrap(); 32]);
        AttemptHash::owed(Some(identity), OwedThing::Protection)
    }

    fn failed_at(at: u64) -> TryFailure {
        TryFailure { at: UnixSeconds(at), lasting: false }
    }

    /// The pauses of an attempt that fails whenever it is tried, in minutes, without the jitter.
    fn pauses(tries: usize, lasting: bool) -> Vec<u64> {
        let mut memory = FailureMemory::default();
        let mut now = 1_000_000;
        (0..tries)
            .map(|number| {
                let failure = TryFailure { at: UnixSeconds(now), lasting };
                memory.failed(vmid(), attempt(1), failure, op(number as u64), "no bridge");
                let held = memory.pausing(vmid(), attempt(1), UnixSeconds(now)).unwrap();
                let next = held.next_try().0;
                let pause = (next - now) / 60;
                assert!(memory.pausing(vmid(), attempt(1), UnixSeconds(next - 1)).is_some());
                assert!(memory.pausing(vmid(), attempt(1), UnixSeconds(next)).is_none());
                now = next;
                pause
            })
            .collect()
    }

    #[test]
    fn a_paused_machine_that_a_list_calls_running_is_the_same_attempt() {
        let id = GuestId::new(GuestKind::Qemu, vmid());
        let state = WantedState::Present(Spec::default());
        let declared =
            DeclaredGuest { id, by: DeclaredBy::default(), mode: ReconcileMode::default(), state };
        let attempt = |power| {
            let config = Ok(GuestConfig::default().into());
            let here = Guest { id, power, template: false, ha: None, lock: None, config };
            AttemptHash::of(&Step::Start, &declared, Some(&here))
        };
        assert_eq!(attempt(Power::Paused), attempt(Power::Running));
        assert_ne!(attempt(Power::Stopped), attempt(Power::Running));
        assert_ne!(attempt(Power::Unknown), attempt(Power::Running));
    }

    #[test]
    fn a_failure_holds_its_attempt_also_while_a_list_does_not_tell_the_run_state() {
        let id = GuestId::new(GuestKind::Qemu, vmid());
        let state = WantedState::Present(Spec::default());
        let declared =
            DeclaredGuest { id, by: DeclaredBy::default(), mode: ReconcileMode::default(), state };
        let here = |power| {
            let config = Ok(GuestConfig::default().into());
            Guest { id, power, template: false, ha: None, lock: None, config }
        };
        let candidates = |power| -> Vec<AttemptHash> {
            AttemptHash::candidates(&Step::Start, &declared, Some(&here(power))).collect()
        };
        for power in [Power::Running, Power::Paused, Power::Stopped] {
            let tried = AttemptHash::of(&Step::Start, &declared, Some(&here(power)));
            let given_back = AttemptHash::owed(identity(&here(power)).ok(), OwedThing::Running);
            assert_eq!(candidates(power), [tried, given_back]);
            assert!(candidates(Power::Unknown).contains(&tried), "{power:?}");
        }
    }

    #[test]
    fn a_failure_waits_twice_as_long_each_time_and_an_hour_at_most() {
        let pauses = pauses(9, false);
        for (pause, expected) in pauses.iter().zip([1, 2, 4, 8, 16, 32, 60, 60, 60]) {
            assert!((expected..=expected + expected / 10 + 1).contains(pause), "{pauses:?}");
        }
    }

    #[test]
    fn what_no_waiting_changes_waits_longest_at_once() {
        assert!(pauses(3, true).iter().all(|pause| (60..=66).contains(pause)));
    }

    #[test]
    fn a_day_of_a_standing_failure_is_at_most_forty_tries() {
        let mut memory = FailureMemory::default();
        let mut now = 0;
        let mut tries = 0;
        while now < 24 * 60 * 60 {
            memory.failed(vmid(), attempt(1), failed_at(now), op(now), "");
            now = memory.pausing(vmid(), attempt(1), UnixSeconds(now)).unwrap().next_try().0;
            tries += 1;
        }
        assert!((20..=40).contains(&tries), "{tries}");
    }

    #[test]
    fn tries_of_the_lane_itself_are_one_failure() {
        let mut memory = FailureMemory::default();
        for at in [100, 102, 106, 114] {
            memory.failed(vmid(), attempt(1), failed_at(at), op(at), "");
        }
        let held = memory.pausing(vmid(), attempt(1), UnixSeconds(120)).unwrap();
        assert_eq!(held.failures, 1);
        assert!(held.next_try().0 >= 114 + FIRST_PAUSE_S, "the last of them counts");
    }

    #[test]
    fn another_attempt_a_success_a_person_and_a_clock_set_back_end_the_pause() {
        let mut memory = FailureMemory::default();
        memory.failed(vmid(), attempt(1), failed_at(100), op(1), "");
        let now = UnixSeconds(101);
        assert!(memory.pausing(vmid(), attempt(1), now).is_some());
        assert!(memory.pausing(vmid(), attempt(2), now).is_none(), "another attempt");
        assert!(memory.pausing(vmid(), attempt(1), UnixSeconds(99)).is_none(), "set back");
        let mut done = memory.clone();
        done.succeeded(vmid(), attempt(1));
        assert_eq!(done, FailureMemory::default());
        memory.retry(vmid());
        assert_eq!(memory, FailureMemory::default());
    }

    #[test]
    fn the_memory_is_bounded_by_guest_and_by_age() {
        let mut memory = FailureMemory::default();
        for number in 0..100 {
            memory.failed(vmid(), attempt(number), failed_at(1_000 + number), op(number), "");
        }
        assert_eq!(memory.0[&vmid()].len(), ATTEMPTS_PER_GUEST_MAX);
        assert!(
            memory.pausing(vmid(), attempt(99), UnixSeconds(1_100)).is_some(),
            "the newest stay"
        );
        memory.failed(vmid(), attempt(0), failed_at(500), op(0), "");
        assert!(
            memory.pausing(vmid(), attempt(0), UnixSeconds(500)).is_some(),
            "after a clock set back"
        );
        assert_eq!(memory.0[&vmid()].len(), 1);
        let other = VmId::try_from(102).unwrap();
        let late = failed_at(1_100 + FORGOTTEN_AFTER_S);
        memory.failed(other, attempt(1), late, op(1), "");
        assert!(!memory.knows(vmid()) && memory.knows(other));
    }
}
