//! A stop is a stop: after Ctrl-C or SIGTERM nothing new begins, and what was sent is awaited or told (invariant 19).

use std::process::{Child, Stdio};

use evenkeel_core::lane::SYNC_WRITES_PER_NODE_MAX;
use evenkeel_sim::{Effect, Fault};

use crate::agent::{Agent, configure, usual, wait_for, writes};
use crate::daemon::drift;
use crate::keys::Terminal;
use crate::support::{Node, Run};

/// Guests that differ from what is declared; each is a write.
const DRIFTED: usize = 20;

/// A node with many guests to write to, that takes each write slowly.
fn slow_and_drifted() -> Node {
    let node = Node::with_guests(60);
    node.run("import", &["--out", "desired"]).ends_with(0);
    let containers = (100..160)
        .filter(|vmid| node.desk.work.path().join(format!("desired/lxc-{vmid}.toml")).exists());
    for vmid in containers.take(DRIFTED) {
        drift(&node, &format!("lxc/{vmid}"), "7");
    }
    slow(&node, Effect::Latency { ms: 300 });
    node
}

fn slow(node: &Node, effect: Effect) {
    node.inject(Fault {
        effect,
        method: Some("PUT".to_owned()),
        contains: Some("/config".to_owned()),
        times: None,
    });
}

fn apply(node: &Node) -> Child {
    let mut command =
        node.command_as(0, "apply", &["--desired", "desired", "--state", "state", "-y"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn signal(child: &Child, name: &str) {
    let killed = std::process::Command::new("kill")
        .args([&format!("-{name}"), &child.id().to_string()])
        .status();
    assert!(killed.unwrap().success());
}

fn ended(node: &Node, child: Child) -> Run {
    node.desk.told(child.wait_with_output().unwrap())
}

/// Waits for the first write, and tells how many there are then.
fn first_write(node: &Node) -> usize {
    wait_for(|| "a first write".to_owned(), || Some(writes(node).len()).filter(|sent| *sent > 0))
}

#[test]
fn a_signal_during_apply_lets_nothing_new_begin() {
    for name in ["INT", "TERM"] {
        let node = slow_and_drifted();
        let child = apply(&node);
        let sent = first_write(&node);
        signal(&child, name);
        let run = ended(&node, child).ends_with(7);
        let all = writes(&node).len();
        // One more pair may have had its turn between our count and the signal.
        assert!(all <= sent + 2 * SYNC_WRITES_PER_NODE_MAX, "{sent} at {name}, then {all}");
        assert!(run.stderr.contains("everything that was begun has ended"), "{}", run.stderr);
        let (done, skipped) =
            (format!("Apply: {all} action"), format!("{} skipped", DRIFTED - all));
        assert!(run.stdout.contains(&done) && run.stdout.contains(&skipped), "{}", run.stdout);
        assert!(
            run.stderr.lines().count() < DRIFTED,
            "a line for each would bury the rest: {}",
            run.stderr
        );
    }
}

#[test]
fn a_signal_lets_the_running_agent_begin_nothing_new() {
    let node = slow_and_drifted();
    configure(&node, &usual(&node));
    let agent = Agent::start(&node);
    let sent = first_write(&node);
    agent.terminate();
    let all = writes(&node).len();
    assert!(all <= sent + 2 * SYNC_WRITES_PER_NODE_MAX, "{sent} at the signal, then {all}");
}

#[test]
fn a_second_signal_tells_what_the_journal_says_is_in_flight() {
    let node = Node::with_guests(6);
    node.run("import", &["--out", "desired"]).ends_with(0);
    drift(&node, "lxc/100", "7");
    // The answer is lost: how it ended is only known a minute later.
    slow(&node, Effect::DropAfter);
    let child = apply(&node);
    first_write(&node);
    signal(&child, "INT");
    std::thread::sleep(std::time::Duration::from_millis(500));
    signal(&child, "INT");
    let run = ended(&node, child).ends_with(7);
    let journal =
        node.desk.run("journal", &["--state", "state", "--open", "-o", "json"]).ends_with(0);
    let op = journal.json()["operations"][0]["op"].as_str().unwrap().to_owned();
    assert!(run.stderr.contains("In flight, by the journal: 1 operation"), "{}", run.stderr);
    assert!(run.stderr.contains(&op) && run.stderr.contains("lxc/100"), "{op}: {}", run.stderr);
}

/// `apply` on a terminal, up to its question.
fn asked(node: &Node) -> Terminal {
    configure(node, &usual(node));
    drift(node, "lxc/100", "7");
    Terminal::run(&node.desk, "apply -c agent.toml").shows("Apply 1 action? [y/N] ")
}

#[test]
fn ctrl_c_at_the_question_ends_at_once_and_nothing_was_changed() {
    let node = Node::with_guests(6);
    node.run("import", &["--out", "desired"]).ends_with(0);
    let (code, seen) = asked(&node).interrupts().shows("nothing was changed").ends();
    assert_eq!(code, 130, "{seen}");
    assert_eq!(writes(&node), Vec::<String>::new());
}

#[test]
fn no_says_that_nothing_was_changed() {
    let node = Node::with_guests(6);
    node.run("import", &["--out", "desired"]).ends_with(0);
    let (code, seen) = asked(&node).types("n").ends();
    assert_eq!(code, 0, "{seen}");
    assert!(seen.contains("Nothing was changed."), "{seen}");
    assert_eq!(writes(&node), Vec::<String>::new());
}

#[test]
fn ctrl_c_while_an_agent_works_ends_only_the_one_who_looks_on() {
    let node = slow_and_drifted();
    configure(&node, &format!("{}\n", usual(&node).replace("interval = 5", "interval = 3600")));
    let agent = Agent::start(&node);
    agent.says("pass ended");
    drift(&node, "lxc/100", "8");
    let mut command = node.desk.command("apply");
    command.args(["-c", "agent.toml", "-y"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    wait_for(|| agent.log(), || (writes(&node).len() > DRIFTED).then_some(()));
    signal(&child, "INT");
    let run = ended(&node, child).ends_with(7);
    assert!(run.stderr.contains("the running agent goes on"), "{}", run.stderr);
    agent.terminate();
}
