//! What a pass would do: the node read and planned. One way for `plan`, `apply` and the agent's own passes.
//!
//! ```text
//!   observe ─> plan, knowing what is frozen, busy and remembered ─> name the tasks behind locks ─> Preview
//!                 └── it would attach a volume: read the other guests too, and plan again
//! ```
//!
//! The engine knows its lanes; everybody else reads what the journal says of them. It only reads.

use std::collections::BTreeSet;
use std::path::Path;

use evenkeel_core::actual::Snapshot;
use evenkeel_core::desired::selection::PassScope;
use evenkeel_core::desired::{DeclaredGuest, Desired, GuestSource, ReconcileMode, WantedState};
use evenkeel_core::gate::allocation::attaches;
use evenkeel_core::model::id::VmId;
use evenkeel_core::operate::back_off::FailureMemory;
use evenkeel_core::operate::operation::{Operation, UnixSeconds};
use evenkeel_core::plan::{Action, EarlyComparison, GuestBusy, Plan, PlanContext};

use crate::cluster_files::ClusterFiles;
use crate::engine::{
    Findings, HubKnown, LookWishes, PERSONS_PATIENCE, bins_in, early_bounds, memories_in,
    node_time, waiting,
};
use crate::journal::verify::newest;
use crate::journal::{JournalState, ReadOnlyDirectory, moment};
use crate::lock_owners::name_lock_owners;
use crate::observe::remembering::{NodeMemory, PassReading, SeenNode, observe_pass};
use crate::observe::{CONCURRENCY, observe_chosen, read_others};
use crate::policy::Policy;
use crate::pve::Client;
use crate::pve::error::Error;
use crate::state_dir::StateDir;

/// What a pass would do, as far as it is known before it does anything.
#[derive(Debug)]
pub struct Preview {
    /// The node as it was read.
    pub actual: Snapshot,
    /// What was planned from it.
    pub plan: Plan,
    /// Which guests that is about.
    pub scope: PassScope,
}

/// What a pass would do now, asked by somebody who does not own the lanes.
pub async fn preview(
    client: &Client,
    desired: &Desired,
    scope: PassScope,
    state: &StateDir,
    policy: &Policy,
) -> Result<Preview, Error> {
    let desired = scope.part_of(desired);
    let (mut known, journal) = outside_context(state, policy.mode);
    let also = guests_asked_about(&journal);
    // Nothing is remembered from one command to the next.
    let looked = &mut ReadInputs { memory: &mut NodeMemory::default(), files: None, also };
    let SeenNode { mut actual, compared } =
        observe_declared(client, &desired, &scope, looked).await?;
    let create = policy.create.as_ref();
    let made = HubKnown::of(journal.ledger());
    known.create = early_bounds(create, &made, &desired, &actual, node_time(client));
    look_beside(client, policy, &desired, &actual, &journal, &mut known).await;
    let mut plan = plan_knowing_others(client, &compared, &mut actual, &known).await?;
    let (hasty, _) = client.in_haste();
    let naming = name_lock_owners(&hasty, &mut plan, &actual);
    let _ = tokio::time::timeout(PERSONS_PATIENCE, naming).await;
    Ok(Preview { actual, plan, scope })
}

/// What is beside guests, as far as a person waits for it.
async fn look_beside(
    client: &Client,
    policy: &Policy,
    desired: &Desired,
    actual: &Snapshot,
    journal: &JournalState,
    known: &mut PlanContext,
) {
    let create = policy.create.as_ref();
    let scratch_vmids = &policy.scratch_vmids;
    let wishes = LookWishes { client, policy: create, scratch_vmids, desired, actual };
    let mut findings = Findings::default();
    findings.wish(&wishes, known, |guest| journal.ledger().provenance(guest));
    findings.wait(PERSONS_PATIENCE).await;
    findings.tell(known);
}

/// What a reading may rest on, and whom else it is about.
pub(crate) struct ReadInputs<'l> {
    /// What was kept of earlier readings.
    pub(crate) memory: &'l mut NodeMemory,
    /// The node's cluster file system, if it can be read.
    pub(crate) files: Option<&'l dyn ClusterFiles>,
    /// Guests that nobody declares and that something else is about.
    pub(crate) also: BTreeSet<VmId>,
}

