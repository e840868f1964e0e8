//! Bounds: of bodies, of history, of how often a host may ask.

use std::time::Instant;

use evenkeel_core::fleet::{HostReport, ToldOperation};

use super::TestBed;
use super::host::TestHost;
use evenkeel_hub::store::OPS_PER_HOST_MAX;
use evenkeel_testkit::patience::PATIENCE;

pub(super) async fn a_body_over_its_limit_is_refused(bed: TestBed) {
    let host = TestHost::enrolled(&bed, "pve1").await;
    let reply = host.post("/v1/agent/enrol", vec![b' '; 17 * 1024]).await;
    assert_eq!((reply.status, reply.code()), (413, "too_large"));
    let body = vec![b' '; 1024 * 1024 + 1];
    let reply = host.send_report(&host.statement(1, 0, &body), body.clone()).await;
    assert_eq!(reply.status, 413);
    let header =
        host.client.get(format!("{}/healthz", bed.url())).header("x-long", "x".repeat(20_000));
    assert_eq!(header.send().await.unwrap().status().as_u16(), 431);
    assert_eq!(
        host.client
            .delete(format!("{}/healthz", bed.url()))
            .send()
            .await
            .unwrap()
            .status()
            .as_u16(),
        404
    );
}

pub(super) async fn history_is_bounded_and_newest_first_stays(bed: TestBed) {
    let host = TestHost::enrolled(&bed, "pve1").await;
    // The counter stands near the bound, as after years.
    bed.sql(&format!("UPDATE hosts SET serial = {}", OPS_PER_HOST_MAX - 2)).await;
    let op = |name: &str| ToldOperation {
        op: name.to_owned(),
        state: "started".to_owned(),
        ..ToldOperation::default()
    };
    let ops = |names: &[&str]| HostReport {
        ops: names.iter().map(|name| op(name)).collect(),
        ..HostReport::default()
    };
    assert_eq!(host.report(1, 0, &ops(&["op_a", "op_b"])).await.status, 200);
    bed.sql("UPDATE ops SET serial = serial - 9998").await;
    assert_eq!(bed.number("SELECT COUNT(*) FROM ops").await, 2);
    assert_eq!(host.report(2, 1, &ops(&["op_c"])).await.status, 200);
    assert_eq!(
        bed.number("SELECT COUNT(*) FROM ops WHERE op = 'op_a'").await,
        0,
        "the oldest went"
    );
    assert_eq!(bed.number("SELECT COUNT(*) FROM ops").await, 2);
    // The same op again is the same row.
    assert_eq!(host.report(3, 2, &ops(&["op_c"])).await.status, 200);
    assert_eq!(bed.number("SELECT COUNT(*) FROM ops WHERE op = 'op_c'").await, 1);
    // Ninety days later the rest goes.
    bed.sql("UPDATE ops SET received_at = 1000").await;
    bed.store().tidy().await.unwrap();
    assert_eq!(bed.number("SELECT COUNT(*) FROM ops").await, 0);
}

pub(super) async fn a_loud_host_is_refused_and_a_quiet_one_is_not(bed: TestBed) {
    let loud = TestHost::enrolled(&bed, "loud").await;
    let quiet = TestHost::enrolled(&bed, "quiet").await;
    // Faster than its bucket is filled, which is four a second: it is refused sooner or later.
    let began = Instant::now();
    while loud.get("/v1/agent/anchor").await.code() != "too_many" {
        assert!(began.elapsed() < PATIENCE, "it may ask for ever");
    }
    assert_eq!(quiet.get("/v1/agent/anchor").await.status, 200);
}

pub(super) async fn signs_of_life_are_written_together(bed: TestBed) {
    let host = TestHost::enrolled(&bed, "pve1").await;
    bed.sql("UPDATE hosts SET last_seen = 5").await;
    let asked = evenkeel_hub::store::HubTime::now();
    assert_eq!(host.poll(0, 0, 0).await.status, 204);
    assert!(bed.store().heard_lately("pve1").is_some());
    assert_eq!(bed.store().host("pve1").await.unwrap().unwrap().last_seen.0, 5, "not yet written");
    bed.store().flush_heartbeats().await.unwrap();
    let seen = bed.store().host("pve1").await.unwrap().unwrap().last_seen;
    assert!(seen.0 >= asked.0, "{seen:?} is before {asked:?}");
    assert!(bed.store().heard_lately("pve1").is_none());
}
