//! The anchor: how far the journal had come when the hub last heard of it, held against how far it is now.
//!
//! A disk put back to yesterday's state forgets which nonces were spent. The hub keeps the last head that the host signed;
//! at start the host asks for it and judges here. The hub can withhold it, which is why its absence is told and never
//! taken for a proof; it cannot make one up, because it is believed only by the host's own signature.

use serde::{Deserialize, Serialize};

use crate::sign::json::{JsonFields, Malformed};
use crate::sign::{PayloadHash, TrustVersion};

/// How far a journal has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalHead {
    /// Which journal: an acknowledged rollback begins the next.
    pub epoch: u64,
    /// The number of its newest record.
    pub seq: u64,
    /// The sum of that record.
    pub sum: PayloadHash,
    /// The version of the signers by then: whoever was revoked in a part of the journal that was lost may not say that the
    /// loss is known.
    #[serde(default = "no_version")]
    pub trust_version: TrustVersion,
}

fn no_version() -> TrustVersion {
    TrustVersion(0)
}

/// No journal comes so far. A head beyond it is made up by a thief of the host key: it would hold signed work for good,
/// because no epoch follows it and no trust file reaches its version.
pub const HEAD_NUMBER_MAX: u64 = 1 << 53;

/// By how many epochs a journal may have been put back at once; each is an acknowledged rollback.
pub const EPOCH_STEP_MAX: u64 = 1 << 20;

impl JournalHead {
    /// Whether a journal that now stands at `own` may ever have come here.
    pub fn is_within_reach(&self, own: &Self) -> bool {
        self.epoch <= own.epoch.saturating_add(EPOCH_STEP_MAX)
    }

    pub(super) fn read(fields: &mut JsonFields) -> Result<Self, Malformed> {
        let mut number = |name: &str| match fields.integer(name)? {
            number if number <= HEAD_NUMBER_MAX => Ok(number),
            _ => Err(Malformed::new(format!("`{name}` is greater than {HEAD_NUMBER_MAX}"))),
        };
        let epoch = number("epoch")?;
        let seq = number("seq")?;
        let trust = number("trust_version")?;
        let sum = fields.parsed("sum")?;
        Ok(Self { epoch, seq, sum, trust_version: TrustVersion(trust) })
    }
}

/// What an anchored head says of the journal that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// It is of an epoch that an operator closed: it counts no longer.
    OldEpoch,
    /// The journal stands exactly there.
    Same,
    /// The journal has gone on from there.
    Ahead,
    /// The journal is older, or another one: somebody put an old state back.
    RolledBack,
    /// The hub tells less than it once said it keeps: it was put back itself, or the head was taken out of it. What the
    /// journal was since then, nobody vouches for.
    Withheld,
    /// The hub never heard of this journal.
    Nothing,
}

/// What a journal remembers of the heads that it told a hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RememberedHeads<'a> {
    /// Those that the hub may have: each is written down before it leaves.
    pub told: &'a [JournalHead],
    /// The newest that the hub said it keeps.
    pub acknowledged: Option<JournalHead>,
}

