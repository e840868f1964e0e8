//! What `setup` finds on the machine: whether it is a node, and what of its own work is there already. Only reads.

use std::io;
use std::process::{Command, Stdio};

use camino::{Utf8Path, Utf8PathBuf};
use evenkeel_agent::config::AgentConfig;
use evenkeel_agent::source::dir::{DirError, load_believed};
use evenkeel_agent::state_dir::StateDir;
use evenkeel_core::desired::Desired;
use evenkeel_core::model::release::Release;
use serde_json::Value;

use super::super::validate::taken_from_hub;
use super::steps::{
    AGENT_TOML, CA_FILE, HUB_CA_FILE, HUB_CREDENTIAL, STATE, TOKEN_FILE, TRUST_FILE, UNIT,
};
use crate::error::{CommandFailure, Exit};

/// Who the agent is to Proxmox VE.
pub(super) const USER: &str = "evenkeel@pve";
pub(super) const TOKEN: &str = "agent";
pub(super) const ROLE: &str = "Evenkeel";

/// The user the unit runs as, and its group.
const GROUP: &str = "evenkeel";

/// One node, as far as `setup` is concerned.
pub(super) struct NodeView {
    root: Utf8PathBuf,
    pub(super) name: String,
    pub(super) release: Release,
    /// The group that may read the agent's files; none before the package has made it.
    pub(super) group: Option<u32>,
    pub(super) has_user: bool,
    /// The tokens of our user, and whether each has rights of its own.
    pub(super) tokens: Vec<(String, bool)>,
    /// The privileges of our role; none if there is no such role.
    pub(super) role: Option<Vec<String>>,
    /// Who has our role, and on which path.
    pub(super) holders: Vec<(String, String)>,
    /// The certificate of the cluster's own authority; none where the web server shows another certificate.
    pub(super) authority: Option<String>,
    /// The fingerprint of the certificate that the web server shows.
    pub(super) fingerprint: Option<String>,
    /// Our files that are there, with what is in them. Token and credential are only known to be there.
    pub(super) files: Vec<(&'static str, String)>,
    pub(super) has_hub: bool,
    pub(super) has_desired: bool,
    pub(super) unit: UnitState,
}

/// How the agent's unit stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnitState {
    /// It runs, and will after the next boot.
    Runs,
    /// One of both.
    Partly,
    /// Neither.
    Off,
}

impl UnitState {
    fn look() -> Result<Self, CommandFailure> {
        let enabled = command("systemctl", &["is-enabled", UNIT])?.is_some();
        let active = command("systemctl", &["is-active", UNIT])?.is_some();
        Ok(match (enabled, active) {
            (true, true) => Self::Runs,
            (true, false) | (false, true) => Self::Partly,
            (false, false) => Self::Off,
        })
    }
}

impl NodeView {
    pub(super) fn look(root: &Utf8Path) -> Result<Self, CommandFailure> {
        let local = root.join("etc/pve/local");
        let name = std::fs::read_link(&local)
            .ok()
            .and_then(|link| link.file_name().and_then(|name| name.to_str()).map(str::to_owned));
        let Some(name) = name else { return Err(no_node(&local)) };
        if root == "/" && !rustix::process::geteuid().is_root() {
            return Err(CommandFailure::new(
                Exit::Denied,
                "setup makes users and files of the system's",
            )
            .hint("run it as root"));
        }
        let version = asked("pvesh", &["get", "/version"])?;
        let release =
            version["release"].as_str().or_else(|| version["version"].as_str()).unwrap_or_default();
        let release: Release = release.parse().map_err(|error| {
            CommandFailure::new(
                Exit::Failed,
                format!("the release of this node is not understood: {error}"),
            )
        })?;
        if command("systemctl", &["cat", UNIT])?.is_none() {
            return Err(CommandFailure::new(
                Exit::NotFound,
                format!("the unit {UNIT} is not installed"),
            )
            .hint("install the Debian package, or see docs/guide/install.md"));
        }
        let users = asked("pveum", &["user", "list"])?;
        let has_user = entries(&users).any(|user| user["userid"] == USER);
        let tokens =
            if has_user { asked("pveum", &["user", "token", "list", USER])? } else { Value::Null };
        let tokens = entries(&tokens).filter_map(|token| {
            let separated = token["privsep"].as_u64() == Some(1) || token["privsep"] == "1";
            Some((token["tokenid"].as_str()?.to_owned(), separated))
        });
        let tokens = tokens.collect();
        let roles = asked("pveum", &["role", "list"])?;
        let role = entries(&roles).find(|role| role["roleid"] == ROLE).map(privileges);
        let acl = asked("pveum", &["acl", "list"])?;
        let ours = entries(&acl).filter(|entry| entry["roleid"] == ROLE);
        let holders = ours.filter_map(|entry| {
            Some((entry["ugid"].as_str()?.to_owned(), entry["path"].as_str()?.to_owned()))
        });
        let holders = holders.collect();
        let mut view = Self {
            root: root.to_owned(),
            name,
            release,
            group: None,
            has_user,
            tokens,
            role,
            holders,
            authority: None,
            fingerprint: None,
            files: Vec::new(),
            has_hub: false,
            has_desired: root.join("etc/evenkeel/desired").is_dir(),
            unit: UnitState::look()?,
        };
        view.read_files()?;
        view.has_hub = matches!(view.hub_config(), Ok(Some(_)));
        Ok(view)
    }

