//! `evenkeel apply [GUEST…|PLAN]`: one pass of the engine, shown first, exactly as shown or not at all.
//!
//! The only verb besides `run` that changes something, and it does so through the same engine: the journal's lock
//! keeps the two apart. While an agent runs, it makes the pass: see `apply_by_agent`.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_agent::ambient::{Ambient, Machine};
use evenkeel_agent::engine::{
    ApprovalContext, ApprovalContextError, Engine, EngineContext, EngineEvent, Fatal, PassCause,
    PassError, Progress, Report,
};
use evenkeel_agent::host_key::HostKeyError;
use evenkeel_agent::journal::JournalHandle;
use evenkeel_agent::preview::Preview;
use evenkeel_agent::state_dir::{StateDir, StateError};
use evenkeel_core::actual::Snapshot;
use evenkeel_core::desired::selection::PassScope;
use evenkeel_core::desired::{Desired, ReconcileMode};
use evenkeel_core::operate::lane::LaneLimits;
use evenkeel_core::plan::{Plan, SavedPlan, Stale};

use crate::cli::{self, OutputFormat};
use crate::command::apply_subject::{self, ApplySubject};
use crate::command::validate::believed;
use crate::command::{apply_by_agent, apply_exit};
use crate::connect::{Connection, connect, state_dir};
use crate::error::{CommandFailure, Exit};
use crate::format::apply::ApplyFormat;
use crate::interrupt::{Interrupts, before_anything};
use crate::{format, render, terminal};

/// How long operations that were in flight at a crash are awaited before anything new: a lost answer is settled
/// a minute after it was sent, and this leaves time to look.
const RECOVERY_PATIENCE: Duration = Duration::from_secs(90);

/// How long what was sent is awaited after Ctrl-C. What has not ended then is taken up by the next start.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(30);

/// What a pass shall be about.
pub(super) struct WantedPass {
    pub(super) scope: PassScope,
    /// The plan that was agreed to before.
    pub(super) saved: Option<SavedPlan>,
}

impl WantedPass {
    fn of(
        subject: ApplySubject,
        arguments: &cli::ApplyArgs,
        desired: &Desired,
    ) -> Result<Self, CommandFailure> {
        let among = |guests| arguments.filter.among(guests);
        match subject {
            ApplySubject::Guests(guests) => {
                let scope = PassScope::of(&among(guests), desired)?;
                Ok(Self { scope, saved: None })
            }
            ApplySubject::Plan(_) if !among(Vec::new()).is_everything() => {
                Err(CommandFailure::new(
                    Exit::Usage,
                    "a saved plan says itself which guests it is about",
                )
                .hint("leave out --tag, --kind and --name, or choose when planning"))
            }
            ApplySubject::Plan(saved) => Ok(Self { scope: saved.scope(), saved: Some(saved) }),
        }
    }
}

pub(crate) async fn run(arguments: &cli::ApplyArgs) -> Result<Exit, CommandFailure> {
    let connection = connect(&arguments.pass.connect).await?;
    let state = state_dir(arguments.pass.state.as_deref(), &connection.config);
    let Some(desired) = believed(arguments.pass.desired.as_deref(), &connection.config, &state)?
    else {
        return Ok(Exit::Invalid);
    };
    let subject = apply_subject::read(&arguments.subjects, &desired)?;
    let wanted = WantedPass::of(subject, arguments, &desired)?;
    tell_tightened(&state);
    let ambient: Arc<dyn Ambient> = Arc::new(Machine);
    let journal = match state.open_journal(&ambient) {
        Ok(journal) => journal.handle,
        // There is no second executor: a running agent makes the pass. To root, whose journal it is not, its directory does
        // not even look busy.
        Err(error @ (StateError::Busy(_) | StateError::Directory { .. })) => {
            let asked = apply_by_agent::run(&connection, &state, &desired, wanted, arguments).await;
            return asked.unwrap_or_else(|| Err(error.into()));
        }
        Err(error) => return Err(error.into()),
    };
    let mut interrupts = Interrupts::listen()?;
    let mut engine = start(&connection, &state, journal, ambient).await?;
    tokio::select! {
        applied = apply(&mut engine, &desired, wanted, &connection, arguments) => return applied,
        () = interrupts.next() => {}
    }
    let (left, reports) = stop(engine, &mut interrupts).await?;
    for report in reports {
        tell_report(&report, arguments)?;
    }
    Err(left)
}

