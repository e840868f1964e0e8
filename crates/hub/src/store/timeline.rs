//! One timeline of what people did and what hosts did and decided, newest first, and how far each host's journal has come.
//! Reads only.

use serde::{Deserialize, Serialize};
use sqlx::any::{AnyArguments, AnyRow};
use sqlx::query::Query;
use sqlx::{Any, Row as _};

use super::connect::DatabaseKind;
use super::{HubStore, HubTime, StoreError};

/// Where a line comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimelineSource {
    /// What a person did at the hub.
    People,
    /// What a host did.
    Ops,
    /// What a host allowed or refused.
    Decisions,
}

/// A line of the timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimelineRow {
    /// Where it comes from.
    pub source: TimelineSource,
    /// When, by the hub's clock.
    pub at: HubTime,
    /// The host it is from; empty for what a person did.
    pub host: String,
    /// Its number within its source (and host).
    pub serial: i64,
    /// Who.
    pub who: String,
    /// What.
    pub act: String,
    /// To what: a host, an account, a guest.
    pub subject: String,
    /// The rest: words of a person's act, JSON as a host reported it.
    pub detail: String,
}

/// Where a reading goes on, for each source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimelineCursor {
    people: i64,
    ops: (i64, String, i64),
    decisions: (i64, String, i64),
}

impl Default for TimelineCursor {
    fn default() -> Self {
        let newest = (i64::MAX, String::new(), 0);
        Self { people: i64::MAX, ops: newest.clone(), decisions: newest }
    }
}

impl TimelineCursor {
    /// Goes behind a line.
    pub fn pass(&mut self, row: &TimelineRow) {
        let place = (row.at.0, row.host.clone(), row.serial);
        match row.source {
            TimelineSource::People => self.people = row.serial,
            TimelineSource::Ops => self.ops = place,
            TimelineSource::Decisions => self.decisions = place,
        }
    }
}

/// Which lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TimelineFilter {
    /// Only those of a host; all if empty.
    pub host: String,
    /// Only those that hold this text, in small letters; all if empty.
    pub text: String,
}

/// How far a host's journal has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnchorRow {
    /// Whose.
    pub host: String,
    /// Which journal: each acknowledged rollback begins another.
    pub epoch: i64,
    /// Its newest record.
    pub seq: i64,
    /// That record's sum.
    pub sum: String,
    /// When it was told.
    pub anchored_at: HubTime,
}

impl HubStore {
    /// Lines of one source behind a cursor, newest first.
    pub async fn timeline(
        &self,
        source: TimelineSource,
        cursor: &TimelineCursor,
        filter: &TimelineFilter,
        limit: i64,
    ) -> Result<Vec<TimelineRow>, StoreError> {
        match source {
            TimelineSource::People => self.people_lines(cursor.people, filter, limit).await,
            TimelineSource::Ops => {
                let columns = "host, serial, guest, body, received_at, kind FROM ops";
                self.host_lines(source, columns, &cursor.ops, filter, limit).await
            }
            TimelineSource::Decisions => {
                let columns = "host, serial, guest, body, received_at, code FROM decisions";
                self.host_lines(source, columns, &cursor.decisions, filter, limit).await
            }
        }
    }

    async fn people_lines(
        &self,
        before: i64,
        filter: &TimelineFilter,
        limit: i64,
    ) -> Result<Vec<TimelineRow>, StoreError> {
        let find =
            self.find_in("lower(who || ' ' || act || ' ' || subject || ' ' || detail)", "$3");
        let of_host = if filter.host.is_empty() { "$2 = ''" } else { "subject = $2" };
        let query = format!(
            "SELECT serial, at, who, act, subject, detail FROM audit WHERE serial < $1 \
             AND {of_host} AND ($3 = '' OR {find}) ORDER BY serial DESC LIMIT $4"
        );
        let query = sqlx::query(sqlx::AssertSqlSafe(query)).bind(before);
        let line = |row: &AnyRow| {
            Ok(TimelineRow {
                source: TimelineSource::People,
                serial: row.try_get(0)?,
                at: HubTime(row.try_get(1)?),
                host: String::new(),
                who: row.try_get(2)?,
                act: row.try_get(3)?,
                subject: row.try_get(4)?,
                detail: row.try_get(5)?,
            })
        };
        self.filtered(query, filter, limit).await?.iter().map(line).collect()
    }

