//! Writes: each is a value that knows what it does, run whole in a transaction or not at all.
//!
//! A write may run more than once (PostgreSQL asks for that after a deadlock), so it takes `&self` and draws nothing
//! itself. What it tells as changed is told after the commit.

use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::{AnyConnection, AnyPool};
use sqlx::{Connection as _, Row as _};
use tokio::sync::oneshot;

use super::HubTime;
use super::change::{ChangeFeed, StoreChange};
use super::connect::{Database, DatabaseKind};
use super::error::StoreError;
use super::writer::Writer;
use crate::death_point;

/// How often a transaction that lost against another is begun again.
const RETRIES: u32 = 5;
/// The pause before it, times the number of the try.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// One write.
pub(in crate::store) trait StoreWrite: Send + Sync + 'static {
    /// What it answers.
    type Out: Send + 'static;

    /// Does it. An error leaves nothing behind.
    fn run<'t>(
        &'t self,
        tx: &'t mut WriteTx<'_>,
    ) -> impl Future<Output = Result<Self::Out, StoreError>> + Send + 't;
}

/// The transaction a write runs in.
pub(in crate::store) struct WriteTx<'c> {
    /// Where queries go.
    pub(in crate::store) connection: &'c mut AnyConnection,
    /// The moment, the same for the whole transaction.
    pub(in crate::store) now: HubTime,
    kind: DatabaseKind,
    told: ToldChanges,
}

/// What a transaction tells once it is committed.
#[derive(Default)]
pub(super) struct ToldChanges {
    changes: Vec<StoreChange>,
    /// The versions of hosts' rows that it wrote.
    versions: Vec<(String, i64)>,
    /// The lines of the audit that it wrote.
    lines: Vec<i64>,
}

impl ToldChanges {
    /// It is committed.
    pub(super) fn tell(self, changes: &ChangeFeed) {
        // First whose they are: a look at the rows in between must not take them for another process's.
        for (host, version) in self.versions {
            changes.wrote(host, version);
        }
        for serial in self.lines {
            changes.wrote_line(serial);
        }
        for change in self.changes {
            changes.tell(change);
        }
    }
}

impl<'c> WriteTx<'c> {
    pub(super) fn new(connection: &'c mut AnyConnection, now: HubTime, kind: DatabaseKind) -> Self {
        Self { connection, now, kind, told: ToldChanges::default() }
    }

    /// To be told after the commit.
    pub(in crate::store) fn changed(&mut self, change: StoreChange) {
        if !self.told.changes.contains(&change) {
            self.told.changes.push(change);
        }
    }

    /// The version that a host's row has with the commit.
    pub(in crate::store) fn wrote(&mut self, host: &str, version: i64) {
        self.told.versions.push((host.to_owned(), version));
    }

    /// The number that a line of the audit has with the commit.
    pub(in crate::store) fn wrote_line(&mut self, serial: i64) {
        self.told.lines.push(serial);
    }

    /// Forgets what was told since: the write is rolled back.
    pub(super) fn changes_mark(&self) -> [usize; 3] {
        let ToldChanges { changes, versions, lines } = &self.told;
        [changes.len(), versions.len(), lines.len()]
    }

    pub(super) fn forget_changes(&mut self, [changes, versions, lines]: [usize; 3]) {
        self.told.changes.truncate(changes);
        self.told.versions.truncate(versions);
        self.told.lines.truncate(lines);
    }

    pub(super) fn into_changes(self) -> ToldChanges {
        self.told
    }

    /// What is put behind a `SELECT` to keep the row until the commit. SQLite has one writer and needs none.
    pub(in crate::store) fn for_update(&self) -> &'static str {
        match self.kind {
            DatabaseKind::Sqlite => "",
            DatabaseKind::Postgres => " FOR UPDATE",
        }
    }

    /// The same, and there is no such row while another keeps it.
    pub(in crate::store) fn for_update_if_free(&self) -> &'static str {
        match self.kind {
            DatabaseKind::Sqlite => "",
            DatabaseKind::Postgres => " FOR UPDATE SKIP LOCKED",
        }
    }

    /// Which database it is.
    pub(in crate::store) fn kind(&self) -> DatabaseKind {
        self.kind
    }

    /// What keeps rows that must not go before the commit, while others rely on them too. Nobody who holds them so may go on to
    /// write them: two of those would wait for each other.
    pub(in crate::store) fn for_key_share(&self) -> &'static str {
        match self.kind {
            DatabaseKind::Sqlite => "",
            DatabaseKind::Postgres => " FOR KEY SHARE",
        }
    }

    /// The same for the account `a`, which must not go, and its key `k`, which is written.
    pub(in crate::store) fn for_a_login(&self) -> &'static str {
        match self.kind {
            DatabaseKind::Sqlite => "",
            DatabaseKind::Postgres => " FOR KEY SHARE OF a FOR NO KEY UPDATE OF k",
        }
    }

    /// The host's row is ours until the commit, changed and with a new version: every write about a host begins here, so that
    /// two of them never wait for each other crosswise. False if there is no such host.
    pub(in crate::store) async fn take_host(&mut self, host: &str) -> Result<bool, StoreError> {
        let row = sqlx::query(
            "UPDATE hosts SET version = version + 1, changed_at = $1 WHERE id = $2 RETURNING version",
        )
        .bind(self.now.0)
        .bind(host)
        .fetch_optional(&mut *self.connection)
        .await?;
        self.changed(StoreChange::Host(host.to_owned()));
        if let Some(row) = &row {
            self.wrote(host, row.try_get(0)?);
        }
        Ok(row.is_some())
    }
}

