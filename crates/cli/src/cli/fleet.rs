//! Arguments of `fleet`: many hosts through one hub.

use camino::Utf8PathBuf;
use clap::{Args, Subcommand};
use evenkeel_core::model::id::HostId;

use super::{KnownHostsArgs, OutputArgs};

/// The verbs of `fleet`.
#[derive(Debug, Subcommand)]
pub(crate) enum FleetVerb {
    /// Log in at a hub with your SSH key; the first login pins the hub, as ssh pins a server
    Login(FleetLoginArgs),
    /// Log out: end your token here and at the hub, and the console sessions opened with it
    Logout(FleetLogoutArgs),
    /// List your logins: key, start and last use
    Logins(FleetLoginsArgs),
    /// Print a link to the console for your browser; it works once, for a minute
    Console(FleetConsoleArgs),
    /// As an admin: make enrolment tokens for hosts, and print the command to run on each
    EnrolToken(FleetEnrolTokenArgs),
    /// List the hosts: in sync, behind, silent
    Hosts(FleetHostsArgs),
    /// Show the last report of one host
    Status(FleetHostArgs),
    /// Check desired files, show the differences of each guest, sign the files and send them to the hub
    Push(FleetPushArgs),
    /// Write the desired files of a host to a directory
    Pull(FleetPullArgs),
    /// Show the differences of each guest between two generations, or between one and your files
    Diff(FleetDiffArgs),
    /// List the generations of a host: author, time, message and result
    History(FleetHostArgs),
    /// Go back: push the content of an old generation as a new one
    Rollback(FleetRollbackArgs),
    /// Sign a draft from the console, and send it to the hub
    Sign(FleetSignArgs),
    /// List the items that wait for a signature, on all hosts
    Pending(FleetPendingArgs),
    /// Send an approval, a rotation, a recovery or an acknowledgement to its host
    Submit(FleetSubmitArgs),
    /// Show the hub's audit: each act of a person, with time and result
    Audit(FleetAuditArgs),
}

/// Which hub.
#[derive(Debug, Args)]
pub(crate) struct HubChoice {
    /// The hub [default: the hub of your last login]
    #[arg(long, env = "EVENKEEL_HUB", value_name = "URL")]
    pub(crate) hub: Option<String>,
}

/// Arguments of `fleet login`.
#[derive(Debug, Args)]
pub(crate) struct FleetLoginArgs {
    /// The hub, such as `https://hub.example:8600`
    pub(crate) url: String,
    /// Your account at the hub [default: your user name on this machine]
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) account: Option<String>,
    /// Your key: a private key file, that of a FIDO key, or the `.pub` file of a key in ssh-agent
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Utf8PathBuf,
    /// SHA-256 fingerprint of the hub's certificate, if the hub's operator gave it to you
    #[arg(long, value_name = "HEX", conflicts_with = "ca_file")]
    pub(crate) fingerprint: Option<String>,
    /// A PEM file with the certificate authority of the hub
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Option<Utf8PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Which hub, and how its answer is printed.
#[derive(Debug, Args)]
pub(crate) struct FleetArgs {
    #[command(flatten)]
    pub(crate) hub: HubChoice,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Arguments of `fleet logout`.
#[derive(Debug, Args)]
pub(crate) struct FleetLogoutArgs {
    /// End all your tokens at the hub, on every machine
    #[arg(long)]
    pub(crate) all: bool,
    /// As an admin: end every token of this account; your own stays
    #[arg(long, value_name = "NAME", conflicts_with = "all")]
    pub(crate) account: Option<String>,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
}

/// Arguments of `fleet logins`.
#[derive(Debug, Args)]
pub(crate) struct FleetLoginsArgs {
    /// As an admin: list the logins of this account [default: your own]
    #[arg(long, value_name = "NAME")]
    pub(crate) account: Option<String>,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
}

/// Arguments of `fleet console`.
#[derive(Debug, Args)]
pub(crate) struct FleetConsoleArgs {
    /// The word that the hub's page `/console` shows in your browser [default: the last one]
    #[arg(long, value_name = "WORD")]
    pub(crate) browser: Option<String>,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
}

/// Arguments of `fleet enrol-token`.
#[derive(Debug, Args)]
pub(crate) struct FleetEnrolTokenArgs {
    /// The hosts, by the names of their Proxmox VE nodes
    #[arg(required = true, value_name = "HOST")]
    pub(crate) hosts: Vec<HostId>,
    /// The hosts are already enrolled: each old credential ends when its host enrols again
    #[arg(long)]
    pub(crate) replace: bool,
    /// Public keys (.pub) for the printed command: their owners may sign documents for these hosts
    #[arg(long, value_name = "FILE")]
    pub(crate) author: Vec<Utf8PathBuf>,
    /// Public keys (.pub): their owners may sign destructive acts on these hosts
    #[arg(long, value_name = "FILE")]
    pub(crate) operational: Vec<Utf8PathBuf>,
    /// Public keys (.pub): their owners may replace the other keys
    #[arg(long, value_name = "FILE")]
    pub(crate) recovery: Vec<Utf8PathBuf>,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
}

/// Arguments of `fleet hosts`.
#[derive(Debug, Args)]
pub(crate) struct FleetHostsArgs {
    /// Only hosts with this label; if you repeat it, a host must have all labels
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) label: Vec<String>,
    /// Only hosts that are silent, are behind, or refused a document
    #[arg(long)]
    pub(crate) stale: bool,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
}

