//! Envelopes on their way to a host: an approval, a rotation, an acknowledgement. The hub carries them and judges nothing.
//!
//! One leaves the queue by the host's signed verdict or at its own end, never because it was delivered.

use sqlx::Row as _;

use super::hosts::no_such_host;
use super::limits::{
    ENVELOPE_WAIT_MAX_S, ENVELOPES_KEPT_MAX, ENVELOPES_PER_POLL, ENVELOPES_WAITING_MAX,
};
use super::transact::{StoreWrite, WriteTx};
use super::{HubStore, HubTime, StoreChange, StoreError};
use crate::problem::{Problem, ProblemCode};
use crate::secret_text::sha256_hex;

/// What an envelope is, as its namespace claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnvelopeKind {
    /// It approves an open item.
    Approval,
    /// It denies an open item.
    Denial,
    /// It changes the signers.
    Rotation,
    /// It acknowledges that a document's author is gone.
    Document,
    /// It acknowledges that a journal was rolled back.
    Acknowledgement,
}

impl EnvelopeKind {
    /// As it is kept.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approval => "approval",
            Self::Denial => "denial",
            Self::Rotation => "rotation",
            Self::Document => "document",
            Self::Acknowledgement => "acknowledgement",
        }
    }
}

/// An envelope that somebody hands in. The caller has read its form and its window.
#[derive(Debug, Clone)]
pub struct NewEnvelope {
    /// `env_` and 32 hexadecimal digits.
    pub id: String,
    /// For which host.
    pub host: String,
    /// What it is.
    pub kind: EnvelopeKind,
    /// The open item it names; empty for other kinds.
    pub item: String,
    /// The sealed value, exactly.
    pub body: String,
    /// When it is good for nothing any more.
    pub expires_at: HubTime,
    /// Who hands it in.
    pub submitted_by: String,
}

/// An envelope as a host gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedEnvelope {
    /// Its serial within the host.
    pub cursor: i64,
    /// Its id.
    pub id: String,
    /// The sealed value, exactly.
    pub body: String,
}

impl HubStore {
    /// Puts an envelope into its host's queue. The same one again answers with the id it has.
    pub async fn submit(&self, envelope: NewEnvelope) -> Result<String, StoreError> {
        self.write(envelope).await
    }

    /// What waits for a host after a cursor, in order, as much as one answer takes.
    pub async fn envelopes_after(
        &self,
        host: &str,
        cursor: i64,
    ) -> Result<Vec<QueuedEnvelope>, StoreError> {
        let rows = sqlx::query(
            "SELECT cursor, id, body FROM envelopes WHERE state = 'waiting' AND host = $1 AND cursor > $2 \
             AND expires_at > $3 ORDER BY cursor LIMIT $4",
        )
        .bind(host)
        .bind(cursor)
        .bind(HubTime::now().0)
        .bind(ENVELOPES_PER_POLL)
        .fetch_all(&mut *self.reader().await?)
        .await?;
        rows.iter()
            .map(|row| {
                Ok(QueuedEnvelope {
                    cursor: row.try_get(0)?,
                    id: row.try_get(1)?,
                    body: row.try_get(2)?,
                })
            })
            .collect()
    }
}

impl StoreWrite for NewEnvelope {
    type Out = String;

    async fn run(&self, tx: &mut WriteTx<'_>) -> Result<String, StoreError> {
        if !tx.take_host(&self.host).await? {
            return Err(no_such_host(&self.host));
        }
        let body_hash = sha256_hex(self.body.as_bytes());
        if let Some(id) = self.same_one(tx, &body_hash).await? {
            return Ok(id);
        }
        self.may_wait(tx).await?;
        let row =
            sqlx::query("UPDATE hosts SET cursor = cursor + 1 WHERE id = $1 RETURNING cursor")
                .bind(self.host.as_str())
                .fetch_one(&mut *tx.connection)
                .await?;
        sqlx::query(
            "INSERT INTO envelopes (id, host, cursor, kind, item, body, body_hash, submitted_by, submitted_at, \
             expires_at, state, verdict, verdict_code, verdict_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 'waiting', '', '', 0)",
        )
        .bind(self.id.as_str())
        .bind(self.host.as_str())
        .bind(row.try_get::<i64, _>(0)?)
        .bind(self.kind.as_str())
        .bind(self.item.as_str())
        .bind(self.body.as_str())
        .bind(body_hash.as_str())
        .bind(self.submitted_by.as_str())
        .bind(tx.now.0)
        .bind(self.expires_at.min(tx.now.plus_s(ENVELOPE_WAIT_MAX_S)).0)
        .execute(&mut *tx.connection)
        .await?;
        self.drop_oldest(tx).await?;
        let detail = format!("{} {} {}", self.id, self.kind.as_str(), self.item);
        tx.audit(&self.submitted_by, "envelope.submit", &self.host, detail.trim_end()).await?;
        tx.changed(StoreChange::Pending(self.host.clone()));
        Ok(self.id.clone())
    }
}

impl NewEnvelope {
    async fn same_one(
        &self,
        tx: &mut WriteTx<'_>,
        body_hash: &str,
    ) -> Result<Option<String>, StoreError> {
        let row = sqlx::query(
            "SELECT id FROM envelopes WHERE state = 'waiting' AND host = $1 AND body_hash = $2 AND expires_at > $3",
        )
        .bind(self.host.as_str())
        .bind(body_hash)
        .bind(tx.now.0)
        .fetch_optional(&mut *tx.connection)
        .await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }

    async fn may_wait(&self, tx: &mut WriteTx<'_>) -> Result<(), StoreError> {
        if self.expires_at <= tx.now {
            return Err(Problem::invalid("it expired before it was handed in").into());
        }
        if matches!(self.kind, EnvelopeKind::Approval | EnvelopeKind::Denial) {
            let row = sqlx::query("SELECT COUNT(*) FROM pending_items WHERE host = $1 AND id = $2")
                .bind(self.host.as_str())
                .bind(self.item.as_str())
                .fetch_one(&mut *tx.connection)
                .await?;
            if row.try_get::<i64, _>(0)? == 0 {
                let detail = "no item that waits on this host fits it";
                return Err(Problem::new(ProblemCode::NotFound, detail)
                    .hint("it may be done or superseded: look at what is pending")
                    .into());
            }
        }
        let row = sqlx::query(
            "SELECT COUNT(*) FROM envelopes WHERE state = 'waiting' AND host = $1 AND expires_at > $2",
        )
        .bind(self.host.as_str())
        .bind(tx.now.0)
        .fetch_one(&mut *tx.connection)
        .await?;
        if row.try_get::<i64, _>(0)? >= ENVELOPES_WAITING_MAX {
            let detail = format!("{ENVELOPES_WAITING_MAX} envelopes wait for this host already");
            return Err(Problem::new(ProblemCode::TooMany, detail)
                .hint("is the host connected?")
                .into());
        }
        Ok(())
    }

    /// Of those that are over the oldest go; what was judged stays longer than what merely expired.
    async fn drop_oldest(&self, tx: &mut WriteTx<'_>) -> Result<(), StoreError> {
        sqlx::query(
            "DELETE FROM envelopes WHERE host = $1 AND state = 'expired' AND cursor <= \
             (SELECT cursor - $2 FROM hosts WHERE id = $1)",
        )
        .bind(self.host.as_str())
        .bind(ENVELOPES_KEPT_MAX)
        .execute(&mut *tx.connection)
        .await?;
        Ok(())
    }
}
