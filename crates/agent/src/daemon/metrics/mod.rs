//! The numbers of a running agent, in Prometheus' words.
//!
//! The loop, the listener of operations and the counted exchange write them; `scrape` renders them when somebody
//! asks. Labels come from closed lists or from declared guests, so that there is never an endless number of series.
//! What has a closed list begins at 0 for each of its words: a rate over a series that appears with its first event
//! would miss that event. Pages and dashboards name these metrics; a name never changes its meaning.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::model::id::GuestId;
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_core::plan::{Held, Plan};
use evenkeel_core::sign::TrustVersion;
use jiff::Timestamp;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use tokio::time::Instant;

use super::status::{AgentStatus, GuestStatus, HubStatus};
use crate::engine::{OpOutcome, OpReport};
use crate::pve::exchange::{Exchange, ExchangeFuture, ExchangeOutcome, HttpRequest};

type One = [(&'static str, String); 1];
type Two = [(&'static str, String); 2];

/// From a node of five guests to one of ten thousand.
const PASS_SECONDS: [f64; 11] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0, 600.0];

/// What stands for the status code of a request that never left, or whose answer never came.
const NOT_SENT: &str = "not_sent";
const UNKNOWN: &str = "unknown";

/// All of them.
pub(super) struct Metrics {
    registry: Registry,
    reconciles: Family<One, Counter>,
    reconcile_seconds: Histogram,
    ops: Family<Two, Counter>,
    requests: Family<One, Counter>,
    guest_in_sync: Family<One, Gauge>,
    guests_by_state: Family<One, Gauge>,
    held: Family<One, Gauge>,
    pending: Family<One, Gauge>,
    desired_valid: Gauge,
    desired_guests: Gauge,
    desired_last_good: Gauge,
    hub_generation: Gauge,
    hub_heard: Gauge,
    hub_word: Gauge,
    configuration_valid: Gauge,
    frozen: Gauge,
    trust_version: Gauge,
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
            guests_by_state: Family::default(),
            held: Family::default(),
            pending: Family::default(),
            desired_valid: Gauge::default(),
            desired_guests: Gauge::default(),
            desired_last_good: Gauge::default(),
            hub_generation: Gauge::default(),
            hub_heard: Gauge::default(),
            hub_word: Gauge::default(),
            configuration_valid: Gauge::default(),
            frozen: Gauge::default(),
            trust_version: Gauge::default(),
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
        metrics.register_state();
        metrics.begin_at_zero();
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
        let states = "Declared guests by state: in_sync, drift, held, after_restart or problem";
        registry.register("evenkeel_guests", states, self.guests_by_state.clone());
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
            "When a pass last read the node, nothing it did failed and the desired files were valid",
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

    /// What is said about the host and its files, beside its guests.
    fn register_state(&mut self) {
        let registry = &mut self.registry;
        let pending = "Items that wait for a signature, by what they would do";
        registry.register("evenkeel_pending", pending, self.pending.clone());
        let valid = "1 if the desired files can be used, 0 while they are broken and the last good ones hold";
        registry.register("evenkeel_desired_valid", valid, self.desired_valid.clone());
        let declared = "Guests that are declared by the desired state that holds";
        registry.register("evenkeel_desired_guests", declared, self.desired_guests.clone());
        registry.register(
            "evenkeel_desired_last_good_timestamp_seconds",
            "When the desired files were last read without a mistake; 0 if never",
            self.desired_last_good.clone(),
        );
        registry.register(
            "evenkeel_hub_generation",
            "The hub's document in effect; 0 without a hub, or before the first",
            self.hub_generation.clone(),
        );
        registry.register(
            "evenkeel_hub_last_heard_timestamp_seconds",
            "When the hub last answered; 0 if it never did since the agent started",
            self.hub_heard.clone(),
        );
        registry.register(
            "evenkeel_hub_author_word_timestamp_seconds",
            "When the last document was signed that this host took with an author's signature; 0 if it never took one",
            self.hub_word.clone(),
        );
        let valid = "1 if the configuration file can be used, 0 while the one before holds";
        registry.register("evenkeel_configuration_valid", valid, self.configuration_valid.clone());
        let frozen = "1 while an operator has frozen this host, else 0";
        registry.register("evenkeel_frozen", frozen, self.frozen.clone());
        let version = "The version of the list of signers; 0 if nobody may sign";
        registry.register("evenkeel_trust_version", version, self.trust_version.clone());
    }

    /// Every series of a closed list is there from the beginning.
    fn begin_at_zero(&self) {
        for how in Reconciled::ALL {
            let _ = self.reconciles.get_or_create(&[("result", how.as_str().to_owned())]);
        }
        for kind in ActionKind::ALL {
            for result in OpOutcome::WORDS {
                let labels = [("kind", kind.as_str().to_owned()), ("result", result.to_owned())];
                let _ = self.ops.get_or_create(&labels);
            }
        }
        for code in ["200", NOT_SENT, UNKNOWN] {
            let _ = self.requests.get_or_create(&[("code", code.to_owned())]);
        }
        self.no_guests();
        self.pending_items(&BTreeMap::new());
        self.desired_valid.set(1);
        self.configuration_valid.set(1);
    }

    fn no_guests(&self) {
        for state in GuestCondition::ALL {
            self.guests_by_state.get_or_create(&[("state", state.as_str().to_owned())]).set(0);
        }
        for reason in ReasonCode::ALL {
            self.held.get_or_create(&[("reason", reason.to_string())]).set(0);
        }
    }

    fn pending_items(&self, items: &BTreeMap<ActionKind, usize>) {
        for kind in ActionKind::ALL {
            let count = items.get(&kind).copied().unwrap_or(0);
            self.pending.get_or_create(&[("op", kind.as_str().to_owned())]).set(whole(count));
        }
    }

    /// How the hub stands.
    pub(super) fn hub(&self, hub: &HubStatus) {
        self.hub_generation.set(i64::try_from(hub.generation).unwrap_or(i64::MAX));
        self.hub_heard.set(hub.heard.map_or(0, Timestamp::as_second));
        self.hub_word.set(hub.author_word.as_ref().map_or(0, |word| word.signed_at.as_second()));
    }

    /// The desired files were read.
    pub(super) fn desired(&self, valid: bool, guests: usize, last_good: Option<Timestamp>) {
        self.desired_valid.set(i64::from(valid));
        self.desired_guests.set(whole(guests));
        self.desired_last_good.set(last_good.map_or(0, Timestamp::as_second));
    }

    /// The configuration file was read.
    pub(super) fn configuration(&self, valid: bool) {
        self.configuration_valid.set(i64::from(valid));
    }

    /// Who may sign now.
    pub(super) fn trust(&self, version: Option<TrustVersion>) {
        let version = version.map_or(0, |version| version.0);
        self.trust_version.set(i64::try_from(version).unwrap_or(i64::MAX));
    }

    /// A pass ended.
    pub(super) fn reconciled(&self, how: Reconciled, at_unix_s: i64) {
        self.reconciles.get_or_create(&[("result", how.as_str().to_owned())]).inc();
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
        self.no_guests();
        let differs: BTreeMap<GuestId, &GuestStatus> =
            agent.guests.iter().map(|guest| (guest.guest, guest)).collect();
        for guest in declared {
            let labels = [("guest", guest.to_string())];
            let state = GuestCondition::of(differs.get(&guest).copied());
            let in_sync = i64::from(state == GuestCondition::InSync);
            self.guest_in_sync.get_or_create(&labels).set(in_sync);
            self.guests_by_state.get_or_create(&[("state", state.as_str().to_owned())]).inc();
        }
        for held in agent.guests.iter().flat_map(|guest| &guest.held) {
            self.held.get_or_create(&[("reason", held.code.to_string())]).inc();
        }
        self.queue_depth.set(whole(agent.queue_depth));
        self.unknown_ops.set(whole(unknown_ops));
    }

    /// Everything as text.
    pub(super) fn render(&self, now: &ScrapedState) -> String {
        self.journal_seq.set(i64::try_from(now.journal_seq).unwrap_or(i64::MAX));
        self.frozen.set(i64::from(now.frozen));
        self.pending_items(&now.pending);
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

impl Reconciled {
    const ALL: [Self; 3] = [Self::Succeeded, Self::Incomplete, Self::Failed];

    fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Incomplete => "incomplete",
            Self::Failed => "failed",
        }
    }
}

/// How a declared guest stands, as a label: the first that holds, from the bottom of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GuestCondition {
    InSync,
    AfterRestart,
    Held,
    Drift,
    Problem,
}

impl GuestCondition {
    const ALL: [Self; 5] =
        [Self::InSync, Self::AfterRestart, Self::Held, Self::Drift, Self::Problem];

    /// None stands for a guest that needs nothing.
    fn of(status: Option<&GuestStatus>) -> Self {
        let Some(GuestStatus { guest: _, drift, held, after_restart, problems }) = status else {
            return Self::InSync;
        };
        if !problems.is_empty() {
            Self::Problem
        } else if !drift.is_empty() {
            Self::Drift
        } else if !held.is_empty() {
            Self::Held
        } else if !after_restart.is_empty() {
            Self::AfterRestart
        } else {
            Self::InSync
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::InSync => "in_sync",
            Self::AfterRestart => "after_restart",
            Self::Held => "held",
            Self::Drift => "drift",
            Self::Problem => "problem",
        }
    }
}

/// What is looked up when somebody asks, because the loop does not own it.
#[derive(Debug, Default)]
pub(super) struct ScrapedState {
    /// The newest record of the journal.
    pub(super) journal_seq: u64,
    /// Whether an operator has frozen this host.
    pub(super) frozen: bool,
    /// Items that wait for a signature.
    pub(super) pending: BTreeMap<ActionKind, usize>,
}

fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
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
                ExchangeOutcome::NotSent(_) => NOT_SENT.to_owned(),
                ExchangeOutcome::Unknown(_) => UNKNOWN.to_owned(),
            };
            self.metrics.requests.get_or_create(&[("code", code)]).inc();
            outcome
        })
    }
}
