//! What the loop knows, where everybody who asks can read it while the loop is at work.
//!
//! The loop writes it; the socket and the metrics read it. Nothing decides by it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use evenkeel_core::desired::Desired;
use evenkeel_core::desired::selection::{
    Candidate, DECLARED, PassScope, Selection, SelectionError,
};
use evenkeel_core::model::id::GuestId;
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_core::plan::{GuestPlan, Plan};
use jiff::Timestamp;

use super::approvals::pending_views;
use super::metrics::ScrapedState;
use super::protocol::{PendingView, Refused, RefusedCode};
use super::socket::stopping;
use super::status::{
    AgentStatus, FORMAT_VERSION, GuestStatus, HeldStatus, HostStatus, JournalStatus, PassStatus,
    SilentStorage, operations, pending, warnings,
};
use crate::engine::{OpOutcome, PassId, Report, waiting_by_op};
use crate::freeze::frozen_by;
use crate::hub_link::picture::ReportFacts;
use crate::journal::{AppendError, JournalHandle, JournalState};
use crate::pve::storage_watch::StorageWatch;
use crate::state_dir::StateDir;

/// What is checked of the journal when it is opened.
const VERIFIED: &str = "the newest segment, when the agent started";

/// How the agent stands, for everybody to read.
#[derive(Debug, Clone)]
pub(super) struct SharedStatus {
    agent: Arc<Mutex<AgentStatus>>,
    /// The declared guests, to choose among them.
    candidates: Arc<Mutex<Vec<Candidate>>>,
    /// What only a hub is told.
    report_facts: Arc<Mutex<ReportFacts>>,
    state: StateDir,
    journal: JournalHandle,
    /// Which storages answer, as the client knows it at every moment.
    storages: Arc<StorageWatch>,
}

impl SharedStatus {
    pub(super) fn new(agent: AgentStatus, state: StateDir, journal: JournalHandle) -> Self {
        let agent = Arc::new(Mutex::new(agent));
        let candidates = Arc::default();
        let report_facts = Arc::default();
        let storages = Arc::default();
        Self { agent, candidates, report_facts, state, journal, storages }
    }

    /// Where the client remembers which storages answer.
    pub(super) fn storages(&self) -> Arc<StorageWatch> {
        Arc::clone(&self.storages)
    }

    /// Everything that waits for a signature, oldest first.
    pub(super) async fn pending(&self) -> Result<Vec<PendingView>, Refused> {
        let read = self.journal.read(|state, _| pending_views(state)).await;
        read.map_err(|error| stopping(&error.to_string()))
    }

    /// Other guests are declared from now on.
    pub(super) fn declared(&self, desired: Option<&Desired>) {
        let guests = desired.iter().flat_map(|desired| desired.guests.values());
        *self.candidates() = guests.map(Candidate::declared).collect();
    }

    /// The declared guests.
    pub(super) fn declared_guests(&self) -> Vec<Candidate> {
        self.candidates().clone()
    }

    /// Since when the host is frozen, if it is.
    pub(super) fn frozen_since(&self) -> Option<String> {
        let since = || frozen_by(&self.state).map(|frozen| frozen.at);
        self.state.is_frozen().then(|| since().unwrap_or_default())
    }

    /// What only a hub is told.
    pub(super) fn report_facts(&self) -> MutexGuard<'_, ReportFacts> {
        self.report_facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn candidates(&self) -> MutexGuard<'_, Vec<Candidate>> {
        self.candidates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The guests a selection means; none if all of them.
    fn choose(&self, selection: &Selection) -> Result<Option<Vec<Candidate>>, SelectionError> {
        if selection.is_everything() {
            return Ok(None);
        }
        let candidates = self.candidates();
        let chosen = selection.choose(&candidates, DECLARED)?;
        Ok(Some(
            candidates.iter().filter(|guest| chosen.contains(&guest.id.vmid)).cloned().collect(),
        ))
    }

    /// What the agent wrote last.
    pub(super) fn agent(&self) -> MutexGuard<'_, AgentStatus> {
        self.agent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything, with the journal as it is now.
    pub(super) async fn status(&self) -> Result<HostStatus, AppendError> {
        let told = |state: &JournalState, head| {
            ((operations(state), pending(state), warnings(state)), head)
        };
        let ((operations, pending, warnings), head) = self.journal.read(told).await?;
        let silent_storages = SilentStorage::all(&self.storages);
        let agent = AgentStatus { silent_storages, ..self.agent().clone() };
        Ok(HostStatus {
            format_version: FORMAT_VERSION,
            agent: Some(agent),
            frozen: self.state.is_frozen(),
            freeze: frozen_by(&self.state),
            journal: JournalStatus::at(Some(&head), VERIFIED),
            operations,
            pending,
            warnings,
            chosen: None,
        })
    }

    /// The same, of chosen guests only.
    pub(super) async fn status_of(&self, selection: &Selection) -> Result<HostStatus, Refused> {
        let unknown = |error: SelectionError| {
            Refused::new(RefusedCode::NotFound, error.to_string(), error.hint())
        };
        let chosen = self.choose(selection).map_err(unknown)?;
        let status = self.status().await.map_err(|error| stopping(&error.to_string()))?;
        Ok(match chosen {
            None => status,
            Some(chosen) => status.of_chosen(chosen),
        })
    }

