//! What one host may ask of the hub at a time, so that none can starve another.
//!
//! One long poll (a newer one ends the one before: its client is gone), one report, one of everything else, and a bucket of
//! requests. Kept in memory by each replica; only hosts with a credential have a place here.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

use crate::problem::{Problem, ProblemCode};

/// Requests a host may make at once after a rest: a start with a full paged report.
const BURST: f64 = 120.0;
/// Requests a second it may go on with.
const PER_SECOND: f64 = 4.0;
/// Hosts remembered before those that are at rest are forgotten.
const REMEMBERED_MAX: usize = 100_000;

/// The gates of all hosts.
#[derive(Default)]
pub(crate) struct HostGates {
    gates: Mutex<HashMap<String, HostGate>>,
}

struct HostGate {
    left: f64,
    at: Instant,
    busy: bool,
    poll: Option<Arc<Notify>>,
}

impl HostGate {
    fn new() -> Self {
        Self { left: BURST, at: Instant::now(), busy: false, poll: None }
    }

    fn spend(&mut self) -> Result<(), Problem> {
        let now = Instant::now();
        let rested = now.duration_since(self.at).as_secs_f64() * PER_SECOND;
        self.left = (self.left + rested).min(BURST);
        self.at = now;
        if self.left < 1.0 {
            return Err(Problem::new(ProblemCode::TooMany, "this host asks too often"));
        }
        self.left -= 1.0;
        Ok(())
    }

    fn is_at_rest(&self) -> bool {
        !self.busy && self.poll.is_none() && self.at.elapsed().as_secs_f64() * PER_SECOND > BURST
    }
}

impl HostGates {
    /// Lets one request other than a poll in; a second one at the same time is refused.
    pub(crate) fn enter(&self, host: &str) -> Result<BusyHost<'_>, Problem> {
        self.with(host, |gate| {
            gate.spend()?;
            if gate.busy {
                let detail = "a request of this host is being answered";
                return Err(Problem::new(ProblemCode::TooMany, detail));
            }
            gate.busy = true;
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
        self.gates.with(&self.host, |gate| gate.busy = false);
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
    fn a_second_request_at_the_same_time_is_refused() {
        let gates = HostGates::default();
        let first = gates.enter("pve1").unwrap();
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
