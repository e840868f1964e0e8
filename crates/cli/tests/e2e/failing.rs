//! What fails rests: the running agent waits before it tries again, says so, and tries at once when asked.

use evenkeel_sim::{Effect, Event, Fault};

use crate::agent::{Agent, status_when, wait_for, writes};
use crate::daemon::kept;
use crate::support::Node;

/// A container that shall run and cannot be started.
fn failing() -> Node {
    let node = kept(6);
    let message = "bridge 'vmbr9' does not exist".to_owned();
    node.inject(Fault {
        effect: Effect::TaskFails { message },
        method: None,
        contains: Some("vzstart".to_owned()),
        times: None,
    });
    node.happen(Event::Power { guest: "lxc/100".parse().unwrap(), running: false });
    node
}

#[test]
fn a_failure_is_held_with_its_reason_and_next_try_until_somebody_asks() {
    let node = failing();
    let agent = Agent::start(&node);
    let held = |status: &serde_json::Value| status["agent"]["guests"][0]["held"][0].clone();
    let status = status_when(&node, |status| held(status)["code"] == "failed_before");
    let why = held(&status)["why"].as_str().unwrap().to_owned();
    assert!(why.contains("failed once, tried again at") && why.contains("vmbr9"), "{why}");
    assert_eq!(writes(&node).len(), 1, "it is not tried at every pass");
    let run = node.desk.run("retry", &["lxc/100", "-c", "agent.toml"]).ends_with(0);
    assert!(run.stdout.contains("the agent retries guest 100 now"), "{}", run.stdout);
    wait_for(|| agent.log(), || (writes(&node).len() == 2).then_some(()));
    agent.terminate();
}

#[test]
fn retry_without_an_agent_is_kept_for_the_next_one() {
    let node = failing();
    let apply = ["--desired", "desired", "--state", "state", "-y"];
    node.run("apply", &apply).ends_with(1);
    // A person who applies is not kept waiting.
    node.run("apply", &apply).ends_with(1);
    assert_eq!(writes(&node).len(), 2);
    let retry = ["lxc/100", "--state", "state"];
    let run = node.desk.run("retry", &retry).ends_with(0);
    assert!(run.stdout.contains("tried by the next pass"), "{}", run.stdout);
    let run = node.desk.run("retry", &retry).ends_with(5);
    assert!(run.stderr.contains("no failed action waits on guest 100"), "{}", run.stderr);
    node.desk.run("retry", &["lxc/100", "--state", "elsewhere"]).ends_with(5);
    let agent = Agent::start(&node);
    wait_for(|| agent.log(), || (writes(&node).len() == 3).then_some(()));
    agent.terminate();
}
