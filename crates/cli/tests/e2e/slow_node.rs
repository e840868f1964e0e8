//! A node, or a storage of it, that does not answer: nobody who asks the agent waits for it (case Y04). The simulator is the
//! oracle: what hangs still hangs when everybody has been answered.

use evenkeel_sim::{BackupFile, Config, Effect, Event, Fault};
use serde_json::Value;

use crate::agent::{Agent, status_when, wait_for};
use crate::daemon::{drift, kept};
use crate::daemon_looks::ask;
use crate::support::Node;

/// Whether a read of this path is under way at the node.
fn is_asked(node: &Node, path: &str) -> bool {
    let open = |record: &evenkeel_sim::RequestRecord| {
        record.path.ends_with(path) && record.method == "GET" && record.ended_ms.is_none()
    };
    node.requests().iter().any(open)
}

/// Everything that a person may ask of the agent without wanting a pass, and the kind of answer.
fn ask_everything(node: &Node) -> Vec<Value> {
    let unknown = "0".repeat(64);
    let lines = [
        r#"{"v":1,"request":"status"}"#.to_owned(),
        r#"{"v":1,"request":"pending"}"#.to_owned(),
        r#"{"v":1,"request":"submit","envelope":"nothing that was signed"}"#.to_owned(),
        r#"{"v":1,"request":"retry","guest":100,"by":"somebody"}"#.to_owned(),
        format!(r#"{{"v":1,"request":"withdraw","id":"{unknown}","note":"nobody wants it"}}"#),
    ];
    lines.iter().map(|line| ask(node, format!("{line}\n").as_bytes())).collect()
}

#[test]
fn y04_no_command_waits_for_the_look_of_a_pass() {
    let node = kept(6);
    let list = "/nodes/pve1/lxc";
    // Longer than any test: only the client's own time limit ends it.
    let hangs = Effect::Latency { ms: 3_600_000 };
    let method = Some("GET".to_owned());
    let contains = Some(list.to_owned());
    node.inject(Fault { effect: hangs, method, contains, times: None });
    let lists =
        |node: &Node| node.requests().iter().filter(|record| record.path.ends_with(list)).count();
    let before = lists(&node);
    let agent = Agent::start(&node);
    wait_for(|| agent.log(), || is_asked(&node, list).then_some(()));
    let answers = ask_everything(&node);
    // Freezing needs no agent, and no look either.
    node.desk.run("freeze", &["-c", "agent.toml", "--reason", "a test"]).ends_with(0);
    node.desk.run("thaw", &["-c", "agent.toml"]).ends_with(0);
    assert!(is_asked(&node, list) && lists(&node) == before + 1, "the first look is under way");
    let kinds: Vec<&str> =
        answers.iter().map(|answer| answer["answer"].as_str().unwrap()).collect();
    assert_eq!(kinds[..2], ["status", "pending"], "{answers:?}");
    assert_eq!(kinds[2..], ["refused", "done", "refused"], "{answers:?}");
    assert_eq!(answers[0]["status"]["agent"]["last_pass"], Value::Null);
    agent.terminate();
}

#[test]
fn y04_a_request_that_waits_for_the_node_holds_up_no_other() {
    let node = kept(6);
    let agent = Agent::start(&node);
    status_when(&node, |status| status["agent"]["last_pass"]["ended"] == true);
    let hangs = Effect::Latency { ms: 3_600_000 };
    let contains = "/lxc/100/status/current";
    node.inject(hangs.on(contains));
    let socket = node.desk.work.path().join("state/agent.sock");
    let mut waits = std::os::unix::net::UnixStream::connect(socket).unwrap();
    let line = br#"{"v":1,"request":"request","op":"destroy","guest":"lxc/100"}"#;
    std::io::Write::write_all(&mut waits, &[&line[..], b"\n"].concat()).unwrap();
    wait_for(|| agent.log(), || is_asked(&node, contains).then_some(()));
    let answers = ask_everything(&node);
    assert!(is_asked(&node, contains), "the request still waits");
    assert_eq!(answers[0]["answer"], "status", "{answers:?}");
    drop(waits);
    agent.terminate();
}

#[test]
fn y04_the_running_agent_heals_while_a_storage_hangs() {
    let node = kept(6);
    let archive = node.http.node.with(|simulator| {
        let file = BackupFile {
            ctime: 1_762_000_000,
            format: "tar.zst".to_owned(),
            size_bytes: 64 << 20,
            notes: None,
            protected: false,
            excludes: Vec::new(),
        };
        let config = Config::of(&[("rootfs", "tank:vm-150-disk-0,size=2G")]);
        let guest = "lxc/150".parse().unwrap();
        simulator.world.put_backup("local", guest, &config, &file).unwrap()
    });
    for vmid in 110..120 {
        let text =
            format!("[guest.{vmid}]\nkind = \"lxc\"\nsource = {{ backup = \"{archive}\" }}\n");
        node.desk.write(&format!("desired/{vmid}.toml"), &text);
    }
    node.happen(Event::StorageHangs { storage: "local".to_owned(), ms: None, lists: false });
    let agent = Agent::start(&node);
    for cores in ["7", "6"] {
        drift(&node, "lxc/102", cores);
        let healed = || node.stored("lxc/102".parse().unwrap(), "cores").as_deref() != Some(cores);
        wait_for(|| agent.log(), || healed().then_some(()));
    }
    assert_eq!(ask_everything(&node)[1]["answer"], "pending");
    assert!(node.http.node.with(|simulator| simulator.hanging_workers()) <= 2);
    let named =
        status_when(&node, |status| status["agent"]["silent_storages"][0]["storage"] == "local");
    let guests = named["agent"]["guests"].as_array().unwrap().iter();
    let held = guests.filter(|guest| guest["held"][0]["code"] == "storage").count();
    assert_eq!(held, 10, "{named:#}");
    let shown = crate::agent::status(&node, &[]).stdout;
    assert!(shown.contains("storage local does not answer since"), "{shown}");
    agent.terminate();
}
