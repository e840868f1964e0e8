//! `evenkeel pending`, `request` and `submit`: what waits for a signature, and what became of one.
//!
//! All three ask the running agent; where none runs, `without_agent` does the same. Everything shown of an item is read
//! from the bytes the host signed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use evenkeel_agent::daemon::client::{AskError, Conversation, ask};
use evenkeel_agent::daemon::protocol::{
    PendingView, Refused, RefusedCode, SocketAnswer, SocketRequest,
};
use evenkeel_agent::engine::{OpOutcome, OpReport, Progress};
use evenkeel_core::model::id::{GuestId, OperationId};
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_core::sign::{
    ENVELOPE_BYTES_MAX, Envelope, OpResult, PendingId, PendingItem, PublicKey, Statement, render,
    time,
};
use tokio::time::{Instant, timeout_at};

use crate::cli::{self, OutputFormat};
use crate::command::apply::tell;
use crate::command::apply_by_agent::unexpected;
use crate::command::confirm;
use crate::command::journal::{who, why};
use crate::command::without_agent;
use crate::error::{CommandFailure, Exit};
use crate::format::approvals::{PendingFormat, RequestFormat, SubmitFormat};
use crate::render::{PENDING_SHORT as SHORT, counted, tamed};
use crate::signing::{file, refusal};
use crate::{format, terminal};

const INFALLIBLE: &str = "writing to a string cannot fail";

pub(crate) async fn pending(arguments: &cli::PendingArgs) -> Result<Exit, CommandFailure> {
    match &arguments.verb {
        None => show(&arguments.show).await,
        Some(cli::PendingVerb::Withdraw(arguments)) => withdraw(arguments).await,
    }
}

/// Everything that waits, oldest first.
pub(crate) async fn items(place: &cli::StatePlace) -> Result<Vec<PendingView>, CommandFailure> {
    let state = place.state_dir()?;
    match ask(&state.socket(), &SocketRequest::Pending {}).await {
        Ok(SocketAnswer::Pending { items }) => Ok(items),
        Ok(other) => Err(unexpected(other)),
        Err(AskError::NobodyThere) => without_agent::pending(&state),
        Err(error @ (AskError::Io(_) | AskError::WentAway | AskError::NotUnderstood(_))) => {
            Err(error.into())
        }
    }
}

/// The one item whose name begins so.
pub(crate) fn named<'a>(
    items: &'a [PendingView],
    wanted: &str,
) -> Result<&'a PendingView, CommandFailure> {
    let begins = |item: &PendingView| item.id.to_string().starts_with(wanted);
    the_one(items, begins, wanted)
        .map_err(|failure| failure.hint("`evenkeel pending` lists what waits"))
}

/// The one item of which this is true, because its name begins as wanted.
pub(crate) fn the_one<'a, T>(
    items: &'a [T],
    begins: impl Fn(&T) -> bool,
    wanted: &str,
) -> Result<&'a T, CommandFailure> {
    let found: Vec<&T> = items.iter().filter(|item| begins(item)).collect();
    match found.as_slice() {
        [item] => Ok(item),
        [] => {
            let message = format!("nothing that waits begins with `{}`", tamed(wanted, 64));
            Err(CommandFailure::new(Exit::NotFound, message))
        }
        several => {
            let message = format!("{} items begin with `{wanted}`", several.len());
            Err(CommandFailure::new(Exit::Usage, message))
        }
    }
}

async fn withdraw(arguments: &cli::WithdrawArgs) -> Result<Exit, CommandFailure> {
    let items = items(&arguments.local.place).await?;
    let id = named(&items, &arguments.id)?.id;
    let note = format!("{id} withdrawn by {}: {}", who(), why(&arguments.reason));
    let state = arguments.local.place.state_dir()?;
    let request = SocketRequest::Withdraw { id, note: note.clone() };
    match ask(&state.socket(), &request).await {
        Ok(SocketAnswer::Done { .. }) => {}
        Ok(other) => return Err(unexpected(other)),
        Err(AskError::NobodyThere) => without_agent::withdraw(&state, id, note)?,
        Err(error @ (AskError::Io(_) | AskError::WentAway | AskError::NotUnderstood(_))) => {
            return Err(error.into());
        }
    }
    let mut out = std::io::stdout();
    match arguments.local.output.output {
        OutputFormat::Json => format::print(&RequestFormat::of(id))?,
        OutputFormat::Table => {
            let short = short(id);
            writeln!(out, "{short} waits no longer")?;
        }
    }
    Ok(Exit::Ok)
}

