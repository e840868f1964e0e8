//! One line of the journal as an entry of the audit, or none if nobody decided anything by it.

use std::collections::BTreeMap;

use evenkeel_core::model::reason::ReasonCode;
use evenkeel_core::sign::{Envelope, PendingItem, PublicKey, Rotation, RotationAuthority};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};

use super::text::shown;
use crate::freeze::{FROZEN_KEY, THAWED_KEY};
use crate::journal::verify::PrintedLine;
use crate::journal::{ExactBytes, Seq};

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditEvent {
    /// The gate let an operation through, and it began.
    Started,
    /// It was done.
    Succeeded,
    /// It was not done.
    Failed,
    /// What became of it is not known.
    Unknown,
    /// An operator said what became of it.
    Resolved,
    /// The gate held or refused something, or no longer does.
    Decision,
    /// Something began or ceased to wait for a signature.
    Pending,
    /// An approval came in.
    Approval,
    /// The signers changed.
    Trust,
    /// An operator froze the host.
    Frozen,
    /// An operator thawed it.
    Thawed,
    /// A crash tore the end of the journal, and it was cut.
    TailCut,
    /// A remark.
    Note,
}

impl AuditEvent {
    /// The word people read.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
            Self::Resolved => "resolved",
            Self::Decision => "decision",
            Self::Pending => "pending",
            Self::Approval => "approval",
            Self::Trust => "trust",
            Self::Frozen => "frozen",
            Self::Thawed => "thawed",
            Self::TailCut => "tail_cut",
            Self::Note => "note",
        }
    }
}

/// A key that signed, by the record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Signature {
    /// Whose, if the record names them.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The fingerprint of the key.
    pub key: String,
    /// What a security key said, if it is one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub touch: String,
}

/// One entry. Every text in it is safe to show; what is empty the record does not say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditEntry {
    /// The number of the record.
    pub seq: Seq,
    /// When it was written.
    #[serde(serialize_with = "as_text")]
    pub at: Timestamp,
    /// What happened.
    pub event: AuditEvent,
    /// To which guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest: Option<String>,
    /// What was done or asked: `destroy`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The operation.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub op: String,
    /// The reason code.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The class: benign, disruptive, destructive.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub class: String,
    /// Why, in words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// Why, in the words of whoever signed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub statement_reason: String,
    /// Who signed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub signed_by: Vec<Signature>,
    /// The nonce that was spent.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub nonce: String,
    /// The SHA-256 of the statement's bytes.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub payload: String,
}

/// Reads lines in order: an operation's later lines do not repeat its guest.
#[derive(Debug, Default)]
pub(crate) struct AuditReader {
    /// Guest and kind of the operations that are not closed.
    open: BTreeMap<String, (String, String)>,
    /// What stands, by type and key: what ends it names only the key.
    standing: BTreeMap<(String, String), AuditEntry>,
}

impl AuditReader {
    /// What the line says of a decision; none if nothing.
    pub(crate) fn entry(&mut self, line: &PrintedLine) -> Option<AuditEntry> {
        let Ok(Value::Object(fields)) = serde_json::from_str(&line.text) else {
            return None;
        };
        let mut entry = AuditEntry::new(line);
        match line.kind.as_str() {
            "snapshot" => {
                self.remember_open(&fields);
                None
            }
            "op" => self.op(&fields, entry),
            "note" => {
                let what = text(&fields, "what");
                entry.event =
                    if what == "tail_cut" { AuditEvent::TailCut } else { AuditEvent::Note };
                entry.kind = if entry.event == AuditEvent::Note { what } else { String::new() };
                entry.why = text(&fields, "text");
                Some(entry)
            }
            "decision" => Some(self.told_of_what_stood(&fields, line, decision(&fields, entry))),
            "pending" => Some(self.told_of_what_stood(&fields, line, pending(&fields, entry))),
            "approval" => {
                let entry = kept(&fields, AuditEvent::Approval, entry);
                Some(self.told_of_what_stood(&fields, line, entry))
            }
            "trust" => Some(trust(&fields, entry)),
            // Transactions only group operations, and those are told.
            _ => None,
        }
    }

    /// The beginning may be in a segment that is no longer there.
    fn remember_open(&mut self, snapshot: &Map<String, Value>) {
        let operations = snapshot.get("ledger").and_then(|ledger| ledger.get("operations"));
        for (op, operation) in operations.and_then(Value::as_object).into_iter().flatten() {
            if let Some(intent) = operation.get("intent").and_then(Value::as_object) {
                self.open.insert(shown(op), (text(intent, "guest"), text(intent, "kind")));
            }
        }
    }

