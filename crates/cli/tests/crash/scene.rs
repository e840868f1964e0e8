//! One simulated node and one state directory, and `evenkeel apply` run against them under `strace`.
//!
//! Every scene is alone: its own simulator process, port and directory, so that many wait for a recovery at once.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use evenkeel_sim::Record;
use tempfile::TempDir;

use crate::oracle::Oracle;
use crate::trace::{self, CALLS, Event};

/// What all scenes bring their node to.
const DESIRED: &str = include_str!("desired.toml");

/// The guests of the simulated node; `desired.toml` declares sixteen of them.
const GUESTS: &str = "20";

/// The first segment: none of these runs is long enough for a second.
pub(crate) const SEGMENT: &str = "journal-000001.jsonl";

/// A run that takes longer hangs: a recovery waits for 90 seconds at most, and a task ends within three.
const RUN_MAX: Duration = Duration::from_mins(5);

/// So often is a crashed `apply` started again before it counts as one that never gets done.
const RESTARTS_MAX: u32 = 5;

/// How long strace holds a call that is over; the process is killed meanwhile. strace itself ends only after it.
const HOLD_MICROSECONDS: u32 = 10_000_000;

/// Which call is meant. strace counts for each thread, and the thread that opens the journal makes its calls first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Aim {
    pub(crate) call: &'static str,
    pub(crate) nth: usize,
    /// Counts only calls on the segment, because the opening thread would be hit first. strace then logs nothing
    /// else, and so no request.
    pub(crate) segment_only: bool,
}

/// What is done to a run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Hook {
    /// Nothing; it is only looked at.
    None,
    /// SIGKILL in place of the call.
    KillBefore(Aim),
    /// SIGKILL when the call is over and nobody has heard of it.
    KillAfter(Aim),
    /// SIGKILL as soon as the nth request that asks for a change has left.
    KillOnRequest { nth: usize },
    /// SIGKILL as soon as so many operations are in flight.
    KillInFlight { count: usize },
    /// The call fails, or it and all after it.
    Refuse { aim: Aim, for_ever: bool, error: &'static str },
}

impl Hook {
    fn aim(&self) -> Option<Aim> {
        match self {
            Self::None | Self::KillOnRequest { .. } | Self::KillInFlight { .. } => None,
            Self::KillBefore(aim) | Self::KillAfter(aim) | Self::Refuse { aim, .. } => Some(*aim),
        }
    }
}

/// What became of a run.
#[derive(Debug)]
pub(crate) struct Applied {
    /// The exit code; none if it was killed.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) log: String,
    pub(crate) events: Vec<Event>,
}

