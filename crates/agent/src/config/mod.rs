//! `agent.toml`: where Proxmox VE is, where desired state comes from, where our own state goes.
//!
//! Root's file: nothing in it ever comes from a hub. Unknown keys are refused, because a misspelt limit is
//! a limit that does not hold.

mod cluster_fs;
mod hub_entry;
mod mistakes;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use evenkeel_core::model::id::{HostId, NodeName};
use secrecy::SecretString;
use serde::Deserialize;

use crate::daemon::places;
use crate::first_secrets::{DEFAULT_SECRETS, FirstSecrets};
use crate::hub_link::config::HubConfig;
use crate::path_trust::{LoosePath, check_path};
use crate::plain_file::{self, FileError};
use crate::policy::Policy;
use crate::pve::endpoint::{Endpoint, EndpointError};
use crate::pve::tls::{CertFingerprint, FingerprintError, TlsTrust, TrustError};
use crate::pve::token::{Token, TokenError};
use crate::secret_file::SECRET_BYTES_MAX;
use crate::state_dir::StateDir;

pub use cluster_fs::ClusterFsConfig;
pub use hub_entry::{HubEdit, HubEditError, hub_line, with_hub};
pub use mistakes::ConfigMistakes;

/// Where it is looked for if nobody says.
pub const DEFAULT_PATH: &str = "/etc/evenkeel/agent.toml";

/// The largest configuration that is read; with every key and a comment for each it has two thousand bytes.
const CONFIG_BYTES_MAX: usize = 64 << 10;

/// The file as written.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentConfig {
    /// This host, as the fleet knows it.
    pub host_id: Option<HostId>,
    /// Proxmox VE.
    #[serde(default)]
    pub pve: PveConfig,
    /// Desired state.
    #[serde(default)]
    pub desired: DesiredConfig,
    /// Our own state.
    #[serde(default)]
    pub state: StateConfig,
    /// Who may sign.
    #[serde(default)]
    pub trust: TrustConfig,
    /// Passwords for new guests.
    #[serde(default)]
    pub secrets: SecretsConfig,
    /// The host's own limits.
    #[serde(default)]
    pub policy: Policy,
    /// Numbers for Prometheus.
    #[serde(default)]
    pub metrics: MetricsConfig,
    /// Seconds between two passes of `run`.
    #[serde(default = "interval_default_s", deserialize_with = "interval_s")]
    pub interval: u64,
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self {
            host_id: None,
            pve: PveConfig::default(),
            desired: DesiredConfig::default(),
            state: StateConfig::default(),
            trust: TrustConfig::default(),
            secrets: SecretsConfig::default(),
            policy: Policy::default(),
            metrics: MetricsConfig::default(),
            interval: interval_default_s(),
        }
    }
}

/// `[state]`: what must survive a restart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateConfig {
    /// The state directory.
    pub dir: Option<PathBuf>,
}

/// `[trust]`: who may sign. Without the file nobody may, and everything destructive waits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustConfig {
    /// The trust file.
    pub file: Option<PathBuf>,
}

impl TrustConfig {
    /// The trust file that is meant; it need not be there.
    pub fn path(&self) -> PathBuf {
        self.file.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_TRUST))
    }
}

/// Where the trust file is looked for if nobody says.
pub const DEFAULT_TRUST: &str = "/etc/evenkeel/trust.toml";

/// `[secrets]`: root's secrets for new guests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretsConfig {
    /// The directory with a file for each.
    pub dir: Option<PathBuf>,
}

impl SecretsConfig {
    /// The secrets that are meant; the directory need not be there.
    pub fn store(&self) -> FirstSecrets {
        FirstSecrets::new(self.dir.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_SECRETS)))
    }
}

/// `[metrics]`: numbers for Prometheus, on loopback, or elsewhere for those who show a token.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "MetricsWire")]
pub struct MetricsConfig {
    /// Where to listen; nobody listens if absent.
    pub listen: Option<SocketAddr>,
    /// A file of mode 0600 with the bearer token that must be shown.
    pub token_file: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MetricsWire {
    listen: Option<SocketAddr>,
    token_file: Option<PathBuf>,
}

/// The numbers name every guest: without a token they stay on this machine.
impl TryFrom<MetricsWire> for MetricsConfig {
    type Error = String;

