//! Desired documents: content-addressed files, a manifest, and a history of generations for each host.
//!
//! Whoever pushes has read the files with core's reader and checked the manifest; here they are kept. Generations only rise,
//! also over a restored backup: what hosts say they have counts like what was pushed.

use evenkeel_core::fleet::WireFile;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row as _};

use super::hosts::no_such_host;
use super::limits::{DOCUMENTS_PER_HOST_MAX, GENERATION_STEP_MAX, NUMBER_MAX};
use super::text::plain;
use super::transact::{StoreWrite, WriteTx};
use super::{HubStore, HubTime, StoreChange, StoreError};
use crate::problem::{Problem, ProblemCode};

/// The longest message of a push.
pub(super) const MESSAGE_BYTES_MAX: usize = 1_000;

/// A document to be kept as a new generation.
#[derive(Debug, Clone)]
pub struct NewDocument {
    /// For which host.
    pub host: String,
    /// The files, sorted by name, as the manifest names them.
    pub files: Vec<WireFile>,
    /// The manifest's exact bytes.
    pub manifest: Vec<u8>,
    /// The author's sealed statement, if somebody signed.
    pub author: Option<String>,
    /// The fingerprint of the author's key.
    pub author_key: String,
    /// The generation that the author signed; the next one if none did.
    pub generation: Option<i64>,
    /// The generation that the pusher saw as the newest; refused as stale if there is a newer one.
    pub seen: i64,
    /// What for.
    pub message: String,
    /// Who pushes.
    pub pushed_by: String,
}

/// What came of a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushed {
    /// The new generation.
    pub generation: i64,
    /// The manifest's SHA-256.
    pub manifest: String,
}

/// A line of the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentRow {
    /// The generation.
    pub generation: i64,
    /// The manifest's SHA-256.
    pub manifest: String,
    /// The fingerprint of the author's key; empty if nobody signed.
    pub author_key: String,
    /// What for.
    pub message: String,
    /// Who pushed.
    pub pushed_by: String,
    /// When.
    pub pushed_at: HubTime,
}

/// A whole document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredDocument {
    /// Its line of the history.
    pub row: DocumentRow,
    /// The manifest's exact bytes.
    pub manifest_bytes: Vec<u8>,
    /// The files, sorted by name.
    pub files: Vec<WireFile>,
    /// The author's sealed statement.
    pub author: Option<String>,
}

const ROW_COLUMNS: &str = "generation, manifest, author_key, message, pushed_by, pushed_at";

impl DocumentRow {
    fn read(row: &AnyRow) -> Result<Self, StoreError> {
        Ok(Self {
            generation: row.try_get(0)?,
            manifest: row.try_get(1)?,
            author_key: row.try_get(2)?,
            message: row.try_get(3)?,
            pushed_by: row.try_get(4)?,
            pushed_at: HubTime(row.try_get(5)?),
        })
    }
}

impl HubStore {
    /// Keeps a document as a new generation, which the host is told of at once.
    pub async fn push(&self, document: NewDocument) -> Result<Pushed, StoreError> {
        self.write(document).await
    }

    /// The generation a push would get now.
    pub async fn next_generation(&self, host: &str) -> Result<Option<i64>, StoreError> {
        Ok(self.host(host).await?.map(|row| row.wanted.max(row.reported) + 1))
    }

    /// The history before a generation, newest first.
    pub async fn documents_before(
        &self,
        host: &str,
        before: i64,
        limit: i64,
    ) -> Result<Vec<DocumentRow>, StoreError> {
        let query = format!(
            "SELECT {ROW_COLUMNS} FROM documents WHERE host = $1 AND generation < $2 ORDER BY generation DESC LIMIT $3"
        );
        let page = (host, before, limit);
        self.page_before(sqlx::AssertSqlSafe(query), page, DocumentRow::read).await
    }

    /// One document, whole.
    pub async fn document(
        &self,
        host: &str,
        generation: i64,
    ) -> Result<Option<StoredDocument>, StoreError> {
        let mut reader = self.reader().await?;
        let query = format!(
            "SELECT {ROW_COLUMNS}, author, m.bytes FROM documents JOIN manifests m ON m.hash = manifest \
             WHERE host = $1 AND generation = $2"
        );
        let row = sqlx::query(sqlx::AssertSqlSafe(query))
            .bind(host)
            .bind(generation)
            .fetch_optional(&mut *reader)
            .await?;
        let Some(found) = row else { return Ok(None) };
        let row = DocumentRow::read(&found)?;
        let author: String = found.try_get(6)?;
        let files = files_of(&mut reader, &row.manifest).await?;
        Ok(Some(StoredDocument {
            row,
            manifest_bytes: found.try_get(7)?,
            files,
            author: (!author.is_empty()).then_some(author),
        }))
    }
}

