//! Items and envelopes: shown as hosts signed them, carried only if they name something that waits.

use axum::http::{Method, StatusCode};
use evenkeel_core::sign::{Namespace, PendingItem};
use evenkeel_hub::store::PersonRole;
use serde_json::{Value, json};

use super::world::{TestKey, With, World, binding, nonce, now, window};
use evenkeel_testkit::destroy_item::destroy_item;

fn item(host: &str, seed: u8) -> PendingItem {
    destroy_item(binding(host, seed), nonce(), now().minus(60))
}

/// Puts an item where a host's report would.
async fn raised(world: &World, host: &str, seed: u8) -> (PendingItem, Vec<u8>) {
    let item = item(host, seed);
    let bytes = item.to_bytes().unwrap();
    let sealed = TestKey::new(seed).seal(Namespace::Pending, &bytes).to_string();
    let id = PendingItem::id(&bytes);
    let query = format!(
        "INSERT INTO pending_items (host, id, item, received_at) \
         VALUES ('{host}', '{id}', '{sealed}', 1)"
    );
    world.sql(query.leak()).await;
    (item, bytes)
}

fn approval(item: &PendingItem, bytes: &[u8]) -> Value {
    let statement = item.statement(PendingItem::id(bytes), nonce(), window(), "because");
    TestKey::new(10).seal(Namespace::Op, &statement.to_bytes().unwrap())
}

async fn submit(world: &World, with: &With, envelope: &Value) -> super::world::TestAnswer {
    let body = Some(json!({"envelope": envelope}));
    world.ask(Method::POST, "/v1/envelopes", with, body).await
}

