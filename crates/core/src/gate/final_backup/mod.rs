//! The backup before a destroy: what it leaves out, whether its storage takes one more, and whether an archive is it.
//!
//! Asked when an item is raised, in the lane before anything is sent, once the backup has ended and once more directly
//! before the act. It decides over what was read; what could not be read is never taken for a backup that is there.

mod excluded;
mod limits;

use std::collections::{BTreeMap, BTreeSet};

use crate::actual::{ConfigEntry, Guest, GuestConfig, PRESENT, SnapshotPoint};
use crate::gate::classify::data_slots;
use crate::model::id::{GuestId, GuestKind, OperationId};
use crate::model::reason::{ReasonCode, Refusal};
use crate::operate::operation::{StorageName, VolumeId};

pub use excluded::ExcludedPaths;
pub(crate) use excluded::is_exclusion;
pub use limits::{BackupLimits, ProtectedLimit};

/// The parameter of a destroy that names the storage of its final backup; empty if there is none.
pub const STORAGE: &str = "final_backup";

/// The parameter that lists what that backup leaves out.
pub const NOT_IN_BACKUP: &str = "not_in_backup";

/// What is read of a guest beside its configuration: a backup of it holds none of this.
#[derive(Debug, Clone, Default)]
pub struct BackupContext {
    /// Its snapshots.
    pub snapshots: Vec<SnapshotPoint>,
    /// What its node leaves out of every container's backup.
    pub excluded: ExcludedPaths,
}

/// A backup that is made before a guest is destroyed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinalBackup {
    /// Where it goes.
    pub storage: StorageName,
    /// What is lost all the same, because no backup holds it.
    pub not_in_backup: BTreeSet<String>,
}

impl FinalBackup {
    /// The one that these parameters of a destroy name.
    pub fn signed(params: &BTreeMap<String, String>) -> Result<Option<Self>, Refusal> {
        let text = |name: &str| params.get(name).map_or("", String::as_str);
        let not_in_backup =
            text(NOT_IN_BACKUP).split(',').filter(|part| !part.is_empty()).map(str::to_owned);
        match text(STORAGE) {
            "" => Ok(None),
            storage => {
                let none =
                    |_| Refusal::new(ReasonCode::Payload, format!("`{storage}` is not a storage"));
                let storage = storage.parse().map_err(none)?;
                Ok(Some(Self { storage, not_in_backup: not_in_backup.collect() }))
            }
        }
    }

