//! What time takes away: envelopes past their end, old ops and decisions, secrets that are good for nothing any more.

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

/// What is over at a moment.
const PAST_THEIR_END: [&str; 7] = [
    "UPDATE envelopes SET state = 'expired' WHERE state = 'waiting' AND expires_at <= $1",
    "DELETE FROM api_tokens WHERE expires_at <= $1",
    "DELETE FROM sessions WHERE expires_at <= $1",
    "DELETE FROM one_time_codes WHERE expires_at <= $1",
    "DELETE FROM login_challenges WHERE expires_at <= $1",
    "DELETE FROM enrol_tokens WHERE expires_at <= $1",
    "DELETE FROM drafts WHERE expires_at <= $1",
];

/// What is older than a moment, some of it.
const TOO_OLD: [&str; 2] = [
    "DELETE FROM ops WHERE (host, op) IN (SELECT host, op FROM ops WHERE received_at < $1 LIMIT $2)",
    "DELETE FROM decisions WHERE (host, serial) IN (SELECT host, serial FROM decisions WHERE received_at < $1 LIMIT $2)",
];

impl StoreWrite for TidyUp {
    type Out = ();

    async fn run(&self, tx: &mut WriteTx<'_>) -> Result<(), StoreError> {
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
