//! What failed waits until its pause is over.

use super::{GuestView, hold_free};
use crate::operate::back_off::AttemptHash;
use crate::plan::{GuestPlan, Held};

/// Holds what failed before, and what comes after it: a failure keeps a guest's later actions from being tried, so its
/// pause does too.
pub(super) fn hold(view: &GuestView<'_>, planned: &mut GuestPlan) {
    let failures = &view.context.failures;
    let vmid = view.effective.id.vmid;
    if !failures.knows(vmid) {
        return;
    }
    let mut before = None;
    hold_free(planned, |action| {
        let failed = AttemptHash::candidates(&action.step, view.effective, view.here)
            .find_map(|attempt| failures.pausing(vmid, attempt, view.context.now));
        before = before.take().or_else(|| failed.cloned());
        before.clone().map(|failed| Held::FailedBefore(Box::new(failed)))
    });
}
