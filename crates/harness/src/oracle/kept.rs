//! Volumes as the oracle sees them: none is forgotten by an unsigned act, and none is called removed while it is whole.
//!
//! It knows requests and the node's own files; what the agent asked about storages is not asked.

use std::collections::BTreeSet;

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::model::id::{GuestId, GuestKind};
use evenkeel_sim::{InProcess, SimGuest, Volume, World};

use super::{Oracle, OracleState};
use crate::call::WriteRequest;
use crate::history::HistoryOp;

/// What became of volumes in a run.
#[derive(Debug, Default)]
pub(super) struct KeptVolumes {
    /// Numbers of guests from whose slots we took a volume, which their files then list as unused.
    detached: BTreeSet<u32>,
    /// Volumes that were to be removed.
    removed: Vec<RemovedVolume>,
}

/// A volume that an operation was to remove. A move takes data along, and may bring it back under the same name: only both
/// its data and the time of its making tell which volume it is.
#[derive(Debug)]
struct RemovedVolume {
    op: String,
    name: String,
    birth: u64,
    ctime: u64,
}

impl Oracle {
    /// Volumes that the journal calls removed and that are whole.
    pub(crate) fn removed_in_name_only(&self, world: &World) -> Vec<String> {
        let mut inner = self.inner();
        inner.read_disk();
        let done = |op: &str| inner.history.ops.get(op).is_some_and(|op| op.state == "succeeded");
        let whole = inner.kept.removed.iter().filter(|removed| {
            let is_it =
                |found: &Volume| (found.birth, found.ctime) == (removed.birth, removed.ctime);
            done(&removed.op) && world.volume(&removed.name).is_some_and(is_it)
        });
        whole
            .map(|RemovedVolume { op, name, .. }| {
                format!("(13) {op} removed {name}, yet its data is whole")
            })
            .collect()
    }

    /// Whether we took a volume out of a slot of this guest.
    pub(crate) fn was_detached(&self, guest: GuestId) -> bool {
        self.inner().kept.detached.contains(&guest.vmid.get())
    }
}

impl OracleState {
    /// Invariants 18 and 21: what an unsigned act takes out of its slot is on a storage that somebody defines.
    pub(super) fn keeps_volumes(
        &mut self,
        node: &InProcess,
        write: &WriteRequest,
    ) -> Option<String> {
        let of_guest = self.history.ops.iter().filter(|(_, op)| op.guest.vmid == write.guest.vmid);
        let newest = of_guest.max_by_key(|(_, op)| op.started);
        let is_signed = newest.is_some_and(|(_, op)| HistoryOp::is_signed(op));
        let op = newest.map(|(name, _)| name.clone()).unwrap_or_default();
        node.with(|sim| {
            let found = sim.world.guest(write.guest)?;
            if write.kind == ActionKind::DeleteVolume {
                let slot = write.params.get("delete").map_or("", String::as_str);
                let name = found.config.active.get(slot)?.clone();
                let &Volume { birth, ctime, .. } = sim.world.volume(&name)?;
                self.kept.removed.push(RemovedVolume { op, name, birth, ctime });
            }
            let leaving = leaving(found, write);
            if !leaving.is_empty() && write.kind == ActionKind::SetConfig {
                self.kept.detached.insert(write.guest.vmid.get());
            }
            let forgotten = leaving.into_iter().find(|volume| {
                let storage = volume.split(':').next().unwrap_or_default();
                sim.world.undefined.contains_key(storage)
            });
            // A container keeps what left a slot, wherever it is.
            let forgotten = forgotten.filter(|_| write.guest.kind == GuestKind::Qemu && !is_signed);
            forgotten.map(|volume| {
                format!("(18) nothing would name {volume}: nobody defines its storage")
            })
        })
    }
}

/// The volumes that a write takes out of their slots, by the node's own file.
fn leaving(found: &SimGuest, write: &WriteRequest) -> Vec<String> {
    let volume = |value: &str| value.split(',').next().unwrap_or_default().to_owned();
    let listed = write.params.get("delete").map_or("", String::as_str);
    let power = [ActionKind::Start, ActionKind::Shutdown, ActionKind::Stop].contains(&write.kind);
    let writes = write.kind == ActionKind::SetConfig;
    let goes = |(key, value): &(&String, &String)| {
        let deleted = listed.split(',').any(|name| name == key.as_str());
        let replaced = write.params.get(*key).is_some_and(|new| volume(new) != volume(value));
        let waits = found.config.pending_delete.contains_key(*key);
        (writes && (deleted || replaced)) || ((writes || power) && waits)
    };
    let disks = ["scsi", "virtio", "sata", "ide", "mp"];
    let slots = found.config.active.iter().filter(|(key, value)| {
        disks.iter().any(|bus| key.starts_with(bus)) && value.contains("-disk-")
    });
    slots.filter(goes).map(|(_, value)| volume(value)).collect()
}
