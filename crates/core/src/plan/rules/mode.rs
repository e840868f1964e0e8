//! A host or a guest that is only observed.

use super::{GuestView, overrule};
use crate::desired::ReconcileMode;
use crate::plan::{GuestPlan, Held, ObservedBy};

/// Holds everything where nothing is to be changed. This overrules all rules before: what will not be done is put before
/// no signer.
pub(super) fn hold(view: &GuestView<'_>, planned: &mut GuestPlan) {
    let observed = match (view.context.host_mode, view.effective.mode) {
        (ReconcileMode::Observe, _) => Some(ObservedBy::Host),
        (ReconcileMode::Enforce, ReconcileMode::Observe) => Some(ObservedBy::Guest),
        (ReconcileMode::Enforce, ReconcileMode::Enforce) => None,
    };
    overrule(planned, |_| observed.map(Held::Observed));
}
