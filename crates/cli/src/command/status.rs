//! `evenkeel status`: how the running agent stands; without one, what its journal says.

use std::io::Write as _;

use evenkeel_agent::daemon::client::{AskError, ask};
use evenkeel_agent::daemon::protocol::{SocketAnswer, SocketRequest};
use evenkeel_agent::daemon::status::{
    FORMAT_VERSION, HostStatus, JournalStatus, operations, pending,
};
use evenkeel_agent::journal::{ReadOnlyDirectory, verify};
use evenkeel_agent::state_dir::StateDir;

use crate::cli::{self, OutputFormat};
use crate::command::apply_by_agent::unexpected;
use crate::error::{Exit, Failure};
use crate::{render, terminal};

pub(crate) async fn run(arguments: &cli::StatusArgs) -> Result<Exit, Failure> {
    let state = arguments.place.state_dir()?;
    let selection = arguments.select.selection();
    let status = match ask(&state.socket(), &SocketRequest::Status { selection }).await {
        Ok(SocketAnswer::Status { status }) => *status,
        Ok(other) => return Err(unexpected(other)),
        Err(AskError::NobodyThere) => without_agent(&state),
        Err(error @ (AskError::Io(_) | AskError::WentAway | AskError::NotUnderstood(_))) => {
            return Err(error.into());
        }
    };
    match arguments.output.output {
        OutputFormat::Json => {
            let text = serde_json::to_string(&status).map_err(std::io::Error::from)?;
            writeln!(std::io::stdout(), "{text}")?;
        }
        OutputFormat::Table => {
            terminal::print(&render::status::render(&status, state.path(), arguments.all))?;
        }
    }
    if let Some(agent) = &status.agent {
        // What is told of the guests is what was so when the node could last be read.
        return Ok(if agent.node_trouble.is_some() { Exit::Transient } else { Exit::Ok });
    }
    Err(Failure::new(
        Exit::Transient,
        format!("no agent runs with the state directory {}", state.path().display()),
    )
    .hint("`systemctl start evenkeel`, or `evenkeel run`; --state names another directory"))
}

/// What the journal alone tells. It is only read.
fn without_agent(state: &StateDir) -> HostStatus {
    let none = JournalStatus { seq: None, sum: None, verified: None, damage: None };
    let newest = match ReadOnlyDirectory::open(state.journal()) {
        Ok(files) => verify::newest(&files).map_err(|error| error.to_string()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.to_string()),
    };
    let (journal, operations, pending) = match newest {
        Ok(None) => (none, Vec::new(), Vec::new()),
        Ok(Some((head, state))) => {
            let journal = JournalStatus::at(Some(&head), "the newest segment, just now");
            (journal, operations(&state), pending(&state))
        }
        Err(damage) => (JournalStatus { damage: Some(damage), ..none }, Vec::new(), Vec::new()),
    };
    let (format_version, frozen) = (FORMAT_VERSION, state.is_frozen());
    HostStatus { format_version, agent: None, frozen, journal, operations, pending, chosen: None }
}
