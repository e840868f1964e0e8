//! What people who watch hear: of every replica's writes, and of what they missed while they were away.

use evenkeel_core::fleet::HostReport;

use super::host::TestHost;
use super::reports::with_guest;
use super::{TestBed, document, looked};
use evenkeel_hub::routes::Hub;
use evenkeel_hub::secret_text::{SecretKind, SecretText};
use evenkeel_hub::server::RunningHub;
use evenkeel_hub::store::{Account, AccountKey, NewAccount, PersonRole, StoreChange};
use evenkeel_testkit::patience::PATIENCE;

/// Somebody who watches.
struct TestStream {
    response: reqwest::Response,
    heard: String,
}

impl TestStream {
    /// Opens a stream at a hub, after a mark.
    async fn open(url: &str, token: &SecretText, mark: Option<&str>) -> Self {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let request = client.get(format!("{url}/v1/events"));
        let request = request.header("authorization", format!("Bearer {}", token.reveal()));
        let request = match mark {
            Some(mark) => request.header("last-event-id", mark),
            None => request,
        };
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        Self { response, heard: String::new() }
    }

    /// Waits until something was heard, and the rest of its message; all that was.
    async fn until(&mut self, text: &str) -> &str {
        let heard = tokio::time::timeout(PATIENCE, async {
            while !self.heard.contains(text) || !self.is_at_a_mark() {
                let chunk = self.response.chunk().await.unwrap().expect("the stream goes on");
                self.heard.push_str(std::str::from_utf8(&chunk).unwrap());
            }
        });
        assert!(heard.await.is_ok(), "never heard {text:?}, but {:?}", self.heard);
        &self.heard
    }

    /// Whether what was heard ends with a whole mark, as every message does.
    fn is_at_a_mark(&self) -> bool {
        let whole = self.heard.strip_suffix("\n\n");
        whole.and_then(|text| text.lines().next_back()).is_some_and(|line| line.starts_with("id: "))
    }

    /// Waits until everything was heard that happened at its hub so far; the mark of that. A burst may be told in two messages.
    async fn caught_up(&mut self, hub: &Hub) -> String {
        let changes = hub.store().changes();
        let mark = changes.mark_of(changes.subscribe_after("").newest);
        self.until(&format!("id: {mark}\n\n")).await;
        mark
    }
}

/// The token of somebody who sees hosts of a scope.
async fn watcher(bed: &TestBed, name: &str, scope: &str) -> SecretText {
    let fingerprint = format!("SHA256:{name}");
    let key = AccountKey { fingerprint: fingerprint.clone(), key_line: String::new() };
    let account = Account::new(name, PersonRole::Viewer, scope).unwrap();
    let made_by = "server".to_owned();
    let new = NewAccount { account, key, made_by, first_code: None };
    bed.store().add_account(new).await.unwrap();
    let token = SecretText::draw(SecretKind::ApiToken);
    bed.store().open_token(token.hash(), name, &fingerprint, 60).await.unwrap().unwrap();
    token
}

/// What happened before is old news by then, at both hubs.
async fn settled(bed: &TestBed, other: &RunningHub) {
    looked(bed.hub()).await;
    looked(&other.hub).await;
}

