//! What operations count together, and take turns for: room of storages, a hub's budget, storages that answer slowly.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use evenkeel_core::gate::create_policy::GuestVolumes;
use evenkeel_core::model::id::VmId;
use evenkeel_core::model::quantity::Bytes;
use evenkeel_core::model::vmid_ranges::VmidRanges;
use tokio::time::Instant;

/// Shared by every operation under way.
#[derive(Clone, Default)]
pub(in crate::engine) struct SharedLimits {
    /// What guests that are being made will take of each storage.
    promises: Arc<Mutex<BTreeMap<VmId, StoragePromise>>>,
    /// Held while the budget of a hub's disruptive acts is spent.
    pub(in crate::engine) disruptive: Arc<tokio::sync::Mutex<()>>,
    /// What guests that count for a hub take of each storage, as the last pass saw it.
    hub_volumes: Arc<Mutex<GuestVolumes>>,
    /// Held while a hub's guests are counted and an act that takes more begins.
    pub(in crate::engine) counting: Arc<tokio::sync::Mutex<()>>,
    /// Held by who waits for a storage that answers slowly with a turn in hand: one at a time, so that a turn is left.
    pub(in crate::engine) slow_storages: Arc<tokio::sync::Mutex<()>>,
    /// The numbers at which guests may be scratch, by root's file.
    pub(in crate::engine) scratch_vmids: VmidRanges,
}

/// What a guest that is being made will take of each storage.
#[derive(Debug)]
struct StoragePromise {
    sizes: BTreeMap<String, Bytes>,
    /// When its making had ended.
    kept: Option<Instant>,
}

impl SharedLimits {
    /// Keeps what guests that count for a hub take, as a pass saw it.
    pub(in crate::engine) fn keep_hub_volumes(&self, volumes: GuestVolumes) {
        *self.hub_volumes.lock().expect("nobody panics while they hold the volumes") = volumes;
    }

    /// What guests that count for a hub take of each storage, as the last pass saw it.
    pub(in crate::engine) fn hub_volumes(&self) -> GuestVolumes {
        self.hub_volumes.lock().expect("nobody panics while they hold the volumes").clone()
    }

    /// A guest that is about to be made will take this much; what it was promised before is forgotten.
    pub(in crate::engine) fn promise(&self, vmid: VmId, sizes: BTreeMap<String, Bytes>) {
        self.lock_promises().insert(vmid, StoragePromise { sizes, kept: None });
    }

    /// Its making has ended: whoever asks from now on what is free is told without what it took.
    pub(in crate::engine) fn keep_promise(&self, vmid: VmId) {
        if let Some(promise) = self.lock_promises().get_mut(&vmid) {
            promise.kept = Some(Instant::now());
        }
    }

    /// What is promised to other guests, by storage, and cannot be in what was asked for then.
    pub(in crate::engine) fn promised_but(
        &self,
        vmid: VmId,
        asked: Instant,
    ) -> BTreeMap<String, Bytes> {
        let mut sums: BTreeMap<String, Bytes> = BTreeMap::new();
        let mut promises = self.lock_promises();
        promises.retain(|_, promise| promise.kept.is_none_or(|kept| kept >= asked));
        let others = promises.iter().filter(|(of, _)| **of != vmid);
        for (storage, size) in others.flat_map(|(_, promise)| &promise.sizes) {
            let sum = sums.entry(storage.clone()).or_insert(Bytes(0));
            sum.0 = sum.0.saturating_add(size.0);
        }
        sums
    }

    fn lock_promises(&self) -> MutexGuard<'_, BTreeMap<VmId, StoragePromise>> {
        self.promises.lock().expect("nobody panics while they hold the promises")
    }
}
