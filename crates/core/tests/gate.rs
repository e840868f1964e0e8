//! The gate on a guest that is there, and on one that is not.

mod support;

use std::sync::Arc;

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::gate::approval::{WantedByPlan, requested_item, wanted_by_plan};
use evenkeel_core::gate::final_backup::BackupContext;
use evenkeel_core::gate::{FreshGuest, GateVerdict, NodeSite, judge};
use evenkeel_core::plan::{PlanContext, plan};

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
    judge(action, declared, fresh, &NodeSite::of(&now), &PlanContext::default())
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

/// A person's request is refused as well: an item is kept, shown and carried whole.
#[test]
fn x08_a_request_that_holds_a_secret_raises_no_item() {
    let rootfs = "rootfs: local-lvm:vm-101-disk-0,size=8G\nprotection: 1";
    let (mut actual, _) = support::actual(&format!("release 9.1\nlxc/101 stopped\n{rootfs}\n"));
    let guest = actual.guests.values_mut().next().expect("a guest is there");
    let config = guest.config.as_mut().expect("it was read");
    Arc::make_mut(config).digest = "1".repeat(40);
    let around = BackupContext::default();
    let asked = |more: Option<(&str, &str)>| {
        let given = [("protection", "0")].into_iter().chain(more);
        let given = given.map(|(name, text)| (name.to_owned(), text.to_owned())).collect();
        requested_item(ActionKind::SetConfig, guest, &around, given)
    };
    assert!(asked(None).is_ok());
    for (name, text) in [("env", "A=marked"), ("args", "marked"), ("cipassword", "marked")] {
        let refusal = asked(Some((name, text))).expect_err(name);
        assert!(refusal.detail.starts_with(name), "{refusal:?}");
        assert!(!refusal.detail.contains("marked"), "{refusal:?}");
    }
}

/// What needs a signature is an act of its own: an item, which hubs and people read, tells nothing of what is declared
/// beside it.
#[test]
fn x08_what_a_plan_wants_signed_holds_no_secret() {
    for (declared, found, op) in [
        (
            "mp0 = \"local-lvm:8,mp=/data\"\nenv = [\"A=marked\"]",
            "mp0: local-lvm:vm-101-disk-1,mp=/data,backup=1,size=8G",
            ActionKind::SetConfig,
        ),
        (
            "unset = [\"protection\"]\nenv = [\"A=marked\"]",
            "protection: 1\nenv: A=marked-before",
            ActionKind::SetConfig,
        ),
        ("state = \"absent\"", "env: A=marked", ActionKind::Destroy),
    ] {
        let desired = support::desired(&format!("[guest.101]\nkind = \"lxc\"\n{declared}\n"));
        let rootfs = "rootfs: local-lvm:vm-101-disk-0,size=8G";
        let (mut actual, context) =
            support::actual(&format!("release 9.1\nlxc/101 stopped\n{rootfs}\n{found}\n"));
        let guest = actual.guests.values_mut().next().expect("a guest is there");
        let config = guest.config.as_mut().expect("it was read");
        Arc::make_mut(config).digest = "1".repeat(40);
        let planned = plan(&desired, &actual, &context);
        let WantedByPlan { items, refused } = wanted_by_plan(&planned, &actual);
        assert!(refused.is_empty(), "{refused:?}");
        assert_eq!(items.iter().map(|item| item.op).collect::<Vec<_>>(), [op], "{declared}");
        assert!(items.iter().all(|item| !item.params.contains_key("env")), "{items:?}");
        assert!(!format!("{items:?}").contains("marked"), "{items:?}");
    }
}
