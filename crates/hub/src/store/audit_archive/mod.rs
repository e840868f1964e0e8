//! The archive of the audit: old lines leave the table for files that are only added to.
//!
//! ```text
//!  lock the row in `meta` ─> read on from where it says ─┬─ rows ahead of it: compare with the table ─┐
//!                                                        └─ none: add the oldest rows, sync ──────────┴─> delete, move the place, commit
//! ```
//!
//! Rows are on the disk before they are deleted, and the row in `meta` names the last line that is in the files and no more in the
//! table. Whoever dies in between leaves rows in both: they are known by their numbers, compared, and only deleted. One hub of
//! several does it at a time, and only one whose directory holds what was archived before.

mod files;
mod line;
mod verify;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sqlx::Row as _;

use super::audit::audit_line;
use super::connect::{Database, DatabaseKind};
use super::limits::{
    AUDIT_FILE_BYTES_MAX, AUDIT_KEPT_S, AUDIT_ROWS_MAX, AUDIT_ROWS_PER_ROUND, AUDIT_SETTLED_S,
    NUMBER_MAX,
};
use super::transact::{StoreWrite, WriteTx};
use super::{AuditLine, HubStore, StoreError};
use crate::death_point;
use files::{ChainEnd, NotOpened, OpenArchive};

pub use verify::ArchiveCheck;
pub(super) use verify::newest_row;

/// What stays in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArchiveLimits {
    /// How long.
    pub kept_s: i64,
    /// How many rows.
    pub rows_max: i64,
    /// How long at least, however many there are.
    pub settled_s: i64,
    /// Rows that one round moves: it shares the writer with everybody.
    pub round_rows: i64,
    /// A file of the archive that has reached this size gets no more lines.
    pub file_bytes: u64,
}

impl Default for ArchiveLimits {
    fn default() -> Self {
        Self {
            kept_s: AUDIT_KEPT_S,
            rows_max: AUDIT_ROWS_MAX,
            settled_s: AUDIT_SETTLED_S,
            round_rows: AUDIT_ROWS_PER_ROUND,
            file_bytes: AUDIT_FILE_BYTES_MAX,
        }
    }
}

/// What came of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArchiveRound {
    /// So many rows left the table; none if nothing was due.
    Moved(u64),
    /// Another hub is at it.
    Busy,
    /// What was archived before is not in this directory.
    Elsewhere,
}

/// Where the audit of a hub is archived: beside an SQLite file, unless a directory is named. A hub on PostgreSQL has none by itself: its
/// replicas' own disks may not outlive them.
pub fn archive_directory(database: &Database, named: Option<&Path>) -> Option<PathBuf> {
    let beside = || database.file().map(|file| file.with_file_name("audit"));
    named.map(Path::to_owned).or_else(beside)
}

/// The value in `meta`: the last row that is in the files and no more in the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ArchivePlace {
    file: u32,
    serial: i64,
    sum: String,
    lines: u64,
    /// The oldest row that stayed; 0 if none did.
    next: i64,
}

impl ArchivePlace {
    /// Reads the value; empty is an archive that nothing was put into.
    fn read(text: &str) -> Result<Option<Self>, StoreError> {
        if text.is_empty() {
            return Ok(None);
        }
        let unreadable = |_| StoreError::Damaged(format!("`{text}` as the place of its archive"));
        serde_json::from_str(text).map(Some).map_err(unreadable)
    }

    fn end(place: Option<&Self>) -> ChainEnd {
        place.map_or_else(
            || ChainEnd::start(0),
            |Self { file, serial, sum, lines, next: _ }| ChainEnd {
                file: *file,
                serial: *serial,
                sum: sum.clone(),
                lines: *lines,
            },
        )
    }
}

impl HubStore {
    /// Moves some of the oldest rows, if they are due.
    pub async fn archive_audit(
        &self,
        directory: &Path,
        limits: ArchiveLimits,
    ) -> Result<ArchiveRound, StoreError> {
        if !self.archive_may_be_due(limits).await? {
            return Ok(ArchiveRound::Moved(0));
        }
        let directory = directory.to_owned();
        let hub_id = self.hub_id().to_owned();
        self.write(ArchiveRows { directory, hub_id, limits }).await
    }

    /// Whether it is worth a write: the oldest row is old, or there may be too many.
    async fn archive_may_be_due(&self, limits: ArchiveLimits) -> Result<bool, StoreError> {
        let (since, bound) = self.since(limits.kept_s.saturating_mul(1000));
        let query = format!(
            "SELECT serial, CAST(CASE WHEN at < {since} THEN 1 ELSE 0 END AS BIGINT), \
             (SELECT MAX(serial) FROM audit) \
             FROM audit ORDER BY serial LIMIT 1"
        );
        let query = sqlx::query(sqlx::AssertSqlSafe(query)).bind(bound);
        let Some(row) = query.fetch_optional(&mut *self.reader().await?).await? else {
            return Ok(false);
        };
        let [oldest, is_old, newest]: [i64; 3] =
            [row.try_get(0)?, row.try_get(1)?, row.try_get(2)?];
        Ok(is_old == 1 || newest - oldest >= limits.rows_max)
    }

