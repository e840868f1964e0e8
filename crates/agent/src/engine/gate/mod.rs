//! The gate: judges an order inside its lane, on a fresh read, directly before it is sent (invariant 2).
//!
//! Called by `lane` alone. [`Cleared`] is the only thing the client's mutating calls accept, and only this file and its
//! parts can make one: a benign action takes the same way as all others.
//!
//! ```text
//!   planned    read the guest ─> plan it again: the same act, not held ─> loose volumes, lost ones? ─> Cleared
//!              (of a guest that a hub declares: what of root's limits is used by now, create_bounds.rs)
//!              (of a guest that shall be removed unsigned: what proves that, removals.rs)
//!   approved   read the guest ─> identity, signature, item, budget (approved.rs) ───────────────────> Cleared
//!   asked      read the guest ─> not locked, destroys nothing, there is room (asked.rs) ─> Cleared
//!   owed       read the guest ─> is it the one we took it from? (owed.rs) ───────────────> Cleared
//! ```

pub(super) mod act_rights;
pub(super) mod approved;
pub(super) mod asked;
pub(super) mod cleared;
pub(super) mod create_bounds;
pub(super) mod guest_look;
pub(super) mod host_modes;
pub(super) mod identity_proof;
pub(super) mod make;
pub(super) mod owed;
pub(super) mod removals;
pub(super) mod shared_limits;
pub(super) mod surroundings;
pub(super) mod volumes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::actual;
use evenkeel_core::actual::identity::identity;
use evenkeel_core::desired::{self, WantedState};
use evenkeel_core::gate::named_volumes::kept_volumes;
use evenkeel_core::gate::new_guest::SourceContent;
use evenkeel_core::gate::{FreshGuest, GateVerdict, NodeSite, judge};
use evenkeel_core::model::id::{GuestId, GuestKind, OperationId};
use evenkeel_core::model::reason::Refusal;
use evenkeel_core::operate::back_off::AttemptHash;
use evenkeel_core::operate::lane::{Job, Sharing, SourceLane};
use evenkeel_core::operate::operation::{Repeat, VolumeId};
use evenkeel_core::operate::pve_call::PveCall;
use evenkeel_core::plan::{Action, PlanContext, Step};

use crate::engine::EngineContext;
use crate::engine::approvals::hub;
use crate::engine::error::Fatal;
use crate::engine::gate::act_rights::check_rights;
use crate::engine::gate::create_bounds::LaneBounds;
use crate::engine::gate::guest_look::{GuestLook, LOOK_SERVES};
use crate::engine::gate::identity_proof::end_is_provable;
use crate::engine::gate::removals::RemovalProof;
use crate::engine::gate::volumes::{check_attached, check_detached, volumes_before};
use crate::engine::memory::{backups, moves};
use crate::observe::observe_guest;
use crate::preview::lane_context;
use crate::pve::error::ErrorClass;
use approved::{ApprovedOrder, JudgingLocks};
use asked::AskedOrder;
use cleared::{Cleared, ClearedPurpose, allowed};
use make::CalledFree;
use owed::OwedOrder;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

/// What a lane is asked to do.
#[derive(Debug)]
pub(super) enum Order {
    /// What the plan says.
    Planned(Box<PlannedOrder>),
    /// What an operator signed.
    Approved(Box<ApprovedOrder>),
    /// What somebody asks for and needs no signature.
    Asked(Box<AskedOrder>),
    /// What an operation took from its guest and could not use.
    Owed(Box<OwedOrder>),
}

/// One planned action with what is needed to judge it again.
#[derive(Debug, Clone)]
pub(super) struct PlannedOrder {
    pub(super) action: Action,
    pub(super) desired: Arc<desired::DeclaredGuest>,
    pub(super) site: NodeSite,
}

impl Order {
    pub(super) fn guest(&self) -> GuestId {
        match self {
            Self::Planned(order) => order.action.guest,
            Self::Approved(order) => order.item.guest,
            Self::Asked(order) => order.guest,
            Self::Owed(owed) => owed.operation.intent.guest,
        }
    }

    pub(super) fn kind(&self) -> ActionKind {
        match self {
            Self::Planned(order) => order.action.step.kind(),
            Self::Approved(order) => order.item.op,
            Self::Asked(order) => order.op,
            Self::Owed(owed) => owed.kind(),
        }
    }

    /// The lanes it needs, and the storage it fills.
    pub(super) fn job(&self, op: OperationId) -> Job {
        let job = Job::on(self.guest().vmid, op);
        let Self::Planned(order) = self else {
            return job;
        };
        let Step::Make(new) = &order.action.step else {
            return job;
        };
        // Proxmox locks a container while it is copied; a machine can be copied several times at once.
        let sharing = match new.guest.kind {
            GuestKind::Lxc => Sharing::Exclusive,
            GuestKind::Qemu => Sharing::Shared,
        };
        let source = new.clone_source().map(|vmid| SourceLane { vmid, sharing });
        let storage = new.storages().into_iter().find_map(|storage| storage.parse().ok());
        Job { source, storage, ..job }
    }

