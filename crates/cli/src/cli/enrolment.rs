//! Arguments of `enrol`, and of `journal acknowledge`.

use camino::Utf8PathBuf;
use clap::Args;

use super::LocalArgs;

/// Arguments of `enrol`.
#[derive(Debug, Args)]
pub(crate) struct EnrolHostArgs {
    /// The hub, such as <https://hub.example:8443>
    pub(crate) url: String,
    /// A file with the one-time token of `evenkeel fleet enrol-token` [default: read the token from stdin]
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<Utf8PathBuf>,
    /// A PEM file with the hub's certificate authority
    #[arg(long, value_name = "FILE", conflicts_with = "fingerprint")]
    pub(crate) ca_file: Option<Utf8PathBuf>,
    /// SHA-256 of the hub's certificate
    #[arg(long, value_name = "SHA256")]
    pub(crate) fingerprint: Vec<String>,
    /// The file for the credential [default: `credential_file` of agent.toml, or /etc/evenkeel/hub-credential]
    #[arg(long, value_name = "FILE")]
    pub(crate) credential_file: Option<Utf8PathBuf>,
    /// Enrol again: document numbers restart, the current document stays, a new credential replaces the old one
    #[arg(long)]
    pub(crate) replace: bool,
    /// Write the hub into agent.toml without asking; keep a `dir` there, unless you add --replace-dir
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// With --yes: replace `dir` in agent.toml by the hub; the desired files stay on disk
    #[arg(long, requires = "yes")]
    pub(crate) replace_dir: bool,
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

/// Arguments of `journal acknowledge`.
#[derive(Debug, Args)]
pub(crate) struct AcknowledgeArgs {
    /// The signed statement; with --prepare, the file to write the unsigned statement to
    pub(crate) file: Utf8PathBuf,
    /// Write the statement that acknowledges the rollback; sign it with `evenkeel sign`
    #[arg(long)]
    pub(crate) prepare: bool,
    /// With --prepare: the reason for restoring the old state
    #[arg(long, value_name = "TEXT", requires = "prepare")]
    pub(crate) reason: Option<String>,
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}