    /// Begins a new archive in a directory without one: the old one is lost, or was put aside because it does not fit.
    pub async fn begin_archive(&self, directory: &Path, who: &str) -> Result<(), StoreError> {
        if !files::list(directory)?.is_empty() {
            let why = "there is an archive in it: put its files aside first, and keep them";
            return Err(StoreError::Archive(format!("{}: {why}", directory.display())));
        }
        self.write(BeginArchive { who: who.to_owned() }).await
    }

    /// New rows get numbers that no archived row has, also after a backup was put back that is older than the archive.
    pub async fn pass_archived_rows(&self, directory: &Path) -> Result<(), StoreError> {
        match newest_row(directory, self.hub_id())? {
            Some(serial) => self.write(PassRows { serial }).await,
            None => Ok(()),
        }
    }
}

/// One round.
struct ArchiveRows {
    directory: PathBuf,
    hub_id: String,
    limits: ArchiveLimits,
}

impl StoreWrite for ArchiveRows {
    type Out = ArchiveRound;

    async fn run(&self, tx: &mut WriteTx<'_>) -> Result<ArchiveRound, StoreError> {
        let query = format!(
            "SELECT value FROM meta WHERE name = 'audit_archive'{}",
            tx.for_update_if_free()
        );
        let row = sqlx::query(sqlx::AssertSqlSafe(query)).fetch_optional(&mut *tx.connection);
        let Some(row) = row.await? else { return Ok(ArchiveRound::Busy) };
        let known = ArchivePlace::end(ArchivePlace::read(row.try_get(0)?)?.as_ref());
        let due = tx.rows_due(&known, self.limits).await?;
        death_point::pass();
        let directory = self.directory.clone();
        let hub_id = self.hub_id.clone();
        let from = known.clone();
        let opened = blocking(move || OpenArchive::open(&directory, &hub_id, &from)).await?;
        let mut archive = match opened {
            Ok(archive) => archive,
            Err(NotOpened::Busy) => return Ok(ArchiveRound::Busy),
            Err(NotOpened::Elsewhere) => return Ok(ArchiveRound::Elsewhere),
            Err(NotOpened::Failed(error)) => return Err(error),
        };
        let moved = if archive.ahead.is_empty() {
            if due.is_empty() {
                return Ok(ArchiveRound::Moved(0));
            }
            let rows = due.len() as u64;
            let full_at = self.limits.file_bytes;
            archive = blocking(move || archive.append(&due, full_at).map(|()| archive)).await??;
            rows
        } else {
            tx.pass_rows(archive.end.serial).await?;
            tx.rows_known_to(&archive, &known).await?
        };
        death_point::pass();
        tx.leave_to(&archive, &known, moved).await?;
        Ok(ArchiveRound::Moved(moved))
    }
}

/// Files are written where that may take a while.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, StoreError> {
    let ended = |error| StoreError::Archive(format!("the archive could not be written: {error}"));
    tokio::task::spawn_blocking(work).await.map_err(ended)
}

const COLUMNS: &str = "SELECT serial, at, who, act, subject, detail FROM audit";

