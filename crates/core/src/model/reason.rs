//! Why a decision came out as it did: the closed list of reason codes, and a refusal with its words.
//!
//! The gate, the signature checks and the journal name a decision by these spellings; dashboards and
//! scripts match on them, so a spelling never changes. It must never grow an "other" arm: a decision
//! without a reason of its own is a missing case, not a case of its own.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Declares the enum, its spellings and the list of all from one table, so that they cannot differ.
macro_rules! reason_codes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal,)+) => {
        /// Why an act runs, waits or is refused.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "&'static str")]
        pub enum ReasonCode {
            $($(#[$doc])* $variant,)+
        }

        impl ReasonCode {
            /// Every code, in the order the documentation lists them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The spelling used in journal, reports and command line.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }
    };
}

reason_codes! {
    /// It needs no signature: it is reversible, or you declared it.
    Allowed = "allowed",
    /// An operator signed exactly this act.
    AllowedSigned = "allowed_signed",
    /// It needs an operator's signature and has none.
    PendingSignature = "pending_signature",
    /// The key of a signature is not enrolled.
    UnknownSigner = "unknown_signer",
    /// The key's role may not sign this kind of statement.
    RoleDenied = "role_denied",
    /// Op, guest or a parameter differs from the signed statement.
    BindingMismatch = "binding_mismatch",
    /// It was signed for another host.
    HostMismatch = "host_mismatch",
    /// Another guest has this number now.
    IdentityMismatch = "identity_mismatch",
    /// evenkeel cannot prove which guest has this number.
    IdentityUnproven = "identity_unproven",
    /// The configuration changed, or the item was superseded.
    Stale = "stale",
    /// Its validity has ended.
    Expired = "expired",
    /// Its validity has not begun.
    NotYetValid = "not_yet_valid",
    /// It would be valid for longer than this host allows.
    LifetimeExceeded = "lifetime_exceeded",
    /// This statement was already executed.
    Replay = "replay",
    /// Another statement has already used its nonce.
    NonceConflict = "nonce_conflict",
    /// The key is no longer trusted, or is outside its own validity.
    KeyRevoked = "key_revoked",
    /// It was made for another version of the trust store.
    TrustVersion = "trust_version",
    /// A signature is not in the only form that evenkeel reads.
    SigFormat = "sig_format",
    /// A signature does not verify.
    SigInvalid = "sig_invalid",
    /// A signature was made for another purpose.
    SigNamespace = "sig_namespace",
    /// A signature uses another hash than SHA-512.
    SigHash = "sig_hash",
    /// A key is of a type that evenkeel does not accept.
    KeyType = "key_type",
    /// A key is weak: anyone could forge its signatures.
    WeakKey = "weak_key",
    /// The security key was not touched, or did not ask for a PIN that the host demands.
    SkPresence = "sk_presence",
    /// The signed bytes are not a statement.
    Payload = "payload",
    /// The envelope around the signed bytes is malformed.
    Envelope = "envelope",
    /// The host is frozen.
    Frozen = "frozen",
    /// The host's own limit is reached.
    Budget = "budget",
    /// The host's clock cannot be trusted now.
    Clock = "clock",
    /// Proxmox VE holds a lock on the guest.
    Locked = "locked",
    /// The guest's lane is busy.
    Busy = "busy",
    /// evenkeel knows the act but never does it.
    NotExecutable = "not_executable",
    /// It approves an item that is not pending.
    NotPending = "not_pending",
    /// The journal cannot be written, or a volume stands in the way.
    Storage = "storage",
    /// It failed, and the agent waits before the next try.
    FailedBefore = "failed_before",
    /// An operation on the guest has an unknown outcome; its lane is shut.
    UnknownOutcome = "unknown_outcome",
    /// The guest or the host is in observe mode.
    Observe = "observe",
    /// It waits for another step or state.
    After = "after",
    /// The journal is older than it was: someone restored an old state.
    JournalRollback = "journal_rollback",
    /// The hub offers an older document than the host already accepted.
    GenerationRollback = "generation_rollback",
    /// The token lacks a right that evenkeel needs to judge or prove the act.
    Rights = "rights",
    /// The host's own policy does not allow it.
    Policy = "policy",
}

impl ReasonCode {
    /// What a person does about it next.
    pub fn next_step(self) -> &'static str {
        match self {
            Self::Allowed | Self::AllowedSigned => "nothing is left to do",
            Self::PendingSignature => "sign it with `evenkeel approve`",
            Self::UnknownSigner => {
                "compare the key with `evenkeel signers list`; add a new key with `evenkeel signers rotate`"
            }
            Self::RoleDenied => {
                "operational keys sign acts and rotations, recovery keys sign recoveries only"
            }
            Self::KeyRevoked => {
                "sign with a key that is valid now; `evenkeel signers list` shows them"
            }
            Self::KeyType => {
                "use a key of ssh-keygen -t ed25519, ed25519-sk, ecdsa-sk, or ecdsa with -b 256"
            }
            Self::WeakKey => "make another key: ssh-keygen -t ed25519",
            Self::SkPresence => {
                "touch the security key when it blinks; a key made with no-touch-required cannot be used"
            }
            Self::SigFormat => "use the signature exactly as ssh-keygen wrote it, and nothing else",
            Self::SigInvalid => {
                "the file was changed, or the signature is over other bytes: fetch it again from its source"
            }
            Self::SigNamespace => "sign again with the -n that `evenkeel sign` shows",
            Self::SigHash => "sign again without -O hashalg",
            Self::Payload => {
                "hosts do not accept it as a statement; docs/formats/approval.md has the rules"
            }
            Self::Envelope => "docs/formats/approval.md lists the fields of an envelope",
            Self::HostMismatch => "submit it on the host that it names",
            Self::BindingMismatch
            | Self::IdentityMismatch
            | Self::IdentityUnproven
            | Self::Stale => "look at the guest, then sign its current pending item",
            Self::Expired | Self::LifetimeExceeded => {
                "sign again, with a --life that the host allows"
            }
            Self::NotYetValid => "wait, or compare the clocks",
            Self::Replay => "it was already executed; look at the op that it names",
            Self::NonceConflict => "sign again; if you signed only once, someone else signed too",
            Self::TrustVersion => {
                "the signers changed: name every rotation with --rotation, then sign again for the new version"
            }
            Self::Clock => "correct the host's clock",
            Self::Frozen | Self::Budget | Self::Locked | Self::Busy | Self::Storage => {
                "try again when the host is free"
            }
            Self::NotExecutable => "do it by hand; evenkeel never does it",
            Self::Rights => {
                "grant the token the named right; `evenkeel doctor` prints the smallest role"
            }
            Self::Policy => {
                "root can change the named field under [policy] in the host's agent.toml"
            }
            Self::UnknownOutcome => {
                "look at the guest, then close the operation with `evenkeel journal resolve`"
            }
            Self::After => "bring the guest to the named state, then try again",
            Self::Observe => "set `mode` to \"enforce\" in the desired file or in agent.toml",
            Self::JournalRollback => {
                "check the host's acts since then, then acknowledge it: `evenkeel journal acknowledge FILE`"
            }
            Self::GenerationRollback => {
                "the hub was restored: push again, so that its generation passes that of its hosts"
            }
            Self::NotPending => "sign the current pending item",
            Self::FailedBefore => "fix the cause, then retry it with `evenkeel retry`",
        }
    }
}

impl fmt::Display for ReasonCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<ReasonCode> for &'static str {
    fn from(code: ReasonCode) -> Self {
        code.as_str()
    }
}

