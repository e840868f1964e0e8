//! What people did, and what was refused to strangers. It is never shortened: its oldest lines move to the archive.

use std::collections::BTreeSet;

use sqlx::Row as _;

use super::change::{OWN_LINES_KEPT, StoreChange};
use super::text::plain;
use super::transact::{StoreWrite, WriteTx};
use super::{HubStore, HubTime, StoreError};

/// The longest detail kept: a line, not a document.
const DETAIL_BYTES_MAX: usize = 2_000;

/// One line of the audit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditLine {
    /// Its number, rising.
    pub serial: i64,
    /// When.
    pub at: HubTime,
    /// Who: an account, `server` for the command line on the hub's machine, or `host NAME`.
    pub who: String,
    /// What: `host.enrol`, `document.push`, …
    pub act: String,
    /// On what: a host or an account.
    pub subject: String,
    /// The rest, for people. Never a secret.
    pub detail: String,
}

impl WriteTx<'_> {
    /// Keeps a line, in the same transaction as what it tells of.
    pub(in crate::store) async fn audit(
        &mut self,
        who: &str,
        act: &str,
        subject: &str,
        detail: &str,
    ) -> Result<(), StoreError> {
        let row = sqlx::query(
            "INSERT INTO audit (at, who, act, subject, detail) VALUES ($1, $2, $3, $4, $5) RETURNING serial",
        )
        .bind(self.now.0)
        .bind(who)
        .bind(act)
        .bind(subject)
        .bind(plain(detail, DETAIL_BYTES_MAX))
        .fetch_one(&mut *self.connection)
        .await?;
        self.wrote_line(row.try_get(0)?);
        self.changed(StoreChange::Audit);
        Ok(())
    }
}

impl HubStore {
    /// Keeps a line about something that changed nothing else.
    pub async fn audit(
        &self,
        who: &str,
        act: &str,
        subject: &str,
        detail: &str,
    ) -> Result<(), StoreError> {
        let [who, act, subject, detail] = [who, act, subject, detail].map(str::to_owned);
        self.write(KeepAudit { who, act, subject, detail }).await
    }

    /// The numbers of the lines that any replica wrote within so many milliseconds, by the database's clock. Numbers become
    /// visible out of order, so that the newest alone would not tell of all.
    pub(crate) async fn audited_within(&self, ms: i64) -> Result<BTreeSet<i64>, StoreError> {
        let (since, bound) = self.since(ms);
        let query =
            format!("SELECT serial FROM audit WHERE at > {since} ORDER BY serial DESC LIMIT $2");
        let limit = i64::try_from(OWN_LINES_KEPT).expect("it is small");
        let query = sqlx::query(sqlx::AssertSqlSafe(query)).bind(bound).bind(limit);
        let rows = query.fetch_all(&mut *self.reader().await?).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// The lines before a number (all: `i64::MAX`), newest first, of one subject or of all.
    pub async fn audit_page(
        &self,
        subject: Option<&str>,
        before: i64,
        limit: i64,
    ) -> Result<Vec<AuditLine>, StoreError> {
        let rows = sqlx::query(
            "SELECT serial, at, who, act, subject, detail FROM audit \
             WHERE serial < $1 AND ($2 = '' OR subject = $2) ORDER BY serial DESC LIMIT $3",
        )
        .bind(before)
        .bind(subject.unwrap_or_default())
        .bind(limit)
        .fetch_all(&mut *self.reader().await?)
        .await?;
        rows.iter().map(audit_line).collect()
    }
}

/// A row of the table, its columns in the order of the type's fields.
pub(in crate::store) fn audit_line(row: &sqlx::any::AnyRow) -> Result<AuditLine, StoreError> {
    Ok(AuditLine {
        serial: row.try_get(0)?,
        at: HubTime(row.try_get(1)?),
        who: row.try_get(2)?,
        act: row.try_get(3)?,
        subject: row.try_get(4)?,
        detail: row.try_get(5)?,
    })
}

struct KeepAudit {
    who: String,
    act: String,
    subject: String,
    detail: String,
}

impl StoreWrite for KeepAudit {
    type Out = ();

    async fn run(&self, tx: &mut WriteTx<'_>) -> Result<(), StoreError> {
        tx.audit(&self.who, &self.act, &self.subject, &self.detail).await
    }
}
