//! The ends of guests with the real binary: a backup before a signed destroy, the bin, and what is done on request.

use evenkeel_agent::host_key::HostKey;

use crate::agent::{Agent, writes};
use crate::agentless::{ask, item, with_signers};
use crate::keys::Operator;
use crate::support::Node;

/// Signs the one item that waits, and hands it in.
fn sign_and_submit(node: &Node, operator: &Operator) -> crate::support::Run {
    let id = item(node);
    operator.pin(&HostKey::load_or_create(&node.desk.work.path().join("state")).unwrap());
    let state = node.desk.work.path().join("state");
    let key = operator.path("alice");
    let state = state.display().to_string();
    let key = key.display().to_string();
    let arguments = ["sign", &id[..16], "--state", &state, "--key", &key, "--out", "ok.json", "-y"];
    operator.run(&arguments).ends_with(0);
    node.desk.write("ok.json", &operator.desk.read("ok.json"));
    ask(node, "submit", &["ok.json"])
}

#[test]
fn a_guest_is_saved_before_it_is_destroyed() {
    let (node, operator) = with_signers();
    let asked = ask(&node, "request", &["destroy", "100", "final_backup=store"]).ends_with(6);
    assert!(asked.stdout.contains("destroy of lxc/100 waits"), "{}", asked.stdout);
    let shown = ask(&node, "pending", &[&item(&node)]).ends_with(0);
    assert!(shown.stdout.contains("final_backup = store"), "{}", shown.stdout);
    let done = sign_and_submit(&node, &operator).ends_with(0);
    assert!(done.stdout.contains("destroy of lxc/100: done"), "{}", done.stdout);
    let sent = writes(&node);
    let at = |what: &str| sent.iter().position(|write| write.contains(what));
    assert!(at("vzdump") < at("DELETE") && at("vzdump").is_some(), "{sent:?}");
    let steps = ask(&node, "journal", &[]).ends_with(0);
    assert!(steps.stdout.contains("destroy"), "{}", steps.stdout);
}

#[test]
fn a_storage_that_holds_no_backups_destroys_nothing() {
    let (node, operator) = with_signers();
    let refused = ask(&node, "request", &["destroy", "100", "final_backup=tank"]);
    assert!(refused.stderr.contains("wrong content type"), "{}", refused.story());
    ask(&node, "request", &["destroy", "101", "final_backup=tank"]).ends_with(6);
    let refused = sign_and_submit(&node, &operator);
    assert!(refused.stdout.contains("does not hold backups"), "{}", refused.story());
    assert!(!writes(&node).iter().any(|write| write.contains("DELETE")), "{:?}", writes(&node));
}

#[test]
fn a_snapshot_and_a_backup_are_made_at_once_with_and_without_an_agent() {
    let (node, _operator) = with_signers();
    for with_agent in [false, true] {
        let agent = with_agent.then(|| Agent::start(&node));
        if let Some(agent) = &agent {
            agent.says("pass ended");
        }
        let backup = ask(&node, "request", &["backup", "102", "storage=store"]).ends_with(0);
        assert!(backup.stdout.contains("backup of lxc/102: done"), "{}", backup.stdout);
        let told = ask(&node, "request", &["backup", "102", "storage=store", "-o", "json"]);
        let told = told.ends_with(0).json();
        assert_eq!(
            (&told["result"], &told["act"]["guest"]),
            (&"succeeded".into(), &"lxc/102".into())
        );
        let wrong = ask(&node, "request", &["snapshot", "102"]).ends_with(64);
        assert!(wrong.stderr.contains("snapshot needs snapname=SNAPNAME"), "{}", wrong.stderr);
        let nowhere = ask(&node, "request", &["backup", "102", "storage=nowhere"]);
        assert!(nowhere.stderr.contains("no storage nowhere"), "{}", nowhere.stderr);
        drop(agent);
    }
}

#[test]
fn a_guest_goes_into_the_bin_and_comes_back() {
    let (node, _operator) = with_signers();
    let guest = "lxc/100".parse().unwrap();
    let names = node.desk.names("desired").into_iter().map(|name| format!("desired/{name}"));
    let file = names.into_iter().find(|name| node.desk.read(name).contains("[guest.100]")).unwrap();
    let declared = node.desk.read(&file);
    let binned = declared.replace("[guest.100]\n", "[guest.100]\nstate = \"bin\"\n");
    node.desk.write(&file, &binned);
    let plan = node.run("plan", &["-c", "agent.toml"]).ends_with(0);
    assert!(plan.stdout.contains("evenkeel-bin"), "{}", plan.stdout);
    node.run("apply", &["-c", "agent.toml", "-y"]).ends_with(0);
    assert!(node.stored(guest, "tags").is_some_and(|tags| tags.contains("evenkeel-bin")));
    node.run("plan", &["-c", "agent.toml", "--detailed-exitcode"]).ends_with(0);
    let before = writes(&node).len();
    node.desk.write(&file, &declared);
    node.run("apply", &["-c", "agent.toml", "-y"]).ends_with(0);
    let tags = node.stored(guest, "tags").unwrap_or_default();
    assert!(!tags.contains("evenkeel-bin"), "{tags}");
    let sent = &writes(&node)[before..];
    assert!(sent.iter().any(|write| write.contains("start")), "{sent:?}");
}
