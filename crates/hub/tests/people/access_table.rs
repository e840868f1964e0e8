//! Who may ask what: every row of the router's table, for every role and every kind of wrong credential.
//!
//! What is meant stands here a second time, written by hand, so that a new row without a line here fails, and so does a row
//! whose rule changed without anybody meaning it.

use std::collections::BTreeMap;

use axum::http::{Method, StatusCode};
use evenkeel_hub::routes::{RowFace, table};
use evenkeel_hub::store::{AccountActor, AccountKey, PersonRole};
use serde_json::{Value, json};

use super::meant_rows::{Leaves, MEANT, Meant, meant};
use super::world::{TestKey, With, World, files};

#[test]
fn every_row_of_the_table_is_meant_as_it_is() {
    let rows: BTreeMap<(String, &str), Meant> = table()
        .into_iter()
        .map(|row| ((row.method.to_string(), row.path), Meant::of(row.access)))
        .collect();
    let meant: BTreeMap<(String, &str), Meant> =
        MEANT.iter().map(|line| ((line.0.to_owned(), line.1), line.2)).collect();
    for (key, row) in &rows {
        assert_eq!(meant.get(key), Some(row), "{key:?} has no line here, or means something else");
    }
    for key in meant.keys() {
        assert!(rows.contains_key(key), "{key:?} is no row any more");
    }
}

#[test]
fn no_secret_stands_in_an_address() {
    for row in table() {
        for word in ["token", "code", "secret", "credential", "session", "key", "nonce", "csrf"] {
            let in_path = format!("{{{word}");
            assert!(!row.path.contains(&in_path), "{} {}", row.method, row.path);
            assert!(
                row.query.iter().all(|name| !name.contains(word)),
                "{} {}",
                row.method,
                row.path
            );
        }
    }
}

/// A key of the account `other`, beside its own.
const SPARE_KEY: &str = "SHA256:spare";

/// The row's path about the host `eu-1`.
pub(super) fn filled(path: &str, draft: &str) -> String {
    path.replace("{host}", "eu-1")
        .replace("{name}", "other")
        .replace("{fingerprint}", SPARE_KEY)
        .replace("{generation}", "1")
        .replace("{kind}", "lxc")
        .replace("{vmid}", "101")
        .replace("{draft}", draft)
        .replace("{file}", "console.css")
        .replace("{envelope}", "env_00000000000000000000000000000000")
}

pub(super) const WEB: &str = "[guest.101]\nkind = \"lxc\"\ncores = 2\n";

/// A form as a browser sends it.
pub(super) fn form(fields: &[(&str, &str)]) -> Value {
    let encoded = |text: &str| {
        let letters = text.bytes().map(|byte| match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        });
        letters.collect::<String>()
    };
    let pairs = fields.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value)));
    Value::String(pairs.collect::<Vec<_>>().join("&"))
}

