//! Signed acts through the real agent: who may sign is root's to say, and no secret is left anywhere.

use std::path::{Path, PathBuf};

use evenkeel_agent::host_key::HostKey;
use evenkeel_sim::TOKENS;

use crate::agent::{Agent, configure, usual, wait_for, writes};
use crate::daemon::kept;
use crate::daemon_looks::scrape;
use crate::keys::Operator;
use crate::support::{Node, Run};

const PLACE: [&str; 2] = ["-c", "agent.toml"];

/// lxc/100 shall be gone.
fn unwanted(node: &Node) {
    node.desk.write("desired/lxc-100.toml", "guest.100 = { kind = \"lxc\", state = \"absent\" }\n");
}

/// The agent's configuration with a trust file.
fn with_trust(node: &Node, more: &str) {
    let trust = node.desk.work.path().join("trust.toml");
    let text = format!("{}\ntrust.file = \"{}\"\n{more}", usual(node), trust.display());
    configure(node, &text);
}

fn ask(node: &Node, verb: &str, arguments: &[&str]) -> Run {
    node.desk.run(verb, &[&PLACE[..], arguments].concat())
}

/// The name of the one item that waits, once there is one.
fn waiting(node: &Node) -> String {
    let look = || {
        let run = ask(node, "pending", &["-o", "json"]);
        let told: serde_json::Value = serde_json::from_str(&run.stdout).ok()?;
        Some(told["items"].get(0)?["pending"].as_str()?.to_owned())
    };
    wait_for(|| format!("an item: {:?}", ask(node, "pending", &[])), look)
}

#[test]
fn g27_without_a_trust_file_it_starts_and_everything_destructive_waits() {
    let node = kept(4);
    unwanted(&node);
    with_trust(&node, "");
    let agent = Agent::start(&node);
    let id = waiting(&node);
    ask(&node, "pending", &[&id, "--out", "item.json"]).ends_with(0);
    let operator = Operator::without_pin();
    operator.pin(&HostKey::load_or_create(&node.desk.work.path().join("state")).unwrap());
    operator.trust("ed25519");
    operator.desk.write("item.json", &node.desk.read("item.json"));
    operator.approve("approval.json").ends_with(0);
    node.desk.write("approval.json", &operator.desk.read("approval.json"));
    let refused = ask(&node, "submit", &["approval.json"]).ends_with(4);
    assert!(refused.stderr.contains("unknown_signer"), "{}", refused.stderr);
    agent.terminate();
    assert_eq!(writes(&node), Vec::<String>::new());
}

#[test]
fn g27_with_an_invalid_trust_file_nothing_starts() {
    let node = kept(4);
    unwanted(&node);
    with_trust(&node, "");
    let signers =
        "version = 1\n[[signer]]\nname = \"anna\"\nrole = \"king\"\nkey = \"ssh-ed25519 AAAA\"\n";
    for text in ["", "version = ", "version = 1\n", signers] {
        node.desk.write("trust.toml", text);
        for (verb, more) in [("run", &PLACE[..]), ("apply", &["-c", "agent.toml", "-y"])] {
            let run = node.desk.run(verb, more).ends_with(3);
            assert!(run.stderr.contains("trust.toml"), "{verb} with {text:?}: {}", run.stderr);
        }
    }
    assert_eq!(writes(&node), Vec::<String>::new());
}

/// Root's file of version 5 is replaced by one of version 1 with the same keys: no rotation is in the journal.
#[test]
fn x07_an_older_trust_file_stops_the_start_and_says_what_to_do() {
    let node = kept(4);
    unwanted(&node);
    with_trust(&node, "");
    let operator = Operator::without_pin();
    operator.trust("ed25519");
    let one = operator.desk.read("trust.toml");
    let five = one.replace("version = 1", "version = 5");
    assert_ne!(one, five);
    node.desk.write("trust.toml", &five);
    node.desk.run("apply", &["-c", "agent.toml", "-y"]).ends_with(6);
    node.desk.write("trust.toml", &one);
    for (verb, more) in [("run", &PLACE[..]), ("apply", &["-c", "agent.toml", "-y"])] {
        let run = node.desk.run(verb, more).ends_with(3);
        for word in ["trust.toml has version 1", "which had version 5", "hint: ", "above 5"] {
            assert!(run.stderr.contains(word), "{verb} does not say {word:?}: {}", run.stderr);
        }
    }
    node.desk.write("trust.toml", &five);
    node.desk.run("apply", &["-c", "agent.toml", "-y"]).ends_with(6);
    assert_eq!(writes(&node), Vec::<String>::new());
}

