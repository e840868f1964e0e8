//! What core is shown when it is asked whether something that a failed making left may go: the guest, and the node's task
//! list as the model would have it.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_core::actual::Guest;
use evenkeel_core::actual::identity_proof::{ListedTask, TaskListMark, TaskReading, TaskState};
use evenkeel_core::actual::surroundings::GuestSurroundings;
use evenkeel_core::gate::compensation::{
    RemovalEvidence, RemovalGround, RemovalVerdict, SourceNow, may_remove,
};
use evenkeel_core::model::id::{GuestId, GuestKind, VmId};
use evenkeel_core::model::vmid_ranges::VmidRanges;
use evenkeel_core::operate::operation::{MakingMemory, Provenance, SourceMark, Upid};

use crate::journal::{NOW, vmid};
use crate::node::{Maker, Node, NodeGuest};
use crate::sight::{Eyes, Hidden};

const US: &str = "keel@pve!agent";
const SOMEBODY: &str = "root@pam";

fn task(what: &str, number: VmId, who: &str) -> Upid {
    let upid = format!("UPID:pve1:00000457:00001111:65000000:{what}:{number}:{who}:");
    upid.parse().expect("a task's name")
}

fn old_task() -> Upid {
    task("qmstart", vmid(999), SOMEBODY)
}

/// The task list before anything is made.
pub(crate) fn mark() -> TaskListMark {
    TaskListMark {
        at: NOW,
        task: Some(old_task()),
        replaced: BTreeSet::new(),
        unread: BTreeSet::new(),
    }
}

/// The task that the answer to our own request names.
pub(crate) fn our_making(guest: GuestId) -> Upid {
    task(by_kind(guest.kind, ["vzcreate", "qmcreate"]), guest.vmid, US)
}

fn by_kind(kind: GuestKind, [lxc, qemu]: [&'static str; 2]) -> &'static str {
    match kind {
        GuestKind::Lxc => lxc,
        GuestKind::Qemu => qemu,
    }
}

impl Eyes {
    /// The verdict on every guest that our journal knows as half made.
    pub(crate) fn removals(
        self,
        node: &Node,
        making: &MakingMemory,
    ) -> BTreeMap<VmId, RemovalVerdict> {
        let verdict = |(number, there): (&u32, &NodeGuest)| {
            let fresh = self.guest(node, *number, there);
            Some((fresh.id.vmid, self.removal(there, &fresh, making)?))
        };
        node.guests.iter().filter_map(verdict).collect()
    }

    /// The verdict on one guest; none if our journal does not know it as half made.
    pub(crate) fn removal(
        self,
        there: &NodeGuest,
        fresh: &Guest,
        making: &MakingMemory,
    ) -> Option<RemovalVerdict> {
        let made = making.half_made(fresh.id)?;
        let tasks = self.tasks(there, fresh.id);
        let source = SourceNow::There(SourceMark::Nothing);
        let provenance = Provenance::none();
        let scratch_vmids = VmidRanges::default();
        let evidence = RemovalEvidence {
            fresh,
            made,
            provenance: &provenance,
            tasks: &tasks,
            source: &source,
            scratch_vmids: &scratch_vmids,
        };
        Some(may_remove(RemovalGround::HalfMade, &evidence, &GuestSurroundings::empty()))
    }

    fn tasks(self, there: &NodeGuest, id: GuestId) -> TaskReading {
        let mut tasks = vec![old_task(), our_making(id)];
        if there.maker == Maker::Somebody && self.0 != Hidden::OthersTasks {
            tasks.push(task(by_kind(id.kind, ["vzcreate", "qmcreate"]), id.vmid, SOMEBODY));
        }
        if there.ran && self.0 != Hidden::Starts {
            tasks.push(task(by_kind(id.kind, ["vzstart", "qmstart"]), id.vmid, SOMEBODY));
        }
        let listed = |upid| ListedTask { upid, state: TaskState::Done };
        TaskReading {
            tasks: tasks.into_iter().map(listed).collect(),
            unread: Vec::new(),
            filtered: None,
            node_now: NOW,
        }
    }
}
