//! The verb `sim`: open to this machine only, and true to what it announces.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use evenkeel_sim::{Http, HttpError, HttpOptions, Scenario, SimOutcome, SimRequest, Simulator};

use crate::support::{Desk, SimProcess};

#[test]
fn the_simulator_listens_on_loopback_only() {
    let desk = Desk::new();
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:8006"] {
        desk.run("sim", &["--listen", address]).ends_with(64);
    }
    insta::assert_snapshot!(
        "a-simulator-for-everybody",
        desk.run("sim", &["--listen", "0.0.0.0:0"]).story()
    );
}

#[tokio::test]
async fn the_front_itself_refuses_to_listen_beyond_loopback() {
    let simulator = Simulator::new(Scenario::default().build());
    let options = HttpOptions { address: "0.0.0.0:0".parse().unwrap(), tls: false };
    let refused = Http::start(simulator, options).await.unwrap_err();
    assert!(matches!(refused, HttpError::NotLoopback { .. }), "{refused}");
}

#[test]
fn a_release_nobody_held_the_simulator_to_is_refused() {
    let desk = Desk::new();
    for release in ["6.4", "8.3", "10.0", "eight"] {
        let refused = desk.run("sim", &["--pve", release]).ends_with(64);
        assert!(refused.stderr.contains(release), "{}", refused.stderr);
    }
}

#[test]
fn the_admin_endpoint_answers_only_this_machine_by_a_loopback_name() {
    let mut simulator = Simulator::new(Scenario::default().build());
    let mut status = |request: SimRequest| match simulator.call(request) {
        SimOutcome::Reply(reply) => reply.status,
        SimOutcome::Dropped | SimOutcome::Wait { .. } => panic!("no answer"),
    };
    let ask = || SimRequest::new("GET", "/sim/requests");
    assert_eq!(status(ask()), 200);
    for host in ["127.0.0.1:8006", "localhost:8006", "LOCALHOST", "[::1]:8006", "127.9.9.9"] {
        assert_eq!(status(ask().header("Host", host)), 200, "{host}");
    }
    // A page of another site that had its name point here: its scripts must not reach us.
    for host in ["evil.example", "evil.example:8006", "127.0.0.1.evil.example", "192.0.2.1", ""] {
        assert_eq!(status(ask().header("Host", host)), 403, "{host}");
    }
    let page = ask().header("Host", "127.0.0.1:8006").header("Origin", "https://evil.example");
    assert_eq!(status(page), 403, "a browser says for which page it asks");
    assert_eq!(status(SimRequest { from_loopback: false, ..ask() }), 403);
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_saved_state_is_the_node_that_is_announced_again() {
    let desk = Desk::new();
    let state = desk.work.path().join("state.json");
    let state = state.to_str().unwrap();
    let arguments = ["--plain-http", "--state", state, "--guests", "3"];
    let first = SimProcess::start(&desk, &[&arguments[..], &["--node", "alpha"]].concat());
    assert_eq!(first.ready["node"], "alpha");
    first.terminate();
    let second = SimProcess::start(&desk, &arguments);
    assert_eq!(second.ready["node"], "alpha", "the state says which node it is");
    second.terminate();
    std::fs::remove_file(state).unwrap();
}

#[test]
fn faults_from_a_file_strike() {
    let desk = Desk::new();
    let fault = r#"[{"effect": {"kind": "proxy-status", "status": 595, "executed": false}}]"#;
    desk.write("faults.json", fault);
    let simulator = SimProcess::start(&desk, &["--plain-http", "--faults", "faults.json"]);
    let address =
        simulator.ready["url"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned();
    assert!(get(&address, "/api2/json/version").starts_with("HTTP/1.1 595"));
    assert!(get(&address, "/sim/requests").contains("/api2/json/version"));
    simulator.terminate();
    desk.write("faults.json", r#"[{"effect": {"kind": "earthquake"}}]"#);
    let told = desk.run("sim", &["--faults", "faults.json"]).ends_with(3);
    insta::assert_snapshot!("a-fault-that-does-not-exist", told.story());
}

#[test]
fn a_scenario_declares_what_guests_are_made_of_and_tells_its_mistakes() {
    let desk = Desk::new();
    let scenario = r#"{
        "files": [{"volid": "local:iso/tiny.iso", "size": "8M"}],
        "guests": [{"guest": "lxc/600", "config": {"hostname": "declared"}}]
    }"#;
    desk.write("scenario.json", scenario);
    let arguments = ["--plain-http", "--guests", "0", "--scenario", "scenario.json"];
    let simulator = SimProcess::start(&desk, &arguments);
    simulator.terminate();
    let mistakes = [
        (
            "a-scenario-with-an-unknown-storage",
            r#"{"files": [{"volid": "nas:iso/x.iso", "size": "8M"}]}"#,
        ),
        ("a-scenario-with-an-unknown-part", r#"{"earthquakes": []}"#),
    ];
    for (name, text) in mistakes {
        desk.write("scenario.json", text);
        let told = desk.run("sim", &["--scenario", "scenario.json"]).ends_with(3);
        insta::assert_snapshot!(name, told.story());
    }
}
