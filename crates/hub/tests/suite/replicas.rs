//! Several hubs on one database, and many writes at once.

use std::time::{Duration, Instant};

use super::host::TestHost;
use super::reports::with_guest;
use super::{LONG_POLL_S, TestBed, document, looked};
use evenkeel_hub::secret_text::SecretHash;
use evenkeel_testkit::patience::{PATIENCE, until};

pub(super) async fn a_push_through_one_replica_wakes_a_poll_at_another(bed: TestBed) {
    let host = TestHost::enrolled(&bed, "pve1").await;
    let other = bed.another().await;
    assert_eq!(other.hub.store().hub_id(), bed.store().hub_id());
    let mut waiting = host;
    waiting.url.clone_from(&other.url);
    let poll = tokio::spawn(async move { waiting.poll(0, 0, LONG_POLL_S).await });
    until("the host polls", || other.hub.wakes().is_waited_for("pve1")).await;
    bed.store().push(document("pve1", 0, "one")).await.unwrap();
    // A poll that nothing wakes ends with 204.
    assert_eq!(poll.await.unwrap().body["generation"], 1);
    other.stop().await;
}

pub(super) async fn a_credential_that_ends_at_one_replica_ends_at_the_others(bed: TestBed) {
    let other = bed.another().await;
    let mut host = TestHost::new(&bed, "pve1");
    let token = bed.token("pve1", false).await;
    assert_eq!(host.enrol(&token).await.status, 200);
    for again in ["a lost answer", "another key", "removed"] {
        let mut before = host.clone();
        before.url.clone_from(&other.url);
        // Known there, and waiting there.
        assert_eq!(before.get("/v1/agent/anchor").await.status, 200, "{again}");
        let waiting = before.clone();
        let poll = tokio::spawn(async move { waiting.poll(0, 0, LONG_POLL_S).await });
        until("the host polls", || other.hub.wakes().is_waited_for("pve1")).await;
        match again {
            "a lost answer" => assert_eq!(host.enrol(&token).await.status, 200),
            "another key" => {
                let token = bed.token("pve1", true).await;
                host = TestHost::new(&bed, "pve1");
                assert_eq!(host.enrol(&token).await.status, 200);
            }
            _ => bed.store().remove_host("pve1", "alice").await.unwrap(),
        }
        // Where it was ended it is over at once, elsewhere after one look.
        let mut here = before.clone();
        bed.url().clone_into(&mut here.url);
        assert_eq!(here.get("/v1/agent/anchor").await.status, 401, "{again}");
        looked(&other.hub).await;
        assert_eq!(before.get("/v1/agent/anchor").await.status, 401, "{again}");
        assert_eq!(poll.await.unwrap().status, 401, "{again}: its poll ends too");
    }
    other.stop().await;
}

/// A host may ask four times a second for long, and a try asks three times.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Whether a host is answered while its row cannot be found by its credential; if not, the row is as it was.
async fn is_known_without_the_database(bed: &TestBed, host: &TestHost) -> bool {
    let hash = SecretHash::of(&host.credential);
    assert_eq!(host.poll(0, 0, 0).await.status, 204);
    // No look notices this: the row has its old version.
    bed.sql("UPDATE hosts SET credential_hash = 'spoilt'").await;
    let polled = host.poll(0, 0, 0).await.status;
    let asked = host.get("/v1/agent/anchor").await.status;
    if (polled, asked) == (204, 200) {
        return true;
    }
    assert!([204, 401].contains(&polled) && [200, 401].contains(&asked), "{polled} {asked}");
    bed.sql(&format!("UPDATE hosts SET credential_hash = '{}'", hash.as_str())).await;
    false
}

pub(super) async fn a_quiet_host_is_known_without_the_database(bed: TestBed) {
    let host = TestHost::enrolled(&bed, "pve1").await;
    looked(bed.hub()).await;
    // Memory is believed for half a second after a look. On a busy machine the next look may come later, and then the
    // database is asked, as it should be: another try.
    let began = Instant::now();
    while !is_known_without_the_database(&bed, &host).await {
        assert!(began.elapsed() < PATIENCE, "the database is asked every time");
        tokio::time::sleep(ASK_AGAIN_AFTER).await;
    }
    // Whatever is written about the host ends that.
    bed.store().set_labels("pve1", std::collections::BTreeMap::new(), "alice").await.unwrap();
    assert_eq!(host.poll(0, 0, 0).await.status, 401);
}

pub(super) async fn hubs_that_start_together_make_one_database(bed: TestBed) {
    bed.sql("DROP TABLE meta").await;
    for table in evenkeel_hub::store::dump::TABLES.iter().rev() {
        bed.sql(&format!("DROP TABLE {table}")).await;
    }
    let opening =
        (0..6).map(|_| evenkeel_hub::store::HubStore::open(bed.store().database().clone()));
    let opened = futures_util::future::join_all(opening).await;
    let stores: Vec<_> = opened.into_iter().map(Result::unwrap).collect();
    assert_eq!(stores.iter().filter(|store| store.is_fresh()).count(), 1, "one of them made it");
    assert!(stores.iter().all(|store| store.hub_id() == stores[0].hub_id()));
    for store in stores {
        store.close().await;
    }
}

pub(super) async fn writes_of_many_hosts_at_once_are_all_kept(bed: TestBed) {
    let mut hosts = Vec::new();
    for number in 0..12 {
        hosts.push(TestHost::enrolled(&bed, &format!("pve{number}")).await);
    }
    let reporting = hosts.into_iter().map(|host| {
        tokio::spawn(async move {
            for seq in 0..10 {
                let guest = with_guest(&format!("lxc/{}", 100 + seq), "held");
                assert_eq!(host.report(seq + 1, seq, &guest).await.status, 200);
            }
        })
    });
    for done in futures_util::future::join_all(reporting).await {
        done.unwrap();
    }
    assert_eq!(bed.number("SELECT COUNT(*) FROM guests").await, 120);
}
