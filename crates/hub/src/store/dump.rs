//! The store as a whole: whether it is sound, and how much is in it.

use sqlx::Row as _;

use super::connect::DatabaseKind;
use super::hash_check::hash_faults;
use super::migrate::SCHEMA;
use super::{HubStore, StoreError};

/// Every table but `meta`, so that `hub check` can tell how much is in each.
pub const TABLES: [&str; 22] = [
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
    "console_codes",
    "first_admin_codes",
    "spent_challenges",
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
    /// Lines of the audit that are in its archive and no more in the table.
    pub audit_archived: u64,
}

/// What must never be found, and what to say of it.
const CONTRADICTIONS: [(&str, &str); 7] = [
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
        "SELECT COUNT(*) FROM manifests WHERE refs <> (SELECT COUNT(*) FROM documents d WHERE d.manifest = manifests.hash) \
      + (SELECT COUNT(*) FROM drafts d WHERE d.manifest = manifests.hash)",
        "manifests that are needed by more or fewer than is written",
    ),
    (
        "SELECT COUNT(*) FROM files WHERE refs <> (SELECT COUNT(*) FROM manifest_files f WHERE f.sha256 = files.sha256)",
        "files that are needed by more or fewer manifests than is written",
    ),
    (
        "SELECT COUNT(*) FROM envelopes WHERE cursor > (SELECT h.cursor FROM hosts h WHERE h.id = envelopes.host)",
        "envelopes beyond their host's cursor",
    ),
    (
        "SELECT COUNT(*) FROM accounts WHERE NOT EXISTS (SELECT 1 FROM account_keys k WHERE k.account_uid = accounts.uid)",
        "accounts without a key",
    ),
];

impl HubStore {
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
        faults.extend(hash_faults(&mut reader).await?);
        let mut tables = Vec::new();
        for table in TABLES {
            let query = sqlx::AssertSqlSafe(format!("SELECT COUNT(*) FROM {table}"));
            let rows = sqlx::query(query).fetch_one(&mut *reader).await?.try_get(0)?;
            tables.push(TableCount { table: table.to_owned(), rows });
        }
        drop(reader);
        let audit_archived = self.archived_rows().await?;
        Ok(StoreCheck { schema: SCHEMA, faults, tables, audit_archived })
    }
}
