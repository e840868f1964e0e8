//! From one schema to the next: killed at every statement, on both databases; and never back.

use std::process::{Command, Stdio};

use sqlx::Executor as _;

use super::crash::{child, killed};
use evenkeel_hub::death_point;
use evenkeel_hub::secret_text::SecretHash;
use evenkeel_hub::store::migrate::{self, SCHEMA, STEPS, SchemaStep};
use evenkeel_hub::store::{Database, DatabaseKind, HubStore, StoreError};
use evenkeel_testkit::postgres::TestPostgres;

/// What the next version might do: a table, a column with a value for old rows, an index.
const NEXT: &str = "CREATE TABLE next_things (id TEXT NOT NULL PRIMARY KEY);\n\
    ALTER TABLE hosts ADD COLUMN mood TEXT NOT NULL DEFAULT 'calm';\n\
    UPDATE hosts SET mood = 'old';\n\
    CREATE INDEX hosts_mood ON hosts (mood);\n";
/// Its statements, those around them, and the commit.
const DEATHS: u64 = 6;

fn with_the_next() -> Vec<SchemaStep> {
    let mut all: Vec<SchemaStep> =
        STEPS.iter().map(|it| SchemaStep { sqlite: it.sqlite, postgres: it.postgres }).collect();
    all.push(SchemaStep { sqlite: NEXT, postgres: NEXT });
    all
}

/// What a schema since then took away: people log in once more.
const ENDED: [&str; 5] =
    ["api_tokens", "sessions", "console_codes", "first_admin_codes", "spent_challenges"];

const FIXTURE: &str = include_str!("../../fixtures/schema-1.sql");
const DATABASE: &str = "EVENKEEL_HUB_TEST_DATABASE";

/// The process that migrates and may die on the way. Only other tests start it.
#[tokio::test]
#[ignore = "a child of other tests"]
async fn migrating_child() {
    let Ok(url) = std::env::var(DATABASE) else { return };
    migrate::run(&Database::from_url(&url).unwrap(), &with_the_next()).await.unwrap();
}

/// A database as the first version left it, with a row of everything.
pub(super) async fn fill(url: &str) {
    let database = Database::from_url(url).unwrap();
    migrate::run(&database, &STEPS[..1]).await.unwrap();
    let mut connection = database.connection().await.unwrap();
    // A text is no bytes to PostgreSQL until it is told so; the rest is the same.
    let text = match database.kind() {
        DatabaseKind::Sqlite => FIXTURE.replace("'manifest')", "CAST('manifest' AS BLOB))"),
        DatabaseKind::Postgres => FIXTURE.to_owned(),
    };
    for statement in text.lines().filter(|line| !line.starts_with("--")) {
        connection.execute(sqlx::AssertSqlSafe(statement.to_owned())).await.unwrap();
    }
}

async fn number(url: &str, query: &str) -> Option<i64> {
    use sqlx::Row as _;
    let mut connection = Database::from_url(url).unwrap().connection().await.unwrap();
    let row =
        sqlx::query(sqlx::AssertSqlSafe(query.to_owned())).fetch_one(&mut connection).await.ok()?;
    row.try_get(0).ok()
}

/// Dies at each point in turn; in between everything is either as before or as after.
async fn dies_at_each_statement(url: &str) {
    fill(url).await;
    migrate::run(&Database::from_url(url).unwrap(), STEPS).await.unwrap();
    for last in 1..=DEATHS {
        let mut command = child("migration::migrating_child");
        command.env(DATABASE, url).env(death_point::LAST, last.to_string());
        assert!(killed(&mut command), "point {last} was passed");
        let schema =
            number(url, "SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'schema'").await;
        let table = number(url, "SELECT COUNT(*) FROM next_things").await;
        let column = number(url, "SELECT COUNT(*) FROM hosts WHERE mood = 'old'").await;
        // The last point is behind the commit.
        let expected = if last < DEATHS {
            (Some(SCHEMA), None, None)
        } else {
            (Some(SCHEMA + 1), Some(0), Some(1))
        };
        assert_eq!((schema, table, column), expected, "after point {last}");
        if last < DEATHS {
            // This version still serves it.
            HubStore::open(Database::from_url(url).unwrap()).await.unwrap().close().await;
        }
    }
    let newer = HubStore::open(Database::from_url(url).unwrap()).await.err();
    let is_newer =
        matches!(newer, Some(StoreError::Newer { found, known: SCHEMA }) if found == SCHEMA + 1);
    assert!(is_newer, "{newer:?}");
    let mut command = child("migration::migrating_child");
    let again = command.env(DATABASE, url).stdout(Stdio::null()).status().unwrap();
    assert!(again.success(), "what is done is not done again");
    assert_eq!(number(url, "SELECT COUNT(*) FROM documents").await, Some(2));
}

async fn reads_the_fixture(url: &str) {
    // As the first version left it; opening it goes through the rest.
    fill(url).await;
    let store = HubStore::open(Database::from_url(url).unwrap()).await.unwrap();
    let check = store.check().await.unwrap();
    // Its texts were made up and have no true hashes.
    let faults = check.faults.iter().filter(|fault| !fault.contains("changed"));
    assert_eq!(faults.count(), 0, "{:?}", check.faults);
    for table in check.tables.iter().filter(|table| !ENDED.contains(&table.table.as_str())) {
        assert!(table.rows > 0, "the fixture has nothing in {}", table.table);
    }
    let host = store.host("pve1").await.unwrap().unwrap();
    assert_eq!((host.wanted, host.reported, host.labels["site"].as_str()), (2, 1, "berlin"));
    assert_eq!(store.document("pve1", 2).await.unwrap().unwrap().manifest_bytes, b"manifest");
    assert_eq!(store.envelopes_after("pve1", 0).await.unwrap().len(), 1);
    assert!(store.anchor("pve1").await.unwrap().is_some());
    assert_eq!(store.account("alice").await.unwrap().unwrap().scope, "*");
    let keys = store.account_keys("alice").await.unwrap();
    assert_eq!(keys[0].fingerprint, "SHA256:alice", "they come in with the key they had");
    let opened = store.open_token(SecretHash::of("x"), "alice", "SHA256:alice", 60).await.unwrap();
    assert!(opened.is_some_and(|login| login.account_uid.len() == 32));
    store.close().await;
}

fn sqlite(directory: &tempfile::TempDir) -> String {
    format!("sqlite:{}", directory.path().join("hub.sqlite").display())
}

#[tokio::test]
async fn a_migration_of_sqlite_dies_at_each_statement_and_is_whole_or_not_there() {
    let directory = tempfile::tempdir().unwrap();
    dies_at_each_statement(&sqlite(&directory)).await;
}

#[tokio::test]
async fn a_migration_of_postgresql_dies_at_each_statement_and_is_whole_or_not_there() {
    let postgres = TestPostgres::start();
    dies_at_each_statement(&postgres.database("hub")).await;
}

#[tokio::test]
async fn a_database_of_schema_1_is_read() {
    let directory = tempfile::tempdir().unwrap();
    reads_the_fixture(&sqlite(&directory)).await;
    let postgres = TestPostgres::start();
    reads_the_fixture(&postgres.database("hub")).await;
}

/// So that the child is compiled as what it is started as.
#[test]
fn a_child_is_found_by_its_name() {
    let list = Command::new(std::env::current_exe().unwrap())
        .args(["--list", "--ignored"])
        .output()
        .unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    for name in ["migration::migrating_child", "crash::writing_child"] {
        assert!(list.contains(&format!("{name}: test")), "{list}");
    }
}
