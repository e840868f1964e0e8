//! What somebody who watches many hosts relies on: alarms that are raised, metrics that exist, and who may read them.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use crate::agent::{Agent, configure, status, status_when, usual, wait_for};
use crate::daemon::{drift, kept};
use crate::daemon_looks::scrape;
use crate::support::Node;

/// An agent whose metrics anybody on this machine may read.
fn watched(node: &Node) -> Agent {
    configure(node, &format!("{}\nmetrics.listen = \"127.0.0.1:0\"", usual(node)));
    let agent = Agent::start(node);
    agent.says("pass ended");
    agent
}

/// The value of a series.
#[track_caller]
fn value(agent: &Agent, series: &str) -> i64 {
    let (_, text) = scrape(agent, "/metrics");
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{series} is missing in:\n{text}")).parse().unwrap()
}

#[test]
fn broken_desired_files_raise_an_alarm_until_they_are_mended() {
    let node = kept(4);
    drift(&node, "lxc/100", "1");
    let agent = watched(&node);
    assert_eq!(value(&agent, "evenkeel_desired_valid"), 1);
    assert_eq!(value(&agent, "evenkeel_desired_guests"), 4);
    status(&node, &[]).ends_with(0);

    node.desk.write("desired/broken.toml", "[guest.999]\nkind = \"lxc\"\ncoers = 2\n");
    status_when(&node, |status| status["agent"]["desired"]["trouble"].is_object());
    let shown = status(&node, &[]).ends_with(3);
    assert!(shown.stdout.starts_with("BROKEN      the desired files since 20"), "{}", shown.stdout);
    assert!(shown.stderr.contains("evenkeel validate"), "{}", shown.stderr);
    status(&node, &["-o", "json"]).ends_with(3);
    assert_eq!(value(&agent, "evenkeel_desired_valid"), 0);
    let good = value(&agent, "evenkeel_desired_last_good_timestamp_seconds");
    assert!(good > 1_700_000_000, "{good}");

    // Passes go on and keep the last good state, and none of them counts as a success.
    let succeeded = value(&agent, "evenkeel_reconcile_total{result=\"succeeded\"}");
    let last = value(&agent, "evenkeel_last_success_timestamp_seconds");
    let incomplete = || value(&agent, "evenkeel_reconcile_total{result=\"incomplete\"}");
    let before = incomplete();
    wait_for(|| agent.log(), || (incomplete() > before + 1).then_some(()));
    assert_eq!(value(&agent, "evenkeel_reconcile_total{result=\"succeeded\"}"), succeeded);
    assert_eq!(value(&agent, "evenkeel_last_success_timestamp_seconds"), last);
    assert_eq!(value(&agent, "evenkeel_desired_last_good_timestamp_seconds"), good);

    std::fs::remove_file(node.desk.work.path().join("desired/broken.toml")).unwrap();
    status_when(&node, |status| status["agent"]["desired"]["trouble"].is_null());
    status(&node, &[]).ends_with(0);
    assert_eq!(value(&agent, "evenkeel_desired_valid"), 1);
    agent.terminate();
}

#[test]
fn a_broken_configuration_raises_an_alarm_too() {
    let node = kept(2);
    let agent = watched(&node);
    let good = node.desk.read("agent.toml");
    node.desk.write("agent.toml", &good.replace("interval", "intervall"));
    agent.signal("HUP");
    let state = ["--state", "state", "-o", "json"];
    wait_for(|| agent.log(), || (value(&agent, "evenkeel_configuration_valid") == 0).then_some(()));
    let run = node.desk.run("status", &state).ends_with(3);
    assert!(run.stderr.contains("configuration is broken"), "{}", run.stderr);
    node.desk.write("agent.toml", &good);
    agent.signal("HUP");
    wait_for(|| agent.log(), || (value(&agent, "evenkeel_configuration_valid") == 1).then_some(()));
    node.desk.run("status", &state).ends_with(0);
    agent.terminate();
}

#[test]
fn metrics_tell_a_freeze_what_waits_for_a_signature_and_how_guests_stand() {
    let node = kept(4);
    let declared = node.desk.read("desired/lxc-100.toml");
    let absent = "[guest.100]\nkind = \"lxc\"\nstate = \"absent\"\n";
    node.desk.write("desired/lxc-100.toml", absent);
    let agent = watched(&node);
    wait_for(
        || agent.log(),
        || (value(&agent, "evenkeel_pending{op=\"destroy\"}") == 1).then_some(()),
    );
    assert_eq!(value(&agent, "evenkeel_held{reason=\"pending_signature\"}"), 1);
    assert_eq!(value(&agent, "evenkeel_held{reason=\"budget\"}"), 0);
    assert_eq!(value(&agent, "evenkeel_guests{state=\"held\"}"), 1);
    assert_eq!(value(&agent, "evenkeel_trust_version"), 0, "nobody may sign");
    assert_eq!(value(&agent, "evenkeel_ops_total{kind=\"destroy\",result=\"succeeded\"}"), 0);
    assert_eq!(value(&agent, "evenkeel_frozen"), 0);
    node.desk.run("freeze", &["--state", "state"]).ends_with(0);
    assert_eq!(value(&agent, "evenkeel_frozen"), 1);
    node.desk.write("desired/lxc-100.toml", &declared);
    wait_for(
        || agent.log(),
        || (value(&agent, "evenkeel_guests{state=\"in_sync\"}") == 4).then_some(()),
    );
    assert_eq!(value(&agent, "evenkeel_pending{op=\"destroy\"}"), 0);
    agent.terminate();
}

