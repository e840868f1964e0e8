//! `evenkeel status`: how the running agent stands; without one, what its journal says.

use std::io::Write as _;

use evenkeel_agent::daemon::client::{AskError, ask};
use evenkeel_agent::daemon::protocol::{SocketAnswer, SocketRequest};
use evenkeel_agent::daemon::status::{FORMAT_VERSION, HostStatus, JournalStatus, operations};
use evenkeel_agent::journal::{ReadOnlyDirectory, verify};
use evenkeel_agent::state_dir::StateDir;

use crate::cli::{self, OutputFormat};
use crate::command::apply_by_agent::unexpected;
use crate::error::{Exit, Failure};
use crate::render;

pub(crate) async fn run(arguments: &cli::StatusArgs) -> Result<Exit, Failure> {
    let state = arguments.place.state_dir()?;
    let status = match ask(&state.socket(), &SocketRequest::Status {}).await {
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
            write!(anstream::stdout(), "{}", render::status::render(&status, state.path()))?;
        }
    }
    if status.agent.is_some() {
        return Ok(Exit::Ok);
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
    let (journal, operations) = match newest {
        Ok(None) => (none, Vec::new()),
        Ok(Some((head, state))) => {
            (JournalStatus::at(Some(&head), "the newest segment, just now"), operations(&state))
        }
        Err(damage) => (JournalStatus { damage: Some(damage), ..none }, Vec::new()),
    };
    let frozen = state.is_frozen();
    HostStatus { format_version: FORMAT_VERSION, agent: None, frozen, journal, operations }
}
