//! What hosts ask: enrol, poll, fetch a document, report, and where their journal was last seen.
//!
//! Every request is idempotent, because answers get lost. The hub judges form and signature; what a document or an envelope
//! is worth only the host judges.

mod enrol;
mod fetch;
mod poll;
mod report;

use std::str::FromStr;

use axum::http::Method;
use evenkeel_core::fleet::SealedText;

use crate::access::Access;
use crate::problem::{Problem, ProblemCode};
use crate::routes::{AGENT_BODY_BYTES_MAX, NO_BODY, RouteRow};

/// A name as it was kept, which was one when it was taken in.
fn kept_name<T: FromStr>(text: &str) -> Result<T, Problem> {
    text.parse().map_err(|_| Problem::new(ProblemCode::Internal, "a kept name cannot be read"))
}

/// A sealed value as it was handed in.
fn kept_sealed(text: &str) -> Result<SealedText, Problem> {
    serde_json::from_str(text).map_err(|_| {
        Problem::new(ProblemCode::Internal, "a kept envelope, document or head cannot be read")
    })
}

/// The rows of hosts.
pub(crate) fn rows() -> Vec<RouteRow> {
    vec![
        RouteRow::new(
            (Method::POST, "/v1/agent/enrol"),
            Access::Anyone,
            enrol::ENROL_BODY_BYTES_MAX,
            "takes a host in that shows a token",
            enrol::enrol,
        ),
        RouteRow::new(
            (Method::POST, "/v1/agent/reports"),
            Access::Host,
            AGENT_BODY_BYTES_MAX,
            "keeps what a host signed of itself",
            report::report,
        ),
        RouteRow::new(
            (Method::GET, "/v1/agent/poll"),
            Access::Host,
            NO_BODY,
            "waits for a newer generation or an envelope",
            poll::poll,
        )
        .within(poll::POLL_TIME_MAX)
        .waits(),
        RouteRow::new(
            (Method::GET, "/v1/agent/documents/{generation}"),
            Access::Host,
            NO_BODY,
            "a desired document, whole",
            fetch::document,
        ),
        RouteRow::new(
            (Method::GET, "/v1/agent/anchor"),
            Access::Host,
            NO_BODY,
            "the newest head of the host's journal",
            fetch::anchor,
        ),
    ]
}
