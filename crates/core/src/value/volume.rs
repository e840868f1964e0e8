//! Where the bytes of a disk are, and whose they are.
//!
//! Read from volume ids alone, by the rules of pve-storage's plugins: the classifier must never take another guest's
//! volume for this guest's own. A name that no plugin gives has no owner, which is the strict answer.

/// Where the bytes of a disk are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeRef {
    /// To be allocated on a storage; its size is the `size` part.
    Fresh {
        /// The storage.
        storage: Box<str>,
    },
    /// One that exists.
    Existing {
        /// The storage.
        storage: Box<str>,
        /// The name on that storage; it may contain slashes.
        name: Box<str>,
    },
    /// The generated cloud-init drive.
    CloudInit {
        /// The storage.
        storage: Box<str>,
    },
    /// A file, directory or device of the host.
    Path(Box<str>),
    /// An empty CD-ROM drive.
    Empty,
    /// The host's own CD-ROM drive.
    HostCdrom,
}

impl VolumeRef {
    /// The storage and the name there of one that exists.
    fn existing(&self) -> Option<(&str, &str)> {
        match self {
            Self::Existing { storage, name } => Some((storage, name)),
            Self::Fresh { .. }
            | Self::CloudInit { .. }
            | Self::Path(_)
            | Self::Empty
            | Self::HostCdrom => None,
        }
    }

    /// Whether the volume is a base image, which only templates have.
    pub fn is_base_image(&self) -> bool {
        let last = self.existing().and_then(|(_, name)| name.rsplit('/').next());
        last.is_some_and(|last| last.starts_with("base-") || last.starts_with("basevol-"))
    }

    /// The name its storage lists it under: `local-lvm:vm-101-disk-0`.
    pub fn volid(&self) -> Option<String> {
        self.existing().map(|(storage, name)| format!("{storage}:{name}"))
    }

    /// The storage it is on, if it is on one.
    pub fn storage(&self) -> Option<&str> {
        match self {
            Self::Fresh { storage }
            | Self::Existing { storage, .. }
            | Self::CloudInit { storage } => Some(storage),
            Self::Path(_) | Self::Empty | Self::HostCdrom => None,
        }
    }

    /// The number of the guest it belongs to, read as pve-storage reads it: on a storage of folders the folder
    /// decides, whatever the file is called; elsewhere the name does. Of a linked clone the part after its
    /// base counts. None for images, and for names that no storage gives.
    pub fn owner(&self) -> Option<&str> {
        let (_, name) = self.existing()?;
        match name.split('/').collect::<Vec<_>>()[..] {
            [name] => guest_in(name, &["vm-", "base-", "subvol-", "basevol-"]),
            [base, name] if guest_in(base, &["base-", "basevol-"]).is_some() => {
                guest_in(name, &["vm-", "base-", "subvol-", "basevol-"])
            }
            [folder, _] => number(folder),
            [base_folder, _, folder, _] => number(base_folder).and(number(folder)),
            _ => None,
        }
    }

    /// The number of the guest whose base image a linked clone stands on, where its storage says so in the name.
    pub fn base_owner(&self) -> Option<&str> {
        let (_, name) = self.existing()?;
        match name.split('/').collect::<Vec<_>>()[..] {
            [base, _] => guest_in(base, &["base-", "basevol-"]),
            [folder, base, owner, _] if number(owner).is_some() => {
                number(folder).filter(|_| base.starts_with("base-"))
            }
            _ => None,
        }
    }

    /// Whether it is an image for CD-ROM drives, which is nobody's data.
    pub fn is_image(&self) -> bool {
        self.existing().is_some_and(|(_, name)| name.starts_with("iso/"))
    }
}

/// The number in `vm-101-disk-0`.
fn guest_in<'n>(name: &'n str, prefixes: &[&str]) -> Option<&'n str> {
    let rest = prefixes.iter().find_map(|prefix| name.strip_prefix(prefix))?;
    let (owner, rest) = rest.split_once('-')?;
    number(owner).filter(|_| !rest.is_empty())
}

fn number(text: &str) -> Option<&str> {
    (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x12_the_owner_of_a_volume_is_read_as_pve_storage_reads_it() {
        for (name, owner) in [
            ("vm-101-disk-0", Some("101")),
            ("subvol-101-disk-0", Some("101")),
            ("base-101-disk-0", Some("101")),
            ("basevol-101-disk-0", Some("101")),
            ("vm-101-disk-0.qcow2", Some("101")),
            ("base-9000-disk-0/vm-101-disk-0", Some("101")),
            ("basevol-9000-disk-0/subvol-101-disk-0", Some("101")),
            ("103/vm-101-disk-9.raw", Some("103")),
            ("103/any.raw", Some("103")),
            ("9000/base-9000-disk-0.raw/101/vm-101-disk-0.qcow2", Some("101")),
            ("9000/base-9000-disk-0.raw/103/vm-101-disk-0.qcow2", Some("103")),
            ("vm-103-x/vm-101-disk-0", None),
            ("base-103-x/any", None),
            ("101/deep/vm-101-disk-0.raw", None),
            ("a/b/101/c", None),
            ("iso/x.iso", None),
            ("0.0.0.scsi-3600", None),
            ("vm--disk-0", None),
            ("vm-101", None),
            ("vm-101-", None),
            ("", None),
        ] {
            let volume = VolumeRef::Existing { storage: "store".into(), name: name.into() };
            assert_eq!(volume.owner(), owner, "{name}");
        }
    }
}
