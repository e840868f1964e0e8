//! What grows with time and with whoever wants it to: bounded by bytes, and dropped without looking through tables.

use std::time::{Duration, Instant};

use evenkeel_core::fleet::{EnvelopeVerdict, GuestReport, HostReport, ToldOperation, WireFile};

use super::TestBed;
use super::host::TestHost;
use evenkeel_hub::store::{
    ENVELOPE_WAIT_MAX_S, EnvelopeKind, GUESTS_BYTES_PER_HOST_MAX, HISTORY_BYTES_PER_HOST_MAX,
    HubTime, NewDraft, NewEnvelope,
};

fn envelope(number: u32, expires_at: HubTime) -> NewEnvelope {
    NewEnvelope {
        id: format!("env_{number:032x}"),
        host: "pve1".to_owned(),
        kind: EnvelopeKind::Rotation,
        item: String::new(),
        body: format!("{{\"payload\":\"{number}\",\"signatures\":[]}}"),
        expires_at,
        submitted_by: "alice".to_owned(),
    }
}

pub(super) async fn z18_of_an_envelope_that_is_over_the_verdict_stays_alone(bed: TestBed) {
    let host = TestHost::enrolled(&bed, "pve1").await;
    let far = HubTime::now().plus_s(100 * 365 * 24 * 3600);
    for number in 1..=3 {
        bed.store().submit(envelope(number, far)).await.unwrap();
    }
    let latest = HubTime::now().plus_s(ENVELOPE_WAIT_MAX_S).0;
    let waits = "SELECT COUNT(*) FROM envelopes WHERE expires_at >";
    assert_eq!(bed.number(&format!("{waits} {latest}")).await, 0, "none waits for ever");
    let verdict = EnvelopeVerdict {
        envelope: format!("env_{:032x}", 1).parse().unwrap(),
        code: "unknown_signer".to_owned(),
        op: None,
        detail: "why".to_owned(),
        sealed: None,
    };
    let report = HostReport { verdicts: vec![verdict], ..HostReport::default() };
    assert_eq!(host.report(1, 0, &report).await.status, 200);
    bed.sql("UPDATE envelopes SET expires_at = 1 WHERE cursor = 2").await;
    bed.store().tidy().await.unwrap();
    let empty = "SELECT COUNT(*) FROM envelopes WHERE body = '' AND state";
    assert_eq!(bed.number(&format!("{empty} = 'judged' AND verdict <> ''")).await, 1);
    assert_eq!(bed.number(&format!("{empty} = 'expired'")).await, 1);
    assert_eq!(bed.number(&format!("{empty} = 'waiting'")).await, 0);
    assert_eq!(bed.store().envelopes_after("pve1", 0).await.unwrap().len(), 1);
}

pub(super) async fn z18_a_hosts_bytes_are_bounded_whatever_it_tells(bed: TestBed) {
    let host = TestHost::enrolled(&bed, "pve1").await;
    let op = |number: u32| ToldOperation {
        op: format!("op_{number}"),
        reason: "x".repeat(15_000),
        state: "succeeded".to_owned(),
        ..ToldOperation::default()
    };
    let ops = |from: u32| HostReport {
        ops: (from..from + 40).map(op).collect(),
        ..HostReport::default()
    };
    assert_eq!(host.report(1, 0, &ops(0)).await.status, 200);
    let counted = bed.number("SELECT history_bytes FROM hosts").await;
    assert!(counted > 40 * 15_000, "{counted}");
    // As after months of it.
    bed.sql(&format!("UPDATE hosts SET history_bytes = {}", HISTORY_BYTES_PER_HOST_MAX - 1)).await;
    assert_eq!(host.report(2, 1, &ops(40)).await.status, 200);
    assert_eq!(bed.number("SELECT COUNT(*) FROM ops").await, 80, "counted anew, and not too many");
    bed.sql("UPDATE ops SET body = body || body").await;
    bed.sql("UPDATE ops SET body = body || body").await;
    bed.sql("UPDATE ops SET body = body || body").await;
    assert!(bed.number("SELECT SUM(LENGTH(body)) FROM ops").await > HISTORY_BYTES_PER_HOST_MAX / 2);
    bed.sql(&format!("UPDATE hosts SET history_bytes = {}", HISTORY_BYTES_PER_HOST_MAX - 1)).await;
    assert_eq!(host.report(3, 2, &ops(80)).await.status, 200);
    assert_eq!(bed.number("SELECT COUNT(*) FROM ops").await, 60, "the older half is gone");
    assert_eq!(bed.number("SELECT COUNT(*) FROM ops WHERE op = 'op_119'").await, 1);
    assert_eq!(bed.number("SELECT COUNT(*) FROM ops WHERE op = 'op_0'").await, 0);
    let counted = bed.number("SELECT history_bytes FROM hosts").await;
    assert!(counted <= HISTORY_BYTES_PER_HOST_MAX, "{counted}");
    // Guests: over the bound their names are kept.
    let guest = |number: u32| GuestReport {
        guest: format!("lxc/{number}"),
        state: "drifted".to_owned(),
        problems: vec!["x".repeat(40_000)],
        ..GuestReport::default()
    };
    let guests = HostReport { guests: vec![guest(101)], ..HostReport::default() };
    assert_eq!(host.report(4, 3, &guests).await.status, 200);
    bed.sql(&format!(
        "INSERT INTO guests (host, guest, name, state, body, updated_at) VALUES ('pve1', 'lxc/1', '', 'held', '{}', 0)",
        "x".repeat(usize::try_from(GUESTS_BYTES_PER_HOST_MAX).unwrap() - 60_000)
    ))
    .await;
    bed.sql(&format!("UPDATE hosts SET guest_bytes = {}", GUESTS_BYTES_PER_HOST_MAX - 1)).await;
    let guests = HostReport { guests: vec![guest(102)], ..HostReport::default() };
    assert_eq!(host.report(5, 4, &guests).await.status, 200);
    let kept = bed.store().guest("pve1", "lxc/102").await.unwrap().unwrap();
    assert!(kept.body.len() < 1_000 && kept.body.contains("too large"), "{}", kept.body.len());
    assert_eq!(kept.state, "drifted", "what a list shows is there");
}

