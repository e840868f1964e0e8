//! Arguments of `enrol`, and of `journal acknowledge`.

use camino::Utf8PathBuf;
use clap::Args;

use super::LocalArgs;

/// Arguments of `enrol`.
#[derive(Debug, Args)]
pub(crate) struct EnrolHostArgs {
    /// The hub, such as <https://hub.example:8443>
    pub(crate) url: String,
    /// A file with the one-time token of `evenkeel fleet enrol-token`; without it the token is read from stdin
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<Utf8PathBuf>,
    /// A PEM file with the hub's certificate authority
    #[arg(long, value_name = "FILE", conflicts_with = "fingerprint")]
    pub(crate) ca_file: Option<Utf8PathBuf>,
    /// SHA-256 of the hub's certificate
    #[arg(long, value_name = "SHA256")]
    pub(crate) fingerprint: Vec<String>,
    /// Where to write the credential [default: `credential_file` of agent.toml, or /etc/evenkeel/hub-credential]
    #[arg(long, value_name = "FILE")]
    pub(crate) credential_file: Option<Utf8PathBuf>,
    /// Enrol again: numbers of documents begin anew, the document in effect stays, the credential is replaced
    #[arg(long)]
    pub(crate) replace: bool,
    /// Write the hub into agent.toml without asking; a `dir` there stays, unless --replace-dir is given too
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// With --yes: let the hub take the place of `dir` in agent.toml; the desired files stay where they are
    #[arg(long, requires = "yes")]
    pub(crate) replace_dir: bool,
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

/// Arguments of `journal acknowledge`.
#[derive(Debug, Args)]
pub(crate) struct AcknowledgeArgs {
    /// What an operator signed; or, with --prepare, where to write what is to be signed
    pub(crate) file: Utf8PathBuf,
    /// Write the statement that acknowledges the rollback, to be signed with `evenkeel sign`
    #[arg(long)]
    pub(crate) prepare: bool,
    /// Why the old state was put back, with --prepare
    #[arg(long, value_name = "TEXT", requires = "prepare")]
    pub(crate) reason: Option<String>,
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}
