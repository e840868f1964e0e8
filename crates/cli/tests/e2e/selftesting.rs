//! `selftest` tries everything a change depends on, puts it back, and its report holds nothing that is nobody's business.

use evenkeel_sim::Event;

use crate::formats::fits;
use crate::support::{Node, Run};

fn selftest(node: &Node, arguments: &[&str]) -> Run {
    node.run("selftest", &[&["--guest", "100", "-y", "--state", "state"], arguments].concat())
}

/// The writes that arrived, as method, last part of the path, and whether they were taken.
fn writes(node: &Node) -> Vec<(String, String)> {
    let requests = node.requests().into_iter().filter(|record| record.method != "GET");
    let last = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    requests.map(|record| (record.method.clone(), last(&record.path))).collect()
}

#[test]
fn selftest_tries_writes_digest_lock_and_task_and_puts_everything_back() {
    let node = Node::with_guests(3);
    let guest = "lxc/100".parse().unwrap();
    let before = node.stored(guest, "description");
    let told = selftest(&node, &["--storage", "store"]).ends_with(0);
    for line in [
        "read back letter by letter",
        "a write with a stale digest was refused by the node",
        "seen while the task runs: `backup`",
        "the next one took it up and closed it",
        "the guest is as it was, key by key",
    ] {
        assert!(told.words().contains(line), "{line}: {}", told.stdout);
    }
    assert!(!told.words().contains("warning"), "{}", told.stdout);
    let put = |what: &str| ("PUT".to_owned(), what.to_owned());
    let backup = ("POST".to_owned(), "vzdump".to_owned());
    assert_eq!(writes(&node), [put("config"), put("config"), put("config"), put("config"), backup]);
    assert_eq!(node.stored(guest, "description"), before);
    for private in ["127.0.0.1", "root@pam", "pve1", &node.http.certificate().fingerprint] {
        assert!(!told.stdout.contains(private), "{private}: {}", told.stdout);
    }
}

#[test]
fn without_a_storage_the_report_says_what_was_not_tried() {
    let node = Node::with_guests(3);
    let told = selftest(&node, &["-o", "json"]).ends_with(0);
    let report = fits(&told, "selftest");
    let verdicts: Vec<&str> = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| f["verdict"].as_str().unwrap())
        .collect();
    assert_eq!(verdicts, ["ok", "ok", "ok", "warning", "ok"], "{report:#}");
    assert_eq!(writes(&node).len(), 4);
}

#[test]
fn a_guest_that_somebody_works_on_is_left_alone() {
    let node = Node::with_guests(3);
    node.happen(Event::Lock { guest: "lxc/100".parse().unwrap(), lock: Some("backup".to_owned()) });
    let told = selftest(&node, &[]).ends_with(1);
    assert!(told.words().contains("has the lock `backup`"), "{}", told.stdout);
    assert_eq!(writes(&node), Vec::<(String, String)>::new());
}
