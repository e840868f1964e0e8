//! `evenkeel journal`, `journal verify`, `journal resolve`: look at what was done, check it, and close
//! what nobody else can close.
//!
//! Looking takes no lock and changes nothing, also while the agent runs. Resolving writes, so it takes
//! the lock; it never sends anything to Proxmox VE.

use std::io::{ErrorKind, Write as _};
use std::path::Path;

use evenkeel_agent::ambient::Machine;
use evenkeel_agent::daemon::client::{self, AskError};
use evenkeel_agent::daemon::protocol::{SocketAnswer, SocketRequest};
use evenkeel_agent::effective_clock::wall;
use evenkeel_agent::journal::resolve::{self, ResolveError};
use evenkeel_agent::journal::verify::{self, VerifiedJournal};
use evenkeel_agent::journal::{
    AppendError, Files as _, Journal, JournalError, ReadOnlyDirectory, RealDisk, history,
};
use evenkeel_agent::state_dir::{StateDir, StateError};
use evenkeel_core::operate::operation::Resolution;

use crate::cli::{
    self, JournalArgs, JournalListArgs, JournalVerb, OutcomeArg, OutputFormat, ResolveArgs,
};
use crate::command::apply_by_agent::unexpected;
use crate::command::named_guest::by_number;
use crate::command::{journal_acknowledge, journal_show};
use crate::error::{CommandFailure, Exit};
use crate::format::journal::{ChainFormat, JournalFormat};
use crate::render::{self, counted, tamed};
use crate::{format, terminal};

pub(crate) async fn run(arguments: JournalArgs) -> Result<Exit, CommandFailure> {
    match arguments.verb {
        None => list(&arguments.list).await,
        Some(JournalVerb::Verify(local)) => {
            check(&local.place.state_dir()?.journal(), local.output.output)
        }
        Some(JournalVerb::Show(arguments)) => journal_show::run(&arguments).await,
        Some(JournalVerb::Resolve(arguments)) => close(&arguments).await,
        Some(JournalVerb::Acknowledge(arguments)) => journal_acknowledge::run(arguments).await,
    }
}

async fn list(arguments: &JournalListArgs) -> Result<Exit, CommandFailure> {
    let guest = match &arguments.guest {
        Some(guest) => Some(by_number(&arguments.local.place, guest).await?),
        None => None,
    };
    let files = reading(&arguments.local.place.state_dir()?.journal())?;
    let (mut operations, _) = history::operations(&files)?;
    operations.retain(|operation| {
        guest.as_ref().is_none_or(|guest| guest.has_number_of(operation.guest))
            && arguments.op.is_none_or(|op| op == operation.op)
            && (!arguments.open || operation.closed_by().is_none())
    });
    if let (Some(op), []) = (arguments.op, operations.as_slice()) {
        return Err(CommandFailure::new(
            Exit::NotFound,
            format!("the journal knows no operation {op}"),
        )
        .hint("`evenkeel journal` lists those it knows; the oldest segments are dropped in time"));
    }
    let surplus = arguments.last.map_or(0, |last| operations.len().saturating_sub(last));
    operations.drain(..surplus);
    match arguments.local.output.output {
        OutputFormat::Json => format::print(&JournalFormat::of(&operations))?,
        OutputFormat::Table if operations.is_empty() => {
            writeln!(std::io::stderr(), "no operations")?;
        }
        OutputFormat::Table => {
            let table = render::journal::table(&operations, terminal::columns());
            terminal::print(&table)?;
        }
    }
    Ok(Exit::Ok)
}

fn check(path: &Path, output: OutputFormat) -> Result<Exit, CommandFailure> {
    let files = reading(path)?;
    if let Some(why) = files.doubt().map_err(unreadable)? {
        writeln!(std::io::stderr(), "warning: the file system of {}: {why}", path.display())?;
    }
    match (verify::verify(&files), output) {
        (Ok(verified), OutputFormat::Table) => {
            let VerifiedJournal { head, records, segments, tail_bytes } = verified;
            let records = counted(usize::try_from(records).unwrap_or(usize::MAX), "record");
            let segments = counted(segments, "segment");
            let mut out = std::io::stdout();
            writeln!(out, "the journal is whole: {records} in {segments}")?;
            if let Some(head) = head {
                writeln!(out, "head: {} {}", head.seq, head.sum)?;
            }
            if tail_bytes > 0 {
                writeln!(
                    out,
                    "{tail_bytes} bytes after it: a write under way, or what a crash tore; the next start cuts it"
                )?;
            }
            Ok(Exit::Ok)
        }
        (Ok(verified), OutputFormat::Json) => {
            format::print(&ChainFormat::whole(&verified))?;
            Ok(Exit::Ok)
        }
        (Err(error), OutputFormat::Table) => Err(error.into()),
        (Err(error), OutputFormat::Json) => {
            format::print(&ChainFormat::damaged(&error))?;
            Err(error.into())
        }
    }
}

/// A message names a file, a place and a rule; what it quotes may be of any length.
const PROBLEM_LENGTH_MAX: usize = 1_000;