#[test]
fn another_address_than_loopback_takes_a_token_and_answers_nobody_without_it() {
    let node = kept(2);
    let open = format!("{}\nmetrics.listen = \"0.0.0.0:0\"", usual(&node));
    configure(&node, &open);
    let run = node.desk.run("run", &["-c", "agent.toml"]).ends_with(3);
    assert!(
        run.stderr.contains("token_file") && run.stderr.contains("agent.toml:3:18"),
        "{}",
        run.stderr
    );

    let secret = "0123456789abcdef-marked";
    node.desk.write("scrape-token", &format!("{secret}\n"));
    let path = node.desk.work.path().join("scrape-token");
    configure(&node, &format!("{open}\nmetrics.token_file = \"{}\"", path.display()));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let run = node.desk.run("run", &["-c", "agent.toml"]).ends_with(3);
    assert!(run.stderr.contains("chmod 600"), "{}", run.stderr);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();

    let agent = Agent::start(&node);
    agent.says("pass ended");
    let (head, body) = scrape(&agent, "/metrics");
    assert!(head.starts_with("HTTP/1.1 401"), "{head}");
    assert!(head.to_lowercase().contains("www-authenticate: bearer"), "{head}");
    assert!(!body.contains("evenkeel_"), "{body}");
    for (shown, code) in [
        (format!("Bearer {secret}"), "200"),
        (format!("Bearer {secret}x"), "401"),
        ("Bearer ".to_owned(), "401"),
        (format!("Basic {secret}"), "401"),
    ] {
        let head = scrape_showing(&agent, &shown);
        assert!(head.starts_with(&format!("HTTP/1.1 {code}")), "{head}");
    }
    assert!(!agent.log().contains("marked"), "{}", agent.log());
    agent.terminate();
}

/// The head of the answer to somebody who shows a token.
fn scrape_showing(agent: &Agent, shown: &str) -> String {
    let log = agent.log();
    let port = log.lines().find_map(|line| line.split("metrics address=Some(0.0.0.0:").nth(1));
    let port: u16 = port.unwrap().split(')').next().unwrap().parse().unwrap();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(
        stream,
        "GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: {shown}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.split("\r\n\r\n").next().unwrap().to_owned()
}

/// Names that look like metrics in a text.
fn metric_names(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let ours = words.filter(|word| word.starts_with("evenkeel_") || word.starts_with("process_"));
    ours.map(str::to_owned).collect()
}

#[test]
fn alert_rules_and_dashboard_use_only_metrics_that_a_running_agent_exports() {
    let node = kept(2);
    // A guest that is locked while it must be changed, so that every series has a sample.
    drift(&node, "lxc/100", "1");
    let guest = "lxc/100".parse().unwrap();
    let lock = Some("backup".to_owned());
    node.happen(evenkeel_sim::Event::Lock { guest, lock });
    let agent = watched(&node);
    let (_, text) = scrape(&agent, "/metrics");
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let exported: BTreeSet<String> =
        samples.map(|line| line.split(['{', ' ']).next().unwrap().to_owned()).collect();

    let packaging = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging");
    let rules = std::fs::read_to_string(format!("{packaging}/prometheus-alerts.yml")).unwrap();
    let expressions: Vec<&str> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("expr: ")).collect();
    assert!(expressions.len() >= 10 && expressions.len() == rules.matches("- alert: ").count());
    let board = std::fs::read_to_string(format!("{packaging}/grafana-dashboard.json")).unwrap();
    let board: Value = serde_json::from_str(&board).unwrap();
    let panels = board["panels"].as_array().unwrap();
    let shown = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let shown: Vec<&str> = shown.map(|target| target["expr"].as_str().unwrap()).collect();
    let variables = board["templating"]["list"][1]["query"].as_str().unwrap();

    let used: BTreeSet<String> =
        expressions.into_iter().chain(shown).chain([variables]).flat_map(metric_names).collect();
    let unknown: Vec<&String> = used.difference(&exported).collect();
    assert!(unknown.is_empty(), "not exported: {unknown:?}");
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/metrics.md");
    let page = metric_names(&std::fs::read_to_string(page).unwrap());
    let parts = ["_bucket", "_sum", "_count"];
    let missing: Vec<&String> = exported
        .iter()
        .filter(|name| !page.contains(*name))
        .filter(|name| {
            !parts
                .iter()
                .any(|part| name.strip_suffix(part).is_some_and(|family| page.contains(family)))
        })
        .collect();
    assert!(missing.is_empty(), "docs/reference/metrics.md leaves out {missing:?}");
    agent.terminate();
}
