//! The engine against the simulator, one rule a test.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::time::Duration;

use evenkeel_agent::engine::{OpOutcome, Report};
use evenkeel_agent::journal::Files;
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_core::operate::lane::SYNC_WRITES_PER_NODE_MAX;
use evenkeel_harness::script::{begin, desired, fault, finish, journal, pass, rig, states, writes};
use evenkeel_harness::{PanicPoint, Rig};
use evenkeel_sim::{Effect, Event as Happens};

const CORES_100: &str = "guest.100 = { kind = \"lxc\", cores = 3 }";
const RUN_102: &str = "guest.102 = { kind = \"lxc\", run = \"running\" }";

/// One pass in one life, to its end; `meanwhile` happens one second after it has begun.
async fn one_pass(rig: &Rig, wanted: &str, meanwhile: impl FnOnce(&Rig)) -> Report {
    let wanted = desired(wanted);
    let lived = rig.live(async |engine| pass(engine, &wanted).await);
    let other = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        meanwhile(rig);
        std::future::pending::<()>().await;
    };
    tokio::select! {
        report = lived => report.unwrap().unwrap(),
        () = other => unreachable!("it never ends"),
    }
}

fn happen(rig: &Rig, event: Happens) {
    rig.node.with(|sim| sim.happen(event));
}

fn edit(guest: &str, key: &str, value: &str) -> Happens {
    let set = [(key.to_owned(), Some(value.to_owned()))].into();
    Happens::Edit { guest: guest.parse().unwrap(), set }
}

