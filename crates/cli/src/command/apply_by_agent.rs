//! `evenkeel apply` while an agent runs: the plan is made and shown here, and carried out there, exactly so or not at
//! all.
//!
//! The agent reads its own desired files. If those are not the ones given here, nobody is asked anything: the agent would
//! refuse every plan made from them.

use std::path::Path;

use evenkeel_agent::daemon::client::{AskError, Conversation, ask};
use evenkeel_agent::daemon::protocol::{Refused, RefusedCode, SocketAnswer, SocketRequest};
use evenkeel_agent::preview::{Preview, preview};
use evenkeel_agent::source::dir::load_believed;
use evenkeel_agent::state_dir::StateDir;
use evenkeel_core::desired::Desired;
use evenkeel_core::desired::selection::Selection;
use evenkeel_core::plan::SavedPlan;

use super::apply::{WantedPass, agreed, stale_plan, tell, tell_report};
use crate::cli;
use crate::connect::{Connection, desired_path};
use crate::error::{CommandFailure, Exit};
use crate::interrupt::{Interrupts, before_anything};
use crate::terminal;

/// Asks the running agent; none if whoever has the journal does not listen.
pub(super) async fn run(
    connection: &Connection,
    state: &StateDir,
    desired: &Desired,
    wanted: WantedPass,
    arguments: &cli::ApplyArgs,
) -> Option<Result<Exit, CommandFailure>> {
    state.socket().exists().then_some(())?;
    let mut interrupts = match Interrupts::listen() {
        Ok(interrupts) => interrupts,
        Err(failure) => return Some(Err(failure)),
    };
    let agreed = async {
        reads_the_same(connection, state, desired, arguments).await?;
        shown(connection, state, desired, wanted, arguments).await
    };
    let plan = tokio::select! {
        agreed = agreed => agreed,
        () = interrupts.next() => Err(before_anything()),
    };
    let plan = match plan {
        Err(failure) => return Some(Err(failure)),
        Ok(None) => return Some(Ok(Exit::Ok)),
        Ok(Some(plan)) => plan,
    };
    let followed = tokio::select! {
        followed = follow(state, plan, arguments) => followed,
        () = interrupts.next() => Err(Asked::Failed(left_alone())),
    };
    match followed {
        Err(Asked::NobodyThere) => None,
        Err(Asked::Failed(failure)) => Some(Err(failure)),
        Ok(exit) => Some(Ok(exit)),
    }
}

/// Only the one who looked on ends: the agent makes passes of its own.
fn left_alone() -> CommandFailure {
    CommandFailure::new(
        Exit::Transient,
        "interrupted; the running agent finishes the actions that it began",
    )
    .hint("`evenkeel status` shows its progress, `evenkeel freeze` stops it from beginning anything new")
}

/// Whether the agent keeps what is declared here. Where that cannot be told, the agent's own answer tells.
async fn reads_the_same(
    connection: &Connection,
    state: &StateDir,
    desired: &Desired,
    arguments: &cli::ApplyArgs,
) -> Result<(), CommandFailure> {
    let Ok(SocketAnswer::Status { status }) =
        ask(&state.socket(), &SocketRequest::Status { selection: Selection::default() }).await
    else {
        return Ok(());
    };
    let Some(agent) = status.agent else {
        return Ok(());
    };
    if agent.desired.hub.is_some() {
        if arguments.pass.desired.is_none() {
            return Ok(());
        }
        let message = "the running agent keeps what its hub says, and no files";
        return Err(CommandFailure::new(Exit::Usage, message)
            .hint("leave --desired out; files go through the hub: `evenkeel fleet push`"));
    }
    let Some(theirs) = agent.desired.directory else {
        let message =
            "the running agent keeps nothing: its agent.toml has no `dir` under [desired]";
        return Err(CommandFailure::new(Exit::Invalid, message)
            .hint("set it and `systemctl reload evenkeel`; then leave --desired out"));
    };
    let ours = desired_path(arguments.pass.desired.as_deref(), &connection.config)?;
    // A path that is relative to the agent's directory is not known here.
    let theirs = Path::new(&theirs);
    let real = |path: &Path| fs_err::canonicalize(path).ok();
    if theirs.is_relative() || real(&ours) == real(theirs) {
        return Ok(());
    }
    let theirs_now = load_believed(theirs).map(|loaded| loaded.desired);
    let theirs = theirs.display();
    match theirs_now {
        // A copy of the same files, or files the agent will complain about itself.
        Ok(Ok(declared)) if declared == *desired => Ok(()),
        Ok(Err(_)) | Err(_) => Ok(()),
        Ok(Ok(_)) => Err(CommandFailure::new(
            Exit::Usage,
            format!("the running agent keeps {theirs}, and {} says otherwise", ours.display()),
        )
        .hint(format!(
            "leave --desired out to apply {theirs}; or put your files there, or set `dir` under [desired] in agent.toml \
             and `systemctl reload evenkeel`"
        ))),
    }
}

/// What a person agreed to; none if to nothing.
async fn shown(
    connection: &Connection,
    state: &StateDir,
    desired: &Desired,
    wanted: WantedPass,
    arguments: &cli::ApplyArgs,
) -> Result<Option<SavedPlan>, CommandFailure> {
    let WantedPass { scope, saved } = wanted;
    let policy = &connection.config.policy;
    let Preview { actual, plan, scope } =
        preview(&connection.client, desired, scope, state, policy).await?;
    let now = SavedPlan::of(&plan, &scope, &actual.node, &connection.seal_key);
    if let Some(stale) = saved.as_ref().and_then(|saved| saved.stale_against(&now)) {
        return Err(stale_plan(stale.explained_by(&plan)));
    }
    let agreed = agreed(&plan, &actual, &now, saved.is_some(), arguments).await?;
    Ok(agreed.then(|| saved.unwrap_or(now)))
}

/// Why there is no report.
enum Asked {
    NobodyThere,
    Failed(CommandFailure),
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
    let mut logs = terminal::shows_transient();
    let request = |logs| SocketRequest::Apply { plan: Some(plan.clone()), logs };
    let mut answers = Conversation::ask(&state.socket(), &request(logs)).await.map_err(failed)?;
    loop {
        match answers.next().await.map_err(failed)? {
            // An older agent has begun nothing if it does not know what it was asked.
            SocketAnswer::Refused(Refused {
                code: RefusedCode::Malformed | RefusedCode::Unknown,
                ..
            }) if logs => {
                logs = false;
                let again = Conversation::ask(&state.socket(), &request(logs)).await;
                answers = again.map_err(failed)?;
            }
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
pub(crate) fn unexpected(answer: SocketAnswer) -> CommandFailure {
    if let SocketAnswer::Refused(refused) = answer {
        return refused.into();
    }
    CommandFailure::new(Exit::Failed, "the running agent answered something else")
        .hint("use the `evenkeel` of the same version as the running agent")
}

impl From<AskError> for CommandFailure {
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

impl From<Refused> for CommandFailure {
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