/// A body with which the row does what it is there for.
fn body_of(world: &World, method: &Method, path: &str) -> Option<Value> {
    Some(match (method.as_str(), path) {
        ("POST", "/v1/accounts") => {
            let key = TestKey::new(77).public().to_string();
            json!({"name": "new", "role": "viewer", "key": key})
        }
        ("POST", "/v1/accounts/{name}/keys") => {
            json!({"key": TestKey::new(78).public().to_string()})
        }
        ("PUT", "/v1/accounts/{name}") => json!({"role": "editor", "scope": "eu-*"}),
        ("POST", "/console/accounts/{name}/change") => {
            form(&[("role", "editor"), ("scope", "eu-*")])
        }
        ("POST", "/console/accounts/{name}/keys/remove") => form(&[("fingerprint", SPARE_KEY)]),
        ("POST", "/v1/console-codes") => json!({"browser": "4f7k-q2mx"}),
        ("POST", "/v1/enrol-tokens") => json!({"host": "eu-9"}),
        ("POST", "/console/enrol-tokens") => form(&[("host", "eu-9")]),
        ("POST", "/v1/envelopes") => json!({"envelope": world.acknowledgement("eu-1", 201, 3600)}),
        (
            "POST",
            "/v1/hosts/{host}/documents"
            | "/v1/hosts/{host}/documents/check"
            | "/v1/hosts/{host}/drafts",
        ) => json!({"files": files(WEB)}),
        ("POST", "/console/envelopes") => {
            let envelope = world.acknowledgement("eu-1", 201, 3600).to_string();
            form(&[("envelope", &envelope)])
        }
        ("POST", "/console/hosts/{host}/edit" | "/console/hosts/{host}/edit/check") => form(&[
            ("as", "push"),
            ("seen", "1"),
            ("name-0", "web.toml"),
            ("text-0", "[guest.101]\r\nkind = \"lxc\"\r\ncores = 3\r\n"),
        ]),
        ("POST", "/console/hosts/{host}/documents/{generation}/restore") => {
            form(&[("as", "draft"), ("seen", "1")])
        }
        ("POST", "/console/accounts") => {
            let key = TestKey::new(77).public().to_string();
            form(&[("name", "new"), ("role", "viewer"), ("scope", "*"), ("key", &key)])
        }
        ("POST", "/console/accounts/{name}/keys") => {
            form(&[("key", &TestKey::new(78).public().to_string())])
        }
        ("POST", "/console/hosts/{host}/labels") => form(&[("labels", "site=berlin, rack=a1")]),
        ("PUT", "/v1/hosts/{host}/labels") => json!({"labels": {"site": "berlin"}}),
        _ => return None,
    })
}

/// Asks a row as somebody, in a world of its own, about things that are there.
async fn ask(world: &World, method: &Method, path: &str, with: &With, draft: &str) -> StatusCode {
    let body = body_of(world, method, path);
    let headers = [("if-match", "\"1\"")];
    let path = filled(path, draft);
    world.ask_with(method.clone(), &path, with, body, &headers).await.status
}

/// A world with a document, a draft, a guest, and an account that may be removed.
pub(super) async fn furnished() -> (World, String) {
    let world = World::new().await;
    world.account("other", PersonRole::Viewer, "*", 50).await;
    let spare = AccountKey { fingerprint: SPARE_KEY.to_owned(), key_line: String::new() };
    world.hub.store().add_account_key("other", spare, AccountActor::Server).await.unwrap();
    let admin = world.person("root", PersonRole::Admin, "*", 51).await;
    let push = json!({"files": files(WEB)});
    let path = "/v1/hosts/eu-1/documents";
    let headers = [("if-match", "\"0\"")];
    let pushed = world.ask_with(Method::POST, path, &admin, Some(push.clone()), &headers).await;
    assert_eq!(pushed.status, StatusCode::OK, "{pushed:?}");
    let draft = world.ask(Method::POST, "/v1/hosts/eu-1/drafts", &admin, Some(push)).await;
    world
        .sql(
            "INSERT INTO guests (host, guest, name, state, body, updated_at) \
             VALUES ('eu-1', 'lxc/101', 'web', 'as_declared', '{}', 0)",
        )
        .await;
    world
        .sql(
            "INSERT INTO envelopes (id, host, cursor, kind, item, body, body_hash, submitted_by, submitted_at, \
             expires_at, state, verdict, verdict_code, verdict_at) VALUES \
             ('env_00000000000000000000000000000000', 'eu-1', 0, 'rotation', '', '{}', '', 'x', 0, 0, 'judged', '', '', 0)",
        )
        .await;
    (world, draft.text("id").to_owned())
}

