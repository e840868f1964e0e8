//! A hub in memory with people and hosts of its own: requests go through the real router, without sockets.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use ed25519_dalek::{Signer as _, SigningKey};
use evenkeel_core::fleet::{
    AcknowledgeStatement, DesiredStatement, DocumentFiles, Generation, JournalHead, LoginStatement,
    SignedBase,
};
use evenkeel_core::operate::operation::UnixSeconds;
use evenkeel_core::sign::{
    Envelope, HostBinding, Namespace, Nonce, PayloadHash, PublicKey, TrustVersion, Window,
    assemble, signed_bytes, wire,
};
use evenkeel_hub::Hub;
use evenkeel_hub::routes::router;
use evenkeel_hub::secret_text::{SecretKind, SecretText};
use evenkeel_hub::store::{
    Account, AccountKey, Database, HubStore, HubTime, NewAccount, NewHost, PersonRole,
};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use sqlx::any::AnyRow;
use sqlx::{Connection as _, Row as _};
use tower::ServiceExt as _;

use evenkeel_testkit::postgres::TestPostgres;

pub(crate) const HUB_URL: &str = "https://hub.example:8443";

/// A key in software.
pub(crate) struct TestKey(SigningKey);

impl TestKey {
    pub(crate) fn new(seed: u8) -> Self {
        Self(SigningKey::from_bytes(&[seed; 32]))
    }

    /// One of many.
    pub(crate) fn numbered(number: u32) -> Self {
        let mut seed = [0xA5; 32];
        seed[..4].copy_from_slice(&number.to_be_bytes());
        Self(SigningKey::from_bytes(&seed))
    }

    pub(crate) fn public(&self) -> PublicKey {
        let mut blob = Vec::new();
        wire::put_string(&mut blob, b"ssh-ed25519");
        wire::put_string(&mut blob, self.0.verifying_key().as_bytes());
        PublicKey::from_blob(&blob).unwrap()
    }

    pub(crate) fn account_key(&self) -> AccountKey {
        let key = self.public();
        AccountKey { fingerprint: key.fingerprint().to_string(), key_line: key.to_string() }
    }

    /// Exact bytes, sealed for a purpose.
    pub(crate) fn seal(&self, namespace: Namespace, payload: &[u8]) -> Value {
        let mut signature = Vec::new();
        wire::put_string(&mut signature, b"ssh-ed25519");
        wire::put_string(
            &mut signature,
            &self.0.sign(&signed_bytes(namespace, payload)).to_bytes(),
        );
        let armour = assemble(&self.public(), namespace, &signature).unwrap();
        serde_json::from_str(&Envelope::seal(payload, &[&armour]).unwrap()).unwrap()
    }
}

/// An answer, read whole.
#[derive(Debug)]
pub(crate) struct TestAnswer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
    /// The same as it was sent.
    pub(crate) page: String,
}

impl TestAnswer {
    pub(crate) fn text(&self, name: &str) -> &str {
        self.body[name].as_str().unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }
}

/// How somebody comes.
#[derive(Clone, Debug)]
pub(crate) enum With {
    Nothing,
    Bearer(String),
    /// A session's cookie and the token that was shown with it.
    Session(String, Option<String>),
}

tokio::task_local! {
    /// The server that the worlds of a test are made on; none for a file each.
    static POSTGRES: TestPostgres;
}

/// Runs a case with its worlds on PostgreSQL.
pub(crate) async fn on_postgresql(case: impl Future<Output = ()>) {
    POSTGRES.scope(TestPostgres::start(), case).await;
}

/// A name that nobody else has.
fn drawn() -> String {
    SecretText::draw(SecretKind::Session).reveal()[5..21].to_owned()
}

pub(crate) struct World {
    pub(crate) hub: Hub,
    pub(crate) router: axum::Router,
    directory: tempfile::TempDir,
    /// Its database.
    url: String,
}

