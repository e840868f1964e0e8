//! `doctor --write GUEST`: the description of one guest is written and restored, to see that changing works.
//!
//! ```text
//!   desired: the description and a line more ──> one pass of the engine ──> desired: as it was ──> one pass ──> read back
//! ```
//!
//! There is no way round the gate here either: both writes are passes of the same engine `apply` uses, judged in the
//! guest's lane and in the journal, with what was there before. If the process dies in between, what it added to the
//! description says what to do about it, and the next run takes it away. It must never touch anything but the description.

use std::sync::Arc;

use evenkeel_agent::ambient::{Ambient, Machine};
use evenkeel_agent::engine::{Engine, PassCause, Report};
use evenkeel_agent::find_guest::find_guest;
use evenkeel_agent::observe::observe_guest;
use evenkeel_agent::state_dir::{StateDir, StateError};
use evenkeel_core::actual::Guest;
use evenkeel_core::desired::selection::{GuestName, PassScope};
use evenkeel_core::desired::{Desired, load};
use evenkeel_core::model::id::GuestId;
use evenkeel_core::plan::Plan;
use evenkeel_core::words::diagnostic::Sources;
use serde_json::json;

use super::findings::Findings;
use crate::command::apply::{recover, start, work};
use crate::connect::Connection;
use crate::error::{CommandFailure, Exit};
use crate::terminal;

/// What is added. Whoever finds it later knows what to do; what stood before it is untouched.
const ADDED: &str =
    "evenkeel doctor is trying a write. If you still read this a minute later, remove this line.";

/// Writes, restores, and says what came of it.
pub(super) async fn check(
    connection: &Connection,
    state: &StateDir,
    named: &GuestName,
    yes: bool,
    findings: &mut Findings,
) -> Result<(), CommandFailure> {
    let guest = find(connection, named).await?;
    let id = guest.id;
    // What a run that died left behind is removed by the next one.
    let before = description(&guest)?.and_then(|text| without_added(&text));
    if !yes && !asked(id)? {
        findings.warn("write", &format!("nothing was written to {id}"), "answer y, or give -y");
        return Ok(());
    }
    let ambient: Arc<dyn Ambient> = Arc::new(Machine);
    let journal = state.open_journal(&ambient).map_err(not_opened)?;
    let mut engine = start(connection, state, journal.handle, ambient).await?;
    recover(&mut engine).await?;
    let trip = round_trip(connection, &mut engine, id, before.as_deref());
    tokio::pin!(trip);
    loop {
        tokio::select! {
            done = &mut trip => {
                done?;
                break;
            }
            // Half-way is the one place not to stop at; each request has its own time limit.
            _ = tokio::signal::ctrl_c() => eprintln_quietly("the description is restored first"),
        }
    }
    findings.ok("write", format!("the description of {id} was written and restored"));
    Ok(())
}

/// A state directory that cannot be had.
pub(in crate::command) fn not_opened(error: StateError) -> CommandFailure {
    match error {
        StateError::Busy(_) => CommandFailure::from(error)
            .hint("stop the agent meanwhile (`systemctl stop evenkeel`): a write goes through its journal"),
        StateError::Directory { .. } | StateError::NoMachine(_) | StateError::Journal(_) => error.into(),
    }
}

pub(in crate::command) async fn find(
    connection: &Connection,
    named: &GuestName,
) -> Result<Guest, CommandFailure> {
    let id = find_guest(&connection.client, named).await?;
    Ok(observe_guest(&connection.client, id).await?)
}

pub(in crate::command) fn description(guest: &Guest) -> Result<Option<String>, CommandFailure> {
    let config = guest.config.as_ref().map_err(|error| {
        CommandFailure::new(Exit::Failed, format!("{} cannot be read: {error}", guest.id))
            .hint(error.next)
    })?;
    let value = config.current(guest.id.kind, "description");
    Ok(value.and_then(|value| value.as_text()).map(str::to_owned))
}

