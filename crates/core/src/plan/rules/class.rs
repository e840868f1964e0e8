//! What each action can cost: the class that the gate asks for too.

use super::GuestView;
use crate::actual::Guest;
use crate::gate::classify::{ActIntent, Judgement, Target, classify_remembering};
use crate::operate::operation::Provenance;
use crate::plan::{Action, GuestPlan, PlanContext, Step};

/// Classifies every action, and says why.
pub(super) fn judge(view: &GuestView<'_>, planned: &mut GuestPlan) {
    for action in &mut planned.actions {
        let judgement = cost(action, view.here, view.context);
        action.class = judgement.class;
        action.why = judgement.why;
    }
}

/// What an action can cost.
pub(in crate::plan) fn cost(
    action: &Action,
    here: Option<&Guest>,
    context: &PlanContext,
) -> Judgement {
    let target = here.map_or(Target::Free, Target::Seen);
    let params = action.step.params();
    let op = action.step.kind().as_str();
    let intent = ActIntent { op, kind: action.guest.kind, params: &params, target };
    // The classifier is told of no origin here: whether a guest of ours may go unsigned was judged by `compensation`.
    let memory = context.memory(action.guest.vmid);
    match &action.step {
        Step::Remove(removal) => super::removal::cost(removal),
        Step::SetConfig(_)
        | Step::Resize { .. }
        | Step::MoveVolume { .. }
        | Step::Start
        | Step::Shutdown { .. }
        | Step::Stop
        | Step::Make(_)
        | Step::Destroy(_)
        | Step::Template => classify_remembering(&intent, &Provenance::none(), &memory.backups),
    }
}
