//! What is said to `setup` and `selftest`, the verbs for a node of one's own.

use camino::Utf8PathBuf;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use evenkeel_core::desired::selection::GuestName;
use evenkeel_core::gate::rights::TokenPurpose;
use evenkeel_core::operate::operation::StorageName;

use super::{ConnectArgs, OutputArgs};

/// Arguments of `setup`.
#[derive(Debug, Args)]
pub(crate) struct SetupArgs {
    /// A public key that may sign destructive acts: a .pub file, or its line; its comment becomes the signer's name
    #[arg(long, value_name = "KEY", requires = "recovery", conflicts_with = "remove")]
    pub(crate) operational: Vec<Utf8PathBuf>,
    /// A public key that may replace the others; keep its private key offline
    #[arg(long, value_name = "KEY", requires = "operational", conflicts_with = "remove")]
    pub(crate) recovery: Vec<Utf8PathBuf>,
    /// A public key that may sign the documents of a hub
    #[arg(long, value_name = "KEY", requires = "operational")]
    pub(crate) author: Vec<Utf8PathBuf>,
    /// Enrol this node at a hub; the hub then hands out its desired files. Needs an enrolment token
    #[arg(long, value_name = "URL", conflicts_with = "remove")]
    pub(crate) hub: Option<String>,
    /// SHA-256 of the hub's certificate
    #[arg(long, value_name = "SHA256", requires = "hub")]
    pub(crate) fingerprint: Vec<String>,
    /// A PEM file with the hub's certificate authority; setup copies it
    #[arg(long, value_name = "FILE", requires = "hub", conflicts_with = "fingerprint")]
    pub(crate) ca_file: Option<Utf8PathBuf>,
    /// A file with the token of `evenkeel fleet enrol-token` [default: read the token from stdin]
    #[arg(long, value_name = "FILE", requires = "hub")]
    pub(crate) enrol_token_file: Option<Utf8PathBuf>,
    /// A purpose to grant rights for, beside reading guests and keeping them as declared
    #[arg(long = "for", value_name = "PURPOSE", value_parser = purposes())]
    pub(crate) purposes: Vec<TokenPurpose>,
    /// The desired files to grant rights for
    #[arg(long, value_name = "DIR", default_value = "/etc/evenkeel/desired")]
    pub(crate) desired: Utf8PathBuf,
    /// Undo setup: remove the unit, rights, token, user, role, and the files that setup wrote
    #[arg(long)]
    pub(crate) remove: bool,
    /// Show every command and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Look for /etc and write below this directory instead; for images and tests
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    pub(crate) root: Utf8PathBuf,
}

/// The purposes that core's registry of rights has, by name.
fn purposes() -> impl TypedValueParser<Value = TokenPurpose> {
    let named =
        TokenPurpose::ALL.map(|purpose| PossibleValue::new(purpose.name()).help(purpose.words()));
    PossibleValuesParser::new(named).map(|name| {
        let found = TokenPurpose::ALL.into_iter().find(|purpose| purpose.name() == name);
        found.expect("it is one of the possible values")
    })
}

/// Arguments of `selftest`.
#[derive(Debug, Args)]
pub(crate) struct SelftestArgs {
    /// The guest to try it on, such as 101 or lxc/101; no one else may change it meanwhile
    #[arg(long, value_name = "GUEST")]
    pub(crate) guest: GuestName,
    /// A storage for backups: also back the guest up, to test its lock and the resuming of a task. The archive stays
    #[arg(long, value_name = "STORAGE")]
    pub(crate) storage: Option<StorageName>,
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
    /// The state directory [default: `state.dir` of agent.toml]
    #[arg(long, env = "EVENKEEL_STATE", value_name = "DIR")]
    pub(crate) state: Option<Utf8PathBuf>,
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