    fn read_files(&mut self) -> Result<(), CommandFailure> {
        self.group = read(&self.at("/etc/group"))?.and_then(|text| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(GROUP)?.strip_prefix(':'))?
                .to_owned();
            line.split(':').nth(1)?.parse().ok()
        });
        if self.group.is_none() && self.root == "/" {
            return Err(CommandFailure::new(Exit::NotFound, format!("there is no group {GROUP}"))
                .hint("install the Debian package, which makes the agent's user"));
        }
        // A certificate of the administrator's own has another authority, which nobody can name from here.
        let custom = self.at("/etc/pve/local/pveproxy-ssl.pem");
        if custom.exists() {
            let words = ["x509", "-noout", "-fingerprint", "-sha256", "-in", custom.as_str()];
            let told = command("openssl", &words)?.unwrap_or_default();
            self.fingerprint = told.trim().split_once('=').map(|(_, pin)| pin.to_owned());
        } else {
            self.authority = read(&self.at("/etc/pve/pve-root-ca.pem"))?;
        }
        for path in [AGENT_TOML, TRUST_FILE, CA_FILE, HUB_CA_FILE] {
            if let Some(text) = read(&self.at(path))? {
                self.files.push((path, text));
            }
        }
        for path in [TOKEN_FILE, HUB_CREDENTIAL] {
            if self.at(path).exists() {
                self.files.push((path, String::new()));
            }
        }
        Ok(())
    }

    /// Where a path of the system is.
    pub(super) fn at(&self, path: &str) -> Utf8PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// What is in one of our files, if it is there.
    pub(super) fn file(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|(there, _)| *there == path).map(|(_, text)| text.as_str())
    }

    /// Whether the agent takes its documents from a hub.
    pub(super) fn hub_config(&self) -> Result<Option<AgentConfig>, CommandFailure> {
        if self.file(AGENT_TOML).is_none() {
            return Ok(None);
        }
        let config = AgentConfig::from_file(self.at(AGENT_TOML).as_std_path())?;
        Ok(Some(config).filter(|config| config.desired.hub.is_some()))
    }

    /// What is declared, in files or in the hub's last document; nothing if nobody has written anything yet.
    pub(super) fn desired(&self, path: &Utf8Path) -> Result<Desired, CommandFailure> {
        if let Ok(Some(config)) = self.hub_config() {
            let state = StateDir::new(self.at(STATE).as_std_path());
            // Before the first document there is nothing to keep.
            let taken = taken_from_hub(&config, &state).map(|(desired, ..)| desired);
            return Ok(taken.unwrap_or_default());
        }
        let place = self.at(path.as_str());
        match load_believed(place.as_std_path()).map(|loaded| loaded.desired) {
            Ok(Ok(desired)) => Ok(desired),
            Ok(Err(_)) => Err(CommandFailure::new(
                Exit::Invalid,
                format!("the desired files in {path} have mistakes"),
            )
            .hint(format!("`evenkeel validate {path}` shows them"))),
            Err(DirError::NotFound(_) | DirError::Empty(..)) => Ok(Desired::default()),
            Err(error) => Err(error.into()),
        }
    }
}

fn no_node(local: &Utf8Path) -> CommandFailure {
    CommandFailure::new(Exit::Failed, format!("this machine is no Proxmox VE node: there is no {local}"))
        .hint("run setup on the node itself; for an agent elsewhere docs/guide/install.md has the commands")
}

fn entries(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// As Proxmox VE lists them: a text with commas, or a list.
fn privileges(role: &Value) -> Vec<String> {
    let text = role["privs"].as_str().unwrap_or_default();
    let mut names: Vec<String> =
        text.split([',', ' ', ';']).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    names.sort_unstable();
    names
}

/// What one of the node's own tools answers.
fn asked(program: &str, words: &[&str]) -> Result<Value, CommandFailure> {
    let line = [words, &["--output-format", "json"]].concat();
    let Some(text) = command(program, &line)? else {
        return Err(CommandFailure::new(
            Exit::Failed,
            format!("`{program} {}` failed", line.join(" ")),
        )
        .hint("run it yourself and see what it says"));
    };
    serde_json::from_str(&text).map_err(|error| {
        CommandFailure::new(
            Exit::Failed,
            format!("`{program} {}` did not answer in JSON: {error}", line.join(" ")),
        )
    })
}

/// What a command says; none if it ends with an error.
fn command(program: &str, words: &[&str]) -> Result<Option<String>, CommandFailure> {
    let ran = Command::new(program).args(words).stdin(Stdio::null()).stderr(Stdio::null()).output();
    match ran {
        Ok(ran) => Ok(ran.status.success().then(|| String::from_utf8_lossy(&ran.stdout).into_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(CommandFailure::new(Exit::Failed, format!("this machine is no Proxmox VE node: there is no {program}"))
                .hint("run setup on the node itself; for an agent elsewhere docs/guide/install.md has the commands"))
        }
        Err(error) => Err(CommandFailure::new(Exit::Failed, format!("{program} cannot be run: {error}"))),
    }
}

fn read(path: &Utf8Path) -> Result<Option<String>, CommandFailure> {
    match fs_err::read_to_string(path.as_std_path()) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(CommandFailure::wrapping(Exit::Failed, error)),
    }
}
