//! Every verb and flag, with the words people read in `--help`.

mod enrolment;
mod fleet;
mod hub;
mod journal;
mod node;
mod oversight;
mod pending;
mod selection;
mod signing;
mod sim;
mod verb_advice;

use camino::Utf8PathBuf;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
pub(crate) use enrolment::{AcknowledgeArgs, EnrolHostArgs};
use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::desired::import::FileFormat;
use evenkeel_core::desired::selection::GuestName;
use evenkeel_core::model::id::NodeName;
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
pub(crate) use journal::{
    JournalArgs, JournalListArgs, JournalShowArgs, JournalVerb, OutcomeArg, ResolveArgs,
};
pub(crate) use node::{SelftestArgs, SetupArgs};
pub(crate) use oversight::{Audit, Freeze, LocalArgs, StatePlace};
pub(crate) use pending::{PendingArgs, PendingShowArgs, PendingVerb, WithdrawArgs};
pub(crate) use selection::{FilterArgs, SelectArgs};
pub(crate) use signing::{
    Addition, ApproveArgs, EnrolArgs, KnownHostsArgs, ListArgs, RotateArgs, SignArgs, SignersVerb,
    VerifyArgs,
};
pub(crate) use sim::SimArgs;
pub(crate) use verb_advice::advice;

/// Keeps Proxmox VE guests as declared, and destroys nothing without an operator's signature.
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
    /// Watch a story on loopback, with a simulated Proxmox VE
    Demo {
        /// Do not wait for a key press between chapters
        #[arg(long)]
        headless: bool,
        /// Tell the other story: a hub and three hosts that do not trust it
        #[arg(long)]
        fleet: bool,
    },
    /// Simulate a Proxmox VE node on loopback
    Sim(SimArgs),
    /// Show the differences between desired files and the node; change nothing
    Plan(PlanArgs),
    /// Change the guests as declared: make exactly the changes shown, or none
    Apply(ApplyArgs),
    /// Run the agent: keep the guests as declared until stopped
    Run(RunArgs),
    /// Show the state of the running agent: passes, guests, operations, journal
    Status(StatusArgs),
    /// List the items that wait for a signature
    Pending(PendingArgs),
    /// Request an act that is not declared, such as a snapshot or a destroy
    Request(RequestArgs),
    /// Give the agent an approval, a rotation or a recovery
    Submit(SubmitArgs),
    /// Write desired files for guests that exist; a plan right after is empty
    Import(ImportArgs),
    /// Check the connection, the token's rights and all else that a plan needs
    Doctor(DoctorArgs),
    /// Set up this node: the agent's user, role, token, files and unit; or undo it
    Setup(SetupArgs),
    /// Test on one guest everything that a change needs, and print a report for a bug
    Selftest(SelftestArgs),
    /// Stop every change on this host at once, until `evenkeel thaw`
    Freeze(Freeze),
    /// Let changes go on after a freeze
    Thaw(LocalArgs),
    /// Show each decision with its time, reason and key
    Audit(Audit),
    /// List past operations and their outcome; check the journal; close an operation by hand
    Journal(JournalArgs),
    /// Retry a guest's failed actions now
    Retry(RetryArgs),
    /// Enrol this host at a hub with a one-time token, and save the credential
    Enrol(EnrolHostArgs),
    /// Check desired files, and show every mistake with its line
    Validate(ValidateArgs),
    /// Explain a key: format, default, effect, class, rights, an example
    Explain(ExplainArgs),
    /// Print one declared guest in full, with everything it inherits
    Show(ShowArgs),
    /// Print the JSON Schema of desired files, for editors
    Schema,
    /// Approve or deny a pending item with your SSH key
    Approve(ApproveArgs),
    /// Show a statement, sign it with your SSH key, and write the result to a file
    Sign(SignArgs),
    /// Check a signed file: show its signers and the act that it allows, or the refusal
    Verify(VerifyArgs),
    /// Manage the signers of a host: list, enrol, rotate, recover
    #[command(subcommand)]
    Signers(SignersVerb),
    /// Run the server of a fleet, for the documents, reports and approvals of many hosts
    Hub(HubArgs),
    /// Manage many hosts through one hub: hosts, documents, pending items, audit
    #[command(subcommand)]
    Fleet(FleetVerb),
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page, or write a page for each verb
    Man {
        /// Write the pages of all verbs to this directory
        #[arg(long)]
        out: Option<Utf8PathBuf>,
    },
}

