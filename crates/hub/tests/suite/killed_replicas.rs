//! Three replicas on one PostgreSQL, each a process of its own, one of them killed again and again while hosts report and
//! people hand in envelopes.
//!
//! What was acknowledged is written into a ledger by the side that was told so; at the end the database must hold exactly
//! that: nothing lost, doubled or in another order for any host. Whoever asks repeats the same bytes at the next replica, as
//! agents and people do; an answer that repeating does not mend is an error. `scripts/hub-replicas` runs it for minutes.

use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use evenkeel_core::fleet::{
    AcknowledgeStatement, EnvelopeVerdict, GuestReport, HostReport, JournalHead, PayloadHash,
    ReportedDecision, ToldOperation,
};
use evenkeel_core::operate::operation::UnixSeconds;
use evenkeel_core::sign::{Namespace, TrustVersion, Window};
use sqlx::Row as _;

use super::crash::child;
use super::host::{HubReply, TestHost};
use evenkeel_hub::secret_text::{SecretKind, SecretText, random_hex};
use evenkeel_hub::server::{ServeLimits, ServerOptions, TlsChoice, TrustedProxies, start};
use evenkeel_hub::store::{
    Account, AccountKey, Database, HubStore, HubTime, NewAccount, PersonRole,
};
use evenkeel_testkit::patience::PATIENCE;
use evenkeel_testkit::postgres::TestPostgres;

const DATABASE: &str = "EVENKEEL_HUB_TEST_DATABASE";
const LISTEN: &str = "EVENKEEL_HUB_TEST_LISTEN";
/// How long the load goes on; minutes in `scripts/hub-replicas`.
const SECONDS: &str = "EVENKEEL_HUB_REPLICA_SECONDS";
const SHORT_S: u64 = 30;
/// How often one is killed: every 10 s of a long run.
const KILL_EVERY_S: u64 = 10;
const KILL_EVERY_SHORT_S: u64 = 5;
const REPLICAS: usize = 3;
const HOSTS: usize = 8;
/// What all replicas are called.
const PUBLIC_URL: &str = "http://hub.example";
/// What every run must have seen, however busy the machine: kills, and reports of each host.
const KILLS_MIN: usize = 3;
const REPORTS_MIN: i64 = 6;

/// A replica. Only the test below starts it, and kills it.
#[tokio::test]
#[ignore = "a child of other tests"]
async fn replica_child() {
    let (Ok(database), Ok(listen)) = (std::env::var(DATABASE), std::env::var(LISTEN)) else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let options = ServerOptions {
        listen: listen.parse().unwrap(),
        state: directory.path().to_owned(),
        database: Some(database),
        public_url: Some(PUBLIC_URL.to_owned()),
        tls: TlsChoice::Plain,
        limits: ServeLimits::default(),
        proxies: TrustedProxies::default(),
        audit_archive: None,
        metrics_token: None,
    };
    let running = start(options).await.unwrap();
    running.hub.stopped().await;
}

/// A process that ends with its value.
struct Replica(Child);

