//! A report: what changed on a host since the report before, as the hub keeps it and people read it.
//!
//! The agent makes it from values whose secrets are masked; the hub reads it leniently (a newer agent may say more) and
//! bounded. It is told, never believed: nothing that a report says allows anything anywhere.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fleet::fresh_word::AuthorWordReport;
use crate::fleet::name::{EnvelopeId, Generation};
use crate::fleet::sealed::SealedText;
use crate::sign::{ManifestHash, PendingId};

/// The largest report; more guests than fit are told in pages.
pub const REPORT_BYTES_MAX: usize = 1024 * 1024;

/// The most entries in any list of a report: ten times what a large host has of anything.
const ENTRIES_MAX: usize = 10_000;

/// What changed. A field that is missing did not change; in a whole report there is none.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HostReport {
    /// The document in effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<GenerationState>,
    /// A document that was not taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<RefusedGeneration>,
    /// The agent itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentState>,
    /// The last pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pass: Option<PassReport>,
    /// Guests that changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub guests: Vec<GuestReport>,
    /// Guests that are no longer told of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<String>,
    /// Operations that began or ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ops: Vec<ToldOperation>,
    /// Decisions that changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<ReportedDecision>,
    /// Items that wait for a signature and were not told of yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<PendingReport>,
    /// Items that wait no longer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pending_gone: Vec<PendingId>,
    /// What became of envelopes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub verdicts: Vec<EnvelopeVerdict>,
    /// How far the journal has come, signed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<SealedText>,
    /// The host's clock, as it is shown.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub at: String,
}

/// Bytes that are no report.
#[derive(Debug, thiserror::Error)]
pub enum UnreadableReport {
    /// Too long.
    #[error("a report has at most {REPORT_BYTES_MAX} bytes")]
    TooLong,
    /// A list is too long.
    #[error("a list of a report has at most {ENTRIES_MAX} entries")]
    TooMany,
    /// Not what a report looks like.
    #[error("the report is malformed: {0}")]
    Malformed(#[source] serde_json::Error),
}

impl HostReport {
    /// Reads a report; what is not known is passed over.
    pub fn read(bytes: &[u8]) -> Result<Self, UnreadableReport> {
        if bytes.len() > REPORT_BYTES_MAX {
            return Err(UnreadableReport::TooLong);
        }
        let report: Self = serde_json::from_slice(bytes).map_err(UnreadableReport::Malformed)?;
        let lengths = [
            report.guests.len(),
            report.gone.len(),
            report.ops.len(),
            report.decisions.len(),
            report.pending.len(),
            report.pending_gone.len(),
            report.verdicts.len(),
        ];
        if lengths.into_iter().any(|length| length > ENTRIES_MAX) {
            return Err(UnreadableReport::TooMany);
        }
        Ok(report)
    }

    /// The body as it is sent.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("texts and numbers can always be written as JSON")
    }

    /// Whether there is anything to say.
    pub fn is_empty(&self) -> bool {
        *self == Self { at: self.at.clone(), ..Self::default() }
    }
}

/// The document in effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GenerationState {
    /// Its number.
    pub number: Generation,
    /// The hash of its manifest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<ManifestHash>,
    /// Who signed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signer: Option<String>,
}

/// A document that its host did not take.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RefusedGeneration {
    /// Its number; 0 if the last one was taken.
    #[schemars(with = "u64")]
    pub generation: Generation,
    /// The hash of its manifest.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub manifest: Option<ManifestHash>,
    /// The reason code.
    pub code: String,
    /// In words.
    pub why: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub next: String,
    /// Mistakes in its files, each with its place, its line and hints.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub diagnostics: Vec<String>,
}

/// An agent as it tells of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AgentState {
    /// Its version; empty if it never reported.
    pub version: String,
    /// The node it keeps.
    pub node: String,
    /// Since when it runs, by the host's clock.
    pub since: String,
    /// Since when the host is frozen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frozen: Option<String>,
    /// `enforce` or `observe`.
    pub mode: String,
    /// The host's own limits, from `[policy]` of its agent.toml.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub policy: BTreeMap<String, String>,
    /// What is wrong, a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub troubles: Vec<String>,
    /// The last document that an author signed and the host took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub author_word: Option<AuthorWordReport>,
}

/// The last pass of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PassReport {
    /// When it ended, by the host's clock; empty if there was none.
    pub at: String,
    /// Actions it began.
    pub planned: u64,
    /// Of those, how many were done.
    pub succeeded: u64,
    /// And how many failed.
    pub failed: u64,
    /// Actions that wait.
    pub held: u64,
    /// Guests that are as declared.
    pub in_sync: u64,
}

/// A guest as its host told it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GuestReport {
    /// `lxc/101`.
    pub guest: String,
    /// `lxc` or `qemu`.
    pub kind: String,
    /// Its own name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// `as_declared`, `drifted`, `held`, `failed`, `busy` or `unreadable`.
    pub state: String,
    /// `running`, `paused`, `stopped` or `unknown`; missing if it is not on the node.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub power: String,
    /// What is not as declared, held or not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<GuestDifference>,
    /// What is not done now, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<HeldReport>,
    /// What cannot be done, or was not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// What is stored and waits for a restart.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after_restart: Vec<String>,
    /// What is declared, in normal form, secrets masked; null for a key that shall be absent. Not in lists.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub declared: BTreeMap<String, Option<String>>,
    /// What is, in the same form. Not in lists.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub actual: BTreeMap<String, String>,
    /// Whether something did not fit.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
}

