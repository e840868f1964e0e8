//! `evenkeel hub` as a process: what it prints, how it ends, what its sub-verbs do beside it, and what a kill leaves.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::agent::PATIENCE;
use crate::support::Desk;

/// A hub that runs, in the desk's directory.
struct RunningHub {
    child: Child,
    ready: Value,
}

impl RunningHub {
    fn start(desk: &Desk, more: &[&str]) -> Self {
        let mut command = desk.command("hub");
        command
            .args(["--state", "hub", "--listen", "127.0.0.1:0", "-o", "json", "--log", "error"])
            .args(more);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready = serde_json::from_str(&line).unwrap();
        Self { child, ready }
    }

    fn get(&self, path: &str) -> String {
        let address = self.ready["url"].as_str().unwrap().strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: hub\r\nconnection: close\r\n\r\n").unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        said
    }

    fn signal(mut self, signal: &str) -> std::process::ExitStatus {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        self.child.wait().unwrap()
    }
}

fn hub(desk: &Desk, arguments: &[&str]) -> crate::support::Run {
    let mut command = desk.command("hub");
    command.args(arguments).args(["--state", "hub"]);
    desk.finish(command)
}

#[test]
fn a_hub_says_where_it_is_serves_and_ends_when_told() {
    let desk = Desk::new();
    let running = RunningHub::start(&desk, &["--plain-http"]);
    assert!(running.ready["fingerprint"].is_null());
    let link = running.ready["admin_link"].as_str().unwrap();
    assert!(link.contains("/first-admin#evko_"), "{link}");
    assert!(running.get("/healthz").starts_with("HTTP/1.1 200"));
    assert!(running.get("/readyz").starts_with("HTTP/1.1 200"));
    assert!(running.get("/metrics").contains("evenkeel_hub_hosts 0"));
    assert!(running.get("/v1/agent/anchor").contains("\"code\":\"unauthorised\""));
    assert!(running.signal("-TERM").success());
    let again = RunningHub::start(&desk, &[]);
    assert_eq!(again.ready["fingerprint"].as_str().unwrap().len(), 32 * 3 - 1);
    assert!(again.ready["url"].as_str().unwrap().starts_with("https://"));
    assert!(again.signal("-INT").success());
}

#[test]
fn what_is_done_beside_a_running_hub_is_there_after_a_kill() {
    let desk = Desk::new();
    let running = RunningHub::start(&desk, &["--plain-http"]);
    let token = hub(&desk, &["enrol-token", "pve1"]).ends_with(0).stdout;
    assert!(token.starts_with("evke_") && token.trim_end().len() == 69, "{token}");
    let key = desk.work.path().join("id.pub");
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(key.with_extension(""))
        .status();
    assert!(made.unwrap().success());
    let added = hub(
        &desk,
        &["account", "add", "alice", "--role", "editor", "--key", "id.pub", "--scope", "eu-*"],
    );
    assert!(added.ends_with(0).stdout.contains("alice (editor) of eu-* signs in with SHA256:"));
    hub(&desk, &["account", "add", "alice", "--role", "viewer", "--key", "id.pub"]).ends_with(1);
    hub(&desk, &["account", "add", "a b", "--role", "viewer", "--key", "id.pub"]).ends_with(3);
    hub(&desk, &["backup", "copy.sqlite"]).ends_with(0);
    hub(&desk, &["backup", "copy.sqlite"]).ends_with(1);
    assert!(!running.signal("-KILL").success());
    let check = hub(&desk, &["check", "-o", "json"]).ends_with(0).stdout;
    let check: Value = serde_json::from_str(&check).unwrap();
    let rows = |table: &str| {
        let tables = check["tables"].as_array().unwrap();
        tables.iter().find(|row| row["table"] == table).unwrap()["rows"].clone()
    };
    assert_eq!(
        (rows("accounts"), rows("enrol_tokens"), rows("audit")),
        (1.into(), 1.into(), 2.into())
    );
    assert_eq!(check["faults"], serde_json::json!([]));
    // The copy is a hub too, with the same name.
    std::fs::create_dir(desk.work.path().join("restored")).unwrap();
    let mut command = desk.command("hub");
    command.args(["restore", "copy.sqlite", "--state", "restored"]);
    let told = desk.finish(command).ends_with(0).stdout;
    assert!(told.contains("is in place") && told.contains("Every login"), "{told}");
    let mut command = desk.command("hub");
    command.args(["check", "-o", "json", "--state", "restored"]);
    let copy: Value = serde_json::from_str(&desk.finish(command).ends_with(0).stdout).unwrap();
    assert_eq!(copy["hub_id"], check["hub_id"]);
    // There is an account, so nobody is invited to make the first one.
    let again = RunningHub::start(&desk, &["--plain-http"]);
    assert!(again.ready["admin_link"].is_null());
    // And nothing is put back beneath it.
    let refused = hub(&desk, &["restore", "copy.sqlite"]).ends_with(4);
    assert!(refused.stderr.contains("stop the hub first"), "{}", refused.stderr);
    hub(&desk, &["backup", "second.sqlite"]).ends_with(0);
    again.signal("-TERM");
    hub(&desk, &["restore", "missing.sqlite"]).ends_with(5);
    hub(&desk, &["restore", "second.sqlite"]).ends_with(0);
    hub(&desk, &["check"]).ends_with(0);
}

