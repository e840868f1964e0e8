//! `apply` while an agent runs: what keeps a plan from being carried out is named, and is not called stale.

use std::path::Path;

use evenkeel_sim::Event;

use crate::agent::{Agent, configure, status_when, usual, writes};
use crate::daemon::{drift, kept};
use crate::formats::on_terminal;
use crate::support::Node;

/// A node with an agent at rest.
fn at_rest() -> (Node, Agent) {
    let node = kept(4);
    let agent = Agent::start(&node);
    status_when(&node, |status| status["agent"]["last_pass"]["ended"] == true);
    (node, agent)
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[test]
fn other_desired_files_than_the_agents_are_named_before_anybody_is_asked() {
    let (node, agent) = at_rest();
    let work = node.desk.work.path();
    copy(&work.join("desired"), &work.join("other"));
    let apply = ["-c", "agent.toml", "--desired", "other", "-y"];
    node.run("apply", &apply).ends_with(0);

    node.desk.write("other/lxc-100.toml", "[guest.100]\nkind = \"lxc\"\ncores = 7\n");
    let run = node.run("apply", &apply).ends_with(64);
    assert!(
        !run.stderr.contains("stale") && run.stdout.is_empty(),
        "{}\n{}",
        run.stdout,
        run.stderr
    );
    insta::assert_snapshot!("other-desired-files-than-the-agents", run.story());
    node.run("apply", &["-c", "agent.toml", "-y"]).ends_with(0);
    assert_eq!(writes(&node), Vec::<String>::new());
    agent.terminate();
}

#[test]
fn a_plan_that_is_applied_on_a_frozen_host_hears_of_the_freeze_with_and_without_an_agent() {
    let node = kept(4);
    drift(&node, "lxc/100", "1");
    node.run("plan", &["-c", "agent.toml", "--out", "plan.json"]).ends_with(0);
    std::fs::create_dir_all(node.desk.work.path().join("state/journal")).unwrap();
    let private: std::fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    for directory in ["state", "state/journal"] {
        std::fs::set_permissions(node.desk.work.path().join(directory), private.clone()).unwrap();
    }
    node.desk.run("freeze", &["--state", "state", "--reason", "disk swap"]).ends_with(0);
    let apply = ["-c", "agent.toml", "plan.json"];
    let alone = node.run("apply", &apply).ends_with(7);
    let agent = Agent::start(&node);
    status_when(&node, |status| status["agent"]["last_pass"]["ended"] == true);
    let asked = node.run("apply", &apply).ends_with(7);
    for run in [&alone, &asked] {
        assert!(run.stderr.contains("this host is frozen"), "{}", run.stderr);
        assert!(run.stderr.contains("evenkeel thaw"), "{}", run.stderr);
        assert!(!run.stderr.contains("stale"), "{}", run.stderr);
    }
    // Somebody agreed before the freeze, and the agent hears of it after.
    let plan = node.desk.read("plan.json").replace('\n', " ");
    let request = format!("{{\"v\":1,\"request\":\"apply\",\"plan\":{plan}}}\n");
    let answer = crate::daemon_looks::ask(&node, request.as_bytes());
    assert_eq!(answer["code"]["gate"], "frozen", "{answer}");
    assert_eq!(writes(&node), Vec::<String>::new());
    agent.terminate();
}

#[test]
fn a_plan_whose_guest_was_locked_meanwhile_waits_for_the_lock() {
    let node = kept(4);
    drift(&node, "lxc/100", "1");
    node.run("plan", &["-c", "agent.toml", "--out", "plan.json"]).ends_with(0);
    let guest = "lxc/100".parse().unwrap();
    let lock = Some("backup".to_owned());
    node.happen(Event::Lock { guest, lock });
    let run = node.run("apply", &["-c", "agent.toml", "plan.json"]).ends_with(7);
    assert!(run.stderr.contains("is held now") && !run.stderr.contains("stale"), "{}", run.stderr);
    assert_eq!(writes(&node), Vec::<String>::new());
}

/// Declares a copy that takes a while, without the agent making it by itself.
fn declare_copy(node: &Node, vmid: u32) {
    node.desk.run("freeze", &["--state", "state", "--reason", "wait"]).ends_with(0);
    let copy =
        format!("guest.{vmid} = {{ kind = \"qemu\", source = {{ clone = 103, full = true }} }}\n");
    node.desk.write(&format!("desired/copy-{vmid}.toml"), &copy);
    let guests = |status: &serde_json::Value| status["agent"]["guests"].to_string();
    status_when(node, |status| {
        guests(status).contains(&vmid.to_string()) && guests(status).contains("frozen")
    });
    node.desk.run("thaw", &["--state", "state"]).ends_with(0);
}

fn logs_read(node: &Node) -> usize {
    node.requests().iter().filter(|request| request.path.ends_with("/log")).count()
}

#[test]
fn what_a_task_logs_is_shown_on_a_terminal_also_when_the_agent_waits_for_it() {
    let node = kept(4);
    // Far longer than the test: the agent makes no pass of its own.
    configure(&node, &usual(&node).replace("interval = 5", "interval = 86400"));
    let agent = Agent::start(&node);
    status_when(&node, |status| status["agent"]["last_pass"]["ended"] == true);
    node.http.node.with(|simulator| simulator.timings.copy_ms = 2_500);

    declare_copy(&node, 220);
    let told = node.run("apply", &["-c", "agent.toml", "-y"]).ends_with(0);
    assert!(!told.stderr.contains("transferred"), "{}", told.stderr);
    // Once, when it had ended: it may have warned of something.
    assert_eq!(logs_read(&node), 1, "nobody sees them");

    declare_copy(&node, 221);
    let told = on_terminal(&node, "apply -c agent.toml -y");
    assert!(told.contains("qemu/221") && told.contains("transferred"), "{told}");
    assert!(told.contains("0%"), "{told}");
    assert!(logs_read(&node) > 2, "while it works, and once at its end");
    agent.terminate();
}
