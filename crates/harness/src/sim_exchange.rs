//! Carries the client's requests to a simulator in the same process.
//!
//! The same outcomes as over a socket: a connection that breaks or an answer that never comes is unknown, a node
//! that is down was never reached. The oracle of a run hears of every request before the node does, and of every
//! answer before the agent does.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use evenkeel_agent::pve::error::{NotSent, Unknown};
use evenkeel_agent::pve::exchange::{
    Exchange, ExchangeFuture, ExchangeOutcome, HttpAnswer, HttpRequest,
};
use evenkeel_sim::{InProcess, ReplyBody};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;

use crate::oracle::Oracle;

/// As long as the real client waits for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(40);

/// An exchange with a simulated node; clones share it.
#[derive(Debug, Clone)]
pub struct SimExchange {
    node: InProcess,
    token: String,
    down: Arc<AtomicBool>,
    panics: Arc<AtomicU8>,
    twin: Arc<AtomicU8>,
    /// The path of the last change that was refused.
    refused: Arc<Mutex<Option<String>>>,
    oracle: Option<Oracle>,
}

/// Where the next request that changes something makes its operation panic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PanicPoint {
    /// Nowhere.
    Never = 0,
    /// Before the node has it.
    BeforeSending = 1,
    /// After the node has answered.
    AfterAnswer = 2,
    /// After the node has answered a second try: the first was refused.
    AfterSecondTry = 3,
}

/// Whether somebody with our token sends the next change too, so that our answer is lost among theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TwinRequest {
    /// Nobody does.
    Never = 0,
    /// Directly before us.
    First = 1,
    /// Directly after us.
    Second = 2,
}

impl SimExchange {
    /// A wire that shows `user@realm!id=secret` with every request.
    pub fn new(node: InProcess, token: String) -> Self {
        let down = Arc::default();
        let panics = Arc::default();
        let twin = Arc::default();
        Self { node, token, down, panics, twin, refused: Arc::default(), oracle: None }
    }

    /// The same wire, watched.
    #[must_use]
    pub fn watched_by(mut self, oracle: Oracle) -> Self {
        self.oracle = Some(oracle);
        self
    }

    /// Whether connections to the node are refused from now on.
    pub fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::Relaxed);
    }

    /// Makes the next operation that sends something panic.
    pub fn panic_once(&self, panics: PanicPoint) {
        self.panics.store(panics as u8, Ordering::Relaxed);
    }

    /// Somebody sends the next change too.
    pub fn twin_once(&self, twin: TwinRequest) {
        self.twin.store(twin as u8, Ordering::Relaxed);
    }

    fn panic_if(&self, request: &HttpRequest, here: PanicPoint) {
        let due = !request.is_read() && self.panics.load(Ordering::Relaxed) == here as u8;
        if due {
            self.panics.store(PanicPoint::Never as u8, Ordering::Relaxed);
            // Without the words a real panic prints: this one is wanted.
            resume_unwind(Box::new("the harness made it panic"));
        }
    }

    async fn carry(&self, request: HttpRequest) -> ExchangeOutcome {
        // Each pause is a place where the agent can die: before the request has left, and after its effect.
        tokio::task::yield_now().await;
        self.panic_if(&request, PanicPoint::BeforeSending);
        if self.down.load(Ordering::Relaxed) {
            let server = "the simulated node".to_owned();
            let detail = "refused".to_owned();
            return ExchangeOutcome::NotSent(NotSent::Connect { server, detail });
        }
        let ticket = self.oracle.as_ref().map(|oracle| oracle.sent(&self.node, &request));
        if self.oracle.as_ref().is_some_and(Oracle::is_overrun) {
            // No answer ever: only so does time pass, and the run ends.
            std::future::pending::<()>().await;
        }
        let outcome = self.deliver(&request).await;
        if let (Some(oracle), Some(ticket)) = (&self.oracle, ticket) {
            oracle.answered(&self.node, &ticket, &outcome);
        }
        tokio::task::yield_now().await;
        self.panic_if(&request, PanicPoint::AfterAnswer);
        if self.is_second_try(&request, &outcome) {
            self.panic_if(&request, PanicPoint::AfterSecondTry);
        }
        outcome
    }

    /// Whether the last change that was refused went the same way.
    fn is_second_try(&self, request: &HttpRequest, outcome: &ExchangeOutcome) -> bool {
        if request.is_read() {
            return false;
        }
        let refused = matches!(outcome, ExchangeOutcome::Answered(answer) if answer.status >= 400);
        let now = refused.then(|| request.target());
        let mut last = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *last, now);
        before.is_some_and(|before| before == request.target())
    }

    async fn deliver(&self, request: &HttpRequest) -> ExchangeOutcome {
        let mut carried =
            evenkeel_sim::SimRequest::new(request.method().as_str(), &request.target())
                .token(&self.token);
        if let Some(body) = request.body() {
            carried.body = body.into_bytes();
            carried = carried.header("Content-Type", "application/x-www-form-urlencoded");
        }
        let lost = !request.is_read() && self.is_twinned(&carried).await;
        if let Some(oracle) = self.oracle.as_ref().filter(|_| lost) {
            oracle.twinned(&self.node, request);
        }
        let answered = tokio::time::timeout(ANSWER_TIMEOUT, self.node.send(carried)).await;
        if lost {
            let detail = "the answer was lost".to_owned();
            return ExchangeOutcome::Unknown(Unknown::ConnectionLost { detail });
        }
        match answered {
            Err(_) => ExchangeOutcome::Unknown(Unknown::Timeout { after: ANSWER_TIMEOUT }),
            Ok(evenkeel_sim::SimOutcome::Reply(reply)) => {
                ExchangeOutcome::Answered(self.answer(reply))
            }
            Ok(evenkeel_sim::SimOutcome::Dropped | evenkeel_sim::SimOutcome::Wait { .. }) => {
                let detail = "the connection broke".to_owned();
                ExchangeOutcome::Unknown(Unknown::ConnectionLost { detail })
            }
        }
    }

    /// Lets somebody send the same, if that was wanted.
    async fn is_twinned(&self, ours: &evenkeel_sim::SimRequest) -> bool {
        let twin = self.twin.swap(TwinRequest::Never as u8, Ordering::Relaxed);
        if twin == TwinRequest::Never as u8 {
            return false;
        }
        let node = self.node.clone();
        let theirs = ours.clone();
        let after = Duration::from_millis(if twin == TwinRequest::First as u8 { 0 } else { 3 });
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            node.send(theirs).await
        });
        // Theirs gets its turn.
        tokio::time::sleep(Duration::from_millis(1)).await;
        true
    }

    fn answer(&self, reply: evenkeel_sim::Reply) -> HttpAnswer {
        let unix = self.node.with(|sim| sim.unix_s());
        let moment = i64::try_from(unix).ok().and_then(|unix| Timestamp::from_second(unix).ok());
        let date =
            moment.and_then(|at| DateTimePrinter::new().timestamp_to_rfc9110_string(&at).ok());
        let body = match reply.body {
            ReplyBody::Empty => Vec::new(),
            ReplyBody::Json(value) => value.to_string().into_bytes(),
            ReplyBody::Text(text) | ReplyBody::Download(text) => text.into_bytes(),
        };
        HttpAnswer { status: reply.status, reason: reply.reason, date, body }
    }
}

impl Exchange for SimExchange {
    fn exchange(&self, request: HttpRequest) -> ExchangeFuture<'_> {
        Box::pin(self.carry(request))
    }
}
