//! What ended tasks say: the cause of a failure, the warnings of a success, and a worker its daemon lost. On the real
//! engine against the simulator; what was sent is told by the node's own log.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use evenkeel_agent::engine::{
    KeptWarning, OpOutcome, Progress, Report, heard_warnings, kept_warnings,
};
use evenkeel_agent::journal::Files as _;
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_harness::Rig;
use evenkeel_harness::script::{
    desired, executed, fault, finish, journal, one_life, pass, put_guest, rig, states, until,
    writes,
};
use evenkeel_sim::{Effect, Fault, LostWorker};
use tokio::time::Instant;

const RUN_300: &str = "[guest.300]\nkind = \"qemu\"\nrun = \"running\"\n";
const STOP_102: &str = "guest.102 = { kind = \"lxc\", run = \"stopped\" }";
const RUN_102: &str = "guest.102 = { kind = \"lxc\", run = \"running\" }";

/// A node with a machine whose bridge is missing, which only the log of its start tells.
fn without_bridge() -> Rig {
    let rig = rig(2);
    put_guest(&rig, "qemu/300", &[("net0", "virtio=BC:24:11:00:00:01,bridge=vmbr9")], false);
    rig
}

fn failure(report: &Report) -> String {
    let OpOutcome::Failed { why } = &report.ops[0].end else {
        panic!("it did not fail: {report:?}");
    };
    why.clone()
}

fn warning(report: &Report) -> Option<String> {
    let OpOutcome::Succeeded { warning } = &report.ops[0].end else {
        panic!("it was not done: {report:?}");
    };
    warning.clone()
}

fn logs_read(rig: &Rig) -> usize {
    rig.node.with(|sim| sim.records().iter().filter(|sent| sent.path.ends_with("/log")).count())
}

/// A fault that meets the reading of logs.
fn log_fault(rig: &Rig, effect: Effect) {
    let contains = Some("/log".to_owned());
    let fault = Fault { effect, method: Some("GET".to_owned()), contains, times: None };
    rig.node.with(|sim| sim.inject(fault));
}

fn kept(rig: &Rig) -> Vec<KeptWarning> {
    kept_warnings(rig.open_journal(rig.disk.clone()).unwrap().state())
}

#[tokio::test(start_paused = true)]
async fn y21_a_failed_start_is_told_with_the_lines_before_its_last() {
    let rig = without_bridge();
    let why = failure(&one_life(&rig, RUN_300).await);
    assert!(why.starts_with("the task failed: start failed: QEMU exited with code 1; "), "{why}");
    assert!(why.contains("its log: bridge 'vmbr9' does not exist | kvm: -netdev"), "{why}");
    assert_eq!(logs_read(&rig), 1, "it is read once");
    let reason = journal(&rig).last().unwrap()["reason"].as_str().unwrap().to_owned();
    assert_eq!(reason, why, "the journal says the same");
    // What waits for its next try says why, in plan and status.
    let held = one_life(&rig, RUN_300).await;
    assert_eq!(held.holds[0].reason, ReasonCode::FailedBefore, "{held:?}");
    assert!(held.holds[0].why.contains("bridge 'vmbr9' does not exist"), "{held:?}");
    assert_eq!(logs_read(&rig), 1, "at rest nothing is read");
}