    /// Why it is done, for people.
    pub(super) fn reasons(&self) -> Vec<String> {
        match self {
            Self::Planned(order) => order.action.reasons(),
            Self::Approved(order) => vec![format!("signed: {}", order.statement.reason)],
            Self::Asked(order) => vec![order.reason()],
            Self::Owed(owed) => vec![owed.reason()],
        }
    }
}

/// An order that may be sent now.
pub(super) struct Clearance<'o> {
    pub(super) cleared: Cleared,
    /// Of an approved order: the signers it was judged by, and nobody else is judged meanwhile.
    pub(super) locks: Option<JudgingLocks<'o>>,
    /// Of an act that takes room for a hub: nobody else counts meanwhile.
    pub(super) counting: Option<OwnedMutexGuard<()>>,
}

/// Why an order does not run.
#[derive(Debug)]
pub(super) enum NotCleared {
    /// There is nothing to do.
    Unneeded,
    /// It is no longer what was planned.
    Stale(String),
    /// It may not run now.
    Held(Refusal),
    /// It cannot be judged or done.
    Failed(String),
    /// The journal broke: everything ends.
    Fatal(Fatal),
}

impl From<Fatal> for NotCleared {
    fn from(fatal: Fatal) -> Self {
        Self::Fatal(fatal)
    }
}

/// Judges an order now. `look` is what this lane has read of the guest directly before, if it has: see `guest_look`.
pub(super) async fn clear<'o>(
    context: &EngineContext,
    order: &'o Order,
    look: Option<GuestLook>,
) -> Result<Clearance<'o>, NotCleared> {
    let without_locks = |cleared| Clearance { cleared, locks: None, counting: None };
    match order {
        Order::Planned(order) => clear_planned(context, order, look).await,
        Order::Approved(order) => approved::clear(context, order).await,
        Order::Asked(order) => asked::clear(context, order).await.map(without_locks),
        Order::Owed(owing) => owed::clear(context, owing).await.map(without_locks),
    }
}

async fn clear_planned<'o>(
    context: &EngineContext,
    order: &PlannedOrder,
    look: Option<GuestLook>,
) -> Result<Clearance<'o>, NotCleared> {
    let guest = order.action.guest;
    let found = fresh_guest(context, order, look).await?;
    let read = Instant::now();
    let (found, free) = match found {
        FoundUnder::Guest(found) => (Some(*found), None),
        FoundUnder::Nobody(free) => (None, free),
    };
    let fresh = found.as_ref().map_or(FreshGuest::NotThere, FreshGuest::Here);
    let known = context.journal.read(move |state, _| lane_context(state, guest.vmid)).await;
    let known = known.map_err(Fatal::Journal)?;
    let never_ran = known.making.never_ran(guest);
    let proof = removal_proof(context, order, found.as_ref()).await?;
    let verdict = match (&proof, &found) {
        (Some(proof), Some(found)) => Some(proof.judge(context, found, None).await),
        (None, _) | (_, None) => None,
    };
    let LaneBounds { create, source, share, counting } =
        create_bounds::in_lane(context, order, found.as_ref()).await?;
    let action = &order.action;
    let desired = &order.desired;
    let site = &order.site;
    let removals = verdict.map(|verdict| (guest.vmid, verdict)).into_iter().collect();
    let sources = source.clone().map(|source| (guest.vmid, source)).into_iter().collect();
    let known = PlanContext { removals, create, sources, ..known };
    let action = still_planned(judge(action, desired, fresh, site, &known))?;
    let call = PveCall::planned(&action.step).map_err(NotCleared::Held)?;
    let cleared = if let Some(fresh) = found {
        if action.step == Step::Start && never_ran {
            make::check_raw_lines(&context.client, &order.desired)
                .await
                .map_err(NotCleared::Held)?;
        }
        clear_change(context, order, (action, call), proof, (&fresh, read)).await?
    } else {
        // Whoever waited for his turn to count asks for the number again.
        let free = free.map(|free| CalledFree { is_recent: counting.is_none(), ..free });
        clear_making(context, order, action, call, free, source.as_ref()).await?
    };
    Ok(Clearance { cleared: Cleared { for_hub: share, ..cleared }, locks: None, counting })
}

