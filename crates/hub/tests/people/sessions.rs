//! Sessions: made from a one-time code, never from what a browser already had.

use axum::http::{Method, StatusCode};
use evenkeel_hub::store::PersonRole;
use serde_json::json;

use super::world::{HUB_URL, With, World};

#[tokio::test]
async fn a_code_becomes_one_session_and_only_in_its_minute() {
    let world = World::new().await;
    let alice = world.person("alice", PersonRole::Viewer, "*", 10).await;
    let code = world.ask(Method::POST, "/v1/console-codes", &alice, None).await;
    let body = || Some(json!({"code": code.text("code")}));
    let opened = world.ask(Method::POST, "/v1/sessions", &With::Nothing, body()).await;
    assert_eq!(opened.status, StatusCode::OK);
    let again = world.ask(Method::POST, "/v1/sessions", &With::Nothing, body()).await;
    assert_eq!((again.status, again.headers.get("set-cookie")), (StatusCode::UNAUTHORIZED, None));
    let late = world.ask(Method::POST, "/v1/console-codes", &alice, None).await;
    world.sql("UPDATE one_time_codes SET expires_at = 1").await;
    let body = json!({"code": late.text("code")});
    let late = world.ask(Method::POST, "/v1/sessions", &With::Nothing, Some(body)).await;
    assert_eq!(late.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_cookie_that_somebody_planted_is_not_the_session_afterwards() {
    let world = World::new().await;
    let (mallory, alice) = (
        world.person("mallory", PersonRole::Viewer, "*", 9).await,
        world.person("alice", PersonRole::Admin, "*", 10).await,
    );
    let planted = world.session(&mallory).await;
    let code = world.ask(Method::POST, "/v1/console-codes", &alice, None).await;
    let body = json!({"code": code.text("code")});
    let opened = world.ask(Method::POST, "/v1/sessions", &planted, Some(body)).await;
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
    for (name, value) in [("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")] {
        let code = world.ask(Method::POST, "/v1/console-codes", &alice, None).await;
        let body = json!({"code": code.text("code")});
        for path in ["/v1/sessions", "/v1/first-admin"] {
            let headers = [(name, value)];
            let body = Some(body.clone());
            let answer = world.ask_with(Method::POST, path, &With::Nothing, body, &headers).await;
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path} {name}");
        }
        let headers = [("origin", HUB_URL), ("sec-fetch-site", "same-origin")];
        let own = world
            .ask_with(Method::POST, "/v1/sessions", &With::Nothing, Some(body), &headers)
            .await;
        assert_eq!(own.status, StatusCode::OK);
    }
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