    /// What the metrics look up when they are asked for.
    pub(super) async fn scraped(&self) -> ScrapedState {
        let read = self.journal.read(|state, head| (head.seq.0, waiting_by_op(state))).await;
        let (journal_seq, pending) = read.unwrap_or_default();
        ScrapedState { journal_seq, frozen: self.state.is_frozen(), pending }
    }

    /// A pass read the node and handed out its actions.
    pub(super) fn planned(
        &self,
        id: PassId,
        plan: &Plan,
        scope: &PassScope,
        at: Timestamp,
        took_ms: u64,
    ) {
        let mut agent = self.agent();
        agent.node_trouble = None;
        // What a pass about chosen guests did not look at is as it was.
        let known = agent.in_sync + agent.guests.len();
        agent.guests.retain(|guest| !scope.has(guest.guest.vmid));
        agent.guests.extend(plan.guests.iter().map(guest_status));
        agent.guests.sort_by_key(|guest| guest.guest);
        agent.in_sync = match scope {
            PassScope::Whole => plan.in_sync,
            PassScope::Chosen(_) => {
                known.max(plan.in_sync + plan.guests.len()) - agent.guests.len()
            }
        };
        agent.last_pass = Some(PassStatus {
            id: id.to_string(),
            at,
            took_ms,
            ended: false,
            planned: plan.actions().count(),
            succeeded: 0,
            failed: 0,
            held: plan.actions().filter(|action| action.held.is_some()).count(),
            skipped: 0,
            errors: plan.guests.iter().map(|guest| guest.problems.len()).sum(),
        });
    }

    /// All actions of a pass have ended. One that is not the last tells nothing new of its guests.
    pub(super) fn ended(&self, id: PassId, report: &Report) {
        let mut agent = self.agent();
        let Some(pass) = agent.last_pass.as_mut().filter(|pass| pass.id == id.to_string()) else {
            return;
        };
        pass.ended = true;
        (pass.succeeded, pass.failed) = (report.succeeded, report.failed);
        (pass.held, pass.skipped) = (report.held, report.skipped);
        for hold in report.holds.iter().filter(|hold| hold.reason != ReasonCode::PendingSignature) {
            let guest = agent.guests.iter_mut().find(|guest| guest.guest == hold.guest);
            let unsigned = guest.and_then(|guest| {
                guest.held.iter_mut().find(|held| held.code == ReasonCode::PendingSignature)
            });
            // It could not even be put before somebody who might sign it.
            if let Some(held) = unsigned {
                (held.code, held.why) = (hold.reason, hold.why.clone());
            }
        }
        let mut ends: BTreeMap<GuestId, Vec<&OpOutcome>> = BTreeMap::new();
        for op in &report.ops {
            ends.entry(op.guest).or_default().push(&op.end);
        }
        for guest in &mut agent.guests {
            settle(guest, ends.get(&guest.guest).map_or(&[], Vec::as_slice));
        }
        let before = agent.guests.len();
        agent.guests.retain(|guest| !is_in_sync(guest));
        agent.in_sync += before - agent.guests.len();
    }
}

fn guest_status(planned: &GuestPlan) -> GuestStatus {
    let held = planned.actions.iter().filter_map(|action| {
        let held = action.held.as_ref()?;
        let what = action.reasons().join(", ");
        Some(HeldStatus { code: held.reason(), why: format!("{what}: {held}") })
    });
    let busy =
        planned.busy.as_ref().map(|busy| HeldStatus { code: busy.reason(), why: busy.to_string() });
    let runs = planned.actions.iter().filter(|action| action.held.is_none());
    GuestStatus {
        guest: planned.guest,
        drift: runs.flat_map(evenkeel_core::plan::Action::reasons).collect(),
        held: held.chain(busy).collect(),
        after_restart: planned.waiting.iter().map(ToString::to_string).collect(),
        problems: planned.problems.iter().map(ToString::to_string).collect(),
    }
}

/// What became of a guest's actions: they were done, or why not.
fn settle(guest: &mut GuestStatus, ends: &[&OpOutcome]) {
    let all_done =
        ends.iter().all(|end| matches!(end, OpOutcome::Succeeded { .. } | OpOutcome::Unneeded));
    if all_done && !ends.is_empty() {
        guest.drift.clear();
    }
    for end in ends {
        match end {
            OpOutcome::Succeeded { .. } | OpOutcome::Unneeded | OpOutcome::Skipped => {}
            OpOutcome::Held { reason, why } => {
                guest.held.push(HeldStatus { code: *reason, why: why.clone() });
            }
            OpOutcome::Stale { .. } | OpOutcome::Failed { .. } | OpOutcome::Unknown { .. } => {
                guest.problems.push(end.words());
            }
        }
    }
}

fn is_in_sync(guest: &GuestStatus) -> bool {
    let GuestStatus { guest: _, drift, held, after_restart, problems } = guest;
    drift.is_empty() && held.is_empty() && after_restart.is_empty() && problems.is_empty()
}
