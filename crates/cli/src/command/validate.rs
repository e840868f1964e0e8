//! `evenkeel validate [PATH]`: check desired files and tell every mistake at once.

use std::io::Write as _;

use evenkeel_agent::config::AgentConfig;
use evenkeel_agent::hub_link::memory;
use evenkeel_agent::hub_link::store::DocumentStore;
use evenkeel_agent::journal::{ReadOnlyDirectory, verify};
use evenkeel_agent::source::dir::LoadedFiles;
use evenkeel_agent::source::tree::PassedOver;
use evenkeel_agent::state_dir::StateDir;
use evenkeel_core::desired::{Desired, Origins, without_secrets};
use evenkeel_core::fleet::LoadedDocument;
use evenkeel_core::words::diagnostic::{Diagnostic, Sources};
use serde_json::json;

use crate::cli::{OutputFormat, ValidateArgs};
use crate::connect::desired_path;
use crate::error::{CommandFailure, Exit};
use crate::render::diagnostic::render;
use crate::render::{counted, tamed};

pub(crate) fn run(arguments: &ValidateArgs) -> Result<Exit, CommandFailure> {
    let loaded = evenkeel_agent::source::dir::load(arguments.path.as_std_path())?;
    if arguments.output.output == OutputFormat::Table {
        tell_passed_over(&loaded)?;
    }
    match (arguments.output.output, &loaded.desired) {
        (OutputFormat::Json, Ok(desired)) => tell_json(desired, &[], &loaded)?,
        (OutputFormat::Json, Err(errors)) => tell_json(&Desired::default(), errors, &loaded)?,
        (OutputFormat::Table, Ok(desired)) => {
            let guests = desired.guests.len();
            let files = loaded.sources.iter().count();
            let out = &mut std::io::stdout();
            writeln!(out, "{} in {}: valid", counted(guests, "guest"), counted(files, "file"))?;
        }
        (OutputFormat::Table, Err(errors)) => tell_errors(errors, &loaded.sources)?,
    }
    Ok(if loaded.desired.is_ok() { Exit::Ok } else { Exit::Invalid })
}

/// The desired state of the flag's files, or of the configuration's, read as the agent believes them; none, with every
/// mistake told, if there is one.
pub(super) fn believed(
    flag: Option<&camino::Utf8Path>,
    config: &AgentConfig,
    state: &StateDir,
) -> Result<Option<Desired>, CommandFailure> {
    Ok(believed_with_origins(flag, config, state)?.map(|(desired, _, _)| desired))
}

/// The same, with where each declared value comes from.
pub(super) fn believed_with_origins(
    flag: Option<&camino::Utf8Path>,
    config: &AgentConfig,
    state: &StateDir,
) -> Result<Option<(Desired, Origins, Sources)>, CommandFailure> {
    if flag.is_none() && config.desired.dir.is_none() && config.desired.hub.is_some() {
        return taken_from_hub(config, state).map(Some);
    }
    let loaded = evenkeel_agent::source::dir::load_believed(&desired_path(flag, config)?)?;
    tell_passed_over(&loaded)?;
    match loaded.desired {
        Ok(desired) => Ok(Some((desired, loaded.origins, loaded.sources))),
        Err(errors) => {
            tell_errors(&errors, &loaded.sources)?;
            Ok(None)
        }
    }
}

/// The last document of the hub that this host took, from its disk: no hub and no agent is needed.
pub(super) fn taken_from_hub(
    config: &AgentConfig,
    state: &StateDir,
) -> Result<(Desired, Origins, Sources), CommandFailure> {
    let enrol = "this host is enrolled with `evenkeel enrol URL`";
    let none = |message: String, hint: &'static str| {
        CommandFailure::new(Exit::Invalid, message).hint(hint)
    };
    let files = ReadOnlyDirectory::open(state.journal())
        .map_err(|error| none("the journal cannot be read".to_owned(), enrol).because(error))?;
    let floor = verify::newest(&files)?.and_then(|(_, journal)| memory::floor(&journal));
    let floor =
        floor.ok_or_else(|| none("this host is not enrolled with a hub".to_owned(), enrol))?;
    if let Some(unsigned) = floor.lacks_signature(config.policy.desired_signed) {
        let message = format!("nobody signed generation {unsigned}, so it holds no longer");
        return Err(none(message, "an author signs the next one: `evenkeel fleet push --key`"));
    }
    let loaded = DocumentStore::new(state.path()).load(&floor);
    let loaded = loaded.map_err(|error| CommandFailure::wrapping(Exit::Invalid, error))?;
    let LoadedDocument { desired, origins, sources } = loaded.ok_or_else(|| {
        let message = "no document of the hub was taken yet".to_owned();
        none(message, "`evenkeel fleet push` sends one; the agent takes it")
    })?;
    Ok((desired, origins, sources))
}

/// Tells every mistake on stderr, with the lines it is in.
pub(crate) fn tell_errors(errors: &[Diagnostic], sources: &Sources) -> Result<(), CommandFailure> {
    let mut err = anstream::stderr();
    write!(err, "{}", render(errors, &without_secrets(sources)))?;
    let all = errors.iter().map(Diagnostic::stands_for).sum();
    writeln!(err, "\n{}; nothing is taken from these files", counted(all, "error"))?;
    Ok(())
}

/// How many files that were passed over are named one by one.
const PASSED_OVER_TOLD_MAX: usize = 5;

/// Tells on stderr what was not read, because somebody may have meant it to be.
fn tell_passed_over(loaded: &LoadedFiles) -> Result<(), CommandFailure> {
    let mut err = anstream::stderr();
    for file in loaded.passed_over.iter().take(PASSED_OVER_TOLD_MAX) {
        writeln!(err, "warning: {}", tamed(&file.to_string(), usize::MAX))?;
    }
    if let Some(more @ 1..) = loaded.passed_over.len().checked_sub(PASSED_OVER_TOLD_MAX) {
        writeln!(err, "warning: {} more {} not read", more, if more == 1 { "is" } else { "are" })?;
    }
    if !loaded.passed_over.is_empty() {
        writeln!(err, "  hint: {}", PassedOver::HINT)?;
    }
    Ok(())
}

fn tell_json(
    desired: &Desired,
    errors: &[Diagnostic],
    loaded: &LoadedFiles,
) -> Result<(), CommandFailure> {
    let sources = &loaded.sources;
    let place = |error: &Diagnostic| {
        let span = error.at?;
        let (line, column) = sources.line_column(span)?;
        Some(json!({ "file": sources.get(span.file)?.path, "line": line, "column": column }))
    };
    let errors: Vec<serde_json::Value> = errors
        .iter()
        .map(|error| {
            json!({
                "code": error.code.as_str(),
                "message": error.message,
                "at": place(error),
                "hints": error.hints,
            })
        })
        .collect();
    let warnings: Vec<serde_json::Value> = loaded
        .passed_over
        .iter()
        .map(|file| {
            let path = file.path.display().to_string();
            json!({ "file": path, "message": file.to_string(), "hints": [PassedOver::HINT] })
        })
        .collect();
    let answer = json!({
        "format_version": 1,
        "valid": errors.is_empty(),
        "guests": desired.guests.len(),
        "errors": errors,
        "warnings": warnings,
    });
    writeln!(std::io::stdout(), "{answer}")?;
    Ok(())
}
