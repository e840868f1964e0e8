//! Which database, and connections to it with the settings everything else relies on.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::{AnyConnection, AnyPool};
use sqlx::{ConnectOptions as _, Executor as _};

use super::error::StoreError;

/// Connections that read from SQLite: reads are short, and more threads than cores help nobody.
const SQLITE_READERS: u32 = 4;
/// Connections to PostgreSQL of one replica; its default takes 100 of all clients.
const POSTGRES_CONNECTIONS: u32 = 16;
/// How long a request waits for a connection before it is told that the hub is busy.
const ACQUIRE_MAX: Duration = Duration::from_secs(5);

/// What every connection to SQLite is told. WAL lets readers go on while the one writer commits; FULL syncs the log at each
/// commit, so what was acknowledged survives a power loss; the time-out is for the other process (`hub account add`).
const SQLITE_SETTINGS: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA busy_timeout = 5000; \
    PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF; PRAGMA cache_size = -16000;";
/// What every connection to PostgreSQL is told. A transaction must end well within the ten seconds that replicas
/// overlap, or a change could become visible unseen.
const POSTGRES_SETTINGS: &str = "SET statement_timeout = '5s'; SET idle_in_transaction_session_timeout = '5s'; \
    SET lock_timeout = '4s'; SET synchronous_commit = on; SET TIME ZONE 'UTC'";

/// The two kinds of database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatabaseKind {
    /// One file; one hub.
    Sqlite,
    /// A server; any number of replicas.
    Postgres,
}

/// Where a hub keeps everything.
#[derive(Clone)]
pub struct Database {
    kind: DatabaseKind,
    /// May hold a password: it is shown nowhere.
    url: String,
    file: Option<PathBuf>,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database")
            .field("kind", &self.kind)
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

impl Database {
    /// A file of SQLite, made when it is opened.
    pub fn sqlite(file: &Path) -> Self {
        let escaped = percent_encoding::percent_encode(
            file.as_os_str().as_encoded_bytes(),
            percent_encoding::NON_ALPHANUMERIC,
        );
        let url = format!("sqlite://{escaped}?mode=rwc");
        Self { kind: DatabaseKind::Sqlite, url, file: Some(file.to_owned()) }
    }

    /// What stands after `--database`: `postgres://…` or `sqlite:FILE`.
    pub fn from_url(url: &str) -> Result<Self, StoreError> {
        if let Some(file) = url.strip_prefix("sqlite:") {
            return Ok(Self::sqlite(Path::new(file.strip_prefix("//").unwrap_or(file))));
        }
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            return Ok(Self { kind: DatabaseKind::Postgres, url: url.to_owned(), file: None });
        }
        let why = "the database is `sqlite:FILE` or `postgres://USER@HOST/NAME`";
        Err(StoreError::Url(why.to_owned()))
    }

    /// Which kind it is.
    pub fn kind(&self) -> DatabaseKind {
        self.kind
    }

    /// The file of SQLite.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    fn options(&self) -> Result<AnyConnectOptions, StoreError> {
        sqlx::any::install_default_drivers();
        let options = AnyConnectOptions::from_str(&self.url)
            .map_err(|_| StoreError::Url("the text after --database cannot be read".to_owned()))?;
        Ok(options.disable_statement_logging())
    }

    fn settings(&self) -> &'static str {
        match self.kind {
            DatabaseKind::Sqlite => SQLITE_SETTINGS,
            DatabaseKind::Postgres => POSTGRES_SETTINGS,
        }
    }

    /// The pool that is read from; on PostgreSQL written through, too.
    pub(super) async fn readers(&self) -> Result<AnyPool, StoreError> {
        let connections = match self.kind {
            DatabaseKind::Sqlite => SQLITE_READERS,
            DatabaseKind::Postgres => POSTGRES_CONNECTIONS,
        };
        let settings = self.settings();
        let options = AnyPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(ACQUIRE_MAX)
            .after_connect(move |connection, _| {
                Box::pin(async move {
                    connection.execute(settings).await?;
                    Ok(())
                })
            });
        Ok(options.connect_with(self.options()?).await?)
    }

    /// A connection that changes nothing: neither a row nor a setting of the file. Only of SQLite.
    /// `is_still` says that nobody else writes it meanwhile.
    pub(super) async fn read_only(&self, is_still: bool) -> Result<AnyConnection, StoreError> {
        if self.kind == DatabaseKind::Postgres {
            let why = "a hub on PostgreSQL is backed up with pg_dump";
            return Err(StoreError::Url(why.to_owned()));
        }
        let mode = if is_still { "?mode=ro&immutable=true" } else { "?mode=ro" };
        let url = self.url.replace("?mode=rwc", mode);
        Self { url, ..self.clone() }.plain().await
    }

    /// A connection with none of the settings.
    pub(super) async fn plain(&self) -> Result<AnyConnection, StoreError> {
        Ok(self.options()?.connect().await?)
    }

    /// A connection of its own: the writer of SQLite, and migrations.
    pub async fn connection(&self) -> Result<AnyConnection, StoreError> {
        let mut connection = self.options()?.connect().await?;
        connection.execute(self.settings()).await?;
        Ok(connection)
    }
}