#[tokio::test(start_paused = true)]
async fn drift_is_healed_and_then_nothing_is_sent() {
    let rig = rig(4);
    let wanted = desired(CORES_100);
    let lived = rig.live(async |engine| {
        let first = pass(engine, &wanted).await?;
        Ok((first, pass(engine, &wanted).await?))
    });
    let (first, second) = lived.await.unwrap().unwrap();
    assert_eq!((first.planned, first.started, first.succeeded), (1, 1, 1), "{first:?}");
    assert_eq!((second.planned, second.in_sync), (0, 1), "{second:?}");
    assert_eq!(writes(&rig).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn two_requests_that_change_something_are_in_flight_at_a_time_and_no_more() {
    let rig = rig(12);
    fault(&rig, Effect::Latency { ms: 5_000 }, "PUT", "/config", 100);
    let mut wanted = String::new();
    for vmid in (100..112).step_by(2) {
        writeln!(wanted, "guest.{vmid} = {{ kind = \"lxc\", description = \"mine\" }}").unwrap();
    }
    let report = one_pass(&rig, &wanted, |_| {}).await;
    assert_eq!(report.succeeded, 6, "{report:?}");
    let sent = writes(&rig);
    let at_a_time = |at: u64| {
        let during = |other: &&evenkeel_sim::RequestRecord| {
            other.at_ms <= at && other.ended_ms.is_some_and(|ended| at < ended)
        };
        sent.iter().filter(during).count()
    };
    let most = sent.iter().map(|record| at_a_time(record.at_ms)).max();
    assert_eq!(most, Some(SYNC_WRITES_PER_NODE_MAX), "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_hangs_delays_no_other_guest_and_no_pass() {
    let rig = rig(4);
    happen(&rig, Happens::IgnoreShutdown { guest: "qemu/101".parse().unwrap(), ignores: true });
    let hangs = "guest.101 = { kind = \"qemu\", run = \"stopped\" }";
    let wanted = desired(&format!("{hangs}\n{CORES_100}"));
    let lived = rig.live(async |engine| {
        let began = tokio::time::Instant::now();
        begin(engine, &wanted).await?;
        // The write of the other guest is done although the shutdown goes on for three minutes.
        engine.work().await?;
        let second = begin(engine, &wanted).await?;
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        let busy = second.plan.guests.iter().filter(|guest| guest.busy.is_some()).count();
        assert_eq!((busy, second.plan.in_sync), (1, 1), "{:?}", second.plan);
        finish(engine).await
    });
    lived.await.unwrap().unwrap();
    let told: Vec<String> = writes(&rig).into_iter().map(|record| record.path).collect();
    assert_eq!(told.iter().filter(|path| path.ends_with("shutdown")).count(), 1, "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_panics_harms_no_other_and_is_settled_by_evidence() {
    for panics in [PanicPoint::BeforeSending, PanicPoint::AfterAnswer] {
        let rig = rig(4);
        rig.wire.panic_once(panics);
        let wanted = desired(&format!("{CORES_100}\nguest.102 = {{ kind = \"lxc\", cores = 4 }}"));
        let lived = rig.live(async |engine| {
            let report = pass(engine, &wanted).await?;
            finish(engine).await?;
            let again = pass(engine, &wanted).await?;
            Ok((report, again))
        });
        let (report, again) = lived.await.unwrap().unwrap();
        assert_eq!((report.succeeded, report.failed), (1, 1), "{report:?}");
        let sent_again = usize::from(panics == PanicPoint::BeforeSending);
        assert_eq!((again.succeeded, again.failed), (sent_again, 0), "{again:?}");
        assert_eq!(writes(&rig).len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_panics_at_its_second_try_keeps_its_lane_shut() {
    let rig = rig(3);
    let guest = "lxc/100".parse().unwrap();
    happen(&rig, Happens::HoldFileLock { guest, ms: 11_000 });
    let wanted = desired(CORES_100);
    let lived = rig.live(async |engine| {
        begin(engine, &wanted).await?;
        // The first try fails for the lock file; then somebody's panic meets the second.
        let early = tokio::time::timeout(Duration::from_secs(11), engine.work()).await;
        assert!(early.is_err(), "{early:?}");
        rig.wire.panic_once(PanicPoint::AfterAnswer);
        engine.work().await?;
        assert!(engine.busy(guest.vmid).is_some(), "its request has left");
        finish(engine).await
    });
    lived.await.unwrap().unwrap();
    assert_eq!(states(&rig), ["started", "failed", "started", "succeeded"]);
    assert_eq!(writes(&rig).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_was_refused_and_yet_applied_is_a_success_with_a_word() {
    let rig = rig(3);
    // PVE stores the file and only then notices that it cannot make LXC's own out of it.
    rig.node.with(|sim| sim.world.bridges.clear());
    let report = one_pass(&rig, CORES_100, |_| {}).await;
    assert_eq!((report.succeeded, report.failed), (1, 0), "{report:?}");
    let OpOutcome::Succeeded { warning: Some(warning) } = &report.ops[0].end else {
        panic!("{report:?}")
    };
    assert!(warning.contains("bridge"), "{warning}");
    assert_eq!(writes(&rig)[0].status, Some(500));
    assert_eq!(states(&rig), ["started", "succeeded"]);
}

#[tokio::test(start_paused = true)]
async fn already_running_is_what_was_wanted() {
    let rig = rig(3);
    fault(&rig, Effect::Latency { ms: 2_000 }, "POST", "/status/start", 1);
    let guest = "lxc/102".parse().unwrap();
    let started = |rig: &Rig| happen(rig, Happens::Power { guest, running: true });
    let report = one_pass(&rig, RUN_102, started).await;
    assert_eq!(report.ops[0].end, OpOutcome::Succeeded { warning: None }, "{report:?}");
    assert_eq!(writes(&rig)[0].status, Some(500));
}

#[tokio::test(start_paused = true)]
async fn a_task_that_ends_with_warnings_is_a_success_with_a_warning() {
    let rig = rig(6);
    happen(&rig, edit("qemu/105", "scsihw", "lsi"));
    let report = one_pass(&rig, "guest.105 = { kind = \"qemu\", run = \"running\" }", |_| {}).await;
    let OpOutcome::Succeeded { warning: Some(warning) } = &report.ops[0].end else {
        panic!("{report:?}")
    };
    assert!(warning.contains("warnings"), "{warning}");
    assert_eq!(states(&rig), ["started", "task_running", "succeeded"]);
}

#[tokio::test(start_paused = true)]
async fn a_lock_file_that_is_taken_is_tried_again_under_a_new_name() {
    let rig = rig(3);
    happen(&rig, Happens::HoldFileLock { guest: "lxc/100".parse().unwrap(), ms: 11_000 });
    let report = one_pass(&rig, CORES_100, |_| {}).await;
    assert_eq!((report.succeeded, report.started), (1, 2), "{report:?}");
    assert_eq!(states(&rig), ["started", "failed", "started", "succeeded"]);
    let lines = journal(&rig);
    let names: std::collections::BTreeSet<_> =
        lines.iter().filter_map(|line| line["op"].as_str()).collect();
    assert_eq!(names.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_change_by_somebody_else_between_read_and_write_is_read_and_tried_again() {
    let rig = rig(3);
    fault(&rig, Effect::Latency { ms: 2_000 }, "PUT", "/lxc/100/config", 1);
    let report = one_pass(&rig, CORES_100, |rig| happen(rig, edit("lxc/100", "onboot", "1"))).await;
    assert_eq!((report.succeeded, report.started), (1, 2), "{report:?}");
    let found = rig.node.with(|sim| sim.world.guests[&100].config.active.clone());
    assert_eq!((found["cores"].as_str(), found["onboot"].as_str()), ("3", "1"));
}

#[tokio::test(start_paused = true)]
async fn what_somebody_else_did_meanwhile_is_not_done_again() {
    let rig = rig(3);
    fault(&rig, Effect::Latency { ms: 3_000 }, "GET", "/lxc/100/status/current", 1);
    let report = one_pass(&rig, CORES_100, |rig| happen(rig, edit("lxc/100", "cores", "3"))).await;
    assert_eq!(report.ops[0].end, OpOutcome::Unneeded, "{report:?}");
    assert_eq!(writes(&rig).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_no_longer_fits_is_stale_and_not_sent() {
    let rig = rig(3);
    fault(&rig, Effect::Latency { ms: 3_000 }, "GET", "/lxc/100/status/current", 1);
    let wanted = "guest.100 = { kind = \"lxc\", cores = 3, memory = 2048 }";
    happen(&rig, edit("lxc/100", "memory", "2048"));
    happen(&rig, edit("lxc/100", "cores", "1"));
    let report = one_pass(&rig, wanted, |rig| happen(rig, edit("lxc/100", "memory", "64"))).await;
    assert!(matches!(report.ops[0].end, OpOutcome::Stale { .. }), "{report:?}");
    assert_eq!(writes(&rig).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_locked_guest_is_left_alone_whenever_the_lock_came() {
    let guest = "lxc/100".parse().unwrap();
    let lock = Happens::Lock { guest, lock: Some("backup".to_owned()) };
    let before = rig(3);
    happen(&before, lock.clone());
    let report = one_pass(&before, CORES_100, |_| {}).await;
    assert_eq!((report.held, report.holds[0].reason), (1, ReasonCode::Locked), "{report:?}");
    assert_eq!(writes(&before).len(), 0);

    let between = rig(3);
    fault(&between, Effect::Latency { ms: 3_000 }, "GET", "/lxc/100/status/current", 1);
    let report = one_pass(&between, CORES_100, |rig| happen(rig, lock)).await;
    assert_eq!(report.held, 1, "{report:?}");
    assert!(matches!(report.ops[0].end, OpOutcome::Held { reason: ReasonCode::Locked, .. }));
    assert_eq!(writes(&between).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_day_of_rest_sends_nothing_and_grows_no_journal() {
    let rig = rig(8);
    let wanted = desired(&format!(
        "{CORES_100}\n{RUN_102}\nguest.103 = {{ kind = \"qemu\", state = \"absent\" }}"
    ));
    let bytes =
        || rig.disk.list().unwrap().iter().map(|n| rig.disk.read(n).unwrap().len()).sum::<usize>();
    let lived = rig.live(async |engine| {
        pass(engine, &wanted).await?;
        let before = (writes(&rig).len(), bytes(), rig.disk.calls());
        for _ in 0..24 * 12 {
            tokio::time::sleep(Duration::from_mins(5)).await;
            let report = pass(engine, &wanted).await?;
            assert_eq!((report.planned, report.held), (1, 1), "the destroy waits for a signature");
        }
        assert_eq!((writes(&rig).len(), bytes(), rig.disk.calls()), before);
        Ok(())
    });
    lived.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_thousand_guests_with_a_tenth_adrift_converge() {
    let rig = rig(1_000);
    let mut text = String::new();
    for vmid in 100..1_100 {
        let kind = if vmid % 2 == 0 { "lxc" } else { "qemu" };
        let cores = rig.node.with(|sim| sim.world.guests[&vmid].config.active["cores"].clone());
        let cores: u32 = cores.parse().unwrap();
        let cores = if vmid % 10 == 0 { cores % 4 + 1 } else { cores };
        // A guest with a change that waits is not the tenth we mean.
        if rig.node.with(|sim| sim.world.guests[&vmid].config.pending.is_empty()) {
            writeln!(text, "guest.{vmid} = {{ kind = \"{kind}\", cores = {cores} }}").unwrap();
        }
    }
    let wanted = desired(&text);
    let lived = rig.live(async |engine| {
        let first = pass(engine, &wanted).await?;
        Ok((first, pass(engine, &wanted).await?))
    });
    let (first, second) = lived.await.unwrap().unwrap();
    assert!(first.planned >= 80 && first.succeeded + first.held == first.planned, "{first:?}");
    assert_eq!((second.planned, second.held), (first.held, first.held), "{second:?}");
    assert_eq!(writes(&rig).len(), first.succeeded);
}
