//! Where the story plays: a simulated Proxmox VE, a temporary directory, and this executable as child processes.
//!
//! Dropping it ends the agent and removes the directory.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use evenkeel_core::id::GuestId;
use evenkeel_sim::{Event, Http, HttpOptions, RequestRecord, Simulator, TOKENS};
use fs_err::os::unix::fs::OpenOptionsExt as _;
use jiff::Timestamp;
use tempfile::TempDir;

use super::guests;
use super::narration::{self, Narration};
use crate::error::{Exit, Failure};

/// How long anything in the story may take before it is said to have gone wrong; the slowest takes seconds.
const PATIENCE: Duration = Duration::from_secs(45);

/// How often is looked whether something has happened.
const LOOK_EVERY: Duration = Duration::from_millis(150);

/// How much of the agent's log a failed story tells.
const LOG_LINES_TOLD: usize = 20;

/// What the agents say, one after the other.
pub(super) const LOG: &str = "agent.log";

/// A node, an agent and their files, all in a directory of their own.
pub(super) struct Sandbox {
    pub(super) narration: Narration,
    pub(super) http: Http,
    /// Whether there is an `ssh-keygen`, and so keys and signers.
    pub(super) can_sign: bool,
    /// When the part about signatures began, for the excerpt of the audit.
    pub(super) asked_at: Timestamp,
    executable: PathBuf,
    // Ended before its directory goes.
    agent: Option<DemoAgent>,
    directory: TempDir,
}

/// `evenkeel run` in a process of its own.
struct DemoAgent(Child);

