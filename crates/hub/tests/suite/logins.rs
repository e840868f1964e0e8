//! How people come in and what they read, on both databases.

use evenkeel_core::fleet::WireFile;
use std::time::Duration;

use super::host::TestHost;
use super::{TestBed, document};
use evenkeel_hub::problem::ProblemCode;
use evenkeel_hub::secret_text::{SecretHash, SecretKind, SecretText};
use evenkeel_hub::store::{
    Account, AccountActor, AccountKey, AnsweredChallenge, CodeOutcome, DRAFTS_PER_HOST_MAX,
    HubStore, HubTime, NewAccount, NewDraft, PersonRole, StoreError,
};

pub(super) async fn account(bed: &TestBed, name: &str, role: PersonRole, scope: &str) {
    let key = AccountKey { fingerprint: format!("SHA256:{name}"), key_line: String::new() };
    let account = Account::new(name, role, scope).unwrap();
    let made_by = "server".to_owned();
    let new = NewAccount { account, key, made_by, first_code: None };
    bed.store().add_account(new).await.unwrap();
}

pub(super) fn drawn(kind: SecretKind) -> SecretHash {
    SecretText::draw(kind).hash()
}

/// A token of an account, by its own key.
pub(super) async fn token(store: &HubStore, name: &str) -> SecretHash {
    let token = drawn(SecretKind::ApiToken);
    let key = format!("SHA256:{name}");
    store.open_token(token.clone(), name, &key, 60).await.unwrap().unwrap();
    token
}

/// A session of a token, in a browser.
pub(super) async fn session(store: &HubStore, token: &SecretHash) -> SecretHash {
    let code = drawn(SecretKind::OneTimeCode);
    assert!(store.add_console_code(code.clone(), token.clone(), "4f7kq2mx", 60).await.unwrap());
    let session = drawn(SecretKind::Session);
    let opened = store.open_session(code, session.clone(), "4f7kq2mx").await.unwrap();
    assert!(matches!(opened, CodeOutcome::Opened(_)), "{opened:?}");
    session
}

pub(super) async fn z17_a_challenge_is_answered_once_whoever_asks(bed: TestBed) {
    account(&bed, "alice", PersonRole::Viewer, "*").await;
    let other = bed.another().await;
    let answered = |life_s: i64| AnsweredChallenge {
        hash: SecretHash::of("nonce"),
        expires_at: HubTime::now().plus_s(life_s),
    };
    let asked = (0..10).map(|number| {
        let store = if number % 2 == 0 { bed.store().clone() } else { other.hub.store().clone() };
        let challenge = answered(60);
        tokio::spawn(async move {
            let token = drawn(SecretKind::ApiToken);
            let by = ("alice", "SHA256:alice");
            store.answer_challenge(challenge, token, by, 60).await.unwrap().is_some()
        })
    });
    let opened = futures_util::future::join_all(asked).await;
    assert_eq!(opened.into_iter().filter(|opened| *opened.as_ref().unwrap()).count(), 1);
    assert_eq!(bed.number("SELECT COUNT(*) FROM api_tokens").await, 1);
    bed.store().tidy().await.unwrap();
    assert_eq!(bed.number("SELECT COUNT(*) FROM spent_challenges").await, 1, "in its minute");
    bed.sql("UPDATE spent_challenges SET expires_at = 1").await;
    bed.store().tidy().await.unwrap();
    assert_eq!(bed.number("SELECT COUNT(*) FROM spent_challenges").await, 0);
}

