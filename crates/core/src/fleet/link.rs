//! What travels between agent and hub, as JSON: lenient about what is not known, strict about names.
//!
//! Both sides read with these types; what a host must believe is judged elsewhere, on signed bytes. Tokens and credentials
//! are never printed.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::document::{DocumentFiles, MANIFEST_BYTES_MAX, Manifest};
use super::floor::OfferedDocument;
use super::name::{EnvelopeId, Generation, HubId};
use super::sealed::SealedText;
use crate::model::id::HostId;
use crate::model::reason::{ReasonCode, Refusal};

/// A host asks to be taken in.
#[derive(Clone, Serialize, Deserialize)]
pub struct EnrolRequest {
    /// The enrolment token.
    pub token: String,
    /// The host's public key, as a `.pub` file has it.
    pub host_key: String,
    /// The host's statement.
    pub enrolment: SealedText,
}

impl fmt::Debug for EnrolRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnrolRequest").field("host_key", &self.host_key).finish_non_exhaustive()
    }
}

/// It was.
#[derive(Clone, Serialize, Deserialize)]
pub struct EnrolAnswer {
    /// The hub.
    pub hub_id: HubId,
    /// What every later request carries.
    pub credential: String,
}

impl fmt::Debug for EnrolAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnrolAnswer").field("hub_id", &self.hub_id).finish_non_exhaustive()
    }
}

/// What there is for a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PollAnswer {
    /// The newest generation.
    pub generation: Generation,
    /// Envelopes after the cursor, in order.
    #[serde(default)]
    pub envelopes: Vec<WaitingEnvelope>,
}

/// An envelope that waits for a verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingEnvelope {
    /// Its place in the host's queue.
    pub cursor: u64,
    /// Its name, to be told the verdict by.
    pub id: EnvelopeId,
    /// The envelope.
    pub envelope: SealedText,
}

/// A document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireDocument {
    /// From whom.
    pub hub_id: HubId,
    /// For whom.
    pub host: HostId,
    /// Its number.
    pub generation: Generation,
    /// The manifest's exact bytes, in base64.
    pub manifest: String,
    /// The files.
    pub files: Vec<WireFile>,
    /// The author's envelope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<SealedText>,
}

/// A file of a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireFile {
    /// Its name.
    pub name: String,
    /// Its text.
    pub text: String,
}

impl WireDocument {
    /// A document to hand over.
    pub fn of(
        hub_id: HubId,
        host: HostId,
        generation: Generation,
        files: &DocumentFiles,
        author: Option<SealedText>,
    ) -> Self {
        let manifest = STANDARD.encode(files.manifest().as_bytes());
        let file = |(name, text): (&str, &str)| WireFile { name: name.into(), text: text.into() };
        Self { hub_id, host, generation, manifest, files: files.iter().map(file).collect(), author }
    }

    /// The document as it is judged.
    pub fn offered(self) -> Result<OfferedDocument, Refusal> {
        let Self { hub_id, host, generation, manifest, files, author } = self;
        let malformed = |why: String| Refusal::new(ReasonCode::Payload, why);
        let manifest = STANDARD.decode(&manifest);
        let manifest =
            manifest.map_err(|_| malformed("the manifest is not canonical base64".into()))?;
        if manifest.len() > MANIFEST_BYTES_MAX {
            return Err(malformed(format!("the manifest has over {MANIFEST_BYTES_MAX} bytes")));
        }
        let files = files.into_iter().map(|WireFile { name, text }| (name, text));
        let files = DocumentFiles::new(files).map_err(|error| malformed(error.to_string()))?;
        let author = author.map(|author| author.envelope()).transpose()?;
        let manifest = Manifest::from_bytes(manifest);
        Ok(OfferedDocument { hub_id, host, generation, manifest, files, author })
    }
}

/// The last head that a host reported. What says something else is no answer: it would read as "none".
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, SealedText>")]
pub struct AnchorAnswer {
    /// As the host signed it; none if it never reported one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<SealedText>,
}

impl TryFrom<BTreeMap<String, SealedText>> for AnchorAnswer {
    type Error = &'static str;

    fn try_from(mut fields: BTreeMap<String, SealedText>) -> Result<Self, Self::Error> {
        let head = fields.remove("head");
        if fields.is_empty() { Ok(Self { head }) } else { Err("it is about something else") }
    }
}

/// A report was kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportAnswer {
    /// Its number.
    pub seq: u64,
}

/// What a hub says when it refuses (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HubProblem {
    /// Always `about:blank`.
    #[serde(default, rename = "type", skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// In a few words.
    #[serde(default)]
    pub title: String,
    /// The status of the answer.
    #[serde(default)]
    pub status: u16,
    /// In a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// For machines: `unauthorised`, `resync`, …
    #[serde(default)]
    pub code: String,
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// What is wrong with a document, as the command line would draw it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub diagnostics: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_about_something_else_does_not_say_that_no_head_was_told() {
        let read = serde_json::from_str::<AnchorAnswer>;
        assert_eq!(read("{}").unwrap(), AnchorAnswer { head: None });
        for other in [r#"{"generation":7}"#, r#"{"generation":-1,"envelopes":[]}"#, "null", "[]"] {
            assert!(read(other).is_err(), "{other}");
        }
    }
}
