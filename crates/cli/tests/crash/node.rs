//! A simulated Proxmox VE in a process of its own, and what a test asks of it directly.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use evenkeel_sim::{Event, RequestRecord};
use serde_json::Value;

/// The simulator; dropping it ends it.
pub(crate) struct Node {
    process: Child,
    pub(crate) url: String,
    pub(crate) token: String,
}

impl Node {
    /// So many guests; `faults` is the text of the simulator's list of faults.
    pub(crate) fn start(directory: &Path, guests: &str, faults: &str) -> Self {
        std::fs::write(directory.join("faults.json"), faults).unwrap();
        let mut command = binary(directory);
        command.args(["sim", "--listen", "127.0.0.1:0", "--plain-http", "-o", "json"]);
        command.args(["--guests", guests, "--faults", "faults.json"]);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        let text = |key: &str| ready[key].as_str().unwrap().to_owned();
        Self { process, url: text("url"), token: text("token") }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> &str {
        self.url.strip_prefix("http://").unwrap()
    }

    /// Everything that arrived.
    pub(crate) fn requests(&self) -> Vec<RequestRecord> {
        serde_json::from_value(self.ask("GET", "/sim/requests", "").1).unwrap()
    }

    /// Forgets what arrived so far: what a test did itself to prepare.
    pub(crate) fn forget_requests(&self) {
        self.ask("DELETE", "/sim/requests", "");
    }

    pub(crate) fn happen(&self, event: &Event) {
        let (status, told) =
            self.ask("POST", "/sim/events", &serde_json::to_string(event).unwrap());
        assert_eq!(status, 200, "{told}");
    }

    /// Sends a request as the administrator, and returns the status and the data of the answer.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        let token = &self.token;
        let length = body.len();
        let kind = if body.starts_with('{') { "json" } else { "x-www-form-urlencoded" };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\
             Authorization: PVEAPIToken={token}\r\nContent-Type: application/{kind}\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut body: Value = serde_json::from_str(body).unwrap_or_default();
        (status, body["data"].take())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to end.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The binary with nothing of our own environment.
pub(crate) fn binary(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
    command.env_clear().env("HOME", directory).current_dir(directory);
    command
}
