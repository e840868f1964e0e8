//! Every verb and flag, with the words people read in `--help`.

use camino::Utf8PathBuf;
use clap::{Args, Parser, Subcommand, ValueEnum};

/// Keeps Proxmox VE guests as declared, and destroys nothing an operator did not sign for.
#[derive(Debug, Parser)]
#[command(name = "evenkeel", version, max_term_width = 100, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Check desired files, and tell every mistake with its place
    Validate(Validate),
}

/// Arguments of `validate`.
#[derive(Debug, Args)]
pub(crate) struct Validate {
    /// A desired file, or a directory of them
    #[arg(default_value = ".")]
    pub(crate) path: Utf8PathBuf,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// How data is printed.
#[derive(Debug, Args)]
pub(crate) struct Output {
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