/// The longest value that is told of a guest or an operation.
const VALUE_BYTES_MAX: usize = 512;

/// The longest sentence.
const SENTENCE_BYTES_MAX: usize = 2_048;

/// The most entries of one list.
const LIST_MAX: usize = 64;

/// Everything that is told of one guest: below what a hub keeps of one, whatever it is.
const GUEST_BYTES_MAX: usize = 48 * 1024;

impl GuestReport {
    /// The same within its bounds. What is cut away is marked.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        let mut cut = self.cut;
        for difference in &mut self.differences {
            for text in [&mut difference.declared, &mut difference.actual].into_iter().flatten() {
                cut |= shorten(text, VALUE_BYTES_MAX);
            }
        }
        let sentences = self.problems.iter_mut().chain(&mut self.after_restart);
        for text in sentences.chain(self.held.iter_mut().map(|held| &mut held.why)) {
            cut |= shorten(text, SENTENCE_BYTES_MAX);
        }
        for text in self.declared.values_mut().flatten().chain(self.actual.values_mut()) {
            cut |= shorten(text, VALUE_BYTES_MAX);
        }
        for list in [&mut self.problems, &mut self.after_restart] {
            cut |= list.len() > LIST_MAX;
            list.truncate(LIST_MAX);
        }
        cut |= self.held.len() > LIST_MAX || self.differences.len() > LIST_MAX;
        self.held.truncate(LIST_MAX);
        self.differences.truncate(LIST_MAX);
        self.cut = cut;
        if self.is_too_large() {
            self.cut = true;
            self.actual.clear();
        }
        if self.is_too_large() {
            self.declared.clear();
        }
        if self.is_too_large() {
            self.problems.truncate(1);
            self.after_restart.clear();
            self.held.truncate(1);
            self.differences.clear();
        }
        self
    }

    fn is_too_large(&self) -> bool {
        serde_json::to_vec(self).map_or(0, |json| json.len()) > GUEST_BYTES_MAX
    }
}

/// Cuts a text; whether there was anything to cut.
fn shorten(text: &mut String, bytes_max: usize) -> bool {
    if text.len() <= bytes_max {
        return false;
    }
    text.truncate(text.floor_char_boundary(bytes_max));
    text.push('…');
    true
}

/// One key of a guest that differs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GuestDifference {
    /// `cores`; `run`, `state` and `template` for what is no key, `mp0.size` and `mp0.storage` for a volume.
    pub key: String,
    /// What is declared; missing if it shall be absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declared: Option<String>,
    /// What is; missing if it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actual: Option<String>,
    /// Where it is declared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<ReportedOrigin>,
}

/// Where something is declared.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ReportedOrigin {
    /// `web.toml`.
    pub file: String,
    /// From 1.
    pub line: u64,
    /// `guest`, `profile NAME` or `defaults KIND`.
    pub layer: String,
}

/// Something that waits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HeldReport {
    /// The reason code.
    pub code: String,
    /// In words.
    pub why: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub next: String,
}

/// An operation as its host told it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ToldOperation {
    /// `op_…`.
    pub op: String,
    /// `lxc/101`.
    pub guest: String,
    /// `set_config`.
    pub kind: String,
    /// `started`, `task_running`, `succeeded`, `failed` or `unknown`.
    pub state: String,
    /// When it came to that, by the host's clock.
    pub at: String,
    /// Why it was begun.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Why it failed or is unknown, or a warning.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub outcome: String,
    /// The keys it changes, secrets masked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<OpChange>,
    /// Who signed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signer: Option<String>,
}

impl ToldOperation {
    /// The same within its bounds.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        self.changes.truncate(LIST_MAX);
        for OpChange { key: _, before, after } in &mut self.changes {
            for text in [before, after].into_iter().flatten() {
                shorten(text, VALUE_BYTES_MAX);
            }
        }
        shorten(&mut self.reason, SENTENCE_BYTES_MAX);
        shorten(&mut self.outcome, SENTENCE_BYTES_MAX);
        self
    }
}

/// One key an operation changes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct OpChange {
    /// `cores`.
    pub key: String,
    /// Before; missing if it was absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// After; missing if it is removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// A decision as its host told it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ReportedDecision {
    /// The sum of its record in the host's journal.
    pub id: String,
    /// When, by the host's clock.
    pub at: String,
    /// `decision`, `pending`, `approval`, `trust`, `frozen`, `thawed`, `tail_cut` or `note`.
    pub event: String,
    /// About which guest.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub guest: String,
    /// About which act.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub op: String,
    /// The reason code.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub code: String,
    /// In words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// Who signed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signer: Option<String>,
}

/// An item that waits for a signature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingReport {
    /// Its name: the hash of its bytes.
    pub id: PendingId,
    /// As the host signed it.
    pub item: SealedText,
}

/// What became of an envelope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvelopeVerdict {
    /// Which.
    pub envelope: EnvelopeId,
    /// The reason code.
    pub code: String,
    /// The operation it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op: Option<String>,
    /// In words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// The same as the host signed it, for the person who handed the envelope in; none from an older agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed: Option<SealedText>,
}

#[cfg(test)]
mod tests;
