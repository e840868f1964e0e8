//! A command about chosen guests touches nothing of the others.

use std::collections::BTreeSet;

use crate::agent::{Agent, configure, status, status_when, usual, writes};
use crate::daemon::{drift, kept};
use crate::daemon_looks::scrape;
use crate::support::{Node, Run};

/// Guests with names and tags of our own, declared with every guest of the node.
fn named(guests: u32) -> Node {
    let node = kept(guests);
    let twin = |file: &str, key: &str, name: &str, tags: &str| {
        let text = node.desk.read(file);
        let kept: Vec<&str> = text
            .lines()
            .filter(|line| !line.starts_with(&format!("{key} =")) && !line.starts_with("tags ="))
            .collect();
        let text = format!("{}\n{key} = \"{name}\"\ntags = [{tags}]\n", kept.join("\n"));
        node.desk.write(file, &text);
    };
    twin("desired/lxc-100.toml", "hostname", "front", "\"edge\", \"blue\"");
    twin("desired/qemu-101.toml", "name", "twin", "\"blue\"");
    twin("desired/lxc-102.toml", "hostname", "twin", "\"green\"");
    node
}

fn plan(node: &Node, arguments: &[&str]) -> Run {
    node.run("plan", &[&["-c", "agent.toml"], arguments].concat())
}

/// The guests of a plan in JSON.
fn guests(run: &Run) -> BTreeSet<String> {
    let told = run.json();
    let guests = told["guests"].as_array().unwrap().iter();
    guests.map(|guest| guest["guest"].as_str().unwrap().to_owned()).collect()
}

fn set(guests: &[&str]) -> BTreeSet<String> {
    guests.iter().map(ToString::to_string).collect()
}

#[test]
fn a_plan_is_about_the_guests_that_were_chosen() {
    let node = named(6);
    for (arguments, wanted) in [
        (&["100"][..], &["lxc/100"][..]),
        (&["lxc/100"], &["lxc/100"]),
        (&["front"], &["lxc/100"]),
        (&["100", "qemu/101"], &["lxc/100", "qemu/101"]),
        (&["--tag", "blue"], &["lxc/100", "qemu/101"]),
        (&["--tag", "blue", "--kind", "qemu"], &["qemu/101"]),
        (&["--name", "tw*"], &["qemu/101", "lxc/102"]),
        (&["--tag", "edge", "--tag", "green"], &["lxc/100", "lxc/102"]),
        (&[], &["lxc/100", "qemu/101", "lxc/102", "lxc/104"]),
    ] {
        let run = plan(&node, &[arguments, &["-o", "json"]].concat()).ends_with(0);
        assert_eq!(guests(&run), set(wanted), "{arguments:?}");
    }
}

#[test]
fn a_choice_that_fits_nobody_or_two_says_so() {
    let node = named(6);
    for (name, code, arguments) in [
        ("a guest nobody declares", 5, &["999"][..]),
        ("a guest of the other kind", 5, &["qemu/100"]),
        ("a name of two guests", 64, &["twin"]),
        ("a tag nobody has", 5, &["--tag", "red"]),
        ("no guest at all", 64, &["a b"]),
    ] {
        let run = plan(&node, arguments).ends_with(code);
        insta::assert_snapshot!(name.replace(' ', "-"), run.story());
    }
    assert_eq!(writes(&node), Vec::<String>::new());
}

/// The whole point on a large node: one guest costs what a bare client would pay for it, and half as much again.
#[test]
fn a_plan_of_one_guest_reads_that_guest_and_nothing_else() {
    let node = kept(40);
    for guest in ["lxc/100", "qemu/101", "lxc/102"] {
        let before = node.requests().len();
        let run = plan(&node, &[guest, "--detailed-exitcode"]).ends_with(0);
        let paths: Vec<String> =
            node.requests()[before..].iter().map(|request| request.path.clone()).collect();
        assert!(run.stdout.contains("1 guest as declared"), "{}", run.stdout);
        let of_guest = |path: &&String| path.contains(&format!("/{guest}/"));
        assert_eq!(paths.iter().filter(of_guest).count(), 2, "{paths:?}");
        assert!(paths.len() <= 3, "a bare client needs 2: {paths:?}");
    }
    // Who is not there is looked for as ever: nothing is taken for absent that was only not seen.
    node.desk.write("desired/gone.toml", "guest.900 = { kind = \"lxc\" }\n");
    let before = node.requests().len();
    let told = plan(&node, &["900"]).ends_with(0);
    assert!(told.stdout.contains("the guest does not exist"), "{}", told.stdout);
    let paths: Vec<String> =
        node.requests()[before..].iter().map(|request| request.path.clone()).collect();
    assert!(paths.iter().any(|path| path.contains("/cluster/nextid")), "{paths:?}");
    let of_another = |path: &&String| path.ends_with("/pending") && !path.contains("/lxc/900/");
    assert_eq!(paths.iter().find(of_another), None, "nobody else is read: {paths:?}");
}

