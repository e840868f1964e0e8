//! What the engine judges of a hub's: documents, the anchor of the journal, an acknowledged rollback, and the budget of
//! disruptive acts.
//!
//! Called by the desk of the link, and by the gate. Everything is decided by core, from what the journal remembers and whom
//! root trusts; what counts is durable before it counts. A hub is believed in nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use evenkeel_core::desired::DeclaredBy;
use evenkeel_core::fleet::{
    AcknowledgeStatement, Acknowledged, Anchor, AuthorWord, DocumentAdmission, DocumentFloor,
    DocumentTerms, JournalHead, OfferedDocument, RememberedHeads, admit_document, judge_anchor,
};
use evenkeel_core::gate::budget::{disruptive_counted, judge_disruptive};
use evenkeel_core::gate::classify::ActionClass;
use evenkeel_core::model::reason::{ReasonCode, Refusal};
use evenkeel_core::operate::operation::UnixSeconds;
use evenkeel_core::sign::{Envelope, Role, Signer, SignerName};

use crate::engine::approvals::Submitted;
use crate::engine::approvals::approval_context::ApprovalContext;
use crate::engine::approvals::pending::waiting;
use crate::engine::error::{EngineError, Fatal};
use crate::engine::{Engine, EngineContext};
use crate::hub_link::memory::{self, FoundRollback, JournalEpoch, ToldHeads};
use crate::journal::{JournalHandle, JournalState, Kept, KeptSubject, Note, Record};
use crate::policy::AnchorPolicy;

/// What is known of the anchor in this life of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnchorState {
    /// There is no hub, so there is no anchor.
    NoHub,
    /// The hub is being asked for the first time.
    Asking,
    /// It could not be asked yet.
    Unreachable,
    /// It was asked, and the journal is not behind.
    Known,
    /// It tells less than it said it keeps. Root lets signed work run without an anchor, and heads are told again.
    Doubted,
    /// It tells less than it said it keeps, and root demands an anchor: signed work waits, and no head is told, which would
    /// take the place of the evidence.
    Withheld,
}

/// The state of the anchor, for everybody who judges.
#[derive(Debug, Clone, Default)]
pub struct AnchorWatch(Arc<AtomicU8>);

impl AnchorWatch {
    const ALL: [AnchorState; 6] = [
        AnchorState::NoHub,
        AnchorState::Asking,
        AnchorState::Unreachable,
        AnchorState::Known,
        AnchorState::Doubted,
        AnchorState::Withheld,
    ];

    /// What is known now.
    pub fn state(&self) -> AnchorState {
        let number = usize::from(self.0.load(Ordering::SeqCst));
        Self::ALL.get(number).copied().unwrap_or(AnchorState::Asking)
    }

    /// Something else is known from now on.
    pub fn set(&self, state: AnchorState) {
        let number = Self::ALL.iter().position(|known| *known == state).unwrap_or(1);
        self.0.store(u8::try_from(number).unwrap_or(1), Ordering::SeqCst);
    }
}

