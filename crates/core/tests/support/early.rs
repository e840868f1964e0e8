//! Everything that could be read, compared early: as by a pass that remembers it.

use evenkeel_core::actual::Snapshot;
use evenkeel_core::desired::Desired;
use evenkeel_core::plan::EarlyComparison;

pub(crate) fn compared_early<'d>(desired: &'d Desired, actual: &Snapshot) -> EarlyComparison<'d> {
    let mut early = EarlyComparison::of(desired);
    for here in actual.guests.values() {
        if let Ok(config) = &here.config {
            early.compare(here.id, config, actual.conventions);
        }
    }
    early
}
