//! The verbs and flags of `pending`, with the words people read in `--help`; none of them signs.

use camino::Utf8PathBuf;
use clap::{Args, Subcommand};

use super::{LocalArgs, OutputArgs, StatePlace};

/// Arguments of `pending`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct PendingArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<PendingVerb>,
    #[command(flatten)]
    pub(crate) show: PendingShowArgs,
}

/// The verbs of `pending`; without one it lists the items.
#[derive(Debug, Subcommand)]
pub(crate) enum PendingVerb {
    /// Withdraw a requested item; the journal records your name
    Withdraw(WithdrawArgs),
}

/// Arguments of `pending withdraw`.
#[derive(Debug, Args)]
pub(crate) struct WithdrawArgs {
    /// The beginning of the item's name
    #[arg(value_name = "PENDING")]
    pub(crate) id: String,
    /// The reason, for the journal
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) reason: String,
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

/// Which items are shown.
#[derive(Debug, Args)]
pub(crate) struct PendingShowArgs {
    #[command(flatten)]
    pub(crate) place: StatePlace,
    /// The beginning of an item's name [default: all items]
    #[arg(value_name = "PENDING")]
    pub(crate) id: Option<String>,
    /// Write the item to this file, so that you can sign it on another machine
    #[arg(long, value_name = "FILE", requires = "id")]
    pub(crate) out: Option<Utf8PathBuf>,
    /// Replace the file if it exists
    #[arg(long, requires = "out")]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
