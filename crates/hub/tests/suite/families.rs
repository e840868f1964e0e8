//! Families of logins: what hangs on a token ends with it, and nothing outlives its account, however things race.

use super::TestBed;
use super::logins::{account, drawn, session, token};
use evenkeel_hub::secret_text::{SecretHash, SecretKind};
use evenkeel_hub::store::{
    Account, AccountActor, AccountKey, CodeOutcome, HubStore, NewAccount, PersonRole,
};

/// How often each race is run; `EVENKEEL_HUB_RACES=1000` for long.
const RACES: usize = 50;

fn races() -> usize {
    let set = std::env::var("EVENKEEL_HUB_RACES").ok();
    set.map_or(RACES, |text| text.parse().expect("EVENKEEL_HUB_RACES is a number"))
}

/// The admin of the whole hub of this name, as one who acts.
async fn acting(bed: &TestBed, name: &str) -> AccountActor {
    let login = bed.store().login_by_token(&token(bed.store(), name).await).await.unwrap().unwrap();
    AccountActor::Person { name: name.to_owned(), uid: login.account_uid }
}

async fn is_open(store: &HubStore, session: &SecretHash) -> bool {
    store.login_by_session(session).await.unwrap().is_some()
}

pub(super) async fn z12_a_session_ends_with_its_token_however_that_ends(bed: TestBed) {
    account(&bed, "root", PersonRole::Admin, "*").await;
    let store = bed.store();
    for way in 0..6 {
        account(&bed, "alice", PersonRole::Viewer, "*").await;
        let spare = AccountKey { fingerprint: "SHA256:spare".into(), key_line: String::new() };
        store.add_account_key("alice", spare, AccountActor::Server).await.unwrap();
        let parent = token(store, "alice").await;
        let first = session(store, &parent).await;
        let second = session(store, &parent).await;
        let code = drawn(SecretKind::OneTimeCode);
        store.add_console_code(code.clone(), parent.clone(), "4f7kq2mx", 60).await.unwrap();
        let ends = store.login_by_token(&parent).await.unwrap().unwrap().expires_at;
        let inherited = store.login_by_session(&first).await.unwrap().unwrap();
        assert_eq!(inherited.expires_at, ends, "a session has no longer life than its token");
        store.end_session(second.clone(), "alice").await.unwrap();
        assert!(!is_open(store, &second).await && is_open(store, &first).await);
        match way {
            0 => store.end_token(parent.clone(), "alice").await.unwrap(),
            1 => {
                let uid = store.login_by_token(&parent).await.unwrap().unwrap().account_uid;
                assert_eq!(store.end_own_logins("alice", &uid).await.unwrap(), 1);
            }
            2 => {
                let root = acting(&bed, "root").await;
                assert_eq!(store.end_logins("alice", root).await.unwrap(), 1);
            }
            3 => {
                let key = "SHA256:alice";
                store.remove_account_key("alice", key, AccountActor::Server).await.unwrap();
            }
            4 => store.remove_account("alice", AccountActor::Server).await.unwrap(),
            _ => bed.sql("UPDATE api_tokens SET expires_at = 1").await,
        }
        assert_eq!(store.login_by_token(&parent).await.unwrap(), None, "way {way}");
        assert!(!is_open(store, &first).await, "way {way}");
        let late = store.open_session(code, drawn(SecretKind::Session), "4f7kq2mx").await.unwrap();
        assert_eq!(late, CodeOutcome::Unknown, "way {way}");
        let more = drawn(SecretKind::OneTimeCode);
        assert!(!store.add_console_code(more, parent, "4f7kq2mx", 60).await.unwrap(), "way {way}");
        if way != 4 {
            store.remove_account("alice", AccountActor::Server).await.unwrap();
        }
    }
}

pub(super) async fn z12_a_change_of_role_holds_for_what_was_handed_out(bed: TestBed) {
    account(&bed, "root", PersonRole::Admin, "*").await;
    account(&bed, "alice", PersonRole::Admin, "*").await;
    let store = bed.store();
    let parent = token(store, "alice").await;
    let child = session(store, &parent).await;
    let lesser = Account::new("alice", PersonRole::Viewer, "eu-*").unwrap();
    store.change_account(lesser.clone(), acting(&bed, "root").await).await.unwrap();
    let by_token = store.login_by_token(&parent).await.unwrap().unwrap();
    let by_session = store.login_by_session(&child).await.unwrap().unwrap();
    assert_eq!((by_token.account, by_session.account), (lesser.clone(), lesser));
}

pub(super) async fn z12_the_last_use_of_a_login_is_told(bed: TestBed) {
    account(&bed, "alice", PersonRole::Viewer, "*").await;
    let store = bed.store();
    let parent = token(store, "alice").await;
    let child = session(store, &parent).await;
    bed.sql("UPDATE api_tokens SET last_used_at = 7").await;
    assert_eq!(store.logins_of("alice").await.unwrap()[0].last_used_at.0, 7);
    assert!(is_open(store, &child).await);
    let listed = store.logins_of("alice").await.unwrap();
    assert!(listed[0].last_used_at.0 > 7, "told before it is written: {listed:?}");
    store.flush_login_uses().await.unwrap();
    assert!(bed.number("SELECT last_used_at FROM api_tokens").await > 7);
    assert!(bed.number("SELECT last_used_at FROM accounts").await > 7);
    assert_eq!((listed.len(), listed[0].sessions), (1, 1));
    assert_eq!(listed[0].key_fingerprint, "SHA256:alice");
    assert!(parent.as_str().starts_with(&listed[0].name));
    let account = &store.accounts_after("", 9).await.unwrap()[0];
    assert!(account.last_used_at.0 > 0 && account.keys[0].last_used_at.0 > 0, "{account:?}");
}

