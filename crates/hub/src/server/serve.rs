//! The loop that accepts, and one connection from its first byte to its last.

use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tower::ServiceExt as _;

use super::ConnectionMark;
use super::certificate::CertificateStore;
use super::stall_guard::StallGuard;
use crate::metrics::HubMetrics;
use crate::routes::{self, Hub};

/// Open connections: twice the hosts the hub is measured with, and room for people. The unit's LimitNOFILE is above it.
const CONNECTIONS_MAX: usize = 16_000;
/// Connections that have shown no credential yet. Strangers can fill this and then only keep other strangers out.
const STRANGERS_MAX: usize = 2_000;
/// How long a TLS handshake may take.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
/// How long a client may take over the headers of a request; also how long it may keep a connection without asking.
const HEADERS_TIME_MAX: Duration = Duration::from_secs(15);
/// How long a client may take no byte of an answer.
const STALL_TIME_MAX: Duration = Duration::from_secs(20);
/// Headers of one request.
const HEADERS_MAX: usize = 64;
/// Bytes of one request's headers, and of hyper's read buffer.
const HEADER_BYTES_MAX: usize = 16 * 1024;
/// How long requests under way are given when the hub ends.
const STOP_TIME_MAX: Duration = Duration::from_secs(10);
/// The pause after the system refused a connection, such as for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts until the hub ends, then waits for what was begun.
pub(super) async fn accept(listener: TcpListener, tls: Option<CertificateStore>, hub: Hub) {
    let router = routes::router(&hub);
    let (places, strangers) =
        (Arc::new(Semaphore::new(CONNECTIONS_MAX)), Arc::new(Semaphore::new(STRANGERS_MAX)));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = hub.stopped() => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
        };
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (Ok(place), Ok(stranger)) =
            (places.clone().try_acquire_owned(), strangers.clone().try_acquire_owned())
        else {
            hub.metrics().turned_away.inc();
            continue;
        };
        let mark = ConnectionMark::stranger(stranger, from);
        let (tls, hub, router) = (tls.clone(), hub.clone(), router.clone());
        connections.spawn(async move {
            let _place = place;
            let _counted = HubMetrics::count(&hub.metrics().connections);
            connection(stream, tls, hub, router, mark).await;
        });
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(STOP_TIME_MAX, ended).await.is_err() {
        tracing::warn!("requests under way were cut off at the end");
    }
}

async fn connection(
    stream: TcpStream,
    tls: Option<CertificateStore>,
    hub: Hub,
    router: axum::Router,
    mark: ConnectionMark,
) {
    // Answers are whole when they are written: waiting for more would only delay them.
    let _ = stream.set_nodelay(true);
    let stream = StallGuard::new(stream, STALL_TIME_MAX);
    match tls {
        None => speak(stream, hub, router, mark).await,
        Some(store) => {
            let handshake = store.acceptor().accept(stream);
            if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE_TIME_MAX, handshake).await {
                speak(stream, hub, router, mark).await;
            }
        }
    }
}

async fn speak<S>(stream: S, hub: Hub, router: axum::Router, mark: ConnectionMark)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = router.map_request(move |mut request: hyper::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(mark.clone());
        request.map(axum::body::Body::new)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_TIME_MAX)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = hub.stopped() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