/// How writes are run.
pub(super) enum Transactor {
    /// All through one task.
    Sqlite(Writer),
    /// Each in a connection of the pool.
    Postgres { pool: AnyPool, changes: ChangeFeed },
}

impl Transactor {
    pub(super) async fn new(
        database: &Database,
        pool: &AnyPool,
        changes: ChangeFeed,
    ) -> Result<Self, StoreError> {
        match database.kind() {
            DatabaseKind::Sqlite => {
                Ok(Self::Sqlite(Writer::start(database.clone(), changes).await?))
            }
            DatabaseKind::Postgres => Ok(Self::Postgres { pool: pool.clone(), changes }),
        }
    }

    pub(super) async fn run<W: StoreWrite>(&self, write: W) -> Result<W::Out, StoreError> {
        match self {
            Self::Sqlite(writer) => {
                let (answer, answered) = oneshot::channel();
                writer.hand_in(Box::new(WaitingWrite { write, out: None, answer }))?;
                answered.await.map_err(|_| StoreError::Database("the writer ended".to_owned()))?
            }
            Self::Postgres { pool, changes } => in_the_pool(pool, changes, &write).await,
        }
    }

    pub(super) async fn close(&self) {
        match self {
            Self::Sqlite(writer) => writer.close().await,
            Self::Postgres { .. } => {}
        }
    }
}

/// A write and whoever waits for it, without their types.
pub(super) trait ErasedWrite: Send {
    /// Runs it; false if it is to be rolled back.
    fn run<'t>(&'t mut self, tx: &'t mut WriteTx<'_>) -> BoxFuture<'t, bool>;
    /// Answers: what came of it, or why nothing did.
    fn answer(self: Box<Self>, committed: Result<(), StoreError>);
}

struct WaitingWrite<W: StoreWrite> {
    write: W,
    out: Option<Result<W::Out, StoreError>>,
    answer: oneshot::Sender<Result<W::Out, StoreError>>,
}

impl<W: StoreWrite> ErasedWrite for WaitingWrite<W> {
    fn run<'t>(&'t mut self, tx: &'t mut WriteTx<'_>) -> BoxFuture<'t, bool> {
        Box::pin(async move {
            let out = self.write.run(tx).await;
            let keep = out.is_ok();
            self.out = Some(out);
            keep
        })
    }

    fn answer(self: Box<Self>, committed: Result<(), StoreError>) {
        let ended = StoreError::Database("the write was never run".to_owned());
        let out = match (committed, self.out) {
            (Ok(()), Some(out)) => out,
            // A refusal stands by itself: it does not depend on the commit.
            (Err(_), Some(Err(refused @ StoreError::Refused(_)))) => Err(refused),
            (Err(error), Some(_) | None) => Err(error),
            (Ok(()), None) => Err(ended),
        };
        // Whoever asked may have hung up; what was written stays written.
        let _ = self.answer.send(out);
    }
}

async fn in_the_pool<W: StoreWrite>(
    pool: &AnyPool,
    changes: &ChangeFeed,
    write: &W,
) -> Result<W::Out, StoreError> {
    let mut tried = 0;
    loop {
        match once(pool, write).await {
            Ok((out, told)) => {
                told.tell(changes);
                return Ok(out);
            }
            Err(failed) if failed.again && tried < RETRIES => {
                tried += 1;
                tokio::time::sleep(RETRY_PAUSE * tried).await;
            }
            Err(failed) => return Err(failed.error),
        }
    }
}

struct FailedWrite {
    error: StoreError,
    again: bool,
}

impl From<StoreError> for FailedWrite {
    fn from(error: StoreError) -> Self {
        // The texts PostgreSQL gives for serialization_failure and deadlock_detected: `Any` keeps no other trace once
        // the error went through a write's own code.
        let again = matches!(&error, StoreError::Database(text)
            if text.contains("deadlock detected") || text.contains("could not serialize"));
        Self { error, again }
    }
}

impl From<sqlx::Error> for FailedWrite {
    fn from(error: sqlx::Error) -> Self {
        StoreError::from(error).into()
    }
}

async fn once<W: StoreWrite>(
    pool: &AnyPool,
    write: &W,
) -> Result<(W::Out, ToldChanges), FailedWrite> {
    let mut connection = pool.acquire().await?;
    // Dropped before its commit, the transaction is rolled back.
    let mut transaction = connection.begin().await?;
    let clock = "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)";
    let row = sqlx::query(clock).fetch_one(&mut *transaction).await?;
    let now = HubTime(row.try_get(0)?);
    let mut tx = WriteTx::new(&mut transaction, now, DatabaseKind::Postgres);
    death_point::pass();
    let out = write.run(&mut tx).await?;
    let told = tx.into_changes();
    death_point::pass();
    transaction.commit().await?;
    death_point::pass();
    Ok((out, told))
}
