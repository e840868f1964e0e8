//! What is missing on a node, or what is to be taken back, as steps that can be shown and carried out. Pure: it looks at
//! nothing but what `node.rs` found.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use evenkeel_core::gate::rights::Rights;

use super::fleet_part::FleetPart;
use super::node::{NodeView, ROLE, TOKEN, USER, UnitState};

/// The agent's unit.
pub(super) const UNIT: &str = "evenkeel.service";

/// Where its files are.
pub(super) const DIRECTORY: &str = "/etc/evenkeel";
pub(super) const AGENT_TOML: &str = "/etc/evenkeel/agent.toml";
pub(super) const TOKEN_FILE: &str = "/etc/evenkeel/token";
pub(super) const TRUST_FILE: &str = "/etc/evenkeel/trust.toml";
pub(super) const CA_FILE: &str = "/etc/evenkeel/pve-root-ca.pem";
pub(super) const HUB_CREDENTIAL: &str = "/etc/evenkeel/hub-credential";
pub(super) const HUB_CA_FILE: &str = "/etc/evenkeel/hub-ca.pem";
pub(super) const STATE: &str = "/var/lib/evenkeel";
const DESIRED: &str = "/etc/evenkeel/desired";

/// How a file begins that `setup` wrote: `--remove` takes no other.
const OURS: &str = "# Written by `evenkeel setup`";

/// One thing to do.
pub(super) enum SetupStep {
    /// A command of the node's own.
    Run(Vec<String>),
    /// The command that makes the token; its secret goes into the file.
    MakeToken { words: Vec<String>, file: SetupFile },
    /// A directory for the agent's files.
    MakeDirectory { path: &'static str, mode: u32 },
    /// A file.
    Write(SetupFile),
    /// The host enrols with its hub.
    Enrol { url: String },
    /// A file that goes.
    Remove(&'static str),
}

/// A file that `setup` writes.
#[derive(Clone)]
pub(super) struct SetupFile {
    pub(super) path: &'static str,
    pub(super) mode: u32,
    /// Whether the agent's group may read it.
    pub(super) for_agent: bool,
    pub(super) text: String,
}

impl SetupStep {
    /// Whether it is the one that takes the token.
    pub(super) fn needs_token(&self) -> bool {
        matches!(self, Self::Enrol { .. })
    }

    /// As a person would type it, or read it.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Run(words) => format!("  {}\n", typed(words)),
            Self::MakeToken { words, file } => {
                format!(
                    "  {}   # its secret into {}, mode {:04o}\n",
                    typed(words),
                    file.path,
                    file.mode
                )
            }
            Self::MakeDirectory { path, mode } => {
                format!("  install -d -g evenkeel -m {mode:04o} {path}\n")
            }
            Self::Write(file) => {
                let group = if file.for_agent { "evenkeel" } else { "root" };
                let mut text =
                    format!("  write {}, root:{group}, mode {:04o}:\n", file.path, file.mode);
                for line in file.text.lines() {
                    writeln!(text, "    | {line}").expect("writing to a string cannot fail");
                }
                text
            }
            Self::Enrol { url } => {
                format!(
                    "  evenkeel enrol {url}   # with its token; the credential into {HUB_CREDENTIAL}, mode 0600\n"
                )
            }
            Self::Remove(path) => format!("  rm {path}\n"),
        }
    }
}

/// Words as a shell takes them.
fn typed(words: &[String]) -> String {
    let plain =
        |word: &String| word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./@=".contains(c));
    let quoted =
        words.iter().map(|word| if plain(word) { word.clone() } else { format!("'{word}'") });
    quoted.collect::<Vec<_>>().join(" ")
}

fn run(words: &[&str]) -> SetupStep {
    SetupStep::Run(words.iter().map(|word| (*word).to_owned()).collect())
}

fn token_id() -> String {
    format!("{USER}!{TOKEN}")
}

