//! A guest under a number for which a making of ours failed, of which nobody can say who made it.

use super::{GuestView, hold_free, removal};
use crate::desired::WantedState;
use crate::model::reason::{ReasonCode, Refusal};
use crate::plan::{GuestPlan, Held, Step};

/// Holds everything about it but its removal: it is shown and never touched.
pub(super) fn hold(view: &GuestView<'_>, planned: &mut GuestPlan) {
    let (WantedState::Present(_), Some(here)) = (&view.declared.state, view.here) else { return };
    let Some(op) = view.context.making.contested(here.id.vmid) else { return };
    let same_kind = view.here_of_kind();
    let refused =
        same_kind.and_then(|here| removal::refusal(&view.declared.state, here, view.context));
    let unproved = refused.map_or_else(
        || {
            format!(
                "evenkeel tried to make it ({op}) and cannot prove that this is the guest it made"
            )
        },
        |refused| {
            format!(
                "evenkeel tried to make it ({op}) and does not remove what it left: {}",
                refused.detail
            )
        },
    );
    let why = format!("{unproved}; if it is the one you mean, run `evenkeel retry {}`", here.id);
    hold_free(planned, |action| {
        let is_removal = matches!(action.step, Step::Remove(_));
        let refusal = Refusal::new(ReasonCode::IdentityUnproven, why.clone());
        (!is_removal).then_some(Held::Until(refusal))
    });
}
