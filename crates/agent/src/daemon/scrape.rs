//! Serves the metrics over HTTP: on loopback to anybody on this machine, elsewhere to those who show the token.
//!
//! One path, read only. Connections are few and short: whoever is slow is cut off, and nothing here touches the loop.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::bearer::BearerToken;
use super::metrics::Metrics;
use super::shared_status::SharedStatus;

/// How many may ask at a time: a Prometheus, its twin, and somebody with curl.
const CONNECTIONS_MAX: usize = 8;

/// How long a connection may last. Prometheus itself gives up after ten seconds.
const CONNECTION_MAX: Duration = Duration::from_secs(10);

/// What a person reads.
const PLAIN: &str = "text/plain";

/// What Prometheus takes for the text that is rendered.
const FORMAT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What is served, and to whom.
#[derive(Clone)]
pub(super) struct ScrapeService {
    pub(super) metrics: Arc<Metrics>,
    pub(super) shared_status: SharedStatus,
    /// What must be shown; none if everybody may read.
    pub(super) token: Option<BearerToken>,
}

/// Serves until dropped.
pub(super) async fn serve(listener: TcpListener, served: ScrapeService) {
    let mut connections = JoinSet::new();
    loop {
        while connections.len() >= CONNECTIONS_MAX {
            connections.join_next().await;
        }
        let Ok((stream, _)) = listener.accept().await else {
            // Out of file descriptors: the next one may find some.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let served = served.clone();
        connections.spawn(async move {
            let service = service_fn(|request| answer(request, served.clone()));
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), service);
            // A client that went away, or was too slow, is its own trouble.
            let _ = tokio::time::timeout(CONNECTION_MAX, connection).await;
        });
        // Those that have ended are forgotten.
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(
    request: Request<hyper::body::Incoming>,
    served: ScrapeService,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let shown = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes);
    let welcome = served.token.is_none_or(|token| token.is_shown_by(shown));
    let known = request.uri().path() == "/metrics";
    let (status, kind, text) = match (request.method(), known) {
        // Nobody without the token learns what there is.
        _ if !welcome => (StatusCode::UNAUTHORIZED, PLAIN, "a bearer token is needed\n".to_owned()),
        (&Method::GET | &Method::HEAD, true) => {
            let now = served.shared_status.scraped().await;
            (StatusCode::OK, FORMAT, served.metrics.render(&now))
        }
        (_, true) => (StatusCode::METHOD_NOT_ALLOWED, PLAIN, "GET only\n".to_owned()),
        (_, false) => (StatusCode::NOT_FOUND, PLAIN, "known here: /metrics\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    if status == StatusCode::UNAUTHORIZED {
        let challenge = HeaderValue::from_static("Bearer realm=\"evenkeel\"");
        response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    }
    Ok(response)
}