/// Everything that is missing, and what a person should know.
pub(super) fn to_make(
    node: &NodeView,
    needed: &Rights,
    trust: Option<String>,
    fleet: Option<&FleetPart>,
) -> (Vec<SetupStep>, Vec<String>) {
    let mut steps = Vec::new();
    let mut notes = Vec::new();
    if !node.has_user {
        steps.push(run(&["pveum", "user", "add", USER, "--comment", "the evenkeel agent"]));
    }
    make_role(node, needed, &mut steps);
    make_files(node, trust, fleet, &mut steps, &mut notes);
    make_token(node, &mut steps);
    let token = token_id();
    let holds = |who: &str| node.holders.iter().any(|(holder, path)| holder == who && path == "/");
    // A token with rights of its own has what both it and its user were granted.
    if !holds(USER) || !holds(&token) {
        steps.push(run(&[
            "pveum", "acl", "modify", "/", "--users", USER, "--tokens", &token, "--roles", ROLE,
        ]));
    }
    // The credential is there before the agent starts, and no agent runs while its host enrols.
    if let Some(fleet) = fleet.filter(|_| node.file(HUB_CREDENTIAL).is_none()) {
        if node.unit != UnitState::Off {
            steps.push(run(&["systemctl", "stop", UNIT]));
        }
        steps.push(SetupStep::Enrol { url: fleet.url.clone() });
    }
    if node.unit != UnitState::Runs {
        steps.push(run(&["systemctl", "enable", "--now", UNIT]));
    } else if steps.iter().any(|step| {
        matches!(step, SetupStep::Write(_) | SetupStep::MakeToken { .. } | SetupStep::Enrol { .. })
    }) {
        steps.push(run(&["systemctl", "restart", UNIT]));
    }
    (steps, notes)
}

fn make_role(node: &NodeView, needed: &Rights, steps: &mut Vec<SetupStep>) {
    let wanted: BTreeSet<&str> = needed.values().flatten().copied().collect();
    let wanted: Vec<&str> = wanted.into_iter().collect();
    let privileges = wanted.join(",");
    match &node.role {
        None => steps.push(run(&["pveum", "role", "add", ROLE, "--privs", &privileges])),
        Some(there) if *there != wanted => {
            steps.push(run(&["pveum", "role", "modify", ROLE, "--privs", &privileges]));
        }
        Some(_) => {}
    }
}

/// The secret of a token is told once: one whose file is gone is made anew.
fn make_token(node: &NodeView, steps: &mut Vec<SetupStep>) {
    let there = node.tokens.iter().find(|(name, _)| name == TOKEN);
    let has_file = node.file(TOKEN_FILE).is_some();
    match there {
        Some((_, true)) if has_file => return,
        Some((_, false)) if has_file => {
            steps.push(run(&["pveum", "user", "token", "modify", USER, TOKEN, "--privsep", "1"]));
            return;
        }
        Some(_) => steps.push(run(&["pveum", "user", "token", "remove", USER, TOKEN])),
        None => {}
    }
    let words =
        ["pveum", "user", "token", "add", USER, TOKEN, "--privsep", "1", "--output-format", "json"];
    let words = words.map(str::to_owned).to_vec();
    let file = SetupFile { path: TOKEN_FILE, mode: 0o600, for_agent: false, text: String::new() };
    steps.push(SetupStep::MakeToken { words, file });
}

