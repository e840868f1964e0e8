//! Ctrl-C and SIGTERM, as something to wait for.
//!
//! Once made, neither signal ends the process by itself: whoever makes it must end in an orderly way.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::{CommandFailure, Exit};

/// The wish of a person or of the system that it ends.
pub(crate) struct Interrupts {
    ctrl_c: Signal,
    terminate: Signal,
}

impl Interrupts {
    /// Listens from now on.
    pub(crate) fn listen() -> Result<Self, CommandFailure> {
        let listen = |kind| {
            let listening = signal(kind);
            listening.map_err(|error| {
                CommandFailure::new(Exit::Failed, "cannot listen for signals").because(error)
            })
        };
        let ctrl_c = SignalKind::interrupt();
        let terminate = SignalKind::terminate();
        Ok(Self { ctrl_c: listen(ctrl_c)?, terminate: listen(terminate)? })
    }

    /// The next one. Dropping it loses none.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.ctrl_c.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// The end of a verb that was told to stop before it began anything.
pub(crate) fn before_anything() -> CommandFailure {
    CommandFailure::new(Exit::Interrupted, "interrupted; nothing was changed")
}
