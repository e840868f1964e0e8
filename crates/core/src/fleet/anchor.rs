//! The anchor: how far the journal had come when the hub last heard of it, held against how far it is now.
//!
//! A disk put back to yesterday's state forgets which nonces were spent. The hub keeps the last head that the host signed;
//! at start the host asks for it and judges here. The hub can withhold it, which is why its absence is told and never
//! taken for a proof; it cannot make one up, because it is believed only by the host's own signature.

use serde::{Deserialize, Serialize};

use crate::sign::PayloadHash;
use crate::sign::json::{JsonFields, Malformed};

/// How far a journal has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalHead {
    /// Which journal: an acknowledged rollback begins the next.
    pub epoch: u64,
    /// The number of its newest record.
    pub seq: u64,
    /// The sum of that record.
    pub sum: PayloadHash,
}

impl JournalHead {
    pub(super) fn read(fields: &mut JsonFields) -> Result<Self, Malformed> {
        let (epoch, seq) = (fields.integer("epoch")?, fields.integer("seq")?);
        Ok(Self { epoch, seq, sum: fields.parsed("sum")? })
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
}

/// Holds the head that was anchored against the journal that was found at start. `sum_at` is the sum of the record with
/// the anchored number, where the journal still has it; one that was archived is not looked for.
pub fn judge_anchor(
    own: JournalHead,
    anchored: JournalHead,
    sum_at: Option<PayloadHash>,
) -> Anchor {
    if anchored.epoch < own.epoch {
        return Anchor::OldEpoch;
    }
    if anchored.epoch > own.epoch || anchored.seq > own.seq {
        return Anchor::RolledBack;
    }
    if anchored.seq == own.seq {
        return if anchored.sum == own.sum { Anchor::Same } else { Anchor::RolledBack };
    }
    match sum_at {
        // Another history behind the same number: the journal was put back and went on.
        Some(sum) if sum != anchored.sum => Anchor::RolledBack,
        Some(_) | None => Anchor::Ahead,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn head(epoch: u64, seq: u64, sum: u8) -> JournalHead {
        JournalHead { epoch, seq, sum: PayloadHash([sum; 32]) }
    }

    #[test]
    fn a_journal_behind_its_anchor_was_rolled_back() {
        let own = head(1, 10, 7);
        let sum = |sum: u8| Some(PayloadHash([sum; 32]));
        for (anchored, at, expected) in [
            (head(1, 10, 7), sum(7), Anchor::Same),
            (head(1, 10, 8), sum(7), Anchor::RolledBack),
            (head(1, 11, 7), None, Anchor::RolledBack),
            (head(1, 9, 3), sum(3), Anchor::Ahead),
            (head(1, 9, 3), sum(4), Anchor::RolledBack),
            (head(1, 2, 3), None, Anchor::Ahead),
            (head(0, 99, 3), None, Anchor::OldEpoch),
            (head(2, 1, 7), None, Anchor::RolledBack),
        ] {
            assert_eq!(judge_anchor(own, anchored, at), expected, "{anchored:?} {at:?}");
        }
    }

    proptest! {
        /// A copy of a journal that was cut anywhere before the anchor is always found out.
        #[test]
        fn no_shorter_journal_passes(epoch in 0_u64..4, seq in 1_u64..1000, cut in 1_u64..1000, sum in any::<u8>()) {
            let anchored = head(epoch, seq + cut, sum);
            prop_assert_eq!(judge_anchor(head(epoch, seq, sum), anchored, None), Anchor::RolledBack);
        }
    }
}
