//! `evenkeel freeze` and `evenkeel thaw`: stop every change on this host, and let them go on.
//!
//! Both need the state directory and nothing else, so that they work when the agent does not.

use std::io::Write as _;

use evenkeel_agent::ambient::{Ambient as _, Machine};
use evenkeel_agent::freeze::{self, FreezeError, Freezing, Frozen, REASON_BYTES_MAX, Thawed};
use serde_json::json;

use crate::cli::{Freeze, OutputFormat, Thaw};
use crate::error::{Exit, Failure};

pub(crate) fn freeze(arguments: &Freeze) -> Result<Exit, Failure> {
    let reason = arguments.reason.clone().unwrap_or_default();
    if reason.len() > REASON_BYTES_MAX {
        let message = format!("the reason is longer than {REASON_BYTES_MAX} bytes");
        return Err(Failure::new(Exit::Usage, message).hint("say it shorter"));
    }
    let state = arguments.place.state_dir()?;
    let (at, by) = (Machine.now().to_string(), freeze::this_user());
    let done = freeze::freeze(&state, &Frozen { at, by, reason })?;
    let out = &mut std::io::stdout();
    match (arguments.output.output, done) {
        (OutputFormat::Json, done) => {
            let already = done != Freezing::Done;
            let answer = json!({ "format_version": 1, "frozen": true, "already": already });
            writeln!(out, "{answer}")?;
        }
        (OutputFormat::Table, Freezing::Done) => {
            writeln!(out, "frozen: nothing on this host is changed until `evenkeel thaw`")?;
        }
        (OutputFormat::Table, Freezing::Already(first)) => {
            writeln!(out, "already frozen{}", first.as_ref().map(told).unwrap_or_default())?;
        }
    }
    Ok(Exit::Ok)
}

pub(crate) fn thaw(arguments: &Thaw) -> Result<Exit, Failure> {
    let state = arguments.place.state_dir()?;
    let done = freeze::thaw(&state, Machine.now(), &freeze::this_user())?;
    let out = &mut std::io::stdout();
    match (arguments.output.output, done) {
        (OutputFormat::Json, done) => {
            let already = done.is_none();
            let answer = json!({ "format_version": 1, "frozen": false, "already": already });
            writeln!(out, "{answer}")?;
        }
        (OutputFormat::Table, Some(Thawed { ended, .. })) => {
            writeln!(out, "thawed{}", ended.as_ref().map(told).unwrap_or_default())?;
        }
        (OutputFormat::Table, None) => writeln!(out, "was not frozen")?,
    }
    Ok(Exit::Ok)
}

/// Since when, by whom and why; the words are another's.
fn told(frozen: &Frozen) -> String {
    let Frozen { at, by, reason } = frozen;
    let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    format!(", frozen at {at} by {by}{why}").escape_debug().to_string()
}

impl From<FreezeError> for Failure {
    fn from(error: FreezeError) -> Self {
        match error {
            FreezeError::State(error) => error.into(),
            FreezeError::File { .. } => Self::wrapping(Exit::Failed, error)
                .hint("run as the owner of the state directory, or name another with --state"),
        }
    }
}
