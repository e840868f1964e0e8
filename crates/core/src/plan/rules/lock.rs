//! A guest that Proxmox VE has locked is left alone.

use super::{GuestView, overrule};
use crate::plan::{GuestPlan, Held};

/// Holds everything on a locked guest. Who holds the lock is named later, for people.
pub(super) fn hold(view: &GuestView<'_>, planned: &mut GuestPlan) {
    let lock = view.here.and_then(|guest| guest.lock.as_ref());
    overrule(planned, |_| {
        lock.map(|lock| Held::Locked { lock: lock.clone(), by: None, left: None })
    });
}
