//! Counts for Prometheus. No label names a host, an account or an address: whoever reads them learns how much, not who.

use std::time::Instant;

use axum::http::StatusCode;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::problem::{Problem, ProblemCode};

/// Answers are counted by these.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnswerLabels {
    route: &'static str,
    status: u16,
}

/// Everything that is counted.
pub(crate) struct HubMetrics {
    registry: Registry,
    answers: Family<AnswerLabels, Counter>,
    seconds: Histogram,
    under_way: Gauge,
    hosts: Gauge,
    /// Long polls that wait.
    pub(crate) polls: Gauge,
    /// Open connections.
    pub(crate) connections: Gauge,
    /// Connections that were turned away.
    pub(crate) turned_away: Counter,
    /// Reports that were taken in.
    pub(crate) reports: Counter,
}

impl Default for HubMetrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("evenkeel_hub"),
            answers: Family::default(),
            seconds: Histogram::new([0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0]),
            under_way: Gauge::default(),
            hosts: Gauge::default(),
            polls: Gauge::default(),
            connections: Gauge::default(),
            turned_away: Counter::default(),
            reports: Counter::default(),
        };
        let Self {
            registry,
            answers,
            seconds,
            under_way,
            hosts,
            polls,
            connections,
            turned_away,
            reports,
        } = &mut metrics;
        registry.register("answers", "Answers, by route and status", answers.clone());
        registry.register(
            "answer_seconds",
            "How long answers took, long polls included",
            seconds.clone(),
        );
        registry.register(
            "requests_under_way",
            "Requests that are being answered",
            under_way.clone(),
        );
        registry.register("hosts", "Enrolled hosts", hosts.clone());
        registry.register("polls_waiting", "Hosts that wait for news", polls.clone());
        registry.register("connections", "Open connections", connections.clone());
        registry.register(
            "connections_turned_away",
            "Connections over a limit",
            turned_away.clone(),
        );
        registry.register("reports", "Reports that were kept", reports.clone());
        metrics
    }
}

impl HubMetrics {
    /// The text Prometheus reads.
    pub(crate) fn text(&self, hosts: i64) -> Result<String, Problem> {
        self.hosts.set(hosts);
        let mut text = String::new();
        encode(&mut text, &self.registry)
            .map_err(|_| Problem::new(ProblemCode::Internal, "the metrics cannot be written"))?;
        Ok(text)
    }

    /// A request came.
    pub(crate) fn request_began(&self) -> BegunRequest {
        BegunRequest {
            began: Instant::now(),
            answers: self.answers.clone(),
            seconds: self.seconds.clone(),
            _counted: Self::count(&self.under_way),
        }
    }

    /// Counts something in for as long as the answer lives.
    pub(crate) fn count(gauge: &Gauge) -> GaugeGuard {
        gauge.inc();
        GaugeGuard(gauge.clone())
    }
}

/// A request that is being answered; one that is dropped was given up by its client.
pub(crate) struct BegunRequest {
    began: Instant,
    answers: Family<AnswerLabels, Counter>,
    seconds: Histogram,
    _counted: GaugeGuard,
}

impl BegunRequest {
    pub(crate) fn ended(self, route: &'static str, status: StatusCode) {
        self.answers.get_or_create(&AnswerLabels { route, status: status.as_u16() }).inc();
        self.seconds.observe(self.began.elapsed().as_secs_f64());
    }
}

/// One more while it lives.
pub(crate) struct GaugeGuard(Gauge);

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}
