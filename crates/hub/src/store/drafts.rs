//! Drafts: documents that somebody edited and somebody else signs. They share their texts with documents.

use evenkeel_core::fleet::WireFile;
use sqlx::Row as _;
use sqlx::any::AnyRow;

use super::documents::{MESSAGE_BYTES_MAX, files_of};
use super::hosts::no_such_host;
use super::limits::DRAFTS_PER_HOST_MAX;
use super::text::plain;
use super::transact::{StoreWrite, WriteTx};
use super::{HubStore, HubTime, StoreChange, StoreError};

/// How long a draft waits for a signature.
const DRAFT_LIFE_S: i64 = 7 * 24 * 3600;

/// A draft to be kept.
#[derive(Debug, Clone)]
pub struct NewDraft {
    /// `drf_…`.
    pub id: String,
    /// For which host.
    pub host: String,
    /// The generation it was made from.
    pub base: i64,
    /// The files, sorted by name, as the manifest names them.
    pub files: Vec<WireFile>,
    /// The manifest's exact bytes.
    pub manifest: Vec<u8>,
    /// What for.
    pub message: String,
    /// Who made it.
    pub made_by: String,
}

/// A draft in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DraftRow {
    /// `drf_…`.
    pub id: String,
    /// For which host.
    pub host: String,
    /// The generation it was made from.
    pub base: i64,
    /// The manifest's SHA-256.
    pub manifest: String,
    /// What for.
    pub message: String,
    /// Who made it.
    pub made_by: String,
    /// When.
    pub made_at: HubTime,
}

const DRAFT_COLUMNS: &str = "id, host, base, manifest, message, made_by, made_at";

impl DraftRow {
    fn read(row: &AnyRow) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.try_get(0)?,
            host: row.try_get(1)?,
            base: row.try_get(2)?,
            manifest: row.try_get(3)?,
            message: row.try_get(4)?,
            made_by: row.try_get(5)?,
            made_at: HubTime(row.try_get(6)?),
        })
    }
}

impl HubStore {
    /// Keeps a draft.
    pub async fn add_draft(&self, draft: NewDraft) -> Result<HubTime, StoreError> {
        self.write(draft).await
    }

    /// The drafts of a host, newest first.
    pub async fn drafts(&self, host: &str) -> Result<Vec<DraftRow>, StoreError> {
        let query = format!(
            "SELECT {DRAFT_COLUMNS} FROM drafts WHERE host = $1 AND expires_at > $2 ORDER BY made_at DESC, id"
        );
        let rows = sqlx::query(sqlx::AssertSqlSafe(query))
            .bind(host)
            .bind(HubTime::now().0)
            .fetch_all(&mut *self.reader().await?)
            .await?;
        rows.iter().map(DraftRow::read).collect()
    }

    /// One draft with its files.
    pub async fn draft(
        &self,
        host: &str,
        id: &str,
    ) -> Result<Option<(DraftRow, Vec<WireFile>)>, StoreError> {
        let mut reader = self.reader().await?;
        let query = format!(
            "SELECT {DRAFT_COLUMNS} FROM drafts WHERE host = $1 AND id = $2 AND expires_at > $3"
        );
        let row = sqlx::query(sqlx::AssertSqlSafe(query))
            .bind(host)
            .bind(id)
            .bind(HubTime::now().0)
            .fetch_optional(&mut *reader)
            .await?;
        let Some(row) = row else { return Ok(None) };
        let row = DraftRow::read(&row)?;
        let files = files_of(&mut reader, &row.manifest).await?;
        Ok(Some((row, files)))
    }

    /// Drops a draft; one that is gone already is no mistake.
    pub async fn drop_draft(&self, host: &str, id: &str, who: &str) -> Result<(), StoreError> {
        let [host, id, who] = [host, id, who].map(str::to_owned);
        self.write(DropDraft { host, id, who }).await
    }
}

impl StoreWrite for NewDraft {
    type Out = HubTime;

    async fn run(&self, tx: &mut WriteTx<'_>) -> Result<HubTime, StoreError> {
        tx.lock_documents().await?;
        if !tx.take_host(&self.host).await? {
            return Err(no_such_host(&self.host));
        }
        let manifest = tx.keep_texts(&self.manifest, &self.files).await?;
        sqlx::query(
            "INSERT INTO drafts (id, host, base, manifest, message, made_by, made_at, expires_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        )
        .bind(self.id.as_str())
        .bind(self.host.as_str())
        .bind(self.base)
        .bind(manifest.as_str())
        .bind(plain(&self.message, MESSAGE_BYTES_MAX))
        .bind(self.made_by.as_str())
        .bind(tx.now.0)
        .bind(tx.now.plus_s(DRAFT_LIFE_S).0)
        .execute(&mut *tx.connection)
        .await?;
        let over = sqlx::query(
            "DELETE FROM drafts WHERE host = $1 AND (expires_at <= $2 OR id NOT IN \
             (SELECT id FROM drafts WHERE host = $1 ORDER BY made_at DESC, id LIMIT $3)) RETURNING manifest",
        )
        .bind(self.host.as_str())
        .bind(tx.now.0)
        .bind(DRAFTS_PER_HOST_MAX)
        .fetch_all(&mut *tx.connection)
        .await?;
        tx.release_texts(&over).await?;
        let detail = format!("{}, manifest {manifest}: {}", self.id, self.message);
        tx.audit(&self.made_by, "draft.add", &self.host, &detail).await?;
        tx.changed(StoreChange::Document(self.host.clone()));
        Ok(tx.now)
    }
}

struct DropDraft {
    host: String,
    id: String,
    who: String,
}

impl StoreWrite for DropDraft {
    type Out = ();

    async fn run(&self, tx: &mut WriteTx<'_>) -> Result<(), StoreError> {
        tx.lock_documents().await?;
        let dropped =
            sqlx::query("DELETE FROM drafts WHERE host = $1 AND id = $2 RETURNING manifest")
                .bind(self.host.as_str())
                .bind(self.id.as_str())
                .fetch_all(&mut *tx.connection)
                .await?;
        if dropped.is_empty() {
            return Ok(());
        }
        tx.release_texts(&dropped).await?;
        tx.audit(&self.who, "draft.drop", &self.host, &self.id).await?;
        tx.changed(StoreChange::Document(self.host.clone()));
        Ok(())
    }
}
