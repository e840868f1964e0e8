//! What of the limits on a hub's guests is used: by volumes that are there, by acts under way, and by the last day.
//!
//! The planner counts what configurations tell, the lane what the storages list. It judges nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::CreatePolicy;
use crate::actual::{GuestConfig, Snapshot};
use crate::desired::Desired;
use crate::model::id::VmId;
use crate::model::quantity::Bytes;
use crate::operate::operation::{HubMakings, StorageName};

/// What of the limits is used already.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CreateUsage {
    /// What the volumes of guests that the hub declares take on each storage, those in flight included.
    pub bytes: BTreeMap<StorageName, Bytes>,
    /// How many guests were made for the hub in the last 24 hours, by the journal.
    pub made_in_last_day: u64,
}

/// What root lets a hub have made, and what of it is used, as far as somebody looked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CreateContext {
    /// The host's limits; none if agent.toml has no `[policy.create]`.
    pub policy: Option<CreatePolicy>,
    /// What is used of them.
    pub usage: CreateUsage,
}

/// What the volumes of guests take on each storage.
pub type GuestVolumes = BTreeMap<VmId, BTreeMap<StorageName, Bytes>>;

impl CreateUsage {
    /// What is used: of each guest what its volumes take, or what they are promised, whichever is more. So nothing counts
    /// twice that is promised and allocated already.
    pub fn of(volumes: &GuestVolumes, promised: &GuestVolumes, made_in_last_day: u64) -> Self {
        let mut usage = Self { bytes: BTreeMap::new(), made_in_last_day };
        for sizes in larger(volumes, promised).values() {
            usage.take(sizes);
        }
        usage
    }

    /// So much more is used.
    pub fn take(&mut self, sizes: &BTreeMap<StorageName, Bytes>) {
        for (storage, size) in sizes {
            let sum = self.bytes.entry(storage.clone()).or_insert(Bytes(0));
            sum.0 = sum.0.saturating_add(size.0);
        }
    }
}

/// Of each guest and storage the larger of two sizes.
pub fn larger(one: &GuestVolumes, other: &GuestVolumes) -> GuestVolumes {
    let mut most = one.clone();
    for (guest, sizes) in other {
        let of_guest = most.entry(*guest).or_default();
        for (storage, size) in sizes {
            let known = of_guest.entry(storage.clone()).or_insert(Bytes(0));
            *known = (*known).max(*size);
        }
    }
    most
}

/// What the volumes of the guests that count for a hub take, by their configurations: guests that it declares, and guests
/// that got room for it before. A detached volume does not say its size there; the lane asks the storages.
pub fn hub_volumes(desired: &Desired, actual: &Snapshot, known: &HubMakings) -> GuestVolumes {
    let declared = desired.guests.values().filter(|guest| guest.by.is_hub());
    let counted: BTreeSet<VmId> =
        declared.map(|guest| guest.id.vmid).chain(known.guests().iter().copied()).collect();
    let of = |vmid: VmId| {
        let config = actual.guests.get(&vmid).and_then(|guest| guest.config.as_deref().ok());
        (vmid, config.map(sizes_in).unwrap_or_default())
    };
    counted.into_iter().map(of).collect()
}

/// What the volumes that a configuration names take, each counted once.
pub fn sizes_in(config: &GuestConfig) -> BTreeMap<StorageName, Bytes> {
    let readings =
        config.fields.iter().flat_map(|field| field.current.iter().chain(field.after_restart()));
    let properties = readings.filter_map(|reading| reading.value.as_property());
    let volumes: BTreeMap<String, Bytes> = properties
        .filter_map(|property| Some((property.data_volume()?.volid()?, property.size()?)))
        .collect();
    let mut sizes = BTreeMap::new();
    for (volume, size) in volumes {
        let storage = volume.split_once(':').and_then(|(storage, _)| storage.parse().ok());
        if let Some(storage) = storage {
            let sum = sizes.entry(storage).or_insert(Bytes(0));
            sum.0 = sum.0.saturating_add(size.0);
        }
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volumes(guests: &[(u32, u64)]) -> GuestVolumes {
        let tank: StorageName = "tank".parse().unwrap();
        let of = |(vmid, bytes): &(u32, u64)| {
            (VmId::try_from(*vmid).unwrap(), [(tank.clone(), Bytes(*bytes))].into())
        };
        guests.iter().map(of).collect()
    }

    #[test]
    fn what_is_promised_counts_once_whether_it_is_there_or_not() {
        for (listed, promised, used) in [
            (&[(1000, 8)][..], &[][..], 8),
            (&[(1000, 8), (1001, 4)][..], &[][..], 12),
            (&[][..], &[(1000, 8)][..], 8),
            (&[(1000, 8)][..], &[(1000, 8)][..], 8),
            (&[(1000, 8)][..], &[(1000, 20)][..], 20),
            (&[(1000, 8)][..], &[(1001, 20)][..], 28),
        ] {
            let usage = CreateUsage::of(&volumes(listed), &volumes(promised), 0);
            let sum = usage.bytes.values().next().map_or(0, |bytes| bytes.0);
            assert_eq!(sum, used, "{listed:?} {promised:?}");
        }
    }
}
