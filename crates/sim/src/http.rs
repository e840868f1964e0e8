//! The HTTP front: HTTP/1.1 with PVE's reason phrases, connection limits and TLS, on real time.
//!
//! The CLI and tests over sockets start it. It never decides anything about an answer: it carries
//! requests to [`InProcess`] and writes back what comes.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::ext::ReasonPhrase;
use hyper::header::{
    CONNECTION, CONTENT_DISPOSITION, CONTENT_TYPE, DATE, HeaderValue, LOCATION, SERVER,
};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::HandshakeKind;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::engine::{SimOutcome, Simulator};
use crate::in_process::InProcess;
use crate::reply::{Reply, ReplyBody};
use crate::request::SimRequest;
use crate::tls::{Certificate, SimCertificateError};

/// PVE closes a connection after so many requests.
const REQUESTS_PER_CONNECTION: u32 = 100;
/// PVE closes an idle connection after this.
const IDLE: Duration = Duration::from_secs(5);
/// More than PVE's own limit is read, so that its refusal can be answered; beyond it the socket breaks.
const READ_LIMIT: usize = 4 << 20;
/// The first byte of a TLS handshake; anything else is plain HTTP on the wrong port.
const TLS_HANDSHAKE: u8 = 0x16;

/// How to listen.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// Where; port 0 takes a free one.
    pub address: SocketAddr,
    /// Whether to speak TLS.
    pub tls: bool,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self { address: SocketAddr::from(([127, 0, 0, 1], 0)), tls: true }
    }
}

/// Why the front could not start.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The address can be reached from other machines, and the tokens are public.
    #[error("the simulator listens on loopback only, and {address} is not")]
    NotLoopback {
        /// Which.
        address: SocketAddr,
    },
    /// The address.
    #[error("cannot listen on {address}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The certificate.
    #[error("cannot prepare TLS")]
    Certificate(#[from] SimCertificateError),
}

/// A running front; dropping it closes every connection.
#[derive(Debug)]
pub struct Http {
    /// Where it listens.
    pub address: SocketAddr,
    /// The node behind it.
    pub node: InProcess,
    shown: Arc<Shown>,
    task: tokio::task::JoinHandle<()>,
}

/// What new connections are shown; replaced when the certificate is renewed.
#[derive(Debug)]
struct Shown {
    tls: bool,
    certificate: Mutex<(u64, Certificate)>,
    /// Handshakes from the beginning, and such that went on from an earlier one.
    handshakes: [AtomicU32; 2],
}

impl Http {
    /// Listens and serves until dropped. Must be called inside a tokio runtime.
    pub async fn start(sim: Simulator, options: HttpOptions) -> Result<Self, HttpError> {
        if !options.address.ip().is_loopback() {
            return Err(HttpError::NotLoopback { address: options.address });
        }
        let certificate = Certificate::make(&sim.world.node)?;
        let listen = |source| HttpError::Listen { address: options.address, source };
        let listener = TcpListener::bind(options.address).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let node = InProcess::new(sim);
        let shown = Arc::new(Shown {
            tls: options.tls,
            certificate: Mutex::new((0, certificate)),
            handshakes: <[AtomicU32; 2]>::default(),
        });
        let task = tokio::spawn(accept(listener, node.clone(), Arc::clone(&shown)));
        Ok(Self { address, node, shown, task })
    }

