//! `evenkeel enrol URL`: takes this host into a fleet, once, while no agent runs.
//!
//! The token comes from a file or from stdin, never from an argument. What is printed is the host's key, which operators
//! pin: no hub is ever asked for it.

mod agent_toml;
mod host_enrolment;

use std::path::{Path, PathBuf};

use evenkeel_agent::config::{AgentConfig, OneOrMany};
use evenkeel_agent::hub_link::config::{HubConfig, HubConfigError};
use evenkeel_agent::hub_link::enrol::EnrolError;
use evenkeel_core::model::id::HostId;

use crate::cli::{EnrolHostArgs, OutputFormat};
use crate::connect::state_dir;
use crate::error::{CommandFailure, Exit};
use crate::{format, terminal};
use agent_toml::AgentToml;
pub(super) use host_enrolment::{EnrolledHost, HostEnrolment, read_token};

pub(crate) async fn run(arguments: &EnrolHostArgs) -> Result<Exit, CommandFailure> {
    let agent_toml = AgentToml::read(arguments.local.place.config.as_deref())?;
    let config = &agent_toml.config;
    let hub = hub_config(arguments, config)?;
    let id = host_id(config)?;
    let writing = agent_toml.plan(&hub, arguments)?;
    let state = state_dir(arguments.local.place.state.as_deref(), config);
    let enrolment = HostEnrolment { id, hub: &hub, state: &state, replace: arguments.replace };
    let enrolled = enrolment.carry_out(|| read_token(arguments.token_file.as_deref())).await?;
    if arguments.local.output.output == OutputFormat::Table {
        terminal::print(&enrolled.words())?;
    }
    let is_configured = writing.carry_out(arguments.yes)?;
    if arguments.local.output.output == OutputFormat::Json {
        print_json(&enrolled, &hub, is_configured)?;
    }
    Ok(Exit::Ok)
}

/// Under which name this host enrols, and signs.
pub(super) fn host_id(config: &AgentConfig) -> Result<HostId, CommandFailure> {
    let no_host_id = || {
        CommandFailure::new(Exit::Invalid, "nothing says which host this is")
            .hint("set `host_id` in agent.toml to the name the token was made for")
    };
    match (&config.host_id, &config.pve.node) {
        (Some(id), _) => Ok(id.clone()),
        (None, Some(node)) => node.as_str().parse().map_err(|_| no_host_id()),
        (None, None) => Err(no_host_id()),
    }
}

/// The hub as the flags say, or as it is configured where they say nothing. Paths are whole: the agent starts elsewhere.
fn hub_config(
    arguments: &EnrolHostArgs,
    config: &AgentConfig,
) -> Result<HubConfig, CommandFailure> {
    let mut hub = config.desired.hub.clone().unwrap_or_default();
    hub.url = Some(arguments.url.clone());
    if let Some(path) = &arguments.ca_file {
        (hub.ca_file, hub.fingerprint) =
            (Some(whole_path(path.as_std_path())?), OneOrMany::default());
    }
    if !arguments.fingerprint.is_empty() {
        (hub.ca_file, hub.fingerprint) = (None, OneOrMany(arguments.fingerprint.clone()));
    }
    if let Some(path) = &arguments.credential_file {
        hub.credential_file = Some(whole_path(path.as_std_path())?);
    }
    hub.credential_file = Some(hub.credential_path());
    let origin = hub.address()?.origin().to_owned();
    hub.url = Some(origin);
    Ok(hub)
}

/// A path from the root, so that it means the same wherever it is read.
pub(super) fn whole_path(path: &Path) -> Result<PathBuf, CommandFailure> {
    std::path::absolute(path).map_err(|error| {
        let message = format!("{} is no path", path.display());
        CommandFailure::new(Exit::Usage, message).because(error)
    })
}

fn print_json(
    enrolled: &EnrolledHost,
    hub: &HubConfig,
    is_configured: bool,
) -> Result<(), CommandFailure> {
    format::print(&serde_json::json!({
        "format_version": 1,
        "host": enrolled.host.id.to_string(),
        "host_key": enrolled.host.key.to_string(),
        "known_hosts": enrolled.pin_line(),
        "hub_id": enrolled.hub_id.to_string(),
        "hub": hub.url,
        "credential_file": hub.credential_path(),
        "configured": is_configured,
    }))
}

impl From<HubConfigError> for CommandFailure {
    fn from(error: HubConfigError) -> Self {
        let hint = error.hint();
        Self::wrapping(Exit::Invalid, error).hint(hint)
    }
}

impl From<EnrolError> for CommandFailure {
    fn from(error: EnrolError) -> Self {
        let (exit, hint) = match &error {
            EnrolError::Token => {
                (Exit::Usage, "an admin of the hub makes one: evenkeel fleet enrol-token HOST")
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