    fn try_from(wire: MetricsWire) -> Result<Self, String> {
        let MetricsWire { listen, token_file } = wire;
        match (listen, &token_file) {
            (Some(address), None) if !address.ip().is_loopback() => Err(format!(
                "`listen` = \"{address}\" lets other machines read the metrics: set `token_file` too, or listen on a \
                 loopback address, such as 127.0.0.1:9469"
            )),
            (Some(_) | None, Some(_) | None) => Ok(Self { listen, token_file }),
        }
    }
}

/// A pass a minute costs a node of a hundred guests two seconds of one of its three workers.
fn interval_default_s() -> u64 {
    60
}

/// The shortest interval: a pass over a large node takes about that long.
pub(crate) const INTERVAL_MIN_S: u64 = 5;

/// The longest interval: beyond a day drift is not kept but audited.
pub(crate) const INTERVAL_MAX_S: u64 = 86_400;

fn interval_s<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let seconds = match IntervalWire::deserialize(deserializer)? {
        IntervalWire::Seconds(seconds) => Some(seconds),
        IntervalWire::Text(text) => seconds_of(&text),
    };
    let Some(seconds) = seconds else {
        let why = "it must be a number of seconds, or a time such as \"60s\", \"5m\" or \"1h\"";
        return Err(serde::de::Error::custom(why));
    };
    if (INTERVAL_MIN_S..=INTERVAL_MAX_S).contains(&seconds) {
        Ok(seconds)
    } else {
        let range = format!("it must lie between {INTERVAL_MIN_S} s and {INTERVAL_MAX_S} s");
        Err(serde::de::Error::custom(format_args!("{range}, which is a day")))
    }
}

/// Seconds, or a number with its unit.
#[derive(Deserialize)]
#[serde(untagged, expecting = "invalid value: neither seconds nor a time")]
enum IntervalWire {
    Seconds(u64),
    Text(String),
}

/// `60s`, `5m`, `1h`, `1d`, or seconds without a unit.
fn seconds_of(text: &str) -> Option<u64> {
    let text = text.trim();
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number: u64 = text[..text.len() - unit.len()].parse().ok()?;
    let factor = match unit.trim_start() {
        "" | "s" | "sec" | "second" | "seconds" => 1,
        "m" | "min" | "minute" | "minutes" => 60,
        "h" | "hour" | "hours" => 60 * 60,
        "d" | "day" | "days" => 24 * 60 * 60,
        _ => return None,
    };
    number.checked_mul(factor)
}

/// `[pve]`: which node, and how to reach and trust it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PveConfig {
    /// `https://pve1.example:8006`.
    pub url: Option<String>,
    /// The node this agent keeps.
    pub node: Option<NodeName>,
    /// A file of mode 0600 with `user@realm!tokenid=secret`.
    pub token_file: Option<PathBuf>,
    /// SHA-256 of the server's certificate: one, or several while it is renewed.
    #[serde(default)]
    pub fingerprint: OneOrMany,
    /// A PEM file with the certificate authority.
    pub ca_file: Option<PathBuf>,
    /// Where the node tells which configuration files were written.
    #[serde(default)]
    pub cluster_fs: ClusterFsConfig,
}

/// `[desired]`: where desired state comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "DesiredWire")]
pub struct DesiredConfig {
    /// A directory of desired files.
    pub dir: Option<PathBuf>,
    /// A hub. There is never both: nobody could tell which of two wishes holds.
    pub hub: Option<HubConfig>,
    /// After how many seconds without a newly signed document of the hub `status` and `doctor` warn; none warns never.
    pub fresh_within_s: Option<u64>,
}

/// The shortest and the longest of such times. Nobody signs by the minute, and a year is never.
const FRESH_WITHIN_S: std::ops::RangeInclusive<u64> = 3_600..=366 * 86_400;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DesiredWire {
    dir: Option<PathBuf>,
    hub: Option<HubConfig>,
    fresh_within: Option<IntervalWire>,
}

impl TryFrom<DesiredWire> for DesiredConfig {
    type Error = String;

    fn try_from(DesiredWire { dir, hub, fresh_within }: DesiredWire) -> Result<Self, String> {
        if dir.is_some() && hub.is_some() {
            return Err("`dir` and `hub` are both set, and only one can say what is desired: keep one of them".to_owned());
        }
        if fresh_within.is_some() && hub.is_none() {
            return Err("`fresh_within` is about the documents of a hub, and there is none: remove it, or write `hub`".to_owned());
        }
        let seconds = |wire| match wire {
            IntervalWire::Seconds(seconds) => Some(seconds),
            IntervalWire::Text(text) => seconds_of(&text),
        };
        let fresh_within_s = fresh_within
            .map(|wire| {
                let seconds = seconds(wire).filter(|seconds| FRESH_WITHIN_S.contains(seconds));
                let why = "`fresh_within` must be a time such as \"7d\", between 1h and 366d";
                seconds.ok_or_else(|| why.to_owned())
            })
            .transpose()?;
        Ok(Self { dir, hub, fresh_within_s })
    }
}

/// A text or a list of texts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "OneOrManyWire")]
pub struct OneOrMany(pub Vec<String>);

#[derive(Deserialize)]
#[serde(untagged, expecting = "a text or a list of texts")]
enum OneOrManyWire {
    One(String),
    Many(Vec<String>),
}

