//! Envelopes: carried until the host has judged them, and never beyond their bounds.

use evenkeel_core::fleet::{EnvelopeVerdict, HostReport};

use super::TestBed;
use super::host::TestHost;
use evenkeel_hub::problem::ProblemCode;
use evenkeel_hub::secret_text::random_hex;
use evenkeel_hub::store::{ENVELOPES_WAITING_MAX, EnvelopeKind, HubTime, NewEnvelope, StoreError};

fn rotation(host: &str, body: &str) -> NewEnvelope {
    NewEnvelope {
        id: format!("env_{}", random_hex(16)),
        host: host.to_owned(),
        kind: EnvelopeKind::Rotation,
        item: String::new(),
        body: format!(r#"{{"payload":"{body}","signatures":[]}}"#),
        expires_at: HubTime::now().plus_s(3600),
        submitted_by: "alice".to_owned(),
    }
}

fn verdict(id: &str) -> HostReport {
    let verdict: EnvelopeVerdict = serde_json::from_value(
        serde_json::json!({"envelope": id, "code": "replay", "detail": "again"}),
    )
    .unwrap();
    HostReport { verdicts: vec![verdict], ..HostReport::default() }
}

pub(super) async fn an_envelope_leaves_by_its_hosts_verdict_alone(bed: TestBed) {
    let host = TestHost::enrolled(&bed, "pve1").await;
    let other = TestHost::enrolled(&bed, "pve2").await;
    let id = bed.store().submit(rotation("pve1", "YQ==")).await.unwrap();
    for _ in 0..3 {
        let polled = host.poll(0, 0, 0).await.body;
        assert_eq!(polled["envelopes"][0]["id"], id.as_str(), "delivered is not done");
        assert_eq!(polled["envelopes"][0]["envelope"]["payload"], "YQ==");
        assert_eq!(polled["envelopes"][0]["cursor"], 1);
    }
    assert_eq!(host.poll(0, 1, 0).await.status, 204, "after the cursor there is nothing");
    assert_eq!(other.poll(0, 0, 0).await.status, 204, "it is for one host");
    assert_eq!(other.report(1, 0, &verdict(&id)).await.status, 200);
    assert_eq!(host.poll(0, 0, 0).await.status, 200, "another host's verdict is none");
    assert_eq!(host.report(1, 0, &verdict(&id)).await.status, 200);
    assert_eq!(host.poll(0, 0, 0).await.status, 204);
    assert_eq!(bed.number("SELECT COUNT(*) FROM envelopes WHERE verdict_code = 'replay'").await, 1);
    // At its end it goes by itself.
    let id = bed.store().submit(rotation("pve1", "Yg==")).await.unwrap();
    bed.sql(&format!("UPDATE envelopes SET expires_at = 1000 WHERE id = '{id}'")).await;
    assert_eq!(host.poll(0, 0, 0).await.status, 204);
    bed.store().tidy().await.unwrap();
    assert_eq!(bed.number("SELECT COUNT(*) FROM envelopes WHERE state = 'expired'").await, 1);
}

pub(super) async fn an_approval_must_name_an_open_item(bed: TestBed) {
    let host = TestHost::enrolled(&bed, "pve1").await;
    let item = "aa".repeat(32);
    let approval = || NewEnvelope {
        kind: EnvelopeKind::Approval,
        item: item.clone(),
        ..rotation("pve1", "YQ==")
    };
    let refused = bed.store().submit(approval()).await.unwrap_err();
    assert!(
        matches!(refused, StoreError::Refused(problem) if problem.code == ProblemCode::NotFound)
    );
    bed.sql(&format!(
        "INSERT INTO pending_items (host, id, item, received_at) VALUES ('pve1', '{item}', '{{}}', 1)"
    ))
    .await;
    bed.store().submit(approval()).await.unwrap();
    let elsewhere = NewEnvelope { host: "pve9".to_owned(), ..rotation("pve1", "YQ==") };
    assert!(bed.store().submit(elsewhere).await.is_err());
    let over = NewEnvelope { expires_at: HubTime(1000), ..rotation("pve1", "Yg==") };
    assert!(bed.store().submit(over).await.is_err());
    // The host says that it waits no longer.
    let gone = HostReport { pending_gone: vec![item.parse().unwrap()], ..HostReport::default() };
    assert_eq!(host.report(1, 0, &gone).await.status, 200);
    assert_eq!(bed.number("SELECT COUNT(*) FROM pending_items").await, 0);
}

pub(super) async fn a_queue_is_bounded_and_the_same_envelope_waits_once(bed: TestBed) {
    let host = TestHost::enrolled(&bed, "pve1").await;
    let first = bed.store().submit(rotation("pve1", "YQ==")).await.unwrap();
    assert_eq!(bed.store().submit(rotation("pve1", "YQ==")).await.unwrap(), first);
    for number in 1..ENVELOPES_WAITING_MAX {
        bed.store().submit(rotation("pve1", &format!("{number}"))).await.unwrap();
    }
    let refused = bed.store().submit(rotation("pve1", "one more")).await.unwrap_err();
    assert!(
        matches!(refused, StoreError::Refused(problem) if problem.code == ProblemCode::TooMany)
    );
    let polled = host.poll(0, 0, 0).await.body;
    assert_eq!(polled["envelopes"].as_array().unwrap().len(), 8, "an answer is bounded");
    assert_eq!(host.report(1, 0, &verdict(&first)).await.status, 200);
    bed.store().submit(rotation("pve1", "one more")).await.unwrap();
}

/// Serials become visible out of commit order; whoever follows the cursor must still see every envelope.
pub(super) async fn no_cursor_is_missed_by_whoever_follows_them(bed: TestBed) {
    let host = TestHost::enrolled(&bed, "pve1").await;
    let submitting: Vec<_> = (0..24)
        .map(|number| {
            let store = bed.store().clone();
            tokio::spawn(async move {
                store.submit(rotation("pve1", &format!("n{number}"))).await.unwrap()
            })
        })
        .collect();
    let mut cursor = 0;
    let mut seen = Vec::new();
    while seen.len() < 24 {
        let polled = host.poll(0, cursor, 20).await;
        assert_eq!(polled.status, 200, "{seen:?}");
        for envelope in polled.body["envelopes"].as_array().unwrap() {
            let next = envelope["cursor"].as_i64().unwrap();
            assert!(next > cursor, "in order");
            cursor = next;
            seen.push(envelope["id"].as_str().unwrap().to_owned());
        }
    }
    let mut submitted: Vec<String> =
        futures_util::future::join_all(submitting).await.into_iter().map(Result::unwrap).collect();
    submitted.sort();
    seen.sort();
    assert_eq!(seen, submitted);
}
