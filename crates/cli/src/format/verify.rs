//! `verify -o json`: one shape for a statement that holds, for an item of a host, and for what is refused.

use evenkeel_core::model::reason::ReasonCode;
use schemars::JsonSchema;
use serde::Serialize;

/// Who signed what, and what a host would say to it.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct VerifyFormat {
    /// 2.
    pub(crate) format_version: u32,
    /// What the signatures are for; null if it could not be read.
    pub(crate) namespace: Option<&'static str>,
    /// The signatures that hold; none of a host's own item.
    pub(crate) signatures: Vec<SignatureFormat>,
    /// The host it is about.
    pub(crate) host: Option<HostFormat>,
    /// From when it holds.
    pub(crate) not_before: Option<String>,
    /// Until when.
    pub(crate) expires_at: Option<String>,
    /// What the signed bytes say, in words.
    pub(crate) says: Option<String>,
    /// What a host with these signers would answer; null if no trust file was named.
    pub(crate) decision: Option<DecisionFormat>,
}

impl Default for VerifyFormat {
    fn default() -> Self {
        Self {
            format_version: 2,
            namespace: None,
            signatures: Vec::new(),
            host: None,
            not_before: None,
            expires_at: None,
            says: None,
            decision: None,
        }
    }
}

/// A signature that holds.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SignatureFormat {
    /// The fingerprint of its key.
    pub(crate) key: String,
    /// The type of the key.
    #[serde(rename = "type")]
    pub(crate) key_type: &'static str,
    /// Whose it is, if a trust file has it.
    pub(crate) name: Option<String>,
    /// In which role.
    pub(crate) role: Option<&'static str>,
    /// What a security key said of it.
    pub(crate) touch: Option<TouchFormat>,
}

/// What a security key says of one use.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TouchFormat {
    /// Whether it asked for a PIN or a fingerprint.
    pub(crate) verified: bool,
    /// How often it was used.
    pub(crate) counter: u32,
}

/// A host, by name and key.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct HostFormat {
    /// Its name.
    pub(crate) id: String,
    /// The fingerprint of its key.
    pub(crate) key: String,
}

/// A decision.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DecisionFormat {
    /// The reason code.
    reason: String,
    /// More about it, in words.
    detail: Option<String>,
}

impl DecisionFormat {
    pub(crate) fn new(reason: ReasonCode, detail: Option<String>) -> Self {
        Self { reason: reason.to_string(), detail }
    }
}
