//! The planner: desired and actual state in, the minimal set of actions out.
//!
//! Pure and deterministic; called by the agent once a pass and by `evenkeel plan`. It never touches what
//! is not declared (invariant 8), never plans a write of a configuration it could not read (9), and
//! takes a guest that is not listed for absent only when the list is whole (14).
//!
//! ```text
//!   for each declared guest, by number
//!     is it here, of this kind, free?   else a problem, or busy
//!     comparison.rs   is its configuration as declared? asked early where it is remembered
//!     diff.rs   field by field: change, wait, problem, grow
//!     write.rs  what each write must carry along (MACs, volumes)
//!     power     declared run state against the real one
//!     rules/    what each action can cost, and what holds it
//!   rules/      what holds something over all guests
//! ```

mod action;
mod comparison;
mod diff;
mod key_change;
mod new_guest;
mod problem;
mod rules;
mod saved;
mod template;
mod volumes;
mod write;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

pub use action::{Action, Change, Held, How, ObservedBy, SetConfig, Step};
pub use comparison::EarlyComparison;
pub use key_change::KeyChange;
pub use problem::PlanProblem;
use rules::{GuestView, SetView};
pub use rules::{removal_candidate, taken_for_hub};
pub use saved::{PlanSeal, SavedAction, SavedPlan, SealKey, Stale};
pub use template::TemplateHold;
pub use volumes::{MovedVolumes, UnusedVolume, VolumeHold, VolumeMemory};

use crate::actual::{self, ListCoverage, Power, Snapshot};
use crate::desired::bin::{self, BinMemory};
use crate::desired::{self, DeclaredBy, Desired, ReconcileMode, Run, Spec, StopMode, WantedState};
use crate::gate::classify::ActionClass;
use crate::gate::compensation::RemovalVerdict;
use crate::gate::create_policy::CreateContext;
use crate::gate::destroy::Destroy;
use crate::gate::new_guest::{NewGuest, SourceContent};
use crate::model::id::{GuestId, OperationId, VmId};
use crate::model::reason::{ReasonCode, Refusal};
use crate::operate::back_off::FailureMemory;
use crate::operate::operation::{MakingMemory, UnixSeconds};

/// How long a guest may take to shut down before the task gives up; the guest is not forced.
pub const SHUTDOWN_TIMEOUT_S: u32 = 180;

/// What the planner must know besides both states.
#[derive(Debug, Clone, Default)]
pub struct PlanContext {
    /// The host is frozen: nothing may run.
    pub frozen: bool,
    /// Whether the host changes guests at all, by its own policy.
    pub host_mode: ReconcileMode,
    /// Guests whose lane is at work.
    pub busy: BTreeMap<VmId, GuestBusy>,
    /// What the journal remembers of the volumes of guests.
    pub memories: BTreeMap<VmId, VolumeMemory>,
    /// What failed and waits for its next try. Empty where a person asks: then everything is tried.
    pub failures: FailureMemory,
    /// The node's time, to tell whose pause is over.
    pub now: UnixSeconds,
    /// What the journal knows of guests that we made, or tried to make.
    pub making: MakingMemory,
    /// What the journal remembers of guests that were put into the bin.
    pub bins: BTreeMap<VmId, BinMemory>,
    /// After how many seconds in the bin a guest's destroy is put before somebody; none for never.
    pub bin_life_s: Option<u64>,
    /// Of guests of ours that may go unsigned: whether they may, by what was read beside them. One that nobody looked
    /// at may not.
    pub removals: BTreeMap<VmId, RemovalVerdict>,
    /// What root lets a hub have made, and what of it is used. By default nothing is allowed.
    pub create: CreateContext,
    /// Of guests that are not there: what was found in the source each would be made from.
    pub sources: BTreeMap<VmId, SourceContent>,
    /// Guests beside which somebody still looks, or a storage does not answer: what they need waits, and nothing is put
    /// before anybody to be signed.
    pub unlooked: BTreeMap<VmId, Refusal>,
}