pub(super) async fn a_report_taken_by_another_replica_is_heard(bed: TestBed) {
    let mut host = TestHost::enrolled(&bed, "pve1").await;
    let token = watcher(&bed, "alice", "*").await;
    let stranger = watcher(&bed, "bob", "eu-*").await;
    let other = bed.another().await;
    settled(&bed, &other).await;
    let mut stream = TestStream::open(&other.url, &token, None).await;
    let mut outside = TestStream::open(&other.url, &stranger, None).await;
    stream.until("event: resync").await;
    assert_eq!(host.report(1, 0, &with_guest("lxc/101", "held")).await.status, 200);
    for event in ["host", "pending", "document"] {
        let message = format!("event: {event}\ndata: {{\"name\":\"pve1\"}}");
        stream.until(&message).await;
    }
    // Its own replica tells it once: it knows that it wrote the row itself.
    let version = bed.number("SELECT version FROM hosts").await;
    assert!(bed.store().changes().is_own("pve1", None, version));
    assert!(!other.hub.store().changes().is_own("pve1", None, version));
    // A sign of life is no news for anybody else, and leaves the row as it is: whoever takes it did not write that.
    host.url.clone_from(&other.url);
    assert_eq!(host.report(2, 1, &HostReport::default()).await.status, 200);
    host.url = bed.url().to_owned();
    assert_eq!(bed.number("SELECT version FROM hosts").await, version);
    assert!(!other.hub.store().changes().is_own("pve1", None, version));
    assert_eq!(host.report(3, 2, &with_guest("lxc/101", "drifted")).await.status, 200);
    assert_eq!(bed.number("SELECT version FROM hosts").await, version + 1);
    bed.store().push(document("pve1", 0, "one")).await.unwrap();
    settled(&bed, &other).await;
    outside.until("event: resync").await;
    assert!(!outside.heard.contains("pve1"), "{}", outside.heard);
    other.stop().await;
}

pub(super) async fn who_comes_back_is_told_what_they_missed(bed: TestBed) {
    TestHost::enrolled(&bed, "pve1").await;
    let host = TestHost::enrolled(&bed, "pve2").await;
    let token = watcher(&bed, "alice", "*").await;
    let other = bed.another().await;
    settled(&bed, &other).await;
    let mut stream = TestStream::open(bed.url(), &token, None).await;
    stream.until("event: resync").await;
    assert_eq!(host.report(1, 0, &with_guest("lxc/101", "held")).await.status, 200);
    stream.until("\"pve2\"").await;
    let mark = stream.caught_up(bed.hub()).await;
    drop(stream);
    bed.store().push(document("pve1", 0, "one")).await.unwrap();
    let mut back = TestStream::open(bed.url(), &token, Some(&mark)).await;
    let heard = back.until("event: document\ndata: {\"name\":\"pve1\"}").await;
    assert!(!heard.contains("resync") && !heard.contains("pve2"), "{heard}");
    // Who missed nothing hears nothing.
    let mark = back.caught_up(bed.hub()).await;
    let mut again = TestStream::open(bed.url(), &token, Some(&mark)).await;
    let heard = again.until("id: ").await;
    assert!(!heard.contains("event:"), "{heard}");
    // Another replica counts otherwise, and says so.
    let mut elsewhere = TestStream::open(&other.url, &token, Some(&mark)).await;
    elsewhere.until("event: resync").await;
    other.stop().await;
}

pub(super) async fn a_write_at_another_replica_is_told_here(bed: TestBed) {
    TestHost::enrolled(&bed, "pve1").await;
    let other = bed.another().await;
    settled(&bed, &other).await;
    let mut changes = other.hub.store().changes().subscribe();
    bed.store().push(document("pve1", 0, "one")).await.unwrap();
    let heard = tokio::time::timeout(PATIENCE, async {
        loop {
            if let StoreChange::Elsewhere(host) = changes.recv().await.unwrap().change {
                return host;
            }
        }
    });
    assert_eq!(heard.await.unwrap(), "pve1");
    // A line of the audit that touches no host; where it was written it is told once.
    settled(&bed, &other).await;
    let mut changes = other.hub.store().changes().subscribe();
    let mut own = bed.store().changes().subscribe();
    bed.store().audit("alice", "login", "alice", "").await.unwrap();
    let heard = tokio::time::timeout(PATIENCE, async {
        while changes.recv().await.unwrap().change != StoreChange::Audit {}
    });
    heard.await.expect("the other replica tells of the line");
    settled(&bed, &other).await;
    assert_eq!(own.try_recv().unwrap().change, StoreChange::Audit);
    assert!(own.try_recv().is_err(), "told twice");
    other.stop().await;
}
