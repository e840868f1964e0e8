//! Proposing, looking, withdrawing and signed acts where no agent runs: the same engine under the same lock.

use evenkeel_agent::host_key::HostKey;

use crate::agent::{Agent, configure, status, usual, writes};
use crate::daemon::kept;
use crate::formats::fits;
use crate::keys::Operator;
use crate::support::{Node, Run};

pub(crate) fn ask(node: &Node, verb: &str, arguments: &[&str]) -> Run {
    node.desk.run(verb, &[arguments, &["-c", "agent.toml"]].concat())
}

/// A node with signers, on which something has happened: an empty task list proves nothing about anybody.
pub(crate) fn with_signers() -> (Node, Operator) {
    let node = kept(4);
    let operator = Operator::without_pin();
    operator.trust("ed25519");
    node.desk.write("trust.toml", &operator.desk.read("trust.toml"));
    let trust = node.desk.work.path().join("trust.toml");
    configure(&node, &format!("{}\ntrust.file = \"{}\"\n", usual(&node), trust.display()));
    node.happen(evenkeel_sim::Event::Power { guest: "lxc/100".parse().unwrap(), running: false });
    node.run("apply", &["-c", "agent.toml", "-y"]).ends_with(0);
    (node, operator)
}

/// The one item that waits.
pub(crate) fn item(node: &Node) -> String {
    let told = ask(node, "pending", &["-o", "json"]).ends_with(0).json();
    assert_eq!(told["items"].as_array().unwrap().len(), 1, "{told:#}");
    told["items"][0]["pending"].as_str().unwrap().to_owned()
}

#[test]
fn a_destroy_is_requested_signed_by_its_name_and_submitted_without_an_agent() {
    let (node, operator) = with_signers();
    for name in ["100", "lxc/100", "ct100"] {
        let asked = ask(&node, "request", &["destroy", name]).ends_with(6);
        assert!(asked.stdout.contains("destroy of lxc/100 waits"), "{}", asked.stdout);
    }
    let id = item(&node);
    let told = status(&node, &[]).ends_with(7);
    assert!(
        told.stdout.contains("requested") && told.stdout.contains(&id[..16]),
        "{}",
        told.stdout
    );

    operator.pin(&HostKey::load_or_create(&node.desk.work.path().join("state")).unwrap());
    let state = node.desk.work.path().join("state");
    let key = operator.path("alice");
    let state = state.display().to_string();
    let arguments = [
        "sign",
        &id[..16],
        "--state",
        &state,
        "--key",
        key.to_str().unwrap(),
        "--out",
        "ok.json",
        "-y",
    ];
    operator.run(&arguments).ends_with(0);
    node.desk.write("ok.json", &operator.desk.read("ok.json"));
    let verified = fits(&operator.run(&["verify", "ok.json", "-o", "json"]).ends_with(0), "verify");
    assert_eq!(verified["namespace"], "evenkeel.op.v1", "{verified:#}");
    let done = ask(&node, "submit", &["ok.json"]).ends_with(0);
    assert!(done.stdout.contains("destroy of lxc/100: done"), "{}", done.stdout);
    fits(&ask(&node, "submit", &["ok.json", "-o", "json"]).ends_with(0), "submit");
    let again = ask(&node, "submit", &["ok.json"]).ends_with(0);
    assert!(again.stdout.contains("replay"), "{}", again.stdout);
    let deletes = writes(&node).iter().filter(|write| write.starts_with("DELETE")).count();
    assert_eq!(deletes, 1, "{:?}", writes(&node));
    let audit = ask(&node, "audit", &["--signed"]).ends_with(0);
    assert!(audit.stdout.starts_with("TIME") && audit.stdout.contains("alice"), "{}", audit.stdout);
    assert!(!audit.stdout.contains("decision"), "only what was signed: {}", audit.stdout);
}