/// An account with a key of its own.
fn alice() -> NewAccount {
    NewAccount {
        account: Account::new("alice", PersonRole::Editor, "*").unwrap(),
        key: AccountKey { fingerprint: "SHA256:alice".into(), key_line: String::new() },
        made_by: "server".to_owned(),
        first_code: None,
    }
}

pub(super) async fn z13_no_login_outlives_the_removal_it_races(bed: TestBed) {
    account(&bed, "root", PersonRole::Admin, "*").await;
    let other = bed.another().await;
    let here = bed.store().clone();
    let there = other.hub.store().clone();
    let mut came_in = 0;
    for race in 0..races() {
        here.add_account(alice()).await.unwrap();
        let early = token(&here, "alice").await;
        let code = drawn(SecretKind::OneTimeCode);
        here.add_console_code(code.clone(), early.clone(), "4f7kq2mx", 60).await.unwrap();
        let logins = (0..3).map(|number| {
            let store = if number % 2 == 0 { here.clone() } else { there.clone() };
            let token = drawn(SecretKind::ApiToken);
            let name = "alice";
            tokio::spawn(async move {
                let opened = store.open_token(token.clone(), name, "SHA256:alice", 60).await;
                opened.expect("a race is no mistake of the database").map(|_| token)
            })
        });
        let logins: Vec<_> = logins.collect();
        let entering = {
            let store = there.clone();
            let session = drawn(SecretKind::Session);
            let known = session.clone();
            let entering = async move { store.open_session(code, session, "4f7kq2mx").await };
            (known, tokio::spawn(entering))
        };
        let removal = {
            let store = if race % 2 == 0 { here.clone() } else { there.clone() };
            tokio::spawn(async move { store.remove_account("alice", AccountActor::Server).await })
        };
        let mut tokens = vec![early];
        for login in logins {
            tokens.extend(login.await.unwrap());
        }
        came_in += tokens.len() - 1;
        let (session, entered) = entering;
        entered.await.unwrap().unwrap();
        removal.await.unwrap().unwrap();
        // The name again, with the same key: what was handed out before is not its.
        here.add_account(alice()).await.unwrap();
        for token in &tokens {
            assert_eq!(here.login_by_token(token).await.unwrap(), None, "race {race}");
        }
        assert!(!is_open(&there, &session).await, "race {race}");
        for table in ["api_tokens", "sessions", "console_codes"] {
            assert_eq!(bed.number(&format!("SELECT COUNT(*) FROM {table}")).await, 0, "{table}");
        }
        here.remove_account("alice", AccountActor::Server).await.unwrap();
    }
    println!("{came_in} of {} logins came before the removal", 3 * races());
}

pub(super) async fn z14_of_two_admins_who_remove_each_other_one_stays(bed: TestBed) {
    let other = bed.another().await;
    let here = bed.store().clone();
    let there = other.hub.store().clone();
    for race in 0..races() {
        // With a third admin there is no last one to protect: only that a removed admin removes nobody.
        let with_a_third = race % 2 == 1;
        for name in ["alice", "bob"] {
            account(&bed, name, PersonRole::Admin, "*").await;
        }
        if with_a_third {
            account(&bed, "carol", PersonRole::Admin, "*").await;
        }
        let alice = acting(&bed, "alice").await;
        let bob = acting(&bed, "bob").await;
        let act = |store: HubStore, name: &'static str, who: AccountActor| {
            tokio::spawn(async move {
                match race % 4 {
                    0 | 1 => store.remove_account(name, who).await,
                    _ => {
                        let lesser = Account::new(name, PersonRole::Viewer, "*").unwrap();
                        store.change_account(lesser, who).await
                    }
                }
            })
        };
        let acts = [act(here.clone(), "bob", alice), act(there.clone(), "alice", bob)];
        let done = futures_util::future::join_all(acts).await;
        let done: Vec<bool> = done.into_iter().map(|act| act.unwrap().is_ok()).collect();
        assert_eq!(done.iter().filter(|done| **done).count(), 1, "race {race}: {done:?}");
        let admins = "SELECT COUNT(*) FROM accounts WHERE role = 'admin' AND name <> 'carol'";
        assert_eq!(bed.number(admins).await, 1, "race {race}");
        bed.sql("DELETE FROM accounts").await;
    }
}

pub(super) async fn z22_a_code_opens_nothing_in_another_browser(bed: TestBed) {
    account(&bed, "mallory", PersonRole::Viewer, "*").await;
    let store = bed.store();
    let parent = token(store, "mallory").await;
    for wrong in ["", "9999zzzz"] {
        let code = drawn(SecretKind::OneTimeCode);
        store.add_console_code(code.clone(), parent.clone(), "4f7kq2mx", 60).await.unwrap();
        let fresh = drawn(SecretKind::Session);
        let opened = store.open_session(code.clone(), fresh.clone(), wrong).await.unwrap();
        assert_eq!(opened, CodeOutcome::OtherBrowser, "{wrong:?}");
        assert!(!is_open(store, &fresh).await);
        let again = store.open_session(code, fresh, "4f7kq2mx").await.unwrap();
        assert_eq!(again, CodeOutcome::Unknown, "a code that was shown elsewhere is over");
    }
    assert_eq!(bed.number("SELECT COUNT(*) FROM audit WHERE act = 'session.refused'").await, 2);
}
