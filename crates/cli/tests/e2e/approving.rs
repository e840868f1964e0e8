//! `approve`: what waits is shown, signed, handed in and awaited in one, and nothing else is handed in by mistake.

use evenkeel_agent::host_key::HostKey;

use crate::agent::{Agent, configure, usual, writes};
use crate::agentless::{ask, with_signers};
use crate::daemon::kept;
use crate::keys::Operator;
use crate::support::Node;

/// A host with an agent that runs, an operator who pinned it, and the place of its state.
fn with_agent() -> (Node, Operator, Agent, String) {
    let (node, operator) = with_signers();
    let agent = Agent::start(&node);
    agent.says("pass ended");
    operator.pin(&HostKey::load_or_create(&node.desk.work.path().join("state")).unwrap());
    let state = node.desk.work.path().join("state").display().to_string();
    (node, operator, agent, state)
}

/// The names of what waits about a guest.
fn items(node: &Node, guest: &str) -> Vec<String> {
    let told = ask(node, "pending", &["-o", "json"]).ends_with(0).json();
    let about = told["items"].as_array().unwrap().iter().filter(|item| item["guest"] == guest);
    about.map(|item| item["pending"].as_str().unwrap().to_owned()).collect()
}

fn deletes(node: &Node) -> Vec<String> {
    writes(node).into_iter().filter(|write| write.starts_with("DELETE")).collect()
}

#[test]
fn z07_an_item_is_shown_signed_handed_in_and_awaited_with_no_file_between() {
    let (node, operator, agent, state) = with_agent();
    ask(&node, "request", &["destroy", "100"]).ends_with(6);
    ask(&node, "request", &["destroy", "102"]).ends_with(6);
    let listed = ask(&node, "pending", &[]).ends_with(0);
    assert!(listed.stderr.contains("`evenkeel approve PENDING --key KEY`"), "{}", listed.stderr);
    let id = items(&node, "lxc/100").remove(0);
    assert!(listed.stdout.contains(&format!("{}  destroy", &id[..16])), "{}", listed.stdout);
    let line = ["approve", &id[..16], "--state", &state, "--key", "alice"];
    // Nobody is there who could be asked, and nobody said yes.
    operator.run(&line).ends_with(64);
    let answer = format!("approve {} --state {state} --key alice", &id[..16]);
    let (code, seen) = operator
        .on_a_terminal(&answer)
        .shows("Sign this with alice and hand it in? [y/N] ")
        .types("n")
        .ends();
    assert_eq!(code, 1, "{seen}");
    assert_eq!(deletes(&node), Vec::<String>::new());
    let before = operator.desk.names(".");
    let done = operator.run(&[&line[..], &["-y", "--reason", "test box"]].concat()).ends_with(0);
    assert!(done.stderr.contains("The host pve1 says:") && done.stderr.contains("You sign:"));
    assert!(done.stderr.contains("test box"), "{}", done.stderr);
    assert!(done.stdout.contains("destroy of lxc/100: done"), "{}", done.stdout);
    assert_eq!(operator.desk.names("."), before, "no file is left");
    assert_eq!(deletes(&node).len(), 1, "{:?}", deletes(&node));
    // By a guest, too: the one item about it.
    let told = operator.run(&["approve", "100", "--state", &state, "--key", "alice", "-y"]);
    assert!(told.ends_with(5).stderr.contains("nothing that waits is called 100"));
    let line = ["approve", "lxc/102", "--state", &state, "--key", "vault", "-y"];
    let refused = operator.run(&line).ends_with(4);
    assert!(refused.stderr.contains("role_denied"), "{}", refused.stderr);
    let line = ["approve", "102", "--state", &state, "--key", "alice", "-y", "-o", "json"];
    let done = operator.run(&line).ends_with(0).json();
    assert_eq!(done["act"]["guest"], "lxc/102", "{done:#}");
    assert_eq!(deletes(&node).len(), 2);
    agent.terminate();
}

#[test]
fn z07_a_guest_that_several_items_are_about_names_none_of_them() {
    let (node, operator, agent, state) = with_agent();
    ask(&node, "request", &["destroy", "100"]).ends_with(6);
    ask(&node, "request", &["destroy", "100", "purge=1"]).ends_with(6);
    let ids = items(&node, "lxc/100");
    assert_eq!(ids.len(), 2);
    let told = operator.run(&["approve", "lxc/100", "--state", &state, "--key", "alice", "-y"]);
    let told = told.ends_with(64);
    assert!(ids.iter().all(|id| told.stderr.contains(&id[..16])), "{}", told.stderr);
    assert_eq!(deletes(&node), Vec::<String>::new());
    agent.terminate();
}

