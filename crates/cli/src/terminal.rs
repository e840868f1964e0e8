//! Talking to a person, and asking one only where there is one.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicUsize, Ordering};

use std::os::fd::AsFd;

use crate::error::{Exit, Failure};
use crate::render::fit::fit;

/// Prints an answer for people: fitted to the terminal if it is one, whole anywhere else.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let out = std::io::stdout();
    Ok(write!(anstream::stdout(), "{}", fitted(&out, text))?)
}

/// Tells a person something beside the answer, in the same way.
pub(crate) fn tell(text: &str) -> std::io::Result<()> {
    let err = std::io::stderr();
    let text = fitted(&err, text);
    let shown = TRANSIENT.swap(0, Ordering::Relaxed);
    if shown > 0 {
        return write!(anstream::stderr(), "\r{:shown$}\r{text}", "");
    }
    write!(anstream::stderr(), "{text}")
}

/// How many columns a line takes that the next one takes the place of. It is written over with blanks: a terminal that
/// knows no colours knows no erasing either.
static TRANSIENT: AtomicUsize = AtomicUsize::new(0);

/// Whether there is a terminal for lines that come and go: both streams go to one, so that no file gets half of them.
pub(crate) fn shows_transient() -> bool {
    std::io::stdout().is_terminal() && std::io::stderr().is_terminal()
}

/// Shows one line until something else is told. Only where [`shows_transient`]; it is cut to the terminal, because a line
/// that was broken cannot be taken back.
pub(crate) fn tell_transient(line: &str) -> std::io::Result<()> {
    let Some(width) = columns_of(&std::io::stderr()) else { return Ok(()) };
    let shown: String = line.chars().take(width.saturating_sub(1)).collect();
    let columns = shown.chars().count();
    let before = TRANSIENT.swap(columns, Ordering::Relaxed);
    let mut err = anstream::stderr();
    write!(err, "\r{shown}{:blanks$}", "", blanks = before.saturating_sub(columns))?;
    err.flush()
}

/// How many columns the terminal has that answers go to; none if they go elsewhere.
pub(crate) fn columns() -> Option<usize> {
    columns_of(&std::io::stdout())
}

fn fitted(stream: &(impl AsFd + std::io::IsTerminal), text: &str) -> String {
    columns_of(stream).map_or_else(|| text.to_owned(), |width| fit(text, width))
}

/// A terminal that does not say its width is as wide as terminals have always been.
fn columns_of(stream: &(impl AsFd + std::io::IsTerminal)) -> Option<usize> {
    const USUAL: usize = 80;
    stream.is_terminal().then(|| match rustix::termios::tcgetwinsize(stream) {
        Ok(size) if size.ws_col > 0 => usize::from(size.ws_col),
        Ok(_) | Err(_) => USUAL,
    })
}

/// Whether a person can be shown something and answer.
pub(crate) fn is_there() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Refuses where nobody can be asked; `next` is what to give instead.
pub(crate) fn must_be_there(next: &str) -> Result<(), Failure> {
    if is_there() {
        return Ok(());
    }
    Err(Failure::new(Exit::Usage, "there is no terminal to ask on").hint(next))
}

/// Goes on if a person agrees, or said so before. Nobody is asked who is not there. `undone` is what does not happen then.
pub(crate) fn agreed(yes: bool, question: &str, undone: &str) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !is_there() {
        let message = format!("nothing was {undone}: there is no terminal to ask on");
        return Err(Failure::new(Exit::Usage, message).hint("read what is shown, then add --yes"));
    }
    if agrees(question)? {
        return Ok(());
    }
    Err(Failure::new(Exit::Failed, format!("nothing was {undone}, as you said")))
}

/// The same question, to be dropped when a signal comes: a thread reads the answer, and ends with the process.
pub(crate) async fn agrees_in_time(question: &str) -> Result<bool, Failure> {
    let (tell, told) = tokio::sync::oneshot::channel();
    let question = question.to_owned();
    // Nobody waits any more if the verb was interrupted meanwhile.
    std::thread::spawn(move || drop(tell.send(agrees(&question))));
    told.await.unwrap_or(Ok(false))
}

/// Asks a question that is answered by `y` or by anything else. Only where [`is_there`].
pub(crate) fn agrees(question: &str) -> Result<bool, Failure> {
    write!(std::io::stderr(), "{question} [y/N] ")?;
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    read.map_err(|error| Failure::new(Exit::Failed, "cannot read the answer").because(error))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