fn draft(number: u32) -> NewDraft {
    NewDraft {
        id: format!("drf_{number:04}"),
        host: "pve1".to_owned(),
        base: 0,
        files: vec![WireFile { name: "web.toml".to_owned(), text: format!("draft {number}") }],
        manifest: format!("manifest of draft {number}").into_bytes(),
        message: String::new(),
        made_by: "alice".to_owned(),
    }
}

/// The least time that one more draft and its end take.
async fn draft_time(bed: &TestBed, from: u32) -> Duration {
    let mut least = Duration::MAX;
    for number in from..from + 8 {
        let began = Instant::now();
        bed.store().add_draft(draft(number)).await.unwrap();
        bed.store().drop_draft("pve1", &draft(number).id, "alice").await.unwrap();
        least = least.min(began.elapsed());
    }
    least
}

pub(super) async fn z19_one_more_draft_costs_the_same_beside_very_many_documents(bed: TestBed) {
    const DOCUMENTS: u32 = 40_000;
    let token = bed.token("pve1", false).await;
    TestHost::new(&bed, "pve1").enrol(&token).await;
    let alone = draft_time(&bed, 0).await;
    let numbers = format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {DOCUMENTS})"
    );
    for rows in [
        "INSERT INTO files (sha256, text, refs) #N SELECT 'file' || i, 'text', 1 FROM n",
        "INSERT INTO manifests (hash, bytes, refs) #N SELECT 'manifest' || i, CAST('' AS BYTES), 1 FROM n",
        "INSERT INTO manifest_files (manifest, name, sha256) #N SELECT 'manifest' || i, 'web.toml', 'file' || i FROM n",
        "INSERT INTO documents (host, generation, manifest, author, author_key, message, pushed_by, pushed_at) #N \
         SELECT 'other', i, 'manifest' || i, '', '', '', '', 0 FROM n",
    ] {
        let bytes = match bed.store().database().kind() {
            evenkeel_hub::store::DatabaseKind::Sqlite => "BLOB",
            evenkeel_hub::store::DatabaseKind::Postgres => "BYTEA",
        };
        bed.sql(&rows.replace("#N", &numbers).replace("BYTES", bytes)).await;
    }
    let beside = draft_time(&bed, 100).await;
    // Looking through the tables takes a hundred times as long.
    let most = alone * 8 + Duration::from_millis(20);
    assert!(beside < most, "{beside:?} beside {DOCUMENTS} documents, {alone:?} alone");
    assert_eq!(bed.number("SELECT COUNT(*) FROM manifests").await, i64::from(DOCUMENTS));
    assert_eq!(bed.number("SELECT COUNT(*) FROM files").await, i64::from(DOCUMENTS));
    assert_eq!(real_faults(bed.store()).await, Vec::<String>::new());
}

pub(super) async fn z19_texts_go_with_whoever_needed_them_last(bed: TestBed) {
    let token = bed.token("pve1", false).await;
    TestHost::new(&bed, "pve1").enrol(&token).await;
    let store = bed.store();
    let two_files = |id: u32, texts: [&str; 2]| NewDraft {
        files: ["a.toml", "b.toml"]
            .into_iter()
            .zip(texts)
            .map(|(name, text)| WireFile { name: name.to_owned(), text: text.to_owned() })
            .collect(),
        manifest: texts.concat().into_bytes(),
        ..draft(id)
    };
    store.add_draft(two_files(1, ["same", "same"])).await.unwrap();
    store.add_draft(two_files(2, ["same", "other"])).await.unwrap();
    store.add_draft(two_files(3, ["same", "other"])).await.unwrap();
    let files = || bed.number("SELECT COUNT(*) FROM files");
    assert_eq!(files().await, 2);
    store.drop_draft("pve1", "drf_0002", "alice").await.unwrap();
    assert_eq!(files().await, 2, "needed by another draft");
    bed.sql("UPDATE drafts SET expires_at = 1 WHERE id = 'drf_0003'").await;
    store.tidy().await.unwrap();
    assert_eq!(files().await, 1, "past its end");
    assert_eq!(real_faults(store).await, Vec::<String>::new());
    store.remove_host("pve1", "root").await.unwrap();
    for table in ["files", "manifests", "manifest_files"] {
        assert_eq!(bed.number(&format!("SELECT COUNT(*) FROM {table}")).await, 0, "{table}");
    }
}

/// What is wrong with a database, but for texts that the tests made up and that have no true hashes.
async fn real_faults(store: &evenkeel_hub::store::HubStore) -> Vec<String> {
    let faults = store.check().await.unwrap().faults;
    faults.into_iter().filter(|fault| !fault.contains("changed")).collect()
}
