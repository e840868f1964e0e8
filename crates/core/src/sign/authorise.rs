//! The judgement over one approval: does it allow exactly this act, here, now, once?
//!
//! ```text
//! signatures ─► role ─► the bytes read ─► host ─► nonce ─► trust version ─► time ─► act ─► target
//! ```
//!
//! The gate asks at the moment of execution, inside the guest's lane, on a fresh read. Nothing is
//! remembered from an earlier asking. It decides and does nothing: who is told that the act is allowed
//! must make the spent nonce durable before anything is sent (invariants 3, 4, 12).

use std::collections::BTreeMap;

use super::clock::{ClockDoubt, ClockReading};
use super::envelope::{Approver, Envelope};
use super::hash::{PayloadHash, PendingId};
use super::key::Fingerprint;
use super::nonce::{Nonce, OpResult, SpentNonces};
use super::quorum::ApprovalDemand;
use super::sshsig::{KeyTouch, Namespace};
use super::statement::{
    ConfigDigest, Expected, HostBinding, STATEMENT_LIFE_MAX_S, Statement, Window,
};
use super::trust::{Role, SignerName, TrustedSigners};
use crate::action_registry::ActionKind;
use crate::model::id::{GuestId, OperationId};
use crate::model::reason::{ReasonCode, Refusal};
use crate::operate::operation::{IdentityHash, UnixSeconds};

/// An act about to be done, as exactly as it would be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Act {
    /// What would be done.
    pub op: ActionKind,
    /// On which host: this one.
    pub host: HostBinding,
    /// To which guest.
    pub guest: GuestId,
    /// What was found under that number just now.
    pub found: FoundGuest,
    /// With which parameters, all of them.
    pub params: BTreeMap<String, String>,
    /// The item that waits for it.
    pub item: PendingId,
    /// How many keys it takes, by the host's rules.
    pub demand: ApprovalDemand,
}

/// What a fresh read found under the guest's number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoundGuest {
    /// A guest.
    Guest {
        /// Which one.
        identity: IdentityHash,
        /// The digest of its configuration.
        digest: ConfigDigest,
    },
    /// None, and a quorate node says so.
    Free,
    /// It cannot be told, and why.
    Unproven(Refusal),
}

/// What the host's own policy allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatementLimits {
    /// How long a statement may live.
    pub statement_life_max_s: u64,
}

impl Default for StatementLimits {
    fn default() -> Self {
        Self { statement_life_max_s: STATEMENT_LIFE_MAX_S }
    }
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalDecision {
    /// Exactly this act was signed and may run now.
    Allowed(Approved),
    /// This very statement was executed before.
    Replay {
        /// The op that did.
        op: OperationId,
        /// How it stands.
        result: OpResult,
    },
    /// No.
    Refused(Refusal),
}

impl ApprovalDecision {
    /// Its reason code.
    pub fn reason(&self) -> ReasonCode {
        match self {
            Self::Allowed(_) => ReasonCode::AllowedSigned,
            Self::Replay { .. } => ReasonCode::Replay,
            Self::Refused(refusal) => refusal.reason,
        }
    }
}

/// What the `started` record keeps of an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approved {
    /// Who signed.
    pub by: Vec<SignedBy>,
    /// The nonce to spend.
    pub nonce: Nonce,
    /// The statement, by its exact bytes.
    pub payload: PayloadHash,
    /// Until when the nonce must be remembered at least.
    pub expires_at: UnixSeconds,
    /// Why, in the operator's words.
    pub reason: String,
}

/// A signer, for the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedBy {
    /// Whose key.
    pub name: SignerName,
    /// Which key.
    pub key: Fingerprint,
    /// For security keys, what the device said.
    pub touch: Option<KeyTouch>,
}

/// Judges an approval of an act.
pub fn authorise(
    approval: &Envelope,
    act: &Act,
    trust: &TrustedSigners,
    clock: &ClockReading,
    spent: &SpentNonces,
    limits: StatementLimits,
) -> ApprovalDecision {
    let (approvers, statement) = match read_signed(approval, trust, clock.now) {
        Ok(read) => read,
        Err(refusal) => return ApprovalDecision::Refused(refusal),
    };
    if statement.host != act.host {
        let detail = format!("it was signed for the host {}", statement.host);
        return ApprovalDecision::Refused(Refusal::new(ReasonCode::HostMismatch, detail));
    }
    let payload = approval.payload_hash();
    // Before time, trust and target: after the act those have changed, and the answer must still be what
    // became of it.
    match spent.get(&statement.nonce) {
        Some(first) if first.payload == payload => {
            return ApprovalDecision::Replay { op: first.op, result: first.result };
        }
        Some(first) => {
            let detail = format!("its nonce was spent on another statement by {}", first.op);
            return ApprovalDecision::Refused(Refusal::new(ReasonCode::NonceConflict, detail));
        }
        None => {}
    }
    // Last: whatever else is wrong with it, one more signature does not mend.
    let judged = judge(&statement, act, trust, clock, limits);
    match judged.and_then(|()| act.demand.judge(&approvers)) {
        Err(refusal) => ApprovalDecision::Refused(refusal),
        Ok(()) => ApprovalDecision::Allowed(Approved {
            by: approvers.iter().map(SignedBy::of).collect(),
            nonce: statement.nonce,
            payload,
            expires_at: statement.window.expires_at(),
            reason: statement.reason,
        }),
    }
}

/// Whether an approval whose act has begun still allows its next request: its signers are still trusted, under the
/// version it was signed for, and its time is not over. What it is aimed at is judged apart, on a fresh read.
pub fn still_allowed(
    approval: &Envelope,
    trust: &TrustedSigners,
    clock: &ClockReading,
    limits: StatementLimits,
) -> Result<(), Refusal> {
    let (_, statement) = read_signed(approval, trust, clock.now)?;
    judge_validity(&statement, trust, clock, limits)
}

