//! What a running agent shows: status, socket, metrics, log.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;

use serde_json::Value;

use crate::agent::{Agent, configure, status, status_when, usual, wait_for};
use crate::daemon::{drift, kept};
use crate::support::{Desk, Node};

#[test]
fn without_an_agent_status_says_so_and_tells_what_the_journal_knows() {
    let desk = Desk::new();
    let run = desk.run("status", &["--state", "nowhere"]).ends_with(7);
    assert!(run.stdout.contains("none runs"), "{}", run.stdout);
    assert!(run.stderr.contains("no agent runs") && run.stderr.contains("hint:"), "{}", run.stderr);
    assert!(!desk.work.path().join("nowhere").exists(), "looking makes nothing");
    let json = desk.run("status", &["--state", "nowhere", "-o", "json"]).ends_with(7).json();
    assert_eq!((&json["format_version"], &json["agent"]), (&Value::from(1), &Value::Null));
}

#[test]
fn status_tells_what_is_locked_by_whom() {
    let node = kept(6);
    drift(&node, "lxc/100", "1");
    node.http.node.with(|simulator| simulator.timings.copy_ms = 600_000);
    node.post("/nodes/pve1/vzdump", "vmid=100&storage=local");
    let agent = Agent::start(&node);
    let held =
        status_when(&node, |status| status["agent"]["guests"][0]["held"][0]["code"] == "locked");
    let why = held["agent"]["guests"][0]["held"][0]["why"].as_str().unwrap();
    assert!(why.contains("waiting for vzdump of lxc/100"), "{why}");
    agent.says("waiting for vzdump of lxc/100");
    let shown = status(&node, &[]).ends_with(0).stdout;
    assert!(shown.contains("held (locked)"), "{shown}");
    agent.terminate();
}

#[test]
fn a_frozen_host_is_shown_and_nothing_is_sent() {
    let node = kept(6);
    std::fs::create_dir(node.desk.work.path().join("state")).unwrap();
    let private = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(node.desk.work.path().join("state"), private).unwrap();
    node.desk.write("state/frozen", "");
    drift(&node, "lxc/100", "1");
    let agent = Agent::start(&node);
    let frozen = status_when(&node, |status| status["agent"]["last_pass"]["ended"] == true);
    assert_eq!(frozen["frozen"], true);
    assert_eq!(frozen["agent"]["guests"][0]["held"][0]["code"], "frozen", "{frozen:#}");
    // `plan` and `apply` say the same as the agent: held, and no word of a stale plan.
    let planned = node.run("plan", &["-c", "agent.toml", "--detailed-exitcode"]).ends_with(0);
    assert!(planned.stdout.contains("frozen"), "{}", planned.stdout);
    let applied = node.run("apply", &["-c", "agent.toml", "-y"]).ends_with(7);
    assert!(applied.stdout.contains("frozen"), "{}\n{}", applied.stdout, applied.stderr);
    assert!(!applied.stderr.contains("stale"), "{}", applied.stderr);
    assert_eq!(crate::agent::writes(&node), Vec::<String>::new());
    agent.terminate();
}

/// One line to the socket, and the answer.
pub(crate) fn ask(node: &Node, line: &[u8]) -> Value {
    let mut stream = UnixStream::connect(node.desk.work.path().join("state/agent.sock")).unwrap();
    stream.write_all(line).unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

#[test]
fn the_socket_is_private_and_refuses_in_words_what_it_does_not_know() {
    let node = kept(6);
    let agent = Agent::start(&node);
    agent.says("pass ended");
    let socket = node.desk.work.path().join("state/agent.sock");
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&socket), mode(socket.parent().unwrap())), (0o600, 0o700));

    for (line, code, word) in [
        (&b"not json\n"[..], "malformed", "cannot be read"),
        (b"{\"v\":1,\"request\":\"explode\"}\n", "unknown", "status, apply"),
        (b"{\"v\":99,\"request\":\"status\"}\n", "unknown", "version 1"),
        (
            b"{\"v\":1,\"request\":\"resolve\",\"op\":\"op_01ARZ3NDEKTSV4RRFFQ69G5FAV\",\"outcome\":\"failed\",\"note\":\"\"}\n",
            "not_found",
            "op_01ARZ3NDEKTSV4RRFFQ69G5FAV",
        ),
    ] {
        let answer = ask(&node, line);
        assert_eq!((&answer["answer"], &answer["code"]), (&"refused".into(), &code.into()), "{answer}");
        assert!(answer["message"].as_str().unwrap().contains(word), "{answer}");
    }
    let reloaded = ask(&node, b"{\"v\":1,\"request\":\"reload\"}\n");
    assert_eq!(reloaded["answer"], "done", "{reloaded}");
    let status = ask(&node, b"{\"v\":1,\"request\":\"status\"}\n");
    assert_eq!(status["status"]["agent"]["node"], "pve1", "{status}");
    agent.terminate();
}

