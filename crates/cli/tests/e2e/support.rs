//! A simulated node in this process, and the real binary run against it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use evenkeel_core::model::id::GuestId;
use evenkeel_sim::{Event, Fault, Http, HttpOptions, RequestRecord, Scenario, Simulator, TOKENS};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// What a scenario's guests hold that must never reach a file: hashed cloud-init passwords.
const GUEST_SECRET: &str = "$5$x$y";

/// A simulated node with a working directory and a token file beside it.
pub(crate) struct Node {
    // Dropped before the runtime it lives in.
    pub(crate) http: Http,
    _runtime: Runtime,
    pub(crate) desk: Desk,
}

impl Node {
    pub(crate) fn with_guests(guests: u32) -> Self {
        Self::start(&Scenario { guests, ..Scenario::default() })
    }

    pub(crate) fn start(scenario: &Scenario) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let mut world = scenario.build();
        world.epoch_s = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
        let mut simulator = Simulator::new(world);
        simulator.delay_unauthorised = false;
        let http = runtime.block_on(Http::start(simulator, HttpOptions::default())).unwrap();
        Self { http, _runtime: runtime, desk: Desk::new() }
    }

    /// Runs a verb that connects, with the token of all rights.
    pub(crate) fn run(&self, verb: &str, arguments: &[&str]) -> Run {
        self.run_as(0, verb, arguments)
    }

    /// Runs a verb that connects, with one of the simulator's well-known tokens.
    pub(crate) fn run_as(&self, token: usize, verb: &str, arguments: &[&str]) -> Run {
        self.desk.finish(self.command_as(token, verb, arguments))
    }

    /// The command line of such a run.
    pub(crate) fn command_as(&self, token: usize, verb: &str, arguments: &[&str]) -> Command {
        let (id, secret, _) = TOKENS[token];
        let file = self.desk.token_file(&format!("{id}={secret}"), 0o600);
        let pin = self.http.certificate().fingerprint;
        let mut command = self.desk.command(verb);
        command.args(["--url", &self.http.url(), "--fingerprint", &pin]);
        command.arg("--token-file").arg(file).args(arguments);
        command
    }

    pub(crate) fn inject(&self, fault: Fault) {
        self.http.node.with(|simulator| simulator.inject(fault));
    }

    pub(crate) fn happen(&self, event: Event) {
        self.http.node.with(|simulator| simulator.happen(event));
    }

    /// Somebody else with the token of all rights sends a form; the path is below `/api2/json`.
    pub(crate) fn post(&self, path: &str, form: &str) {
        let (id, secret, _) = TOKENS[0];
        let request = evenkeel_sim::SimRequest::new("POST", &format!("/api2/json{path}"));
        let mut request = request
            .token(&format!("{id}={secret}"))
            .header("Content-Type", "application/x-www-form-urlencoded");
        request.body = form.as_bytes().to_vec();
        self.http.node.with(|simulator| {
            let now_ms = simulator.now_ms();
            simulator.submit(now_ms, request)
        });
    }

    /// The stored text of a key, as its file has it.
    pub(crate) fn stored(&self, guest: GuestId, key: &str) -> Option<String> {
        self.http.node.with(|simulator| {
            let found = simulator.world.guests.values().find(|other| other.id == guest).unwrap();
            found.config.active.get(key).cloned()
        })
    }

    /// What arrived at the server.
    pub(crate) fn requests(&self) -> Vec<RequestRecord> {
        self.http.node.with(|simulator| simulator.records().to_vec())
    }
}

/// A working directory, and another one for what is secret.
pub(crate) struct Desk {
    pub(crate) work: TempDir,
    secret: TempDir,
}

impl Desk {
    pub(crate) fn new() -> Self {
        Self { work: tempfile::tempdir().unwrap(), secret: tempfile::tempdir().unwrap() }
    }

    /// The binary with nothing of our own environment but the bug that is planted.
    pub(crate) fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
        command.env_clear().env("HOME", self.work.path()).current_dir(self.work.path()).arg(verb);
        // A copy of the tree with planted bugs asks which one is wanted.
        command.envs(std::env::var_os("EVENKEEL_PLANTED").map(|bug| ("EVENKEEL_PLANTED", bug)));
        command
    }

    /// Runs a verb that needs no server.
    pub(crate) fn run(&self, verb: &str, arguments: &[&str]) -> Run {
        let mut command = self.command(verb);
        command.args(arguments);
        self.finish(command)
    }

    /// Runs to the end, and checks what holds for every run.
    pub(crate) fn finish(&self, mut command: Command) -> Run {
        let run = self.told(command.output().unwrap());
        run.assert_no_secrets();
        assert!(!run.stdout.contains('\x1b'), "escape bytes on stdout: {:?}", run.stdout);
        assert!(!run.stderr.contains('\x1b'), "escape bytes on stderr: {:?}", run.stderr);
        assert_no_secrets_in_files(self.work.path());
        run
    }

    pub(crate) fn told(&self, output: Output) -> Run {
        let Output { status, stdout, stderr } = output;
        let code = status.code().expect("evenkeel ends by itself, never by a signal");
        let run = self.ran(code, String::from_utf8(stderr).unwrap());
        Run { stdout: String::from_utf8(stdout).unwrap(), ..run }
    }

    /// A run that left nothing on stdout.
    pub(crate) fn ran(&self, code: i32, stderr: String) -> Run {
        Run {
            code,
            stdout: String::new(),
            stderr,
            hidden: vec![
                (self.work.path().display().to_string(), "WORK"),
                (self.secret.path().display().to_string(), "SECRET"),
            ],
        }
    }

    /// Writes a token file outside the working directory.
    pub(crate) fn token_file(&self, token: &str, mode: u32) -> PathBuf {
        let path = self.secret.path().join("token");
        let _ = std::fs::remove_file(&path);
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(mode).open(&path).unwrap();
        writeln!(file, "{token}").unwrap();
        path
    }

    /// Writes a file into the working directory.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.work.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.work.path().join(name)).unwrap()
    }

    pub(crate) fn names(&self, directory: &str) -> BTreeSet<String> {
        let entries = std::fs::read_dir(self.work.path().join(directory)).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

/// What a run came to.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    hidden: Vec<(String, &'static str)>,
}

