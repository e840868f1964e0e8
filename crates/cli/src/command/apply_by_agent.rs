//! `evenkeel apply` while an agent runs: the plan is made and shown here, and carried out there, exactly so or not at
//! all.
//!
//! The agent reads its own desired files. If those are not the ones shown here, its plan differs, and it refuses this
//! one as stale.

use evenkeel_agent::daemon::client::{AskError, Conversation};
use evenkeel_agent::daemon::protocol::{Refused, RefusedCode, SocketAnswer, SocketRequest};
use evenkeel_agent::preview::{Preview, preview};
use evenkeel_agent::state_dir::StateDir;
use evenkeel_core::desired::Desired;
use evenkeel_core::plan::SavedPlan;

use super::apply::{WantedPass, agreed, stale_plan, tell, tell_report};
use crate::cli;
use crate::connect::Connection;
use crate::error::{Exit, Failure};

/// Asks the running agent; none if whoever has the journal does not listen.
pub(super) async fn run(
    connection: &Connection,
    state: &StateDir,
    desired: &Desired,
    wanted: WantedPass,
    arguments: &cli::ApplyArgs,
) -> Option<Result<Exit, Failure>> {
    state.socket().exists().then_some(())?;
    match shown(connection, state, desired, wanted, arguments).await {
        Err(failure) => Some(Err(failure)),
        Ok(None) => Some(Ok(Exit::Ok)),
        Ok(Some(plan)) => match follow(state, plan, arguments).await {
            Err(Asked::NobodyThere) => None,
            Err(Asked::Failed(failure)) => Some(Err(failure)),
            Ok(exit) => Some(Ok(exit)),
        },
    }
}

/// What a person agreed to; none if to nothing.
async fn shown(
    connection: &Connection,
    state: &StateDir,
    desired: &Desired,
    wanted: WantedPass,
    arguments: &cli::ApplyArgs,
) -> Result<Option<SavedPlan>, Failure> {
    let WantedPass { scope, saved } = wanted;
    let Preview { actual, plan, scope } =
        preview(&connection.client, desired, scope, state).await?;
    let now = SavedPlan::of(&plan, &scope, &actual.node, &connection.seal_key);
    if let Some(stale) = saved.as_ref().and_then(|saved| saved.stale_against(&now)) {
        return Err(stale_plan(&stale));
    }
    let agreed = agreed(&plan, &actual, &now, saved.is_some(), arguments)?;
    Ok(agreed.then(|| saved.unwrap_or(now)))
}

/// Why there is no report.
enum Asked {
    NobodyThere,
    Failed(Failure),
}

async fn follow(
    state: &StateDir,
    plan: SavedPlan,
    arguments: &cli::ApplyArgs,
) -> Result<Exit, Asked> {
    let failed = |error: AskError| match error {
        AskError::NobodyThere => Asked::NobodyThere,
        AskError::Io(_) | AskError::WentAway | AskError::NotUnderstood(_) => {
            Asked::Failed(error.into())
        }
    };
    let request = SocketRequest::Apply { plan: Some(plan) };
    let mut answers = Conversation::ask(&state.socket(), &request).await.map_err(failed)?;
    loop {
        match answers.next().await.map_err(failed)? {
            SocketAnswer::Progress { progress } => tell(progress),
            SocketAnswer::Report { report } => {
                return tell_report(&report, arguments).map_err(Asked::Failed);
            }
            other @ (SocketAnswer::Refused(_)
            | SocketAnswer::Status { .. }
            | SocketAnswer::Pending { .. }
            | SocketAnswer::Raised { .. }
            | SocketAnswer::Op { .. }
            | SocketAnswer::Replay { .. }
            | SocketAnswer::Done { .. }) => return Err(Asked::Failed(unexpected(other))),
        }
    }
}

/// An answer that is no answer to what was asked.
pub(crate) fn unexpected(answer: SocketAnswer) -> Failure {
    if let SocketAnswer::Refused(refused) = answer {
        return refused.into();
    }
    Failure::new(Exit::Failed, "the running agent answered something else")
        .hint("use the `evenkeel` of the same version as the running agent")
}

impl From<AskError> for Failure {
    fn from(error: AskError) -> Self {
        let (exit, hint) = match &error {
            AskError::NobodyThere => (Exit::Transient, "start it: `systemctl start evenkeel`"),
            AskError::Io(io) if io.kind() == std::io::ErrorKind::PermissionDenied => {
                (Exit::Denied, "only root and the user the agent runs as may ask it")
            }
            AskError::Io(_) | AskError::WentAway => (
                Exit::Transient,
                "what it had begun is in the journal; `evenkeel status` shows how it stands",
            ),
            AskError::NotUnderstood(_) => {
                (Exit::Failed, "use the `evenkeel` of the same version as the running agent")
            }
        };
        Self::wrapping(exit, error).hint(hint)
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        let exit = match refused.code {
            RefusedCode::Malformed | RefusedCode::Unknown | RefusedCode::Failed => Exit::Failed,
            RefusedCode::Denied => Exit::Denied,
            RefusedCode::Busy | RefusedCode::Stale => Exit::Transient,
            RefusedCode::Invalid => Exit::Invalid,
            RefusedCode::NotFound => Exit::NotFound,
            RefusedCode::Gate(reason) => crate::signing::refusal::exit(reason),
        };
        Self::new(exit, refused.message).hint(refused.hint)
    }
}
