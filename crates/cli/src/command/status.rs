//! `evenkeel status`: how the running agent stands; without one, what its journal says.

use evenkeel_agent::daemon::client::{AskError, ask};
use evenkeel_agent::daemon::protocol::{SocketAnswer, SocketRequest};
use evenkeel_agent::daemon::status::{
    AgentStatus, FORMAT_VERSION, HostStatus, JournalStatus, operations, pending, warnings,
};
use evenkeel_agent::freeze::frozen_by;
use evenkeel_agent::journal::{ReadOnlyDirectory, verify};
use evenkeel_agent::state_dir::StateDir;

use crate::cli::{self, OutputFormat};
use crate::command::apply_by_agent::unexpected;
use crate::error::{CommandFailure, Exit};
use crate::{format, render, terminal};

pub(crate) async fn run(arguments: &cli::StatusArgs) -> Result<Exit, CommandFailure> {
    let state = arguments.local.place.state_dir()?;
    let selection = arguments.select.selection();
    let status = match ask(&state.socket(), &SocketRequest::Status { selection }).await {
        Ok(SocketAnswer::Status { status }) => *status,
        Ok(other) => return Err(unexpected(other)),
        Err(AskError::NobodyThere) => without_agent(&state),
        Err(error @ (AskError::Io(_) | AskError::WentAway | AskError::NotUnderstood(_))) => {
            return Err(error.into());
        }
    };
    match arguments.local.output.output {
        OutputFormat::Json => format::print(&status)?,
        OutputFormat::Table => {
            terminal::print(&render::status::render(&status, state.path(), arguments.all))?;
        }
    }
    if let Some(agent) = &status.agent {
        if let Some(failure) = broken_files(agent) {
            return Err(failure);
        }
        // What is told of the guests is what was so when the node could last be read.
        return Ok(if agent.node_trouble.is_some() { Exit::Transient } else { Exit::Ok });
    }
    Err(CommandFailure::new(
        Exit::Transient,
        format!("no agent runs with the state directory {}", state.path().display()),
    )
    .hint("`systemctl start evenkeel`, or `evenkeel run`; --state names another directory"))
}

/// What the journal alone tells. It is only read.
fn without_agent(state: &StateDir) -> HostStatus {
    let newest = match ReadOnlyDirectory::open(state.journal()) {
        Ok(files) => verify::newest(&files).map_err(|error| error.to_string()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.to_string()),
    };
    let mut status = HostStatus {
        format_version: FORMAT_VERSION,
        agent: None,
        frozen: state.is_frozen(),
        freeze: frozen_by(state),
        journal: JournalStatus { seq: None, sum: None, verified: None, damage: None },
        operations: Vec::new(),
        pending: Vec::new(),
        warnings: Vec::new(),
        chosen: None,
    };
    match newest {
        Ok(None) => {}
        Ok(Some((head, state))) => {
            status.journal = JournalStatus::at(Some(&head), "the newest segment, just now");
            status.operations = operations(&state);
            status.pending = pending(&state);
            status.warnings = warnings(&state);
        }
        Err(damage) => status.journal.damage = Some(damage),
    }
    status
}

/// What must not end with 0: files that are broken are nobody's desired state, however well the last good ones are kept.
fn broken_files(agent: &AgentStatus) -> Option<CommandFailure> {
    let (what, trouble, hint) = match (&agent.configuration_trouble, &agent.desired.trouble) {
        (Some(trouble), _) => (
            "the configuration is broken",
            trouble,
            "correct agent.toml, then `systemctl reload evenkeel`".to_owned(),
        ),
        (None, Some(trouble)) => {
            let directory = agent.desired.directory.as_deref().unwrap_or("DIRECTORY");
            let hint =
                format!("correct the files; `evenkeel validate {directory}` shows each place");
            ("the desired files are broken", trouble, hint)
        }
        (None, None) => return None,
    };
    let since = render::status::moment(trouble.since);
    let message = format!("{what} since {since}; the last valid version stays in use");
    Some(CommandFailure::new(Exit::Invalid, message).hint(hint))
}