/// Holds what the hub tells against the journal that was found at start. A head that the hub has and the journal does not
/// know was told by a journal that is no longer there, however far this one went on since.
pub fn judge_anchor(
    own: JournalHead,
    remembered: RememberedHeads<'_>,
    anchored: Option<JournalHead>,
) -> Anchor {
    let RememberedHeads { told, acknowledged } = remembered;
    let acknowledged = acknowledged.filter(|head| head.epoch == own.epoch);
    let Some(anchored) = anchored else {
        return if acknowledged.is_some() { Anchor::Withheld } else { Anchor::Nothing };
    };
    if anchored.epoch < own.epoch {
        return if acknowledged.is_some() { Anchor::Withheld } else { Anchor::OldEpoch };
    }
    if anchored.epoch == own.epoch && acknowledged.is_some_and(|head| anchored.seq < head.seq) {
        return Anchor::Withheld;
    }
    if anchored.epoch > own.epoch || anchored.seq > own.seq {
        return Anchor::RolledBack;
    }
    if anchored == own {
        return Anchor::Same;
    }
    let told = || told.iter().filter(|head| head.epoch == own.epoch);
    let newest = told().map(|head| head.seq).max();
    match told().find(|head| head.seq == anchored.seq) {
        Some(head) if head.sum == anchored.sum => Anchor::Ahead,
        Some(_) => Anchor::RolledBack,
        // An older one than we know: the hub was put back itself, or keeps the newer ones to itself.
        None if newest.is_some_and(|newest| anchored.seq < newest) => Anchor::Ahead,
        None => Anchor::RolledBack,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn judged(own: JournalHead, told: &[JournalHead], anchored: JournalHead) -> Anchor {
        judge_anchor(own, RememberedHeads { told, acknowledged: None }, Some(anchored))
    }

    /// What the hub tells that less was told than it keeps, whatever else the journal remembers.
    #[test]
    fn z10_a_hub_that_tells_less_than_it_said_it_keeps_vouches_for_nothing() {
        let own = head(1, 10, 7);
        let kept = head(1, 8, 4);
        let remembered = RememberedHeads { told: &[kept], acknowledged: Some(kept) };
        for (anchored, expected) in [
            (None, Anchor::Withheld),
            (Some(head(1, 6, 3)), Anchor::Withheld),
            (Some(head(0, 99, 3)), Anchor::Withheld),
            (Some(kept), Anchor::Ahead),
            (Some(own), Anchor::Same),
            (Some(head(1, 11, 7)), Anchor::RolledBack),
        ] {
            assert_eq!(judge_anchor(own, remembered, anchored), expected, "{anchored:?}");
        }
        let nothing = RememberedHeads { told: &[], acknowledged: None };
        assert_eq!(judge_anchor(own, nothing, None), Anchor::Nothing);
        let older = RememberedHeads { told: &[], acknowledged: Some(head(0, 5, 1)) };
        assert_eq!(judge_anchor(own, older, None), Anchor::Nothing, "of a closed epoch");
    }

    fn head(epoch: u64, seq: u64, sum: u8) -> JournalHead {
        let trust_version = TrustVersion(1);
        JournalHead { epoch, seq, sum: PayloadHash([sum; 32]), trust_version }
    }

    #[test]
    fn a_journal_behind_its_anchor_was_rolled_back() {
        let own = head(1, 10, 7);
        let told = [head(1, 6, 3), head(1, 8, 4)];
        for (anchored, expected) in [
            (head(1, 10, 7), Anchor::Same),
            (head(1, 10, 8), Anchor::RolledBack),
            (head(1, 11, 7), Anchor::RolledBack),
            (head(1, 8, 4), Anchor::Ahead),
            (head(1, 6, 3), Anchor::Ahead),
            (head(1, 8, 5), Anchor::RolledBack),
            (head(1, 9, 3), Anchor::RolledBack),
            (head(1, 2, 3), Anchor::Ahead),
            (head(0, 99, 3), Anchor::OldEpoch),
            (head(2, 1, 7), Anchor::RolledBack),
        ] {
            assert_eq!(judged(own, &told, anchored), expected, "{anchored:?}");
        }
        assert_eq!(judged(head(0, 3, 1), &[], head(0, 2, 9)), Anchor::RolledBack, "a lost journal");
        assert_eq!(judged(head(0, 3, 1), &[], head(0, 3, 1)), Anchor::Same);
    }

    proptest! {
        /// A journal that was put back to before a head was told, and went on however far, never knows that head.
        #[test]
        fn no_journal_that_went_on_passes(seq in 2_u64..100, on in 0_u64..100, told in proptest::collection::vec(1_u64..100, 0..3)) {
            let told: Vec<_> = told.into_iter().filter(|at| *at < seq).map(|at| head(0, at, 1)).collect();
            let verdict = judged(head(0, seq + on, 9), &told, head(0, seq, 2));
            prop_assert_eq!(verdict, Anchor::RolledBack);
        }

        /// A copy of a journal that was cut anywhere before the anchor is always found out.
        #[test]
        fn no_shorter_journal_passes(epoch in 0_u64..4, seq in 1_u64..1000, cut in 1_u64..1000, sum in any::<u8>()) {
            let anchored = head(epoch, seq + cut, sum);
            prop_assert_eq!(judged(head(epoch, seq, sum), &[anchored], anchored), Anchor::RolledBack);
        }
    }
}
