//! Where the story plays: a simulated Proxmox VE, a temporary directory, and this executable as child processes.
//!
//! Dropping it ends the agent and removes the directory.

use std::process::Stdio;
use std::time::Instant;

use evenkeel_core::model::id::GuestId;
use evenkeel_sim::{Event, Http, HttpOptions, RequestRecord, Simulator, TOKENS};
use jiff::Timestamp;

use super::files::{ChildProcess, DemoFiles, LOOK_EVERY, PATIENCE, unstartable, until};
pub(super) use super::files::{CommandRun, demand, typed};
use super::guests;
use super::narration::{self, Narration};
use crate::error::{CommandFailure, Exit};

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
    // Ended before its directory goes.
    agent: Option<ChildProcess>,
    files: DemoFiles,
}

impl Sandbox {
    /// Makes one: the node runs, the files of an agent are there, nothing is declared yet.
    pub(super) async fn set(headless: bool) -> Result<Self, CommandFailure> {
        let http = Http::start(Simulator::new(guests::world()), HttpOptions::default()).await;
        let http = http.map_err(|error| CommandFailure::wrapping(Exit::Failed, error))?;
        let files = DemoFiles::new()?;
        let narration = Narration::new(headless);
        let can_sign = false;
        let agent = None;
        let asked_at = Timestamp::now();
        let mut sandbox = Self { narration, http, can_sign, asked_at, agent, files };
        sandbox.write("agent.toml", &sandbox.agent_toml())?;
        let (id, secret, _) = TOKENS[0];
        sandbox.write("token", &format!("{id}={secret}\n"))?;
        sandbox.can_sign = sandbox.make_signers().await?;
        Ok(sandbox)
    }

    fn agent_toml(&self) -> String {
        let url = self.http.url();
        let pin = self.http.certificate().fingerprint;
        format!(
            "host_id = \"demo\"\ninterval = 5                 # seconds between two looks\n\n[pve]\nurl = \"{url}\"\n\
             node = \"pve1\"\ntoken_file = \"token\"\nfingerprint = \"{pin}\"\n\n[desired]\ndir = \"desired\"\n\n\
             [state]\ndir = \"state\"\n\n[trust]\nfile = \"trust.toml\"          # who may sign\n"
        )
    }

    /// Keys of three people, two of them enrolled; false without an `ssh-keygen`.
    async fn make_signers(&self) -> Result<bool, CommandFailure> {
        for name in ["alice", "vault", "mallory"] {
            if !self.files.make_key(name).await? {
                return Ok(false);
            }
        }
        for (name, role) in [("alice", "operational"), ("vault", "recovery")] {
            self.files.enrol_signer(name, role).await?;
        }
        Ok(true)
    }

    /// Runs this executable to its end, behind the scenes.
    pub(super) async fn runs(&self, arguments: &[&str]) -> Result<CommandRun, CommandFailure> {
        self.files.runs(arguments).await
    }

    /// Runs this executable to its end and shows all of it.
    pub(super) async fn shows(&self, arguments: &[&str]) -> Result<CommandRun, CommandFailure> {
        CommandRun::shown(arguments, self.runs(arguments)).await
    }

    /// Starts the agent and waits until it answers.
    pub(super) async fn start_agent(&mut self) -> Result<(), CommandFailure> {
        let mut command = self.files.executable();
        command.arg("run").stdout(Stdio::null()).stderr(self.files.log(LOG)?);
        let child = command.spawn().map_err(|error| unstartable("evenkeel", error))?;
        self.agent = Some(ChildProcess(child));
        self.until("the agent answers", async || {
            Ok(self.runs(&["pending", "-o", "json"]).await?.code == Some(0))
        })
        .await
    }

    /// Ends the agent as `kill -9` does, and tells which process it was.
    pub(super) fn kill_agent(&mut self) -> Result<u32, CommandFailure> {
        let agent = self.agent.take();
        agent.ok_or_else(|| CommandFailure::new(Exit::Failed, "no agent runs"))?.kill()
    }

    /// Ends the agent as a service manager does.
    pub(super) async fn stop_agent(&mut self) -> Result<(), CommandFailure> {
        let Some(agent) = &self.agent else { return Ok(()) };
        let pid = i32::try_from(agent.0.id()).ok().and_then(rustix::process::Pid::from_raw);
        let pid = pid.expect("a child has a number");
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)
            .map_err(|error| CommandFailure::wrapping(Exit::Failed, error))?;
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
        is_so: impl AsyncFnMut() -> Result<bool, CommandFailure>,
    ) -> Result<(), CommandFailure> {
        until(what, is_so).await
    }

    /// A failure, with what the agent said last.
    pub(super) fn explain(&self, failure: CommandFailure) -> CommandFailure {
        let last = self.files.last_lines(LOG);
        failure.hint(format!("please report it, with the agent's last lines:\n{last}"))
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
    pub(super) fn read(&self, name: &str) -> Result<String, CommandFailure> {
        self.files.read(name)
    }

    /// Writes a file of the directory that only its owner reads.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<(), CommandFailure> {
        self.files.write(name, text)
    }
}

/// Shows requests as the log of Proxmox VE has them.
pub(super) fn show_requests(requests: &[RequestRecord]) -> Result<(), CommandFailure> {
    let line = |record: &RequestRecord| {
        let path = record.path.strip_prefix("/api2/json").unwrap_or(&record.path);
        format!("{:<6} {path}", record.method)
    };
    let lines: Vec<String> = requests.iter().map(line).collect();
    narration::lines(&lines.iter().map(String::as_str).collect::<Vec<_>>())
}
