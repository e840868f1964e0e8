//! What holds every act, or every planned one: an operator's freeze, and whether host or guest are only observed.
//!
//! Asked in the lane directly before an act begins. It must never be remembered from an earlier answer.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use evenkeel_core::desired::{DeclaredGuest, Desired, ReconcileMode};
use evenkeel_core::model::id::VmId;
use evenkeel_core::plan::ObservedBy;

/// Freeze and modes of the host.
#[derive(Clone)]
pub(in crate::engine) struct HostModes {
    /// Whether an operator has frozen this host; asked before every act.
    pub(in crate::engine) frozen: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Whether the host only observes, by its own policy; asked before every planned act.
    pub(in crate::engine) observes: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Guests that the newest desired state only observes. What was planned from an older one asks here too.
    observed: Arc<Mutex<BTreeSet<VmId>>>,
}

impl Default for HostModes {
    fn default() -> Self {
        let observed = Arc::default();
        Self { frozen: Arc::new(|| false), observes: Arc::new(|| false), observed }
    }
}

impl HostModes {
    /// Whether an operator has frozen this host.
    pub(in crate::engine) fn is_frozen(&self) -> bool {
        (self.frozen)()
    }

    /// Whether this host changes guests, by its own policy.
    pub(in crate::engine) fn host_mode(&self) -> ReconcileMode {
        if (self.observes)() { ReconcileMode::Observe } else { ReconcileMode::Enforce }
    }

    /// Keeps which guests are only observed now, for what was planned before.
    pub(in crate::engine) fn keep_modes(&self, desired: &Desired) {
        let is_observed = |guest: &&DeclaredGuest| guest.mode == ReconcileMode::Observe;
        let observed = desired.guests.values().filter(is_observed).map(|guest| guest.id.vmid);
        *self.lock_observed() = observed.collect();
    }

    /// Who says by now, in the host's policy or the newest desired state, that a guest is only observed.
    pub(in crate::engine) fn observed_by(&self, vmid: VmId) -> Option<ObservedBy> {
        let guest = self.lock_observed().contains(&vmid).then_some(ObservedBy::Guest);
        match self.host_mode() {
            ReconcileMode::Observe => Some(ObservedBy::Host),
            ReconcileMode::Enforce => guest,
        }
    }

    fn lock_observed(&self) -> MutexGuard<'_, BTreeSet<VmId>> {
        self.observed.lock().expect("nobody panics while they hold the modes")
    }
}