impl Run {
    /// A text that was got another way, as if a run had printed it.
    pub(crate) fn of_text(text: &str) -> Self {
        Self { code: 0, stdout: text.to_owned(), stderr: String::new(), hidden: Vec::new() }
    }

    /// What stdout says, wherever its lines are folded.
    pub(crate) fn words(&self) -> String {
        self.stdout.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// The JSON on stdout.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error} in {}\n{}", self.stdout, self.stderr))
    }

    #[track_caller]
    pub(crate) fn ends_with(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }

    /// Exit code and both streams, without what differs from run to run.
    pub(crate) fn story(&self) -> String {
        let mut text = format!("exit {}\n", self.code);
        for (name, stream) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            if !stream.is_empty() {
                write!(text, "--- {name}\n{stream}").unwrap();
            }
        }
        for (there, shown) in &self.hidden {
            text = text.replace(there, shown);
        }
        hide_ports(&text)
    }

    fn assert_no_secrets(&self) {
        for (_, secret, _) in TOKENS {
            assert!(!self.stdout.contains(secret), "a token on stdout: {}", self.stdout);
            assert!(!self.stderr.contains(secret), "a token on stderr: {}", self.stderr);
        }
        assert!(!self.stdout.contains(GUEST_SECRET), "a guest's password: {}", self.stdout);
    }
}

/// `127.0.0.1:PORT`, whatever the port was.
fn hide_ports(text: &str) -> String {
    let mut parts = text.split("127.0.0.1:");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|digit: char| digit.is_ascii_digit());
        let port = if rest.len() < part.len() { "PORT" } else { "" };
        write!(shown, "127.0.0.1:{port}{rest}").unwrap();
    }
    shown
}

fn assert_no_secrets_in_files(directory: &Path) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            assert_no_secrets_in_files(&path);
            continue;
        }
        // Sockets of running agents are among them.
        if !path.is_file() {
            continue;
        }
        let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
        let secrets = TOKENS.iter().map(|(_, secret, _)| *secret).chain([GUEST_SECRET]);
        for secret in secrets {
            assert!(!text.contains(secret), "{} holds {secret}", path.display());
        }
    }
}

/// `evenkeel sim` in a process of its own; dropping it ends it, so that no failed test leaves one behind.
pub(crate) struct SimProcess {
    child: Child,
    /// The line it announced itself with.
    pub(crate) ready: serde_json::Value,
}

impl SimProcess {
    pub(crate) fn start(desk: &Desk, arguments: &[&str]) -> Self {
        let mut command = desk.command("sim");
        command.args(["--listen", "127.0.0.1:0", "-o", "json"]).args(arguments);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready = serde_json::from_str(&line).unwrap();
        Self { child, ready }
    }

    /// Asks it to end, as a service manager does.
    pub(crate) fn terminate(mut self) {
        let asked = Command::new("kill").arg(self.child.id().to_string()).status().unwrap();
        assert!(asked.success());
        assert!(self.child.wait().unwrap().success(), "a signal to end is no error");
    }
}

impl Drop for SimProcess {
    fn drop(&mut self) {
        // After `terminate` there is nothing left to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server that answers every connection with the same bytes, for what no Proxmox VE would say.
pub(crate) struct Canned {
    pub(crate) address: SocketAddr,
}

impl Canned {
    pub(crate) fn answering(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        // Ends with the process; a test is a process of its own.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { continue };
                let mut head = Vec::new();
                let mut byte = [0; 1];
                while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n == 1) {
                    head.push(byte[0]);
                }
                // The client may have hung up already, which is its right.
                let _ = stream.write_all(&bytes);
            }
        });
        Self { address }
    }

    /// Runs `plan` against it.
    pub(crate) fn plan(&self, desk: &Desk) -> Run {
        let (id, secret, _) = TOKENS[0];
        let file = desk.token_file(&format!("{id}={secret}"), 0o600);
        desk.write("desired/web.toml", "[guest.100]\nkind = \"lxc\"\n");
        let mut command = desk.command("plan");
        command.args(["--url", &format!("http://{}", self.address), "--node", "pve1"]);
        command.args(["--desired", "desired", "--token-file"]).arg(file);
        desk.finish(command)
    }
}
