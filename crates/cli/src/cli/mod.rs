//! Every verb and flag, with the words people read in `--help`.

mod enrolment;
mod fleet;
mod hub;
mod node;
mod oversight;
mod selection;
mod signing;
mod verb_advice;

use std::net::SocketAddr;

use camino::Utf8PathBuf;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
pub(crate) use enrolment::{AcknowledgeArgs, EnrolHostArgs};
use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::desired::import::FileFormat;
use evenkeel_core::desired::selection::GuestName;
use evenkeel_core::model::id::{NodeName, OperationId};
use evenkeel_core::model::release::Release;
use evenkeel_core::sign::SignerName;
pub(crate) use fleet::{
    AuthorArgs, FleetAuditArgs, FleetConsoleArgs, FleetDiffArgs, FleetEnrolTokenArgs,
    FleetHostArgs, FleetHostsArgs, FleetLoginArgs, FleetLoginsArgs, FleetLogoutArgs,
    FleetPendingArgs, FleetPullArgs, FleetPushArgs, FleetRollbackArgs, FleetSignArgs,
    FleetSubmitArgs, FleetVerb, HubChoice, VerdictArgs,
};
pub(crate) use hub::{
    AccountRole, HubAccountVerb, HubArgs, HubAuditVerb, HubHostVerb, HubPlace, HubVerb,
};
pub(crate) use node::{SelftestArgs, SetupArgs};
pub(crate) use oversight::{Audit, Freeze, LocalArgs, Place};
pub(crate) use selection::{FilterArgs, SelectArgs};
pub(crate) use signing::{
    Addition, ApproveArgs, EnrolArgs, KnownHostsArgs, ListArgs, RotateArgs, SignArgs, SignersVerb,
    VerifyArgs,
};
pub(crate) use verb_advice::advice;

/// Keeps Proxmox VE guests as declared, and destroys nothing an operator did not sign for.
#[derive(Debug, Parser)]
#[command(name = "evenkeel", version, max_term_width = 100, disable_help_subcommand = true)]
#[command(
    after_help = "Exit codes: 0 ok, 1 error, 2 changes would run (plan --detailed-exitcode), \
3 invalid configuration or desired state, 4 authentication or permission, 5 not found, \
6 approval required, 7 busy, stale or transient, 64 usage"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// See it work: a simulated Proxmox VE and a story on loopback
    Demo {
        /// End by itself, without waiting for anybody
        #[arg(long)]
        headless: bool,
        /// The other story: a hub and three hosts that do not trust it
        #[arg(long)]
        fleet: bool,
    },
    /// Pretend to be a Proxmox VE, on loopback
    Sim(SimArgs),
    /// Show what differs between desired files and the node; change nothing
    Plan(PlanArgs),
    /// Bring the guests to what is declared: exactly what is shown, or nothing
    Apply(ApplyArgs),
    /// Keep the guests as declared, for ever: the agent that systemd runs
    Run(RunArgs),
    /// Show how the running agent stands: passes, guests, operations, journal
    Status(StatusArgs),
    /// Show what waits for a signature
    Pending(PendingArgs),
    /// Propose an act that nobody declares, to be signed
    Request(RequestArgs),
    /// Hand the agent an approval, a rotation or a recovery
    Submit(SubmitArgs),
    /// Write desired files for guests that exist; a plan right after is empty
    Import(ImportArgs),
    /// Check the connection, the token's rights and everything a plan depends on
    Doctor(DoctorArgs),
    /// Set this node up: the agent's user, role, token, files and unit; or take it back
    Setup(SetupArgs),
    /// Try what a change depends on, on one guest, and print a report to send with a bug
    Selftest(SelftestArgs),
    /// Stop every change on this host until it is thawed; a running agent obeys at once
    Freeze(Freeze),
    /// Let changes go on
    Thaw(LocalArgs),
    /// Show who allowed or refused what, when, why and with which key
    Audit(Audit),
    /// Show what was done and what came of it; check the journal; close an operation by hand
    Journal(JournalArgs),
    /// Try at once what failed on a guest and waits for its next try
    Retry(RetryArgs),
    /// Take this host into a fleet: show a hub its token, and keep the credential
    Enrol(EnrolHostArgs),
    /// Check desired files, and tell every mistake with its place
    Validate(ValidateArgs),
    /// Tell what is known of a key: format, default, effect, class, rights, an example
    Explain(ExplainArgs),
    /// Print one declared guest whole, with everything it inherits
    Show(ShowArgs),
    /// Print the JSON Schema of desired files, for editors
    Schema,
    /// Approve what waits, or deny it, with your SSH key
    Approve(ApproveArgs),
    /// Sign with your SSH key into a file, to be handed in elsewhere; shows what is signed
    Sign(SignArgs),
    /// Say who signed a file and what it would allow, or why it allows nothing
    Verify(VerifyArgs),
    /// Who may sign on a host: list, enrol, rotate, recover
    #[command(subcommand)]
    Signers(SignersVerb),
    /// Serve a fleet: one place for the documents, reports and approvals of many hosts
    Hub(HubArgs),
    /// Many hosts through one hub: who is there, documents, what waits, who did what
    #[command(subcommand)]
    Fleet(FleetVerb),
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page, or write one page a verb
    Man {
        /// A directory to write the pages of all verbs to
        #[arg(long)]
        out: Option<Utf8PathBuf>,
    },
}

