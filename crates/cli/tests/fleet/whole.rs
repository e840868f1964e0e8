//! The whole way: a person's push through a real hub to a real agent and a simulated node, and the way back.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::desk::{Desk, HubProcess, PATIENCE};

/// A process that ends with its value.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn started(desk: &Desk, line: &str) -> (Running, Value) {
    let mut child = desk.command(line).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    (Running(child), serde_json::from_str(&ready).unwrap())
}

/// Asks until a host stands as it should.
fn await_standing(desk: &Desk, standing: &str) -> Value {
    await_host(desk, "pve1", standing)
}

/// The same of any host.
pub(crate) fn await_host(desk: &Desk, host: &str, standing: &str) -> Value {
    let began = Instant::now();
    loop {
        let told = desk.run(&format!("fleet status {host} -o json")).ends_with(0).json();
        if told["host"]["standing"] == standing {
            return told;
        }
        assert!(began.elapsed() < PATIENCE, "it never was {standing}: {told}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// A free port on an address of loopback that nothing else here uses. A hub that was killed comes back to it: in between, no
/// connection of another test can be given the same port.
fn own_address() -> String {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    format!("127.{}.{middle}.{}:0", 1 | high, 1 | low)
}

/// Enrols a host by its configuration.
pub(crate) fn enrol(desk: &Desk, hub: &HubProcess, host: &str, file: &str) {
    let token = desk.run(&format!("hub enrol-token {host} --state hub")).ends_with(0).out;
    let line = format!("enrol {} --fingerprint {} -c {file}", hub.url, hub.fingerprint);
    let mut child =
        desk.command(&line).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(token.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}

/// A simulated node, a hub, and a host that is enrolled there and whose agent does not run yet.
fn linked(desk: &Desk, more: &str) -> (Running, Value, HubProcess) {
    let (running, sim) = started(desk, "sim --listen 127.0.0.1:0 --guests 2 --plain-http -o json");
    let hub = HubProcess::start(desk, "hub", &own_address());
    desk.run("hub account add alice --role editor --key alice.pub --state hub").ends_with(0);
    for (key, role) in [("author", "author"), ("alice", "operational"), ("host", "recovery")] {
        let line = format!("signers enrol {key}.pub --role {role} --name {key} --trust trust.toml");
        desk.run(&line).ends_with(0);
    }
    let text = |value: &Value, name: &str| value[name].as_str().unwrap().to_owned();
    desk.write("token", &text(&sim, "token"));
    let here = desk.path("").display().to_string();
    desk.write("agent.toml", &format!(
        "host_id = \"pve1\"\ninterval = \"10s\"\n[pve]\nurl = \"{}\"\nnode = \"{}\"\ntoken_file = \"{here}token\"\n\
         [desired]\nhub = {{ url = \"{}\", credential_file = \"{here}credential\", fingerprint = \"{}\" }}\n{more}\
         [state]\ndir = \"{here}state\"\n[trust]\nfile = \"{here}trust.toml\"\n",
        text(&sim, "url"), text(&sim, "node"), hub.url, hub.fingerprint
    ));
    for file in ["token", "agent.toml"] {
        use std::os::unix::fs::PermissionsExt as _;
        fs_err::set_permissions(desk.path(file), std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    enrol(desk, &hub, "pve1", "agent.toml");
    let key = desk.read("state/host_key.pub");
    desk.write("home/.config/evenkeel/known_hosts", &format!("pve1 {key}"));
    let login = format!("fleet login {} --key alice --fingerprint {}", hub.url, hub.fingerprint);
    desk.run(&login).ends_with(0);
    let import = format!("import --url {} --token-file token --out d", text(&sim, "url"));
    desk.run(&import).ends_with(0);
    (running, sim, hub)
}

#[test]
fn z24_status_doctor_and_the_hub_are_told_of_the_last_word_that_an_author_signed() {
    let desk = Desk::new();
    let (_sim, _, _hub) = linked(&desk, "fresh_within = \"7d\"\n");
    let _agent = Running(desk.command("run -c agent.toml --log error").spawn().unwrap());
    let silent = "no author has signed a document for this host yet";
    let at_hub = |is_so: &dyn Fn(&Value) -> bool| {
        let began = Instant::now();
        loop {
            let told = desk.run("fleet status pve1 -o json").ends_with(0).json();
            if is_so(&told["host"]["agent"]) {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "the hub is not told: {told}");
            std::thread::sleep(Duration::from_millis(200));
        }
    };
    let hub_row = || {
        let status = desk.run("status -c agent.toml -o json").ends_with(0).json();
        status["agent"]["desired"]["hub"].clone()
    };
    at_hub(&|agent| agent["troubles"] == json!([silent]));
    assert_eq!((&hub_row()["stale"], &hub_row()["author_word"]), (&json!(silent), &Value::Null));
    assert!(desk.run("status -c agent.toml").ends_with(0).out.contains(silent));
    assert!(desk.run("doctor -c agent.toml").out.contains(silent));
    desk.run("fleet push pve1 d --key author --yes").ends_with(0);
    at_hub(&|agent| agent["author_word"]["generation"] == 1 && agent["troubles"].is_null());
    let told = hub_row();
    let word = &told["author_word"];
    assert_eq!((&told["stale"], &word["signer"]), (&Value::Null, &json!("author")));
    assert!(
        word["signed_at"].is_string() && word["taken_at"].is_string() && told["heard"].is_string()
    );
    let drawn = desk.run("status -c agent.toml").ends_with(0).out;
    assert!(drawn.contains("generation 1 signed ") && drawn.contains("last heard "), "{drawn}");
    let doctor = desk.run("doctor -c agent.toml").out;
    assert!(!doctor.contains(silent) && doctor.contains("an author signed a document"), "{doctor}");
}

#[test]
fn a_signed_push_is_in_effect_an_unsigned_one_is_refused_and_a_dead_hub_is_not_missed() {
    let desk = Desk::new();
    let (_sim, sim, hub) = linked(&desk, "");
    let agent = desk.command("run -c agent.toml --log error").spawn().unwrap();
    let agent = Running(agent);
    desk.run("fleet push pve1 d --key author --yes").ends_with(0);
    let told = await_standing(&desk, "in_sync");
    assert_eq!(
        (&told["host"]["in_effect"], &told["host"]["counts"]),
        (&json!(1), &json!({"as_declared": 2}))
    );
    // A file more, and nobody who signs it: the host says why, and keeps what it has.
    desk.write("d/more.toml", "[guest.999]\nkind = \"lxc\"\n");
    desk.run("fleet push pve1 d --yes").ends_with(0);
    let told = await_standing(&desk, "refused");
    assert_eq!((&told["host"]["in_effect"], &told["host"]["wanted"]), (&json!(1), &json!(2)));
    assert_eq!(told["host"]["refused"]["code"], "policy");
    let agent_says = &told["host"]["agent"];
    assert_eq!(
        (&agent_says["mode"], &agent_says["policy"]["desired_signed"]),
        (&json!("enforce"), &json!("true"))
    );
    let guest = &told["guests"][0]["report"];
    assert_eq!((&guest["kind"], &guest["declared"]), (&json!("lxc"), &Value::Null), "not in lists");
    let drawn = desk.run("fleet status pve1").ends_with(0).out;
    assert!(
        drawn.contains("refused generation 2 as policy") && drawn.contains("next: "),
        "{drawn}"
    );
    // The hub is gone: somebody changes a guest, the host sets it right, and is killed before it can tell anybody.
    let address = hub.url.trim_start_matches("https://").to_owned();
    drop(hub);
    desk.run("fleet hosts").ends_with(7);
    let alone = desk.run("status -c agent.toml").ends_with(0).out;
    assert!(alone.contains("generation 1 signed by author"), "{alone}");
    let before = operations(&desk).len();
    meddle(&sim);
    let began = Instant::now();
    let op = loop {
        let operations = operations(&desk);
        if let Some(op) = operations.iter().skip(before).find(|op| op["state"] == "succeeded") {
            break op["op"].as_str().unwrap().to_owned();
        }
        assert!(began.elapsed() < PATIENCE, "it never was set right: {operations:?}");
        std::thread::sleep(Duration::from_millis(200));
    };
    drop(agent);
    // No hub, no agent: what was taken is on disk, and a person can look and apply.
    let planned = desk.run("plan -c agent.toml").ends_with(0);
    assert!(planned.out.contains("2 guests as declared"), "{planned:?}");
    meddle(&sim);
    let applied = desk.run("apply -c agent.toml --yes").ends_with(0);
    assert!(applied.out.contains("description"), "{applied:?}");
    let _hub = HubProcess::start(&desk, "hub", &address);
    let _agent = Running(desk.command("run -c agent.toml --log error").spawn().unwrap());
    let began = Instant::now();
    loop {
        let told = desk.run("fleet status pve1 -o json").ends_with(0).json();
        let ops = told["ops"].as_array().unwrap();
        if let Some(found) = ops.iter().map(|op| &op["report"]).find(|found| found["op"] == *op) {
            assert_eq!(
                (&found["state"], &found["kind"]),
                (&json!("succeeded"), &json!("set_config"))
            );
            let change = &found["changes"][0];
            assert_eq!(
                (&change["key"], &change["before"]),
                (&json!("description"), &json!("meddled\n"))
            );
            break;
        }
        assert!(began.elapsed() < PATIENCE, "it was never told of {op}: {told}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn operations(desk: &Desk) -> Vec<Value> {
    let told = desk.run("journal --state state --last 1000 -o json").ends_with(0).json();
    told["operations"].as_array().unwrap().clone()
}

/// Somebody else writes to the first guest.
fn meddle(sim: &Value) {
    let text = |name: &str| sim[name].as_str().unwrap();
    let address = text("url").trim_start_matches("http://");
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let node = text("node");
    let body = "description=meddled";
    write!(
        stream,
        "PUT /api2/json/nodes/{node}/lxc/100/config HTTP/1.1\r\nhost: {address}\r\nauthorization: PVEAPIToken={}\r\n\
         content-type: application/x-www-form-urlencoded\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        text("token").trim(),
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}