async fn show(arguments: &cli::PendingShowArgs) -> Result<Exit, CommandFailure> {
    let items = items(&arguments.place).await?;
    let Some(wanted) = &arguments.id else {
        return list(&items, arguments.output.output);
    };
    let item = named(&items, wanted)?;
    if let Some(path) = &arguments.out {
        file::write(path, item.envelope.as_bytes(), arguments.force)?;
        writeln!(
            std::io::stdout(),
            "wrote {path}; sign it where the key is: evenkeel sign {path} --key KEY"
        )?;
        return Ok(Exit::Ok);
    }
    match arguments.output.output {
        OutputFormat::Json => writeln!(std::io::stdout(), "{}", item.envelope)?,
        OutputFormat::Table => {
            let envelope = Envelope::parse(item.envelope.as_bytes())?;
            write!(std::io::stdout(), "{}", render::pending(envelope.payload())?)?;
        }
    }
    Ok(Exit::Ok)
}

pub(crate) async fn request(arguments: &cli::RequestArgs) -> Result<Exit, CommandFailure> {
    let mut params = BTreeMap::new();
    for pair in &arguments.params {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(CommandFailure::new(Exit::Usage, format!("`{pair}` is not key=value")));
        };
        if params.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(CommandFailure::new(Exit::Usage, format!("`{key}` is given twice")));
        }
    }
    let op = arguments.op;
    let guest = arguments.guest.clone();
    let socket = arguments.place.state_dir()?.socket();
    let within = Duration::from_secs(arguments.wait);
    let deadline = Instant::now() + within;
    let requester = arguments.requester.as_ref().map(ToString::to_string);
    let request = SocketRequest::Request { op, guest, params, requester };
    let answer = match (Conversation::ask(&socket, &request).await, request) {
        (Err(AskError::NobodyThere), SocketRequest::Request { op, guest, params, requester }) => {
            let asked = (op, &guest, params, requester);
            without_agent::request(&arguments.place, asked, within).await?
        }
        (answers, _) => match last_answer(answers?, |_| true, deadline).await? {
            Ok(answer) => answer,
            Err(op) => {
                return Err(under_way(op, arguments.wait, "`evenkeel journal` tells how it ended"));
            }
        },
    };
    if let SocketAnswer::Op { report } = &answer {
        return told_end(report, arguments.output.output);
    }
    let SocketAnswer::Raised { id, guest } = answer else {
        return Err(usage_of(answer));
    };
    let mut out = std::io::stdout();
    match arguments.output.output {
        OutputFormat::Json => format::print(&RequestFormat::of(id))?,
        OutputFormat::Table => {
            let short = short(id);
            writeln!(out, "{op} of {guest} waits for a signature as {short}")?;
            writeln!(std::io::stderr(), "next: evenkeel approve {short} --key KEY")?;
        }
    }
    Ok(Exit::ApprovalRequired)
}

/// How an act that somebody asked for ended.
fn told_end(report: &OpReport, output: OutputFormat) -> Result<Exit, CommandFailure> {
    match output {
        OutputFormat::Json => format::print(&SubmitFormat::act(report))?,
        OutputFormat::Table => terminal::print(&format!("{}\n", op_words(report)))?,
    }
    Ok(exit_of(&report.end))
}

/// A parameter that makes no sense is a mistake on the command line.
fn usage_of(answer: SocketAnswer) -> CommandFailure {
    if let SocketAnswer::Refused(Refused { code, message, .. }) = &answer
        && *code == RefusedCode::Gate(ReasonCode::Payload)
    {
        let message = message.trim_start_matches("payload: ").to_owned();
        return CommandFailure::new(Exit::Usage, message)
            .hint("docs/reference/actions.md has every parameter");
    }
    unexpected(answer)
}

pub(crate) async fn submit(arguments: &cli::SubmitArgs) -> Result<Exit, CommandFailure> {
    let envelope = file::read_text(&arguments.file, ENVELOPE_BYTES_MAX)?;
    confirm::hand_in(&envelope, arguments.yes)?;
    hand_in(&arguments.place, envelope, arguments.wait, arguments.output.output).await
}

