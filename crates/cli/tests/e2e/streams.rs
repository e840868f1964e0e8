//! Data on stdout, talk on stderr, and manners towards pipes and terminals.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use crate::agent::{configure, usual};
use crate::keys::Terminal;
use crate::support::{Desk, Node};

const VERBS: [&str; 31] = [
    "demo",
    "sim",
    "plan",
    "apply",
    "run",
    "status",
    "pending",
    "request",
    "submit",
    "import",
    "doctor",
    "setup",
    "selftest",
    "freeze",
    "thaw",
    "audit",
    "journal",
    "retry",
    "enrol",
    "validate",
    "explain",
    "show",
    "schema",
    "approve",
    "sign",
    "verify",
    "signers",
    "hub",
    "fleet",
    "completions",
    "man",
];

#[test]
fn every_verb_has_help_on_stdout() {
    let desk = Desk::new();
    let all = desk.run("--help", &[]).ends_with(0);
    for verb in VERBS {
        assert!(all.stdout.contains(&format!("\n  {verb} ")), "{verb} in {}", all.stdout);
        let help = desk.run(verb, &["--help"]).ends_with(0);
        assert!(help.stdout.contains("Usage: evenkeel"), "{verb}: {}", help.stdout);
        assert_eq!(help.stderr, "");
    }
    let listed = all.stdout.lines().skip_while(|line| *line != "Commands:").skip(1);
    let verbs = listed.take_while(|line| !line.is_empty()).filter(|line| line.starts_with("  "));
    let names: Vec<&str> = verbs.filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, VERBS, "a verb this test does not know");
}

#[test]
fn completions_and_manual_pages_name_every_verb() {
    let desk = Desk::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = desk.run("completions", &[shell]).ends_with(0).stdout;
        for verb in VERBS {
            assert!(text.contains(verb), "{shell} does not complete {verb}");
        }
    }
    assert!(desk.run("man", &[]).ends_with(0).stdout.contains(".TH evenkeel 1"));
    desk.run("man", &["--out", "pages"]).ends_with(0);
    for verb in VERBS {
        assert!(desk.names("pages").contains(&format!("evenkeel-{verb}.1")), "{verb}");
    }
}

#[test]
fn json_stands_alone_on_stdout_and_carries_its_format_version() {
    let node = Node::with_guests(6);
    node.run("import", &["--out", "desired"]).ends_with(0);
    for (verb, version) in [("plan", 2), ("doctor", 1)] {
        let told = node.run(verb, &["--desired", "desired", "-o", "json"]).ends_with(0);
        assert_eq!(told.json()["format_version"], version, "{verb}");
        assert_eq!(told.stdout.lines().count(), 1, "{verb}");
        assert_eq!(told.stderr, "", "{verb}");
    }
    let told = node.desk.run("validate", &["desired", "-o", "json"]).ends_with(0);
    assert_eq!(told.json()["format_version"], 1);
    node.desk.write("desired/bad.toml", "[guest.1000]\nkind = \"vm\"\n");
    let told = node.desk.run("validate", &["desired", "-o", "json"]).ends_with(3);
    assert_eq!(told.json()["valid"], false);
    assert_eq!(told.stderr, "");
}

#[test]
fn an_error_leaves_stdout_empty() {
    let desk = Desk::new();
    for arguments in [&["plan"] as &[&str], &["import", "--out", "x"], &["doctor"], &["validate"]] {
        let told = desk.run(arguments[0], &arguments[1..]);
        assert_ne!(told.code, 0, "{arguments:?}");
        assert_eq!(told.stdout, "", "{arguments:?}");
        assert!(told.stderr.starts_with("error: "), "{arguments:?}: {}", told.stderr);
        assert!(told.stderr.contains("\n  hint: "), "{arguments:?}: {}", told.stderr);
    }
}

#[test]
fn colour_is_for_terminals_and_those_who_force_it_but_not_under_no_color() {
    let node = Node::with_guests(2);
    let desired = "[guest.100]\nkind = \"lxc\"\nhostname = \"other\"\n";
    node.desk.write("desired/a.toml", desired);
    let coloured = |variables: &[(&str, &str)]| {
        let mut command = node.command_as(0, "plan", &["--desired", "desired"]);
        command.envs(variables.iter().copied());
        let told = node.desk.told(command.output().unwrap()).ends_with(0);
        assert!(told.stdout.contains("other"), "{}", told.stdout);
        told.stdout.contains('\x1b')
    };
    assert!(!coloured(&[]), "stdout is a pipe");
    assert!(coloured(&[("CLICOLOR_FORCE", "1")]), "this test would see colour if there were any");
    assert!(!coloured(&[("NO_COLOR", "1")]));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let node = Node::with_guests(300);
    // Every guest is to be described at length, so that the plan is larger than a pipe.
    let declared = |number: u32| {
        let kind = if number.is_multiple_of(2) { "lxc" } else { "qemu" };
        format!("[guest.{number}]\nkind = \"{kind}\"\ndescription = \"{}\"\n", "x".repeat(400))
    };
    node.desk.write("desired/all.toml", &(100..400).map(declared).collect::<String>());
    let mut command = node.command_as(0, "plan", &["--desired", "desired"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    let mut reader = BufReader::with_capacity(1, child.stdout.take().unwrap());
    reader.read_line(&mut first).unwrap();
    drop(reader);
    let told = node.desk.told(child.wait_with_output().unwrap()).ends_with(0);
    assert!(first.starts_with("lxc/100"), "{first}");
    assert_eq!(told.stderr, "");
}

/// A node on which a clone is declared whose copy takes long enough to be looked at.
fn slow_clone() -> Node {
    let node = Node::with_guests(4);
    node.http.node.with(|simulator| simulator.timings.copy_ms = 3_000);
    std::fs::create_dir(node.desk.work.path().join("desired")).unwrap();
    let clone = "guest.221 = { kind = \"qemu\", source = { clone = 103, full = true } }\n";
    node.desk.write("desired/clone.toml", clone);
    configure(&node, &usual(&node));
    node
}

fn logs_read(node: &Node) -> usize {
    node.requests().iter().filter(|record| record.path.ends_with("/log")).count()
}

#[test]
fn apply_shows_on_a_terminal_what_its_task_logs_and_takes_the_line_back() {
    let node = slow_clone();
    let (code, seen) = Terminal::run(&node.desk, "apply -y -c agent.toml").ends();
    assert_eq!(code, 0, "{seen}");
    let (_, after) = seen.split_once("  qemu/221    0 %  transferred 0.0 B of ").expect(&seen);
    // The next line stands where this one was blanked out.
    let blanks = " ".repeat(20);
    assert!(after.contains(&format!("{blanks}+ qemu/221  clone")), "{seen}");
    assert!(logs_read(&node) > 0);
}

#[test]
fn apply_follows_no_log_of_a_task_where_nobody_sits_before_a_terminal() {
    let node = slow_clone();
    let run = node.desk.run("apply", &["-y", "-c", "agent.toml"]).ends_with(0);
    assert!(!run.words().contains("transferred"), "{}", run.words());
    // Once, when it had ended: it may have warned of something.
    assert_eq!(logs_read(&node), 1);
}
