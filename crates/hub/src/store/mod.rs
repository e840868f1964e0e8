//! Everything the hub keeps, on SQLite or PostgreSQL, by the same queries.
//!
//! ```text
//!  write ──> SQLite: one task, many writes in one commit ─┐
//!        └─> PostgreSQL: a pool, a transaction each ──────┴─> answered after the commit ──> changes
//!  read  ──> a pool
//! ```
//!
//! One file an area; each write is a type of its own with everything it needs, run whole or not at all. Callers get
//! and give plain values: no type of the database library leaves this directory. Nothing here decides who may do what.

mod account_admin;
mod accounts;
mod audit;
mod audit_archive;
mod change;
mod connect;
mod documents;
mod drafts;
pub mod dump;
mod enrol;
mod envelopes;
mod error;
mod hash_check;
mod heartbeat;
mod hosts;
mod kept_bytes;
mod limits;
pub(crate) mod link_memory;
mod login_admin;
mod logins;
pub mod migrate;
mod reports;
mod text;
mod texts;
mod tidy;
mod timeline;
mod transact;
mod views;
mod whole_file;
mod writer;

use std::sync::Arc;

use sqlx::AnyPool;
use sqlx::any::AnyRow;
use sqlx::pool::PoolConnection;
use sqlx::{Any, Row as _};

pub use account_admin::{AccountActor, ListedAccount, ListedKey};
pub use accounts::{Account, AccountKey, NewAccount, PersonRole};
pub use audit::AuditLine;
pub use audit_archive::{ArchiveCheck, ArchiveLimits, ArchiveRound, archive_directory};
pub use change::{ChangeFeed, NumberedChange, StoreChange, Subscription};
pub use connect::{Database, DatabaseKind};
pub use documents::{DocumentRow, NewDocument, Pushed, StoredDocument};
pub use drafts::{DraftRow, NewDraft};
pub use dump::{StoreCheck, TableCount};
pub use enrol::NewHost;
pub use envelopes::{EnvelopeKind, NewEnvelope, QueuedEnvelope};
pub use error::StoreError;
pub use heartbeat::FLUSH_EVERY;
pub use hosts::{ChangedHost, HostRow, LinkRow};
pub use limits::*;
pub use login_admin::ListedLogin;
pub use logins::{AnsweredChallenge, CodeOutcome, OpenLogin};
pub use migrate::SCHEMA;
pub(crate) use reports::sealed_text;
pub use reports::{NewHead, NewReport};

pub use timeline::{AnchorRow, TimelineCursor, TimelineFilter, TimelineRow, TimelineSource};
pub use views::{EnvelopeRow, GuestRow, HistoryKind, HistoryRow, HostStateRow, PendingRow};
pub use whole_file::{RestoredFile, backup_file, restore_file};

use link_memory::LinkMemory;
use transact::{StoreWrite, Transactor};

/// A moment by the hub's own clock (on PostgreSQL the database's, which all replicas share), in milliseconds since 1970.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct HubTime(pub i64);

impl HubTime {
    /// Now, by this machine's clock.
    pub fn now() -> Self {
        Self(jiff::Timestamp::now().as_millisecond())
    }

    /// So many seconds later.
    #[must_use]
    pub fn plus_s(self, seconds: i64) -> Self {
        Self(self.0.saturating_add(seconds.saturating_mul(1000)))
    }

    /// As RFC 3339.
    pub fn to_text(self) -> String {
        jiff::Timestamp::from_millisecond(self.0)
            .map_or_else(|_| self.0.to_string(), |at| at.to_string())
    }
}

/// The hub's store. Cheap to clone.
#[derive(Clone)]
pub struct HubStore {
    inner: Arc<OpenStore>,
}

struct OpenStore {
    database: Database,
    hub_id: String,
    challenge_key: String,
    fresh: bool,
    readers: AnyPool,
    transactor: Transactor,
    changes: ChangeFeed,
    links: Arc<LinkMemory>,
    heartbeats: heartbeat::Heartbeats,
    login_uses: login_admin::LoginUses,
    /// Held as long as the store is open, so that nobody puts another file in its place.
    _lock: Option<whole_file::FileLock>,
}

