//! What holds a guest that we made until its first start, and one of which nobody can say who made it.
//!
//! A new guest runs for the first time only when everything declared is in effect. A guest under a number for which a
//! making of ours failed may be anybody's: it is shown and never touched.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::{GuestPlan, Held, Plan, PlanContext, PlanProblem, Step};
use crate::actual::{Guest, Snapshot};
use crate::classify::opens_the_host;
use crate::create_policy::{CreateContext, CreateJudge};
use crate::desired::{DeclaredField, Desired, GuestSource, Spec, WantedState};
use crate::id::{GuestId, GuestKind};
use crate::operation::MakingMemory;
use crate::reason::{ReasonCode, Refusal};
use crate::registry;
use crate::value::Value;

/// What is declared, as far as it is planned now. A clone copies `onboot`: before anything else it is set as declared,
/// or off, because a reboot of the node could start a guest that is not as declared yet.
pub(super) fn until_first_start<'s>(
    spec: &'s Spec,
    here: &Guest,
    making: &MakingMemory,
) -> Cow<'s, Spec> {
    if !making.never_ran(here.id) {
        return Cow::Borrowed(spec);
    }
    let key = registry::find(here.id.kind, "onboot").expect("a key of both kinds");
    let declared = spec.fields.iter().find(|field| field.key == key);
    let wanted = declared.and_then(|field| field.want.clone()).unwrap_or(Value::Bool(false));
    let current = here.config.as_ref().ok().and_then(|config| config.field(key)?.current.as_ref());
    let is_on = current.is_some_and(|reading| reading.value == Value::Bool(true));
    if !is_on || wanted == Value::Bool(true) {
        return Cow::Borrowed(spec);
    }
    let fields = vec![DeclaredField { key, want: Some(wanted) }];
    Cow::Owned(Spec { fields, ..Spec::default() })
}

/// A volume that is declared smaller than the one it is copied from: the copy could never be as declared. Of a snapshot
/// the sizes are not known.
pub(super) fn smaller_than_source(
    guest: GuestId,
    spec: &Spec,
    actual: &Snapshot,
) -> Option<PlanProblem> {
    let Some(GuestSource::Clone(from)) = &spec.source else {
        return None;
    };
    let source = GuestId { kind: guest.kind, vmid: from.guest };
    let there = actual.guests.get(&from.guest).filter(|there| there.id == source)?;
    let config = there.config.as_ref().ok().filter(|_| from.snapshot.is_none())?;
    spec.fields.iter().find_map(|field| {
        let want = field.want.as_ref()?.as_property()?.size()?;
        let held = config.field(field.key)?.current.as_ref()?.value.as_property()?;
        let have = held.data_volume().and(held.size()).filter(|have| want < *have)?;
        Some(PlanProblem::SmallerThanSource { disk: field.key, want, have, source })
    })
}

/// Holds what must not happen to a guest of which nobody can say who made it.
pub(super) fn hold_contested(
    planned: &mut GuestPlan,
    here: &Guest,
    making: &MakingMemory,
    refused: Option<&Refusal>,
) {
    if let Some(op) = making.contested(here.id.vmid) {
        let unproved = refused.map_or_else(
            || format!("evenkeel tried to make it ({op}) and cannot prove that this is the guest it made"),
            |refused| format!("evenkeel tried to make it ({op}) and does not remove what it left: {}", refused.detail),
        );
        let why =
            format!("{unproved}; if it is the one you mean, run `evenkeel retry {}`", here.id);
        let held = planned.actions.iter_mut().filter(|action| action.held.is_none());
        for action in held.filter(|action| !matches!(action.step, Step::Remove(_))) {
            action.held = Some(until(ReasonCode::IdentityUnproven, why.clone()));
        }
    }
}

