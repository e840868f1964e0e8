//! The store as a whole: a copy of it, whether it is sound, and how much is in it.

use std::path::Path;

use fs_err as fs;
use fs_err::os::unix::fs::OpenOptionsExt as _;
use sqlx::Row as _;

use super::connect::DatabaseKind;
use super::migrate::SCHEMA;
use super::{HubStore, StoreError};

/// Every table but `meta`, so that `hub check` can tell how much is in each.
pub(crate) const TABLES: [&str; 21] = [
    "hosts",
    "host_states",
    "anchors",
    "enrol_tokens",
    "guests",
    "ops",
    "decisions",
    "pending_items",
    "envelopes",
    "files",
    "manifests",
    "manifest_files",
    "documents",
    "drafts",
    "accounts",
    "account_keys",
    "api_tokens",
    "sessions",
    "one_time_codes",
    "login_challenges",
    "audit",
];

/// How many rows a table has.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct TableCount {
    /// The table.
    pub table: String,
    /// Its rows.
    pub rows: i64,
}

/// What `hub check` found.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct StoreCheck {
    /// The schema.
    pub schema: i64,
    /// What is wrong, in sentences; nothing if all is well.
    pub faults: Vec<String>,
    /// The tables.
    pub tables: Vec<TableCount>,
}

/// What must never be found, and what to say of it.
const CONTRADICTIONS: [(&str, &str); 5] = [
    (
        "SELECT COUNT(*) FROM documents WHERE NOT EXISTS (SELECT 1 FROM manifests m WHERE m.hash = documents.manifest)",
        "documents without a manifest",
    ),
    (
        "SELECT COUNT(*) FROM manifest_files WHERE NOT EXISTS (SELECT 1 FROM files f WHERE f.sha256 = manifest_files.sha256)",
        "manifests that name a file whose text is missing",
    ),
    (
        "SELECT COUNT(*) FROM hosts WHERE wanted > 0 AND NOT EXISTS \
      (SELECT 1 FROM documents d WHERE d.host = hosts.id AND d.generation = hosts.wanted)",
        "hosts whose wanted document is missing",
    ),
    (
        "SELECT COUNT(*) FROM envelopes WHERE cursor > (SELECT h.cursor FROM hosts h WHERE h.id = envelopes.host)",
        "envelopes beyond their host's cursor",
    ),
    (
        "SELECT COUNT(*) FROM account_keys WHERE NOT EXISTS (SELECT 1 FROM accounts a WHERE a.name = account_keys.account)",
        "keys without an account",
    ),
];

impl HubStore {
    /// Copies the database to a file that does not exist yet, while the hub runs.
    pub async fn backup(&self, to: &Path) -> Result<(), StoreError> {
        if self.database().kind() == DatabaseKind::Postgres {
            let why = "a hub on PostgreSQL is backed up with pg_dump";
            return Err(StoreError::Url(why.to_owned()));
        }
        let path = to
            .to_str()
            .ok_or_else(|| StoreError::Url("the file's name is not UTF-8".to_owned()))?;
        // Made here, for its mode: it holds everything but secrets.
        fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
        let copied =
            sqlx::query("VACUUM INTO $1").bind(path).execute(&mut *self.reader().await?).await;
        if let Err(error) = copied {
            let _ = fs::remove_file(to);
            return Err(error.into());
        }
        fs::File::open(to)?.sync_all()?;
        if let Some(directory) = to.parent() {
            let directory =
                if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
            fs::File::open(directory)?.sync_all()?;
        }
        Ok(())
    }

    /// Looks at everything.
    pub async fn check(&self) -> Result<StoreCheck, StoreError> {
        let mut reader = self.reader().await?;
        let mut faults = Vec::new();
        if self.database().kind() == DatabaseKind::Sqlite {
            for row in sqlx::query("PRAGMA integrity_check").fetch_all(&mut *reader).await? {
                let said: String = row.try_get(0)?;
                if said != "ok" {
                    faults.push(said);
                }
            }
        }
        for (query, what) in CONTRADICTIONS {
            let found: i64 = sqlx::query(query).fetch_one(&mut *reader).await?.try_get(0)?;
            if found > 0 {
                faults.push(format!("{found} {what}"));
            }
        }
        let mut tables = Vec::new();
        for table in TABLES {
            let query = sqlx::AssertSqlSafe(format!("SELECT COUNT(*) FROM {table}"));
            let rows = sqlx::query(query).fetch_one(&mut *reader).await?.try_get(0)?;
            tables.push(TableCount { table: table.to_owned(), rows });
        }
        Ok(StoreCheck { schema: SCHEMA, faults, tables })
    }
}
