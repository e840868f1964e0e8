//! A host that an operator has frozen.

use super::{GuestView, hold_free};
use crate::plan::{GuestPlan, Held};

/// Holds everything while the host is frozen.
pub(super) fn hold(view: &GuestView<'_>, planned: &mut GuestPlan) {
    hold_free(planned, |_| view.context.frozen.then_some(Held::Frozen));
}
