//! The numbers of a running agent, in Prometheus' words.
//!
//! The loop, the listener of operations and the counted exchange write them; `scrape` renders them when somebody
//! asks. Labels come from closed lists or from declared guests, so that there is never an endless number of series.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use evenkeel_core::id::GuestId;
use evenkeel_core::plan::{Held, Plan};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use tokio::time::Instant;

use super::status::AgentStatus;
use crate::engine::OpReport;
use crate::pve::exchange::{Exchange, ExchangeFuture, ExchangeOutcome, HttpRequest};

type One = [(&'static str, String); 1];
type Two = [(&'static str, String); 2];

/// From a node of five guests to one of ten thousand.
const PASS_SECONDS: [f64; 11] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0, 600.0];

/// All of them.
pub(super) struct Metrics {
    registry: Registry,
    reconciles: Family<One, Counter>,
    reconcile_seconds: Histogram,
    ops: Family<Two, Counter>,
    requests: Family<One, Counter>,
    guest_in_sync: Family<One, Gauge>,
    held: Family<One, Gauge>,
    lock_wait_seconds: Family<One, Gauge<f64, std::sync::atomic::AtomicU64>>,
    locked_since: Mutex<BTreeMap<GuestId, Instant>>,
    queue_depth: Gauge,
    unknown_ops: Gauge,
    journal_seq: Gauge,
    last_success: Gauge,
    resident_bytes: Gauge,
    cpu_seconds: Counter<f64, std::sync::atomic::AtomicU64>,
}

/// How a pass ended, as a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reconciled {
    /// Nothing failed.
    Succeeded,
    /// Something declared was not done.
    Incomplete,
    /// The node could not be read.
    Failed,
}

impl Metrics {
    pub(super) fn new(version: &str) -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            reconciles: Family::default(),
            reconcile_seconds: Histogram::new(PASS_SECONDS),
            ops: Family::default(),
            requests: Family::default(),
            guest_in_sync: Family::default(),
            held: Family::default(),
            lock_wait_seconds: Family::default(),
            locked_since: Mutex::default(),
            queue_depth: Gauge::default(),
            unknown_ops: Gauge::default(),
            journal_seq: Gauge::default(),
            last_success: Gauge::default(),
            resident_bytes: Gauge::default(),
            cpu_seconds: Counter::default(),
        };
        metrics.register(version);
        metrics
    }

    fn register(&mut self, version: &str) {
        let info = Info::new([("version", version.to_owned())]);
        let registry = &mut self.registry;
        registry.register("evenkeel_build", "The running version", info);
        let passes = "Passes, by how they ended: succeeded, incomplete or failed";
        registry.register("evenkeel_reconcile", passes, self.reconciles.clone());
        registry.register_with_unit(
            "evenkeel_reconcile_duration",
            "How long a pass took to read the node, plan and hand out its actions",
            Unit::Seconds,
            self.reconcile_seconds.clone(),
        );
        let ops = "Actions that ended, by what they do and how they ended";
        registry.register("evenkeel_ops", ops, self.ops.clone());
        let requests = "Requests to Proxmox VE, by status code, or not_sent, or unknown";
        registry.register("evenkeel_pve_requests", requests, self.requests.clone());
        let in_sync = "1 if a declared guest is as declared, else 0";
        registry.register("evenkeel_guest_in_sync", in_sync, self.guest_in_sync.clone());
        let held = "Things that wait, by reason";
        registry.register("evenkeel_held", held, self.held.clone());
        registry.register_with_unit(
            "evenkeel_lock_wait",
            "How long a guest that must be changed has been locked by Proxmox VE",
            Unit::Seconds,
            self.lock_wait_seconds.clone(),
        );
        let depth = "Actions handed to lanes and not ended";
        registry.register("evenkeel_queue_depth", depth, self.queue_depth.clone());
        let unknown = "Operations whose outcome is not known";
        registry.register("evenkeel_unknown_ops", unknown, self.unknown_ops.clone());
        let seq = "The newest record of the journal";
        registry.register("evenkeel_journal_seq", seq, self.journal_seq.clone());
        registry.register(
            "evenkeel_last_success_timestamp_seconds",
            "When a pass last read the node and nothing it did failed",
            self.last_success.clone(),
        );
        registry.register_with_unit(
            "process_resident_memory",
            "Resident memory",
            Unit::Bytes,
            self.resident_bytes.clone(),
        );
        registry.register_with_unit(
            "process_cpu",
            "Processor time, user and system",
            Unit::Seconds,
            self.cpu_seconds.clone(),
        );
    }

    /// A pass ended.
    pub(super) fn reconciled(&self, how: Reconciled, at_unix_s: i64) {
        let result = match how {
            Reconciled::Succeeded => "succeeded",
            Reconciled::Incomplete => "incomplete",
            Reconciled::Failed => "failed",
        };
        self.reconciles.get_or_create(&[("result", result.to_owned())]).inc();
        if how == Reconciled::Succeeded {
            self.last_success.set(at_unix_s);
        }
    }

    /// A pass read the node and planned.
    pub(super) fn planned(&self, plan: &Plan, took: Duration) {
        self.reconcile_seconds.observe(took.as_secs_f64());
        let locked = plan.guests.iter().filter(|guest| {
            let locked = |held: &Held| matches!(held, Held::Locked { .. });
            guest.actions.iter().any(|action| action.held.as_ref().is_some_and(locked))
        });
        let mut since = self.locked_since.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut *since);
        let now = Instant::now();
        *since = locked
            .map(|guest| (guest.guest, before.get(&guest.guest).copied().unwrap_or(now)))
            .collect();
    }

    /// An operation ended.
    pub(super) fn op(&self, report: &OpReport) {
        self.op_ended(report.kind.as_str(), report.end.as_str());
    }

    /// An operation ended, in words.
    pub(super) fn op_ended(&self, kind: &str, result: &str) {
        let labels = [("kind", kind.to_owned()), ("result", result.to_owned())];
        self.ops.get_or_create(&labels).inc();
    }

    /// The guests as the shared status has them, and how many operations are in doubt.
    pub(super) fn guests(
        &self,
        declared: impl Iterator<Item = GuestId>,
        agent: &AgentStatus,
        unknown_ops: usize,
    ) {
        self.guest_in_sync.clear();
        self.held.clear();
        let differs: BTreeSet<GuestId> = agent.guests.iter().map(|guest| guest.guest).collect();
        for guest in declared {
            let labels = [("guest", guest.to_string())];
            let in_sync = i64::from(!differs.contains(&guest));
            self.guest_in_sync.get_or_create(&labels).set(in_sync);
        }
        for held in agent.guests.iter().flat_map(|guest| &guest.held) {
            self.held.get_or_create(&[("reason", held.code.to_string())]).inc();
        }
        self.queue_depth.set(i64::try_from(agent.queue_depth).unwrap_or(i64::MAX));
        self.unknown_ops.set(i64::try_from(unknown_ops).unwrap_or(i64::MAX));
    }

    /// Everything as text.
    pub(super) fn render(&self, journal_seq: u64) -> String {
        self.journal_seq.set(i64::try_from(journal_seq).unwrap_or(i64::MAX));
        self.lock_wait_seconds.clear();
        let since = self.locked_since.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (guest, since) in since {
            let labels = [("guest", guest.to_string())];
            self.lock_wait_seconds.get_or_create(&labels).set(since.elapsed().as_secs_f64());
        }
        self.resident_bytes.set(resident_bytes().unwrap_or(0));
        let cpu = cpu_seconds() - self.cpu_seconds.get();
        self.cpu_seconds.inc_by(cpu.max(0.0));
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("a string takes every text");
        text
    }
}

fn resident_bytes() -> Option<i64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<i64>().ok().map(|kibibytes| kibibytes * 1_024)
}

fn cpu_seconds() -> f64 {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let seconds = u64::try_from(used.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(used.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanos).as_secs_f64()
}

/// An exchange whose outcomes are counted.
pub(super) struct Counted {
    inner: Arc<dyn Exchange>,
    metrics: Arc<Metrics>,
}

impl Counted {
    pub(super) fn new(inner: Arc<dyn Exchange>, metrics: Arc<Metrics>) -> Self {
        Self { inner, metrics }
    }
}

impl Exchange for Counted {
    fn exchange(&self, request: HttpRequest) -> ExchangeFuture<'_> {
        Box::pin(async move {
            let outcome = self.inner.exchange(request).await;
            let code = match &outcome {
                ExchangeOutcome::Answered(answer) => answer.status.to_string(),
                ExchangeOutcome::NotSent(_) => "not_sent".to_owned(),
                ExchangeOutcome::Unknown(_) => "unknown".to_owned(),
            };
            self.metrics.requests.get_or_create(&[("code", code)]).inc();
            outcome
        })
    }
}
