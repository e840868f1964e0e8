//! From flags, environment and configuration file to a client, and from its errors to exit codes.
//!
//! A flag wins over the environment, which wins over the file. The token is never an argument: arguments
//! are seen by every user of the machine.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use evenkeel_agent::config::{AgentConfig, ConfigError, DEFAULT_PATH, OneOrMany};
use evenkeel_agent::find_guest::FindGuestError;
use evenkeel_agent::pve::Client;
use evenkeel_agent::pve::error::{Error, ErrorClass, NotSent};
use evenkeel_agent::pve::exchange::Exchange;
use evenkeel_agent::pve::http::{HttpExchange, Timeouts};
use evenkeel_agent::pve::token::{Token, TokenError};
use evenkeel_agent::source::dir::DirError;
use evenkeel_agent::state_dir::StateDir;
use evenkeel_core::model::id::NodeName;
use evenkeel_core::plan::SealKey;
use secrecy::SecretString;

use crate::cli::{ConnectArgs, StatePlace};
use crate::error::{CommandFailure, Exit};
use crate::render::counted;
use crate::render::diagnostic::render;

/// The variable that may hold the token itself.
const TOKEN_VARIABLE: &str = "PROXMOX_VE_API_TOKEN";

/// The variable that may hold the address, as `--url` takes it.
const URL_VARIABLE: &str = "PROXMOX_VE_ENDPOINT";

/// What a verb needs of the outside.
pub(crate) struct Connection {
    pub(crate) client: Client,
    pub(crate) config: AgentConfig,
    /// The public half of the token, for showing.
    pub(crate) token_id: String,
    /// What the secrets in a saved plan are sealed with.
    pub(crate) seal_key: SealKey,
}

/// Connects: nothing is sent before TLS has proved the server to be the right one.
pub(crate) async fn connect(arguments: &ConnectArgs) -> Result<Connection, CommandFailure> {
    ConnectionParts::read(arguments)?.connect(|exchange| exchange).await
}

/// What a connection is made of: everything that is read from files, before anything is dialled.
pub(crate) struct ConnectionParts {
    pub(crate) config: AgentConfig,
    token_id: String,
    seal_key: SealKey,
    exchange: HttpExchange,
}

impl ConnectionParts {
    /// Reads configuration, token and certificates, as the user who runs us.
    pub(crate) fn read(arguments: &ConnectArgs) -> Result<Self, CommandFailure> {
        let config = configuration(arguments)?;
        let endpoint = config.pve.endpoint()?;
        let trust = config.pve.trust()?;
        let token = match (&config.pve.token_file, std::env::var(TOKEN_VARIABLE)) {
            (None, Ok(text)) => {
                Token::from_text(&SecretString::from(text)).map_err(ConfigError::from)?
            }
            (Some(_) | None, _) => config.pve.token()?,
        };
        let token_id = token.id().to_owned();
        let seal_key = token.seal_key();
        let timeouts = arguments.timeout_s.map_or_else(Timeouts::default, timeouts);
        let exchange = HttpExchange::new(endpoint, &trust, token, timeouts);
        let exchange = exchange.map_err(ConfigError::from)?;
        Ok(Self { config, token_id, seal_key, exchange })
    }

    /// Connects, with something between the client and the wire.
    pub(crate) async fn connect(
        self,
        through: impl FnOnce(Arc<dyn Exchange>) -> Arc<dyn Exchange>,
    ) -> Result<Connection, CommandFailure> {
        let Self { config, token_id, seal_key, exchange } = self;
        let exchange = Arc::new(exchange);
        let node = match config.pve.node.clone() {
            Some(node) => node,
            None => answering_node(&exchange).await?,
        };
        Ok(Connection { client: Client::new(through(exchange), node), config, token_id, seal_key })
    }
}

/// The person's patience instead of ours; connecting is part of it.
fn timeouts(seconds: u64) -> Timeouts {
    let patience = Duration::from_secs(seconds);
    let usual = Timeouts::default();
    Timeouts {
        connect: usual.connect.min(patience),
        answer: patience,
        exchange: usual.exchange.max(patience),
    }
}

