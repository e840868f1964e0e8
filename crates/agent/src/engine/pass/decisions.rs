//! What the gate would answer to each planned action, recorded when the answer changes and not at each pass.
//!
//! An action that runs has its decision in its `started` record. Here is what does not run: the audit shows since when
//! and why. At rest nothing is written.

use std::collections::BTreeMap;

use evenkeel_core::desired::selection::PassScope;
use evenkeel_core::model::id::GuestId;
use evenkeel_core::plan::{Action, Held, Plan};
use evenkeel_core::sign::PayloadHash;
use serde_json::{Value, json};

use crate::engine::EngineContext;
use crate::engine::error::Fatal;
use crate::journal::{Kept, KeptSubject, Record};

/// Keys of decisions about planned actions begin so; others are about approvals.
const PLANNED: &str = "plan ";

/// Brings the record to what a plan holds now.
pub(in crate::engine) async fn follow_plan(
    context: &EngineContext,
    plan: &Plan,
    scope: &PassScope,
) -> Result<(), Fatal> {
    let held: BTreeMap<String, Value> = plan.actions().filter_map(held).collect();
    let known = context.journal.read(|state, _| {
        let kept = state.kept(KeptSubject::Decision).filter(|(key, _)| key.starts_with(PLANNED));
        kept.map(|(key, kept)| (key.to_owned(), kept.value.clone())).collect::<BTreeMap<_, _>>()
    });
    let known = known.await.map_err(Fatal::Journal)?;
    let busy = |key: &str| {
        let busy = plan.guests.iter().filter(|guest| guest.busy.is_some());
        busy.map(|guest| format!("{PLANNED}{} ", guest.guest)).any(|start| key.starts_with(&start))
    };
    // A pass about chosen guests decides nothing about the others.
    let in_scope = |value: &Value| {
        let guest = value["guest"].as_str().and_then(|text| text.parse::<GuestId>().ok());
        guest.is_none_or(|guest| scope.has(guest.vmid))
    };
    let over = known
        .iter()
        .filter(|(key, value)| !held.contains_key(*key) && !busy(key) && in_scope(value));
    let over = over.map(|(key, _)| Kept::remove(KeptSubject::Decision, key.clone()));
    let new =
        held.iter().filter(|(key, value)| !known.get(*key).is_some_and(|old| same(old, value)));
    let new = new.map(|(key, value)| {
        let mut value = value.clone();
        value["at"] = json!(context.ambient.now().to_string());
        Kept::put(KeptSubject::Decision, key.clone(), 1, value)
    });
    for kept in over.chain(new) {
        // Nothing rests on it: on a nearly full disk it is left out, and the next pass tries again.
        context.append_if_room(Record::Kept(kept)).await?;
    }
    Ok(())
}

/// A held action: its key, and what is said of it.
fn held(action: &Action) -> Option<(String, Value)> {
    let held = action.held.as_ref()?;
    // That it failed is in the record of the operation that did; each try would write a decision besides.
    if let Held::FailedBefore(_) = held {
        return None;
    }
    let guest = action.guest;
    let op = action.step.kind();
    // A hash of a secret could be guessed from, and the same answer to two secrets is the same answer.
    let mut params = action.step.shown_params();
    params.remove("digest");
    let params = serde_json::to_vec(&params).unwrap_or_default();
    let key = format!("{PLANNED}{guest} {op} {}", PayloadHash::of(&params));
    let value = json!({
        "guest": guest, "op": op, "class": action.class.to_string(), "reason": held.reason(),
        "why": held.to_string(),
    });
    Some((key, value))
}

/// The same decision, whenever it was made.
fn same(old: &Value, new: &Value) -> bool {
    ["guest", "op", "class", "reason", "why"].iter().all(|field| old[field] == new[field])
}
