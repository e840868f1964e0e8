//! `evenkeel sim` in a process of its own, and the two clients that read from it: ours and a bare one.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use evenkeel_agent::pve::Client;
use evenkeel_agent::pve::http::{HttpExchange, Timeouts};
use evenkeel_agent::pve::tls::{CertFingerprint, TlsTrust};
use evenkeel_agent::pve::token::Token;
use evenkeel_agent::source::dir;
use evenkeel_core::desired::Desired;
use evenkeel_sim::RequestRecord;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use secrecy::SecretString;
use serde::Deserialize;

/// A running simulator; dropping it ends it.
pub(crate) struct Server {
    child: Child,
    ready: Ready,
}

/// What it announces.
#[derive(Deserialize)]
struct Ready {
    url: String,
    token: String,
    node: String,
    fingerprint: Option<String>,
}

/// The binary built beside this one.
pub(crate) fn evenkeel() -> PathBuf {
    std::env::current_exe().expect("a running program has a path").with_file_name("evenkeel")
}

impl Server {
    pub(crate) fn start(guests: u32, tls: bool) -> Self {
        let mut command = Command::new(evenkeel());
        command.args(["sim", "--listen", "127.0.0.1:0", "-o", "json"]);
        command.args(["--guests", &guests.to_string()]);
        if !tls {
            command.arg("--plain-http");
        }
        Self::announced(command)
    }

    /// One that shows its cluster file system in a directory.
    pub(crate) fn with_cluster_fs(guests: u32, directory: &Path) -> Self {
        let mut command = Command::new(evenkeel());
        command.args(["sim", "--listen", "127.0.0.1:0", "-o", "json", "--plain-http"]);
        command.args(["--guests", &guests.to_string()]).arg("--cluster-fs").arg(directory);
        Self::announced(command)
    }

    /// What is on it, declared as `evenkeel import` does, in a directory.
    pub(crate) fn imported(&self, directory: &Path) -> Desired {
        let imported = self.verb("import").arg("--out").arg(directory).output();
        assert!(imported.expect("evenkeel runs").status.success(), "import works");
        let loaded = dir::load(directory).expect("what was imported can be read");
        loaded.desired.expect("what was imported is valid")
    }

