//! Where the story of a fleet plays: a hub, three hosts with a simulated node each, and a person's desk.
//!
//! All in one temporary directory and in child processes of this very executable; only the nodes pretend. Dropping it ends
//! them all and removes the directory.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

use evenkeel_core::model::id::GuestId;
use evenkeel_sim::{Event, Http, HttpOptions, RequestRecord, Simulator, TOKENS};
use serde_json::Value;

use super::super::files::{ChildProcess, CommandRun, DemoFiles, finish, unstartable, until};
use super::super::guests;
use super::super::narration::Narration;

use crate::error::{CommandFailure, Exit};

/// The hosts of the story.
pub(super) const HOSTS: [&str; 3] = ["berlin", "oslo", "paris"];

/// What one of them says goes here, in its own directory.
const LOG: &str = "agent.log";

/// A hub and its hosts.
pub(super) struct FleetSite {
    pub(super) narration: Narration,
    pub(super) hosts: Vec<DemoHost>,
    /// Where the hub is, once it was started.
    pub(super) hub_url: String,
    pub(super) hub_pin: String,
    // Ended before the directory goes.
    hub: Option<ChildProcess>,
    pub(super) files: DemoFiles,
}

/// One host: a node that pretends, and a real agent.
pub(super) struct DemoHost {
    pub(super) name: &'static str,
    node: Http,
    agent: Option<ChildProcess>,
}

impl DemoHost {
    /// Something happens behind the agent's back.
    pub(super) fn happens(&self, event: Event) {
        self.node.node.with(|simulator| simulator.happen(event));
    }

    /// The value of a key as its node stores it.
    pub(super) fn stored(&self, guest: GuestId, key: &str) -> Option<String> {
        self.node.node.with(|simulator| {
            simulator.world.guest(guest).and_then(|guest| guest.config.active.get(key).cloned())
        })
    }

    /// The requests for a change that reached its node, from the node's own log.
    pub(super) fn writes(&self) -> Vec<RequestRecord> {
        self.node.node.with(|simulator| {
            simulator.records().iter().filter(|record| record.mutating).cloned().collect()
        })
    }
}

impl FleetSite {
    /// Three nodes, the files of three agents, keys and signers. Nothing runs yet but the nodes.
    pub(super) async fn set(headless: bool) -> Result<Self, CommandFailure> {
        let files = DemoFiles::new()?;
        let mut hosts = Vec::new();
        for name in HOSTS {
            let node = Http::start(Simulator::new(guests::world()), HttpOptions::default()).await;
            let node = node.map_err(|error| CommandFailure::wrapping(Exit::Failed, error))?;
            // A node that has done something before: its list of tasks reaches back, as every real one's does.
            let guest = guests::DB.id();
            node.node.with(|simulator| {
                simulator.happen(Event::Recreate { guest });
                simulator.happen(Event::Power { guest, running: true });
            });
            hosts.push(DemoHost { name, node, agent: None });
        }
        let is_done = |host: &DemoHost| !host.node.node.with(|simulator| simulator.is_at_work());
        until("the nodes are at rest", async || Ok(hosts.iter().all(is_done))).await?;
        let narration = Narration::new(headless);
        let hub_url = String::new();
        let hub_pin = String::new();
        let site = Self { narration, hosts, hub_url, hub_pin, hub: None, files };
        site.make_keys().await?;
        Ok(site)
    }

    /// Alice approves, the pen signs documents, the vault recovers; nobody knows mallory.
    async fn make_keys(&self) -> Result<(), CommandFailure> {
        for name in ["alice", "pen", "vault", "mallory"] {
            if !self.files.make_key(name).await? {
                let message = "a fleet cannot be shown without ssh-keygen: people log in and sign with SSH keys";
                return Err(CommandFailure::new(Exit::Failed, message).hint(
                    "apt install openssh-client; `evenkeel demo` shows a single host without it",
                ));
            }
        }
        for (name, role) in [("alice", "operational"), ("pen", "author"), ("vault", "recovery")] {
            self.files.enrol_signer(name, role).await?;
        }
        Ok(())
    }