/// A state directory that `mkdir` made for everybody to see becomes its owner's alone. Trouble with it is told by who
/// opens it.
fn tell_tightened(state: &StateDir) {
    if let Ok(Some(mode)) = evenkeel_agent::host_key::tighten(state.path()) {
        let path = state.path().display();
        let _ = writeln!(
            anstream::stderr(),
            "the state directory {path} had mode {mode:04o} and has 0700 now"
        );
    }
}

/// Takes up what a crash left in flight.
pub(super) async fn start(
    connection: &Connection,
    state: &StateDir,
    journal: JournalHandle,
    ambient: Arc<dyn Ambient>,
) -> Result<Engine, CommandFailure> {
    let node = connection.client.node();
    let approvals =
        ApprovalContext::open(&connection.config, state, node, &journal, ambient.as_ref()).await?;
    let frozen = state.clone();
    let mode = connection.config.policy.mode;
    let context = EngineContext::new(
        connection.client.clone(),
        journal,
        ambient,
        connection.token_id.clone(),
    )
    .frozen_when(move || frozen.is_frozen())
    .observing_when(move || mode == ReconcileMode::Observe)
    .approved_by(Some(approvals))
    .reading_secrets(connection.config.secrets.store())
    .showing_logs(terminal::shows_transient())
    .with_scratch(connection.config.policy.scratch_vmids.clone())
    .telling(tell);
    Ok(Engine::start(context, LaneLimits::default()).await?)
}

async fn apply(
    engine: &mut Engine,
    desired: &Desired,
    wanted: WantedPass,
    connection: &Connection,
    arguments: &cli::ApplyArgs,
) -> Result<Exit, CommandFailure> {
    let WantedPass { scope, saved } = wanted;
    recover(engine).await?;
    let preview = engine.look(desired, scope, PassCause::Person).await?;
    let Preview { actual, plan, scope } = &preview;
    let now = SavedPlan::of(plan, scope, &actual.node, &connection.seal_key);
    if let Some(stale) = saved.as_ref().and_then(|saved| saved.stale_against(&now)) {
        return Err(stale_plan(stale.explained_by(plan)));
    }
    if !agreed(plan, actual, &now, saved.is_some(), arguments).await? {
        return Ok(Exit::Ok);
    }
    let report = work(engine, desired, preview).await?;
    tell_report(&report, arguments)
}

/// Shows a plan and asks, unless it was agreed to before.
pub(super) async fn agreed(
    plan: &Plan,
    actual: &Snapshot,
    now: &SavedPlan,
    was_saved: bool,
    arguments: &cli::ApplyArgs,
) -> Result<bool, CommandFailure> {
    if arguments.output.output == OutputFormat::Table {
        terminal::print(&render::plan::render(plan, actual))?;
    }
    if now.actions.is_empty() || was_saved || arguments.yes {
        return Ok(true);
    }
    terminal::must_be_there("give -y to go on without being asked")?;
    let question = format!("Apply {}?", render::counted(now.actions.len(), "action"));
    let agreed = terminal::agrees_in_time(&question).await?;
    if !agreed {
        writeln!(anstream::stderr(), "Nothing was changed.")?;
    }
    Ok(agreed)
}

/// Tells what came of it, and what to end with.
pub(super) fn tell_report(
    report: &Report,
    arguments: &cli::ApplyArgs,
) -> Result<Exit, CommandFailure> {
    match arguments.output.output {
        OutputFormat::Json => format::print(&ApplyFormat::of(report))?,
        OutputFormat::Table => terminal::print(&render::report::render(report))?,
    }
    Ok(apply_exit::exit(report))
}

/// What was in flight comes before anything new. A node that cannot be read keeps its lanes shut and holds up nobody.
pub(super) async fn recover(engine: &mut Engine) -> Result<(), Fatal> {
    let deadline = tokio::time::Instant::now() + RECOVERY_PATIENCE;
    while engine.is_settling() {
        match tokio::time::timeout_at(deadline, engine.work()).await {
            Ok(event) => drop(event?),
            Err(_) => break,
        }
    }
    Ok(())
}