#[tokio::test]
async fn an_approval_of_an_open_item_is_carried_once_and_seen_by_its_host() {
    let world = World::new().await;
    let credential = With::Bearer(world.host("eu-1", 201).await);
    let alice = world.person("alice", PersonRole::Editor, "*", 10).await;
    let (item, bytes) = raised(&world, "eu-1", 201).await;
    let envelope = approval(&item, &bytes);
    let first = submit(&world, &alice, &envelope).await;
    assert_eq!(first.status, StatusCode::OK, "{first:?}");
    assert_eq!((first.text("state"), first.text("kind")), ("waiting", "approval"));
    let again = submit(&world, &alice, &envelope).await;
    assert_eq!(again.text("id"), first.text("id"));
    let poll = world
        .ask(Method::GET, "/v1/agent/poll?generation=0&cursor=0&wait=0", &credential, None)
        .await;
    assert_eq!(poll.body["envelopes"][0]["id"], first.body["id"]);
    assert_eq!(poll.body["envelopes"][0]["envelope"], envelope, "not a byte otherwise");
    assert_eq!(poll.body["envelopes"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn what_names_nothing_that_waits_is_not_carried() {
    let world = World::new().await;
    let alice = world.person("alice", PersonRole::Editor, "*", 10).await;
    let item = item("eu-1", 201);
    let bytes = item.to_bytes().unwrap();
    let answer = submit(&world, &alice, &approval(&item, &bytes)).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND, "no such item: {answer:?}");
    let other_key = world.acknowledgement("eu-1", 202, 3600);
    assert_eq!(submit(&world, &alice, &other_key).await.status, StatusCode::UNPROCESSABLE_ENTITY);
    let unknown = world.acknowledgement("eu-7", 201, 3600);
    assert_eq!(submit(&world, &alice, &unknown).await.status, StatusCode::NOT_FOUND);
    let over = TestKey::new(10).seal(Namespace::Login, b"{\"format\":\"evenkeel/login/v1\"}");
    assert_eq!(submit(&world, &alice, &over).await.status, StatusCode::UNPROCESSABLE_ENTITY);
    let mut twisted = world.acknowledgement("eu-1", 201, 3600);
    let payload = world.acknowledgement("eu-1", 201, 3601)["payload"].clone();
    twisted["payload"] = payload;
    assert_eq!(submit(&world, &alice, &twisted).await.status, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn a_host_has_at_most_thirty_two_waiting() {
    let world = World::new().await;
    let alice = world.person("alice", PersonRole::Editor, "*", 10).await;
    for _ in 0..32 {
        let envelope = world.acknowledgement("eu-1", 201, 3600);
        assert_eq!(submit(&world, &alice, &envelope).await.status, StatusCode::OK);
    }
    let envelope = world.acknowledgement("eu-1", 201, 3600);
    assert_eq!(submit(&world, &alice, &envelope).await.status, StatusCode::TOO_MANY_REQUESTS);
    let other = world.acknowledgement("us-1", 202, 3600);
    assert_eq!(submit(&world, &alice, &other).await.status, StatusCode::OK);
}

#[tokio::test]
async fn everybody_sees_the_items_of_their_scope_as_the_hosts_signed_them() {
    let world = World::new().await;
    let everywhere = world.person("alice", PersonRole::Viewer, "*", 10).await;
    let eu = world.person("eve", PersonRole::Viewer, "eu-*", 11).await;
    for _ in 0..3 {
        raised(&world, "eu-1", 201).await;
        raised(&world, "us-1", 202).await;
    }
    let all = world.ask(Method::GET, "/v1/pending", &everywhere, None).await;
    assert_eq!(all.body["items"].as_array().unwrap().len(), 6);
    for item in all.body["items"].as_array().unwrap() {
        let sealed = serde_json::to_vec(&item["item"]).unwrap();
        let envelope = evenkeel_core::sign::Envelope::parse(&sealed).unwrap();
        let seed = if item["host"] == "eu-1" { 201 } else { 202 };
        PendingItem::verify(&envelope, &TestKey::new(seed).public()).unwrap();
    }
    // Page by page, and never one of another host.
    let mut after = String::new();
    let mut seen = Vec::new();
    loop {
        let path = format!("/v1/pending?limit=1&after={after}");
        let page = world.ask(Method::GET, &path, &eu, None).await;
        for item in page.body["items"].as_array().unwrap() {
            assert_eq!(item["host"], "eu-1");
            seen.push(item["id"].clone());
        }
        match page.body["next"].as_str() {
            Some(next) => after = next.to_owned(),
            None => break,
        }
    }
    seen.dedup();
    assert_eq!(seen.len(), 3);
}

#[tokio::test]
async fn lists_hold_nothing_beside_the_scope() {
    let world = World::new().await;
    let root = world.person("root", PersonRole::Admin, "*", 12).await;
    for host in ["eu-1", "us-1"] {
        let path = format!("/v1/hosts/{host}/labels");
        let body = Some(json!({"labels": {"site": host}}));
        assert_eq!(world.ask(Method::PUT, &path, &root, body).await.status, StatusCode::NO_CONTENT);
    }
    let eu = world.person("eve", PersonRole::Viewer, "eu-*", 11).await;
    let hosts = world.ask(Method::GET, "/v1/hosts", &eu, None).await;
    assert_eq!(hosts.body["items"].as_array().unwrap().len(), 1);
    assert_eq!(hosts.body["items"][0]["host"], "eu-1");
    assert_eq!(
        world.ask(Method::GET, "/v1/hosts?label=site=us-1", &eu, None).await.body["items"],
        json!([])
    );
    let all = world.ask(Method::GET, "/v1/hosts?label=site=us-1", &root, None).await;
    assert_eq!(all.body["items"][0]["host"], "us-1");
    let audit = world.ask(Method::GET, "/v1/audit", &eu, None).await.body.to_string();
    assert!(audit.contains("\"subject\":\"eu-1\"") && audit.contains("\"who\":\"eve\""), "{audit}");
    assert!(!audit.contains("us-1") && !audit.contains("\"root\",\"act\":\"account"), "{audit}");
    let envelope = world.acknowledgement("us-1", 202, 3600);
    let editor = world.person("ed", PersonRole::Editor, "eu-*", 13).await;
    assert_eq!(submit(&world, &editor, &envelope).await.status, StatusCode::NOT_FOUND);
}