impl PlanContext {
    fn memory(&self, vmid: VmId) -> &VolumeMemory {
        self.memories.get(&vmid).unwrap_or(&NO_MEMORY)
    }
}

static NO_MEMORY: VolumeMemory = VolumeMemory::none();

/// A lane that takes nothing now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestBusy {
    /// The operation in flight.
    pub op: OperationId,
    /// Since when, as shown to people.
    pub since: String,
    /// Why nobody knows how the operation ended, if that is what keeps the lane shut.
    pub unknown: Option<String>,
    /// What to do about a lock that keeps the lane shut, where somebody looked and nobody works on the guest.
    pub left: Option<String>,
}

impl GuestBusy {
    /// Why the guest is left alone, as a code.
    pub fn reason(&self) -> ReasonCode {
        match self.unknown {
            Some(_) => ReasonCode::UnknownOutcome,
            None => ReasonCode::Busy,
        }
    }
}

impl fmt::Display for GuestBusy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { op, since, unknown, left } = self;
        match unknown {
            None => {
                write!(f, "busy with {op} since {since}")?;
                let left = left.as_ref();
                left.map_or(Ok(()), |left| {
                    write!(f, "; the guest is locked and no task runs on it: {left}")
                })
            }
            Some(why) => write!(
                f,
                "the outcome of {op} is unknown since {since}: {why}; look at the guest, then close it: \
                 evenkeel journal resolve {op} --as succeeded (or failed)"
            ),
        }
    }
}

/// Everything that differs, guest by guest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// Guests with something to say, by number.
    pub guests: Vec<GuestPlan>,
    /// How many declared guests are as declared.
    pub in_sync: usize,
    /// Detached volumes of declared guests. They are no drift: whoever put them there may want them.
    pub unused: Vec<UnusedVolume>,
}

/// What differs on one guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestPlan {
    /// The guest.
    pub guest: GuestId,
    /// What to do, in order.
    pub actions: Vec<Action>,
    /// Changes that are stored and wait for a restart.
    pub waiting: Vec<Change>,
    /// What cannot be done.
    pub problems: Vec<PlanProblem>,
    /// The lane is at work: nothing else was looked at.
    pub busy: Option<GuestBusy>,
}

impl GuestPlan {
    fn new(guest: GuestId) -> Self {
        Self { guest, actions: Vec::new(), waiting: Vec::new(), problems: Vec::new(), busy: None }
    }

    fn says_nothing(&self) -> bool {
        self.actions.is_empty()
            && self.waiting.is_empty()
            && self.problems.is_empty()
            && self.busy.is_none()
    }
}

impl Plan {
    /// Actions that would run now.
    pub fn runnable(&self) -> impl Iterator<Item = &Action> {
        self.actions().filter(|action| action.held.is_none())
    }

    /// Guests of which it is not known how they are.
    pub fn unread(&self) -> impl Iterator<Item = GuestId> {
        let unread = |guest: &&GuestPlan| guest.problems.iter().any(PlanProblem::is_unread);
        self.guests.iter().filter(unread).map(|guest| guest.guest)
    }

    /// All actions, in order.
    pub fn actions(&self) -> impl Iterator<Item = &Action> {
        self.guests.iter().flat_map(|guest| &guest.actions)
    }
}

/// Compares both states and plans what brings actual to desired.
pub fn plan(desired: &Desired, actual: &Snapshot, context: &PlanContext) -> Plan {
    EarlyComparison::of(desired).plan(actual, context)
}

fn plan_compared(early: &EarlyComparison<'_>, actual: &Snapshot, context: &PlanContext) -> Plan {
    let desired = early.desired();
    let mut plan = Plan::default();
    let mut found = actual.guests.iter().peekable();
    for (vmid, guest) in &desired.guests {
        // Both maps are sorted by number: walk them side by side.
        while found.next_if(|(other, _)| *other < vmid).is_some() {}
        let here = found.next_if(|(other, _)| *other == vmid).map(|(_, guest)| guest);
        let is_settled = here.is_some_and(|here| early.is_settled(here, actual.conventions));
        let planned = plan_guest(guest, here, is_settled, actual, context);
        if let Some(here) = here.filter(|here| here.id == guest.id && !is_settled) {
            let memory = &context.memory(*vmid).moved;
            plan.unused.extend(volumes::unused_volumes(here, memory));
        }
        if planned.says_nothing() {
            plan.in_sync += 1;
        } else {
            plan.guests.push(planned);
        }
    }
    rules::hold_set(&SetView { desired, actual, context }, &mut plan);
    plan
}

