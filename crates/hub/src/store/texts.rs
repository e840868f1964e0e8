//! Manifests and the texts of files: each once, however many documents and drafts need it.
//!
//! Each knows how often it is needed. What is needed no more is dropped by its name, so that one more draft costs the same beside
//! a hundred thousand documents as beside none. Every caller holds the lock of documents, and frees what it took away itself.

use std::collections::BTreeMap;

use evenkeel_core::fleet::WireFile;
use sqlx::Row as _;
use sqlx::any::AnyRow;

use super::StoreError;
use super::transact::WriteTx;
use crate::secret_text::sha256_hex;

impl WriteTx<'_> {
    /// Keeps a manifest and its files, once each, for one more that needs them; answers with the manifest's SHA-256.
    pub(in crate::store) async fn keep_texts(
        &mut self,
        manifest: &[u8],
        files: &[WireFile],
    ) -> Result<String, StoreError> {
        let hash = sha256_hex(manifest);
        let known = sqlx::query("UPDATE manifests SET refs = refs + 1 WHERE hash = $1")
            .bind(hash.as_str())
            .execute(&mut *self.connection)
            .await?;
        if known.rows_affected() > 0 {
            return Ok(hash);
        }
        sqlx::query("INSERT INTO manifests (hash, bytes, refs) VALUES ($1, $2, 1)")
            .bind(hash.as_str())
            .bind(manifest)
            .execute(&mut *self.connection)
            .await?;
        for file in files {
            let sha256 = sha256_hex(file.text.as_bytes());
            sqlx::query(
                "INSERT INTO files (sha256, text, refs) VALUES ($1, $2, 1) \
                 ON CONFLICT (sha256) DO UPDATE SET refs = files.refs + 1",
            )
            .bind(sha256.as_str())
            .bind(file.text.as_str())
            .execute(&mut *self.connection)
            .await?;
            sqlx::query("INSERT INTO manifest_files (manifest, name, sha256) VALUES ($1, $2, $3)")
                .bind(hash.as_str())
                .bind(file.name.as_str())
                .bind(sha256.as_str())
                .execute(&mut *self.connection)
                .await?;
        }
        Ok(hash)
    }

    /// Documents or drafts are gone, each row its manifest: what nobody else needs goes with them.
    pub(in crate::store) async fn release_texts(
        &mut self,
        gone: &[AnyRow],
    ) -> Result<(), StoreError> {
        for (manifest, count) in counted(gone)? {
            let left = self.release("manifests", "hash", &manifest, count).await?;
            if left > 0 {
                continue;
            }
            let files =
                sqlx::query("DELETE FROM manifest_files WHERE manifest = $1 RETURNING sha256")
                    .bind(manifest.as_str())
                    .fetch_all(&mut *self.connection)
                    .await?;
            for (file, count) in counted(&files)? {
                self.release("files", "sha256", &file, count).await?;
            }
        }
        Ok(())
    }

    /// Needed so many times less: how often it is needed still. At none it is dropped.
    async fn release(
        &mut self,
        table: &'static str,
        name: &'static str,
        hash: &str,
        count: i64,
    ) -> Result<i64, StoreError> {
        let less = format!("UPDATE {table} SET refs = refs - $1 WHERE {name} = $2 RETURNING refs");
        let row = sqlx::query(sqlx::AssertSqlSafe(less))
            .bind(count)
            .bind(hash)
            .fetch_optional(&mut *self.connection)
            .await?;
        let left = row.map_or(Ok(0), |row| row.try_get::<i64, _>(0))?;
        if left <= 0 {
            let drop = format!("DELETE FROM {table} WHERE {name} = $1");
            let drop = sqlx::query(sqlx::AssertSqlSafe(drop)).bind(hash);
            drop.execute(&mut *self.connection).await?;
        }
        Ok(left)
    }
}

/// How often each name stands in the first column.
fn counted(rows: &[AnyRow]) -> Result<BTreeMap<String, i64>, StoreError> {
    let mut counts = BTreeMap::new();
    for row in rows {
        *counts.entry(row.try_get(0)?).or_default() += 1;
    }
    Ok(counts)
}
