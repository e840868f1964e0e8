//! `evenkeel enrol URL`: takes this host into a fleet, once, while no agent runs.
//!
//! The token comes from a file or from stdin, never from an argument. What is printed is the host key's fingerprint, which
//! operators pin: no hub is ever asked for it.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use evenkeel_agent::ambient::Machine;
use evenkeel_agent::config::{AgentConfig, OneOrMany};
use evenkeel_agent::effective_clock::wall;
use evenkeel_agent::host_key::HostKey;
use evenkeel_agent::hub_link::config::{HubConfig, HubConfigError};
use evenkeel_agent::hub_link::enrol::{EnrolError, enrol};
use evenkeel_agent::hub_link::http::HubHttp;
use evenkeel_agent::hub_link::memory;
use evenkeel_agent::journal::Record;
use evenkeel_core::fleet::DocumentFloor;
use evenkeel_core::sign::HostBinding;
use secrecy::SecretString;

use crate::cli::{EnrolHostArgs, OutputFormat};
use crate::connect::{configuration_file, state_dir};
use crate::error::{Exit, Failure};
use crate::signing::file;
use crate::{format, terminal};

/// A token has some 70 bytes.
const TOKEN_BYTES_MAX: usize = 1_024;

pub(crate) async fn run(arguments: &EnrolHostArgs) -> Result<Exit, Failure> {
    let config = configuration_file(arguments.local.place.config.as_deref())?;
    let hub = hub_config(arguments, &config);
    let (url, trust) = (hub.address()?, hub.trust()?);
    let credential_path = hub.credential_path();
    let id = match (&config.host_id, &config.pve.node) {
        (Some(id), _) => id.clone(),
        (None, Some(node)) => node.as_str().parse().map_err(|_| no_host_id())?,
        (None, None) => return Err(no_host_id()),
    };
    let state = state_dir(arguments.local.place.state.as_deref(), &config);
    // The lock says that no agent runs; it would not hear of its new floor.
    let mut journal = state.lock_journal(&Machine)?;
    if let (Some(floor), false) = (memory::floor(journal.state()), arguments.replace) {
        let message = format!("this host is enrolled already, with hub {}", floor.hub_id);
        let hint = "--replace enrols it again; its documents then begin anew";
        return Err(Failure::new(Exit::Failed, message).hint(hint));
    }
    let key = HostKey::load_or_create(state.path()).map_err(|error| {
        let hint = error.hint();
        Failure::wrapping(Exit::Failed, error).hint(hint)
    })?;
    let host = HostBinding { id, key: key.public().fingerprint() };
    let token = token(arguments)?;
    let exchange = HubHttp::new(url.clone(), &trust, None).map_err(HubConfigError::from)?;
    let answer = enrol(&exchange, &url, &key, host.clone(), &token).await?;
    write_credential(&credential_path, &answer.credential)?;
    let floor = DocumentFloor::enrolled(answer.hub_id.clone());
    journal.append(Record::Kept(memory::floor_record(&floor)), wall(&Machine))?;
    tell(arguments, &config, &host, &floor, &url.to_string(), &credential_path)
}

/// The hub as the flags say, or as it is configured where they say nothing.
fn hub_config(arguments: &EnrolHostArgs, config: &AgentConfig) -> HubConfig {
    let mut hub = config.desired.hub.clone().unwrap_or_default();
    hub.url = Some(arguments.url.clone());
    if let Some(path) = &arguments.ca_file {
        (hub.ca_file, hub.fingerprint) =
            (Some(path.as_std_path().to_owned()), OneOrMany::default());
    }
    if !arguments.fingerprint.is_empty() {
        (hub.ca_file, hub.fingerprint) = (None, OneOrMany(arguments.fingerprint.clone()));
    }
    if let Some(path) = &arguments.credential_file {
        hub.credential_file = Some(path.as_std_path().to_owned());
    }
    hub
}