    /// Both parameters, as a statement spells them out.
    pub fn params(backup: Option<&Self>) -> [(&'static str, String); 2] {
        let left_out = |backup: &Self| {
            backup.not_in_backup.iter().map(String::as_str).collect::<Vec<_>>().join(",")
        };
        [
            (STORAGE, backup.map(|backup| backup.storage.to_string()).unwrap_or_default()),
            (NOT_IN_BACKUP, backup.map(left_out).unwrap_or_default()),
        ]
    }

    /// Whether it leaves out of this guest what was signed for, no more and no less.
    pub fn check(&self, fresh: &Guest, around: &BackupContext) -> Result<(), Refusal> {
        let now = left_out(fresh, around);
        if now == self.not_in_backup {
            return Ok(());
        }
        let change = |set: &BTreeSet<String>, other: &BTreeSet<String>| {
            set.difference(other).cloned().collect::<Vec<_>>().join(", ")
        };
        let more = change(&now, &self.not_in_backup);
        let less = change(&self.not_in_backup, &now);
        let why = match (more.as_str(), less.as_str()) {
            (more, "") => format!("the final backup would now leave out {more} as well"),
            ("", less) => format!("the final backup would no longer leave out {less}"),
            (more, less) => {
                format!("the final backup would now leave out {more} instead of {less}")
            }
        };
        let why = format!("{why}, and that was not signed; sign the new item");
        Err(Refusal::new(ReasonCode::Stale, why))
    }
}

/// Whether what was signed to be left out was listed by an older version, which did not know all that a backup of a
/// container leaves out.
pub fn is_listed_in_old_form(kind: GuestKind, params: &BTreeMap<String, String>) -> bool {
    let signed = FinalBackup::signed(params).ok().flatten();
    match kind {
        GuestKind::Lxc => {
            signed.is_some_and(|signed| !excluded::names_never_saved(&signed.not_in_backup))
        }
        GuestKind::Qemu => false,
    }
}

/// What no backup of the guest holds although it is lost with it: volumes that are left out where they are, detached
/// ones, snapshots, and of a container the paths that are never saved. A key nobody knows may name a volume.
pub fn left_out(guest: &Guest, around: &BackupContext) -> BTreeSet<String> {
    let mut left: BTreeSet<String> = around
        .snapshots
        .iter()
        .filter(|point| point.name != PRESENT)
        .map(|point| format!("snapshot={}", point.name))
        .collect();
    match guest.id.kind {
        GuestKind::Lxc => left.extend(around.excluded.entries()),
        // vzdump saves a machine's drives block by block, whatever files they hold.
        GuestKind::Qemu => {}
    }
    let Ok(config) = &guest.config else {
        return left;
    };
    left.extend(
        data_slots(config)
            .filter(|slot| !slot.saved)
            .map(|slot| format!("{}={}", slot.key, slot.volume)),
    );
    left.extend(config.unknown.iter().map(|key| format!("{key}=unknown")));
    left
}

/// The slots whose volume must be in a backup of the guest.
pub fn must_hold(config: &GuestConfig) -> BTreeMap<String, String> {
    let saved = data_slots(config).filter(|slot| slot.saved);
    saved.map(|slot| (slot.key.to_string(), slot.volume)).collect()
}

/// How an operation marks its archive: nobody else's has this in its notes.
pub fn note_of(op: OperationId, guest: GuestId) -> String {
    format!("evenkeel {op} {guest}")
}

/// A backup as its storage lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Archive {
    /// Its volume.
    pub volume: VolumeId,
    /// Its size, by the list: asked for alone, a volume is told another.
    pub size_bytes: Option<u64>,
    /// The first line of its notes.
    pub notes: String,
    /// Whether it refuses removal.
    pub protected: bool,
}

/// The archive an operation made: the only one with its mark, and not empty.
pub fn find_archive(
    listed: &[Archive],
    op: OperationId,
    guest: GuestId,
) -> Result<&Archive, Refusal> {
    let no = |why: String| Err(Refusal::new(ReasonCode::Storage, why));
    let mark = note_of(op, guest);
    let mut marked = listed.iter().filter(|archive| archive.notes == mark);
    match (marked.next(), marked.next()) {
        (None, _) => no("its storage lists no backup of this operation".to_owned()),
        (Some(_), Some(_)) => no("its storage lists several backups of this operation".to_owned()),
        (Some(archive), None) => match archive.size_bytes {
            Some(1..) => Ok(archive),
            Some(0) => no(format!("the backup {} is empty", archive.volume)),
            None => {
                no(format!("its storage does not tell the size of the backup {}", archive.volume))
            }
        },
    }
}

/// Whether the configuration inside an archive names every volume it must hold, in its slot and saved there. A
/// machine's archive also maps the drives that were written to it.
pub fn holds_all(
    kind: GuestKind,
    extracted: &str,
    must_hold: &BTreeMap<String, String>,
) -> Result<(), Refusal> {
    let held = self::must_hold(&saved_config(kind, extracted));
    let mapped: BTreeSet<&str> = own_lines(extracted)
        .filter_map(|line| line.strip_prefix("#qmdump#map:")?.split(':').next())
        .collect();
    for (slot, volume) in must_hold {
        let written = match kind {
            GuestKind::Lxc => true,
            GuestKind::Qemu => mapped.contains(slot.as_str()),
        };
        if held.get(slot) != Some(volume) || !written {
            let why = format!("{slot} ({volume}) is not in the backup");
            return Err(Refusal::new(ReasonCode::Storage, why));
        }
    }
    Ok(())
}

/// The configuration inside an archive, from the text that `extractconfig` gives.
pub fn saved_config(kind: GuestKind, extracted: &str) -> GuestConfig {
    let entry = |line: &str| {
        let (key, value) = line.split_once(':').filter(|_| !line.starts_with('#'))?;
        let key = key.trim().to_owned();
        let value = Some(value.trim().to_owned());
        Some(ConfigEntry { key, value, pending: None, delete: 0 })
    };
    GuestConfig::from_pending(kind, own_lines(extracted).filter_map(entry))
}

