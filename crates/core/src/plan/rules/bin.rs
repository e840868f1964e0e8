//! A guest that goes into the bin while Proxmox VE's high availability starts it.

use super::{GuestView, hold_free};
use crate::desired::WantedState;
use crate::desired::bin;
use crate::plan::{GuestPlan, Held};

/// Holds everything about it: HA would start what the bin stops.
pub(super) fn hold(view: &GuestView<'_>, planned: &mut GuestPlan) {
    let is_in_bin = matches!(view.declared.state, WantedState::Bin(_));
    let is_managed = is_in_bin && view.here.is_some_and(|here| here.ha.is_some());
    hold_free(planned, |_| is_managed.then_some(Held::NotExecutable(bin::HA_MANAGED)));
}
