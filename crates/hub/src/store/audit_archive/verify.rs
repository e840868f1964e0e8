//! Looks through an archive: its chain, and that the table goes on where it ends. Changes nothing, also beside a running hub.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use sqlx::Row as _;

use super::files::{self, ChainEnd, fault_text, file_name};
use super::{ArchivePlace, COLUMNS};
use crate::store::audit::audit_line;
use crate::store::{AuditLine, HubStore, StoreError};

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ArchiveCheck {
    /// Where.
    pub directory: PathBuf,
    /// Files that are there.
    pub files: usize,
    /// Rows in them.
    pub lines: u64,
    /// The first row in them; 0 if there is none.
    pub first: i64,
    /// The last row in them; 0 if there is none.
    pub last: i64,
    /// Rows of files that were moved away.
    pub moved_away: u64,
    /// Rows that are in the table still; the next round deletes them there.
    pub in_both: u64,
    /// Rows of the table.
    pub table_rows: u64,
    /// What is wrong, in sentences; nothing if all is well.
    pub faults: Vec<String>,
}

/// Rows that were read, and where their chain stands.
struct ReadChain {
    end: ChainEnd,
    /// Whether the line that the database knows was there.
    is_known: bool,
    /// What comes after that line.
    ahead: BTreeMap<i64, AuditLine>,
}

impl HubStore {
    /// Checks everything in a directory against itself and against the table.
    pub async fn verify_audit(&self, directory: &Path) -> Result<ArchiveCheck, StoreError> {
        // The place is read first: whatever it names is in the files by then, also while rows go on being archived.
        let place = self.archive_place().await?;
        let mut check = ArchiveCheck {
            directory: directory.to_owned(),
            files: 0,
            lines: 0,
            first: 0,
            last: 0,
            moved_away: 0,
            in_both: 0,
            table_rows: 0,
            faults: Vec::new(),
        };
        let chain = check.read_files(self.hub_id(), place.as_ref())?;
        self.join(&mut check, place.as_ref(), &chain).await?;
        Ok(check)
    }

    /// The newest lines of the table and of a directory's files, newest first.
    pub async fn newest_audit(
        &self,
        directory: Option<&Path>,
        count: usize,
    ) -> Result<Vec<AuditLine>, StoreError> {
        let most = i64::try_from(count).unwrap_or(i64::MAX);
        let page = self.audit_page(None, i64::MAX, most).await?;
        // A line may be in both, and after a restore the archive may have lines between those of the table.
        let mut lines: BTreeMap<i64, AuditLine> =
            page.into_iter().map(|row| (row.serial, row)).collect();
        let found = directory.map(files::list).transpose()?.unwrap_or_default();
        let mut newest_left = i64::MAX;
        for (number, path) in found.iter().rev() {
            let last_wanted = count.checked_sub(1).and_then(|last| lines.keys().rev().nth(last));
            if count == 0 || last_wanted.is_some_and(|serial| *serial > newest_left) {
                break;
            }
            let read = files::read(path, *number, self.hub_id(), None)?;
            let file = read.map_err(|fault| files::damaged(path, &fault))?;
            newest_left = file.header.after;
            for (row, _) in file.rows {
                lines.entry(row.serial).or_insert(row);
            }
        }
        Ok(lines.into_values().rev().take(count).collect())
    }

    /// How many rows were archived.
    pub(in crate::store) async fn archived_rows(&self) -> Result<u64, StoreError> {
        Ok(self.archive_place().await?.map_or(0, |place| place.lines))
    }

    async fn archive_place(&self) -> Result<Option<ArchivePlace>, StoreError> {
        let query = sqlx::query("SELECT value FROM meta WHERE name = 'audit_archive'");
        let row = query.fetch_one(&mut *self.reader().await?).await?;
        ArchivePlace::read(row.try_get(0)?)
    }