#[test]
fn z07_what_is_handed_in_is_shown_and_asked_about_where_a_person_is() {
    let operator = Operator::new();
    operator.trust("ed25519");
    operator.approve("approval.json").ends_with(0);
    let (code, seen) = operator
        .on_a_terminal("submit approval.json")
        .shows("Hand this in? [y/N] ")
        .types("n")
        .ends();
    assert_eq!(code, 1, "{seen}");
    assert!(seen.contains("You hand in:") && seen.contains("DESTROY qemu/101"), "{seen}");
    assert!(seen.contains("signature of ssh-ed25519 SHA256:"), "{seen}");
    assert!(seen.contains("nothing was handed in, as you said"), "{seen}");
    // With yes, and without a terminal, nobody is asked; here is no agent and no configuration.
    let (code, seen) = operator.on_a_terminal("submit approval.json --yes").ends();
    assert!(code != 1 && !seen.contains("[y/N]") && seen.contains("DESTROY qemu/101"), "{seen}");
    let told = operator.run(&["submit", "approval.json"]);
    assert!(!told.stderr.contains("[y/N]"), "{}", told.stderr);
    assert!(told.stderr.contains("You hand in:\n\nDESTROY qemu/101"), "{}", told.stderr);
}

#[test]
fn z07_a_signed_file_is_called_after_its_item_and_replaces_nothing() {
    let operator = Operator::new();
    operator.trust("ed25519");
    let sign = ["sign", "item.json", "--key", "alice", "-y"];
    let told = operator.run(&sign).ends_with(0);
    let name = told.stdout.split([' ', ',']).nth(1).unwrap().to_owned();
    let id = name.strip_prefix("approval-").and_then(|name| name.strip_suffix(".json")).unwrap();
    assert_eq!(id.len(), 16, "{name}");
    assert!(told.stderr.contains(&format!("pending      {id}")), "{}", told.stderr);
    let first = operator.desk.read(&name);
    let told = operator.run(&sign).ends_with(1);
    assert!(told.stderr.contains(&format!("{name} already exists")), "{}", told.stderr);
    assert_eq!(operator.desk.read(&name), first);
    operator.run(&["verify", &name, "--trust", "trust.toml"]).ends_with(0);
}

#[test]
fn z08_two_signers_approve_one_after_the_other_and_one_of_them_denies() {
    let node = kept(4);
    let operator = Operator::without_pin();
    operator.trust("ed25519");
    operator.generate("ecdsa", "bob");
    operator.enrol("bob", "operational").ends_with(0);
    node.desk.write("trust.toml", &operator.desk.read("trust.toml"));
    let trust = node.desk.work.path().join("trust.toml");
    let rule = "[[policy.approve]]\nop = \"destroy\"\nsigners = 2\nrequester_counts = false\n";
    configure(&node, &format!("{}\ntrust.file = \"{}\"\n{rule}", usual(&node), trust.display()));
    node.happen(evenkeel_sim::Event::Power { guest: "lxc/100".parse().unwrap(), running: false });
    node.run("apply", &["-c", "agent.toml", "-y"]).ends_with(0);
    let agent = Agent::start(&node);
    agent.says("pass ended");
    operator.pin(&HostKey::load_or_create(&node.desk.work.path().join("state")).unwrap());
    let state = node.desk.work.path().join("state").display().to_string();
    let refused = ask(&node, "request", &["destroy", "100"]).ends_with(4);
    assert!(refused.stderr.contains("--as NAME"), "{}", refused.stderr);
    ask(&node, "request", &["destroy", "100", "--as", "vault"]).ends_with(6);
    ask(&node, "request", &["destroy", "102", "--as", "vault"]).ends_with(6);
    let approve = |guest: &str, key: &str, more: &[&str]| {
        let line = ["approve", guest, "--state", &state, "--key", key, "-y"];
        operator.run(&[&line[..], more].concat())
    };
    let first = approve("lxc/100", "alice", &["--reason", "no longer used"]).ends_with(6);
    assert!(first.stderr.contains("1 of 2 signatures: alice"), "{}", first.stderr);
    let listed = ask(&node, "pending", &[]).ends_with(0);
    assert!(listed.stdout.contains("it takes more signers"), "{}", listed.stdout);
    approve("lxc/100", "alice", &[]).ends_with(3);
    assert_eq!(deletes(&node), Vec::<String>::new());
    // Bob reads what alice signed, and who she is, and signs the same bytes.
    let second = approve("lxc/100", "bob", &[]).ends_with(0);
    assert!(second.stderr.contains("signed by"), "{}", second.stderr);
    assert!(second.stderr.contains("no longer used"), "{}", second.stderr);
    assert!(second.stdout.contains("destroy of lxc/100: done"), "{}", second.stdout);
    assert_eq!(deletes(&node).len(), 1);
    approve("lxc/102", "alice", &[]).ends_with(6);
    approve("lxc/102", "bob", &["--deny"]).ends_with(64);
    let denied = approve("lxc/102", "bob", &["--deny", "--reason", "still needed"]).ends_with(0);
    assert!(denied.stderr.contains("DENY this item"), "{}", denied.stderr);
    assert!(denied.stdout.contains("waits no longer"), "{}", denied.stdout);
    approve("lxc/102", "bob", &[]).ends_with(5);
    let audit = ask(&node, "audit", &["--last", "9"]).ends_with(0);
    assert!(audit.stdout.contains("denied it: still needed"), "{}", audit.stdout);
    assert_eq!(deletes(&node).len(), 1);
    agent.terminate();
}
