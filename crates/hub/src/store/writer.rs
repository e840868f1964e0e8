//! The one writer of SQLite: everything that waits is written in one transaction, synced once, then answered.
//!
//! Each write has a savepoint of its own, so that one that is refused takes nothing of the others along. Nothing is
//! answered before the commit, which `synchronous = FULL` makes durable.

use sqlx::AnyConnection;
use sqlx::Executor as _;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;

use super::HubTime;
use super::change::ChangeFeed;
use super::connect::{Database, DatabaseKind};
use super::error::StoreError;
use super::transact::{ErasedWrite, WriteTx};
use crate::death_point;

/// Writes that may wait. Each host has at most one report under way, so one of them cannot fill it.
const WRITES_WAITING_MAX: usize = 8_192;
/// Writes of one commit: bounds how long the first of them waits.
const WRITES_PER_COMMIT: usize = 256;

/// The handle of the writer's task.
pub(super) struct Writer {
    waiting: Mutex<Option<mpsc::Sender<Box<dyn ErasedWrite>>>>,
    sender: mpsc::WeakSender<Box<dyn ErasedWrite>>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    pub(super) async fn start(database: Database, changes: ChangeFeed) -> Result<Self, StoreError> {
        let connection = database.connection().await?;
        let (sender, receiver) = mpsc::channel(WRITES_WAITING_MAX);
        let task = tokio::spawn(turn(database, connection, receiver, changes));
        let weak = sender.downgrade();
        let waiting = Mutex::new(Some(sender));
        let task = Mutex::new(Some(task));
        Ok(Self { waiting, sender: weak, task })
    }

    pub(super) fn hand_in(&self, write: Box<dyn ErasedWrite>) -> Result<(), StoreError> {
        let ended = || StoreError::Database("the hub is ending".to_owned());
        let sender = self.sender.upgrade().ok_or_else(ended)?;
        sender.try_send(write).map_err(|full| match full {
            mpsc::error::TrySendError::Full(_) => StoreError::Busy,
            mpsc::error::TrySendError::Closed(_) => ended(),
        })
    }

    /// Takes no more, and waits for the rest.
    pub(super) async fn close(&self) {
        drop(self.waiting.lock().await.take());
        if let Some(task) = self.task.lock().await.take() {
            let _ = task.await;
        }
    }
}

async fn turn(
    database: Database,
    mut connection: AnyConnection,
    mut waiting: mpsc::Receiver<Box<dyn ErasedWrite>>,
    changes: ChangeFeed,
) {
    let mut batch: Vec<Box<dyn ErasedWrite>> = Vec::new();
    while waiting.recv_many(&mut batch, WRITES_PER_COMMIT).await > 0 {
        let committed = commit(&mut connection, &mut batch, &changes).await;
        if let Err(error) = &committed {
            tracing::error!(%error, "a commit failed");
            // What state the connection is in nobody knows: a new one has no transaction.
            match database.connection().await {
                Ok(fresh) => connection = fresh,
                Err(error) => tracing::error!(%error, "the database cannot be opened again"),
            }
        }
        for write in batch.drain(..) {
            write.answer(match &committed {
                Ok(()) => Ok(()),
                Err(error) => Err(StoreError::Database(error.to_string())),
            });
        }
    }
    // A connection that is only dropped closes later, beside the readers' last one: then neither takes the log in.
    if let Err(error) = sqlx::Connection::close(connection).await {
        tracing::warn!(%error, "the writer's connection was not closed");
    }
}

async fn commit(
    connection: &mut AnyConnection,
    batch: &mut [Box<dyn ErasedWrite>],
    changes: &ChangeFeed,
) -> Result<(), StoreError> {
    connection.execute("BEGIN IMMEDIATE").await?;
    death_point::pass();
    let mut tx = WriteTx::new(connection, HubTime::now(), DatabaseKind::Sqlite);
    for write in batch {
        tx.connection.execute("SAVEPOINT one_write").await?;
        let mark = tx.changes_mark();
        let keep = write.run(&mut tx).await;
        death_point::pass();
        if !keep {
            tx.forget_changes(mark);
            tx.connection.execute("ROLLBACK TO one_write").await?;
        }
        tx.connection.execute("RELEASE one_write").await?;
    }
    let told = tx.into_changes();
    death_point::pass();
    connection.execute("COMMIT").await?;
    death_point::pass();
    told.tell(changes);
    Ok(())
}