/// Submits what was shown and awaits all of it.
pub(super) async fn work(
    engine: &mut Engine,
    desired: &Desired,
    preview: Preview,
) -> Result<Report, Fatal> {
    let pass = engine.submit(desired, preview).await?;
    loop {
        if let EngineEvent::Pass { id, report } = engine.work().await?
            && id == pass.id
        {
            return Ok(*report);
        }
    }
}

/// Ctrl-C or SIGTERM: nothing new begins, what was sent is awaited, and what has not ended is told by the journal. Tells
/// what to end with, and what came of passes.
pub(super) async fn stop(
    mut engine: Engine,
    interrupts: &mut Interrupts,
) -> Result<(CommandFailure, Vec<Report>), CommandFailure> {
    if engine.queue_depth() == 0 {
        return Ok((before_anything(), Vec::new()));
    }
    let mut err = anstream::stderr();
    writeln!(
        err,
        "\nStopping: nothing new begins; what was sent is awaited. Once more ends at once."
    )?;
    let mut reports = Vec::new();
    tokio::select! {
        events = engine.shut_down(SHUTDOWN_PATIENCE) => {
            reports.extend(events?.into_iter().filter_map(|event| match event {
                EngineEvent::Pass { report, .. } => Some(*report),
                EngineEvent::Op(_) | EngineEvent::Settled(_) => None,
            }));
        }
        () = interrupts.next() => {}
    }
    let in_flight = engine.in_flight().await?;
    let hint = if in_flight.is_empty() {
        "everything that was begun has ended; `evenkeel apply` goes on".to_owned()
    } else {
        write!(err, "{}", render::journal::in_flight(&in_flight))?;
        "the next start takes up by itself what is in flight".to_owned()
    };
    Ok((CommandFailure::new(Exit::Transient, "interrupted").hint(hint), reports))
}

/// One line a step, on stderr: what is durable is in the journal.
#[expect(clippy::needless_pass_by_value, reason = "a listener is handed what it is told")]
pub(crate) fn tell(progress: Progress) {
    let text = render::report::progress(&progress);
    // A terminal that went away must not stop what is under way.
    let _ = match progress {
        Progress::Log { .. } => terminal::tell_transient(&text),
        Progress::Started { .. }
        | Progress::Task { .. }
        | Progress::Waiting { .. }
        | Progress::Ended(_) => terminal::tell(&text),
    };
}

/// A plan that is not applied: because it is stale, or because of what holds it.
#[expect(clippy::needless_pass_by_value, reason = "a failure is made of it")]
pub(super) fn stale_plan(stale: Stale) -> CommandFailure {
    let (exit, message) = match stale.held_by() {
        None => (Exit::Transient, format!("the plan is stale: {stale}")),
        Some(reason) => (
            crate::signing::refusal::exit(reason),
            format!("the plan cannot be applied now: {stale}"),
        ),
    };
    CommandFailure::new(exit, message).hint(stale.hint())
}

impl From<Fatal> for CommandFailure {
    fn from(error: Fatal) -> Self {
        Self::wrapping(Exit::Failed, error).hint(
            "nothing that was begun is lost: mend the disk of the state directory, then start again",
        )
    }
}

impl From<PassError> for CommandFailure {
    fn from(error: PassError) -> Self {
        match error {
            PassError::Actual(error) => error.into(),
            PassError::Fatal(error) => error.into(),
        }
    }
}

impl From<ApprovalContextError> for CommandFailure {
    fn from(error: ApprovalContextError) -> Self {
        let hint = error.hint();
        let exit = match &error {
            ApprovalContextError::HostKey(HostKeyError::InUse { .. }) => Exit::Transient,
            ApprovalContextError::HostKey(_) | ApprovalContextError::Journal(_) => Exit::Failed,
            ApprovalContextError::Authority(_) | ApprovalContextError::HostId(_) => Exit::Invalid,
        };
        Self::wrapping(exit, error).hint(hint)
    }
}

impl From<StateError> for CommandFailure {
    fn from(error: StateError) -> Self {
        let hint = error.hint();
        let exit = match &error {
            StateError::Busy(_) => Exit::Transient,
            StateError::Directory { .. } | StateError::NoMachine(_) | StateError::Journal(_) => {
                Exit::Failed
            }
        };
        Self::wrapping(exit, error).hint(hint)
    }
}