/// Arguments of `sim`.
#[derive(Debug, Args)]
pub(crate) struct SimArgs {
    /// Where to listen, on loopback; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8006")]
    pub(crate) listen: SocketAddr,
    /// How many guests: a mix of kinds, disks, odd values and waiting changes
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) guests: u32,
    /// The name of the node
    #[arg(long, default_value = "pve1")]
    pub(crate) node: NodeName,
    /// The release to pretend: 7.4, 8.4 or 9.2
    #[arg(long, value_name = "RELEASE", default_value = "8.4", value_parser = simulated)]
    pub(crate) pve: Release,
    /// Answer every request so many milliseconds later
    #[arg(long = "latency", value_name = "MS", default_value_t = 0)]
    pub(crate) latency_ms: u64,
    /// A JSON file with a list of faults
    #[arg(long, value_name = "FILE")]
    pub(crate) faults: Option<Utf8PathBuf>,
    /// A JSON file with storages, templates, images, guests and backups to begin with
    #[arg(long, value_name = "FILE")]
    pub(crate) scenario: Option<Utf8PathBuf>,
    /// Keep the state in this file, from one run to the next
    #[arg(long, value_name = "FILE")]
    pub(crate) state: Option<Utf8PathBuf>,
    /// Show in this directory what the node's /etc/pve tells of configuration files, and its active tasks
    #[arg(long, value_name = "DIR")]
    pub(crate) cluster_fs: Option<Utf8PathBuf>,
    /// Speak plain HTTP instead of TLS
    #[arg(long)]
    pub(crate) plain_http: bool,
    /// Where addresses and oddities come from: the same seed gives the same guests
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// A release the simulator was held to.
fn simulated(text: &str) -> Result<Release, String> {
    let release: Release = text.parse().map_err(|error| format!("{error}"))?;
    match release {
        Release::V7_4 | Release::V8_4 | Release::V9_2 => Ok(release),
        _ => Err("the simulator pretends to be 7.4, 8.4 or 9.2".to_owned()),
    }
}

/// Arguments of `plan`.
#[derive(Debug, Args)]
#[command(mut_arg("state", |state| state.help(
    "The state directory, which tells what is frozen, busy or remembered [default: `state.dir` of agent.toml]"
)))]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub(crate) select: SelectArgs,
    #[command(flatten)]
    pub(crate) pass: PassArgs,
    /// End with 2 if anything would run now
    #[arg(long)]
    pub(crate) detailed_exitcode: bool,
    /// Save the plan, to apply exactly it later
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<Utf8PathBuf>,
    /// Name the file and line behind each change
    #[arg(short, long)]
    pub(crate) verbose: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Arguments of `apply`.
#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    /// Only these guests: 101, lxc/101 or a name; or the file of a plan saved with `plan --out`, which is applied
    /// without asking unless anything differs now
    #[arg(value_name = "GUEST|PLAN")]
    pub(crate) subjects: Vec<String>,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    #[command(flatten)]
    pub(crate) pass: PassArgs,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The configuration file [default: /etc/evenkeel/agent.toml]
    #[arg(short, long, env = "EVENKEEL_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<Utf8PathBuf>,
    /// How much to log, on stderr
    #[arg(
        long,
        env = "EVENKEEL_LOG",
        value_name = "LEVEL",
        value_enum,
        default_value_t = LogLevel::Info
    )]
    pub(crate) log: LogLevel,
    /// How to log
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
}

/// How much is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    /// What somebody must act upon
    Error,
    /// And what somebody should know
    Warn,
    /// And what was done
    Info,
    /// And what was looked at
    Debug,
    /// Everything
    Trace,
}

/// The forms of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// A line for people and the journal
    Text,
    /// A JSON object a line
    Json,
}

