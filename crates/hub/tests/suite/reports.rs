//! Reports: signed, each building on the last, kept whole.

use evenkeel_core::fleet::{GuestReport, HostReport, PassReport, ReportedDecision, ToldOperation};

use sqlx::Row as _;

use super::TestBed;
use super::host::TestHost;
use evenkeel_hub::store::{HistoryKind, HistoryRow};

/// A report of one guest.
pub(super) fn with_guest(guest: &str, state: &str) -> HostReport {
    let guest =
        GuestReport { guest: guest.to_owned(), state: state.to_owned(), ..GuestReport::default() };
    HostReport { guests: vec![guest], ..HostReport::default() }
}

async fn guests(bed: &TestBed) -> Vec<String> {
    let mut connection = bed.store().database().connection().await.unwrap();
    let rows =
        sqlx::query("SELECT guest, state FROM guests").fetch_all(&mut connection).await.unwrap();
    let mut told: Vec<String> = rows
        .iter()
        .map(|row| format!("{} {}", row.get::<String, _>(0), row.get::<String, _>(1)))
        .collect();
    told.sort();
    told
}

async fn counts(bed: &TestBed) -> String {
    let mut connection = bed.store().database().connection().await.unwrap();
    let row =
        sqlx::query("SELECT counts FROM host_states").fetch_one(&mut connection).await.unwrap();
    row.get(0)
}

