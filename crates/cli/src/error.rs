//! What goes wrong, how it is told, and the exit code it ends with.
//!
//! The codes are part of the interface (docs/reference/exit-codes.md) and never change their meaning.

use std::fmt::Write as _;
use std::process::ExitCode;

use evenkeel_core::desired::selection::SelectionError;
use evenkeel_core::words::shown_text;

use crate::terminal;

/// How the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Everything worked.
    Ok = 0,
    /// It failed in a way that has no code of its own.
    Failed = 1,
    /// Something would run now (`plan --detailed-exitcode`).
    ChangeFeed = 2,
    /// The configuration or the desired state is invalid.
    Invalid = 3,
    /// The server or the token is not the right one, or may not do this.
    Denied = 4,
    /// What was asked for does not exist.
    NotFound = 5,
    /// An operator has to sign first.
    ApprovalRequired = 6,
    /// Busy, stale, unreachable: the same may work later.
    Transient = 7,
    /// The command line makes no sense.
    Usage = 64,
    /// It was told to stop before it began anything: what a shell says of Ctrl-C.
    Interrupted = 130,
}

/// An error as a person reads it: what failed, why, and what to do next.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct CommandFailure {
    /// What failed, as a phrase.
    pub(crate) message: String,
    /// The code to end with.
    pub(crate) exit: Exit,
    /// What is shown before it, in lines of their own: the places of mistakes in a file.
    pub(crate) details: Option<String>,
    /// What to do next.
    pub(crate) hint: Option<String>,
    /// What it came from.
    #[source]
    pub(crate) source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl CommandFailure {
    /// A failure that ends with a code.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { message: message.into(), exit, details: None, hint: None, source: None }
    }

    /// A failure that is another error, with its causes.
    pub(crate) fn wrapping(exit: Exit, error: impl std::error::Error) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            write!(message, ": {error}").expect("writing to a string cannot fail");
            cause = error.source();
        }
        Self::new(exit, message)
    }

    /// Adds the next step.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds what is shown before it.
    pub(crate) fn details(mut self, details: String) -> Self {
        self.details = Some(details);
        self
    }

    /// Says in which file it is.
    pub(crate) fn in_file(mut self, path: &camino::Utf8Path) -> Self {
        self.message = format!("{path}: {}", self.message);
        self
    }

    /// Adds what it came from.
    pub(crate) fn because(
        mut self,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        self.source = Some(Box::new(source));
        self
    }

    /// The whole message, causes and hint included. Any of these may quote others; the details were rendered before.
    fn told(&self) -> String {
        let details = self.details.as_ref().map(|details| format!("{details}\n"));
        details.unwrap_or_default() + &shown_text::escaped_lines(&self.phrases())
    }

    fn phrases(&self) -> String {
        let mut text = format!("error: {}", self.message);
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            write!(text, ": {error}").expect("writing to a string cannot fail");
            cause = error.source();
        }
        if let Some(hint) = &self.hint {
            write!(text, "\n  hint: {hint}").expect("writing to a string cannot fail");
        }
        text
    }
}

impl From<SelectionError> for CommandFailure {
    fn from(error: SelectionError) -> Self {
        let exit = match &error {
            SelectionError::Ambiguous { .. } => Exit::Usage,
            SelectionError::NoSuchGuest { .. } | SelectionError::Nothing { .. } => Exit::NotFound,
        };
        let hint = error.hint();
        Self::new(exit, error.to_string()).hint(hint)
    }
}

impl From<std::io::Error> for CommandFailure {
    /// Only writing our own output ends here; files are read with their paths in the error.
    fn from(error: std::io::Error) -> Self {
        Self::new(Exit::Failed, "cannot write the answer").because(error)
    }
}

/// Ends the process: tells a failure on stderr. A reader that went away is no failure of ours.
pub(crate) fn exit(done: Result<Exit, CommandFailure>) -> ExitCode {
    let exit = match done {
        Ok(exit) => exit,
        Err(failure) if is_broken_pipe(&failure) => Exit::Ok,
        Err(failure) => {
            // There is nobody left to tell if stderr is gone too.
            let _ = terminal::tell(&format!("{}\n", failure.told()));
            failure.exit
        }
    };
    ExitCode::from(exit as u8)
}

/// A command line that makes no sense, or asks for help.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    if let Some((message, hint)) = other_word(error) {
        return exit(Err(CommandFailure::new(Exit::Usage, message).hint(hint)));
    }
    let exit = if error.use_stderr() { Exit::Usage } else { Exit::Ok };
    let _ = error.print();
    ExitCode::from(exit as u8)
}

/// What to say to a first word that is no verb but means something to people.
fn other_word(error: &clap::Error) -> Option<(String, String)> {
    if error.kind() != clap::error::ErrorKind::InvalidSubcommand {
        return None;
    }
    let mut words = std::env::args().skip(1);
    let word = words.next()?;
    crate::cli::advice(&word, &words.collect::<Vec<_>>())
}

fn is_broken_pipe(failure: &CommandFailure) -> bool {
    let source = failure.source.as_ref().and_then(|source| source.downcast_ref::<std::io::Error>());
    source.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