/// A simulated node, a state directory, and what was seen so far.
pub(crate) struct Scene {
    directory: Option<TempDir>,
    state: PathBuf,
    sim: Child,
    url: String,
    token: String,
    pub(crate) oracle: Oracle,
    pub(crate) restarts: u32,
    runs: u32,
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self::with_latency(0)
    }

    /// A node that takes every change so many milliseconds late.
    pub(crate) fn with_latency(latency_ms: u32) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("desired.toml"), DESIRED).unwrap();
        let late = |method| {
            format!(r#"{{"method":"{method}","effect":{{"kind":"latency","ms":{latency_ms}}}}}"#)
        };
        let faults = match latency_ms {
            0 => "[]".to_owned(),
            _ => format!("[{},{}]", late("PUT"), late("POST")),
        };
        std::fs::write(directory.path().join("faults.json"), faults).unwrap();
        let mut command = binary(directory.path());
        command.args(["sim", "--listen", "127.0.0.1:0", "--plain-http", "-o", "json"]);
        command.args(["--guests", GUESTS, "--faults", "faults.json"]);
        let mut sim = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(sim.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: serde_json::Value = serde_json::from_str(&line).unwrap();
        let text = |key: &str| ready[key].as_str().unwrap().to_owned();
        Self {
            state: directory.path().join("state"),
            directory: Some(directory),
            sim,
            url: text("url"),
            token: text("token"),
            oracle: Oracle::default(),
            restarts: 0,
            runs: 0,
        }
    }

    /// Keeps the state elsewhere, on a disk of its own.
    pub(crate) fn keep_state_in(&mut self, state: PathBuf) {
        self.state = state;
    }

    pub(crate) fn state(&self) -> &Path {
        &self.state
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.state.join("journal")
    }

    /// Applies once. Whatever is wrong with the order of what it did is noted.
    pub(crate) fn apply(&mut self, hook: &Hook) -> Applied {
        self.apply_while(hook, |_| {})
    }

    /// The same; `meanwhile` is called again and again with the log so far.
    pub(crate) fn apply_while(&mut self, hook: &Hook, mut meanwhile: impl FnMut(&str)) -> Applied {
        self.runs += 1;
        let log = self.root().join(format!("run-{}.strace", self.runs));
        let mut command = self.traced(hook, &log);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let ended = AtomicBool::new(false);
        let output = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let output = child.wait_with_output().unwrap();
                ended.store(true, Ordering::Release);
                output
            });
            self.watch(hook, &log, &ended, &mut meanwhile);
            waiting.join().unwrap()
        });
        let applied = told(output, &log);
        let name = format!("{}", log.display());
        std::fs::write(format!("{name}.stderr"), &applied.stderr).unwrap();
        std::fs::write(format!("{name}.stdout"), &applied.stdout).unwrap();
        let blind = hook.aim().is_some_and(|aim| aim.segment_only);
        self.oracle.saw(&applied.events, blind);
        applied
    }

    /// Starts it again until everything is done, and then looks at everything.
    pub(crate) fn finish(&mut self) {
        loop {
            self.restarts += 1;
            let applied = self.apply(&Hook::None);
            match applied.code {
                Some(0) => break,
                _ if self.restarts < RESTARTS_MAX => {}
                code => {
                    self.oracle.violation(format!(
                        "never done; it ends with {code:?}: {}",
                        applied.stderr
                    ));
                    break;
                }
            }
        }
        let mut plan = self.command("plan");
        plan.arg("--detailed-exitcode");
        let plan = plan.output().unwrap();
        if plan.status.code() != Some(0) {
            let told = String::from_utf8_lossy(&plan.stdout).into_owned();
            self.oracle.violation(format!("the plan is not empty at the end: {told}"));
        }
        self.oracle.check_journal(&self.journal());
        self.oracle.check_requests(&self.requests(), true);
    }

    /// Everything that arrived at the node.
    pub(crate) fn requests(&self) -> Vec<Record> {
        let address = self.url.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        let request = "GET /sim/requests HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let mut body: serde_json::Value = serde_json::from_str(body).unwrap();
        serde_json::from_value(body["data"].take()).unwrap()
    }

    /// Takes what was seen to be wrong. If there is anything, the directory is kept and named.
    pub(crate) fn violations(&mut self) -> Vec<String> {
        let mut violations = self.oracle.take_violations();
        if !violations.is_empty()
            && let Some(directory) = self.directory.take()
        {
            violations.push(format!("everything is kept in {}", directory.keep().display()));
        }
        violations
    }

    fn root(&self) -> &Path {
        self.directory.as_ref().expect("kept only at the end").path()
    }

    /// A verb that connects.
    fn command(&self, verb: &str) -> Command {
        let mut command = binary(self.root());
        command.arg(verb);
        self.add_arguments(&mut command);
        command
    }

    fn add_arguments(&self, command: &mut Command) {
        command.args(["--desired", "desired.toml"]);
        command.env("PROXMOX_VE_ENDPOINT", &self.url).env("PROXMOX_VE_API_TOKEN", &self.token);
    }

    fn traced(&self, hook: &Hook, log: &Path) -> Command {
        let mut command = Command::new("strace");
        command.env_clear().env("HOME", self.root()).env("PATH", "/usr/bin:/bin");
        command.current_dir(self.root());
        command.args(["-f", "-y", "-e", "signal=none", "-s", "1000000", "-o"]);
        command.arg(log).arg("-e").arg(format!("trace={CALLS}"));
        // Filtered by the kernel, calls that are not logged cost nothing; but then strace sends no signal.
        if !matches!(hook, Hook::KillBefore(_)) {
            command.arg("--seccomp-bpf");
        }
        let strike = match hook {
            Hook::None | Hook::KillOnRequest { .. } | Hook::KillInFlight { .. } => String::new(),
            Hook::KillBefore(_) => "signal=KILL".to_owned(),
            Hook::KillAfter(_) => format!("delay_exit={HOLD_MICROSECONDS}"),
            Hook::Refuse { error, .. } => format!("error={error}"),
        };
        if let Some(Aim { call, nth, segment_only }) = hook.aim() {
            let more = if matches!(hook, Hook::Refuse { for_ever: true, .. }) { "+" } else { "" };
            command.arg("-e").arg(format!("inject={call}:{strike}:when={nth}{more}"));
            if segment_only {
                command.arg("-P").arg(self.journal().join(SEGMENT));
            }
        }
        command
            .arg(env!("CARGO_BIN_EXE_evenkeel"))
            .args(["apply", "-y", "--state"])
            .arg(&self.state);
        self.add_arguments(&mut command);
        command
    }

    /// Looks at the log until the run has ended, and kills it when its hook or the time says so.
    fn watch(
        &mut self,
        hook: &Hook,
        log: &Path,
        ended: &AtomicBool,
        meanwhile: &mut impl FnMut(&str),
    ) {
        let begun = Instant::now();
        let mut log = GrowingLog::new(log);
        let mut killed = false;
        while !ended.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(10));
            let hangs = begun.elapsed() > RUN_MAX;
            let grown = log.read();
            if killed || !(grown || hangs) {
                continue;
            }
            meanwhile(&log.text);
            if hangs {
                self.oracle.violation("a run hangs".to_owned());
            }
            // The opening thread logs first, and its number is the process's.
            if (hangs || is_due(hook, &log.text))
                && let Some((process, _)) = log.text.split_once(' ')
            {
                let kill = Command::new("kill").args(["-9", process]).status().unwrap();
                assert!(kill.success(), "process {process} cannot be killed");
                killed = true;
            }
        }
    }
}

