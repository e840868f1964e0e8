//! Documents: read before they are kept, numbered, signed by authors, and never taken from a late hand.

use axum::http::{Method, StatusCode};
use evenkeel_core::fleet::{DesiredStatement, Generation};
use evenkeel_core::sign::{Namespace, Window};
use evenkeel_hub::store::PersonRole;
use serde_json::{Value, json};

use super::world::{TestAnswer, TestKey, With, World, binding, files, now};

const TWO: &str = "[guest.101]\nkind = \"lxc\"\ncores = 2\n";
const FOUR: &str = "[guest.101]\nkind = \"lxc\"\ncores = 4\n";
const PATH: &str = "/v1/hosts/eu-1/documents";

/// What makes a statement one of something else.
type Twist = fn(&mut DesiredStatement);

async fn push(world: &World, with: &With, seen: u64, body: Value) -> TestAnswer {
    let tag = format!("\"{seen}\"");
    world.ask_with(Method::POST, PATH, with, Some(body), &[("if-match", tag.as_str())]).await
}

#[tokio::test]
async fn a_push_becomes_the_next_generation_with_what_differs() {
    let world = World::new().await;
    let alice = world.person("alice", PersonRole::Editor, "eu-*", 10).await;
    let first = push(&world, &alice, 0, json!({"files": files(TWO), "message": "begin"})).await;
    assert_eq!(first.status, StatusCode::OK, "{first:?}");
    assert_eq!(
        (&first.body["generation"], &first.headers["etag"]),
        (&json!(1), &"\"1\"".parse().unwrap())
    );
    assert_eq!(first.body["difference"][0]["change"], "added");
    let second = push(&world, &alice, 1, json!({"files": files(FOUR)})).await;
    let expected = json!([{"guest": "lxc/101", "change": "changed",
        "keys": [{"key": "cores", "before": "2", "after": "4", "origin": "web.toml:3"}]}]);
    assert_eq!((&second.body["generation"], &second.body["difference"]), (&json!(2), &expected));
    let history = world.ask(Method::GET, PATH, &alice, None).await;
    assert_eq!(history.headers["etag"], "\"2\"");
    assert_eq!(history.body["items"][1]["message"], "begin");
    assert_eq!(history.body["items"][0]["pushed_by"], "alice");
    // Going back is the old content under a new number.
    let old = world.ask(Method::GET, &format!("{PATH}/1"), &alice, None).await;
    let third = push(&world, &alice, 2, json!({"files": old.body["files"]})).await;
    assert_eq!(
        (&third.body["generation"], &third.body["manifest"]),
        (&json!(3), &old.body["manifest"])
    );
}

#[tokio::test]
async fn whoever_is_late_is_told_what_somebody_else_changed() {
    let world = World::new().await;
    let alice = world.person("alice", PersonRole::Editor, "*", 10).await;
    let bob = world.person("bob", PersonRole::Editor, "*", 11).await;
    push(&world, &alice, 0, json!({"files": files(TWO)})).await;
    push(&world, &bob, 1, json!({"files": files(FOUR)})).await;
    let late = push(&world, &alice, 1, json!({"files": files(TWO)})).await;
    assert_eq!(late.status, StatusCode::PRECONDITION_FAILED, "{late:?}");
    assert_eq!(late.text("code"), "stale");
    assert_eq!(late.body["difference"][0]["keys"][0]["after"], "4", "what bob changed");
    let newest = world.ask(Method::GET, PATH, &alice, None).await;
    assert_eq!(newest.headers["etag"], "\"2\"", "nothing was kept");
    let blind = world.ask(Method::POST, PATH, &alice, Some(json!({"files": files(TWO)}))).await;
    assert_eq!(blind.status, StatusCode::UNPROCESSABLE_ENTITY, "{blind:?}");
}

#[tokio::test]
async fn a_document_with_a_mistake_or_a_secret_is_refused_whole() {
    let world = World::new().await;
    let alice = world.person("alice", PersonRole::Editor, "*", 10).await;
    let mistake = "[guest.101]\nkind = \"lxc\"\ncoress = 2\n";
    let secret = "[guest.101]\nkind = \"lxc\"\nenv = [\"TOKEN=marked\"]\n";
    for text in [mistake, secret] {
        for path in [PATH, "/v1/hosts/eu-1/documents/check", "/v1/hosts/eu-1/drafts"] {
            let body = Some(json!({"files": files(text)}));
            let tag = [("if-match", "\"0\"")];
            let answer = world.ask_with(Method::POST, path, &alice, body, &tag).await;
            assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{path} {answer:?}");
            let told = answer.body["diagnostics"].to_string();
            assert!(told.contains("web.toml:3:"), "{told}");
            assert!(!told.contains("marked"), "{told}");
        }
    }
    let name = json!({"files": [{"name": "../../etc/passwd.toml", "text": ""}]});
    assert_eq!(push(&world, &alice, 0, name).await.status, StatusCode::UNPROCESSABLE_ENTITY);
    let history = world.ask(Method::GET, PATH, &alice, None).await;
    assert_eq!(history.body["items"], json!([]), "nothing was kept");
}

#[tokio::test]
async fn a_check_keeps_nothing() {
    let world = World::new().await;
    let alice = world.person("alice", PersonRole::Editor, "*", 10).await;
    let path = "/v1/hosts/eu-1/documents/check";
    let answer = world.ask(Method::POST, path, &alice, Some(json!({"files": files(TWO)}))).await;
    assert_eq!((&answer.body["next_generation"], &answer.body["guests"]), (&json!(1), &json!(1)));
    let history = world.ask(Method::GET, PATH, &alice, None).await;
    assert_eq!(history.body["items"], json!([]));
}

