//! What the journal remembers of guests in the bin: how each was before, and since when it is there.
//!
//! Written before the first action that puts a guest aside, so that no crash loses what it was; struck out once it is out
//! of the bin as it was, or is another guest. A guest that carries the mark of the bin never replaces what it was: only
//! what it is known by follows it. At rest nothing is written.

use std::collections::BTreeMap;

use evenkeel_core::actual::Snapshot;
use evenkeel_core::desired::bin::{BinMemory, is_in_bin};
use evenkeel_core::desired::selection::PassScope;
use evenkeel_core::desired::{Desired, ReconcileMode, WantedState};
use evenkeel_core::model::id::VmId;
use evenkeel_core::plan::Plan;

use crate::engine::EngineContext;
use crate::engine::error::Fatal;
use crate::journal::{JournalState, Kept, KeptSubject, Record};

/// The version of what is kept.
const SHAPE: u32 = 1;

/// Keys of these memories begin so.
const BIN: &str = "bin ";

/// What is remembered of every guest in the bin.
async fn memories(context: &EngineContext) -> Result<BTreeMap<VmId, BinMemory>, Fatal> {
    context.journal.read(|state, _| bins_in(state)).await.map_err(Fatal::Journal)
}

/// The same, by what a journal adds up to.
pub(crate) fn bins_in(state: &JournalState) -> BTreeMap<VmId, BinMemory> {
    let kept = state.kept(KeptSubject::Txn).filter(|(_, kept)| kept.v == SHAPE);
    kept.filter_map(|(key, kept)| {
        let vmid = key.strip_prefix(BIN)?.parse().ok()?;
        Some((vmid, serde_json::from_value(kept.value.clone()).ok()?))
    })
    .collect()
}

/// Brings what is remembered to what is declared and seen, before anything is sent, and says what that is now.
pub(in crate::engine) async fn follow(
    context: &EngineContext,
    desired: &Desired,
    actual: &Snapshot,
    plan: &Plan,
    scope: &PassScope,
) -> Result<BTreeMap<VmId, BinMemory>, Fatal> {
    let known = memories(context).await?;
    let mut changes = Vec::new();
    for (vmid, declared) in desired.guests.iter().filter(|(vmid, _)| scope.has(**vmid)) {
        let (WantedState::Bin(_), ReconcileMode::Enforce) = (&declared.state, declared.mode) else {
            continue;
        };
        let here = actual.guests.get(vmid).filter(|here| here.id == declared.id);
        let Some(here) = here else { continue };
        // What it was is never replaced by what it is in the bin, whatever card or disk it gets there.
        if known.get(vmid).is_some_and(|memory| memory.is_of(here) || is_in_bin(here)) {
            continue;
        }
        if let Some(memory) = BinMemory::of(here, context.node_now()) {
            changes.push(put(*vmid, &memory));
        }
    }
    for (vmid, memory) in known.iter().filter(|(vmid, _)| scope.has(**vmid)) {
        let here = actual.guests.get(vmid);
        if let Some(rebound) = here.and_then(|here| memory.rebound(here)) {
            changes.push(put(*vmid, &rebound));
        }
        let is_over = match (actual.guests.get(vmid), desired.guests.get(vmid)) {
            (Some(here), Some(declared)) => {
                let is_out = matches!(declared.state, WantedState::Present(_));
                let is_silent = !plan.guests.iter().any(|planned| planned.guest.vmid == *vmid);
                let is_another = here.config.is_ok() && !memory.is_of(here) && !is_in_bin(here);
                is_another || is_out && is_silent
            }
            // Nobody manages it: what it was is kept for whoever does so again.
            (Some(_) | None, None) => false,
            (None, Some(_)) => actual.proves_gone(*vmid),
        };
        if is_over {
            changes.push(Kept::remove(KeptSubject::Txn, format!("{BIN}{vmid}")));
        }
    }
    if changes.is_empty() {
        return Ok(known);
    }
    for kept in changes {
        context.append_if_room(Record::Kept(kept)).await?;
    }
    memories(context).await
}

fn put(vmid: VmId, memory: &BinMemory) -> Kept {
    let value = serde_json::to_value(memory).expect("a memory has only texts for keys");
    Kept::put(KeptSubject::Txn, format!("{BIN}{vmid}"), SHAPE, value)
}
