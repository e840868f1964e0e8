//! A new guest runs for the first time only when everything declared is in effect.

use std::collections::BTreeSet;

use super::SetView;
use crate::actual::Guest;
use crate::desired::{GuestSource, Spec, WantedState};
use crate::gate::classify::opens_the_host;
use crate::gate::create_policy::{CreateContext, CreateJudge};
use crate::model::id::GuestKind;
use crate::model::reason::{ReasonCode, Refusal};
use crate::plan::{GuestPlan, Held, Plan, Step};
use crate::registry;
use crate::value::Value;

/// Holds the first start of every new guest that is not as declared, or came with more than that. Asked last, when it is
/// known what else is held.
pub(super) fn hold(view: &SetView<'_>, plan: &mut Plan) {
    let SetView { desired, actual, context } = view;
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
