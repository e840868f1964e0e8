//! The gate for what an operator signed: everything is judged again inside the lane, on a fresh read.
//!
//! Nothing is remembered from the moment the approval came in: not the signature, not the signers, not the guest. The
//! locks stay with the caller until the decision is durable, so that no rotation happens in between, and no second act
//! is judged by the same budget (invariants 3, 4, 12).

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::actual::Guest;
use evenkeel_core::actual::identity::identity;
use evenkeel_core::gate::approval::check_rollback;
use evenkeel_core::gate::budget;
use evenkeel_core::gate::final_backup::FinalBackup;
use evenkeel_core::gate::loss::{is_purged, takes_surroundings};
use evenkeel_core::model::reason::{ReasonCode, Refusal};
use evenkeel_core::operate::operation::Repeat;
use evenkeel_core::operate::pve_call::{PveCall, detached_volume};
use evenkeel_core::plan::TemplateHold;
use evenkeel_core::sign::{
    self, ApprovalDecision, Approved, Envelope, FoundGuest, PendingId, PendingItem, SpentNonces,
    Statement, authorise,
};
use serde_json::{Value, json};
use tokio::sync::{MutexGuard, RwLockReadGuard};

use super::cleared::{Cleared, ClearedPurpose, object};
use super::{Clearance, NotCleared};
use crate::authority::Authority;
use crate::engine::EngineContext;
use crate::engine::approvals::approval_context::ApprovalContext;
use crate::engine::approvals::hub::{AnchorUse, judge_history};
use crate::engine::approvals::no_signers;
use crate::engine::approvals::note_refusal;
use crate::engine::approvals::pending::{self, KeptItem, waiting};
use crate::engine::approvals::raise_again;
use crate::engine::error::{EngineError, Fatal};
use crate::engine::gate::act_rights::check_rights;
use crate::engine::gate::identity_proof::{end_is_provable, prove_identity};
use crate::engine::gate::surroundings::observe_surroundings;
use crate::engine::gate::volumes::check_removable;
use crate::engine::lane::final_backup::{check_left_out, check_room};
use crate::hub_link::memory::{self, JournalEpoch};
use crate::observe::{observe_guest, observe_snapshots};
use crate::pve::error::{Error, ErrorClass};

/// An approval of an item that waits.
#[derive(Debug, Clone)]
pub(in crate::engine) struct ApprovedOrder {
    /// What judges it.
    pub(in crate::engine) approvals: ApprovalContext,
    pub(in crate::engine) envelope: Envelope,
    pub(in crate::engine) statement: Statement,
    pub(in crate::engine) id: PendingId,
    pub(in crate::engine) item: PendingItem,
    pub(in crate::engine) kept: KeptItem,
}

/// While they are held the signers stay as they were, and nobody else is judged.
pub(in crate::engine) struct JudgingLocks<'o> {
    /// Free it once the request has left: a rotation then finds the act begun.
    pub(in crate::engine) signers: RwLockReadGuard<'o, Authority>,
    /// Free it once the decision is durable.
    pub(in crate::engine) judging: MutexGuard<'o, ()>,
}

/// Judges a signed act now. A refusal is written down: its signature holds, so whoever sent it is somebody, and no flood
/// comes this way.
pub(super) async fn clear<'o>(
    context: &EngineContext,
    order: &'o ApprovedOrder,
) -> Result<Clearance<'o>, NotCleared> {
    match judge(context, order).await {
        Ok(clearance) => Ok(clearance),
        Err(error) => {
            let refusal = raise_again::refused(context, order, error.refusal()?).await?;
            note_refusal(context, order.envelope.payload(), &refusal).await?;
            Err(NotCleared::Held(refusal))
        }
    }
}

