//! What people asked the agent for without a signature: a snapshot or a backup, which nothing else may make unsigned.

use std::collections::BTreeSet;

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::model::id::GuestId;

use crate::call::WriteRequest;

/// What was ever asked for.
#[derive(Debug, Default)]
pub(super) struct AskedActs(BTreeSet<(GuestId, &'static str)>);

impl AskedActs {
    pub(super) fn asked(&mut self, op: ActionKind, guest: GuestId) {
        self.0.insert((guest, op.as_str()));
    }

    /// Whether people asked for such an act on the guest.
    pub(super) fn covers(&self, write: &WriteRequest) -> bool {
        self.0.contains(&(write.guest, write.kind.as_str()))
    }

    /// Invariant 8: what nobody declares is made only upon request.
    pub(super) fn judge(&self, write: &WriteRequest) -> Option<String> {
        let is_asked = matches!(write.kind, ActionKind::Snapshot | ActionKind::Backup);
        (is_asked && !self.covers(write)).then(|| "(8) nobody asked for it".to_owned())
    }
}
