//! `freeze` stops every change and `thaw` lets them go on; `audit` tells both, and everything that was decided.

use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt as _;

use evenkeel_sim::Event;
use serde_json::Value;

use crate::support::{Desk, Node};

const STATE: [&str; 2] = ["--state", "state"];

/// A node with one guest that has drifted.
fn drifted() -> Node {
    let node = Node::with_guests(4);
    node.run("import", &["--out", "desired"]).ends_with(0);
    let set = BTreeMap::from([("cores".to_owned(), Some("3".to_owned()))]);
    node.happen(Event::Edit { guest: "lxc/100".parse().unwrap(), set });
    node
}

fn apply(node: &Node) -> crate::support::Run {
    node.run("apply", &["--desired", "desired", "--state", "state", "-y"])
}

/// What every agent leaves behind with its first start.
fn begin_a_journal(desk: &Desk) {
    let journal = desk.work.path().join("state/journal");
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(journal).unwrap();
}

fn mutations(node: &Node) -> usize {
    node.requests().iter().filter(|request| request.mutating).count()
}

fn entries(desk: &Desk, more: &[&str]) -> Vec<Value> {
    let run = desk.run("audit", &[&STATE[..], &["-o", "json"], more].concat()).ends_with(0);
    let answer: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(
        (answer["format_version"].as_u64(), answer["verified"].as_bool()),
        (Some(1), Some(true))
    );
    answer["entries"].as_array().unwrap().clone()
}

#[test]
fn a_frozen_host_sends_nothing_until_it_is_thawed_and_the_audit_tells_who_did_it() {
    let node = drifted();
    begin_a_journal(&node.desk);
    let frozen =
        node.desk.run("freeze", &["--state", "state", "--reason", "disk swap"]).ends_with(0);
    assert!(frozen.stdout.contains("evenkeel thaw"), "{}", frozen.stdout);
    assert!(frozen.stdout.contains("frozen: state"), "{}", frozen.stdout);
    let again = node.desk.run("freeze", &STATE).ends_with(0);
    assert!(again.stdout.contains("disk swap"), "the first reason stays: {}", again.stdout);
    for _ in 0..2 {
        apply(&node).ends_with(7);
    }
    assert_eq!(mutations(&node), 0, "frozen across restarts");

    let thawed = node.desk.run("thaw", &STATE).ends_with(0);
    assert!(thawed.stdout.contains("disk swap"), "{}", thawed.stdout);
    let was = node.desk.run("thaw", &[&STATE[..], &["-o", "json"]].concat()).ends_with(0);
    assert!(was.stdout.contains("\"already\":true"), "{}", was.stdout);
    apply(&node).ends_with(0);
    assert_eq!(mutations(&node), 1);

    let told: Vec<String> = entries(&node.desk, &[])
        .iter()
        .map(|entry| entry["event"].as_str().unwrap().to_owned())
        .collect();
    let all = ["frozen", "decision", "thawed", "thawed", "decision", "started", "succeeded"];
    assert_eq!(told, all, "the freeze, what it held, its end, and what ran then");
    assert_eq!(entries(&node.desk, &["--guest", "lxc/100"]).len(), 4, "also what holds no longer");
    assert_eq!(entries(&node.desk, &["--guest", "101"]).len(), 0);
    assert_eq!(entries(&node.desk, &["--since", "1h"]).len(), all.len());
    assert_eq!(entries(&node.desk, &["--since", "2099-01-01"]).len(), 0);
    let table = node.desk.run("audit", &STATE).ends_with(0).stdout;
    assert!(
        table.contains("disk swap") && table.contains("lxc/100  set_config  allowed"),
        "{table}"
    );
}

#[test]
fn freezing_needs_nothing_but_the_directory_not_even_a_configuration_that_reads() {
    let desk = Desk::new();
    begin_a_journal(&desk);
    desk.write("broken.toml", "[[[");
    desk.run("freeze", &["--config", "broken.toml", "--state", "state"]).ends_with(0);
    desk.run("freeze", &["--config", "broken.toml"]).ends_with(3);
    desk.write("agent.toml", "[state]\ndir = \"state\"\n");
    desk.run("thaw", &["--config", "agent.toml", "-o", "json"]).ends_with(0);
    desk.run("freeze", &["--state", "state", "--reason", &"x".repeat(2_000)]).ends_with(64);
}