/// A guest that is there may be changed once its volumes are looked at and remembered, if it still is as it was `read`.
async fn clear_change(
    context: &EngineContext,
    order: &PlannedOrder,
    (action, call): (Action, PveCall),
    proof: Option<RemovalProof>,
    (fresh, read): (&actual::Guest, Instant),
) -> Result<Cleared, NotCleared> {
    let op = action.step.kind();
    let params = action.step.params();
    check_detached(&context.client, fresh, op, &params).await?;
    let volumes_named = kept_volumes(op, fresh, &params);
    let volumes_before = remember_volumes(context, fresh, &action).await?;
    let repeat = proof
        .as_ref()
        .map_or(Repeat::Convergent, |proof| Repeat::OncePerMaking { making: proof.making() });
    let mark = proof.as_ref().map(|proof| proof.mark().clone());
    check_still_so(context, fresh, read).await?;
    // Last of all: what is spent stays spent.
    spend(context, order, &action).await?;
    Ok(Cleared {
        guest: action.guest,
        kind: op,
        params,
        reasons: action.reasons(),
        decision: allowed(&action.class.to_string(), &action.why),
        repeat,
        identity_after: call.identity_after(fresh),
        task_mark: mark.filter(|_| call.unprotects()),
        purpose: proof
            .map_or(ClearedPurpose::Ordinary, |proof| ClearedPurpose::Removal(Box::new(proof))),
        attempt: Some(AttemptHash::of(&action.step, &order.desired, Some(fresh))),
        call,
        identity: identity(fresh).ok(),
        before: before(&action, fresh),
        volumes_before,
        volumes_named,
        for_hub: None,
    })
}

/// The action as it is planned now, if it may still run.
fn still_planned(verdict: GateVerdict) -> Result<Action, NotCleared> {
    match verdict {
        GateVerdict::Clear(action) => Ok(*action),
        GateVerdict::Unneeded => Err(NotCleared::Unneeded),
        GateVerdict::Stale(why) => Err(NotCleared::Stale(why)),
        GateVerdict::Held(held) => {
            Err(NotCleared::Held(Refusal::new(held.reason(), held.to_string())))
        }
        GateVerdict::Refused(problem) => Err(NotCleared::Failed(problem.to_string())),
    }
}

/// Writes down what must be remembered of volumes that leave their slot, and lists the volumes there are before one is
/// allocated.
async fn remember_volumes(
    context: &EngineContext,
    fresh: &actual::Guest,
    action: &Action,
) -> Result<Option<BTreeSet<VolumeId>>, NotCleared> {
    match &action.step {
        Step::SetConfig(write) => {
            let set = write.set.iter().map(|(key, text)| (*key, Some(text.as_str())));
            let left = set.chain(write.delete.iter().map(|key| (*key, None))).collect();
            backups::remember(context, fresh, &left).await?;
            check_attached(&context.client, fresh, action).await?;
            Ok(volumes_before(&context.client, fresh, action).await?)
        }
        Step::MoveVolume { disk, volume, .. } => {
            backups::remember(context, fresh, &[(*disk, None)].into()).await?;
            moves::remember(context, fresh.id.vmid, volume, &disk.to_string()).await?;
            Ok(volumes_before(&context.client, fresh, action).await?)
        }
        Step::Resize { .. }
        | Step::Start
        | Step::Shutdown { .. }
        | Step::Stop
        | Step::Make(_)
        | Step::Destroy(_)
        | Step::Remove(_)
        | Step::Template => Ok(None),
    }
}

/// What a number was found to belong to.
enum FoundUnder {
    Guest(Box<actual::Guest>),
    /// No guest of this node; with what was read if the number was called free.
    Nobody(Option<CalledFree>),
}

/// The guest as it is now. Of one that shall be made its number is asked for; a guest that has it is read.
async fn fresh_guest(
    context: &EngineContext,
    order: &PlannedOrder,
    look: Option<GuestLook>,
) -> Result<FoundUnder, NotCleared> {
    let guest = order.action.guest;
    match &order.action.step {
        Step::Make(_) => {
            if let Some(free) = make::called_free(context, guest.vmid).await {
                return Ok(FoundUnder::Nobody(Some(free)));
            }
        }
        Step::SetConfig(_)
        | Step::Resize { .. }
        | Step::MoveVolume { .. }
        | Step::Start
        | Step::Shutdown { .. }
        | Step::Stop => {
            if let Some(look) = look.filter(|look| look.guest.id == guest) {
                return Ok(FoundUnder::Guest(Box::new(look.guest)));
            }
        }
        // What ends a guest, or makes it another thing, is never judged by what an act before was proved by.
        Step::Destroy(_) | Step::Remove(_) | Step::Template => {}
    }
    match observe_guest(&context.client, guest).await {
        Ok(found) => Ok(FoundUnder::Guest(Box::new(found))),
        Err(error) if error.class() == Some(&ErrorClass::GuestNotFound) => {
            Ok(FoundUnder::Nobody(None))
        }
        Err(error) => Err(NotCleared::Failed(format!("the guest could not be read: {error}"))),
    }
}