impl WriteTx<'_> {
    /// The oldest rows, as far as they are to go. They go by their numbers: one that stays keeps everything after it.
    async fn rows_due(
        &mut self,
        known: &ChainEnd,
        limits: ArchiveLimits,
    ) -> Result<Vec<AuditLine>, StoreError> {
        let excess = sqlx::query("SELECT serial FROM audit ORDER BY serial DESC LIMIT 1 OFFSET $1")
            .bind(limits.rows_max)
            .fetch_optional(&mut *self.connection)
            .await?;
        let excess: i64 = excess.map_or(Ok(0), |row| row.try_get(0))?;
        let old = self.now.plus_s(-limits.kept_s);
        let settled = self.now.plus_s(-limits.settled_s);
        let query = sqlx::AssertSqlSafe(format!("{COLUMNS} ORDER BY serial LIMIT $1"));
        let rows =
            sqlx::query(query).bind(limits.round_rows).fetch_all(&mut *self.connection).await?;
        let mut due = Vec::new();
        for row in &rows {
            let row = audit_line(row)?;
            if row.at >= settled || (row.at >= old && row.serial > excess) {
                break;
            }
            if row.serial <= known.serial {
                return Err(not_archived(row.serial));
            }
            due.push(row);
        }
        Ok(due)
    }

    /// How many rows of the table the archive holds already. Each of them must be as it is there.
    async fn rows_known_to(
        &mut self,
        archive: &OpenArchive,
        known: &ChainEnd,
    ) -> Result<u64, StoreError> {
        let ahead: BTreeMap<i64, &AuditLine> =
            archive.ahead.iter().map(|row| (row.serial, row)).collect();
        let query = format!("{COLUMNS} WHERE serial > $1 AND serial <= $2");
        let query = sqlx::query(sqlx::AssertSqlSafe(query));
        let rows = query.bind(known.serial).bind(archive.end.serial);
        let rows = rows.fetch_all(&mut *self.connection).await?;
        for row in &rows {
            let row = audit_line(row)?;
            if ahead.get(&row.serial) != Some(&&row) {
                return Err(not_archived(row.serial));
            }
        }
        Ok(rows.len() as u64)
    }

    /// Deletes what the archive holds, and moves the place that the database knows.
    async fn leave_to(
        &mut self,
        archive: &OpenArchive,
        known: &ChainEnd,
        moved: u64,
    ) -> Result<(), StoreError> {
        let ChainEnd { file, serial, sum, lines } = &archive.end;
        let deleted = sqlx::query("DELETE FROM audit WHERE serial > $1 AND serial <= $2")
            .bind(known.serial)
            .bind(*serial)
            .execute(&mut *self.connection)
            .await?;
        death_point::pass();
        if deleted.rows_affected() != moved {
            let why =
                "a line of the audit appeared while older ones were archived; nothing was deleted";
            return Err(StoreError::Archive(why.to_owned()));
        }
        let oldest = sqlx::query("SELECT COALESCE(MIN(serial), 0) FROM audit WHERE serial > $1")
            .bind(*serial)
            .fetch_one(&mut *self.connection)
            .await?;
        let file = *file;
        let serial = *serial;
        let sum = sum.clone();
        let lines = *lines;
        let place = ArchivePlace { file, serial, sum, lines, next: oldest.try_get(0)? };
        self.keep_place(&place).await?;
        death_point::pass();
        Ok(())
    }

    async fn keep_place(&mut self, place: &ArchivePlace) -> Result<(), StoreError> {
        sqlx::query("UPDATE meta SET value = $1 WHERE name = 'audit_archive'")
            .bind(serde_json::to_string(place).expect("a place is JSON"))
            .execute(&mut *self.connection)
            .await?;
        Ok(())
    }

    /// The next row gets a higher number than this.
    async fn pass_rows(&mut self, serial: i64) -> Result<(), StoreError> {
        if serial > NUMBER_MAX {
            let why = "the archive of the audit holds a number that no row can have";
            return Err(StoreError::Archive(why.to_owned()));
        }
        let queries: &[&'static str] = match self.kind() {
            DatabaseKind::Sqlite => &[
                "INSERT INTO sqlite_sequence (name, seq) SELECT 'audit', 0 WHERE $1 > 0 \
                 AND NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'audit')",
                "UPDATE sqlite_sequence SET seq = $1 WHERE name = 'audit' AND seq < $1",
            ],
            DatabaseKind::Postgres => {
                &["SELECT setval(pg_get_serial_sequence('audit', 'serial'), $1) \
                 FROM audit_serial_seq WHERE last_value < $1"]
            }
        };
        for query in queries {
            sqlx::query(*query).bind(serial).execute(&mut *self.connection).await?;
        }
        Ok(())
    }
}

fn not_archived(serial: i64) -> StoreError {
    let why = "in the table is not the one that the archive holds; nothing is archived until that is looked into";
    StoreError::Archive(format!("line {serial} of the audit {why}"))
}

struct PassRows {
    serial: i64,
}

impl StoreWrite for PassRows {
    type Out = ();

    async fn run(&self, tx: &mut WriteTx<'_>) -> Result<(), StoreError> {
        tx.pass_rows(self.serial).await
    }
}

struct BeginArchive {
    who: String,
}

impl StoreWrite for BeginArchive {
    type Out = ();

    async fn run(&self, tx: &mut WriteTx<'_>) -> Result<(), StoreError> {
        // Written first, so that there is a row to begin with.
        tx.audit(&self.who, "audit.begin_archive", "hub", "a new archive of the audit begins")
            .await?;
        let row =
            sqlx::query("SELECT MIN(serial) FROM audit").fetch_one(&mut *tx.connection).await?;
        let next: i64 = row.try_get(0)?;
        let ChainEnd { file, serial, sum, lines } = ChainEnd::start(next - 1);
        tx.keep_place(&ArchivePlace { file, serial, sum, lines, next }).await
    }
}
