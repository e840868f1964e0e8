//! Files that are no files: pipes, sockets, devices and what never ends, wherever a person can name one (X09).

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::agent::{Agent, PATIENCE, configure, status_when, usual, wait_for};
use crate::daemon::kept;
use crate::support::{Desk, Node};

fn pipe(path: &Path) {
    let _ = std::fs::remove_file(path);
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn x09_a_pipe_among_the_desired_files_hangs_nothing() {
    let node = kept(6);
    configure(&node, &usual(&node));
    let agent = Agent::start(&node);
    agent.says("pass ended");
    let work = node.desk.work.path();
    pipe(&work.join("desired/zz.toml"));
    agent.says("is a pipe, not a plain file");
    // Passes go on with what was good, and every request is answered.
    let passes = || agent.log().matches("looked at the node").count();
    let before = passes();
    wait_for(|| "another pass".to_owned(), || (passes() > before).then_some(()));
    let told = status_when(&node, |status| status["agent"]["desired"]["trouble"].is_object());
    assert!(told["agent"]["desired"]["guests"].as_u64() > Some(0), "{told}");
    node.desk.write("no-approval", "{}");
    let submitted = node.desk.run("submit", &["no-approval", "-c", "agent.toml"]);
    assert!(submitted.stderr.contains("hint:"), "{}", submitted.stderr);
    agent.signal("HUP");
    std::fs::remove_file(work.join("desired/zz.toml")).unwrap();
    agent.says("desired files read");
    agent.terminate();
}

#[test]
fn x09_an_agent_that_starts_with_a_pipe_ends_when_it_is_told_to() {
    let node = kept(6);
    configure(&node, &usual(&node));
    pipe(&node.desk.work.path().join("desired/aa.toml"));
    let agent = Agent::start(&node);
    agent.says("is a pipe, not a plain file");
    agent.terminate();
}

/// Runs to the end, or fails.
#[track_caller]
fn ends_soon(mut command: Command) -> (Option<i32>, String) {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        if child.try_wait().unwrap().is_some() {
            let output = child.wait_with_output().unwrap();
            return (output.status.code(), String::from_utf8(output.stderr).unwrap());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    panic!("it hangs: {command:?}");
}

/// Every verb that reads a file somebody names, with something that is none.
#[test]
fn x09_no_verb_waits_for_a_pipe_or_reads_without_end() {
    let node = Node::with_guests(2);
    configure(&node, &usual(&node));
    let work = node.desk.work.path();
    pipe(&work.join("pipe.toml"));
    node.desk.write("good/web.toml", "[guest.100]\nkind = \"lxc\"\n");
    let agent_toml = node.desk.read("agent.toml");
    let with = |name: &str, more: &str| node.desk.write(name, &format!("{agent_toml}\n{more}\n"));
    with("trust.toml", "[trust]\nfile = \"pipe.toml\"");
    let ca = agent_toml.replace("fingerprint =", "ca_file = \"pipe.toml\"\n#");
    node.desk.write("ca.toml", &ca);
    let token = agent_toml.replace("token_file =", "token_file = \"pipe.toml\"\n#");
    node.desk.write("token.toml", &token);
    for arguments in [
        &["validate", "pipe.toml"][..],
        &["validate", "/dev/zero"],
        &["plan", "-c", "pipe.toml"],
        &["plan", "-c", "/dev/zero"],
        &["plan", "-c", "agent.toml", "--desired", "pipe.toml"],
        &["plan", "-c", "ca.toml", "--desired", "good"],
        &["plan", "-c", "token.toml", "--desired", "good"],
        &["apply", "-c", "agent.toml", "--desired", "good", "pipe.toml"],
        &["apply", "-c", "agent.toml", "--desired", "good", "/proc/kmsg"],
        &["apply", "-c", "trust.toml", "--desired", "good", "-y"],
        &["run", "-c", "pipe.toml"],
        &["run", "-c", "trust.toml"],
        &["submit", "pipe.toml", "-c", "agent.toml"],
        &["verify", "pipe.toml", "--trust", "pipe.toml"],
        &["sign", "pipe.toml", "--key", "pipe.toml", "--out", "out"],
        &["signers", "list", "--trust", "pipe.toml"],
        &["sim", "--listen", "127.0.0.1:0", "--faults", "pipe.toml"],
    ] {
        let mut command = node.desk.command(arguments[0]);
        command.args(&arguments[1..]);
        let (code, told) = ends_soon(command);
        assert!(code.is_some_and(|code| code != 0), "{arguments:?} ended with {code:?}: {told}");
        assert!(
            told.contains("hint:") && told.contains("not a plain file")
                || code == Some(64)
                || told.contains("/proc/kmsg"),
            "{arguments:?}: {told}"
        );
    }
    assert_eq!(crate::agent::writes(&node), Vec::<String>::new());
}

#[test]
fn x09_links_to_plain_files_are_followed_within_the_tree_and_not_out_of_it() {
    let desk = Desk::new();
    desk.write("desired/.checkout/web.toml", "[guest.100]\nkind = \"lxc\"\n");
    let link = desk.work.path().join("desired/web.toml");
    std::os::unix::fs::symlink(".checkout/web.toml", &link).unwrap();
    desk.run("validate", &["desired"]).ends_with(0);
    desk.write("elsewhere/web.toml", "[guest.100]\nkind = \"lxc\"\n");
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("../elsewhere/web.toml", &link).unwrap();
    let run = desk.run("validate", &["desired"]).ends_with(3);
    assert!(run.stderr.contains("desired/web.toml leads out of"), "{}", run.stderr);
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("loop.toml", desk.work.path().join("desired/loop.toml")).unwrap();
    let run = desk.run("validate", &["desired"]);
    assert!(run.code != 0 && run.stderr.contains("loop.toml"), "{}", run.stderr);
}

#[test]
fn y16_twenty_thousand_unknown_keys_are_told_in_a_hundred_and_a_number() {
    let desk = Desk::new();
    let unknown = (0..20_000).map(|number| format!("    nonsense{number}x: 1\n"));
    let text = format!("guest:\n  101:\n    kind: lxc\n{}", unknown.collect::<String>());
    desk.write("desired/web.yaml", &text);
    let told = desk.run("validate", &["desired"]).ends_with(3);
    assert_eq!(told.stderr.matches("error[E0201]").count(), 100);
    assert!(told.stderr.contains("19900 more mistakes are not told"), "{}", told.stderr);
    assert!(told.stderr.contains("20000 errors; nothing is taken"), "{}", told.stderr);
}