async fn judge<'o>(
    context: &EngineContext,
    order: &'o ApprovedOrder,
) -> Result<Clearance<'o>, EngineError> {
    let refuse = |reason, why: String| Err(EngineError::Refused(Refusal::new(reason, why)));
    let approvals = &order.approvals;
    let mut looked = look(context, order).await?;
    let has_to_wait = approvals.authority.try_read().is_err();
    // In this order: the lane asks for the judge's lock once more, to end its item, while it holds the signers. Whoever
    // held that lock and waited for the signers, behind a rotation that waits for the lane, would stop all three.
    let signers = approvals.authority.read().await;
    // A rotation went first, and it had waited for the answers of other lanes: what was read is old by now.
    if has_to_wait {
        looked = look(context, order).await?;
    }
    let LastLook { fresh, found, provable, around } = looked;
    let judging = approvals.judging_lock.lock().await;
    let Some(trust) = signers.trust() else {
        return Err(EngineError::Refused(no_signers()));
    };
    let reading = context.reading().await?;
    let JournalSays { waits, spent, budget, epoch } = ask_journal(context, order).await?;
    let not_before = order.statement.window.not_before();
    let raised_at = order.item.raised_at;
    let anchoring = judge_history(approvals, &epoch, not_before, raised_at)?;
    let PendingItem { op, guest, .. } = order.item;
    let demand = order.kept.demand(&signers.rules(), &order.item, &pending::tags_of(&fresh));
    let host = signers.host().clone();
    let params = order.item.params.clone();
    let act = sign::Act { op, host, guest, found, params, item: order.id, demand };
    let limits = approvals.policy.limits();
    let approved = match authorise(&order.envelope, &act, trust, &reading, &spent, limits) {
        ApprovalDecision::Allowed(approved) => approved,
        ApprovalDecision::Refused(refusal) => return Err(EngineError::Refused(refusal)),
        ApprovalDecision::Replay { op, result } => {
            let why = format!("it was executed before, by {op}: {}", result.as_str());
            return refuse(ReasonCode::Replay, why);
        }
    };
    if !waits {
        return refuse(ReasonCode::NotPending, "the item it approves no longer waits".to_owned());
    }
    budget.and(provable)?;
    if let Err(refusal) = around {
        // Whoever signs must see what goes with the guest now, so the next pass raises the item anew.
        pending::end_judged(context, order.id).await?;
        return Err(EngineError::Refused(refusal));
    }
    if context.modes.is_frozen() {
        return refuse(ReasonCode::Frozen, "this host is frozen".to_owned());
    }
    let mut cleared = cleared(order, &fresh, &approved)?;
    if anchoring == AnchorUse::Unanchored {
        tracing::warn!(%guest, %op, "unanchored: the hub could not be asked how far the journal had come");
        cleared.decision.insert("anchor".to_owned(), json!("unanchored"));
    }
    let locks = Some(JudgingLocks { signers, judging });
    Ok(Clearance { cleared, locks, counting: None })
}

/// What our journal says of an approved order now.
struct JournalSays {
    /// Whether its item still waits.
    waits: bool,
    spent: SpentNonces,
    /// Whether one more signed act fits into this day.
    budget: Result<(), Refusal>,
    epoch: JournalEpoch,
}

async fn ask_journal(context: &EngineContext, order: &ApprovedOrder) -> Result<JournalSays, Fatal> {
    let id = order.id;
    let nonce = order.statement.nonce;
    let node_now = context.node_now();
    let per_day = order.approvals.policy.destructive_per_day;
    let asked = context.journal.read(move |state, _| {
        let ledger = state.ledger();
        let budget = budget::judge(ledger, per_day, node_now);
        let waits = waiting(state).contains_key(&id);
        JournalSays { waits, spent: ledger.spent(&nonce), budget, epoch: memory::epoch(state) }
    });
    asked.await.map_err(Fatal::Journal)
}

/// What the node tells of the guest, directly before the act.
struct LastLook {
    fresh: Guest,
    found: FoundGuest,
    /// Whether the end of the act could be proven, and the token has the rights it takes.
    provable: Result<(), Refusal>,
    /// Whether everything that goes with the guest was put before the signer.
    around: Result<(), Refusal>,
}