pub(super) async fn a_delta_builds_on_the_last_report(bed: TestBed) {
    let host = TestHost::enrolled(&bed, "pve1").await;
    let reply = host.report(1, 0, &with_guest("lxc/101", "drifted")).await;
    assert_eq!((reply.status, &reply.body["seq"]), (200, &1.into()));
    assert_eq!(host.report(2, 1, &with_guest("qemu/102", "held")).await.status, 200);
    assert_eq!(guests(&bed).await, ["lxc/101 drifted", "qemu/102 held"]);
    assert_eq!(counts(&bed).await, r#"{"drifted":1,"held":1,"pending":0}"#);
    // The answer was lost, and the report comes again: as before, and nothing changes.
    assert_eq!(host.report(2, 1, &with_guest("qemu/102", "failed")).await.status, 200);
    assert_eq!(guests(&bed).await, ["lxc/101 drifted", "qemu/102 held"]);
    let gone = HostReport { gone: vec!["lxc/101".to_owned()], ..HostReport::default() };
    assert_eq!(host.report(3, 2, &gone).await.status, 200);
    assert_eq!(guests(&bed).await, ["qemu/102 held"]);
    assert_eq!(counts(&bed).await, r#"{"held":1,"pending":0}"#);
    // A number may be skipped (a report that was never sent), as long as it says what it builds on.
    assert_eq!(host.report(9, 3, &with_guest("qemu/102", "busy")).await.status, 200);
}

pub(super) async fn a_report_that_builds_on_nothing_known_is_asked_for_whole(bed: TestBed) {
    let mut host = TestHost::enrolled(&bed, "pve1").await;
    for (seq, base) in [(2, 1), (7, 6)] {
        let reply = host.report(seq, base, &with_guest("lxc/101", "held")).await;
        assert_eq!((reply.status, reply.code()), (409, "resync"), "{seq} on {base}");
    }
    assert_eq!(host.report(3, 0, &with_guest("lxc/101", "held")).await.status, 200);
    assert_eq!(
        host.report(2, 0, &with_guest("lxc/9", "held")).await.code(),
        "resync",
        "an older one"
    );
    assert_eq!(host.report(5, 4, &with_guest("lxc/9", "held")).await.code(), "resync");
    // Another life of the agent begins anew, whatever its numbers.
    "00000000000000aa".clone_into(&mut host.instance);
    assert_eq!(host.report(4, 3, &with_guest("lxc/9", "held")).await.code(), "resync");
    assert_eq!(guests(&bed).await, ["lxc/101 held"]);
    assert_eq!(host.report(1, 0, &with_guest("lxc/9", "held")).await.status, 200);
    assert_eq!(guests(&bed).await, ["lxc/9 held"]);
}

pub(super) async fn a_whole_report_in_pages_replaces_everything(bed: TestBed) {
    let host = TestHost::enrolled(&bed, "pve1").await;
    let pass = PassReport { at: "then".to_owned(), ..PassReport::default() };
    let first = HostReport { pass: Some(pass), ..with_guest("lxc/1", "held") };
    assert_eq!(host.report(1, 0, &first).await.status, 200);
    let pages = ["lxc/2", "lxc/3", "lxc/4"];
    for (place, guest) in (1_u64..).zip(pages) {
        let seq = place + 1;
        let base = if place == 1 { 0 } else { place };
        assert_eq!(host.report(seq, base, &with_guest(guest, "held")).await.status, 200);
    }
    assert_eq!(guests(&bed).await, ["lxc/2 held", "lxc/3 held", "lxc/4 held"]);
    // What a whole report does not say is not so any more.
    assert_eq!(bed.number("SELECT COUNT(*) FROM host_states WHERE pass = ''").await, 1);
}

pub(super) async fn a_report_by_another_key_or_over_another_body_is_refused(bed: TestBed) {
    let host = TestHost::enrolled(&bed, "pve1").await;
    let body = with_guest("lxc/1", "held").to_bytes();
    let statement = host.statement(1, 0, &body);
    let mut other_body = body.clone();
    other_body.push(b' ');
    assert_eq!(host.send_report(&statement, other_body).await.status, 422);
    let mut thief = TestHost::new(&bed, "pve1");
    thief.credential = host.credential.clone();
    assert_eq!(thief.report(1, 0, &with_guest("lxc/1", "held")).await.status, 422, "another key");
    let mut elsewhere = host.clone();
    "0123456789abcdef0123456789abcdef".clone_into(&mut elsewhere.hub_id);
    assert_eq!(
        elsewhere.report(1, 0, &with_guest("lxc/1", "held")).await.status,
        422,
        "another hub"
    );
    let mut renamed = host.clone();
    "pve2".clone_into(&mut renamed.id);
    assert_eq!(
        renamed.report(1, 0, &with_guest("lxc/1", "held")).await.status,
        422,
        "another name"
    );
    let other = TestHost::enrolled(&bed, "pve2").await;
    let mut mixed = host.clone();
    mixed.credential = other.credential.clone();
    assert_eq!(
        mixed.report(1, 0, &with_guest("lxc/1", "held")).await.status,
        422,
        "another credential"
    );
    assert_eq!(host.send_report(&statement, body).await.status, 200);
    assert_eq!(guests(&bed).await, ["lxc/1 held"]);
}

pub(super) async fn an_anchor_only_rises_and_outlives_its_host(bed: TestBed) {
    let host = TestHost::enrolled(&bed, "pve1").await;
    assert!(host.get("/v1/agent/anchor").await.body.get("head").is_none());
    let mut seq = 0;
    for (head, anchored) in [
        ((1, 10, 1), (1, 10, 1)),
        ((1, 9, 1), (1, 10, 1)),
        ((1, 10, 2), (1, 10, 1)),
        ((1, 11, 3), (1, 11, 3)),
        ((2, 1, 4), (2, 1, 4)),
        ((1, 99, 5), (2, 1, 4)),
    ] {
        let report =
            HostReport { head: Some(host.head(head.0, head.1, head.2)), ..HostReport::default() };
        assert_eq!(host.report(seq + 1, seq, &report).await.status, 200);
        seq += 1;
        let kept = host.get("/v1/agent/anchor").await.body;
        let expected = serde_json::to_value(host.head(anchored.0, anchored.1, anchored.2)).unwrap();
        assert_eq!(kept["head"], expected, "after {head:?}");
    }
    let forged = HostReport {
        head: Some(TestHost::new(&bed, "pve1").head(9, 9, 9)),
        ..HostReport::default()
    };
    assert_eq!(host.report(seq + 1, seq, &forged).await.status, 422);
    bed.store().remove_host("pve1", "alice").await.unwrap();
    let mut again = host.clone();
    assert_eq!(again.enrol(&bed.token("pve1", false).await).await.status, 200);
    assert!(again.get("/v1/agent/anchor").await.body.get("head").is_some(), "the same key");
    let mut anew = TestHost::new(&bed, "pve1");
    assert_eq!(anew.enrol(&bed.token("pve1", true).await).await.status, 200);
    assert!(anew.get("/v1/agent/anchor").await.body.get("head").is_none(), "another key");
}

pub(super) async fn a_report_is_kept_whole_or_not_at_all(bed: TestBed) {
    let host = TestHost::enrolled(&bed, "pve1").await;
    assert_eq!(host.report(1, 0, &with_guest("lxc/1", "held")).await.status, 200);
    // Something in the middle of the report cannot be written.
    bed.sql("ALTER TABLE ops RENAME TO ops_away").await;
    let op = ToldOperation { op: "op_1".to_owned(), ..ToldOperation::default() };
    let report = HostReport { ops: vec![op], ..with_guest("lxc/2", "held") };
    assert_eq!(host.report(2, 1, &report).await.status, 503);
    assert_eq!(guests(&bed).await, ["lxc/1 held"]);
    bed.sql("ALTER TABLE ops_away RENAME TO ops").await;
    // The same report again: the host need not know what happened.
    assert_eq!(host.report(2, 1, &report).await.status, 200);
    assert_eq!(guests(&bed).await, ["lxc/1 held", "lxc/2 held"]);
    assert_eq!(bed.number("SELECT COUNT(*) FROM ops").await, 1);
}

pub(super) async fn history_told_again_is_the_same_history(bed: TestBed) {
    let host = TestHost::enrolled(&bed, "pve1").await;
    let decision = |id: &str| ReportedDecision {
        id: id.to_owned(),
        code: "pending_signature".to_owned(),
        ..ReportedDecision::default()
    };
    let op = |op: &str, state: &str| ToldOperation {
        op: op.to_owned(),
        state: state.to_owned(),
        ..ToldOperation::default()
    };
    let first = HostReport {
        ops: vec![op("op_1", "started"), op("op_2", "started")],
        decisions: vec![decision("a"), decision("b")],
        ..HostReport::default()
    };
    assert_eq!(host.report(1, 0, &first).await.status, 200);
    // The agent was killed before it knew that this is kept; its next life tells it from the journal.
    let again = HostReport {
        ops: vec![op("op_1", "succeeded"), op("op_2", "failed"), op("op_3", "started")],
        decisions: vec![decision("a"), decision("b"), decision("c")],
        ..HostReport::default()
    };
    assert_eq!(host.report(2, 1, &again).await.status, 200);
    let told = async |kind: HistoryKind, name: &str| {
        let rows = bed.store().history_before(kind, "pve1", i64::MAX, 99).await.unwrap();
        let text = |row: &HistoryRow| {
            let body: serde_json::Value = serde_json::from_str(&row.body).unwrap();
            body[name].as_str().unwrap().to_owned()
        };
        rows.iter().rev().map(text).collect::<Vec<_>>()
    };
    assert_eq!(told(HistoryKind::Ops, "op").await, ["op_1", "op_2", "op_3"]);
    assert_eq!(told(HistoryKind::Ops, "state").await, ["succeeded", "failed", "started"]);
    assert_eq!(told(HistoryKind::Decisions, "id").await, ["a", "b", "c"]);
}
