//! What the hub adds: reports kept beside a bare loop of the same inserts, and polls answered beside a bare handler.
//!
//! Both floors are as durable and as parallel as what they are held against: the same database settings, as many
//! reports in one commit as wait at the hub, the same client on the same loopback.
#![expect(clippy::unwrap_used, reason = "a bench stops on errors")]
#![expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]

use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;

use evenkeel_core::fleet::{GuestReport, HostReport, ToldOperation};
use evenkeel_hub::secret_text::{SecretKind, SecretText};
use evenkeel_hub::server::{
    self, RunningHub, ServeLimits, ServerOptions, TlsChoice, TrustedProxies,
};
use evenkeel_hub::store::{HubStore, NewHost, NewReport};
use futures_util::future::join_all;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, Executor as _, SqliteConnection};

use crate::BenchRow;
use crate::hung_hub;
use crate::measure::median;

/// Runs of each row, by turns.
const RUNS: usize = 9;
/// Hosts that report at once, as in one busy second of a fleet.
const HOSTS: usize = 64;
/// Reports of each in one run.
const REPORTS: u64 = 10;
/// Guests that changed in each.
const GUESTS: usize = 5;
/// Polls of each connection in one run, and connections.
const POLLS: usize = 200;
const CONNECTIONS: usize = 8;

pub(crate) fn run() -> Vec<BenchRow> {
    // Other benches may have done it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async { vec![ingest().await, polls().await, hung_hub::passes().await] })
}

pub(crate) async fn hub(state: &Path) -> RunningHub {
    let options = ServerOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        state: state.to_owned(),
        database: None,
        public_url: None,
        tls: TlsChoice::Plain,
        limits: ServeLimits::default(),
        proxies: TrustedProxies::default(),
        audit_archive: None,
        metrics_token: None,
    };
    server::start(options).await.unwrap()
}

fn name(number: usize) -> String {
    format!("bench-{number}")
}

/// A host and its credential.
async fn enrol(store: &HubStore, number: usize) -> String {
    let token = SecretText::draw(SecretKind::EnrolToken);
    let credential = SecretText::draw(SecretKind::Credential);
    store.make_enrol_token(token.hash(), &name(number), false, "bench").await.unwrap();
    let host = NewHost {
        token: token.hash(),
        host: name(number),
        key_line: name(number),
        key_fingerprint: name(number),
        credential: credential.hash(),
    };
    store.enrol(host).await.unwrap().unwrap();
    credential.reveal().to_owned()
}

fn report(seq: u64) -> HostReport {
    let guest = |number: usize| GuestReport {
        guest: format!("lxc/{}", 100 + number),
        name: "web".to_owned(),
        state: "as_declared".to_owned(),
        actual: [("cores", seq.to_string()), ("memory", "2048".to_owned())]
            .map(|(key, value)| (key.to_owned(), value))
            .into(),
        ..GuestReport::default()
    };
    let op = ToldOperation {
        op: format!("op_{seq}"),
        guest: "lxc/100".to_owned(),
        kind: "set_config".to_owned(),
        state: "succeeded".to_owned(),
        ..ToldOperation::default()
    };
    HostReport { guests: (0..GUESTS).map(guest).collect(), ops: vec![op], ..HostReport::default() }
}

/// Reports a second: through the store, and as bare inserts of the same rows.
async fn ingest() -> BenchRow {
    // Under `target`: a temporary directory may be in memory, where a sync costs nothing.
    let scratch = tempfile::Builder::new().tempdir_in("target").unwrap();
    let store = server::open_store(scratch.path(), None).await.unwrap();
    for number in 0..HOSTS {
        enrol(&store, number).await;
    }
    let bare_file = scratch.path().join("bare.sqlite");
    store.backup(&bare_file).await.unwrap();
    let options = SqliteConnectOptions::new().filename(&bare_file).disable_statement_logging();
    let mut bare = SqliteConnection::connect_with(&options).await.unwrap();
    bare.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL").await.unwrap();
    let mut ours = Vec::new();
    let mut floor = Vec::new();
    let count = HOSTS as f64 * REPORTS as f64;
    for run in 0..=RUNS as u64 {
        let began = Instant::now();
        join_all((0..HOSTS).map(|number| keep(&store, number, run * REPORTS))).await;
        ours.push(count / began.elapsed().as_secs_f64());
        let began = Instant::now();
        for seq in run * REPORTS..(run + 1) * REPORTS {
            insert_all(&mut bare, seq).await;
        }
        floor.push(count / began.elapsed().as_secs_f64());
    }
    // The first run is for the caches.
    let row = BenchRow::new(
        "hub: reports kept",
        "reports/s",
        median(ours.split_off(1)),
        median(floor.split_off(1)),
    );
    store.close().await;
    row
}

