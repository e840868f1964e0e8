//! `evenkeel journal show OP`: everything that is known of one operation.
//!
//! Only reads: the journal without a lock, and the task's log from the node if the configuration says where it is.

use evenkeel_agent::journal::op_history::{OpHistory, op_history};
use evenkeel_core::operate::operation::Upid;

use super::journal::reading;
use crate::cli::{ConnectArgs, JournalShowArgs, OutputFormat};
use crate::connect::{Connection, configuration_file, connect};
use crate::error::{CommandFailure, Exit};
use crate::format::journal::{ShownFormat, TaskLogFormat};
use crate::render::{self, tamed};
use crate::{format, terminal};

/// Lines of a log that are asked for: a backup writes some thousands, and the last ones tell how it ended.
const LINES_READ_MAX: u32 = 50_000;

/// The longest line of a log that is shown.
const LINE_LENGTH_MAX: usize = 1_000;

pub(super) async fn run(arguments: &JournalShowArgs) -> Result<Exit, CommandFailure> {
    let files = reading(&arguments.local.place.state_dir()?.journal())?;
    let Some(history) = op_history(&files, arguments.op)? else {
        let message = format!("the journal knows no operation {}", arguments.op);
        return Err(CommandFailure::new(Exit::NotFound, message).hint(
            "`evenkeel journal` lists those it knows; the oldest segments are dropped in time",
        ));
    };
    let logs = task_logs(&history, arguments).await;
    match arguments.local.output.output {
        OutputFormat::Json => format::print(&ShownFormat::of(&history, &logs))?,
        OutputFormat::Table => terminal::print(&render::operation::render(&history, &logs))?,
    }
    Ok(Exit::Ok)
}

/// The logs of its tasks. A node that cannot be asked is said, and is no failure: the journal was asked for.
async fn task_logs(history: &OpHistory, arguments: &JournalShowArgs) -> Vec<TaskLogFormat> {
    let tasks: Vec<&Upid> = history.tasks().collect();
    let configured = configuration_file(arguments.local.place.config.as_deref());
    let known = configured.is_ok_and(|config| config.pve.url.is_some());
    let connection_args = ConnectArgs::of(&arguments.local.place);
    if tasks.is_empty() || arguments.log == 0 || !(known || connection_args.url.is_some()) {
        return Vec::new();
    }
    let connection = connect(&connection_args).await;
    let mut logs = Vec::new();
    for upid in tasks {
        let lines = match &connection {
            Ok(connection) => lines(connection, upid, arguments.log).await,
            Err(failure) => Err(failure.message.clone()),
        };
        let (lines, problem) = match lines {
            Ok(lines) => (Some(lines), None),
            Err(why) => (None, Some(why)),
        };
        logs.push(TaskLogFormat { upid: upid.to_string(), lines, problem });
    }
    logs
}

async fn lines(connection: &Connection, upid: &Upid, last: u32) -> Result<Vec<String>, String> {
    let read = connection.client.task_log(upid, 0, LINES_READ_MAX).await;
    let read = read.map_err(|error| error.to_string())?;
    let surplus = read.len().saturating_sub(usize::try_from(last).unwrap_or(usize::MAX));
    let texts = read.into_iter().skip(surplus).map(|line| line.t.unwrap_or_default());
    Ok(texts.map(|text| tamed(&text, LINE_LENGTH_MAX)).collect())
}
