//! Taking back what somebody asked for and nobody has signed.
//!
//! Only an item that was requested can be withdrawn: one that a plan raised would be raised again by the next pass. The
//! note comes first, so that no crash leaves an item gone without the name of the one who took it back.

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::gate::approval::RaisedBy;
use evenkeel_core::model::id::GuestId;
use evenkeel_core::sign::PendingId;
use futures_util::future::{BoxFuture, FutureExt as _};

use crate::engine::Engine;
use crate::engine::approvals::pending::waiting;
use crate::engine::error::{EngineError, Fatal};
use crate::journal::{JournalState, Kept, KeptSubject, Note, Record};

/// The `what` of the note.
const WITHDRAWN: &str = "withdrawn";

/// Why an item cannot be withdrawn.
#[derive(Debug, thiserror::Error)]
pub enum WithdrawError {
    /// Nothing of that name waits.
    #[error("nothing waits as {0}")]
    NotWaiting(PendingId),
    /// The desired files want it.
    #[error("{op} of {guest} is declared, so the next pass would raise it again")]
    Declared {
        /// What.
        op: ActionKind,
        /// To which guest.
        guest: GuestId,
    },
    /// The journal does not take it, or the engine must end.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl WithdrawError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NotWaiting(_) => "`evenkeel pending` lists what waits",
            Self::Declared { .. } => {
                "change the desired files: leave the guest's `state = \"absent\"` or its change out"
            }
            Self::Engine(_) => "nothing was changed",
        }
    }
}

/// The records that withdraw an item, in the order they must be written. `note` says who does it and why.
pub fn records(
    state: &JournalState,
    id: PendingId,
    note: String,
) -> Result<Vec<Record>, WithdrawError> {
    let items = waiting(state);
    let (item, kept) = items.get(&id).ok_or(WithdrawError::NotWaiting(id))?;
    match kept.from {
        RaisedBy::Plan => Err(WithdrawError::Declared { op: item.op, guest: item.guest }),
        RaisedBy::Request => Ok(vec![
            Record::Note(Note { what: WITHDRAWN.to_owned(), text: note }),
            Record::Kept(Kept::remove(KeptSubject::Pending, id.to_string())),
        ]),
    }
}

impl Engine {
    /// Takes an item back that somebody asked for. Approvals of it are refused from then on.
    pub async fn withdraw(&mut self, id: PendingId, note: String) -> Result<(), WithdrawError> {
        let withdrawing = self.withdrawing(id, note);
        self.drive_lanes_until(withdrawing).await
    }

    /// The same beside the lanes: an approval that is judged just now is waited for.
    pub(crate) fn withdrawing(
        &self,
        id: PendingId,
        note: String,
    ) -> BoxFuture<'static, Result<(), WithdrawError>> {
        let context = self.context.clone();
        let taking = async move {
            // What is found to wait still waits when its act is on disk.
            let _judging = context.judging().await;
            let due = context.journal.read(move |state, _| records(state, id, note)).await;
            for record in due.map_err(Fatal::Journal)?? {
                context.append(record).await?;
            }
            Ok(())
        };
        taking.boxed()
    }
}

impl From<Fatal> for WithdrawError {
    fn from(fatal: Fatal) -> Self {
        Self::Engine(fatal.into())
    }
}
