//! `evenkeel run` on the node itself, where the cluster file system tells which configurations were written.

use evenkeel_core::model::id::GuestId;
use evenkeel_sim::Event;

use crate::agent::{Agent, configure, usual, wait_for, writes};
use crate::daemon::{drift, kept};
use crate::support::Node;

/// A node that shows its cluster file system, and an agent that reads it. Its interval is far longer than any test.
fn near(guests: u32, cluster_fs: &str) -> Node {
    let node = kept(guests);
    let shown = node.desk.work.path().join("pve");
    node.http.node.with(|sim| sim.show_cluster_fs(&shown)).unwrap();
    configure(&node, &usual(&node).replace("interval = 5", "interval = 86400"));
    let config = node.desk.read("agent.toml");
    let named = cluster_fs.replace("SHOWN", &shown.display().to_string());
    node.desk.write(
        "agent.toml",
        &config.replace("[pve]\n", &format!("[pve]\ncluster_fs = \"{named}\"\n")),
    );
    node
}

fn cores(node: &Node, guest: &str) -> Option<String> {
    node.stored(guest.parse().unwrap(), "cores")
}

/// How many requests asked for a configuration.
fn configurations_read(node: &Node) -> usize {
    let requests = node.requests();
    requests.iter().filter(|request| request.path.ends_with("/pending")).count()
}

#[test]
fn a_written_configuration_is_healed_at_once_and_nobody_else_is_asked_for() {
    let node = near(12, "SHOWN");
    let agent = Agent::start(&node);
    agent.says("tells which configurations were written");
    agent.says("pass ended");
    let declared = cores(&node, "lxc/102");
    node.http.node.with(evenkeel_sim::Simulator::clear_records);
    drift(&node, "lxc/102", "7");
    wait_for(|| agent.log(), || (cores(&node, "lxc/102") == declared).then_some(()));
    assert_eq!(writes(&node).len(), 1);
    // The look, the lane's own before it wrote, and what it read back: of this guest alone.
    let others = node.requests().into_iter().filter(|request| !request.path.contains("/102/"));
    let others: Vec<String> = others.map(|request| request.path).collect();
    assert_eq!(others, [""; 0], "{others:?}");
    // Numbers that cannot be compared make everything be read again, once.
    let read = configurations_read(&node);
    node.http.node.with(|sim| sim.happen(Event::RestartClusterFs));
    wait_for(|| agent.log(), || (configurations_read(&node) >= read + 12).then_some(()));
    agent.terminate();
}

#[test]
fn a_directory_that_is_not_the_nodes_is_said_and_the_agent_runs_all_the_same() {
    let node = near(4, "/nonexistent/pve");
    let agent = Agent::start(&node);
    agent.says("`cluster_fs` cannot be used");
    agent.says("pass ended");
    agent.terminate();
}

#[test]
fn a_guest_that_somebody_stops_is_started_again_at_once() {
    let node = near(12, "SHOWN");
    let agent = Agent::start(&node);
    agent.says("pass ended");
    let guest: GuestId = "lxc/100".parse().unwrap();
    let runs = || node.http.node.with(|sim| sim.world.guest(guest).unwrap().power.is_running());
    assert!(runs(), "it is declared to run");
    node.http.node.with(evenkeel_sim::Simulator::clear_records);
    node.happen(Event::Switch { guest, running: false });
    // By the request: a busy machine may never look while it is stopped.
    wait_for(|| agent.log(), || (writes(&node).len() == 1 && runs()).then_some(()));
    let others = node.requests().into_iter().filter(|request| !request.path.contains("/100/"));
    let others: Vec<String> = others.map(|request| request.path).collect();
    assert!(others.iter().all(|path| path.contains("/tasks/")), "{others:?}");
    agent.terminate();
}
