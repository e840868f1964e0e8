//! One simulated node and one state directory, and `evenkeel apply` run against them under `strace`.
//!
//! Every scene is alone: its own simulator process, port and directory, so that many wait for a recovery at once.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::hook::{GrowingLog, Hook};
use crate::node::{Node, binary};
use crate::oracle::Oracle;
use crate::trace::{self, Event};

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
    node: Node,
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
        let node = Node::start(directory.path(), GUESTS, &faults);
        Self {
            state: directory.path().join("state"),
            directory: Some(directory),
            node,
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
        self.oracle.check_requests(&self.node.requests(), true);
    }

    /// Takes what was seen to be wrong. If there is anything, the directory is kept and named.
    pub(crate) fn violations(&mut self) -> Vec<String> {
        self.oracle.take_violations(&mut self.directory)
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
        command
            .env("PROXMOX_VE_ENDPOINT", &self.node.url)
            .env("PROXMOX_VE_API_TOKEN", &self.node.token);
    }

    fn traced(&self, hook: &Hook, log: &Path) -> Command {
        let mut command = hook.strace(self.root(), log, &self.journal().join(SEGMENT));
        // Filtered by the kernel, calls that are not logged cost nothing; but then strace sends no signal.
        if !matches!(hook, Hook::KillBefore(_)) {
            command.arg("--seccomp-bpf");
        }
        command
            .args(hook.wrapper())
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
            if (hangs || hook.is_due(&log.text))
                && let Some((process, _)) = log.text.split_once(' ')
            {
                let kill = Command::new("kill").args(["-9", process]).status().unwrap();
                assert!(kill.success(), "process {process} cannot be killed");
                killed = true;
            }
        }
    }
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
