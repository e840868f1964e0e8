//! A document that nobody signed must not open a guest.

use super::{GuestView, overrule};
use crate::fleet;
use crate::plan::{GuestPlan, Held};

/// Holds steps by which somebody could get into a guest, where no author vouches for them.
pub(super) fn hold(view: &GuestView<'_>, planned: &mut GuestPlan) {
    overrule(planned, |action| {
        fleet::opened_by_step(view.declared.by, &action.step).map(Held::Until)
    });
}