async fn keep(store: &HubStore, number: usize, first: u64) {
    for seq in first + 1..=first + REPORTS {
        let report = NewReport {
            host: name(number),
            key_fingerprint: name(number),
            instance: "00000000000000aa".to_owned(),
            seq: i64::try_from(seq).unwrap(),
            base: i64::try_from(seq - 1).unwrap(),
            report: report(seq),
            head: None,
        };
        store.report(report).await.unwrap();
    }
}

/// One report of each host, in one transaction.
async fn insert_all(bare: &mut SqliteConnection, seq: u64) {
    let mut transaction = bare.begin().await.unwrap();
    for number in 0..HOSTS {
        let report = report(seq);
        for guest in &report.guests {
            sqlx::query(
                "INSERT OR REPLACE INTO guests (host, guest, name, state, body, updated_at) VALUES ($1, $2, $3, $4, $5, 1)",
            )
            .bind(name(number))
            .bind(&guest.guest)
            .bind(&guest.name)
            .bind(&guest.state)
            .bind(serde_json::to_string(guest).unwrap())
            .execute(&mut *transaction)
            .await
            .unwrap();
        }
        for op in &report.ops {
            sqlx::query(
                "INSERT INTO ops (host, op, serial, guest, kind, state, body, received_at) \
                 VALUES ($1, $2, $3, $4, $5, $6, $7, 1)",
            )
            .bind(name(number))
            .bind(&op.op)
            .bind(i64::try_from(seq).unwrap())
            .bind(&op.guest)
            .bind(&op.kind)
            .bind(&op.state)
            .bind(serde_json::to_string(op).unwrap())
            .execute(&mut *transaction)
            .await
            .unwrap();
        }
        sqlx::query("INSERT OR REPLACE INTO host_states (host, generation, refused, agent, pass, counts, last_head, host_time, reported_at) VALUES ($1, '', '', '', '', '', '', '', 1)")
            .bind(name(number))
            .execute(&mut *transaction)
            .await
            .unwrap();
        sqlx::query("UPDATE hosts SET seq = $1 WHERE id = $2")
            .bind(i64::try_from(seq).unwrap())
            .bind(name(number))
            .execute(&mut *transaction)
            .await
            .unwrap();
    }
    transaction.commit().await.unwrap();
}

/// Polls a second that find nothing: through the hub, and at a handler that only says so.
async fn polls() -> BenchRow {
    let scratch = tempfile::Builder::new().tempdir_in("target").unwrap();
    let hub = hub(scratch.path()).await;
    let bare = axum::Router::new().fallback(|| async { axum::http::StatusCode::NO_CONTENT });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let bare_address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, bare).await });
    let mut ours = Vec::new();
    let mut floor = Vec::new();
    let mut host = 0;
    for _ in 0..=RUNS {
        // New hosts each time: one host may ask only so often.
        let mut credentials = Vec::new();
        for _ in 0..CONNECTIONS * POLLS / 100 {
            credentials.push(enrol(hub.hub.store(), host).await);
            host += 1;
        }
        ours.push(ask(hub.address, &credentials).await);
        floor.push(ask(bare_address, &credentials).await);
    }
    let row = BenchRow::new(
        "hub: empty polls",
        "polls/s",
        median(ours.split_off(1)),
        median(floor.split_off(1)),
    );
    hub.stop().await;
    row
}

async fn ask(address: SocketAddr, credentials: &[String]) -> f64 {
    let client = reqwest::Client::new();
    let url = format!("http://{address}/v1/agent/poll?generation=0&cursor=0&wait=0");
    let began = Instant::now();
    let asking = credentials.chunks(credentials.len() / CONNECTIONS).map(|mine| {
        let client = client.clone();
        let url = url.clone();
        async move {
            for credential in mine {
                for _ in 0..100 {
                    let request =
                        client.get(&url).header("authorization", format!("Bearer {credential}"));
                    assert_eq!(request.send().await.unwrap().status().as_u16(), 204);
                }
            }
        }
    });
    join_all(asking).await;
    (CONNECTIONS * POLLS) as f64 / began.elapsed().as_secs_f64()
}