/// Arguments of `status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) select: SelectArgs,
    /// Show each guest that is not as declared, however many there are
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

/// Arguments of `pending`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct PendingArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<PendingVerb>,
    #[command(flatten)]
    pub(crate) show: PendingShowArgs,
}

/// What to do with what waits; without a word it is shown.
#[derive(Debug, Subcommand)]
pub(crate) enum PendingVerb {
    /// Take back what somebody requested; written down with your name
    Withdraw(WithdrawArgs),
}

/// Arguments of `pending withdraw`.
#[derive(Debug, Args)]
pub(crate) struct WithdrawArgs {
    /// The item, by the beginning of its name
    #[arg(value_name = "PENDING")]
    pub(crate) id: String,
    /// Why; kept in the journal
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) reason: String,
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

/// Which items are shown.
#[derive(Debug, Args)]
pub(crate) struct PendingShowArgs {
    #[command(flatten)]
    pub(crate) place: Place,
    /// One item, by the beginning of its name; all if none is named
    #[arg(value_name = "PENDING")]
    pub(crate) id: Option<String>,
    /// Write the item to this file, to be signed where the key is
    #[arg(long, value_name = "FILE", requires = "id")]
    pub(crate) out: Option<Utf8PathBuf>,
    /// Replace the file if it is there already
    #[arg(long, requires = "out")]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Arguments of `request`.
#[derive(Debug, Args)]
pub(crate) struct RequestArgs {
    #[command(flatten)]
    pub(crate) place: Place,
    /// What: `snapshot` or `backup`, done at once; `destroy`, `rollback`, `delete_snapshot`, `delete_volume` or
    /// `set_config`, which wait for a signature
    pub(crate) op: ActionKind,
    /// To which guest: 101, lxc/101, or a name that one guest has
    pub(crate) guest: GuestName,
    /// Its parameters, such as snapname=before; what is left out is filled in from the guest
    #[arg(value_name = "KEY=VALUE")]
    pub(crate) params: Vec<String>,
    /// Ask as this signer: where the host's rules say so, the requester's own signature does not count
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) requester: Option<SignerName>,
    /// How long to wait for the end of what is done at once; it goes on without us
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    pub(crate) wait: u64,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Arguments of `submit`.
#[derive(Debug, Args)]
pub(crate) struct SubmitArgs {
    #[command(flatten)]
    pub(crate) place: Place,
    /// An approval, a rotation or a recovery
    pub(crate) file: Utf8PathBuf,
    /// How long to wait for the end of the act; it goes on without us
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    pub(crate) wait: u64,
    /// Do not ask before it is handed in
    #[arg(short, long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Arguments of `import`.
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    #[command(flatten)]
    pub(crate) select: SelectArgs,
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
    /// The directory to write to, one file a guest
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Utf8PathBuf,
    /// The syntax of the files: toml, yaml or json
    #[arg(long, value_name = "FORMAT", default_value = "toml")]
    pub(crate) format: FileFormat,
    /// Replace files that are there already, also those that declare a guest under another name
    #[arg(long)]
    pub(crate) force: bool,
}

/// Arguments of `doctor`.
#[derive(Debug, Args)]
#[command(
    mut_arg("desired", |desired| desired.help("Desired files whose rights are checked too")),
    mut_arg("state", |state| state.help(
        "The state directory, which is checked too [default: `state.dir` of agent.toml]"
    ))
)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) pass: PassArgs,
    /// Also write to the description of this guest, such as `lxc/101`, and restore it; no agent may run meanwhile
    #[arg(long, value_name = "GUEST")]
    pub(crate) write: Option<GuestName>,
    /// With --write: do not ask
    #[arg(short, long, requires = "write")]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Arguments of `journal`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct JournalArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<JournalVerb>,
    #[command(flatten)]
    pub(crate) list: JournalListArgs,
}

/// What to do with the journal; without a word its operations are listed.
#[derive(Debug, Subcommand)]
pub(crate) enum JournalVerb {
    /// Check every line of every segment, archive included; change nothing
    Verify(LocalArgs),
    /// Everything about one operation: its steps, parameters, values before, who signed, and its task's log
    Show(JournalShowArgs),
    /// Close an operation whose outcome no evidence will tell; written down with your name
    Resolve(ResolveArgs),
    /// Say that a rollback of the journal is known, so that signed work goes on
    Acknowledge(AcknowledgeArgs),
}

/// Arguments of `journal show`.
#[derive(Debug, Args)]
pub(crate) struct JournalShowArgs {
    /// The operation, as `evenkeel journal` shows it
    pub(crate) op: OperationId,
    /// How many lines of each task's log to show, the last ones; 0 asks no node
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) log: u32,
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

