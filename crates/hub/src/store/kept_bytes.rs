//! How many bytes a host may have here, and what is kept of what is too large.
//!
//! Bytes are counted up as they come, what a row held before not taken off: the sum is never too small. Only when it is over its
//! bound the rows are counted; that is rare, and what it costs is bounded by the bound itself.

use evenkeel_core::fleet::GuestReport;
use serde::Serialize;
use sqlx::Row as _;

use super::StoreError;
use super::limits::{GUEST_BYTES_MAX, GUESTS_BYTES_PER_HOST_MAX, HISTORY_BYTES_PER_HOST_MAX};
use super::text::plain;
use super::transact::WriteTx;

/// The longest name of anything in a report that has a column of its own.
pub(super) const NAME_BYTES_MAX: usize = 200;
/// The largest op, decision or verdict kept.
const ENTRY_BYTES_MAX: usize = 16 * 1024;

/// Bytes of a host, at least as many as there are.
pub(super) struct KeptBytes {
    /// Of ops and decisions.
    pub(super) history: i64,
    /// Of guests.
    pub(super) guests: i64,
}

impl KeptBytes {
    /// What is kept of a guest: all of it, or its names where all guests together are too large.
    pub(super) async fn guest_text(
        &mut self,
        tx: &mut WriteTx<'_>,
        host: &str,
        guest: &GuestReport,
    ) -> Result<String, StoreError> {
        let text = guest_text(guest);
        if self.guests + length(&text) > GUESTS_BYTES_PER_HOST_MAX {
            self.guests = counted(tx, host, "guests").await?;
        }
        let text = if self.guests + length(&text) > GUESTS_BYTES_PER_HOST_MAX {
            names_of(guest, "what the host tells of all its guests is too large to be kept")
        } else {
            text
        };
        self.guests += length(&text);
        Ok(text)
    }

    /// Drops the older half of ops and decisions where they are too large.
    pub(super) async fn bound_history(
        &mut self,
        tx: &mut WriteTx<'_>,
        host: &str,
    ) -> Result<(), StoreError> {
        if self.history <= HISTORY_BYTES_PER_HOST_MAX {
            return Ok(());
        }
        self.history = 0;
        for table in ["ops", "decisions"] {
            let bytes = counted(tx, host, table).await?;
            self.history += bytes;
            if bytes <= HISTORY_BYTES_PER_HOST_MAX / 2 {
                continue;
            }
            let query = format!(
                "DELETE FROM {table} WHERE host = $1 AND serial NOT IN (SELECT serial FROM {table} WHERE host = $1 \
                 ORDER BY serial DESC LIMIT (SELECT (COUNT(*) + 1) / 2 FROM {table} WHERE host = $1))"
            );
            let query = sqlx::query(sqlx::AssertSqlSafe(query)).bind(host);
            query.execute(&mut *tx.connection).await?;
            self.history += counted(tx, host, table).await? - bytes;
        }
        Ok(())
    }
}

/// The bytes of all rows of a host.
async fn counted(tx: &mut WriteTx<'_>, host: &str, table: &str) -> Result<i64, StoreError> {
    let query = format!(
        "SELECT CAST(COALESCE(SUM(LENGTH(body)), 0) AS BIGINT) FROM {table} WHERE host = $1"
    );
    let query = sqlx::query(sqlx::AssertSqlSafe(query)).bind(host);
    Ok(query.fetch_one(&mut *tx.connection).await?.try_get(0)?)
}

pub(super) fn length(text: &str) -> i64 {
    i64::try_from(text.len()).unwrap_or(i64::MAX)
}

pub(super) fn text_of(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("texts and numbers can always be written as JSON")
}

/// An entry, or a shorter one if it is too large.
pub(super) fn entry_text<T: Serialize>(entry: &T, shorter: impl FnOnce() -> T) -> String {
    let text = text_of(entry);
    if text.len() <= ENTRY_BYTES_MAX {
        return text;
    }
    let short = text_of(&shorter());
    if short.len() <= ENTRY_BYTES_MAX { short } else { "{}".to_owned() }
}

/// A guest, or what fits of it.
fn guest_text(guest: &GuestReport) -> String {
    let text = text_of(guest);
    if text.len() <= GUEST_BYTES_MAX {
        return text;
    }
    names_of(guest, "what the host tells of this guest is too large to be kept")
}

/// A guest by its names and state, and why there is no more.
fn names_of(guest: &GuestReport, why: &str) -> String {
    text_of(&GuestReport {
        guest: plain(&guest.guest, NAME_BYTES_MAX),
        name: plain(&guest.name, NAME_BYTES_MAX),
        state: plain(&guest.state, NAME_BYTES_MAX),
        problems: vec![why.to_owned()],
        ..GuestReport::default()
    })
}
