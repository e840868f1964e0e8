//! What time takes away: envelopes past their end, old ops and decisions, secrets that are good for nothing any more.

use sqlx::Row as _;

use super::limits::HISTORY_KEPT_S;
use super::transact::{StoreWrite, WriteTx};
use super::{HubStore, StoreError};

/// Rows of history that one round takes: it shares the writer with everybody.
const ROWS_PER_ROUND: i64 = 2_000;

impl HubStore {
    /// One round.
    pub async fn tidy(&self) -> Result<(), StoreError> {
        self.write(TidyUp).await
    }
}

struct TidyUp;

impl TidyUp {
    /// Drafts past their end, with the texts that nobody else needs. First of all: documents are locked before any other row.
    async fn drafts(&self, tx: &mut WriteTx<'_>) -> Result<(), StoreError> {
        let over = sqlx::query("SELECT COUNT(*) FROM drafts WHERE expires_at <= $1")
            .bind(tx.now.0)
            .fetch_one(&mut *tx.connection)
            .await?;
        if over.try_get::<i64, _>(0)? == 0 {
            return Ok(());
        }
        tx.lock_documents().await?;
        let over = sqlx::query("DELETE FROM drafts WHERE expires_at <= $1 RETURNING manifest")
            .bind(tx.now.0)
            .fetch_all(&mut *tx.connection)
            .await?;
        tx.release_texts(&over).await
    }
}

/// What is over at a moment.
const PAST_THEIR_END: [&str; 6] = [
    "UPDATE envelopes SET state = 'expired', body = '' WHERE state = 'waiting' AND expires_at <= $1",
    "DELETE FROM api_tokens WHERE expires_at <= $1",
    "DELETE FROM console_codes WHERE expires_at <= $1",
    "DELETE FROM first_admin_codes WHERE expires_at <= $1",
    "DELETE FROM spent_challenges WHERE expires_at <= $1",
    "DELETE FROM enrol_tokens WHERE expires_at <= $1",
];

/// What is older than a moment, some of it.
const TOO_OLD: [&str; 2] = [
    "DELETE FROM ops WHERE (host, op) IN (SELECT host, op FROM ops WHERE received_at < $1 LIMIT $2)",
    "DELETE FROM decisions WHERE (host, serial) IN (SELECT host, serial FROM decisions WHERE received_at < $1 LIMIT $2)",
];

impl StoreWrite for TidyUp {
    type Out = ();

    async fn run(&self, tx: &mut WriteTx<'_>) -> Result<(), StoreError> {
        self.drafts(tx).await?;
        for query in PAST_THEIR_END {
            sqlx::query(query).bind(tx.now.0).execute(&mut *tx.connection).await?;
        }
        let oldest = tx.now.plus_s(-HISTORY_KEPT_S);
        for query in TOO_OLD {
            sqlx::query(query)
                .bind(oldest.0)
                .bind(ROWS_PER_ROUND)
                .execute(&mut *tx.connection)
                .await?;
        }
        Ok(())
    }
}
