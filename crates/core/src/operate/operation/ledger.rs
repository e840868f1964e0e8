//! The fold of all operation records: what is in flight, which keys are spent, which guests are ours.
//!
//! The journal feeds it at replay and then with every new record, so that recovery and live running
//! know the same things in the same way. It must never skip a record that does not fit: such a
//! journal is damaged, and the agent stops (invariant 6).

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{
    GuestOrigin, HubMakings, IdempotencyKey, IdentityHash, IllegalTransition, MakingMemory,
    OpEvent, Operation, Provenance, Repeat, Resolution, StartedIntent, StorageName, Upid,
};
use crate::action_registry::OriginEffect;
use crate::model::id::{GuestId, OperationId, VmId};
use crate::model::quantity::Bytes;
use crate::operate::back_off::FailureMemory;
use crate::sign::{Nonce, OpResult, SpentNonces, SpentOn};

/// One line of the journal about an operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpRecord {
    /// Which operation.
    pub op: OperationId,
    /// What happened to it.
    #[serde(flatten)]
    pub event: OpEvent,
}

/// Everything the operation records say, in one value. It is also what a compacted journal stores.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Ledger {
    /// Boxed, so that the map moves only names when it grows and shrinks.
    operations: BTreeMap<OperationId, Box<Operation>>,
    /// The one operation of a guest that is not closed: replay asks for it with every record.
    open: Open,
    keys: KeyMemory,
    origins: OriginMemory,
    /// What failed and waits for its next try.
    #[serde(default)]
    failures: FailureMemory,
    /// Guests we made, or tried to make.
    #[serde(default)]
    making: MakingMemory,
    /// What a hub had done.
    #[serde(default)]
    hub: HubMakings,
    /// Operations that owe nothing any more: their guest was destroyed by a later one of ours, and whoever has its number
    /// now is another guest.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    debts_over: BTreeSet<OperationId>,
}

type Open = BTreeMap<VmId, OperationId>;
type KeyMemory = BTreeMap<IdempotencyKey, OperationId>;
type OriginMemory = BTreeMap<VmId, GuestOrigin>;

/// A record that does not fit the ones before it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// The state machine refuses it.
    #[error("the record of {op} does not fit the ones before it")]
    Illegal {
        /// The operation.
        op: OperationId,
        /// What does not fit.
        #[source]
        source: IllegalTransition,
    },
    /// A signed operation's key was spent before.
    #[error("{op} spends the key {key}, which {first} has spent")]
    KeyReused {
        /// The later operation.
        op: OperationId,
        /// The key.
        key: IdempotencyKey,
        /// The operation that spent it.
        first: OperationId,
    },
    /// Another operation on that guest number is not closed.
    #[error("{op} starts on guest {vmid} while {open} is not closed")]
    LaneBusy {
        /// The later operation.
        op: OperationId,
        /// The guest number.
        vmid: VmId,
        /// The one that is open.
        open: OperationId,
    },
    /// What a making left is removed at most once.
    #[error("{op} removes what {making} left, which was tried before")]
    RemovedBefore {
        /// The later operation.
        op: OperationId,
        /// The making.
        making: OperationId,
    },
}

/// All operations a list of records speaks of.
pub fn fold<'a>(
    records: impl IntoIterator<Item = &'a OpRecord>,
) -> Result<BTreeMap<OperationId, Operation>, ReplayError> {
    let mut ledger = Ledger::default();
    records.into_iter().try_for_each(|record| ledger.apply(record).map(|_| ()))?;
    Ok(ledger.operations.into_iter().map(|(id, operation)| (id, *operation)).collect())
}

impl Ledger {
    /// Takes in one more record, or leaves everything as it was. Tells the operation after it.
    pub fn apply(&mut self, record: &OpRecord) -> Result<&Operation, ReplayError> {
        let op = record.op;
        let illegal = |source| ReplayError::Illegal { op, source };
        let debts_over = self.debts_ended_by(record);
        let operation = match self.operations.entry(op) {
            Entry::Occupied(known) => {
                let operation = known.into_mut();
                operation.advance(&record.event).map_err(illegal)?;
                operation
            }
            Entry::Vacant(place) => {
                let operation = Operation::begin(op, &record.event).map_err(illegal)?;
                check_room(&self.open, &self.keys, op, &operation.intent)?;
                if let Repeat::OncePerMaking { making } = operation.intent.repeat
                    && self.making.is_being_removed(operation.intent.guest.vmid, making)
                {
                    return Err(ReplayError::RemovedBefore { op, making });
                }
                if let Repeat::AtMostOnce { key, .. } = &operation.intent.repeat {
                    self.keys.insert(key.clone(), op);
                }
                self.open.insert(operation.intent.guest.vmid, op);
                place.insert(Box::new(operation))
            }
        };
        trace_origin(&mut self.origins, operation, &record.event);
        trace_failures(&mut self.failures, operation, &record.event);
        self.making.trace(operation, &record.event);
        self.hub.trace(operation, &record.event);
        self.debts_over.extend(debts_over);
        if !operation.is_in_flight() {
            self.open.remove(&operation.intent.guest.vmid);
        }
        Ok(operation)
    }

