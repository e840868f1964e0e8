//! What programs and people read: JSON as its schemas say, and lines that fit a terminal.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::agent::{Agent, status_when};
use crate::daemon::{drift, kept};
use crate::support::{Desk, Node, Run, SimProcess};

fn ask(node: &Node, verb: &str, arguments: &[&str]) -> Run {
    node.desk.run(verb, &[arguments, &["-c", "agent.toml"]].concat())
}

/// Holds what a verb printed against its published schema.
#[track_caller]
pub(crate) fn fits(run: &Run, name: &str) -> Value {
    assert!(!run.stdout.trim_end().contains('\n'), "one line: {}", run.stdout);
    let answer = run.json();
    answer_fits(&answer, name);
    answer
}

#[track_caller]
fn answer_fits(answer: &Value, name: &str) {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/json");
    let text = std::fs::read_to_string(Path::new(directory).join(format!("{name}.json"))).unwrap();
    let schema: Value = serde_json::from_str(&text).unwrap();
    let errors: Vec<String> = jsonschema::validator_for(&schema)
        .unwrap()
        .iter_errors(answer)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{name}: {errors:#?} in {answer:#}");
    assert!(answer["format_version"].as_u64().is_some(), "{answer:#}");
}

#[test]
fn where_a_simulator_listens_is_told_as_its_schema_says() {
    let desk = Desk::new();
    answer_fits(&SimProcess::start(&desk, &[]).ready, "sim");
    let plain = SimProcess::start(&desk, &["--plain-http"]);
    answer_fits(&plain.ready, "sim");
    assert_eq!(plain.ready["fingerprint"], Value::Null);
}

/// lxc/100 shall have a long description.
fn described(node: &Node) {
    let text = format!("[guest.100]\nkind = \"lxc\"\ndescription = \"{LONG}\"\n");
    node.desk.write("desired/lxc-100.toml", &text);
}

/// A long text, so that anything that is cut is seen.
const LONG: &str = "a description that is far longer than any plan shows to a person in one line of a terminal, whole";

#[test]
fn every_answer_is_as_its_schema_says_and_nothing_is_cut() {
    let node = kept(4);
    described(&node);
    drift(&node, "lxc/102", "7");
    node.desk
        .write("desired/qemu-101.toml", "guest.101 = { kind = \"qemu\", state = \"absent\" }\n");
    let plan = ask(&node, "plan", &["-o", "json"]).ends_with(0);
    assert!(!plan.stdout.contains('…'), "{}", plan.stdout);
    let plan = fits(&plan, "plan");
    let changes = &plan["guests"][0]["actions"][0]["changes"];
    assert_eq!(changes[0]["key"], "description", "{plan:#}");
    assert_eq!(changes[0]["after"], LONG, "{plan:#}");
    assert!(changes[0]["before"].is_string() || changes[0]["before"].is_null());

    fits(&ask(&node, "status", &["-o", "json"]).ends_with(7), "status");
    fits(&ask(&node, "apply", &["-y", "-o", "json"]).ends_with(6), "apply");
    let pending = fits(&ask(&node, "pending", &["-o", "json"]).ends_with(0), "pending");
    let raised = pending["items"][0]["raised_at"].as_str().unwrap();
    assert!(raised.ends_with('Z') && raised.contains('T'), "{raised}");
    let raised =
        fits(&ask(&node, "request", &["destroy", "lxc/102", "-o", "json"]).ends_with(6), "request");
    let id = raised["pending"].as_str().unwrap();
    fits(&ask(&node, "pending", &["withdraw", id, "-o", "json"]).ends_with(0), "request");
    fits(&ask(&node, "journal", &["verify", "-o", "json"]).ends_with(0), "journal-verify");
    fits(&ask(&node, "signers", &["list", "-o", "json"]).ends_with(0), "signers-list");
    let valid = node.desk.run("validate", &["desired", "-o", "json"]).ends_with(0);
    fits(&valid, "validate");
    node.desk.write("broken/a.toml", "[guest.100]\nkind = \"lxc\"\ncoers = 2\n");
    let invalid = node.desk.run("validate", &["broken", "-o", "json"]).ends_with(3);
    assert_eq!(fits(&invalid, "validate")["errors"][0]["at"]["line"], 3);
    fits(&ask(&node, "doctor", &["-o", "json"]).ends_with(0), "doctor");
    let shown = fits(&ask(&node, "show", &["100", "-o", "json"]).ends_with(0), "show");
    assert_eq!(shown["origins"]["description"]["line"], 3, "{shown:#}");
    fits(&node.desk.run("explain", &["net0", "-o", "json"]).ends_with(0), "explain");
    fits(&node.desk.run("explain", &["-o", "json"]).ends_with(0), "explain");
    for (verb, already) in [("freeze", false), ("freeze", true), ("thaw", false), ("thaw", true)] {
        let done = fits(&ask(&node, verb, &["-o", "json"]).ends_with(0), verb);
        assert_eq!(done["already"], already, "{done:#}");
    }
    let audit = fits(&ask(&node, "audit", &["-o", "json"]).ends_with(0), "audit");
    assert!(audit["entries"][0]["at"].as_str().unwrap().ends_with('Z'), "{audit:#}");
}

#[test]
fn journal_show_tells_steps_values_task_and_its_log() {
    let node = kept(4);
    node.happen(evenkeel_sim::Event::Power { guest: "lxc/100".parse().unwrap(), running: false });
    drift(&node, "lxc/102", "7");
    ask(&node, "apply", &["-y"]).ends_with(0);
    let listed = fits(&ask(&node, "journal", &["-o", "json"]).ends_with(0), "journal");
    let of = |kind: &str| {
        let operations = listed["operations"].as_array().unwrap();
        let found = operations.iter().find(|operation| operation["kind"] == kind).unwrap();
        found["op"].as_str().unwrap().to_owned()
    };
    let write = ask(&node, "journal", &["show", &of("set_config")]).ends_with(0);
    assert!(write.stdout.contains("cores  7 -> "), "{}", write.stdout);
    assert!(
        write.stdout.contains("started") && write.stdout.contains("succeeded"),
        "{}",
        write.stdout
    );
    let start = ask(&node, "journal", &["show", &of("start")]).ends_with(0);
    assert!(start.stdout.contains("UPID:") && start.stdout.contains("TASK OK"), "{}", start.stdout);
    let shown = fits(
        &ask(&node, "journal", &["show", &of("start"), "-o", "json"]).ends_with(0),
        "journal-show",
    );
    assert_eq!(shown["steps"][0]["event"], "started", "{shown:#}");
    assert_eq!(shown["task_logs"][0]["problem"], Value::Null, "{shown:#}");
    let alone = node.desk.run("journal", &["show", &of("start"), "--state", "state"]).ends_with(0);
    assert!(!alone.stdout.contains("TASK OK"), "nobody says where the node is: {}", alone.stdout);
    let none = ask(&node, "journal", &["show", "op_01ARZ3NDEKTSV4RRFFQ69G5FAV"]).ends_with(5);
    assert!(none.stderr.contains("knows no operation"), "{}", none.stderr);
}

/// Runs a verb on a terminal of 80 columns and returns what it drew, without colours.
pub(crate) fn on_terminal(node: &Node, line: &str) -> String {
    let binary = env!("CARGO_BIN_EXE_evenkeel");
    let command = format!("stty cols 80 rows 50; exec {binary} {line}");
    let mut script = Command::new("script");
    script.args(["-qec", &command, "/dev/null"]).current_dir(node.desk.work.path());
    script.env_clear().env("HOME", node.desk.work.path()).env("PATH", "/usr/bin:/bin");
    let output = script.env("TERM", "xterm").env("NO_COLOR", "1").output().unwrap();
    String::from_utf8(output.stdout).unwrap().replace('\r', "")
}

#[test]
fn everything_fits_a_terminal_of_eighty_columns() {
    let node = kept(8);
    node.desk.write("desired/lxc-104.toml", "guest.104 = { kind = \"lxc\", state = \"absent\" }\n");
    node.desk.write("desired/gone.toml", "guest.900 = { kind = \"lxc\" }\n");
    described(&node);
    drift(&node, "lxc/102", "7");
    node.happen(evenkeel_sim::Event::Power { guest: "lxc/106".parse().unwrap(), running: false });
    let mut lines = vec!["plan -c agent.toml", "plan -c agent.toml 999", "apply -c agent.toml -y"];
    lines.extend(["journal -c agent.toml", "audit -c agent.toml", "pending -c agent.toml"]);
    lines.extend(["status -c agent.toml", "signers list -c agent.toml", "doctor -c agent.toml"]);
    lines.extend([
        "import -c agent.toml --out desired",
        "plan --help",
        "request --help",
        "destroy 100",
    ]);
    for line in lines {
        let told = on_terminal(&node, line);
        assert!(!told.is_empty(), "{line}");
        let wide: Vec<&str> = told.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(wide.is_empty(), "{line}: {wide:#?}");
    }
}

/// A node whose every guest has drifted and may not be changed: two thousand blocks nobody would read.
#[test]
fn status_of_two_thousand_guests_is_a_summary_and_all_tells_each() {
    let node = Node::with_guests(2_000);
    node.run("import", &["--out", "desired"]).ends_with(0);
    for entry in std::fs::read_dir(node.desk.work.path().join("desired")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let (kind, vmid) = name.split_once('-').unwrap();
        let text = format!("[guest.{vmid}]\nkind = \"{kind}\"\nprotection = true\n");
        std::fs::write(&path, text).unwrap();
    }
    crate::agent::configure(
        &node,
        &crate::agent::usual(&node).replace("interval = 5", "interval = 3600"),
    );
    let state = node.desk.work.path().join("state");
    std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700)
        .create(state)
        .unwrap();
    std::fs::write(node.desk.work.path().join("state/frozen"), "").unwrap();
    let agent = Agent::start(&node);
    status_when(&node, |status| status["agent"]["last_pass"]["ended"] == true);
    let short = ask(&node, "status", &[]).ends_with(0);
    assert!(short.stdout.lines().count() < 30, "{}", short.stdout);
    assert!(short.stdout.contains("held (frozen)"), "{}", short.stdout);
    assert!(short.stdout.contains("evenkeel status --all"), "{}", short.stdout);
    let all = ask(&node, "status", &["--all"]).ends_with(0);
    assert!(all.stdout.lines().count() > 2_000, "{}", all.stdout.lines().count());
    agent.terminate();
}

#[test]
fn status_ends_with_7_while_the_node_cannot_be_read() {
    let node = kept(2);
    let agent = Agent::start(&node);
    status_when(&node, |status| status["agent"]["last_pass"]["ended"] == true);
    let gone = evenkeel_sim::Effect::Garbage { body: "<html>".to_owned() };
    // What every pass asks for, whatever it remembers.
    node.http.node.with(|simulator| simulator.inject(gone.on("/lxc")));
    status_when(&node, |status| status["agent"]["node_trouble"].is_object());
    ask(&node, "status", &[]).ends_with(7);
    agent.terminate();
}
