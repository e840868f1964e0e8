//! The SQLite file as a whole, from outside of a store: copied as it is, and put back.
//!
//! ```text
//!  FILE ─copied─> hub.sqlite.restoring ─checked, logins ended, synced─> renamed to hub.sqlite
//!                                             the old one ─kept─> hub.sqlite.replaced-…
//! ```
//!
//! A copy changes nothing in the original, not even its schema: that is what makes it the way back from a newer version. What is
//! put back is checked before anything of the old file is touched, and never beside a hub that is open on it: a hub holds a lock for
//! as long as it is. The write-ahead log of the old file goes first: SQLite would play it into the new one.

use std::path::{Path, PathBuf};

use fs_err as fs;
use fs_err::os::unix::fs::OpenOptionsExt as _;
use rustix::fs::{FlockOperation, flock};
use sqlx::{AnyConnection, Connection as _, Executor as _, Row as _};
use std::os::unix::fs::PermissionsExt as _;

use super::audit_archive::newest_row;
use super::connect::{Database, DatabaseKind};
use super::migrate::{SCHEMA, schema_of};
use super::{HubStore, HubTime, StoreError};

/// Held by every process that is open on the file: shared by hubs and verbs, alone by one that puts a file back.
pub(super) struct FileLock {
    _file: std::fs::File,
}

/// What a file is that was put back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoredFile {
    /// The hub it is of.
    pub hub_id: String,
    /// Its schema; the next start brings it forward.
    pub schema: i64,
    /// Where the file is now that was there before.
    pub replaced: Option<PathBuf>,
}

fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

impl FileLock {
    /// Waits for nobody: whoever finds it taken is told why.
    fn take(file: &Path, operation: FlockOperation, why: &str) -> Result<Self, StoreError> {
        let path = beside(file, "-lock");
        // To be locked it must be read alone, so that root may have made it before the hub's own user comes.
        let file = match std::fs::File::open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let made = fs::OpenOptions::new().append(true).create(true).open(&path)?;
                made.set_permissions(std::fs::Permissions::from_mode(0o644))?;
                std::fs::File::open(&path)?
            }
            opened => opened?,
        };
        match flock(&file, operation) {
            Ok(()) => Ok(Self { _file: file }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(StoreError::InUse(why.to_owned())),
            Err(error) => Err(std::io::Error::from(error).into()),
        }
    }

    /// As a hub or a verb that opens the file.
    pub(super) fn shared(database: &Database) -> Result<Option<Self>, StoreError> {
        let operation = FlockOperation::NonBlockingLockShared;
        let why = "the database is being put back from a backup at this moment";
        database.file().map(|file| Self::take(file, operation, why)).transpose()
    }
}

/// Copies a database to a file that does not exist yet, whoever is open on it. The original stays as it is.
pub async fn backup_file(database: &Database, to: &Path) -> Result<(), StoreError> {
    let Some(path) = to.to_str() else {
        return Err(StoreError::Url("the file's name is not UTF-8".to_owned()));
    };
    // Where nobody is open on it and there is no log, SQLite is told that nothing changes: it would leave an empty log behind.
    let file = database.file();
    let alone = file
        .and_then(|file| FileLock::take(file, FlockOperation::NonBlockingLockExclusive, "").ok());
    let is_still = alone.is_some() && file.is_some_and(|file| !beside(file, "-wal").exists());
    let mut reading = database.read_only(is_still).await?;
    // Made here, for its mode: it holds everything but secrets.
    fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
    let copied = sqlx::query("VACUUM INTO $1").bind(path).execute(&mut reading).await;
    // Waited for: were it the last to go, it could not take the log of a hub that ends meanwhile into the file.
    let closed = reading.close().await;
    if let Err(error) = copied.and(closed) {
        let _ = fs::remove_file(to);
        return Err(error.into());
    }
    sync(to)
}

