//! What changed, told to whoever waits: long polls of hosts and event streams of people.
//!
//! Only a hint to look: whoever is woken reads the store. A listener that falls behind is told so and looks at everything.

use std::sync::Arc;

use tokio::sync::broadcast;

use super::link_memory::LinkMemory;

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
    links: Arc<LinkMemory>,
}

impl Changes {
    /// A channel; what is told of a host is forgotten of its link first.
    pub(super) fn new(links: Arc<LinkMemory>) -> Self {
        Self { sender: broadcast::channel(CHANGES_KEPT).0, links }
    }

    /// Hears everything from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<StoreChange> {
        self.sender.subscribe()
    }

    /// Tells everybody; nobody listening is no mistake.
    pub(crate) fn tell(&self, change: StoreChange) {
        if let StoreChange::Host(host) = &change {
            // Here, and not by whoever hears of it: a credential is over before its end is acknowledged.
            self.links.forget(host);
        }
        let _ = self.sender.send(change);
    }
}