/// The files that a manifest names, sorted by name.
pub(super) async fn files_of(
    reader: &mut AnyConnection,
    manifest: &str,
) -> Result<Vec<WireFile>, StoreError> {
    let rows = sqlx::query(
        "SELECT f.name, t.text FROM manifest_files f JOIN files t ON t.sha256 = f.sha256 WHERE f.manifest = $1",
    )
    .bind(manifest)
    .fetch_all(reader)
    .await?;
    let file = |row: &AnyRow| Ok(WireFile { name: row.try_get(0)?, text: row.try_get(1)? });
    let mut files = rows.iter().map(file).collect::<Result<Vec<_>, StoreError>>()?;
    // Here and not by the database, whose order depends on its locale.
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

impl StoreWrite for NewDocument {
    type Out = Pushed;

    async fn run(&self, tx: &mut WriteTx<'_>) -> Result<Pushed, StoreError> {
        tx.lock_documents().await?;
        if !tx.take_host(&self.host).await? {
            return Err(no_such_host(&self.host));
        }
        let generation = self.generation(tx).await?;
        let manifest = tx.keep_texts(&self.manifest, &self.files).await?;
        sqlx::query(
            "INSERT INTO documents (host, generation, manifest, author, author_key, message, pushed_by, pushed_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        )
        .bind(self.host.as_str())
        .bind(generation)
        .bind(manifest.as_str())
        .bind(self.author.as_deref().unwrap_or_default())
        .bind(self.author_key.as_str())
        .bind(plain(&self.message, MESSAGE_BYTES_MAX))
        .bind(self.pushed_by.as_str())
        .bind(tx.now.0)
        .execute(&mut *tx.connection)
        .await?;
        sqlx::query("UPDATE hosts SET wanted = $1 WHERE id = $2")
            .bind(generation)
            .bind(self.host.as_str())
            .execute(&mut *tx.connection)
            .await?;
        self.drop_oldest(tx).await?;
        let detail = format!("generation {generation}, manifest {manifest}: {}", self.message);
        tx.audit(&self.pushed_by, "document.push", &self.host, &detail).await?;
        tx.changed(StoreChange::Document(self.host.clone()));
        Ok(Pushed { generation, manifest })
    }
}

impl NewDocument {
    async fn generation(&self, tx: &mut WriteTx<'_>) -> Result<i64, StoreError> {
        let row = sqlx::query("SELECT wanted, reported FROM hosts WHERE id = $1")
            .bind(self.host.as_str())
            .fetch_one(&mut *tx.connection)
            .await?;
        let (wanted, reported): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        if wanted != self.seen {
            let detail = format!("generation {wanted} is the newest, not {}", self.seen);
            let hint = "look at what was pushed meanwhile, then push again";
            return Err(Problem::new(ProblemCode::Stale, detail).hint(hint).into());
        }
        let newest = wanted.max(reported);
        let generation = self.generation.unwrap_or(newest + 1);
        if generation <= newest
            || generation > NUMBER_MAX
            || generation - newest > GENERATION_STEP_MAX
        {
            let detail = format!(
                "the author signed generation {generation}; the next one is {}",
                newest + 1
            );
            return Err(Problem::new(ProblemCode::Stale, detail).hint("sign it again").into());
        }
        Ok(generation)
    }

    /// The oldest go, but never the one in effect: its text is what `pull` and `diff` show.
    async fn drop_oldest(&self, tx: &mut WriteTx<'_>) -> Result<(), StoreError> {
        let dropped = sqlx::query(
            "DELETE FROM documents WHERE host = $1 \
             AND generation NOT IN (SELECT generation FROM documents WHERE host = $1 ORDER BY generation DESC LIMIT $2) \
             AND generation NOT IN (SELECT reported FROM hosts WHERE id = $1) RETURNING manifest",
        )
        .bind(self.host.as_str())
        .bind(DOCUMENTS_PER_HOST_MAX)
        .fetch_all(&mut *tx.connection)
        .await?;
        tx.release_texts(&dropped).await
    }
}

impl WriteTx<'_> {
    /// Pushes and drops of texts go one after another: a text must not go while somebody begins to need it. Before
    /// the host's row, always.
    pub(in crate::store) async fn lock_documents(&mut self) -> Result<(), StoreError> {
        sqlx::query("UPDATE meta SET value = value WHERE name = 'hub_id'")
            .execute(&mut *self.connection)
            .await?;
        Ok(())
    }
}