#[tokio::test]
async fn an_authors_statement_must_be_of_this_document_host_and_number() {
    let world = World::new().await;
    let alice = world.person("alice", PersonRole::Editor, "*", 10).await;
    let author = TestKey::new(30);
    let right = || world.desired("eu-1", 201, 1, TWO);
    let twists: [(&str, Twist, StatusCode); 6] = [
        ("hub", |s| s.hub_id = "f".repeat(32).parse().unwrap(), StatusCode::UNPROCESSABLE_ENTITY),
        ("host", |s| s.host = binding("us-1", 202), StatusCode::UNPROCESSABLE_ENTITY),
        ("key", |s| s.host = binding("eu-1", 202), StatusCode::UNPROCESSABLE_ENTITY),
        ("number", |s| s.generation = Generation((1 << 20) + 1), StatusCode::PRECONDITION_FAILED),
        (
            "over",
            |s| s.window = Window::new(now().minus(7200), now().minus(60)).unwrap(),
            StatusCode::UNPROCESSABLE_ENTITY,
        ),
        (
            "too long",
            |s| s.window = Window::new(now().minus(60), now().plus(8 * 86_400)).unwrap(),
            StatusCode::UNPROCESSABLE_ENTITY,
        ),
    ];
    for (name, twist, status) in twists {
        let mut statement = right();
        twist(&mut statement);
        let sealed = author.seal(Namespace::Desired, &statement.to_bytes().unwrap());
        let answer = push(&world, &alice, 0, json!({"files": files(TWO), "author": sealed})).await;
        assert_eq!(answer.status, status, "{name}: {answer:?}");
    }
    let bytes = right().to_bytes().unwrap();
    let sealed = author.seal(Namespace::Desired, &bytes);
    let other = push(&world, &alice, 0, json!({"files": files(FOUR), "author": sealed})).await;
    assert_eq!(other.status, StatusCode::UNPROCESSABLE_ENTITY, "of another document");
    let purpose = author.seal(Namespace::Op, &bytes);
    let other = push(&world, &alice, 0, json!({"files": files(TWO), "author": purpose})).await;
    assert_eq!(other.status, StatusCode::UNPROCESSABLE_ENTITY, "for another purpose");
    let old_purpose = author.seal(Namespace::DesiredV1, &bytes);
    let other = push(&world, &alice, 0, json!({"files": files(TWO), "author": old_purpose})).await;
    assert_eq!(
        other.status,
        StatusCode::UNPROCESSABLE_ENTITY,
        "today's format for the old purpose"
    );
    let taken = push(&world, &alice, 0, json!({"files": files(TWO), "author": sealed})).await;
    assert_eq!(taken.status, StatusCode::OK, "{taken:?}");
    let kept = world.ask(Method::GET, &format!("{PATH}/1"), &alice, None).await;
    assert_eq!(kept.text("author"), author.public().fingerprint().to_string());
    // Exactly what was signed goes on to the host.
    assert_eq!(kept.body["statement"], sealed);
    let again = push(&world, &alice, 1, json!({"files": files(TWO), "author": sealed})).await;
    assert_eq!(again.status, StatusCode::PRECONDITION_FAILED, "its number is taken");
    // A number above the next one: the author signed that one before, and it never came here.
    let above = world.desired("eu-1", 201, 4, TWO);
    let sealed = author.seal(Namespace::Desired, &above.to_bytes().unwrap());
    let above = push(&world, &alice, 1, json!({"files": files(TWO), "author": sealed})).await;
    assert_eq!(above.body["generation"], 4, "{above:?}");
}

#[tokio::test]
async fn a_draft_waits_for_its_signature_and_is_gone_with_the_push() {
    let world = World::new().await;
    let alice = world.person("alice", PersonRole::Editor, "*", 10).await;
    let body = json!({"files": files(TWO), "message": "from the console"});
    let path = "/v1/hosts/eu-1/drafts";
    let draft = world.ask(Method::POST, path, &alice, Some(body)).await;
    let id = draft.text("id").to_owned();
    let one = world.ask(Method::GET, &format!("{path}/{id}"), &alice, None).await;
    assert_eq!((&one.body["files"], &one.body["base"]), (&files(TWO), &json!(0)));
    let listed = world.ask(Method::GET, path, &alice, None).await;
    assert_eq!(listed.body["items"][0]["id"], json!(id));
    let elsewhere = format!("/v1/hosts/us-1/drafts/{id}");
    let elsewhere = world.ask(Method::GET, &elsewhere, &alice, None).await;
    assert_eq!(elsewhere.status, StatusCode::NOT_FOUND, "a draft is of its host");
    let pushed = push(&world, &alice, 0, json!({"files": one.body["files"], "draft": id})).await;
    assert_eq!(pushed.status, StatusCode::OK);
    let gone = world.ask(Method::GET, &format!("{path}/{id}"), &alice, None).await;
    assert_eq!(gone.status, StatusCode::NOT_FOUND);
    // Its texts are the document's now, and stay.
    let kept = world.ask(Method::GET, &format!("{PATH}/newest"), &alice, None).await;
    assert_eq!(kept.body["files"], files(TWO));
}
