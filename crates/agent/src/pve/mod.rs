//! The Proxmox VE client: typed calls over one exchange.
//!
//! ```text
//!  observe ──► reads ─┐                                   ┌─► http ──► pveproxy
//!  execute ──► writes ┴─► Client ─► Request ─► Exchange ──┤
//!  wait ─────► task ──┘      ▲                            └─► a simulator in the same process
//!                            └── Outcome: not sent · answered · unknown
//! ```
//!
//! Everything PVE answers is untrusted: it is bounded, read leniently, and never makes this module
//! panic. Nothing here decides: a refusal is classified, not acted on, and only a read is ever
//! repeated.

pub(crate) mod around;
mod classify;
pub mod clock;
pub mod endpoint;
pub mod error;
pub mod exchange;
pub mod form;
pub mod http;
pub mod list;
mod reads;
mod scalar;
pub mod site;
pub mod storage_watch;
pub mod task;
pub(crate) mod text;
pub mod tls;
pub mod token;
pub mod wait;
pub mod wire;
pub mod writes;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use evenkeel_core::model::id::{GuestId, NodeName};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use clock::NodeClock;
use error::{Error, Unknown};
use exchange::{ApiPath, Exchange, ExchangeOutcome, HttpAnswer, HttpRequest};
use list::{ListReading, ReportedRows};
use storage_watch::{StoragePatience, StorageWatch};

pub use reads::{ConfigView, ContentFilter, StorageFeature, TaskFilter, TaskSource};

/// A client for one node.
#[derive(Clone)]
pub struct Client {
    exchange: Arc<dyn Exchange>,
    node: NodeName,
    clock: Arc<Mutex<Option<NodeClock>>>,
    reported: Arc<ReportedRows>,
    /// What is remembered of each storage; clones share it.
    storages: Arc<StorageWatch>,
    /// How long a storage is waited for.
    patience: StoragePatience,
}

/// The pauses before a read that failed in passing is asked again. A proxy under load breaks off one read in a thousand
/// or so; a third failure in a row is no accident.
pub const READ_AGAIN_AFTER: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(1)];

/// One that took longer than this to fail is not asked again: what hangs would be waited for three times.
const FAILED_AT_ONCE: Duration = Duration::from_secs(5);

impl Client {
    /// A client for `node` over `exchange`.
    pub fn new(exchange: Arc<dyn Exchange>, node: NodeName) -> Self {
        let clock = Arc::default();
        let reported = Arc::default();
        let storages = Arc::default();
        Self { exchange, node, clock, reported, storages, patience: StoragePatience::Whole }
    }

    /// The node every call about guests, tasks and storages goes to.
    pub fn node(&self) -> &NodeName {
        &self.node
    }

