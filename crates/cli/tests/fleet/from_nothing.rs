//! From nothing to three managed hosts, by the real binary: every command is counted, on the operator's machine and on each
//! host. What is no command: the first admin's page in a browser, the lines that hosts print and an operator keeps, and
//! what systemd does.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::str::FromStr as _;

use evenkeel_agent::pve::tls::{CertFingerprint, TlsTrust};
use serde_json::{Value, json};

use super::desk::{Desk, EVENKEEL, HubProcess, Told};
use super::node_tools;
use super::whole::{Running, await_host, started};

const HOSTS: [&str; 3] = ["pve1", "pve2", "pve3"];

/// The most commands that it may take on the operator's machine.
const OPERATOR_COMMANDS_MAX: usize = 6;

/// The operator's machine, which counts.
struct Operator {
    desk: Desk,
    commands: Vec<String>,
}

impl Operator {
    fn run(&mut self, line: &str) -> Told {
        self.commands.push(line.to_owned());
        self.desk.run(line).ends_with(0)
    }
}

/// A fresh node with the package installed, and the Proxmox VE that runs on it.
struct FreshNode {
    name: &'static str,
    sim: Value,
    _process: Running,
}

impl FreshNode {
    fn new(desk: &Desk, name: &'static str) -> Self {
        let line = format!("sim --listen 127.0.0.1:0 --guests 2 --node {name} -o json");
        let (process, sim) = started(desk, &line);
        let root = desk.path(&format!("{name}/root"));
        fs_err::create_dir_all(root.join(format!("etc/pve/nodes/{name}"))).unwrap();
        fs_err::os::unix::fs::symlink(format!("nodes/{name}"), root.join("etc/pve/local")).unwrap();
        // A certificate of its own is pinned; the agent must find the simulator's behind it.
        fs_err::write(root.join(format!("etc/pve/nodes/{name}/pveproxy-ssl.pem")), "").unwrap();
        let group = rustix::process::getgid().as_raw();
        fs_err::write(root.join("etc/group"), format!("evenkeel:x:{group}:\n")).unwrap();
        let pin = sim["fingerprint"].as_str().unwrap();
        let openssl = format!("#!/bin/sh\necho 'sha256 Fingerprint={pin}'\n");
        node_tools::install(&desk.path(&format!("{name}/tools")), &openssl);
        for state in ["users", "roles", "tokens", "acl"] {
            fs_err::create_dir_all(desk.path(&format!("{name}/state/{state}"))).unwrap();
        }
        Self { name, sim, _process: process }
    }

