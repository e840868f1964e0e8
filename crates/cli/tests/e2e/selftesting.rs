//! `selftest` tries everything a change depends on, puts it back, and its report holds nothing that is nobody's business.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;

use evenkeel_sim::Event;

use crate::formats::fits;
use crate::support::{Node, Run};

/// The agent's user in these tests: a number that nobody has.
const AGENT: u32 = 12_345;

/// How long a backup takes that must be seen at work.
const LONG_MS: u64 = 5_000;

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
    node.http.node.with(|simulator| simulator.timings.copy_ms = LONG_MS);
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

#[test]
fn a_task_that_is_over_before_anybody_looks_is_too_quick_to_see_and_no_failure() {
    let node = Node::with_guests(3);
    node.http.node.with(|simulator| simulator.timings.copy_ms = 0);
    let told = selftest(&node, &["--storage", "store"]).ends_with(0);
    assert!(told.words().contains("lock too quick to see"), "{}", told.stdout);
    assert!(!told.words().contains("warning"), "{}", told.stdout);
    assert!(!told.words().contains("failed"), "{}", told.stdout);
}

#[test]
fn a_backup_that_fails_is_told_as_a_failure_however_quick() {
    let node = Node::with_guests(3);
    node.http.node.with(|simulator| simulator.timings.copy_ms = 0);
    let message = "command failed".to_owned();
    node.inject(evenkeel_sim::Effect::TaskFails { message }.on(":vzdump:"));
    let told = selftest(&node, &["--storage", "store"]).ends_with(1);
    assert!(told.words().contains("failed task"), "{}", told.stdout);
}

/// Every path below a directory.
fn below(directory: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| {
            let inside = if path.is_dir() { below(&path) } else { Vec::new() };
            [vec![path], inside].concat()
        })
        .collect()
}

/// A state directory of the agent's user, which that user can reach; none where the test is not root's.
fn agents_state(node: &Node) -> Option<std::path::PathBuf> {
    let work = node.desk.work.path();
    let state = work.join("state");
    std::fs::create_dir(&state).unwrap();
    std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o700)).unwrap();
    std::fs::set_permissions(work, std::fs::Permissions::from_mode(0o755)).unwrap();
    chown(&state, Some(AGENT), Some(AGENT)).ok().map(|()| state)
}

#[test]
fn root_tries_it_as_the_owner_of_the_state_directory_whose_journal_stays_the_agents() {
    let node = Node::with_guests(3);
    let Some(state) = agents_state(&node) else { return };
    let told = selftest(&node, &[]).ends_with(0);
    assert!(told.stderr.contains("root goes on as user 12345"), "{}", told.stderr);
    let made = below(&state);
    assert!(made.iter().any(|path| path.ends_with("journal/journal-000001.jsonl")), "{made:?}");
    for path in made {
        let found = path.symlink_metadata().unwrap();
        assert_eq!((found.uid(), found.gid()), (AGENT, AGENT), "{}", path.display());
    }
}

#[test]
fn y15_root_leaves_nothing_in_another_users_empty_state_directory() {
    let node = Node::with_guests(3);
    let Some(state) = agents_state(&node) else { return };
    node.run("import", &["--out", "desired"]).ends_with(0);
    let apply = ["--desired", "desired", "--state", "state", "-y"];
    let told = node.run("apply", &apply).ends_with(1);
    assert!(told.stderr.contains("it belongs to another user"), "{}", told.stderr);
    assert_eq!(below(&state), Vec::<std::path::PathBuf>::new());
    let told = node.run("doctor", &["--state", "state", "--write", "100", "-y"]);
    assert!(told.code != 0 && below(&state).is_empty(), "{:?}", below(&state));
}
