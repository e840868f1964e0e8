//! How people come in and what they read, on both databases.

use evenkeel_core::fleet::WireFile;
use std::time::Duration;

use super::host::TestHost;
use super::{TestBed, document};
use crate::problem::ProblemCode;
use crate::secret_text::{SecretHash, SecretKind, SecretText};
use crate::store::{
    Account, AccountKey, CodePurpose, DRAFTS_PER_HOST_MAX, NewAccount, NewDraft, PersonRole,
    StoreError,
};

async fn account(bed: &TestBed, name: &str, role: PersonRole, scope: &str) {
    let key = AccountKey { fingerprint: format!("SHA256:{name}"), key_line: String::new() };
    let account = Account::new(name, role, scope).unwrap();
    let made_by = "server".to_owned();
    let new = NewAccount { account, key, made_by, first_code: None };
    bed.store().add_account(new).await.unwrap();
}

fn drawn(kind: SecretKind) -> SecretHash {
    SecretText::draw(kind).hash()
}

pub(super) async fn a_challenge_is_spent_once_whoever_asks(bed: TestBed) {
    let nonce = SecretHash::of("nonce");
    bed.store().add_challenge(nonce.clone(), "alice", 60).await.unwrap();
    let asked = (0..10).map(|_| {
        let (store, nonce) = (bed.store().clone(), nonce.clone());
        tokio::spawn(async move { store.spend_challenge(nonce, "alice").await.unwrap() })
    });
    let spent = futures_util::future::join_all(asked).await;
    assert_eq!(spent.into_iter().filter(|spent| *spent.as_ref().unwrap()).count(), 1);
    let other = SecretHash::of("other");
    bed.store().add_challenge(other.clone(), "alice", 60).await.unwrap();
    assert!(!bed.store().spend_challenge(other.clone(), "bob").await.unwrap());
    assert!(!bed.store().spend_challenge(other, "alice").await.unwrap(), "bob's try ended it");
    let late = SecretHash::of("late");
    bed.store().add_challenge(late.clone(), "alice", -1).await.unwrap();
    assert!(!bed.store().spend_challenge(late, "alice").await.unwrap());
}

pub(super) async fn a_token_ends_with_its_time_its_key_and_its_account(bed: TestBed) {
    account(&bed, "root", PersonRole::Admin, "*").await;
    account(&bed, "alice", PersonRole::Editor, "eu-*").await;
    let store = bed.store();
    let (good, late) = (drawn(SecretKind::ApiToken), drawn(SecretKind::ApiToken));
    let opened =
        store.open_token(good.clone(), "alice", "SHA256:alice", 60).await.unwrap().unwrap();
    assert_eq!((opened.account.role, opened.account.scope.as_str()), (PersonRole::Editor, "eu-*"));
    let found = store.account_by_token(&good).await.unwrap();
    assert_eq!(found.map(|account| account.name).as_deref(), Some("alice"));
    store.open_token(late.clone(), "alice", "SHA256:alice", -1).await.unwrap();
    assert_eq!(store.account_by_token(&late).await.unwrap(), None, "over");
    let other_key = store.open_token(drawn(SecretKind::ApiToken), "alice", "SHA256:root", 60).await;
    assert_eq!(other_key.unwrap(), None, "another's key");
    let ended = drawn(SecretKind::ApiToken);
    store.open_token(ended.clone(), "alice", "SHA256:alice", 60).await.unwrap();
    store.end_token(ended.clone(), "alice").await.unwrap();
    assert_eq!(store.account_by_token(&ended).await.unwrap(), None, "logged out");
    assert!(store.account_by_token(&good).await.unwrap().is_some(), "the other one goes on");
    store.remove_account("alice", "root").await.unwrap();
    assert_eq!(store.account_by_token(&good).await.unwrap(), None, "removed");
    for table in ["api_tokens", "account_keys WHERE account = 'alice'"] {
        assert_eq!(bed.number(&format!("SELECT COUNT(*) FROM {table}")).await, 0, "{table}");
    }
}

pub(super) async fn a_code_becomes_one_session_however_many_ask(bed: TestBed) {
    account(&bed, "alice", PersonRole::Viewer, "*").await;
    let store = bed.store();
    let code = drawn(SecretKind::OneTimeCode);
    store.add_code(code.clone(), CodePurpose::Console, "alice", 60).await.unwrap();
    let asked = (0..10).map(|_| {
        let (store, code) = (store.clone(), code.clone());
        tokio::spawn(async move {
            store.open_session(code, drawn(SecretKind::Session), 60).await.unwrap().is_some()
        })
    });
    let opened = futures_util::future::join_all(asked).await;
    assert_eq!(opened.into_iter().filter(|opened| *opened.as_ref().unwrap()).count(), 1);
    assert_eq!(bed.number("SELECT COUNT(*) FROM sessions").await, 1);
    let first = drawn(SecretKind::OneTimeCode);
    store.add_code(first.clone(), CodePurpose::FirstAdmin, "alice", 60).await.unwrap();
    let session = store.open_session(first, drawn(SecretKind::Session), 60).await.unwrap();
    assert_eq!(session, None, "a code for another purpose");
}

pub(super) async fn the_last_admin_stays(bed: TestBed) {
    account(&bed, "alice", PersonRole::Admin, "*").await;
    account(&bed, "eu", PersonRole::Admin, "eu-*").await;
    let removed = bed.store().remove_account("alice", "alice").await;
    let is_conflict = |error: &StoreError| matches!(error, StoreError::Refused(problem) if problem.code == ProblemCode::Conflict);
    assert!(removed.as_ref().is_err_and(is_conflict), "{removed:?}");
    account(&bed, "bob", PersonRole::Admin, "*").await;
    bed.store().remove_account("alice", "bob").await.unwrap();
    assert!(bed.store().remove_account("alice", "bob").await.is_err(), "gone already");
    let left = bed.store().accounts_after("", 10).await.unwrap();
    let names: Vec<&str> = left.iter().map(|listed| listed.account.name.as_str()).collect();
    assert_eq!(names, ["bob", "eu"]);
    assert_eq!(left[0].keys, ["SHA256:bob"]);
}

pub(super) async fn drafts_are_bounded_and_share_their_texts(bed: TestBed) {
    let token = bed.token("pve1", false).await;
    TestHost::new(&bed, "pve1").enrol(&token).await;
    let draft = |number: i64| NewDraft {
        id: format!("drf_{number:04}"),
        host: "pve1".to_owned(),
        base: 0,
        files: vec![WireFile { name: "web.toml".to_owned(), text: "same".to_owned() }],
        manifest: b"manifest of same".to_vec(),
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
    let kind = crate::store::HistoryKind::Ops;
    let ops = store.history_before(kind, "pve1", i64::MAX, 1).await.unwrap();
    assert_eq!((ops.len(), ops[0].serial, ops[0].body.as_str()), (1, 2, "{\"n\":2}"));
    assert_eq!(store.history_before(kind, "pve1", 2, 9).await.unwrap()[0].serial, 1);
    let decisions = crate::store::HistoryKind::Decisions;
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