    /// The one command on the host: the line that was printed, and the token on its stdin.
    fn sets_up(&self, desk: &Desk, line: &str, token: &str) -> String {
        let root = desk.path(&format!("{}/root", self.name));
        let line = line.strip_prefix("evenkeel ").unwrap();
        let script = format!("exec {EVENKEEL} {line} --root {} --yes", root.display());
        let mut command = Command::new("sh");
        command.args(["-c", &script]).current_dir(desk.path(self.name)).env_clear();
        let tools = desk.path(&format!("{}/tools", self.name));
        command.env("PATH", format!("{}:/usr/bin:/bin", tools.display()));
        command.env("STATE", desk.path(&format!("{}/state", self.name)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(token.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let out = String::from_utf8(output.stdout);
        let err = String::from_utf8(output.stderr);
        let out = out.unwrap();
        let err = err.unwrap();
        assert!(output.status.success(), "{}: {out}{err}", self.name);
        assert!(!out.contains("evke_") && !err.contains("evke_"), "{out}{err}");
        let calls = desk.read(&format!("{}/state/calls", self.name));
        assert!(calls.contains("systemctl enable --now evenkeel.service"), "{calls}");
        out
    }

    /// What systemd does: the agent starts with the files that are there. This machine is three nodes, so they have other
    /// places and addresses than on a node, and the simulator's token.
    fn systemd(&self, desk: &Desk) -> Running {
        let root = desk.path(&format!("{}/root", self.name)).display().to_string();
        let text = |name: &str| self.sim[name].as_str().unwrap();
        let config = desk.read(&format!("{}/root/etc/evenkeel/agent.toml", self.name));
        let config = config
            .replace("/etc/evenkeel", &format!("{root}/etc/evenkeel"))
            .replace("/var/lib/evenkeel", &format!("{root}/var/lib/evenkeel"))
            .replace("https://localhost:8006", text("url"));
        desk.write(&format!("{}/run.toml", self.name), &config);
        fs_err::write(desk.path(&format!("{}/root/etc/evenkeel/token", self.name)), text("token"))
            .unwrap();
        let line = format!("run -c {}/run.toml --log error", self.name);
        Running(desk.command(&line).spawn().unwrap())
    }
}

/// What the first admin does in a browser, at the link that the hub printed.
fn first_admin(desk: &Desk, hub: &HubProcess) {
    let (address, code) = hub.admin_link.split_once("/first-admin#").unwrap();
    let pin = CertFingerprint::from_str(&hub.fingerprint).unwrap();
    let browser = TlsTrust::Pinned(vec![pin]).direct_client(true).unwrap().build().unwrap();
    let body = json!({"code": code, "name": "alice", "key": desk.key("alice").to_string()});
    let asked = browser
        .post(format!("{address}/v1/first-admin"))
        .header("content-type", "application/json")
        .body(body.to_string())
        .send();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    assert!(runtime.block_on(asked).unwrap().status().is_success());
}

#[test]
fn three_fresh_nodes_are_managed_after_six_commands_here_and_one_on_each() {
    let mut operator = Operator { desk: Desk::new(), commands: Vec::new() };
    let nodes = HOSTS.map(|name| FreshNode::new(&operator.desk, name));
    operator.commands.push("hub".to_owned());
    let hub = HubProcess::start(&operator.desk, "hub", "127.0.0.1:0");
    first_admin(&operator.desk, &hub);
    operator.run(&format!("fleet login {} --key alice --fingerprint {}", hub.url, hub.fingerprint));
    let empty = operator.desk.run("fleet hosts").ends_with(0).out;
    assert!(empty.contains("evenkeel fleet enrol-token HOST"), "{empty}");
    let keys = "--author author.pub --operational alice.pub --recovery host.pub";
    let made = operator.run(&format!("fleet enrol-token pve1 pve2 pve3 {keys} -o json")).json();
    let line = made["command"].as_str().unwrap();
    let mut host_commands = 0;
    let mut pins = String::new();
    let mut agents = Vec::new();
    for (node, token) in nodes.iter().zip(made["tokens"].as_array().unwrap()) {
        assert_eq!(token["host"], node.name);
        let out = node.sets_up(&operator.desk, line, token["token"].as_str().unwrap());
        host_commands += 1;
        // The operator keeps the line that the host itself printed.
        let pin = out.lines().find(|said| said.starts_with(&format!("{} ssh-ed25519 ", node.name)));
        pins.extend([pin.unwrap(), "\n"]);
        agents.push(node.systemd(&operator.desk));
    }
    operator.desk.write("home/.config/evenkeel/known_hosts", &pins);
    let wish = "[guest.100]\nkind = \"lxc\"\ncores = 2\nrun = \"stopped\"\n";
    operator.desk.write("d/web.toml", wish);
    for name in HOSTS {
        operator.run(&format!("fleet push {name} d --key author --yes"));
    }
    assert!(operator.commands.len() <= OPERATOR_COMMANDS_MAX, "{:#?}", operator.commands);
    assert_eq!(host_commands, HOSTS.len(), "one on each host");
    for name in HOSTS {
        let told = await_host(&operator.desk, name, "in_sync");
        assert_eq!(told["host"]["in_effect"], 1, "{told}");
        assert_eq!(told["host"]["counts"], json!({"as_declared": 1}), "{told}");
    }
    drop(agents);
    // A second run asks for no token, and gives the role what the document takes; a third finds nothing to do.
    let again = nodes[0].sets_up(&operator.desk, line, "");
    assert!(again.contains("pveum role modify Evenkeel"), "{again}");
    assert!(again.contains("VM.Config.CPU") && !again.contains("evenkeel enrol"), "{again}");
    let again = nodes[0].sets_up(&operator.desk, line, "");
    assert!(again.contains("Nothing to do on pve1"), "{again}");
}
