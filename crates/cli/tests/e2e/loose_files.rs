//! What others could have written is not obeyed, and a copy of a state directory does not act beside the first (X14).

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::agent::{Agent, configure, status_when, usual, writes};
use crate::daemon::{drift, kept};
use crate::support::Node;

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// A node with drift that an agent would heal, and a trust file nobody needs.
fn node() -> Node {
    let node = kept(6);
    drift(&node, "lxc/100", "1");
    let trust = node.desk.work.path().join("signers/trust.toml");
    node.desk.write("signers/trust.toml", "no trust file, but nobody gets that far");
    configure(&node, &format!("{}\ntrust.file = \"{}\"", usual(&node), trust.display()));
    node
}

#[test]
fn x14_what_others_can_write_to_is_refused_with_the_command_that_mends_it() {
    let node = node();
    let work = node.desk.work.path();
    let files = ["agent.toml", "signers", "signers/trust.toml", "."];
    for (name, verb) in files.iter().flat_map(|name| [(name, "run"), (name, "apply")]) {
        let path = work.join(name).canonicalize().unwrap();
        let before = path.metadata().unwrap().permissions().mode();
        for bad in [0o777, 0o775] {
            chmod(&path, bad);
            let more: &[&str] = if verb == "apply" { &["-y"] } else { &[] };
            let run = node.desk.run(verb, &[&["-c", "agent.toml"], more].concat()).ends_with(3);
            let told = &run.stderr;
            let mends = format!("chmod go-w {}", path.display());
            assert!(told.contains(&mends) && told.contains(&format!("{bad:04o}")), "{told}");
        }
        chmod(&path, before);
    }
    assert_eq!(writes(&node), Vec::<String>::new());
}

#[test]
fn x14_desired_files_that_others_can_write_to_are_not_obeyed() {
    let node = node();
    std::fs::remove_dir_all(node.desk.work.path().join("signers")).unwrap();
    let desired = node.desk.work.path().join("desired");
    let file = desired.join(node.desk.names("desired").first().unwrap());
    for (path, good) in [(&desired, 0o755), (&file, 0o644)] {
        chmod(path, 0o777);
        for (verb, more) in [("plan", &[][..]), ("apply", &["-y"])] {
            let run = node.desk.run(verb, &[&["-c", "agent.toml"], more].concat()).ends_with(3);
            let mends = format!("chmod go-w {}", path.display());
            assert!(run.stderr.contains(&mends), "{}", run.stderr);
        }
        chmod(path, good);
    }
    // A running agent says so, keeps nothing it should not, and goes on as soon as it is mended.
    chmod(&desired, 0o777);
    let agent = Agent::start(&node);
    agent.says("desired files are not believed");
    assert_eq!(writes(&node), Vec::<String>::new());
    chmod(&desired, 0o755);
    agent.says("started");
    agent.terminate();
    assert_eq!(writes(&node).len(), 1);
}

#[test]
fn x14_a_second_agent_on_a_copy_of_the_state_directory_is_refused() {
    let node = node();
    let work = node.desk.work.path();
    std::fs::remove_dir_all(work.join("signers")).unwrap();
    let first = Agent::start(&node);
    first.says("pass ended");
    let copied = Command::new("cp").args(["-a", "state", "copy"]).current_dir(work).status();
    assert!(copied.unwrap().success());
    let _ = std::fs::remove_file(work.join("copy/agent.sock"));
    let config = node.desk.read("agent.toml").replace("/state\"", "/copy\"");
    node.desk.write("copy.toml", &config);
    for (verb, more) in [("run", &[][..]), ("apply", &["-y"])] {
        let run = node.desk.run(verb, &[&["-c", "copy.toml"], more].concat()).ends_with(7);
        let told = &run.stderr;
        assert!(
            told.contains("another evenkeel on this machine") && told.contains("SHA256:"),
            "{told}"
        );
        assert!(told.contains("hint:") && told.contains("copy"), "{told}");
    }
    // A killed one leaves its lock file behind, and it is in nobody's way.
    first.signal("KILL");
    assert_eq!(first.end(), None);
    let again = Agent::start(&node);
    status_when(&node, |status| status["agent"]["pid"] == again.pid());
    again.terminate();
}
