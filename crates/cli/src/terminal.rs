//! Asking a person, only where there is one.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use crate::error::{Exit, Failure};

/// Whether a person can be shown something and answer.
pub(crate) fn is_there() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
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