#[tokio::test(start_paused = true)]
async fn y21_a_log_that_hangs_or_cannot_be_read_leaves_the_exit_text_and_delays_nothing() {
    let odd = "{\"data\":{\"n\":1,\"t\":\"unable to open file - No such file or directory\"}}";
    for effect in [
        Effect::Latency { ms: 25_000 },
        Effect::DropBefore,
        Effect::ProxyStatus { status: 596, executed: false },
        Effect::Garbage { body: "<html>".to_owned() },
        Effect::Garbage { body: "{\"data\":[{}],\"total\":-7}".to_owned() },
        Effect::Garbage { body: odd.to_owned() },
    ] {
        let shown = format!("{effect:?}");
        let rig = without_bridge();
        log_fault(&rig, effect);
        let began = Instant::now();
        let why = failure(&one_life(&rig, RUN_300).await);
        let exit_alone = "the task failed; its log says why: start failed: QEMU exited with code 1";
        assert_eq!(why, exit_alone, "{shown}");
        assert!(began.elapsed() < Duration::from_secs(12), "{shown}: {:?}", began.elapsed());
        assert_eq!(states(&rig), ["started", "task_running", "failed"], "{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn y21_a_long_log_is_told_by_its_end_and_no_secret_of_it_is_kept() {
    let rig = rig(3);
    let mut lines: Vec<String> = (0..2_000).map(|at| format!("copying file {at}")).collect();
    lines.push("\u{1b}[31mlogin --password hunter2 refused,token=hunter2".to_owned());
    rig.node.with(|sim| {
        sim.inject(Effect::TaskLogs { lines }.on(":vzstart:102:"));
        sim.inject(Effect::TaskFails { message: "it went wrong".to_owned() }.on(":vzstart:102:"));
    });
    let why = failure(&one_life(&rig, RUN_102).await);
    let masked = "\\u{1b}[31mlogin --password ********** refused,token=**********";
    assert!(why.ends_with(&format!("copying file 1998 | copying file 1999 | {masked}")), "{why}");
    assert_eq!(logs_read(&rig), 2, "the begin, which tells how long it is, and the end");
    for name in rig.disk.list().unwrap() {
        let bytes = rig.disk.read(&name).unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains("hunter2"), "{name}");
    }
}

/// The agent dies between the end of its task and the record of it, with the log being read or not.
#[tokio::test(start_paused = true)]
async fn y21_what_is_recovered_is_told_with_its_log_too() {
    let rig = without_bridge();
    log_fault(&rig, Effect::Latency { ms: 2_000 });
    let wanted = desired(RUN_300);
    let life = rig.live(async |engine| pass(engine, &wanted).await);
    let read = |sim: &evenkeel_sim::Simulator| {
        sim.records().iter().any(|sent| sent.path.ends_with("/log"))
    };
    assert!(until(&rig, read, life).await.is_none());
    assert_eq!(states(&rig), ["started", "task_running"]);
    rig.live(async |engine| finish(engine).await).await.unwrap().unwrap();
    let last = journal(&rig).pop().unwrap();
    assert!(last["reason"].as_str().unwrap().contains("bridge 'vmbr9' does not exist"), "{last}");
}

const NOT_GROWN: &str = "Failed to update the container's filesystem: command failed: exit code 32";

fn grow(size: u64) -> String {
    format!("[guest.300]\nkind = \"lxc\"\nmp0 = \"tank:{size},mp=/data\"\n")
}

fn with_mount_point() -> Rig {
    let rig = rig(3);
    let mount = [
        ("arch", "amd64"),
        ("rootfs", "tank:subvol-300-disk-0,size=8G"),
        ("mp0", "tank:subvol-300-disk-1,mp=/data,size=8G"),
    ];
    put_guest(&rig, "lxc/300", &mount, false);
    rig
}

fn logs_once(rig: &Rig, tasks: &str, line: &str) {
    let lines = vec![line.to_owned()];
    let fault = Fault { times: Some(1), ..Effect::TaskLogs { lines }.on(tasks) };
    rig.node.with(|sim| sim.inject(fault));
}

#[tokio::test(start_paused = true)]
async fn y22_a_volume_that_grew_without_its_file_system_is_told_until_the_next_act_on_it() {
    let rig = with_mount_point();
    logs_once(&rig, ":resize:300:", NOT_GROWN);
    let report = one_life(&rig, &grow(16)).await;
    let told = warning(&report).unwrap();
    let words = "the volume of mp0 is 16 GiB, the file system inside is not; its log: Failed to";
    assert!(told.starts_with(words), "{told}");
    assert_eq!((report.succeeded, report.failed), (1, 0), "the volume is as declared");
    let line = journal(&rig).into_iter().rev().find(|line| line["type"] == "op").unwrap();
    assert_eq!(line["warning"].as_str(), Some(told.as_str()));
    let known = kept(&rig);
    assert_eq!(known.len(), 1);
    assert_eq!((known[0].slot.as_deref(), &known[0].warning), (Some("mp0"), &told));
    // At rest nothing is read or written, through any number of starts.
    let lines = journal(&rig).len();
    assert_eq!(one_life(&rig, &grow(16)).await.in_sync, 1);
    assert_eq!((journal(&rig).len(), kept(&rig)), (lines, known.clone()));
    // Another act on the guest mends nothing.
    let started = one_life(&rig, &format!("{}run = \"running\"\ncores = 1\n", grow(16))).await;
    assert_eq!((started.succeeded, kept(&rig)), (2, known), "{started:?}");
    // The next one on the volume does.
    let grown = one_life(&rig, &grow(17)).await;
    assert_eq!((grown.succeeded, warning(&grown), kept(&rig)), (1, None, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn y22_a_person_strikes_a_warning_out_that_was_heard() {
    let rig = with_mount_point();
    logs_once(&rig, ":resize:300:", NOT_GROWN);
    one_life(&rig, &grow(16)).await;
    let state = rig.open_journal(rig.disk.clone()).unwrap();
    let ours = "300".parse().unwrap();
    let other = "301".parse().unwrap();
    assert_eq!(heard_warnings(state.state(), other).len(), 0);
    assert_eq!(heard_warnings(state.state(), ours).len(), 1);
    drop(state);
    let heard = rig.live(async |engine| Ok(engine.retry(ours, "root".to_owned()).await)).await;
    assert!(heard.unwrap().unwrap().unwrap());
    assert_eq!(kept(&rig), Vec::new());
}

#[tokio::test(start_paused = true)]
async fn y22_what_the_log_of_a_move_or_a_start_warns_of_is_told() {
    let rig = with_mount_point();
    logs_once(&rig, ":move_volume:300:", "rsync: [sender] failed to set times on \"/x\"");
    let moved = "[guest.300]\nkind = \"lxc\"\nmp0 = \"local-lvm:8,mp=/data\"\n";
    let told = warning(&one_life(&rig, moved).await);
    assert_eq!(
        told.as_deref(),
        Some(
            "the task ended OK, but warns; its log: rsync: [sender] failed to set times on \"/x\""
        )
    );
    // A start that ends OK is not asked; one that ends with warnings says which.
    let read = logs_read(&rig);
    assert_eq!(warning(&one_life(&rig, RUN_102).await), None);
    assert_eq!(warning(&one_life(&rig, STOP_102).await), None);
    assert_eq!(logs_read(&rig), read);
    rig.node.with(|sim| sim.inject(Effect::TaskWarns { warnings: 1 }.on(":vzstart:102:")));
    let told = warning(&one_life(&rig, RUN_102).await);
    assert_eq!(
        told.as_deref(),
        Some("the task ended with warnings; its log: WARN: something is not as it should be")
    );
}

#[tokio::test(start_paused = true)]
async fn y23_a_lost_worker_that_did_nothing_is_looked_up_and_then_tried_again() {
    for worker in [LostWorker::Unborn, LostWorker::Killed, LostWorker::Orphaned] {
        let rig = rig(3);
        fault(&rig, Effect::WorkerLost { worker }, "POST", "/status/start", 1);
        let report = one_life(&rig, RUN_102).await;
        assert_eq!((report.succeeded, report.failed, report.started), (1, 0, 2), "{report:?}");
        let sent = writes(&rig);
        assert_eq!(sent.len(), 2, "{worker:?}");
        assert!(sent[1].at_ms >= sent[0].at_ms + 60_000, "{worker:?}: only once nothing can come");
        assert!(rig.node.with(|sim| sim.world.guests[&102].power.is_running()));
        let told = rig.progress.lock().unwrap().iter().any(|told| {
            matches!(told, Progress::Waiting { why, .. } if why.starts_with("Proxmox lost the worker"))
        });
        assert!(told, "{worker:?}");
        // It is forgotten by the success: nothing waits.
        assert_eq!(one_life(&rig, RUN_102).await.in_sync, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn y23_a_lost_worker_that_works_is_found_and_nothing_is_sent_again() {
    let rig = rig(3);
    let working = Effect::WorkerLost { worker: LostWorker::Working };
    fault(&rig, working, "POST", "/status/start", 1);
    let report = one_life(&rig, RUN_102).await;
    assert_eq!((report.succeeded, report.started), (1, 1), "{report:?}");
    assert_eq!(writes(&rig).len(), 1);
    assert_eq!(states(&rig), ["started", "task_running", "succeeded"]);
}

#[tokio::test(start_paused = true)]
async fn y23_a_worker_that_is_lost_again_and_again_is_tried_with_the_pauses_of_a_failure() {
    let rig = rig(3);
    let lost = Effect::WorkerLost { worker: LostWorker::Killed };
    fault(&rig, lost, "POST", "/status/start", 100);
    let wanted = desired(RUN_102);
    let life = rig.live(async |engine| {
        for _ in 0..90 {
            pass(engine, &wanted).await?;
            tokio::time::sleep(Duration::from_mins(1)).await;
        }
        Ok(())
    });
    life.await.unwrap().unwrap();
    let sent = writes(&rig);
    assert!((3..=10).contains(&sent.len()), "{}", sent.len());
    let pauses: Vec<u64> = sent.windows(2).map(|two| two[1].at_ms - two[0].at_ms).collect();
    assert!(pauses.iter().all(|pause| *pause >= 60_000), "{pauses:?}");
}

#[tokio::test(start_paused = true)]
async fn y23_a_crash_after_a_lost_worker_is_settled_by_the_task_list() {
    for worker in [LostWorker::Killed, LostWorker::Working] {
        let rig = rig(3);
        fault(&rig, Effect::WorkerLost { worker }, "POST", "/status/start", 1);
        let wanted = desired(RUN_102);
        let life = rig.live(async |engine| pass(engine, &wanted).await);
        let answered = |sim: &evenkeel_sim::Simulator| {
            executed(sim) || sim.records().iter().any(|sent| sent.status == Some(500))
        };
        assert!(until(&rig, answered, life).await.is_none());
        rig.live(async |engine| finish(engine).await).await.unwrap().unwrap();
        assert_eq!(writes(&rig).len(), 1, "{worker:?}");
        let end = if worker == LostWorker::Working { "succeeded" } else { "failed" };
        assert_eq!(states(&rig), ["started", "task_running", end], "{worker:?}");
    }
}

/// A making whose worker was killed leaves a stub: that is told as what it is, and not made again beside it.
#[tokio::test(start_paused = true)]
async fn y23_a_making_whose_worker_was_lost_is_not_sent_again_over_what_it_left() {
    let rig = rig(2);
    let wanted = "[guest.400]\nkind = \"lxc\"\nrootfs = { storage = \"local-lvm\", size = \"1GiB\" }\n\
                  source = { template = \"local:vztmpl/debian-12-standard_12.7-1_amd64.tar.zst\" }\n";
    let lost = Effect::WorkerLost { worker: LostWorker::Killed };
    fault(&rig, lost, "POST", "/pve1/lxc", 1);
    let report = one_life(&rig, wanted).await;
    assert_eq!((report.succeeded, report.started), (0, 1), "{report:?}");
    let creates = writes(&rig).iter().filter(|sent| sent.method == "POST").count();
    assert_eq!(creates, 1);
    assert!(failure(&report).contains("half way"), "{report:?}");
}
