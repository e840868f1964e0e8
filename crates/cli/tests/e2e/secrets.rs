//! No secret of a guest reaches an output, a log, a file of ours or a number (invariant 17, X08).
//!
//! Every key that the registry calls secret is given a marked value, stored on the node and, where it can be declared,
//! declared. The marks are then looked for in everything a person or a program can read. A value that is no secret
//! goes the same way and must be found, so that the test cannot pass by looking at nothing.

use std::fmt::Write as _;
use std::path::Path;

use evenkeel_core::model::id::GuestKind;
use evenkeel_core::model::release::Release;
use evenkeel_core::registry::{Declarable, Key, table};
use evenkeel_sim::{Event, Scenario, Simulator};

use crate::agent::{Agent, configure, status, status_when, usual};
use crate::daemon_looks::scrape;
use crate::support::{Desk, Node, Run};

/// What is stored before, what is declared, and a third one; none may be seen anywhere.
const MARKS: [&str; 3] = ["marked-secret-old", "marked-secret-new", "marked-secret-third"];

/// What is no secret, and must be seen.
const PLAIN: &str = "marked-plain";

/// Every key that the registry calls secret, or that has a part it calls so.
fn secret_keys(kind: GuestKind) -> impl Iterator<Item = &'static Key> {
    table(kind).iter().filter(|key| {
        let parts = key.format.shape().map_or(&[][..], |shape| shape.parts);
        key.secret || parts.iter().any(|part| part.secret)
    })
}

/// A value of a secret key as PVE stores it.
fn stored(key: &Key, mark: &str) -> String {
    match key.name {
        "env" => format!("A={mark}\0TOKEN={mark}"),
        "args" | "cipassword" => mark.to_owned(),
        new => panic!("say how a marked value of `{new}` looks"),
    }
}

fn node() -> Node {
    let scenario = Scenario { release: Release::V9_2, guests: 2, ..Scenario::default() };
    let node = Node::start(&scenario);
    for (guest, kind) in [("lxc/100", GuestKind::Lxc), ("qemu/101", GuestKind::Qemu)] {
        let set = secret_keys(kind).map(|key| (key.name.to_owned(), Some(stored(key, MARKS[0]))));
        node.happen(Event::Edit { guest: guest.parse().unwrap(), set: set.collect() });
    }
    node
}

/// Both guests with everything secret that can be declared.
fn desired(mark: &str) -> String {
    let mut text = String::new();
    for (vmid, kind) in [(100, GuestKind::Lxc), (101, GuestKind::Qemu)] {
        let description = if kind == GuestKind::Lxc { PLAIN } else { "x" };
        writeln!(text, "[guest.{vmid}]\nkind = \"{kind}\"\ndescription = \"{description}\"")
            .unwrap();
        for key in secret_keys(kind).filter(|key| key.declared == Declarable::Yes) {
            let items: Vec<String> =
                stored(key, mark).split('\0').map(|item| format!("{item:?}")).collect();
            writeln!(text, "{} = [{}]", key.name, items.join(", ")).unwrap();
        }
    }
    text
}

/// Everything that was ever told, and every file of ours but the desired ones.
fn told(node: &Node, runs: &[Run]) -> String {
    let mut all = String::new();
    for run in runs {
        write!(all, "{}{}", run.stdout, run.stderr).unwrap();
    }
    files(node.desk.work.path(), &mut all);
    all
}

fn files(directory: &Path, all: &mut String) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("desired") {
            files(&path, all);
        } else if path.is_file() {
            all.push_str(&String::from_utf8_lossy(&std::fs::read(&path).unwrap()));
        }
    }
}

#[track_caller]
fn assert_hidden(all: &str) {
    assert!(all.contains(PLAIN), "the test looks at nothing: {all}");
    for mark in MARKS {
        let at = all.find(mark).map(|at| &all[at.saturating_sub(200)..(at + 60).min(all.len())]);
        assert_eq!(at, None, "a secret is shown");
    }
}

const APPLY: [&str; 4] = ["--desired", "desired", "--state", "state"];

#[test]
fn x08_no_secret_is_in_plan_apply_journal_audit_or_json() {
    let node = node();
    node.desk.write("desired/web.toml", &desired(MARKS[1]));
    let plan = ["--desired", "desired"];
    let mut runs = vec![
        node.run("plan", &plan).ends_with(0),
        node.run("plan", &[&plan[..], &["-o", "json"]].concat()).ends_with(0),
        node.run("plan", &[&plan[..], &["--out", "plan.json"]].concat()).ends_with(0),
        node.run("apply", &[&APPLY[..], &["plan.json"]].concat()).ends_with(0),
    ];
    node.desk.write("desired/web.toml", &desired(MARKS[2]));
    runs.push(node.run("apply", &[&APPLY[..], &["-y", "-o", "json"]].concat()).ends_with(0));
    for verb in ["journal", "audit", "status"] {
        for format in ["table", "json"] {
            runs.push(node.desk.run(verb, &["--state", "state", "-o", format]));
        }
    }
    for guest in ["100", "101"] {
        for format in ["table", "json"] {
            let arguments = [guest, "--desired", "desired", "--origin", "-o", format];
            runs.push(node.desk.run("show", &arguments).ends_with(0));
        }
    }
    runs.push(node.run("plan", &[&plan[..], &["-v"]].concat()).ends_with(0));
    runs.push(node.run("import", &["--out", "imported"]).ends_with(0));
    let env = table(GuestKind::Lxc).iter().find(|key| key.name == "env").unwrap();
    let waits = |simulator: &mut Simulator| {
        let mut guests = simulator.world.guests.values();
        guests.find_map(|guest| guest.config.pending.get("env").cloned())
    };
    let now = node.http.node.with(waits);
    assert_eq!(now, Some(stored(env, MARKS[2])), "what was declared is sent as it is");
    assert_hidden(&told(&node, &runs));
}

