//! Hosts come in, wait for news, and are put out.

use std::time::{Duration, Instant};

use super::host::TestHost;
use super::{LONG_POLL_S, TestBed, document};
use evenkeel_testkit::patience::until;

pub(super) async fn a_host_enrols_and_a_lost_answer_is_answered_again(bed: TestBed) {
    let mut host = TestHost::new(&bed, "pve1");
    let token = bed.token("pve1", false).await;
    assert_eq!(host.enrol(&token).await.status, 200);
    assert_eq!(host.get("/v1/agent/anchor").await.status, 200);
    let before = host.clone();
    assert_eq!(host.enrol(&token).await.status, 200);
    assert_ne!(host.credential, before.credential);
    assert_eq!(before.get("/v1/agent/anchor").await.status, 401, "the credential before has ended");
    assert_eq!(host.get("/v1/agent/anchor").await.status, 200);
}

pub(super) async fn a_used_token_with_another_key_is_refused_and_audited(bed: TestBed) {
    let token = bed.token("pve1", false).await;
    let mut host = TestHost::new(&bed, "pve1");
    host.enrol(&token).await;
    let mut thief = TestHost::new(&bed, "pve1");
    assert_eq!(thief.enrol(&token).await.status, 401);
    assert_eq!(bed.audited("pve1").await[0], "host.enrol_refused");
    assert_eq!(host.get("/v1/agent/anchor").await.status, 200, "the host keeps its credential");
}

pub(super) async fn a_known_host_needs_a_token_that_replaces(bed: TestBed) {
    let first = TestHost::enrolled(&bed, "pve1").await;
    let mut second = TestHost::new(&bed, "pve1");
    let refused = bed.store().make_enrol_token(
        evenkeel_hub::secret_text::SecretText::draw(
            evenkeel_hub::secret_text::SecretKind::EnrolToken,
        )
        .hash(),
        "pve1",
        false,
        "alice",
    );
    assert!(refused.await.is_err(), "such a token is good for nothing");
    assert_eq!(
        first.report(1, 0, &super::reports::with_guest("lxc/101", "held")).await.status,
        200
    );
    let token = bed.token("pve1", true).await;
    assert_eq!(second.enrol(&token).await.status, 200);
    assert_eq!(first.get("/v1/agent/anchor").await.status, 401, "the old credential has ended");
    assert_eq!(
        first.report(2, 1, &super::reports::with_guest("lxc/101", "held")).await.status,
        401
    );
    // A report that was let in before the key was replaced is not kept.
    let late = evenkeel_hub::store::NewReport {
        host: "pve1".to_owned(),
        key_fingerprint: first.key().fingerprint().to_string(),
        instance: first.instance.clone(),
        seq: 1,
        base: 0,
        report: super::reports::with_guest("lxc/666", "held"),
        head: None,
    };
    assert!(bed.store().report(late).await.is_err());
    assert_eq!(
        second.report(1, 0, &super::reports::with_guest("lxc/101", "busy")).await.status,
        200
    );
}

pub(super) async fn a_key_belongs_to_one_host(bed: TestBed) {
    let mut host = TestHost::enrolled(&bed, "pve1").await;
    "pve2".clone_into(&mut host.id);
    let token = bed.token("pve2", false).await;
    let reply = host.enrol(&token).await;
    assert_eq!((reply.status, reply.code()), (409, "conflict"));
    assert_eq!(bed.audited("pve2").await[0], "host.enrol_refused");
}

pub(super) async fn an_enrolment_for_another_address_is_refused(bed: TestBed) {
    let host = TestHost::new(&bed, "pve1");
    let token = bed.token("pve1", false).await;
    let elsewhere = host.enrolment(&token, "https://elsewhere.example");
    let reply = host.post("/v1/agent/enrol", serde_json::to_vec(&elsewhere).unwrap()).await;
    assert_eq!((reply.status, reply.code()), (422, "invalid"));
    // A statement about one token does not carry another.
    let mut other = host.enrolment(&token, &host.url);
    other.token = bed.token("pve1", false).await;
    let reply = host.post("/v1/agent/enrol", serde_json::to_vec(&other).unwrap()).await;
    assert_eq!(reply.status, 422);
    // Nor does one signed by another key than it names.
    let mut other = TestHost::new(&bed, "pve1").enrolment(&token, &host.url);
    other.host_key = host.key().to_string();
    let reply = host.post("/v1/agent/enrol", serde_json::to_vec(&other).unwrap()).await;
    assert_eq!(reply.status, 422);
    assert_eq!(bed.store().host_count().await.unwrap(), 0);
}

pub(super) async fn a_token_is_good_for_its_own_host_and_hour(bed: TestBed) {
    let mut host = TestHost::new(&bed, "pve1");
    let token = bed.token("pve2", false).await;
    assert_eq!(host.enrol(&token).await.status, 401);
    assert_eq!(bed.audited("pve1").await[0], "host.enrol_refused");
    let token = bed.token("pve1", false).await;
    bed.sql("UPDATE enrol_tokens SET expires_at = 1000").await;
    assert_eq!(host.enrol(&token).await.status, 401);
    assert_eq!(host.enrol("evke_nonsense").await.status, 401);
    assert_eq!(bed.store().host_count().await.unwrap(), 0);
}

pub(super) async fn a_removed_host_is_out_at_once(bed: TestBed) {
    let host = TestHost::enrolled(&bed, "pve1").await;
    let waiting = host.clone();
    let poll = tokio::spawn(async move { waiting.poll(0, 0, LONG_POLL_S).await });
    until("the host polls", || bed.hub().wakes().is_waited_for("pve1")).await;
    bed.store().remove_host("pve1", "alice").await.unwrap();
    // 204 would say that it waited to its end.
    assert_eq!(poll.await.unwrap().status, 401, "its poll ends too");
    assert_eq!(host.get("/v1/agent/anchor").await.status, 401);
    assert_eq!(bed.audited("pve1").await[0], "host.remove");
    assert!(bed.store().remove_host("pve1", "alice").await.is_err());
}

pub(super) async fn a_poll_answers_when_there_is_news(bed: TestBed) {
    let host = TestHost::enrolled(&bed, "pve1").await;
    let began = Instant::now();
    assert_eq!(host.poll(0, 0, 1).await.status, 204);
    assert!(began.elapsed() >= Duration::from_secs(1), "it waits as long as it was asked to");
    let waiting = host.clone();
    let poll = tokio::spawn(async move { waiting.poll(0, 0, LONG_POLL_S).await });
    until("the host polls", || bed.hub().wakes().is_waited_for("pve1")).await;
    bed.store().push(document("pve1", 0, "one")).await.unwrap();
    // 204 would say that it waited to its end.
    let reply = poll.await.unwrap();
    assert_eq!((reply.status, reply.body["generation"].as_i64()), (200, Some(1)));
    // What was there before is answered at once.
    assert_eq!(host.poll(0, 0, LONG_POLL_S).await.body["generation"], 1);
    assert_eq!(host.poll(1, 0, 0).await.status, 204);
    assert_eq!(host.get("/v1/agent/poll?generation=-1").await.status, 422);
}
