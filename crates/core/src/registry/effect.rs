//! When a change reaches the guest: at once, or after its next restart.
//!
//! Derived from the registry for a running guest; a stopped one takes everything at once. The planner
//! shows it beside each change, so it must be true, not hopeful.

use std::fmt;

use crate::actual::{Guest, GuestConfig, Power};
use crate::model::release::Release;
use crate::registry::{Applies, HotplugFeature, KeyRef};
use crate::value::{Property, Value, VolumeRef};

/// When a change reaches the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    /// At once.
    Live,
    /// After its next restart.
    AfterRestart,
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Live => "live",
            Self::AfterRestart => "after restart",
        })
    }
}

/// When a change of one key reaches a guest. `none` stands for an absent key.
pub fn when(
    key: KeyRef,
    from: Option<&Value>,
    to: Option<&Value>,
    guest: &Guest,
    release: Release,
) -> When {
    let config = match (&guest.config, guest.power) {
        (_, Power::Stopped) | (Err(_), _) => return When::Live,
        // A guest that may be running is taken for one: a promise of "live" would be hope.
        (Ok(config), Power::Running | Power::Paused | Power::Unknown) => config,
    };
    let live_if = |live: bool| if live { When::Live } else { When::AfterRestart };
    match key.key().applies {
        Applies::Live => When::Live,
        Applies::AtNextStart | Applies::AfterRestart => When::AfterRestart,
        Applies::LiveSince8 => live_if(release >= Release::V8_0),
        Applies::LxcNetwork => live_if(match (from, to) {
            // Only the first ten interfaces can be unplugged from a running container.
            (_, None) => key.slot() < 10,
            (from, Some(to)) => !changes_parts(from, to, &["mtu", "trunks"]),
        }),
        Applies::LxcMount => live_if(from.is_none() && to.is_some()),
        Applies::LxcDevice => live_if(from.is_none() && to.is_some() && release >= Release::V9_0),
        Applies::Hotplug(feature) => live_if(feature.is_on(config) && hotplugs(feature, from, to)),
        Applies::HotplugDrive => live_if(drive_is_live(key, config, from, to)),
        Applies::HotplugSet => live_if(![from, to].into_iter().flatten().any(names_cpu_or_memory)),
        Applies::Balloon => live_if(is_inflated(from) && is_inflated(to)),
    }
}

/// Memory and CPUs can be plugged in; taking them out needs the guest's help, and may wait.
fn hotplugs(feature: HotplugFeature, from: Option<&Value>, to: Option<&Value>) -> bool {
    match feature {
        HotplugFeature::Cpu => {
            matches!((from, to), (Some(Value::Integer(a)), Some(Value::Integer(b))) if b > a)
        }
        HotplugFeature::Network
        | HotplugFeature::Usb
        | HotplugFeature::Memory
        | HotplugFeature::CloudInit => true,
    }
}

/// A balloon that exists: absent means a balloon of the full memory, 0 means no device.
fn is_inflated(value: Option<&Value>) -> bool {
    value != Some(&Value::Integer(0))
}

fn names_cpu_or_memory(value: &Value) -> bool {
    matches!(value, Value::Set(set) if set.contains("cpu") || set.contains("memory"))
}

/// Parts of a drive QEMU changes while running.
const LIVE_DRIVE_PARTS: &[&str] = &[
    "backup",
    "bps",
    "bps_max_length",
    "bps_rd",
    "bps_rd_max_length",
    "bps_wr",
    "bps_wr_max_length",
    "iops",
    "iops_max",
    "iops_max_length",
    "iops_rd",
    "iops_rd_max",
    "iops_rd_max_length",
    "iops_wr",
    "iops_wr_max",
    "iops_wr_max_length",
    "mbps",
    "mbps_max",
    "mbps_rd",
    "mbps_rd_max",
    "mbps_wr",
    "mbps_wr_max",
    "replicate",
];

/// Buses whose disks cannot be plugged while the machine runs.
const COLD_BUSES: &[&str] = &["ide", "sata"];

fn drive_is_live(
    key: KeyRef,
    config: &GuestConfig,
    from: Option<&Value>,
    to: Option<&Value>,
) -> bool {
    let property = |value: Option<&Value>| value.and_then(Value::as_property).cloned();
    let plugs = config.can_hotplug("disk") && !COLD_BUSES.contains(&key.key().name);
    match (property(from), property(to)) {
        // The medium of a CD-ROM drive is changed live.
        (Some(from), Some(to)) if from.is_cdrom() && to.is_cdrom() => true,
        (Some(from), Some(to)) if from.is_cdrom() != to.is_cdrom() => false,
        // Another volume is another disk: the old one is unplugged and the new one plugged in.
        (Some(from), Some(to)) if !is_same_volume(&from, &to) => plugs,
        (Some(from), Some(to)) => without(from, LIVE_DRIVE_PARTS) == without(to, LIVE_DRIVE_PARTS),
        (_, _) => plugs,
    }
}

/// A volume declared by its storage is the one that is there.
fn is_same_volume(from: &Property, to: &Property) -> bool {
    match (from.volume(), to.volume()) {
        (Some(have), Some(VolumeRef::Fresh { storage })) => have.storage() == Some(storage),
        (have, want) => have == want,
    }
}

fn without(mut property: Property, parts: &[&str]) -> Property {
    for part in parts.iter().chain(&["file", "size"]) {
        property.remove(part);
    }
    property
}

fn changes_parts(from: Option<&Value>, to: &Value, parts: &[&str]) -> bool {
    let from = from.and_then(Value::as_property);
    let to = to.as_property();
    parts.iter().any(|part| from.and_then(|f| f.get(part)) != to.and_then(|t| t.get(part)))
}
