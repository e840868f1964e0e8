//! Talking to a person, and asking one only where there is one.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicUsize, Ordering};

use std::os::fd::AsFd;

use evenkeel_core::words::shown_text;

use crate::error::{CommandFailure, Exit};
use crate::render::fit::fit;

/// Prints an answer for people: fitted to the terminal if it is one, whole anywhere else.
pub(crate) fn print(text: &str) -> Result<(), CommandFailure> {
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
    let text = guarded(text);
    match columns_of(stream) {
        Some(width) => fit(&text, width),
        None => text,
    }
}

/// The last look at what is shown: nothing acts on the terminal but our own colours and ends of lines. Text of others had
/// its escapes before ([`tamed`](crate::render::tamed)); this is for a place that forgot.
fn guarded(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(|letter| letter != '\n' && shown_text::steers(letter)) {
        let (before, from) = rest.split_at(at);
        shown.push_str(before);
        let taken = if let Some(length) = colour(from) {
            shown.push_str(&from[..length]);
            length
        } else {
            let letter = from.chars().next().expect("a letter was found here");
            shown.extend(letter.escape_unicode());
            letter.len_utf8()
        };
        rest = &from[taken..];
    }
    shown + rest
}

/// How long the colour is that a text begins with.
fn colour(text: &str) -> Option<usize> {
    let codes = text.strip_prefix("\u{1b}[")?;
    let end = codes.find(|letter: char| !(letter.is_ascii_digit() || letter == ';'))?;
    codes[end..].starts_with('m').then_some(end + 3)
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
pub(crate) fn must_be_there(next: &str) -> Result<(), CommandFailure> {
    if is_there() {
        return Ok(());
    }
    Err(CommandFailure::new(Exit::Usage, "there is no terminal to ask on").hint(next))
}

/// Goes on if a person agrees, or said so before. Nobody is asked who is not there. `undone` is what does not happen then.
pub(crate) fn agreed(yes: bool, question: &str, undone: &str) -> Result<(), CommandFailure> {
    if yes {
        return Ok(());
    }
    if !is_there() {
        let message = format!("nothing was {undone}: there is no terminal to ask on");
        return Err(
            CommandFailure::new(Exit::Usage, message).hint("read what is shown, then add --yes")
        );
    }
    if agrees(question)? {
        return Ok(());
    }
    Err(CommandFailure::new(Exit::Failed, format!("nothing was {undone}, as you said")))
}

/// Goes on if a person at a terminal agrees; no flag answers for them. `what` must not be signed without one.
pub(crate) fn agreed_in_person(
    what: &str,
    question: &str,
    next: &str,
) -> Result<(), CommandFailure> {
    if !is_there() {
        let message = format!(
            "nothing was signed: {what} is signed by a person at a terminal, never by --yes, and there is none"
        );
        return Err(CommandFailure::new(Exit::Usage, message).hint(next));
    }
    agreed(false, question, "signed")
}

/// The same question, to be dropped when a signal comes: a thread reads the answer, and ends with the process.
pub(crate) async fn agrees_in_time(question: &str) -> Result<bool, CommandFailure> {
    let (tell, told) = tokio::sync::oneshot::channel();
    let question = question.to_owned();
    // Nobody waits any more if the verb was interrupted meanwhile.
    std::thread::spawn(move || drop(tell.send(agrees(&question))));
    told.await.unwrap_or(Ok(false))
}

/// Asks a question that is answered by `y` or by anything else. Only where [`is_there`].
pub(crate) fn agrees(question: &str) -> Result<bool, CommandFailure> {
    let answer = answer(&format!("{question} [y/N]"))?;
    Ok(matches!(answer.as_str(), "y" | "Y" | "yes"))
}

/// Asks a question that is answered by a line. Only where [`is_there`].
pub(crate) fn answer(question: &str) -> Result<String, CommandFailure> {
    write!(std::io::stderr(), "{question} ")?;
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    read.map_err(|error| {
        CommandFailure::new(Exit::Failed, "cannot read the answer").because(error)
    })?;
    Ok(answer.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::guarded;

    #[test]
    fn z21_nothing_reaches_a_terminal_but_colours_and_ends_of_lines() {
        let ours = "\u{1b}[1mlxc/101\u{1b}[0m é\n\u{1b}[38;5;9mx\u{1b}[m\n";
        assert_eq!(guarded(ours), ours);
        let theirs = "\u{1b}[2J\u{1b}]0;t\u{7}\u{9b}1A\r\u{202e}\u{1b}";
        let shown = "\\u{1b}[2J\\u{1b}]0;t\\u{7}\\u{9b}1A\\u{d}\\u{202e}\\u{1b}";
        assert_eq!(guarded(theirs), shown);
    }
}