/// The lines of the guest itself: what follows is of its snapshots.
fn own_lines(extracted: &str) -> impl Iterator<Item = &str> {
    extracted.lines().take_while(|line| !line.starts_with('['))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actual::Power;

    fn guest(id: &str, keys: &[(&str, &str)]) -> Guest {
        let id: GuestId = id.parse().unwrap();
        let entry = |(key, text): &(&str, &str)| ConfigEntry {
            key: (*key).to_owned(),
            value: Some((*text).to_owned()),
            pending: None,
            delete: 0,
        };
        let config = Ok(GuestConfig::from_pending(id.kind, keys.iter().map(entry)).into());
        Guest { id, power: Power::Stopped, template: false, ha: None, lock: None, config }
    }

    fn container() -> Guest {
        guest(
            "lxc/101",
            &[
                ("rootfs", "store:101/vm-101-disk-0.raw,size=8G"),
                ("mp0", "store:101/vm-101-disk-1.raw,mp=/data,backup=1,size=1G"),
                ("mp1", "store:101/vm-101-disk-2.raw,mp=/cache,size=1G"),
                ("mp2", "/srv/host,mp=/host"),
                ("unused0", "store:101/vm-101-disk-3.raw"),
                ("novel", "1"),
            ],
        )
    }

    fn machine() -> Guest {
        guest(
            "qemu/201",
            &[
                ("scsi0", "store:vm-201-disk-0,size=8G"),
                ("scsi1", "store:vm-201-disk-1,backup=0,size=8G"),
                ("ide2", "local:iso/debian.iso,media=cdrom"),
                ("efidisk0", "store:vm-201-disk-2,size=4M"),
                ("tpmstate0", "store:vm-201-disk-3,size=4M,version=v2.0"),
            ],
        )
    }

    fn around(snapshots: &[&str], excluded: Option<&str>) -> BackupContext {
        let point = |name: &&str| SnapshotPoint {
            name: (*name).to_owned(),
            taken_at: None,
            parent: None,
            with_memory: false,
        };
        let excluded = ExcludedPaths::read(excluded);
        BackupContext { snapshots: snapshots.iter().map(point).collect(), excluded }
    }

    #[test]
    fn whatever_is_lost_and_in_no_backup_is_listed() {
        let left = left_out(&container(), &around(&["before", PRESENT], Some("/data/*")));
        let expected = [
            "always=listed-in-.pxarexclude",
            "always=lost+found",
            "always=nested-file-systems",
            "mp1=store:101/vm-101-disk-2.raw",
            "novel=unknown",
            "path=/data/*",
            "snapshot=before",
            "unused0=store:101/vm-101-disk-3.raw",
        ];
        assert_eq!(left, expected.map(str::to_owned).into());
        let left = left_out(&machine(), &around(&[], Some("/data/*")));
        let expected = ["efidisk0=store:vm-201-disk-2", "scsi1=store:vm-201-disk-1"];
        assert_eq!(
            left,
            expected.map(str::to_owned).into(),
            "without OVMF nobody saves its variables"
        );
    }

    #[test]
    fn what_is_left_out_is_bound_and_any_difference_refuses() {
        let guest = container();
        let signed = |left: BTreeSet<String>| FinalBackup {
            storage: "store".parse().unwrap(),
            not_in_backup: left,
        };
        let now = around(&[], Some("/data/*"));
        let backup = signed(left_out(&guest, &now));
        assert_eq!(backup.check(&guest, &now), Ok(()));
        let params = FinalBackup::params(Some(&backup)).map(|(name, text)| (name.to_owned(), text));
        assert_eq!(FinalBackup::signed(&params.into()), Ok(Some(backup.clone())), "read back");
        assert_eq!(FinalBackup::signed(&BTreeMap::new()), Ok(None));
        for (changed, told) in [
            (around(&["since"], Some("/data/*")), "snapshot=since"),
            (around(&[], Some("/data/*,/srv/*")), "path=/srv/*"),
            (around(&[], None), "path=/data/*"),
        ] {
            let changed = backup.check(&guest, &changed).unwrap_err();
            assert_eq!(changed.reason, ReasonCode::Stale);
            assert!(changed.detail.contains(told), "{changed}");
        }
        let mut left = backup.not_in_backup.clone();
        left.insert("mp9=a:b".to_owned());
        let less = signed(left);
        assert_eq!(
            less.check(&guest, &now).map_err(|refusal| refusal.reason),
            Err(ReasonCode::Stale)
        );
    }

    #[test]
    fn y01_a_list_of_an_older_version_is_known_and_never_fits() {
        let guest = container();
        let listed = |kind: &str, left: &str| {
            let params = [(STORAGE, "store"), (NOT_IN_BACKUP, left)];
            let params = params.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
            let kind = format!("{kind}/101").parse::<GuestId>().unwrap().kind;
            (is_listed_in_old_form(kind, &params), FinalBackup::signed(&params).unwrap().unwrap())
        };
        let around = around(&[], None);
        let all: Vec<String> = left_out(&guest, &around).into_iter().collect();
        let (is_old, backup) = listed("lxc", &all.join(","));
        assert!(!is_old && backup.check(&guest, &around).is_ok());
        let old = all.iter().filter(|entry| !entry.starts_with("always="));
        let (is_old, backup) = listed("lxc", &old.cloned().collect::<Vec<_>>().join(","));
        assert!(is_old && backup.check(&guest, &around).is_err());
        assert!(!listed("qemu", "").0, "a machine's list has not changed");
    }

    #[test]
    fn an_archive_is_ours_by_its_mark_alone_and_never_an_empty_one() {
        let op = OperationId::from_parts(1, 1);
        let guest = container().id;
        let archive = |notes: &str, size_bytes| Archive {
            volume: "store:backup/vzdump-lxc-101.tar.zst".parse().unwrap(),
            size_bytes,
            notes: notes.to_owned(),
            protected: true,
        };
        let mark = note_of(op, guest);
        let ours = archive(&mark, Some(9));
        assert_eq!(find_archive(std::slice::from_ref(&ours), op, guest), Ok(&ours));
        for listed in [
            vec![],
            vec![archive("somebody's", Some(9))],
            vec![archive(&format!("{mark} "), Some(9))],
            vec![archive(&note_of(OperationId::from_parts(1, 2), guest), Some(9))],
            vec![archive(&mark, Some(0))],
            vec![archive(&mark, None)],
            vec![ours.clone(), ours.clone()],
        ] {
            assert!(find_archive(&listed, op, guest).is_err(), "{listed:?}");
        }
    }

    #[test]
    fn an_archive_without_a_volume_that_must_be_in_it_is_none() {
        let must = must_hold(container().config.as_ref().unwrap());
        assert_eq!(must.keys().collect::<Vec<_>>(), ["mp0", "rootfs"]);
        let whole = "#to be saved\nmp0: store:101/vm-101-disk-1.raw,mp=/data,backup=1,size=1G\n\
                     mp1: store:101/vm-101-disk-2.raw,mp=/cache,size=1G\n\
                     rootfs: store:101/vm-101-disk-0.raw,size=8G\n";
        assert_eq!(holds_all(GuestKind::Lxc, whole, &must), Ok(()));
        for broken in [
            String::new(),
            whole.replace("mp0", "mp7"),
            whole.replace("disk-1", "disk-9"),
            whole.replace("backup=1", "backup=0"),
            whole.replace("rootfs", "[before]\nrootfs"),
            whole.replace("rootfs", "#rootfs"),
        ] {
            assert!(holds_all(GuestKind::Lxc, &broken, &must).is_err(), "{broken}");
        }
        let must = must_hold(machine().config.as_ref().unwrap());
        assert_eq!(must.keys().collect::<Vec<_>>(), ["scsi0", "tpmstate0"]);
        let whole = "scsi0: store:vm-201-disk-0,size=8G\ntpmstate0: store:vm-201-disk-3,size=4M,version=v2.0\n\
                     #qmdump#map:scsi0:drive-scsi0:store:raw:\n#qmdump#map:tpmstate0:drive-tpmstate0-backup:store:raw:\n";
        assert_eq!(holds_all(GuestKind::Qemu, whole, &must), Ok(()));
        let unmapped = whole.replace("#qmdump#map:scsi0", "#qmdump#map:scsi1");
        assert!(holds_all(GuestKind::Qemu, &unmapped, &must).is_err(), "named, and not written");
    }
}