    /// Remembers what begins to stand. What ends is told by what it was: its key says nothing to anybody.
    fn told_of_what_stood(
        &mut self,
        fields: &Map<String, Value>,
        line: &PrintedLine,
        mut entry: AuditEntry,
    ) -> AuditEntry {
        let key = (line.kind.clone(), text(fields, "key"));
        if let Some(Value::Object(_)) = fields.get("value") {
            self.standing.insert(key, entry.clone());
        } else if let (
            AuditEvent::Decision | AuditEvent::Pending | AuditEvent::Approval,
            Some(before),
        ) = (entry.event, self.standing.remove(&key))
        {
            let pending = entry.event == AuditEvent::Pending;
            let ended = if pending { "waits no longer" } else { "holds no longer" };
            let why =
                if before.reason.is_empty() { String::new() } else { format!(": {}", before.why) };
            entry.why = format!("{ended}{why}");
            (entry.guest, entry.kind, entry.reason) = (before.guest, before.kind, before.reason);
        }
        entry
    }

    fn op(&mut self, fields: &Map<String, Value>, mut entry: AuditEntry) -> Option<AuditEntry> {
        entry.op = text(fields, "op");
        let by_operator = fields.get("by").and_then(Value::as_str) == Some("operator");
        let state = fields.get("state").and_then(Value::as_str).unwrap_or_default();
        entry.event = match state {
            "started" if fields.contains_key("guest") => {
                let began = (text(fields, "guest"), text(fields, "kind"));
                self.open.insert(entry.op.clone(), began);
                entry.why = text(fields, "reason");
                if let Some(Value::Object(decision)) = fields.get("decision") {
                    entry.take_decision(decision);
                }
                AuditEvent::Started
            }
            "succeeded" | "failed" if by_operator => {
                entry.why = format!("an operator says: {state}");
                AuditEvent::Resolved
            }
            "succeeded" => {
                entry.why = text(fields, "warning");
                AuditEvent::Succeeded
            }
            "failed" => {
                entry.why = text(fields, "reason");
                AuditEvent::Failed
            }
            "unknown" => {
                entry.why = text(fields, "reason");
                AuditEvent::Unknown
            }
            // Further requests and tasks are steps of what was decided.
            _ => return None,
        };
        let goes_on = matches!(entry.event, AuditEvent::Started | AuditEvent::Unknown);
        let known =
            if goes_on { self.open.get(&entry.op).cloned() } else { self.open.remove(&entry.op) };
        if let Some((guest, kind)) = known {
            (entry.guest, entry.kind) = (some(guest), kind);
        }
        Some(entry)
    }
}

impl AuditEntry {
    /// Whether the gate said no. What waits for a signature, a lock or its lane is held, not refused.
    pub fn is_refusal(&self) -> bool {
        let waits = [
            ReasonCode::Allowed,
            ReasonCode::AllowedSigned,
            ReasonCode::PendingSignature,
            ReasonCode::Locked,
            ReasonCode::Busy,
            ReasonCode::Frozen,
        ];
        matches!(self.event, AuditEvent::Decision | AuditEvent::Approval)
            && !self.reason.is_empty()
            && !waits.iter().any(|code| code.as_str() == self.reason)
    }

    fn new(line: &PrintedLine) -> Self {
        Self {
            seq: line.seq,
            at: line.at,
            event: AuditEvent::Note,
            guest: None,
            kind: String::new(),
            op: String::new(),
            reason: String::new(),
            class: String::new(),
            why: String::new(),
            statement_reason: String::new(),
            signed_by: Vec::new(),
            nonce: String::new(),
            payload: String::new(),
        }
    }

    /// The fields of a decision, as many as there are.
    fn take_decision(&mut self, decision: &Map<String, Value>) {
        let own = |key: &str, before: &mut String| {
            let text = text(decision, key);
            if !text.is_empty() {
                *before = text;
            }
        };
        own("reason", &mut self.reason);
        own("class", &mut self.class);
        own("why", &mut self.why);
        own("statement_reason", &mut self.statement_reason);
        own("nonce", &mut self.nonce);
        own("payload", &mut self.payload);
        self.signed_by = signatures(decision.get("signed_by"));
    }
}

fn decision(fields: &Map<String, Value>, entry: AuditEntry) -> AuditEntry {
    let event = match fields.get("key").and_then(Value::as_str) {
        Some(FROZEN_KEY) => AuditEvent::Frozen,
        Some(THAWED_KEY) => AuditEvent::Thawed,
        Some(_) | None => return kept(fields, AuditEvent::Decision, entry),
    };
    let Some(Value::Object(value)) = fields.get("value") else {
        let why = "the freeze is over".to_owned();
        return AuditEntry { event: AuditEvent::Thawed, why, ..entry };
    };
    let mut why = format!("by {} at {}", text(value, "by"), text(value, "at"));
    let ended = value.get("ended").and_then(Value::as_object);
    let reason = ended.map_or_else(|| text(value, "reason"), |ended| text(ended, "reason"));
    if let Some(ended) = ended {
        why = format!("{why}, after the freeze by {} at {}", text(ended, "by"), text(ended, "at"));
    }
    if !reason.is_empty() {
        why = format!("{why}: {reason}");
    }
    AuditEntry { event, why, ..entry }
}

