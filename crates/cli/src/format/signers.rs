//! `signers list -o json`.

use evenkeel_core::sign::{Signer, TrustedSigners, Validity};
use schemars::JsonSchema;
use serde::Serialize;

use super::at;

/// Who may sign.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SignersFormat {
    /// 2.
    format_version: u32,
    /// The version of the list; null if nobody may sign.
    version: Option<u64>,
    /// Its hash.
    head: Option<String>,
    /// By role, then by name.
    signers: Vec<SignerFormat>,
}

/// One signer.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SignerFormat {
    /// Whose key.
    name: String,
    /// `operational` or `recovery`.
    role: String,
    /// The key as OpenSSH writes it.
    key: String,
    /// Its fingerprint.
    fingerprint: String,
    /// Since when it is good; null if always.
    valid_from: Option<String>,
    /// Until when it is good; null if always.
    valid_until: Option<String>,
    /// What a security key must ask of its holder; null for other keys.
    sk: Option<String>,
}

impl SignersFormat {
    pub(crate) fn of(trust: Option<&TrustedSigners>, sorted: &[&Signer]) -> Self {
        Self {
            format_version: 2,
            version: trust.map(|trust| trust.version().0),
            head: trust.map(|trust| trust.head().to_string()),
            signers: sorted.iter().map(|signer| SignerFormat::of(signer)).collect(),
        }
    }
}

impl SignerFormat {
    fn of(signer: &Signer) -> Self {
        let Signer { name, role, key, validity: Validity { from, until }, sk } = signer;
        Self {
            name: name.to_string(),
            role: role.as_str().to_owned(),
            key: key.to_string(),
            fingerprint: key.fingerprint().to_string(),
            valid_from: Some(*from).filter(|from| *from != Validity::ALWAYS.from).and_then(at),
            valid_until: Some(*until).filter(|until| *until != Validity::ALWAYS.until).and_then(at),
            sk: key.key_type().is_security_key().then(|| sk.as_str().to_owned()),
        }
    }
}
