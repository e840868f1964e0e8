//! What one host may ask of the hub at a time, so that none can starve another.
//!
//! One long poll (a newer one ends the one before: its client is gone), two of everything else, and a bucket of requests. Kept in memory by each replica; only hosts with a credential have a place here.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

use crate::problem::{Problem, ProblemCode};

/// Requests of a host under way at a time, its poll apart.
const BUSY_MAX: u8 = 2;
/// Hosts remembered before those that are at rest are forgotten.
const REMEMBERED_MAX: usize = 100_000;

/// The gates of all hosts.
pub(crate) struct HostGates {
    gates: Mutex<HashMap<String, HostGate>>,
    strangers: Mutex<RateBucket>,
}

impl Default for HostGates {
    fn default() -> Self {
        Self { gates: Mutex::default(), strangers: Mutex::new(RateBucket::full(STRANGERS)) }
    }
}

/// How much may be asked: so much at once, so much a second.
#[derive(Clone, Copy)]
struct BucketSize {
    burst: f64,
    per_second: f64,
}

/// What one host may.
const ONE_HOST: BucketSize = BucketSize { burst: 120.0, per_second: 4.0 };
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

struct HostGate {
    rate: RateBucket,
    busy: u8,
    poll: Option<Arc<Notify>>,
}

impl HostGate {
    fn new() -> Self {
        Self { rate: RateBucket::full(ONE_HOST), busy: 0, poll: None }
    }

    fn spend(&mut self) -> Result<(), Problem> {
        self.rate.spend("this host asks too often")
    }

    fn is_at_rest(&self) -> bool {
        self.busy == 0 && self.poll.is_none() && self.rate.is_full()
    }
}

impl HostGates {
    /// Lets one request other than a poll in unless others are under way.
    pub(crate) fn enter(&self, host: &str) -> Result<BusyHost<'_>, Problem> {
        self.with(host, |gate| {
            gate.spend()?;
            if gate.busy >= BUSY_MAX {
                let detail = "other requests of this host are being answered";
                return Err(Problem::new(ProblemCode::TooMany, detail));
            }
            gate.busy += 1;
            Ok(BusyHost { gates: self, host: host.to_owned() })
        })
    }

    /// Lets a poll in; the one before is told to end.
    pub(crate) fn enter_poll(&self, host: &str) -> Result<PollingHost<'_>, Problem> {
        self.with(host, |gate| {
            gate.spend()?;
            let ended = Arc::new(Notify::new());
            if let Some(before) = gate.poll.replace(ended.clone()) {
                before.notify_one();
            }
            Ok(PollingHost { gates: self, host: host.to_owned(), ended })
        })
    }

    /// Lets somebody in who has no credential yet.
    pub(crate) fn enter_stranger(&self) -> Result<(), Problem> {
        let mut strangers = self.strangers.lock().unwrap_or_else(PoisonError::into_inner);
        strangers.spend("too many ask to be taken in")
    }

    fn with<T>(&self, host: &str, act: impl FnOnce(&mut HostGate) -> T) -> T {
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        if gates.len() >= REMEMBERED_MAX {
            gates.retain(|_, gate| !gate.is_at_rest());
        }
        act(gates.entry(host.to_owned()).or_insert_with(HostGate::new))
    }
}

/// A host whose request is being answered.
pub(crate) struct BusyHost<'g> {
    gates: &'g HostGates,
    host: String,
}

impl Drop for BusyHost<'_> {
    fn drop(&mut self) {
        self.gates.with(&self.host, |gate| gate.busy -= 1);
    }
}

/// A host that polls.
pub(crate) struct PollingHost<'g> {
    gates: &'g HostGates,
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
        self.gates.with(&self.host, |gate| {
            if gate.poll.as_ref().is_some_and(|poll| Arc::ptr_eq(poll, &self.ended)) {
                gate.poll = None;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_asks_too_often_is_refused_and_another_is_not() {
        let gates = HostGates::default();
        let refused = (0..1000).find(|_| gates.enter("loud").is_err());
        assert!(refused.is_some_and(|at| at >= 100), "{refused:?}");
        assert!(gates.enter("quiet").is_ok());
    }

    #[test]
    fn a_third_request_at_the_same_time_is_refused() {
        let gates = HostGates::default();
        let first = gates.enter("pve1").unwrap();
        let _second = gates.enter("pve1").unwrap();
        assert!(gates.enter("pve1").is_err());
        drop(first);
        assert!(gates.enter("pve1").is_ok());
    }

    #[tokio::test]
    async fn a_newer_poll_ends_the_one_before() {
        let gates = HostGates::default();
        let first = gates.enter_poll("pve1").unwrap();
        let second = gates.enter_poll("pve1").unwrap();
        first.replaced().await;
        drop(first);
        let third = gates.enter_poll("pve1").unwrap();
        second.replaced().await;
        drop((second, third));
    }
}