/// Hands something signed to the agent, and tells what became of it.
pub(crate) async fn hand_in(
    place: &cli::StatePlace,
    envelope: String,
    wait_s: u64,
    output: OutputFormat,
) -> Result<Exit, CommandFailure> {
    let answer = match submitted(place, envelope, wait_s).await? {
        Ok(answer) => answer,
        Err(op) => {
            let next = "handing the same in again tells how it ended";
            return Err(under_way(op, wait_s, next));
        }
    };
    let (told, words, exit) = match &answer {
        SocketAnswer::Op { report } => {
            (SubmitFormat::act(report), op_words(report), exit_of(&report.end))
        }
        SocketAnswer::Replay { op, result } => {
            let words =
                format!("replay: it was executed before, by {op}, which has {}", result.as_str());
            let exit = match result {
                OpResult::Succeeded => Exit::Ok,
                OpResult::InFlight | OpResult::Unknown => Exit::Transient,
                OpResult::Failed => Exit::Failed,
            };
            (SubmitFormat::replay(*op, *result, &words), words, exit)
        }
        SocketAnswer::Done { message } => {
            (SubmitFormat::done(message), tamed(message, usize::MAX), Exit::Ok)
        }
        SocketAnswer::Status { .. }
        | SocketAnswer::Progress { .. }
        | SocketAnswer::Report { .. }
        | SocketAnswer::Pending { .. }
        | SocketAnswer::Raised { .. }
        | SocketAnswer::Refused(_) => return Err(unexpected(answer)),
    };
    match output {
        OutputFormat::Json => format::print(&told)?,
        OutputFormat::Table => terminal::print(&format!("{words}\n"))?,
    }
    Ok(exit)
}

/// Submits and tells what is waited for. The last answer, or, when the time is over, the operation that goes on.
async fn submitted(
    place: &cli::StatePlace,
    envelope: String,
    wait_s: u64,
) -> Result<Result<SocketAnswer, Option<OperationId>>, CommandFailure> {
    let guest = guest_of(&envelope);
    let within = Duration::from_secs(wait_s);
    let socket = place.state_dir()?.socket();
    let deadline = Instant::now() + within;
    let request = SocketRequest::Submit { envelope };
    let answers = match (Conversation::ask(&socket, &request).await, request) {
        (Err(AskError::NobodyThere), SocketRequest::Submit { envelope }) => {
            let answer = without_agent::submit(place, &envelope, within).await?;
            return Ok(Ok(answer));
        }
        (answers, _) => answers?,
    };
    last_answer(answers, |of| guest == Some(of), deadline).await
}

/// The last answer, with what is told of some guests meanwhile; or, when the time is over, the operation that
/// goes on.
async fn last_answer(
    mut answers: Conversation,
    is_heard: impl Fn(GuestId) -> bool,
    deadline: Instant,
) -> Result<Result<SocketAnswer, Option<OperationId>>, CommandFailure> {
    let mut op = None;
    loop {
        let answer = match timeout_at(deadline, answers.next()).await {
            Ok(answer) => answer?,
            Err(_) => return Ok(Err(op)),
        };
        match answer {
            SocketAnswer::Progress { progress } if is_heard(progress.guest()) => {
                op = Some(progress.op());
                if !matches!(progress, Progress::Ended(_)) {
                    tell(progress);
                }
            }
            SocketAnswer::Progress { .. } => {}
            last @ (SocketAnswer::Status { .. }
            | SocketAnswer::Report { .. }
            | SocketAnswer::Pending { .. }
            | SocketAnswer::Raised { .. }
            | SocketAnswer::Op { .. }
            | SocketAnswer::Replay { .. }
            | SocketAnswer::Done { .. }
            | SocketAnswer::Refused(_)) => return Ok(Ok(last)),
        }
    }
}

/// Whom an approval is for; none for a rotation. What is shown by it decides nothing.
fn guest_of(envelope: &str) -> Option<GuestId> {
    let envelope = Envelope::parse(envelope.as_bytes()).ok()?;
    Statement::parse(envelope.payload()).ok().map(|statement| statement.guest)
}

fn under_way(op: Option<OperationId>, waited_s: u64, next: &str) -> CommandFailure {
    let message = match op {
        Some(op) => format!("{op} is still under way after {waited_s} s"),
        None => format!("it has not begun after {waited_s} s: its guest's lane is busy"),
    };
    let hint =
        format!("the agent goes on with it; `evenkeel status` shows how it stands, and {next}");
    CommandFailure::new(Exit::Transient, message).hint(hint)
}

