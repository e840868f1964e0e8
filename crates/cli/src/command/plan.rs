//! `evenkeel plan`: what differs, and what would be done about it. Changes nothing.

use std::io::Write as _;

use evenkeel_agent::preview::{Preview, preview};
use evenkeel_core::plan::{Action, Change, GuestPlan, Plan, SavedPlan};
use evenkeel_core::selection::PassScope;
use serde_json::{Value, json};

use crate::cli::{self, OutputFormat};
use crate::command::validate::believed;
use crate::connect::{connect, state_dir};
use crate::error::{Exit, Failure};
use crate::render;

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
        OutputFormat::Table => {
            write!(anstream::stdout(), "{}", render::plan::render(&plan, &actual))?;
        }
        OutputFormat::Json => writeln!(std::io::stdout(), "{}", as_json(&plan))?,
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

fn as_json(plan: &Plan) -> Value {
    json!({
        "format_version": 1,
        "guests": plan.guests.iter().map(guest_json).collect::<Vec<_>>(),
        "in_sync": plan.in_sync,
        "summary": render::plan::summary(plan),
    })
}

fn guest_json(guest: &GuestPlan) -> Value {
    let problem = |problem: &evenkeel_core::plan::PlanProblem| json!({ "message": problem.to_string(), "hint": problem.hint() });
    json!({
        "guest": guest.guest,
        "actions": guest.actions.iter().map(action_json).collect::<Vec<_>>(),
        "after_restart": guest.waiting.iter().map(change_json).collect::<Vec<_>>(),
        "problems": guest.problems.iter().map(problem).collect::<Vec<_>>(),
        "busy": guest.busy.as_ref().map(|busy| json!({ "op": busy.op, "since": busy.since, "unknown": busy.unknown })),
    })
}

fn action_json(action: &Action) -> Value {
    json!({
        "kind": action.step.kind(),
        "params": action.step.shown_params(),
        "class": action.class,
        "effect": action.effect(),
        "why": action.why,
        "reasons": action.reasons(),
        "changes": action.changes.iter().map(change_json).collect::<Vec<_>>(),
        "held": action.held.as_ref().map(|held| json!({ "code": held.reason(), "message": held.to_string() })),
    })
}

fn change_json(change: &Change) -> Value {
    json!({
        "key": change.key.to_string(),
        "change": change.to_string(),
        "class": change.class,
        "when": change.when.to_string(),
    })
}
