//! Arguments of `hub`: the server of a fleet, and what is done to its database on its own machine.

use std::net::SocketAddr;

use camino::Utf8PathBuf;
use clap::{Args, Subcommand, ValueEnum};
use evenkeel_core::model::id::HostId;
use evenkeel_hub::server::AddressRange;

use super::{LogFormat, LogLevel, OutputArgs};

/// Arguments of `hub`.
#[derive(Debug, Args)]
pub(crate) struct HubArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<HubVerb>,
    #[command(flatten)]
    pub(crate) place: HubPlace,
    /// The address to listen on
    #[arg(
        long,
        value_name = "ADDR",
        env = "EVENKEEL_HUB_LISTEN",
        default_value = "127.0.0.1:8443"
    )]
    pub(crate) listen: SocketAddr,
    /// The URL for people and hosts, such as <https://hub.example.org> [default: made from the address]
    #[arg(long, value_name = "URL", env = "EVENKEEL_HUB_PUBLIC_URL")]
    pub(crate) public_url: Option<String>,
    /// A certificate with its chain, as PEM; the hub reloads it when it changes [default: the hub makes its own at the first
    /// start]
    #[arg(long, value_name = "FILE", requires = "tls_key", conflicts_with = "plain_http")]
    pub(crate) tls_cert: Option<Utf8PathBuf>,
    /// The certificate's key, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<Utf8PathBuf>,
    /// Speak plain HTTP, behind a proxy that encrypts or on loopback
    #[arg(long)]
    pub(crate) plain_http: bool,
    /// A proxy, or a network of proxies, trusted to name the client's address; may be given several times
    #[arg(
        long,
        value_name = "ADDR[/BITS]",
        env = "EVENKEEL_HUB_TRUSTED_PROXY",
        value_delimiter = ','
    )]
    pub(crate) trusted_proxy: Vec<AddressRange>,
    /// The header in which such a proxy names the client's address
    #[arg(
        long,
        value_name = "NAME",
        default_value = "x-forwarded-for",
        requires = "trusted_proxy"
    )]
    pub(crate) client_address_header: String,
    /// A file with the token for /metrics [default: /metrics answers on this machine only]
    #[arg(long, value_name = "FILE", env = "EVENKEEL_HUB_METRICS_TOKEN_FILE")]
    pub(crate) metrics_token_file: Option<Utf8PathBuf>,
    /// How much to log on stderr
    #[arg(long, env = "EVENKEEL_LOG", value_name = "LEVEL", value_enum, default_value_t = LogLevel::Info)]
    pub(crate) log: LogLevel,
    /// The form of the log
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Where a hub keeps everything.
#[derive(Debug, Args)]
pub(crate) struct HubPlace {
    /// The state directory, for the certificate and, without --database, the database
    #[arg(
        long,
        global = true,
        env = "EVENKEEL_HUB_STATE",
        value_name = "DIR",
        default_value = "/var/lib/evenkeel-hub"
    )]
    pub(crate) state: Utf8PathBuf,
    /// `postgres://USER@HOST/NAME` for several replicas, or `sqlite:FILE` [default: hub.sqlite in the state directory]
    #[arg(
        long,
        global = true,
        env = "EVENKEEL_HUB_DATABASE",
        value_name = "URL",
        hide_env_values = true
    )]
    pub(crate) database: Option<String>,
    /// The directory for old audit lines [default: `audit` beside the SQLite file; with PostgreSQL they stay in the database]
    #[arg(long, global = true, env = "EVENKEEL_HUB_AUDIT_ARCHIVE", value_name = "DIR")]
    pub(crate) audit_archive: Option<Utf8PathBuf>,
}

/// The verbs of `hub`, for use on its own machine.
#[derive(Debug, Subcommand)]
pub(crate) enum HubVerb {
    /// Manage the accounts of people
    #[command(subcommand)]
    Account(HubAccountVerb),
    /// Make a token for one host to enrol with, once, within an hour
    EnrolToken {
        /// The host's id, as in its agent.toml
        host: HostId,
        /// The host is already enrolled, and has a new key or needs a new credential
        #[arg(long)]
        replace: bool,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Manage hosts: list, label, remove
    #[command(subcommand)]
    Host(HubHostVerb),
    /// Show the hub's audit, and check its archive
    #[command(subcommand)]
    Audit(HubAuditVerb),
    /// Copy the database to a new file, while the hub runs; the original does not change, even if an older version made it
    Backup {
        /// The new file; it must not exist
        file: Utf8PathBuf,
    },
    /// Replace the database by a backup; stop the hub first
    Restore {
        /// The file that `hub backup` made
        file: Utf8PathBuf,
    },
    /// Check that the database is intact, and count its rows
    Check {
        #[command(flatten)]
        output: OutputArgs,
    },
}

/// What is done to accounts.
#[derive(Debug, Subcommand)]
pub(crate) enum HubAccountVerb {
    /// Make an account
    Add {
        /// Its name
        name: String,
        /// Its role
        #[arg(long, value_enum)]
        role: AccountRole,
        /// The public key that its owner logs in with
        #[arg(long, value_name = "FILE.pub")]
        key: Utf8PathBuf,
        /// Its hosts: `*`, `eu-*`
        #[arg(long, value_name = "GLOB", default_value = "*")]
        scope: String,
    },
    /// List the accounts: role, hosts, keys and their last use
    List {
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Give an account another role or scope, at once, also in its open sessions
    Change {
        /// Its name
        name: String,
        /// Its role
        #[arg(long, value_enum)]
        role: AccountRole,
        /// Its hosts: `*`, `eu-*`
        #[arg(long, value_name = "GLOB")]
        scope: String,
    },
    /// Remove an account, and end its tokens and sessions at once
    Remove {
        /// Its name
        name: String,
    },
    /// Give an account another key
    AddKey {
        /// The account's name
        name: String,
        /// The public key
        #[arg(long, value_name = "FILE.pub")]
        key: Utf8PathBuf,
    },
    /// Take a key from an account, and end the tokens made with it at once
    RemoveKey {
        /// The account's name
        name: String,
        /// The key's fingerprint, as `hub account list` shows it
        fingerprint: String,
    },
    /// End every token and session of an account
    Logout {
        /// Its name
        name: String,
    },
}

/// What is done with the audit.
#[derive(Debug, Subcommand)]
pub(crate) enum HubAuditVerb {
    /// Show the acts of people, archived ones too, newest first
    List {
        /// How many lines
        #[arg(long, value_name = "N", default_value_t = 100)]
        last: usize,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Check that no line of the archive has changed, and that the database continues it without a gap
    Verify {
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Begin a new archive if the old one is lost or put aside
    Begin,
}

/// What is done to hosts.
#[derive(Debug, Subcommand)]
pub(crate) enum HubHostVerb {
    /// List every host
    List {
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Forget a host, and end its credential at once
    Remove {
        /// The host
        host: HostId,
    },
    /// Set labels: `site=berlin`; `site-` takes one away
    Label {
        /// The host
        host: HostId,
        /// The labels
        #[arg(required = true, value_name = "NAME=VALUE|NAME-")]
        labels: Vec<String>,
    },
}

/// What an account may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AccountRole {
    /// View only
    Viewer,
    /// Push documents and hand in envelopes
    Editor,
    /// Manage hosts and accounts
    Admin,
}