#[test]
fn hosts_are_listed_labelled_and_removed_and_none_is_made_by_looking() {
    let desk = Desk::new();
    hub(&desk, &["host", "list"]).ends_with(5);
    assert!(!desk.work.path().join("hub").exists(), "looking makes no hub");
    hub(&desk, &["enrol-token", "pve1"]).ends_with(0);
    assert!(hub(&desk, &["host", "list"]).ends_with(0).stdout.starts_with("host"));
    hub(&desk, &["host", "label", "pve1", "site=berlin"]).ends_with(5);
    hub(&desk, &["host", "remove", "pve1"]).ends_with(5);
    let mut command = desk.command("hub");
    command.args(["check", "--database", "mysql://x"]);
    desk.finish(command).ends_with(64);
}

#[test]
fn an_older_version_refuses_a_newer_database_with_a_sentence() {
    let desk = Desk::new();
    hub(&desk, &["enrol-token", "pve1"]).ends_with(0);
    let newer = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); \
        c.execute(\"UPDATE meta SET value = '99' WHERE name = 'schema'\"); c.commit()";
    let ran = Command::new("python3")
        .args(["-c", newer])
        .arg(desk.work.path().join("hub/hub.sqlite"))
        .status();
    assert!(ran.unwrap().success());
    let refused = hub(&desk, &["check"]).ends_with(3);
    assert!(refused.stderr.contains("it was used by a newer evenkeel"), "{}", refused.stderr);
    let refused = hub(&desk, &["--listen", "127.0.0.1:0"]).ends_with(3);
    assert!(refused.stderr.contains("schema 99, and this version knows "), "{}", refused.stderr);
}

#[test]
fn a_running_hub_archives_old_lines_of_its_audit_and_a_bent_file_ends_verify_with_its_line() {
    let desk = Desk::new();
    hub(&desk, &["audit", "verify"]).ends_with(5);
    for host in ["pve1", "pve2", "pve3"] {
        hub(&desk, &["enrol-token", host]).ends_with(0);
    }
    let aged = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); \
        c.execute(\"UPDATE audit SET at = 1000000 WHERE subject <> 'pve3'\"); c.commit()";
    let database = desk.work.path().join("hub/hub.sqlite");
    let ran = Command::new("python3").args(["-c", aged]).arg(database).status();
    assert!(ran.unwrap().success());
    let running = RunningHub::start(&desk, &["--plain-http"]);
    let began = std::time::Instant::now();
    let told = loop {
        let told = hub(&desk, &["audit", "verify", "-o", "json"]).ends_with(0).json();
        if told["archive"]["lines"] == 2 && told["archive"]["in_both"] == 0 {
            break told;
        }
        assert!(began.elapsed() < PATIENCE, "{told}");
    };
    assert_eq!(told["archive"]["table_rows"], 1);
    assert!(running.signal("-TERM").success());
    let listed = hub(&desk, &["audit", "list", "-o", "json"]).ends_with(0).json();
    assert_eq!(listed["entries"].as_array().unwrap().len(), 3, "{listed}");
    assert_eq!(hub(&desk, &["check", "-o", "json"]).ends_with(0).json()["audit_archived"], 2);
    let file = desk.work.path().join("hub/audit/audit-000001.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("\"subject\":\"pve2\"", "\"subject\":\"pve9\"")).unwrap();
    let bent = hub(&desk, &["audit", "verify"]).ends_with(1);
    assert!(bent.stdout.contains("audit-000001.jsonl, line 3: "), "{}", bent.stdout);
}