impl Replica {
    fn start(database: &str, listen: &str) -> Self {
        let mut command = child("killed_replicas::replica_child");
        command.env(DATABASE, database).env(LISTEN, listen);
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What was acknowledged to one host, and for it.
#[derive(Debug, Default, PartialEq)]
struct AckLedger {
    /// The last report.
    seq: i64,
    ops: Vec<String>,
    decisions: Vec<String>,
    envelopes: Vec<String>,
}

/// How often a request had to be repeated.
#[derive(Default)]
struct Repeats {
    asked: AtomicU64,
    repeated: AtomicU64,
}

/// Repeats a request at one replica after the other until it is answered for good.
async fn insist(
    urls: &[String],
    turn: &mut usize,
    repeats: &Repeats,
    mut ask: impl AsyncFnMut(&str) -> Option<HubReply>,
) -> HubReply {
    let began = Instant::now();
    repeats.asked.fetch_add(1, Ordering::Relaxed);
    loop {
        let url = &urls[*turn % urls.len()];
        *turn += 1;
        match ask(url).await {
            Some(reply) if reply.status < 500 && reply.status != 429 => return reply,
            Some(_) | None => {}
        }
        assert!(began.elapsed() < PATIENCE, "repeating does not mend it");
        repeats.repeated.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// One host and the person who hands in envelopes for it, until it is over.
async fn live(
    mut host: TestHost,
    token: String,
    urls: Vec<String>,
    is_over: Arc<AtomicBool>,
    repeats: Arc<Repeats>,
) -> AckLedger {
    let mut ledger = AckLedger::default();
    let mut turn = usize::from(host.id.as_bytes()[3]);
    let mut verdicts: Vec<EnvelopeVerdict> = Vec::new();
    while !is_over.load(Ordering::Relaxed) || ledger.seq < REPORTS_MIN {
        let envelope = acknowledgement(&host);
        let body = serde_json::json!({ "envelope": envelope }).to_string().into_bytes();
        let reply = insist(&urls, &mut turn, &repeats, async |url| {
            url.clone_into(&mut host.url);
            host.try_post("/v1/envelopes", &token, body.clone()).await
        });
        let reply = reply.await;
        assert_eq!(reply.status, 200, "{reply:?}");
        ledger.envelopes.push(reply.body["id"].as_str().unwrap().to_owned());

        let polled = insist(&urls, &mut turn, &repeats, async |url| {
            url.clone_into(&mut host.url);
            host.try_poll(0, 0, 0).await
        });
        for waiting in polled.await.body["envelopes"].as_array().into_iter().flatten() {
            let envelope = waiting["id"].as_str().unwrap().parse().unwrap();
            let code = "replay".to_owned();
            verdicts.push(EnvelopeVerdict {
                envelope,
                code,
                op: None,
                detail: String::new(),
                sealed: None,
            });
        }

        let seq = ledger.seq + 1;
        let op = format!("op_{seq}");
        let decision = format!("{seq:064x}");
        let report = HostReport {
            guests: vec![GuestReport {
                guest: format!("lxc/{}", 100 + seq % 20),
                state: "drifted".to_owned(),
                ..GuestReport::default()
            }],
            ops: vec![ToldOperation { op: op.clone(), ..ToldOperation::default() }],
            decisions: vec![ReportedDecision {
                id: decision.clone(),
                ..ReportedDecision::default()
            }],
            verdicts: std::mem::take(&mut verdicts),
            ..HostReport::default()
        };
        let number = seq.unsigned_abs();
        let base = ledger.seq.unsigned_abs();
        let reply = insist(&urls, &mut turn, &repeats, async |url| {
            url.clone_into(&mut host.url);
            host.try_report(number, base, &report).await
        });
        let reply = reply.await;
        assert_eq!((reply.status, &reply.body["seq"]), (200, &seq.into()), "{reply:?}");
        ledger.seq = seq;
        ledger.ops.push(op);
        ledger.decisions.push(decision);
        // A host asks four times a second at most, for long.
        tokio::time::sleep(Duration::from_millis(600)).await;
    }
    ledger
}

/// Something to be handed in, with a nonce of its own.
fn acknowledgement(host: &TestHost) -> evenkeel_core::fleet::SealedText {
    let now = UnixSeconds((HubTime::now().0 / 1000).unsigned_abs());
    let head = |seq| JournalHead {
        epoch: 1,
        seq,
        sum: PayloadHash::of(b"sum"),
        trust_version: TrustVersion(1),
    };
    let statement = AcknowledgeStatement {
        host: host.binding(),
        hub_id: host.hub_id.parse().unwrap(),
        anchored: head(9),
        found: head(7),
        nonce: random_hex(16).parse().unwrap(),
        window: Window::new(now.minus(60), now.plus(3600)).unwrap(),
        trust_version: TrustVersion(1),
        reason: String::new(),
    };
    host.sealed(Namespace::Acknowledge, &statement.to_bytes().unwrap())
}

/// What the database holds of a host.
async fn kept(database: &Database, host: &str) -> AckLedger {
    let mut connection = database.connection().await.unwrap();
    let mut column = async |query: &'static str| {
        let rows = sqlx::query(query).bind(host).fetch_all(&mut connection).await.unwrap();
        rows.iter().map(|row| row.get::<String, _>(0)).collect::<Vec<_>>()
    };
    let ops = column("SELECT op FROM ops WHERE host = $1 ORDER BY serial").await;
    let decisions = column("SELECT id FROM decisions WHERE host = $1 ORDER BY serial").await;
    let envelopes = column("SELECT id FROM envelopes WHERE host = $1 ORDER BY cursor").await;
    let seq = sqlx::query("SELECT seq FROM hosts WHERE id = $1").bind(host);
    let seq = seq.fetch_one(&mut connection).await.unwrap().get(0);
    AckLedger { seq, ops, decisions, envelopes }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whichever_replica_is_killed_the_database_is_the_ledger_of_what_was_acknowledged() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let seconds = std::env::var(SECONDS).ok().and_then(|text| text.parse().ok());
    let every = if seconds.is_some() { KILL_EVERY_S } else { KILL_EVERY_SHORT_S };
    let seconds = seconds.unwrap_or(SHORT_S);
    let postgres = TestPostgres::start();
    let url = postgres.database("hub");
    let database = Database::from_url(&url).unwrap();
    let store = HubStore::open(database.clone()).await.unwrap();
    let listens: Vec<String> = (0..REPLICAS).map(|_| free_address()).collect();
    let urls: Vec<String> = listens.iter().map(|listen| format!("http://{listen}")).collect();
    let mut replicas: Vec<Option<Replica>> =
        listens.iter().map(|listen| Some(Replica::start(&url, listen))).collect();

    let token = person(&store).await;
    let repeats = Arc::new(Repeats::default());
    let mut hosts = Vec::new();
    for number in 0..HOSTS {
        let id = format!("pve{number}");
        let enrol = SecretText::draw(SecretKind::EnrolToken);
        store.make_enrol_token(enrol.hash(), &id, false, "alice").await.unwrap();
        let mut host = TestHost::alone(&id, &urls[0], store.hub_id());
        let request = host.enrolment(enrol.reveal(), PUBLIC_URL);
        let body = serde_json::to_vec(&request).unwrap();
        let mut turn = 0;
        let reply = insist(&urls, &mut turn, &repeats, async |url| {
            url.clone_into(&mut host.url);
            host.try_post("/v1/agent/enrol", "", body.clone()).await
        });
        let reply = reply.await;
        reply.body["credential"].as_str().unwrap().clone_into(&mut host.credential);
        hosts.push(host);
    }

    let until = Instant::now() + Duration::from_secs(seconds);
    let is_over = Arc::new(AtomicBool::new(false));
    let names: Vec<String> = hosts.iter().map(|host| host.id.clone()).collect();
    let lives = hosts
        .into_iter()
        .map(|host| live(host, token.clone(), urls.clone(), is_over.clone(), repeats.clone()));
    let killing = async {
        let mut kills = 0;
        while kills < KILLS_MIN || Instant::now() + Duration::from_secs(every) < until {
            tokio::time::sleep(Duration::from_secs(every)).await;
            let place = kills % REPLICAS;
            // Killed first, then another on its address.
            replicas[place] = None;
            replicas[place] = Some(Replica::start(&url, &listens[place]));
            kills += 1;
        }
        tokio::time::sleep_until(until.into()).await;
        is_over.store(true, Ordering::Relaxed);
        kills
    };
    let (kills, ledgers) = tokio::join!(killing, futures_util::future::join_all(lives));
    let mut told = (0, 0);
    for (name, ledger) in names.iter().zip(ledgers) {
        told = (told.0 + ledger.ops.len(), told.1 + ledger.envelopes.len());
        assert_eq!(kept(&database, name).await, ledger, "{name}");
    }
    let asked = &repeats.asked;
    let repeated = &repeats.repeated;
    println!(
        "{kills} kills in {seconds} s: {} requests, {} repeated; {} reports, {} envelopes acknowledged, all kept once and in order",
        asked.load(Ordering::Relaxed),
        repeated.load(Ordering::Relaxed),
        told.0,
        told.1,
    );
    drop(replicas);
    store.close().await;
}

/// An editor with a token.
async fn person(store: &HubStore) -> String {
    let name = "alice".to_owned();
    let scope = "*".to_owned();
    let account = Account { name, role: PersonRole::Editor, scope };
    let fingerprint = "SHA256:alice".to_owned();
    let key_line = "ssh-ed25519 AAAA".to_owned();
    let key = AccountKey { fingerprint, key_line };
    let made_by = "server".to_owned();
    store.add_account(NewAccount { account, key, made_by, first_code: None }).await.unwrap();
    let token = SecretText::draw(SecretKind::ApiToken);
    store.open_token(token.hash(), "alice", "SHA256:alice", 3600).await.unwrap().unwrap();
    token.reveal().to_owned()
}

/// A port for a process that is killed and comes back to it. On an address of loopback that nothing else here uses: in
/// between, no connection of another test can be given the same port.
fn free_address() -> String {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let listener = TcpListener::bind((Ipv4Addr::new(127, 1 | high, middle, low | 1), 0)).unwrap();
    listener.local_addr().unwrap().to_string()
}
