//! The SQLite file as a whole: a copy changes nothing, and what is put back is whole, alone, and lets nobody in who was put out.

use std::path::{Path, PathBuf};

use sqlx::Executor as _;

use super::migration::fill;
use evenkeel_hub::secret_text::{SecretHash, SecretKind, SecretText};
use evenkeel_hub::store::{
    Account, AccountActor, AccountKey, Database, HubStore, NewAccount, PersonRole, SCHEMA,
    StoreError, backup_file, restore_file,
};

struct TestFiles {
    directory: tempfile::TempDir,
}

impl TestFiles {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn database(&self, name: &str) -> Database {
        Database::sqlite(&self.path(name))
    }

    /// The bytes of every file that belongs to a database.
    fn bytes(&self, name: &str) -> Vec<Option<Vec<u8>>> {
        ["", "-wal"].map(|log| std::fs::read(self.path(&format!("{name}{log}"))).ok()).to_vec()
    }

    /// A hub's file with an account and a token of it.
    async fn hub(&self, name: &str, account: &str) -> (HubStore, SecretHash) {
        let store = HubStore::open(self.database(name)).await.unwrap();
        let fingerprint = format!("SHA256:{account}");
        let key = AccountKey { fingerprint: fingerprint.clone(), key_line: String::new() };
        let made = Account::new(account, PersonRole::Admin, "*").unwrap();
        let made_by = "server".to_owned();
        store
            .add_account(NewAccount { account: made, key, made_by, first_code: None })
            .await
            .unwrap();
        let token = SecretText::draw(SecretKind::ApiToken).hash();
        store.open_token(token.clone(), account, &fingerprint, 3600).await.unwrap().unwrap();
        (store, token)
    }
}

fn rest_of(file: &Path) -> Vec<String> {
    let directory = std::fs::read_dir(file.parent().unwrap()).unwrap();
    let names = directory.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let name = file.file_name().unwrap().to_str().unwrap();
    let mut names: Vec<String> = names.filter(|other| other.starts_with(name)).collect();
    names.sort();
    names
}

/// Takes a closed database's log into its file. Two connections that are closed at once may each leave it to the other.
async fn take_log_in(database: &Database) {
    let mut last = database.connection().await.unwrap();
    last.execute("PRAGMA wal_checkpoint(TRUNCATE)").await.unwrap();
    sqlx::Connection::close(last).await.unwrap();
}

#[tokio::test]
async fn z20_a_backup_by_a_newer_version_changes_nothing_in_the_original() {
    let files = TestFiles::new();
    let old = files.database("hub.sqlite");
    fill(&format!("sqlite:{}", files.path("hub.sqlite").display())).await;
    take_log_in(&old).await;
    let before = files.bytes("hub.sqlite");
    backup_file(&old, &files.path("copy")).await.unwrap();
    assert_eq!(files.bytes("hub.sqlite"), before);
    // The copy has the schema it was made from: an older version goes on with it.
    let mut copy = files.database("copy").connection().await.unwrap();
    let row = copy.fetch_one("SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'schema'").await;
    let schema: i64 = sqlx::Row::try_get(&row.unwrap(), 0).unwrap();
    assert_eq!(schema, 1);
    assert!(schema < SCHEMA);
    assert!(backup_file(&old, &files.path("copy")).await.is_err(), "nothing is overwritten");
}

#[tokio::test]
async fn z20_a_backup_is_made_beside_a_live_hub_and_not_put_back_beside_one() {
    let files = TestFiles::new();
    let (store, token) = files.hub("hub.sqlite", "alice").await;
    backup_file(store.database(), &files.path("copy")).await.unwrap();
    let refused = restore_file(store.database(), &files.path("copy"), None).await;
    assert!(matches!(refused, Err(StoreError::InUse(_))), "{refused:?}");
    assert!(store.login_by_token(&token).await.unwrap().is_some(), "the hub goes on");
    store.close().await;
    drop(store);
    // A hub of a version that holds no lock is seen too.
    let mut older = files.database("hub.sqlite").connection().await.unwrap();
    older.fetch_one("SELECT COUNT(*) FROM meta").await.unwrap();
    let refused = restore_file(&files.database("hub.sqlite"), &files.path("copy"), None).await;
    assert!(matches!(refused, Err(StoreError::InUse(_))), "{refused:?}");
    sqlx::Connection::close(older).await.unwrap();
    restore_file(&files.database("hub.sqlite"), &files.path("copy"), None).await.unwrap();
    assert!(!rest_of(&files.path("hub.sqlite")).iter().any(|name| name.contains("restoring")));
}

