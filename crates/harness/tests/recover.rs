//! Recovery on the real engine: what became of an operation is found out, never guessed, never repeated.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use evenkeel_agent::engine::{EngineEvent, OpOutcome, PassError};
use evenkeel_agent::journal::Files;
use evenkeel_harness::Rig;
use evenkeel_harness::script::{
    begin, desired, executed, fault, finish, journal, pass, polls, rig, somebody_sends, states,
    until, writes,
};
use evenkeel_sim::{Effect, Event as Happens, Simulator};

const RUN_102: &str = "guest.102 = { kind = \"lxc\", run = \"running\" }";
const STOP_101: &str = "guest.101 = { kind = \"qemu\", run = \"stopped\" }";
const CORES_100: &str = "guest.100 = { kind = \"lxc\", cores = 3 }";

/// One pass in one life, to its end.
async fn one_pass(rig: &Rig, wanted: &str) -> evenkeel_agent::engine::Report {
    let wanted = desired(wanted);
    rig.live(async |engine| pass(engine, &wanted).await).await.unwrap().unwrap()
}

/// A life that only takes up what was in flight.
async fn recover(rig: &Rig) {
    rig.live(async |engine| finish(engine).await).await.unwrap().unwrap();
}

fn is_running(sim: &Simulator, vmid: u32) -> bool {
    sim.world.guests[&vmid].power.is_running()
}

#[tokio::test(start_paused = true)]
async fn a_task_that_forks_late_is_adopted_and_nothing_is_sent_again() {
    let rig = rig(3);
    fault(&rig, Effect::LateFork { ms: 50_000 }, "POST", "/status/start", 1);
    let report = one_pass(&rig, RUN_102).await;
    assert_eq!((report.succeeded, report.started), (1, 1), "{report:?}");
    assert_eq!(writes(&rig).len(), 1);
    assert_eq!(states(&rig), ["started", "task_running", "succeeded"]);
    assert_eq!(report.ops[0].upid.as_ref().unwrap().task_type(), "vzstart");
}