/// Reads the node, and asks for every guest that is declared. Of chosen guests only those are read.
pub(crate) async fn observe_declared<'d>(
    client: &Client,
    desired: &'d Desired,
    scope: &PassScope,
    looked: &mut ReadInputs<'_>,
) -> Result<SeenNode<'d>, Error> {
    match scope {
        PassScope::Whole => {
            let sources = desired.guests.values().filter_map(clone_source);
            let also = looked.also.iter().copied().chain(sources).collect();
            let files = looked.files;
            let reading = PassReading { client, files, also, concurrency: CONCURRENCY };
            observe_pass(&reading, desired, looked.memory).await
        }
        PassScope::Chosen(_) => {
            let site = looked.memory.site();
            let actual = observe_chosen(client, desired, site, CONCURRENCY).await?;
            Ok(SeenNode { actual, compared: EarlyComparison::of(desired) })
        }
    }
}

/// The guest that another is made from.
fn clone_source(guest: &DeclaredGuest) -> Option<VmId> {
    match &guest.state {
        WantedState::Present(spec) => match &spec.source {
            Some(GuestSource::Clone(from)) => Some(from.guest),
            Some(
                GuestSource::Empty
                | GuestSource::Template(_)
                | GuestSource::Image { .. }
                | GuestSource::Backup { .. },
            )
            | None => None,
        },
        WantedState::Bin(_) | WantedState::Absent { .. } => None,
    }
}

/// Guests that the journal has something to say of whether anybody declares them or not: those that something waits for a
/// signature on, and those that a hub got room for.
pub(crate) fn guests_asked_about(journal: &JournalState) -> BTreeSet<VmId> {
    let items = waiting(journal).into_values().map(|(item, _)| item.guest.vmid);
    items.chain(journal.ledger().hub().guests().iter().copied()).collect()
}

/// Plans. If that would attach a volume, the other guests of the node are read first: one of them may have it.
pub(crate) async fn plan_knowing_others(
    client: &Client,
    compared: &EarlyComparison<'_>,
    actual: &mut Snapshot,
    known: &PlanContext,
) -> Result<Plan, Error> {
    let planned = compared.plan(actual, known);
    let attaches_some = |action: &Action| {
        let guest = actual.guests.get(&action.guest.vmid);
        guest.is_some_and(|guest| !attaches(guest, &action.step.params()).is_empty())
    };
    if !planned.actions().any(attaches_some) {
        return Ok(planned);
    }
    read_others(client, actual, CONCURRENCY).await?;
    Ok(compared.plan(actual, known))
}

/// What the state directory tells. Who may not read it plans without: whoever carries the plan out knows better, and
/// refuses what differs.
fn outside_context(state: &StateDir, host_mode: ReconcileMode) -> (PlanContext, JournalState) {
    let journal = journal_state(&state.journal()).unwrap_or_default();
    let in_flight = journal.ledger().in_flight();
    let known = PlanContext {
        frozen: state.freeze_file().symlink_metadata().is_ok(),
        host_mode,
        busy: in_flight.map(|op| (op.intent.guest.vmid, busy_with(op))).collect(),
        // A person asks: `apply` tries everything.
        failures: FailureMemory::default(),
        ..journal_context(&journal)
    };
    (known, journal)
}

/// What a journal tells a plan.
pub(crate) fn journal_context(journal: &JournalState) -> PlanContext {
    PlanContext {
        memories: memories_in(journal),
        failures: journal.ledger().failures().clone(),
        making: journal.ledger().making().clone(),
        bins: bins_in(journal),
        ..PlanContext::default()
    }
}

/// What a journal tells the gate of one guest in its lane, which tries what it is given.
pub(crate) fn lane_context(journal: &JournalState, vmid: VmId) -> PlanContext {
    let mut memories = memories_in(journal);
    memories.retain(|of, _| *of == vmid);
    let making = journal.ledger().making().of(vmid);
    PlanContext { memories, making, ..PlanContext::default() }
}

fn journal_state(directory: &Path) -> Option<JournalState> {
    let disk = ReadOnlyDirectory::open(directory).ok()?;
    newest(&disk).ok().flatten().map(|(_, state)| state)
}

/// What a guest is busy with, by the journal.
fn busy_with(operation: &Operation) -> GuestBusy {
    let (sent_at, doubt) = operation.sent_and_doubt();
    let unknown = doubt.map(str::to_owned);
    GuestBusy { op: operation.id, since: shown(sent_at), unknown, left: None }
}

/// A moment as people read it.
pub(crate) fn shown(at: UnixSeconds) -> String {
    moment(at).map_or_else(String::new, |at| at.to_string())
}