impl World {
    /// A hub with the hosts `eu-1` and `us-1`.
    pub(crate) async fn new() -> Self {
        let world = Self::empty().await;
        world.host("eu-1", 201).await;
        world.host("us-1", 202).await;
        world
    }

    pub(crate) async fn empty() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let postgres = POSTGRES.try_with(|server| server.database(&format!("world_{}", drawn())));
        let file = || format!("sqlite:{}", directory.path().join("hub.sqlite").display());
        let url = postgres.unwrap_or_else(|_| file());
        let store = HubStore::open(Database::from_url(&url).unwrap()).await.unwrap();
        let hub = Hub::new(store, HUB_URL);
        let router = router(&hub);
        Self { hub, router, directory, url }
    }

    pub(crate) fn file(&self) -> std::path::PathBuf {
        self.directory.path().join("hub.sqlite")
    }

    /// Enrols a host and answers with its credential.
    pub(crate) async fn host(&self, host: &str, seed: u8) -> String {
        let token = SecretText::draw(SecretKind::EnrolToken);
        self.hub.store().make_enrol_token(token.hash(), host, true, "server").await.unwrap();
        let credential = SecretText::draw(SecretKind::Credential);
        let AccountKey { fingerprint, key_line } = TestKey::new(seed).account_key();
        let new = NewHost {
            token: token.hash(),
            host: host.to_owned(),
            key_line,
            key_fingerprint: fingerprint,
            credential: credential.hash(),
        };
        self.hub.store().enrol(new).await.unwrap().unwrap();
        credential.reveal().to_owned()
    }

    pub(crate) async fn account(&self, name: &str, role: PersonRole, scope: &str, seed: u8) {
        let account = Account { name: name.to_owned(), role, scope: scope.to_owned() };
        let key = TestKey::new(seed).account_key();
        let made_by = "server".to_owned();
        let new = NewAccount { account, key, made_by, first_code: None };
        self.hub.store().add_account(new).await.unwrap();
    }

    /// A token of an account that holds the key.
    pub(crate) async fn token(&self, name: &str, seed: u8) -> With {
        let token = SecretText::draw(SecretKind::ApiToken);
        let print = TestKey::new(seed).account_key().fingerprint;
        self.hub.store().open_token(token.hash(), name, &print, 3600).await.unwrap().unwrap();
        With::Bearer(token.reveal().to_owned())
    }

    /// An account and a token of it.
    pub(crate) async fn person(&self, name: &str, role: PersonRole, scope: &str, seed: u8) -> With {
        self.account(name, role, scope, seed).await;
        self.token(name, seed).await
    }

    /// A browser that has opened the hub's page: its cookie and its word.
    pub(crate) async fn browser(&self) -> (String, String) {
        let entry = self.ask(Method::GET, "/console", &With::Nothing, None).await;
        let cookie = entry.headers["set-cookie"].to_str().unwrap();
        let cookie = cookie.split(';').next().unwrap().to_owned();
        let word = entry.page.split("data-browser=\"").nth(1).unwrap();
        (cookie, word.split('"').next().unwrap().to_owned())
    }

    /// A one-time code of a person who has a token, for a browser.
    pub(crate) async fn code(&self, token: &With, word: &str) -> String {
        let body = json!({"browser": word});
        let code = self.ask(Method::POST, "/v1/console-codes", token, Some(body)).await;
        assert_eq!(code.status, StatusCode::OK, "{code:?}");
        code.text("code").to_owned()
    }

    /// Shows a code in a browser.
    pub(crate) async fn enter(
        &self,
        code: &str,
        with: &With,
        headers: &[(&str, &str)],
    ) -> TestAnswer {
        let body = Some(json!({"code": code}));
        self.ask_with(Method::POST, "/v1/sessions", with, body, headers).await
    }

    /// A session of a person who has a token.
    pub(crate) async fn session(&self, token: &With) -> With {
        let (browser, word) = self.browser().await;
        let code = self.code(token, &word).await;
        let opened = self.enter(&code, &With::Nothing, &[("cookie", &browser)]).await;
        assert_eq!(opened.status, StatusCode::OK, "{opened:?}");
        let cookie = opened.headers["set-cookie"].to_str().unwrap();
        let cookie = cookie.split(';').next().unwrap().to_owned();
        With::Session(cookie, Some(opened.text("csrf").to_owned()))
    }

    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        with: &With,
        body: Option<Value>,
    ) -> TestAnswer {
        self.ask_with(method, path, with, body, &[]).await
    }

    pub(crate) async fn ask_with(
        &self,
        method: Method,
        path: &str,
        with: &With,
        body: Option<Value>,
        headers: &[(&str, &str)],
    ) -> TestAnswer {
        let body = match body {
            None => Vec::new(),
            // A form, as a browser writes it.
            Some(Value::String(form)) => form.into_bytes(),
            Some(body) => body.to_string().into_bytes(),
        };
        self.ask_bytes(method, path, with, body, headers).await
    }

    /// The same with exact bytes, whatever they are.
    pub(crate) async fn ask_bytes(
        &self,
        method: Method,
        path: &str,
        with: &With,
        body: Vec<u8>,
        headers: &[(&str, &str)],
    ) -> TestAnswer {
        let mut request = Request::builder().method(method).uri(path);
        match with {
            With::Nothing => {}
            With::Bearer(token) => {
                request = request.header("authorization", format!("Bearer {token}"));
            }
            With::Session(cookie, csrf) => {
                request = request.header("cookie", cookie);
                if let Some(csrf) = csrf {
                    request = request.header("evenkeel-csrf", csrf);
                }
            }
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body)).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let headers = response.headers().clone();
        let is_stream = headers.get("content-type").is_some_and(|kind| kind == "text/event-stream");
        let bytes = if is_stream {
            bytes::Bytes::new()
        } else {
            response.into_body().collect().await.unwrap().to_bytes()
        };
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        let page = String::from_utf8_lossy(&bytes).into_owned();
        TestAnswer { status, headers, body, page }
    }

    /// The hub starts anew on the same database: it forgets who tried how often.
    pub(crate) fn restart(&mut self) {
        self.hub = Hub::new(self.hub.store().clone(), HUB_URL);
        self.router = router(&self.hub);
    }

    /// What is in the database, to be read again and again.
    pub(crate) async fn contents(&self) -> StoreContents {
        let tables = self.hub.store().check().await.unwrap().tables;
        let tables = tables.into_iter().map(|table| table.table).collect();
        StoreContents { connection: connected(&self.url).await, tables }
    }

    /// Changes the database behind the hub's back: time that passed, what a host would have reported.
    pub(crate) async fn sql(&self, query: &'static str) {
        behind(&self.url, query).await;
    }

    pub(crate) async fn audited(&self) -> Vec<String> {
        let lines = self.hub.store().audit_page(None, i64::MAX, 1000).await.unwrap();
        lines
            .into_iter()
            .map(|line| format!("{} {} {}", line.who, line.act, line.subject))
            .collect()
    }

    /// A challenge for an account.
    pub(crate) async fn challenge(&self, account: &str) -> Nonce {
        let body = json!({"account": account});
        let answer =
            self.ask(Method::POST, "/v1/login/challenge", &With::Nothing, Some(body)).await;
        assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
        assert_eq!(answer.text("hub_id"), self.hub.store().hub_id());
        answer.text("nonce").parse().unwrap()
    }

    pub(crate) fn login_statement(&self, account: &str, nonce: Nonce) -> LoginStatement {
        LoginStatement {
            hub_id: self.hub.store().hub_id().parse().unwrap(),
            origin: HUB_URL.to_owned(),
            account: account.to_owned(),
            nonce,
        }
    }

    pub(crate) async fn login(&self, account: &str, sealed: &Value) -> TestAnswer {
        let body = json!({"account": account, "login": sealed});
        self.ask(Method::POST, "/v1/login", &With::Nothing, Some(body)).await
    }

    /// The author's statement of a document.
    pub(crate) fn desired(
        &self,
        host: &str,
        seed: u8,
        generation: u64,
        text: &str,
    ) -> DesiredStatement {
        let files = DocumentFiles::new([("web.toml".to_owned(), text.to_owned())]).unwrap();
        DesiredStatement {
            hub_id: self.hub.store().hub_id().parse().unwrap(),
            host: binding(host, seed),
            generation: Generation(generation),
            manifest: files.manifest().hash(),
            base: SignedBase::First,
            window: window(),
        }
    }

    /// An acknowledgement, which names no item.
    pub(crate) fn acknowledgement(&self, host: &str, seed: u8, expires_in_s: u64) -> Value {
        let head = |seq| JournalHead {
            epoch: 1,
            seq,
            sum: PayloadHash::of(b"sum"),
            trust_version: TrustVersion(1),
        };
        let now = now();
        let statement = AcknowledgeStatement {
            host: binding(host, seed),
            hub_id: self.hub.store().hub_id().parse().unwrap(),
            anchored: head(9),
            found: head(7),
            nonce: nonce(),
            window: Window::new(now.minus(7200), now.plus(expires_in_s)).unwrap(),
            trust_version: TrustVersion(1),
            reason: String::new(),
        };
        TestKey::new(10).seal(Namespace::Acknowledge, &statement.to_bytes().unwrap())
    }
}

