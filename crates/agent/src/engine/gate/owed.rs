//! The gate for what is owed: a protection taken off, or a guest stopped, for a destroy that then came to nothing.
//!
//! It is given to the guest it was taken from and to nobody else. What cannot be told now is asked again by the next
//! pass, so nothing is forgotten here but what is owed to nobody any more.

use std::collections::BTreeMap;

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::actual::Guest;
use evenkeel_core::gate::destroy::{Owed, OwedThing};
use evenkeel_core::gate::named_volumes::kept_volumes;
use evenkeel_core::model::id::OperationId;
use evenkeel_core::model::reason::{ReasonCode, Refusal};
use evenkeel_core::operate::back_off::AttemptHash;
use evenkeel_core::operate::operation::Operation;
use evenkeel_core::operate::pve_call::{ConfigChange, PveCall};

use super::NotCleared;
use super::cleared::{Cleared, allowed};
use crate::engine::EngineContext;
use crate::engine::error::Fatal;
use crate::engine::gate::identity_proof::{our_tasks, read_tasks};
use crate::engine::gate::volumes::check_detached;
use crate::journal::{Kept, KeptSubject, Record};
use crate::observe::observe_guest;

/// One thing an operation took from its guest.
#[derive(Debug, Clone)]
pub(in crate::engine) struct OwedOrder {
    pub(in crate::engine) operation: Operation,
    pub(in crate::engine) debt: OwedThing,
}

impl OwedOrder {
    /// What giving it back tries: one attempt for all operations that took the same from the same guest.
    pub(in crate::engine) fn attempt(&self) -> AttemptHash {
        AttemptHash::owed(self.operation.intent.identity, self.debt)
    }

    /// What gives it back.
    pub(super) fn kind(&self) -> ActionKind {
        match self.debt {
            OwedThing::Protection => ActionKind::SetConfig,
            OwedThing::Running => ActionKind::Start,
        }
    }

    /// Why it is given back.
    pub(super) fn reason(&self) -> String {
        match self.debt {
            OwedThing::Protection => format!("protection taken off by {}", self.operation.id),
            OwedThing::Running => format!("stopped by {}", self.operation.id),
        }
    }
}

/// The key under which the journal keeps that something was given back.
fn given_back(op: OperationId, debt: OwedThing) -> String {
    match debt {
        OwedThing::Protection => format!("protection of {op}"),
        OwedThing::Running => format!("run state of {op}"),
    }
}

/// What operations took and could not use, and have not given back.
pub(in crate::engine) async fn owed(context: &EngineContext) -> Result<Vec<OwedOrder>, Fatal> {
    let owed = context.journal.read(|state, _| {
        let done = |op: OperationId, debt: OwedThing| {
            state.kept(KeptSubject::Txn).any(|(key, _)| key == given_back(op, debt))
        };
        let owes = |operation: &Operation| {
            let left = OwedThing::ALL.into_iter().filter(|debt| debt.is_of(operation));
            let left = left.filter(|debt| !done(operation.id, *debt));
            left.map(|debt| OwedOrder { operation: operation.clone(), debt }).collect::<Vec<_>>()
        };
        state.ledger().indebted().flat_map(owes).collect()
    });
    owed.await.map_err(Fatal::Journal)
}

/// Nothing is owed any more for what this operation took.
pub(in crate::engine) async fn note_given_back(
    context: &EngineContext,
    op: OperationId,
    debt: OwedThing,
) -> Result<(), Fatal> {
    let kept = Kept::put(KeptSubject::Txn, given_back(op, debt), 1, serde_json::Value::Bool(true));
    // On a nearly full disk the next pass finds that the guest has it.
    context.append_if_room(Record::Kept(kept)).await
}

/// Judges whether something can be given back now.
pub(super) async fn clear(
    context: &EngineContext,
    owing: &OwedOrder,
) -> Result<Cleared, NotCleared> {
    let op = owing.operation.id;
    let debt = owing.debt;
    let mut all = owed(context).await?.into_iter();
    let Some(owing) = all.find(|owed| owed.operation.id == op && owed.debt == debt) else {
        return Err(NotCleared::Unneeded);
    };
    // Another operation that took the same may have failed to give it back a moment ago.
    let guest = owing.operation.intent.guest;
    let failures = context.failures().await?;
    if let Some(failed) = failures.pausing(guest.vmid, owing.attempt(), context.node_now()) {
        let refusal = Refusal::new(ReasonCode::FailedBefore, failed.to_string());
        return Err(NotCleared::Held(refusal));
    }
    let fresh = observe_guest(&context.client, guest).await;
    let fresh = fresh.map_err(|error| NotCleared::Failed(error.to_string()))?;
    let tasks = read_tasks(context).await.map_err(NotCleared::Held)?;
    match Owed::to(&fresh, &owing.operation, debt, &tasks, &our_tasks(context).await?) {
        Owed::Now => {
            let cleared = cleared(&owing, &fresh)?;
            check_detached(&context.client, &fresh, cleared.kind, &cleared.params).await?;
            Ok(cleared)
        }
        Owed::Later(refusal) => Err(NotCleared::Held(refusal)),
        Owed::Nothing => {
            note_given_back(context, op, debt).await?;
            Err(NotCleared::Unneeded)
        }
    }
}

fn cleared(owing: &OwedOrder, fresh: &Guest) -> Result<Cleared, NotCleared> {
    let OwedOrder { operation, debt } = owing;
    let (call, params, reason) = match debt {
        OwedThing::Protection => {
            let change = ConfigChange::protection(fresh, true);
            let change = change.map_err(|refusal| NotCleared::Failed(refusal.detail))?;
            let params = [("digest", change.digest.to_string()), ("protection", "1".to_owned())];
            let params = params.map(|(name, text)| (name.to_owned(), text)).into();
            let reason = format!("protection unset -> 1 (taken off by {})", operation.id);
            (PveCall::SetConfig(change), params, reason)
        }
        OwedThing::Running => {
            let reason = format!("run stopped -> running (stopped by {})", operation.id);
            (PveCall::Start, BTreeMap::new(), reason)
        }
    };
    Ok(Cleared {
        volumes_named: kept_volumes(owing.kind(), fresh, &params),
        params,
        reasons: vec![reason],
        decision: allowed("benign", ""),
        identity: operation.intent.identity,
        attempt: Some(owing.attempt()),
        ..Cleared::plain(operation.intent.guest, owing.kind(), call)
    })
}
