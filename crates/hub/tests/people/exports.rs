//! Exports of the audit: written as they are taken, a few lines at a time, and so many of one person's at a time.

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use evenkeel_hub::store::PersonRole;
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;

use super::world::{With, World};

async fn begin(world: &World, token: &str) -> axum::response::Response {
    let request = Request::builder()
        .method(Method::GET)
        .uri("/console/audit/lines")
        .header("authorization", format!("Bearer {token}"));
    world.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
}

#[tokio::test]
async fn z16_an_export_comes_in_pieces_and_a_person_has_two_at_a_time() {
    let world = World::new().await;
    let With::Bearer(token) = world.person("alice", PersonRole::Viewer, "*", 10).await else {
        unreachable!()
    };
    let With::Bearer(other) = world.person("bob", PersonRole::Viewer, "*", 11).await else {
        unreachable!()
    };
    world
        .sql(
            "INSERT INTO audit (at, who, act, subject, detail) WITH RECURSIVE n(i) AS \
             (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 12000) SELECT i, 'x', 'y', 'z', 'w' FROM n",
        )
        .await;
    let [first, second] = [begin(&world, &token).await, begin(&world, &token).await];
    let third = begin(&world, &token).await;
    assert_eq!((first.status(), second.status()), (StatusCode::OK, StatusCode::OK));
    assert_eq!(third.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(begin(&world, &other).await.status(), StatusCode::OK, "another has their own");
    let mut body = first.into_body();
    let mut text = Vec::new();
    let mut largest = 0;
    while let Some(frame) = body.frame().await {
        let data = frame.unwrap().into_data().unwrap();
        largest = largest.max(data.len());
        text.extend_from_slice(&data);
    }
    let lines = String::from_utf8(text).unwrap();
    assert_eq!(lines.lines().count(), 10_001, "cut, and it says so");
    assert!(lines.lines().last().unwrap().starts_with("{\"cut\""));
    assert!(largest < lines.len() / 50, "{largest} of {} bytes at once", lines.len());
    drop(body);
    assert_eq!(begin(&world, &token).await.status(), StatusCode::OK, "a place was given back");
    drop(second);
}