/// Whether the log shows what the hook waits for.
fn is_due(hook: &Hook, log: &str) -> bool {
    match hook {
        Hook::None | Hook::KillBefore(_) | Hook::Refuse { .. } => false,
        Hook::KillAfter(_) => log.contains("(DELAYED)"),
        Hook::KillOnRequest { nth } => {
            let sent = |event: &&Event| matches!(event, Event::Sent { .. });
            trace::events(log).iter().filter(sent).count() >= *nth
        }
        Hook::KillInFlight { count } => {
            let mut oracle = Oracle::default();
            oracle.saw(&trace::events(log), false);
            oracle.open_count() >= *count
        }
    }
}

/// A log that is being written, read as far as its lines are whole.
struct GrowingLog<'a> {
    path: &'a Path,
    file: Option<File>,
    rest: Vec<u8>,
    text: String,
}

impl<'a> GrowingLog<'a> {
    fn new(path: &'a Path) -> Self {
        Self { path, file: None, rest: Vec::new(), text: String::new() }
    }

    /// Whether there is anything new.
    fn read(&mut self) -> bool {
        if self.file.is_none() {
            self.file = File::open(self.path).ok();
        }
        let Some(file) = &mut self.file else { return false };
        file.read_to_end(&mut self.rest).unwrap();
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else { return false };
        let whole: Vec<u8> = self.rest.drain(..=end).collect();
        self.text.push_str(&String::from_utf8(whole).unwrap());
        true
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to end.
        let _ = self.sim.kill();
        let _ = self.sim.wait();
    }
}

/// The binary with nothing of our own environment.
fn binary(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
    command.env_clear().env("HOME", directory).current_dir(directory);
    command
}

fn told(output: Output, log: &Path) -> Applied {
    let log = std::fs::read_to_string(log).unwrap();
    Applied {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
        events: trace::events(&log),
        log,
    }
}

/// Whether strace can inject here, or what it says.
pub(crate) fn can_inject() -> Result<(), String> {
    let mut probe = Command::new("strace");
    probe.args(["-f", "--seccomp-bpf", "-o", "/dev/null", "-e", "trace=fsync"]);
    probe.args(["-e", "inject=fsync:error=EIO", "true"]);
    match probe.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Err(format!("strace: {error}")),
    }
}
