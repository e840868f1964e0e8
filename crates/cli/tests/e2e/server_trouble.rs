//! What can be wrong with the server or on the way to it: the right exit code and the next step.

use std::process::Command;

use evenkeel_core::model::release::Release;
use evenkeel_sim::{Effect, Event, Scenario, TOKENS};
use serde_json::Value;

use crate::messages::arrived;
use crate::support::{Canned, Desk, Node, Run};

/// A node with two guests and desired files for them, ready to be planned.
fn imported() -> Node {
    let node = Node::with_guests(2);
    node.run("import", &["--out", "desired"]).ends_with(0);
    node
}

fn plan(node: &Node) -> Run {
    node.run("plan", &["--node", "pve1", "--desired", "desired"])
}

/// `plan` with the token of all rights, and another idea of whom to trust.
fn trusting(node: &Node, trust: &[&str]) -> Command {
    let file = node.desk.token_file(&format!("{}={}", TOKENS[0].0, TOKENS[0].1), 0o600);
    let mut command = node.desk.command("plan");
    command.args(["--url", &node.http.url(), "--desired", "desired"]).args(trust);
    command.arg("--token-file").arg(file);
    command
}

#[test]
fn n01_no_token_leaves_for_a_server_with_another_certificate() {
    let node = imported();
    let before = arrived(&node.http);
    let pin = ["00"; 32].join(":");
    let told = node.desk.finish(trusting(&node, &["--fingerprint", &pin])).ends_with(4);
    assert_eq!(arrived(&node.http), before, "a request reached a server nobody trusts");
    let shown = told.story().replace(&node.http.certificate().fingerprint, "FINGERPRINT");
    insta::assert_snapshot!("a-server-with-another-certificate", shown);
}

#[test]
fn n01_no_token_leaves_for_a_server_of_another_authority() {
    let node = imported();
    let before = arrived(&node.http);
    let other = Node::with_guests(0);
    node.desk.write("ca.pem", &other.http.certificate().pem);
    let told = node.desk.finish(trusting(&node, &["--ca-file", "ca.pem"])).ends_with(4);
    assert_eq!(arrived(&node.http), before, "a request reached a server nobody trusts");
    insta::assert_snapshot!("a-server-of-another-authority", told.story());
    node.desk.write("ca.pem", &node.http.certificate().pem);
    node.desk.finish(trusting(&node, &["--ca-file", "ca.pem"])).ends_with(0);
}

#[test]
fn no_token_leaves_for_a_server_this_system_does_not_know() {
    let node = imported();
    let before = arrived(&node.http);
    let told = node.desk.finish(trusting(&node, &[])).ends_with(4);
    assert_eq!(arrived(&node.http), before, "a request reached a server nobody trusts");
    insta::assert_snapshot!("a-server-this-system-does-not-know", told.story());
}

#[test]
fn a_renewed_certificate_is_not_trusted_by_itself() {
    let node = imported();
    let command = node.command_as(0, "plan", &["--desired", "desired"]);
    node.happen(Event::NewCertificate);
    let before = arrived(&node.http);
    node.desk.finish(command).ends_with(4);
    assert_eq!(arrived(&node.http), before);
}

#[test]
fn a_wrong_token_is_an_authentication_failure() {
    let node = imported();
    let file = node.desk.token_file("root@pam!full=11111111-2222-4333-8444-555555555555", 0o600);
    let mut command = node.desk.command("plan");
    command.args([
        "--url",
        &node.http.url(),
        "--fingerprint",
        &node.http.certificate().fingerprint,
    ]);
    command.args(["--desired", "desired", "--node", "pve1", "--token-file"]).arg(file);
    let told = node.desk.finish(command).ends_with(4);
    assert!(!told.stderr.contains("11111111"), "{}", told.stderr);
    insta::assert_snapshot!("a-wrong-token", told.story());
}

/// Invariant 14: a list the token may not see is no proof that a guest is gone.
#[test]
fn n07_a_token_without_rights_makes_problems_and_never_creates() {
    let node = imported();
    let arguments = ["--node", "pve1", "--desired", "desired", "--detailed-exitcode"];
    let told = node.run_as(3, "plan", &arguments).ends_with(1);
    insta::assert_snapshot!("a-token-without-rights", told.story());
    let plan = node.run_as(3, "plan", &[&arguments[..], &["-o", "json"]].concat()).json();
    for guest in plan["guests"].as_array().unwrap() {
        assert_eq!(guest["actions"], Value::Array(Vec::new()));
        assert_ne!(guest["problems"], Value::Array(Vec::new()));
    }
    assert_eq!(plan["guests"].as_array().unwrap().len(), 2);
}

#[test]
fn a_refused_call_is_a_permission_failure() {
    let desk = Desk::new();
    let text = "Permission check failed (/nodes/pve1, Sys.Audit)";
    let body = format!("{{\"data\":null,\"message\":\"{text}\\n\"}}");
    let answer = format!("HTTP/1.1 403 {text}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    insta::assert_snapshot!(
        "a-refused-call",
        Canned::answering(answer).plan(&desk).ends_with(4).story()
    );
}

#[test]
fn a_node_that_cannot_be_reached_is_transient() {
    let node = imported();
    node.inject(Effect::ProxyStatus { status: 595, executed: false }.on("/nodes/pve1/lxc"));
    insta::assert_snapshot!("a-node-that-cannot-be-reached", plan(&node).ends_with(7).story());
}

