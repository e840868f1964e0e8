//! Coming in by a signature: once, in time, at this hub, with a key of the account.

use axum::http::{Method, StatusCode};
use evenkeel_core::sign::Namespace;
use evenkeel_hub::store::PersonRole;
use serde_json::json;

use super::world::{HUB_URL, TestKey, With, World, nonce, now};

#[tokio::test]
async fn a_signed_challenge_becomes_a_token_that_the_database_does_not_hold() {
    let world = World::new().await;
    world.account("alice", PersonRole::Editor, "eu-*", 10).await;
    let statement = world.login_statement("alice", world.challenge("alice").await);
    let sealed = TestKey::new(10).seal(Namespace::Login, &statement.to_bytes().unwrap());
    let answer = world.login("alice", &sealed).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    assert_eq!((answer.text("role"), answer.text("scope")), ("editor", "eu-*"));
    let token = answer.text("token").to_owned();
    let with = With::Bearer(token.clone());
    let who = world.ask(Method::GET, "/v1/login", &with, None).await;
    assert_eq!((who.text("account"), who.body.get("csrf")), ("alice", None));
    world.hub.store().close().await;
    assert!(!stands_in_database(&world, &token[5..]), "the token stands in the database");
}

/// Whether a file of the database holds this text; call it when the store is closed.
pub(super) fn stands_in_database(world: &World, text: &str) -> bool {
    let mut looked_at = 0;
    let mut found = false;
    for entry in std::fs::read_dir(world.file().parent().unwrap()).unwrap() {
        // SQLite removes its log when the last connection goes, which may be just now.
        let Ok(bytes) = std::fs::read(entry.unwrap().path()) else { continue };
        found |= bytes.windows(text.len()).any(|window| window == text.as_bytes());
        looked_at += 1;
    }
    assert!(looked_at > 0, "there is a database");
    found
}

#[tokio::test]
async fn a_token_and_what_is_made_from_it_live_twelve_hours_at_most() {
    const LIFE_S: u64 = 12 * 3_600;
    let world = World::new().await;
    world.account("alice", PersonRole::Admin, "*", 10).await;
    let statement = world.login_statement("alice", world.challenge("alice").await);
    let sealed = TestKey::new(10).seal(Namespace::Login, &statement.to_bytes().unwrap());
    let answer = world.login("alice", &sealed).await;
    let token = With::Bearer(answer.text("token").to_owned());
    let expires: jiff::Timestamp = answer.text("expires_at").parse().unwrap();
    let life_s = expires.as_second().unsigned_abs().saturating_sub(now().0);
    assert!((LIFE_S - 60..=LIFE_S).contains(&life_s), "{answer:?}");
    let (browser, word) = world.browser().await;
    let code = world.code(&token, &word).await;
    let opened = world.enter(&code, &With::Nothing, &[("cookie", &browser)]).await;
    let cookie = opened.headers["set-cookie"].to_str().unwrap();
    let age_s = cookie.split("Max-Age=").nth(1).unwrap().split(';').next().unwrap();
    assert!((LIFE_S - 60..=LIFE_S).contains(&age_s.parse().unwrap()), "{cookie}");
    // A browser may keep its cookie longer than it was told to: it opens nothing.
    let session = With::Session(cookie.split(';').next().unwrap().to_owned(), None);
    let status = async |with| world.ask(Method::GET, "/v1/login", with, None).await.status;
    for with in [&token, &session] {
        assert_eq!(status(with).await, StatusCode::OK, "{with:?}");
    }
    world.sql("UPDATE api_tokens SET expires_at = expires_at - 43200000").await;
    for with in [&token, &session] {
        assert_eq!(status(with).await, StatusCode::UNAUTHORIZED, "{with:?}");
    }
}