    /// The configuration of an agent for this server that lives on its node.
    pub(crate) fn agent_toml(&self, directory: &Path, cluster_fs: &Path) -> String {
        let token = directory.join("token");
        std::fs::write(&token, &self.ready.token).expect("our own directory");
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&token, private).expect("our own file");
        let url = &self.ready.url;
        let node = &self.ready.node;
        let shown = directory.display();
        format!(
            "[pve]\nurl = \"{url}\"\nnode = \"{node}\"\ntoken_file = \"{}\"\ncluster_fs = \"{}\"\n\
             [desired]\ndir = \"{shown}/desired\"\n[state]\ndir = \"{shown}/state\"\n",
            token.display(),
            cluster_fs.display()
        )
    }

    /// One without guests, with what a scenario file says.
    pub(crate) fn with_scenario(directory: &Path, scenario: &str) -> Self {
        let file = directory.join("scenario.json");
        std::fs::write(&file, scenario).expect("a directory of our own");
        let mut command = Command::new(evenkeel());
        command.args(["sim", "--listen", "127.0.0.1:0", "-o", "json", "--plain-http"]);
        command.args(["--guests", "0"]).arg("--scenario").arg(file);
        Self::announced(command)
    }

    fn announced(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("./bench builds evenkeel");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("its output is piped");
        BufReader::new(stdout).read_line(&mut line).expect("the simulator announces itself");
        let ready = serde_json::from_str(&line).expect("the announcement is JSON");
        Self { child, ready }
    }

    /// Both clients trust the same certificate, by the same check.
    fn trust(&self) -> TlsTrust {
        let Some(pin) = &self.ready.fingerprint else {
            return TlsTrust::Platform;
        };
        let pin: CertFingerprint = pin.parse().expect("a fingerprint");
        TlsTrust::pinned(vec![pin]).expect("one pin")
    }

    /// evenkeel's client.
    pub(crate) fn client(&self) -> Client {
        let trust = self.trust();
        let token =
            Token::from_text(&SecretString::from(self.ready.token.clone())).expect("a token");
        let endpoint = self.ready.url.parse().expect("an endpoint");
        let exchange = HttpExchange::new(endpoint, &trust, token, Timeouts::default())
            .expect("usable settings");
        Client::new(Arc::new(exchange), self.ready.node.parse().expect("a node name"))
    }

    /// A bare client with the same settings: the least that reads the same from the same server.
    pub(crate) fn bare(&self) -> Bare {
        let mut header = HeaderValue::from_str(&format!("PVEAPIToken={}", self.ready.token))
            .expect("a token is printable");
        header.set_sensitive(true);
        let tls = self.trust().client_config().expect("usable settings");
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .http1_only()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .default_headers(HeaderMap::from_iter([(AUTHORIZATION, header)]))
            .connect_timeout(Duration::from_secs(5))
            .read_timeout(Duration::from_secs(40))
            .timeout(Duration::from_mins(2))
            .pool_idle_timeout(Duration::from_secs(3))
            .pool_max_idle_per_host(4)
            .build()
            .expect("usable settings");
        Bare { client, base: format!("{}/api2/json", self.ready.url) }
    }

    /// `evenkeel VERB` against this server.
    pub(crate) fn verb(&self, verb: &str) -> Command {
        let mut command = Command::new(evenkeel());
        command.arg(verb).env_remove("EVENKEEL_CONFIG");
        command.env("PROXMOX_VE_ENDPOINT", &self.ready.url);
        command.env("PROXMOX_VE_API_TOKEN", &self.ready.token);
        if let Some(pin) = &self.ready.fingerprint {
            command.args(["--fingerprint", pin]);
        }
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has nothing to save; if it is gone already, all the better.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client that fetches bytes and looks at nothing.
pub(crate) struct Bare {
    client: reqwest::Client,
    base: String,
}

impl Bare {
    /// The size of the answer; tried once more on a connection that was just closed, as every client must.
    pub(crate) async fn get(&self, path: &str) -> usize {
        for _ in 0..2 {
            if let Ok(answer) = self.client.get(format!("{}{path}", self.base)).send().await {
                assert!(answer.status().is_success(), "{path}: {}", answer.status());
                return answer.bytes().await.expect("a whole answer").len();
            }
        }
        panic!("{path} cannot be fetched")
    }

    /// The same of what may not be there.
    pub(crate) async fn try_get(&self, path: &str) -> usize {
        let answer = self.client.get(format!("{}{path}", self.base)).send().await;
        answer.expect("the simulator answers").bytes().await.expect("a whole answer").len()
    }

    /// The body of the answer to something that changes; it is sent once.
    pub(crate) async fn send(&self, method: &str, path: &str, form: &str) -> String {
        let method = method.parse().expect("a method");
        let request = self.client.request(method, format!("{}{path}", self.base));
        let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        let answer = request.body(form.to_owned()).send().await.expect("the simulator answers");
        let status = answer.status();
        let text = answer.text().await.expect("a whole answer");
        assert!(status.is_success(), "{path}: {status} {text}");
        text
    }

    /// The text of the answer.
    pub(crate) async fn text(&self, path: &str) -> String {
        let answer = self.client.get(format!("{}{path}", self.base)).send().await;
        answer.expect("the simulator answers").text().await.expect("a whole answer")
    }

    /// Something happens behind everybody's back.
    pub(crate) async fn happen(&self, event: &str) {
        let url = self.base.replace("/api2/json", "/sim/events");
        let answer = self.client.post(url).body(event.to_owned()).send().await;
        let status = answer.expect("the simulator answers").status();
        assert!(status.is_success(), "{event}: {status}");
    }

    /// Waits until somebody has read the node, and for three seconds nobody does any more.
    pub(crate) async fn until_at_rest(&self) {
        let begun = self.requests().await.len();
        let mut last = begun;
        let mut quiet = 0;
        while quiet < 3 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let now = self.requests().await.len();
            quiet = if now > begun && now == last { quiet + 1 } else { 0 };
            last = now;
        }
    }

    /// Everything that reached the simulator, from its own log.
    pub(crate) async fn requests(&self) -> Vec<RequestRecord> {
        let url = self.base.replace("/api2/json", "/sim/requests");
        let answer = self.client.get(url).send().await.expect("the simulator answers");
        let bytes = answer.bytes().await.expect("a whole answer");
        let mut told: serde_json::Value = serde_json::from_slice(&bytes).expect("it is JSON");
        serde_json::from_value(told["data"].take()).expect("a list of requests")
    }
}