/// Every secret there is in a full run: tokens, and the private halves of all keys as text and as bytes.
fn secrets(keys: &[&Path]) -> Vec<Vec<u8>> {
    let mut secrets: Vec<Vec<u8>> =
        TOKENS.iter().map(|(_, secret, _)| secret.as_bytes().to_vec()).collect();
    for path in keys {
        let text = std::fs::read_to_string(path).unwrap();
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("-----")).collect();
        // The first line tells the format and the public half; what is private begins after it.
        secrets.extend(
            lines[1..].iter().filter(|line| line.len() > 40).map(|line| line.as_bytes().to_vec()),
        );
        let blob = decoded(&lines.concat());
        let at = blob.windows(4).position(|four| four == [0, 0, 0, 64]).unwrap() + 4;
        let seed = &blob[at..at + 32];
        let hex = seed.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
        secrets.extend([seed.to_vec(), hex.clone().into_bytes(), hex.to_uppercase().into_bytes()]);
    }
    assert!(secrets.len() > TOKENS.len() + 3 * keys.len());
    secrets
}

/// Base64 as OpenSSH writes it.
fn decoded(text: &str) -> Vec<u8> {
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = Vec::new();
    let mut bits = 0_u32;
    let mut held = 0_u32;
    for letter in text.bytes().filter(|letter| *letter != b'=') {
        let value = alphabet.iter().position(|other| *other == letter).unwrap();
        bits = bits << 6 | u32::try_from(value).unwrap();
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push(u8::try_from(bits >> held & 0xff).unwrap());
        }
    }
    bytes
}

/// How many files there are under a directory, and which of them hold a secret.
fn search(directory: &Path, secrets: &[Vec<u8>]) -> (usize, Vec<PathBuf>) {
    let mut looked_at = 0;
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            let (below, found_below) = search(&path, secrets);
            looked_at += below;
            found.extend(found_below);
        } else if path.is_file() {
            looked_at += 1;
            found.extend(holds(&std::fs::read(&path).unwrap(), secrets).then_some(path));
        }
    }
    (looked_at, found)
}

fn holds(bytes: &[u8], secrets: &[Vec<u8>]) -> bool {
    secrets.iter().any(|secret| bytes.windows(secret.len()).any(|window| window == secret))
}

/// One whole story: healed, refused, signed, destroyed, replayed, told. Then everything it left is searched.
#[test]
fn n02_no_token_and_no_private_key_is_in_anything_a_full_run_leaves() {
    let node = kept(4);
    let operator = Operator::without_pin();
    operator.trust("ed25519");
    operator.generate("ed25519", "mallory");
    node.desk.write("trust.toml", &operator.desk.read("trust.toml"));
    with_trust(&node, "metrics.listen = \"127.0.0.1:0\"");
    // A node whose task list is empty proves nothing about anybody.
    node.happen(evenkeel_sim::Event::Power { guest: "lxc/100".parse().unwrap(), running: false });
    node.run("apply", &["-c", "agent.toml", "-y"]).ends_with(0);
    assert!(writes(&node).iter().any(|write| write.ends_with("/start")), "{:?}", writes(&node));
    unwanted(&node);
    crate::daemon::drift(&node, "lxc/102", "7");
    let agent = Agent::start(&node);
    let mut told = Vec::new();
    let id = waiting(&node);
    told.push(ask(&node, "pending", &[]).ends_with(0));
    told.push(ask(&node, "pending", &[&id]).ends_with(0));
    ask(&node, "pending", &[&id, "--out", "item.json"]).ends_with(0);
    let host = HostKey::load_or_create(&node.desk.work.path().join("state")).unwrap();
    told.push(Run::of_text(&format!("{host:?}")));
    operator.pin(&host);
    operator.desk.write("item.json", &node.desk.read("item.json"));
    operator.approve("approval.json").ends_with(0);
    let by_mallory =
        ["sign", "item.json", "--key", "mallory", "--out", "forged.json", "-y", "--reason", "mine"];
    operator.run(&by_mallory).ends_with(0);
    for (name, code) in [("forged.json", 4), ("approval.json", 0), ("approval.json", 0)] {
        node.desk.write(name, &operator.desk.read(name));
        told.push(ask(&node, "submit", &[name]).ends_with(code));
    }
    told.push(ask(&node, "status", &["-o", "json"]));
    told.push(Run::of_text(&scrape(&agent, "/metrics").1));
    told.push(ask(&node, "audit", &["-o", "json"]).ends_with(0));
    told.push(ask(&node, "audit", &[]).ends_with(0));
    told.push(node.run("plan", &PLACE));
    let environment = std::fs::read(format!("/proc/{}/environ", agent.pid())).unwrap();
    let arguments = std::fs::read(format!("/proc/{}/cmdline", agent.pid())).unwrap();
    agent.terminate();
    let deletes = writes(&node).iter().filter(|write| write.starts_with("DELETE")).count();
    assert_eq!(deletes, 1, "the story happened: {:?}", writes(&node));

    let key = node.desk.work.path().join("state/host_key");
    let alice = operator.path("alice");
    let vault = operator.path("vault");
    let secrets = secrets(&[&key, &alice, &vault]);
    let paths = node.requests().into_iter().map(|request| request.path);
    told.extend(paths.map(|path| Run::of_text(&path)));
    for run in &told {
        let shown = [run.stdout.as_bytes(), run.stderr.as_bytes()].concat();
        assert!(!holds(&shown, &secrets), "{run:?}");
    }
    assert!(!holds(&environment, &secrets) && !holds(&arguments, &secrets), "what /proc shows");
    let (looked_at, found) = search(node.desk.work.path(), &secrets);
    assert_eq!(found, [key], "the host key is in its own file and nowhere else");
    assert!(looked_at > 8, "only {looked_at} files were searched");
    assert_eq!(search(operator.desk.work.path(), &secrets).1.len(), 2, "alice's key and vault's");
}

