//! What may hold a planned action: one ordered list of rules.
//!
//! The planner, and with it every preview, walks the list once the actions of a guest are known; the gate plans its guest
//! anew in the lane and so walks the same list with fresh facts. A rule is a module with one function. It reads the facts
//! in `PlanContext`, holds actions or tells why, and never adds one.
//!
//! To add a rule: write its module, put its facts into `PlanContext`, and add one line to the list it belongs to.

mod back_off;
mod bin;
mod class;
mod contested;
mod create_bounds;
mod executor;
mod first_start;
mod freeze;
mod lock;
mod mode;
mod opening;
mod removal;
mod signature;
mod source;
mod unlooked;

pub(super) use class::cost;
pub use create_bounds::taken_for_hub;
pub use removal::candidate as removal_candidate;
pub(super) use removal::removal;

use super::{Action, GuestPlan, Held, Plan, PlanContext};
use crate::actual::{Guest, Snapshot};
use crate::desired::{DeclaredGuest, Desired};

/// What a rule about one guest looks at.
pub(super) struct GuestView<'v> {
    /// The guest as its files declare it.
    pub(super) declared: &'v DeclaredGuest,
    /// The guest as it is planned now: in the bin, another one.
    pub(super) effective: &'v DeclaredGuest,
    /// The guest of this number, of any kind.
    pub(super) here: Option<&'v Guest>,
    /// What is known besides both states.
    pub(super) context: &'v PlanContext,
}

impl<'v> GuestView<'v> {
    /// The guest of this number, if it is of the declared kind.
    fn here_of_kind(&self) -> Option<&'v Guest> {
        self.here.filter(|here| here.id.kind == self.declared.id.kind)
    }
}

/// What a rule about the whole set looks at.
pub(super) struct SetView<'v> {
    pub(super) desired: &'v Desired,
    pub(super) actual: &'v Snapshot,
    pub(super) context: &'v PlanContext,
}

/// Asked of each guest with actions, in this order. The first three overrule what an action was planned with, the later one
/// the earlier one; the others hold only what nothing holds yet.
const GUEST_RULES: [fn(&GuestView<'_>, &mut GuestPlan); 12] = [
    class::judge,
    opening::hold,
    lock::hold,
    executor::hold,
    mode::hold,
    signature::hold,
    freeze::hold,
    removal::tell_refusal,
    back_off::hold,
    contested::hold,
    bin::hold,
    unlooked::hold,
];

/// Asked once every guest is planned, in this order.
const SET_RULES: [fn(&SetView<'_>, &mut Plan); 3] =
    [source::hold, create_bounds::hold, first_start::hold];

/// Puts the actions of one guest before every rule.
pub(super) fn hold_guest(view: &GuestView<'_>, planned: &mut GuestPlan) {
    if planned.actions.is_empty() {
        return;
    }
    for rule in GUEST_RULES {
        rule(view, planned);
    }
}

/// Puts the whole plan before every rule about the set.
pub(super) fn hold_set(view: &SetView<'_>, plan: &mut Plan) {
    for rule in SET_RULES {
        rule(view, plan);
    }
}

/// Holds actions whatever holds them already.
fn overrule(planned: &mut GuestPlan, mut held: impl FnMut(&Action) -> Option<Held>) {
    for action in &mut planned.actions {
        if let Some(held) = held(action) {
            action.held = Some(held);
        }
    }
}

/// Holds actions that nothing holds yet.
fn hold_free(planned: &mut GuestPlan, mut held: impl FnMut(&Action) -> Option<Held>) {
    for action in planned.actions.iter_mut().filter(|action| action.held.is_none()) {
        action.held = held(action);
    }
}
