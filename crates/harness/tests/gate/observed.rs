//! What is only observed is shown and never changed: by the guest's mode or the host's, of the plan's time or of now.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use evenkeel_agent::engine::{Engine, EngineEvent, OpOutcome, PassCause, Report};
use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::desired::Desired;
use evenkeel_core::desired::selection::PassScope;
use evenkeel_core::model::reason::ReasonCode;

use crate::support::*;

const DRIFT: &str = "guest.100 = { kind = \"lxc\", cores = 7, run = \"stopped\" }";
const OBSERVED: &str =
    "guest.100 = { kind = \"lxc\", mode = \"observe\", cores = 7, run = \"stopped\" }";

/// A pass to its end, with what happens between its plan and its lanes.
async fn report(
    engine: &mut Engine,
    desired: &Desired,
    meanwhile: impl AsyncFnOnce(&mut Engine),
) -> Report {
    let preview = engine
        .look(desired, PassScope::Whole, PassCause::Schedule)
        .await
        .unwrap_or_else(|error| panic!("{error}"));
    meanwhile(engine).await;
    let pass = engine.submit(desired, preview).await.unwrap();
    loop {
        if let EngineEvent::Pass { id, report } = engine.work().await.unwrap()
            && id == pass.id
        {
            return *report;
        }
    }
}

fn held_in_the_lane(report: &Report) -> Vec<ReasonCode> {
    let reason = |end: &OpOutcome| {
        if let OpOutcome::Held { reason, .. } = end { Some(*reason) } else { None }
    };
    report.ops.iter().filter_map(|op| reason(&op.end)).collect()
}

#[tokio::test(start_paused = true)]
async fn an_observed_guest_is_planned_and_never_written() {
    let rig = rig().await;
    let observed = desired(OBSERVED);
    live(&rig, async |engine| {
        let first = report(engine, &observed, async |_| {}).await;
        assert_eq!((first.planned, first.started), (2, 0), "{first:?}");
        assert!(first.holds.iter().all(|hold| hold.reason == ReasonCode::Observe), "{first:?}");
        Ok(())
    })
    .await;
    assert_eq!(writes(&rig, "lxc/100"), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn nobody_is_asked_to_sign_for_what_is_only_observed() {
    let rig = rig().await;
    let absent = "guest.100 = { kind = \"lxc\", state = \"absent\", mode = \"observe\" }";
    let absent = desired(absent);
    let asks = desired(ABSENT);
    live(&rig, async |engine| {
        pass(engine, &absent).await?;
        assert!(engine.pending().await?.is_empty(), "nothing is raised");
        pass(engine, &asks).await?;
        assert_eq!(engine.pending().await?.len(), 1);
        rig.observes.store(true, Ordering::Relaxed);
        pass(engine, &asks).await?;
        assert!(engine.pending().await?.is_empty(), "what was raised before is withdrawn");
        Ok(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_came_to_observe_after_the_plan_holds_in_the_lane() {
    let rig = rig().await;
    let drift = desired(DRIFT);
    let report = live(&rig, async |engine| {
        Ok(report(engine, &drift, async |_| rig.observes.store(true, Ordering::Relaxed)).await)
    })
    .await;
    assert_eq!(held_in_the_lane(&report)[..1], [ReasonCode::Observe], "{report:?}");
    assert_eq!(report.started, 0, "{report:?}");
    assert_eq!(writes(&rig, "lxc/100"), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_came_to_be_observed_after_the_plan_is_held_in_the_lane() {
    let rig = rig().await;
    let drift = desired(DRIFT);
    let observed = desired(OBSERVED);
    let report = live(&rig, async |engine| {
        let read_again = async |engine: &mut Engine| {
            engine
                .look(&observed, PassScope::Whole, PassCause::Schedule)
                .await
                .unwrap_or_else(|error| panic!("{error}"));
        };
        Ok(report(engine, &drift, read_again).await)
    })
    .await;
    assert_eq!(held_in_the_lane(&report)[..1], [ReasonCode::Observe], "{report:?}");
    assert_eq!(writes(&rig, "lxc/100"), Vec::<String>::new());
}

/// Observing is about what is declared. What an operator asks for and signs is no drift.
#[tokio::test(start_paused = true)]
async fn what_an_operator_asks_for_and_signs_is_done_on_an_observing_host() {
    let rig = rig().await;
    rig.observes.store(true, Ordering::Relaxed);
    rig.node.with(|sim| {
        let guest = "lxc/100".parse().unwrap();
        sim.happen(evenkeel_sim::Event::Power { guest, running: false });
    });
    live(&rig, async |engine| {
        let guest = "lxc/100".parse().unwrap();
        engine.request(ActionKind::Destroy, guest, BTreeMap::new()).await.unwrap();
        let approval = anna().approve(&item(engine).await, 7, now(&rig));
        let submitted = engine.submit_approval(approval.as_bytes()).await?;
        let ended = ended(engine, submitted).await;
        assert_eq!(ended.end, OpOutcome::Succeeded { warning: None }, "{ended:?}");
        Ok(())
    })
    .await;
}