/// The desired files to read: the flag, or the configuration's directory.
pub(crate) fn desired_path(
    flag: Option<&camino::Utf8Path>,
    config: &AgentConfig,
) -> Result<PathBuf, CommandFailure> {
    flag.map(|path| path.as_std_path().to_owned())
        .or_else(|| config.desired.dir.clone())
        .ok_or_else(|| {
            let failure = CommandFailure::new(Exit::Invalid, "nothing says where the desired files are");
            if config.desired.hub.is_some() {
                return failure.hint("a hub says what is desired: `evenkeel status` shows what the agent makes of it");
            }
            failure.hint("name them with --desired PATH, or set `dir` under [desired] in agent.toml")
        })
}

/// The configuration file that is named, or the usual one if it is there.
pub(crate) fn configuration_file(
    named: Option<&camino::Utf8Path>,
) -> Result<AgentConfig, CommandFailure> {
    Ok(match named {
        Some(path) => AgentConfig::from_file(path.as_std_path())?,
        None if Path::new(DEFAULT_PATH).exists() => {
            AgentConfig::from_file(Path::new(DEFAULT_PATH))?
        }
        None => AgentConfig::default(),
    })
}

/// The state directory that is named, or the configuration's.
pub(crate) fn state_dir(named: Option<&camino::Utf8Path>, config: &AgentConfig) -> StateDir {
    named.map_or_else(|| config.state.state_dir(), |path| StateDir::new(path.as_std_path()))
}

/// The configuration with what flags and environment say instead.
pub(crate) fn configuration(arguments: &ConnectArgs) -> Result<AgentConfig, CommandFailure> {
    let mut config = configuration_file(arguments.config.as_deref())?;
    let pve = &mut config.pve;
    pve.url = arguments.url.clone().or(pve.url.take());
    pve.node = arguments.node.clone().or(pve.node.take());
    if let Some(path) = &arguments.token_file {
        pve.token_file = Some(path.as_std_path().to_owned());
    }
    if let Some(path) = &arguments.ca_file {
        (pve.ca_file, pve.fingerprint) =
            (Some(path.as_std_path().to_owned()), OneOrMany::default());
    }
    if !arguments.fingerprint.is_empty() {
        (pve.ca_file, pve.fingerprint) = (None, OneOrMany(arguments.fingerprint.clone()));
    }
    Ok(config)
}

/// The node that answers, by its own word; a list of nodes if that is not to be had.
pub(crate) async fn answering_node(
    exchange: &Arc<HttpExchange>,
) -> Result<NodeName, CommandFailure> {
    let anywhere: NodeName = "localhost".parse().expect("localhost is a node name");
    let client = Client::new(exchange.clone(), anywhere);
    let status = client.cluster_status().await;
    if let Ok(entries) = &status
        && let Some(local) = entries.rows.iter().find(|entry| entry.kind == "node" && entry.local)
        && let Ok(node) = local.name.parse()
    {
        return Ok(node);
    }
    let nodes = client.nodes().await?;
    match nodes.as_slice() {
        [only] => Ok(only.node.clone()),
        _ => Err(CommandFailure::new(Exit::Invalid, "it is not clear which node to look at")
            .hint("name it with --node, or set `node` under [pve] in agent.toml")),
    }
}

impl ConnectArgs {
    /// The way to Proxmox VE for a verb that takes nothing but a place: configuration file and environment.
    pub(crate) fn of(place: &StatePlace) -> Self {
        Self {
            config: place.config.clone(),
            url: std::env::var(URL_VARIABLE).ok(),
            node: None,
            token_file: None,
            fingerprint: Vec::new(),
            ca_file: None,
            timeout_s: None,
        }
    }
}

impl StatePlace {
    /// The state directory that is named, or the configuration's. If it is named no configuration is read, so
    /// that a mistake in one keeps nobody from freezing.
    pub(crate) fn state_dir(&self) -> Result<StateDir, CommandFailure> {
        match &self.state {
            Some(path) => Ok(StateDir::new(path.as_std_path())),
            None => Ok(configuration_file(self.config.as_deref())?.state.state_dir()),
        }
    }
}