fn list(items: &[PendingView], output: OutputFormat) -> Result<Exit, CommandFailure> {
    let read: Vec<(&PendingView, PendingItem)> = items
        .iter()
        .map(|view| {
            let envelope = Envelope::parse(view.envelope.as_bytes())?;
            Ok((view, PendingItem::parse(envelope.payload())?))
        })
        .collect::<Result<_, CommandFailure>>()?;
    let mut out = std::io::stdout();
    match output {
        OutputFormat::Json => format::print(&PendingFormat::of(&read))?,
        OutputFormat::Table if read.is_empty() => writeln!(out, "nothing waits for a signature")?,
        OutputFormat::Table => {
            let mut text = format!("{:<SHORT$}  {COLUMNS}\n", "PENDING");
            for (view, item) in &read {
                writeln!(text, "{}  {}", short(view.id), columns(item)).expect(INFALLIBLE);
                writeln!(text, "    {}", lost(item)).expect(INFALLIBLE);
                if let Some(signed) = view.signed.as_deref().and_then(signatures_there) {
                    writeln!(text, "    {signed}").expect(INFALLIBLE);
                }
                if let Some(former) = &view.replaces {
                    let id = short(former.id);
                    let why = render::visible(&former.why);
                    writeln!(text, "    in place of {id}: {why}").expect(INFALLIBLE);
                }
            }
            terminal::print(&text)?;
            tell_waiting(read.len(), "`evenkeel approve PENDING --key KEY`")?;
        }
    }
    Ok(Exit::Ok)
}

/// What stands over `columns`.
pub(crate) const COLUMNS: &str = "OP               GUEST       RAISED";

/// An item in a list: what, to which guest, since when.
pub(crate) fn columns(item: &PendingItem) -> String {
    let op = item.op.as_str();
    let guest = item.guest.to_string();
    format!("{op:<15}  {guest:<10}  {}", time::print(item.raised_at))
}

/// An item's name, as long as people read and write it.
pub(crate) fn short(id: PendingId) -> String {
    id.to_string().chars().take(SHORT).collect()
}

/// Says under a list how many wait, and what to do next.
pub(crate) fn tell_waiting(count: usize, next: &str) -> Result<(), CommandFailure> {
    let wait = if count == 1 { "waits" } else { "wait" };
    terminal::tell(&format!("{} {wait} for a signature: {next}\n", counted(count, "item")))?;
    Ok(())
}

/// Whose signatures are there, of more that it takes.
fn signatures_there(signed: &str) -> Option<String> {
    let envelope = Envelope::parse(signed.as_bytes()).ok()?;
    let statement = Statement::parse(envelope.payload()).ok()?;
    let keys = envelope.signatures().iter().filter_map(|signature| {
        Some(PublicKey::from_blob(signature.key_blob()).ok()?.fingerprint().to_string())
    });
    let keys: Vec<String> = keys.collect();
    let until = time::print(statement.window.expires_at());
    Some(format!("signed by {}, until {until}; it takes more signers", keys.join(", ")))
}

/// What would be lost, on one line.
fn lost(item: &PendingItem) -> String {
    match item.losses.as_slice() {
        [] => item
            .params
            .iter()
            .map(|(key, value)| render::visible(&format!("{key}={value}")))
            .collect::<Vec<_>>()
            .join(" "),
        [only] => render::visible(&only.what),
        [first, rest @ ..] => format!("{} and {} more", render::visible(&first.what), rest.len()),
    }
}

fn op_words(report: &OpReport) -> String {
    let what = format!("{} of {}", report.kind, report.guest);
    match &report.end {
        OpOutcome::Succeeded { warning: None } => format!("{what}: done ({})", report.op),
        OpOutcome::Succeeded { warning: Some(_) } => {
            format!("{what}: done, but: {}", report.end.words())
        }
        OpOutcome::Held { .. }
        | OpOutcome::Stale { .. }
        | OpOutcome::Failed { .. }
        | OpOutcome::Unknown { .. }
        | OpOutcome::Skipped
        | OpOutcome::Unneeded => {
            format!("{what}: {}", tamed(&report.end.words(), usize::MAX))
        }
    }
}

fn exit_of(end: &OpOutcome) -> Exit {
    match end {
        OpOutcome::Succeeded { .. } | OpOutcome::Unneeded => Exit::Ok,
        OpOutcome::Held { reason, .. } => refusal::exit(*reason),
        OpOutcome::Stale { .. } | OpOutcome::Skipped => Exit::Transient,
        OpOutcome::Failed { .. } | OpOutcome::Unknown { .. } => Exit::Failed,
    }
}
