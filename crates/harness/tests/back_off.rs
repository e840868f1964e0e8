//! Failure rests too (invariant 20): what failed is tried again with growing pauses, at once only when the declaration
//! or the guest changed, or somebody asked.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use evenkeel_agent::engine::{Engine, Fatal, PassCause, Report};
use evenkeel_core::desired::Desired;
use evenkeel_core::desired::selection::PassScope;
use evenkeel_core::model::id::GuestId;
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_harness::script::{desired, fault, finish, journal, pass, rig, writes};
use evenkeel_harness::{PanicPoint, Rig};
use evenkeel_sim::{Effect, Event};

const RUN_102: &str = "guest.102 = { kind = \"lxc\", run = \"running\" }";
const CORES_100: &str = "guest.100 = { kind = \"lxc\", cores = 3 }";
const MINUTE: Duration = Duration::from_mins(1);
const DAY_MINUTES: u32 = 24 * 60;

/// Every start fails.
fn no_start(rig: &Rig) {
    let message = "bridge 'vmbr9' does not exist".to_owned();
    fault(rig, Effect::TaskFails { message }, "POST", "vzstart", u32::MAX);
}

fn lines(rig: &Rig) -> usize {
    journal(rig).len()
}

/// A pass every minute, for so many minutes.
async fn passes(engine: &mut Engine, wanted: &Desired, minutes: u32) -> Result<Report, Fatal> {
    let mut last = Report::default();
    for _ in 0..minutes {
        last = pass(engine, wanted).await?;
        tokio::time::sleep(MINUTE).await;
    }
    Ok(last)
}

#[tokio::test(start_paused = true)]
async fn a_standing_failure_for_a_day_is_tried_forty_times_at_most() {
    let rig = rig(4);
    no_start(&rig);
    let wanted = desired(RUN_102);
    let lived = rig.live(async |engine| passes(engine, &wanted, DAY_MINUTES).await);
    let last = lived.await.unwrap().unwrap();
    let tries = writes(&rig).len();
    assert!((20..=40).contains(&tries), "{tries} tries");
    assert!(lines(&rig) <= 40 * 3, "{} lines for {tries} tries", lines(&rig));
    let hold = &last.holds[0];
    assert_eq!(hold.reason, ReasonCode::FailedBefore, "{last:?}");
    assert!(hold.why.contains("vmbr9") && hold.why.contains("tried again at"), "{}", hold.why);
}

