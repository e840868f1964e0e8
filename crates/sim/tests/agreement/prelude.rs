//! What a captured server had before the first row of its file: a second storage with container snapshots, tokens,
//! bridges, a pool, and guests that rows copy from. Only what the rows themselves name is put there.

use std::collections::BTreeMap;

use evenkeel_core::model::id::GuestId;
use evenkeel_sim::{Config, SimPower, Storage, StorageKind, TOKENS, World};

use crate::row::Row;

/// Furnishes the world; gives the tokens that have other names here than in every scenario.
pub(crate) fn furnish(world: &mut World, rows: &[Row]) -> BTreeMap<String, String> {
    let named = |text: &str| rows.iter().any(|row| row.names(text));
    if named("btr:") {
        let storage = Storage::new(StorageKind::Btrfs, "images,rootdir", "/btr");
        world.storages.insert("btr".to_owned(), storage);
        world.pools.insert("lab".to_owned());
        world.bridges.insert("vmbr1".to_owned());
        if let Some(store) = world.storages.get_mut("store") {
            "/store".clone_into(&mut store.path);
        }
        if let Some(local) = world.storages.get_mut("local") {
            local.content.remove("import");
        }
        for (guest, config) in templates() {
            world.put_guest(guest, config, SimPower::Stopped);
        }
    }
    tokens(world, rows)
}

/// The templates and the machine the lifecycle rows read, which no row makes.
fn templates() -> Vec<(GuestId, Config)> {
    let guest = |text: &str| text.parse().expect("a guest");
    vec![
        (
            guest("lxc/105"),
            Config::of(&[
                ("arch", "amd64"),
                ("hostname", "tmpl"),
                ("memory", "64"),
                ("swap", "0"),
                ("ostype", "alpine"),
                ("unprivileged", "1"),
                ("rootfs", "store:105/base-105-disk-0.raw,size=1G"),
                ("template", "1"),
            ]),
        ),
        (
            guest("qemu/201"),
            Config::of(&[
                ("name", "vm201"),
                ("memory", "128"),
                ("scsi0", "store:201/vm-201-disk-0.qcow2,size=1G"),
            ]),
        ),
        (
            guest("qemu/205"),
            Config::of(&[
                ("name", "vmtmpl"),
                ("memory", "128"),
                ("cores", "1"),
                ("kvm", "0"),
                ("ostype", "l26"),
                ("boot", "order=scsi0;net0"),
                ("scsihw", "virtio-scsi-single"),
                ("net0", "virtio=BC:24:11:00:02:05,bridge=vmbr0"),
                ("scsi0", "store:205/base-205-disk-0.qcow2,size=1G"),
                ("smbios1", "uuid=00000000-0000-4000-8000-000000000205"),
                ("vmgenid", "00000000-0000-4000-8000-000000000206"),
                ("meta", "creation-qemu=9.2.0,ctime=1794818803"),
                ("template", "1"),
            ]),
        ),
    ]
}

/// Who made the tasks of a file tells the whole name of the token behind a word.
fn tokens(world: &mut World, rows: &[Row]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for row in rows {
        let (Some(auth), Some(upid)) = (&row.auth, row.upid()) else { continue };
        let owner = upid.trim_end_matches(':').rsplit(':').next().unwrap_or_default();
        let Some((user, _)) = owner.split_once('!') else { continue };
        if found.contains_key(auth) || TOKENS.iter().any(|(name, _, _)| *name == owner) {
            continue;
        }
        if !world.access.users.contains_key(user) {
            world.access.add_user(user, "secret");
        }
        world.access.revoke("/", user);
        world.access.grant("/", user, "Administrator");
        world.access.add_token(owner, "captured", false);
        found.insert(auth.clone(), format!("{owner}=captured"));
    }
    found
}
