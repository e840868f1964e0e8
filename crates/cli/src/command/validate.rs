//! `evenkeel validate [PATH]`: check desired files and tell every mistake at once.

use std::io::Write as _;

use evenkeel_agent::config::AgentConfig;
use evenkeel_core::desired::{Desired, Origins, without_secrets};
use evenkeel_core::diagnostic::{Diagnostic, Sources};
use serde_json::json;

use crate::cli::{OutputFormat, ValidateArgs};
use crate::connect::desired_path;
use crate::error::{Exit, Failure};
use crate::render::counted;
use crate::render::diagnostic::render;

pub(crate) fn run(arguments: &ValidateArgs) -> Result<Exit, Failure> {
    let loaded = evenkeel_agent::source::dir::load(arguments.path.as_std_path())?;
    match (arguments.output.output, &loaded.desired) {
        (OutputFormat::Json, Ok(desired)) => tell_json(desired, &[], &loaded.sources)?,
        (OutputFormat::Json, Err(errors)) => {
            tell_json(&Desired::default(), errors, &loaded.sources)?;
        }
        (OutputFormat::Table, Ok(desired)) => {
            let (guests, files) = (desired.guests.len(), loaded.sources.iter().count());
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
) -> Result<Option<Desired>, Failure> {
    Ok(believed_with_origins(flag, config)?.map(|(desired, _, _)| desired))
}

/// The same, with where each declared value comes from.
pub(super) fn believed_with_origins(
    flag: Option<&camino::Utf8Path>,
    config: &AgentConfig,
) -> Result<Option<(Desired, Origins, Sources)>, Failure> {
    let loaded = evenkeel_agent::source::dir::load_believed(&desired_path(flag, config)?)?;
    match loaded.desired {
        Ok(desired) => Ok(Some((desired, loaded.origins, loaded.sources))),
        Err(errors) => {
            tell_errors(&errors, &loaded.sources)?;
            Ok(None)
        }
    }
}

/// Tells every mistake on stderr, with the lines it is in.
pub(super) fn tell_errors(errors: &[Diagnostic], sources: &Sources) -> Result<(), Failure> {
    let mut err = anstream::stderr();
    write!(err, "{}", render(errors, &without_secrets(sources)))?;
    writeln!(err, "\n{}; nothing is taken from these files", counted(errors.len(), "error"))?;
    Ok(())
}

fn tell_json(desired: &Desired, errors: &[Diagnostic], sources: &Sources) -> Result<(), Failure> {
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
    let answer = json!({
        "format_version": 1,
        "valid": errors.is_empty(),
        "guests": desired.guests.len(),
        "errors": errors,
    });
    writeln!(std::io::stdout(), "{answer}")?;
    Ok(())
}
