//! What one caller may ask of the hub at a time, so that none can starve another: requests under way, requests a second,
//! connections, streams. A caller is a host or an account, known by its credential; nobody else has a place here.
//!
//! A place is taken before a byte of the body is read, and given back when the answer is. Kept in memory by each replica.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

use crate::problem::{Problem, ProblemCode};

/// Callers remembered before those that are at rest are forgotten.
const REMEMBERED_MAX: usize = 100_000;

/// How much may be asked: so much at once, so much a second.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BucketSize {
    burst: f64,
    per_second: f64,
}

/// What one caller may have of one kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GateSize {
    /// Places at a time.
    places: u16,
    /// How often a place may be taken; any number of times if none.
    rate: Option<BucketSize>,
    /// What is said when there is none left.
    full: &'static str,
}

/// Requests of a host under way, its poll apart: it sends one report at a time and fetches beside that.
pub(crate) const HOST_REQUESTS: GateSize = GateSize {
    places: 2,
    rate: Some(BucketSize { burst: 120.0, per_second: 4.0 }),
    full: "other requests of this host are being answered",
};
/// Polls of a host, apart from everything else it asks: a newer one ends the one before, and whatever is done with its credential
/// beside them, the host is heard.
pub(crate) const HOST_POLLS: GateSize = GateSize {
    places: 1,
    rate: Some(BucketSize { burst: 60.0, per_second: 2.0 }),
    full: "this host polls already",
};
/// Requests of an account under way: a browser has six at a time, and a person a few windows and a script.
pub(crate) const PERSON_REQUESTS: GateSize = GateSize {
    places: 16,
    rate: Some(BucketSize { burst: 1_200.0, per_second: 60.0 }),
    full: "other requests of this account are being answered",
};
/// Connections with a host's credential: a poll, two requests, and as many that the host has lost and the hub does not know of yet.
pub(crate) const HOST_CONNECTIONS: GateSize =
    GateSize { places: 12, rate: None, full: "this host has too many connections open" };
/// Connections with an account's tokens and sessions.
pub(crate) const PERSON_CONNECTIONS: GateSize =
    GateSize { places: 64, rate: None, full: "this account has too many connections open" };
/// Event streams of an account: windows that are open.
pub(crate) const PERSON_STREAMS: GateSize =
    GateSize { places: 16, rate: None, full: "this account watches in too many places already" };
/// Exports of an account: each reads much.
pub(crate) const PERSON_EXPORTS: GateSize =
    GateSize { places: 2, rate: None, full: "other exports of this account are being written" };
/// What all may together who have no credential and make us verify a signature.
const STRANGERS: BucketSize = BucketSize { burst: 400.0, per_second: 40.0 };

struct RateBucket {
    size: BucketSize,
    left: f64,
    at: Instant,
}

impl RateBucket {
    fn full(size: BucketSize) -> Self {
        Self { size, left: size.burst, at: Instant::now() }
    }

    fn spend(&mut self, detail: &str) -> Result<(), Problem> {
        let now = Instant::now();
        let rested = now.duration_since(self.at).as_secs_f64() * self.size.per_second;
        self.left = (self.left + rested).min(self.size.burst);
        self.at = now;
        if self.left < 1.0 {
            return Err(Problem::new(ProblemCode::TooMany, detail));
        }
        self.left -= 1.0;
        Ok(())
    }

    /// Whether it is full again, so that forgetting it changes nothing.
    fn is_full(&self) -> bool {
        self.left + self.at.elapsed().as_secs_f64() * self.size.per_second >= self.size.burst
    }
}

/// One kind of place, for every caller. Cheap to clone.
#[derive(Clone)]
pub(crate) struct CallerGates {
    size: GateSize,
    gates: Arc<Mutex<HashMap<String, CallerGate>>>,
}

struct CallerGate {
    rate: Option<RateBucket>,
    taken: u16,
}

impl CallerGates {
    pub(crate) fn new(size: GateSize) -> Self {
        Self { size, gates: Arc::default() }
    }

    /// Counts a request that takes no place, unless the caller asks too often.
    pub(crate) fn count(&self, caller: &str) -> Result<(), Problem> {
        self.with(caller, |gate| match &mut gate.rate {
            Some(rate) => rate.spend("this caller asks too often"),
            None => Ok(()),
        })
    }

    /// Takes a place of a caller, unless it has all it may have.
    pub(crate) fn enter(&self, caller: &str) -> Result<CallerPlace, Problem> {
        self.count(caller)?;
        self.with(caller, |gate| {
            if gate.taken >= self.size.places {
                return Err(Problem::new(ProblemCode::TooMany, self.size.full));
            }
            gate.taken += 1;
            Ok(CallerPlace { gates: self.clone(), caller: caller.to_owned() })
        })
    }

    fn with<T>(&self, caller: &str, act: impl FnOnce(&mut CallerGate) -> T) -> T {
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        if gates.len() >= REMEMBERED_MAX {
            gates.retain(|_, gate| {
                gate.taken > 0 || gate.rate.as_ref().is_some_and(|rate| !rate.is_full())
            });
        }
        let gate = gates
            .entry(caller.to_owned())
            .or_insert_with(|| CallerGate { rate: self.size.rate.map(RateBucket::full), taken: 0 });
        act(gate)
    }
}

