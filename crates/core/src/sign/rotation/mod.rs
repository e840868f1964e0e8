//! Rotations: how the signers of a host change, and how its mark of time is set right.
//!
//! ```text
//! trust v7 ── rotate  (an operational key, and each new key) ──► trust v8
//! trust v8 ── recover (a recovery key, and each new key) ──────► trust v9 or higher, from any state
//! ```
//!
//! A rotation names its host, its number, the head it follows and the whole new list of signers. Because a
//! statement names the trust version it was made under, every rotation voids what is outstanding. A planned
//! one has the next number, cannot touch recovery keys and cannot set the mark of time. Which list a recovery
//! may follow is said in `lineage`. The agent makes the result durable and replays the same envelopes with the
//! time they were accepted at.

mod written;

use std::collections::BTreeSet;

use crate::model::reason::{ReasonCode, Refusal};
use crate::operate::operation::UnixSeconds;
use crate::sign::clock::{BEHIND_MAX_S, ClockReading, RAISE_MAX_S};
use crate::sign::envelope::{Envelope, verify_one};
use crate::sign::hash::TrustHash;
use crate::sign::key::PublicKey;
use crate::sign::lineage::{Lineage, RECOVERY_AHEAD_MAX};
use crate::sign::quorum::{ApprovalRules, SignerCount};
use crate::sign::sshsig::{Namespace, SshSig};
use crate::sign::statement::{HostBinding, Window};
use crate::sign::time;
use crate::sign::trust::{Lookup, Role, Signer, TrustVersion, TrustedSigners, Validity};

/// By whose word the signers change. Of two that wait, the first in this order is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RotationAuthority {
    /// A recovery key's: anything may change.
    Recovery,
    /// An operational key's: everything but the recovery keys.
    Planned,
}

impl RotationAuthority {
    /// Both, the stronger first.
    pub const ALL: [Self; 2] = [Self::Recovery, Self::Planned];

    /// The one whose signatures are for this, if they are for a change of the signers at all.
    pub fn of(namespace: Namespace) -> Option<Self> {
        Self::ALL.into_iter().find(|authority| authority.namespace() == namespace)
    }

    /// What its signatures are for.
    pub fn namespace(self) -> Namespace {
        match self {
            Self::Recovery => Namespace::Recover,
            Self::Planned => Namespace::Rotate,
        }
    }

    /// The role that may sign it.
    pub fn role(self) -> Role {
        match self {
            Self::Recovery => Role::Recovery,
            Self::Planned => Role::Operational,
        }
    }

    /// What it authorises, for a sentence about it.
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Recovery => "a recovery of the signers",
            Self::Planned => "a rotation of the signers",
        }
    }

    /// The format its statement names.
    pub fn format(self) -> &'static str {
        match self {
            Self::Recovery => "evenkeel/recover/v1",
            Self::Planned => "evenkeel/rotate/v1",
        }
    }
}

/// What happens to the mark of time. Only a recovery sets it, and only to about what the host's clock says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockChange {
    /// Nothing.
    Keep,
    /// It is set, if it is still what the operator saw.
    Set {
        /// The mark the operator saw.
        from: UnixSeconds,
        /// The mark from now on.
        to: UnixSeconds,
    },
}

/// A change of signers, as it is signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rotation {
    /// By whose word.
    pub authority: RotationAuthority,
    /// Where.
    pub host: HostBinding,
    /// The number of the new list.
    pub version: TrustVersion,
    /// The head it follows.
    pub previous: TrustHash,
    /// The whole new list.
    pub signers: Vec<Signer>,
    /// What happens to the mark of time.
    pub clock: ClockChange,
    /// The rules about how many must sign that the chain keeps from then on; none leaves them as they are. What root's file
    /// says holds beside them.
    pub approve: Option<ApprovalRules>,
    /// When.
    pub window: Window,
    /// Why, in the operator's words.
    pub reason: String,
}

/// What a rotation leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rotated {
    /// The signers from now on.
    pub trust: TrustedSigners,
    /// The mark of time from now on, if it was set.
    pub mark: Option<UnixSeconds>,
    /// What was signed.
    pub rotation: Rotation,
}

/// Judges a rotation of these signers in full and gives the new trust store. `clock` is the reading at which it
/// is handed in; a doubtful clock does not stop it, or nobody could set it right. A host asks its [`Lineage`],
/// which also knows the lists before.
pub fn rotate(
    envelope: &Envelope,
    authority: RotationAuthority,
    trust: &TrustedSigners,
    host: &HostBinding,
    clock: &ClockReading,
    life_max_s: u64,
) -> Result<Rotated, Refusal> {
    let lineage = Lineage::new(trust.clone());
    lineage
        .follow(
            envelope,
            authority,
            host,
            clock,
            (life_max_s, Occasion::HandedIn { signers: SignerCount::ONE }),
        )
        .map(|(rotated, _)| rotated)
}

/// When a rotation is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occasion {
    /// For the first time.
    HandedIn {
        /// How many operational keys must have signed a planned one.
        signers: SignerCount,
    },
    /// Again, out of the journal or a file.
    AcceptedBefore,
}

