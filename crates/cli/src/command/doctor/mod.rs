//! `evenkeel doctor`: whether everything an agent depends on is there, and what to do where it is not.
//!
//! ```text
//!   host.rs    state directory, journal, freeze, signers, clock, desired files, secrets: what this machine tells
//!   server.rs  server, certificate, clock, rights, guests, other users of the token: what the node tells
//! ```
//!
//! Only reads, but for `--write` (write.rs), which goes through the engine as every change does. Ends with 0 if nothing failed; a warning is for a person to judge. What this machine tells is told even if
//! the server does not answer.

pub(super) mod findings;
mod host;
mod server;
pub(super) mod write;

use crate::cli::DoctorArgs;
use crate::connect::{configuration, connect, state_dir};
use crate::error::{CommandFailure, Exit};
use findings::Findings;

pub(crate) async fn run(arguments: &DoctorArgs) -> Result<Exit, CommandFailure> {
    let connected = match connect(&arguments.pass.connect).await {
        Ok(connection) => Ok(connection),
        Err(failure) => match failure.exit {
            // The server, not what was written about it.
            Exit::Transient | Exit::Denied => Err(failure),
            Exit::Ok
            | Exit::Failed
            | Exit::ChangeFeed
            | Exit::Invalid
            | Exit::NotFound
            | Exit::ApprovalRequired
            | Exit::Usage
            | Exit::Interrupted => return Err(failure),
        },
    };
    let config = match &connected {
        Ok(connection) => connection.config.clone(),
        Err(_) => configuration(&arguments.pass.connect)?,
    };
    let state = state_dir(arguments.pass.state.as_deref(), &config);
    let mut findings = Findings::default();
    host::check(&config, &state, &mut findings);
    let desired = host::desired(arguments.pass.desired.as_deref(), &config, &mut findings);
    host::secrets(&desired, &config, &mut findings);
    let asked = match &connected {
        Ok(connection) => server::check(connection, &desired, &state, &mut findings).await,
        Err(_) => Ok(()),
    };
    let written = match (&connected, &arguments.write) {
        // Nothing is tried that the checks before it say cannot work.
        (Ok(connection), Some(guest)) if asked.is_ok() => {
            write::check(connection, &state, guest, arguments.yes, &mut findings).await
        }
        (Ok(_) | Err(_), _) => Ok(()),
    };
    findings.tell(arguments.output.output)?;
    asked?;
    connected?;
    written?;
    Ok(findings.exit())
}
