//! The one binary: parse the command line, run the verb, end with the right exit code.
//!
//! No logic lives here: verbs are in `command/`, what people see in `render/`, exit codes in `error.rs`.

mod agent_user;
mod atomic_file;
mod cli;
mod command;
mod connect;
mod error;
mod fleet;
mod format;
mod interrupt;
mod logging;
mod render;
mod signing;
mod terminal;

use std::process::ExitCode;

use clap::Parser;
use cli::{Cli, Verb};
use error::{CommandFailure, Exit};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(usage) => return error::usage(&usage),
    };
    error::exit(run(cli.verb))
}

fn run(verb: Verb) -> Result<Exit, CommandFailure> {
    match verb {
        Verb::Demo { headless, fleet } => waiting(command::demo::run(headless, fleet)),
        Verb::Sim(arguments) => waiting(command::sim::run(&arguments)),
        Verb::Plan(arguments) => waiting(command::plan::run(&arguments)),
        Verb::Apply(arguments) => waiting(command::apply::run(&arguments)),
        Verb::Run(arguments) => waiting(command::run::run(&arguments)),
        Verb::Status(arguments) => waiting(command::status::run(&arguments)),
        Verb::Pending(arguments) => waiting(command::approvals::pending(&arguments)),
        Verb::Request(arguments) => waiting(command::approvals::request(&arguments)),
        Verb::Submit(arguments) => waiting(command::approvals::submit(&arguments)),
        Verb::Import(arguments) => waiting(command::import::run(&arguments)),
        Verb::Doctor(arguments) => waiting(command::doctor::run(&arguments)),
        Verb::Setup(arguments) => waiting(command::setup::run(&arguments)),
        Verb::Selftest(arguments) => waiting(command::selftest::run(&arguments)),
        Verb::Freeze(arguments) => command::freeze::freeze(&arguments),
        Verb::Thaw(arguments) => command::freeze::thaw(&arguments),
        Verb::Audit(arguments) => waiting(command::audit::run(&arguments)),
        Verb::Journal(arguments) => waiting(command::journal::run(arguments)),
        Verb::Enrol(arguments) => waiting(command::enrol::run(&arguments)),
        Verb::Retry(arguments) => waiting(command::retry::run(&arguments)),
        Verb::Validate(arguments) => command::validate::run(&arguments),
        Verb::Explain(arguments) => command::explain::run(&arguments),
        Verb::Show(arguments) => command::show::run(&arguments),
        Verb::Schema => command::schema::run(),
        Verb::Approve(arguments) => waiting(command::approve::run(&arguments)),
        Verb::Sign(arguments) => waiting(command::sign::run(&arguments)),
        Verb::Verify(arguments) => command::verify::run(&arguments),
        Verb::Signers(arguments) => waiting(command::signers::run(&arguments)),
        Verb::Fleet(verb) => waiting(command::fleet::run(&verb)),
        Verb::Hub(arguments) => serving(command::hub::run(&arguments)),
        Verb::Completions { shell } => command::reference::completions(shell),
        Verb::Man { out } => command::reference::man(out.as_deref()),
    }
}

/// Runs a verb that talks to a server. One thread is enough: it waits, it does not compute.
fn waiting(
    verb: impl Future<Output = Result<Exit, CommandFailure>>,
) -> Result<Exit, CommandFailure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(verb)
}

/// Runs a server for many: on every core.
fn serving(
    verb: impl Future<Output = Result<Exit, CommandFailure>>,
) -> Result<Exit, CommandFailure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(verb)
}
