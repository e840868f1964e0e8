//! The pretended node: guests, storages, rights, datacenter options. Pure state, no clock.
//!
//! Handlers and tasks read and change it; only [`crate::engine`] decides when.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_core::model::id::{GuestId, GuestKind, VmId};
use evenkeel_core::model::release::Release;
use serde::{Deserialize, Serialize};

use crate::access::TokenAccess;
use crate::config::Config;
use crate::guest_files::GuestFiles;
use crate::inside_files::{first_files, saved_files};
use crate::random::Random;
use crate::storage::{DataOrigin, Storage, StoredArchive, Volume, split_volid, stored_name};
use crate::surroundings::SimSurroundings;

/// Everything one node would keep on its disks.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct World {
    #[serde(with = "release_text")]
    release: Release,
    /// The node's name in paths.
    pub node: String,
    /// The node's clock when the simulation began, in Unix seconds.
    pub epoch_s: u64,
    /// Guests by number; both kinds share one number space.
    pub guests: GuestFiles,
    /// Storages by name.
    pub storages: BTreeMap<String, Storage>,
    /// Storages that nobody has defined at present, with everything on them.
    #[serde(default)]
    pub undefined: BTreeMap<String, Storage>,
    /// Users, tokens, rights.
    pub access: TokenAccess,
    /// `exclude-path` of `/etc/vzdump.conf`: what every backup of a container leaves out.
    #[serde(default)]
    pub backup_excludes: Vec<String>,
    /// Datacenter options.
    pub options: BTreeMap<String, String>,
    /// Bridges that exist.
    pub bridges: BTreeSet<String>,
    /// Pools that exist.
    pub pools: BTreeSet<String>,
    /// The pool of a guest, by number.
    #[serde(default)]
    pub pool_of: BTreeMap<u32, String>,
    /// HA resources (`ct:100`, `vm:200`) and the state asked of them.
    #[serde(default)]
    pub ha: BTreeMap<String, String>,
    /// What else is kept by number.
    #[serde(default)]
    pub around: SimSurroundings,
    /// Whether the cluster has quorum.
    pub quorate: bool,
    /// Whether the node is one of a cluster; a node that stands alone has no quorum to lose.
    #[serde(default)]
    pub clustered: bool,
    /// Guests that live on the cluster's other node, by number.
    #[serde(default)]
    pub elsewhere: BTreeMap<u32, Away>,
    /// How many guests there ever were.
    #[serde(default)]
    births: u64,
    /// Lines of the cluster log, newest last: seconds, user, message.
    pub(crate) cluster_log: Vec<(u64, String, String)>,
    pub(crate) random: Random,
}

/// One guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SimGuest {
    /// Kind and number.
    pub id: GuestId,
    /// Its configuration file.
    pub config: Config,
    /// Whether it runs.
    pub power: SimPower,
    /// A guest that ignores a polite shutdown.
    #[serde(default)]
    pub ignores_shutdown: bool,
    /// Which guest it really is: no other guest ever has the same number, whatever it is called and looks like. Made
    /// at creation, restore and clone, kept through everything else. No request shows it.
    #[serde(default)]
    pub birth: u64,
    /// Who asked for it, token included; `None` for what was there before and what events bring. No request shows it.
    #[serde(default)]
    pub maker: Option<String>,
    /// When it first ran, if it ever did; while it is only saved it does not. No request shows it.
    #[serde(default)]
    pub first_ran_ms: Option<u64>,
    /// The files inside a container, by path. No request shows them.
    #[serde(default)]
    pub files: BTreeSet<String>,
}

/// A guest on another node, with the volumes it took along.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Away {
    /// The guest.
    pub guest: SimGuest,
    /// Its volumes: storage, name, volume.
    pub(crate) volumes: Vec<(String, String, Volume)>,
}

/// The name of the cluster's other node.
pub(crate) const OTHER_NODE: &str = "pve2";

/// Whether a guest runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SimPower {
    /// No process.
    Stopped,
    /// A process exists.
    Running {
        /// Milliseconds of the simulation when it started.
        since_ms: u64,
        /// Its process id.
        pid: u32,
        /// A virtual machine whose processors are halted.
        paused: bool,
    },
    /// A stopped virtual machine whose process exists only so that a backup can read its disks: it does not run.
    Prelaunch {
        /// Milliseconds of the simulation when the process began.
        since_ms: u64,
        /// Its process id.
        pid: u32,
    },
}