impl Drop for DemoAgent {
    fn drop(&mut self) {
        // It may have ended already, which is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a command came to.
pub(super) struct CommandRun {
    line: String,
    code: Option<i32>,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Sandbox {
    /// Makes one: the node runs, the files of an agent are there, nothing is declared yet.
    pub(super) async fn set(headless: bool) -> Result<Self, Failure> {
        let http = Http::start(Simulator::new(guests::world()), HttpOptions::default()).await;
        let http = http.map_err(|error| Failure::wrapping(Exit::Failed, error))?;
        let directory = tempfile::Builder::new().prefix("evenkeel-demo-").tempdir();
        let directory = directory.map_err(|error| {
            Failure::new(Exit::Failed, "cannot make a temporary directory").because(error)
        })?;
        let executable = std::env::current_exe().map_err(|error| {
            Failure::new(Exit::Failed, "cannot find this executable, to start it again")
                .because(error)
        })?;
        let narration = Narration::new(headless);
        let (can_sign, agent, asked_at) = (false, None, Timestamp::now());
        let mut sandbox =
            Self { narration, http, can_sign, asked_at, executable, agent, directory };
        sandbox.write("agent.toml", &sandbox.agent_toml())?;
        let (id, secret, _) = TOKENS[0];
        sandbox.write("token", &format!("{id}={secret}\n"))?;
        sandbox.can_sign = sandbox.make_signers().await?;
        Ok(sandbox)
    }

    fn agent_toml(&self) -> String {
        let (url, pin) = (self.http.url(), self.http.certificate().fingerprint);
        format!(
            "host_id = \"demo\"\ninterval = 5                 # seconds between two looks\n\n[pve]\nurl = \"{url}\"\n\
             node = \"pve1\"\ntoken_file = \"token\"\nfingerprint = \"{pin}\"\n\n[desired]\ndir = \"desired\"\n\n\
             [state]\ndir = \"state\"\n\n[trust]\nfile = \"trust.toml\"          # who may sign\n"
        )
    }

    /// Keys of three people, two of them enrolled; false without an `ssh-keygen`.
    async fn make_signers(&self) -> Result<bool, Failure> {
        for name in ["alice", "vault", "mallory"] {
            let mut command = self.command("ssh-keygen");
            command.args(["-q", "-t", "ed25519", "-N", "", "-C", name, "-f", name]);
            match finish(command, format!("ssh-keygen -f {name}")).await {
                Ok(ran) => ran.succeeds().map(drop)?,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
                Err(error) => return Err(unstartable("ssh-keygen", error)),
            }
        }
        for (name, role) in [("alice", "operational"), ("vault", "recovery")] {
            let key = format!("{name}.pub");
            let enrol = ["signers", "enrol", &key, "--name", name, "--role", role];
            self.runs(&[&enrol[..], &["--trust", "trust.toml"]].concat()).await?.succeeds()?;
        }
        Ok(true)
    }

    /// A program in the directory, with nothing of the reader's own configuration.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().current_dir(self.directory.path()).stdin(Stdio::null());
        for name in ["PATH", "TMPDIR"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.env("HOME", self.directory.path());
        command.env("EVENKEEL_CONFIG", "agent.toml").env("EVENKEEL_STATE", "state");
        command
    }

    /// Runs this executable to its end, behind the scenes.
    pub(super) async fn runs(&self, arguments: &[&str]) -> Result<CommandRun, Failure> {
        let mut command = self.command(&self.executable);
        command.args(arguments);
        let line = format!("evenkeel {}", arguments.join(" "));
        finish(command, line).await.map_err(|error| unstartable("evenkeel", error))
    }

    /// Runs this executable to its end and shows all of it.
    pub(super) async fn shows(&self, arguments: &[&str]) -> Result<CommandRun, Failure> {
        narration::command(&typed(arguments))?;
        let ran = self.runs(arguments).await?;
        narration::output(&ran.stdout)?;
        narration::output(&ran.stderr)?;
        Ok(ran)
    }

    /// Starts the agent and waits until it answers.
    pub(super) async fn start_agent(&mut self) -> Result<(), Failure> {
        let mut command = self.command(&self.executable);
        let log = self.directory.path().join(LOG);
        let log = fs_err::OpenOptions::new().create(true).append(true).open(log)?;
        command.arg("run").stdout(Stdio::null()).stderr(log.into_parts().0);
        let child = command.spawn().map_err(|error| unstartable("evenkeel", error))?;
        self.agent = Some(DemoAgent(child));
        self.until("the agent answers", async || {
            Ok(self.runs(&["pending", "-o", "json"]).await?.code == Some(0))
        })
        .await
    }

    /// Ends the agent as `kill -9` does, and tells which process it was.
    pub(super) fn kill_agent(&mut self) -> Result<u32, Failure> {
        let Some(mut agent) = self.agent.take() else {
            return Err(Failure::new(Exit::Failed, "no agent runs"));
        };
        let pid = agent.0.id();
        let killed = agent.0.kill().and_then(|()| agent.0.wait());
        killed.map_err(|error| Failure::wrapping(Exit::Failed, error))?;
        Ok(pid)
    }

    /// Ends the agent as a service manager does.
    pub(super) async fn stop_agent(&mut self) -> Result<(), Failure> {
        let Some(agent) = &self.agent else { return Ok(()) };
        let pid = i32::try_from(agent.0.id()).ok().and_then(rustix::process::Pid::from_raw);
        let pid = pid.expect("a child has a number");
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)
            .map_err(|error| Failure::wrapping(Exit::Failed, error))?;
        let begun = Instant::now();
        while let Some(agent) = &mut self.agent {
            match agent.0.try_wait() {
                Ok(Some(status)) => {
                    self.agent = None;
                    return demand(status.success(), "the agent ends cleanly on SIGTERM");
                }
                Ok(None) if begun.elapsed() < PATIENCE => tokio::time::sleep(LOOK_EVERY).await,
                Ok(None) | Err(_) => return demand(false, "the agent ends on SIGTERM"),
            }
        }
        Ok(())
    }

    /// Waits until something is so.
    pub(super) async fn until(
        &self,
        what: &str,
        mut is_so: impl AsyncFnMut() -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let begun = Instant::now();
        while !is_so().await? {
            if begun.elapsed() > PATIENCE {
                return demand(false, what);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// A failure, with what the agent said last.
    pub(super) fn explain(&self, failure: Failure) -> Failure {
        let log = self.read(LOG).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let last = lines.get(lines.len().saturating_sub(LOG_LINES_TOLD)..).unwrap_or_default();
        failure.hint(format!("please report it, with the agent's last lines:\n{}", last.join("\n")))
    }

    /// Something happens behind the agent's back.
    pub(super) fn happens(&self, event: Event) {
        self.http.node.with(|simulator| simulator.happen(event));
    }

    /// The value of a key as Proxmox VE stores it.
    pub(super) fn stored(&self, guest: GuestId, key: &str) -> Option<String> {
        self.http.node.with(|simulator| {
            simulator.world.guest(guest).and_then(|guest| guest.config.active.get(key).cloned())
        })
    }

    pub(super) fn is_running(&self, guest: GuestId) -> bool {
        self.http.node.with(|simulator| {
            simulator.world.guest(guest).is_some_and(|guest| guest.power.is_running())
        })
    }

    /// The requests for a change that reached Proxmox VE, from its own log.
    pub(super) fn writes(&self, of: impl Fn(&RequestRecord) -> bool) -> Vec<RequestRecord> {
        let mutating = |record: &&RequestRecord| record.mutating && of(record);
        self.http
            .node
            .with(|simulator| simulator.records().iter().filter(mutating).cloned().collect())
    }

    /// A file of the directory.
    pub(super) fn read(&self, name: &str) -> Result<String, Failure> {
        fs_err::read_to_string(self.directory.path().join(name))
            .map_err(|error| Failure::wrapping(Exit::Failed, error))
    }

    /// Writes a file of the directory that only its owner reads.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<(), Failure> {
        use std::io::Write as _;
        let mut options = fs_err::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let written = options
            .open(self.directory.path().join(name))
            .and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(|error| Failure::wrapping(Exit::Failed, error))
    }
}

impl CommandRun {
    /// Goes on only if the command did its work.
    pub(super) fn succeeds(self) -> Result<Self, Failure> {
        if self.code == Some(0) {
            return Ok(self);
        }
        let Self { line, code, stdout, stderr } = self;
        let told = format!("{stdout}{stderr}");
        let message = format!(
            "the demo did not go as told: `{line}` ended with {}: {}",
            code.map_or("a signal".to_owned(), |code| code.to_string()),
            told.trim_end()
        );
        Err(Failure::new(Exit::Failed, message))
    }

    /// Whether it ended with an error.
    pub(super) fn has_failed(&self) -> bool {
        self.code != Some(0)
    }

    /// The JSON it printed.
    pub(super) fn json(&self) -> Result<serde_json::Value, Failure> {
        serde_json::from_str(&self.stdout)
            .map_err(|error| Failure::new(Exit::Failed, format!("`{}`: {error}", self.line)))
    }
}

/// Shows requests as the log of Proxmox VE has them.
pub(super) fn show_requests(requests: &[RequestRecord]) -> Result<(), Failure> {
    let line = |record: &RequestRecord| {
        let path = record.path.strip_prefix("/api2/json").unwrap_or(&record.path);
        format!("{:<6} {path}", record.method)
    };
    let lines: Vec<String> = requests.iter().map(line).collect();
    narration::lines(&lines.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Something the story says. If it is not so, the story ends here.
pub(super) fn demand(is_so: bool, what: &str) -> Result<(), Failure> {
    if is_so {
        return Ok(());
    }
    let message = format!("the demo did not go as told: it is not so that {what}");
    Err(Failure::new(Exit::Failed, message))
}

/// Runs a program to its end without holding up the simulator, which lives in this thread.
async fn finish(mut command: Command, line: String) -> std::io::Result<CommandRun> {
    let ended = tokio::task::spawn_blocking(move || command.output()).await;
    let output = ended.map_err(std::io::Error::other)??;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    Ok(CommandRun { line, code: output.status.code(), stdout, stderr })
}

fn unstartable(program: &str, error: std::io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("cannot start {program}")).because(error)
}

/// A command as a person types it.
pub(super) fn typed(arguments: &[&str]) -> String {
    let words = arguments.iter().map(|word| crate::signing::keygen::quoted(word));
    format!("evenkeel {}", words.collect::<Vec<_>>().join(" "))
}
