//! Storages and their volumes: naming, allocation, freeing, lookup.
//!
//! Called by handlers and tasks that touch disks. It must never forget a volume silently: whatever
//! disappears was freed by name.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_core::model::id::{GuestId, GuestKind, VmId};
use serde::{Deserialize, Serialize};

use crate::config::Config;

/// The kinds of storage that differ in naming and abilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StorageKind {
    /// A directory: files below the guest's number, no snapshots of raw files.
    Dir,
    /// A directory on btrfs: named as in a directory, and raw files can be snapshotted.
    Btrfs,
    /// LVM thin volumes.
    LvmThin,
    /// ZFS datasets.
    ZfsPool,
}

impl StorageKind {
    /// The word PVE uses as type.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Dir => "dir",
            Self::Btrfs => "btrfs",
            Self::LvmThin => "lvmthin",
            Self::ZfsPool => "zfspool",
        }
    }

    /// Whether its volumes are files in a directory per guest.
    pub(crate) fn keeps_files(self) -> bool {
        match self {
            Self::Dir | Self::Btrfs => true,
            Self::LvmThin | Self::ZfsPool => false,
        }
    }

    /// The word for it in the text that refuses a volume's name.
    pub(crate) fn name_word(self) -> &'static str {
        match self {
            Self::Dir | Self::Btrfs => "directory",
            Self::LvmThin => "lvm",
            Self::ZfsPool => "zfs",
        }
    }
}

/// One storage.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Storage {
    /// What it is.
    pub kind: StorageKind,
    /// What may be kept there: `images`, `rootdir`, `vztmpl`, `backup`, `iso`, `import`, `snippets`.
    pub content: BTreeSet<String>,
    /// The directory, where there is one.
    pub path: String,
    /// Size in bytes.
    pub total_bytes: u64,
    /// How many backups of a guest survive the pruning after a backup; `None` keeps all.
    #[serde(default)]
    pub keep_last: Option<usize>,
    /// How many backups of a guest may be protected; `None` is no limit.
    #[serde(default)]
    pub max_protected: Option<usize>,
    /// Whether its lists tell `approximate-size` in place of `size`.
    #[serde(default)]
    pub hides_sizes: bool,
    /// Volumes by the part of their id after the colon.
    pub volumes: BTreeMap<String, Volume>,
    /// How many volumes there ever were.
    #[serde(default)]
    births: u64,
}

/// One volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Its size in bytes.
    pub size_bytes: u64,
    /// `raw`, `qcow2`, `subvol`, `tgz`, `iso`.
    pub format: String,
    /// The content type it is listed under.
    pub content: String,
    /// The guest it belongs to.
    pub vmid: Option<VmId>,
    /// Unix seconds of its creation.
    pub ctime: u64,
    /// The base volume of a linked clone, without the storage.
    pub parent: Option<String>,
    /// Whether it refuses removal.
    pub protected: bool,
    /// The operator's notes on a backup.
    pub notes: Option<String>,
    /// Which data it holds: no other volume of its storage ever has the same number, whatever its name. A move takes
    /// it along, a copy gets its own. No request shows it.
    #[serde(default)]
    pub birth: u64,
    /// Whose data it was filled with; `None` for a volume that began empty. No request shows it.
    #[serde(default)]
    pub origin: Option<DataOrigin>,
    /// What a backup holds.
    #[serde(default)]
    pub archive: Option<Box<StoredArchive>>,
}

/// Where the data of a volume was read from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataOrigin {
    /// The volume, image or archive that was read.
    pub volid: String,
    /// The number of the guest whose data that was, if it was a guest's.
    pub vmid: Option<VmId>,
    /// That guest's birth mark.
    pub guest_birth: Option<u64>,
}

/// What a backup holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredArchive {
    /// The guest that was saved.
    pub guest: GuestId,
    /// Its birth mark.
    pub guest_birth: u64,
    /// Its file, as `extractconfig` shows it.
    pub config: Config,
    /// Whether the end of the archive is missing: it looks well until somebody restores it.
    #[serde(default)]
    pub truncated: bool,
    /// The files of a container that it holds, by path. No request shows them.
    #[serde(default)]
    pub files: BTreeSet<String>,
}