impl SimPower {
    /// Whether a process exists, also one that only serves a backup.
    pub fn is_running(self) -> bool {
        match self {
            Self::Stopped => false,
            Self::Running { .. } | Self::Prelaunch { .. } => true,
        }
    }

    /// What `qmpstatus` says.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Running { paused: true, .. } => "paused",
            Self::Running { paused: false, .. } => "running",
            Self::Prelaunch { .. } => "prelaunch",
        }
    }
}

impl World {
    /// An empty node: storage `local`, bridge `vmbr0`, user root@pam with password `secret`.
    pub fn new(release: Release, node: &str, seed: u64) -> Self {
        let mut access = TokenAccess::default();
        access.add_user("root@pam", PASSWORD);
        let local =
            Storage::new(crate::storage::StorageKind::Dir, "backup,iso,vztmpl", "/var/lib/vz");
        Self {
            release,
            node: node.to_owned(),
            epoch_s: 1_790_000_000,
            guests: GuestFiles::default(),
            storages: BTreeMap::from([("local".to_owned(), local)]),
            undefined: BTreeMap::new(),
            access,
            backup_excludes: Vec::new(),
            options: BTreeMap::new(),
            bridges: BTreeSet::from(["vmbr0".to_owned()]),
            pools: BTreeSet::new(),
            pool_of: BTreeMap::new(),
            ha: BTreeMap::new(),
            around: SimSurroundings::default(),
            quorate: true,
            clustered: false,
            elsewhere: BTreeMap::new(),
            births: 0,
            cluster_log: Vec::new(),
            random: Random::new(seed),
        }
    }

    /// The release it pretends to be.
    pub fn release(&self) -> Release {
        self.release
    }

    /// Unix seconds at a moment of the simulation.
    pub(crate) fn unix(&self, now_ms: u64) -> u64 {
        // A UPID has eight hexadecimal digits for it.
        (self.epoch_s + now_ms / 1000).min(u64::from(u32::MAX))
    }

    /// Whether any node of the cluster has a guest of that number.
    pub(crate) fn is_taken(&self, vmid: u32) -> bool {
        self.guests.contains_key(&vmid) || self.elsewhere.contains_key(&vmid)
    }

    pub(crate) fn next_birth(&mut self) -> u64 {
        self.births += 1;
        self.births
    }

    /// The birth mark of the guest behind a number, on whichever node it is.
    pub fn birth(&self, vmid: VmId) -> Option<u64> {
        let here = self.guests.get(&vmid.get());
        let away = || self.elsewhere.get(&vmid.get()).map(|away| &away.guest);
        here.or_else(away).map(|guest| guest.birth)
    }

    /// The guest of that kind and number.
    pub fn guest(&self, id: GuestId) -> Option<&SimGuest> {
        self.guests.get(&id.vmid.get()).filter(|guest| guest.id.kind == id.kind)
    }

    /// The same, to change it.
    pub fn guest_mut(&mut self, id: GuestId) -> Option<&mut SimGuest> {
        self.guests.get_mut(&id.vmid.get()).filter(|guest| guest.id.kind == id.kind)
    }

    /// Puts a new guest there as if it had always existed, its volumes included.
    pub fn put_guest(&mut self, id: GuestId, config: Config, power: SimPower) {
        let volumes: Vec<String> = config
            .active
            .iter()
            .chain(&config.pending)
            .filter(|(key, _)| is_disk_key(id.kind, key))
            .map(|(_, value)| value.clone())
            .collect();
        for value in volumes {
            self.ensure_volume(id, &value);
        }
        let birth = self.next_birth();
        let first_ran_ms = power.is_running().then_some(0);
        let guest = SimGuest {
            id,
            config,
            power,
            ignores_shutdown: false,
            birth,
            maker: None,
            first_ran_ms,
            files: first_files(id.kind),
        };
        self.guests.insert(id.vmid.get(), guest);
    }