impl From<Error> for CommandFailure {
    fn from(error: Error) -> Self {
        let exit = match &error {
            Error::NotSent { why, .. } => match why {
                NotSent::WrongPin { .. } | NotSent::Untrusted { .. } => Exit::Denied,
                NotSent::Connect { .. }
                | NotSent::ConnectTimeout { .. }
                | NotSent::Tls { .. }
                | NotSent::NodeNotReached { .. }
                | NotSent::StorageSilent { .. }
                | NotSent::StoragesCrowded { .. }
                | NotSent::StorageSlow { .. } => Exit::Transient,
                NotSent::TooLarge { .. } => Exit::Failed,
            },
            Error::Unknown { .. } => Exit::Transient,
            Error::Refused(refusal) => match &refusal.class {
                ErrorClass::Authentication | ErrorClass::Permission | ErrorClass::RootOnly => {
                    Exit::Denied
                }
                ErrorClass::GuestNotFound
                | ErrorClass::NotFound
                | ErrorClass::UnknownNode
                | ErrorClass::NoSuchTask => Exit::NotFound,
                ErrorClass::Locked { .. }
                | ErrorClass::LockTimeout
                | ErrorClass::NoQuorum
                | ErrorClass::DigestMismatch => Exit::Transient,
                ErrorClass::AlreadyExists
                | ErrorClass::AlreadyRunning
                | ErrorClass::NotRunning
                | ErrorClass::GuestRunning
                | ErrorClass::DidNotStop
                | ErrorClass::IsTemplate
                | ErrorClass::AlreadyAtSize
                | ErrorClass::Shrink
                | ErrorClass::Protected
                | ErrorClass::UsedInHa
                | ErrorClass::TooManyUnused
                | ErrorClass::NothingToDo
                | ErrorClass::ParameterRefused
                | ErrorClass::NotImplemented
                | ErrorClass::BodyTooLarge
                | ErrorClass::Redirected
                | ErrorClass::Other => Exit::Failed,
            },
        };
        let hint = error.hint().to_owned();
        Self::new(exit, error.to_string()).hint(hint)
    }
}

impl From<FindGuestError> for CommandFailure {
    fn from(error: FindGuestError) -> Self {
        let exit = match error {
            FindGuestError::Actual(error) => return error.into(),
            FindGuestError::Fatal(error) => return error.into(),
            FindGuestError::Selection(error) => return error.into(),
            FindGuestError::Elsewhere { .. } => Exit::NotFound,
            FindGuestError::Hidden(_) => Exit::Denied,
        };
        let hint = error.hint();
        Self::wrapping(exit, error).hint(hint)
    }
}

impl From<ConfigError> for CommandFailure {
    fn from(error: ConfigError) -> Self {
        let hint = error.hint();
        if let ConfigError::Malformed { path, mistakes } = &error {
            let count = counted(mistakes.errors.len(), "error");
            let message = format!("{} is not a valid configuration: {count}", path.display());
            let details = render(&mistakes.errors, &mistakes.sources);
            return Self::new(Exit::Invalid, message).details(details).hint(hint);
        }
        let exit = match &error {
            ConfigError::Unreadable(error) if error.is_not_found() => Exit::NotFound,
            ConfigError::Token(TokenError::Unreadable { error, .. }) if error.is_not_found() => {
                Exit::NotFound
            }
            ConfigError::Unreadable(_)
            | ConfigError::Loose(_)
            | ConfigError::Malformed { .. }
            | ConfigError::NoUrl
            | ConfigError::NoToken
            | ConfigError::TwoTrusts
            | ConfigError::Endpoint(_)
            | ConfigError::Fingerprint(_)
            | ConfigError::Trust(_)
            | ConfigError::Token(_) => Exit::Invalid,
        };
        Self::wrapping(exit, error).hint(hint)
    }
}

impl From<DirError> for CommandFailure {
    fn from(error: DirError) -> Self {
        let hint = error.hint();
        let exit = match &error {
            DirError::NotFound(_) => Exit::NotFound,
            DirError::Unreadable(_) => Exit::Failed,
            DirError::Name(_)
            | DirError::Empty(..)
            | DirError::TooMany(_)
            | DirError::TooMuch(_)
            | DirError::TooDeep(_)
            | DirError::LeadsOut { .. }
            | DirError::File(_)
            | DirError::Loose(_) => Exit::Invalid,
        };
        Self::wrapping(exit, error).hint(hint)
    }
}