    /// The table goes on where the archive ends.
    async fn join(
        &self,
        check: &mut ArchiveCheck,
        place: Option<&ArchivePlace>,
        chain: &ReadChain,
    ) -> Result<(), StoreError> {
        let known = place.map_or(0, |place| place.serial);
        let mut reader = self.reader().await?;
        let query = format!("{COLUMNS} WHERE serial <= $1 ORDER BY serial");
        let query = sqlx::query(sqlx::AssertSqlSafe(query)).bind(known.max(chain.end.serial));
        for row in query.fetch_all(&mut *reader).await? {
            let row = audit_line(&row)?;
            if chain.ahead.get(&row.serial) == Some(&row) {
                check.in_both += 1;
            } else {
                let why =
                    "of the table is older than the end of the archive, and not as it is there";
                check.faults.push(format!("row {} {why}", row.serial));
            }
        }
        let query =
            sqlx::query("SELECT COUNT(*), COALESCE(MIN(serial), 0) FROM audit WHERE serial > $1");
        let row = query.bind(known).fetch_one(&mut *reader).await?;
        check.table_rows = row.try_get::<i64, _>(0)?.unsigned_abs();
        let oldest: i64 = row.try_get(1)?;
        let Some(place) = place else { return Ok(()) };
        // Since the place was read, rows may have gone: then the archive has them.
        let went_since = self.archive_place().await?.as_ref() != Some(place);
        if place.next != 0 && oldest != place.next && !went_since {
            check.faults.push(format!(
                "rows are missing between the archive and the table: after row {} came row {}, and the table begins with {}",
                place.serial,
                place.next,
                if oldest == 0 { "none".to_owned() } else { format!("row {oldest}") },
            ));
        }
        Ok(())
    }
}

impl ArchiveCheck {
    /// Follows the chain from the first file that is there.
    fn read_files(
        &mut self,
        hub_id: &str,
        place: Option<&ArchivePlace>,
    ) -> Result<ReadChain, StoreError> {
        let found = files::list(&self.directory)?;
        self.files = found.len();
        let newest = found.keys().last().copied().unwrap_or_default();
        let mut chain = ReadChain {
            end: ChainEnd::start(0),
            is_known: place.is_none_or(|place| place.file == 0),
            ahead: BTreeMap::new(),
        };
        let mut before: Option<ChainEnd> = None;
        for (number, path) in &found {
            if let Some(missing) =
                before.as_ref().map(|end| end.file + 1).filter(|next| next < number)
            {
                self.faults.push(format!(
                    "{}: it is missing between others",
                    self.directory.join(file_name(missing)).display()
                ));
                return Ok(chain);
            }
            let file = match files::read(path, *number, hub_id, before.as_ref())? {
                Ok(file) => file,
                Err(fault) => {
                    self.faults.push(fault_text(path, &fault));
                    return Ok(chain);
                }
            };
            if before.is_none() {
                self.moved_away = file.header.lines;
                self.first = file.rows.first().map_or(0, |(row, _)| row.serial);
            }
            self.lines += file.rows.len() as u64;
            self.last = file.end.serial;
            chain.take(file.rows, place);
            chain.end = file.end.clone();
            if let Some(fault) = &file.fault
                && !(*number == newest && chain.is_known)
            {
                self.faults.push(fault_text(path, fault));
                return Ok(chain);
            }
            before = Some(file.end);
        }
        if !chain.is_known {
            let place = place.map_or(0, |place| place.serial);
            self.faults.push(format!(
                "{}: row {place} was archived and is not there",
                self.directory.display()
            ));
        }
        Ok(chain)
    }
}

impl ReadChain {
    fn take(&mut self, rows: Vec<(AuditLine, String)>, place: Option<&ArchivePlace>) {
        for (row, sum) in rows {
            if self.is_known {
                self.ahead.insert(row.serial, row);
            } else {
                self.is_known =
                    place.is_some_and(|place| place.serial == row.serial && place.sum == sum);
            }
        }
    }
}

/// The last row of an archive, as far as its newest file can be read.
pub(in crate::store) fn newest_row(
    directory: &Path,
    hub_id: &str,
) -> Result<Option<i64>, StoreError> {
    let found = files::list(directory)?;
    let Some((number, path)) = found.last_key_value() else { return Ok(None) };
    let read = files::read(path, *number, hub_id, None)?;
    Ok(read.ok().map(|file| file.end.serial))
}
