//! Lists as Proxmox VE sends them, row by row: one that cannot be read never spoils the others (invariant 22).
//!
//! Whoever reads a list gets both, and says what an unread row means there: where absence is evidence it is never taken
//! for absence (invariant 14). A row is reported once, by its name, and never with what else it holds.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use evenkeel_core::sign::PayloadHash;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::scalar::Scalar;
use super::text::clean;

/// A list as it was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListReading<T> {
    /// The rows that could be read, in their order.
    pub rows: Vec<T>,
    /// The others.
    pub unread: Vec<UnreadRow>,
}

/// A row that could not be read, with as much of it as can be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadRow {
    why: String,
    /// The fields that are plain values of a usual length.
    texts: BTreeMap<String, String>,
    whole: PayloadHash,
}

/// A longer field is none that names anything.
const FIELD_LENGTH_MAX: usize = 1024;

/// The fields by which people know a row.
const NAMES: [&str; 7] = ["upid", "volid", "vmid", "storage", "userid", "id", "name"];

impl UnreadRow {
    /// A field, if it is a plain value.
    pub(crate) fn text(&self, field: &str) -> Option<&str> {
        self.texts.get(field).map(String::as_str)
    }

    /// A field with a text form, such as a guest number.
    pub(crate) fn parsed<T: FromStr>(&self, field: &str) -> Option<T> {
        self.text(field)?.parse().ok()
    }

    /// The hash of the whole row, in whatever order its fields were sent.
    pub(crate) fn whole(&self) -> PayloadHash {
        self.whole
    }

    /// How people may know it.
    fn name(&self) -> String {
        let named = NAMES.iter().find_map(|name| self.text(name).map(|text| (name, text)));
        match named {
            Some((name, text)) => format!("{name} {}", clean(text)),
            None => "a row without a name".to_owned(),
        }
    }

    fn of(raw: &str, why: &serde_json::Error) -> Self {
        let fields: BTreeMap<String, Scalar<'_>> = serde_json::from_str(raw).unwrap_or_default();
        let mut whole = String::new();
        let mut texts = BTreeMap::new();
        for (name, value) in fields {
            let _ = writeln!(whole, "{name:?} {value:?}");
            if let Scalar::Text(text) = value
                && text.len() <= FIELD_LENGTH_MAX
            {
                texts.insert(name, text.into_owned());
            }
        }
        let whole = PayloadHash::of(if whole.is_empty() { raw } else { &whole }.as_bytes());
        Self { why: clean(&why.to_string()), texts, whole }
    }
}

impl<T: DeserializeOwned> ListReading<T> {
    /// Reads the rows of an answer; refused if that is no list at all.
    pub(super) fn read(body: &str) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct Rows<T> {
            data: Vec<T>,
        }
        // Almost every list is whole, and some are long.
        if let Ok(Rows { data: rows }) = serde_json::from_str(body) {
            return Ok(Self { rows, unread: Vec::new() });
        }
        let Rows::<&RawValue> { data } = serde_json::from_str(body)?;
        let mut reading = Self { rows: Vec::new(), unread: Vec::new() };
        for raw in data {
            match serde_json::from_str(raw.get()) {
                Ok(row) => reading.rows.push(row),
                Err(why) => reading.unread.push(UnreadRow::of(raw.get(), &why)),
            }
        }
        Ok(reading)
    }
}

/// Which unread rows were reported by this client.
#[derive(Debug, Default)]
pub(super) struct ReportedRows(Mutex<BTreeSet<PayloadHash>>);

/// So many rows are reported one by one; after that the log would be of nothing else.
const REPORTED_MAX: usize = 256;

impl ReportedRows {
    /// Reports the rows that were not reported yet.
    pub(super) fn report(&self, call: &str, rows: &[UnreadRow]) {
        if rows.is_empty() {
            return;
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for row in rows {
            if known.len() < REPORTED_MAX && known.insert(row.whole) {
                tracing::warn!(
                    call,
                    row = row.name(),
                    why = row.why,
                    "a row of this list cannot be read; what depends on it waits, and nothing else"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pve::wire::TaskEntry;

    fn read(rows: &str) -> ListReading<TaskEntry> {
        ListReading::read(&format!("{{\"data\":[{rows}]}}")).unwrap()
    }

    const GOOD: &str = r#"{"upid":"UPID:n:00000001:00000001:65000000:vzstart:100:jürgen@pve:"}"#;

    #[test]
    fn y03_no_row_spoils_another() {
        for odd in [
            "null",
            "7",
            "[]",
            "{}",
            r#""UPID""#,
            r#"{"upid":null}"#,
            r#"{"upid":{}}"#,
            r#"{"upid":"UPID:n"}"#,
            &format!(r#"{{"upid":"{}"}}"#, "x".repeat(100_000)),
        ] {
            let list = read(&format!("{GOOD},{odd},{GOOD}"));
            assert_eq!((list.rows.len(), list.unread.len()), (2, 1), "{odd:.40}");
        }
        for none in [r#"{"data":null}"#, r#"{"data":{}}"#, "{}", "", "[]"] {
            assert!(ListReading::<TaskEntry>::read(none).is_err(), "{none}");
        }
    }

    #[test]
    fn y03_a_row_is_known_again_in_whatever_order_its_fields_come() {
        let one = read(r#"{"upid":"odd","id":"100","x":[1]}"#).unread.remove(0);
        let same = read(r#"{"x":[1],"id":"100","upid":"odd"}"#).unread.remove(0);
        let other = read(r#"{"upid":"odd","id":"101","x":[1]}"#).unread.remove(0);
        assert_eq!((one.whole(), &one.texts), (same.whole(), &same.texts));
        assert_ne!(one.whole(), other.whole());
        assert_ne!(read("null").unread[0].whole(), read("7").unread[0].whole());
        assert_eq!((one.text("id"), one.text("x")), (Some("100"), None));
        assert_eq!(one.name(), "upid odd");
    }
}