impl HubStore {
    /// Opens the database, makes it if it is SQLite and not there, and brings it to this version's schema.
    pub async fn open(database: Database) -> Result<Self, StoreError> {
        let lock = whole_file::FileLock::shared(&database)?;
        let readers = database.readers().await?;
        let fresh = migrate::run(&database, migrate::STEPS).await?;
        let hub_id = read_meta(&readers, "hub_id").await?;
        let challenge_key = read_meta(&readers, "challenge_key").await?;
        let links = Arc::new(LinkMemory::default());
        let changes = ChangeFeed::new(links.clone());
        let transactor = Transactor::new(&database, &readers, changes.clone()).await?;
        let heartbeats = heartbeat::Heartbeats::default();
        let login_uses = login_admin::LoginUses::default();
        let inner = OpenStore {
            database,
            hub_id,
            challenge_key,
            fresh,
            readers,
            transactor,
            changes,
            links,
            heartbeats,
            login_uses,
            _lock: lock,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The name of this hub, drawn with its database.
    pub fn hub_id(&self) -> &str {
        &self.inner.hub_id
    }

    /// What challenges are made and known by, the same at every replica.
    pub(crate) fn challenge_key(&self) -> &str {
        &self.inner.challenge_key
    }

    /// Whether the database was made just now.
    pub fn is_fresh(&self) -> bool {
        self.inner.fresh
    }

    /// Which database it is.
    pub fn database(&self) -> &Database {
        &self.inner.database
    }

    /// What changed, as it is committed.
    pub fn changes(&self) -> &ChangeFeed {
        &self.inner.changes
    }

    /// The moment so many milliseconds ago by the clock that writes times: how a query says it, and what is bound as `$1`.
    fn since(&self, ms: i64) -> (&'static str, i64) {
        match self.database().kind() {
            DatabaseKind::Sqlite => ("$1", HubTime::now().0 - ms),
            DatabaseKind::Postgres => {
                ("CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT) - $1", ms)
            }
        }
    }

    /// What is remembered of hosts' links.
    pub(crate) fn links(&self) -> &LinkMemory {
        &self.inner.links
    }

    /// Whether the database answers.
    pub async fn answers(&self) -> Result<(), StoreError> {
        sqlx::query("SELECT 1").execute(&mut *self.reader().await?).await?;
        Ok(())
    }

    /// Ends the writer after what it was handed, and closes every connection.
    pub async fn close(&self) {
        if let Err(error) = self.flush_heartbeats().await {
            tracing::warn!(%error, "the last signs of life were not kept");
        }
        if let Err(error) = self.flush_login_uses().await {
            tracing::warn!(%error, "the last uses of logins were not kept");
        }
        self.inner.transactor.close().await;
        self.inner.readers.close().await;
    }

    /// Runs a write, and answers once it is committed.
    pub(in crate::store) async fn write<W: StoreWrite>(
        &self,
        write: W,
    ) -> Result<W::Out, StoreError> {
        self.inner.transactor.run(write).await
    }

    /// A page of a host's rows before a number, newest first: `$1` is the host, `$2` the number, `$3` how many.
    async fn page_before<T>(
        &self,
        query: impl sqlx::SqlSafeStr,
        (host, before, limit): (&str, i64, i64),
        read: fn(&AnyRow) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let query = sqlx::query(query).bind(host).bind(before).bind(limit);
        query.fetch_all(&mut *self.reader().await?).await?.iter().map(read).collect()
    }

    /// A connection to read from.
    pub(in crate::store) async fn reader(&self) -> Result<PoolConnection<Any>, StoreError> {
        Ok(self.inner.readers.acquire().await?)
    }
}

async fn read_meta(readers: &AnyPool, name: &str) -> Result<String, StoreError> {
    let query = sqlx::query("SELECT value FROM meta WHERE name = $1").bind(name);
    Ok(query.fetch_one(readers).await?.try_get(0)?)
}
