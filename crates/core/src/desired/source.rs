//! What a guest is made from, and what is used once while it is made.
//!
//! It counts only while the guest is not there: changing it later changes nothing, and nothing is ever replaced.

use crate::id::VmId;
use crate::operation::{StorageName, VolumeId};
use crate::pve_call::SnapshotName;
use crate::registry::KeyRef;

/// What a new guest is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuestSource {
    /// Nothing: a machine with empty disks.
    Empty,
    /// A container template, such as `local:vztmpl/debian-12-standard_12.7-1_amd64.tar.zst`.
    Template(VolumeId),
    /// A disk image that becomes the volume of one slot of a machine.
    Image {
        /// The image, such as `local:import/debian-12-genericcloud-amd64.qcow2`.
        volume: VolumeId,
        /// The slot.
        into: KeyRef,
    },
    /// Another guest.
    Clone(CloneSource),
    /// A backup.
    Backup {
        /// The archive.
        volume: VolumeId,
        /// New MAC addresses and identities instead of the old guest's.
        unique: bool,
    },
}

/// A guest to be copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloneSource {
    /// Which.
    pub guest: VmId,
    /// True for a copy of its own, false for one that stands on a template.
    pub full: bool,
    /// Where a full copy goes; where the source's volumes are if nothing is said.
    pub storage: Option<StorageName>,
    /// The snapshot to copy; otherwise the present state.
    pub snapshot: Option<SnapshotName>,
}

/// What a new container gets once, when it is made: never compared, never journalled, never shown.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct FirstUse {
    /// Public keys of its root user.
    pub ssh_keys: Vec<String>,
    /// The name, in root's secrets directory, of the password of its root user.
    pub password: Option<String>,
}

impl std::fmt::Debug for FirstUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FirstUse").finish_non_exhaustive()
    }
}
