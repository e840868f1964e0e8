//! `evenkeel validate [PATH]`: check desired files and tell every mistake at once.

use std::io::{IsTerminal as _, Write as _};

use evenkeel_core::desired::{self, Desired};
use evenkeel_core::diagnostic::{Diagnostic, Sources};
use serde_json::json;

use crate::cli::{OutputFormat, Validate};
use crate::error::{Exit, Failure};
use crate::render::diagnostic::{Style, render};

pub(crate) fn run(arguments: &Validate) -> Result<Exit, Failure> {
    let files = crate::desired_files::read(&arguments.path)?;
    let mut errors = files.unreadable;
    let checked = desired::load(&files.sources);
    let desired = match checked {
        Ok(desired) => desired,
        Err(more) => {
            errors.extend(more);
            Desired::default()
        }
    };
    match arguments.output.output {
        OutputFormat::Json => tell_json(&desired, &errors, &files.sources)?,
        OutputFormat::Table => tell(&desired, &errors, &files.sources)?,
    }
    Ok(if errors.is_empty() { Exit::Ok } else { Exit::Invalid })
}

fn tell(desired: &Desired, errors: &[Diagnostic], sources: &Sources) -> Result<(), Failure> {
    let (guests, files) = (desired.guests.len(), sources.iter().count());
    if errors.is_empty() {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{} in {}: valid", counted(guests, "guest"), counted(files, "file"))?;
        return Ok(());
    }
    let mut err = std::io::stderr().lock();
    let style = if err.is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        Style::Styled
    } else {
        Style::Plain
    };
    write!(err, "{}", render(errors, sources, style))?;
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

fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}
