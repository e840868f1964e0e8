//! A guest that is cloned from a declared one waits until that one is as declared.

use std::collections::BTreeSet;

use super::SetView;
use crate::desired::GuestSource;
use crate::model::id::GuestId;
use crate::model::reason::{ReasonCode, Refusal};
use crate::plan::{Held, Plan, Step};

/// Holds clones of guests that the plan changes.
pub(super) fn hold(view: &SetView<'_>, plan: &mut Plan) {
    let unready: BTreeSet<GuestId> = plan.guests.iter().map(|guest| guest.guest).collect();
    for guest in &mut plan.guests {
        for action in guest.actions.iter_mut().filter(|action| action.held.is_none()) {
            let Step::Make(new) = &action.step else { continue };
            let GuestSource::Clone(from) = &new.source else { continue };
            let source = GuestId { kind: new.guest.kind, vmid: from.guest };
            let declared = view.desired.guests.contains_key(&from.guest);
            if declared && unready.contains(&source) {
                let why = format!("{source}, from which it is made, is not as declared yet");
                action.held = Some(Held::Until(Refusal::new(ReasonCode::Busy, why)));
            }
        }
    }
}