#[test]
fn apply_changes_the_chosen_guests_and_no_other() {
    let node = kept(6);
    drift(&node, "lxc/100", "1");
    drift(&node, "lxc/102", "7");
    node.run("apply", &["-c", "agent.toml", "102", "-y"]).ends_with(0);
    assert_eq!(writes(&node), ["PUT /api2/json/nodes/pve1/lxc/102/config"]);
    let saved = ["-c", "agent.toml", "--kind", "lxc", "--out", "kept.plan"];
    node.run("plan", &saved).ends_with(0);
    node.run("apply", &["-c", "agent.toml", "kept.plan", "--tag", "x"]).ends_with(64);
    node.run("apply", &["-c", "agent.toml", "kept.plan", "101"]).ends_with(64);
    node.run("apply", &["-c", "agent.toml", "kept.plan"]).ends_with(0);
    assert_eq!(writes(&node).len(), 2, "{:?}", writes(&node));
    assert!(writes(&node)[1].contains("/lxc/100/"), "{:?}", writes(&node));
}

/// A file called like a guest must not be applied by somebody who means the guest.
#[test]
fn apply_does_not_guess_between_a_file_and_a_guest() {
    let node = kept(4);
    node.run("plan", &["-c", "agent.toml", "--out", "102"]).ends_with(0);
    let unclear = node.run("apply", &["-c", "agent.toml", "102", "-y"]).ends_with(64);
    insta::assert_snapshot!("a-file-called-like-a-guest", unclear.story());
    node.run("apply", &["-c", "agent.toml", "./102"]).ends_with(0);
    // A bare word is the file that is here, unless a guest has that name too.
    node.run("plan", &["-c", "agent.toml", "--out", "nightly"]).ends_with(0);
    node.run("apply", &["-c", "agent.toml", "nightly"]).ends_with(0);
    node.run("plan", &["-c", "agent.toml", "--out", "ct102"]).ends_with(0);
    node.run("apply", &["-c", "agent.toml", "ct102", "-y"]).ends_with(64);
    node.run("apply", &["-c", "agent.toml", "lxc/102", "-y"]).ends_with(0);
    let missing = node.run("apply", &["-c", "agent.toml", "missing.plan"]).ends_with(5);
    assert!(missing.stderr.contains("missing.plan"), "{}", missing.stderr);
}

/// What the running agent knows of the other guests stays, and it does not touch them.
#[test]
fn a_running_agent_applies_only_what_was_chosen() {
    let node = kept(6);
    let slow = usual(&node).replace("interval = 5", "interval = 86400");
    configure(&node, &format!("{slow}\nmetrics.listen = \"127.0.0.1:0\""));
    node.desk.write("desired/lxc-104.toml", "guest.104 = { kind = \"lxc\", state = \"absent\" }\n");
    let agent = Agent::start(&node);
    let first = status_when(&node, |status| status["agent"]["last_pass"]["ended"] == true);
    assert_eq!(first["pending"].as_array().map(Vec::len), Some(1), "{first:#}");
    let passes = || {
        let metrics = scrape(&agent, "/metrics").1;
        let lines = metrics.lines().filter(|line| line.starts_with("evenkeel_reconcile_total"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let before = passes();
    drift(&node, "lxc/100", "1");
    drift(&node, "lxc/102", "7");
    node.run("apply", &["-c", "agent.toml", "102", "-y"]).ends_with(0);
    assert_eq!(writes(&node), ["PUT /api2/json/nodes/pve1/lxc/102/config"]);
    assert!(!before.is_empty());
    assert_eq!(passes(), before, "a part says nothing of the whole");
    let after = status_when(&node, |status| status["agent"]["last_pass"]["ended"] == true);
    assert_eq!(after["agent"]["in_sync"], 5, "{after:#}");
    assert_eq!(after["agent"]["guests"][0]["guest"], "lxc/104", "{after:#}");
    assert_eq!(after["pending"], first["pending"], "an item of another guest still waits");
    let one = status(&node, &["102"]).ends_with(0);
    assert!(one.stdout.contains("lxc/102"), "{}", one.stdout);
    assert!(!one.stdout.contains("lxc/104"), "{}", one.stdout);
    status(&node, &["999"]).ends_with(5);
    agent.terminate();
}

#[test]
fn import_writes_the_guests_that_fit() {
    let node = Node::with_guests(12);
    node.run("import", &["--out", "machines", "--kind", "qemu"]).ends_with(0);
    let names = node.desk.names("machines");
    assert!(!names.is_empty() && names.iter().all(|name| name.starts_with("qemu-")), "{names:?}");
    let before = node.requests().len();
    node.run("import", &["--out", "one", "lxc/104", "--node", "pve1"]).ends_with(0);
    assert_eq!(node.desk.names("one").len(), 1);
    let read = node.requests()[before..]
        .iter()
        .filter(|request| request.path.ends_with("/pending"))
        .count();
    assert_eq!(read, 1, "only that guest is read");
    node.run("import", &["--out", "none", "qemu/104"]).ends_with(5);
    node.run("import", &["--out", "none", "--name", "nobody-*"]).ends_with(5);
    assert!(!node.desk.work.path().join("none").exists());
}
