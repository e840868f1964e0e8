//! What people look at: hosts as they reported, their guests, ops, decisions, items and envelopes. Reads only.

use std::collections::BTreeMap;

use sqlx::Row as _;
use sqlx::any::AnyRow;

use super::{HubStore, HubTime, StoreError};

/// What a host said last, as it said it; empty texts where it said nothing yet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostStateRow {
    /// The document in effect, JSON.
    pub generation: String,
    /// The document it refused, JSON.
    pub refused: String,
    /// Its agent, JSON.
    pub agent: String,
    /// Its last pass, JSON.
    pub pass: String,
    /// Its guests by state, JSON.
    pub counts: String,
    /// Its own clock.
    pub host_time: String,
    /// When, in milliseconds by the hub's clock; 0 for never.
    pub reported_at: i64,
}

/// A guest as it was reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestRow {
    /// `lxc/101`.
    pub guest: String,
    /// Its own name.
    pub name: String,
    /// Its state.
    pub state: String,
    /// The rest, JSON.
    pub body: String,
    /// When.
    pub updated_at: HubTime,
}

/// An op or a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryRow {
    /// Its number within the host.
    pub serial: i64,
    /// As it was reported, JSON.
    pub body: String,
    /// When.
    pub received_at: HubTime,
}

/// Which history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistoryKind {
    /// What was done.
    Ops,
    /// What was decided.
    Decisions,
}

/// An item that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingRow {
    /// Where.
    pub host: String,
    /// Its name.
    pub id: String,
    /// The item as its host signed it, JSON.
    pub item: String,
    /// When it came.
    pub received_at: HubTime,
}

/// An envelope as people see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvelopeRow {
    /// `env_…`.
    pub id: String,
    /// For which host.
    pub host: String,
    /// Its serial within the host.
    pub cursor: i64,
    /// What it is.
    pub kind: String,
    /// The item it names.
    pub item: String,
    /// `waiting`, `judged` or `expired`.
    pub state: String,
    /// Who handed it in.
    pub submitted_by: String,
    /// When.
    pub submitted_at: HubTime,
    /// The host's verdict, JSON; empty while it waits.
    pub verdict: String,
}

impl HubStore {
    /// What every host said last. One read for a list of hosts.
    pub async fn host_states(&self) -> Result<BTreeMap<String, HostStateRow>, StoreError> {
        let rows = sqlx::query(
            "SELECT host, generation, refused, agent, pass, counts, host_time, reported_at FROM host_states",
        )
        .fetch_all(&mut *self.reader().await?)
        .await?;
        rows.iter().map(state_row).collect()
    }

    /// What one host said last.
    pub async fn host_state(&self, host: &str) -> Result<HostStateRow, StoreError> {
        let row = sqlx::query(
            "SELECT host, generation, refused, agent, pass, counts, host_time, reported_at FROM host_states \
             WHERE host = $1",
        )
        .bind(host)
        .fetch_optional(&mut *self.reader().await?)
        .await?;
        Ok(row.as_ref().map(state_row).transpose()?.map(|(_, state)| state).unwrap_or_default())
    }

    /// How many items wait, by host.
    pub async fn pending_counts(&self) -> Result<BTreeMap<String, i64>, StoreError> {
        let rows = sqlx::query("SELECT host, COUNT(*) FROM pending_items GROUP BY host")
            .fetch_all(&mut *self.reader().await?)
            .await?;
        rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
    }

    /// How many items wait at one host.
    pub async fn pending_count_of(&self, host: &str) -> Result<i64, StoreError> {
        let row = sqlx::query("SELECT COUNT(*) FROM pending_items WHERE host = $1")
            .bind(host)
            .fetch_one(&mut *self.reader().await?)
            .await?;
        Ok(row.try_get(0)?)
    }

    /// Guests of a host after an id, in the order of their ids.
    pub async fn guests_after(
        &self,
        host: &str,
        after: &str,
        limit: i64,
    ) -> Result<Vec<GuestRow>, StoreError> {
        let rows = sqlx::query(
            "SELECT guest, name, state, body, updated_at FROM guests WHERE host = $1 AND guest > $2 \
             ORDER BY guest LIMIT $3",
        )
        .bind(host)
        .bind(after)
        .bind(limit)
        .fetch_all(&mut *self.reader().await?)
        .await?;
        rows.iter().map(guest_row).collect()
    }

    /// One guest.
    pub async fn guest(&self, host: &str, guest: &str) -> Result<Option<GuestRow>, StoreError> {
        let row = sqlx::query(
            "SELECT guest, name, state, body, updated_at FROM guests WHERE host = $1 AND guest = $2",
        )
        .bind(host)
        .bind(guest)
        .fetch_optional(&mut *self.reader().await?)
        .await?;
        row.as_ref().map(guest_row).transpose()
    }

    /// Ops or decisions of a host before a number (all: `i64::MAX`), newest first.
    pub async fn history_before(
        &self,
        kind: HistoryKind,
        host: &str,
        before: i64,
        limit: i64,
    ) -> Result<Vec<HistoryRow>, StoreError> {
        let query = match kind {
            HistoryKind::Ops => {
                "SELECT serial, body, received_at FROM ops WHERE host = $1 AND serial < $2 \
                 ORDER BY serial DESC LIMIT $3"
            }
            HistoryKind::Decisions => {
                "SELECT serial, body, received_at FROM decisions WHERE host = $1 AND serial < $2 \
                 ORDER BY serial DESC LIMIT $3"
            }
        };
        self.page_before(query, (host, before, limit), history_row).await
    }