fn plan_guest(
    guest: &desired::DeclaredGuest,
    here: Option<&actual::Guest>,
    is_settled: bool,
    actual: &Snapshot,
    context: &PlanContext,
) -> GuestPlan {
    let mut planned = GuestPlan::new(guest.id);
    if let Some(busy) = context.busy.get(&guest.id.vmid) {
        planned.busy = Some(busy.clone());
        return planned;
    }
    let declared = guest;
    let memory = context.bins.get(&guest.id.vmid);
    let here_of_kind = here.filter(|here| here.id.kind == guest.id.kind);
    let effective = bin::effective(declared, here_of_kind, memory);
    let guest = &*effective;
    let removal = here_of_kind.and_then(|here| rules::removal(&declared.state, here, context));
    match (&guest.state, here) {
        (_, Some(here)) if here.id.kind != guest.id.kind => {
            planned.problems.push(PlanProblem::OtherKind(here.id.kind));
        }
        (_, Some(_)) if removal.is_some() => {
            if let Some(removal) = removal {
                push(&mut planned, Step::Remove(removal), Vec::new());
            }
        }
        (WantedState::Present(spec), Some(here)) => {
            let spec = new_guest::until_first_start(spec, here, &context.making);
            // What was compared early is what is declared, and nothing in its place.
            let as_declared = matches!((&effective, &spec), (Cow::Borrowed(_), Cow::Borrowed(_)));
            if !(is_settled && as_declared) {
                let memory = context.memory(guest.id.vmid);
                plan_config(&spec, guest.by, here, actual, memory, &mut planned);
            }
            plan_power(&spec, here, &mut planned);
            if spec.template && !here.template {
                plan_template(here, &mut planned);
            }
        }
        (WantedState::Absent { final_backup }, Some(here)) => {
            let destroy = Destroy::of(here).saved_to(final_backup.clone(), here);
            push(&mut planned, Step::Destroy(destroy), Vec::new());
        }
        // A guest in the bin that is not there is not made.
        (WantedState::Bin(_), Some(_) | None) => {
            plan_unlisted(guest, actual, context, &mut planned);
        }
        (WantedState::Present(_) | WantedState::Absent { .. }, None) => {
            plan_unlisted(guest, actual, context, &mut planned);
        }
    }
    plan_end_in_bin(declared, here, context, &mut planned);
    let view = GuestView { declared, effective: guest, here, context };
    rules::hold_guest(&view, &mut planned);
    planned
}

/// A guest that lies in the bin as it was put there, for as long as it may, shall be destroyed.
fn plan_end_in_bin(
    declared: &desired::DeclaredGuest,
    here: Option<&actual::Guest>,
    context: &PlanContext,
    planned: &mut GuestPlan,
) {
    let is_in_bin = matches!(declared.state, WantedState::Bin(_));
    let memory = context.bins.get(&declared.id.vmid);
    if let (true, Some(here), Some(memory), Some(life_s)) =
        (is_in_bin && planned.says_nothing(), here, memory, context.bin_life_s)
        && memory.is_exactly(here)
        && memory.is_over(life_s, context.now)
    {
        push(planned, Step::Destroy(Destroy::of(here)), Vec::new());
    }
}

fn plan_config(
    spec: &Spec,
    by: DeclaredBy,
    here: &actual::Guest,
    actual: &Snapshot,
    memory: &VolumeMemory,
    planned: &mut GuestPlan,
) {
    match &here.config {
        Ok(config) => diff::plan_config(spec, by, here, config, actual, memory, planned),
        Err(error) => planned.problems.push(PlanProblem::Unreadable(error.clone())),
    }
}