    async fn host_lines(
        &self,
        source: TimelineSource,
        columns: &str,
        (at, host, serial): &(i64, String, i64),
        filter: &TimelineFilter,
        limit: i64,
    ) -> Result<Vec<TimelineRow>, StoreError> {
        let find = self.find_in("lower(host || ' ' || guest || ' ' || body)", "$5");
        let of_host = if filter.host.is_empty() { "$4 = ''" } else { "host = $4" };
        // The bound by itself lets both databases walk their index from there, and end after a page: an OR around it made them
        // read and sort everything.
        let query = format!(
            "SELECT {columns} WHERE received_at <= $1 AND (received_at < $1 OR host > $2 \
             OR (host = $2 AND serial < $3)) AND {of_host} \
             AND ($5 = '' OR {find}) ORDER BY received_at DESC, host, serial DESC LIMIT $6"
        );
        let query =
            sqlx::query(sqlx::AssertSqlSafe(query)).bind(*at).bind(host.as_str()).bind(*serial);
        let line = |row: &AnyRow| {
            let host: String = row.try_get(0)?;
            Ok(TimelineRow {
                source,
                serial: row.try_get(1)?,
                subject: row.try_get(2)?,
                detail: row.try_get(3)?,
                at: HubTime(row.try_get(4)?),
                act: row.try_get(5)?,
                who: format!("host {host}"),
                host,
            })
        };
        self.filtered(query, filter, limit).await?.iter().map(line).collect()
    }

    /// The lines that a query finds, whose last parameters are the filter and how many.
    async fn filtered(
        &self,
        query: Query<'_, Any, AnyArguments>,
        filter: &TimelineFilter,
        limit: i64,
    ) -> Result<Vec<AnyRow>, StoreError> {
        let query = query.bind(filter.host.as_str()).bind(filter.text.as_str()).bind(limit);
        Ok(query.fetch_all(&mut *self.reader().await?).await?)
    }

    /// Whether one text is in another, as the database says it.
    fn find_in(&self, text: &str, wanted: &str) -> String {
        match self.database().kind() {
            DatabaseKind::Sqlite => format!("instr({text}, {wanted}) > 0"),
            DatabaseKind::Postgres => format!("strpos({text}, {wanted}) > 0"),
        }
    }

    /// How far a host's journal has come.
    pub async fn anchor_row(&self, host: &str) -> Result<Option<AnchorRow>, StoreError> {
        let row =
            sqlx::query("SELECT host, epoch, seq, sum, anchored_at FROM anchors WHERE host = $1")
                .bind(host)
                .fetch_optional(&mut *self.reader().await?)
                .await?;
        row.as_ref().map(anchor_row).transpose()
    }

    /// Hosts whose journal is not their first: it was rolled back once, and somebody acknowledged it. Newest first.
    pub async fn anchors_rolled_back(&self, limit: i64) -> Result<Vec<AnchorRow>, StoreError> {
        let rows = sqlx::query(
            "SELECT host, epoch, seq, sum, anchored_at FROM anchors WHERE epoch > 1 \
             ORDER BY anchored_at DESC, host LIMIT $1",
        )
        .bind(limit)
        .fetch_all(&mut *self.reader().await?)
        .await?;
        rows.iter().map(anchor_row).collect()
    }
}

fn anchor_row(row: &AnyRow) -> Result<AnchorRow, StoreError> {
    Ok(AnchorRow {
        host: row.try_get(0)?,
        epoch: row.try_get(1)?,
        seq: row.try_get(2)?,
        sum: row.try_get(3)?,
        anchored_at: HubTime(row.try_get(4)?),
    })
}
