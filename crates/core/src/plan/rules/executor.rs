//! An action that evenkeel knows and does not carry out.

use super::{GuestView, overrule};
use crate::plan::{GuestPlan, Held};

/// Holds actions without an executor.
pub(super) fn hold(_: &GuestView<'_>, planned: &mut GuestPlan) {
    overrule(planned, |action| action.step.kind().no_executor().map(Held::NotExecutable));
}
