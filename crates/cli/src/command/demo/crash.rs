//! The agent is killed while Proxmox VE carries out what it asked for, and is started again.

use evenkeel_sim::Event;
use serde_json::Value;

use super::guests::BUILDER;
use super::narration::{command, lines, proof, say};
use super::sandbox::{LOG, Sandbox, demand, show_requests};
use crate::error::CommandFailure;

/// How long the builder takes to start: enough to kill an agent and start another meanwhile.
const SLOW_START_MS: u64 = 6_000;

/// Killed in mid-operation; adopted, not repeated.
pub(super) async fn killed(sandbox: &mut Sandbox) -> Result<(), CommandFailure> {
    sandbox.narration.chapter("The agent is killed in the middle of it").await?;
    let guest = BUILDER.id();
    let usual_ms = sandbox
        .http
        .node
        .with(|simulator| std::mem::replace(&mut simulator.timings.start_ms, SLOW_START_MS));
    let name = guest.to_string();
    let of_guest = ["journal", "--guest", &name];
    let op = kill_while_it_starts(sandbox, &of_guest).await?;
    take_up(sandbox, &of_guest, &op).await?;
    show_what_was_said_and_sent(sandbox, &name)?;
    sandbox.http.node.with(|simulator| simulator.timings.start_ms = usual_ms);
    proof("one operation, one task, one POST: adopted, not repeated")
}

/// The agent has asked for the start, and is gone before it is done. The answer is the operation that was under way.
async fn kill_while_it_starts(
    sandbox: &mut Sandbox,
    of_guest: &[&str],
) -> Result<Value, CommandFailure> {
    let guest = BUILDER.id();
    say(&format!(
        "{guest} ({}) goes down, and it is slow to start. As soon as the agent has asked Proxmox VE to start it, \
         while that runs, we kill the agent as hard as one can:",
        BUILDER.name
    ))?;
    sandbox.happens(Event::Power { guest, running: false });
    let mut op = Value::Null;
    sandbox
        .until("the agent starts the builder", async || {
            op = newest(sandbox, of_guest).await?;
            Ok(op["state"] == "task_running")
        })
        .await?;
    let pid = sandbox.kill_agent()?;
    command(&format!("kill -9 {pid}"))?;
    say(
        "No agent runs now. Proxmox VE does not know, and goes on with its task. The journal, written before the \
         request was sent and again when the answer came, knows what was under way:",
    )?;
    sandbox.shows(of_guest).await?.succeeds()?;
    let goes_on = sandbox.http.node.with(|simulator| simulator.is_task_running("qmstart"));
    demand(goes_on, "the task goes on without the agent")?;
    Ok(op)
}

/// A new agent finds the task and closes the very operation.
async fn take_up(
    sandbox: &mut Sandbox,
    of_guest: &[&str],
    op: &Value,
) -> Result<(), CommandFailure> {
    say(
        "A new agent sees a guest that is declared as running and does not run. Asking again would be a second \
         start. It reads the journal first, finds the task, and waits for it instead:",
    )?;
    command("evenkeel run &")?;
    sandbox.start_agent().await?;
    let same = |now: &Value| now["op"] == op["op"] && now["upid"] == op["upid"];
    sandbox
        .until("the operation is taken up and closed", async || {
            let now = newest(sandbox, of_guest).await?;
            Ok(same(&now) && now["state"] == "succeeded")
        })
        .await?;
    sandbox.shows(of_guest).await?.succeeds()?;
    Ok(())
}

/// The new agent took up one operation, and the guest was sent one request in all.
fn show_what_was_said_and_sent(sandbox: &Sandbox, name: &str) -> Result<(), CommandFailure> {
    let guest = BUILDER.id();
    say(&format!("The new agent's own words, and everything that {guest} was sent:"))?;
    let log = sandbox.read(LOG)?;
    let (_, since) = log.rsplit_once("evenkeel runs").unwrap_or_default();
    let said: Vec<&str> = since
        .lines()
        .filter(|line| line.contains(name))
        .filter_map(|line| line.split_once("INFO "))
        .map(|(_, said)| said)
        .collect();
    let adopted = said.iter().filter(|line| line.starts_with("an earlier operation is done"));
    demand(adopted.count() == 1, "the new agent says that it took up one operation")?;
    lines(&said)?;
    let writes = sandbox.writes(|record| record.guest == Some(guest));
    show_requests(&writes)?;
    demand(writes.len() == 1, "the builder was sent one request")?;
    demand(sandbox.is_running(guest), "the builder runs")
}

/// The newest operation of a guest; nothing if there is none.
pub(super) async fn newest(sandbox: &Sandbox, of_guest: &[&str]) -> Result<Value, CommandFailure> {
    let answer =
        sandbox.runs(&[of_guest, &["--last", "1", "-o", "json"]].concat()).await?.json()?;
    Ok(answer["operations"].get(0).cloned().unwrap_or_default())
}
