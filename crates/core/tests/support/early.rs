//! Everything that could be read, compared early: as by a pass that remembers it.

use evenkeel_core::actual::Snapshot;
use evenkeel_core::desired::Desired;
use evenkeel_core::plan::EarlyComparison;

pub(crate) fn compared_early<'d>(desired: &'d Desired, actual: &Snapshot) -> EarlyComparison<'d> {
    let mut early = EarlyComparison::of(desired);
    for declared in desired.guests.values() {
        let here = actual.guests.get(&declared.id.vmid).filter(|here| here.id == declared.id);
        if let Some(Ok(config)) = here.map(|here| &here.config) {
            early.compare(declared, config, actual.conventions);
        }
    }
    early
}
