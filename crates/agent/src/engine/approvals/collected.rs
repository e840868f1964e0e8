//! Signatures that are too few yet, and items that were denied: what is kept beside the items that wait.
//!
//! Both are kept among the approvals of the journal, under the item's name. Signatures end with their statement's window and
//! with their item; what was denied is remembered until the guest or its declaration is another, so that no pass puts the
//! same before people again. Nothing here allows anything: the gate judges every signature anew.

use std::collections::BTreeSet;

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::desired::selection::PassScope;
use evenkeel_core::gate::approval::{RaisedBy, WantedItem};
use evenkeel_core::model::id::GuestId;
use evenkeel_core::model::reason::{ReasonCode, Refusal};
use evenkeel_core::operate::operation::UnixSeconds;
use evenkeel_core::sign::{
    DenialStatement, Envelope, PendingId, PendingItem, SignedBy, Statement, TrustVersion,
};
use serde::{Deserialize, Serialize};

use crate::engine::EngineContext;
use crate::engine::approvals::Submitted;
use crate::engine::approvals::approval_context::ApprovalContext;
use crate::engine::approvals::pending::{end_judged, waiting};
use crate::engine::error::Fatal;
use crate::journal::{ExactBytes, JournalState, Kept, KeptSubject, Note, Record};

/// The shape of what is kept.
const VERSION: u32 = 1;

/// The `what` of the note about a denial.
const DENIED: &str = "denied";

/// What is kept of an item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum KeptApproval {
    /// Signatures over one statement, fewer than it takes.
    Signed {
        /// The envelope as it would be handed in.
        envelope: ExactBytes,
    },
    /// Somebody who may sign denied it.
    Denied {
        /// The item, as its host signed it.
        item: ExactBytes,
        /// Who, and why.
        why: String,
    },
}

/// Keys of what this module keeps begin so.
const ITEM: &str = "item ";

fn key(id: PendingId) -> String {
    format!("{ITEM}{id}")
}

fn put(id: PendingId, kept: &KeptApproval) -> Record {
    let value = serde_json::to_value(kept).expect("it has only texts for keys");
    Record::Kept(Kept::put(KeptSubject::Approval, key(id), VERSION, value))
}

fn all(state: &JournalState) -> impl Iterator<Item = (PendingId, KeptApproval)> {
    state.kept(KeptSubject::Approval).filter_map(|(key, kept)| {
        let id = key.strip_prefix(ITEM)?.parse().ok()?;
        Some((id, serde_json::from_value(kept.value.clone()).ok()?))
    })
}

/// The signatures that are there for an item.
pub(crate) fn signatures_of(state: &JournalState, id: PendingId) -> Option<Vec<u8>> {
    all(state).find_map(|(known, kept)| match kept {
        KeptApproval::Signed { envelope } if known == id => Some(envelope.0),
        KeptApproval::Signed { .. } | KeptApproval::Denied { .. } => None,
    })
}

/// Keeps signatures that are too few yet. Those that are there already are not written again.
pub(in crate::engine) async fn keep(
    context: &EngineContext,
    id: PendingId,
    text: &str,
) -> Result<Result<(), Refusal>, Fatal> {
    let known = context.journal.read(move |state, _| signatures_of(state, id)).await;
    if known.map_err(Fatal::Journal)?.as_deref() == Some(text.as_bytes()) {
        return Ok(Ok(()));
    }
    let kept = KeptApproval::Signed { envelope: ExactBytes(text.as_bytes().to_vec()) };
    match context.append(put(id, &kept)).await {
        Ok(()) => Ok(Ok(())),
        Err(error) => Ok(Err(error.refusal()?)),
    }
}

