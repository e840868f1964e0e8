//! What a running agent does for `pending`, `request` and `submit`, done here where none runs.
//!
//! There is no second executor: like `apply`, it takes the lock of the state directory and starts the same engine. Looking
//! at what waits takes no lock and no connection.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_agent::ambient::{Ambient, Machine};
use evenkeel_agent::daemon::approvals::{self, pending_views};
use evenkeel_agent::daemon::protocol::{PendingView, SocketAnswer};
use evenkeel_agent::effective_clock::wall;
use evenkeel_agent::engine::{Engine, EngineEvent, OpReport, WithdrawError, withdraw_records};
use evenkeel_agent::journal::verify;
use evenkeel_agent::journal::{AppendError, JournalState};
use evenkeel_agent::state_dir::StateDir;
use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::desired::selection::GuestName;
use evenkeel_core::model::id::OperationId;
use evenkeel_core::sign::PendingId;

use super::apply::{recover, start, stop};
use super::journal::reading;
use crate::cli::{ConnectArgs, StatePlace};
use crate::connect::{connect, state_dir};
use crate::error::{CommandFailure, Exit};
use crate::interrupt::Interrupts;

/// What waits for a signature, by the journal.
pub(super) fn pending(state: &StateDir) -> Result<Vec<PendingView>, CommandFailure> {
    Ok(journal_state(state)?.map(|state| pending_views(&state)).unwrap_or_default())
}

/// What the journal adds up to; none if nothing was ever written.
pub(crate) fn journal_state(state: &StateDir) -> Result<Option<JournalState>, CommandFailure> {
    let files = reading(&state.journal())?;
    Ok(verify::newest(&files)?.map(|(_, state)| state))
}

/// Raises an item for an act nobody declared, or does what needs no signature and awaits what becomes of it.
pub(super) async fn request(
    place: &StatePlace,
    (op, guest, params, requester): (
        ActionKind,
        &GuestName,
        BTreeMap<String, String>,
        Option<String>,
    ),
    within: Duration,
) -> Result<SocketAnswer, CommandFailure> {
    let mut interrupts = Interrupts::listen()?;
    let mut engine = engine(place).await?;
    match approvals::request(&mut engine, op, guest, params, requester).await? {
        Ok(answer) => Ok(answer),
        Err(op) => awaited(engine, op, within, &mut interrupts).await,
    }
}

/// Takes an item back.
pub(super) fn withdraw(
    state: &StateDir,
    id: PendingId,
    note: String,
) -> Result<(), CommandFailure> {
    let mut journal = state.lock_journal(&Machine)?;
    for record in withdraw_records(journal.state(), id, note)? {
        journal.stage(record, wall(&Machine))?;
    }
    Ok(journal.commit().map_err(AppendError::Failed)?)
}

/// Takes an approval, a rotation or a recovery, and awaits what becomes of it.
pub(super) async fn submit(
    place: &StatePlace,
    envelope: &str,
    within: Duration,
) -> Result<SocketAnswer, CommandFailure> {
    let mut interrupts = Interrupts::listen()?;
    let mut engine = engine(place).await?;
    let op = match approvals::taken(engine.submit_approval(envelope.as_bytes()).await?) {
        Ok(answer) => return Ok(answer),
        Err(op) => op,
    };
    awaited(engine, op, within, &mut interrupts).await
}

/// What became of an operation, if it ends in time.
async fn awaited(
    mut engine: Engine,
    op: OperationId,
    within: Duration,
    interrupts: &mut Interrupts,
) -> Result<SocketAnswer, CommandFailure> {
    let ended = tokio::select! {
        report = end_of(&mut engine, op) => Some(report?),
        () = interrupts.next() => None,
        () = tokio::time::sleep(within) => None,
    };
    match ended {
        Some(report) => Ok(SocketAnswer::Op { report }),
        // What is under way may end; the rest is in the journal.
        None => Err(stop(engine, interrupts).await?.0),
    }
}

async fn end_of(engine: &mut Engine, op: OperationId) -> Result<Box<OpReport>, CommandFailure> {
    loop {
        match engine.work().await? {
            EngineEvent::Op(report) if report.op == op => return Ok(report),
            EngineEvent::Op(_) | EngineEvent::Settled(_) | EngineEvent::Pass { .. } => {}
        }
    }
}

/// The engine, as `apply` starts it: with the lock of the state directory, after what a crash left in flight.
async fn engine(place: &StatePlace) -> Result<Engine, CommandFailure> {
    let connection = connect(&ConnectArgs::of(place)).await?;
    let state = state_dir(place.state.as_deref(), &connection.config);
    let ambient: Arc<dyn Ambient> = Arc::new(Machine);
    let journal = state.open_journal(&ambient)?.handle;
    let mut engine = start(&connection, &state, journal, ambient).await?;
    recover(&mut engine).await?;
    Ok(engine)
}

impl From<WithdrawError> for CommandFailure {
    fn from(error: WithdrawError) -> Self {
        let exit = match &error {
            WithdrawError::NotWaiting(_) => Exit::NotFound,
            WithdrawError::Declared { .. } | WithdrawError::Engine(_) => Exit::Failed,
        };
        let hint = error.hint();
        Self::wrapping(exit, error).hint(hint)
    }
}