/// What a rotation is judged by.
#[derive(Debug, Clone, Copy)]
pub(in crate::sign) struct RotationGrounds<'a> {
    /// The list it follows.
    pub(in crate::sign) parent: &'a TrustedSigners,
    /// The list it replaces.
    pub(in crate::sign) current: &'a TrustedSigners,
    pub(in crate::sign) host: &'a HostBinding,
    pub(in crate::sign) clock: &'a ClockReading,
    pub(in crate::sign) life_max_s: u64,
    pub(in crate::sign) occasion: Occasion,
}

pub(in crate::sign) fn judge(
    envelope: &Envelope,
    authority: RotationAuthority,
    grounds: &RotationGrounds<'_>,
) -> Result<Rotated, Refusal> {
    let RotationGrounds { parent, current, host, clock, life_max_s, occasion } = *grounds;
    let (authorised, possessed) = verify(envelope, authority, parent, clock.now)?;
    let rotation = Rotation::parse(envelope.payload(), authority)?;
    if rotation.host != *host {
        let detail = format!("it is for the host {}", rotation.host);
        return Err(Refusal::new(ReasonCode::HostMismatch, detail));
    }
    rotation.follows(parent, current)?;
    rotation.window.judge(clock.now, life_max_s)?;
    rotation.judge_signers(parent, &possessed)?;
    let mark = rotation.judge_clock(clock, occasion)?;
    rotation.leaves_each_role_a_key(clock.now, occasion)?;
    rotation.has_enough_signers(authorised, occasion)?;
    let head = TrustHash::of(envelope.payload());
    let trust = current.followed_by(rotation.version, head, rotation.signers.clone())?;
    Ok(Rotated { trust, mark, rotation })
}

/// Verifies all signatures: at least one by the authorising role, the others by keys nobody knows yet.
/// Gives how many did, each key once, and those new keys. The authority is asked first, so that a stranger's envelope costs
/// nothing.
fn verify(
    envelope: &Envelope,
    authority: RotationAuthority,
    trust: &TrustedSigners,
    now: UnixSeconds,
) -> Result<(usize, Vec<PublicKey>), Refusal> {
    let namespace = authority.namespace();
    let role = authority.role();
    let is_known = |signature: &&SshSig| match trust.lookup(signature.key_blob()) {
        Lookup::Trusted(_) => true,
        Lookup::Retired { .. } | Lookup::Unknown { .. } => false,
    };
    let (known, strangers): (Vec<&SshSig>, Vec<&SshSig>) =
        envelope.signatures().iter().partition(is_known);
    let mut keys = BTreeSet::new();
    let mut authorised = Err(Refusal::new(ReasonCode::Envelope, "nobody signed"));
    if let Some(first) = strangers.first() {
        authorised = trust.lookup(first.key_blob()).trusted().map(|_| ());
    }
    for signature in known {
        let by = verify_one(signature, namespace, envelope.payload(), trust, now)?.signer;
        if by.role != role {
            let name = &by.name;
            let theirs = by.role;
            let detail = format!("{name} is {theirs}; only a {role} key signs this");
            return Err(Refusal::new(ReasonCode::RoleDenied, detail));
        }
        keys.insert(by.key.blob());
        authorised = Ok(());
    }
    authorised?;
    let mut possessed = Vec::new();
    for signature in strangers {
        let key = PublicKey::from_blob(signature.key_blob())?;
        signature.verify(&key, namespace, envelope.payload())?;
        possessed.push(key);
    }
    Ok((keys.len(), possessed))
}

impl Rotation {
    /// A planned rotation: exactly one more, after exactly this head. A recovery: above what is in force, and not
    /// out of reach of the list it follows.
    fn follows(&self, parent: &TrustedSigners, current: &TrustedSigners) -> Result<(), Refusal> {
        let refuse = |detail: String| Err(Refusal::new(ReasonCode::TrustVersion, detail));
        let (version, now) = (self.version, current.version());
        let is_next = match self.authority {
            RotationAuthority::Planned => Some(version) == now.next(),
            RotationAuthority::Recovery => version > now,
        };
        if !is_next {
            return refuse(format!("it makes version {version}; this host is at {now}"));
        }
        if self.previous != parent.head() {
            let detail = match self.authority {
                RotationAuthority::Planned => {
                    "it follows another list of signers than this host has"
                }
                RotationAuthority::Recovery => {
                    "it follows a list of signers that this host has not had since its last recovery"
                }
            };
            return refuse(detail.to_owned());
        }
        let last = parent.version().0.saturating_add(RECOVERY_AHEAD_MAX);
        if version.0 > last {
            return refuse(format!("it makes version {version}; from here {last} is the highest"));
        }
        Ok(())
    }

