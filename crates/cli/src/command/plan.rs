//! `evenkeel plan`: what differs, and what would be done about it. Changes nothing.

use std::io::Write as _;

use evenkeel_agent::preview::{Preview, preview};
use evenkeel_core::plan::SavedPlan;
use evenkeel_core::selection::PassScope;

use crate::cli::{self, OutputFormat};
use crate::command::validate::believed;
use crate::connect::{connect, state_dir};
use crate::error::{Exit, Failure};
use crate::format::plan::PlanFormat;
use crate::{format, render, terminal};

pub(crate) async fn run(arguments: &cli::PlanArgs) -> Result<Exit, Failure> {
    let connection = connect(&arguments.connect).await?;
    let Some(desired) = believed(arguments.desired.as_deref(), &connection.config)? else {
        return Ok(Exit::Invalid);
    };
    let state = state_dir(arguments.state.as_deref(), &connection.config);
    let scope = PassScope::of(&arguments.select.selection(), &desired)?;
    let Preview { actual, plan, scope } =
        preview(&connection.client, &desired, scope, &state).await?;
    match arguments.output.output {
        OutputFormat::Table => terminal::print(&render::plan::render(&plan, &actual))?,
        OutputFormat::Json => format::print(&PlanFormat::of(&plan, &actual))?,
    }
    if let Some(path) = &arguments.out {
        save(path, &SavedPlan::of(&plan, &scope, &actual.node, &connection.seal_key))?;
    }
    let would_run = plan.runnable().next().is_some();
    Ok(if arguments.detailed_exitcode && would_run { Exit::Changes } else { Exit::Ok })
}

/// Readable by its owner alone: what is planned for a guest is nobody else's business.
fn save(path: &camino::Utf8Path, plan: &SavedPlan) -> Result<(), Failure> {
    use fs_err::os::unix::fs::OpenOptionsExt as _;
    let text = serde_json::to_string_pretty(plan).expect("a plan has only texts for keys");
    let mut options = fs_err::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let written = options.open(path).and_then(|mut file| writeln!(file, "{text}"));
    written.map_err(|error| Failure::wrapping(Exit::Failed, error))
}
