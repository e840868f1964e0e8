//! Reads that fail in passing are asked again, and writes never.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::every_call::{reads, writes};
use crate::pve::Client;
use crate::pve::error::{NotSent, Unknown};
use crate::pve::exchange::{Exchange, ExchangeFuture, ExchangeOutcome, HttpAnswer, HttpRequest};

/// An exchange that fails so often, then answers.
struct Fails {
    left: AtomicU32,
    failure: ExchangeOutcome,
    takes: Duration,
    asked: Mutex<Vec<String>>,
}

impl Exchange for Fails {
    fn exchange(&self, request: HttpRequest) -> ExchangeFuture<'_> {
        self.asked.lock().unwrap().push(request.call());
        Box::pin(async move {
            tokio::time::sleep(self.takes).await;
            let left = self.left.load(Ordering::Relaxed);
            if left == 0 {
                return ExchangeOutcome::Answered(answer(200, r#"{"data":{"version":"8.4.1"}}"#));
            }
            self.left.store(left - 1, Ordering::Relaxed);
            self.failure.clone()
        })
    }
}

fn answer(status: u16, body: &str) -> HttpAnswer {
    HttpAnswer { status, reason: "Broken pipe".into(), date: None, body: body.as_bytes().to_vec() }
}

fn failing(times: u32, failure: ExchangeOutcome, takes: Duration) -> (Arc<Fails>, Client) {
    let left = AtomicU32::new(times);
    let asked = Mutex::default();
    let exchange = Arc::new(Fails { left, failure, takes, asked });
    (Arc::clone(&exchange), Client::new(exchange, "pve1".parse().unwrap()))
}

fn broken_pipe() -> ExchangeOutcome {
    ExchangeOutcome::Answered(answer(596, ""))
}

fn passing() -> Vec<ExchangeOutcome> {
    let answered = [595, 596, 597, 599].map(|status| ExchangeOutcome::Answered(answer(status, "")));
    let lost = Unknown::ConnectionLost { detail: "reset".into() };
    let lost = [ExchangeOutcome::Unknown(lost)];
    let torn = [ExchangeOutcome::Unknown(Unknown::Truncated { status: 200 })];
    answered.into_iter().chain(lost).chain(torn).collect()
}

#[tokio::test(start_paused = true)]
async fn y14_a_read_that_fails_in_passing_is_asked_three_times_and_no_more() {
    for failure in passing() {
        let (_, client) = failing(2, failure.clone(), Duration::ZERO);
        assert!(client.version().await.is_ok(), "{failure:?}");
        let (exchange, client) = failing(9, failure.clone(), Duration::ZERO);
        let began = Instant::now();
        assert!(client.version().await.is_err(), "{failure:?}");
        assert_eq!(exchange.asked.lock().unwrap().len(), 3, "{failure:?}");
        assert!(began.elapsed() >= Duration::from_secs(1), "there is a pause");
    }
}

#[tokio::test(start_paused = true)]
async fn y14_what_hangs_or_does_not_pass_is_asked_once() {
    let refused = NotSent::Connect { server: "x".into(), detail: "refused".into() };
    let timeout = Unknown::Timeout { after: Duration::from_secs(40) };
    for (failure, takes) in [
        (broken_pipe(), Duration::from_secs(30)),
        (ExchangeOutcome::Answered(answer(500, "")), Duration::ZERO),
        (ExchangeOutcome::Answered(answer(403, "")), Duration::ZERO),
        (ExchangeOutcome::Answered(answer(502, "")), Duration::ZERO),
        (ExchangeOutcome::NotSent(refused), Duration::ZERO),
        (ExchangeOutcome::Unknown(timeout), Duration::ZERO),
    ] {
        let (exchange, client) = failing(1, failure.clone(), takes);
        assert!(client.version().await.is_err(), "{failure:?}");
        assert_eq!(exchange.asked.lock().unwrap().len(), 1, "{failure:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn y14_every_read_is_asked_again_and_no_write_ever() {
    for failure in passing() {
        for (name, call) in reads() {
            let (exchange, client) = failing(9, failure.clone(), Duration::ZERO);
            assert!(call(client).await.is_err(), "{name}");
            assert_eq!(exchange.asked.lock().unwrap().len(), 3, "{name} {failure:?}");
        }
        for (name, call) in writes() {
            let (exchange, client) = failing(9, failure.clone(), Duration::ZERO);
            assert!(call(client).await.is_err(), "{name}");
            assert_eq!(exchange.asked.lock().unwrap().len(), 1, "{name} {failure:?}");
        }
    }
}