    /// The node's clock as of the last answer, if there was one with a date.
    pub fn node_clock(&self) -> Option<NodeClock> {
        *self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries a request and reads the answer's data.
    async fn call<T: DeserializeOwned>(&self, request: HttpRequest) -> Result<T, Error> {
        self.call_enveloped(request).await.map(|DataEnvelope { data }| data)
    }

    /// Carries a request and reads the whole answer.
    async fn call_enveloped<T: DeserializeOwned>(&self, request: HttpRequest) -> Result<T, Error> {
        let answer = self.answer(&request).await?;
        read_data(&request, &answer)
    }

    /// Carries a read and takes the list that is answered row by row.
    async fn list<T: DeserializeOwned>(
        &self,
        request: HttpRequest,
    ) -> Result<ListReading<T>, Error> {
        let answer = self.answer(&request).await?;
        // What is not UTF-8 is odd in its own row, too.
        let body = String::from_utf8_lossy(&answer.body);
        let reading = match ListReading::read(&body) {
            Ok(reading) => reading,
            Err(_) if classify::is_html(&answer.body) => {
                return Err(unreadable(&request, &answer, "an HTML page".to_owned()));
            }
            Err(error) => {
                return Err(unreadable(&request, &answer, text::clean(&error.to_string())));
            }
        };
        self.reported.report(&request.call(), &reading.unread);
        Ok(reading)
    }

    /// Carries a request; the answer is a success.
    async fn answer(&self, request: &HttpRequest) -> Result<HttpAnswer, Error> {
        let carried = self.carry(request).await;
        match carried {
            ExchangeOutcome::NotSent(why) => Err(Error::NotSent { call: request.call(), why }),
            ExchangeOutcome::Unknown(why) => Err(Error::Unknown { call: request.call(), why }),
            ExchangeOutcome::Answered(answer) => {
                self.note_clock(&answer);
                if (200..300).contains(&answer.status) {
                    Ok(answer)
                } else {
                    Err(classify::refuse(request, &answer))
                }
            }
        }
    }

    /// Carries a request once, and a read that fails in passing a few times. A write is never sent again here.
    async fn carry(&self, request: &HttpRequest) -> ExchangeOutcome {
        let pauses: &[Duration] = if request.is_read() { &READ_AGAIN_AFTER } else { &[] };
        for pause in pauses {
            let asked = Instant::now();
            let outcome = self.exchange.exchange(request.clone()).await;
            if !failed_in_passing(&outcome) || asked.elapsed() > FAILED_AT_ONCE {
                return outcome;
            }
            tracing::debug!(call = request.call(), ?outcome, "a read failed and is asked again");
            tokio::time::sleep(*pause).await;
        }
        self.exchange.exchange(request.clone()).await
    }

    fn note_clock(&self, answer: &HttpAnswer) {
        let reading = answer.date.as_deref().and_then(|date| NodeClock::read(date, Instant::now()));
        if let Some(reading) = reading {
            *self.clock.lock().unwrap_or_else(PoisonError::into_inner) = Some(reading);
        }
    }

    /// `/nodes/NODE/KIND/ID/…`
    fn guest_path<const N: usize>(&self, guest: GuestId, rest: [&str; N]) -> ApiPath {
        self.node_path([guest.kind.as_str(), &guest.vmid.to_string()]).join(rest)
    }

    /// `/nodes/NODE/…`
    fn node_path<const N: usize>(&self, rest: [&str; N]) -> ApiPath {
        ApiPath::new(["nodes", self.node.as_str()]).join(rest)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("node", &self.node).finish_non_exhaustive()
    }
}

/// Every success is an object with `data`; `total` stands beside it and is needed for logs alone.
#[derive(Deserialize)]
struct DataEnvelope<T> {
    data: T,
}

/// Whether the way to the node broke, and not the node or what was asked.
fn failed_in_passing(outcome: &ExchangeOutcome) -> bool {
    match outcome {
        // PVE's proxy did not reach the daemon behind it, or lost it.
        ExchangeOutcome::Answered(answer) => (595..=599).contains(&answer.status),
        ExchangeOutcome::Unknown(why) => match why {
            Unknown::ConnectionLost { .. } | Unknown::Truncated { .. } => true,
            Unknown::Timeout { .. }
            | Unknown::NodeLost { .. }
            | Unknown::WorkerLost { .. }
            | Unknown::Gateway { .. }
            | Unknown::TooLarge { .. }
            | Unknown::NotHttp
            | Unknown::Unreadable { .. } => false,
        },
        ExchangeOutcome::NotSent(_) => false,
    }
}

fn unreadable(request: &HttpRequest, answer: &HttpAnswer, detail: String) -> Error {
    let why = Unknown::Unreadable { status: answer.status, detail };
    Error::Unknown { call: request.call(), why }
}

fn read_data<T: DeserializeOwned>(request: &HttpRequest, answer: &HttpAnswer) -> Result<T, Error> {
    let unreadable = |detail: String| unreadable(request, answer, detail);
    let body = str::from_utf8(&answer.body).map_err(|_| unreadable("not UTF-8".to_owned()))?;
    if classify::is_html(&answer.body) {
        return Err(unreadable("an HTML page".to_owned()));
    }
    serde_json::from_str(body).map_err(|error| unreadable(text::clean(&error.to_string())))
}

#[cfg(test)]
mod tests;
