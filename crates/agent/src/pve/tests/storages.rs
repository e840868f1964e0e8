//! A storage that does not answer is asked one question at a time, and then left alone (case Y04).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use evenkeel_core::operate::operation::StorageName;
use tokio::time::Instant;

use crate::pve::exchange::{Exchange, ExchangeFuture, ExchangeOutcome, HttpAnswer, HttpRequest};
use crate::pve::storage_watch::StorageWatch;
use crate::pve::{Client, ContentFilter};

/// Answers every question about a storage after a while, and everything else at once.
#[derive(Default)]
struct SlowStorages {
    ms: AtomicU64,
    asked: AtomicUsize,
    at_once: AtomicUsize,
    most_at_once: AtomicUsize,
}

impl Exchange for SlowStorages {
    fn exchange(&self, request: HttpRequest) -> ExchangeFuture<'_> {
        Box::pin(async move {
            let body = if request.target().contains("/cluster/resources") {
                br#"{"data":[{"id":"storage/pve1/nfs","type":"storage","node":"pve1","status":"available"}]}"#.to_vec()
            } else {
                self.asked.fetch_add(1, Ordering::Relaxed);
                let now = self.at_once.fetch_add(1, Ordering::Relaxed) + 1;
                self.most_at_once.fetch_max(now, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(self.ms.load(Ordering::Relaxed))).await;
                self.at_once.fetch_sub(1, Ordering::Relaxed);
                br#"{"data":[]}"#.to_vec()
            };
            let date = Some("Sun, 15 Nov 2026 20:00:00 GMT".to_owned());
            ExchangeOutcome::Answered(HttpAnswer {
                status: 200,
                reason: "OK".to_owned(),
                date,
                body,
            })
        })
    }
}

struct Asker {
    client: Client,
    node: Arc<SlowStorages>,
    watch: Arc<StorageWatch>,
}

fn asker(answers_after: Duration) -> Asker {
    let node = Arc::new(SlowStorages::default());
    node.ms.store(u64::try_from(answers_after.as_millis()).unwrap(), Ordering::Relaxed);
    let watch = Arc::new(StorageWatch::default());
    let client = Client::new(Arc::clone(&node) as Arc<dyn Exchange>, "pve1".parse().unwrap());
    let client = client.remembering_in(Arc::clone(&watch));
    Asker { client, node, watch }
}

fn nfs() -> StorageName {
    "nfs".parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn y04_a_storage_is_asked_one_question_at_a_time_and_others_are_not_delayed() {
    let Asker { client, node, .. } = asker(Duration::from_secs(1));
    let name = nfs();
    let filter = ContentFilter::All;
    let many = (0..4).map(|_| client.volumes(&name, &filter));
    let began = Instant::now();
    let answers = futures_util::future::join_all(many).await;
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(began.elapsed(), Duration::from_secs(4));
    let other = "tank".parse().unwrap();
    let (first, second) =
        futures_util::future::join(client.volumes(&name, &filter), client.volumes(&other, &filter))
            .await;
    assert!(first.is_ok() && second.is_ok());
    assert_eq!(began.elapsed(), Duration::from_secs(5));
    assert_eq!(node.most_at_once.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn y04_a_silent_storage_is_left_alone_named_and_asked_again_when_the_node_sees_it() {
    let Asker { client, node, watch } = asker(Duration::from_hours(1));
    let ask = || async { client.volumes(&nfs(), &ContentFilter::All).await };
    let began = Instant::now();
    let error = ask().await.unwrap_err();
    assert_eq!(began.elapsed(), Duration::from_secs(25));
    assert!(error.is_silent_storage() && error.is_transient(), "{error}");
    assert!(error.to_string().contains("the storage nfs does not answer since "), "{error}");
    assert_eq!(watch.silent().len(), 1);
    for _ in 0..100 {
        assert!(ask().await.unwrap_err().is_silent_storage());
    }
    assert_eq!(began.elapsed(), Duration::from_secs(25), "nobody waits for it");
    assert_eq!(node.asked.load(Ordering::Relaxed), 1);
    node.ms.store(10, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_mins(6)).await;
    ask().await.unwrap();
    assert!(watch.silent().is_empty());
}

#[tokio::test(start_paused = true)]
async fn y04_who_keeps_others_waiting_gives_a_slow_storage_up_and_leaves_the_question_open() {
    let Asker { client, node, .. } = asker(Duration::from_secs(10));
    let (hasty, gave_up) = client.in_haste();
    let began = Instant::now();
    assert!(hasty.volumes(&nfs(), &ContentFilter::All).await.unwrap_err().is_silent_storage());
    assert!(gave_up.load(Ordering::Relaxed));
    assert_eq!(began.elapsed(), Duration::from_secs(2));
    let (hasty, gave_up) = client.in_haste();
    assert!(hasty.volumes(&nfs(), &ContentFilter::All).await.is_err());
    assert_eq!((began.elapsed(), gave_up.load(Ordering::Relaxed)), (Duration::from_secs(2), true));
    // Who is patient hears the answer to the open question first, and is never beside it.
    client.volumes(&nfs(), &ContentFilter::All).await.unwrap();
    assert_eq!(began.elapsed(), Duration::from_secs(20));
    assert_eq!(node.most_at_once.load(Ordering::Relaxed), 1);
    node.ms.store(10, Ordering::Relaxed);
    client.volumes(&nfs(), &ContentFilter::All).await.unwrap();
    hasty.volumes(&nfs(), &ContentFilter::All).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn y04_questions_in_vain_leave_a_worker_whatever_else_is_asked() {
    let Asker { client, node, .. } = asker(Duration::from_hours(1));
    let names: Vec<StorageName> = ["nfs", "tank", "usb"].map(|name| name.parse().unwrap()).into();
    for _ in 0..3 {
        let filter = ContentFilter::All;
        let asking = names.iter().map(|name| client.volumes(name, &filter));
        let answers = futures_util::future::join_all(asking).await;
        let errors = answers.iter().filter_map(|answer| answer.as_ref().err());
        assert_eq!(errors.filter(|error| error.is_silent_storage()).count(), names.len());
    }
    assert_eq!(node.asked.load(Ordering::Relaxed), 2, "the third waits for the others");
    node.ms.store(10, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_mins(6)).await;
    client.volumes(&names[0], &ContentFilter::All).await.unwrap();
    client.volumes(&names[2], &ContentFilter::All).await.unwrap();
}