/// A guest's name that would forge lines of a log, move a cursor or turn the reading direction.
#[test]
fn n03_n04_a_name_with_control_characters_is_one_escaped_value_wherever_it_is_shown() {
    let node = kept(4);
    unwanted(&node);
    with_trust(&node, "");
    let name = "x\nTASK OK\n{\"decision\":\"allow\"}\u{1b}[2J\u{202e}\n<0>PRIORITY=0";
    let set = std::collections::BTreeMap::from([("hostname".to_owned(), Some(name.to_owned()))]);
    node.happen(evenkeel_sim::Event::Edit { guest: "lxc/100".parse().unwrap(), set });
    let agent = Agent::start(&node);
    let id = waiting(&node);
    for run in [
        ask(&node, "pending", &[]).ends_with(0),
        ask(&node, "pending", &[&id]).ends_with(0),
        ask(&node, "audit", &[]).ends_with(0),
        ask(&node, "status", &[]),
        node.run("plan", &PLACE),
    ] {
        let raw = |line: &str| {
            line.starts_with("TASK OK")
                || line.starts_with("<0>")
                || line.starts_with("{\"decision")
        };
        assert!(!run.stdout.lines().any(raw), "{}", run.stdout);
        assert!(
            !run.stdout.contains('\u{202e}') && !run.stdout.contains('\u{1b}'),
            "{}",
            run.stdout
        );
    }
    let log = agent.log();
    assert!(
        !log.lines().any(|line| line.starts_with("TASK OK") || line.starts_with("<0>")),
        "{log}"
    );
    agent.terminate();
    for line in node.desk.read("state/journal/journal-000001.jsonl").lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
    assert_eq!(writes(&node), Vec::<String>::new());
}

/// The answer that would prove the end does not come: whoever submits hears what is waited for, and gets the op's id.
#[test]
fn x17_submit_tells_what_it_waits_for_and_ends_with_the_op_that_goes_on() {
    let node = kept(4);
    let operator = Operator::without_pin();
    operator.trust("ed25519");
    node.desk.write("trust.toml", &operator.desk.read("trust.toml"));
    with_trust(&node, "");
    // A node whose task list is empty proves nothing about anybody.
    node.happen(evenkeel_sim::Event::Power { guest: "lxc/100".parse().unwrap(), running: false });
    node.run("apply", &["-c", "agent.toml", "-y"]).ends_with(0);
    unwanted(&node);
    let agent = Agent::start(&node);
    let id = waiting(&node);
    ask(&node, "pending", &[&id, "--out", "item.json"]).ends_with(0);
    operator.pin(&HostKey::load_or_create(&node.desk.work.path().join("state")).unwrap());
    operator.desk.write("item.json", &node.desk.read("item.json"));
    operator.approve("approval.json").ends_with(0);
    node.desk.write("approval.json", &operator.desk.read("approval.json"));
    let garbage = evenkeel_sim::Effect::Garbage { body: "<html>".to_owned() };
    node.http.node.with(|sim| sim.inject(garbage.on("/cluster/nextid")));
    let late = ask(&node, "submit", &["approval.json", "--wait", "20"]).ends_with(7);
    assert!(late.stderr.contains("whether the number is free cannot be read"), "{}", late.stderr);
    assert!(
        late.stderr.contains("op_") && late.stderr.contains("still under way"),
        "{}",
        late.stderr
    );
    node.http.node.with(evenkeel_sim::Simulator::clear_faults);
    let again = ask(&node, "submit", &["approval.json"]);
    assert!(again.stdout.contains("replay"), "{again:?}");
    agent.terminate();
}
