//! A refusal of core as a person and a script meet it: the reason code, an exit code, the next step.

use evenkeel_core::reason::{ReasonCode, Refusal};

use crate::error::{Exit, Failure};

/// The failure a refusal is.
pub(crate) fn refused(refusal: &Refusal) -> Failure {
    let Refusal { reason, detail } = refusal;
    let failure = Failure::new(exit(*reason), format!("refused as {reason}: {detail}"));
    failure.hint(next_step(*reason))
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        refused(&refusal)
    }
}

/// The exit code of a reason: 3 what is malformed, 4 who may not, 7 what another time may allow.
pub(crate) fn exit(reason: ReasonCode) -> Exit {
    match reason {
        ReasonCode::Allowed | ReasonCode::AllowedSigned => Exit::Ok,
        ReasonCode::PendingSignature => Exit::ApprovalRequired,
        ReasonCode::Payload | ReasonCode::Envelope => Exit::Invalid,
        ReasonCode::UnknownSigner
        | ReasonCode::RoleDenied
        | ReasonCode::BindingMismatch
        | ReasonCode::HostMismatch
        | ReasonCode::IdentityMismatch
        | ReasonCode::IdentityUnproven
        | ReasonCode::LifetimeExceeded
        | ReasonCode::NonceConflict
        | ReasonCode::KeyRevoked
        | ReasonCode::SigFormat
        | ReasonCode::SigInvalid
        | ReasonCode::SigNamespace
        | ReasonCode::SigHash
        | ReasonCode::KeyType
        | ReasonCode::WeakKey
        | ReasonCode::SkPresence
        | ReasonCode::NotExecutable
        | ReasonCode::Rights
        | ReasonCode::Policy => Exit::Denied,
        ReasonCode::Stale
        | ReasonCode::Expired
        | ReasonCode::NotYetValid
        | ReasonCode::Replay
        | ReasonCode::TrustVersion
        | ReasonCode::Frozen
        | ReasonCode::Budget
        | ReasonCode::Clock
        | ReasonCode::Locked
        | ReasonCode::Busy
        | ReasonCode::NotPending
        | ReasonCode::UnknownOutcome
        | ReasonCode::FailedBefore
        | ReasonCode::Observe
        | ReasonCode::After
        | ReasonCode::JournalRollback
        | ReasonCode::GenerationRollback
        | ReasonCode::Storage => Exit::Transient,
    }
}

fn next_step(reason: ReasonCode) -> &'static str {
    match reason {
        ReasonCode::Allowed | ReasonCode::AllowedSigned => "nothing is left to do",
        ReasonCode::PendingSignature => "an operator signs it with `evenkeel sign`",
        ReasonCode::UnknownSigner => {
            "compare the key with `evenkeel signers list`; a new key comes in by `evenkeel signers rotate`"
        }
        ReasonCode::RoleDenied => {
            "operational keys sign acts and rotations, recovery keys sign recoveries only"
        }
        ReasonCode::KeyRevoked => {
            "sign with a key that is valid now; `evenkeel signers list` shows them"
        }
        ReasonCode::KeyType => {
            "use a key of ssh-keygen -t ed25519, ed25519-sk, ecdsa-sk, or ecdsa with -b 256"
        }
        ReasonCode::WeakKey => "make another key: ssh-keygen -t ed25519",
        ReasonCode::SkPresence => {
            "touch the security key when it blinks; a key made with no-touch-required cannot be used"
        }
        ReasonCode::SigFormat => "take the signature as ssh-keygen wrote it, unchanged and alone",
        ReasonCode::SigInvalid => {
            "it was changed, or the signature is over other bytes: fetch it again from where it was made"
        }
        ReasonCode::SigNamespace => "sign again with the -n that `evenkeel sign` shows",
        ReasonCode::SigHash => "sign again without -O hashalg",
        ReasonCode::Payload => {
            "it is no statement a host would read; docs/formats/approval.md has the rules"
        }
        ReasonCode::Envelope => "docs/formats/approval.md says what an envelope holds",
        ReasonCode::HostMismatch => "it was made for another host",
        ReasonCode::BindingMismatch
        | ReasonCode::IdentityMismatch
        | ReasonCode::IdentityUnproven
        | ReasonCode::Stale => "look at the guest, and sign the item that waits for it now",
        ReasonCode::Expired | ReasonCode::LifetimeExceeded => {
            "sign again, with a life the host allows"
        }
        ReasonCode::NotYetValid => "wait, or compare the clocks",
        ReasonCode::Replay => "it was executed before; look at the op it names",
        ReasonCode::NonceConflict => "sign again; if you did not sign twice, somebody else did",
        ReasonCode::TrustVersion => {
            "the signers changed: name every rotation with --rotation, and sign again under the new version"
        }
        ReasonCode::Clock => "set the host's clock right",
        ReasonCode::Frozen
        | ReasonCode::Budget
        | ReasonCode::Locked
        | ReasonCode::Busy
        | ReasonCode::Storage => "try again when the host has become free",
        ReasonCode::NotExecutable => "do it by hand; evenkeel never does",
        ReasonCode::Rights => {
            "grant the token what is named; `evenkeel doctor` prints the smallest role"
        }
        ReasonCode::Policy => {
            "root decides on the host: the named field under [policy] in agent.toml bounds it"
        }
        ReasonCode::UnknownOutcome => {
            "look at the guest, then close the operation with `evenkeel journal resolve`"
        }
        ReasonCode::After => "bring the guest to where it says, then try again",
        ReasonCode::Observe => "set `mode` to \"enforce\" in the desired file or in agent.toml",
        ReasonCode::JournalRollback => {
            "look at what the host did since, then acknowledge it: `evenkeel journal acknowledge FILE`"
        }
        ReasonCode::GenerationRollback => {
            "the hub was put back: push once more, so that it goes on above what its hosts took"
        }
        ReasonCode::NotPending => "sign the item that waits now",
        ReasonCode::FailedBefore => "mend the cause, then `evenkeel retry` tries it at once",
    }
}
