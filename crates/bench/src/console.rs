//! What the console adds: the first byte of the fleet's page, beside a bare axum page of the same bytes, with a hundred, a thousand
//! and five thousand hosts. The same client on the same loopback, by turns; who asks comes with a session, as a browser does.
#![expect(clippy::unwrap_used, reason = "a bench stops on errors")]
#![expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]

use std::time::Instant;

use evenkeel_hub::people::browser_mark::BrowserWord;
use evenkeel_hub::secret_text::{SecretKind, SecretText};
use evenkeel_hub::server::RunningHub;
use evenkeel_hub::store::{Account, AccountKey, NewAccount, PersonRole};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, Executor as _, SqliteConnection};

use crate::BenchRow;
use crate::hub::hub;
use crate::measure::median;

/// Hosts of the fleet, growing.
const HOSTS: [(u32, &str); 3] = [
    (100, "console: first byte of 100 hosts"),
    (1_000, "console: first byte of 1,000 hosts"),
    (5_000, "console: first byte of 5,000 hosts"),
];
/// Times each page is asked for, by turns.
const RUNS: usize = 201;

pub(crate) fn run() -> Vec<BenchRow> {
    // Other benches may have done it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut rows = Vec::new();
        for (hosts, name) in HOSTS {
            rows.push(first_byte(hosts, name).await);
        }
        rows
    })
}

/// Microseconds until the first byte of the body.
async fn first_byte(hosts: u32, name: &'static str) -> BenchRow {
    let scratch = tempfile::Builder::new().tempdir_in("target").unwrap();
    let hub = hub(scratch.path()).await;
    crowd(&scratch.path().join("hub.sqlite"), hosts).await;
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let cookie = session(&hub, &client).await;
    let url = format!("{}/console/fleet", hub.url);
    let page = client.get(&url).header("cookie", &cookie).send().await.unwrap();
    assert_eq!(page.status().as_u16(), 200);
    let page = page.bytes().await.unwrap();
    assert!(page.len() > 10_000, "{}", page.len());
    let bare = axum::Router::new().fallback(move || {
        let page = page.clone();
        async move { ([("content-type", "text/html; charset=utf-8")], page) }
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let bare_url = format!("http://{}/console/fleet", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, bare).await });
    let mut ours = Vec::new();
    let mut floor = Vec::new();
    for _ in 0..=RUNS {
        ours.push(ask(&client, &url, &cookie).await);
        floor.push(ask(&client, &bare_url, &cookie).await);
    }
    // The first is for the caches.
    let row = BenchRow::new(name, "µs", median(ours.split_off(1)), median(floor.split_off(1)));
    hub.stop().await;
    row
}

async fn ask(client: &reqwest::Client, url: &str, cookie: &str) -> f64 {
    let began = Instant::now();
    let mut answer = client.get(url).header("cookie", cookie).send().await.unwrap();
    let first = answer.chunk().await.unwrap();
    let passed = began.elapsed().as_nanos() as f64 / 1000.0;
    assert!(first.is_some_and(|bytes| !bytes.is_empty()));
    while answer.chunk().await.unwrap().is_some() {}
    passed
}

/// A person's cookie.
async fn session(hub: &RunningHub, client: &reqwest::Client) -> String {
    let store = hub.hub.store();
    let account = Account { name: "bench".into(), role: PersonRole::Viewer, scope: "*".into() };
    let key = AccountKey { fingerprint: "SHA256:bench".into(), key_line: "bench".into() };
    let new = NewAccount { account, key, made_by: "bench".into(), first_code: None };
    store.add_account(new).await.unwrap();
    let token = SecretText::draw(SecretKind::ApiToken);
    store.open_token(token.hash(), "bench", "SHA256:bench", 3600).await.unwrap().unwrap();
    let entry = client.get(format!("{}/console", hub.url)).send().await.unwrap();
    let browser = entry.headers()["set-cookie"].to_str().unwrap().to_owned();
    let page = entry.text().await.unwrap();
    let word = page.split("data-browser=\"").nth(1).unwrap().split('"').next().unwrap();
    let word = BrowserWord::read(word).unwrap();
    let code = SecretText::draw(SecretKind::OneTimeCode);
    store.add_console_code(code.hash(), token.hash(), word.as_str(), 60).await.unwrap();
    let body = serde_json::json!({ "code": code.reveal() }).to_string();
    let opened = client.post(format!("{}/v1/sessions", hub.url)).header("cookie", browser);
    let opened = opened.body(body).send().await.unwrap();
    let cookie = opened.headers()["set-cookie"].to_str().unwrap();
    cookie.split(';').next().unwrap().to_owned()
}

/// Rows as reports would leave them.
async fn crowd(file: &std::path::Path, count: u32) {
    let options = SqliteConnectOptions::new().filename(file).disable_statement_logging();
    let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
    let now = jiff::Timestamp::now().as_millisecond();
    let numbers = format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})"
    );
    let hosts = format!(
        "{numbers} INSERT INTO hosts (id, key_line, key_fingerprint, credential_hash, labels, wanted, cursor, serial, \
         instance, seq, reported, enrolled_at, last_seen, changed_at, version) \
         SELECT printf('node-%04d', i), '', 'SHA256:' || i, 'hash' || i, '{{\"rack\":\"a1\",\"site\":\"berlin\"}}', \
         4, 0, 0, '', 0, 4, {now}, {now}, {now} - 60000, 1 FROM n"
    );
    let states = format!(
        "{numbers} INSERT INTO host_states (host, generation, refused, agent, pass, counts, last_head, host_time, reported_at) \
         SELECT printf('node-%04d', i), '{{\"number\":4}}', '', '{{}}', '', '{{\"as_declared\":38,\"drifted\":2,\"held\":1}}', '', '', {now} FROM n"
    );
    for query in [hosts, states] {
        connection.execute(sqlx::AssertSqlSafe(query)).await.unwrap();
    }
    connection.close().await.unwrap();
}
