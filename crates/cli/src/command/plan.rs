//! `evenkeel plan`: what differs, and what would be done about it. Changes nothing.

use std::io::Write as _;

use evenkeel_agent::preview::{Preview, preview};
use evenkeel_core::desired::Origins;
use evenkeel_core::diagnostic::Sources;
use evenkeel_core::plan::{Action, Change, GuestPlan, Plan, SavedPlan};
use serde_json::{Value, json};

use crate::cli::{self, OutputFormat};
use crate::command::validate::believed_with_origins;
use crate::connect::{connect, state_dir};
use crate::error::{Exit, Failure};
use crate::render;

pub(crate) async fn run(arguments: &cli::PlanArgs) -> Result<Exit, Failure> {
    let connection = connect(&arguments.connect).await?;
    let believed = believed_with_origins(arguments.desired.as_deref(), &connection.config)?;
    let Some((desired, origins, sources)) = believed else {
        return Ok(Exit::Invalid);
    };
    let state = state_dir(arguments.state.as_deref(), &connection.config);
    let mode = connection.config.policy.mode;
    let Preview { actual, plan } = preview(&connection.client, &desired, &state, mode).await?;
    match arguments.output.output {
        OutputFormat::Table => {
            let drawn = if arguments.verbose {
                render::plan::render_with_places(&plan, &actual, &origins, &sources)
            } else {
                render::plan::render(&plan, &actual)
            };
            write!(anstream::stdout(), "{drawn}")?;
        }
        OutputFormat::Json => {
            let mut answer = as_json(&plan);
            if arguments.verbose {
                tell_places(&mut answer, &plan, &origins, &sources);
            }
            writeln!(std::io::stdout(), "{answer}")?;
        }
    }
    if let Some(path) = &arguments.out {
        save(path, &SavedPlan::of(&plan, &actual.node, &connection.seal_key))?;
    }
    if !arguments.detailed_exitcode {
        return Ok(Exit::Ok);
    }
    let unread: Vec<String> = plan.unread().map(|guest| guest.to_string()).collect();
    if !unread.is_empty() {
        return Err(not_whole(&unread));
    }
    let would_run = plan.runnable().next().is_some();
    Ok(if would_run { Exit::Changes } else { Exit::Ok })
}

/// As many as fit on a line; the plan above names them all.
const UNREAD_NAMED_MAX: usize = 3;

/// Whoever asks by exit code must not take "nothing to run" for "as declared".
fn not_whole(unread: &[String]) -> Failure {
    let (named, more) = unread.split_at(unread.len().min(UNREAD_NAMED_MAX));
    let mut named = named.join(", ");
    if !more.is_empty() {
        named = format!("{named} and {} more", more.len());
    }
    Failure::new(Exit::Failed, format!("the plan is not whole: {named} could not be read"))
        .hint("each guest above says why, and what to do about it")
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

/// Adds to each guest where what is declared of it stands, by key or word.
fn tell_places(answer: &mut Value, plan: &Plan, origins: &Origins, sources: &Sources) {
    for (at, guest) in plan.guests.iter().enumerate() {
        if let Some(origins) = origins.guests.get(&guest.guest.vmid) {
            answer["guests"][at]["declared_at"] = render::origin::all_placed(origins, sources);
        }
    }
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
