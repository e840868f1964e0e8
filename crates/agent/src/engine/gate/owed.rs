//! The gate for a protection that is owed: taken off for a destroy that then came to nothing.
//!
//! It is given to the guest it was taken from and to nobody else. What cannot be told now is asked again by the next
//! pass, so nothing is forgotten here but what is owed to nobody any more.

use std::collections::BTreeMap;

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::actual::Guest;
use evenkeel_core::back_off::AttemptHash;
use evenkeel_core::destroy::Owed;
use evenkeel_core::id::OperationId;
use evenkeel_core::operation::{Operation, Repeat};
use evenkeel_core::pve_call::{ConfigChange, PveCall};

use super::NotCleared;
use super::cleared::{Cleared, allowed};
use crate::engine::EngineContext;
use crate::engine::error::Fatal;
use crate::engine::identity_proof::{our_tasks, read_tasks};
use crate::journal::{Kept, Record, Subject};
use crate::observe::observe_guest;

/// The key under which the journal keeps that a protection was given back.
fn given_back(op: OperationId) -> String {
    format!("protection of {op}")
}

/// Operations that took a protection off and could not use it, and have not given it back.
pub(in crate::engine) async fn owed(context: &EngineContext) -> Result<Vec<Operation>, Fatal> {
    let owed = context.journal.read(|state, _| {
        let done = |op: OperationId| state.kept(Subject::Txn).any(|(key, _)| key == given_back(op));
        let signed = state.ledger().signed().filter(|operation| operation.owes_protection());
        signed.filter(|operation| !done(operation.id)).cloned().collect()
    });
    owed.await.map_err(Fatal::Journal)
}

/// Nothing is owed any more for what this operation took off.
pub(in crate::engine) async fn note_given_back(
    context: &EngineContext,
    op: OperationId,
) -> Result<(), Fatal> {
    let kept = Kept::put(Subject::Txn, given_back(op), 1, serde_json::Value::Bool(true));
    // On a nearly full disk it is found protected by the next pass.
    context.append_if_room(Record::Kept(kept)).await
}

/// Judges whether a protection can be given back now.
pub(super) async fn clear(
    context: &EngineContext,
    owing: OperationId,
) -> Result<Cleared, NotCleared> {
    let Some(operation) = owed(context).await?.into_iter().find(|owed| owed.id == owing) else {
        return Err(NotCleared::Unneeded);
    };
    let fresh = observe_guest(&context.client, operation.intent.guest).await;
    let fresh = fresh.map_err(|error| NotCleared::Failed(error.to_string()))?;
    let tasks = read_tasks(context).await.map_err(NotCleared::Held)?;
    match Owed::to(&fresh, &operation, &tasks, &our_tasks(context).await?) {
        Owed::Protection => cleared(&operation, &fresh),
        Owed::Later(refusal) => Err(NotCleared::Held(refusal)),
        Owed::Nothing => {
            note_given_back(context, owing).await?;
            Err(NotCleared::Unneeded)
        }
    }
}

fn cleared(operation: &Operation, fresh: &Guest) -> Result<Cleared, NotCleared> {
    let change = ConfigChange::protection(fresh, true);
    let change = change.map_err(|refusal| NotCleared::Failed(refusal.detail))?;
    let params = [("digest", change.digest.to_string()), ("protection", "1".to_owned())];
    Ok(Cleared {
        guest: operation.intent.guest,
        kind: ActionKind::SetConfig,
        params: params.map(|(name, text)| (name.to_owned(), text)).into(),
        reasons: vec![format!("protection unset -> 1 (taken off by {})", operation.id)],
        decision: allowed("benign", ""),
        repeat: Repeat::Convergent,
        call: PveCall::SetConfig(change),
        identity: operation.intent.identity,
        identity_after: None,
        task_mark: None,
        attempt: Some(AttemptHash::owed(operation.id)),
        before: BTreeMap::new(),
        volumes_before: None,
    })
}
