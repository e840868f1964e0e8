//! The real transport: one HTTP/1.1 exchange with a node, over TLS, with the token.
//!
//! Reads share a small pool kept inside PVE's keep-alive limits. Writes get a connection of their
//! own each: on a kept connection that the server is just closing, nobody could tell whether a
//! write was executed. No proxy of the environment, no redirect, no compression, no chunked body.
//! Nothing here prints a URL's parameters or the token.

use std::error::Error as StdError;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, DATE, HeaderValue};
use secrecy::ExposeSecret;
use tokio::time::Instant;

use super::endpoint::Endpoint;
use super::error::{NotSent, Unknown};
use super::exchange::{
    BODY_MAX_BYTES, Exchange, ExchangeFuture, ExchangeOutcome, HttpAnswer, HttpRequest, Method,
    TARGET_MAX_BYTES,
};
use super::text;
use super::tls::{TlsTrust, TrustError, WrongPin};
use super::token::Token;

/// A node answers a connection and a handshake within milliseconds; five seconds allow for a
/// saturated one and still tell "down" quickly.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long to wait for an answer to begin or go on. PVE's proxy gives up after 30 s and then says
/// so with a 596, which tells more than our own timeout; connecting may use 5 s of this.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(40);

/// The whole exchange, so that an answer trickling in byte by byte ends too.
const EXCHANGE_TIMEOUT: Duration = Duration::from_mins(2);

/// PVE closes a connection after 5 s without a request; stay clearly below.
const POOL_IDLE: Duration = Duration::from_secs(3);

/// Reading saturates a node's 3 worker processes; more kept connections only go stale.
const POOL_CONNECTIONS: usize = 4;

/// How long each part of an exchange may take.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// Until the connection stands, TLS included.
    pub connect: Duration,
    /// Until the answer begins, and between two parts of it.
    pub answer: Duration,
    /// For everything together.
    pub exchange: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect: CONNECT_TIMEOUT, answer: ANSWER_TIMEOUT, exchange: EXCHANGE_TIMEOUT }
    }
}

/// Carries requests to one node over HTTP.
#[derive(Debug)]
pub struct HttpExchange {
    endpoint: Endpoint,
    token: Token,
    timeouts: Timeouts,
    /// For reads: a few kept connections.
    pooled: reqwest::Client,
    /// For writes, and for the second attempt of a read: every request on a new connection.
    fresh: reqwest::Client,
}

impl HttpExchange {
    /// A transport to `endpoint` that trusts `trust` and shows `token` to nobody else.
    pub fn new(
        endpoint: Endpoint,
        trust: &TlsTrust,
        token: Token,
        timeouts: Timeouts,
    ) -> Result<Self, TrustError> {
        let refused = |error: reqwest::Error| TrustError::Refused(error.to_string());
        let builder = || -> Result<reqwest::ClientBuilder, TrustError> {
            Ok(trust
                .direct_client(endpoint.is_encrypted())?
                .connect_timeout(timeouts.connect)
                .read_timeout(timeouts.answer)
                .timeout(timeouts.exchange))
        };
        let pooled = builder()?
            .pool_idle_timeout(POOL_IDLE)
            .pool_max_idle_per_host(POOL_CONNECTIONS)
            .build()
            .map_err(refused)?;
        let fresh = builder()?.pool_max_idle_per_host(0).build().map_err(refused)?;
        Ok(Self { endpoint, token, timeouts, pooled, fresh })
    }

    /// The public half of the token, as tasks show their owner.
    pub fn token_id(&self) -> &str {
        self.token.id()
    }

