//! Serves the metrics over HTTP, on loopback, to anybody on this machine.
//!
//! One path, read only. Connections are few and short: whoever is slow is cut off, and nothing here touches the loop.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::metrics::Metrics;
use crate::journal::JournalHandle;

/// How many may ask at a time: a Prometheus, its twin, and somebody with curl.
const CONNECTIONS_MAX: usize = 8;

/// How long a connection may last. Prometheus itself gives up after ten seconds.
const CONNECTION_MAX: Duration = Duration::from_secs(10);

/// What Prometheus takes for the text that is rendered.
const FORMAT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves until dropped.
pub(super) async fn serve(listener: TcpListener, metrics: Arc<Metrics>, journal: JournalHandle) {
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
        let (metrics, journal) = (Arc::clone(&metrics), journal.clone());
        connections.spawn(async move {
            let service =
                service_fn(|request| answer(request, Arc::clone(&metrics), journal.clone()));
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
    metrics: Arc<Metrics>,
    journal: JournalHandle,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let known = request.uri().path() == "/metrics";
    let (status, kind, text) = match (request.method(), known) {
        (&Method::GET | &Method::HEAD, true) => {
            let seq = journal.read(|_, head| head.seq.0).await.unwrap_or(0);
            (StatusCode::OK, FORMAT, metrics.render(seq))
        }
        (_, true) => (StatusCode::METHOD_NOT_ALLOWED, "text/plain", "GET only\n".to_owned()),
        (_, false) => (StatusCode::NOT_FOUND, "text/plain", "known here: /metrics\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
    Ok(response)
}