#[test]
fn many_silent_clients_hold_up_nobody() {
    let node = kept(6);
    let agent = Agent::start(&node);
    agent.says("pass ended");
    let socket = node.desk.work.path().join("state/agent.sock");
    let silent: Vec<UnixStream> = (0..16).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    let refused = wait_for(
        || "a refusal".to_owned(),
        || {
            Some(ask(&node, b"{\"v\":1,\"request\":\"status\"}\n"))
                .filter(|a| a["answer"] == "refused")
        },
    );
    assert_eq!(refused["code"], "busy", "{refused}");
    drop(silent);
    status_when(&node, |status| status["agent"].is_object());
    agent.terminate();
}

/// `GET` on the metrics' address.
pub(crate) fn scrape(agent: &Agent, path: &str) -> (String, String) {
    let log = agent.log();
    let address = log.lines().find_map(|line| line.split("metrics address=Some(").nth(1)).unwrap();
    let address = address.split(')').next().unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

#[test]
fn metrics_can_be_read_by_prometheus_and_tell_the_truth() {
    let node = kept(6);
    drift(&node, "lxc/100", "1");
    // One pass, however long it takes until we ask.
    let once = usual(&node).replace("interval = 5", "interval = 86400");
    configure(&node, &format!("{once}\nmetrics.listen = \"127.0.0.1:0\""));
    let agent = Agent::start(&node);
    agent.says("pass ended");
    let (head, text) = scrape(&agent, "/metrics");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
    let samples = samples(&text);
    let value = |name: &str| {
        let found = samples.iter().find(|(series, _)| series == name);
        found.unwrap_or_else(|| panic!("{name} is missing in:\n{text}")).1.as_str()
    };
    let number = |name: &str| value(name).parse::<f64>().unwrap();
    assert_eq!(value("evenkeel_ops_total{kind=\"set_config\",result=\"succeeded\"}"), "1");
    assert_eq!(value("evenkeel_reconcile_total{result=\"succeeded\"}"), "1");
    assert_eq!(value("evenkeel_reconcile_duration_seconds_count"), "1");
    assert_eq!(value("evenkeel_guest_in_sync{guest=\"lxc/100\"}"), "1");
    let build = concat!("evenkeel_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"}");
    assert_eq!(value(build), "1");
    assert_eq!(value("evenkeel_queue_depth"), "0");
    assert_eq!(value("evenkeel_unknown_ops"), "0");
    assert!(number("evenkeel_pve_requests_total{code=\"200\"}") >= 10.0);
    assert!(number("evenkeel_journal_seq") >= 3.0);
    assert!(number("evenkeel_last_success_timestamp_seconds") > 1.7e9);
    assert!(number("process_resident_memory_bytes") > 1e6);
    assert!(scrape(&agent, "/other").0.starts_with("HTTP/1.1 404"));
    agent.terminate();
}

/// Every sample, after checking what the text format demands: a type before its samples, whole numbers, an end.
fn samples(text: &str) -> Vec<(String, String)> {
    let mut known: Vec<&str> = Vec::new();
    let mut samples = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line == "# EOF" {
            assert!(lines.peek().is_none(), "nothing follows the end");
            return samples;
        }
        if let Some(family) = line.strip_prefix("# TYPE ") {
            let name = family.split(' ').next().unwrap();
            assert!(!known.contains(&name), "{name} has one type");
            known.push(name);
        } else if !line.starts_with("# ") {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let name = series.split('{').next().unwrap();
            assert!(known.last().is_some_and(|family| name.starts_with(family)), "{line}");
            assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{line}");
            assert!(value.parse::<f64>().is_ok_and(f64::is_finite), "{line}");
            samples.push((series.to_owned(), value.to_owned()));
        }
    }
    panic!("the end is missing in:\n{text}");
}

#[test]
fn the_log_can_be_json_with_one_object_a_line() {
    let node = kept(6);
    drift(&node, "lxc/100", "1");
    let agent = Agent::start_with(&node, |command| command.args(["--log-format", "json"]));
    agent.says("pass ended");
    agent.signal("TERM");
    let log = node.desk.work.path().join("log");
    assert_eq!(agent.end(), Some(0));
    let text = std::fs::read_to_string(log).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let started = lines.iter().find(|line| line["message"] == "started").unwrap();
    assert_eq!((&started["guest"], &started["level"]), (&"lxc/100".into(), &"INFO".into()));
    assert!(started["op"].as_str().unwrap().starts_with("op_"), "{started}");
}

#[test]
fn a_configuration_that_cannot_be_used_is_refused_at_the_start() {
    let node = kept(6);
    for (more, code) in
        [("interval = 1", 3), ("metrics.listen = \"0.0.0.0:9469\"", 3), ("nonsense = 1", 3)]
    {
        configure(&node, more);
        let run = node.desk.run("run", &["-c", "agent.toml"]).ends_with(code);
        assert!(run.stderr.contains("hint:"), "{}", run.stderr);
    }
    node.desk.run("run", &["-c", "none.toml"]).ends_with(5);
    assert_eq!(crate::agent::writes(&node), Vec::<String>::new());
}