    async fn carry(&self, request: &HttpRequest) -> ExchangeOutcome {
        let target = request.target();
        let body = request.body();
        if let Some(why) = too_large(&target, body.as_deref()) {
            return ExchangeOutcome::NotSent(why);
        }
        let started = Instant::now();
        let send = |client: &reqwest::Client| {
            let sending = self.prepare(client, request.method(), &target, body.clone());
            async move { sending.send().await }
        };
        let first = if request.is_read() {
            match send(&self.pooled).await {
                // A kept connection may die under a request at any moment. A read is harmless to
                // repeat, once, on a connection that cannot be stale.
                Err(error) if is_connection_lost(&error) => send(&self.fresh).await,
                result => result,
            }
        } else {
            send(&self.fresh).await
        };
        match first {
            Ok(response) => self.answer(response, request.answer_max_bytes(), started).await,
            Err(error) => self.failed(&error, started),
        }
    }

    fn prepare(
        &self,
        client: &reqwest::Client,
        method: Method,
        target: &str,
        body: Option<String>,
    ) -> reqwest::RequestBuilder {
        let method = match method {
            Method::Get => reqwest::Method::GET,
            Method::Post => reqwest::Method::POST,
            Method::Put => reqwest::Method::PUT,
            Method::Delete => reqwest::Method::DELETE,
        };
        let mut token = HeaderValue::from_str(self.token.authorization().expose_secret())
            .expect("a token is checked to be printable ASCII when it is read");
        token.set_sensitive(true);
        let builder =
            client.request(method, self.endpoint.url(target)).header(AUTHORIZATION, token);
        match body {
            // hyper says nothing about the length of an empty body unless told.
            Some(form) if form.is_empty() => builder.header(CONTENT_LENGTH, "0"),
            // A body of known length, so that it is never chunked, which PVE refuses.
            Some(form) => builder
                .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
                .body(form.into_bytes()),
            None => builder,
        }
    }

    async fn answer(
        &self,
        mut response: reqwest::Response,
        max_bytes: usize,
        started: Instant,
    ) -> ExchangeOutcome {
        let status = response.status().as_u16();
        let reason = reason_of(&response);
        let date =
            response.headers().get(DATE).and_then(|date| date.to_str().ok()).map(str::to_owned);
        let told = response.content_length().and_then(|bytes| usize::try_from(bytes).ok());
        let mut body = Vec::with_capacity(told.unwrap_or(0).min(max_bytes));
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) if body.len() + chunk.len() > max_bytes => {
                    return ExchangeOutcome::Unknown(Unknown::TooLarge { status, max_bytes });
                }
                Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                Ok(None) => break,
                Err(error) if error.is_timeout() => {
                    return ExchangeOutcome::Unknown(timed_out(started));
                }
                Err(_) => return ExchangeOutcome::Unknown(Unknown::Truncated { status }),
            }
        }
        if status < 400 {
            return ExchangeOutcome::Answered(HttpAnswer { status, reason, date, body });
        }
        // Errors are shown to people, so a server that repeats our header must not reach them.
        let reason = self.token.scrub(&reason);
        let body = self.token.scrub(&String::from_utf8_lossy(&body)).into_bytes();
        ExchangeOutcome::Answered(HttpAnswer { status, reason, date, body })
    }

    /// What a failed exchange says about the request: only a connection that never stood proves
    /// that nothing was sent.
    fn failed(&self, error: &reqwest::Error, started: Instant) -> ExchangeOutcome {
        let detail = || text::clean(&self.token.scrub(&innermost(error)));
        if error.is_builder() {
            let server = self.endpoint.origin().to_owned();
            return ExchangeOutcome::NotSent(NotSent::Connect { server, detail: detail() });
        }
        if error.is_connect() {
            return ExchangeOutcome::NotSent(self.not_connected(error, detail()));
        }
        if error.is_timeout() {
            return ExchangeOutcome::Unknown(timed_out(started));
        }
        if hyper_error(error).is_some_and(hyper::Error::is_parse) {
            return ExchangeOutcome::Unknown(Unknown::NotHttp);
        }
        ExchangeOutcome::Unknown(Unknown::ConnectionLost { detail: detail() })
    }

    fn not_connected(&self, error: &reqwest::Error, detail: String) -> NotSent {
        let server = self.endpoint.origin().to_owned();
        if error.is_timeout() {
            return NotSent::ConnectTimeout { server, after: self.timeouts.connect };
        }
        match tls_error(error) {
            Some(rustls::Error::InvalidCertificate(rustls::CertificateError::Other(other))) => {
                match other.0.downcast_ref::<WrongPin>() {
                    Some(wrong) => NotSent::WrongPin { server, presented: wrong.presented },
                    None => NotSent::Untrusted { server, detail },
                }
            }
            Some(rustls::Error::InvalidCertificate(_)) => NotSent::Untrusted { server, detail },
            Some(_) => NotSent::Tls { server, detail },
            None => NotSent::Connect { server, detail },
        }
    }
}

