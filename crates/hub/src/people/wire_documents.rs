//! What goes over the wire about documents, drafts and what they change. A secret is masked in a difference, never told.

use evenkeel_core::desired::{DeclarationDifference, DeclaredChange};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::wire::SealedBody;

/// A file of a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileBody {
    /// `web.toml`.
    pub name: String,
    /// What is in it.
    pub text: String,
}

/// `POST …/documents`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PushRequest {
    /// The whole set.
    pub files: Vec<FileBody>,
    /// Why.
    #[serde(default)]
    pub message: String,
    /// The statement `evenkeel/desired/v2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<SealedBody>,
    /// The draft that it was, which is then gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draft: Option<String>,
}

/// A document that was taken in.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct PushAnswer {
    /// Its number.
    pub generation: u64,
    /// The hash of its manifest.
    pub manifest: String,
    /// Guest by guest, what differs from the generation before.
    pub difference: Vec<DifferenceBody>,
}

/// `POST …/documents/check` and `POST …/drafts`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FilesRequest {
    /// The whole set.
    pub files: Vec<FileBody>,
    /// Why; kept with a draft.
    #[serde(default)]
    pub message: String,
}

/// What a push would do.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct CheckAnswer {
    /// The hash of its manifest.
    pub manifest: String,
    /// The newest generation, which it would follow.
    pub newest: u64,
    /// The number it would get.
    pub next_generation: u64,
    /// How many guests it declares.
    pub guests: u64,
    /// Guest by guest, what differs from the newest generation.
    pub difference: Vec<DifferenceBody>,
}

/// A generation in the history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GenerationBody {
    /// Its number.
    pub generation: u64,
    /// The hash of its manifest.
    pub manifest: String,
    /// Why.
    pub message: String,
    /// Who pushed it.
    pub pushed_by: String,
    /// When, by the hub's clock.
    pub pushed_at: String,
    /// The fingerprint of the author's key; empty if nobody signed.
    pub author: String,
}

/// One document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DocumentBody {
    /// Where it stands in the history.
    #[serde(flatten)]
    pub generation: GenerationBody,
    /// The whole set.
    pub files: Vec<FileBody>,
    /// The author's statement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statement: Option<SealedBody>,
}

/// A document that waits to be signed elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DraftBody {
    /// `drf_…`.
    pub id: String,
    /// For which host.
    pub host: String,
    /// The generation it was made from.
    pub base: u64,
    /// Why.
    pub message: String,
    /// Who made it.
    pub made_by: String,
    /// When, by the hub's clock.
    pub made_at: String,
    /// The whole set; empty in a list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileBody>,
}

/// One guest that is declared otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DifferenceBody {
    /// `lxc/101`.
    pub guest: String,
    /// Its own name, if one is declared.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// `added`, `released` (only no longer managed) or `changed`.
    pub change: String,
    /// What is said otherwise. Secrets are masked.
    pub keys: Vec<KeyDifferenceBody>,
}

/// One key that is declared otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeyDifferenceBody {
    /// `cores`.
    pub key: String,
    /// What was said before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// What is said now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// What a list, a table or a text of several lines lost, each entry whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
    /// What it gained.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<String>,
    /// `web.toml:4`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
}

impl From<DeclarationDifference> for DifferenceBody {
    fn from(difference: DeclarationDifference) -> Self {
        let DeclarationDifference { guest, name, change, keys } = difference;
        let keys = keys.into_iter().map(KeyDifferenceBody::from).collect();
        Self { guest: guest.to_string(), name, change: change.as_str().to_owned(), keys }
    }
}

impl From<DeclaredChange> for KeyDifferenceBody {
    fn from(change: DeclaredChange) -> Self {
        let DeclaredChange { key, before, after, removed, added, origin } = change;
        Self { key, before, after, removed, added, origin }
    }
}
