//! `evenkeel run`: the agent, until it is told to end. Everything it is told stands in its configuration file.

use std::path::PathBuf;
use std::sync::Arc;

use evenkeel_agent::ambient::Machine;
use evenkeel_agent::config::{AgentConfig, ConfigError, DEFAULT_PATH};
use evenkeel_agent::daemon::systemd::Systemd;
use evenkeel_agent::daemon::{self, DaemonError, Setup};
use evenkeel_agent::pve::http::{HttpExchange, Timeouts};

use crate::cli;
use crate::connect::answering_node;
use crate::error::{CommandFailure, Exit};
use crate::logging;

pub(crate) async fn run(arguments: &cli::RunArgs) -> Result<Exit, CommandFailure> {
    logging::begin(arguments.log, arguments.log_format);
    let named = arguments.config.as_deref().map(|path| path.as_std_path().to_owned());
    let config_path = named.unwrap_or_else(|| PathBuf::from(DEFAULT_PATH));
    let config = AgentConfig::from_file(&config_path)?;
    let endpoint = config.pve.endpoint()?;
    let trust = config.pve.trust()?;
    let token = config.pve.token()?;
    let owner = token.id().to_owned();
    let seal_key = token.seal_key();
    let exchange = HttpExchange::new(endpoint.clone(), &trust, token, Timeouts::default());
    let exchange = Arc::new(exchange.map_err(ConfigError::from)?);
    let node = match config.pve.node.clone() {
        Some(node) => node,
        None => answering_node(&exchange).await.map_err(|failure| {
            failure.hint("with `node` under [pve] the agent starts while Proxmox VE is down")
        })?,
    };
    let cluster_files = config.pve.cluster_fs.files(&node, &endpoint);
    let setup = Setup {
        cluster_files,
        state: config.state.state_dir(),
        config,
        config_path,
        exchange,
        node,
        owner,
        seal_key,
        ambient: Arc::new(Machine),
        version: env!("CARGO_PKG_VERSION"),
    };
    daemon::run(setup, Systemd::from_environment()).await?;
    Ok(Exit::Ok)
}

impl From<DaemonError> for CommandFailure {
    fn from(error: DaemonError) -> Self {
        match error {
            DaemonError::State(error) => error.into(),
            DaemonError::ApprovalContext(error) => error.into(),
            DaemonError::Fatal(error) => error.into(),
            DaemonError::Socket(_) => Self::wrapping(Exit::Failed, error)
                .hint("is the path longer than 107 bytes? name another with `dir` under [state]"),
            DaemonError::Metrics { .. } => Self::wrapping(Exit::Failed, error)
                .hint("is the port taken? set another `listen` under [metrics]"),
            DaemonError::MetricsToken(error) => {
                let hint = error.hint();
                Self::wrapping(Exit::Invalid, DaemonError::MetricsToken(error)).hint(hint)
            }
            DaemonError::Hub(error) => {
                let hint = error.hint();
                Self::wrapping(Exit::Invalid, DaemonError::Hub(error)).hint(hint)
            }
            DaemonError::Signals(_) => Self::wrapping(Exit::Failed, error),
        }
    }
}
