//! Carries the client's requests to a simulator in the same process.
//!
//! The same outcomes as over a socket: a connection that breaks or an answer that never comes is unknown, a node
//! that is down was never reached.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use evenkeel_agent::pve::error::{NotSent, Unknown};
use evenkeel_agent::pve::exchange::{Answer, Exchange, ExchangeFuture, Outcome, Request};
use evenkeel_sim::{Body, InProcess};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;

/// As long as the real client waits for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(40);

/// An exchange with a simulated node; clones share it.
#[derive(Debug, Clone)]
pub struct Wire {
    node: InProcess,
    token: String,
    down: Arc<AtomicBool>,
}

impl Wire {
    /// A wire that shows `user@realm!id=secret` with every request.
    pub fn new(node: InProcess, token: String) -> Self {
        Self { node, token, down: Arc::default() }
    }

    /// Whether connections to the node are refused from now on.
    pub fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::Relaxed);
    }

    async fn carry(&self, request: Request) -> Outcome {
        if self.down.load(Ordering::Relaxed) {
            let (server, detail) = ("the simulated node".to_owned(), "refused".to_owned());
            return Outcome::NotSent(NotSent::Connect { server, detail });
        }
        let mut carried = evenkeel_sim::Request::new(request.method().as_str(), &request.target())
            .token(&self.token);
        if let Some(body) = request.body() {
            carried.body = body.into_bytes();
            carried = carried.header("Content-Type", "application/x-www-form-urlencoded");
        }
        match tokio::time::timeout(ANSWER_TIMEOUT, self.node.send(carried)).await {
            Err(_) => Outcome::Unknown(Unknown::Timeout { after: ANSWER_TIMEOUT }),
            Ok(evenkeel_sim::Outcome::Reply(reply)) => Outcome::Answered(self.answer(reply)),
            Ok(evenkeel_sim::Outcome::Dropped | evenkeel_sim::Outcome::Wait { .. }) => {
                let detail = "the connection broke".to_owned();
                Outcome::Unknown(Unknown::ConnectionLost { detail })
            }
        }
    }

    fn answer(&self, reply: evenkeel_sim::Reply) -> Answer {
        let unix = self.node.with(|sim| sim.unix_s());
        let moment = i64::try_from(unix).ok().and_then(|unix| Timestamp::from_second(unix).ok());
        let date =
            moment.and_then(|at| DateTimePrinter::new().timestamp_to_rfc9110_string(&at).ok());
        let body = match reply.body {
            Body::Empty => Vec::new(),
            Body::Json(value) => value.to_string().into_bytes(),
            Body::Text(text) | Body::Download(text) => text.into_bytes(),
        };
        Answer { status: reply.status, reason: reply.reason, date, body }
    }
}

impl Exchange for Wire {
    fn exchange(&self, request: Request) -> ExchangeFuture<'_> {
        Box::pin(self.carry(request))
    }
}
