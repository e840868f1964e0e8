//! Waiting for a task, under a clock that only this test moves.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::pve::Client;
use crate::pve::error::{Error, ErrorClass, NotSent, Unknown};
use crate::pve::exchange::{Exchange, ExchangeFuture, ExchangeOutcome, HttpAnswer, HttpRequest};
use crate::pve::task::ExitStatus;
use crate::pve::wait::WaitOutcome;
use tokio::time::Instant;

use super::every_call::upid;

/// Plays outcomes in order, the last one forever, and keeps when each was asked for.
struct Script {
    outcomes: Mutex<VecDeque<ExchangeOutcome>>,
    asked: Mutex<Vec<Instant>>,
}

impl Exchange for Script {
    fn exchange(&self, _request: HttpRequest) -> ExchangeFuture<'_> {
        self.asked.lock().unwrap().push(Instant::now());
        let mut outcomes = self.outcomes.lock().unwrap();
        let outcome = outcomes.front().cloned().unwrap();
        if outcomes.len() > 1 {
            outcomes.pop_front();
        }
        Box::pin(std::future::ready(outcome))
    }
}

fn answered(status: u16, body: &str) -> ExchangeOutcome {
    let body = body.as_bytes().to_vec();
    ExchangeOutcome::Answered(HttpAnswer { status, reason: String::new(), date: None, body })
}

fn running() -> ExchangeOutcome {
    answered(200, r#"{"data":{"status":"running"}}"#)
}

fn ended(exit: &str) -> ExchangeOutcome {
    answered(200, &format!(r#"{{"data":{{"status":"stopped","exitstatus":"{exit}"}}}}"#))
}

async fn wait(
    outcomes: Vec<ExchangeOutcome>,
    for_s: u64,
) -> (Result<WaitOutcome, Error>, Vec<Duration>) {
    let script =
        Arc::new(Script { outcomes: Mutex::new(outcomes.into()), asked: Mutex::default() });
    let client = Client::new(Arc::<Script>::clone(&script), "pve1".parse().unwrap());
    let start = Instant::now();
    let result = client.wait(&upid(), start + Duration::from_secs(for_s)).await;
    let asked = script.asked.lock().unwrap().iter().map(|at| *at - start).collect();
    (result, asked)
}

#[tokio::test(start_paused = true)]
async fn a_task_that_has_ended_is_seen_at_once() {
    let (result, asked) = wait(vec![ended("OK")], 60).await;
    assert_eq!(result, Ok(WaitOutcome::Ended(ExitStatus::Ok)));
    assert_eq!(asked, [Duration::ZERO]);
}

#[tokio::test(start_paused = true)]
async fn pauses_grow_to_two_seconds_and_end_at_the_deadline() {
    let (result, asked) = wait(vec![running()], 10).await;
    assert_eq!(result, Ok(WaitOutcome::StillRunning));
    let gap = |pair: &[Duration]| pair[1].checked_sub(pair[0]).unwrap().as_millis();
    let pauses: Vec<u128> = asked.windows(2).map(gap).collect();
    assert_eq!(pauses[..8], [50, 50, 100, 200, 400, 800, 1600, 2000], "{pauses:?}");
    assert!(pauses.iter().all(|pause| *pause <= 2000));
    assert_eq!(*asked.last().unwrap(), Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn a_passing_error_is_no_news_about_the_task() {
    let not_sent = ExchangeOutcome::NotSent(NotSent::Connect {
        server: "https://pve1:8006".into(),
        detail: "refused".into(),
    });
    let unknown = ExchangeOutcome::Unknown(Unknown::NotHttp);
    let lost = answered(596, "");
    let outcomes = vec![not_sent, unknown, lost, running(), ended("WARNINGS: 1")];
    let (result, asked) = wait(outcomes, 60).await;
    assert_eq!(result, Ok(WaitOutcome::Ended(ExitStatus::Warnings(1))));
    assert_eq!(asked.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn errors_up_to_the_deadline_are_an_error_and_not_an_end() {
    let not_sent = ExchangeOutcome::NotSent(NotSent::Connect {
        server: "https://pve1:8006".into(),
        detail: "refused".into(),
    });
    let (result, _) = wait(vec![running(), not_sent], 5).await;
    assert!(matches!(result, Err(Error::NotSent { .. })), "{result:?}");
}

#[tokio::test(start_paused = true)]
async fn a_task_proxmox_has_forgotten_is_not_waited_for() {
    let forgotten = r#"{"data":null,"errors":{"upid":"no such task"}}"#;
    let (result, asked) = wait(vec![running(), answered(400, forgotten)], 60).await;
    assert_eq!(result.unwrap_err().class(), Some(&ErrorClass::NoSuchTask));
    assert_eq!(asked.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_in_the_past_still_looks_once() {
    let (result, asked) = wait(vec![ended("unexpected status")], 0).await;
    assert_eq!(result, Ok(WaitOutcome::Ended(ExitStatus::UnexpectedStatus)));
    assert_eq!(asked.len(), 1);
}
