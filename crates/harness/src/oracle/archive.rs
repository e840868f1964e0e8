//! Whether a guest that is destroyed was saved as was signed, file by file. It knows what lies on the node, and nothing of
//! the agent.

use evenkeel_core::model::id::{GuestId, GuestKind};
use evenkeel_sim::{
    InProcess, NESTED_FILE_SYSTEM, RequestRecord, Simulator, Volume, World, is_excluded,
};

use super::Oracle;
use super::claims::SignedClaim;
use crate::scene::AGENT_TOKEN;

impl Oracle {
    /// Somebody breaks backups.
    pub(crate) fn archives_are_broken(&self, node: &InProcess) {
        self.inner().claims.archives_broken = node.with(|sim| sim.records().len());
    }
}

/// Whether the agent has looked at a storage since the node had heard so many requests; always, if nobody broke anything.
pub(super) fn was_listed_since(sim: &Simulator, broken: usize) -> bool {
    let ours = |record: &RequestRecord| record.user.as_deref() == Some(AGENT_TOKEN.0);
    let lists = |record: &&RequestRecord| ours(record) && record.path.ends_with("/content");
    broken == 0 || sim.records().iter().skip(broken).any(|record| lists(&record))
}

/// Where a final backup was signed: whether the node holds an archive of this operation, of this very guest, with every
/// volume and every file that is not listed as left out.
pub(super) fn is_saved(
    world: &World,
    name: &str,
    guest: GuestId,
    claim: &SignedClaim,
) -> Result<(), String> {
    let signed = |name: &str| claim.params.get(name).map(String::as_str).unwrap_or_default();
    let (Some(storage), Some(found)) =
        (world.storages.get(signed("final_backup")), world.guest(guest))
    else {
        return match signed("final_backup") {
            "" => Ok(()),
            // A guest that is gone by now is another sentence's business.
            _ if world.guest(guest).is_none() => Ok(()),
            _ => Err("(3) destroyed without its final backup: its storage is gone".to_owned()),
        };
    };
    let is_it = |volume: &&Volume| {
        let notes = volume.notes.as_deref().unwrap_or_default();
        volume.size_bytes > 0 && notes.split(' ').any(|word| word == name)
    };
    let Some(archive) = storage.volumes.values().find(is_it).and_then(|it| it.archive.as_ref())
    else {
        return Err("(3) destroyed without its final backup".to_owned());
    };
    let left_out: Vec<&str> = signed("not_in_backup").split(',').collect();
    for (slot, value) in &found.config.active {
        let volume = value.split(',').next().unwrap_or_default();
        if !holds_data(guest, slot, value)
            || left_out.contains(&format!("{slot}={volume}").as_str())
        {
            continue;
        }
        let saved = archive.config.active.get(slot).map(String::as_str).unwrap_or_default();
        if archive.guest != guest || saved.split(',').next() != Some(volume) {
            return Err(format!("(3) destroyed without its final backup: {slot} is not in it"));
        }
    }
    let mut lost = found.files.difference(&archive.files);
    match lost.find(|path| !is_named(path, &left_out)) {
        Some(path) => {
            Err(format!("(21) destroyed with a final backup that lacks {path}, which was not said"))
        }
        None => Ok(()),
    }
}

/// Whether what was signed says that a file is not in the backup.
fn is_named(path: &str, left_out: &[&str]) -> bool {
    left_out.iter().any(|entry| match entry.split_once('=') {
        Some(("path", pattern)) => is_excluded(&unescaped(pattern), path),
        Some(("always", "lost+found")) => is_excluded("lost+found", path),
        Some(("always", "nested-file-systems")) => path.starts_with(NESTED_FILE_SYSTEM),
        Some(_) | None => false,
    })
}

/// A pattern with its `%XX` read; only ASCII is written so in a run.
fn unescaped(pattern: &str) -> String {
    let mut parts = pattern.split('%');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (code, rest) = part.split_at_checked(2).unwrap_or(("", part));
        text.extend(u8::from_str_radix(code, 16).ok().map(char::from));
        text.push_str(rest);
    }
    text
}

