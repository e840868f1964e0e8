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
    /// It costs nothing that cannot be set back, or only what was declared.
    Allowed = "allowed",
    /// An operator signed exactly this act.
    AllowedSigned = "allowed_signed",
    /// It needs an operator's signature and has none.
    PendingSignature = "pending_signature",
    /// A signature is by a key nobody enrolled.
    UnknownSigner = "unknown_signer",
    /// The key's role does not sign this kind of statement.
    RoleDenied = "role_denied",
    /// Op, guest or a parameter differs from what was signed.
    BindingMismatch = "binding_mismatch",
    /// It was signed for another host.
    HostMismatch = "host_mismatch",
    /// Another guest has this number now.
    IdentityMismatch = "identity_mismatch",
    /// Which guest has this number cannot be proven.
    IdentityUnproven = "identity_unproven",
    /// The configuration changed, or the item was superseded.
    Stale = "stale",
    /// Its time is over.
    Expired = "expired",
    /// Its time has not come.
    NotYetValid = "not_yet_valid",
    /// It would be valid for longer than this host allows.
    LifetimeExceeded = "lifetime_exceeded",
    /// This very statement was executed before.
    Replay = "replay",
    /// Its nonce was spent by another statement.
    NonceConflict = "nonce_conflict",
    /// The key was trusted once, or is outside its own validity.
    KeyRevoked = "key_revoked",
    /// It was made for another version of the trust store.
    TrustVersion = "trust_version",
    /// A signature is not in the one form evenkeel reads.
    SigFormat = "sig_format",
    /// A signature does not verify.
    SigInvalid = "sig_invalid",
    /// A signature was made for another purpose.
    SigNamespace = "sig_namespace",
    /// A signature uses another hash than SHA-512.
    SigHash = "sig_hash",
    /// A key is of a type evenkeel does not take.
    KeyType = "key_type",
    /// A key that anybody could sign for.
    WeakKey = "weak_key",
    /// Nobody touched the security key, or its PIN was not asked for where it must be.
    SkPresence = "sk_presence",
    /// The signed bytes are not a statement.
    Payload = "payload",
    /// The envelope around the signed bytes is malformed.
    Envelope = "envelope",
    /// The host is frozen.
    Frozen = "frozen",
    /// The host's own limit is reached.
    Budget = "budget",
    /// The time cannot be trusted now.
    Clock = "clock",
    /// PVE holds a lock on the guest.
    Locked = "locked",
    /// The guest's lane is busy.
    Busy = "busy",
    /// Known, but evenkeel never does it.
    NotExecutable = "not_executable",
    /// It approves an item that does not wait.
    NotPending = "not_pending",
    /// The journal cannot be written, or a volume stands in the way.
    Storage = "storage",
    /// It failed, and its pause is not over.
    FailedBefore = "failed_before",
    /// An operation on the guest ended in a way nobody knows; its lane is shut.
    UnknownOutcome = "unknown_outcome",
    /// The guest or the host is only observed.
    Observe = "observe",
    /// It comes after something that is not so yet.
    After = "after",
    /// The journal is older than it was: somebody put an old state back.
    JournalRollback = "journal_rollback",
    /// The hub offers an older document than the one that was taken.
    GenerationRollback = "generation_rollback",
    /// The token lacks a right that judging or proving the act takes.
    Rights = "rights",
    /// The host's own policy does not allow it.
    Policy = "policy",
}

impl ReasonCode {
    /// What a person does about it next.
    pub fn next_step(self) -> &'static str {
        match self {
            Self::Allowed | Self::AllowedSigned => "nothing is left to do",
            Self::PendingSignature => "an operator signs it with `evenkeel approve`",
            Self::UnknownSigner => {
                "compare the key with `evenkeel signers list`; a new key comes in by `evenkeel signers rotate`"
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
            Self::SigFormat => "take the signature as ssh-keygen wrote it, unchanged and alone",
            Self::SigInvalid => {
                "it was changed, or the signature is over other bytes: fetch it again from where it was made"
            }
            Self::SigNamespace => "sign again with the -n that `evenkeel sign` shows",
            Self::SigHash => "sign again without -O hashalg",
            Self::Payload => {
                "it is no statement a host would read; docs/formats/approval.md has the rules"
            }
            Self::Envelope => "docs/formats/approval.md says what an envelope holds",
            Self::HostMismatch => "it was made for another host",
            Self::BindingMismatch
            | Self::IdentityMismatch
            | Self::IdentityUnproven
            | Self::Stale => "look at the guest, and sign the item that waits for it now",
            Self::Expired | Self::LifetimeExceeded => "sign again, with a life the host allows",
            Self::NotYetValid => "wait, or compare the clocks",
            Self::Replay => "it was executed before; look at the op it names",
            Self::NonceConflict => "sign again; if you did not sign twice, somebody else did",
            Self::TrustVersion => {
                "the signers changed: name every rotation with --rotation, and sign again under the new version"
            }
            Self::Clock => "set the host's clock right",
            Self::Frozen | Self::Budget | Self::Locked | Self::Busy | Self::Storage => {
                "try again when the host has become free"
            }
            Self::NotExecutable => "do it by hand; evenkeel never does",
            Self::Rights => {
                "grant the token what is named; `evenkeel doctor` prints the smallest role"
            }
            Self::Policy => {
                "root decides on the host: the named field under [policy] in agent.toml bounds it"
            }
            Self::UnknownOutcome => {
                "look at the guest, then close the operation with `evenkeel journal resolve`"
            }
            Self::After => "bring the guest to where it says, then try again",
            Self::Observe => "set `mode` to \"enforce\" in the desired file or in agent.toml",
            Self::JournalRollback => {
                "look at what the host did since, then acknowledge it: `evenkeel journal acknowledge FILE`"
            }
            Self::GenerationRollback => {
                "the hub was put back: push once more, so that it goes on above what its hosts took"
            }
            Self::NotPending => "sign the item that waits now",
            Self::FailedBefore => "mend the cause, then `evenkeel retry` tries it at once",
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
