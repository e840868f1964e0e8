//! `evenkeel run`: what it does by itself, when it is told to, and when it is told nothing.

use std::collections::BTreeMap;

use evenkeel_sim::{Effect, Event};

use crate::agent::{Agent, Manager, configure, status, status_when, usual, wait_for, writes};
use crate::support::Node;

/// A node whose guests are declared as they are, and a configured agent.
pub(crate) fn kept(guests: u32) -> Node {
    let node = Node::with_guests(guests);
    node.run("import", &["--out", "desired"]).ends_with(0);
    configure(&node, &usual(&node));
    node
}

/// Somebody changes a guest behind our back.
pub(crate) fn drift(node: &Node, guest: &str, cores: &str) {
    let set = BTreeMap::from([("cores".to_owned(), Some(cores.to_owned()))]);
    node.happen(Event::Edit { guest: guest.parse().unwrap(), set });
}

fn cores(node: &Node, guest: &str) -> Option<String> {
    node.stored(guest.parse().unwrap(), "cores")
}

#[test]
fn drift_is_healed_by_the_running_agent_and_then_nothing_is_sent() {
    let node = kept(6);
    let declared = cores(&node, "lxc/100");
    drift(&node, "lxc/100", "1");
    let agent = Agent::start(&node);
    wait_for(|| agent.log(), || (cores(&node, "lxc/100") == declared).then_some(()));
    // By the log: a busy machine may be a pass further before it is asked.
    agent.says(" succeeded=1 ");
    status_when(&node, |status| status["agent"]["last_pass"]["ended"] == true);

    drift(&node, "lxc/102", "7");
    wait_for(|| agent.log(), || (cores(&node, "lxc/102").as_deref() != Some("7")).then_some(()));
    let sent = writes(&node);
    assert_eq!(sent.len(), 2, "{sent:?}");
    let passes = |text: &str| text.matches("looked at the node").count();
    let before = passes(&agent.log());
    wait_for(|| agent.log(), || (passes(&agent.log()) > before).then_some(()));
    assert_eq!(writes(&node), sent, "at rest nothing is sent");
    agent.terminate();
    let log = std::fs::read_to_string(node.desk.work.path().join("log")).unwrap();
    assert_eq!(log.matches("INFO started").count(), 2, "{log}");
    assert_eq!(log.matches("INFO done").count(), 2, "{log}");
    assert!(!node.desk.work.path().join("state/agent.sock").exists(), "the socket goes with it");
}

#[test]
fn with_nothing_declared_it_runs_clean_and_sends_nothing() {
    let node = Node::with_guests(6);
    configure(&node, "interval = 5");
    let agent = Agent::start(&node);
    wait_for(|| agent.log(), || (node.requests().len() >= 2).then_some(()));
    let status = status_when(&node, |status| status["agent"]["next_pass"].is_string());
    assert_eq!(status["agent"]["desired"]["guests"], 0);
    agent.terminate();
    let paths: Vec<String> = node.requests().into_iter().map(|request| request.path).collect();
    assert!(paths.iter().all(|path| path.ends_with("/version")), "{paths:?}");
    assert_eq!(writes(&node), Vec::<String>::new());
}

#[test]
fn a_changed_file_is_taken_up_without_a_signal() {
    let node = kept(6);
    // Far longer than the test: only the change itself can start a pass.
    configure(&node, &usual(&node).replace("interval = 5", "interval = 86400"));
    let agent = Agent::start(&node);
    agent.says("pass ended");
    let text = node.desk.read("desired/lxc-100.toml");
    let line = text.lines().find(|line| line.starts_with("cores")).unwrap();
    node.desk.write("desired/lxc-100.toml", &text.replace(line, "cores = 9"));
    wait_for(|| agent.log(), || (cores(&node, "lxc/100").as_deref() == Some("9")).then_some(()));
    agent.terminate();
}

#[test]
fn n10_broken_files_keep_what_was_good_and_it_says_so() {
    let node = kept(6);
    let agent = Agent::start(&node);
    agent.says("pass ended");
    node.desk.write("desired/web.toml", "[guest.200]\nkind = \"lxc\"\ncoers = 2\n");
    node.desk.write("agent.toml.good", &node.desk.read("agent.toml"));
    node.desk.write("agent.toml", "intervall = 5\n");
    agent.signal("HUP");
    agent.says("web.toml:3:1: ");
    agent.says("intervall");
    drift(&node, "lxc/100", "1");
    wait_for(|| agent.log(), || (cores(&node, "lxc/100").as_deref() != Some("1")).then_some(()));

    node.desk.write("agent.toml", &node.desk.read("agent.toml.good"));
    let broken = status_when(&node, |status| status["agent"].is_object());
    let why = |of: &serde_json::Value| of["why"].as_str().unwrap_or_default().to_owned();
    assert!(why(&broken["agent"]["desired"]["trouble"]).contains("web.toml:3:1"), "{broken:#}");
    assert!(why(&broken["agent"]["configuration_trouble"]).contains("intervall"), "{broken:#}");
    let shown = status(&node, &[]).ends_with(3).stdout;
    assert!(shown.contains("the last valid version stays in use"), "{shown}");

    std::fs::remove_file(node.desk.work.path().join("desired/web.toml")).unwrap();
    agent.signal("HUP");
    let trouble = |status: &serde_json::Value| status["agent"]["desired"]["trouble"].clone();
    let mended =
        status_when(&node, |status| status["agent"].is_object() && trouble(status).is_null());
    assert!(mended["agent"]["configuration_trouble"].is_null(), "{mended:#}");
    agent.terminate();
}