    /// Ops or decisions about one guest, newest first.
    pub async fn history_of_guest(
        &self,
        kind: HistoryKind,
        (host, guest): (&str, &str),
        limit: i64,
    ) -> Result<Vec<HistoryRow>, StoreError> {
        let query = match kind {
            HistoryKind::Ops => {
                "SELECT serial, body, received_at FROM ops WHERE host = $1 AND guest = $2 \
                 ORDER BY serial DESC LIMIT $3"
            }
            HistoryKind::Decisions => {
                "SELECT serial, body, received_at FROM decisions WHERE host = $1 AND guest = $2 \
                 ORDER BY serial DESC LIMIT $3"
            }
        };
        let rows = sqlx::query(query)
            .bind(host)
            .bind(guest)
            .bind(limit)
            .fetch_all(&mut *self.reader().await?)
            .await?;
        rows.iter().map(history_row).collect()
    }

    /// Items of a host after an id, in the order of their ids.
    pub async fn pending_after(
        &self,
        (host, id): (&str, &str),
        limit: i64,
    ) -> Result<Vec<PendingRow>, StoreError> {
        let rows = sqlx::query(
            "SELECT host, id, item, received_at FROM pending_items WHERE host = $1 AND id > $2 ORDER BY id LIMIT $3",
        )
        .bind(host)
        .bind(id)
        .bind(limit)
        .fetch_all(&mut *self.reader().await?)
        .await?;
        rows.iter().map(pending_row).collect()
    }

    /// Items of one host.
    pub async fn pending_of(&self, host: &str) -> Result<Vec<PendingRow>, StoreError> {
        let rows = sqlx::query(
            "SELECT host, id, item, received_at FROM pending_items WHERE host = $1 ORDER BY received_at, id",
        )
        .bind(host)
        .fetch_all(&mut *self.reader().await?)
        .await?;
        rows.iter().map(pending_row).collect()
    }

    /// Envelopes of a host before a cursor (all: `i64::MAX`), newest first.
    pub async fn envelopes_before(
        &self,
        host: &str,
        before: i64,
        limit: i64,
    ) -> Result<Vec<EnvelopeRow>, StoreError> {
        let query = format!(
            "SELECT {ENVELOPE_COLUMNS} FROM envelopes WHERE host = $1 AND cursor < $2 ORDER BY cursor DESC LIMIT $3"
        );
        let page = (host, before, limit);
        self.page_before(sqlx::AssertSqlSafe(query), page, envelope_row).await
    }

    /// Envelopes of all hosts, newest first.
    pub async fn newest_envelopes(&self, limit: i64) -> Result<Vec<EnvelopeRow>, StoreError> {
        let query = format!(
            "SELECT {ENVELOPE_COLUMNS} FROM envelopes ORDER BY submitted_at DESC, id LIMIT $1"
        );
        let rows = sqlx::query(sqlx::AssertSqlSafe(query))
            .bind(limit)
            .fetch_all(&mut *self.reader().await?)
            .await?;
        rows.iter().map(envelope_row).collect()
    }

    /// One envelope.
    pub async fn envelope(&self, id: &str) -> Result<Option<EnvelopeRow>, StoreError> {
        let query = format!("SELECT {ENVELOPE_COLUMNS} FROM envelopes WHERE id = $1");
        let row = sqlx::query(sqlx::AssertSqlSafe(query))
            .bind(id)
            .fetch_optional(&mut *self.reader().await?)
            .await?;
        row.as_ref().map(envelope_row).transpose()
    }
}

const ENVELOPE_COLUMNS: &str =
    "id, host, cursor, kind, item, state, submitted_by, submitted_at, verdict";

fn state_row(row: &AnyRow) -> Result<(String, HostStateRow), StoreError> {
    let state = HostStateRow {
        generation: row.try_get(1)?,
        refused: row.try_get(2)?,
        agent: row.try_get(3)?,
        pass: row.try_get(4)?,
        counts: row.try_get(5)?,
        host_time: row.try_get(6)?,
        reported_at: row.try_get(7)?,
    };
    Ok((row.try_get(0)?, state))
}

fn guest_row(row: &AnyRow) -> Result<GuestRow, StoreError> {
    Ok(GuestRow {
        guest: row.try_get(0)?,
        name: row.try_get(1)?,
        state: row.try_get(2)?,
        body: row.try_get(3)?,
        updated_at: HubTime(row.try_get(4)?),
    })
}

fn history_row(row: &AnyRow) -> Result<HistoryRow, StoreError> {
    Ok(HistoryRow {
        serial: row.try_get(0)?,
        body: row.try_get(1)?,
        received_at: HubTime(row.try_get(2)?),
    })
}

fn pending_row(row: &AnyRow) -> Result<PendingRow, StoreError> {
    Ok(PendingRow {
        host: row.try_get(0)?,
        id: row.try_get(1)?,
        item: row.try_get(2)?,
        received_at: HubTime(row.try_get(3)?),
    })
}

fn envelope_row(row: &AnyRow) -> Result<EnvelopeRow, StoreError> {
    Ok(EnvelopeRow {
        id: row.try_get(0)?,
        host: row.try_get(1)?,
        cursor: row.try_get(2)?,
        kind: row.try_get(3)?,
        item: row.try_get(4)?,
        state: row.try_get(5)?,
        submitted_by: row.try_get(6)?,
        submitted_at: HubTime(row.try_get(7)?),
        verdict: row.try_get(8)?,
    })
}