/// A connection behind the hub's back that only looks.
pub(crate) struct StoreContents {
    connection: sqlx::AnyConnection,
    tables: Vec<String>,
}

impl StoreContents {
    /// Every row of every table, as text.
    pub(crate) async fn read(&mut self) -> BTreeMap<String, Vec<String>> {
        let mut contents = BTreeMap::new();
        for table in &self.tables {
            let query = sqlx::AssertSqlSafe(format!("SELECT * FROM {table}"));
            let rows = sqlx::query(query).fetch_all(&mut self.connection).await.unwrap();
            let mut rows: Vec<String> = rows.iter().map(row_text).collect();
            rows.sort();
            contents.insert(table.clone(), rows);
        }
        contents
    }
}

pub(crate) fn binding(host: &str, seed: u8) -> HostBinding {
    HostBinding { id: host.parse().unwrap(), key: TestKey::new(seed).public().fingerprint() }
}

pub(crate) fn now() -> UnixSeconds {
    UnixSeconds((HubTime::now().0 / 1000).unsigned_abs())
}

pub(crate) fn window() -> Window {
    Window::new(now().minus(60), now().plus(3600)).unwrap()
}

/// A nonce of its own each time.
pub(crate) fn nonce() -> Nonce {
    let drawn = SecretText::draw(SecretKind::Session);
    drawn.reveal()[5..37].parse().unwrap()
}

pub(crate) fn files(text: &str) -> Value {
    json!([{"name": "web.toml", "text": text}])
}

async fn behind(url: &str, query: &'static str) {
    sqlx::query(query).execute(&mut connected(url).await).await.unwrap();
}

async fn connected(url: &str) -> sqlx::AnyConnection {
    sqlx::any::install_default_drivers();
    let mut connection = sqlx::AnyConnection::connect(url).await.unwrap();
    if url.starts_with("sqlite") {
        sqlx::query("PRAGMA busy_timeout = 5000").execute(&mut connection).await.unwrap();
    }
    connection
}

fn row_text(row: &AnyRow) -> String {
    let columns = (0..row.len()).map(|at| {
        let number = row.try_get::<Option<i64>, _>(at).map(|number| format!("{number:?}"));
        let text = number.or_else(|_| row.try_get::<String, _>(at));
        text.or_else(|_| row.try_get::<Vec<u8>, _>(at).map(|bytes| format!("{bytes:?}"))).unwrap()
    });
    columns.collect::<Vec<_>>().join(" | ")
}
