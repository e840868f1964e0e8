//! `evenkeel retry GUEST`: what failed on a guest is tried at once instead of after its pause.
//!
//! It only strikes the failure out of the journal's memory, and what acts on the guest warned of; the next pass plans and
//! judges as always.

use std::io::Write as _;

use evenkeel_agent::ambient::Machine;
use evenkeel_agent::daemon::protocol::SocketRequest;
use evenkeel_agent::effective_clock::wall;
use evenkeel_agent::engine::heard_warnings;
use evenkeel_agent::journal::{AppendError, Record, Retry};
use evenkeel_core::desired::selection::GuestName;

use super::journal::{ask_agent, has_journal, journal_unless_busy, who};
use super::named_guest::by_number;
use crate::cli::RetryArgs;
use crate::error::{CommandFailure, Exit};

pub(crate) async fn run(arguments: &RetryArgs) -> Result<Exit, CommandFailure> {
    let state = arguments.place.state_dir()?;
    let guest = match by_number(&arguments.place, &arguments.guest).await? {
        GuestName::Number(vmid) => vmid,
        GuestName::Id(id) => id.vmid,
        GuestName::Name(name) => {
            return Err(CommandFailure::new(
                Exit::NotFound,
                format!("nobody knows a guest called {name}"),
            ));
        }
    };
    let nothing = format!("no failed action waits on guest {guest}");
    if !has_journal(&state)? {
        return Err(CommandFailure::new(Exit::NotFound, nothing));
    }
    let Some(mut journal) = journal_unless_busy(&state)? else {
        let told = ask_agent(&arguments.place, SocketRequest::Retry { guest, by: who() }).await?;
        writeln!(std::io::stdout(), "{told}")?;
        return Ok(Exit::Ok);
    };
    let heard = heard_warnings(journal.state(), guest);
    let failed = journal.state().ledger().failures().knows(guest);
    if !failed && heard.is_empty() {
        return Err(CommandFailure::new(Exit::NotFound, nothing)
            .hint("`evenkeel status` shows what is held, and why"));
    }
    if failed {
        journal.stage(Record::Retry(Retry { guest, by: who() }), wall(&Machine))?;
    }
    for record in heard {
        journal.stage(record, wall(&Machine))?;
    }
    journal.commit().map_err(AppendError::Failed)?;
    let told =
        if failed { "what failed is tried by the next pass" } else { "its warnings are gone" };
    writeln!(std::io::stdout(), "guest {guest}: {told}")?;
    Ok(Exit::Ok)
}
