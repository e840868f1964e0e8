//! A refusal of core as a person and a script meet it: the reason code, an exit code, the next step.

use evenkeel_core::model::reason::{ReasonCode, Refusal};

use crate::error::{CommandFailure, Exit};

/// The failure a refusal is.
pub(crate) fn refused(refusal: &Refusal) -> CommandFailure {
    let Refusal { reason, detail } = refusal;
    let failure = CommandFailure::new(exit(*reason), format!("refused as {reason}: {detail}"));
    failure.hint(ReasonCode::next_step(*reason))
}

impl From<Refusal> for CommandFailure {
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