/// A word that is no reason code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a reason code")]
pub struct UnknownReason(String);

impl FromStr for ReasonCode {
    type Err = UnknownReason;

    fn from_str(text: &str) -> Result<Self, UnknownReason> {
        let found = Self::ALL.iter().find(|code| code.as_str() == text);
        found.copied().ok_or_else(|| UnknownReason(text.to_owned()))
    }
}

impl TryFrom<String> for ReasonCode {
    type Error = UnknownReason;

    fn try_from(text: String) -> Result<Self, UnknownReason> {
        text.parse()
    }
}

/// A refusal: its code for machines, its words for a person.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {detail}")]
pub struct Refusal {
    /// Why, as a code.
    pub reason: ReasonCode,
    /// Why, as a phrase that reads alone.
    pub detail: String,
}

impl Refusal {
    /// A refusal with its words.
    pub fn new(reason: ReasonCode, detail: impl Into<String>) -> Self {
        Self { reason, detail: detail.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_are_exactly_those_of_the_contract() {
        let spelled: Vec<&str> = ReasonCode::ALL.iter().map(|code| code.as_str()).collect();
        let contract = "allowed allowed_signed pending_signature unknown_signer role_denied \
            binding_mismatch host_mismatch identity_mismatch identity_unproven stale expired \
            not_yet_valid lifetime_exceeded replay nonce_conflict key_revoked trust_version \
            sig_format sig_invalid sig_namespace sig_hash key_type weak_key sk_presence payload \
            envelope frozen budget clock locked busy not_executable not_pending storage \
            failed_before unknown_outcome observe after journal_rollback generation_rollback rights policy";
        assert_eq!(spelled, contract.split_whitespace().collect::<Vec<_>>());
    }

    #[test]
    fn every_code_is_read_back_from_its_one_spelling() {
        for code in ReasonCode::ALL {
            assert_eq!(code.as_str().parse(), Ok(*code));
            let json = serde_json::to_string(code).unwrap();
            assert_eq!(json, format!("\"{code}\""));
            assert_eq!(serde_json::from_str::<ReasonCode>(&json).unwrap(), *code);
        }
        for text in ["", "Allowed", "allowed ", "replay\0", "sig"] {
            assert!(text.parse::<ReasonCode>().is_err(), "{text:?}");
        }
    }
}