/// The statement of an envelope whose signers may sign acts: what an approval is about, before it is judged.
pub fn statement_of(
    approval: &Envelope,
    trust: &TrustedSigners,
    now: UnixSeconds,
) -> Result<Statement, Refusal> {
    read_signed(approval, trust, now).map(|(_, statement)| statement)
}

/// Verifies the signatures, then the roles, then reads the bytes that were verified.
fn read_signed<'t>(
    approval: &Envelope,
    trust: &'t TrustedSigners,
    now: UnixSeconds,
) -> Result<(Vec<Approver<'t>>, Statement), Refusal> {
    let approvers = approval.verify(Namespace::Op, trust, now)?;
    for approver in &approvers {
        match approver.signer.role {
            Role::Operational => {}
            role @ (Role::Recovery | Role::Author) => {
                let name = &approver.signer.name;
                let article = if role == Role::Author { "an" } else { "a" };
                let detail =
                    format!("{name} has {article} {role} key, which signs no act on a guest");
                return Err(Refusal::new(ReasonCode::RoleDenied, detail));
            }
        }
    }
    Ok((approvers, Statement::parse(approval.payload())?))
}

fn judge(
    statement: &Statement,
    act: &Act,
    trust: &TrustedSigners,
    clock: &ClockReading,
    limits: StatementLimits,
) -> Result<(), Refusal> {
    judge_validity(statement, trust, clock, limits)?;
    // The host and the nonce are judged before, window and version just now; the reason is for people.
    let Statement {
        op,
        host: _,
        guest,
        expected,
        params,
        item,
        nonce: _,
        window: _,
        trust_version: _,
        reason: _,
    } = statement;
    if let Some(detail) = act.op.not_signable() {
        return Err(Refusal::new(ReasonCode::NotExecutable, detail));
    }
    let differs = if *op != act.op {
        Some(format!("signed is {op}, asked is {}", act.op))
    } else if *guest != act.guest {
        Some(format!("signed is {guest}, asked is {}", act.guest))
    } else if *item != act.item {
        Some(format!("signed is the item {item}, asked is {}", act.item))
    } else {
        first_difference(params, &act.params)
    };
    if let Some(detail) = differs {
        return Err(Refusal::new(ReasonCode::BindingMismatch, detail));
    }
    judge_target(expected, &act.found)
}

/// The version of the signers it was signed under, and its time.
fn judge_validity(
    statement: &Statement,
    trust: &TrustedSigners,
    clock: &ClockReading,
    limits: StatementLimits,
) -> Result<(), Refusal> {
    let signed = statement.trust_version;
    let current = trust.version();
    if signed != current {
        let detail = format!("signed under trust version {signed}; this host is at {current}");
        return Err(Refusal::new(ReasonCode::TrustVersion, detail));
    }
    judge_time(statement.window, clock, limits)
}

pub(super) fn judge_time(
    window: Window,
    clock: &ClockReading,
    limits: StatementLimits,
) -> Result<(), Refusal> {
    let in_doubt = |doubt: ClockDoubt| Err(Refusal::new(ReasonCode::Clock, doubt.to_string()));
    match clock.doubt {
        None => window.judge(clock.now, limits.statement_life_max_s),
        // The mark has been reached for certain: what ended before it has ended.
        Some(doubt @ ClockDoubt::Behind { .. }) => {
            window.judge(clock.now, limits.statement_life_max_s)?;
            in_doubt(doubt)
        }
        // The leap may be undone: what seems to have ended by it only waits.
        Some(doubt @ ClockDoubt::Ahead { .. }) => in_doubt(doubt),
    }
}

fn judge_target(expected: &Expected, found: &FoundGuest) -> Result<(), Refusal> {
    let (reason, detail) = match (expected, found) {
        (_, FoundGuest::Unproven(refusal)) => return Err(refusal.clone()),
        (Expected::Free, FoundGuest::Free) => return Ok(()),
        (Expected::Free, FoundGuest::Guest { .. }) => {
            (ReasonCode::IdentityMismatch, "a guest has this number, which was free when signed")
        }
        (Expected::Guest { .. }, FoundGuest::Free) => {
            (ReasonCode::IdentityMismatch, "no guest has this number now")
        }
        (
            Expected::Guest { identity, digest },
            FoundGuest::Guest { identity: live, digest: live_digest },
        ) => {
            if identity != live {
                (ReasonCode::IdentityMismatch, "another guest has this number now")
            } else if digest != live_digest {
                (ReasonCode::Stale, "the configuration changed after it was signed")
            } else {
                return Ok(());
            }
        }
    };
    Err(Refusal::new(reason, detail))
}

/// The first parameter that is not the same on both sides.
fn first_difference(
    signed: &BTreeMap<String, String>,
    asked: &BTreeMap<String, String>,
) -> Option<String> {
    let missing = signed.iter().find(|(name, _)| !asked.contains_key(*name));
    if let Some((name, _)) = missing {
        return Some(format!("`{name}` is signed and not asked"));
    }
    asked.iter().find_map(|(name, value)| match signed.get(name) {
        None => Some(format!("`{name}` is asked and not signed")),
        Some(other) if other != value => Some(format!("`{name}` differs from what is signed")),
        Some(_) => None,
    })
}

impl SignedBy {
    pub(super) fn of(approver: &Approver<'_>) -> Self {
        let Approver { signer, touch } = approver;
        Self { name: signer.name.clone(), key: signer.key.fingerprint(), touch: *touch }
    }
}