/// What a person says, like every other reason, stays well under a line of the journal.
const REASON_LENGTH_MAX: usize = 1_000;

async fn close(arguments: &ResolveArgs) -> Result<Exit, CommandFailure> {
    let state = arguments.place.state_dir()?;
    if !has_journal(&state)? {
        return Err(ResolveError::NotOpen(arguments.op).into());
    }
    let (outcome, word) = match arguments.outcome {
        OutcomeArg::Succeeded => (Resolution::Succeeded, "succeeded"),
        OutcomeArg::Failed => (Resolution::Failed, "failed"),
    };
    let op = arguments.op;
    let note = format!("{op} resolved as {word} by {}: {}", who(), why(&arguments.reason));
    let Some(mut journal) = journal_unless_busy(&state)? else {
        ask_agent(&arguments.place, SocketRequest::Resolve { op, outcome, note }).await?;
        writeln!(std::io::stdout(), "{op} is closed as {word}")?;
        return Ok(Exit::Ok);
    };
    for record in resolve::records(journal.state(), op, outcome, note)? {
        journal.stage(record, wall(&Machine))?;
    }
    journal.commit().map_err(AppendError::Failed)?;
    writeln!(std::io::stdout(), "{op} is closed as {word}")?;
    Ok(Exit::Ok)
}

/// Whether there is a journal: opening would make one where there is none.
pub(super) fn has_journal(state: &StateDir) -> Result<bool, CommandFailure> {
    let names = reading(&state.journal())?.list().map_err(unreadable)?;
    Ok(names.iter().any(|name| name.starts_with("journal-")))
}

/// The journal to write to; none when somebody else has it, who must be asked: whoever has the journal writes it.
pub(super) fn journal_unless_busy(
    state: &StateDir,
) -> Result<Option<Journal<RealDisk>>, CommandFailure> {
    match state.lock_journal(&Machine) {
        Ok(journal) => Ok(Some(journal)),
        Err(StateError::Busy(_)) => Ok(None),
        Err(
            error @ (StateError::Directory { .. }
            | StateError::NoMachine(_)
            | StateError::Journal(_)),
        ) => Err(error.into()),
    }
}

/// Asks whoever has the journal, and tells what it says.
pub(super) async fn ask_agent(
    place: &cli::StatePlace,
    request: SocketRequest,
) -> Result<String, CommandFailure> {
    let state = place.state_dir()?;
    match client::ask(&state.socket(), &request).await {
        Ok(SocketAnswer::Done { message }) => Ok(message),
        Ok(other) => Err(unexpected(other)),
        Err(AskError::NobodyThere) => {
            let path = state.path().display();
            Err(CommandFailure::new(Exit::Transient, format!("another evenkeel works with {path}"))
                .hint("wait until it has ended, and try again"))
        }
        Err(error @ (AskError::Io(_) | AskError::WentAway | AskError::NotUnderstood(_))) => {
            Err(error.into())
        }
    }
}

pub(super) fn why(reason: &str) -> String {
    if reason.is_empty() {
        return "no reason given".to_owned();
    }
    tamed(reason, REASON_LENGTH_MAX)
}

/// Who runs this, and through whom: root's own word for the audit, not a proof.
pub(super) fn who() -> String {
    let uid = rustix::process::getuid().as_raw();
    match std::env::var("SUDO_USER") {
        Ok(user) => format!("uid {uid} (sudo by {})", tamed(&user, 64)),
        Err(_) => format!("uid {uid}"),
    }
}

pub(super) fn reading(path: &Path) -> Result<ReadOnlyDirectory, CommandFailure> {
    ReadOnlyDirectory::open(path).map_err(|error| {
        if error.kind() != ErrorKind::NotFound {
            return unreadable(error);
        }
        CommandFailure::new(Exit::NotFound, format!("there is no journal in {}", path.display()))
            .hint("name the state directory with --state DIR")
    })
}

fn unreadable(error: std::io::Error) -> CommandFailure {
    let denied = error.kind() == ErrorKind::PermissionDenied;
    let exit = if denied { Exit::Denied } else { Exit::Failed };
    CommandFailure::new(exit, "cannot use the journal").because(error)
}

impl From<JournalError> for CommandFailure {
    fn from(error: JournalError) -> Self {
        let mut failure = Self::wrapping(Exit::Failed, error);
        // It may quote what stands in a damaged file.
        failure.message = tamed(&failure.message, PROBLEM_LENGTH_MAX);
        failure.hint("docs/formats/journal.md says what each kind of damage means")
    }
}

impl From<AppendError> for CommandFailure {
    fn from(error: AppendError) -> Self {
        Self::wrapping(Exit::Failed, error)
            .hint("nothing was written; look with `evenkeel journal`")
    }
}

impl From<ResolveError> for CommandFailure {
    fn from(error: ResolveError) -> Self {
        let exit = match &error {
            ResolveError::NotOpen(_) => Exit::NotFound,
            ResolveError::Closed { .. } => Exit::Failed,
        };
        Self::wrapping(exit, error).hint("`evenkeel journal --open` lists what can be resolved")
    }
}
