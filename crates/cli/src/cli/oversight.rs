//! Arguments of the verbs that watch over a host: `freeze`, `thaw`, `audit`.

use camino::Utf8PathBuf;
use clap::Args;
use evenkeel_core::desired::selection::GuestName;

use super::OutputArgs;

/// Arguments of `freeze`.
#[derive(Debug, Args)]
pub(crate) struct Freeze {
    /// Why, for whoever finds this host frozen
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

/// Arguments of `audit`.
#[derive(Debug, Args)]
pub(crate) struct Audit {
    /// Only what concerns this guest: 101, lxc/101, or a name that one declared guest has
    #[arg(long)]
    pub(crate) guest: Option<GuestName>,
    /// Only the newest N entries
    #[arg(long, value_name = "N")]
    pub(crate) last: Option<usize>,
    /// Only what was refused or failed
    #[arg(long)]
    pub(crate) refused: bool,
    /// Only what somebody signed
    #[arg(long)]
    pub(crate) signed: bool,
    /// Only what was decided since: a moment or day in UTC, or so long ago such as `24h` or `7d`
    #[arg(long, value_name = "WHEN")]
    pub(crate) since: Option<String>,
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

/// Where an agent's own state is, and how its answer is printed.
#[derive(Debug, Args)]
pub(crate) struct LocalArgs {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Where an agent's own state is.
#[derive(Debug, Args)]
pub(crate) struct Place {
    /// The configuration file [default: /etc/evenkeel/agent.toml if it exists]
    #[arg(short, long, env = "EVENKEEL_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<Utf8PathBuf>,
    /// The state directory [default: `state.dir` of agent.toml]
    #[arg(long, env = "EVENKEEL_STATE", value_name = "DIR")]
    pub(crate) state: Option<Utf8PathBuf>,
}
