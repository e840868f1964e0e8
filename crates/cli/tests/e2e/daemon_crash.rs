//! Killed in the middle, restarted: what was begun is adopted, never repeated. The simulator's log is the witness.

use evenkeel_core::model::id::GuestId;
use evenkeel_sim::{Effect, Event, Fault, SimPower, Simulator};

use crate::agent::{Agent, status, status_when, wait_for, writes};
use crate::daemon::kept;

/// A stopped guest that is declared to run, and a node on which starting takes a while.
fn slow_start() -> (crate::support::Node, GuestId) {
    let node = kept(6);
    let guest: GuestId = "lxc/100".parse().unwrap();
    node.happen(Event::Power { guest, running: false });
    node.http.node.with(|simulator| simulator.timings.start_ms = 6_000);
    (node, guest)
}

#[test]
fn an_operation_killed_in_mid_task_is_adopted_and_not_repeated() {
    let (node, _) = slow_start();
    let agent = Agent::start(&node);
    agent.says("Proxmox works on it");
    agent.signal("KILL");
    assert_eq!(agent.end(), None);
    let dead = status(&node, &["-o", "json"]).ends_with(7).json();
    assert_eq!(dead["operations"][0]["state"], "task_running", "{dead:#}");
    assert!(dead["agent"].is_null());

    let agent = Agent::start(&node);
    agent.says("in_flight=1");
    agent.says("an earlier operation is done");
    let rest = status_when(&node, |status| {
        status["operations"].as_array().is_some_and(Vec::is_empty)
            && status["agent"]["last_pass"]["ended"] == true
            && status["agent"]["last_pass"]["planned"] == 0
    });
    assert_eq!(rest["agent"]["queue_depth"], 0);
    agent.terminate();
    let sent = writes(&node);
    assert_eq!(sent.len(), 1, "{sent:?}");
    assert!(sent[0].ends_with("/lxc/100/status/start"), "{sent:?}");
}

#[test]
fn n10_a_signal_to_end_awaits_what_is_under_way() {
    let (node, guest) = slow_start();
    let agent = Agent::start(&node);
    agent.says("Proxmox works on it");
    agent.terminate();
    let dead = status(&node, &["-o", "json"]).ends_with(7).json();
    assert_eq!(dead["operations"].as_array().map(Vec::len), Some(0), "it was closed: {dead:#}");
    let plan = node.run("plan", &["-c", "agent.toml", "-o", "json"]).ends_with(0).json();
    let left = plan["guests"].as_array().unwrap().iter();
    assert!(left.clone().all(|left| left["guest"] != guest.to_string()), "{plan:#}");
    assert_eq!(writes(&node).len(), 1);
}

#[test]
fn a_guest_at_work_is_busy_and_holds_up_no_other() {
    let (node, _) = slow_start();
    node.http.node.with(|simulator| simulator.timings.start_ms = 600_000);
    let agent = Agent::start(&node);
    agent.says("Proxmox works on it");
    crate::daemon::drift(&node, "lxc/102", "7");
    let other: GuestId = "lxc/102".parse().unwrap();
    wait_for(
        || agent.log(),
        || (node.stored(other, "cores").as_deref() != Some("7")).then_some(()),
    );
    let busy = status_when(&node, |status| {
        status["agent"]["guests"][0]["held"][0]["code"] == "busy"
            && status["operations"][0]["upid"].is_string()
    });
    assert_eq!(busy["agent"]["guests"][0]["guest"], "lxc/100", "{busy:#}");
    let shown = status(&node, &[]).ends_with(0).stdout;
    assert!(shown.contains("task_running") && shown.contains("UPID:pve1:"), "{shown}");
    agent.signal("KILL");
}

#[test]
fn an_operator_closes_an_unknown_outcome_through_the_running_agent() {
    let (node, guest) = slow_start();
    // The answer is lost, and before the tasks can be listed there are two that could be ours.
    let start = "/lxc/100/status/start";
    node.inject(Fault { times: Some(1), ..Effect::DropAfter.on(start) });
    node.inject(Effect::DropBefore.on("/tasks"));
    let agent = Agent::start(&node);
    wait_for(|| agent.log(), || (writes(&node).len() == 1).then_some(()));
    node.post(&format!("/nodes/pve1{start}"), "");
    node.http.node.with(Simulator::clear_faults);
    let unknown = status_when(&node, |status| status["operations"][0]["state"] == "unknown");
    let op = unknown["operations"][0]["op"].as_str().unwrap().to_owned();
    let shown = status(&node, &[]).ends_with(0).stdout;
    assert!(shown.contains(&format!("evenkeel journal resolve {op} --as")), "{shown}");

    // The operator looks, and says what is true.
    let power = |sim: &mut Simulator| sim.world.guests.get(&100).unwrap().power;
    let runs = || matches!(node.http.node.with(power), SimPower::Running { .. });
    wait_for(|| "a guest that runs".to_owned(), || runs().then_some(()));
    let state = node.desk.work.path().join("state").display().to_string();
    let resolve = ["resolve", &op, "--as", "succeeded", "--reason", "I looked", "--state", &state];
    node.desk.run("journal", &resolve).ends_with(0);
    node.desk.run("journal", &resolve).ends_with(5);
    status_when(&node, |status| {
        let in_sync = |guest: &serde_json::Value| guest["guest"] != "lxc/100";
        status["operations"].as_array().is_some_and(Vec::is_empty)
            && status["agent"]["guests"].as_array().unwrap().iter().all(in_sync)
    });
    agent.terminate();
    let sent = writes(&node);
    assert_eq!(sent.len(), 2, "one by the agent, one by the test: {sent:?}");
    let journal = node.desk.run("journal", &["-o", "json", "--state", &state]).ends_with(0).json();
    assert_eq!(journal["operations"][0]["guest"], guest.to_string(), "{journal:#}");
}
