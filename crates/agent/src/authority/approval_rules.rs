//! The rules about how many must sign, as the journal keeps them beside the chain of rotations.
//!
//! ```text
//!   journal: in force by version n ─> rotations after n that say rules ─> root's file on top ─> in force now
//! ```
//!
//! Root's file can only add. What it added stays when it is taken out of the file again, until a rotation lowers it.

use evenkeel_core::model::reason::ReasonCode;
use evenkeel_core::sign::{ApprovalRules, Rotation, TrustVersion};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::journal::{JournalState, Kept, KeptSubject, Record};

/// Under which key the journal keeps them, among the decisions about this host.
const RULES_KEY: &str = "host/approve";

/// What holds, and what it is made of.
#[derive(Debug, Clone, Default)]
pub(super) struct StandingRules {
    /// By the chain, and by every root's file since it last said.
    kept: ApprovalRules,
    /// The version of the signers by which that was written down; none if it never was.
    written: Option<TrustVersion>,
    /// Whether a rotation has said otherwise since.
    is_outdated: bool,
    /// By root's file as it is now.
    file: ApprovalRules,
}

#[derive(Deserialize, Serialize)]
struct KeptRules {
    version: TrustVersion,
    rules: ApprovalRules,
}

impl StandingRules {
    /// What the journal keeps.
    pub(super) fn read(state: &JournalState) -> Self {
        let kept = state.kept(KeptSubject::Decision).find(|(key, _)| *key == RULES_KEY);
        let kept = kept.and_then(|(_, kept)| {
            serde_json::from_value::<KeptRules>(kept.value["kept"].clone()).ok()
        });
        match kept {
            Some(KeptRules { version, rules }) => {
                Self { kept: rules, written: Some(version), ..Self::default() }
            }
            None => Self::default(),
        }
    }

    /// After a rotation. One that was written down already says nothing new.
    pub(super) fn follow(&mut self, version: TrustVersion, rotation: &Rotation) {
        if let Some(rules) = &rotation.approve
            && self.written.is_none_or(|written| version > written)
        {
            self.kept = rules.clone();
            self.is_outdated = true;
        }
    }

    /// Adds what root's file says; the answer is what the journal does not know yet.
    pub(super) fn add_file(
        &mut self,
        file: &ApprovalRules,
        version: TrustVersion,
    ) -> Option<Record> {
        let before = self.kept.clone();
        self.file = file.clone();
        self.kept = self.in_force();
        // What a rotation said must be written too: raised again later, it would be lowered by that rotation once more.
        (self.is_outdated || self.kept != before).then(|| self.to_record(version))
    }

    /// What holds now.
    pub(super) fn in_force(&self) -> ApprovalRules {
        self.kept.with(&self.file)
    }

    /// To be kept in the journal.
    pub(super) fn to_record(&self, version: TrustVersion) -> Record {
        let rules = self.in_force();
        let why = format!("approvals: {}", rules.lines().join("; "));
        let kept = KeptRules { version, rules };
        let value =
            json!({ "op": "approve", "reason": ReasonCode::Policy, "why": why, "kept": kept });
        Record::Kept(Kept::put(KeptSubject::Decision, RULES_KEY, 1, value))
    }
}
