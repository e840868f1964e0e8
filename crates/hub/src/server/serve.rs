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
use super::addresses::{AddressPlaces, TrustedProxies};
use super::certificate::CertificateStore;
use super::limits::ServeLimits;
use super::stall_guard::StallGuard;
use crate::metrics::HubMetrics;
use crate::routes::{self, Hub};

/// Headers of one request.
const HEADERS_MAX: usize = 64;
/// Bytes of one request's headers, and of hyper's read buffer.
const HEADER_BYTES_MAX: usize = 16 * 1024;
/// How long requests under way are given when the hub ends.
const STOP_TIME_MAX: Duration = Duration::from_secs(10);
/// The pause after the system refused a connection, such as for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts until the hub ends, then waits for what was begun.
pub(super) async fn accept(
    listener: TcpListener,
    tls: Option<CertificateStore>,
    hub: Hub,
    (limits, proxies): (ServeLimits, TrustedProxies),
) {
    let router = routes::router(&hub);
    let places = Arc::new(Semaphore::new(limits.connections));
    let addresses = AddressPlaces::new(limits, proxies);
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
        let (Ok(place), Some(stranger)) =
            (places.clone().try_acquire_owned(), addresses.enter(from.ip()))
        else {
            hub.metrics().turned_away.inc();
            continue;
        };
        let mark = ConnectionMark::stranger(stranger, addresses.clone(), from);
        let tls = tls.clone();
        let hub = hub.clone();
        let router = router.clone();
        connections.spawn(async move {
            let _place = place;
            let _counted = HubMetrics::count(&hub.metrics().connections);
            let served = ServedConnection { hub, router, mark, limits };
            served.run(stream, tls).await;
        });
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(STOP_TIME_MAX, ended).await.is_err() {
        tracing::warn!("requests under way were cut off at the end");
    }
}

/// What one connection needs.
struct ServedConnection {
    hub: Hub,
    router: axum::Router,
    mark: ConnectionMark,
    limits: ServeLimits,
}

impl ServedConnection {
    async fn run(self, stream: TcpStream, tls: Option<CertificateStore>) {
        // Answers are whole when they are written: waiting for more would only delay them.
        let _ = stream.set_nodelay(true);
        let stream = StallGuard::new(stream, self.limits.stall_time);
        match tls {
            None => self.speak(stream).await,
            Some(store) => {
                let handshake = store.acceptor().accept(stream);
                let shaken = tokio::time::timeout(self.limits.handshake_time, handshake).await;
                if let Ok(Ok(stream)) = shaken {
                    self.speak(stream).await;
                }
            }
        }
    }

    async fn speak<S>(self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { hub, router, mark, limits } = self;
        let service =
            router.map_request(move |mut request: hyper::Request<hyper::body::Incoming>| {
                request.extensions_mut().insert(mark.clone());
                request.map(axum::body::Body::new)
            });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.headers_time)
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
}
