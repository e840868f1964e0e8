//! Asks a person, and only a person: without a terminal nothing is ever asked.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use crate::error::{Exit, Failure};

/// Asks a question that only `y` or `yes` answers with yes.
pub(crate) fn ask(question: &str) -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::new(Exit::Usage, "there is no terminal to ask on")
            .hint("give -y to go on without being asked"));
    }
    let mut err = anstream::stderr();
    write!(err, "{question} [y/N] ")?;
    err.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
