//! What a guest is made from, and what is used once while it is made.
//!
//! It counts only while the guest is not there: changing it later changes nothing, and nothing is ever replaced.

use std::fmt;

use crate::model::id::VmId;
use crate::operate::operation::{StorageName, VolumeId};
use crate::operate::pve_call::SnapshotName;
use crate::registry::KeyRef;
use crate::value::VolumeRef;

/// The families of disks that an image can become: firmware and TPM state are made by PVE, never read in.
pub(super) const IMAGE_SLOTS: &[&str] = &["ide", "sata", "scsi", "virtio"];

/// How many SSH keys a new container gets at most: everybody who sets it up, and far from what PVE's form takes.
pub(super) const SSH_KEYS_MAX: usize = 64;

/// The longest name of a secret, which is a file name.
pub const SECRET_NAME_MAX: usize = 64;

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

impl GuestSource {
    /// Whether what is made from it has the users, keys and passwords of another guest.
    pub fn brings_users(&self) -> bool {
        match self {
            Self::Clone(_) | Self::Backup { .. } => true,
            Self::Empty | Self::Template(_) | Self::Image { .. } => false,
        }
    }
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

impl fmt::Debug for FirstUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FirstUse").finish_non_exhaustive()
    }
}

/// What a volume holds, as far as its name tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeContent {
    /// A container template.
    Template,
    /// A disk image to read in, which nobody owns.
    Import,
    /// A backup.
    Backup,
    /// An image of a CD.
    Iso,
    /// The disk of a guest.
    GuestDisk(VmId),
    /// Something else.
    Other,
}

impl VolumeContent {
    /// What a volume holds, by the names PVE's storages give.
    pub fn of(volume: &VolumeId) -> Self {
        let Some((storage, name)) = volume.as_str().split_once(':') else {
            return Self::Other;
        };
        let named = |folder: &str| {
            name.strip_prefix(folder).is_some_and(|rest| rest.len() > 1 && rest.starts_with('/'))
        };
        let contents = [
            ("vztmpl", Self::Template),
            ("import", Self::Import),
            ("backup", Self::Backup),
            ("iso", Self::Iso),
        ];
        if let Some((_, content)) = contents.into_iter().find(|(folder, _)| named(folder)) {
            return content;
        }
        let volume = VolumeRef::Existing { storage: storage.into(), name: name.into() };
        let owner = volume.owner().and_then(|owner| owner.parse().ok());
        owner.map_or(Self::Other, Self::GuestDisk)
    }

    /// The number of the guest that a backup was made of, as its name tells: `vzdump-lxc-101-…`, or `ct/101/…` on a
    /// backup server. None of a name that somebody gave it.
    pub fn saved_guest(volume: &VolumeId) -> Option<VmId> {
        let (_, name) = volume.as_str().split_once(":backup/")?;
        let number = match name.split_once('/') {
            Some(("ct" | "vm", rest)) => rest.split_once('/')?.0,
            Some(_) => return None,
            None => {
                let kinds = ["vzdump-lxc-", "vzdump-qemu-"];
                kinds.iter().find_map(|kind| name.strip_prefix(kind))?.split_once('-')?.0
            }
        };
        number.parse().ok()
    }

    /// A volume of this content, as an example.
    pub(super) fn example(self) -> &'static str {
        match self {
            Self::Template => "local:vztmpl/debian-12-standard_12.7-1_amd64.tar.zst",
            Self::Import => "local:import/debian-12-genericcloud-amd64.qcow2",
            Self::Backup => "store:backup/vzdump-lxc-101-2026_11_01-02_00_00.tar.zst",
            Self::Iso => "local:iso/debian-12.iso",
            Self::GuestDisk(_) | Self::Other => "local-lvm:vm-101-disk-0",
        }
    }

    /// The word of `source` that takes it.
    pub(super) fn source_word(self) -> &'static str {
        match self {
            Self::Template => "template",
            Self::Import => "image",
            Self::Backup => "backup",
            Self::Iso | Self::GuestDisk(_) | Self::Other => "clone",
        }
    }
}

impl fmt::Display for VolumeContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Template => f.write_str("a container template"),
            Self::Import => f.write_str("an image of content import"),
            Self::Backup => f.write_str("a backup"),
            Self::Iso => f.write_str("an ISO image"),
            Self::GuestDisk(owner) => write!(f, "a disk of guest {owner}"),
            Self::Other => f.write_str("something else"),
        }
    }
}

/// The kinds of public key that OpenSSH makes today; DSA is refused by every server.
pub(super) const PUBLIC_KEY_TYPES: &[&str] = &[
    "ssh-ed25519",
    "ssh-rsa",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
];

/// Whether a text is one line of a `.pub` file: its type, the key, perhaps a comment.
pub(super) fn is_public_key(text: &str) -> bool {
    let mut words = text.splitn(3, ' ');
    let kind = words.next();
    let key = words.next();
    let comment = words.next();
    let is_base64 = |key: &str| {
        let body = key.trim_end_matches('=');
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"+/".contains(&byte);
        !body.is_empty() && key.len() - body.len() <= 2 && body.bytes().all(is_letter)
    };
    kind.is_some_and(|kind| PUBLIC_KEY_TYPES.contains(&kind))
        && key.is_some_and(is_base64)
        && !comment.is_some_and(|comment| comment.contains(char::is_control))
}

/// Whether a text can name a secret of this host: a file name that leaves no directory.
pub fn is_stored_secret(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=SECRET_NAME_MAX).contains(&name.len())
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.bytes().all(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn y12_the_name_of_a_backup_tells_whose_it_is() {
        for (volume, number) in [
            ("store:backup/vzdump-lxc-101-2026_11_01-02_00_00.tar.zst", Some(101)),
            ("store:backup/vzdump-qemu-9000-2026_11_01-02_00_00.vma.zst", Some(9000)),
            ("pbs:backup/ct/101/2026-11-01T02:00:00Z", Some(101)),
            ("pbs:backup/vm/9000/2026-11-01T02:00:00Z", Some(9000)),
            ("pbs:backup/host/101/2026-11-01T02:00:00Z", None),
            ("store:backup/vzdump-lxc-mine.tar.zst", None),
            ("store:backup/vzdump-lxc-101.tar.zst", None),
            ("store:backup/x.tar.zst", None),
            ("store:101/vm-101-disk-0.raw", None),
        ] {
            let owner = VolumeContent::saved_guest(&volume.parse().unwrap());
            assert_eq!(owner.map(VmId::get), number, "{volume}");
        }
    }
}
