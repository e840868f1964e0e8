//! The verbs and flags of `journal`, with the words people read in `--help`; none of them can change what was written.

use clap::{Args, Subcommand, ValueEnum};
use evenkeel_core::desired::selection::GuestName;
use evenkeel_core::model::id::OperationId;

use super::{AcknowledgeArgs, LocalArgs, StatePlace};

/// Arguments of `journal`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct JournalArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<JournalVerb>,
    #[command(flatten)]
    pub(crate) list: JournalListArgs,
}

/// The verbs of `journal`; without one it lists the operations.
#[derive(Debug, Subcommand)]
pub(crate) enum JournalVerb {
    /// Check every line of every segment, also in the archive; change nothing
    Verify(LocalArgs),
    /// Show one operation in full: steps, parameters, old values, signers, and its task's log
    Show(JournalShowArgs),
    /// Close an operation whose outcome evenkeel cannot find out; the journal records your name
    Resolve(ResolveArgs),
    /// Acknowledge that an old journal was restored, so that signed acts run again
    Acknowledge(AcknowledgeArgs),
}

/// Arguments of `journal show`.
#[derive(Debug, Args)]
pub(crate) struct JournalShowArgs {
    /// The operation, as `evenkeel journal` shows it
    pub(crate) op: OperationId,
    /// Show the last N lines of each task's log; 0 shows none and does not connect to the node
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) log: u32,
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

/// Which operations are listed.
#[derive(Debug, Args)]
pub(crate) struct JournalListArgs {
    /// Only operations of this guest: 101, lxc/101, or the name of one declared guest
    #[arg(long)]
    pub(crate) guest: Option<GuestName>,
    /// Only this operation
    #[arg(long)]
    pub(crate) op: Option<OperationId>,
    /// Only operations that are not closed
    #[arg(long)]
    pub(crate) open: bool,
    /// Only the newest N operations
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
    /// The outcome that you found
    #[arg(long = "as", value_name = "OUTCOME", value_enum)]
    pub(crate) outcome: OutcomeArg,
    /// Your evidence, for the journal
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) reason: String,
    #[command(flatten)]
    pub(crate) place: StatePlace,
}

/// What an operator found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutcomeArg {
    /// The operation happened
    Succeeded,
    /// The operation did not happen
    Failed,
}
