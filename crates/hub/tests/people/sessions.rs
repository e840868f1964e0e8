//! Sessions: made from a one-time code, never from what a browser already had.

use axum::http::{Method, StatusCode};
use evenkeel_hub::secret_text::{SecretKind, SecretText};
use evenkeel_hub::store::PersonRole;
use serde_json::json;

use super::login::stands_in_database;
use super::world::{HUB_URL, TestKey, With, World};

#[tokio::test]
async fn a_code_becomes_one_session_and_only_in_its_minute() {
    let world = World::new().await;
    let alice = world.person("alice", PersonRole::Viewer, "*", 10).await;
    let (browser, word) = world.browser().await;
    let headers = [("cookie", browser.as_str())];
    let code = world.code(&alice, &word).await;
    let opened = world.enter(&code, &With::Nothing, &headers).await;
    assert_eq!(opened.status, StatusCode::OK);
    let again = world.enter(&code, &With::Nothing, &headers).await;
    assert_eq!((again.status, again.headers.get("set-cookie")), (StatusCode::UNAUTHORIZED, None));
    let late = world.code(&alice, &word).await;
    world.sql("UPDATE console_codes SET expires_at = 1").await;
    let late = world.enter(&late, &With::Nothing, &headers).await;
    assert_eq!(late.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn the_database_holds_no_session_and_no_code() {
    let world = World::new().await;
    let alice = world.person("alice", PersonRole::Viewer, "*", 10).await;
    let With::Session(cookie, _) = world.session(&alice).await else { unreachable!() };
    let session = cookie.split_once('=').unwrap().1;
    let (_, word) = world.browser().await;
    let code = world.code(&alice, &word).await;
    world.hub.store().close().await;
    for (kind, secret) in [(SecretKind::Session, session), (SecretKind::OneTimeCode, &*code)] {
        let drawn = SecretText::read(kind, secret).unwrap();
        assert!(stands_in_database(&world, drawn.hash().as_str()), "{kind:?}: it is known there");
        assert!(!stands_in_database(&world, &secret[5..]), "{kind:?} stands in the database");
    }
}

#[tokio::test]
async fn a_cookie_that_somebody_planted_is_not_the_session_afterwards() {
    let world = World::new().await;
    let mallory = world.person("mallory", PersonRole::Viewer, "*", 9).await;
    let alice = world.person("alice", PersonRole::Admin, "*", 10).await;
    let planted = world.session(&mallory).await;
    let (browser, word) = world.browser().await;
    let code = world.code(&alice, &word).await;
    let opened = world.enter(&code, &planted, &[("cookie", &browser)]).await;
    assert_eq!((opened.status, opened.text("account")), (StatusCode::OK, "alice"));
    let With::Session(cookie, _) = &planted else { unreachable!() };
    let set = opened.headers["set-cookie"].to_str().unwrap();
    assert!(!set.starts_with(cookie.as_str()), "{set}");
    // What was planted is over, so that nobody who knows it looks over anybody's shoulder.
    let who = world.ask(Method::GET, "/v1/login", &planted, None).await;
    assert_eq!(who.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn another_site_can_open_no_session_and_make_no_admin() {
    let world = World::new().await;
    let alice = world.person("alice", PersonRole::Admin, "*", 10).await;
    let (browser, word) = world.browser().await;
    for foreign in [("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")] {
        let code = world.code(&alice, &word).await;
        for path in ["/v1/sessions", "/v1/first-admin"] {
            let headers = [foreign, ("cookie", &browser)];
            let body = Some(json!({"code": code}));
            let answer = world.ask_with(Method::POST, path, &With::Nothing, body, &headers).await;
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path} {foreign:?}");
        }
        let headers =
            [("origin", HUB_URL), ("sec-fetch-site", "same-origin"), ("cookie", &browser)];
        let own = world.enter(&code, &With::Nothing, &headers).await;
        assert_eq!(own.status, StatusCode::OK);
    }
}

#[tokio::test]
async fn z12_a_session_makes_no_code_and_ends_with_the_token_it_came_from() {
    let world = World::new().await;
    let alice = world.person("alice", PersonRole::Admin, "*", 10).await;
    let (_, word) = world.browser().await;
    let session = world.session(&alice).await;
    let body = Some(json!({"browser": word}));
    let more = world.ask(Method::POST, "/v1/console-codes", &session, body).await;
    assert_eq!(more.status, StatusCode::FORBIDDEN);
    let code = world.code(&alice, &word).await;
    let out = world.ask(Method::DELETE, "/v1/login", &alice, None).await;
    assert_eq!(out.status, StatusCode::NO_CONTENT);
    for with in [&alice, &session] {
        let who = world.ask(Method::GET, "/v1/login", with, None).await;
        assert_eq!(who.status, StatusCode::UNAUTHORIZED, "{with:?}");
    }
    assert_eq!(world.enter(&code, &With::Nothing, &[]).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn z12_all_logins_of_a_person_end_at_their_word_and_at_an_admins() {
    let world = World::new().await;
    let first = world.person("alice", PersonRole::Viewer, "*", 10).await;
    let root = world.person("root", PersonRole::Admin, "*", 11).await;
    for by_an_admin in [false, true] {
        let lost = world.token("alice", 10).await;
        let session = world.session(&lost).await;
        let listed = world.ask(Method::GET, "/v1/logins", &session, None).await;
        let logins = listed.body["items"].as_array().unwrap();
        let sessions: u64 = logins.iter().map(|login| login["sessions"].as_u64().unwrap()).sum();
        assert_eq!((logins.len(), sessions), (if by_an_admin { 1 } else { 2 }, 1), "{listed:?}");
        let own = ("/v1/logins", &lost);
        let (path, who) = if by_an_admin { ("/v1/accounts/alice/logins", &root) } else { own };
        let ended = world.ask(Method::DELETE, path, who, None).await;
        assert_eq!(ended.body["ended"].as_u64(), Some(logins.len() as u64), "{ended:?}");
        for with in [&first, &lost, &session] {
            let who = world.ask(Method::GET, "/v1/login", with, None).await;
            assert_eq!(who.status, StatusCode::UNAUTHORIZED, "{with:?}");
        }
        assert_eq!(world.ask(Method::GET, "/v1/login", &root, None).await.status, StatusCode::OK);
    }
}

#[tokio::test]
async fn z12_a_token_ends_with_the_key_that_made_it_and_no_other() {
    let world = World::new().await;
    let root = world.person("root", PersonRole::Admin, "*", 11).await;
    let lost = world.person("alice", PersonRole::Viewer, "*", 10).await;
    let body = json!({"key": TestKey::new(12).public().to_string()});
    world.ask(Method::POST, "/v1/accounts/alice/keys", &root, Some(body)).await;
    let kept = world.token("alice", 12).await;
    let lost_session = world.session(&lost).await;
    let fingerprint = TestKey::new(10).account_key().fingerprint;
    let escaped = fingerprint.replace('/', "%2F").replace('+', "%2B");
    let path = format!("/v1/accounts/alice/keys/{escaped}");
    let removed = world.ask(Method::DELETE, &path, &root, None).await;
    assert_eq!(removed.status, StatusCode::NO_CONTENT, "{removed:?}");
    for (with, status) in [
        (&lost, StatusCode::UNAUTHORIZED),
        (&lost_session, StatusCode::UNAUTHORIZED),
        (&kept, StatusCode::OK),
    ] {
        assert_eq!(world.ask(Method::GET, "/v1/login", with, None).await.status, status);
    }
}

#[tokio::test]
async fn z22_a_link_that_was_sent_to_a_person_logs_their_browser_in_as_nobody() {
    let world = World::new().await;
    let mallory = world.person("mallory", PersonRole::Viewer, "*", 9).await;
    let (own_browser, own_word) = world.browser().await;
    let (persons_browser, _) = world.browser().await;
    for cookie in [Some(persons_browser.as_str()), None] {
        let code = world.code(&mallory, &own_word).await;
        let headers: Vec<(&str, &str)> =
            cookie.map(|cookie| ("cookie", cookie)).into_iter().collect();
        let opened = world.enter(&code, &With::Nothing, &headers).await;
        assert_eq!(opened.status, StatusCode::FORBIDDEN, "{opened:?}");
        assert!(opened.text("detail").contains("another browser"), "{opened:?}");
        assert_eq!(opened.headers.get("set-cookie"), None);
        let after = world.enter(&code, &With::Nothing, &[("cookie", &own_browser)]).await;
        assert_eq!(after.status, StatusCode::UNAUTHORIZED, "it is over");
    }
    let body = Some(json!({"browser": ""}));
    let unbound = world.ask(Method::POST, "/v1/console-codes", &mallory, body).await;
    assert_eq!(unbound.status, StatusCode::UNPROCESSABLE_ENTITY, "none is made for no browser");
}

#[tokio::test]
async fn a_logout_ends_the_session_and_takes_the_cookie_away() {
    let world = World::new().await;
    let alice = world.person("alice", PersonRole::Viewer, "*", 10).await;
    let session = world.session(&alice).await;
    let who = world.ask(Method::GET, "/v1/login", &session, None).await;
    let With::Session(_, csrf) = &session else { unreachable!() };
    assert_eq!(Some(who.text("csrf").to_owned()), *csrf);
    let out = world.ask(Method::DELETE, "/v1/login", &session, None).await;
    assert_eq!(out.status, StatusCode::NO_CONTENT);
    assert!(out.headers["set-cookie"].to_str().unwrap().contains("Max-Age=0"));
    let after = world.ask(Method::GET, "/v1/login", &session, None).await;
    assert_eq!(after.status, StatusCode::UNAUTHORIZED);
    // The token is another login, and goes on.
    assert_eq!(world.ask(Method::GET, "/v1/login", &alice, None).await.status, StatusCode::OK);
}
