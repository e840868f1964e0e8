//! Templates, and the end of guests.

use evenkeel_core::model::id::GuestKind;
use serde_json::Value;

use super::{Answer, Context};
use crate::job::{DestroyOrder, TaskJob, ha_sid, word};
use crate::reply::ReplyFailure;
use crate::write;

pub(super) fn template(cx: &mut Context<'_>) -> Answer {
    let guest = cx.guest()?;
    let config = cx.file(guest)?;
    write::check_lock(guest, config)?;
    let refused = match (guest.kind, cx.is_running(guest)) {
        _ if !config.snapshots.is_empty() => Some(format!(
            "unable to create template, because {} contains snapshots",
            word(guest.kind)
        )),
        _ if config.is_set("template") => {
            Some("you can't convert a template to a template".to_owned())
        }
        (GuestKind::Lxc, true) => {
            Some("you can't convert a CT to template if the CT is running".to_owned())
        }
        (GuestKind::Qemu, true) => {
            Some("you can't convert a VM to template if VM is running".to_owned())
        }
        (GuestKind::Lxc | GuestKind::Qemu, false) => None,
    };
    if let Some(text) = refused {
        return Err(ReplyFailure::Died(text));
    }
    let id = guest.vmid.to_string();
    match guest.kind {
        GuestKind::Qemu => cx.fork("qmtemplate", &id, TaskJob::Template { guest }),
        // The container's call answers nothing although it forks.
        GuestKind::Lxc => {
            cx.fork("vztemplate", &id, TaskJob::Template { guest }).map(|_| Value::Null.into())
        }
    }
}

/// Protection is told before the lock. A machine's lock is its task's affair: a DELETE while it is being made waits,
/// and then destroys what was made.
pub(super) fn destroy(cx: &mut Context<'_>) -> Answer {
    let guest = cx.guest()?;
    cx.check_skiplock()?;
    let config = cx.file(guest)?;
    let name = word(guest.kind);
    if config.is_set("protection") {
        return Err(ReplyFailure::Died(format!(
            "can't remove {name} {} - protection mode enabled",
            guest.vmid
        )));
    }
    if guest.kind == GuestKind::Lxc {
        write::check_lock(guest, config)?;
    }
    let order = DestroyOrder {
        purge: cx.flag("purge"),
        unreferenced: cx.flag("destroy-unreferenced-disks"),
        force: cx.flag("force"),
    };
    if cx.world.ha.contains_key(&ha_sid(guest)) && !order.purge {
        return Err(ReplyFailure::Died(format!(
            "unable to remove {name} {} - used in HA resources and purge parameter not set.",
            guest.vmid
        )));
    }
    let mut copied = cx.world.around.replication.iter();
    if let Some((job, _)) =
        copied.find(|(_, job)| job.guest == guest.vmid.get()).filter(|_| !order.purge)
    {
        return Err(ReplyFailure::Died(format!(
            "There is a replication job '{job}' for guest '{}' - Please remove that first.",
            guest.vmid
        )));
    }
    if cx.is_running(guest) && !order.force {
        return Err(ReplyFailure::Died(match guest.kind {
            GuestKind::Lxc => format!("unable to destroy CT {} - container is running", guest.vmid),
            GuestKind::Qemu => format!("VM {} is running - destroy failed", guest.vmid),
        }));
    }
    let kind = match guest.kind {
        GuestKind::Lxc => "vzdestroy",
        GuestKind::Qemu => "qmdestroy",
    };
    cx.fork(kind, &guest.vmid.to_string(), TaskJob::Destroy { guest, order })
}
