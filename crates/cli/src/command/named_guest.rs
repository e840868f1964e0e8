//! Which guest a name means to a verb that only reads what is kept here: `journal`, `audit`.
//!
//! Numbers say themselves. A name is looked up among the declared guests: those of the running agent, or else of the
//! configuration's desired files.

use evenkeel_agent::daemon::client::{AskError, ask};
use evenkeel_agent::daemon::protocol::{SocketAnswer, SocketRequest};
use evenkeel_agent::source::dir;
use evenkeel_core::desired::selection::{Candidate, DECLARED, GuestName, Selection, find};

use super::apply_by_agent::unexpected;
use crate::cli::StatePlace;
use crate::connect::configuration_file;
use crate::error::{CommandFailure, Exit};

/// The same guest by its number.
pub(super) async fn by_number(
    place: &StatePlace,
    guest: &GuestName,
) -> Result<GuestName, CommandFailure> {
    let GuestName::Name(name) = guest else {
        return Ok(guest.clone());
    };
    let selection = Selection { guests: vec![guest.clone()], ..Selection::default() };
    let asked = ask(&place.state_dir()?.socket(), &SocketRequest::Status { selection }).await;
    let chosen = match asked {
        Ok(SocketAnswer::Status { status }) => status.chosen.unwrap_or_default(),
        Ok(other) => return Err(unexpected(other)),
        Err(AskError::NobodyThere) => declared(place)?,
        Err(error @ (AskError::Io(_) | AskError::WentAway | AskError::NotUnderstood(_))) => {
            return Err(error.into());
        }
    };
    if chosen.is_empty() {
        let message = format!("nothing here says which guest is called {name}");
        return Err(CommandFailure::new(Exit::NotFound, message).hint("write its number"));
    }
    Ok(GuestName::Id(find(guest, &chosen, DECLARED)?.id))
}

/// The guests of the configuration's desired files, as far as they can be read.
fn declared(place: &StatePlace) -> Result<Vec<Candidate>, CommandFailure> {
    let config = configuration_file(place.config.as_deref())?;
    let loaded = config.desired.dir.as_deref().and_then(|path| dir::load(path).ok());
    let desired = loaded.and_then(|loaded| loaded.desired.ok()).unwrap_or_default();
    Ok(desired.guests.values().map(Candidate::declared).collect())
}