#[test]
fn x08_no_secret_is_in_log_status_or_metrics_of_a_running_agent() {
    let node = node();
    node.desk.write("desired/web.toml", &desired(MARKS[1]));
    configure(&node, &format!("{}\nmetrics.listen = \"127.0.0.1:0\"", usual(&node)));
    let agent = Agent::start(&node);
    status_when(&node, |status| status["agent"]["guests"][0]["after_restart"][0].is_string());
    node.desk.write("desired/web.toml", &format!("{}x", desired(MARKS[2])));
    agent.says("desired files cannot be used");
    let runs = [
        status(&node, &[]),
        status(&node, &["-o", "json"]),
        Run::of_text(&scrape(&agent, "/metrics").1),
        Run::of_text(&agent.log()),
    ];
    agent.terminate();
    assert_hidden(&told(&node, &runs));
}

#[test]
fn x08_no_secret_is_drawn_with_a_mistake_in_its_file() {
    let desk = Desk::new();
    let mark = MARKS[0];
    for (name, text) in [
        ("a.toml", format!("[guest.100]\nkind = \"lxc\"\nenv = [\"no name {mark}\"]\n")),
        ("a.toml", format!("[guest.100]\nkind = \"lxc\"\nenv = {{ A = \"{mark}\" }}\n")),
        ("a.toml", format!("guest.100 = {{ kind = \"lxc\", env = [\"A={mark}\"], coers = 2 }}\n")),
        ("a.toml", format!("[guest.100]\nkind = \"lxc\"\nenv = [\"A={mark}\n")),
        ("a.toml", format!("[guest.100]\nkind = \"lxc\"\nenv = [\n  \"A={mark},\n]\n")),
        ("a.toml", format!("[guest.100]\nkind = \"qemu\"\ncipassword = \"{mark}\"\n")),
        ("a.toml", format!("[guest.100]\nkind = \"qemu\"\npassword = \"{mark}\"\n")),
        ("a.yaml", format!("guest: {{100: {{kind: lxc, env: [\"A={mark}\"], coers: 2}}}}\n")),
        ("a.yaml", format!("x: &x [\"{mark}\"]\nguest: {{100: {{kind: lxc, env: *x}}}}\n")),
        ("a.json", format!("{{\"guest\":{{\"100\":{{\"kind\":\"lxc\",\"env\":[\"{mark}\"]}}}}}}")),
        ("a.json", format!("{{\"guest\":{{\"100\":{{\"kind\":\"lxc\",\"env\":[\"A={mark}\"}}}}}}")),
    ] {
        desk.write(name, &text);
        for format in ["table", "json"] {
            let run = desk.run("validate", &[name, "-o", format]).ends_with(3);
            let all = format!("{}{}", run.stdout, run.stderr);
            assert!(!all.contains(mark), "{text}\n{all}");
            assert!(all.contains(name), "the place is told: {all}");
        }
    }
}

#[test]
fn x08_what_cannot_be_declared_is_refused_without_repeating_it() {
    for kind in GuestKind::ALL {
        for key in secret_keys(kind).filter(|key| key.declared != Declarable::Yes) {
            let node = node();
            let vmid = if kind == GuestKind::Lxc { 100 } else { 101 };
            let text = format!(
                "[guest.{vmid}]\nkind = \"{kind}\"\ndescription = \"{PLAIN}\"\n{} = {:?}\n",
                key.name,
                stored(key, MARKS[1])
            );
            node.desk.write("desired/web.toml", &text);
            let runs = [
                node.desk.run("validate", &["desired"]),
                node.desk.run("validate", &["desired", "-o", "json"]),
                node.run("plan", &["--desired", "desired"]),
                node.run("plan", &["--desired", "desired", "-o", "json"]),
                node.run("apply", &[&APPLY[..], &["-y"]].concat()),
                Run::of_text(PLAIN),
            ];
            let all = told(&node, &runs);
            assert!(all.contains(key.name), "{all}");
            assert_hidden(&all);
        }
    }
}

#[test]
fn x08_a_saved_plan_is_stale_when_a_secret_changed_or_another_token_looks() {
    let node = node();
    node.desk.write("desired/web.toml", &desired(MARKS[1]));
    node.run("plan", &["--desired", "desired", "--out", "plan.json"]).ends_with(0);
    node.desk.write("desired/web.toml", &desired(MARKS[2]));
    let stale = node.run("apply", &[&APPLY[..], &["plan.json"]].concat()).ends_with(7);
    assert!(stale.stderr.contains("lxc/100") && stale.stderr.contains("env"), "{}", stale.stderr);
    node.desk.write("desired/web.toml", &desired(MARKS[1]));
    let other = node.run_as(2, "apply", &[&APPLY[..], &["plan.json"]].concat()).ends_with(7);
    assert!(other.stderr.contains("another API token"), "{}", other.stderr);
    assert_eq!(crate::agent::writes(&node), Vec::<String>::new());
    node.run("apply", &[&APPLY[..], &["plan.json"]].concat()).ends_with(0);
}
