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
    /// Where to listen
    #[arg(
        long,
        value_name = "ADDR",
        env = "EVENKEEL_HUB_LISTEN",
        default_value = "127.0.0.1:8443"
    )]
    pub(crate) listen: SocketAddr,
    /// What people and hosts dial, such as <https://hub.example.org> [default: made from the address]
    #[arg(long, value_name = "URL", env = "EVENKEEL_HUB_PUBLIC_URL")]
    pub(crate) public_url: Option<String>,
    /// A certificate with its chain, as PEM; read again when it changes [default: one of its own, made at the first start]
    #[arg(long, value_name = "FILE", requires = "tls_key", conflicts_with = "plain_http")]
    pub(crate) tls_cert: Option<Utf8PathBuf>,
    /// The certificate's key, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<Utf8PathBuf>,
    /// Speak plain HTTP: behind a proxy that encrypts, or on loopback
    #[arg(long)]
    pub(crate) plain_http: bool,
    /// A proxy in front, or a network of them, whose word counts for where requests come from; may be given several times
    #[arg(
        long,
        value_name = "ADDR[/BITS]",
        env = "EVENKEEL_HUB_TRUSTED_PROXY",
        value_delimiter = ','
    )]
    pub(crate) trusted_proxy: Vec<AddressRange>,
    /// The header in which such a proxy adds the address it was asked from
    #[arg(
        long,
        value_name = "NAME",
        default_value = "x-forwarded-for",
        requires = "trusted_proxy"
    )]
    pub(crate) client_address_header: String,
    /// A file with the token that /metrics is read with [default: /metrics is read on this machine alone]
    #[arg(long, value_name = "FILE", env = "EVENKEEL_HUB_METRICS_TOKEN_FILE")]
    pub(crate) metrics_token_file: Option<Utf8PathBuf>,
    /// How much to log, on stderr
    #[arg(long, env = "EVENKEEL_LOG", value_name = "LEVEL", value_enum, default_value_t = LogLevel::Info)]
    pub(crate) log: LogLevel,
    /// How to log
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Where a hub keeps everything.
#[derive(Debug, Args)]
pub(crate) struct HubPlace {
    /// The state directory: certificate, and the database unless --database names another
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
    /// Where old lines of the audit are archived [default: `audit` beside the SQLite file; with PostgreSQL they stay in the database]
    #[arg(long, global = true, env = "EVENKEEL_HUB_AUDIT_ARCHIVE", value_name = "DIR")]
    pub(crate) audit_archive: Option<Utf8PathBuf>,
}

/// What is done to a hub on its own machine.
#[derive(Debug, Subcommand)]
pub(crate) enum HubVerb {
    /// Accounts of people
    #[command(subcommand)]
    Account(HubAccountVerb),
    /// Make the token with which a host enrols: one use, an hour
    EnrolToken {
        /// The host's id, as in its agent.toml
        host: HostId,
        /// The host is known and comes with a new key or needs a new credential
        #[arg(long)]
        replace: bool,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Hosts: list, label, remove
    #[command(subcommand)]
    Host(HubHostVerb),
    /// What people did: show it, and check its archive
    #[command(subcommand)]
    Audit(HubAuditVerb),
    /// Copy the database to a new file, while the hub runs; nothing of the original changes, whichever version made it
    Backup {
        /// The file; it must not exist
        file: Utf8PathBuf,
    },
    /// Put a backup in the place of the database; no hub may be running on it
    Restore {
        /// The file that `hub backup` made
        file: Utf8PathBuf,
    },
    /// Check that the database is whole, and tell how much is in it
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
        /// What it may do
        #[arg(long, value_enum)]
        role: AccountRole,
        /// The public key its owner signs in with
        #[arg(long, value_name = "FILE.pub")]
        key: Utf8PathBuf,
        /// For which hosts: `*`, `eu-*`
        #[arg(long, value_name = "GLOB", default_value = "*")]
        scope: String,
    },
    /// Show every account: role, hosts, keys, and when each was used last
    List {
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Give an account another role or scope, which hold at once for whatever it has open
    Change {
        /// Its name
        name: String,
        /// What it may do
        #[arg(long, value_enum)]
        role: AccountRole,
        /// For which hosts: `*`, `eu-*`
        #[arg(long, value_name = "GLOB")]
        scope: String,
    },
    /// Remove an account; its tokens and sessions end at once
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
    /// Take a key from an account; the tokens it made end at once
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
    /// Show what people did, also what is in the archive, newest first
    List {
        /// How many lines
        #[arg(long, value_name = "N", default_value_t = 100)]
        last: usize,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Check that every line of the archive is as it was written, and that the database goes on where it ends
    Verify {
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Begin a new archive where the old one is lost or was put aside
    Begin,
}

/// What is done to hosts.
#[derive(Debug, Subcommand)]
pub(crate) enum HubHostVerb {
    /// Show every host
    List {
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Forget a host; its credential ends at once
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
    /// See
    Viewer,
    /// Push documents and hand in envelopes
    Editor,
    /// Manage hosts and accounts
    Admin,
}
