//! Arguments of the verbs that watch over a host: `freeze`, `thaw`, `audit`.

use camino::Utf8PathBuf;
use clap::Args;
use evenkeel_core::desired::selection::GuestName;

use super::OutputArgs;

/// Arguments of `freeze`.
#[derive(Debug, Args)]
pub(crate) struct Freeze {
    /// The reason, shown while this host is frozen
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

/// Arguments of `audit`.
#[derive(Debug, Args)]
pub(crate) struct Audit {
    /// Only entries of this guest: 101, lxc/101, or the name of one declared guest
    #[arg(long)]
    pub(crate) guest: Option<GuestName>,
    /// Only the newest N entries
    #[arg(long, value_name = "N")]
    pub(crate) last: Option<usize>,
    /// Only refused or failed acts
    #[arg(long)]
    pub(crate) refused: bool,
    /// Only signed acts
    #[arg(long)]
    pub(crate) signed: bool,
    /// Only entries since a time or day in UTC, or from the last `24h` or `7d`
    #[arg(long, value_name = "WHEN")]
    pub(crate) since: Option<String>,
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

/// Where an agent's own state is, and how its answer is printed.
#[derive(Debug, Args)]
pub(crate) struct LocalArgs {
    #[command(flatten)]
    pub(crate) place: StatePlace,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Where an agent's own state is.
#[derive(Debug, Args)]
pub(crate) struct StatePlace {
    /// The configuration file [default: /etc/evenkeel/agent.toml if it exists]
    #[arg(short, long, env = "EVENKEEL_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<Utf8PathBuf>,
    /// The state directory [default: `state.dir` of agent.toml]
    #[arg(long, env = "EVENKEEL_STATE", value_name = "DIR")]
    pub(crate) state: Option<Utf8PathBuf>,
}
