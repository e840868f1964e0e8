//! Several hubs on one database, and many writes at once.

use std::time::{Duration, Instant};

use super::host::TestHost;
use super::reports::with_guest;
use super::{TestBed, document};

pub(super) async fn a_push_through_one_replica_wakes_a_poll_at_another(bed: TestBed) {
    let host = TestHost::enrolled(&bed, "pve1").await;
    let other = bed.another().await;
    assert_eq!(other.hub.store().hub_id(), bed.store().hub_id());
    let mut waiting = host;
    waiting.url.clone_from(&other.url);
    let poll = tokio::spawn(async move { waiting.poll(0, 0, 30).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let began = Instant::now();
    bed.store().push(document("pve1", 0, "one")).await.unwrap();
    assert_eq!(poll.await.unwrap().body["generation"], 1);
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    other.stop().await;
}

pub(super) async fn hubs_that_start_together_make_one_database(bed: TestBed) {
    bed.sql("DROP TABLE meta").await;
    for table in crate::store::dump::TABLES {
        bed.sql(&format!("DROP TABLE {table}")).await;
    }
    let opening = (0..6).map(|_| crate::store::HubStore::open(bed.store().database().clone()));
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