/// A description without what was added to it; none if that was all.
fn without_added(text: &str) -> Option<String> {
    match text.trim_end().strip_suffix(ADDED) {
        Some("") => None,
        Some(rest) => Some(rest.trim_end().to_owned()),
        None => Some(text.to_owned()),
    }
}

fn asked(id: GuestId) -> Result<bool, CommandFailure> {
    terminal::must_be_there("give -y to write without being asked")?;
    terminal::agrees(&format!("Write a line to the description of {id}, and restore it?"))
}

/// Whatever became of the first write, the second is tried.
async fn round_trip(
    connection: &Connection,
    engine: &mut Engine,
    id: GuestId,
    before: Option<&str>,
) -> Result<(), CommandFailure> {
    let more = match before {
        Some(text) => format!("{}\n\n{ADDED}", text.trim_end()),
        None => ADDED.to_owned(),
    };
    let written = one_pass(engine, &declared(id, Some(&more))?, id).await;
    let restored = one_pass(engine, &declared(id, before)?, id).await;
    let now = find(connection, &GuestName::Id(id)).await.and_then(|guest| description(&guest));
    let bare = |text: Option<&str>| text.map(|text| text.trim_end().to_owned());
    if now.as_ref().is_ok_and(|now| bare(now.as_deref()) == bare(before)) {
        return written.and(restored);
    }
    let why = restored.and(written).err().map(|failure| failure.message).unwrap_or_default();
    Err(CommandFailure::new(Exit::Failed, format!("the description of {id} is not as it was: {why}"))
        .hint("run it again, or remove the line that begins with `evenkeel doctor`; `evenkeel journal` has the operation"))
}

/// One guest with this description, or without any.
pub(in crate::command) fn declared(
    id: GuestId,
    description: Option<&str>,
) -> Result<Desired, CommandFailure> {
    let mut guest = json!({ "kind": id.kind.as_str() });
    match description {
        Some(text) => guest["description"] = json!(text),
        None => guest["unset"] = json!(["description"]),
    }
    let mut sources = Sources::default();
    let vmid = id.vmid.to_string();
    sources.add("doctor.json", json!({ "guest": { vmid: guest } }).to_string());
    load(&sources).map_err(|errors| {
        let why = errors.first().map(|error| error.message.clone()).unwrap_or_default();
        CommandFailure::new(Exit::Failed, format!("the description of {id} cannot be tried: {why}"))
            .hint("name another guest")
    })
}

/// Brings the guest to what is declared, and nothing else.
pub(in crate::command) async fn one_pass(
    engine: &mut Engine,
    desired: &Desired,
    id: GuestId,
) -> Result<(), CommandFailure> {
    let preview = engine.look(desired, PassScope::Whole, PassCause::Person).await?;
    if let Some(why) = not_runnable(&preview.plan) {
        let hint = "nothing was sent; try again when that is over, or name another guest";
        return Err(CommandFailure::new(Exit::Transient, format!("{id} cannot be written: {why}"))
            .hint(hint));
    }
    let Report { failed, held, skipped, ops, .. } = work(engine, desired, preview).await?;
    if failed + held + skipped == 0 {
        return Ok(());
    }
    let told = ops.iter().map(|op| op.end.words()).find(|words| !words.is_empty());
    let why = told.unwrap_or_else(|| "it was held".to_owned());
    Err(CommandFailure::new(Exit::Failed, format!("a write to {id} did not succeed: {why}"))
        .hint("`evenkeel journal` has the operation"))
}

/// What keeps the one write from running.
fn not_runnable(plan: &Plan) -> Option<String> {
    let guest = plan.guests.first()?;
    let problem = guest.problems.first().map(ToString::to_string);
    let busy = guest.busy.as_ref().map(ToString::to_string);
    let held = guest.actions.iter().find_map(|action| action.held.as_ref());
    problem.or(busy).or(held.map(ToString::to_string))
}

/// A terminal that went away must not stop what is under way.
pub(in crate::command) fn eprintln_quietly(text: &str) {
    use std::io::Write as _;
    let _ = writeln!(anstream::stderr(), "\n{text}");
}
