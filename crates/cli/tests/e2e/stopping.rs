//! A stop is a stop: after Ctrl-C or SIGTERM nothing new begins, and what was sent is awaited or told (invariant 19).

use std::io::Read as _;
use std::process::{Child, Output, Stdio};

use evenkeel_core::operate::lane::SYNC_WRITES_PER_NODE_MAX;
use evenkeel_sim::{Effect, Fault};

use crate::agent::{Agent, configure, usual, wait_for, writes};
use crate::daemon::drift;
use crate::keys::Terminal;
use crate::support::{Node, Run};

/// Guests that differ from what is declared; each is a write.
const DRIFTED: usize = 20;

/// How long a write takes: twenty of them, two at a time, take far longer than it takes to send a signal on a busy machine.
const WRITE_MS: u64 = 2_000;

/// What `apply` says once it was told to stop.
const STOPPING: &str = "Stopping: nothing new begins";

/// A node with many guests to write to, that takes each write slowly.
fn slow_and_drifted() -> Node {
    let node = Node::with_guests(60);
    node.run("import", &["--out", "desired"]).ends_with(0);
    let containers = (100..160)
        .filter(|vmid| node.desk.work.path().join(format!("desired/lxc-{vmid}.toml")).exists());
    for vmid in containers.take(DRIFTED) {
        drift(&node, &format!("lxc/{vmid}"), "7");
    }
    slow(&node, Effect::Latency { ms: WRITE_MS });
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

/// An `apply` whose words are waited for.
struct RunningApply {
    child: Child,
    stderr: Vec<u8>,
}

impl RunningApply {
    /// Waits until it has said something on stderr.
    #[track_caller]
    fn says(&mut self, text: &str) {
        let stderr = self.child.stderr.as_mut().unwrap();
        let mut byte = [0; 1];
        while !self.stderr.ends_with(text.as_bytes()) {
            let read = stderr.read(&mut byte).unwrap();
            assert_eq!(
                read,
                1,
                "it never said {text:?}: {}",
                String::from_utf8_lossy(&self.stderr)
            );
            self.stderr.push(byte[0]);
        }
    }

    fn signal(&self, name: &str) {
        signal(&self.child, name);
    }

    fn end(self, node: &Node) -> Run {
        let Output { status, stdout, stderr } = self.child.wait_with_output().unwrap();
        let stderr = [self.stderr, stderr].concat();
        node.desk.told(Output { status, stdout, stderr })
    }
}

fn apply(node: &Node) -> RunningApply {
    let mut command =
        node.command_as(0, "apply", &["--desired", "desired", "--state", "state", "-y"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    RunningApply { child, stderr: Vec::new() }
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

/// Waits for the first write.
fn first_write(node: &Node) {
    wait_for(|| "a first write".to_owned(), || (!writes(node).is_empty()).then_some(()));
}

#[test]
fn a_signal_during_apply_lets_nothing_new_begin() {
    for name in ["INT", "TERM"] {
        let node = slow_and_drifted();
        let mut apply = apply(&node);
        first_write(&node);
        apply.signal(name);
        apply.says(STOPPING);
        let sent = writes(&node).len();
        let run = apply.end(&node).ends_with(7);
        let all = writes(&node).len();
        // Those that were on their way when it said so.
        assert!(all <= sent + SYNC_WRITES_PER_NODE_MAX, "{sent} at {name}, then {all}");
        assert!(run.stderr.contains("everything that was begun has ended"), "{}", run.stderr);
        let done = format!("Apply: {all} action");
        let skipped = format!("{} skipped", DRIFTED - all);
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
    first_write(&node);
    agent.signal("TERM");
    agent.says("INFO stopping");
    let sent = writes(&node).len();
    assert_eq!(agent.end(), Some(0), "a signal to end is no error");
    let all = writes(&node).len();
    assert!(all <= sent + SYNC_WRITES_PER_NODE_MAX, "{sent} at the signal, then {all}");
    assert!(all < DRIFTED, "it went on to the end");
}

#[test]
fn a_second_signal_tells_what_the_journal_says_is_in_flight() {
    let node = Node::with_guests(6);
    node.run("import", &["--out", "desired"]).ends_with(0);
    drift(&node, "lxc/100", "7");
    // The answer is lost: how it ended is only known a minute later.
    slow(&node, Effect::DropAfter);
    let mut apply = apply(&node);
    first_write(&node);
    apply.signal("INT");
    apply.says(STOPPING);
    apply.signal("INT");
    let run = apply.end(&node).ends_with(7);
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
    let node = Node::with_guests(6);
    node.run("import", &["--out", "desired"]).ends_with(0);
    configure(&node, &format!("{}\n", usual(&node).replace("interval = 5", "interval = 3600")));
    let agent = Agent::start(&node);
    agent.says("pass ended");
    slow(&node, Effect::Latency { ms: WRITE_MS });
    drift(&node, "lxc/100", "8");
    let mut command = node.desk.command("apply");
    command.args(["-c", "agent.toml", "-y"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    wait_for(|| agent.log(), || (!writes(&node).is_empty()).then_some(()));
    signal(&child, "INT");
    let run = ended(&node, child).ends_with(7);
    assert!(run.stderr.contains("the running agent finishes the actions"), "{}", run.stderr);
    agent.terminate();
}