/// Reads the guest again if something was waited for since it was read: a storage has seconds to answer, and others ask it
/// too. It must be as it was.
async fn check_still_so(
    context: &EngineContext,
    fresh: &actual::Guest,
    read: Instant,
) -> Result<(), NotCleared> {
    if read.elapsed() <= LOOK_SERVES {
        return Ok(());
    }
    match observe_guest(&context.client, fresh.id).await {
        Ok(now) if now.is_same_state(fresh) => Ok(()),
        Ok(_) => Err(NotCleared::Stale("the guest changed while its storages were asked".into())),
        Err(error) => Err(NotCleared::Failed(format!("the guest could not be read: {error}"))),
    }
}

/// A guest that is not there may be made if its number is proved free, and nothing of the node speaks against it.
async fn clear_making(
    context: &EngineContext,
    order: &PlannedOrder,
    action: Action,
    call: PveCall,
    free: Option<CalledFree>,
    content: Option<&SourceContent>,
) -> Result<Cleared, NotCleared> {
    let Step::Make(new) = &action.step else {
        return Err(NotCleared::Stale("the guest is no longer on this node".to_owned()));
    };
    let password = context.first_password(new).map_err(NotCleared::Held)?;
    let brought = make::brought(&order.desired, content);
    let called_free = free.as_ref().is_some_and(|free| free.is_recent);
    let marks = make::may_make(context, new, called_free, &brought).await;
    let marks = marks.map_err(NotCleared::Held)?;
    let task_mark = free.and_then(|free| free.task_mark);
    let scratch = is_scratch(&order.desired) && context.limits.scratch_vmids.has(new.guest.vmid);
    spend(context, order, &action).await?;
    context.limits.promise(new.guest.vmid, new.takes(&brought));
    Ok(Cleared {
        guest: action.guest,
        kind: action.step.kind(),
        params: action.step.params(),
        reasons: action.reasons(),
        decision: allowed(&action.class.to_string(), &action.why),
        repeat: Repeat::Convergent,
        identity_after: None,
        task_mark,
        purpose: ClearedPurpose::Making { marks, scratch, password },
        attempt: Some(AttemptHash::of(&action.step, &order.desired, None)),
        call,
        identity: None,
        before: BTreeMap::new(),
        volumes_before: None,
        volumes_named: BTreeSet::new(),
        for_hub: None,
    })
}

/// What our journal knows of a guest that is to be removed unsigned. Its end must be provable too.
async fn removal_proof(
    context: &EngineContext,
    order: &PlannedOrder,
    found: Option<&actual::Guest>,
) -> Result<Option<RemovalProof>, NotCleared> {
    let (Step::Remove(_), Some(found)) = (&order.action.step, found) else {
        return Ok(None);
    };
    // It is sent once for each making, so a right that is missing must not be found by sending it.
    let params = order.action.step.params();
    let checked = check_rights(&context.client, ActionKind::Destroy, found.id, &params).await;
    checked.map_err(NotCleared::Held)?;
    end_is_provable(context, ActionKind::Destroy).await.map_err(NotCleared::Held)?;
    Ok(RemovalProof::of(context, &order.desired, found).await?)
}

fn is_scratch(declared: &desired::DeclaredGuest) -> bool {
    match &declared.state {
        WantedState::Present(spec) => spec.scratch,
        WantedState::Bin(_) | WantedState::Absent { .. } => false,
    }
}

/// Takes the act from the budget of whoever declared it, if that has one.
async fn spend(
    context: &EngineContext,
    order: &PlannedOrder,
    action: &Action,
) -> Result<(), NotCleared> {
    match hub::spend_disruptive(context, order.desired.by, action.class).await {
        Ok(()) => Ok(()),
        Err(error) => Err(NotCleared::Held(error.refusal()?)),
    }
}

/// The old text of every key the action writes.
fn before(action: &Action, guest: &actual::Guest) -> BTreeMap<String, String> {
    let Ok(config) = &guest.config else {
        return BTreeMap::new();
    };
    let old = |key| Some(config.field(key)?.current.as_ref()?.text.to_string());
    match &action.step {
        Step::SetConfig(_) => {
            let keys = action.changes.iter().map(|change| change.key);
            keys.filter_map(|key| Some((key.to_string(), old(key)?))).collect()
        }
        Step::Resize { disk, .. } | Step::MoveVolume { disk, .. } => {
            old(*disk).map(|text| (disk.to_string(), text)).into_iter().collect()
        }
        Step::Start
        | Step::Shutdown { .. }
        | Step::Stop
        | Step::Make(_)
        | Step::Destroy(_)
        | Step::Remove(_)
        | Step::Template => [("run".to_owned(), guest.power.to_string())].into(),
    }
}
