//! What is said to `setup`, the verb for a node of one's own.

use camino::Utf8PathBuf;
use clap::{Args, ValueEnum};
use evenkeel_core::rights::Purpose;

/// Arguments of `setup`.
#[derive(Debug, Args)]
pub(crate) struct SetupArgs {
    /// A public key (.pub) that may sign destructive acts; its comment becomes the signer's name
    #[arg(long, value_name = "FILE", requires = "recovery", conflicts_with = "remove")]
    pub(crate) operational: Vec<Utf8PathBuf>,
    /// A public key (.pub) that may replace the others, kept where nobody uses it
    #[arg(long, value_name = "FILE", requires = "operational", conflicts_with = "remove")]
    pub(crate) recovery: Vec<Utf8PathBuf>,
    /// What the token may be used for, beside reading and keeping what is declared
    #[arg(long = "for", value_name = "PURPOSE", value_enum)]
    pub(crate) purposes: Vec<NodePurpose>,
    /// Desired files whose rights the role gets
    #[arg(long, value_name = "DIR", default_value = "/etc/evenkeel/desired")]
    pub(crate) desired: Utf8PathBuf,
    /// Take it back: unit, rights, token, user, role, and the files that were written here
    #[arg(long)]
    pub(crate) remove: bool,
    /// Show every command and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Look for /etc and write below this directory instead; for images and tests
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    pub(crate) root: Utf8PathBuf,
}

/// What a token may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum NodePurpose {
    /// Make guests from templates, images or nothing
    Make,
    /// Make privileged containers
    MakePrivileged,
    /// Copy guests
    Clone,
    /// Make guests from backups
    Restore,
    /// Turn guests into templates
    Template,
    /// Move volumes
    Move,
    /// Back guests up
    Backup,
}

impl NodePurpose {
    /// As core's registry of rights has it.
    pub(crate) fn purpose(self) -> Purpose {
        match self {
            Self::Make => Purpose::Make,
            Self::MakePrivileged => Purpose::MakePrivileged,
            Self::Clone => Purpose::Clone,
            Self::Restore => Purpose::Restore,
            Self::Template => Purpose::Template,
            Self::Move => Purpose::Move,
            Self::Backup => Purpose::BackUp,
        }
    }
}
