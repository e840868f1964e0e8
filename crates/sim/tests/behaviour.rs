//! Time, locks, workers, tasks, faults, events and the request log, on a paused clock.

use std::time::Duration;

use evenkeel_core::model::id::GuestId;
use evenkeel_core::model::release::Release;
use evenkeel_sim::{
    Effect, Event, InProcess, LostWorker, Reply, Scenario, SimOutcome, SimRequest, Simulator,
    TOKENS,
};
use serde_json::{Value, json};
use tokio::time::Instant;

fn id(text: &str) -> GuestId {
    text.parse().expect("a guest")
}

fn crowd(guests: u32) -> Simulator {
    Simulator::new(Scenario { guests, ..Scenario::default() }.build())
}

/// A node with two stopped containers (100, 102) and a stopped machine (101), nothing odd.
fn plain() -> Simulator {
    let mut sim = crowd(3);
    for guest in sim.world.guests.values_mut() {
        guest.power = evenkeel_sim::SimPower::Stopped;
        guest.config.pending.clear();
    }
    sim
}

fn root(method: &str, path: &str) -> SimRequest {
    let (name, secret, _) = TOKENS[0];
    SimRequest::new(method, &format!("/api2/json{path}")).token(&format!("{name}={secret}"))
}

fn node(path: &str) -> String {
    format!("/nodes/pve1{path}")
}

async fn send(sim: &InProcess, request: SimRequest) -> Reply {
    match sim.send(request).await {
        SimOutcome::Reply(reply) => reply,
        other @ (SimOutcome::Dropped | SimOutcome::Wait { .. }) => panic!("no answer: {other:?}"),
    }
}

async fn data(sim: &InProcess, request: SimRequest) -> Value {
    send(sim, request).await.json().map(|body| body["data"].clone()).unwrap_or_default()
}

