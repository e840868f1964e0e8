//! What a record says: an operation's event, a kept value, or a note.
//!
//! Engine, gate and recovery build these; the journal writes them and folds them into its state.
//! Everything that could hold a secret is redacted at construction, here or in [`Details`].

use evenkeel_core::model::id::VmId;
use evenkeel_core::operate::operation::{OpEvent, OpRecord, UnixSeconds};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::details::Details;
use super::mark::moment;
use super::op_line::{OpLine, WrittenOp};
use super::redact;
use super::state::JournalState;

/// One record as a caller hands it in.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// Something happened to an operation.
    Op(OpEntry),
    /// A value under a key took the place of the one before it.
    Kept(Kept),
    /// A person wants a guest to be tried at once.
    Retry(Retry),
    /// A remark for a person; nothing is derived from it.
    Note(Note),
}

impl Record {
    /// An event of an operation that is under way. Its text is shortened and cleaned of secrets: an
    /// operation must be closable whatever PVE said.
    pub fn op(mut record: OpRecord) -> Self {
        match &mut record.event {
            OpEvent::Failed { reason: text, .. }
            | OpEvent::Unknown { reason: text }
            | OpEvent::Succeeded { warning: Some(text), .. } => {
                *text = shortened(redact::redacted_text(std::mem::take(text)));
            }
            OpEvent::Started(_)
            | OpEvent::RequestStarted { .. }
            | OpEvent::TaskRunning { .. }
            | OpEvent::Succeeded { warning: None, .. }
            | OpEvent::Resolved { .. } => {}
        }
        Self::Op(OpEntry { record, details: Details::default() })
    }

    /// The first event of an operation, with everything recovery and readers will want.
    pub fn op_started(record: OpRecord, details: Details) -> Self {
        Self::Op(OpEntry { record, details })
    }

    /// The mark of time it sets, if it does.
    pub(super) fn sets_mark(&self) -> Option<Timestamp> {
        match self {
            Self::Kept(kept) => moment(kept.mark?),
            Self::Op(_) | Self::Retry(_) | Self::Note(_) => None,
        }
    }

    /// Whether it begins something. On a nearly full disk only what ends something is written.
    pub(super) fn begins_something(&self) -> bool {
        match self {
            Self::Op(entry) => match entry.record.event {
                OpEvent::Started(_) | OpEvent::RequestStarted { .. } => true,
                OpEvent::TaskRunning { .. }
                | OpEvent::Succeeded { .. }
                | OpEvent::Failed { .. }
                | OpEvent::Unknown { .. }
                | OpEvent::Resolved { .. } => false,
            },
            Self::Kept(kept) => !kept.from_reserve,
            Self::Retry(_) => true,
            Self::Note(_) => false,
        }
    }
}

impl Record {
    /// Whether it is written on a nearly full disk although it ends nothing.
    pub(super) fn is_from_reserve(&self) -> bool {
        match self {
            Self::Kept(kept) => kept.from_reserve,
            Self::Op(_) | Self::Retry(_) | Self::Note(_) => false,
        }
    }
}

/// The longest reason that is kept: the reserve is reckoned with lines under 2 KiB.
const REASON_BYTES_MAX: usize = 1_024;

fn shortened(mut text: String) -> String {
    if text.len() > REASON_BYTES_MAX {
        text.truncate(text.floor_char_boundary(REASON_BYTES_MAX));
        text.push('…');
    }
    text
}

/// An event of an operation and what is told with it.
#[derive(Debug, Clone, PartialEq)]
pub struct OpEntry {
    /// What core's state machine folds.
    pub record: OpRecord,
    /// What only `started` carries; empty elsewhere.
    pub details: Details,
}