/// Arguments of `plan`.
#[derive(Debug, Args)]
#[command(mut_arg("state", |state| state.help(
    "The state directory, with freeze, open operations and the agent's memory [default: `state.dir` of agent.toml]"
)))]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub(crate) select: SelectArgs,
    #[command(flatten)]
    pub(crate) pass: PassArgs,
    /// Exit with 2 if an action would run now
    #[arg(long)]
    pub(crate) detailed_exitcode: bool,
    /// Save the plan to this file; `apply` then does exactly this plan
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<Utf8PathBuf>,
    /// Show the file and line behind each change
    #[arg(short, long)]
    pub(crate) verbose: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Arguments of `apply`.
#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    /// Only these guests: 101, lxc/101 or a name; or a file saved by `plan --out`: apply does not ask, and refuses it if
    /// anything differs now
    #[arg(value_name = "GUEST|PLAN")]
    pub(crate) subjects: Vec<String>,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    #[command(flatten)]
    pub(crate) pass: PassArgs,
    /// Do not ask for confirmation
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
    /// How much to log on stderr
    #[arg(
        long,
        env = "EVENKEEL_LOG",
        value_name = "LEVEL",
        value_enum,
        default_value_t = LogLevel::Info
    )]
    pub(crate) log: LogLevel,
    /// The form of the log
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
}

/// How much is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    /// Problems that need action
    Error,
    /// Also warnings
    Warn,
    /// Also changes that were made
    Info,
    /// Also reads of the node
    Debug,
    /// Everything
    Trace,
}

/// The forms of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// One line of text for each event
    Text,
    /// One JSON object for each event
    Json,
}

/// Arguments of `status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) select: SelectArgs,
    /// Show every guest that is not as declared, even if there are many
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

/// Arguments of `request`.
#[derive(Debug, Args)]
pub(crate) struct RequestArgs {
    #[command(flatten)]
    pub(crate) place: StatePlace,
    /// The act: `snapshot` or `backup`, which run at once; `destroy`, `rollback`, `delete_snapshot`, `delete_volume` or
    /// `set_config`, which wait for a signature
    pub(crate) op: ActionKind,
    /// The guest: 101, lxc/101, or the name of one guest
    pub(crate) guest: GuestName,
    /// The parameters, such as snapname=before; the agent fills in the others from the guest
    #[arg(value_name = "KEY=VALUE")]
    pub(crate) params: Vec<String>,
    /// Request as this signer; the host's rules may then not count this signer's signature
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) requester: Option<SignerName>,
    /// Wait so many seconds for a snapshot or backup to end; it goes on if the time runs out
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    pub(crate) wait: u64,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Arguments of `submit`.
#[derive(Debug, Args)]
pub(crate) struct SubmitArgs {
    #[command(flatten)]
    pub(crate) place: StatePlace,
    /// An approval, a rotation or a recovery
    pub(crate) file: Utf8PathBuf,
    /// Wait so many seconds for the act to end; it goes on if the time runs out
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    pub(crate) wait: u64,
    /// Do not ask before submitting it
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
    /// The directory to write to, one file for each guest
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Utf8PathBuf,
    /// The syntax of the files: toml, yaml or json
    #[arg(long, value_name = "FORMAT", default_value = "toml")]
    pub(crate) format: FileFormat,
    /// Replace files that exist, also files of another name that declare the same guest
    #[arg(long)]
    pub(crate) force: bool,
}

/// Arguments of `doctor`.
#[derive(Debug, Args)]
#[command(
    mut_arg("desired", |desired| desired.help("Desired files whose rights doctor checks too")),
    mut_arg("state", |state| state.help(
        "The state directory, which doctor checks too [default: `state.dir` of agent.toml]"
    ))
)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) pass: PassArgs,
    /// Also change the description of this guest, such as `lxc/101`, and restore it; stop the agent first
    #[arg(long, value_name = "GUEST")]
    pub(crate) write: Option<GuestName>,
    /// With --write: do not ask for confirmation
    #[arg(short, long, requires = "write")]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Arguments of `retry`.
#[derive(Debug, Args)]
pub(crate) struct RetryArgs {
    /// The guest: `101`, `lxc/101`, or its name
    pub(crate) guest: GuestName,
    #[command(flatten)]
    pub(crate) place: StatePlace,
}

/// Arguments of `explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The key: `cores`, `net0.rate`, `qemu/scsi0`, or a word such as `run` [default: list all keys]
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
    /// The guest: 101, lxc/101, or the name of one guest
    pub(crate) guest: GuestName,
    /// A desired file, or a directory of them [default: `desired.dir` of agent.toml]
    #[arg(long, value_name = "PATH")]
    pub(crate) desired: Option<Utf8PathBuf>,
    /// The configuration file [default: /etc/evenkeel/agent.toml if it exists]
    #[arg(short, long, env = "EVENKEEL_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<Utf8PathBuf>,
    /// Show the origin of each line
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
    /// The form of the output
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