fn no_host_id() -> Failure {
    Failure::new(Exit::Invalid, "nothing says which host this is")
        .hint("set `host_id` in agent.toml to the name the token was made for")
}

fn token(arguments: &EnrolHostArgs) -> Result<SecretString, Failure> {
    let text = match &arguments.token_file {
        Some(path) => file::read_text(path, TOKEN_BYTES_MAX)?,
        None => {
            if terminal::is_there() {
                writeln!(std::io::stderr(), "paste the token of `evenkeel hub enrol-token`:")?;
                let mut line = String::new();
                std::io::stdin().read_line(&mut line)?;
                line
            } else {
                let mut text = String::new();
                std::io::stdin().take(TOKEN_BYTES_MAX as u64).read_to_string(&mut text)?;
                text
            }
        }
    };
    Ok(SecretString::from(text.trim().to_owned()))
}

/// Written beside, for its owner alone, synced, and only then under its name.
fn write_credential(path: &Path, credential: &str) -> Result<(), Failure> {
    let cannot = |error: std::io::Error| {
        let message = format!("cannot write the credential to {}", path.display());
        let hint = "the token answers once more within its hour: name another --credential-file";
        Failure::new(Exit::Failed, message).because(error).hint(hint)
    };
    let directory = path.parent().filter(|parent| *parent != Path::new(""));
    let directory = directory.unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new()
        .prefix(".hub-credential-")
        .permissions(std::fs::Permissions::from_mode(0o600))
        .tempfile_in(directory)
        .map_err(cannot)?;
    writeln!(file, "{credential}").and_then(|()| file.as_file().sync_all()).map_err(cannot)?;
    file.persist(path).map_err(|error| cannot(error.error))?;
    fs_err::File::open(directory).and_then(|open| open.sync_all()).map_err(cannot)
}

fn tell(
    arguments: &EnrolHostArgs,
    config: &AgentConfig,
    host: &HostBinding,
    floor: &DocumentFloor,
    url: &str,
    credential: &Path,
) -> Result<Exit, Failure> {
    let (id, key, hub_id) = (host.id.to_string(), host.key.to_string(), floor.hub_id.to_string());
    match arguments.local.output.output {
        OutputFormat::Json => format::print(&serde_json::json!({
            "format_version": 1,
            "host": id,
            "host_key": key,
            "hub_id": hub_id,
            "hub": url,
            "credential_file": credential,
        }))?,
        OutputFormat::Table => {
            let mut out = std::io::stdout();
            writeln!(out, "{id} is enrolled with the hub {hub_id}")?;
            writeln!(out, "host key: {key}")?;
            writeln!(out, "operators pin this key before they sign anything for this host")?;
        }
    }
    if config.desired.hub.is_none() {
        let line = format!("hub = {{ url = \"{url}\" }}");
        writeln!(
            std::io::stderr(),
            "note: write {line} under [desired] in agent.toml, then start the agent"
        )?;
    }
    Ok(Exit::Ok)
}

impl From<HubConfigError> for Failure {
    fn from(error: HubConfigError) -> Self {
        let hint = error.hint();
        Self::wrapping(Exit::Invalid, error).hint(hint)
    }
}

impl From<EnrolError> for Failure {
    fn from(error: EnrolError) -> Self {
        let (exit, hint) = match &error {
            EnrolError::Token => {
                (Exit::Usage, "make one on the hub: evenkeel hub enrol-token HOST")
            }
            EnrolError::Failed(_) => (
                Exit::Transient,
                "nothing was enrolled; is that the hub's address and certificate?",
            ),
            EnrolError::Refused { status: 401 | 403, .. } => (
                Exit::Denied,
                "a token is for one host, one use and one hour; a known host needs --replace",
            ),
            EnrolError::Refused { .. } | EnrolError::Answer => {
                (Exit::Failed, "look at the hub's log")
            }
            EnrolError::Statement(_) => (Exit::Invalid, "check `host_id` in agent.toml"),
        };
        Self::wrapping(exit, error).hint(hint)
    }
}
