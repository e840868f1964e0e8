//! A server of scripted bytes: each connection plays its steps, and everything it read is kept.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::pve::Client;
use crate::pve::http::{HttpExchange, Timeouts};
use crate::pve::tls::TlsTrust;
use crate::pve::token::Token;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// The token every test uses; its secret must appear nowhere.
pub(crate) const SECRET: &str = "c0ffee00-dead-beef-0000-5ec2e75ec2e7";
pub(crate) const TOKEN: &str = "agent@pve!keel=c0ffee00-dead-beef-0000-5ec2e75ec2e7";

/// What a connection does next.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Reads one whole request and writes these bytes.
    Answer(Vec<u8>),
    /// Reads one whole request and closes.
    ReadAndClose,
    /// Closes without reading.
    Close,
    /// Reads one whole request and says nothing until the server ends.
    Hang,
    /// Reads one whole request and begins an answer that comes byte by byte.
    Trickle,
}

/// An answer with a length, kept alive.
pub(crate) fn answer(status_line: &str, body: &str) -> Step {
    let head = format!(
        "HTTP/1.1 {status_line}\r\nDate: Sun, 15 Nov 2026 20:00:00 GMT\r\nContent-Type: \
         application/json;charset=UTF-8\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    Step::Answer([head.as_bytes(), body.as_bytes()].concat())
}

pub(crate) fn version() -> Step {
    answer("200 OK", r#"{"data":{"version":"8.4.21","release":"8.4","repoid":"x"}}"#)
}

/// What the server saw.
#[derive(Debug, Default, Clone)]
pub(crate) struct Seen {
    /// Connections accepted.
    pub(crate) connections: usize,
    /// TLS handshakes that failed.
    pub(crate) failed_handshakes: usize,
    /// Whole requests, with the number of their connection.
    pub(crate) requests: Vec<(usize, String)>,
    /// Bytes read after the handshake, whole requests or not.
    pub(crate) bytes: usize,
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub(crate) async fn plain(script: Vec<Vec<Step>>) -> Self {
        Self::start(script, None).await
    }

    pub(crate) async fn start(script: Vec<Vec<Step>>, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let task = tokio::spawn(accept_all(listener, script, tls, Arc::clone(&seen)));
        Self { address, seen, task }
    }

    pub(crate) fn seen(&self) -> Seen {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn plain_url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn client(&self) -> Client {
        client(&self.plain_url(), &TlsTrust::Platform)
    }
}

pub(crate) fn token() -> Token {
    Token::from_text(&TOKEN.into()).unwrap()
}

/// How long anything that must happen may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// Never reached by a server that answers.
pub(crate) fn timeouts() -> Timeouts {
    Timeouts { connect: PATIENCE, answer: PATIENCE, exchange: PATIENCE }
}

pub(crate) fn client(url: &str, trust: &TlsTrust) -> Client {
    client_with(url, trust, timeouts())
}

pub(crate) fn client_with(url: &str, trust: &TlsTrust, timeouts: Timeouts) -> Client {
    let exchange = HttpExchange::new(url.parse().unwrap(), trust, token(), timeouts).unwrap();
    Client::new(Arc::new(exchange), "pve1".parse().unwrap())
}

async fn accept_all(
    listener: TcpListener,
    script: Vec<Vec<Step>>,
    tls: Option<TlsAcceptor>,
    seen: Arc<Mutex<Seen>>,
) {
    let mut connections = tokio::task::JoinSet::new();
    let mut script = script.into_iter();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let number = {
            let mut seen = seen.lock().unwrap();
            seen.connections += 1;
            seen.connections
        };
        // Beyond the script every connection still reads, so that nothing sent goes unnoticed.
        let steps = script.next().unwrap_or_else(|| vec![Step::ReadAndClose]);
        let tls = tls.clone();
        let seen = Arc::clone(&seen);
        connections.spawn(async move {
            match tls {
                None => play(stream, steps, number, &seen).await,
                Some(tls) => match tls.accept(stream).await {
                    Ok(stream) => play(stream, steps, number, &seen).await,
                    Err(_) => seen.lock().unwrap().failed_handshakes += 1,
                },
            }
        });
    }
}

async fn play<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    steps: Vec<Step>,
    number: usize,
    seen: &Mutex<Seen>,
) {
    for step in steps {
        if matches!(step, Step::Close) {
            return;
        }
        let Some(request) = read_request(&mut stream, seen).await else { return };
        seen.lock().unwrap().requests.push((number, request));
        match step {
            Step::Answer(bytes) => {
                if stream.write_all(&bytes).await.is_err() || stream.flush().await.is_err() {
                    return;
                }
            }
            Step::Hang => std::future::pending().await,
            Step::Trickle => trickle(&mut stream).await,
            Step::ReadAndClose | Step::Close => return,
        }
    }
}

async fn read_request<S: AsyncRead + Unpin>(stream: &mut S, seen: &Mutex<Seen>) -> Option<String> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let count = stream.read(&mut buffer).await.ok().filter(|count| *count > 0)?;
        seen.lock().unwrap().bytes += count;
        bytes.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok())
                .unwrap_or(0);
            if body.len() >= length {
                return Some(text);
            }
        }
    }
}

/// Bytes without end, one every five milliseconds.
async fn trickle<S: AsyncWrite + Unpin>(stream: &mut S) {
    let mut part: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n";
    loop {
        if stream.write_all(part).await.is_err() || stream.flush().await.is_err() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        part = b" ";
    }
}