async fn nobody_comes_in_with_a_wrong_credential() {
    let (world, draft) = furnished().await;
    let expired = world.person("late", PersonRole::Admin, "*", 60).await;
    world.sql("UPDATE api_tokens SET expires_at = 1").await;
    let revoked = world.person("gone", PersonRole::Admin, "*", 61).await;
    world.hub.store().remove_account("gone", AccountActor::Server).await.unwrap();
    let ended = world.person("left", PersonRole::Admin, "*", 62).await;
    world.ask(Method::DELETE, "/v1/login", &ended, None).await;
    let session_of = world.person("late2", PersonRole::Admin, "*", 63).await;
    let old_session = world.session(&session_of).await;
    world.sql("UPDATE api_tokens SET expires_at = 1").await;
    let host = With::Bearer(world.host("eu-1", 201).await);
    let person = world.person("someone", PersonRole::Admin, "*", 64).await;
    let made_up = With::Bearer(format!("evka_{}", "0".repeat(64)));
    let wrong = [
        ("none", With::Nothing),
        ("expired", expired),
        ("revoked", revoked),
        ("logged out", ended),
        ("old session", old_session),
        ("made up", made_up),
        ("a host's", host),
    ];
    for row in table() {
        let (meaning, _) = meant(&row.method, row.path).unwrap();
        for (name, with) in &wrong {
            let refused = match meaning {
                Meant::Anyone => continue,
                Meant::Host if *name == "a host's" => continue,
                Meant::Host
                | Meant::OfHost(_)
                | Meant::Some(_)
                | Meant::Token(_)
                | Meant::HubAdmin => ask(&world, &row.method, row.path, with, &draft).await,
            };
            assert_eq!(refused, StatusCode::UNAUTHORIZED, "{name}: {} {}", row.method, row.path);
        }
        if meaning == Meant::Host {
            let refused = ask(&world, &row.method, row.path, &person, &draft).await;
            assert_eq!(refused, StatusCode::UNAUTHORIZED, "a person's: {}", row.path);
        }
    }
}

async fn another_hosts_credential_fetches_nothing_of_this_host() {
    let (world, _) = furnished().await;
    let other = With::Bearer(world.host("us-1", 202).await);
    let path = "/v1/agent/documents/1";
    assert_eq!(world.ask(Method::GET, path, &other, None).await.status, StatusCode::NOT_FOUND);
    let own = With::Bearer(world.host("eu-1", 201).await);
    assert_eq!(world.ask(Method::GET, path, &own, None).await.status, StatusCode::OK);
}

async fn a_role_below_is_refused_and_a_scope_beside_sees_nothing() {
    let (world, draft) = furnished().await;
    for (seed, role) in
        [(70, PersonRole::Viewer), (71, PersonRole::Editor), (72, PersonRole::Admin)]
    {
        let everywhere = world.person(&format!("all-{}", role.as_str()), role, "*", seed).await;
        let elsewhere =
            world.person(&format!("us-{}", role.as_str()), role, "us-*", seed + 10).await;
        for row in table() {
            let (meaning, _) = meant(&row.method, row.path).unwrap();
            let Some(needed) = meaning.role() else { continue };
            let name = format!("{}: {} {}", role.as_str(), row.method, row.path);
            if role < needed {
                for with in [&everywhere, &elsewhere] {
                    let status = ask(&world, &row.method, row.path, with, &draft).await;
                    assert_eq!(status, StatusCode::FORBIDDEN, "{name}");
                }
                continue;
            }
            let path = row.path;
            let expected = match meaning {
                Meant::OfHost(_) => StatusCode::NOT_FOUND,
                Meant::HubAdmin => StatusCode::FORBIDDEN,
                Meant::Some(_) => match path {
                    "/v1/envelopes"
                    | "/v1/envelopes/{envelope}"
                    | "/console/envelopes"
                    | "/console/envelopes/{envelope}" => StatusCode::NOT_FOUND,
                    "/v1/enrol-tokens" | "/console/enrol-tokens" => StatusCode::FORBIDDEN,
                    // What they see is theirs: the tests of each list look at what is in it.
                    "/v1/hosts"
                    | "/v1/pending"
                    | "/v1/audit"
                    | "/v1/events"
                    | "/v1/login"
                    | "/v1/logins"
                    | "/console/approvals"
                    | "/console/audit"
                    | "/console/audit/lines"
                    | "/console/fleet"
                    | "/console/logout" => continue,
                    other => panic!("{other} chooses hosts itself: say here what it answers"),
                },
                Meant::Token(_) | Meant::Anyone | Meant::Host => continue,
            };
            let status = ask(&world, &row.method, path, &elsewhere, &draft).await;
            assert_eq!(status, expected, "beside the scope, {name}");
        }
    }
}

