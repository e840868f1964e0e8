//! The gate on a guest that is there, and on one that is not.

mod support;

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::gate::{FreshGuest, GateVerdict, LaneFacts, NodeSite, judge};
use evenkeel_core::plan::plan;

const DECLARED: &str = "[guest.101]\nkind = \"lxc\"\nrun = \"running\"\n\
    source = { template = \"local:vztmpl/debian-12.tar.zst\" }\n";

/// Plans what is declared on one node, and judges its first action on the guest of another moment.
fn judged(planned_on: &str, found: &str) -> GateVerdict {
    let desired = support::desired(DECLARED);
    let (before, context) = support::actual(planned_on);
    let planned = plan(&desired, &before, &context);
    let action = planned.actions().next();
    let action = action.unwrap_or_else(|| panic!("it plans:\n{}", support::shown(&planned)));
    let (now, _) = support::actual(found);
    let fresh = now.guests.values().next().map_or(FreshGuest::NotThere, FreshGuest::Here);
    let declared = desired.guests.values().next().expect("a guest is declared");
    judge(action, declared, fresh, &NodeSite::of(&now), LaneFacts::default())
}

const NOBODY: &str = "";
const STOPPED: &str = "lxc/101 stopped\n";
const RUNNING: &str = "lxc/101 running\n";

#[test]
fn an_act_on_a_guest_that_is_gone_is_stale() {
    let GateVerdict::Stale(why) = judged(STOPPED, NOBODY) else { panic!("not stale") };
    assert!(why.contains("no longer on this node"), "{why}");
}

#[test]
fn an_act_that_makes_a_guest_is_judged_where_there_is_none() {
    let verdict = judged(NOBODY, NOBODY);
    let GateVerdict::Clear(action) = verdict else { panic!("{verdict:?}") };
    assert_eq!(action.step.kind(), ActionKind::Create);
}

#[test]
fn an_act_that_makes_a_guest_is_stale_once_somebody_has_the_number() {
    let GateVerdict::Stale(why) = judged(NOBODY, RUNNING) else { panic!("not stale") };
    assert!(why.contains("has the number"), "{why}");
}