/// Syncs a file and its name.
fn sync(file: &Path) -> Result<(), StoreError> {
    fs::File::open(file)?.sync_all()?;
    let directory = file.parent().filter(|directory| !directory.as_os_str().is_empty());
    fs::File::open(directory.unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(())
}

/// Puts a backup in the place of a database that no hub is open on.
/// The audit goes on above what is archived in a directory.
pub async fn restore_file(
    database: &Database,
    from: &Path,
    archive: Option<&Path>,
) -> Result<RestoredFile, StoreError> {
    let Some(file) = database.file().filter(|_| database.kind() == DatabaseKind::Sqlite) else {
        let why = "a hub on PostgreSQL is restored with pg_restore";
        return Err(StoreError::Url(why.to_owned()));
    };
    if beside(from, "-wal").metadata().is_ok_and(|wal| wal.len() > 0) {
        let why = "has a write-ahead log beside it: it is no backup that `hub backup` made, and not whole without it";
        return Err(StoreError::Damaged(format!("{} {why}", from.display())));
    }
    let why = "a hub is running on this database";
    let _alone = FileLock::take(file, FlockOperation::NonBlockingLockExclusive, why)?;
    is_alone(file).await?;
    let new = beside(file, ".restoring");
    let _ = fs::remove_file(&new);
    let put_back = put_back(file, from, &new, archive).await;
    if put_back.is_err() {
        for rest in ["", "-journal", "-wal", "-shm"] {
            let _ = fs::remove_file(beside(&new, rest));
        }
    }
    put_back
}

async fn put_back(
    file: &Path,
    from: &Path,
    new: &Path,
    archive: Option<&Path>,
) -> Result<RestoredFile, StoreError> {
    let mut copy = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(new)?;
    std::io::copy(&mut fs::File::open(from)?, &mut copy)?;
    copy.sync_all()?;
    let (hub_id, schema) = checked(new).await?;
    let archived = archive.map(|archive| newest_row(archive, &hub_id)).transpose()?.flatten();
    end_logins(new, archived.unwrap_or_default()).await?;
    sync(new)?;
    let mut replaced = None;
    if file.exists() {
        let kept = beside(file, &format!(".replaced-{}", HubTime::now().0));
        fs::hard_link(file, &kept)?;
        if beside(file, "-wal").exists() {
            fs::rename(beside(file, "-wal"), beside(&kept, "-wal"))?;
        }
        replaced = Some(kept);
    }
    for log in ["-wal", "-shm", "-journal"] {
        match fs::remove_file(beside(file, log)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            Ok(()) | Err(_) => {}
        }
    }
    sync(new)?;
    fs::rename(new, file)?;
    sync(file)?;
    Ok(RestoredFile { hub_id, schema, replaced })
}

/// Whether nobody else is open on a database, also a hub of a version that holds no lock. One that cannot be read is no obstacle: it
/// is being replaced for that.
async fn is_alone(file: &Path) -> Result<(), StoreError> {
    if !file.exists() {
        return Ok(());
    }
    let Ok(mut connection) = Database::sqlite(file).plain().await else { return Ok(()) };
    let taken = connection
        .execute(
            "PRAGMA busy_timeout = 0; PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; ROLLBACK",
        )
        .await;
    let is_locked = taken.as_ref().is_err_and(|error| error.to_string().contains("locked"));
    let _ = connection.close().await;
    if is_locked {
        return Err(StoreError::InUse("something is open on this database".to_owned()));
    }
    Ok(())
}

/// A backup that is sound and that this version can read: its hub and its schema.
async fn checked(file: &Path) -> Result<(String, i64), StoreError> {
    let mut connection = Database::sqlite(file).read_only(true).await?;
    let no_hub = |_| StoreError::Damaged("no database of a hub".to_owned());
    for row in connection.fetch_all("PRAGMA integrity_check").await.map_err(no_hub)? {
        let said: String = row.try_get(0)?;
        if said != "ok" {
            return Err(StoreError::Damaged(format!("what is not whole: {said}")));
        }
    }
    let row = connection.fetch_one("SELECT value FROM meta WHERE name = 'hub_id'").await;
    let hub_id: String = row.map_err(no_hub)?.try_get(0)?;
    let found = schema_of(&mut connection).await?;
    if found > SCHEMA {
        return Err(StoreError::Newer { found, known: SCHEMA });
    }
    connection.close().await?;
    Ok((hub_id, found))
}

/// What was handed out and ended since the backup must not be good again: everybody logs in once more, tokens to enrol with are
/// made anew.
async fn end_logins(file: &Path, archived: i64) -> Result<(), StoreError> {
    let mut connection: AnyConnection = Database::sqlite(file).plain().await?;
    connection.execute("PRAGMA foreign_keys = ON").await?;
    // Each of them is there in some schema, and children come before their parents.
    for table in [
        "sessions",
        "console_codes",
        "one_time_codes",
        "first_admin_codes",
        "api_tokens",
        "enrol_tokens",
    ] {
        let found =
            sqlx::query("SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = $1")
                .bind(table)
                .fetch_one(&mut connection)
                .await?;
        if found.try_get::<i64, _>(0)? > 0 {
            connection.execute(sqlx::AssertSqlSafe(format!("DELETE FROM {table}"))).await?;
        }
    }
    // The archive may be newer than the backup: a number that it has is no other line's.
    sqlx::query("UPDATE sqlite_sequence SET seq = $1 WHERE name = 'audit' AND seq < $1")
        .bind(archived)
        .execute(&mut connection)
        .await?;
    sqlx::query("INSERT INTO audit (at, who, act, subject, detail) VALUES ($1, 'server', 'hub.restore', 'hub', $2)")
        .bind(HubTime::now().0)
        .bind("put back from a backup; every login and enrolment token ended")
        .execute(&mut connection)
        .await?;
    connection.close().await?;
    Ok(())
}

impl HubStore {
    /// Copies the database to a file that does not exist yet, while the hub runs.
    pub async fn backup(&self, to: &Path) -> Result<(), StoreError> {
        backup_file(self.database(), to).await
    }
}