#[tokio::test]
async fn a_login_is_good_once() {
    let world = World::new().await;
    world.account("alice", PersonRole::Viewer, "*", 10).await;
    let statement = world.login_statement("alice", world.challenge("alice").await);
    let sealed = TestKey::new(10).seal(Namespace::Login, &statement.to_bytes().unwrap());
    assert_eq!(world.login("alice", &sealed).await.status, StatusCode::OK);
    assert_eq!(world.login("alice", &sealed).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn z17_challenges_without_number_leave_nothing_and_a_good_answer_is_taken_once() {
    let mut world = World::new().await;
    world.account("alice", PersonRole::Viewer, "*", 10).await;
    let mut contents = world.contents().await;
    let before = contents.read().await;
    let first = world.challenge("alice").await;
    for round in 0..100 {
        // Another address would do as well.
        if round % 5 == 0 {
            world.restart();
        }
        world.challenge("alice").await;
    }
    assert_eq!(contents.read().await, before, "no row for a challenge that nobody answered");
    let sealed = |seed: u8, nonce| {
        let bytes = world.login_statement("alice", nonce).to_bytes().unwrap();
        TestKey::new(seed).seal(Namespace::Login, &bytes)
    };
    let by_another = world.login("alice", &sealed(11, first)).await;
    assert_eq!(by_another.status, StatusCode::UNAUTHORIZED);
    assert_eq!(contents.read().await, before, "nor for one that was answered badly");
    assert_eq!(world.login("alice", &sealed(10, first)).await.status, StatusCode::OK);
    assert_eq!(world.login("alice", &sealed(10, first)).await.status, StatusCode::UNAUTHORIZED);
    let made_up = nonce();
    assert_eq!(world.login("alice", &sealed(10, made_up)).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_login_that_was_signed_for_another_place_is_refused_and_kept_in_the_audit() {
    let world = World::new().await;
    world.account("alice", PersonRole::Admin, "*", 10).await;
    for twisted in 0..2 {
        let mut statement = world.login_statement("alice", world.challenge("alice").await);
        match twisted {
            0 => statement.origin = "https://hub.evil.example:8443".to_owned(),
            _ => statement.hub_id = "f".repeat(32).parse().unwrap(),
        }
        let sealed = TestKey::new(10).seal(Namespace::Login, &statement.to_bytes().unwrap());
        let answer = world.login("alice", &sealed).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{twisted}");
        let lines = world.audited().await;
        let relayed = lines.iter().filter(|line| *line == "alice login.relayed alice").count();
        assert_eq!(relayed, twisted + 1, "{lines:?}");
    }
}

#[tokio::test]
async fn every_refusal_says_the_same_whatever_was_wrong() {
    let world = World::new().await;
    world.account("alice", PersonRole::Admin, "*", 10).await;
    world.account("bob", PersonRole::Admin, "*", 11).await;
    let mut told = Vec::new();
    for (name, account, signer, namespace, seed) in [
        ("no such account", "nobody", "nobody", Namespace::Login, 10),
        ("another's key", "alice", "alice", Namespace::Login, 11),
        ("another's challenge", "alice", "bob", Namespace::Login, 10),
        ("for another purpose", "alice", "alice", Namespace::Op, 10),
    ] {
        let nonce =
            world.challenge(if name == "another's challenge" { "bob" } else { account }).await;
        let statement = world.login_statement(signer, nonce);
        let sealed = TestKey::new(seed).seal(namespace, &statement.to_bytes().unwrap());
        let answer = world.login(account, &sealed).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{name}");
        told.push(answer.body.to_string());
    }
    told.dedup();
    assert_eq!(told.len(), 1, "{told:?}");
}

#[tokio::test]
async fn whoever_tries_too_often_waits_and_nobody_else_does() {
    let world = World::new().await;
    let ask = |account: &'static str| {
        let world = &world;
        let body = json!({"account": account});
        async move {
            world.ask(Method::POST, "/v1/login/challenge", &With::Nothing, Some(body)).await.status
        }
    };
    for _ in 0..10 {
        assert_eq!(ask("alice").await, StatusCode::OK);
    }
    assert_eq!(ask("alice").await, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(ask("bob").await, StatusCode::OK);
}

#[tokio::test]
async fn a_secret_in_an_address_is_no_credential() {
    let world = World::new().await;
    let With::Bearer(token) = world.person("alice", PersonRole::Admin, "*", 10).await else {
        unreachable!()
    };
    for path in ["/v1/login?token=", "/v1/login?access_token=", "/v1/login?authorization=Bearer%20"]
    {
        let answer = world.ask(Method::GET, &format!("{path}{token}"), &With::Nothing, None).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{path}");
    }
}

#[tokio::test]
async fn the_first_account_is_made_by_the_servers_code_once() {
    use evenkeel_hub::secret_text::{SecretKind, SecretText};
    let world = World::empty().await;
    let code = SecretText::draw(SecretKind::OneTimeCode);
    world.hub.store().set_first_admin_code(code.hash()).await.unwrap();
    let make = |code: &str, name: &str, seed: u8| {
        let key = TestKey::new(seed).public().to_string();
        let body = json!({"code": code, "name": name, "key": key});
        let world = &world;
        async move {
            world.ask(Method::POST, "/v1/first-admin", &With::Nothing, Some(body)).await.status
        }
    };
    let made_up = format!("evko_{}", "0".repeat(64));
    assert_eq!(make(&made_up, "eve", 9).await, StatusCode::UNAUTHORIZED);
    assert_eq!(make(code.reveal(), "alice", 10).await, StatusCode::NO_CONTENT);
    assert_eq!(make(code.reveal(), "eve", 9).await, StatusCode::UNAUTHORIZED);
    let account = world.hub.store().account("alice").await.unwrap().unwrap();
    assert_eq!((account.role, account.scope.as_str()), (PersonRole::Admin, "*"));
    assert_eq!(world.audited().await, ["alice account.add alice"]);
}

#[tokio::test]
async fn the_last_admin_cannot_be_removed() {
    let world = World::new().await;
    let alice = world.person("alice", PersonRole::Admin, "*", 10).await;
    world.account("eu", PersonRole::Admin, "eu-*", 11).await;
    let path = "/v1/accounts/alice";
    let answer = world.ask(Method::DELETE, path, &alice, None).await;
    assert_eq!(answer.status, StatusCode::CONFLICT, "{answer:?}");
    world.account("bob", PersonRole::Admin, "*", 12).await;
    assert_eq!(world.ask(Method::DELETE, path, &alice, None).await.status, StatusCode::NO_CONTENT);
    assert_eq!(
        world.ask(Method::GET, "/v1/login", &alice, None).await.status,
        StatusCode::UNAUTHORIZED
    );
    assert!(HUB_URL.starts_with("https"));
}