#[test]
fn a_directory_that_no_agent_uses_is_not_frozen_and_is_named() {
    let desk = Desk::new();
    for verb in ["freeze", "thaw"] {
        let run = desk.run(verb, &["--state", "nowhere"]).ends_with(5);
        assert!(run.stderr.contains("nowhere") && run.stderr.contains("--state"), "{}", run.stderr);
        assert!(run.stdout.is_empty(), "{}", run.stdout);
    }
    assert!(!desk.work.path().join("nowhere").exists(), "nothing is written");
    // Whatever was frozen before there was a journal can still be thawed.
    desk.write("state/frozen", "");
    let run = desk.run("freeze", &STATE).ends_with(0);
    assert!(run.stdout.contains("already frozen: state"), "{}", run.stdout);
    desk.run("thaw", &STATE).ends_with(0);
}

#[test]
fn status_shows_the_freeze_since_when_by_whom_and_why_without_an_agent_too() {
    let desk = Desk::new();
    begin_a_journal(&desk);
    let json = &["--state", "state", "-o", "json", "--reason", "disk swap"];
    let frozen = desk.run("freeze", json).ends_with(0).json();
    assert_eq!((&frozen["frozen"], &frozen["already"]), (&true.into(), &false.into()));
    assert_eq!(
        (&frozen["directory"], &frozen["freeze"]["reason"]),
        (&"state".into(), &"disk swap".into())
    );
    let shown = desk.run("status", &STATE).ends_with(7).stdout;
    assert!(shown.starts_with("FROZEN      nothing is changed until `evenkeel thaw`\n"), "{shown}");
    let (since, rest) = shown.lines().nth(1).unwrap().split_once(" by uid ").unwrap();
    assert!(since.starts_with("            since 20") && since.ends_with('Z'), "{shown}");
    assert!(rest.ends_with(": disk swap"), "{shown}");
    let told = desk.run("status", &[&STATE[..], &["-o", "json"]].concat()).ends_with(7).json();
    assert_eq!((&told["frozen"], &told["freeze"]), (&true.into(), &frozen["freeze"]));
    let thawed = desk.run("thaw", &[&STATE[..], &["-o", "json"]].concat()).ends_with(0).json();
    assert_eq!(thawed["ended"], frozen["freeze"]);
    let told = desk.run("status", &[&STATE[..], &["-o", "json"]].concat()).ends_with(7).json();
    assert_eq!((&told["frozen"], &told["freeze"]), (&false.into(), &Value::Null));
}

#[test]
fn a_chain_that_does_not_verify_ends_the_audit_with_1_file_and_offset() {
    let node = drifted();
    apply(&node).ends_with(0);
    let file = "state/journal/journal-000001.jsonl";
    let bent = node.desk.read(file).replace("\"kind\":\"set_config\"", "\"kind\":\"set_confiG\"");
    node.desk.write(file, &bent);
    let run = node.desk.run("audit", &STATE).ends_with(1);
    assert!(
        run.stderr.contains("journal-000001.jsonl") && run.stderr.contains("byte "),
        "{}",
        run.stderr
    );
    let run = node.desk.run("audit", &[&STATE[..], &["-o", "json"]].concat()).ends_with(1);
    let answer: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(answer["verified"], false);
    assert_eq!(answer["damage"]["file"], "journal-000001.jsonl");
    assert!(answer["damage"]["offset"].as_u64().unwrap() > 0);
}

#[test]
fn an_audit_without_a_journal_or_of_no_moment_says_so() {
    let desk = Desk::new();
    let run = desk.run("audit", &STATE).ends_with(5);
    assert!(run.stderr.contains("--state"), "{}", run.stderr);
    desk.run("audit", &["--state", "state", "--since", "yesterday"]).ends_with(64);
    desk.run("audit", &["--state", "state", "--guest", "lxc/x"]).ends_with(64);
}