async fn a_host_beside_the_scope_answers_as_one_that_does_not_exist() {
    let (world, draft) = furnished().await;
    let person = world.person("us-admin", PersonRole::Admin, "us-*", 75).await;
    for row in table().into_iter().filter(|row| row.path.contains("{host}")) {
        let body = || body_of(&world, &row.method, row.path);
        let headers = [("if-match", "\"1\"")];
        let ask = |host: &'static str| {
            let path = filled(&row.path.replace("{host}", host), &draft);
            let world = &world;
            let person = &person;
            let method = row.method.clone();
            let body = body();
            async move { world.ask_with(method, &path, person, body, &headers).await }
        };
        let hidden = ask("eu-1").await;
        let missing = ask("eu-7").await;
        assert_eq!(hidden.status, missing.status, "{} {}", row.method, row.path);
        let told = hidden.page.replace("eu-1", "eu-7");
        assert_eq!(told, missing.page, "{} {}", row.method, row.path);
    }
}

async fn whoever_may_gets_an_answer_and_what_changes_something_is_in_the_audit() {
    for row in table() {
        let (meaning, leaves) = meant(&row.method, row.path).unwrap();
        let Some(role) = meaning.role() else { continue };
        let (world, draft) = furnished().await;
        let scope = if meaning == Meant::HubAdmin { "*" } else { "eu-*" };
        let person = world.person("somebody", role, scope, 80).await;
        let before = world.audited().await.len();
        let status = ask(&world, &row.method, row.path, &person, &draft).await;
        assert!(is_done(status), "{status}: {} {}", row.method, row.path);
        let lines = world.audited().await;
        let by_person = |line: &&String| line.starts_with("somebody ");
        let new = lines[..lines.len() - before].iter().filter(by_person).count();
        let expected = usize::from(leaves == Leaves::AuditLine);
        assert_eq!(new, expected, "{} {} left {lines:?}", row.method, row.path);
    }
}

async fn a_session_changes_nothing_without_its_token() {
    for row in table() {
        let (meaning, _) = meant(&row.method, row.path).unwrap();
        let Some(role) = meaning.role() else { continue };
        let (world, draft) = furnished().await;
        let token = world.person("somebody", role, "*", 80).await;
        let With::Session(cookie, csrf) = world.session(&token).await else { unreachable!() };
        let other = world.session(&token).await;
        let With::Session(_, others) = other else { unreachable!() };
        let changes = row.method != Method::GET;
        for forged in [None, Some(String::new()), others] {
            let with = With::Session(cookie.clone(), forged);
            let status = ask(&world, &row.method, row.path, &with, &draft).await;
            if changes {
                assert_eq!(status, StatusCode::FORBIDDEN, "{} {}", row.method, row.path);
            } else {
                assert!(status.is_success(), "{status}: {} {}", row.method, row.path);
            }
        }
        let with = With::Session(cookie, csrf);
        let status = ask(&world, &row.method, row.path, &with, &draft).await;
        if matches!(meaning, Meant::Token(_)) {
            assert_eq!(status, StatusCode::FORBIDDEN, "{} {}", row.method, row.path);
            continue;
        }
        assert!(is_done(status), "{status}: {} {}", row.method, row.path);
    }
}

