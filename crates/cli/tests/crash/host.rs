//! One simulated node with `evenkeel run` over it, an operator with real keys, and a gate between agent and node.
//!
//! The first agent of a host is traced from the moment it is asked to act, so that calls are counted from there; every
//! later one from its first call on, so that nothing it sends goes unseen.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use evenkeel_agent::daemon::client::ask;
use evenkeel_agent::daemon::protocol::{SocketAnswer, SocketRequest};
use evenkeel_agent::daemon::status::HostStatus;
use evenkeel_agent::host_key::HostKey;
use evenkeel_core::desired::selection::Selection;
use serde_json::Value;
use tempfile::TempDir;

use crate::hook::{GrowingLog, Hook};
use crate::node::{Node, binary};
use crate::oracle::Oracle;
use crate::scene::SEGMENT;
use crate::toll::{Toll, is_alive, kill};
use crate::trace::{self, Event};

/// Two containers and two machines.
const GUESTS: &str = "4";

/// Anything that must happen does so within this time, also where many agents share a few busy processors. A recovery
/// waits for 90 seconds at most.
const PATIENCE: Duration = Duration::from_mins(10);

/// So long nothing is under way before an agent counts as at rest.
const REST: Duration = Duration::from_secs(1);

/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// The first agent makes one pass, and none while it is struck: the places are those of the act alone.
const ONE_PASS: u32 = 86_400;

/// The shortest interval there is.
const PASSES: u32 = 5;

/// A node, a state directory, keys, and what was seen so far.
pub(crate) struct Host {
    directory: Option<TempDir>,
    pub(crate) node: Node,
    pub(crate) toll: Toll,
    pub(crate) oracle: Oracle,
    pub(crate) restarts: u32,
    runs: u32,
}

/// What a verb came to.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// None if it never ended by itself.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Told {
    /// A field of the JSON on stdout; empty if there is none.
    pub(crate) fn field(&self, name: &str) -> String {
        let told: Value = serde_json::from_str(&self.stdout).unwrap_or_default();
        told[name].as_str().unwrap_or_default().to_owned()
    }
}

/// A running agent; dropping it kills it, so that no failed point leaves one behind.
pub(crate) struct Agent {
    /// The agent, or the `strace` that started it.
    process: Child,
    pub(crate) pid: u32,
    /// The `strace` that came later.
    tracer: Option<Child>,
    pub(crate) trace: PathBuf,
    said: PathBuf,
}

/// How an agent ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// None if it was killed.
    pub(crate) code: Option<i32>,
    pub(crate) said: String,
    pub(crate) events: Vec<Event>,
    pub(crate) trace: String,
}

impl Host {
    /// A host with these desired files; with none it keeps no guest.
    pub(crate) fn new(desired: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let node = Node::start(directory.path(), GUESTS, "[]");
        let toll = Toll::before(node.address());
        let oracle = Oracle::default();
        let host = Self { directory: Some(directory), node, toll, oracle, restarts: 0, runs: 0 };
        std::fs::write(host.path("token"), &host.node.token).unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(host.path("token"), private).unwrap();
        if !desired.is_empty() {
            std::fs::create_dir(host.path("desired")).unwrap();
            std::fs::write(host.path("desired/guests.toml"), desired).unwrap();
        }
        host.make_keys();
        host
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.as_ref().expect("kept only at the end").path().join(name)
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.path("state/journal")
    }

    /// Alice signs acts, the vault recovers, and bob is nobody yet.
    fn make_keys(&self) {
        for (name, role) in [("alice", "operational"), ("vault", "recovery"), ("bob", "")] {
            let mut command = Command::new("ssh-keygen");
            command.args(["-q", "-t", "ed25519", "-N", "", "-C", name, "-f", name]);
            assert!(command.current_dir(self.path("")).status().unwrap().success());
            if !role.is_empty() {
                let key = format!("{name}.pub");
                let enrol = ["signers", "enrol", &key, "--name", name, "--role", role];
                self.done(&[&enrol[..], &["--trust", "trust.toml"]].concat());
            }
        }
    }

    fn configure(&self, interval_s: u32) {
        let root = self.path("").display().to_string();
        let declared = self.path("desired").exists();
        let desired =
            if declared { format!("desired.dir = \"{root}desired\"\n") } else { String::new() };
        let text = format!(
            "interval = {interval_s}\n{desired}trust.file = \"{root}trust.toml\"\n\
             state.dir = \"{root}state\"\n[pve]\nurl = \"{}\"\nnode = \"pve1\"\n\
             token_file = \"{root}token\"\n",
            self.toll.url
        );
        std::fs::write(self.path("agent.toml"), text).unwrap();
    }