/// The subjects of kept values. Each is a map from key to the newest value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeptSubject {
    /// The gate's answer to an action, recorded when it changes.
    Decision,
    /// An item that waits for an approval.
    Pending,
    /// An approval that came in.
    Approval,
    /// The chain of trust rotations.
    Trust,
    /// A transaction over several operations.
    Txn,
    /// A volume that left its slot while no backup held it.
    Volume,
    /// What is remembered of the hub: documents, heads, epochs.
    Hub,
}

impl KeptSubject {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Decision,
        Self::Pending,
        Self::Approval,
        Self::Trust,
        Self::Txn,
        Self::Volume,
        Self::Hub,
    ];

    /// The `type` of its records.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Decision => "decision",
            Self::Pending => "pending",
            Self::Approval => "approval",
            Self::Trust => "trust",
            Self::Txn => "txn",
            Self::Volume => "volume",
            Self::Hub => "hub",
        }
    }
}

/// A value that the journal keeps for somebody else: it stays until the same key is written again
/// or removed, through every compaction. The journal does not look into it.
#[derive(Debug, Clone, PartialEq)]
pub struct Kept {
    /// What it is about.
    pub subject: KeptSubject,
    /// Under which key.
    pub key: String,
    /// The new value, or none to remove the key.
    pub value: Option<Versioned>,
    /// The mark of time from this record on: a signed clock change, durable with what was signed.
    pub mark: Option<UnixSeconds>,
    /// Whether it is written on a nearly full disk too, out of the reserve. No line tells it.
    from_reserve: bool,
}

impl Kept {
    /// Keeps a value; secrets are masked.
    pub fn put(subject: KeptSubject, key: impl Into<String>, version: u32, value: Value) -> Self {
        let value = Some(Versioned { v: version, value: redact::redacted_value(value) });
        Self { subject, key: key.into(), value, mark: None, from_reserve: false }
    }

    /// Removes a key.
    pub fn remove(subject: KeptSubject, key: impl Into<String>) -> Self {
        Self { subject, key: key.into(), value: None, mark: None, from_reserve: false }
    }

    /// Writes it on a nearly full disk too. For the few records that take power away from somebody: a recovery of
    /// the signers, a freeze. Nobody may be able to make many of them.
    #[must_use]
    pub fn from_the_reserve(self) -> Self {
        Self { from_reserve: true, ..self }
    }

    /// Sets the mark of time with it. Only a signed clock change may.
    #[must_use]
    pub fn setting_mark(self, mark: Timestamp) -> Self {
        Self { mark: Some(super::seconds(mark)), ..self }
    }
}

/// A value with the version of its shape, so that its owner can change the shape later.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Versioned {
    /// The version of the shape.
    pub v: u32,
    /// The value.
    pub value: Value,
}

/// A person wants a guest to be tried at once, whatever failed before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    /// Its number.
    pub guest: VmId,
    /// Who says so.
    pub by: String,
}

/// A remark for a person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Note {
    /// One word for filters: `tail_cut`.
    pub what: String,
    /// A sentence.
    pub text: String,
}

/// Everything a line can hold: what callers write, and the snapshot only the journal writes.
pub(super) enum Body {
    Record(Record),
    Snapshot(JournalState),
}

/// The fields of a kept value on a line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptLine {
    key: String,
    v: Option<u32>,
    value: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mark: Option<UnixSeconds>,
}

