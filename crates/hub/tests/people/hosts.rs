//! Lists of hosts: always as of what was committed, in pages, filtered and sorted, without reading every row each time.

use std::task::Poll;

use axum::http::{Method, StatusCode};
use evenkeel_hub::store::PersonRole;
use serde_json::json;

use super::access_table::form;
use super::world::{HUB_URL, With, World};

async fn listed(world: &World, with: &With, query: &str) -> Vec<String> {
    let answer = world.ask(Method::GET, &format!("/v1/hosts?{query}"), with, None).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    let items = answer.body["items"].as_array().unwrap();
    items.iter().map(|item| item["host"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_list_tells_what_was_committed_before_it_was_asked_for() {
    let world = World::new().await;
    let admin = world.person("root", PersonRole::Admin, "*", 51).await;
    assert_eq!(listed(&world, &admin, "").await, ["eu-1", "us-1"]);
    world.host("eu-2", 203).await;
    assert_eq!(listed(&world, &admin, "").await, ["eu-1", "eu-2", "us-1"]);
    let labels = json!({"labels": {"site": "Berlin"}});
    world.ask(Method::PUT, "/v1/hosts/eu-2/labels", &admin, Some(labels)).await;
    assert_eq!(listed(&world, &admin, "label=site%3DBerlin").await, ["eu-2"]);
    assert_eq!(listed(&world, &admin, "text=berlin").await, ["eu-2"], "labels are searched");
    world.ask(Method::DELETE, "/v1/hosts/eu-2", &admin, None).await;
    assert_eq!(listed(&world, &admin, "").await, ["eu-1", "us-1"]);
}

/// Drives a request for so many polls, then goes away.
async fn gone_after(mut polls: usize, asking: impl Future<Output = Vec<String>>) {
    let mut asking = Box::pin(asking);
    std::future::poll_fn(|context| {
        polls -= 1;
        let ended = asking.as_mut().poll(context).is_ready();
        if ended || polls == 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

#[tokio::test]
async fn who_goes_away_in_the_middle_takes_no_news_along() {
    let world = World::new().await;
    let admin = world.person("root", PersonRole::Admin, "*", 51).await;
    assert_eq!(listed(&world, &admin, "").await, ["eu-1", "us-1"]);
    for polls in 1..20 {
        let labels = json!({"labels": {"site": format!("s{polls}")}});
        world.ask(Method::PUT, "/v1/hosts/eu-1/labels", &admin, Some(labels)).await;
        gone_after(polls, listed(&world, &admin, "")).await;
        let found = listed(&world, &admin, &format!("label=site%3Ds{polls}")).await;
        assert_eq!(found, ["eu-1"], "after {polls} polls");
    }
}

#[tokio::test]
async fn what_another_process_wrote_is_seen_within_a_moment() {
    let world = World::new().await;
    let admin = world.person("root", PersonRole::Admin, "*", 51).await;
    assert_eq!(listed(&world, &admin, "text=oslo").await, Vec::<String>::new());
    world
        .sql(
            "UPDATE hosts SET labels = '{\"site\":\"oslo\"}', version = version + 1, \
             changed_at = CAST(strftime('%s', 'now') AS INTEGER) * 1000 WHERE id = 'us-1'",
        )
        .await;
    world.sql("DELETE FROM hosts WHERE id = 'eu-1'").await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert_eq!(listed(&world, &admin, "text=oslo").await, ["us-1"]);
    assert_eq!(listed(&world, &admin, "").await, ["us-1"], "one that is gone leaves no row");
}

#[tokio::test]
async fn who_is_bounded_sees_and_counts_only_their_own() {
    let world = World::new().await;
    let person = world.person("eve", PersonRole::Viewer, "eu-*", 52).await;
    assert_eq!(listed(&world, &person, "").await, ["eu-1"]);
    let page = world.ask(Method::GET, "/console/fleet", &person, None).await.page;
    assert!(page.contains("eu-1") && !page.contains("us-1"), "{page}");
    assert!(page.contains("<b>1</b> <span>hosts</span>"), "{page}");
}

#[tokio::test]
async fn pages_follow_each_other_in_every_order() {
    let world = World::empty().await;
    for number in 1..=7_u8 {
        world.host(&format!("h{number}"), 200 + number).await;
    }
    let admin = world.person("root", PersonRole::Admin, "*", 51).await;
    for order in ["host", "state", "waiting", "seen"] {
        let mut all = Vec::new();
        let mut after = String::new();
        loop {
            let path = format!("/v1/hosts?sort={order}&limit=3&after={after}");
            let answer = world.ask(Method::GET, &path, &admin, None).await;
            let items = answer.body["items"].as_array().unwrap().clone();
            all.extend(items.iter().map(|item| item["host"].as_str().unwrap().to_owned()));
            let Some(next) = answer.body["next"].as_str() else { break };
            next.clone_into(&mut after);
        }
        all.sort();
        assert_eq!(all, ["h1", "h2", "h3", "h4", "h5", "h6", "h7"], "{order}");
    }
}

#[tokio::test]
async fn every_form_of_every_page_carries_the_sessions_token() {
    let world = World::new().await;
    let token = world.person("root", PersonRole::Admin, "*", 51).await;
    let session = world.session(&token).await;
    let With::Session(_, Some(csrf)) = &session else { unreachable!() };
    let push = json!({"files": super::world::files("[guest.101]\nkind = \"lxc\"\n")});
    for seen in ["\"0\"", "\"1\""] {
        let headers = [("if-match", seen)];
        let path = "/v1/hosts/eu-1/documents";
        world.ask_with(Method::POST, path, &token, Some(push.clone()), &headers).await;
    }
    let draft = world.ask(Method::POST, "/v1/hosts/eu-1/drafts", &token, Some(push)).await;
    let draft = format!("/console/hosts/eu-1/drafts/{}", draft.text("id"));
    let mut forms = 0;
    for path in [
        "/console/fleet",
        "/console/approvals",
        "/console/audit",
        "/console/hosts/eu-1",
        "/console/hosts/eu-1/documents",
        "/console/hosts/eu-1/documents/1",
        "/console/hosts/eu-1/documents/1/restore",
        "/console/hosts/eu-1/edit",
        &draft,
    ] {
        let answer = world.ask(Method::GET, path, &session, None).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}");
        let policy = answer.headers["content-security-policy"].to_str().unwrap();
        assert!(!policy.contains("unsafe") && policy.contains("default-src 'none'"), "{policy}");
        assert!(!answer.page.contains("<style") && !answer.page.contains(" style="), "{path}");
        for form in
            answer.page.split("<form").skip(1).filter(|form| form.contains("method=\"post\""))
        {
            let form = form.split("</form>").next().unwrap();
            assert!(form.contains(&format!("name=\"csrf\" value=\"{csrf}\"")), "{path}: {form}");
            forms += 1;
        }
    }
    assert!(forms >= 13, "{forms}");
}

#[tokio::test]
async fn a_form_of_the_fleets_page_makes_a_token_that_is_shown_once() {
    let world = World::new().await;
    let admin = world.person("root", PersonRole::Admin, "eu-*", 51).await;
    let editor = world.person("ed", PersonRole::Editor, "*", 52).await;
    let admin = world.session(&admin).await;
    let editor = world.session(&editor).await;
    let fleet = |with| world.ask(Method::GET, "/console/fleet", with, None);
    assert!(fleet(&admin).await.page.contains("action=\"/console/enrol-tokens\""));
    assert!(!fleet(&editor).await.page.contains("/console/enrol-tokens"), "it would be refused");
    let make = async |with: &With, fields: &[(&str, &str)]| {
        world.ask(Method::POST, "/console/enrol-tokens", with, Some(form(fields))).await
    };
    let made = make(&admin, &[("host", "eu-9")]).await;
    assert_eq!(made.status, StatusCode::OK);
    assert_eq!(made.headers["cache-control"], "no-store");
    let token = made.page.split("evke_").nth(1).unwrap();
    assert!(token[..64].bytes().all(|byte| byte.is_ascii_hexdigit()), "{token}");
    assert!(made.page.contains(&format!("evenkeel setup --hub {HUB_URL}")), "{}", made.page);
    assert_eq!(make(&editor, &[("host", "eu-9")]).await.status, StatusCode::FORBIDDEN);
    assert_eq!(make(&admin, &[("host", "us-9")]).await.status, StatusCode::FORBIDDEN);
    assert_eq!(make(&admin, &[("host", "no such name")]).await.status.as_u16() / 100, 4);
    // A host that is known takes a box that is ticked.
    assert_eq!(make(&admin, &[("host", "eu-1")]).await.status, StatusCode::CONFLICT);
    let again = make(&admin, &[("host", "eu-1"), ("replace", "yes")]).await;
    assert!(again.page.contains("A token for eu-1"), "{}", again.page);
}