    /// Who owes nothing any more after this record: a guest that one of our operations has ended is owed nothing.
    fn debts_ended_by(&self, record: &OpRecord) -> Vec<OperationId> {
        let is_done = match &record.event {
            OpEvent::Succeeded { .. } => true,
            OpEvent::Resolved { outcome } => *outcome == Resolution::Succeeded,
            OpEvent::Started(_)
            | OpEvent::RequestStarted { .. }
            | OpEvent::TaskRunning { .. }
            | OpEvent::Failed { .. }
            | OpEvent::Unknown { .. } => false,
        };
        let ended = self.operations.get(&record.op).filter(|_| is_done).map(|op| &op.intent);
        match ended {
            Some(intent) if intent.kind.row().origin == OriginEffect::Ends => {
                let of_guest = |op: &&Operation| op.intent.guest.vmid == intent.guest.vmid;
                self.indebted().filter(of_guest).map(|op| op.id).collect()
            }
            Some(_) | None => Vec::new(),
        }
    }

    /// What failed and waits for its next try.
    pub fn failures(&self) -> &FailureMemory {
        &self.failures
    }

    /// Guests we made, or tried to make.
    pub fn making(&self) -> &MakingMemory {
        &self.making
    }

    /// What a hub had done.
    pub fn hub(&self) -> &HubMakings {
        &self.hub
    }

    /// What guests will take of each storage by acts for a hub that are not closed.
    pub fn promised_to_hub(&self) -> BTreeMap<VmId, BTreeMap<StorageName, Bytes>> {
        let share =
            |op: &Operation| Some((op.intent.guest.vmid, op.intent.for_hub.as_ref()?.sizes()));
        self.in_flight().filter_map(share).collect()
    }

    /// A person wants a guest to be tried at once, whoever made it.
    pub fn retry(&mut self, vmid: VmId) {
        self.failures.retry(vmid);
        self.making.retry(vmid);
    }

    /// The operation of that name.
    pub fn get(&self, op: OperationId) -> Option<&Operation> {
        self.operations.get(&op).map(Box::as_ref)
    }

    /// All operations that are not closed, by guest number: recovery looks at each.
    pub fn in_flight(&self) -> impl Iterator<Item = &Operation> {
        self.open.values().filter_map(|op| self.operations.get(op)).map(Box::as_ref)
    }

    /// The tasks that other operations have recorded as theirs, as far as they are remembered.
    pub fn tasks_of_others(&self, this: OperationId) -> BTreeSet<Upid> {
        let others = self.operations.values().filter(|operation| operation.id != this);
        others.filter_map(|operation| operation.task.clone()).collect()
    }

    /// The tasks of all our operations, as far as they are remembered.
    pub fn tasks(&self) -> BTreeSet<Upid> {
        self.operations.values().filter_map(|operation| operation.task.clone()).collect()
    }

    /// The operation that spent a key, if any has.
    pub fn spent_by(&self, key: &IdempotencyKey) -> Option<&Operation> {
        self.keys.get(key).and_then(|op| self.operations.get(op)).map(Box::as_ref)
    }

    /// What a nonce was spent on, if it was: all that judging its statement again must know.
    pub fn spent(&self, nonce: &Nonce) -> SpentNonces {
        let mut spent = SpentNonces::default();
        if let Some(operation) = self.spent_by(&nonce.idempotency_key())
            && let Repeat::AtMostOnce { payload, expires_at, .. } = &operation.intent.repeat
        {
            let op = operation.id;
            let result = OpResult::of(&operation.state);
            let first = SpentOn { payload: *payload, op, result, expires_at: *expires_at };
            spent.spend(*nonce, first).expect("an empty memory takes any nonce");
        }
        spent
    }

    /// All operations that an operator signed, as far as they are remembered, closed ones too.
    pub fn signed(&self) -> impl Iterator<Item = &Operation> {
        self.keys.values().filter_map(|op| self.operations.get(op)).map(Box::as_ref)
    }

    /// What is proved of a guest's origin. While an operation on it is open, nothing is: its effect
    /// on the identity is not known yet.
    pub fn provenance(&self, guest: GuestId) -> Provenance {
        match self.origins.get(&guest.vmid) {
            Some(origin) if origin.guest == guest && !self.open.contains_key(&guest.vmid) => {
                Provenance::of(origin.clone())
            }
            Some(_) | None => Provenance::none(),
        }
    }