/// Ends an item because somebody who may sign says no. An act that has begun is not taken back.
pub(in crate::engine) async fn deny(
    context: &EngineContext,
    approvals: &ApprovalContext,
    envelope: &Envelope,
) -> Result<Submitted, Fatal> {
    let authority = approvals.authority.read().await;
    let Some(trust) = authority.trust() else {
        return Ok(Submitted::Refused(super::no_signers()));
    };
    let reading = context.reading().await?;
    let limits = approvals.policy.limits();
    let judged = DenialStatement::judge(envelope, authority.host(), trust, &reading, limits);
    let (by, denial) = match judged {
        Ok(judged) => judged,
        Err(refusal) => return Ok(Submitted::Refused(refusal)),
    };
    let _judging = context.judging().await;
    let id = denial.item;
    let found = context.journal.read(move |state, _| waiting(state).remove(&id)).await;
    let Some((item, kept)) = found.map_err(Fatal::Journal)? else {
        let why = "the item it denies no longer waits";
        return Ok(Submitted::Refused(Refusal::new(ReasonCode::NotPending, why)));
    };
    let names: Vec<String> =
        by.iter().map(|SignedBy { name, key, .. }| format!("{name} ({key})")).collect();
    let why = format!("{} denied it: {}", names.join(", "), denial.reason);
    let what = format!("{} of {}", item.op, item.guest);
    let text = format!("{what}: {why}; {id} waits no longer");
    tracing::warn!("{text}");
    let note = Record::Note(Note { what: DENIED.to_owned(), text });
    let mut records = vec![note];
    // What somebody asked for is not raised again by itself.
    if kept.from == RaisedBy::Plan {
        records.push(put(id, &KeptApproval::Denied { item: kept.envelope, why }));
    }
    for record in records {
        if let Err(error) = context.append(record).await {
            return Ok(Submitted::Refused(error.refusal()?));
        }
    }
    end_judged(context, id).await?;
    Ok(Submitted::Denied(id))
}

/// What is denied and still wanted.
#[derive(Debug, Default)]
pub(in crate::engine) struct DeniedItems {
    /// The items.
    pub(in crate::engine) items: Vec<PendingItem>,
    /// What is told of them.
    pub(in crate::engine) told: Vec<(GuestId, ActionKind, Refusal)>,
}

/// Forgets what is over: signatures whose item or window has ended, denials of what is no longer wanted so. Guests that
/// were not looked at are left alone.
pub(in crate::engine) async fn prune(
    context: &EngineContext,
    wanted: &[WantedItem],
    (scope, busy): (&PassScope, &BTreeSet<GuestId>),
    version: TrustVersion,
    now: UnixSeconds,
) -> Result<DeniedItems, Fatal> {
    let read = context.journal.read(|state, _| {
        let items: BTreeSet<PendingId> = waiting(state).into_keys().collect();
        (all(state).collect::<Vec<_>>(), items)
    });
    let (kept, waiting) = read.await.map_err(Fatal::Journal)?;
    let mut denied = DeniedItems::default();
    for (id, kept) in kept {
        let is_over = match kept {
            KeptApproval::Signed { envelope } => {
                !waiting.contains(&id) || !is_live(&envelope.0, version, now)
            }
            KeptApproval::Denied { item, why } => {
                let item = Envelope::parse(&item.0).and_then(|of| PendingItem::parse(of.payload()));
                let Ok(item) = item else { continue };
                if !scope.has(item.guest.vmid) || busy.contains(&item.guest) {
                    denied.items.push(item);
                    continue;
                }
                let is_wanted = wanted.iter().any(|wanted| wanted.is(&item, version));
                if is_wanted {
                    let refusal = Refusal::new(ReasonCode::Policy, why);
                    denied.told.push((item.guest, item.op, refusal));
                    denied.items.push(item);
                }
                !is_wanted
            }
        };
        if is_over {
            let forgotten = Record::Kept(Kept::remove(KeptSubject::Approval, key(id)));
            context.append_if_room(forgotten).await?;
        }
    }
    Ok(denied)
}

/// Whether signatures over a statement may still become an approval. A window that begins later has not ended.
fn is_live(envelope: &[u8], version: TrustVersion, now: UnixSeconds) -> bool {
    let statement = Envelope::parse(envelope).and_then(|of| Statement::parse(of.payload()));
    statement.is_ok_and(|statement| {
        statement.trust_version == version && now < statement.window.expires_at()
    })
}