    fn ensure_volume(&mut self, id: GuestId, value: &str) {
        let mut parts = value.split(',');
        let volid = parts.next().unwrap_or_default();
        let size = parts.find_map(|part| part.strip_prefix("size="));
        let size = size.and_then(crate::property::parse_size).unwrap_or(4 << 30);
        let Some((storage, name)) = split_volid(volid) else { return };
        let name = stored_name(name).to_owned();
        let epoch = self.epoch_s;
        if let Some(storage) = self.storages.get_mut(storage)
            && !storage.volumes.contains_key(&name)
            && name.contains('-')
        {
            let format = name.rsplit_once('.').map_or("raw", |(_, format)| format).to_owned();
            storage.insert(&name, id.kind, id.vmid, size, &format, epoch);
        }
    }

    /// The storage of a volume, if nobody has defined it at present.
    pub(crate) fn undefined_storage<'v>(&self, volid: &'v str) -> Option<&'v str> {
        let (storage, _) = split_volid(volid)?;
        (!self.storages.contains_key(storage)).then_some(storage)
    }

    /// The volume behind an id.
    pub fn volume(&self, volid: &str) -> Option<&Volume> {
        let (storage, name) = split_volid(volid)?;
        self.storages.get(storage)?.volumes.get(stored_name(name))
    }

    /// The same, to change it.
    pub(crate) fn volume_mut(&mut self, volid: &str) -> Option<&mut Volume> {
        let (storage, name) = split_volid(volid)?;
        self.storages.get_mut(storage)?.volumes.get_mut(stored_name(name))
    }

    /// Frees a volume for good.
    pub(crate) fn free(&mut self, volid: &str) {
        if let Some((storage, name)) = split_volid(volid)
            && let Some(storage) = self.storages.get_mut(storage)
        {
            storage.volumes.remove(stored_name(name));
        }
    }

    /// What a volume that is filled from this one remembers of it.
    pub(crate) fn origin_of(&self, volid: &str) -> DataOrigin {
        let volume = self.volume(volid);
        let archived = volume.and_then(|volume| volume.archive.as_ref());
        let vmid = archived.map(|archive| archive.guest.vmid).or(volume.and_then(|v| v.vmid));
        let owner = || vmid.and_then(|vmid| self.birth(vmid));
        DataOrigin {
            volid: volid.to_owned(),
            vmid,
            guest_birth: archived.map(|archive| archive.guest_birth).or_else(owner),
        }
    }

    /// The volumes a guest's file names that were filled with the data of another guest, each with whose it is.
    pub fn read_from_others(&self, id: GuestId) -> Vec<(String, DataOrigin)> {
        let Some(guest) = self.guest(id) else { return Vec::new() };
        let named = guest.config.active.iter().filter(|(key, _)| is_disk_key(id.kind, key));
        let volids = named.filter_map(|(_, value)| value.split(',').next());
        let filled = volids.filter_map(|volid| {
            let origin = self.volume(volid)?.origin.clone()?;
            let other = origin.guest_birth.is_some_and(|birth| birth != guest.birth);
            other.then(|| (volid.to_owned(), origin))
        });
        filled.collect()
    }

    /// Puts a backup of a guest into a storage as if a task had made it, and gives its id; `None` without the storage.
    pub fn put_backup(
        &mut self,
        storage: &str,
        guest: GuestId,
        config: &Config,
        file: &BackupFile,
    ) -> Option<String> {
        let (guest_birth, files) = match self.guest(guest) {
            Some(found) => (found.birth, found.files.clone()),
            None => (self.next_birth(), first_files(guest.kind)),
        };
        let files = saved_files(&files, &file.excludes, config);
        let mut saved = Config { active: config.active.clone(), ..Config::default() };
        saved.active.retain(|key, _| !matches!(key.as_str(), "lock" | "parent"));
        let archive = StoredArchive { guest, guest_birth, config: saved, truncated: false, files };
        let target = self.storages.get_mut(storage)?;
        let mut ctime = file.ctime;
        let name = loop {
            let name = backup_name(guest, ctime, &file.format);
            if !target.volumes.contains_key(&name) {
                break name;
            }
            // Names carry the second, and no two backups of a guest begin in the same one.
            ctime += 1;
        };
        target.put_file(&name, "backup", &file.format, file.size_bytes);
        if let Some(volume) = target.volumes.get_mut(&name) {
            volume.vmid = Some(guest.vmid);
            volume.ctime = ctime;
            volume.notes.clone_from(&file.notes);
            volume.protected = file.protected;
            volume.archive = Some(Box::new(archive));
        }
        Some(format!("{storage}:{name}"))
    }

    /// Makes a guest of a template again, as an administrator could on the node: its volumes get their names back.
    pub fn unmake_template(&mut self, id: GuestId) {
        let Some(guest) = self.guest_mut(id) else { return };
        guest.config.active.remove("template");
        let mut config = guest.config.clone();
        for (_, value) in config.active.iter_mut().filter(|(key, _)| is_disk_key(id.kind, key)) {
            let old = value.split(',').next().unwrap_or_default().to_owned();
            let Some((storage, name)) = split_volid(&old) else { continue };
            let new =
                stored_name(name).replacen("basevol-", "subvol-", 1).replacen("base-", "vm-", 1);
            let Some(storage_found) = self.storages.get_mut(storage) else { continue };
            if let Some(volume) = storage_found.volumes.remove(stored_name(name)) {
                storage_found.volumes.insert(new.clone(), volume);
                *value = value.replacen(&old, &format!("{storage}:{new}"), 1);
            }
        }
        if let Some(guest) = self.guest_mut(id) {
            guest.config = config;
        }
    }

    /// A new hardware address; the prefix became fixed with 8.1 unless the datacenter sets one.
    pub(crate) fn new_mac(&mut self) -> String {
        let prefix = match self.options.get("mac_prefix") {
            Some(prefix) => prefix.clone(),
            None if self.release >= Release::V8_1 => "BC:24:11".to_owned(),
            None => format!("{:02X}", (self.random.below(64) << 2) | 2),
        };
        self.random.mac(&prefix)
    }

    /// The first free number.
    pub(crate) fn next_id(&self) -> u32 {
        (VmId::MIN..VmId::MAX).find(|id| !self.is_taken(*id)).unwrap_or(VmId::MAX)
    }

    /// Notes something in the cluster log.
    pub(crate) fn note(&mut self, now_ms: u64, user: &str, message: String) {
        let at = self.unix(now_ms);
        self.cluster_log.push((at, user.to_owned(), message));
        if self.cluster_log.len() > CLUSTER_LOG_LINES {
            self.cluster_log.remove(0);
        }
    }
}

