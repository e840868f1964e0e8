//! Every body that anybody may send, bent, through the real router: answered, or refused as RFC 9457 says it. Never a mistake
//! of ours, never a panic, and nothing beyond its row's bound.

use std::time::Instant;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evenkeel_core::fleet::{
    EnrolStatement, HeadStatement, JournalHead, PayloadHash, ReportStatement,
};
use evenkeel_core::sign::{Namespace, SshSig, armour};
use evenkeel_hub::Hub;
use evenkeel_hub::routes::{RouteRow, router, table};
use evenkeel_hub::store::PersonRole;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::access_table::{body_of, filled, furnished};
use super::bent_json::BodyBender;
use super::world::{HUB_URL, TestKey, With, World, binding, nonce};

/// How often somebody may ask at once is not what is tested here: after so many cases the hub starts anew.
const CASES_PER_START: u32 = 8;

/// Cases of each body in a run of the tests; each is a request to a database.
const CASES: u32 = 60;

/// The hash of a report's body goes into its signed statement, so that a bent one is read at all.
fn signed_report(world: &World, body: &[u8]) -> [(&'static str, String); 2] {
    let statement = ReportStatement {
        hub_id: world.hub.store().hub_id().parse().unwrap(),
        host: binding("eu-1", 201),
        instance: "0123456789abcdef".parse().unwrap(),
        seq: 1,
        base: 0,
        sha256: PayloadHash::of(body),
    };
    let bytes = statement.to_bytes().unwrap();
    let sealed = TestKey::new(201).seal(Namespace::Report, &bytes);
    let signature = armour::decode(sealed["signatures"][0].as_str().unwrap()).unwrap();
    SshSig::from_blob(&signature).unwrap();
    [
        ("evenkeel-statement", STANDARD.encode(&bytes)),
        ("evenkeel-signature", STANDARD.encode(&signature)),
    ]
}

fn report(world: &World) -> Value {
    let head = HeadStatement {
        hub_id: world.hub.store().hub_id().parse().unwrap(),
        host: binding("eu-1", 201),
        head: JournalHead { epoch: 0, seq: 7, sum: PayloadHash::of(b"sum") },
    };
    let head = TestKey::new(201).seal(Namespace::Head, &head.to_bytes().unwrap());
    json!({
        "generation": {"number": 1, "manifest": "cd".repeat(32), "signer": "ada"},
        "refused": {"generation": 8, "code": "policy", "why": "no", "diagnostics": ["x"]},
        "agent": {"version": "0.2.0", "node": "pve1", "since": "", "mode": "enforce", "troubles": []},
        "pass": {"at": "", "planned": 1, "succeeded": 1, "failed": 0, "held": 0, "in_sync": 4},
        "guests": [{"guest": "lxc/101", "name": "web", "state": "drifted",
            "differences": [{"key": "cores", "declared": "4", "actual": "2"}], "config": {"cores": "2"}}],
        "gone": ["lxc/102"],
        "ops": [{"op": "op_1", "guest": "lxc/101", "kind": "set_config", "state": "succeeded", "at": "", "reason": ""}],
        "decisions": [{"at": "", "guest": "lxc/102", "op": "destroy", "code": "policy", "detail": ""}],
        "pending_gone": ["ef".repeat(32)],
        "verdicts": [{"envelope": format!("env_{}", "0".repeat(32)), "code": "allowed_signed", "detail": ""}],
        "head": head, "at": "2026-01-01T00:00:00Z"
    })
}

fn enrolment() -> Value {
    let token = format!("evke_{}", "0".repeat(64));
    let statement = EnrolStatement {
        token: PayloadHash::of(token.as_bytes()),
        host: binding("eu-1", 201),
        hub_url: HUB_URL.to_owned(),
    };
    let sealed = TestKey::new(201).seal(Namespace::Enrol, &statement.to_bytes().unwrap());
    json!({"token": token, "host_key": TestKey::new(201).public().to_string(), "enrolment": sealed})
}

/// A body that the row would read whole.
fn good_body(world: &World, row: &RouteRow) -> Option<Value> {
    let login = || {
        let statement = world.login_statement("root", nonce());
        TestKey::new(51).seal(Namespace::Login, &statement.to_bytes().unwrap())
    };
    let push = |mut body: Value| {
        let author = world.desired("eu-1", 201, 2, body["files"][0]["text"].as_str().unwrap());
        body["author"] = TestKey::new(9).seal(Namespace::Desired, &author.to_bytes().unwrap());
        body["message"] = json!("why");
        body
    };
    match (row.method.as_str(), row.path) {
        ("POST", "/v1/agent/enrol") => Some(enrolment()),
        ("POST", "/v1/agent/reports") => Some(report(world)),
        ("POST", "/v1/login/challenge") => Some(json!({"account": "root"})),
        ("POST", "/v1/login") => Some(json!({"account": "root", "login": login()})),
        ("POST", "/v1/first-admin") => {
            let (code, key) = (format!("evko_{}", "0".repeat(64)), TestKey::new(3).public());
            Some(json!({"code": code, "name": "ada", "key": key.to_string()}))
        }
        ("POST", "/v1/sessions") => Some(json!({"code": format!("evko_{}", "0".repeat(64))})),
        ("POST", "/v1/hosts/{host}/documents") => body_of(world, &row.method, row.path).map(push),
        _ => body_of(world, &row.method, row.path),
    }
}

async fn send(
    world: &World,
    row: &RouteRow,
    path: &str,
    with: &With,
    body: Vec<u8>,
) -> (StatusCode, Value) {
    let mut request = Request::builder().method(row.method.clone()).uri(path);
    if let With::Bearer(token) = with {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    request = request.header("if-match", "\"1\"");
    if row.path == "/v1/agent/reports" {
        for (name, value) in signed_report(world, &body) {
            request = request.header(name, value);
        }
    }
    let response = world.router.clone().oneshot(request.body(Body::from(body)).unwrap()).await;
    let response = response.unwrap();
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

#[tokio::test]
async fn every_body_is_answered_or_refused_with_a_code() {
    let (mut world, draft) = furnished().await;
    let admin = world.person("fuzzer", PersonRole::Admin, "*", 90).await;
    let host = With::Bearer(world.host("eu-1", 201).await);
    let mut bender = BodyBender::new();
    let mut rows = 0;
    for row in table().into_iter().filter(|row| row.body_max > 0 && row.method != Method::GET) {
        let good = good_body(&world, &row);
        let good = good.unwrap_or_else(|| panic!("{} {} has no body here", row.method, row.path));
        let with = match row.path {
            path if path.starts_with("/v1/agent/") => &host,
            _ => &admin,
        };
        rows += 1;
        let path = filled(row.path, &draft);
        let (began, mut case) = (Instant::now(), 0);
        let long = std::env::var("EVENKEEL_FUZZ_SECONDS").is_ok();
        while BodyBender::goes_on(case, began) && (long || case < CASES) {
            if case % CASES_PER_START == 0 {
                let store = world.hub.store().clone();
                world.hub = Hub::new(store, HUB_URL);
                world.router = router(&world.hub);
            }
            let body = bender.bend(&good);
            let shown = String::from_utf8_lossy(&body[..body.len().min(400)]).into_owned();
            let is_over = body.len() > row.body_max;
            let (status, answer) = send(&world, &row, &path, with, body).await;
            let what =
                format!("{} {}, case {case}: {status} {answer} to {shown}", row.method, row.path);
            assert!(!status.is_server_error(), "{what}");
            if is_over {
                assert!(!status.is_success(), "{what}");
            }
            if !status.is_success() {
                assert!(
                    answer["code"].is_string() && answer["status"] == status.as_u16(),
                    "{what}"
                );
            }
            case += 1;
        }
    }
    assert!(rows >= 14, "{rows} rows take a body");
}
