//! The hub of a node that `setup --hub` takes into a fleet: what its agent.toml says of it, and the enrolment itself.

use camino::Utf8PathBuf;
use evenkeel_agent::config::{AgentConfig, OneOrMany, hub_line};
use evenkeel_agent::hub_link::config::HubConfig;
use evenkeel_agent::state_dir::StateDir;
use secrecy::SecretString;

use super::super::enrol::{EnrolledHost, HostEnrolment, read_token, whole_path};
use super::node::NodeView;
use super::steps::{AGENT_TOML, HUB_CA_FILE, HUB_CREDENTIAL, STATE};
use crate::cli::SetupArgs;
use crate::error::{CommandFailure, Exit};
use crate::signing::file;

/// The largest certificate authority that is copied.
const AUTHORITY_BYTES_MAX: usize = 64 * 1024;

/// The hub of this node.
pub(super) struct FleetPart {
    /// Scheme, host and port.
    pub(super) url: String,
    /// The entry of agent.toml.
    pub(super) line: String,
    /// The hub's authority, to be copied to where the agent can read it.
    pub(super) authority: Option<String>,
    /// As it is dialled now.
    dialled: HubConfig,
    token_file: Option<Utf8PathBuf>,
}

impl FleetPart {
    /// The hub that is asked for, if the node can be its: an agent.toml that says otherwise is left to `enrol`.
    pub(super) fn read(
        arguments: &SetupArgs,
        node: &NodeView,
    ) -> Result<Option<Self>, CommandFailure> {
        let Some(url) = &arguments.hub else { return Ok(None) };
        let mut dialled = HubConfig {
            url: Some(url.clone()),
            ca_file: None,
            fingerprint: OneOrMany(arguments.fingerprint.clone()),
            credential_file: Some(node.at(HUB_CREDENTIAL).into_std_path_buf()),
        };
        let ca_file = arguments.ca_file.as_ref();
        dialled.ca_file = ca_file.map(|path| whole_path(path.as_std_path())).transpose()?;
        let url = dialled.address()?.origin().to_owned();
        dialled.url = Some(url.clone());
        let authority =
            ca_file.map(|path| file::read_text(path, AUTHORITY_BYTES_MAX)).transpose()?;
        let written = HubConfig {
            ca_file: ca_file.map(|_| HUB_CA_FILE.into()),
            credential_file: Some(HUB_CREDENTIAL.into()),
            ..dialled.clone()
        };
        let line = hub_line(&written)
            .map_err(|error| CommandFailure::new(Exit::Invalid, error.to_string()))?;
        if node.file(AGENT_TOML).is_some() {
            demand_same_hub(node.hub_config()?, &url)?;
        }
        let token_file = arguments.enrol_token_file.clone();
        Ok(Some(Self { url, line, authority, dialled, token_file }))
    }

    pub(super) fn read_token(&self) -> Result<SecretString, CommandFailure> {
        read_token(self.token_file.as_deref())
    }

    /// Enrols the node under its own name.
    pub(super) async fn enrol(
        &self,
        node: &NodeView,
        token: SecretString,
    ) -> Result<EnrolledHost, CommandFailure> {
        let id = node.name.parse().map_err(|error| {
            CommandFailure::new(
                Exit::Invalid,
                format!("{} cannot be a host's id: {error}", node.name),
            )
        })?;
        let state = StateDir::new(node.at(STATE).into_std_path_buf());
        let enrolment = HostEnrolment { id, hub: &self.dialled, state: &state, replace: false };
        enrolment.carry_out(move || Ok(token)).await
    }
}

/// An agent.toml that is there must name this hub already.
fn demand_same_hub(config: Option<AgentConfig>, url: &str) -> Result<(), CommandFailure> {
    let hub = config.and_then(|config| config.desired.hub);
    if hub.is_some_and(|hub| hub.address().is_ok_and(|there| there.origin() == url)) {
        return Ok(());
    }
    let message = format!("{AGENT_TOML} is there, and does not take its documents from {url}");
    Err(CommandFailure::new(Exit::Invalid, message).hint(format!(
        "setup changes no agent.toml that is there: `systemctl stop evenkeel`, then `evenkeel enrol {url}`, which shows \
         what it writes there and asks"
    )))
}
