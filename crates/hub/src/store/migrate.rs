//! Brings a database to this version's schema: forward only, one hub at a time, each step whole or not at all.
//!
//! By hand and not with the library's own migrations, because those take no lock on SQLite: two hubs that start
//! together would both begin. An older binary on a newer schema refuses to start instead of writing what it does not know.

use sqlx::AnyConnection;
use sqlx::{Executor as _, Row as _};

use super::connect::{Database, DatabaseKind};
use super::error::StoreError;
use crate::death_point;
use crate::secret_text::random_hex;

/// One step, as a file for each database.
pub struct SchemaStep {
    /// On SQLite.
    pub sqlite: &'static str,
    /// On PostgreSQL.
    pub postgres: &'static str,
}

/// All steps; the number of a schema is how many of them it went through.
pub const STEPS: &[SchemaStep] = &[
    SchemaStep {
        sqlite: include_str!("../../migrations/sqlite/0001_first.sql"),
        postgres: include_str!("../../migrations/postgres/0001_first.sql"),
    },
    SchemaStep {
        sqlite: include_str!("../../migrations/sqlite/0002_newest_envelopes.sql"),
        postgres: include_str!("../../migrations/postgres/0002_newest_envelopes.sql"),
    },
    SchemaStep {
        sqlite: include_str!("../../migrations/sqlite/0003_families_of_logins.sql"),
        postgres: include_str!("../../migrations/postgres/0003_families_of_logins.sql"),
    },
    SchemaStep {
        sqlite: include_str!("../../migrations/sqlite/0004_bounds.sql"),
        postgres: include_str!("../../migrations/postgres/0004_bounds.sql"),
    },
];

/// The schema this version knows.
pub const SCHEMA: i64 = 4;

/// The number all hubs lock while they migrate: "evenkeel" on a telephone.
const MIGRATION_LOCK: &str = "SELECT pg_advisory_xact_lock(38365335)";

/// Random bytes of a `hub_id`.
const HUB_ID_BYTES: usize = 16;
/// Random bytes of the key that challenges are made with.
const CHALLENGE_KEY_BYTES: usize = 32;

/// Runs what is missing. True if the database was empty.
pub async fn run(database: &Database, migrations: &[SchemaStep]) -> Result<bool, StoreError> {
    let mut connection = database.connection().await?;
    let begin = match database.kind() {
        DatabaseKind::Sqlite => "BEGIN IMMEDIATE",
        DatabaseKind::Postgres => "BEGIN",
    };
    connection.execute(begin).await?;
    if database.kind() == DatabaseKind::Postgres {
        // Longer than any migration of ours; others wait for it.
        connection.execute("SET LOCAL statement_timeout = '10min'").await?;
        connection.execute("SET LOCAL lock_timeout = '10min'").await?;
        connection.execute(MIGRATION_LOCK).await?;
    }
    let outcome = steps(&mut connection, database.kind(), migrations).await;
    let end = if outcome.is_ok() { "COMMIT" } else { "ROLLBACK" };
    death_point::pass();
    connection.execute(end).await?;
    death_point::pass();
    sqlx::Connection::close(connection).await?;
    outcome
}

async fn steps(
    connection: &mut AnyConnection,
    kind: DatabaseKind,
    migrations: &[SchemaStep],
) -> Result<bool, StoreError> {
    let meta =
        "CREATE TABLE IF NOT EXISTS meta (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL)";
    connection.execute(meta).await?;
    let found = schema_of(connection).await?;
    let known = i64::try_from(migrations.len()).expect("steps are few");
    if found > known {
        return Err(StoreError::Newer { found, known });
    }
    let done = usize::try_from(found)
        .map_err(|_| StoreError::Damaged(format!("{found} as the number of its schema")))?;
    for migration in &migrations[done..] {
        let text = match kind {
            DatabaseKind::Sqlite => migration.sqlite,
            DatabaseKind::Postgres => migration.postgres,
        };
        for statement in statements(text) {
            death_point::pass();
            connection.execute(sqlx::AssertSqlSafe(statement)).await?;
        }
    }
    if done == 0 {
        sqlx::query("INSERT INTO meta (name, value) VALUES ('hub_id', $1)")
            .bind(random_hex(HUB_ID_BYTES))
            .execute(&mut *connection)
            .await?;
        sqlx::query("INSERT INTO meta (name, value) VALUES ('schema', '0')")
            .execute(&mut *connection)
            .await?;
    }
    // All replicas make and know challenges by it. It opens nothing: a challenge is answered by a signature.
    sqlx::query(
        "INSERT INTO meta (name, value) VALUES ('challenge_key', $1) ON CONFLICT (name) DO NOTHING",
    )
    .bind(random_hex(CHALLENGE_KEY_BYTES))
    .execute(&mut *connection)
    .await?;
    // Where the archive of the audit stands; the row is what replicas lock.
    connection
        .execute(
            "INSERT INTO meta (name, value) VALUES ('audit_archive', '') ON CONFLICT (name) DO NOTHING",
        )
        .await?;
    sqlx::query("UPDATE meta SET value = $1 WHERE name = 'schema'")
        .bind(known.to_string())
        .execute(&mut *connection)
        .await?;
    Ok(done == 0)
}

pub(super) async fn schema_of(connection: &mut AnyConnection) -> Result<i64, StoreError> {
    let row = sqlx::query("SELECT value FROM meta WHERE name = 'schema'")
        .fetch_optional(connection)
        .await?;
    let Some(row) = row else { return Ok(0) };
    let text: String = row.try_get(0)?;
    text.parse().map_err(|_| StoreError::Damaged(format!("`{text}` as the number of its schema")))
}

/// The statements of a file: each ends with a semicolon at the end of a line.
fn statements(text: &str) -> impl Iterator<Item = String> {
    let without_comments: String = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("--"))
        .flat_map(|line| [line, "\n"])
        .collect();
    let parts: Vec<String> = without_comments
        .split(";\n")
        .map(|part| part.trim().to_owned())
        .filter(|part| !part.is_empty())
        .collect();
    parts.into_iter()
}