    /// All operations that are done at most once and came to nothing after they took something from their guest.
    pub fn indebted(&self) -> impl Iterator<Item = &Operation> {
        let owes = |op: &&Operation| op.owes_protection() || op.owes_start();
        let all = self.operations.values().map(Box::as_ref).filter(owes);
        all.filter(|op| !self.debts_over.contains(&op.id))
    }

    /// Drops what nobody can ask for any more: closed convergent operations. Signed ones stay,
    /// because a key delivered again is answered with the first one's result; and what owes a guest something.
    pub fn forget_closed(&mut self) {
        self.operations.retain(|_, op| {
            op.is_in_flight()
                || match op.intent.repeat {
                    Repeat::Convergent => false,
                    Repeat::OncePerMaking { .. } => op.owes_protection(),
                    Repeat::AtMostOnce { .. } => true,
                }
        });
        self.debts_over.retain(|op| self.operations.contains_key(op));
    }
}

/// Refuses a start whose key is spent, or on a guest where an operation is not closed.
fn check_room(
    open: &Open,
    keys: &KeyMemory,
    op: OperationId,
    intent: &StartedIntent,
) -> Result<(), ReplayError> {
    if let Repeat::AtMostOnce { key, .. } = &intent.repeat
        && let Some(first) = keys.get(key)
    {
        return Err(ReplayError::KeyReused { op, key: key.clone(), first: *first });
    }
    let vmid = intent.guest.vmid;
    match open.get(&vmid) {
        Some(open) => Err(ReplayError::LaneBusy { op, vmid, open: *open }),
        None => Ok(()),
    }
}

/// Keeps in mind what failed, until it is done.
fn trace_failures(failures: &mut FailureMemory, operation: &Operation, event: &OpEvent) {
    let Some(attempt) = operation.intent.attempt else {
        return;
    };
    let vmid = operation.intent.guest.vmid;
    match event {
        OpEvent::Failed { tried: Some(failure), reason, .. } => {
            failures.failed(vmid, attempt, *failure, operation.id, reason);
        }
        OpEvent::Succeeded { .. } | OpEvent::Resolved { .. } => failures.succeeded(vmid, attempt),
        OpEvent::Started(_)
        | OpEvent::RequestStarted { .. }
        | OpEvent::TaskRunning { .. }
        | OpEvent::Failed { tried: None, .. }
        | OpEvent::Unknown { .. } => {}
    }
}

/// Keeps the origins true after an event. Every doubt ends an origin; none can begin one.
fn trace_origin(origins: &mut OriginMemory, operation: &Operation, event: &OpEvent) {
    let guest = operation.intent.guest;
    match event {
        // A new guest under this number means the former one is gone, whatever comes of it.
        OpEvent::Started(intent) if intent.kind.creates_guest() => {
            origins.remove(&guest.vmid);
        }
        // Somebody else changed the guest since our last operation. Taking the identity after
        // ours as the baseline would make a foreign disk ours, so the origin ends here.
        OpEvent::Started(intent) => {
            let changed = |origin: &GuestOrigin| {
                intent.identity.is_some_and(|before| before != origin.baseline)
            };
            if origins.get(&guest.vmid).is_some_and(changed) {
                origins.remove(&guest.vmid);
            }
        }
        OpEvent::Succeeded { identity, .. } => {
            trace_success(origins, operation, *identity);
        }
        // A failure may have changed something: the live identity will tell at the gate.
        // An operator's word closes an operation, but it proves no origin.
        OpEvent::RequestStarted { .. }
        | OpEvent::TaskRunning { .. }
        | OpEvent::Failed { .. }
        | OpEvent::Unknown { .. }
        | OpEvent::Resolved { .. } => {}
    }
}

fn trace_success(origins: &mut OriginMemory, operation: &Operation, after: Option<IdentityHash>) {
    let StartedIntent { guest, kind, id_was_free, identity: before, .. } = operation.intent;
    match kind.row().origin {
        OriginEffect::Begins => {
            if let (true, Some(baseline)) = (id_was_free, after) {
                let origin = GuestOrigin { guest, created_by: operation.id, baseline };
                origins.insert(guest.vmid, origin);
            }
        }
        OriginEffect::Ends => {
            origins.remove(&guest.vmid);
        }
        OriginEffect::Keeps => {
            if let (Some(origin), Some(after)) = (origins.get_mut(&guest.vmid), after)
                && before == Some(origin.baseline)
            {
                origin.baseline = after;
            }
        }
    }
}
