//! What is observed or ignored: seen by people, never sent to the node.

use std::collections::BTreeMap;

use evenkeel_sim::Event;

use crate::agent::{Agent, configure, status_when, usual, wait_for, writes};
use crate::daemon::{drift, kept};
use crate::support::Node;

const APPLY: [&str; 5] = ["--desired", "desired", "--state", "state", "-y"];

fn edit(node: &Node, guest: &str, key: &str, value: &str) {
    let set = BTreeMap::from([(key.to_owned(), Some(value.to_owned()))]);
    node.happen(Event::Edit { guest: guest.parse().unwrap(), set });
}

#[test]
fn the_drift_of_an_observed_guest_is_shown_and_left() {
    let node = Node::with_guests(6);
    let text = "[guest.100]\nkind = \"lxc\"\nmode = \"observe\"\ncores = 3\nrun = \"stopped\"\n\
        [guest.102]\nkind = \"lxc\"\nmode = \"observe\"\nstate = \"absent\"\n";
    node.desk.write("desired/guests.toml", text);
    let plan = node.run("plan", &["--desired", "desired", "--detailed-exitcode"]).ends_with(0);
    insta::assert_snapshot!("observed-guests", plan.story());
    let applied = node.run("apply", &APPLY).ends_with(0);
    assert!(applied.stdout.contains("the guest is in observe mode"), "{}", applied.stdout);
    assert_eq!(writes(&node), Vec::<String>::new());
}

#[test]
fn a_host_that_observes_changes_nothing_until_it_enforces() {
    let node = Node::with_guests(6);
    node.desk.write("desired/guests.toml", "[guest.100]\nkind = \"lxc\"\ncores = 3\n");
    let base = usual(&node);
    configure(&node, &format!("{base}\npolicy.mode = \"observe\""));
    let plan = node.desk.run("plan", &["-c", "agent.toml", "--detailed-exitcode"]).ends_with(0);
    assert!(plan.stdout.contains("held: this host is in observe mode"), "{}", plan.stdout);
    node.desk.run("apply", &["-c", "agent.toml", "-y"]).ends_with(0);
    assert_eq!(writes(&node), Vec::<String>::new());
    configure(&node, &base);
    node.desk.run("apply", &["-c", "agent.toml", "-y"]).ends_with(0);
    assert_eq!(writes(&node).len(), 1);
}

#[test]
fn a_running_agent_takes_the_hosts_mode_over_when_it_reloads() {
    let node = kept(4);
    let base = usual(&node);
    configure(&node, &format!("{base}\npolicy.mode = \"observe\""));
    let agent = Agent::start(&node);
    drift(&node, "lxc/100", "7");
    let observed = |status: &serde_json::Value| status.to_string().contains("\"observe\"");
    status_when(&node, observed);
    assert_eq!(writes(&node), Vec::<String>::new());
    configure(&node, &base);
    agent.signal("HUP");
    wait_for(|| agent.log(), || (writes(&node).len() == 1).then_some(()));
    configure(&node, &format!("{base}\npolicy.mode = \"observe\""));
    agent.signal("HUP");
    agent.says("reload");
    drift(&node, "lxc/100", "8");
    status_when(&node, observed);
    assert_eq!(writes(&node).len(), 1, "and nothing more");
    agent.terminate();
}

#[test]
fn what_is_ignored_is_not_drift_and_is_carried_along() {
    let node = Node::with_guests(4);
    let guest = "lxc/100".parse().unwrap();
    edit(
        &node,
        "lxc/100",
        "net0",
        "name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:01,rate=12,tag=4,type=veth",
    );
    edit(&node, "lxc/100", "tags", "by-hand");
    let declared = |tag: u32| {
        format!(
            "[defaults.lxc]\nignore = [\"tags\", \"net0.rate\", \"run\"]\n[guest.100]\nkind = \"lxc\"\n\
             run = \"stopped\"\ntags = [\"web\"]\nnet0 = {{ name = \"eth0\", bridge = \"vmbr0\", tag = {tag}, rate = 5 }}\n"
        )
    };
    node.desk.write("desired/guests.toml", &declared(4));
    node.run("plan", &["--desired", "desired", "--detailed-exitcode"]).ends_with(0);
    node.desk.write("desired/guests.toml", &declared(5));
    node.run("apply", &APPLY).ends_with(0);
    let net = node.stored(guest, "net0").unwrap();
    assert!(net.contains("tag=5") && net.contains("rate=12"), "{net}");
    assert_eq!(node.stored(guest, "tags").as_deref(), Some("by-hand"));
    node.run("plan", &["--desired", "desired", "--detailed-exitcode"]).ends_with(0);
}
