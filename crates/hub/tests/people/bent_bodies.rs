//! Every body that anybody may send to a hub, bent, through the real router.
//!
//! A bent request is answered, or refused as its row refuses: never a mistake of the hub's own, never a panic, nothing over
//! the row's bound. Who is refused has changed nothing. A good request works before and after. `scripts/fuzz-link` does the
//! same for longer.

use std::collections::BTreeMap;
use std::time::Instant;

use axum::http::{Method, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evenkeel_core::fleet::{EnrolStatement, HeadStatement, JournalHead, ReportStatement};
use evenkeel_core::sign::{Namespace, PayloadHash, TrustVersion, armour};
use evenkeel_hub::routes::{RouteRow, RowFace, table};
use evenkeel_hub::secret_text::{SecretKind, SecretText};
use evenkeel_hub::store::{AccountActor, AccountKey, PersonRole};
use serde_json::{Value, json};

use super::access_table::{WEB, filled, form, furnished, is_done};
use super::world::{HUB_URL, StoreContents, TestAnswer, TestKey, With, World, binding, files};
use evenkeel_testkit::bent_json::BodyBender;

/// Cases of each body in a run of the tests: each is several requests to a database, and on PostgreSQL a new database for
/// every world takes its time.
const CASES_ON_SQLITE: u32 = 30;
const CASES_ON_POSTGRESQL: u32 = 10;

/// After so many cases the world is a new one, so that no bound on what is kept is what refuses.
const CASES_PER_WORLD: u32 = 10;

/// A request that works, and as whom.
struct GoodRequest {
    with: With,
    path: String,
    body: Value,
    /// The newest generation of the host, for rows that ask for it.
    seen: i64,
}

/// A world and whoever asks in it.
struct FuzzWorld {
    world: World,
    admin: With,
    credential: With,
    draft: String,
    /// The cookie of a browser, and its word.
    browser: (String, String),
    contents: StoreContents,
}

impl FuzzWorld {
    /// With everything; for the row that makes the first account, with nobody.
    async fn new(row: &RouteRow) -> Self {
        if row.path == "/v1/first-admin" {
            let world = World::empty().await;
            let contents = world.contents().await;
            let nobody = With::Nothing;
            let draft = String::new();
            let browser = Default::default();
            let admin = nobody.clone();
            return Self { world, admin, credential: nobody, draft, browser, contents };
        }
        let (world, draft) = furnished().await;
        let admin = world.person("fuzzer", PersonRole::Admin, "*", 90).await;
        let credential = With::Bearer(world.host("eu-1", 201).await);
        let browser = world.browser().await;
        let contents = world.contents().await;
        Self { world, admin, credential, draft, browser, contents }
    }

    /// A request with which the row does what it is there for, another one for each number.
    async fn good(&self, row: &RouteRow, number: u32) -> GoodRequest {
        let world = &self.world;
        let seen = world.hub.store().host("eu-1").await.unwrap().map_or(0, |host| host.wanted);
        let mut with = match row.path {
            path if path.starts_with("/v1/agent/") => self.credential.clone(),
            "/v1/sessions" => With::Session(self.browser.0.clone(), None),
            _ => self.admin.clone(),
        };
        if row.path == "/console/logout" {
            with = world.token("fuzzer", 90).await;
        }
        if row.path == "/console/accounts/{name}/remove" {
            // It may have gone in the case before.
            let key = TestKey::numbered(number).public().to_string();
            let other = json!({"name": "other", "role": "viewer", "scope": "eu-*", "key": key});
            world.ask(Method::POST, "/v1/accounts", &self.admin, Some(other)).await;
        }
        if row.path == "/console/accounts/{name}/keys/remove" {
            let key = AccountKey { fingerprint: spare_key(number), key_line: String::new() };
            // It may be there from the case before.
            let _ = world.hub.store().add_account_key("other", key, AccountActor::Server).await;
        }
        let body = match row.path {
            "/v1/agent/enrol" => self.enrolment(number).await,
            "/v1/agent/reports" => self.report(),
            "/v1/login/challenge" => json!({"account": "fuzzer"}),
            "/v1/login" => {
                let statement = world.login_statement("fuzzer", world.challenge("fuzzer").await);
                let login = TestKey::new(90).seal(Namespace::Login, &statement.to_bytes().unwrap());
                json!({"account": "fuzzer", "login": login})
            }
            "/v1/first-admin" => {
                let code = SecretText::draw(SecretKind::OneTimeCode);
                world.hub.store().set_first_admin_code(code.hash()).await.unwrap();
                let key = TestKey::new(3).public().to_string();
                json!({"code": code.reveal(), "name": "ada", "key": key})
            }
            "/v1/sessions" => {
                json!({"code": world.code(&self.admin, &self.browser.1).await})
            }
            "/v1/accounts" => json!({"name": format!("new{number}"), "role": "viewer",
                "scope": "eu-*", "key": TestKey::numbered(number).public().to_string()}),
            "/v1/accounts/{name}/keys" => {
                json!({"key": TestKey::numbered(number).public().to_string()})
            }
            "/v1/enrol-tokens" => json!({"host": "eu-9", "replace": number.is_multiple_of(2)}),
            "/v1/envelopes" => json!({"envelope": world.acknowledgement("eu-1", 201, 3600)}),
            "/v1/hosts/{host}/labels" => json!({"labels": {"site": "berlin", "rack": ""}}),
            "/v1/hosts/{host}/documents" => self.push(seen, number).await,
            "/v1/hosts/{host}/documents/check" | "/v1/hosts/{host}/drafts" => {
                json!({"files": files(&text(number)), "message": "why"})
            }
            "/v1/console-codes" => json!({"browser": self.browser.1}),
            "/v1/accounts/{name}" => json!({"role": "editor", "scope": "eu-*"}),
            path if row.face == RowFace::Form => self.fields(path, seen, number),
            path => panic!("{} {path} has no body here", row.method),
        };
        GoodRequest { with, path: filled(row.path, &self.draft), body, seen }
    }

    /// What a form holds, by name.
    fn fields(&self, path: &str, seen: i64, number: u32) -> Value {
        let seen = seen.to_string();
        match path {
            "/console/envelopes" => {
                json!({"envelope": self.world.acknowledgement("eu-1", 201, 3600).to_string()})
            }
            "/console/hosts/{host}/edit" | "/console/hosts/{host}/edit/check" => {
                let way = if number.is_multiple_of(2) { "push" } else { "draft" };
                json!({"as": way, "seen": seen, "name-0": "web.toml", "text-0": text(number),
                    "message": "why"})
            }
            "/console/hosts/{host}/documents/{generation}/restore" => {
                json!({"as": "draft", "seen": seen})
            }
            "/console/enrol-tokens" => json!({"host": "eu-9", "replace": "yes"}),
            "/console/hosts/{host}/labels" => json!({"labels": "site=berlin, rack="}),
            "/console/accounts" => json!({"name": format!("new{number}"), "role": "viewer",
                "scope": "eu-*", "key": TestKey::numbered(number).public().to_string()}),
            "/console/accounts/{name}/keys" => {
                json!({"key": TestKey::numbered(number).public().to_string()})
            }
            "/console/accounts/{name}/change" => json!({"role": "editor", "scope": "eu-*"}),
            "/console/accounts/{name}/keys/remove" => json!({"fingerprint": spare_key(number)}),
            "/console/hosts/{host}/drafts/{draft}/drop"
            | "/console/accounts/{name}/logout"
            | "/console/accounts/{name}/remove"
            | "/console/logout" => json!({"x": "y"}),
            path => panic!("the form {path} has no fields here"),
        }
    }

    /// A push, every other one signed, with a draft that it makes needless.
    async fn push(&self, seen: i64, number: u32) -> Value {
        let text = text(number);
        let draft = json!({"files": files(&text)});
        let path = "/v1/hosts/eu-1/drafts";
        let draft = self.world.ask(Method::POST, path, &self.admin, Some(draft)).await;
        let mut body = json!({"files": files(&text), "message": "why", "draft": draft.text("id")});
        if number.is_multiple_of(2) {
            let author = self.world.desired("eu-1", 201, seen.unsigned_abs() + 1, &text);
            let author = author.to_bytes().unwrap();
            body["author"] = TestKey::new(9).seal(Namespace::Desired, &author);
        }
        body
    }

    async fn enrolment(&self, number: u32) -> Value {
        let token = SecretText::draw(SecretKind::EnrolToken);
        let host = format!("eu-{}", 100 + number);
        let store = self.world.hub.store();
        store.make_enrol_token(token.hash(), &host, false, "server").await.unwrap();
        let key = TestKey::numbered(1000 + number);
        let mut host = binding(&host, 1);
        host.key = key.public().fingerprint();
        let hub_url = HUB_URL.to_owned();
        let token_hash = PayloadHash::of(token.reveal().as_bytes());
        let statement = EnrolStatement { token: token_hash, host, hub_url };
        let sealed = key.seal(Namespace::Enrol, &statement.to_bytes().unwrap());
        json!({"token": token.reveal(), "host_key": key.public().to_string(), "enrolment": sealed})
    }

    fn report(&self) -> Value {
        let sum = PayloadHash::of(b"sum");
        let head = HeadStatement {
            hub_id: self.world.hub.store().hub_id().parse().unwrap(),
            host: binding("eu-1", 201),
            head: JournalHead { epoch: 0, seq: 7, sum, trust_version: TrustVersion(1) },
        };
        let head = TestKey::new(201).seal(Namespace::Head, &head.to_bytes().unwrap());
        json!({
            "generation": {"number": 1, "manifest": "cd".repeat(32), "signer": "ada"},
            "refused": {"generation": 8, "code": "policy", "why": "no", "diagnostics": ["x"]},
            "agent": {"version": "0.2.0", "node": "pve1", "since": "", "mode": "enforce", "troubles": []},
            "pass": {"at": "", "planned": 1, "succeeded": 1, "failed": 0, "held": 0, "in_sync": 4},
            "guests": [{"guest": "lxc/101", "name": "web", "state": "drifted",
                "differences": [{"key": "cores", "declared": "4", "actual": "2"}],
                "config": {"cores": "2"}}],
            "gone": ["lxc/102"],
            "ops": [{"op": "op_1", "guest": "lxc/101", "kind": "set_config",
                "state": "succeeded", "at": "", "reason": ""}],
            "decisions": [{"at": "", "guest": "lxc/102", "op": "destroy", "code": "policy", "detail": ""}],
            "pending_gone": ["ef".repeat(32)],
            "verdicts": [{"envelope": format!("env_{}", "0".repeat(32)),
                "code": "allowed_signed", "detail": ""}],
            "head": head, "at": "2026-01-01T00:00:00Z"
        })
    }

    /// Sends exact bytes. The hash of a report goes into its signed statement, so that a bent one is read at all.
    async fn send(&self, row: &RouteRow, request: &GoodRequest, bytes: Vec<u8>) -> TestAnswer {
        let seen = format!("\"{}\"", request.seen);
        let mut headers = vec![("if-match", seen.as_str())];
        let signed = self.signed_report(&bytes);
        if row.path == "/v1/agent/reports" {
            headers.extend(signed.iter().map(|(name, value)| (*name, value.as_str())));
        }
        let method = row.method.clone();
        self.world.ask_bytes(method, &request.path, &request.with, bytes, &headers).await
    }

    fn signed_report(&self, body: &[u8]) -> [(&'static str, String); 2] {
        let statement = ReportStatement {
            hub_id: self.world.hub.store().hub_id().parse().unwrap(),
            host: binding("eu-1", 201),
            instance: "0123456789abcdef".parse().unwrap(),
            seq: 1,
            base: 0,
            sha256: PayloadHash::of(body),
        };
        let bytes = statement.to_bytes().unwrap();
        let sealed = TestKey::new(201).seal(Namespace::Report, &bytes);
        let signature = armour::decode(sealed["signatures"][0].as_str().unwrap()).unwrap();
        [
            ("evenkeel-statement", STANDARD.encode(&bytes)),
            ("evenkeel-signature", STANDARD.encode(&signature)),
        ]
    }

    /// A good request works.
    async fn works(&mut self, row: &RouteRow, number: u32, when: &str) -> Result<(), String> {
        self.world.restart();
        let request = self.good(row, number).await;
        let bytes = encoded(row, serde_json::to_vec(&request.body).unwrap());
        let answer = self.send(row, &request, bytes).await;
        let status = answer.status;
        let page = answer.page;
        ensure(is_done(status), || format!("a good one {when}: {status} {page}"))
    }
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

/// A document of its own for each number.
fn text(number: u32) -> String {
    WEB.replace("cores = 2", &format!("cores = {}", 1 + number % 64))
}

/// A key of the account `other` that may be taken away.
fn spare_key(number: u32) -> String {
    format!("SHA256:spare{number}")
}

/// Bytes as the row reads them: a form's fields are written as browsers do, if they still are fields.
fn encoded(row: &RouteRow, bytes: Vec<u8>) -> Vec<u8> {
    let fields = serde_json::from_slice::<BTreeMap<String, Value>>(&bytes);
    let (RowFace::Form, Ok(fields)) = (row.face, fields) else { return bytes };
    let text = |value: Value| match value.as_str() {
        Some(text) => text.to_owned(),
        None => value.to_string(),
    };
    let texts: Vec<(String, String)> =
        fields.into_iter().map(|(name, value)| (name, text(value))).collect();
    let pairs: Vec<(&str, &str)> =
        texts.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    form(&pairs).as_str().unwrap().as_bytes().to_vec()
}

/// How a good body becomes a bent one.
enum Bend<'b> {
    /// Somehow.
    Any(&'b mut BodyBender),
    /// The text at this place has a NUL in it, which JSON takes and PostgreSQL does not.
    Nul(String),
}

/// The places of all texts in a body, as JSON pointers.
fn text_places(body: &Value, here: &str) -> Vec<String> {
    match body {
        Value::String(_) => vec![here.to_owned()],
        Value::Array(items) => {
            let places = items.iter().enumerate();
            places.flat_map(|(at, item)| text_places(item, &format!("{here}/{at}"))).collect()
        }
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(at, item)| text_places(item, &format!("{here}/{at}")))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

/// One bent body; whether it was taken.
async fn bent_case(
    fuzz: &mut FuzzWorld,
    row: &RouteRow,
    number: u32,
    bend: Bend<'_>,
) -> Result<bool, String> {
    let mut request = fuzz.good(row, number).await;
    let bytes = match bend {
        Bend::Any(bender) => bender.bend(&request.body),
        Bend::Nul(place) => {
            let text = request.body.pointer_mut(&place).unwrap();
            *text = json!(format!("{}\0", text.as_str().unwrap()));
            serde_json::to_vec(&request.body).unwrap()
        }
    };
    let bytes = encoded(row, bytes);
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(400)]).into_owned();
    let is_over = bytes.len() > row.body_max;
    let before = fuzz.contents.read().await;
    let answer = fuzz.send(row, &request, bytes).await;
    let status = answer.status;
    let what = || format!("case {number}: {status} {} to {shown}", answer.page);
    ensure(!status.is_server_error(), what)?;
    ensure(!is_over || status == StatusCode::PAYLOAD_TOO_LARGE, what)?;
    if is_done(status) {
        return Ok(true);
    }
    if row.face == RowFace::Program {
        let is_told = answer.body["code"].is_string() && answer.body["status"] == status.as_u16();
        ensure(is_told, what)?;
    }
    let after = fuzz.contents.read().await;
    for (table, rows) in before {
        let is_same = after[&table] == rows;
        ensure(is_same, || format!("it changed {table}, {}", what()))?;
    }
    Ok(false)
}

/// So many bent bodies of a row in a world of their own, in the first one a NUL in each text besides; how many were taken.
async fn bent_cases(row: &RouteRow, first: u32, bender: &mut BodyBender) -> Result<u32, String> {
    let mut fuzz = FuzzWorld::new(row).await;
    // There is one first account, so that a good request of this row works once.
    let is_once = row.path == "/v1/first-admin";
    if !is_once {
        fuzz.works(row, 500_000, "at first").await?;
    }
    if first == 0 {
        let places = text_places(&fuzz.good(row, 0).await.body, "");
        for (number, place) in (1_000..).zip(places) {
            fuzz.world.restart();
            bent_case(&mut fuzz, row, 2 * number, Bend::Nul(place)).await?;
        }
    }
    let mut taken = 0;
    for number in first..first + CASES_PER_WORLD {
        fuzz.world.restart();
        taken += u32::from(bent_case(&mut fuzz, row, number, Bend::Any(bender)).await?);
        if is_once && taken > 0 {
            return Ok(taken);
        }
    }
    fuzz.works(row, 500_001, "after bent ones").await?;
    let faults = fuzz.world.hub.store().check().await.unwrap().faults;
    ensure(faults.is_empty(), || format!("{faults:?}"))?;
    Ok(taken)
}

async fn every_bent_body_is_answered_or_refused_and_a_refusal_changes_nothing(most: u32) -> String {
    let mut bender = BodyBender::seeded();
    let is_long = std::env::var_os("EVENKEEL_FUZZ_SECONDS").is_some();
    let mut rows = 0;
    let mut taken = 0;
    let mut cases = 0;
    let mut failures = Vec::new();
    for row in table().into_iter().filter(|row| row.body_max > 0) {
        rows += 1;
        let began = Instant::now();
        let mut case = 0;
        while if is_long { BodyBender::goes_on(case, began) } else { case < most } {
            match bent_cases(&row, case, &mut bender).await {
                Ok(more) => taken += more,
                Err(why) => {
                    failures.push(format!("{} {}: {why}", row.method, row.path));
                    break;
                }
            }
            case += CASES_PER_WORLD;
        }
        cases += case;
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(rows >= 20 && taken * 20 >= cases && taken * 2 < cases, "{rows} rows, {taken} taken");
    format!("{rows} bodies, {cases} bent ones, {taken} of them taken")
}

async fn a_nul_in_a_path_or_query_is_no_fault_of_the_hub() {
    let (mut world, draft) = furnished().await;
    let admin = world.person("fuzzer", PersonRole::Admin, "*", 90).await;
    let host = With::Bearer(world.host("eu-1", 201).await);
    let mut asked = 0;
    for row in table() {
        let parts = row.path.split('/').filter(|part| part.starts_with('{'));
        let in_path = parts.map(|part| row.path.replace(part, "a%00b"));
        let in_query = row.query.iter().map(|name| format!("{}?{name}=a%00b", row.path));
        for path in in_path.chain(in_query) {
            world.restart();
            let with = if row.path.starts_with("/v1/agent/") { &host } else { &admin };
            let path = filled(&path, &draft);
            let answer = world.ask(row.method.clone(), &path, with, None).await;
            let method = &row.method;
            let status = answer.status;
            assert!(status.is_client_error(), "{method} {path}: {status} {}", answer.page);
            asked += 1;
        }
    }
    assert!(asked >= 40, "{asked} were asked");
}

#[tokio::test]
async fn a_nul_in_a_path_or_query_on_sqlite() {
    a_nul_in_a_path_or_query_is_no_fault_of_the_hub().await;
}

#[tokio::test]
async fn a_nul_in_a_path_or_query_on_postgresql() {
    super::world::on_postgresql(a_nul_in_a_path_or_query_is_no_fault_of_the_hub()).await;
}

#[tokio::test]
async fn every_bent_body_on_sqlite() {
    let case = every_bent_body_is_answered_or_refused_and_a_refusal_changes_nothing;
    println!("{}", case(CASES_ON_SQLITE).await);
}

#[tokio::test]
async fn every_bent_body_on_postgresql() {
    super::world::on_postgresql(async {
        let case = every_bent_body_is_answered_or_refused_and_a_refusal_changes_nothing;
        println!("{}", case(CASES_ON_POSTGRESQL).await);
    })
    .await;
}