#[tokio::test]
async fn z20_what_a_killed_hub_left_behind_is_not_played_into_what_is_put_back() {
    let files = TestFiles::new();
    let (store, token) = files.hub("hub.sqlite", "alice").await;
    backup_file(store.database(), &files.path("copy")).await.unwrap();
    let bob = Account::new("bob", PersonRole::Viewer, "*").unwrap();
    let key = AccountKey { fingerprint: "SHA256:bob".into(), key_line: String::new() };
    let made_by = "server".to_owned();
    store.add_account(NewAccount { account: bob, key, made_by, first_code: None }).await.unwrap();
    // As a kill leaves it: the log is there, and nobody is.
    for log in ["", "-wal"] {
        let from = files.path(&format!("hub.sqlite{log}"));
        std::fs::copy(from, files.path(&format!("killed.sqlite{log}"))).unwrap();
    }
    assert!(files.path("killed.sqlite-wal").metadata().unwrap().len() > 0);
    store.close().await;
    let killed = files.database("killed.sqlite");
    let restored = restore_file(&killed, &files.path("copy"), None).await.unwrap();
    for log in ["-wal", "-shm", "-journal"] {
        assert!(!files.path(&format!("killed.sqlite{log}")).exists(), "{log}");
    }
    let store = HubStore::open(killed).await.unwrap();
    assert!(store.account("alice").await.unwrap().is_some());
    assert!(store.account("bob").await.unwrap().is_none(), "the backup is older than bob");
    assert_eq!(store.hub_id(), restored.hub_id);
    assert_eq!(store.check().await.unwrap().faults, Vec::<String>::new());
    assert_eq!(store.login_by_token(&token).await.unwrap(), None, "whoever logged out stays out");
    let lines = store.audit_page(None, i64::MAX, 1).await.unwrap();
    assert_eq!((lines[0].who.as_str(), lines[0].act.as_str()), ("server", "hub.restore"));
    // What was there before is there still, whole.
    let replaced = Database::sqlite(&restored.replaced.unwrap());
    let before = HubStore::open(replaced).await.unwrap();
    assert!(before.account("bob").await.unwrap().is_some());
    before.remove_account("bob", AccountActor::Server).await.unwrap();
    before.close().await;
    store.close().await;
}

#[tokio::test]
async fn z20_what_is_no_whole_backup_is_refused_and_the_hub_stays_as_it_was() {
    let files = TestFiles::new();
    let (store, token) = files.hub("hub.sqlite", "alice").await;
    backup_file(store.database(), &files.path("good")).await.unwrap();
    store.close().await;
    drop(store);
    let good = std::fs::read(files.path("good")).unwrap();
    let mut rotten = good.clone();
    let middle = rotten.len() / 2;
    rotten[middle..middle + 4096].fill(0xA5);
    std::fs::write(files.path("rotten"), rotten).unwrap();
    std::fs::write(files.path("cut"), &good[..good.len() - 4096]).unwrap();
    std::fs::write(files.path("text"), "SQLite format 3, nearly").unwrap();
    std::fs::write(files.path("logged"), &good).unwrap();
    std::fs::write(files.path("logged-wal"), "log").unwrap();
    let mut other = files.database("other").connection().await.unwrap();
    other.execute("CREATE TABLE meta (name TEXT, value TEXT)").await.unwrap();
    sqlx::Connection::close(other).await.unwrap();
    std::fs::write(files.path("newer"), &good).unwrap();
    let mut newer = files.database("newer").connection().await.unwrap();
    newer.execute("PRAGMA journal_mode = DELETE").await.unwrap();
    newer.execute("UPDATE meta SET value = '99' WHERE name = 'schema'").await.unwrap();
    sqlx::Connection::close(newer).await.unwrap();
    take_log_in(&files.database("hub.sqlite")).await;
    let before = std::fs::read(files.path("hub.sqlite")).unwrap();
    for name in ["rotten", "cut", "text", "logged", "other", "newer", "missing"] {
        let refused = restore_file(&files.database("hub.sqlite"), &files.path(name), None).await;
        assert!(refused.is_err(), "{name}: {refused:?}");
        assert_eq!(std::fs::read(files.path("hub.sqlite")).unwrap(), before, "{name}");
        assert!(!rest_of(&files.path("hub.sqlite")).iter().any(|file| file.contains("restoring")));
    }
    let store = HubStore::open(files.database("hub.sqlite")).await.unwrap();
    assert!(store.login_by_token(&token).await.unwrap().is_some());
    store.close().await;
}