/// Whether a key of a guest's file names a volume that is lost with it.
fn holds_data(guest: GuestId, key: &str, value: &str) -> bool {
    let name = key.trim_end_matches(|digit: char| digit.is_ascii_digit());
    let slots: &[&str] = match guest.kind {
        GuestKind::Lxc => &["rootfs", "mp", "unused"],
        GuestKind::Qemu => &["scsi", "virtio", "sata", "ide", "efidisk", "tpmstate", "unused"],
    };
    let volume = value.split(',').next().unwrap_or_default();
    let is_volume =
        volume.contains(':') && !volume.contains("iso/") && !volume.contains("cloudinit");
    slots.contains(&name) && is_volume && !value.contains("media=cdrom")
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use evenkeel_core::action_registry::ActionKind;
    use evenkeel_sim::{Scenario, StoredArchive};

    use super::*;

    #[test]
    fn a_destroy_is_as_signed_only_while_its_archive_lies_on_the_node() {
        let guest: GuestId = "lxc/100".parse().unwrap();
        let mut world = Scenario { guests: 2, ..Scenario::default() }.build();
        let claim = |storage: &str, left: &str| SignedClaim {
            op: ActionKind::Destroy,
            guest,
            params: [("final_backup", storage), ("not_in_backup", left)]
                .map(|(name, text)| (name.to_owned(), text.to_owned()))
                .into_iter()
                .collect::<BTreeMap<_, _>>(),
            digest: String::new(),
            nonce: String::new(),
            not_before_s: 0,
            expires_s: 0,
            trust_version: 1,
            is_for_this_host: true,
            by: BTreeSet::new(),
            item: String::new(),
        };
        assert!(is_saved(&world, "op_1", guest, &claim("", "")).is_ok(), "none was signed");
        assert!(is_saved(&world, "op_1", guest, &claim("store", "")).is_err(), "there is none");
        let found = world.guest(guest).unwrap().clone();
        let config = found.config.clone();
        let files = found.files.clone();
        let guest_birth = found.birth;
        let archive = StoredArchive { guest, guest_birth, config, truncated: false, files };
        let store = world.storages.get_mut("store").unwrap();
        store.put_file("backup/a", "backup", "tar", 9);
        let volume = store.volumes.get_mut("backup/a").unwrap();
        volume.notes = Some("evenkeel op_1 lxc/100".to_owned());
        volume.archive = Some(Box::new(archive));
        assert_eq!(is_saved(&world, "op_1", guest, &claim("store", "")), Ok(()));
        assert!(is_saved(&world, "op_2", guest, &claim("store", "")).is_err(), "another's");
        let broken = |act: &dyn Fn(&mut Volume)| {
            let mut world = world.clone();
            act(world.storages.get_mut("store").unwrap().volumes.get_mut("backup/a").unwrap());
            is_saved(&world, "op_1", guest, &claim("store", "")).is_err()
        };
        assert!(broken(&|volume| volume.size_bytes = 0), "it is empty");
        assert!(broken(&|volume| {
            volume.archive.as_mut().unwrap().config.active.remove("rootfs");
        }));
        let root = found.config.active["rootfs"].split(',').next().unwrap().to_owned();
        let store = world.storages.get_mut("store").unwrap();
        let archive = store.volumes.get_mut("backup/a").unwrap().archive.as_mut().unwrap();
        archive.config.active.remove("rootfs");
        let left = format!("rootfs={root}");
        assert_eq!(is_saved(&world, "op_1", guest, &claim("store", &left)), Ok(()), "signed away");
        let gone = ["/lost+found/rescued", "/opt/nested/precious.img", "/var/tmp/precious.db"];
        let store = world.storages.get_mut("store").unwrap();
        let archive = store.volumes.get_mut("backup/a").unwrap().archive.as_mut().unwrap();
        archive.files.retain(|path| !gone.contains(&path.as_str()));
        let named = ["always=lost+found", "always=nested-file-systems", "path=/var/%74mp/?*"];
        let left = format!("{left},{}", named.join(","));
        assert_eq!(is_saved(&world, "op_1", guest, &claim("store", &left)), Ok(()), "all named");
        for name in named {
            let short = left.replace(name, "path=/elsewhere/*");
            assert!(is_saved(&world, "op_1", guest, &claim("store", &short)).is_err(), "{name}");
        }
    }
}