fn make_files(
    node: &NodeView,
    trust: Option<String>,
    fleet: Option<&FleetPart>,
    steps: &mut Vec<SetupStep>,
    notes: &mut Vec<String>,
) {
    let of_fleet = fleet.is_some() || node.has_hub;
    let directories: &[&'static str] = match of_fleet {
        // Our files are in it.
        true if !node.files.is_empty() => &[],
        true => &[DIRECTORY],
        false if node.has_desired => &[],
        false => &[DIRECTORY, DESIRED],
    };
    for path in directories {
        steps.push(SetupStep::MakeDirectory { path, mode: 0o750 });
    }
    let mut write = |path, text: String| {
        steps.push(SetupStep::Write(SetupFile { path, mode: 0o640, for_agent: true, text }));
    };
    if let Some(authority) = &node.authority
        && node.file(CA_FILE) != Some(authority)
    {
        write(CA_FILE, authority.clone());
    }
    if let Some(authority) = fleet.and_then(|fleet| fleet.authority.as_ref())
        && node.file(HUB_CA_FILE) != Some(authority)
    {
        write(HUB_CA_FILE, authority.clone());
    }
    if node.file(AGENT_TOML).is_none() {
        write(AGENT_TOML, agent_toml(node, fleet));
    }
    match (trust, node.file(TRUST_FILE)) {
        (Some(text), None) => {
            write(TRUST_FILE, format!("{OURS}; change it with `evenkeel signers`.\n{text}"));
        }
        (Some(text), Some(there)) if !there.ends_with(&text) => {
            notes.push(format!(
                "{TRUST_FILE} is there and is left as it is; `evenkeel signers` changes it"
            ));
        }
        (None, None) => {
            notes.push(
                "nobody may sign yet, and destructive acts wait: give --operational and --recovery"
                    .to_owned(),
            );
        }
        (Some(_) | None, Some(_)) => {}
    }
}

/// The configuration of an agent on its own node.
fn agent_toml(node: &NodeView, fleet: Option<&FleetPart>) -> String {
    let trust = match &node.fingerprint {
        Some(pin) => format!("fingerprint = \"{pin}\""),
        None => format!("ca_file = \"{CA_FILE}\""),
    };
    let desired = fleet.map_or_else(|| format!("dir = \"{DESIRED}\""), |fleet| fleet.line.clone());
    format!(
        "{OURS}; yours to change. Every key is in evenkeel-agent.toml(5).\n\
         host_id = \"{name}\"\n\n[pve]\nurl = \"https://localhost:8006\"\nnode = \"{name}\"\n\
         token_file = \"{TOKEN_FILE}\"\n{trust}\n\n[desired]\n{desired}\n\n\
         [state]\ndir = \"{STATE}\"\n\n[trust]\nfile = \"{TRUST_FILE}\"\n",
        name = node.name
    )
}

/// Everything that `setup` made and that nobody else uses.
pub(super) fn to_remove(node: &NodeView) -> (Vec<SetupStep>, Vec<String>) {
    let mut steps = Vec::new();
    let mut notes = Vec::new();
    if node.unit != UnitState::Off {
        steps.push(run(&["systemctl", "disable", "--now", UNIT]));
    }
    let token = token_id();
    let is_ours = |holder: &str| holder == USER || holder == token;
    if node.holders.iter().any(|(holder, path)| is_ours(holder) && path == "/") {
        steps.push(run(&[
            "pveum", "acl", "delete", "/", "--users", USER, "--tokens", &token, "--roles", ROLE,
        ]));
    }
    if node.tokens.iter().any(|(name, _)| name == TOKEN) {
        steps.push(run(&["pveum", "user", "token", "remove", USER, TOKEN]));
    }
    match (node.has_user, node.tokens.iter().find(|(name, _)| name != TOKEN)) {
        (true, None) => steps.push(run(&["pveum", "user", "delete", USER])),
        (true, Some((other, _))) => {
            notes.push(format!("{USER} stays: it has another token, {other}"));
        }
        (false, _) => {}
    }
    match (&node.role, node.holders.iter().find(|(holder, path)| !is_ours(holder) || path != "/")) {
        (Some(_), None) => steps.push(run(&["pveum", "role", "delete", ROLE])),
        (Some(_), Some((holder, path))) => {
            notes.push(format!("the role {ROLE} stays: {holder} has it on {path}"));
        }
        (None, _) => {}
    }
    let always_ours = [TOKEN_FILE, CA_FILE, HUB_CREDENTIAL, HUB_CA_FILE];
    for path in always_ours.into_iter().chain([AGENT_TOML, TRUST_FILE]) {
        match node.file(path) {
            Some(text) if always_ours.contains(&path) || text.starts_with(OURS) => {
                steps.push(SetupStep::Remove(path));
            }
            Some(_) => notes.push(format!("{path} stays: it was not written by setup")),
            None => {}
        }
    }
    (steps, notes)
}
