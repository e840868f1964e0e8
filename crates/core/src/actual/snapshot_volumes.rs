//! The volumes that a guest's snapshots name.
//!
//! A snapshot has a section of its own in the guest's file, and no view of the guest's configuration shows it. It is read
//! where somebody would otherwise call a volume nobody's. It must never leave one out: whatever looks like a volume in a
//! section counts as named, whichever key it stands in.

use std::collections::BTreeMap;

/// Volumes by name, each with a snapshot that names it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SnapshotVolumes(BTreeMap<String, String>);

impl SnapshotVolumes {
    /// A guest without snapshots, or one of which nobody asked.
    pub const fn none() -> Self {
        Self(BTreeMap::new())
    }

    /// Takes in the section of one snapshot: disks, mount points, detached volumes and saved memory.
    pub fn add<'t>(
        &mut self,
        snapshot: &str,
        section: impl IntoIterator<Item = (&'t str, &'t str)>,
    ) {
        let texts = section.into_iter().filter(|(key, _)| *key != "description");
        for piece in texts.flat_map(|(_, text)| text.split(',')) {
            let value = piece.split_once('=').map_or(piece, |(_, value)| value);
            if value.contains(':') {
                self.0.entry(value.to_owned()).or_insert_with(|| snapshot.to_owned());
            }
        }
    }

    /// A snapshot that names this volume.
    pub fn snapshot_of(&self, volume: &str) -> Option<&str> {
        self.0.get(volume).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn y08_every_volume_of_a_section_is_named_whatever_its_key() {
        let mut named = SnapshotVolumes::none();
        named.add(
            "before",
            [
                ("scsi0", "tank:vm-101-disk-0,size=8G"),
                ("mp0", "volume=tank:subvol-101-disk-1,mp=/data"),
                ("unused0", "tank:vm-101-disk-2"),
                ("vmstate", "tank:vm-101-state-before"),
                ("new-key", "file=tank:vm-101-disk-3"),
                ("description", "tank:vm-101-disk-9"),
            ],
        );
        for volume in ["vm-101-disk-0", "subvol-101-disk-1", "vm-101-disk-2", "vm-101-disk-3"] {
            assert_eq!(named.snapshot_of(&format!("tank:{volume}")), Some("before"), "{volume}");
        }
        assert_eq!(named.snapshot_of("tank:vm-101-state-before"), Some("before"));
        assert_eq!(named.snapshot_of("tank:vm-101-disk-9"), None, "a text names nothing");
    }
}