/// A place that a caller has until this is dropped.
pub(crate) struct CallerPlace {
    gates: CallerGates,
    caller: String,
}

impl Drop for CallerPlace {
    fn drop(&mut self) {
        let mut gates = self.gates.gates.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(gate) = gates.get_mut(&self.caller) else { return };
        gate.taken -= 1;
        // Where nothing is counted but places, a caller without any is as if it had never come.
        if gate.taken == 0 && gate.rate.is_none() {
            gates.remove(&self.caller);
        }
    }
}

/// The long polls of all hosts, one each: a newer one ends the one before, whose client is gone.
#[derive(Default)]
pub(crate) struct PollGates {
    polls: Mutex<HashMap<String, Arc<Notify>>>,
}

impl PollGates {
    /// Lets a poll in; the one before is told to end.
    pub(crate) fn enter(&self, host: &str) -> PollingHost<'_> {
        let ended = Arc::new(Notify::new());
        let mut polls = self.polls.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = polls.insert(host.to_owned(), ended.clone()) {
            before.notify_one();
        }
        PollingHost { gates: self, host: host.to_owned(), ended }
    }
}

/// A host that polls.
pub(crate) struct PollingHost<'g> {
    gates: &'g PollGates,
    host: String,
    ended: Arc<Notify>,
}

impl PollingHost<'_> {
    /// Until a newer poll of the host takes its place.
    pub(crate) async fn replaced(&self) {
        self.ended.notified().await;
    }
}

impl Drop for PollingHost<'_> {
    fn drop(&mut self) {
        let mut polls = self.gates.polls.lock().unwrap_or_else(PoisonError::into_inner);
        if polls.get(&self.host).is_some_and(|poll| Arc::ptr_eq(poll, &self.ended)) {
            polls.remove(&self.host);
        }
    }
}

/// Every gate there is.
pub(crate) struct HubGates {
    pub(crate) polls: PollGates,
    pub(crate) poll_rate: CallerGates,
    pub(crate) host_requests: CallerGates,
    pub(crate) person_requests: CallerGates,
    pub(crate) host_connections: CallerGates,
    pub(crate) person_connections: CallerGates,
    pub(crate) streams: CallerGates,
    pub(crate) exports: CallerGates,
    strangers: Mutex<RateBucket>,
}

impl Default for HubGates {
    fn default() -> Self {
        Self {
            polls: PollGates::default(),
            poll_rate: CallerGates::new(HOST_POLLS),
            host_requests: CallerGates::new(HOST_REQUESTS),
            person_requests: CallerGates::new(PERSON_REQUESTS),
            host_connections: CallerGates::new(HOST_CONNECTIONS),
            person_connections: CallerGates::new(PERSON_CONNECTIONS),
            streams: CallerGates::new(PERSON_STREAMS),
            exports: CallerGates::new(PERSON_EXPORTS),
            strangers: Mutex::new(RateBucket::full(STRANGERS)),
        }
    }
}

impl HubGates {
    /// Lets somebody in who has no credential yet.
    pub(crate) fn enter_stranger(&self) -> Result<(), Problem> {
        let mut strangers = self.strangers.lock().unwrap_or_else(PoisonError::into_inner);
        strangers.spend("too many ask to be taken in")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_that_asks_too_often_is_refused_and_another_is_not() {
        let gates = CallerGates::new(HOST_REQUESTS);
        let refused = (0..1000).find(|_| gates.enter("loud").is_err());
        assert!(refused.is_some_and(|at| at >= 100), "{refused:?}");
        assert!(gates.enter("quiet").is_ok());
    }

    #[test]
    fn z15_a_third_request_of_a_host_at_the_same_time_is_refused() {
        let gates = CallerGates::new(HOST_REQUESTS);
        let first = gates.enter("pve1").unwrap();
        let _second = gates.enter("pve1").unwrap();
        assert!(gates.enter("pve1").is_err());
        drop(first);
        assert!(gates.enter("pve1").is_ok());
    }

    #[test]
    fn z15_each_kind_of_place_has_its_number_and_nothing_is_left_of_who_went() {
        for size in [HOST_CONNECTIONS, PERSON_CONNECTIONS, PERSON_STREAMS, PERSON_EXPORTS] {
            let gates = CallerGates::new(size);
            let places: Vec<_> = (0..size.places).map(|_| gates.enter("eve").unwrap()).collect();
            let refused = gates.enter("eve").err().unwrap();
            assert_eq!((refused.code, refused.detail.as_str()), (ProblemCode::TooMany, size.full));
            assert!(gates.enter("alice").is_ok());
            drop(places);
            assert!(gates.gates.lock().unwrap().is_empty());
        }
    }

    #[tokio::test]
    async fn a_newer_poll_ends_the_one_before() {
        let gates = PollGates::default();
        let first = gates.enter("pve1");
        let second = gates.enter("pve1");
        first.replaced().await;
        drop(first);
        let third = gates.enter("pve1");
        second.replaced().await;
        drop((second, third));
        assert!(gates.polls.lock().unwrap().is_empty());
    }
}
