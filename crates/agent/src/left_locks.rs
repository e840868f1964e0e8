//! Locks that a task left behind when it was killed, and what an administrator must do about them.
//!
//! A container that is copied or whose volume is moved is locked as `disk`; a worker that is killed never takes that
//! lock off, no token can, and the half-made copy hangs on nothing. Asked once a pass, of locked guests that no running
//! task is about. It only reads, and says nothing unless it can see that nobody is at work.

use std::collections::BTreeSet;

use evenkeel_core::gate::rights::AUDIT;
use evenkeel_core::model::id::{GuestId, GuestKind};
use evenkeel_core::operate::operation::{Upid, VolumeId};

use crate::engine::{loose_of, volumes_of};
use crate::observe::observe_guest;
use crate::pve::Client;

/// The lock of copies and moves. Others have owners that show, or end by themselves.
const DISK_LOCK: &str = "disk";

/// How many volumes are named; the storage lists the others.
const VOLUMES_NAMED_MAX: usize = 3;

/// What to do about a lock nobody works under; none if somebody does, or if that cannot be told.
pub(crate) async fn advice(
    client: &Client,
    running: &[Upid],
    guest: GuestId,
    lock: &str,
) -> Option<String> {
    if lock != DISK_LOCK || running.iter().any(|task| is_about(task, guest)) {
        return None;
    }
    // Other people's tasks are hidden from a token that may not audit the node.
    let sees_all = client.may(&format!("/nodes/{}", client.node()), AUDIT).await;
    // The lock may have gone with its task since the guest was read.
    let fresh = observe_guest(client, guest).await.ok()?;
    if !sees_all.unwrap_or(false) || fresh.lock.as_deref() != Some(DISK_LOCK) {
        return None;
    }
    let tool = match guest.kind {
        GuestKind::Lxc => "pct",
        GuestKind::Qemu => "qm",
    };
    let storages = client.storages().await.unwrap_or_default().into_iter();
    let storages: BTreeSet<String> =
        storages.filter(|storage| storage.active).map(|storage| storage.storage).collect();
    let volumes = volumes_of(client, guest.vmid, &storages).await.unwrap_or_default();
    let loose = loose_of(client, &fresh, &volumes).await.unwrap_or_default();
    let mut named: Vec<&str> = loose.iter().map(VolumeId::as_str).collect();
    let more = if named.len() > VOLUMES_NAMED_MAX { " and others" } else { "" };
    named.truncate(VOLUMES_NAMED_MAX);
    let behind = match named.as_slice() {
        [] => String::new(),
        [one] => format!("; {one} stays behind and hangs on nothing"),
        several => format!("; {}{more} stay behind and hang on nothing", several.join(", ")),
    };
    Some(format!("run `{tool} unlock {}` on the node{behind}", guest.vmid))
}

/// Whether a task is about a guest: a volume given to another guest names both, as `100-mp0>101-mp0`.
fn is_about(task: &Upid, guest: GuestId) -> bool {
    let vmid = guest.vmid.to_string();
    task.task_id().split('>').any(|side| side.split('-').next() == Some(vmid.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_about_every_guest_it_names() {
        let task = |id: &str| -> Upid {
            format!("UPID:pve1:0000ABCD:00112233:6553F100:move_volume:{id}:root@pam:")
                .parse()
                .unwrap()
        };
        for (id, about) in [
            ("101", true),
            ("101-mp0>102-mp1", true),
            ("102-mp0>101-mp1", true),
            ("102", false),
            ("1010", false),
            ("102-mp101>103-mp0", false),
            ("", false),
        ] {
            assert_eq!(is_about(&task(id), "lxc/101".parse().unwrap()), about, "{id}");
        }
    }
}