impl Storage {
    /// An empty storage.
    pub fn new(kind: StorageKind, content: &str, path: &str) -> Self {
        Self {
            kind,
            content: content.split(',').map(str::to_owned).collect(),
            path: path.to_owned(),
            total_bytes: 270_553_174_016,
            keep_last: None,
            max_protected: None,
            hides_sizes: false,
            volumes: BTreeMap::new(),
            births: 0,
        }
    }

    /// Puts a file there that no guest owns, such as a template or an image.
    pub fn put_file(&mut self, name: &str, content: &str, format: &str, size_bytes: u64) {
        let birth = self.next_birth();
        self.volumes.insert(
            name.to_owned(),
            Volume {
                birth,
                size_bytes,
                format: format.to_owned(),
                content: content.to_owned(),
                vmid: None,
                ctime: 0,
                parent: None,
                protected: false,
                notes: None,
                origin: None,
                archive: None,
            },
        );
    }

    pub(crate) fn next_birth(&mut self) -> u64 {
        self.births += 1;
        self.births
    }

    /// How much its volumes take.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.volumes.values().map(|volume| volume.size_bytes).sum()
    }

    /// Whether a volume of this format can be snapshotted here.
    pub(crate) fn can_snapshot(&self, format: &str) -> bool {
        match self.kind {
            StorageKind::Dir => format == "qcow2",
            StorageKind::Btrfs | StorageKind::LvmThin | StorageKind::ZfsPool => true,
        }
    }

    /// Whether a linked clone can be made of a volume. Containers cannot run from the formats a directory could link.
    pub(crate) fn can_link(&self, guest: GuestKind, name: &str, format: &str) -> bool {
        let base = stored_name(name).contains("base-") || stored_name(name).contains("basevol-");
        match (self.kind, guest) {
            (StorageKind::Dir, GuestKind::Lxc) => false,
            (StorageKind::Dir, GuestKind::Qemu) => {
                base && matches!(format, "qcow2" | "raw" | "vmdk")
            }
            (StorageKind::Btrfs | StorageKind::LvmThin | StorageKind::ZfsPool, _) => base,
        }
    }

    /// The format a new disk gets here: directories keep what was asked for, a container without a size is a
    /// directory of its own.
    fn format_of(&self, guest: GuestKind, size_bytes: u64, wanted: Option<&str>) -> String {
        let subvolume = guest == GuestKind::Lxc && size_bytes == 0;
        match self.kind {
            StorageKind::Dir | StorageKind::Btrfs if subvolume => "subvol",
            StorageKind::Dir => wanted.filter(|format| FORMATS.contains(format)).unwrap_or("raw"),
            StorageKind::ZfsPool if guest == GuestKind::Lxc => "subvol",
            StorageKind::Btrfs | StorageKind::LvmThin | StorageKind::ZfsPool => "raw",
        }
        .to_owned()
    }

    /// Allocates a disk under the first free number and gives its name.
    pub(crate) fn allocate(
        &mut self,
        guest: GuestKind,
        vmid: VmId,
        size_bytes: u64,
        format: Option<&str>,
        now_s: u64,
    ) -> Result<String, String> {
        let format = self.format_of(guest, size_bytes, format);
        let name = self.free_name(vmid, &format);
        if self.kind == StorageKind::Dir && format == "raw" && size_bytes > LARGEST_RAW_BYTES {
            return Err(format!(
                "unable to create image: qemu-img: {}/images/{name}: The image size is too large for file format 'raw'",
                self.path
            ));
        }
        self.insert(&name, guest, vmid, size_bytes, &format, now_s);
        Ok(name)
    }

    /// Gives a volume to another guest, under that guest's first free number.
    pub(crate) fn hand_over(&mut self, name: &str, to: VmId) -> String {
        let Some(mut volume) = self.volumes.remove(name) else { return name.to_owned() };
        let new = self.free_name(to, &volume.format);
        volume.vmid = Some(to);
        self.volumes.insert(new.clone(), volume);
        new
    }

    /// Allocates under a given name, as for cloud-init drives and restored state.
    pub(crate) fn insert(
        &mut self,
        name: &str,
        guest: GuestKind,
        vmid: VmId,
        size_bytes: u64,
        format: &str,
        now_s: u64,
    ) {
        let content = match guest {
            GuestKind::Lxc => "rootdir",
            GuestKind::Qemu => "images",
        };
        self.put_file(name, content, format, size_bytes);
        if let Some(volume) = self.volumes.get_mut(name) {
            volume.vmid = Some(vmid);
            volume.ctime = now_s;
        }
    }

    /// `100/vm-100-disk-0.raw` in directories, `vm-100-disk-0` elsewhere; the number is the first free.
    fn free_name(&self, vmid: VmId, format: &str) -> String {
        let prefix = if format == "subvol" { "subvol" } else { "vm" };
        // Looked up by name, because a storage may hold tens of thousands of volumes.
        let taken = |number: u32| {
            ["vm", "base", "subvol", "basevol"].iter().any(|prefix| {
                let stem = format!("{prefix}-{vmid}-disk-{number}");
                self.volumes.contains_key(&stem)
                    || FORMATS
                        .iter()
                        .any(|format| self.volumes.contains_key(&format!("{vmid}/{stem}.{format}")))
            })
        };
        let number = (0..u32::MAX).find(|number| !taken(*number)).unwrap_or(u32::MAX);
        if self.kind.keeps_files() {
            format!("{vmid}/{prefix}-{vmid}-disk-{number}.{format}")
        } else {
            format!("{prefix}-{vmid}-disk-{number}")
        }
    }

    /// Renames a disk into a base image for linked clones.
    pub(crate) fn make_base(&mut self, name: &str) -> String {
        let base = name.replacen("/vm-", "/base-", 1).replacen("/subvol-", "/basevol-", 1);
        let base = match base.strip_prefix("vm-") {
            Some(rest) => format!("base-{rest}"),
            None => {
                base.strip_prefix("subvol-").map_or(base.clone(), |rest| format!("basevol-{rest}"))
            }
        };
        if let Some(volume) = self.volumes.remove(name) {
            self.volumes.insert(base.clone(), volume);
        }
        base
    }
}