/// Whether signed work may go on by what is known of the journal's past; that it ran without an anchor is told with it.
pub(in crate::engine) fn judge_history(
    approvals: &ApprovalContext,
    epoch: &JournalEpoch,
    not_before: UnixSeconds,
    raised_at: UnixSeconds,
) -> Result<AnchorUse, Refusal> {
    let refuse = |why: &str| Err(Refusal::new(ReasonCode::JournalRollback, why));
    if let Some(FoundRollback { anchored, found }) = epoch.rollback {
        let why = format!(
            "the journal had come to record {} and was found at {}: somebody put an old state back; acknowledge it first",
            anchored.seq, found.seq
        );
        return refuse(&why);
    }
    if epoch.since.is_some_and(|since| not_before < since || raised_at < since) {
        let why = "it was signed or raised before a rollback of the journal was acknowledged";
        return Err(Refusal::new(ReasonCode::Stale, why));
    }
    match (approvals.anchor.state(), approvals.policy.anchor) {
        (AnchorState::NoHub | AnchorState::Known, _) => Ok(AnchorUse::Anchored),
        (AnchorState::Asking, _) => {
            refuse("the hub is being asked how far the journal had come; try again in a moment")
        }
        (AnchorState::Unreachable | AnchorState::Withheld, AnchorPolicy::Optional)
        | (AnchorState::Doubted, _) => Ok(AnchorUse::Unanchored),
        (AnchorState::Withheld, AnchorPolicy::Required) => refuse(
            "the hub no longer tells how far the journal had come, though it said that it keeps it: it was put back to a \
             backup, or the head was taken out of it. If you know that this host's disk was not put back, set \
             `anchor = \"optional\"` under [policy], restart the agent until it has reported, and set it back",
        ),
        (AnchorState::Unreachable, AnchorPolicy::Required) => refuse(
            "the hub could not be asked how far the journal had come (`anchor` under [policy])",
        ),
    }
}

/// Whether an act ran with the journal's past known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum AnchorUse {
    /// It is, or there is nobody to ask.
    Anchored,
    /// It is not.
    Unanchored,
}

/// Spends one of a hub's disruptive acts, durably, before the act is cleared. A try that fails later has spent it too.
pub(in crate::engine) async fn spend_disruptive(
    context: &EngineContext,
    by: DeclaredBy,
    class: ActionClass,
) -> Result<(), EngineError> {
    match (by.is_hub(), class) {
        (true, ActionClass::Disruptive) => {}
        (false, _) | (true, ActionClass::Benign | ActionClass::Destructive) => return Ok(()),
    }
    let limit = context.approvals.as_ref().map_or(0, |bench| bench.policy.disruptive_per_hour);
    // Two lanes must not both find room for the last one.
    let _judging = context.limits.disruptive.lock().await;
    let now = context.node_now();
    let begun = context.journal.read(|state, _| memory::disruptive(state)).await;
    let mut begun = disruptive_counted(&begun.map_err(Fatal::Journal)?, now);
    judge_disruptive(&begun, limit, now)?;
    begun.push(now);
    context.append(Record::Kept(memory::disruptive_record(&begun))).await
}

impl Engine {
    /// What judges destructive acts.
    pub fn approvals(&self) -> Option<&ApprovalContext> {
        self.context.approvals.as_ref()
    }

    /// The journal.
    pub fn journal(&self) -> &JournalHandle {
        &self.context.journal
    }

    /// Whether a document that a hub handed over may be read. Its files are not read here: that may take long.
    pub async fn admit_document(
        &self,
        offered: &OfferedDocument,
    ) -> Result<DocumentAdmission, Fatal> {
        let refused = |reason, why: &str| Ok(DocumentAdmission::Refused(Refusal::new(reason, why)));
        let Some(approvals) = &self.context.approvals else {
            return refused(ReasonCode::Policy, "nothing can be judged on this host");
        };
        let Some(floor) = self.floor().await? else {
            return refused(ReasonCode::Policy, "this host is not enrolled with a hub");
        };
        let reading = self.context.reading().await?;
        let authority = approvals.authority.read().await;
        let terms = DocumentTerms {
            floor: &floor,
            host: authority.host(),
            trust: authority.trust(),
            desired_signed: approvals.policy.desired_signed,
            without_base: approvals.policy.desired_without_base,
            now: reading.doubt.is_none().then_some(reading.now),
        };
        Ok(admit_document(offered, terms))
    }

    /// The last document that was taken; none on a host that is not enrolled.
    pub async fn floor(&self) -> Result<Option<DocumentFloor>, Fatal> {
        let read = self.context.journal.read(|state, _| memory::floor(state)).await;
        read.map_err(Fatal::Journal)
    }