async fn a_form_may_show_its_token_in_itself_and_no_other_row_may() {
    for row in table().into_iter().filter(|row| row.method != Method::GET) {
        let (meaning, _) = meant(&row.method, row.path).unwrap();
        let Some(role) = meaning.role() else { continue };
        let (world, draft) = furnished().await;
        let token = world.person("somebody", role, "*", 80).await;
        let With::Session(cookie, csrf) = world.session(&token).await else { unreachable!() };
        let With::Session(_, others) = world.session(&token).await else { unreachable!() };
        let with = With::Session(cookie, None);
        let is_form = row.face == RowFace::Form;
        let own = csrf.clone().unwrap();
        for (shown, is_taken) in [("", false), (&*others.unwrap(), false), (&*own, is_form)] {
            let Value::String(mut body) = form(&[("csrf", shown)]) else { unreachable!() };
            if let Some(Value::String(rest)) = body_of(&world, &row.method, row.path) {
                body = format!("{body}&{rest}");
            }
            let path = filled(row.path, &draft);
            let asked = world
                .ask_with(row.method.clone(), &path, &with, Some(Value::String(body)), &[])
                .await;
            let name = format!("{} {} with {shown:?}: {asked:?}", row.method, row.path);
            if is_taken {
                assert!(is_done(asked.status), "{name}");
            } else {
                assert_eq!(asked.status, StatusCode::FORBIDDEN, "{name}");
            }
        }
    }
}

async fn a_form_from_another_site_is_refused_whatever_it_holds() {
    let (world, draft) = furnished().await;
    let token = world.person("somebody", PersonRole::Admin, "*", 80).await;
    let With::Session(cookie, csrf) = world.session(&token).await else { unreachable!() };
    for row in table().into_iter().filter(|row| row.face == RowFace::Form) {
        let body = form(&[("csrf", csrf.as_deref().unwrap())]);
        for headers in [("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")] {
            let with = With::Session(cookie.clone(), None);
            let path = filled(row.path, &draft);
            let body = Some(body.clone());
            let asked = world.ask_with(row.method.clone(), &path, &with, body, &[headers]).await;
            assert_eq!(asked.status, StatusCode::FORBIDDEN, "{} {headers:?}", row.path);
        }
    }
}

#[test]
fn a_page_is_under_the_consoles_path_and_a_program_is_not() {
    for row in table() {
        let is_page = row.path.starts_with("/console") || row.path == "/first-admin";
        assert_eq!(is_page, row.face != RowFace::Program, "{} {}", row.method, row.path);
        assert_eq!(
            row.face == RowFace::Form,
            is_page && row.method == Method::POST,
            "{}",
            row.path
        );
    }
}

/// Done, or done and sent on to a page.
pub(super) fn is_done(status: StatusCode) -> bool {
    status.is_success() || status == StatusCode::SEE_OTHER
}

/// Every case on a database of its own kind.
macro_rules! on_both_databases {
    ($($case:ident,)+) => {
        mod on_sqlite {
            $(#[tokio::test]
            async fn $case() {
                super::$case().await;
            })+
        }

        /// One server for all of them; each world has a database of its own in it.
        #[tokio::test]
        async fn the_whole_table_on_postgresql() {
            crate::world::on_postgresql(async {
                $($case().await;)+
            })
            .await;
        }
    };
}

on_both_databases! {
    nobody_comes_in_with_a_wrong_credential,
    another_hosts_credential_fetches_nothing_of_this_host,
    a_role_below_is_refused_and_a_scope_beside_sees_nothing,
    a_host_beside_the_scope_answers_as_one_that_does_not_exist,
    whoever_may_gets_an_answer_and_what_changes_something_is_in_the_audit,
    a_session_changes_nothing_without_its_token,
    a_form_may_show_its_token_in_itself_and_no_other_row_may,
    a_form_from_another_site_is_refused_whatever_it_holds,
}