    /// Runs a verb to its end. Those that ask the agent are told where it is by `-c agent.toml`.
    pub(crate) fn verb(&self, arguments: &[&str]) -> Told {
        let output = self.command(arguments).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let stdout = text(output.stdout);
        let stderr = text(output.stderr);
        Told { code: output.status.code(), stdout, stderr }
    }

    /// Runs a verb that must succeed.
    pub(crate) fn done(&self, arguments: &[&str]) -> Told {
        let told = self.verb(arguments);
        assert_eq!(told.code, Some(0), "{arguments:?}: {told:?}");
        told
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = binary(&self.path(""));
        command.env("PATH", "/usr/bin:/bin").args(arguments);
        command
    }

    /// How the agent stands; none if no agent answers.
    pub(crate) fn status(&self) -> Option<HostStatus> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let socket = self.path("state/agent.sock");
        match runtime
            .block_on(ask(&socket, &SocketRequest::Status { selection: Selection::default() }))
        {
            Ok(SocketAnswer::Status { status }) => Some(*status),
            Ok(other) => panic!("a status was asked for, and it answers {other:?}"),
            Err(_) => None,
        }
    }

    /// Starts the first agent, and pins its key for the operator.
    pub(crate) fn start(&mut self) -> Agent {
        self.configure(ONE_PASS);
        let mut command = self.command(&["run", "-c", "agent.toml"]);
        let said = self.path("agent.log");
        let process = command.stderr(File::create(&said).unwrap()).spawn().unwrap();
        let pid = process.id();
        let agent = Agent { process, pid, tracer: None, trace: self.next_trace(), said };
        self.wait_for("an agent that answers", |host| host.status());
        let key = HostKey::load_or_create(&self.path("state")).unwrap();
        std::fs::create_dir_all(self.path(".config/evenkeel")).unwrap();
        let pinned = format!("pve1 {}\n", key.public());
        std::fs::write(self.path(".config/evenkeel/known_hosts"), pinned).unwrap();
        agent
    }

    /// Starts another agent, traced from its first call on, which makes passes.
    pub(crate) fn restart(&mut self) -> Agent {
        self.restarts += 1;
        self.configure(PASSES);
        let trace = self.next_trace();
        let said = trace.with_extension("log");
        let mut command = Hook::None.strace(&self.path(""), &trace, &self.journal().join(SEGMENT));
        command.arg("--seccomp-bpf").arg(env!("CARGO_BIN_EXE_evenkeel"));
        command.args(["run", "-c", "agent.toml"]).stderr(File::create(&said).unwrap());
        let process = command.spawn().unwrap();
        let running = self.wait_for("an agent that answers", |host| host.status()?.agent);
        let pid = running.map_or(0, |agent| agent.pid);
        Agent { process, pid, tracer: None, trace, said }
    }

    fn next_trace(&mut self) -> PathBuf {
        self.runs += 1;
        self.path(&format!("run-{}.strace", self.runs))
    }

    /// Traces a running agent from now on.
    pub(crate) fn trace(&self, agent: &mut Agent, hook: &Hook) {
        let mut command = hook.strace(&self.path(""), &agent.trace, &self.journal().join(SEGMENT));
        command.args(["-p", &agent.pid.to_string()]).stderr(Stdio::piped());
        let mut tracer = command.spawn().unwrap();
        let mut told = Vec::new();
        let mut byte = [0; 1];
        let stderr = tracer.stderr.as_mut().unwrap();
        // It says so once it has every thread.
        while !told.ends_with(b"attached") {
            let read = stderr.read(&mut byte).unwrap();
            assert_eq!(read, 1, "strace cannot attach: {}", String::from_utf8_lossy(&told));
            told.push(byte[0]);
        }
        agent.tracer = Some(tracer);
    }

    /// Delivers an envelope, and kills the agent when the hook says so.
    pub(crate) fn deliver(&mut self, agent: &Agent, envelope: &str, hook: &Hook) -> Told {
        let mut submit = self.command(&["submit", envelope, "-c", "agent.toml", "-o", "json"]);
        let mut submit = submit.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = GrowingLog::new(&agent.trace);
        let begun = Instant::now();
        while submit.try_wait().unwrap().is_none() {
            if begun.elapsed() > PATIENCE {
                self.oracle.violation(format!("the delivery of {envelope} never ends"));
                submit.kill().unwrap();
            }
            if log.read() && hook.is_due(&log.text) {
                kill(agent.pid);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let output = submit.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let stdout = text(output.stdout);
        let stderr = text(output.stderr);
        Told { code: output.status.code(), stdout, stderr }
    }

    /// Waits until nothing is under way: every operation has ended, or nobody knows how.
    pub(crate) fn come_to_rest(&mut self) {
        let mut since = None;
        self.wait_for("an agent at rest", |host| {
            if !host.is_at_rest() {
                since = None;
                return None;
            }
            (since.get_or_insert_with(Instant::now).elapsed() > REST).then_some(())
        });
    }

    /// Whether an agent answers, and nothing is under way.
    pub(crate) fn is_at_rest(&self) -> bool {
        let under_way = |state: &str| state == "started" || state == "task_running";
        self.status().is_some_and(|status| {
            !status.operations.iter().any(|op| under_way(&op.state))
                && status.agent.is_some_and(|agent| agent.queue_depth == 0)
        })
    }

    /// Declares more guests, as an editor saves a file: whole or not at all.
    pub(crate) fn declare(&self, desired: &str) {
        std::fs::write(self.path("more.toml"), desired).unwrap();
        std::fs::rename(self.path("more.toml"), self.path("desired/more.toml")).unwrap();
    }

    /// Waits for something that must come; that it does not is a violation.
    pub(crate) fn wait_for<T>(
        &mut self,
        what: &str,
        mut there: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<T> {
        let begun = Instant::now();
        loop {
            let found = there(self);
            if found.is_some() {
                return found;
            }
            if begun.elapsed() > PATIENCE {
                self.oracle.violation(format!("waited in vain for {what}"));
                return None;
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Asks an agent to end, as systemd does.
    pub(crate) fn terminate(&mut self, agent: Agent) {
        let asked = Command::new("kill").arg(agent.pid.to_string()).status().unwrap();
        assert!(asked.success());
        let ended = self.bury(agent);
        if ended.code != Some(0) {
            let told = format!("told to end, it ends with {:?}: {}", ended.code, ended.said);
            self.oracle.violation(told);
        }
    }

    /// Waits for the end of an agent, and judges everything it was seen to do.
    pub(crate) fn bury(&mut self, mut agent: Agent) -> Ended {
        let pid = agent.pid;
        if self.wait_for("the end of an agent", |_| (!is_alive(pid)).then_some(())).is_none() {
            kill(pid);
        }
        if let Some(tracer) = &mut agent.tracer {
            // It may hold a call of a process that is gone; what it logged is written.
            let _ = tracer.kill();
            tracer.wait().unwrap();
        }
        let code = agent.process.wait().unwrap().code();
        let trace = std::fs::read_to_string(&agent.trace).unwrap_or_default();
        let events = trace::events(&trace);
        self.oracle.saw(&events, false);
        let said = std::fs::read_to_string(&agent.said).unwrap();
        if said.contains("panicked") {
            self.oracle.violation(format!("it panicked: {said}"));
        }
        Ended { code, said, events, trace }
    }

    /// Takes what was seen to be wrong. If there is anything, the directory is kept and named.
    pub(crate) fn violations(&mut self) -> Vec<String> {
        self.oracle.take_violations(&mut self.directory)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // After an ordinary end there is nothing left to kill.
        if is_alive(self.pid) {
            kill(self.pid);
        }
        for process in [Some(&mut self.process), self.tracer.as_mut()].into_iter().flatten() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Whether strace can attach to a process that runs, or what it says.
pub(crate) fn can_attach() -> Result<(), String> {
    let told = |error: std::io::Error| format!("strace: {error}");
    let mut sleeper = Command::new("sleep").arg("600").spawn().map_err(told)?;
    let pid = sleeper.id().to_string();
    let mut strace = Command::new("strace");
    strace.args(["-o", "/dev/null", "-p", &pid]).stderr(Stdio::piped());
    let probed = strace.spawn().and_then(|mut probe| {
        let mut said = Vec::new();
        let mut byte = [0; 1];
        let stderr = probe.stderr.as_mut().expect("it is piped");
        // It says so, or ends.
        while !said.ends_with(b"attached") && stderr.read(&mut byte)? == 1 {
            said.push(byte[0]);
        }
        // With what it traces ends strace.
        sleeper.kill()?;
        probe.wait()?;
        Ok(String::from_utf8_lossy(&said).trim().to_owned())
    });
    let _ = sleeper.kill();
    let _ = sleeper.wait();
    match probed.map_err(told)? {
        said if said.ends_with("attached") => Ok(()),
        said => Err(said),
    }
}

/// Reads a record file without judging it: the lines that are whole.
pub(crate) fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}