    /// Makes a floor durable; from then on its document holds.
    pub async fn keep_floor(&mut self, floor: &DocumentFloor) -> Result<(), EngineError> {
        let taken_at = self.context.reading().await?.now;
        // First, so that no death in between leaves a document in effect whose word is not known. It is brought again then.
        if let Some(word) = memory::author_word_record(floor, taken_at) {
            self.context.append(Record::Kept(word)).await?;
        }
        self.context.append(Record::Kept(memory::floor_record(floor))).await
    }

    /// The last document that an author signed and this host took, and the effective time.
    pub async fn author_word(&self) -> Result<(Option<AuthorWord>, UnixSeconds), Fatal> {
        let read = self.context.journal.read(|state, _| memory::author_word(state)).await;
        Ok((read.map_err(Fatal::Journal)?, self.context.reading().await?.now))
    }

    /// Whether somebody of this name may sign documents now. That they no longer may leaves what they signed in effect.
    pub async fn author_is_trusted(&self, name: &SignerName) -> bool {
        let Some(approvals) = &self.context.approvals else { return false };
        let authority = approvals.authority.read().await;
        let is_it = |signer: &Signer| signer.name == *name && signer.role == Role::Author;
        authority.trust().is_some_and(|trust| trust.signers().any(is_it))
    }

    /// Whether a signature is demanded of documents.
    pub fn desired_signed(&self) -> bool {
        self.context.approvals.as_ref().is_none_or(|bench| bench.policy.desired_signed)
    }

    /// How far the journal has come, and what the hub was told of it.
    pub async fn heads(&self) -> Result<(Option<JournalHead>, ToldHeads), Fatal> {
        let read = self
            .context
            .journal
            .read(|state, head| (memory::head_of(state, head), memory::told(state)));
        read.await.map_err(Fatal::Journal)
    }

    /// Takes in what the hub says of the anchor; `found` is the head at start. A rollback stays until somebody signs that
    /// it is known, whatever the hub says later.
    pub async fn take_anchor(
        &mut self,
        found: JournalHead,
        told: &ToldHeads,
        anchored: Option<JournalHead>,
    ) -> Result<(), EngineError> {
        let all = told.all();
        let remembered = RememberedHeads { told: &all, acknowledged: told.acknowledged };
        let verdict = judge_anchor(found, remembered, anchored);
        let state = match verdict {
            Anchor::OldEpoch
            | Anchor::Same
            | Anchor::Ahead
            | Anchor::RolledBack
            | Anchor::Nothing => AnchorState::Known,
            Anchor::Withheld => {
                match self.context.approvals.as_ref().map(|bench| bench.policy.anchor) {
                    Some(AnchorPolicy::Required) => AnchorState::Withheld,
                    Some(AnchorPolicy::Optional) | None => AnchorState::Doubted,
                }
            }
        };
        let before = self.context.approvals.as_ref().map(|bench| bench.anchor.state());
        if verdict == Anchor::Withheld && before != Some(state) {
            tracing::error!("the hub tells less of this journal than it said it keeps");
        }
        if let (Anchor::RolledBack, Some(anchored)) = (verdict, anchored) {
            let read = self.context.journal.read(|state, _| memory::epoch(state)).await;
            let epoch = read.map_err(Fatal::Journal)?;
            // What an operator acknowledged in this very life is not found again.
            if epoch.number == found.epoch && epoch.rollback.is_none() {
                tracing::error!(
                    anchored = anchored.seq,
                    found = found.seq,
                    "the journal was rolled back: everything destructive is off until an operator acknowledges it"
                );
                let rollback = Some(FoundRollback { anchored, found });
                let record = memory::epoch_record(&JournalEpoch { rollback, ..epoch });
                self.context.append(Record::Kept(record)).await?;
            }
        }
        self.set_anchor(state);
        Ok(())
    }

