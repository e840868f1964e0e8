//! What ends the engine, and what ends one pass.

use evenkeel_core::model::reason::Refusal;
use evenkeel_core::operate::lane::LaneError;

use crate::journal::AppendError;
use crate::pve::error::Error;

/// The process must end: recovery at the next start goes on from what is on disk.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Fatal {
    /// The journal took a record no longer, so nothing may be sent.
    #[error("the journal cannot be written, so nothing more is sent to Proxmox VE")]
    Journal(#[source] AppendError),
    /// The lane table refused an event: two operations could meet on one guest.
    #[error("the lanes are in disorder; this is a bug in evenkeel")]
    Lanes(#[from] LaneError),
}

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// It is refused, and nothing was changed.
    #[error("{0}")]
    Refused(Refusal),
    /// The engine must end.
    #[error(transparent)]
    Fatal(#[from] Fatal),
}

impl EngineError {
    /// The refusal; what ends the engine stays an error.
    pub fn refusal(self) -> Result<Refusal, Fatal> {
        match self {
            Self::Refused(refusal) => Ok(refusal),
            Self::Fatal(fatal) => Err(fatal),
        }
    }
}

impl From<Refusal> for EngineError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// A pass came to nothing. Guests are left as they are; lanes that run go on.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    /// The node could not be read.
    #[error("the actual state could not be read: {0}")]
    Actual(#[source] Error),
    /// The engine must end.
    #[error(transparent)]
    Fatal(#[from] Fatal),
}
