//! What machines ask about the hub itself: is it there, can it serve, how does it stand.

use axum::body::Body;
use axum::http::{HeaderValue, Method, header};
use axum::response::Response;

use crate::access::Access;
use crate::call::Call;
use crate::problem::{Problem, ProblemCode};
use crate::routes::{Answer, Hub, NO_BODY, RouteRow};
use crate::secret_text::SecretHash;

/// The rows of this file.
pub(crate) fn rows() -> Vec<RouteRow> {
    vec![
        RouteRow::new(
            (Method::GET, "/healthz"),
            Access::Anyone,
            NO_BODY,
            "whether the process answers",
            healthz,
        ),
        RouteRow::new(
            (Method::GET, "/readyz"),
            Access::Anyone,
            NO_BODY,
            "whether it can serve",
            readyz,
        ),
        RouteRow::new(
            (Method::GET, "/metrics"),
            Access::Anyone,
            NO_BODY,
            "counts, of no single host; on the hub's own machine, or with its token",
            metrics,
        ),
    ]
}

async fn healthz(_hub: Hub, _call: Call) -> Answer {
    Ok(Response::new(Body::from("ok\n")))
}

async fn readyz(hub: Hub, _call: Call) -> Answer {
    if hub.is_stopping() {
        return Err(Problem::new(ProblemCode::Unavailable, "the hub is ending"));
    }
    hub.store().answers().await?;
    Ok(Response::new(Body::from("ok\n")))
}

/// Counts tell how much and never who, and yet not to everybody: with the token that root gave, or else on this machine alone.
fn may_read_metrics(hub: &Hub, call: &Call) -> bool {
    let Some(token) = hub.metrics_token() else { return call.is_local };
    let shown = call.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let shown = shown.and_then(|value| value.strip_prefix("Bearer "));
    shown.is_some_and(|shown| SecretHash::of(shown) == *token)
}

async fn metrics(hub: Hub, call: Call) -> Answer {
    if !may_read_metrics(&hub, &call) {
        return Err(Problem::unauthorised().hint(
            "metrics are read on the hub's own machine, or with the token of --metrics-token-file",
        ));
    }
    let hosts = hub.store().host_count().await?;
    let text = hub.metrics().text(hosts)?;
    let mut response = Response::new(Body::from(text));
    let kind =
        HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}
