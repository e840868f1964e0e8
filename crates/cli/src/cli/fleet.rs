//! Arguments of `fleet`: many hosts through one hub.

use camino::Utf8PathBuf;
use clap::{Args, Subcommand};
use evenkeel_core::model::id::HostId;

use super::{KnownHostsArgs, OutputArgs};

/// What to do with the fleet.
#[derive(Debug, Subcommand)]
pub(crate) enum FleetVerb {
    /// Log in at a hub with your SSH key; it is pinned the first time, as ssh does
    Login(FleetLoginArgs),
    /// Log out: the token ends at once, here and at the hub, and every session of the console that came of it
    Logout(FleetLogoutArgs),
    /// Show where you are logged in: which key, since when, and when it was used last
    Logins(FleetLoginsArgs),
    /// Print a link to the console for your browser; it works once, for a minute
    Console(FleetConsoleArgs),
    /// Make tokens for hosts to enrol with, as an admin, and print the line to run on each
    EnrolToken(FleetEnrolTokenArgs),
    /// Show who is there: in sync, behind, silent
    Hosts(FleetHostsArgs),
    /// Show one host as it reported
    Status(FleetHostArgs),
    /// Check desired files, show what differs for each guest, sign them and hand them to the hub
    Push(FleetPushArgs),
    /// Write the desired files of a host to a directory
    Pull(FleetPullArgs),
    /// Show, guest by guest, what differs between two generations, or between one and your files
    Diff(FleetDiffArgs),
    /// Show the generations of a host: who pushed what, when, and what became of it
    History(FleetHostArgs),
    /// Go back: old content as a new generation
    Rollback(FleetRollbackArgs),
    /// Sign a draft that was edited in the console, and hand it to the hub
    Sign(FleetSignArgs),
    /// Show what waits for a signature on all hosts
    Pending(FleetPendingArgs),
    /// Hand in an approval, a rotation, a recovery or an acknowledgement for its host
    Submit(FleetSubmitArgs),
    /// Show what people did at the hub
    Audit(FleetAuditArgs),
}

/// Which hub.
#[derive(Debug, Args)]
pub(crate) struct HubChoice {
    /// The hub [default: the one you logged in at last]
    #[arg(long, env = "EVENKEEL_HUB", value_name = "URL")]
    pub(crate) hub: Option<String>,
}

/// Arguments of `fleet login`.
#[derive(Debug, Args)]
pub(crate) struct FleetLoginArgs {
    /// The hub, such as `https://hub.example:8600`
    pub(crate) url: String,
    /// Your account at the hub [default: your name on this machine]
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) account: Option<String>,
    /// Your key: a private key file, that of a FIDO key, or the `.pub` file of a key in ssh-agent
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Utf8PathBuf,
    /// SHA-256 fingerprint of the hub's certificate, if you have it from its operator
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
    /// End every token of yours at the hub, wherever it is
    #[arg(long)]
    pub(crate) all: bool,
    /// End every token of this account, as an admin; your own stays
    #[arg(long, value_name = "NAME", conflicts_with = "all")]
    pub(crate) account: Option<String>,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
}

/// Arguments of `fleet logins`.
#[derive(Debug, Args)]
pub(crate) struct FleetLoginsArgs {
    /// Those of this account, as an admin [default: your own]
    #[arg(long, value_name = "NAME")]
    pub(crate) account: Option<String>,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
}

/// Arguments of `fleet console`.
#[derive(Debug, Args)]
pub(crate) struct FleetConsoleArgs {
    /// Your browser's word, which the hub's page `/console` shows in it [default: that of the last time]
    #[arg(long, value_name = "WORD")]
    pub(crate) browser: Option<String>,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
}

/// Arguments of `fleet enrol-token`.
#[derive(Debug, Args)]
pub(crate) struct FleetEnrolTokenArgs {
    /// The hosts, each as its Proxmox VE node is called
    #[arg(required = true, value_name = "HOST")]
    pub(crate) hosts: Vec<HostId>,
    /// The hosts are known already: the old credential of each ends when it enrols
    #[arg(long)]
    pub(crate) replace: bool,
    /// Public keys (.pub) for the printed line: who may sign documents for these hosts
    #[arg(long, value_name = "FILE")]
    pub(crate) author: Vec<Utf8PathBuf>,
    /// Who may sign destructive acts there
    #[arg(long, value_name = "FILE")]
    pub(crate) operational: Vec<Utf8PathBuf>,
    /// Who may replace the others
    #[arg(long, value_name = "FILE")]
    pub(crate) recovery: Vec<Utf8PathBuf>,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
}

/// Arguments of `fleet hosts`.
#[derive(Debug, Args)]
pub(crate) struct FleetHostsArgs {
    /// Only hosts with this label; may be given several times, all must hold
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) label: Vec<String>,
    /// Only hosts that are silent, behind, or refused what they were given
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
    /// Sign with this key of an author; a document that nobody signs is refused, unless root lets hosts take it
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<Utf8PathBuf>,
    /// How long the host may take it: 1h, 2d, at most 7d
    #[arg(long = "life", value_name = "TIME", default_value = "1d", value_parser = author_life)]
    pub(crate) life_s: u64,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) hosts: KnownHostsArgs,
}

/// How long to wait for what the host says of a document.
#[derive(Debug, Args)]
pub(crate) struct VerdictArgs {
    /// How long to wait for the host's verdict; 0 only hands it in [default: 60 on a terminal, else 0]
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
    /// Why, for whoever reads the history
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
    /// Replace files that are there already
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
    /// The generation whose content shall be in force again
    #[arg(value_name = "GEN")]
    pub(crate) generation: u64,
    /// Why, for whoever reads the history
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
    /// The draft, as the console shows it
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
    /// One item, by the beginning of its name; all if none is named
    #[arg(value_name = "PENDING")]
    pub(crate) id: Option<String>,
    /// Only those of this host
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Option<HostId>,
    /// Write the item to this file, to be signed where the key is
    #[arg(long, value_name = "FILE", requires = "id")]
    pub(crate) out: Option<Utf8PathBuf>,
    /// Replace the file if it is there already
    #[arg(long, requires = "out")]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
}

/// Arguments of `fleet submit`.
#[derive(Debug, Args)]
pub(crate) struct FleetSubmitArgs {
    /// What was signed
    pub(crate) file: Utf8PathBuf,
    /// How long to wait for the host's verdict; 0 only hands it in
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(crate) wait: u64,
    /// Do not ask before it is handed in
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
    /// Only so many, the newest
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) last: usize,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
}

fn label(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some((key, _)) if !key.is_empty() => Ok(text.to_owned()),
        Some(_) | None => Err("it is written KEY=VALUE".to_owned()),
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