    /// What is known of the anchor from now on.
    pub fn set_anchor(&self, state: AnchorState) {
        if let Some(approvals) = &self.context.approvals {
            approvals.anchor.set(state);
        }
    }

    /// Ends every item that was raised before the last acknowledged rollback: what was signed for it is stale.
    pub async fn void_old_items(&mut self) -> Result<(), Fatal> {
        let old = self.context.journal.read(old_items).await.map_err(Fatal::Journal)?;
        for key in old {
            self.context
                .append_if_room(Record::Kept(Kept::remove(KeptSubject::Pending, key)))
                .await?;
        }
        Ok(())
    }

    /// Writes one remark.
    pub(in crate::engine) async fn remark(&self, what: &str, text: String) -> Result<(), Fatal> {
        self.context.append_if_room(Record::Note(Note { what: what.to_owned(), text })).await
    }

    /// Takes an operator's word that a rollback is known. Acts being judged finish first.
    pub(in crate::engine) async fn acknowledge(
        &mut self,
        approvals: &ApprovalContext,
        envelope: &Envelope,
    ) -> Result<Submitted, Fatal> {
        let context = self.context.clone();
        let acknowledged =
            self.drive_lanes_until(acknowledge(&context, approvals, envelope)).await?;
        if let Submitted::Acknowledged(_) = acknowledged {
            self.void_old_items().await?;
        }
        Ok(acknowledged)
    }
}

async fn acknowledge(
    context: &EngineContext,
    approvals: &ApprovalContext,
    envelope: &Envelope,
) -> Result<Submitted, Fatal> {
    let refused = |reason, why: &str| Ok(Submitted::Refused(Refusal::new(reason, why)));
    // Held for writing: no act is judged by the epoch before while the next one begins.
    let authority = approvals.authority.write().await;
    let read = context.journal.read(|state, _| (memory::epoch(state), memory::floor(state))).await;
    let (epoch, floor) = read.map_err(Fatal::Journal)?;
    let (Some(FoundRollback { anchored, found }), Some(floor)) = (epoch.rollback, floor) else {
        return refused(ReasonCode::NotPending, "no rollback of this journal waits for anybody");
    };
    let Some(trust) = authority.trust() else {
        return Ok(Submitted::Refused(super::no_signers()));
    };
    let reading = context.reading().await?;
    if reading.doubt.is_some() {
        return refused(ReasonCode::Clock, "the time cannot be trusted now");
    }
    let about =
        Acknowledged { host: authority.host().clone(), hub_id: floor.hub_id, anchored, found };
    let life = approvals.policy.statement_life_s;
    let judged = AcknowledgeStatement::judge(envelope, &about, trust, reading.now, life);
    let (signer, _, statement) = match judged {
        Ok(judged) => judged,
        Err(refusal) => return Ok(Submitted::Refused(refusal)),
    };
    let nonce = statement.nonce;
    let spent = context.journal.read(move |state, _| state.ledger().spent(&nonce)).await;
    if spent.map_err(Fatal::Journal)?.get(&nonce).is_some() {
        return refused(ReasonCode::Replay, "its nonce was spent");
    }
    let next = JournalEpoch {
        number: epoch.number.max(anchored.epoch) + 1,
        since: Some(reading.now),
        signer: Some(signer.to_string()),
        rollback: None,
    };
    if let Err(error) = context.append(Record::Kept(memory::epoch_record(&next))).await {
        return Ok(Submitted::Refused(error.refusal()?));
    }
    tracing::warn!(epoch = next.number, %signer, "a rollback of the journal was acknowledged");
    Ok(Submitted::Acknowledged(next.number))
}

fn old_items(state: &JournalState, _: crate::journal::Head) -> Vec<String> {
    let Some(since) = memory::epoch(state).since else { return Vec::new() };
    let items = waiting(state);
    let old = items.into_iter().filter(|(_, (item, _))| item.raised_at < since);
    old.map(|(id, _)| id.to_string()).collect()
}
