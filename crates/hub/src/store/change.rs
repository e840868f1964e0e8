//! What changed, told to whoever waits: long polls of hosts and event streams of people.
//!
//! Only a hint to look: whoever is woken reads the store. A listener that falls behind is told so and looks at everything.

use tokio::sync::broadcast;

/// Changes a listener may fall behind before it loses some.
const CHANGES_KEPT: usize = 4_096;

/// Something that was committed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum StoreChange {
    /// A host's row, or what it should poll for.
    Host(String),
    /// What a host said of itself.
    Report(String),
    /// Open items or envelopes of a host.
    Pending(String),
    /// A host's document.
    Document(String),
    /// Something a person did.
    Audit,
}

/// The channel of changes.
#[derive(Debug, Clone)]
pub struct Changes {
    sender: broadcast::Sender<StoreChange>,
}

impl Default for Changes {
    fn default() -> Self {
        Self { sender: broadcast::channel(CHANGES_KEPT).0 }
    }
}

impl Changes {
    /// Hears everything from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<StoreChange> {
        self.sender.subscribe()
    }

    /// Tells everybody; nobody listening is no mistake.
    pub(crate) fn tell(&self, change: StoreChange) {
        let _ = self.sender.send(change);
    }
}