/// Last of all: nothing else can be done to a template's volumes.
fn plan_template(here: &actual::Guest, planned: &mut GuestPlan) {
    let unfinished =
        !planned.actions.is_empty() || !planned.waiting.is_empty() || !planned.problems.is_empty();
    let hold = TemplateHold::of(here).or(unfinished.then_some(TemplateHold::NotAsDeclared));
    push(planned, Step::Template, Vec::new());
    hold_last(planned, hold.map(Held::Template));
}

/// Declared, and not listed on this node: made if it shall be, and if it is certain that it is not there.
fn plan_unlisted(
    guest: &desired::DeclaredGuest,
    actual: &Snapshot,
    context: &PlanContext,
    planned: &mut GuestPlan,
) {
    let vmid = guest.id.vmid;
    if let Some(there) = actual.elsewhere.get(&vmid) {
        planned.problems.push(if there.kind == guest.id.kind {
            PlanProblem::OtherNode(there.node.clone())
        } else {
            PlanProblem::OtherKind(there.kind)
        });
        return;
    }
    if actual.hidden.contains(&vmid) {
        planned.problems.push(PlanProblem::Hidden);
        return;
    }
    match (&guest.state, &actual.coverage) {
        (
            WantedState::Present(_) | WantedState::Bin(_) | WantedState::Absent { .. },
            ListCoverage::Partial(why),
        ) => {
            planned.problems.push(PlanProblem::MaybeHidden(why.clone()));
        }
        (WantedState::Present(spec), ListCoverage::Whole) => {
            let smaller =
                new_guest::smaller_than_source(guest.id, spec, actual).map_or(Ok(()), Err);
            let content = context.sources.get(&vmid);
            let declared = || NewGuest::declared(guest.id, spec, actual.release, content);
            match smaller.and_then(|()| declared()) {
                Ok(new) => {
                    let unready = new.unready();
                    push(planned, Step::Make(Box::new(new)), Vec::new());
                    hold_last(planned, unready.map(Held::Until));
                }
                Err(problem) => planned.problems.push(problem),
            }
        }
        (WantedState::Bin(_) | WantedState::Absent { .. }, ListCoverage::Whole) => {}
    }
}

fn plan_power(spec: &Spec, here: &actual::Guest, planned: &mut GuestPlan) {
    match (spec.run.filter(|_| !spec.ignore.run), here.power) {
        (None, _) | (Some(Run::Running), Power::Running) | (Some(Run::Stopped), Power::Stopped) => {
        }
        (Some(_), Power::Unknown) => planned.problems.push(PlanProblem::PowerUnknown),
        (Some(Run::Running), Power::Stopped) if here.template => {
            planned.problems.push(PlanProblem::Template);
        }
        (Some(Run::Running), Power::Stopped) => push(planned, Step::Start, Vec::new()),
        (Some(Run::Stopped), Power::Running | Power::Paused) if spec.stop == StopMode::Force => {
            push(planned, Step::Stop, Vec::new());
        }
        (Some(Run::Stopped), Power::Running) => {
            push(planned, Step::Shutdown { timeout_s: SHUTDOWN_TIMEOUT_S }, Vec::new());
        }
        (Some(Run::Running | Run::Stopped), Power::Paused) => {
            planned.problems.push(PlanProblem::Paused);
        }
    }
}

/// Adds an action; its class and what holds it are judged once the guest's plan is whole.
fn push(planned: &mut GuestPlan, step: Step, changes: Vec<Change>) {
    let guest = planned.guest;
    planned.actions.push(Action {
        guest,
        step,
        changes,
        class: ActionClass::Destructive,
        why: String::new(),
        held: None,
    });
}

/// What holds the action that was added last, whatever else may.
fn hold_last(planned: &mut GuestPlan, held: Option<Held>) {
    if let Some(action) = planned.actions.last_mut() {
        action.held = held;
    }
}