#[test]
fn a_node_that_cannot_be_read_is_waited_for() {
    let node = kept(6);
    drift(&node, "lxc/100", "1");
    node.inject(Effect::DropBefore.on("/api2/json"));
    let agent = Agent::start(&node);
    agent.says("Proxmox VE cannot be read");
    let down = status_when(&node, |status| status["agent"]["node_trouble"].is_object());
    assert!(down["agent"]["last_pass"].is_null(), "{down:#}");
    node.http.node.with(evenkeel_sim::Simulator::clear_faults);
    agent.says("Proxmox VE can be read again");
    wait_for(|| agent.log(), || (cores(&node, "lxc/100").as_deref() != Some("1")).then_some(()));
    agent.terminate();
}

#[test]
fn a_second_agent_is_refused_and_the_first_goes_on() {
    let node = kept(6);
    let agent = Agent::start(&node);
    agent.says("pass ended");
    let second = node.desk.run("run", &["-c", "agent.toml"]).ends_with(7);
    assert!(second.stderr.contains("another evenkeel"), "{}", second.stderr);
    status(&node, &[]).ends_with(0);
    agent.terminate();
}

#[test]
fn apply_goes_through_the_running_agent_exactly_as_shown_or_not_at_all() {
    let node = kept(6);
    configure(&node, &usual(&node).replace("interval = 5", "interval = 86400"));
    let agent = Agent::start(&node);
    agent.says("pass ended");
    drift(&node, "lxc/100", "1");
    let apply = |more: &[&str]| {
        node.run("apply", &[&["-c", "agent.toml", "-o", "json"][..], more].concat())
    };
    let report = apply(&["-y"]).ends_with(0);
    assert_eq!(report.json()["succeeded"], 1, "{}", report.stdout);
    assert!(report.stderr.contains("lxc/100"), "progress is told: {}", report.stderr);
    assert_eq!(writes(&node).len(), 1);

    drift(&node, "lxc/100", "1");
    node.run("plan", &["-c", "agent.toml", "--out", "plan.json"]).ends_with(0);
    drift(&node, "lxc/102", "7");
    let stale = apply(&["plan.json"]).ends_with(7);
    assert!(stale.stderr.contains("stale"), "{}", stale.stderr);
    // A plan of other files than the agent's is another one, by whatever way it comes.
    let plan = node.desk.read("plan.json").replace('\n', " ");
    let request = format!("{{\"v\":1,\"request\":\"apply\",\"plan\":{plan}}}\n");
    let refused = crate::daemon_looks::ask(&node, request.as_bytes());
    assert_eq!(refused["code"], "stale", "{refused}");
    let desired = node.desk.work.path().join("desired").display().to_string();
    assert!(refused["hint"].as_str().unwrap().contains(&desired), "{refused}");
    assert_eq!(writes(&node).len(), 1, "nothing was sent");
    agent.terminate();
}

#[test]
fn systemd_hears_that_it_is_ready_reloading_alive_and_stopping() {
    let node = kept(6);
    let manager = Manager::new(&node);
    let agent = Agent::start_with(&node, |command| {
        command.env("NOTIFY_SOCKET", &manager.path).env("WATCHDOG_USEC", "400000")
    });
    assert!(manager.hears("READY=1").contains("STATUS=6 declared"));
    for _ in 0..3 {
        manager.hears("WATCHDOG=1");
    }
    agent.signal("HUP");
    assert!(manager.hears("RELOADING=1").contains("MONOTONIC_USEC="));
    manager.hears("READY=1");
    agent.signal("TERM");
    manager.hears("STOPPING=1");
    assert_eq!(agent.end(), Some(0));
}

#[test]
fn a_hung_agent_is_not_called_alive() {
    let node = kept(6);
    let manager = Manager::new(&node);
    let agent = Agent::start_with(&node, |command| {
        command.env("NOTIFY_SOCKET", &manager.path).env("WATCHDOG_USEC", "400000")
    });
    manager.hears("WATCHDOG=1");
    agent.signal("STOP");
    // What was sent before it was stopped is still to be heard; then there is silence.
    assert!(manager.falls_silent());
    agent.signal("CONT");
    manager.hears("WATCHDOG=1");
    agent.terminate();
}
