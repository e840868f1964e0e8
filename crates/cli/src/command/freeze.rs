//! `evenkeel freeze` and `evenkeel thaw`: stop every change on this host, and let them go on.
//!
//! Both need the state directory and nothing else, so that they work when the agent does not. A directory that no agent
//! uses is refused: a freeze there would stop nothing.

use std::io::Write as _;

use evenkeel_agent::ambient::{Ambient as _, Machine};
use evenkeel_agent::freeze::{self, FreezeError, FreezeOutcome, Frozen, REASON_BYTES_MAX, Thawed};
use evenkeel_agent::state_dir::StateDir;

use crate::cli::{Freeze, LocalArgs, OutputFormat};
use crate::error::{CommandFailure, Exit};
use crate::format;
use crate::format::tools::{FreezeFormat, ThawFormat};
use crate::render::status::frozen;

pub(crate) fn freeze(arguments: &Freeze) -> Result<Exit, CommandFailure> {
    let reason = arguments.reason.clone().unwrap_or_default();
    if reason.len() > REASON_BYTES_MAX {
        let message = format!("the reason is longer than {REASON_BYTES_MAX} bytes");
        return Err(CommandFailure::new(Exit::Usage, message).hint("say it shorter"));
    }
    let state = arguments.local.place.state_dir()?;
    if !state.is_frozen() {
        must_be_used(&state)?;
    }
    let at = Machine.now().to_string();
    let by = freeze::this_user();
    let new = Frozen { at, by, reason };
    let (already, freeze) = match freeze::freeze(&state, &new)? {
        FreezeOutcome::Done => (false, Some(new)),
        FreezeOutcome::Already(first) => (true, first),
    };
    let out = &mut std::io::stdout();
    let directory = state.path().display();
    match arguments.local.output.output {
        OutputFormat::Json => {
            format::print(&FreezeFormat::new(already, directory.to_string(), freeze))?;
        }
        OutputFormat::Table if already => {
            writeln!(out, "already frozen: {directory}{}", told(freeze.as_ref()))?;
        }
        OutputFormat::Table => {
            writeln!(out, "frozen: {directory}")?;
            writeln!(out, "nothing that its agent keeps is changed until `evenkeel thaw`")?;
        }
    }
    Ok(Exit::Ok)
}

/// Whoever freezes the wrong directory must not believe that anything has stopped.
fn must_be_used(state: &StateDir) -> Result<(), CommandFailure> {
    if state.is_used() {
        return Ok(());
    }
    let directory = state.path().display();
    let message = format!("no agent uses {directory}: it has neither journal nor socket");
    Err(CommandFailure::new(Exit::NotFound, message).hint(
        "nothing was changed; name the agent's own directory with --state, or its agent.toml with --config",
    ))
}

pub(crate) fn thaw(arguments: &LocalArgs) -> Result<Exit, CommandFailure> {
    let state = arguments.place.state_dir()?;
    if !state.is_frozen() {
        must_be_used(&state)?;
    }
    let done = freeze::thaw(&state, Machine.now(), &freeze::this_user())?;
    let out = &mut std::io::stdout();
    let directory = state.path().display();
    match (arguments.output.output, done) {
        (OutputFormat::Json, done) => {
            let already = done.is_none();
            let ended = done.and_then(|thawed| thawed.ended);
            format::print(&ThawFormat::new(already, directory.to_string(), ended))?;
        }
        (OutputFormat::Table, Some(Thawed { ended, .. })) => {
            writeln!(out, "thawed: {directory}{}", told(ended.as_ref()))?;
        }
        (OutputFormat::Table, None) => writeln!(out, "was not frozen: {directory}")?,
    }
    Ok(Exit::Ok)
}

/// The freeze on a line of its own; none if nobody can tell.
fn told(freeze: Option<&Frozen>) -> String {
    freeze.map(|freeze| format!("\nfrozen {}", frozen(freeze))).unwrap_or_default()
}

impl From<FreezeError> for CommandFailure {
    fn from(error: FreezeError) -> Self {
        match error {
            FreezeError::State(error) => error.into(),
            FreezeError::File { .. } => Self::wrapping(Exit::Failed, error)
                .hint("run as the owner of the state directory, or name another with --state"),
        }
    }
}
