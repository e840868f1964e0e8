//! `apply` changes exactly what it showed, says what it left, and never asks without a terminal.

use std::collections::BTreeMap;

use evenkeel_core::model::id::GuestId;
use evenkeel_sim::{Effect, Event, Fault};

use crate::support::Node;

/// A node whose guests 100 and 102 have drifted from their imported files.
fn drifted() -> Node {
    let node = Node::with_guests(6);
    node.run("import", &["--out", "desired"]).ends_with(0);
    for (guest, cores) in [("lxc/100", "1"), ("lxc/102", "2")] {
        let set = BTreeMap::from([("cores".to_owned(), Some(cores.to_owned()))]);
        node.happen(Event::Edit { guest: guest.parse().unwrap(), set });
    }
    node
}

fn writes(node: &Node) -> Vec<String> {
    let requests = node.requests();
    let writes = requests.iter().filter(|request| request.mutating);
    writes.map(|request| format!("{} {}", request.method, request.path)).collect()
}

const APPLY: [&str; 4] = ["--desired", "desired", "--state", "state"];

#[test]
fn drift_is_healed_once_and_then_there_is_nothing_to_do() {
    let node = drifted();
    let run = node.run("apply", &[&APPLY[..], &["-y"]].concat()).ends_with(0);
    assert!(run.stdout.contains("Apply: 2 actions done"), "{}", run.stdout);
    assert_eq!(writes(&node).len(), 2, "{:?}", writes(&node));
    let plan = ["--desired", "desired", "--detailed-exitcode"];
    node.run("plan", &plan).ends_with(0);
    node.run("apply", &[&APPLY[..], &["-y"]].concat()).ends_with(0);
    assert_eq!(writes(&node).len(), 2, "nothing is sent at rest");
}

#[test]
fn without_a_terminal_nothing_is_asked_and_nothing_is_sent() {
    let node = drifted();
    let run = node.run("apply", &APPLY).ends_with(64);
    assert!(run.stderr.contains("-y"), "{}", run.stderr);
    assert_eq!(writes(&node), Vec::<String>::new());
}

#[test]
fn a_saved_plan_is_applied_exactly_or_refused_as_stale() {
    let node = drifted();
    node.run("plan", &["--desired", "desired", "--out", "plan.json"]).ends_with(0);
    let set = BTreeMap::from([("cores".to_owned(), Some("5".to_owned()))]);
    node.happen(Event::Edit { guest: "lxc/104".parse().unwrap(), set });
    let stale = node.run("apply", &[&APPLY[..], &["plan.json"]].concat()).ends_with(7);
    assert!(stale.stderr.contains("lxc/104"), "{}", stale.stderr);
    assert_eq!(writes(&node), Vec::<String>::new());

    node.run("plan", &["--desired", "desired", "--out", "plan.json"]).ends_with(0);
    let report = node.run("apply", &[&APPLY[..], &["plan.json", "-o", "json"]].concat());
    assert_eq!(report.ends_with(0).json()["succeeded"], 3);
    assert_eq!(writes(&node).len(), 3);
}

#[test]
fn a_file_that_is_no_plan_is_refused() {
    let node = drifted();
    for text in ["", "{}", "{\"format\":\"evenkeel/plan/v2\",\"node\":\"pve1\",\"actions\":[]}"] {
        node.desk.write("plan.json", text);
        let run = node.run("apply", &[&APPLY[..], &["plan.json"]].concat()).ends_with(3);
        assert!(run.stderr.contains("is not a saved plan"), "{}", run.stderr);
    }
    node.run("apply", &[&APPLY[..], &["none.json"]].concat()).ends_with(5);
    assert_eq!(writes(&node), Vec::<String>::new());
}

#[test]
fn what_needs_a_signature_is_left_and_the_rest_is_done() {
    let node = drifted();
    node.desk.write("desired/104.toml", "guest.104 = { kind = \"lxc\", state = \"absent\" }\n");
    let _ = std::fs::remove_file(node.desk.work.path().join("desired/lxc-104.toml"));
    let run = node.run("apply", &[&APPLY[..], &["-y"]].concat());
    let run = run.ends_with(6);
    assert!(run.stdout.contains("needs a signature"), "{}", run.stdout);
    assert_eq!(writes(&node).len(), 2, "{:?}", writes(&node));
    assert!(writes(&node).iter().all(|write| write.starts_with("PUT")));
}

#[test]
fn a_state_directory_in_use_is_left_alone() {
    let node = drifted();
    let path = node.desk.work.path().join("state");
    std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700)
        .create(&path)
        .unwrap();
    let lock = evenkeel_agent::journal::RealDisk::open(path.join("journal")).unwrap();
    let run = node.run("apply", &[&APPLY[..], &["-y"]].concat()).ends_with(7);
    assert!(run.stderr.contains("another evenkeel"), "{}", run.stderr);
    assert_eq!(writes(&node), Vec::<String>::new());
    drop(lock);
    node.run("apply", &[&APPLY[..], &["-y"]].concat()).ends_with(0);
}

#[test]
fn a_failed_task_is_told_in_proxmox_words_and_skips_the_rest_of_its_guest() {
    let node = Node::with_guests(6);
    node.run("import", &["--out", "desired"]).ends_with(0);
    let guest: GuestId = "lxc/100".parse().unwrap();
    node.happen(Event::Power { guest, running: false });
    let message = "startup for container '100' failed".to_owned();
    node.inject(Fault {
        effect: Effect::TaskFails { message },
        method: None,
        contains: Some("vzstart".to_owned()),
        times: Some(1),
    });
    let run = node.run("apply", &[&APPLY[..], &["-y"]].concat()).ends_with(1);
    assert!(run.stdout.contains("startup for container '100' failed"), "{}", run.stdout);
    node.run("apply", &[&APPLY[..], &["-y"]].concat()).ends_with(0);
}
