//! Restores: what is checked before the answer. A container's missing archive is found by its task, a machine's here.

use std::collections::BTreeMap;

use evenkeel_core::model::id::{GuestId, GuestKind};

use super::create::{check_volume, container_value, machine_value, put_stub};
use super::{Answer, Context};
use crate::job::{AfterMaking, MakingProgress, RestoreOrder, TaskJob, word};
use crate::reply::ReplyFailure;
use crate::world::is_disk_key;
use crate::write::WriteChange;

/// A guest that shall be replaced by its backup.
pub(super) fn check_replaced(cx: &Context<'_>, guest: GuestId) -> Result<(), ReplyFailure> {
    let what = word(guest.kind);
    if cx.is_running(guest) {
        return Err(ReplyFailure::Died(match guest.kind {
            GuestKind::Lxc => "can't overwrite running container".to_owned(),
            GuestKind::Qemu => format!("unable to restore VM {} - vm is running", guest.vmid),
        }));
    }
    if cx.file(guest)?.is_set("protection") {
        return Err(ReplyFailure::Died(format!(
            "unable to restore {what} {} - protection mode enabled",
            guest.vmid
        )));
    }
    crate::write::check_lock(guest, cx.file(guest)?)
}

/// Drives come from the archive alone, and it must be there.
pub(super) fn check_archive(
    cx: &Context<'_>,
    guest: GuestId,
    archive: &str,
    change: &WriteChange,
) -> Result<(), ReplyFailure> {
    let drive = change
        .set
        .keys()
        .find(|key| is_disk_key(GuestKind::Qemu, key) && !key.starts_with("unused"));
    if let Some(key) = drive {
        return Err(ReplyFailure::param(key, "option conflicts with option 'archive'"));
    }
    check_volume(cx, guest, archive, "backup")?;
    match cx.world.volume(archive) {
        Some(_) => Ok(()),
        None => Err(ReplyFailure::Died(format!("volume '{archive}' does not exist"))),
    }
}

pub(super) fn container(
    cx: &mut Context<'_>,
    guest: GuestId,
    archive: String,
    change: &WriteChange,
    unprivileged: Option<bool>,
    after: AfterMaking,
) -> Answer {
    let mut given = BTreeMap::new();
    for (key, value) in &change.set {
        let stored = container_value(cx, key, value.as_deref().unwrap_or_default());
        given.extend(stored.map(|stored| (key.clone(), stored)));
    }
    let order = RestoreOrder { unprivileged, ..order(cx, archive, given, after) };
    fork(cx, guest, "vzrestore", order)
}

pub(super) fn machine(
    cx: &mut Context<'_>,
    guest: GuestId,
    archive: String,
    change: &WriteChange,
    after: AfterMaking,
) -> Answer {
    let mut given = BTreeMap::new();
    for (key, value) in &change.set {
        let stored = machine_value(cx, key, value.as_deref().unwrap_or_default());
        given.extend(stored.map(|stored| (key.clone(), stored)));
    }
    let order = order(cx, archive, given, after);
    fork(cx, guest, "qmrestore", order)
}

fn order(
    cx: &Context<'_>,
    archive: String,
    given: BTreeMap<String, String>,
    after: AfterMaking,
) -> RestoreOrder {
    RestoreOrder {
        archive,
        given,
        storage: cx.text("storage").map(str::to_owned),
        unique: cx.flag("unique"),
        unprivileged: None,
        rate_limit: cx.number("bwlimit").filter(|kib| *kib > 0),
        after,
        config: crate::config::Config::default(),
        progress: MakingProgress::default(),
    }
}

/// A new guest gets a stub; one that is replaced keeps its keys, with the lock beside them.
fn fork(cx: &mut Context<'_>, guest: GuestId, kind: &str, order: RestoreOrder) -> Answer {
    match cx.world.guest_mut(guest) {
        Some(record) => record.config.set_lock(Some("create")),
        None => put_stub(cx, guest),
    }
    let job = TaskJob::Restore { guest, order: Box::new(order) };
    cx.fork(kind, &guest.vmid.to_string(), job)
}
