//! What a hub answers, bent: the agent reads it or says in bounded words why not, and never panics.

use std::time::Instant;

use evenkeel_core::sign::HostBinding;
use secrecy::SecretString;
use serde_json::json;

use super::config::is_credential;
use super::enrol::{EnrolError, enrol};
use super::exchange::{HubExchange, HubFuture, HubOutcome, HubRequest};
use super::link::unexpected;
use crate::host_key::HostKey;
use evenkeel_testkit::bent_json::BodyBender;

/// What is told of an answer is no longer than this, whoever wrote it.
const WORDS_MAX: usize = 300;

struct AlwaysSays(u16, Vec<u8>);

impl HubExchange for AlwaysSays {
    fn exchange(&self, _: HubRequest) -> HubFuture<'_> {
        let Self(status, body) = self;
        let outcome = HubOutcome::Answered { status: *status, body: body.clone() };
        Box::pin(std::future::ready(outcome))
    }
}

#[tokio::test]
async fn an_answer_to_an_enrolment_is_a_credential_or_a_typed_refusal() {
    let state = tempfile::tempdir().unwrap();
    let key = HostKey::load_or_create(state.path()).unwrap();
    let host = HostBinding { id: "pve1".parse().unwrap(), key: key.public().fingerprint() };
    let url = "https://hub.example".parse().unwrap();
    let token = SecretString::from(format!("evke_{}", "0".repeat(64)));
    let credential = format!("evkc_{}", "0".repeat(64));
    let good = json!({"hub_id": "0123456789abcdef0123456789abcdef", "credential": credential});
    let mut bender = BodyBender::seeded();
    let began = Instant::now();
    let mut case = 0;
    while BodyBender::goes_on(case, began) {
        let body = bender.bend(&good);
        let status = [200, 200, 200, 401, 409, 500][bender.below(6)];
        let answer = AlwaysSays(status, body);
        match enrol(&answer, &url, &key, host.clone(), &token).await {
            Ok(answer) => assert!(is_credential(&answer.credential)),
            Err(EnrolError::Answer) => assert_eq!(status, 200),
            Err(error @ EnrolError::Refused { .. }) => {
                assert!(error.to_string().chars().count() <= WORDS_MAX);
            }
            Err(error) => panic!("case {case}: {error}"),
        }
        case += 1;
    }
}

#[test]
fn what_a_hub_says_instead_of_an_answer_is_told_in_bounded_plain_words() {
    let good = json!({"title": "no", "status": 409, "code": "conflict", "detail": "x\u{1b}[2J".repeat(40)});
    let mut bender = BodyBender::seeded();
    let began = Instant::now();
    let mut case = 0;
    while BodyBender::goes_on(case, began) {
        let body = bender.bend(&good);
        let (_, why) = unexpected(409, &body);
        assert!(why.chars().count() <= WORDS_MAX && !why.contains('\u{1b}'), "{why}");
        case += 1;
    }
}
