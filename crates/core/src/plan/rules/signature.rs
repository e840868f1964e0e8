//! What destroys data waits for an operator's signature.

use super::{GuestView, hold_free};
use crate::gate::classify::ActionClass;
use crate::plan::{GuestPlan, Held};

/// Holds destructive actions.
pub(super) fn hold(_: &GuestView<'_>, planned: &mut GuestPlan) {
    hold_free(planned, |action| match action.class {
        ActionClass::Destructive => Some(Held::PendingSignature),
        ActionClass::Benign | ActionClass::Disruptive => None,
    });
}