#[test]
fn a_node_that_is_lost_in_the_middle_is_transient() {
    let node = imported();
    node.inject(Effect::ProxyStatus { status: 596, executed: true }.on("/version"));
    insta::assert_snapshot!("a-node-lost-in-the-middle", plan(&node).ends_with(7).story());
}

#[test]
fn a_guest_that_cannot_be_read_is_a_problem_and_the_others_are_planned() {
    let node = imported();
    node.inject(Effect::ProxyStatus { status: 596, executed: true }.on("/lxc/100/pending"));
    let arguments = ["--node", "pve1", "--desired", "desired"];
    plan(&node).ends_with(0);
    let told = node.run("plan", &[&arguments[..], &["--detailed-exitcode"]].concat()).ends_with(1);
    assert!(!told.stdout.contains("token"), "a lost answer is no missing right: {}", told.stdout);
    insta::assert_snapshot!("a-guest-that-cannot-be-read", told.story());
}

#[test]
fn a_guest_the_token_may_not_read_asks_for_the_right_and_not_for_patience() {
    let node = Node::start(&Scenario { guests: 2, release: Release::V9_2, ..Scenario::default() });
    node.run("import", &["--out", "desired"]).ends_with(0);
    // A container with `env` is shown only to those who may set it.
    let set = [("env".to_owned(), Some("A=1".to_owned()))].into();
    node.happen(Event::Edit { guest: "lxc/100".parse().unwrap(), set });
    let holder = "ops@pve".to_owned();
    let path = "/vms/100".to_owned();
    node.happen(Event::Withhold { holder, path, privilege: "VM.Config.Options".to_owned() });
    let arguments = ["--node", "pve1", "--desired", "desired", "--detailed-exitcode"];
    let told = node.run_as(2, "plan", &arguments).ends_with(1);
    insta::assert_snapshot!("a-guest-the-token-may-not-read", told.story());
}

#[test]
fn a_server_that_does_not_answer_is_transient() {
    let node = imported();
    node.inject(Effect::Latency { ms: 60_000 }.on("/version"));
    let arguments = ["--node", "pve1", "--desired", "desired", "--timeout", "4"];
    let told = node.run("plan", &arguments).ends_with(7).story();
    // A busy machine notices later.
    let (before, after) = told.split_once("no answer within ").expect("the waiting time");
    let rest = after.trim_start_matches(|digit: char| digit.is_ascii_digit() || digit == '.');
    insta::assert_snapshot!(
        "a-server-that-does-not-answer",
        format!("{before}no answer within 4{rest}")
    );
}

#[test]
fn a_server_that_hangs_up_is_transient() {
    let node = imported();
    node.inject(Effect::DropBefore.on("/version"));
    insta::assert_snapshot!("a-server-that-hangs-up", plan(&node).ends_with(7).story());
}

#[test]
fn n06_an_answer_that_makes_no_sense_is_told_and_not_believed() {
    let pages = [
        ("garbage", "\u{1b}[31m]{not json"),
        ("an-HTML-page", "<!DOCTYPE html><html><body>Welcome to nginx!</body></html>"),
        ("JSON-of-another-shape", "{\"data\":{\"version\":[1,2]}}"),
    ];
    for (name, body) in pages {
        let node = imported();
        node.inject(Effect::Garbage { body: body.to_owned() }.on("/version"));
        insta::assert_snapshot!(name, plan(&node).ends_with(7).story());
    }
}

#[test]
fn an_answer_larger_than_any_true_one_is_not_read() {
    let node = imported();
    node.inject(Effect::Garbage { body: "9".repeat(3 << 20) }.on("/version"));
    insta::assert_snapshot!("a-huge-answer", plan(&node).ends_with(7).story());
}

#[test]
fn a_server_that_is_no_proxmox_is_told() {
    let desk = Desk::new();
    let told = Canned::answering("SSH-2.0-OpenSSH_9.6\r\n").plan(&desk).ends_with(7);
    insta::assert_snapshot!("a-server-that-is-no-web-server", told.story());
    let answer =
        "HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>";
    insta::assert_snapshot!(
        "a-gateway",
        Canned::answering(answer).plan(&desk).ends_with(7).story()
    );
    let answer = "HTTP/1.1 301 Moved\r\nLocation: https://elsewhere/\r\nContent-Length: 0\r\n\r\n";
    insta::assert_snapshot!(
        "a-redirect",
        Canned::answering(answer).plan(&desk).ends_with(1).story()
    );
}

#[test]
fn a_port_nobody_listens_on_is_transient() {
    let node = imported();
    let Node { http, desk, .. } = &node;
    let url = http.url();
    let free = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let file = desk.token_file(&format!("{}={}", TOKENS[0].0, TOKENS[0].1), 0o600);
    let mut command = desk.command("plan");
    let url = url.replace(&http.address.to_string(), &free.to_string());
    command.args(["--url", &url, "--desired", "desired", "--token-file"]).arg(file);
    command.args(["--fingerprint", &http.certificate().fingerprint]);
    insta::assert_snapshot!("a-port-nobody-listens-on", desk.finish(command).ends_with(7).story());
}

/// A server that is asked by name answers for all: without a node's name it is found out.
#[test]
fn without_a_name_the_node_that_answers_is_looked_at() {
    let node = Node::start(&Scenario { node: "beta".into(), guests: 2, ..Scenario::default() });
    node.run("import", &["--out", "desired"]).ends_with(0);
    assert_eq!(node.desk.names("desired").len(), 2);
}