/// How a backup lies in its storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupFile {
    /// Unix seconds at which it was begun; its name carries them.
    pub ctime: u64,
    /// `tar`, `tar.zst`, `vma`, `vma.zst` and so on.
    pub format: String,
    /// Its size in the content list.
    pub size_bytes: u64,
    /// The operator's notes.
    pub notes: Option<String>,
    /// Whether it refuses removal.
    pub protected: bool,
    /// The patterns that were left out of a container.
    pub excludes: Vec<String>,
}

/// `backup/vzdump-lxc-100-2026_11_16-10_34_29.tar.zst`.
fn backup_name(guest: GuestId, ctime: u64, format: &str) -> String {
    let moment = i64::try_from(ctime).ok().and_then(|s| jiff::Timestamp::from_second(s).ok());
    let stamp = moment.unwrap_or_default().strftime("%Y_%m_%d-%H_%M_%S");
    format!("backup/vzdump-{}-{}-{stamp}.{format}", guest.kind, guest.vmid)
}

/// The password of every simulated user; published, so it is good on loopback only.
pub(crate) const PASSWORD: &str = "secret";

/// The cluster log is a small ring; older lines are gone.
const CLUSTER_LOG_LINES: usize = 500;

/// Whether a key holds a volume, as opposed to any other value.
pub(crate) fn is_disk_key(kind: GuestKind, key: &str) -> bool {
    let stem = key.trim_end_matches(|c: char| c.is_ascii_digit());
    let numbered = stem.len() < key.len();
    match kind {
        GuestKind::Lxc => key == "rootfs" || (numbered && matches!(stem, "mp" | "unused")),
        GuestKind::Qemu => {
            numbered
                && matches!(
                    stem,
                    "ide" | "sata" | "scsi" | "virtio" | "efidisk" | "tpmstate" | "unused"
                )
        }
    }
}

/// Whether a key is a network card.
pub(crate) fn is_net_key(key: &str) -> bool {
    key.strip_prefix("net").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

mod release_text {
    use evenkeel_core::model::release::Release;
    use serde::{Deserialize as _, Deserializer, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands fields over by reference")]
    pub(super) fn serialize<S: Serializer>(release: &Release, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(release)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Release, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}