async fn exit_of(sim: &InProcess, upid: &str) -> String {
    for _ in 0..200 {
        let status = data(sim, root("GET", &node(&format!("/tasks/{upid}/status")))).await;
        if let Some(exit) = status["exitstatus"].as_str() {
            return exit.to_owned();
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    panic!("{upid} did not end");
}

fn put_description(guest: &str) -> SimRequest {
    root("PUT", &node(&format!("/{guest}/config"))).form(&[("description", "x")])
}

#[tokio::test(start_paused = true)]
async fn a_write_waits_ten_seconds_for_the_file_lock_and_then_fails() {
    let sim = InProcess::new(plain());
    sim.with(|sim| sim.happen(Event::HoldFileLock { guest: id("lxc/100"), ms: 14_000 }));
    let began = Instant::now();
    let reply = send(&sim, put_description("lxc/100")).await;
    assert_eq!(reply.reason, "can't lock file '/run/lock/lxc/pve-config-100.lock' - got timeout");
    assert_eq!((reply.status, began.elapsed().as_secs()), (500, 10));
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(send(&sim, put_description("lxc/100")).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn three_blocked_writes_stall_every_protected_call_but_no_other() {
    let sim = InProcess::new(plain());
    sim.with(|sim| sim.happen(Event::HoldFileLock { guest: id("lxc/100"), ms: 60_000 }));
    let began = Instant::now();
    let blocked: Vec<_> = (0..3)
        .map(|_| {
            let sim = sim.clone();
            tokio::spawn(async move { send(&sim, put_description("lxc/100")).await.status })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    send(&sim, root("GET", &node("/lxc/100/config"))).await;
    assert_eq!(began.elapsed().as_secs(), 1, "reads of the front proxy go on");
    send(&sim, root("GET", &node("/lxc"))).await;
    assert_eq!(began.elapsed().as_secs(), 10, "the list needs a worker");
    for task in blocked {
        assert_eq!(task.await.expect("the task ended"), 500);
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_holds_the_lock_for_its_whole_run_and_a_write_waits_for_it() {
    let sim = InProcess::new(plain());
    let upid = data(&sim, root("POST", &node("/lxc/100/status/start"))).await;
    let status = data(&sim, root("GET", &node("/lxc/100/status/current"))).await;
    assert_eq!(status["status"], "stopped", "a start is not done when it is answered");
    let began = Instant::now();
    assert_eq!(send(&sim, put_description("lxc/100")).await.status, 200);
    assert_eq!(began.elapsed().as_millis(), 1500, "as long as the start takes");
    assert_eq!(exit_of(&sim, upid.as_str().expect("a UPID")).await, "OK");
    let again = send(&sim, root("POST", &node("/lxc/100/status/start"))).await;
    assert_eq!((again.status, again.reason.as_str()), (500, "CT 100 already running"));
}

#[tokio::test(start_paused = true)]
async fn a_refused_log_in_costs_three_seconds_unless_switched_off() {
    let sim = InProcess::new(plain());
    let wrong = || SimRequest::new("GET", "/api2/json/version").token("root@pam!full=wrong");
    let began = Instant::now();
    let reply = send(&sim, wrong()).await;
    assert_eq!((reply.status, reply.reason.as_str()), (401, "Authentication failed!"));
    assert_eq!(began.elapsed().as_secs(), 3);
    sim.with(|sim| sim.delay_unauthorised = false);
    send(&sim, wrong()).await;
    assert_eq!(began.elapsed().as_secs(), 3);
}

#[tokio::test(start_paused = true)]
async fn the_proxy_gives_up_after_thirty_seconds_and_the_call_goes_on() {
    let sim = InProcess::new(plain());
    sim.with(|sim| {
        sim.timings.copy_ms = 45_000;
        sim.timings.short_ms = 45_000;
        let store = sim.world.storages.get_mut("store").expect("the scenario has it");
        store.put_file("backup/vzdump-lxc-100.tar.zst", "backup", "tar.zst", 1);
    });
    // The delay keeps the handler waiting for its own task, longer than the proxy waits.
    let late = root(
        "DELETE",
        &node("/storage/store/content/store:backup/vzdump-lxc-100.tar.zst?delay=30"),
    );
    let began = Instant::now();
    let reply = send(&sim, late).await;
    assert_eq!((reply.status, began.elapsed().as_secs()), (596, 30));
    tokio::time::sleep(Duration::from_secs(30)).await;
    sim.with(|sim| {
        assert!(!sim.world.storages["store"].volumes.contains_key("backup/vzdump-lxc-100.tar.zst"));
    });
}

#[tokio::test(start_paused = true)]
async fn a_late_fork_loses_the_answer_and_shows_its_task_later() {
    let sim = InProcess::new(plain());
    sim.with(|sim| sim.inject(Effect::LateFork { ms: 20_000 }.once()));
    assert_eq!(sim.send(root("POST", &node("/lxc/100/status/start"))).await, SimOutcome::Dropped);
    let list = || root("GET", &node("/tasks?source=all&vmid=100"));
    assert_eq!(data(&sim, list()).await, json!([]));
    tokio::time::sleep(Duration::from_secs(21)).await;
    assert_eq!(data(&sim, list()).await[0]["type"], "vzstart");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(sim.with(|sim| sim.world.guest(id("lxc/100")).is_some_and(|g| g.power.is_running())));
}

#[tokio::test(start_paused = true)]
async fn connection_faults_differ_in_whether_the_call_was_carried_out() {
    for (effect, answered, executed) in [
        (Effect::DropBefore, None, false),
        (Effect::DropAfter, None, true),
        (Effect::ProxyStatus { status: 595, executed: false }, Some(595), false),
        (Effect::ProxyStatus { status: 596, executed: true }, Some(596), true),
        (Effect::ProxyStatus { status: 599, executed: false }, Some(599), false),
        (Effect::Latency { ms: 2000 }, Some(200), true),
        (Effect::Garbage { body: "<html>".into() }, Some(200), true),
    ] {
        let sim = InProcess::new(plain());
        let shown = format!("{effect:?}");
        sim.with(|sim| sim.inject(effect.once()));
        let status = match sim.send(put_description("lxc/100")).await {
            SimOutcome::Reply(reply) => Some(reply.status),
            SimOutcome::Dropped | SimOutcome::Wait { .. } => None,
        };
        let stored = sim.with(|sim| {
            sim.world.guest(id("lxc/100")).is_some_and(|g| g.config.active["description"] == "x\n")
        });
        let logged = sim.with(|sim| sim.records()[0].executed_ms.is_some());
        assert_eq!((status, stored, logged), (answered, executed, executed), "{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_can_fail_or_be_killed_instead_of_doing_its_work() {
    for (effect, exit) in [
        (Effect::TaskFails { message: "disk full".into() }, "disk full"),
        (Effect::TaskKilled, "unexpected status"),
    ] {
        let sim = InProcess::new(plain());
        sim.with(|sim| sim.inject(effect.on("vzstart")));
        let upid = data(&sim, root("POST", &node("/lxc/100/status/start"))).await;
        assert_eq!(exit_of(&sim, upid.as_str().expect("a UPID")).await, exit);
        assert!(
            !sim.with(|sim| sim.world.guest(id("lxc/100")).is_some_and(|g| g.power.is_running()))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_can_log_lines_before_whatever_becomes_of_it() {
    for (effect, end) in [
        (Effect::TaskFails { message: "disk full".into() }, "TASK ERROR: disk full"),
        (Effect::TaskWarns { warnings: 0 }, "TASK OK"),
    ] {
        let sim = InProcess::new(plain());
        let lines = vec!["one".to_owned(), "two".to_owned()];
        sim.with(|sim| {
            sim.inject(effect.on("vzstart"));
            sim.inject(Effect::TaskLogs { lines }.on("vzstart"));
        });
        let upid = data(&sim, root("POST", &node("/lxc/100/status/start"))).await;
        let upid = upid.as_str().expect("a UPID");
        exit_of(&sim, upid).await;
        let log = data(&sim, root("GET", &node(&format!("/tasks/{upid}/log")))).await;
        let texts: Vec<&str> =
            log.as_array().unwrap().iter().filter_map(|line| line["t"].as_str()).collect();
        assert_eq!((texts[0], texts[1], *texts.last().unwrap()), ("one", "two", end));
    }
}

#[tokio::test(start_paused = true)]
async fn a_daemon_can_lose_its_worker_dead_or_alive() {
    for (worker, listed, runs) in [
        (LostWorker::Unborn, None, false),
        (LostWorker::Killed, Some("unexpected status"), false),
        (LostWorker::Orphaned, Some("parent setup error"), false),
        (LostWorker::Working, Some("OK"), true),
    ] {
        let sim = InProcess::new(plain());
        sim.with(|sim| sim.inject(Effect::WorkerLost { worker }.once()));
        let outcome = sim.send(root("POST", &node("/lxc/100/status/start"))).await;
        let SimOutcome::Reply(reply) = outcome else { panic!("no answer") };
        let words = "got no worker upid - start worker failed";
        assert_eq!((reply.status, reply.reason.as_str()), (500, words), "{worker:?}");
        sim.with(Simulator::run_tasks);
        let tasks = data(&sim, root("GET", &node("/tasks?source=all"))).await;
        let statuses: Vec<&str> =
            tasks.as_array().unwrap().iter().filter_map(|task| task["status"].as_str()).collect();
        assert_eq!(statuses, listed.into_iter().collect::<Vec<_>>(), "{worker:?}");
        let running =
            sim.with(|sim| sim.world.guest(id("lxc/100")).is_some_and(|g| g.power.is_running()));
        assert_eq!(running, runs, "{worker:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn events_happen_behind_the_back_of_clients() {
    let sim = InProcess::new(plain());
    let guest = id("lxc/100");
    let config = || root("GET", &node("/lxc/100/config"));
    let before = data(&sim, config()).await;
    sim.with(|sim| {
        sim.happen(Event::Edit { guest, set: [("cores".to_owned(), Some("7".to_owned()))].into() });
    });
    let after = data(&sim, config()).await;
    assert_eq!(after["cores"], 7);
    assert_ne!(before["digest"], after["digest"]);

    sim.with(|sim| sim.happen(Event::Lock { guest, lock: Some("backup".into()) }));
    assert_eq!(send(&sim, put_description("lxc/100")).await.reason, "CT is locked (backup)");
    sim.with(|sim| sim.happen(Event::Lock { guest, lock: None }));

    sim.with(|sim| sim.happen(Event::Quorum { quorate: false }));
    assert_eq!(
        send(&sim, put_description("lxc/100")).await.reason,
        "cluster not ready - no quorum?"
    );
    assert_eq!(send(&sim, config()).await.status, 200, "reads work without quorum");
    sim.with(|sim| sim.happen(Event::Quorum { quorate: true }));

    sim.with(|sim| sim.happen(Event::Reuse { guest }));
    let stranger = data(&sim, config()).await;
    assert!(stranger["hostname"].as_str().is_some_and(|name| name.starts_with("stranger")));
    assert_ne!(stranger["net0"], after["net0"]);

    let upid = data(&sim, root("POST", &node("/lxc/100/status/start"))).await;
    let upid = upid.as_str().expect("a UPID").to_owned();
    sim.with(|sim| sim.happen(Event::Restart));
    assert_eq!(exit_of(&sim, &upid).await, "unexpected status");
    sim.with(|sim| sim.happen(Event::ForgetTasks));
    let gone = send(&sim, root("GET", &node(&format!("/tasks/{upid}/status")))).await;
    assert_eq!(gone.json().map(|body| &body["errors"]["upid"]), Some(&json!("no such task")));

    sim.with(|sim| sim.happen(Event::Destroy { guest }));
    assert!(send(&sim, config()).await.reason.ends_with("does not exist"));
}

#[tokio::test(start_paused = true)]
async fn an_overruled_shutdown_ends_and_the_stop_goes_through() {
    let sim = InProcess::new(plain());
    let guest = id("lxc/100");
    sim.with(|sim| {
        sim.happen(Event::Power { guest, running: true });
        sim.happen(Event::IgnoreShutdown { guest, ignores: true });
    });
    let shutdown = data(&sim, root("POST", &node("/lxc/100/status/shutdown"))).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let stop = root("POST", &node("/lxc/100/status/stop")).form(&[("overrule-shutdown", "1")]);
    let stop = data(&sim, stop).await;
    assert_eq!(exit_of(&sim, stop.as_str().expect("a UPID")).await, "OK");
    assert_eq!(exit_of(&sim, shutdown.as_str().expect("a UPID")).await, "unexpected status");
}

#[tokio::test(start_paused = true)]
async fn cluster_resources_lag_behind_by_up_to_ten_seconds() {
    let sim = InProcess::new(plain());
    tokio::time::sleep(Duration::from_secs(11)).await;
    let status = || async {
        data(&sim, root("GET", "/cluster/resources?type=vm")).await[0]["status"].clone()
    };
    assert_eq!(status().await, "stopped");
    sim.with(|sim| sim.happen(Event::Power { guest: id("lxc/100"), running: true }));
    assert_eq!(status().await, "stopped");
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(status().await, "running");
}

#[test]
fn the_request_log_says_what_arrived_and_what_was_carried_out() {
    let mut sim = plain();
    sim.call(put_description("lxc/100"));
    sim.call(root("PUT", &node("/lxc/100/config")).form(&[("cores", "many")]));
    sim.call(root("GET", &node("/qemu/101/config")));
    let seen: Vec<_> = sim
        .records()
        .iter()
        .map(|r| (r.guest.map(|g| g.to_string()), r.mutating, r.executed_ms.is_some(), r.status))
        .collect();
    assert_eq!(
        seen,
        [
            (Some("lxc/100".into()), true, true, Some(200)),
            (Some("lxc/100".into()), true, false, Some(400)),
            (Some("qemu/101".into()), false, true, Some(200)),
        ]
    );
    assert_eq!(sim.records()[0].user.as_deref(), Some("root@pam!full"));
    assert!(!format!("{:?}", sim.records()).contains(TOKENS[0].1), "no secret in the log");
}

#[test]
fn a_saved_node_comes_back_as_it_was() {
    let path = std::env::temp_dir().join(format!("evenkeel-sim-state-{}.json", std::process::id()));
    let mut sim = crowd(20);
    sim.call(root("POST", &node("/lxc/104/status/start")));
    sim.save(&path).expect("saved");
    let mut back = Simulator::load(&path).expect("loaded");
    std::fs::remove_file(&path).expect("removed");
    let list = |sim: &mut Simulator| match sim.call(root("GET", &node("/lxc"))) {
        SimOutcome::Reply(reply) => reply.json().cloned(),
        SimOutcome::Dropped | SimOutcome::Wait { .. } => None,
    };
    assert_eq!(back.now_ms(), sim.now_ms());
    assert_eq!(list(&mut back), list(&mut sim));
    assert!(Simulator::load(std::path::Path::new("/nonexistent/state.json")).is_err());
}

#[test]
fn ten_thousand_guests_start_quickly_and_are_all_listed() {
    let began = std::time::Instant::now();
    let mut sim = crowd(10_000);
    let built = began.elapsed();
    let count = |sim: &mut Simulator, kind: &str| match sim.call(root("GET", &node(kind))) {
        SimOutcome::Reply(reply) => {
            reply.json().and_then(|body| body["data"].as_array().map(Vec::len))
        }
        SimOutcome::Dropped | SimOutcome::Wait { .. } => None,
    };
    let listed = (count(&mut sim, "/lxc"), count(&mut sim, "/qemu"));
    println!("10,000 guests: built in {built:?}, listed after {:?}", began.elapsed());
    assert_eq!(listed, (Some(5000), Some(5000)));
    assert!(built.as_secs() < 5, "{built:?} in a debug build");
}

#[test]
fn seven_four_answers_in_its_own_way() {
    let mut sim = Simulator::new(
        Scenario { guests: 3, release: Release::V7_4, ..Scenario::default() }.build(),
    );
    let mut ask = |request: SimRequest| match sim.call(request) {
        SimOutcome::Reply(reply) => reply,
        other @ (SimOutcome::Dropped | SimOutcome::Wait { .. }) => panic!("no answer: {other:?}"),
    };
    let config = ask(root("GET", &node("/qemu/101/config")));
    assert!(config.json().is_some_and(|body| body["data"]["memory"].is_u64()));
    let stale =
        ask(root("PUT", &node("/qemu/101/config"))
            .form(&[("cores", "1"), ("digest", &"0".repeat(40))]));
    assert_eq!(stale.reason, "checksum missmatch (file change by other user?)");
    assert_eq!(stale.json(), Some(&json!({"data": null})));
    let resize =
        ask(root("PUT", &node("/qemu/101/resize")).form(&[("disk", "scsi0"), ("size", "+1G")]));
    assert_eq!(resize.json(), Some(&json!({"data": null})));
}

#[tokio::test]
async fn what_stands_in_the_path_may_be_repeated_but_not_contradicted() {
    let sim = InProcess::new(crowd(2));
    let put = |fields: &[(&str, &str)]| root("PUT", &node("/lxc/100/config")).form(fields);
    let same = send(&sim, put(&[("vmid", "100"), ("node", "pve1"), ("swap", "77")])).await;
    assert_eq!(same.status, 200, "{same:?}");
    let other = send(&sim, put(&[("vmid", "101"), ("swap", "78")])).await;
    assert_eq!(other.status, 400);
    assert!(format!("{other:?}").contains("with conflicting values!"), "{other:?}");
    let config = data(&sim, root("GET", &node("/lxc/100/config"))).await;
    assert_eq!(config["swap"], 77);
}

const SLOT: &str = "vm-103-disk-1";

/// A machine and a container with a second disk on `tank`, which a snapshot names too if that is wanted.
fn with_second_disks(in_snapshot: bool) -> Simulator {
    let mut sim = plain();
    for (guest, slot, value) in [
        ("qemu/103", "scsi1", format!("tank:{SLOT},size=4G")),
        ("lxc/104", "mp0", format!("tank:{},mp=/data,size=4G", SLOT.replace("103", "104"))),
    ] {
        let mut config = evenkeel_sim::Config::of(&[("arch", "amd64"), ("memory", "512")]);
        config.active.insert("rootfs".into(), "local-lvm:vm-104-disk-0,size=4G".into());
        if guest.starts_with("qemu") {
            config = evenkeel_sim::Config::of(&[("memory", "512")]);
        }
        config.active.insert(slot.into(), value);
        sim.world.put_guest(id(guest), config, evenkeel_sim::SimPower::Stopped);
    }
    if in_snapshot {
        for guest in ["qemu/103", "lxc/104"] {
            let path = node(&format!("/{guest}/snapshot"));
            sim.call(root("POST", &path).form(&[("snapname", "before")]));
        }
        sim.run_tasks();
    }
    sim
}

fn put(guest: &str, form: &[(&str, &str)]) -> SimRequest {
    root("PUT", &node(&format!("/{guest}/config"))).form(form)
}

fn status_of(outcome: &SimOutcome) -> u16 {
    match outcome {
        SimOutcome::Reply(reply) => reply.status,
        SimOutcome::Dropped | SimOutcome::Wait { .. } => 0,
    }
}

fn unused(sim: &Simulator, guest: &str) -> Option<String> {
    sim.world.guest(id(guest)).and_then(|found| found.config.active.get("unused0").cloned())
}

#[test]
fn a_machines_disk_on_a_storage_nobody_defines_is_dropped_and_a_containers_is_kept() {
    let mut sim = with_second_disks(false);
    sim.happen(Event::UndefineStorage { storage: "tank".into() });
    assert_eq!(status_of(&sim.call(put("qemu/103", &[("delete", "scsi1")]))), 200);
    assert_eq!(status_of(&sim.call(put("lxc/104", &[("delete", "mp0")]))), 200);
    assert_eq!(unused(&sim, "qemu/103"), None);
    assert_eq!(unused(&sim, "lxc/104").as_deref(), Some("tank:vm-104-disk-1"));
    sim.happen(Event::DefineStorage { storage: "tank".into() });
    assert!(sim.world.volume("tank:vm-103-disk-1").is_some(), "its data is whole");
}

#[test]
fn what_a_snapshot_names_is_not_freed_and_outlives_the_container() {
    let mut sim = with_second_disks(true);
    for (guest, slot, freed) in [("qemu/103", "scsi1", 500), ("lxc/104", "mp0", 200)] {
        assert_eq!(status_of(&sim.call(put(guest, &[("delete", slot)]))), 200);
        assert_eq!(status_of(&sim.call(put(guest, &[("delete", "unused0")]))), freed, "{guest}");
        let number = &guest[guest.len() - 3..];
        let volume = format!("tank:{}", SLOT.replace("103", number));
        assert!(sim.world.volume(&volume).is_some(), "{guest}");
    }
    assert_eq!(unused(&sim, "qemu/103").as_deref(), Some("tank:vm-103-disk-1"));
    assert_eq!(unused(&sim, "lxc/104"), None, "only the key is gone");
    sim.call(root("DELETE", &node("/lxc/104")));
    sim.run_tasks();
    assert!(sim.world.guest(id("lxc/104")).is_none());
    assert!(sim.world.volume("tank:vm-104-disk-1").is_some(), "it outlives the guest");
}

#[test]
fn what_a_removed_snapshot_named_is_listed_as_unused() {
    let mut sim = with_second_disks(true);
    sim.call(put("lxc/104", &[("delete", "mp0")]));
    sim.call(put("lxc/104", &[("delete", "unused0")]));
    sim.call(root("DELETE", &node("/lxc/104/snapshot/before")));
    sim.run_tasks();
    assert_eq!(unused(&sim, "lxc/104").as_deref(), Some("tank:vm-104-disk-1"));
}
