//! The gate's judgement of a planned action on the guest as it is now.
//!
//! Asked inside the lane, directly before anything is sent, for benign actions too: a forced deletion may have come to
//! wait since the plan, a lock may have been set, somebody may have been faster. The guest is planned anew, and what
//! runs is the act that was planned, with today's digest, or nothing.

use std::collections::{BTreeMap, BTreeSet};

use crate::actual::{Guest, ListCoverage, Snapshot};
use crate::desired::{self, Desired};
use crate::model::id::{NodeName, VmId};
use crate::model::reason::{ReasonCode, Refusal};
use crate::model::release::Release;
use crate::plan::{Action, Held, PlanContext, PlanProblem, Step, plan};
use crate::value::compare::Conventions;
use crate::value::{Value, print, read};

/// What a guest's plan needs to know of its node.
#[derive(Debug, Clone)]
pub struct NodeSite {
    /// The node.
    pub node: NodeName,
    /// What it runs.
    pub release: Release,
    /// What it does to values.
    pub conventions: Conventions,
}

impl NodeSite {
    /// The node that was read.
    pub fn of(actual: &Snapshot) -> Self {
        let node = actual.node.clone();
        let release = actual.release;
        Self { node, release, conventions: actual.conventions }
    }

    /// The node with this guest alone, or with none of its number.
    pub fn snapshot(&self, vmid: VmId, guest: Option<&Guest>) -> Snapshot {
        let Self { node, release, conventions } = self.clone();
        Snapshot {
            node,
            release,
            conventions,
            guests: guest.map(|guest| (vmid, guest.clone())).into_iter().collect(),
            elsewhere: BTreeMap::new(),
            hidden: BTreeSet::new(),
            coverage: ListCoverage::Whole,
        }
    }
}

/// The guest as it is directly before anything is sent.
#[derive(Debug, Clone, Copy)]
pub enum FreshGuest<'g> {
    /// It was read.
    Here(&'g Guest),
    /// The node has no such guest. For an act that makes one, that is not enough: its number must be proved free.
    NotThere,
}

impl<'g> FreshGuest<'g> {
    /// The guest, if there is one.
    pub fn guest(self) -> Option<&'g Guest> {
        match self {
            Self::Here(guest) => Some(guest),
            Self::NotThere => None,
        }
    }
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateVerdict {
    /// Exactly what was planned may run, with the digest of now.
    Clear(Box<Action>),
    /// The guest is as declared.
    Unneeded,
    /// It would be something else now.
    Stale(String),
    /// It may not run now.
    Held(Held),
    /// It cannot be done.
    Refused(Box<PlanProblem>),
}

/// Judges a planned action again, on a fresh read of its guest and on what is known of it by now.
pub fn judge(
    planned: &Action,
    desired: &desired::DeclaredGuest,
    fresh: FreshGuest<'_>,
    site: &NodeSite,
    context: &PlanContext,
) -> GateVerdict {
    let vmid = desired.id.vmid;
    let desired_id = desired.id;
    if fresh.guest().is_none() && !planned.step.kind().creates_guest() {
        return GateVerdict::Stale("the guest is no longer on this node".to_owned());
    }
    if fresh.guest().is_some() && planned.step.kind().creates_guest() {
        return GateVerdict::Stale("a guest has the number now".to_owned());
    }
    let desired = Desired { guests: [(vmid, desired.clone())].into() };
    let actual = site.snapshot(vmid, fresh.guest());
    let never_run = context.making.never_ran(desired_id);
    if let (Step::Remove(_), Some(Err(refusal))) = (&planned.step, context.removals.get(&vmid)) {
        return GateVerdict::Held(Held::Until(refusal.clone()));
    }
    let Some(now) = plan(&desired, &actual, context).guests.into_iter().next() else {
        return GateVerdict::Unneeded;
    };
    let wanted = &planned.step;
    let alike = |action: &&Action| {
        action.step.kind() == wanted.kind() && action.step.slot() == wanted.slot()
    };
    let same = |action: &&Action| what_it_does(&action.step) == what_it_does(wanted);
    let others = now.actions.iter().filter(|action| action.step != Step::Start).count();
    if let (Step::Start, true, true) = (wanted, never_run, others > 0) {
        let why = "its first start waits until everything declared is in effect";
        return GateVerdict::Held(Held::Until(Refusal::new(ReasonCode::Stale, why)));
    }
    if let Some(action) = now.actions.iter().filter(alike).find(same) {
        return match &action.held {
            None => GateVerdict::Clear(Box::new(action.clone())),
            Some(held) => GateVerdict::Held(held.clone()),
        };
    }
    if let Some(other) = now.actions.iter().find(alike) {
        let reasons = other.reasons().join(", ");
        return GateVerdict::Stale(format!(
            "the guest has changed since; now it would be: {reasons}"
        ));
    }
    match now.problems.into_iter().next() {
        Some(problem) => GateVerdict::Refused(Box::new(problem)),
        None => GateVerdict::Unneeded,
    }
}

/// The parameters that make two steps the same act. The size beside a volume that exists is no part of it: PVE
/// writes the volume's own, and a storage that rounds up must not make a new act of the write after a growth.
fn what_it_does(step: &Step) -> BTreeMap<String, String> {
    let mut params = step.params_but_digest();
    if let Step::SetConfig(write) = step {
        for (key, text) in &write.set {
            let format = &key.key().format;
            if let Value::Property(mut property) = read::written(format, text)
                && property.data_volume().is_some()
            {
                property.remove("size");
                params.insert(key.to_string(), print::pve(format, &Value::Property(property)));
            }
        }
    }
    params
}