impl From<OneOrManyWire> for OneOrMany {
    fn from(wire: OneOrManyWire) -> Self {
        match wire {
            OneOrManyWire::One(text) => Self(vec![text]),
            OneOrManyWire::Many(texts) => Self(texts),
        }
    }
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("the configuration cannot be used: {0}")]
    Unreadable(FileError),
    /// Somebody else could have written it.
    #[error("the configuration is not believed: {0}")]
    Loose(LoosePath),
    /// The file makes no sense.
    #[error(
        "{} is not a valid configuration:\n{}", path.display(), places(&mistakes.errors, &mistakes.sources)
    )]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Everything that is wrong with it.
        mistakes: Box<ConfigMistakes>,
    },
    /// Nothing says where Proxmox VE is.
    #[error("nothing says where Proxmox VE is")]
    NoUrl,
    /// Nothing says which token to use.
    #[error("nothing says which API token to use")]
    NoToken,
    /// Both a pin and an authority are given.
    #[error("`fingerprint` and `ca_file` are both set, and only one can decide whom to trust")]
    TwoTrusts,
    /// The address cannot be used.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// A fingerprint cannot be read.
    #[error(transparent)]
    Fingerprint(#[from] FingerprintError),
    /// The trust settings cannot be used.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The token cannot be used.
    #[error(transparent)]
    Token(#[from] TokenError),
}

impl ConfigError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Unreadable(_) => format!("name the file with --config; the default is {DEFAULT_PATH}"),
            Self::Loose(loose) => loose.hint(),
            Self::Malformed { .. } => "correct the file; docs/reference/agent.toml has every key".to_owned(),
            Self::NoUrl => {
                "set `url` under [pve] in agent.toml, or PROXMOX_VE_ENDPOINT in the environment".to_owned()
            }
            Self::NoToken => {
                "set `token_file` under [pve] in agent.toml, or PROXMOX_VE_API_TOKEN in the environment"
                    .to_owned()
            }
            Self::TwoTrusts => "keep one of them".to_owned(),
            Self::Endpoint(error) => error.hint().to_owned(),
            Self::Fingerprint(_) => {
                "on the node: openssl x509 -in /etc/pve/local/pve-ssl.pem -noout -fingerprint -sha256".to_owned()
            }
            Self::Trust(error) => error.hint(),
            Self::Token(error) => error.hint(),
        }
    }
}

impl AgentConfig {
    /// Reads a configuration file that nobody but root and we could have written.
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        Self::with_text(path).map(|(config, _)| config)
    }

    /// The same with the text of the file, for whoever writes into it.
    pub fn with_text(path: &Path) -> Result<(Self, String), ConfigError> {
        let file = plain_file::read(path, CONFIG_BYTES_MAX).map_err(ConfigError::Unreadable)?;
        check_path(path).map_err(ConfigError::Loose)?;
        let malformed = |mistakes| ConfigError::Malformed {
            path: path.to_owned(),
            mistakes: Box::new(mistakes),
        };
        let name = path.display().to_string();
        let text =
            String::from_utf8(file.bytes).map_err(|_| malformed(mistakes::not_text(&name)))?;
        match toml::from_str(&text) {
            Ok(config) => Ok((config, text)),
            Err(error) => Err(malformed(mistakes::all_of(&name, &text, &error))),
        }
    }
}

impl StateConfig {
    /// The state directory that is meant.
    pub fn state_dir(&self) -> StateDir {
        StateDir::new(self.dir.clone().unwrap_or_else(StateDir::default_path))
    }
}

impl PveConfig {
    /// The address of the node's API.
    pub fn endpoint(&self) -> Result<Endpoint, ConfigError> {
        Ok(self.url.as_deref().ok_or(ConfigError::NoUrl)?.parse::<Endpoint>()?)
    }

    /// Whom to trust: the pinned certificates, the named authority, or the system's.
    pub fn trust(&self) -> Result<TlsTrust, ConfigError> {
        match (self.fingerprint.0.as_slice(), &self.ca_file) {
            ([], None) => Ok(TlsTrust::Platform),
            ([], Some(path)) => Ok(TlsTrust::from_ca_file(path)?),
            (_, Some(_)) => Err(ConfigError::TwoTrusts),
            (pins, None) => {
                let pins: Result<Vec<CertFingerprint>, _> =
                    pins.iter().map(|pin| pin.parse()).collect();
                Ok(TlsTrust::pinned(pins?)?)
            }
        }
    }

    /// The token: the copy that the service manager hands over (`LoadCredential=token:…`), or from its file, which then
    /// only root need be able to read.
    pub fn token(&self) -> Result<Token, ConfigError> {
        let credentials = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
        self.token_beside(credentials.as_deref())
    }

    fn token_beside(&self, credentials: Option<&Path>) -> Result<Token, ConfigError> {
        let copy =
            credentials.map(|directory| directory.join("token")).filter(|copy| copy.exists());
        let Some(copy) = copy else {
            return Ok(Token::from_file(self.token_file.as_deref().ok_or(ConfigError::NoToken)?)?);
        };
        // Who may read it is the service manager's business: it uses access lists, which look like an open mode.
        let unreadable = |error| TokenError::Unreadable { path: copy.clone(), error };
        let read = plain_file::read(&copy, SECRET_BYTES_MAX).map_err(unreadable)?;
        let text = String::from_utf8(read.bytes)
            .map_err(|_| TokenError::Malformed { why: "it is not text" })?;
        Ok(Token::from_text(&SecretString::from(text))?)
    }
}

#[cfg(test)]
mod tests;
