//! The lists of signers a host has had since its last recovery, and which of them a rotation follows.
//!
//! ```text
//! trust.toml v5 ── planned v6 ── planned v7 ── … ── planned v261     a thief with an operational key
//!      └──────────────────── recovery v262 ──────────────────────►   whoever signs it need know v5 only
//! ```
//!
//! A planned rotation follows the newest list, by exactly one. A recovery follows any list since the last
//! recovery, under any number above the newest that is not too far away. It is judged against the list it
//! names, whose recovery keys are those of every list here, because planned rotations cannot touch them. So
//! nobody with an operational key can make a list that a recovery does not get past, nor be faster than it.
//! The agent keeps one of these and replays it at each start; it must never be kept by other means.

use std::sync::Arc;

use super::clock::ClockReading;
use super::envelope::{Envelope, verify_one};
use super::rotation::{Occasion, Rotated, Rotation, RotationAuthority, RotationGrounds, judge};
use super::statement::HostBinding;
use super::trust::{Lookup, TrustedSigners};
use crate::model::reason::Refusal;
use crate::operate::operation::UnixSeconds;

/// How many planned rotations may follow the trust file or a recovery. One a month for twenty years; a stolen
/// key that rotates for ever must not fill the journal, and a recovery must be able to get past it.
pub const PLANNED_LINKS_MAX: usize = 256;

/// How far above the list it follows a recovery may number its own: past every planned rotation there can be,
/// and never so far that no number is left.
pub const RECOVERY_AHEAD_MAX: u64 = 1_024;

/// The signers now, and every list before them since the last recovery.
#[derive(Debug, Clone)]
pub struct Lineage {
    /// The oldest first; the first is the trust file's or a recovery's.
    earlier: Vec<Arc<TrustedSigners>>,
    current: Arc<TrustedSigners>,
}

impl Lineage {
    /// It begins with the trust file.
    pub fn new(first: TrustedSigners) -> Self {
        Self { earlier: Vec::new(), current: Arc::new(first) }
    }

    /// The signers now.
    pub fn current(&self) -> &TrustedSigners {
        &self.current
    }

    /// How many planned rotations there were since the trust file or the last recovery.
    pub fn planned_links(&self) -> usize {
        self.earlier.len()
    }

    /// Judges a rotation, handed in now or accepted before at this reading of the clock; gives the lists that follow with
    /// it. What one that was accepted before did to the mark of time was judged then, by the rules and by the clock there
    /// were.
    pub fn follow(
        &self,
        envelope: &Envelope,
        authority: RotationAuthority,
        host: &HostBinding,
        clock: &ClockReading,
        (life_max_s, occasion): (u64, Occasion),
    ) -> Result<(Rotated, Self), Refusal> {
        let current = self.current();
        let parent = match authority {
            RotationAuthority::Planned => current,
            RotationAuthority::Recovery => self.parent_of(envelope, clock.now),
        };
        let grounds = RotationGrounds { parent, current, host, clock, life_max_s, occasion };
        let rotated = judge(envelope, authority, &grounds)?;
        let earlier = match authority {
            RotationAuthority::Planned => {
                let mut earlier = self.earlier.clone();
                earlier.push(Arc::clone(&self.current));
                earlier
            }
            // What a recovery replaced is no ground for another one.
            RotationAuthority::Recovery => Vec::new(),
        };
        let lineage = Self { earlier, current: Arc::new(rotated.trust.clone()) };
        Ok((rotated, lineage))
    }

    /// The list a recovery follows; the newest, if it names none of these. Its bytes are read only if a recovery
    /// key of this host signed them.
    fn parent_of(&self, envelope: &Envelope, now: UnixSeconds) -> &TrustedSigners {
        let current = self.current();
        let is_recovery = |blob: &[u8]| match current.lookup(blob) {
            Lookup::Trusted(by) => by.role == RotationAuthority::Recovery.role(),
            Lookup::Retired { .. } | Lookup::Unknown { .. } => false,
        };
        let namespace = RotationAuthority::Recovery.namespace();
        let payload = envelope.payload();
        let is_vouched_for = envelope.signatures().iter().any(|signature| {
            is_recovery(signature.key_blob())
                && verify_one(signature, namespace, payload, current, now).is_ok()
        });
        if !is_vouched_for {
            return current;
        }
        let Ok(rotation) = Rotation::parse(payload, RotationAuthority::Recovery) else {
            return current;
        };
        let named = self.earlier.iter().find(|trust| trust.head() == rotation.previous);
        named.map_or(current, Arc::as_ref)
    }
}
