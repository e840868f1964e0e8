//! What the store answers when it cannot do what it was asked.

use crate::problem::Problem;

/// Why nothing was kept or read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// What was asked contradicts what is there. Nothing of it is kept.
    #[error("{}", .0.detail)]
    Refused(Problem),
    /// More writes wait than the hub takes.
    #[error("too many writes wait")]
    Busy,
    /// The database failed; whether a write was kept is not known, and asking again is harmless.
    #[error("the database failed: {0}")]
    Database(String),
    /// The text after --database is none of ours.
    #[error("{0}")]
    Url(String),
    /// The database belongs to a newer evenkeel.
    #[error(
        "the database has schema {found}, and this version knows {known}: it was used by a newer evenkeel"
    )]
    Newer {
        /// What the database says.
        found: i64,
        /// What this version knows.
        known: i64,
    },
    /// The SQLite file is open elsewhere.
    #[error("{0}")]
    InUse(String),
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] std::io::Error),
    /// What the database holds is not what was put there.
    #[error("the database holds {0}")]
    Damaged(String),
    /// The archive of the audit is not what was put there, or does not fit the database.
    #[error("{0}")]
    Archive(String),
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        if matches!(error, sqlx::Error::PoolTimedOut) {
            return Self::Busy;
        }
        Self::Database(error.to_string())
    }
}

impl From<Problem> for StoreError {
    fn from(problem: Problem) -> Self {
        Self::Refused(problem)
    }
}