/// Arguments of verbs about one host.
#[derive(Debug, Args)]
pub(crate) struct FleetHostArgs {
    /// The host
    pub(crate) host: HostId,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
}

/// How a document is signed.
#[derive(Debug, Args)]
pub(crate) struct AuthorArgs {
    /// Sign with this author's key; hosts refuse an unsigned document, unless root allows it there
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<Utf8PathBuf>,
    /// How long the host may accept it: 1h, 2d, at most 7d
    #[arg(long = "life", value_name = "TIME", default_value = "1d", value_parser = author_life)]
    pub(crate) life_s: u64,
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) hosts: KnownHostsArgs,
}

/// How long to wait for what the host says of a document.
#[derive(Debug, Args)]
pub(crate) struct VerdictArgs {
    /// Wait so many seconds for the host's verdict; 0 does not wait [default: 60 on a terminal, else 0]
    #[arg(long = "wait", value_name = "SECONDS", num_args = 0..=1, default_missing_value = "60")]
    pub(crate) wait_s: Option<u64>,
}

/// Arguments of `fleet push`.
#[derive(Debug, Args)]
pub(crate) struct FleetPushArgs {
    /// The host
    pub(crate) host: HostId,
    /// A directory of desired files, or one file
    #[arg(value_name = "DIR")]
    pub(crate) path: Utf8PathBuf,
    /// The reason, for the history
    #[arg(short, long, value_name = "TEXT", default_value = "")]
    pub(crate) message: String,
    #[command(flatten)]
    pub(crate) author: AuthorArgs,
    #[command(flatten)]
    pub(crate) verdict: VerdictArgs,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
}

/// Arguments of `fleet pull`.
#[derive(Debug, Args)]
pub(crate) struct FleetPullArgs {
    /// The host
    pub(crate) host: HostId,
    /// The directory to write to
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Utf8PathBuf,
    /// The generation [default: the newest]
    #[arg(long, value_name = "N")]
    pub(crate) generation: Option<u64>,
    /// Replace files that exist
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) hub: HubChoice,
}

/// Arguments of `fleet diff`.
#[derive(Debug, Args)]
pub(crate) struct FleetDiffArgs {
    /// The host
    pub(crate) host: HostId,
    /// A directory of desired files to compare with [default: the newest generation]
    #[arg(value_name = "DIR", conflicts_with = "to")]
    pub(crate) path: Option<Utf8PathBuf>,
    /// The generation to compare from [default: with files the newest, else the one before it]
    #[arg(long, value_name = "N")]
    pub(crate) from: Option<u64>,
    /// The generation to compare to [default: the newest]
    #[arg(long, value_name = "N")]
    pub(crate) to: Option<u64>,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
}

/// Arguments of `fleet rollback`.
#[derive(Debug, Args)]
pub(crate) struct FleetRollbackArgs {
    /// The host
    pub(crate) host: HostId,
    /// The generation to bring back
    #[arg(value_name = "GEN")]
    pub(crate) generation: u64,
    /// The reason, for the history
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) message: Option<String>,
    #[command(flatten)]
    pub(crate) author: AuthorArgs,
    #[command(flatten)]
    pub(crate) verdict: VerdictArgs,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
}

/// Arguments of `fleet sign`.
#[derive(Debug, Args)]
pub(crate) struct FleetSignArgs {
    /// The host
    pub(crate) host: HostId,
    /// The draft's id, as the console shows it
    pub(crate) draft: String,
    #[command(flatten)]
    pub(crate) author: AuthorArgs,
    #[command(flatten)]
    pub(crate) verdict: VerdictArgs,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
}

/// Arguments of `fleet pending`.
#[derive(Debug, Args)]
pub(crate) struct FleetPendingArgs {
    /// The beginning of an item's name [default: all items]
    #[arg(value_name = "PENDING")]
    pub(crate) id: Option<String>,
    /// Only items of this host
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Option<HostId>,
    /// Write the item to this file, so that you can sign it on another machine
    #[arg(long, value_name = "FILE", requires = "id")]
    pub(crate) out: Option<Utf8PathBuf>,
    /// Replace the file if it exists
    #[arg(long, requires = "out")]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
}

/// Arguments of `fleet submit`.
#[derive(Debug, Args)]
pub(crate) struct FleetSubmitArgs {
    /// The signed file
    pub(crate) file: Utf8PathBuf,
    /// Wait so many seconds for the host's verdict; 0 does not wait
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(crate) wait: u64,
    /// Do not ask before sending it
    #[arg(short, long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) hosts: KnownHostsArgs,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
}

/// Arguments of `fleet audit`.
#[derive(Debug, Args)]
pub(crate) struct FleetAuditArgs {
    /// Only the newest N entries
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) last: usize,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
}

fn label(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some((key, _)) if !key.is_empty() => Ok(text.to_owned()),
        Some(_) | None => Err("write it as KEY=VALUE".to_owned()),
    }
}

/// A document's window has another bound than an approval's: it is judged once, when it is taken.
fn author_life(text: &str) -> Result<u64, String> {
    const LIFE_MAX_S: u64 = 7 * 24 * 60 * 60;
    let span = text.parse::<jiff::Span>().ok();
    let life =
        span.and_then(|span| span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).ok());
    let life = life.and_then(|life| u64::try_from(life.as_secs()).ok());
    match life {
        Some(life_s) if (60..=LIFE_MAX_S).contains(&life_s) => Ok(life_s),
        Some(_) | None => Err("write a length of time from 60s to 7d, such as 12h".to_owned()),
    }
}
