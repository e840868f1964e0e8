//! `evenkeel plan`: what differs, and what would be done about it. Changes nothing.

use std::io::Write as _;

use evenkeel_agent::preview::{Preview, preview};
use evenkeel_core::desired::selection::PassScope;
use evenkeel_core::plan::SavedPlan;

use crate::cli::{self, OutputFormat};
use crate::command::validate::believed_with_origins;
use crate::connect::{connect, state_dir};
use crate::error::{CommandFailure, Exit};
use crate::format::plan::PlanFormat;
use crate::{format, render, terminal};

pub(crate) async fn run(arguments: &cli::PlanArgs) -> Result<Exit, CommandFailure> {
    let connection = connect(&arguments.pass.connect).await?;
    let state = state_dir(arguments.pass.state.as_deref(), &connection.config);
    let believed =
        believed_with_origins(arguments.pass.desired.as_deref(), &connection.config, &state)?;
    let Some((desired, origins, sources)) = believed else {
        return Ok(Exit::Invalid);
    };
    let scope = PassScope::of(&arguments.select.selection(), &desired)?;
    let policy = &connection.config.policy;
    let Preview { actual, plan, scope } =
        preview(&connection.client, &desired, scope, &state, policy).await?;
    match arguments.output.output {
        OutputFormat::Table => {
            let drawn = if arguments.verbose {
                render::plan::render_with_places(&plan, &actual, &origins, &sources)
            } else {
                render::plan::render(&plan, &actual)
            };
            terminal::print(&drawn)?;
        }
        OutputFormat::Json => {
            let places = arguments.verbose.then_some((&origins, &sources));
            format::print(&PlanFormat::of(&plan, &actual, places))?;
        }
    }
    if let Some(path) = &arguments.out {
        save(path, &SavedPlan::of(&plan, &scope, &actual.node, &connection.seal_key))?;
    }
    if !arguments.detailed_exitcode {
        return Ok(Exit::Ok);
    }
    let unread: Vec<String> = plan.unread().map(|guest| guest.to_string()).collect();
    if !unread.is_empty() {
        return Err(not_whole(&unread));
    }
    let would_run = plan.runnable().next().is_some();
    Ok(if would_run { Exit::ChangeFeed } else { Exit::Ok })
}

/// As many as fit on a line; the plan above names them all.
const UNREAD_NAMED_MAX: usize = 3;

/// Whoever asks by exit code must not take "nothing to run" for "as declared".
fn not_whole(unread: &[String]) -> CommandFailure {
    let (named, more) = unread.split_at(unread.len().min(UNREAD_NAMED_MAX));
    let mut named = named.join(", ");
    if !more.is_empty() {
        named = format!("{named} and {} more", more.len());
    }
    CommandFailure::new(Exit::Failed, format!("the plan is not whole: {named} could not be read"))
        .hint("each guest above says why, and what to do about it")
}

/// Readable by its owner alone: what is planned for a guest is nobody else's business.
fn save(path: &camino::Utf8Path, plan: &SavedPlan) -> Result<(), CommandFailure> {
    use fs_err::os::unix::fs::OpenOptionsExt as _;
    let text = serde_json::to_string_pretty(plan).expect("a plan has only texts for keys");
    let mut options = fs_err::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let written = options.open(path).and_then(|mut file| writeln!(file, "{text}"));
    written.map_err(|error| CommandFailure::wrapping(Exit::Failed, error))
}
