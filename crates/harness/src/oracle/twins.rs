//! Requests that somebody with our token sent as well: what comes of the second of two is not the agent's doing.
//!
//! Counted by guest number, and only where it happened: on every other guest nothing may be there twice.

use evenkeel_agent::pve::exchange::HttpRequest;
use evenkeel_core::model::id::GuestId;
use evenkeel_sim::InProcess;

use super::{Oracle, saved_guest};
use crate::call::write_of;

impl Oracle {
    /// Somebody sends the same.
    pub(crate) fn twinned(&self, node: &InProcess, request: &HttpRequest) {
        let write = write_of(request, saved_guest(node, request));
        let now_ms = node.with(|sim| sim.now_ms());
        self.tell(now_ms, || format!("somebody sends {} too", request.call()));
        if let Some(write) = write {
            *self.inner().twins.entry(write.guest.vmid.get()).or_default() += 1;
        }
    }

    /// How many changes of a guest somebody else sent too: each may have made, moved or detached one volume more.
    pub(crate) fn twins(&self, guest: GuestId) -> usize {
        self.inner().twins.get(&guest.vmid.get()).copied().unwrap_or(0)
    }
}