/// ext4 keeps no larger file, and QEMU makes no image it cannot keep.
const LARGEST_RAW_BYTES: u64 = 16 << 40;

/// The file formats of disks in directories.
const FORMATS: [&str; 4] = ["raw", "qcow2", "vmdk", "subvol"];

/// Splits `STORAGE:name`.
pub(crate) fn split_volid(volid: &str) -> Option<(&str, &str)> {
    volid.split_once(':')
}

/// The name under which the storage keeps a volume: a linked clone's id carries its base in front.
pub(crate) fn stored_name(name: &str) -> &str {
    let Some(at) = name.find("base") else { return name };
    let is_base = name[..at].is_empty() || name[..at].ends_with('/');
    match name[at..].find('/') {
        Some(slash) if is_base => &name[at + slash + 1..],
        Some(_) | None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_take_the_first_free_number() {
        let vmid = VmId::try_from(100).unwrap();
        let mut store = Storage::new(StorageKind::Dir, "images,rootdir", "/mnt/store");
        let first = store.allocate(GuestKind::Lxc, vmid, 1, None, 0).unwrap();
        let second = store.allocate(GuestKind::Lxc, vmid, 1, Some("qcow2"), 0).unwrap();
        assert_eq!(
            (first.as_str(), second.as_str()),
            ("100/vm-100-disk-0.raw", "100/vm-100-disk-1.qcow2")
        );
        store.volumes.remove(&first);
        assert_eq!(store.allocate(GuestKind::Lxc, vmid, 1, None, 0).unwrap(), first);
        let mut tank = Storage::new(StorageKind::ZfsPool, "rootdir", "");
        assert_eq!(tank.allocate(GuestKind::Lxc, vmid, 1, None, 0).unwrap(), "subvol-100-disk-0");
        assert_eq!(
            store.allocate(GuestKind::Lxc, vmid, 0, None, 0).unwrap(),
            "100/subvol-100-disk-2.subvol"
        );
    }

    #[test]
    fn a_linked_clone_is_stored_under_its_own_name() {
        assert_eq!(
            stored_name("303/base-303-disk-0.qcow2/304/vm-304-disk-0.qcow2"),
            "304/vm-304-disk-0.qcow2"
        );
        assert_eq!(stored_name("303/base-303-disk-0.qcow2"), "303/base-303-disk-0.qcow2");
        assert_eq!(stored_name("base-1-disk-0/vm-2-disk-0"), "vm-2-disk-0");
        assert_eq!(stored_name("100/vm-100-disk-0.raw"), "100/vm-100-disk-0.raw");
    }
}
