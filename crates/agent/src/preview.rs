//! What a pass would do: the node read and planned. One way for `plan`, `apply` and the agent's own passes.
//!
//! ```text
//!   observe ─> plan, knowing what is frozen, busy and remembered ─> name the tasks behind locks ─> Preview
//! ```
//!
//! The engine knows its lanes; everybody else reads what the journal says of them. It only reads.

use std::path::Path;

use evenkeel_core::actual::Snapshot;
use evenkeel_core::desired::{Desired, ReconcileMode};
use evenkeel_core::operation::{Operation, UnixSeconds};
use evenkeel_core::plan::{GuestBusy, Plan, PlanContext, plan};
use evenkeel_core::selection::PassScope;

use crate::engine::{
    HubKnown, RemovalReader, bins_in, early_bounds, memories_in, node_time, source_contents,
};
use crate::journal::verify::newest;
use crate::journal::{JournalState, ReadOnlyDirectory, moment};
use crate::lock_owners::name_lock_owners;
use crate::observe::{CONCURRENCY, observe, observe_chosen};
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
    let actual = observe_declared(client, &desired, &scope).await?;
    let (mut known, journal) = outside_context(state, policy.mode);
    let reader = RemovalReader { client, scratch_vmids: &policy.scratch_vmids };
    let provenance = |guest| journal.ledger().provenance(guest);
    known.removals = reader.early(&desired, &actual, &known, provenance).await;
    let create = policy.create.as_ref();
    let made = HubKnown::of(journal.ledger());
    known.create = early_bounds(create, &made, &desired, &actual, node_time(client));
    known.sources = source_contents(client, create, &desired, &actual).await;
    let mut plan = plan(&desired, &actual, &known);
    name_lock_owners(client, &mut plan, &actual).await;
    Ok(Preview { actual, plan, scope })
}

/// Reads the node, and asks for every guest that is declared. Of chosen guests only those are read.
pub(crate) async fn observe_declared(
    client: &Client,
    desired: &Desired,
    scope: &PassScope,
) -> Result<Snapshot, Error> {
    match scope {
        PassScope::Whole => {
            observe(client, &desired.guests.keys().copied().collect(), CONCURRENCY).await
        }
        PassScope::Chosen(_) => observe_chosen(client, desired, CONCURRENCY).await,
    }
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
        memories: memories_in(&journal),
        making: journal.ledger().making().clone(),
        bins: bins_in(&journal),
        // A person asks: `apply` tries everything.
        ..PlanContext::default()
    };
    (known, journal)
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