pub(super) async fn a_token_ends_with_its_time_its_key_and_its_account(bed: TestBed) {
    account(&bed, "root", PersonRole::Admin, "*").await;
    account(&bed, "alice", PersonRole::Editor, "eu-*").await;
    let store = bed.store();
    let good = drawn(SecretKind::ApiToken);
    let late = drawn(SecretKind::ApiToken);
    let opened =
        store.open_token(good.clone(), "alice", "SHA256:alice", 60).await.unwrap().unwrap();
    assert_eq!((opened.account.role, opened.account.scope.as_str()), (PersonRole::Editor, "eu-*"));
    let found = store.login_by_token(&good).await.unwrap();
    assert_eq!(found.map(|login| login.account.name).as_deref(), Some("alice"));
    store.open_token(late.clone(), "alice", "SHA256:alice", -1).await.unwrap();
    assert_eq!(store.login_by_token(&late).await.unwrap(), None, "over");
    let other_key = store.open_token(drawn(SecretKind::ApiToken), "alice", "SHA256:root", 60).await;
    assert_eq!(other_key.unwrap(), None, "another's key");
    let ended = drawn(SecretKind::ApiToken);
    store.open_token(ended.clone(), "alice", "SHA256:alice", 60).await.unwrap();
    store.end_token(ended.clone(), "alice").await.unwrap();
    assert_eq!(store.login_by_token(&ended).await.unwrap(), None, "logged out");
    assert!(store.login_by_token(&good).await.unwrap().is_some(), "the other one goes on");
    store.remove_account("alice", AccountActor::Server).await.unwrap();
    assert_eq!(store.login_by_token(&good).await.unwrap(), None, "removed");
    for table in ["api_tokens", "account_keys WHERE fingerprint = 'SHA256:alice'"] {
        assert_eq!(bed.number(&format!("SELECT COUNT(*) FROM {table}")).await, 0, "{table}");
    }
}

pub(super) async fn a_code_becomes_one_session_however_many_ask(bed: TestBed) {
    account(&bed, "alice", PersonRole::Viewer, "*").await;
    let store = bed.store();
    let token = token(store, "alice").await;
    let code = drawn(SecretKind::OneTimeCode);
    store.add_console_code(code.clone(), token.clone(), "4f7kq2mx", 60).await.unwrap();
    let asked = (0..10).map(|_| {
        let store = store.clone();
        let code = code.clone();
        tokio::spawn(async move {
            let session = drawn(SecretKind::Session);
            let outcome = store.open_session(code, session, "4f7kq2mx").await.unwrap();
            matches!(outcome, CodeOutcome::Opened(_))
        })
    });
    let opened = futures_util::future::join_all(asked).await;
    assert_eq!(opened.into_iter().filter(|opened| *opened.as_ref().unwrap()).count(), 1);
    assert_eq!(bed.number("SELECT COUNT(*) FROM sessions").await, 1);
    let first = drawn(SecretKind::OneTimeCode);
    store.set_first_admin_code(first.clone()).await.unwrap();
    let session = store.open_session(first, drawn(SecretKind::Session), "4f7kq2mx").await.unwrap();
    assert_eq!(session, CodeOutcome::Unknown, "a code for another purpose");
    let late = drawn(SecretKind::OneTimeCode);
    store.add_console_code(late.clone(), token, "4f7kq2mx", -1).await.unwrap();
    let session = store.open_session(late, drawn(SecretKind::Session), "4f7kq2mx").await.unwrap();
    assert_eq!(session, CodeOutcome::Unknown, "too late");
}

pub(super) async fn the_last_admin_stays(bed: TestBed) {
    account(&bed, "alice", PersonRole::Admin, "*").await;
    account(&bed, "eu", PersonRole::Admin, "eu-*").await;
    let store = bed.store();
    let server = || AccountActor::Server;
    let is_conflict = |error: &StoreError| matches!(error, StoreError::Refused(problem) if problem.code == ProblemCode::Conflict);
    let removed = store.remove_account("alice", server()).await;
    assert!(removed.as_ref().is_err_and(is_conflict), "{removed:?}");
    for (role, scope) in [(PersonRole::Editor, "*"), (PersonRole::Admin, "eu-*")] {
        let lesser = Account::new("alice", role, scope).unwrap();
        let changed = store.change_account(lesser, server()).await;
        assert!(changed.as_ref().is_err_and(is_conflict), "{role:?} of {scope}: {changed:?}");
    }
    let key = store.remove_account_key("alice", "SHA256:alice", server()).await;
    assert!(key.as_ref().is_err_and(is_conflict), "{key:?}");
    account(&bed, "bob", PersonRole::Admin, "*").await;
    store.remove_account("alice", server()).await.unwrap();
    assert!(store.remove_account("alice", server()).await.is_err(), "gone already");
    let left = store.accounts_after("", 10).await.unwrap();
    let names: Vec<&str> = left.iter().map(|listed| listed.account.name.as_str()).collect();
    assert_eq!(names, ["bob", "eu"]);
    assert_eq!(left[0].keys[0].fingerprint, "SHA256:bob");
}

