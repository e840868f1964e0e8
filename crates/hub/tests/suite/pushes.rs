//! Documents: what is pushed comes back, and numbers only rise.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evenkeel_core::fleet::{Generation, GenerationState, HostReport, WireFile};

use super::host::TestHost;
use super::{TestBed, document, manifest_of};
use evenkeel_hub::problem::ProblemCode;
use evenkeel_hub::store::{NewDocument, StoreError};

fn code(error: &StoreError) -> Option<ProblemCode> {
    let StoreError::Refused(problem) = error else { return None };
    Some(problem.code)
}

pub(super) async fn generations_rise_and_the_text_comes_back(bed: TestBed) {
    let host = TestHost::enrolled(&bed, "pve1").await;
    let sealed = host.sealed(evenkeel_core::sign::Namespace::Desired, b"{}");
    let pushed = NewDocument {
        files: vec![
            WireFile { name: "B.toml".to_owned(), text: "b\u{e4}\n".to_owned() },
            WireFile { name: "a.toml".to_owned(), text: String::new() },
        ],
        author: Some(serde_json::to_string(&sealed).unwrap()),
        ..document("pve1", 0, "one")
    };
    assert_eq!(bed.store().push(pushed).await.unwrap().generation, 1);
    assert_eq!(bed.store().push(document("pve1", 1, "two")).await.unwrap().generation, 2);
    let first = host.get("/v1/agent/documents/1").await.body;
    assert_eq!(STANDARD.decode(first["manifest"].as_str().unwrap()).unwrap(), manifest_of("one"));
    assert_eq!(
        first["files"],
        serde_json::json!([
            {"name": "B.toml", "text": "b\u{e4}\n"}, {"name": "a.toml", "text": ""}
        ]),
        "sorted by bytes, whatever the database's locale"
    );
    assert_eq!(first["author"], serde_json::to_value(&sealed).unwrap());
    assert_eq!((&first["hub_id"], &first["host"]), (&host.hub_id.clone().into(), &"pve1".into()));
    let second = host.get("/v1/agent/documents/2").await.body;
    assert!(second.get("author").is_none(), "nobody signed it");
    assert_eq!(host.get("/v1/agent/documents/3").await.status, 404);
    assert_eq!(host.get("/v1/agent/documents/x").await.status, 422);
    let other = TestHost::enrolled(&bed, "pve2").await;
    assert_eq!(other.get("/v1/agent/documents/1").await.status, 404, "each host has its own");
    let history = bed.store().documents_before("pve1", i64::MAX, 10).await.unwrap();
    assert_eq!(history.iter().map(|row| row.generation).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(bed.audited("pve1").await[0], "document.push");
}

pub(super) async fn a_push_on_an_old_generation_is_stale(bed: TestBed) {
    TestHost::enrolled(&bed, "pve1").await;
    bed.store().push(document("pve1", 0, "one")).await.unwrap();
    let refused = bed.store().push(document("pve1", 0, "two")).await.unwrap_err();
    assert_eq!(code(&refused), Some(ProblemCode::Stale));
    let nowhere = bed.store().push(document("pve9", 0, "two")).await.unwrap_err();
    assert_eq!(code(&nowhere), Some(ProblemCode::NotFound));
    // Twenty at once: one wins.
    let pushes = (0..20).map(|n| {
        let store = bed.store().clone();
        tokio::spawn(async move { store.push(document("pve1", 1, &format!("text {n}"))).await })
    });
    let done = futures_util::future::join_all(pushes).await;
    let won = done.into_iter().filter(|pushed| pushed.as_ref().unwrap().is_ok()).count();
    assert_eq!(won, 1);
    assert_eq!(bed.store().host("pve1").await.unwrap().unwrap().wanted, 2);
}

pub(super) async fn a_signed_generation_is_kept_or_refused(bed: TestBed) {
    TestHost::enrolled(&bed, "pve1").await;
    let signed = |generation, seen| NewDocument {
        generation: Some(generation),
        ..document("pve1", seen, &generation.to_string())
    };
    assert_eq!(bed.store().push(signed(5, 0)).await.unwrap().generation, 5);
    for (generation, why) in [(5, "the same again"), (4, "back"), (5 + (1 << 20) + 1, "too far")] {
        let refused = bed.store().push(signed(generation, 5)).await.unwrap_err();
        assert_eq!(code(&refused), Some(ProblemCode::Stale), "{why}");
    }
}

pub(super) async fn texts_are_kept_once_and_go_with_their_last_document(bed: TestBed) {
    for host in ["pve1", "pve2"] {
        TestHost::enrolled(&bed, host).await;
        bed.store().push(document(host, 0, "the same")).await.unwrap();
    }
    bed.store().push(document("pve1", 1, "another")).await.unwrap();
    assert_eq!(bed.number("SELECT COUNT(*) FROM files").await, 2);
    bed.store().remove_host("pve1", "alice").await.unwrap();
    assert_eq!(bed.number("SELECT COUNT(*) FROM files").await, 1);
    assert!(bed.store().document("pve2", 1).await.unwrap().is_some());
    assert_eq!(bed.store().check().await.unwrap().faults, Vec::<String>::new());
    bed.sql("UPDATE files SET text = '[guest.101]'").await;
    let faults = bed.store().check().await.unwrap().faults;
    assert!(
        faults.len() == 1 && faults[0].contains("were changed"),
        "a rewritten text: {faults:?}"
    );
    bed.sql("DELETE FROM files").await;
    let faults = bed.store().check().await.unwrap().faults;
    assert!(faults.iter().any(|fault| fault.contains("is missing")), "a lost text: {faults:?}");
}

pub(super) async fn a_restored_hub_goes_on_above_its_hosts(bed: TestBed) {
    let host = TestHost::enrolled(&bed, "pve1").await;
    bed.store().push(document("pve1", 0, "old")).await.unwrap();
    let state = |number| HostReport {
        generation: Some(GenerationState {
            number: Generation(number),
            manifest: None,
            signer: None,
        }),
        ..HostReport::default()
    };
    assert_eq!(host.report(1, 0, &state(9)).await.status, 200);
    assert_eq!(bed.store().next_generation("pve1").await.unwrap(), Some(10));
    // The host is ahead: it is told at the end of its wait, not at once and again and again.
    let began = Instant::now();
    let reply = host.poll(9, 0, 1).await;
    assert_eq!((reply.status, reply.body["generation"].as_i64()), (200, Some(1)));
    assert!(began.elapsed() >= Duration::from_secs(1));
    assert_eq!(bed.store().push(document("pve1", 1, "new")).await.unwrap().generation, 10);
    assert_eq!(host.poll(9, 0, 30).await.body["generation"], 10);
    // A number out of all reason does not count.
    assert_eq!(host.report(2, 1, &state(1 << 40)).await.status, 200);
    assert_eq!(bed.store().next_generation("pve1").await.unwrap(), Some(11));
    // An older word of the host takes nothing back.
    assert_eq!(host.report(3, 2, &state(2)).await.status, 200);
    assert_eq!(bed.store().next_generation("pve1").await.unwrap(), Some(11));
}