#[tokio::test(start_paused = true)]
async fn an_answer_lost_before_execution_is_a_failure_only_after_a_minute() {
    let rig = rig(3);
    fault(&rig, Effect::DropBefore, "POST", "/status/start", 1);
    let report = one_pass(&rig, RUN_102).await;
    assert_eq!((report.failed, report.succeeded), (1, 0), "{report:?}");
    tokio::time::sleep(Duration::from_secs(70)).await;
    let report = one_pass(&rig, RUN_102).await;
    assert_eq!(report.succeeded, 1, "{report:?}");
    let sent = writes(&rig);
    assert_eq!(sent.len(), 2);
    assert!(sent[1].at_ms >= sent[0].at_ms + 60_000, "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_lost_after_execution_is_a_success_by_what_the_guest_shows() {
    let rig = rig(3);
    fault(&rig, Effect::DropAfter, "PUT", "/lxc/100/config", 1);
    let report = one_pass(&rig, CORES_100).await;
    assert_eq!((report.succeeded, report.started), (1, 1), "{report:?}");
    assert_eq!(writes(&rig).len(), 1);
    assert_eq!(states(&rig), ["started", "succeeded"]);
}

/// All three workers of the node hang for four minutes, and the write waits for one of them: it is carried out when nobody
/// waits for its answer any more, later than a minute after it was sent.
async fn taken_late(rig: &Rig, wanted: &str, guest: &str) -> evenkeel_agent::engine::Report {
    let wanted = desired(wanted);
    let hangs = Happens::StorageHangs { storage: "tank".into(), ms: Some(240_000), lists: false };
    rig.node.with(|sim| sim.happen(hangs));
    let pending = format!("/{guest}/pending");
    let life = rig.live(async |engine| {
        // The gate's own readings come first: another client takes the workers when the write is about to leave.
        let mut passing = std::pin::pin!(pass(engine, &wanted));
        let reads = |sim: &Simulator| {
            sim.records().iter().filter(|record| record.path.ends_with(&pending)).count()
        };
        while rig.node.with(|sim| reads(sim)) < 2 {
            let polled = tokio::time::timeout(Duration::ZERO, passing.as_mut()).await;
            assert!(polled.is_err(), "the write has left");
        }
        for _ in 0..3 {
            somebody_sends(rig, "GET", "storage/tank/content", &[]);
        }
        passing.await
    });
    let report = life.await.unwrap().unwrap();
    let sent = writes(rig);
    assert_eq!(sent.len(), 1, "{sent:?}");
    assert!(sent[0].executed_ms.unwrap() > sent[0].at_ms + 100_000, "it waited: {sent:?}");
    report
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_a_worker_of_the_node_is_not_given_up_before_it_was_taken() {
    let rig = rig(3);
    let report = taken_late(&rig, CORES_100, "lxc/100").await;
    assert_eq!((report.succeeded, report.failed), (1, 0), "{report:?}");
    assert_eq!(states(&rig), ["started", "succeeded"]);
}

/// Its task may fork up to a minute after the node took it. A task that began so long after the request may be another's:
/// nobody knows, the lane stays shut, and nothing calls the act failed.
#[tokio::test(start_paused = true)]
async fn a_request_that_was_taken_late_has_a_whole_minute_from_there() {
    let rig = rig(3);
    fault(&rig, Effect::LateFork { ms: 50_000 }, "POST", "/status/start", 1);
    let report = taken_late(&rig, RUN_102, "lxc/102").await;
    assert!(matches!(report.ops[0].end, OpOutcome::Unknown { .. }), "{report:?}");
    assert!(rig.node.with(|sim| is_running(sim, 102)));
}

/// The clock of this host is a day wrong when it starts again: waits are the node's, and the lane opens in time.
#[tokio::test(start_paused = true)]
async fn a_clock_that_is_wrong_at_a_restart_does_not_lengthen_the_wait_for_a_lost_answer() {
    for off_s in [-90_000, 90_000] {
        let rig = rig(3);
        let wanted = desired(
            "guest.100 = { kind = \"lxc\", mp1 = { storage = \"tank\", size = \"1GiB\", mp = \"/srv\" } }",
        );
        let life = rig.live(async |engine| pass(engine, &wanted).await);
        assert!(until(&rig, executed, life).await.is_none());
        rig.ambient.set_off(off_s);
        let recovered = rig.live(async |engine| {
            while engine.is_settling() {
                engine.work().await?;
            }
            Ok(())
        });
        let recovered = tokio::time::timeout(Duration::from_mins(5), recovered).await;
        recovered.unwrap().unwrap().unwrap();
        assert_eq!(states(&rig), ["started", "succeeded"], "{off_s} s off");
        assert_eq!(writes(&rig).len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_matching_tasks_none_is_adopted_and_the_lane_stays_shut_while_one_runs() {
    let rig = rig(3);
    rig.node.with(|sim| sim.timings.shutdown_ms = 150_000);
    somebody_sends(&rig, "POST", "qemu/101/status/shutdown", &[("timeout", "180")]);
    fault(&rig, Effect::DropAfter, "POST", "/status/shutdown", 1);
    let wanted = desired(STOP_101);
    let lived = rig.live(async |engine| {
        let report = pass(engine, &wanted).await?;
        assert_eq!((report.failed, report.started), (1, 1), "{report:?}");
        // The first of the two works for two and a half minutes; every pass looks and leaves the guest alone.
        for _ in 0..4 {
            tokio::time::sleep(Duration::from_secs(20)).await;
            let planned = begin(engine, &wanted).await?.plan;
            let busy = planned.guests.iter().any(|guest| guest.busy.is_some());
            let running = rig.node.with(|sim| is_running(sim, 101));
            assert!(busy || !running, "{planned:?}");
            let look = Duration::from_secs(10);
            while let Ok(event) = tokio::time::timeout(look, engine.work()).await {
                let settled = matches!(event?, EngineEvent::Settled(_));
                assert!(!settled || !rig.node.with(|sim| is_running(sim, 101)));
            }
        }
        tokio::time::sleep(Duration::from_secs(100)).await;
        begin(engine, &wanted).await?;
        finish(engine).await
    });
    lived.await.unwrap().unwrap();
    assert_eq!(writes(&rig).len(), 2, "one of them is somebody else's");
    assert_eq!(states(&rig), ["started", "unknown", "succeeded"]);
    let lines = journal(&rig);
    let doubt = lines.iter().find(|line| line["state"] == "unknown").unwrap();
    assert!(doubt["reason"].as_str().unwrap().contains("more than one task"), "{doubt}");
}

#[tokio::test(start_paused = true)]
async fn a_task_of_somebody_with_our_token_does_no_harm_when_it_is_taken_for_ours() {
    let rig = rig(3);
    fault(&rig, Effect::DropBefore, "POST", "/status/start", 1);
    let wanted = desired(RUN_102);
    let lived = rig.live(async |engine| {
        begin(engine, &wanted).await?;
        let early = tokio::time::timeout(Duration::from_secs(5), engine.work()).await;
        assert!(early.is_err(), "{early:?}");
        somebody_sends(&rig, "POST", "lxc/102/status/start", &[]);
        finish(engine).await
    });
    lived.await.unwrap().unwrap();
    assert_eq!(writes(&rig).len(), 2, "one of them is somebody else's");
    assert!(rig.node.with(|sim| is_running(sim, 102)));
    assert_eq!(states(&rig), ["started", "task_running", "succeeded"]);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_was_found_closes_nothing_while_our_own_may_still_come() {
    let rig = rig(3);
    // Somebody's start fails; ours, whose answer is lost, forks half a minute later and works for a while.
    rig.node.with(|sim| {
        sim.timings.start_ms = 40_000;
        sim.inject(Effect::TaskFails { message: "somebody's went wrong".to_owned() }.once());
    });
    somebody_sends(&rig, "POST", "lxc/102/status/start", &[]);
    fault(&rig, Effect::LateFork { ms: 50_000 }, "POST", "/status/start", 1);
    let report = one_pass(&rig, RUN_102).await;
    assert_eq!((report.started, report.succeeded), (1, 0), "{report:?}");
    let sent = writes(&rig);
    let at_work = rig.node.with(|sim| sim.is_running(sent[1].upid.as_ref().unwrap()));
    assert!(!at_work || states(&rig).last().unwrap() == "unknown", "{:?}", states(&rig));
    recover(&rig).await;
    assert_eq!(states(&rig), ["started", "task_running", "unknown", "succeeded"]);
    assert_eq!(writes(&rig).len(), 2, "one of them is somebody else's");
}

#[tokio::test(start_paused = true)]
async fn a_task_the_node_has_forgotten_is_judged_by_the_guest() {
    for (runs, last) in [(true, "succeeded"), (false, "failed")] {
        let rig = rig(3);
        let wanted = desired(RUN_102);
        let known = |rig: &Rig| states(rig).contains(&"task_running".to_owned());
        let life = rig.live(async |engine| pass(engine, &wanted).await);
        assert!(until(&rig, |_| known(&rig), life).await.is_none(), "it was killed");
        tokio::time::sleep(Duration::from_secs(10)).await;
        rig.node.with(|sim| {
            sim.happen(Happens::ForgetTasks);
            sim.happen(Happens::Power { guest: "lxc/102".parse().unwrap(), running: runs });
        });
        recover(&rig).await;
        assert_eq!(states(&rig), ["started", "task_running", last]);
        assert_eq!(writes(&rig).len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_ended_while_the_agent_was_dead_is_told_as_it_ended() {
    let failed = Effect::TaskFails { message: "startup for container '102' failed".to_owned() };
    for (effect, last, words) in [
        (None, "succeeded", ""),
        (Some(failed), "failed", "startup for container"),
        (Some(Effect::TaskKilled), "failed", "not as it should be"),
    ] {
        let rig = rig(3);
        if let Some(effect) = effect {
            rig.node.with(|sim| sim.inject(effect.once()));
        }
        let wanted = desired(RUN_102);
        let life = rig.live(async |engine| pass(engine, &wanted).await);
        assert!(until(&rig, executed, life).await.is_none(), "it was killed");
        tokio::time::sleep(Duration::from_secs(30)).await;
        recover(&rig).await;
        let lines = journal(&rig);
        assert_eq!(lines.last().unwrap()["state"], last, "{lines:?}");
        assert!(lines.last().unwrap()["reason"].as_str().unwrap_or("").contains(words));
        assert_eq!(writes(&rig).len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_down_at_the_start_delays_nobody_but_the_guest_in_flight() {
    let rig = rig(3);
    let wanted = desired(RUN_102);
    let life = rig.live(async |engine| pass(engine, &wanted).await);
    assert!(until(&rig, executed, life).await.is_none(), "it was killed");
    rig.wire.set_down(true);
    let both = desired(&format!("{RUN_102}\n{CORES_100}"));
    let lived = rig.live(async |engine| {
        let hour = Duration::from_hours(1);
        assert!(tokio::time::timeout(hour, engine.work()).await.is_err(), "nothing can be known");
        assert!(matches!(engine.pass(&both).await, Err(PassError::Actual(_))));
        // Now everything answers but what recovery asks first.
        rig.wire.set_down(false);
        rig.node.with(|sim| {
            sim.inject(Effect::ProxyStatus { status: 596, executed: false }.on("/tasks"));
        });
        let report = pass(engine, &both).await?;
        assert_eq!((report.succeeded, report.held), (1, 1), "{report:?}");
        rig.node.with(Simulator::clear_faults);
        loop {
            if let EngineEvent::Settled(operation) = engine.work().await? {
                return Ok(operation.intent.guest);
            }
        }
    });
    assert_eq!(lived.await.unwrap().unwrap().to_string(), "lxc/102");
    assert_eq!(writes(&rig).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn recovery_that_dies_twenty_times_sends_nothing_and_writes_nothing_more_each_time() {
    let rig = rig(3);
    fault(&rig, Effect::DropAfter, "PUT", "/lxc/100/config", 1);
    let wanted = desired(CORES_100);
    let life = rig.live(async |engine| pass(engine, &wanted).await);
    assert!(until(&rig, executed, life).await.is_none(), "it was killed");
    let bytes =
        || rig.disk.list().unwrap().iter().map(|n| rig.disk.read(n).unwrap().len()).sum::<usize>();
    let before = bytes();
    for round in 1..=20 {
        let life = rig.live(async |engine| finish(engine).await);
        assert!(polls(round % 5 + 1, life).await.is_none(), "it was killed");
        assert_eq!(bytes(), before, "round {round}");
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    recover(&rig).await;
    assert_eq!(states(&rig), ["started", "succeeded"]);
    assert_eq!(writes(&rig).len(), 1);
    let after = bytes();
    recover(&rig).await;
    assert_eq!(bytes(), after, "recovering again is recovering once");
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_took_the_number_meanwhile_is_left_to_the_operator() {
    let rig = rig(3);
    let wanted = desired(RUN_102);
    fault(&rig, Effect::DropBefore, "POST", "/status/start", 1);
    let life = rig.live(async |engine| pass(engine, &wanted).await);
    let sent = |sim: &Simulator| sim.records().iter().any(|record| record.mutating);
    assert!(until(&rig, sent, life).await.is_none(), "it was killed");
    rig.node.with(|sim| sim.happen(Happens::Reuse { guest: "lxc/102".parse().unwrap() }));
    recover(&rig).await;
    assert_eq!(states(&rig), ["started", "unknown"]);
    let report = one_pass(&rig, RUN_102).await;
    assert_eq!((report.held, report.started), (1, 0), "{report:?}");
    assert_eq!(writes(&rig).len(), 1);
}