    /// The base of all URLs.
    pub fn url(&self) -> String {
        let scheme = if self.shown.tls { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// How many TLS handshakes there were from the beginning, and how many went on from an earlier one.
    pub fn handshakes(&self) -> [u32; 2] {
        self.shown.handshakes.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// The certificate new connections are shown.
    pub fn certificate(&self) -> Certificate {
        self.shown.current(&self.node)
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shown {
    fn current(&self, node: &InProcess) -> Certificate {
        let (wanted, name) = node.with(|sim| (sim.certificate, sim.world.node.clone()));
        let mut certificate = self.certificate.lock().unwrap_or_else(PoisonError::into_inner);
        if certificate.0 != wanted
            && let Ok(made) = Certificate::make(&name)
        {
            *certificate = (wanted, made);
        }
        certificate.1.clone()
    }
}

async fn accept(listener: TcpListener, node: InProcess, shown: Arc<Shown>) {
    // Connections live in this set, so that none outlives the front.
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok((stream, peer)) = listener.accept().await else { continue };
        connections.spawn(connection(stream, peer, node.clone(), Arc::clone(&shown)));
    }
}

async fn connection(stream: TcpStream, peer: SocketAddr, node: InProcess, shown: Arc<Shown>) {
    if !shown.tls {
        return serve(stream, peer, node, ListenerKind::Api).await;
    }
    let mut first = [0_u8; 1];
    match stream.peek(&mut first).await {
        Ok(1) if first[0] == TLS_HANDSHAKE => {
            let acceptor = tokio_rustls::TlsAcceptor::from(shown.current(&node).config);
            if let Ok(stream) = acceptor.accept(stream).await {
                let resumed = stream.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed);
                shown.handshakes[usize::from(resumed)].fetch_add(1, Ordering::Relaxed);
                serve(stream, peer, node, ListenerKind::Api).await;
            }
        }
        Ok(_) => serve(stream, peer, node, ListenerKind::Redirect).await,
        Err(_) => {}
    }
}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListenerKind {
    Api,
    /// Plain HTTP on the TLS port: told where to go.
    Redirect,
}

async fn serve<S>(stream: S, peer: SocketAddr, node: InProcess, kind: ListenerKind)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let served = AtomicU32::new(0);
    let restarts = node.with(|sim| sim.restarts);
    let service = service_fn(|request: hyper::Request<Incoming>| {
        let count = served.fetch_add(1, Ordering::Relaxed) + 1;
        let node = node.clone();
        async move {
            if kind == ListenerKind::Redirect {
                return Ok(redirect(&request));
            }
            let Some(request) = collect(request, peer).await else { return Err(Broken) };
            let outcome = node.send(request).await;
            if node.with(|sim| sim.restarts) != restarts {
                return Err(Broken);
            }
            match outcome {
                SimOutcome::Reply(reply) => {
                    let mut response = response(reply, count);
                    let unix = node.with(|sim| sim.unix_s());
                    response.headers_mut().insert(DATE, date(unix));
                    Ok(response)
                }
                SimOutcome::Dropped | SimOutcome::Wait { .. } => Err(Broken),
            }
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .keep_alive(true)
        .serve_connection(TokioIo::new(stream), service);
    // An error is a broken connection, which is the client's to notice.
    let _closed: Result<(), hyper::Error> = connection.await;
}

/// The connection breaks without an answer.
#[derive(Debug, thiserror::Error)]
#[error("the simulated server breaks the connection")]
struct Broken;

async fn collect(request: hyper::Request<Incoming>, peer: SocketAddr) -> Option<SimRequest> {
    let (head, body) = request.into_parts();
    let headers = head
        .headers
        .iter()
        .map(|(name, value)| {
            (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        })
        .collect();
    let body = Limited::new(body, READ_LIMIT).collect().await.ok()?.to_bytes().to_vec();
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
    Some(SimRequest {
        method: head.method.to_string(),
        target,
        headers,
        body,
        from_loopback: peer.ip().is_loopback(),
    })
}

fn response(reply: Reply, count: u32) -> hyper::Response<Full<Bytes>> {
    let close = reply.close || reply.status >= 400 || count >= REQUESTS_PER_CONNECTION;
    let (body, content_type, download) = match reply.body {
        ReplyBody::Empty => (Bytes::new(), None, false),
        ReplyBody::Json(value) => {
            (value.to_string().into(), Some("application/json;charset=UTF-8"), false)
        }
        ReplyBody::Text(text) => (text.into(), None, false),
        ReplyBody::Download(text) => (text.into(), Some("text/plain"), true),
    };
    let mut response = hyper::Response::new(Full::new(body));
    *response.status_mut() = hyper::StatusCode::from_u16(reply.status).unwrap_or_default();
    if let Ok(reason) = ReasonPhrase::try_from(reply.reason.into_bytes()) {
        response.extensions_mut().insert(reason);
    }
    let headers = response.headers_mut();
    headers.insert(SERVER, HeaderValue::from_static("pve-api-daemon/3.0"));
    headers
        .insert(CONNECTION, HeaderValue::from_static(if close { "close" } else { "Keep-Alive" }));
    if let Some(content_type) = content_type {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    if download {
        headers.insert(
            CONTENT_DISPOSITION,
            HeaderValue::from_static("attachment; filename=\"task.log\""),
        );
    }
    response
}

/// The simulated clock, so that clients can match tasks with it.
fn date(unix: u64) -> HeaderValue {
    let moment = i64::try_from(unix).ok().and_then(|s| jiff::Timestamp::from_second(s).ok());
    let text = moment.unwrap_or_default().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    HeaderValue::from_str(&text)
        .unwrap_or(HeaderValue::from_static("Thu, 01 Jan 1970 00:00:00 GMT"))
}

fn redirect(request: &hyper::Request<Incoming>) -> hyper::Response<Full<Bytes>> {
    let get = request.method() == hyper::Method::GET;
    let host = request.headers().get(hyper::header::HOST).and_then(|host| host.to_str().ok());
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    let mut response = hyper::Response::new(Full::new(Bytes::from_static(b"Moved Permanently")));
    *response.status_mut() = if get {
        hyper::StatusCode::MOVED_PERMANENTLY
    } else {
        hyper::StatusCode::PERMANENT_REDIRECT
    };
    let location = format!("https://{}{target}", host.unwrap_or("localhost"));
    if let Ok(location) = HeaderValue::from_str(&location) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}
