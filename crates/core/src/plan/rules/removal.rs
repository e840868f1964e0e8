//! Guests of ours that go without a signature: what a failed making left, and scratch guests that shall be absent.
//!
//! Called by the planner with what `compensation` found beside the guest. It decides nothing by itself: without a verdict
//! nothing is removed, and what is refused is held or signed like everything else.

use super::GuestView;
use crate::actual::Guest;
use crate::desired::WantedState;
use crate::gate::classify::{ActionClass, Judgement};
use crate::gate::compensation::{Removal, RemovalGround};
use crate::gate::destroy::Destroy;
use crate::model::reason::Refusal;
use crate::operate::operation::MadeGuest;
use crate::plan::{GuestPlan, PlanContext};

/// The removal that was proved to be harmless, if one was.
pub(in crate::plan) fn removal(
    state: &WantedState,
    here: &Guest,
    context: &PlanContext,
) -> Option<Removal> {
    let (ground, made) = candidate(state, here, context)?;
    let verdict = context.removals.get(&here.id.vmid)?;
    let destroy = Destroy { purge: false, ..Destroy::of(here) };
    verdict.is_ok().then_some(Removal { ground, making: made.making, destroy })
}

/// A guest that may go unsigned, if everything else allows it, as far as our journal and the declaration tell.
pub fn candidate<'c>(
    state: &WantedState,
    here: &Guest,
    context: &'c PlanContext,
) -> Option<(RemovalGround, &'c MadeGuest)> {
    let half = |made| (RemovalGround::HalfMade, made);
    let scratch = |made| (RemovalGround::Scratch, made);
    match state {
        // Only what is made again is removed first.
        WantedState::Present(spec) if spec.source.is_some() => {
            context.making.half_made(here.id).map(half)
        }
        // Who wants it saved first wants what is in it.
        WantedState::Absent { final_backup: None } => context.making.scratch(here.id).map(scratch),
        WantedState::Present(_) | WantedState::Bin(_) | WantedState::Absent { .. } => None,
    }
}

/// Why a guest that our journal knows is not removed unsigned, where somebody looked.
pub(super) fn refusal<'c>(
    state: &WantedState,
    here: &Guest,
    context: &'c PlanContext,
) -> Option<&'c Refusal> {
    candidate(state, here, context)?;
    context.removals.get(&here.id.vmid)?.as_ref().err()
}

/// What a removal costs: nothing that anybody would miss, but a guest that runs goes down.
pub(super) fn cost(removal: &Removal) -> Judgement {
    if removal.destroy.stop {
        let why = "takes the guest down".to_owned();
        return Judgement { class: ActionClass::Disruptive, why };
    }
    Judgement { class: ActionClass::Benign, why: String::new() }
}

/// A scratch guest that must be signed for after all says why.
pub(super) fn tell_refusal(view: &GuestView<'_>, planned: &mut GuestPlan) {
    let state = &view.declared.state;
    let WantedState::Absent { .. } = state else { return };
    let Some(here) = view.here_of_kind() else { return };
    let Some(refusal) = refusal(state, here, view.context) else { return };
    for action in &mut planned.actions {
        action.why = format!("{}; it was made as scratch, but {}", action.why, refusal.detail);
    }
}