#[test]
fn what_was_requested_can_be_withdrawn_and_what_is_declared_cannot() {
    let (node, _operator) = with_signers();
    for with_agent in [false, true] {
        let agent = with_agent.then(|| Agent::start(&node));
        if let Some(agent) = &agent {
            agent.says("pass ended");
        }
        ask(&node, "request", &["destroy", "102"]).ends_with(6);
        let id = item(&node);
        let gone = ask(&node, "pending", &["withdraw", &id[..8], "--reason", "a mistake"]);
        assert!(gone.ends_with(0).stdout.contains("waits no longer"));
        ask(&node, "pending", &["withdraw", &id[..8]]).ends_with(5);
        let audit = ask(&node, "audit", &["--last", "2"]).ends_with(0);
        assert!(
            audit.stdout.contains("withdrawn") && audit.stdout.contains("a mistake"),
            "{}",
            audit.stdout
        );
        assert!(audit.stdout.contains("waits no longer"), "{}", audit.stdout);
        if let Some(agent) = agent {
            agent.terminate();
        }
    }
    node.desk.write("desired/lxc-100.toml", "guest.100 = { kind = \"lxc\", state = \"absent\" }\n");
    node.run("apply", &["-c", "agent.toml", "-y"]).ends_with(6);
    let id = item(&node);
    let refused = ask(&node, "pending", &["withdraw", &id]).ends_with(1);
    assert!(refused.stderr.contains("would raise it again"), "{}", refused.stderr);
    assert_eq!(item(&node), id);
}

#[test]
fn the_host_says_who_may_sign_on_it_now() {
    let (node, _operator) = with_signers();
    let listed = node.desk.run("signers", &["list", "-c", "agent.toml"]).ends_with(0);
    assert!(
        listed.stdout.contains("alice") && listed.stdout.contains("version 1"),
        "{}",
        listed.stdout
    );
    std::fs::remove_file(node.desk.work.path().join("trust.toml")).unwrap();
    let nobody = node.desk.run("signers", &["list", "-c", "agent.toml"]).ends_with(0);
    assert!(nobody.stdout.contains("nobody may sign on this host"), "{}", nobody.stdout);
}

/// Mistakes on the command line, answered in our own words: read them when they change.
#[test]
fn what_was_meant_is_said_where_the_command_line_is_wrong() {
    let (node, operator) = with_signers();
    for (name, code, verb, arguments) in [
        ("a rollback without a snapshot", 64, "request", &["rollback", "102"][..]),
        ("a volume that is attached", 64, "request", &["delete_volume", "102", "volume=mp0"]),
        ("a flag that is a word", 64, "request", &["destroy", "102", "purge=yes"]),
        ("a parameter that is none", 64, "request", &["destroy", "102", "bogus=1"]),
        ("a request for a guest that is not there", 5, "request", &["destroy", "999"]),
        ("a request for the other kind", 5, "request", &["destroy", "qemu/102"]),
    ] {
        let run = ask(&node, verb, arguments).ends_with(code);
        insta::assert_snapshot!(name.replace(' ', "-"), run.story());
    }
    for (name, line) in [
        ("an act that is no verb", &["destroy", "100"][..]),
        ("a start that is no verb", &["start", "100"]),
        ("another word for a verb", &["ls"]),
        (
            "a life that is too long",
            &["sign", "x.json", "--key", "k", "--out", "o", "--life", "2d"],
        ),
        ("a life that is none", &["sign", "x.json", "--key", "k", "--out", "o", "--life", "soon"]),
        ("a key without a name", &["signers", "enrol", "alice.pub", "--role", "operational"]),
    ] {
        let run = operator.run(line).ends_with(64);
        insta::assert_snapshot!(name.replace(' ', "-"), run.story());
    }
    assert_eq!(writes(&node).len(), 1, "nothing but the start above: {:?}", writes(&node));
}

#[test]
fn a_token_file_that_is_not_there_is_not_found() {
    let node = kept(2);
    let text = node.desk.read("agent.toml").replace("/token\"", "/no-token\"");
    node.desk.write("agent.toml", &text);
    let missing = ask(&node, "plan", &[]).ends_with(5);
    assert!(missing.stderr.contains("no-token"), "{}", missing.stderr);
}

/// Nothing can be made yet, and waiting does not change that: the rest is done, and it is said.
#[test]
fn a_guest_that_nobody_says_how_to_make_is_a_problem() {
    let node = kept(4);
    node.desk.write("desired/new.toml", "guest.900 = { kind = \"lxc\" }\n");
    let told = node.run("apply", &["-c", "agent.toml", "-y"]).ends_with(1);
    assert!(told.stdout.contains("it has no `source` to make it from"), "{}", told.stdout);
}