pub(super) async fn drafts_are_bounded_and_share_their_texts(bed: TestBed) {
    let token = bed.token("pve1", false).await;
    TestHost::new(&bed, "pve1").enrol(&token).await;
    let draft = |number: i64| NewDraft {
        id: format!("drf_{number:04}"),
        host: "pve1".to_owned(),
        base: 0,
        files: vec![WireFile { name: "web.toml".to_owned(), text: "same".to_owned() }],
        manifest: super::manifest_of("same"),
        message: String::new(),
        made_by: "alice".to_owned(),
    };
    for number in 0..DRAFTS_PER_HOST_MAX + 3 {
        bed.store().add_draft(draft(number)).await.unwrap();
        // Drafts of one millisecond are told apart by nothing, so that any of them may go.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let kept = bed.store().drafts("pve1").await.unwrap();
    assert_eq!(i64::try_from(kept.len()).unwrap(), DRAFTS_PER_HOST_MAX);
    let newest = format!("drf_{:04}", DRAFTS_PER_HOST_MAX + 2);
    assert_eq!(kept[0].id, newest);
    bed.store().push(document("pve1", 0, "same")).await.unwrap();
    for row in kept {
        bed.store().drop_draft("pve1", &row.id, "alice").await.unwrap();
    }
    assert_eq!(bed.number("SELECT COUNT(*) FROM files").await, 1, "the document's text stays");
    let dropped = bed.store().draft("pve1", &newest).await.unwrap();
    assert!(dropped.is_none(), "a dropped draft is there");
}

pub(super) async fn people_read_what_hosts_reported(bed: TestBed) {
    let token = bed.token("pve1", false).await;
    TestHost::new(&bed, "pve1").enrol(&token).await;
    for statement in [
        "INSERT INTO guests (host, guest, name, state, body, updated_at) VALUES \
         ('pve1', 'lxc/101', 'web', 'drifted', '{}', 5), ('pve1', 'lxc/102', 'db', 'held', '{}', 6)",
        "INSERT INTO ops (host, op, serial, guest, kind, state, body, received_at) VALUES \
         ('pve1', 'op_1', 1, 'lxc/101', 'start', 'succeeded', '{\"n\":1}', 5), \
         ('pve1', 'op_2', 2, 'lxc/101', 'start', 'succeeded', '{\"n\":2}', 6)",
        "INSERT INTO pending_items (host, id, item, received_at) VALUES \
         ('pve1', 'aa', '{}', 5), ('pve1', 'bb', '{}', 6)",
    ] {
        bed.sql(statement).await;
    }
    let store = bed.store();
    let guests = store.guests_after("pve1", "lxc/101", 10).await.unwrap();
    assert_eq!(guests.iter().map(|row| row.guest.as_str()).collect::<Vec<_>>(), ["lxc/102"]);
    assert_eq!(store.guest("pve1", "lxc/101").await.unwrap().unwrap().state, "drifted");
    assert_eq!(store.guest("pve2", "lxc/101").await.unwrap(), None);
    let kind = evenkeel_hub::store::HistoryKind::Ops;
    let ops = store.history_before(kind, "pve1", i64::MAX, 1).await.unwrap();
    assert_eq!((ops.len(), ops[0].serial, ops[0].body.as_str()), (1, 2, "{\"n\":2}"));
    assert_eq!(store.history_before(kind, "pve1", 2, 9).await.unwrap()[0].serial, 1);
    let decisions = evenkeel_hub::store::HistoryKind::Decisions;
    assert_eq!(store.history_before(decisions, "pve1", i64::MAX, 9).await.unwrap(), []);
    assert_eq!(store.pending_counts().await.unwrap().get("pve1"), Some(&2));
    let rest = store.pending_after(("pve1", "aa"), 9).await.unwrap();
    assert_eq!(rest.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), ["bb"]);
    assert_eq!(store.pending_of("pve1").await.unwrap().len(), 2);
    assert_eq!(store.host_state("pve2").await.unwrap().reported_at, 0);
    assert_eq!(store.envelopes_before("pve1", i64::MAX, 9).await.unwrap(), []);
    assert_eq!(store.envelope("env_1").await.unwrap(), None);
    store.host_states().await.unwrap();
}
