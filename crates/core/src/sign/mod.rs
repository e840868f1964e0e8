//! Signatures nobody can bend: what an operator signs, who may sign, and whether it allows an act.
//!
//! ```text
//!  trust.toml ─► trust ─┬─ rotation ─► trust … ─┐
//!                       │                       ▼
//!  envelope ─► sshsig (which key) ─► statement ─► authorise (this act, here, now, once) ─► Decision
//!     ▲                                 ▲
//!  bytes + armour, exact            the same bytes, read strictly
//! ```
//!
//! The gate calls [`authorise()`]; the agent folds [`rotate`] over its journal; the command line makes
//! statements, shows them from their bytes ([`render`]) and edits trust files as text. Everything here
//! is a pure function over values. It verifies and never signs, and it never writes a statement out
//! again to compare it.

mod any_statement;
pub mod armour;
mod authorise;
pub mod clock;
mod collect;
mod denial;
pub mod enrol;
mod envelope;
mod hash;
pub(crate) mod json;
mod key;
mod lineage;
mod nonce;
mod params;
mod pending;
pub mod pin;
mod quorum;
pub mod render;
mod rotation;
mod sshsig;
pub(crate) mod statement;
pub mod time;
mod trust;
pub mod trust_file;
pub mod wire;

pub use any_statement::AnyStatement;
pub use authorise::{
    Act, ApprovalDecision, Approved, FoundGuest, SignedBy, StatementLimits, authorise,
    statement_of, still_allowed,
};
pub use collect::{Collected, JudgedBy, collect};
pub use denial::{DENIAL_FORMAT, DenialStatement};
pub use envelope::{Approver, ENVELOPE_BYTES_MAX, Envelope, SIGNATURES_MAX};
pub use hash::{ManifestHash, NotAHash, PayloadHash, PendingId, TrustHash};
pub use key::{Fingerprint, KEY_BLOB_BYTES_MAX, KeyType, NotAFingerprint, PublicKey};
pub use lineage::{Lineage, PLANNED_LINKS_MAX, RECOVERY_AHEAD_MAX};
pub use nonce::{
    AlreadySpent, Nonce, NotANonce, OpResult, REMEMBERED_AFTER_EXPIRY_S, SpentNonces, SpentOn,
};
pub use pending::{LastBackup, Loss, PendingItem};
pub use quorum::{APPROVAL_RULES_MAX, ApprovalDemand, ApprovalRules, SignerCount};
pub use rotation::{ClockChange, Occasion, Rotated, Rotation, RotationAuthority, rotate};
pub use sshsig::{KeyTouch, Namespace, SshSig, VerifiedSignature, assemble, signed_bytes, verify};
pub use statement::{
    ConfigDigest, Expected, HostBinding, LAST_SECOND, NotADigest, REASON_BYTES_MAX,
    STATEMENT_BYTES_MAX, STATEMENT_FORMAT, STATEMENT_LIFE_MAX_S, Statement, Window,
};
pub use trust::{
    Lookup, NotASignerName, NotOneOf, Role, SIGNERS_MAX, Signer, SignerName, SkPolicy,
    TrustVersion, TrustedSigners, Validity,
};
