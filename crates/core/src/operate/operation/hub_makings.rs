//! What the journal knows of acts that a hub had done: how many guests were made, and whose volumes count.
//!
//! A fold over `started` records, so that a restart forgives nothing. A making counts from the moment it begins, whatever
//! comes of it. A guest counts until we destroyed it: a hub that no longer declares a guest has not given its room back.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{OpEvent, Operation, StorageName, UnixSeconds};
use crate::action_registry::OriginEffect;
use crate::gate::create_policy::PER_DAY_MAX;
use crate::model::id::VmId;
use crate::model::quantity::Bytes;

/// More moments than a policy can allow in a day tell nothing more.
const KEPT_MAX: usize = 1_000;
const _: () = assert!(PER_DAY_MAX <= KEPT_MAX as u64);

/// The time that `per_day` is for.
const DAY_S: u64 = 24 * 60 * 60;

/// What a guest takes of each storage once an act for a hub is done, in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HubShare(BTreeMap<StorageName, u64>);

impl HubShare {
    /// So many bytes on each.
    pub fn of(sizes: &BTreeMap<StorageName, Bytes>) -> Self {
        Self(sizes.iter().map(|(storage, size)| (storage.clone(), size.0)).collect())
    }

    /// What it takes on each.
    pub fn sizes(&self) -> BTreeMap<StorageName, Bytes> {
        self.0.iter().map(|(storage, size)| (storage.clone(), Bytes(*size))).collect()
    }
}

/// Acts that a hub had done.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HubMakings {
    /// When guests began to be made, as far as that may still count.
    begun: Vec<UnixSeconds>,
    /// Guests that were made, or got room.
    guests: BTreeSet<VmId>,
}

impl HubMakings {
    /// How many guests began to be made in the last 24 hours. A moment in the future counts: a clock that was set back must
    /// not give a new day.
    pub fn made_in_last_day(&self, now: UnixSeconds) -> u64 {
        self.begun.iter().filter(|at| at.plus(DAY_S) > now).count() as u64
    }

    /// The guests whose volumes count, whether or not the hub still declares them.
    pub fn guests(&self) -> &BTreeSet<VmId> {
        &self.guests
    }

    /// Forgets by number and not by time: a clock that leaps must not forgive anything.
    fn begin(&mut self, at: UnixSeconds) {
        self.begun.push(at);
        self.begun.sort_unstable();
        if self.begun.len() > KEPT_MAX {
            self.begun.remove(0);
        }
    }

    /// Keeps it true after an event.
    pub(super) fn trace(&mut self, operation: &Operation, event: &OpEvent) {
        let vmid = operation.intent.guest.vmid;
        let kind = operation.intent.kind;
        if let OpEvent::Started(intent) = event
            && intent.for_hub.is_some()
        {
            self.guests.insert(vmid);
            if kind.creates_guest() {
                self.begin(intent.sent_at);
            }
        }
        if event.is_success() && kind.row().origin == OriginEffect::Ends {
            self.guests.remove(&vmid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action_registry::ActionKind;
    use crate::model::id::OperationId;
    use crate::operate::operation::{Ledger, OpRecord, StartedIntent};

    const NOW: UnixSeconds = UnixSeconds(1_800_000_000);

    /// Begins and ends an operation; `for_hub` tells whether a hub declared it.
    fn ended(ledger: &mut Ledger, number: u32, kind: ActionKind, at: UnixSeconds, for_hub: bool) {
        let op = OperationId::from_parts(u64::from(number), u128::from(number));
        let share = HubShare::of(&[("tank".parse().unwrap(), Bytes(8))].into());
        let intent = StartedIntent {
            for_hub: for_hub.then_some(share),
            ..StartedIntent::new("lxc/1000".parse().unwrap(), kind, at)
        };
        let end = OpEvent::Succeeded { identity: None, warning: None };
        for event in [OpEvent::Started(Box::new(intent)), end] {
            ledger.apply(&OpRecord { op, event }).unwrap();
        }
        // As a compacted journal has it.
        ledger.forget_closed();
        *ledger = serde_json::from_value(serde_json::to_value(&*ledger).unwrap()).unwrap();
    }

    #[test]
    fn guests_made_for_a_hub_are_counted_for_a_day_across_restarts() {
        let mut ledger = Ledger::default();
        for (number, at, for_hub) in [
            (1, NOW.minus(DAY_S), true),
            (2, NOW.minus(DAY_S - 1), true),
            (3, NOW, false),
            (4, NOW, true),
            (5, NOW.plus(999_999), true),
        ] {
            ended(&mut ledger, number, ActionKind::Create, at, for_hub);
        }
        ended(&mut ledger, 6, ActionKind::Resize, NOW, true);
        assert_eq!(
            ledger.hub().made_in_last_day(NOW),
            3,
            "one is a day old, two made no guest for it"
        );
        assert_eq!(ledger.hub().made_in_last_day(NOW.plus(DAY_S)), 1);
    }

    #[test]
    fn a_guest_counts_until_it_was_destroyed() {
        let counted = |ledger: &Ledger| ledger.hub().guests().len();
        let mut ledger = Ledger::default();
        ended(&mut ledger, 1, ActionKind::SetConfig, NOW, false);
        assert_eq!(counted(&ledger), 0);
        ended(&mut ledger, 2, ActionKind::Resize, NOW, true);
        assert_eq!(counted(&ledger), 1);
        ended(&mut ledger, 3, ActionKind::Stop, NOW, false);
        assert_eq!(counted(&ledger), 1);
        ended(&mut ledger, 4, ActionKind::Destroy, NOW, false);
        assert_eq!(counted(&ledger), 0);
    }
}
