//! Signatures over one statement that come one after the other, until there are enough.
//!
//! ```text
//!   kept ─┐
//!         ├─ same bytes ─► joined ─► authorise ─┬─► enough: the act may go into its lane, where it is judged again
//!   come ─┘                                     └─► too few: kept beside the item
//! ```
//!
//! What is kept is worth nothing by itself: it is judged anew with every signature that comes, so it ends with the window of
//! its statement, with its keys and with the version of the signers.

use super::authorise::{Act, ApprovalDecision, StatementLimits, authorise};
use super::clock::ClockReading;
use super::envelope::Envelope;
use super::nonce::{OpResult, SpentNonces};
use super::trust::TrustedSigners;
use crate::model::id::OperationId;
use crate::model::reason::{ReasonCode, Refusal};

/// What becomes of signatures that came for an act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Collected {
    /// They are enough, with those that were there.
    Enough(Envelope),
    /// More are needed: all of them are to be kept, as this text; the refusal says who is there.
    Kept {
        /// The envelope with every signature.
        text: String,
        /// How many are there, and whose.
        missing: Refusal,
    },
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

/// What an act is judged by.
#[derive(Debug, Clone, Copy)]
pub struct JudgedBy<'a> {
    /// The signers.
    pub trust: &'a TrustedSigners,
    /// The time.
    pub clock: &'a ClockReading,
    /// What was executed before.
    pub spent: &'a SpentNonces,
    /// The host's own limits.
    pub limits: StatementLimits,
}

/// Judges signatures that come for an act, with those that are kept for its item.
pub fn collect(kept: Option<&[u8]>, coming: &[u8], act: &Act, by: JudgedBy<'_>) -> Collected {
    let judged = |text: &[u8]| -> Result<(Envelope, ApprovalDecision), Refusal> {
        let JudgedBy { trust, clock, spent, limits } = by;
        let envelope = Envelope::parse(text)?;
        let decision = authorise(&envelope, act, trust, clock, spent, limits);
        Ok((envelope, decision))
    };
    let missing = match judged(coming) {
        Err(refusal) => return Collected::Refused(refusal),
        Ok((envelope, ApprovalDecision::Allowed(_))) => return Collected::Enough(envelope),
        Ok((_, ApprovalDecision::Replay { op, result })) => {
            return Collected::Replay { op, result };
        }
        Ok((_, ApprovalDecision::Refused(refusal))) if !is_incomplete(&refusal) => {
            return Collected::Refused(refusal);
        }
        Ok((_, ApprovalDecision::Refused(missing))) => missing,
    };
    // Whoever is kept must hold now, or the new signature would wait for one that is worth nothing.
    let live = kept.filter(|kept| match judged(kept) {
        Ok((_, ApprovalDecision::Refused(refusal))) => is_incomplete(&refusal),
        Ok((_, ApprovalDecision::Allowed(_))) => true,
        Ok((_, ApprovalDecision::Replay { .. })) | Err(_) => false,
    });
    let alone = |missing| {
        let text = String::from_utf8_lossy(coming).into_owned();
        Collected::Kept { text, missing }
    };
    let Some(kept) = live else {
        return alone(missing);
    };
    let text = match Envelope::join(kept, coming) {
        Ok(Some(text)) => text,
        Ok(None) => return Collected::Refused(other_statement(kept)),
        Err(refusal) => return Collected::Refused(refusal),
    };
    match judged(text.as_bytes()) {
        Err(refusal) => Collected::Refused(refusal),
        Ok((envelope, ApprovalDecision::Allowed(_))) => Collected::Enough(envelope),
        Ok((_, ApprovalDecision::Replay { op, result })) => Collected::Replay { op, result },
        Ok((_, ApprovalDecision::Refused(missing))) if is_incomplete(&missing) => {
            Collected::Kept { text, missing }
        }
        Ok((_, ApprovalDecision::Refused(refusal))) => Collected::Refused(refusal),
    }
}

/// Whether nothing is wrong with it but that more must sign.
fn is_incomplete(refusal: &Refusal) -> bool {
    refusal.reason == ReasonCode::PendingSignature
}

fn other_statement(kept: &[u8]) -> Refusal {
    let hash = Envelope::parse(kept).map(|kept| kept.payload_hash().to_string());
    let detail = format!(
        "the item has signatures over another statement ({}); all must sign the same: sign that one, or wait until it \
         is over",
        hash.unwrap_or_default()
    );
    Refusal::new(ReasonCode::BindingMismatch, detail)
}