/// Which operations are listed.
#[derive(Debug, Args)]
pub(crate) struct JournalListArgs {
    /// Only those of this guest: 101, lxc/101, or a name that one declared guest has
    #[arg(long)]
    pub(crate) guest: Option<GuestName>,
    /// Only this one
    #[arg(long)]
    pub(crate) op: Option<OperationId>,
    /// Only those that are not closed
    #[arg(long)]
    pub(crate) open: bool,
    /// Only so many, the newest
    #[arg(long, value_name = "N")]
    pub(crate) last: Option<usize>,
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

/// Arguments of `journal resolve`.
#[derive(Debug, Args)]
pub(crate) struct ResolveArgs {
    /// The operation, as `evenkeel journal --open` shows it
    pub(crate) op: OperationId,
    /// What you found: it happened, or it did not
    #[arg(long = "as", value_name = "OUTCOME", value_enum)]
    pub(crate) outcome: OutcomeArg,
    /// How you know; kept in the journal
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) reason: String,
    #[command(flatten)]
    pub(crate) place: Place,
}

/// What an operator found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutcomeArg {
    /// It happened
    Succeeded,
    /// It did not happen
    Failed,
}

/// Arguments of `retry`.
#[derive(Debug, Args)]
pub(crate) struct RetryArgs {
    /// The guest: `101`, `lxc/101`, or its name
    pub(crate) guest: GuestName,
    #[command(flatten)]
    pub(crate) place: Place,
}

/// Arguments of `explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The key: `cores`, `net0.rate`, `qemu/scsi0`, or a word such as `run`; left out: a list of all
    #[arg(value_name = "KEY")]
    pub(crate) key: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Arguments of `validate`.
#[derive(Debug, Args)]
pub(crate) struct ValidateArgs {
    /// A desired file, or a directory of them
    #[arg(default_value = ".")]
    pub(crate) path: Utf8PathBuf,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Arguments of `show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The guest: 101, lxc/101, or its name if only one has it
    pub(crate) guest: GuestName,
    /// A desired file, or a directory of them [default: `desired.dir` of agent.toml]
    #[arg(long, value_name = "PATH")]
    pub(crate) desired: Option<Utf8PathBuf>,
    /// The configuration file [default: /etc/evenkeel/agent.toml if it exists]
    #[arg(short, long, env = "EVENKEEL_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<Utf8PathBuf>,
    /// Say behind each line where it comes from
    #[arg(long)]
    pub(crate) origin: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// What a pass reads: the node, what is declared, and what the agent remembers.
#[derive(Debug, Args)]
pub(crate) struct PassArgs {
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
    /// A desired file, or a directory of them
    #[arg(long, value_name = "PATH")]
    pub(crate) desired: Option<Utf8PathBuf>,
    /// The state directory [default: `state.dir` of agent.toml]
    #[arg(long, env = "EVENKEEL_STATE", value_name = "DIR")]
    pub(crate) state: Option<Utf8PathBuf>,
}

/// Where Proxmox VE is: the configuration file, with flags and environment above it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ConnectArgs {
    /// The configuration file [default: /etc/evenkeel/agent.toml if it exists]
    #[arg(short, long, env = "EVENKEEL_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<Utf8PathBuf>,
    /// The address of the node's API, such as `https://pve1.example:8006`
    #[arg(long, env = "PROXMOX_VE_ENDPOINT", value_name = "URL")]
    pub(crate) url: Option<String>,
    /// The node to look at [default: the one that answers]
    #[arg(long)]
    pub(crate) node: Option<NodeName>,
    /// A file with the API token; the environment variable `PROXMOX_VE_API_TOKEN` works too
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<Utf8PathBuf>,
    /// SHA-256 fingerprint of the server's certificate; may be given several times
    #[arg(long, value_name = "HEX")]
    pub(crate) fingerprint: Vec<String>,
    /// A PEM file with the certificate authority of the server
    #[arg(long, value_name = "FILE", conflicts_with = "fingerprint")]
    pub(crate) ca_file: Option<Utf8PathBuf>,
    /// How many seconds to wait for an answer [default: 40]
    #[arg(long = "timeout", value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) timeout_s: Option<u64>,
}

/// How data is printed.
#[derive(Debug, Args)]
pub(crate) struct OutputArgs {
    /// How to print the answer
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    pub(crate) output: OutputFormat,
}

/// The forms an answer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// For people
    Table,
    /// For programs; carries `format_version`
    Json,
}