    /// Starts the hub and waits until it serves; at the same address again, if it had one.
    pub(super) fn start_hub(&mut self) -> Result<(), CommandFailure> {
        let address = self.hub_url.strip_prefix("https://").unwrap_or("127.0.0.1:0");
        let mut command = self.files.executable();
        command
            .args(["hub", "--state", "hub", "--listen", address, "-o", "json", "--log", "error"]);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(self.files.log("hub.log")?)
            .spawn()
            .map_err(|error| unstartable("evenkeel", error))?;
        let mut ready = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut ready)?;
        }
        self.hub = Some(ChildProcess(child));
        let ready: Value = serde_json::from_str(&ready).map_err(|error| {
            CommandFailure::new(Exit::Failed, format!("the hub did not say where it is: {error}"))
        })?;
        let text = |name: &str| ready[name].as_str().unwrap_or_default().to_owned();
        (self.hub_url, self.hub_pin) = (text("url"), text("fingerprint"));
        Ok(())
    }

    /// Ends the hub as `kill -9` does, and tells which process it was.
    pub(super) fn kill_hub(&mut self) -> Result<u32, CommandFailure> {
        let hub = self.hub.take();
        hub.ok_or_else(|| CommandFailure::new(Exit::Failed, "no hub runs"))?.kill()
    }

    /// The files of a host: what root would write there.
    pub(super) fn write_host(&self, host: &DemoHost) -> Result<(), CommandFailure> {
        let (name, here) = (host.name, self.files.path(host.name));
        fs_err::create_dir_all(&here)?;
        let here = here.display();
        let url = host.node.url();
        let pin = host.node.certificate().fingerprint;
        let hub_url = &self.hub_url;
        let hub_pin = &self.hub_pin;
        let text = format!(
            "host_id = \"{name}\"\ninterval = 5\n\n[pve]\nurl = \"{url}\"\nnode = \"pve1\"\ntoken_file = \"{here}/token\"\n\
             fingerprint = \"{pin}\"\n\n[desired]\n\
             hub = {{ url = \"{hub_url}\", credential_file = \"{here}/credential\", fingerprint = \"{hub_pin}\" }}\n\n\
             [state]\ndir = \"{here}/state\"\n\n[trust]\nfile = \"{here}/trust.toml\"\n"
        );
        self.files.write(&format!("{name}/agent.toml"), &text)?;
        let (id, secret, _) = TOKENS[0];
        self.files.write(&format!("{name}/token"), &format!("{id}={secret}\n"))?;
        self.files.write(&format!("{name}/trust.toml"), &self.files.read("trust.toml")?)
    }

    /// Enrols a host: the token goes from the hub to the host, and never over a command line.
    pub(super) async fn enrol(&self, name: &str) -> Result<CommandRun, CommandFailure> {
        let token = self.runs(&["hub", "enrol-token", name, "--state", "hub"]).await?.succeeds()?;
        let mut command = self.on_host(name);
        command.args(["enrol", &self.hub_url, "--fingerprint", &self.hub_pin]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let line = format!("evenkeel enrol {}", self.hub_url);
        let ended = tokio::task::spawn_blocking(move || -> std::io::Result<_> {
            let mut child: Child = command.spawn()?;
            if let Some(mut stdin) = child.stdin.take() {
                stdin.write_all(token.stdout.as_bytes())?;
            }
            child.wait_with_output()
        });
        let output = ended.await.map_err(|error| CommandFailure::wrapping(Exit::Failed, error))?;
        let output = output.map_err(|error| unstartable("evenkeel", error))?;
        CommandRun::of(line, &output).succeeds()
    }

    /// Starts the agent of every host.
    pub(super) fn start_agents(&mut self) -> Result<(), CommandFailure> {
        for place in 0..self.hosts.len() {
            let mut command = self.on_host(self.hosts[place].name);
            let log = self.files.log(&format!("{}/{LOG}", self.hosts[place].name))?;
            command.arg("run").stdout(Stdio::null()).stderr(log);
            let child = command.spawn().map_err(|error| unstartable("evenkeel", error))?;
            self.hosts[place].agent = Some(ChildProcess(child));
        }
        Ok(())
    }

    /// This executable as root of a host runs it.
    fn on_host(&self, name: &str) -> Command {
        let mut command = self.files.executable();
        let here = self.files.path(name);
        command.env("EVENKEEL_CONFIG", here.join("agent.toml"));
        command.env("EVENKEEL_STATE", here.join("state")).current_dir(here);
        command
    }

    /// Runs a command on a host, behind the scenes.
    pub(super) async fn runs_on(
        &self,
        name: &str,
        arguments: &[&str],
    ) -> Result<CommandRun, CommandFailure> {
        let mut command = self.on_host(name);
        command.args(arguments);
        let line = format!("evenkeel {}", arguments.join(" "));
        let ended = finish(command, line).await;
        ended.map_err(|error| unstartable("evenkeel", error))
    }

    /// Runs a command at the person's desk, behind the scenes.
    pub(super) async fn runs(&self, arguments: &[&str]) -> Result<CommandRun, CommandFailure> {
        let mut command = self.files.executable();
        // A person's desk has no agent.
        command.env_remove("EVENKEEL_CONFIG").env_remove("EVENKEEL_STATE").args(arguments);
        let line = format!("evenkeel {}", arguments.join(" "));
        finish(command, line).await.map_err(|error| unstartable("evenkeel", error))
    }

    /// Runs it and shows all of it.
    pub(super) async fn shows(&self, arguments: &[&str]) -> Result<CommandRun, CommandFailure> {
        CommandRun::shown(arguments, self.runs(arguments)).await
    }

    /// How a host stands, by the hub.
    pub(super) async fn status(&self, host: &str) -> Result<Value, CommandFailure> {
        self.runs(&["fleet", "status", host, "-o", "json"]).await?.succeeds()?.json()
    }

    /// A failure, with what agents and hub said last.
    pub(super) fn explain(&self, failure: CommandFailure) -> CommandFailure {
        let mut logs = vec!["hub.log".to_owned()];
        logs.extend(HOSTS.map(|name| format!("{name}/{LOG}")));
        let last = logs.iter().map(|log| format!("{log}:\n{}", self.files.last_lines(log)));
        failure.hint(format!("please report it, with:\n{}", last.collect::<Vec<_>>().join("\n")))
    }
}