/// A value that is kept for somebody: the fields of a decision, if it has them.
fn kept(fields: &Map<String, Value>, event: AuditEvent, mut entry: AuditEntry) -> AuditEntry {
    entry.event = event;
    match fields.get("value") {
        Some(Value::Object(value)) => {
            entry.guest = some(text(value, "guest"));
            entry.kind = text(value, "op");
            entry.take_decision(value);
            if entry.why.is_empty() {
                entry.why = text(fields, "key");
            }
        }
        // Its beginning may be in a segment that is no longer there; then the key is all there is.
        Some(_) | None => entry.why = format!("no longer: {}", text(fields, "key")),
    }
    entry
}

/// An item that waits, told from the bytes the host signed.
fn pending(fields: &Map<String, Value>, entry: AuditEntry) -> AuditEntry {
    let mut entry = kept(fields, AuditEvent::Pending, entry);
    let sealed = fields.get("value").and_then(|value| value.get("envelope")).and_then(envelope);
    if let Some(Ok(item)) = sealed.map(|sealed| PendingItem::parse(sealed.payload())) {
        let name = text(fields, "key");
        entry.guest = Some(item.guest.to_string());
        entry.kind = item.op.to_string();
        entry.why = format!("waits for a signature as {name}");
    }
    entry
}

/// A change of signers, told from the bytes that were signed.
fn trust(fields: &Map<String, Value>, mut entry: AuditEntry) -> AuditEntry {
    entry.event = AuditEvent::Trust;
    let key = text(fields, "key");
    let Some(Value::Object(value)) = fields.get("value") else {
        entry.why = format!("version {key} was replaced by a trust file of root's");
        return entry;
    };
    if key == "base" {
        entry.why = format!("root's trust file of version {} is in force", text(value, "version"));
        return entry;
    }
    entry.why = format!("version {key}");
    let Some(envelope) = value.get("envelope").and_then(envelope) else {
        return entry;
    };
    entry.payload = envelope.payload_hash().to_string();
    for signature in envelope.signatures() {
        if let Ok(key) = PublicKey::from_blob(signature.key_blob()) {
            let name = String::new();
            let touch = String::new();
            let key = key.fingerprint().to_string();
            entry.signed_by.push(Signature { name, key, touch });
        }
    }
    for by in RotationAuthority::ALL {
        if let Ok(rotation) = Rotation::parse(envelope.payload(), by) {
            entry.kind = match by {
                RotationAuthority::Recovery => "recover".to_owned(),
                RotationAuthority::Planned => "rotate".to_owned(),
            };
            entry.statement_reason = shown(&rotation.reason);
            let names: Vec<String> =
                rotation.signers.iter().map(|one| format!("{} ({})", one.name, one.role)).collect();
            entry.why = format!("version {key}: {}", names.join(", "));
            name_new_keys(&mut entry.signed_by, &rotation);
        }
    }
    entry
}

/// An envelope, kept as exact bytes or as its text.
fn envelope(kept: &Value) -> Option<Envelope> {
    let text = kept.as_str()?;
    match ExactBytes::try_from(text.to_owned()) {
        Ok(bytes) => Envelope::parse(&bytes.0).ok(),
        Err(_) => Envelope::parse(text.as_bytes()).ok(),
    }
}

/// The names of keys that are signers after the rotation too.
fn name_new_keys(signatures: &mut [Signature], rotation: &Rotation) {
    for signature in signatures {
        let same = |key: &PublicKey| key.fingerprint().to_string() == signature.key;
        if let Some(signer) = rotation.signers.iter().find(|signer| same(&signer.key)) {
            signature.name = signer.name.to_string();
        }
    }
}

fn signatures(value: Option<&Value>) -> Vec<Signature> {
    let list = value.and_then(Value::as_array).into_iter().flatten();
    let one = |value: &Value| {
        let fields = value.as_object()?;
        let touch = match fields.get("touch") {
            Some(Value::Bool(true)) => "touched".to_owned(),
            None | Some(Value::Bool(false)) => String::new(),
            Some(_) => text(fields, "touch"),
        };
        Some(Signature { name: text(fields, "name"), key: text(fields, "key"), touch })
    };
    list.filter_map(one).collect()
}

/// A field as text that is safe to show; a missing one is empty.
fn text(fields: &Map<String, Value>, key: &str) -> String {
    match fields.get(key) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => shown(text),
        Some(other) => shown(&other.to_string()),
    }
}

fn some(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

fn as_text<S: serde::Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(at)
}