/// Why a sealed line could not be understood.
#[derive(Debug, thiserror::Error)]
pub enum NotUnderstood {
    /// A type this program does not know.
    #[error("it has the type `{0}`, which this version does not know")]
    Type(String),
    /// Fields that do not belong to the type.
    #[error("its fields are not those of its type")]
    Fields(#[source] serde_json::Error),
    /// Fields of an operation that do not belong to its state.
    #[error("it has the state `{state}`, but its fields do not fit: {why}")]
    Op {
        /// The state on the line.
        state: &'static str,
        /// What does not fit.
        why: &'static str,
    },
}

/// A record's `type` and fields, `{…}`. Whoever hands a record in makes this on its own time, so that
/// the one writer need not.
#[derive(Debug)]
pub(super) struct RecordLine {
    pub(super) kind: &'static str,
    pub(super) fields: Vec<u8>,
}

/// Room for the fields of most records, so that they are not moved while they are written.
const FIELDS_BYTES: usize = 512;

impl RecordLine {
    pub(super) fn of(record: &Record) -> Self {
        let mut fields = Vec::with_capacity(FIELDS_BYTES);
        let kind = encode(record, &mut fields);
        Self { kind, fields }
    }
}

fn encode(record: &Record, out: &mut Vec<u8>) -> &'static str {
    match record {
        Record::Op(entry) => to_json(out, &WrittenOp(entry), "op"),
        Record::Kept(Kept { subject, key, value, mark, from_reserve: _ }) => {
            let (v, value) = match value {
                Some(Versioned { v, value }) => (Some(*v), Some(value.clone())),
                None => (None, None),
            };
            let line = KeptLine { key: key.clone(), v, value, mark: *mark };
            to_json(out, &line, subject.as_str())
        }
        Record::Retry(retry) => to_json(out, retry, "retry"),
        Record::Note(note) => to_json(out, note, "note"),
    }
}

/// The snapshot of a state, `{…}`.
pub(super) fn encode_snapshot(state: &JournalState, out: &mut Vec<u8>) -> &'static str {
    to_json(out, state, "snapshot")
}

fn to_json(out: &mut Vec<u8>, fields: &impl Serialize, kind: &'static str) -> &'static str {
    serde_json::to_writer(out, fields).expect("our own types are JSON, and a vector takes it");
    kind
}

/// Reads the fields of a line, `{…}`, by its type.
pub(super) fn decode(kind: &str, fields: &str) -> Result<Body, NotUnderstood> {
    fn json<'a, T: Deserialize<'a>>(fields: &'a str) -> Result<T, NotUnderstood> {
        serde_json::from_str(fields).map_err(NotUnderstood::Fields)
    }
    let record = match kind {
        "op" => Record::Op(json::<OpLine>(fields)?.take_entry()?),
        "retry" => Record::Retry(json(fields)?),
        "note" => Record::Note(json(fields)?),
        "snapshot" => return Ok(Body::Snapshot(json(fields)?)),
        other => {
            let Some(subject) = KeptSubject::ALL.into_iter().find(|s| s.as_str() == other) else {
                return Err(NotUnderstood::Type(other.escape_default().to_string()));
            };
            let KeptLine { key, v, value, mark } = json(fields)?;
            let value = v.map(|v| Versioned { v, value: value.unwrap_or_default() });
            Record::Kept(Kept { subject, key, value, mark, from_reserve: false })
        }
    };
    Ok(Body::Record(record))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_is_missing_or_has_no_meaning_in_its_state_is_refused() {
        let op = r#""op":"op_01ARZ3NDEKTSV4RRFFQ69G5FAV""#;
        let understood = |fields: &str| decode("op", &format!("{{{op},{fields}}}")).is_ok();
        for good in [
            r#""state":"succeeded""#,
            r#""state":"succeeded","by":"operator""#,
            r#""state":"failed","reason":"x""#,
            r#""state":"started","request":"act","node_time":7"#,
        ] {
            assert!(understood(good), "{good}");
        }
        for bad in [
            r#""state":"succeeded","reason":"x""#,
            r#""state":"succeeded","by":"operator","warning":"x""#,
            r#""state":"succeeded","by":"evidence""#,
            r#""state":"failed""#,
            r#""state":"failed","reason":"x","request":"act""#,
            r#""state":"started","request":"act""#,
            r#""state":"started","guest":"lxc/101","request":"act","node_time":7"#,
            r#""state":"unknown","reason":"x","novel":1"#,
            r#""state":"paused""#,
        ] {
            assert!(!understood(bad), "{bad}");
        }
    }
}
