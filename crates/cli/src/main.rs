//! The one binary: parse the command line, run the verb, end with the right exit code.
//!
//! No logic lives here: verbs are in `command/`, what people see in `render/`, exit codes in `error.rs`.

mod cli;
mod command;
mod desired_files;
mod error;
mod render;

use std::process::ExitCode;

use clap::Parser;
use cli::{Cli, Verb};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(usage) => return error::usage(&usage),
    };
    let done = match cli.verb {
        Verb::Validate(arguments) => command::validate::run(&arguments),
    };
    error::exit(done)
}