async fn look(context: &EngineContext, order: &ApprovedOrder) -> Result<LastLook, EngineError> {
    let refuse = |reason, why: String| Err(EngineError::Refused(Refusal::new(reason, why)));
    let fresh = match observe_guest(&context.client, order.item.guest).await {
        Ok(fresh) => fresh,
        Err(error) if error.class() == Some(&ErrorClass::GuestNotFound) => {
            return refuse(
                ReasonCode::IdentityMismatch,
                "no such guest is on this node now".into(),
            );
        }
        Err(error) => return refuse(ReasonCode::IdentityUnproven, error.to_string()),
    };
    if let Some(lock) = &fresh.lock {
        return refuse(ReasonCode::Locked, format!("the guest is locked ({lock})"));
    }
    let found = prove_identity(context, &fresh, &order.kept.anchor).await?;
    let PendingItem { op, guest, params, .. } = &order.item;
    // Before the nonce is spent: an approval that Proxmox would refuse is kept for when the right is there.
    let provable = match end_is_provable(context, *op).await {
        Ok(()) => check_rights(&context.client, *op, *guest, params).await,
        Err(refusal) => Err(refusal),
    };
    if order.item.op == ActionKind::Template {
        let snapshots = observe_snapshots(&context.client, fresh.id).await.ok();
        if let Some(hold) = TemplateHold::of_snapshots(snapshots.as_deref()) {
            return refuse(ReasonCode::After, hold.to_string());
        }
    }
    let params = &order.item.params;
    let slot = params.get("slot").and_then(|slot| detached_volume(&fresh, slot));
    // Another volume in the slot is refused below, whatever it is.
    if order.item.op == ActionKind::DeleteVolume && slot.as_ref() == params.get("volume") {
        check_removable(&context.client, &fresh, params).await?;
    }
    let around = surroundings_are_signed(context, &order.item).await;
    if let Some(backup) = FinalBackup::signed(&order.item.params)? {
        check_left_out(context, &backup, &fresh).await?;
        check_room(context, &backup.storage, fresh.id).await?;
    }
    if order.item.op == ActionKind::Rollback {
        let unlisted = |error: Error| Refusal::new(ReasonCode::IdentityUnproven, error.to_string());
        let snapshots = observe_snapshots(&context.client, fresh.id).await.map_err(unlisted)?;
        check_rollback(&order.item.params, &snapshots)?;
    }
    Ok(LastLook { fresh, found, provable, around })
}

/// Whether everything that goes with the guest was put before the signer.
pub(in crate::engine) async fn surroundings_are_signed(
    context: &EngineContext,
    item: &PendingItem,
) -> Result<(), Refusal> {
    if !takes_surroundings(item.op) {
        return Ok(());
    }
    let around = observe_surroundings(&context.client, item.guest).await;
    let purge = is_purged(&item.params);
    if let Some(refusal) = around.hinder_destroy(purge) {
        return Err(refusal);
    }
    around.are_among(&item.losses, purge)
}

fn cleared(order: &ApprovedOrder, fresh: &Guest, approved: &Approved) -> Result<Cleared, Refusal> {
    let item = &order.item;
    let Approved { by, nonce, payload, expires_at, reason } = approved;
    let signed_by: Vec<Value> = by
        .iter()
        .map(|by| json!({ "name": by.name.to_string(), "key": by.key.to_string(), "touch": by.touch.is_some() }))
        .collect();
    let call = PveCall::signed(item.op, &item.params, fresh)?;
    Ok(Cleared {
        guest: item.guest,
        kind: item.op,
        params: item.params.clone(),
        reasons: vec![format!("signed: {reason}")],
        decision: object([
            ("reason", json!(ReasonCode::AllowedSigned)),
            ("class", json!("destructive")),
            ("signed_by", json!(signed_by)),
            ("nonce", json!(nonce)),
            ("payload", json!(payload)),
            ("pending", json!(order.id)),
            ("statement_reason", json!(reason)),
        ]),
        repeat: Repeat::AtMostOnce {
            key: nonce.idempotency_key(),
            payload: *payload,
            expires_at: *expires_at,
        },
        task_mark: (call.unprotects() || call.restarts()).then(|| order.kept.anchor.clone()),
        purpose: ClearedPurpose::Ordinary,
        attempt: None,
        call,
        identity: identity(fresh).ok(),
        identity_after: None,
        before: BTreeMap::new(),
        volumes_before: None,
        volumes_named: BTreeSet::new(),
        for_hub: None,
    })
}
