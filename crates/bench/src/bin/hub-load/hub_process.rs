//! The hub as a process: started as people start it, watched through /proc.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use evenkeel_agent::pve::tls::CertFingerprint;
use evenkeel_hub::store::HubStore;
use serde_json::Value;

/// A hub that runs.
pub(crate) struct HubProcess {
    child: Child,
    pub(crate) url: String,
    /// The certificate that it made for itself.
    pub(crate) fingerprint: CertFingerprint,
}

impl HubProcess {
    /// Starts it and waits until it says where it is.
    pub(crate) fn start(
        binary: &Path,
        state: &Path,
        database: Option<&str>,
        again: Option<SocketAddr>,
    ) -> Self {
        let listen = again.map_or_else(|| "127.0.0.1:0".to_owned(), |address| address.to_string());
        let mut command = Command::new(binary);
        command
            .arg("hub")
            .arg("--state")
            .arg(state)
            .args(["--listen", &listen, "-o", "json", "--log", "error"]);
        if let Some(database) = database {
            command.args(["--database", database]);
        }
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        let word = |name: &str| ready[name].as_str().unwrap();
        let url = word("url").to_owned();
        let fingerprint = word("fingerprint").parse().unwrap();
        Self { child, url, fingerprint }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.url.strip_prefix("https://").unwrap().parse().unwrap()
    }

    /// Processor time it has used, of all threads.
    pub(crate) fn cpu_s(&self) -> f64 {
        cpu_s(&format!("/proc/{}/stat", self.child.id()))
    }

    pub(crate) fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Kills it as a power cut would.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it.
    pub(crate) fn stop(mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.child.wait().unwrap();
    }
}

/// Processor time of this process.
pub(crate) fn own_cpu_s() -> f64 {
    cpu_s("/proc/self/stat")
}

fn cpu_s(path: &str) -> f64 {
    let stat = std::fs::read_to_string(path).unwrap();
    // After the name in brackets: utime and stime are the twelfth and thirteenth, in hundredths.
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    ticks as f64 / 100.0
}

/// The hub's own database, opened beside it.
pub(crate) async fn open_store(state: &Path, database: Option<&str>) -> HubStore {
    evenkeel_hub::server::open_store(state, database).await.unwrap()
}
