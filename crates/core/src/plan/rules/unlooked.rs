//! A guest beside which a look is still under way, or whose storage does not answer.

use super::GuestView;
use crate::plan::{GuestPlan, Held};

/// Holds what cannot be told apart before the look has ended: whether it may run, or must be signed.
pub(super) fn hold(view: &GuestView<'_>, planned: &mut GuestPlan) {
    let Some(refusal) = view.context.unlooked.get(&view.effective.id.vmid) else { return };
    for action in &mut planned.actions {
        if let None | Some(Held::PendingSignature | Held::Until(_)) = action.held {
            action.held = Some(Held::Until(refusal.clone()));
        }
    }
}