#[tokio::test(start_paused = true)]
async fn a_restart_forgets_no_failure() {
    let rig = rig(4);
    no_start(&rig);
    let wanted = desired(RUN_102);
    for _ in 0..60 {
        let lived = rig.live(async |engine| passes(engine, &wanted, 1).await);
        lived.await.unwrap().unwrap();
    }
    let tries = writes(&rig).len();
    assert!((5..=7).contains(&tries), "{tries} tries in an hour, one restart a minute");
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_panics_waits_like_one_that_failed() {
    let rig = rig(4);
    let wanted = desired(CORES_100);
    let lived = rig.live(async |engine| {
        for _ in 0..60 {
            rig.wire.panic_once(PanicPoint::BeforeSending);
            passes(engine, &wanted, 1).await?;
        }
        Ok(())
    });
    lived.await.unwrap().unwrap();
    let tries = journal(&rig).iter().filter(|line| line["state"] == "started").count();
    assert!((4..=7).contains(&tries), "{tries} tries in an hour");
}

#[tokio::test(start_paused = true)]
async fn the_guests_later_actions_wait_with_the_one_that_failed() {
    let rig = rig(4);
    fault(&rig, Effect::DropBefore, "PUT", "/lxc/102/config", u32::MAX);
    let wanted = desired("guest.102 = { kind = \"lxc\", cores = 7, run = \"running\" }");
    let lived = rig.live(async |engine| {
        pass(engine, &wanted).await?;
        pass(engine, &wanted).await
    });
    let second = lived.await.unwrap().unwrap();
    assert_eq!(second.held, 2, "{second:?}");
    assert!(second.holds.iter().all(|hold| hold.reason == ReasonCode::FailedBefore), "{second:?}");
    assert!(writes(&rig).iter().all(|write| !write.path.ends_with("start")), "it was not started");
}

/// How many requests that change something left after something changed, at once.
async fn tried_after(change: impl AsyncFnOnce(&Rig, &mut Engine), then: &str) -> usize {
    let rig = rig(4);
    no_start(&rig);
    let wanted = desired(RUN_102);
    let then = desired(then);
    let lived = rig.live(async |engine| {
        pass(engine, &wanted).await?;
        pass(engine, &wanted).await?;
        let before = writes(&rig).len();
        assert_eq!(before, 1, "it waits");
        change(&rig, engine).await;
        pass(engine, &then).await?;
        finish(engine).await?;
        Ok(writes(&rig).len() - before)
    });
    lived.await.unwrap().unwrap()
}

fn guest() -> GuestId {
    "lxc/102".parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_changed_is_tried_at_once() {
    assert_eq!(tried_after(async |_, _| {}, RUN_102).await, 0, "nothing changed");
    let edited = async |rig: &Rig, _: &mut Engine| {
        let set = [("net0".to_owned(), Some("name=eth0,bridge=vmbr0".to_owned()))].into();
        rig.node.with(|sim| sim.happen(Event::Edit { guest: guest(), set }));
    };
    assert_eq!(tried_after(edited, RUN_102).await, 1, "the guest's configuration changed");
    let stopped = "guest.102 = { kind = \"lxc\", run = \"running\", stop = \"force\" }";
    assert_eq!(tried_after(async |_, _| {}, stopped).await, 1, "the declaration changed");
    let asked = async |_: &Rig, engine: &mut Engine| {
        assert!(engine.retry(guest().vmid, "anna".to_owned()).await.unwrap());
        assert!(
            !engine.retry(guest().vmid, "anna".to_owned()).await.unwrap(),
            "nothing waits any more"
        );
    };
    assert_eq!(tried_after(asked, RUN_102).await, 1, "somebody asked");
}

#[tokio::test(start_paused = true)]
async fn a_person_who_makes_a_pass_waits_for_nothing() {
    let rig = rig(4);
    no_start(&rig);
    let wanted = desired(RUN_102);
    let lived = rig.live(async |engine| {
        pass(engine, &wanted).await?;
        let preview = engine
            .look(&wanted, PassScope::Whole, PassCause::Person)
            .await
            .map_err(|_| ())
            .unwrap();
        assert_eq!(preview.plan.runnable().count(), 1);
        let preview = engine
            .look(&wanted, PassScope::Whole, PassCause::Schedule)
            .await
            .map_err(|_| ())
            .unwrap();
        assert_eq!(preview.plan.runnable().count(), 0);
        Ok(())
    });
    lived.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_no_waiting_changes_waits_longest() {
    let rig = rig(4);
    // The node refuses the parameter with a 400.
    let wanted =
        desired("guest.100 = { kind = \"lxc\", net0 = { name = \"eth0\", bridge = \"vmbr77\" } }");
    let lived = rig.live(async |engine| passes(engine, &wanted, 59).await);
    lived.await.unwrap().unwrap();
    let tries = writes(&rig).len();
    let told = journal(&rig);
    assert_eq!(tries, 1, "{told:#?}");
    let failed =
        told.iter().find(|line| line["state"] == "failed").unwrap_or_else(|| panic!("{told:#?}"));
    assert_eq!(failed["tried"]["lasting"], true, "{failed:#}");
}

#[tokio::test(start_paused = true)]
async fn a_lock_file_that_is_never_free_is_not_tried_four_times_in_every_pause() {
    let rig = rig(4);
    let wanted = desired(CORES_100);
    let event = Event::HoldFileLock { guest: "lxc/100".parse().unwrap(), ms: 86_400_000 };
    rig.node.with(|sim| sim.happen(event));
    let lived = rig.live(async |engine| passes(engine, &wanted, DAY_MINUTES).await);
    lived.await.unwrap().unwrap();
    let tries = writes(&rig).len();
    assert!(tries <= 40, "{tries} tries");
    assert!(lines(&rig) <= 40 * 3, "{} lines for {tries} tries", lines(&rig));
}
