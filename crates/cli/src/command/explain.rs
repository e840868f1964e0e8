//! `evenkeel explain [KEY]`: what is known of a key, without a server.

use std::fmt::Write as _;
use std::io::Write as _;

use evenkeel_core::model::id::GuestKind;
use evenkeel_core::registry::{self, Explanation};

use crate::cli::{ExplainArgs, OutputFormat};
use crate::error::{CommandFailure, Exit};
use crate::format;
use crate::format::tools::{ExplainFormat, KeyFormat, KeyLineFormat, KeysFormat, PartFormat};
use crate::render::diagnostic::wrapped;
use crate::render::style::{FAINT, GUEST, styled};

const INFALLIBLE: &str = "writing to a string cannot fail";

pub(crate) fn run(arguments: &ExplainArgs) -> Result<Exit, CommandFailure> {
    let Some(key) = &arguments.key else {
        return every_key(arguments.output.output);
    };
    let told = registry::explain(key)
        .map_err(|error| CommandFailure::new(Exit::NotFound, error.to_string()).hint(error.hint))?;
    match arguments.output.output {
        OutputFormat::Json => {
            let keys = told.iter().map(as_format).collect();
            format::print(&ExplainFormat::new(KeysFormat::Told(keys)))?;
        }
        OutputFormat::Table => {
            let texts: Vec<String> = told.iter().map(as_text).collect();
            write!(anstream::stdout(), "{}", texts.join("\n"))?;
        }
    }
    Ok(Exit::Ok)
}

/// The column at which facts and parts begin.
const COLUMN: usize = 13;

fn as_text(told: &Explanation) -> String {
    let kinds: Vec<String> = told.kinds.iter().map(ToString::to_string).collect();
    let heading = format!("({})", kinds.join(" and "));
    let mut text = format!("{} {}\n", styled(GUEST, &told.name), styled(FAINT, heading));
    for line in wrapped(&told.about, 2).lines() {
        writeln!(text, "  {line}").expect(INFALLIBLE);
    }
    text.push('\n');
    for (name, fact) in &told.facts {
        entry(&mut text, name, fact);
    }
    entry(&mut text, "example", &told.example);
    if !told.parts.is_empty() {
        text.push_str("\n  Parts\n");
        let width = told.parts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, takes) in &told.parts {
            let lines = wrapped(&plain(takes), width + 6);
            let lines = lines.replace('\n', &format!("\n{}", " ".repeat(width + 6)));
            writeln!(text, "    {name:width$}  {lines}").expect(INFALLIBLE);
        }
    }
    text
}

fn entry(text: &mut String, name: &str, fact: &str) {
    let lines = wrapped(&plain(fact), COLUMN);
    let lines = lines.replace('\n', &format!("\n{}", " ".repeat(COLUMN)));
    let name = format!("{name:width$}", width = COLUMN - 3);
    writeln!(text, "  {} {lines}", styled(FAINT, name)).expect(INFALLIBLE);
}

/// A fact of the reference without the marks of Markdown.
fn plain(fact: &str) -> String {
    fact.replace('`', "")
}

fn as_format(told: &Explanation) -> KeyFormat {
    let part = |(name, takes): &(&str, String)| PartFormat {
        name: (*name).to_owned(),
        value: plain(takes),
    };
    let facts = told.facts.iter().map(|(name, fact)| (name.replace(' ', "_"), plain(fact)));
    KeyFormat {
        name: told.name.clone(),
        kinds: told.kinds.iter().map(ToString::to_string).collect(),
        about: told.about.clone(),
        facts: facts.collect(),
        parts: told.parts.iter().map(part).collect(),
        example: told.example.clone(),
    }
}

fn every_key(output: OutputFormat) -> Result<Exit, CommandFailure> {
    let keys = registry::every_key();
    if output == OutputFormat::Json {
        let lines = keys.into_iter().map(|(kind, name, about)| KeyLineFormat {
            kind: kind.map(|kind| kind.to_string()),
            name,
            about: about.to_owned(),
        });
        format::print(&ExplainFormat::new(KeysFormat::Listed(lines.collect())))?;
        return Ok(Exit::Ok);
    }
    let width = keys.iter().map(|(_, name, _)| name.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for group in [None, Some(GuestKind::Lxc), Some(GuestKind::Qemu)] {
        let heading = group
            .map_or("words of every guest".to_owned(), |kind| format!("keys of {kind} guests"));
        writeln!(text, "{}", styled(GUEST, heading)).expect(INFALLIBLE);
        for (_, name, line) in keys.iter().filter(|(kind, _, _)| *kind == group) {
            writeln!(text, "  {name:width$}  {line}").expect(INFALLIBLE);
        }
        text.push('\n');
    }
    text.push_str("`evenkeel explain KEY` tells more about one.\n");
    write!(anstream::stdout(), "{text}")?;
    Ok(Exit::Ok)
}