/// Holds the first start of every new guest that is not as declared, or came with more than that. Asked last, when it is
/// known what else is held.
pub(super) fn hold_first_starts(
    plan: &mut Plan,
    desired: &Desired,
    actual: &Snapshot,
    context: &PlanContext,
) {
    for planned in &mut plan.guests {
        let vmid = planned.guest.vmid;
        let (Some(declared), Some(here)) = (desired.guests.get(&vmid), actual.guests.get(&vmid))
        else {
            continue;
        };
        let WantedState::Present(spec) = &declared.state else { continue };
        if !context.making.never_ran(here.id) {
            continue;
        }
        let CreateContext { policy, usage } = &context.create;
        let judge = CreateJudge { by: declared.by, policy: policy.as_ref(), usage };
        let waits = first_start_waits(planned, spec, here, judge);
        let start = planned.actions.iter_mut().find(|action| action.step == Step::Start);
        if let (Some(start), Some(waits)) = (start.filter(|start| start.held.is_none()), waits) {
            start.held = Some(Held::Until(waits));
        }
    }
}

/// Why a guest must not start for the first time.
fn first_start_waits(
    planned: &GuestPlan,
    spec: &Spec,
    here: &Guest,
    judge: CreateJudge<'_>,
) -> Option<Refusal> {
    let first =
        |reason, why: String| Some(Refusal::new(reason, format!("its first start waits: {why}")));
    let mut others = planned.actions.iter().filter(|action| action.step != Step::Start);
    if let Some(held) = others.find_map(|action| action.held.as_ref()) {
        return first(held.reason(), held.to_string());
    }
    if let Some(problem) = planned.problems.first() {
        return first(ReasonCode::Stale, problem.to_string());
    }
    if let Some(change) = planned.waiting.first() {
        return first(ReasonCode::Stale, format!("{change} is not in effect"));
    }
    let from_elsewhere = match spec.source {
        Some(GuestSource::Clone(_) | GuestSource::Backup { .. }) => true,
        Some(GuestSource::Empty | GuestSource::Template(_) | GuestSource::Image { .. }) | None => {
            false
        }
    };
    let opened = here.config.as_ref().ok().filter(|_| from_elsewhere);
    // What a hub declares it may not have for that: it could declare whatever its source holds.
    let own = spec.fields.iter().filter(|_| !judge.by.is_hub());
    let declared: BTreeSet<_> = own.map(|field| field.key).collect();
    if let Some(Err(refusal)) = opened.map(|config| judge.first_start(here.id, config)) {
        return first(refusal.reason, refusal.detail);
    }
    if let Some(why) = opened.and_then(|config| opens_the_host(config, &declared)) {
        return first(ReasonCode::Policy, why);
    }
    if from_elsewhere && is_privileged(here) && !says_privileged(spec) {
        let why = "it came as a privileged container; declare unprivileged = false to have that";
        return first(ReasonCode::Policy, why.to_owned());
    }
    None
}

fn is_privileged(here: &Guest) -> bool {
    let key = registry::find(GuestKind::Lxc, "unprivileged").expect("a key of containers");
    let config = here.config.as_ref().ok().filter(|_| here.id.kind == GuestKind::Lxc);
    config.is_some_and(|config| {
        let stored = config.field(key).and_then(|field| field.current.as_ref());
        stored.is_none_or(|reading| reading.value != Value::Bool(true))
    })
}

fn says_privileged(spec: &Spec) -> bool {
    spec.fields.iter().any(|field| {
        field.key.key().name == "unprivileged" && field.want == Some(Value::Bool(false))
    })
}

/// A guest that is cloned from a declared one waits until that one is as declared.
pub(super) fn await_sources(plan: &mut Plan, desired: &Desired) {
    let unready: BTreeSet<GuestId> = plan.guests.iter().map(|guest| guest.guest).collect();
    for guest in &mut plan.guests {
        for action in guest.actions.iter_mut().filter(|action| action.held.is_none()) {
            let Step::Make(new) = &action.step else { continue };
            let GuestSource::Clone(from) = &new.source else { continue };
            let source = GuestId { kind: new.guest.kind, vmid: from.guest };
            let declared = desired.guests.contains_key(&from.guest);
            if declared && unready.contains(&source) {
                let why = format!("{source}, from which it is made, is not as declared yet");
                action.held = Some(until(ReasonCode::Busy, why));
            }
        }
    }
}

fn until(reason: ReasonCode, why: impl Into<String>) -> Held {
    Held::Until(Refusal::new(reason, why.into()))
}