    /// The mark of time from now on, if it is set.
    fn judge_clock(
        &self,
        clock: &ClockReading,
        occasion: Occasion,
    ) -> Result<Option<UnixSeconds>, Refusal> {
        let ClockChange::Set { from, to } = self.clock else {
            return Ok(None);
        };
        // Before this was a rule operational keys did it too, and hosts that took it must start.
        match (occasion, self.authority) {
            (Occasion::HandedIn { .. }, RotationAuthority::Planned) => {
                let detail = "only a recovery key sets the mark of time";
                return Err(Refusal::new(ReasonCode::RoleDenied, detail));
            }
            (Occasion::HandedIn { .. }, RotationAuthority::Recovery) => {
                judge_mark(to, clock.wall())?;
            }
            (
                Occasion::AcceptedBefore,
                RotationAuthority::Planned | RotationAuthority::Recovery,
            ) => {}
        }
        if from != clock.mark {
            let detail = "the mark of time is no longer what this clock change was made for";
            return Err(Refusal::new(ReasonCode::Stale, detail));
        }
        Ok(Some(to))
    }

    fn judge_signers(
        &self,
        trust: &TrustedSigners,
        possessed: &[PublicKey],
    ) -> Result<(), Refusal> {
        for signer in &self.signers {
            match trust.lookup(signer.key.blob()) {
                Lookup::Trusted(before) if before.role != signer.role => {
                    let detail = format!("the key of {} had another role", signer.name);
                    return Err(Refusal::new(ReasonCode::RoleDenied, detail));
                }
                Lookup::Trusted(_) => {}
                Lookup::Retired { .. } | Lookup::Unknown { .. } => {
                    if !possessed.contains(&signer.key) {
                        let detail = format!("the new key of {} did not sign", signer.name);
                        return Err(Refusal::new(ReasonCode::Envelope, detail));
                    }
                }
            }
        }
        let listed = |key: &PublicKey| self.signers.iter().any(|signer| signer.key == *key);
        if let Some(stranger) = possessed.iter().find(|key| !listed(key)) {
            let detail = format!("{} signed and is no signer", stranger.fingerprint());
            return Err(Refusal::new(ReasonCode::UnknownSigner, detail));
        }
        match self.authority {
            RotationAuthority::Recovery => Ok(()),
            RotationAuthority::Planned => self.leaves_recovery_alone(trust),
        }
    }

    /// A key of each role is valid by the time that counts afterwards.
    fn leaves_each_role_a_key(&self, now: UnixSeconds, occasion: Occasion) -> Result<(), Refusal> {
        let after = match self.clock {
            ClockChange::Keep => now,
            ClockChange::Set { from: _, to } => to,
        };
        let holds = |validity: Validity| match occasion {
            Occasion::HandedIn { .. } => validity.holds(after),
            // It was once judged by the time before.
            Occasion::AcceptedBefore => validity.holds(after) || validity.holds(now),
        };
        for role in Role::NEEDED {
            if !self.signers.iter().any(|signer| signer.role == role && holds(signer.validity)) {
                let detail = format!("no {role} key would be valid");
                return Err(Refusal::new(ReasonCode::Payload, detail));
            }
        }
        Ok(())
    }

    /// As many operational keys as the strictest rule asks: with fewer, one could enrol others for itself, or lower the rules.
    fn has_enough_signers(&self, authorised: usize, occasion: Occasion) -> Result<(), Refusal> {
        let needed = match (self.authority, occasion) {
            (RotationAuthority::Planned, Occasion::HandedIn { signers }) => signers.get(),
            // It was judged by the rules of its time, or a recovery key has the last word.
            (RotationAuthority::Planned, Occasion::AcceptedBefore)
            | (RotationAuthority::Recovery, Occasion::HandedIn { .. } | Occasion::AcceptedBefore) =>
            {
                return Ok(());
            }
        };
        if authorised >= needed {
            return Ok(());
        }
        let detail = format!(
            "{authorised} of {needed} operational keys signed; a rotation takes as many as the strictest rule about \
             approvals"
        );
        Err(Refusal::new(ReasonCode::PendingSignature, detail))
    }

    fn leaves_recovery_alone(&self, trust: &TrustedSigners) -> Result<(), Refusal> {
        let recovery = |signer: &&Signer| signer.role == Role::Recovery;
        let before: Vec<&Signer> = trust.signers().filter(recovery).collect();
        let after: Vec<&Signer> = self.signers.iter().filter(recovery).collect();
        let same = before.len() == after.len() && before.iter().all(|key| after.contains(key));
        if same {
            return Ok(());
        }
        let detail = "only a recovery key changes recovery keys";
        Err(Refusal::new(ReasonCode::RoleDenied, detail))
    }
}

/// The mark may be set to about what the host's clock says, so that no key locks out another by it: not further
/// ahead than leaves the clock without a doubt, nor further back than it follows by itself.
fn judge_mark(to: UnixSeconds, wall: UnixSeconds) -> Result<(), Refusal> {
    if (wall.minus(RAISE_MAX_S)..=wall.plus(BEHIND_MAX_S)).contains(&to) {
        return Ok(());
    }
    let to = time::print(to);
    let wall = time::print(wall);
    let detail = format!(
        "it would set the mark of time to {to}, and this host's clock says {wall}; at most {} hours before the \
         clock and {} minutes after it are allowed: set the clock right first",
        RAISE_MAX_S / 3_600,
        BEHIND_MAX_S / 60
    );
    Err(Refusal::new(ReasonCode::Clock, detail))
}
