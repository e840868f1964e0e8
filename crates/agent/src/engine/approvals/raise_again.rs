//! Items whose mark is over: nobody can execute them any more, so they end and are raised again with a mark of today.
//!
//! A node keeps its last thousand tasks or so. Once the list no longer shows the moment at which an item was raised, no list
//! of later proves that the guest is still the same. An approval of the former item is stale from then on; the operator
//! looks at the new one. Called by a pass, by `request`, and by the lane that refuses an approval for that reason.

use std::collections::BTreeSet;
use std::time::Duration;

use evenkeel_core::actual::identity_proof::{MarkEnd, MarkStanding, TaskReading};
use evenkeel_core::gate::approval::{RaisedBy, WantedItem};
use evenkeel_core::model::reason::{ReasonCode, Refusal};
use evenkeel_core::operate::operation::Upid;
use evenkeel_core::sign::{PendingId, PendingItem};

use crate::engine::EngineContext;
use crate::engine::approvals::approval_context::ApprovalContext;
use crate::engine::approvals::pending::{KeptItem, ReplacedItem, draft, end, end_judged, waiting};
use crate::engine::error::{EngineError, Fatal};
use crate::engine::gate::approved::ApprovedOrder;
use crate::engine::gate::identity_proof::{our_tasks, read_tasks};
use crate::journal::{Note, Record};

/// How often passes look whether marks still hold: a list turns over in hours.
pub(in crate::engine) const LOOKED_AT_EVERY: Duration = Duration::from_mins(1);

/// The `what` of the note.
const RAISED_AGAIN: &str = "raised_again";

/// An item that waits.
pub(in crate::engine) type WaitingItem<'i> = (PendingId, &'i PendingItem, &'i KeptItem);

/// Ends and raises again what of these is over. What cannot be raised now is tried again by a later pass.
pub(in crate::engine) async fn renew_items(
    context: &EngineContext,
    approvals: &ApprovalContext,
    items: &[WaitingItem<'_>],
) -> Result<(), Fatal> {
    if items.is_empty() || !context.shared.marks_are_due() {
        return Ok(());
    }
    let Some((reading, ours)) = read(context).await? else {
        return Ok(());
    };
    let stands =
        |(_, item, kept): &WaitingItem<'_>| kept.anchor.standing(&reading, item.guest.vmid, &ours);
    for item in items {
        let MarkStanding::Over(why) = stands(item) else {
            continue;
        };
        // A crash between the two records leaves both.
        let is_successor = |other: &&WaitingItem<'_>| {
            other.0 != item.0 && same_act(other.1, item.1) && stands(other) == MarkStanding::Holds
        };
        if items.iter().any(|other| is_successor(&other)) {
            end(context, item.0).await?;
        } else if let Err(error) = raise_again(context, approvals, *item, why).await {
            let refusal = error.refusal()?;
            tracing::debug!(id = %item.0, %refusal, "an item that is over cannot be raised again yet");
        }
    }
    Ok(())
}

fn same_act(one: &PendingItem, other: &PendingItem) -> bool {
    WantedItem::again(one) == WantedItem::again(other)
}

/// The item itself if it can still be executed, and otherwise the one that was raised in its place.
pub(in crate::engine) async fn still_good(
    context: &EngineContext,
    approvals: &ApprovalContext,
    item: WaitingItem<'_>,
) -> Result<PendingId, EngineError> {
    let Some((reading, ours)) = read(context).await? else {
        return Ok(item.0);
    };
    match item.2.anchor.standing(&reading, item.1.guest.vmid, &ours) {
        MarkStanding::Holds | MarkStanding::NotKnown => Ok(item.0),
        MarkStanding::Over(why) => {
            let raised = raise_again(context, approvals, item, why).await?;
            raised.ok_or_else(|| Refusal::new(ReasonCode::Stale, ask_again(why)).into())
        }
    }
}

/// Why an approval is refused. If its item is over, that was ended, and the answer names the one to look at instead.
pub(in crate::engine) async fn refused(
    context: &EngineContext,
    order: &ApprovedOrder,
    refusal: Refusal,
) -> Result<Refusal, Fatal> {
    if refusal.reason != ReasonCode::IdentityUnproven {
        return Ok(refusal);
    }
    let id = order.id;
    let found = context.journal.read(move |state, _| waiting(state).remove(&id)).await;
    let Some((item, kept)) = found.map_err(Fatal::Journal)? else {
        return Ok(refusal);
    };
    let raised = still_good(context, &order.approvals, (id, &item, &kept)).await;
    Ok(match raised {
        Ok(new) if new != id => {
            let why = format!("{}; a new item was raised: {new}", refusal.detail);
            Refusal::new(refusal.reason, why)
        }
        Ok(_) => refusal,
        // What stands against the new one is not what stands against this approval.
        Err(error) => error.refusal().map(|_| refusal)?,
    })
}

/// The task list and our own tasks in it; none if it cannot be read, which ends nothing.
async fn read(context: &EngineContext) -> Result<Option<(TaskReading, BTreeSet<Upid>)>, Fatal> {
    match read_tasks(context).await {
        Ok(reading) => Ok(Some((reading, our_tasks(context).await?))),
        Err(_) => Ok(None),
    }
}

/// Raises an item again and ends the old one; the answer is the new one's name, if there is one.
async fn raise_again(
    context: &EngineContext,
    approvals: &ApprovalContext,
    (old, item, kept): WaitingItem<'_>,
    over: MarkEnd,
) -> Result<Option<PendingId>, EngineError> {
    // Whoever asked meant the guest that was there.
    let is_meant = over != MarkEnd::Replaced || kept.from == RaisedBy::Plan;
    let drafted = if is_meant {
        let replaces = ReplacedItem { id: old, why: over.why().to_owned() };
        let from = (kept.from, kept.requester.clone());
        match draft(context, approvals, &WantedItem::again(item), from, Some(replaces)).await {
            Ok(drafted) => Some(drafted),
            Err(EngineError::Refused(refusal)) if refusal.reason == ReasonCode::Stale => None,
            Err(error) => return Err(error),
        }
    } else {
        None
    };
    let _judging = context.judging().await;
    let waits = context.journal.read(move |state, _| waiting(state).contains_key(&old)).await;
    if !waits.map_err(Fatal::Journal)? {
        return Ok(None);
    }
    let new = match drafted {
        Some(drafted) => {
            context.append(drafted.record).await?;
            Some(drafted.id)
        }
        None => None,
    };
    let what = format!("{} of {}", item.op, item.guest);
    let text = match new {
        Some(new) => format!("{what}: {}; {old} is over, a new item was raised: {new}", over.why()),
        None => format!("{what}: {}; {old} is over, and no new item was raised", over.why()),
    };
    tracing::warn!("{text}");
    context.append_if_room(Record::Note(Note { what: RAISED_AGAIN.to_owned(), text })).await?;
    end_judged(context, old).await?;
    Ok(new)
}

fn ask_again(over: MarkEnd) -> String {
    format!("{}: look at the guest and ask again", over.why())
}