impl Exchange for HttpExchange {
    fn exchange(&self, request: HttpRequest) -> ExchangeFuture<'_> {
        Box::pin(async move { self.carry(&request).await })
    }
}

fn timed_out(started: Instant) -> Unknown {
    let waited_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    Unknown::Timeout { after: Duration::from_millis(waited_ms) }
}

fn too_large(target: &str, body: Option<&str>) -> Option<NotSent> {
    let body_bytes = body.map_or(0, str::len);
    if body_bytes > BODY_MAX_BYTES {
        return Some(NotSent::TooLarge { bytes: body_bytes, max_bytes: BODY_MAX_BYTES });
    }
    if target.len() > TARGET_MAX_BYTES {
        return Some(NotSent::TooLarge { bytes: target.len(), max_bytes: TARGET_MAX_BYTES });
    }
    None
}

/// The reason phrase as sent; hyper keeps it aside when it is not the status's usual one.
fn reason_of(response: &reqwest::Response) -> String {
    match response.extensions().get::<hyper::ext::ReasonPhrase>() {
        Some(reason) => String::from_utf8_lossy(reason.as_bytes()).into_owned(),
        None => response.status().canonical_reason().unwrap_or_default().to_owned(),
    }
}

/// True if the connection ended under the request before an answer began.
fn is_connection_lost(error: &reqwest::Error) -> bool {
    if error.is_connect() || error.is_timeout() || error.is_builder() {
        return false;
    }
    let ended = hyper_error(error).is_some_and(|error| {
        error.is_incomplete_message() || error.is_canceled() || error.is_closed()
    });
    ended || chain(error).any(<dyn StdError>::is::<std::io::Error>)
}

fn chain(error: &reqwest::Error) -> impl Iterator<Item = &(dyn StdError + 'static)> {
    std::iter::successors(error.source(), |error| (*error).source())
}

fn hyper_error(error: &reqwest::Error) -> Option<&hyper::Error> {
    chain(error).find_map(|cause| cause.downcast_ref::<hyper::Error>())
}

/// TLS errors come wrapped inside I/O errors (inside I/O errors), whose `source` skips what they
/// wrap.
fn tls_error(error: &reqwest::Error) -> Option<&rustls::Error> {
    chain(error).find_map(|cause| {
        let mut wrapped: &(dyn StdError + 'static) = cause;
        while let Some(inner) = wrapped.downcast_ref::<std::io::Error>()?.get_ref() {
            if let Some(tls) = inner.downcast_ref::<rustls::Error>() {
                return Some(tls);
            }
            wrapped = inner;
        }
        None
    })
}

/// The last cause says what happened; the outer ones repeat the URL.
fn innermost(error: &reqwest::Error) -> String {
    let Some(last) = chain(error).last() else {
        return "the request could not be built".to_owned();
    };
    match last.downcast_ref::<std::io::Error>().map(std::io::Error::kind) {
        // The TLS library's own words are a link into its manual.
        Some(std::io::ErrorKind::UnexpectedEof) => "the server closed it".to_owned(),
        Some(_) | None => last.to_string(),
    }
}
