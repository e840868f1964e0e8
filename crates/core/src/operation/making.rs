//! What the journal knows of guests that we made, or tried to make.
//!
//! A guest we made starts for the first time only when it is as declared. A number for which a making of ours did not end
//! well is contested: a guest that is found there may be anybody's, and is left alone until a person says otherwise.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{OpEvent, Operation, Resolution};
use crate::action_registry::{ActionKind, OriginEffect};
use crate::id::{GuestId, OperationId, VmId};

/// Guests we made that never ran, and numbers at which a making did not end well.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MakingMemory {
    never_ran: BTreeSet<GuestId>,
    contested: BTreeMap<VmId, OperationId>,
}

impl MakingMemory {
    /// Whether we made the guest and have not started it yet.
    pub fn never_ran(&self, guest: GuestId) -> bool {
        self.never_ran.contains(&guest)
    }

    /// The making that did not end well, if a guest under this number may be anybody's.
    pub fn contested(&self, vmid: VmId) -> Option<OperationId> {
        self.contested.get(&vmid).copied()
    }

    /// The part that is about one number.
    #[must_use]
    pub fn of(&self, vmid: VmId) -> Self {
        Self {
            never_ran: self.never_ran.iter().filter(|guest| guest.vmid == vmid).copied().collect(),
            contested: self.contested(vmid).map(|op| (vmid, op)).into_iter().collect(),
        }
    }

    /// A person says that the guest is the one that is meant.
    pub(super) fn retry(&mut self, vmid: VmId) {
        self.contested.remove(&vmid);
    }

    /// Keeps it true after an event.
    pub(super) fn trace(&mut self, operation: &Operation, event: &OpEvent) {
        let (guest, kind) = (operation.intent.guest, operation.intent.kind);
        match event {
            OpEvent::Started(_) if kind.creates_guest() => {
                self.forget(guest.vmid);
                self.contested.insert(guest.vmid, operation.id);
            }
            OpEvent::Succeeded { .. } | OpEvent::Resolved { outcome: Resolution::Succeeded } => {
                match kind.row().origin {
                    OriginEffect::Begins => {
                        self.forget(guest.vmid);
                        self.never_ran.insert(guest);
                    }
                    OriginEffect::Ends => self.forget(guest.vmid),
                    OriginEffect::Keeps if kind == ActionKind::Start => {
                        self.never_ran.remove(&guest);
                    }
                    OriginEffect::Keeps => {}
                }
            }
            OpEvent::Started(_)
            | OpEvent::RequestStarted { .. }
            | OpEvent::TaskRunning { .. }
            | OpEvent::Failed { .. }
            | OpEvent::Unknown { .. }
            | OpEvent::Resolved { outcome: Resolution::Failed } => {}
        }
    }

    fn forget(&mut self, vmid: VmId) {
        self.never_ran.retain(|guest| guest.vmid != vmid);
        self.contested.remove(&vmid);
    }
}
