//! What a scenario file adds to a simulated node: storages, files, guests, backups, bridges and pools.
//!
//! Read by `evenkeel sim --scenario` and by tests. It only adds, and it is all or nothing: a file with a mistake leaves
//! the world as it was.

use std::collections::BTreeMap;

use evenkeel_core::model::id::{GuestId, GuestKind};
use serde::Deserialize;

use crate::config::Config;
use crate::engine::Simulator;
use crate::job::Timings;
use crate::property::parse_size;
use crate::storage::{Storage, StorageKind, split_volid};
use crate::world::{BackupFile, SimPower, World};

/// The content of a scenario file, in JSON.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScenarioFile {
    /// New storages, or the limits of one that is there.
    pub storages: BTreeMap<String, DeclaredStorage>,
    /// Templates, ISO images and images to import.
    pub files: Vec<DeclaredFile>,
    /// Guests.
    pub guests: Vec<ScenarioGuest>,
    /// Backups.
    pub backups: Vec<DeclaredBackup>,
    /// What the node's `/etc/vzdump.conf` leaves out of every container's backup.
    pub backup_excludes: Vec<String>,
    /// Further bridges.
    pub bridges: Vec<String>,
    /// Further pools.
    pub pools: Vec<String>,
    /// How long tasks take.
    pub timings: Option<Timings>,
}

/// One storage.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeclaredStorage {
    /// What it is.
    #[serde(default = "a_directory")]
    pub kind: StorageKind,
    /// `images,rootdir,vztmpl,backup,iso,import,snippets`, or some of them.
    #[serde(default)]
    pub content: Option<String>,
    /// The directory, where there is one.
    #[serde(default)]
    pub path: Option<String>,
    /// Its size, such as `500G`.
    #[serde(default)]
    pub size: Option<String>,
    /// How many backups of a guest it keeps.
    #[serde(default)]
    pub keep_last: Option<usize>,
    /// How many of them may be protected.
    #[serde(default)]
    pub max_protected: Option<usize>,
}

fn a_directory() -> StorageKind {
    StorageKind::Dir
}

/// One file that no guest owns.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeclaredFile {
    /// `local:vztmpl/debian-12-standard_12.7-1_amd64.tar.zst`, `local:iso/x.iso`, `local:import/x.qcow2`.
    pub volid: String,
    /// Its size, such as `126M`.
    pub size: String,
}

/// One guest.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioGuest {
    /// `lxc/101` or `qemu/200`.
    pub guest: GuestId,
    /// Its file, key by key.
    pub config: BTreeMap<String, String>,
    /// Whether it runs.
    #[serde(default)]
    pub running: bool,
    /// Further files inside a container.
    #[serde(default)]
    pub files: Vec<String>,
}

/// One backup.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeclaredBackup {
    /// Where it lies.
    pub storage: String,
    /// Of whom it is.
    pub guest: GuestId,
    /// The file in it; that of the guest of this number if absent.
    #[serde(default)]
    pub config: Option<BTreeMap<String, String>>,
    /// Unix seconds; an hour before the node's clock if absent.
    #[serde(default)]
    pub ctime: Option<u64>,
    /// Its size in the list.
    #[serde(default)]
    pub size: Option<String>,
    /// `zst`, `gz` or nothing.
    #[serde(default)]
    pub compress: Option<String>,
    /// The operator's notes.
    #[serde(default)]
    pub notes: Option<String>,
    /// Whether it refuses removal.
    #[serde(default)]
    pub protected: bool,
}

/// Why a scenario does not fit its node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    /// A name of a storage that neither the node nor the file has.
    #[error("it names the storage `{0}`, which is not there; declare it under `storages`")]
    UnknownStorage(String),
    /// A size that is none.
    #[error("`{0}` is no size; write 126M or 2G")]
    Size(String),
    /// A file whose id says nothing.
    #[error(
        "`{0}` names no file; write STORAGE:vztmpl/NAME, STORAGE:iso/NAME or STORAGE:import/NAME"
    )]
    Volid(String),
    /// A backup without a configuration, of a guest that is not there.
    #[error("the backup of {0} has no `config`, and the node has no such guest to take it from")]
    NoConfig(GuestId),
    /// Two guests of one number.
    #[error("the number {0} is taken already")]
    Taken(GuestId),
}

impl ScenarioFile {
    /// Adds everything to a node.
    pub fn apply(&self, simulator: &mut Simulator) -> Result<(), ScenarioError> {
        let mut world = simulator.world.clone();
        self.add_to(&mut world)?;
        simulator.world = world;
        if let Some(timings) = &self.timings {
            simulator.timings = timings.clone();
        }
        Ok(())
    }

    fn add_to(&self, world: &mut World) -> Result<(), ScenarioError> {
        world.backup_excludes.extend(self.backup_excludes.iter().cloned());
        world.bridges.extend(self.bridges.iter().cloned());
        world.pools.extend(self.pools.iter().cloned());
        for (name, declared) in &self.storages {
            add_storage(world, name, declared)?;
        }
        for file in &self.files {
            add_file(world, file)?;
        }
        for declared in &self.guests {
            if world.is_taken(declared.guest.vmid.get()) {
                return Err(ScenarioError::Taken(declared.guest));
            }
            let config = Config { active: declared.config.clone(), ..Config::default() };
            let pid = 2000 + declared.guest.vmid.get() % 30_000;
            let power = if declared.running {
                SimPower::Running { since_ms: 0, pid, paused: false }
            } else {
                SimPower::Stopped
            };
            world.put_guest(declared.guest, config, power);
            if let Some(guest) = world.guest_mut(declared.guest) {
                guest.files.extend(declared.files.iter().cloned());
            }
        }
        self.backups.iter().try_for_each(|backup| add_backup(world, backup))
    }
}

fn size(text: &str) -> Result<u64, ScenarioError> {
    parse_size(text).ok_or_else(|| ScenarioError::Size(text.to_owned()))
}

fn add_storage(
    world: &mut World,
    name: &str,
    declared: &DeclaredStorage,
) -> Result<(), ScenarioError> {
    let storage = world.storages.entry(name.to_owned()).or_insert_with(|| {
        let content = declared.content.as_deref().unwrap_or("images,rootdir");
        Storage::new(declared.kind, content, &format!("/mnt/{name}"))
    });
    if let Some(content) = &declared.content {
        storage.content = content.split(',').map(str::to_owned).collect();
    }
    if let Some(path) = &declared.path {
        storage.path.clone_from(path);
    }
    if let Some(total) = &declared.size {
        storage.total_bytes = size(total)?;
    }
    storage.keep_last = declared.keep_last.or(storage.keep_last);
    storage.max_protected = declared.max_protected.or(storage.max_protected);
    Ok(())
}

fn add_file(world: &mut World, file: &DeclaredFile) -> Result<(), ScenarioError> {
    let wrong = || ScenarioError::Volid(file.volid.clone());
    let (storage, name) = split_volid(&file.volid).ok_or_else(wrong)?;
    let (content, rest) = name.split_once('/').ok_or_else(wrong)?;
    if !matches!(content, "vztmpl" | "iso" | "import" | "snippets") || rest.is_empty() {
        return Err(wrong());
    }
    let format = match (content, rest.rsplit('.').next()) {
        ("vztmpl", Some("gz")) => "tgz",
        ("vztmpl", Some("zst")) => "tzst",
        ("vztmpl", _) => "txz",
        ("import", Some(extension)) => extension,
        (_, _) => content,
    };
    let bytes = size(&file.size)?;
    let Some(found) = world.storages.get_mut(storage) else {
        return Err(ScenarioError::UnknownStorage(storage.to_owned()));
    };
    found.content.insert(content.to_owned());
    found.put_file(name, content, format, bytes);
    Ok(())
}

/// Backups are an hour old unless told otherwise.
const AGE_S: u64 = 3600;

fn add_backup(world: &mut World, backup: &DeclaredBackup) -> Result<(), ScenarioError> {
    let own = || world.guest(backup.guest).map(|found| found.config.clone());
    let given = backup.config.clone().map(|active| Config { active, ..Config::default() });
    let config = given.or_else(own).ok_or(ScenarioError::NoConfig(backup.guest))?;
    let kind = match backup.guest.kind {
        GuestKind::Lxc => "tar",
        GuestKind::Qemu => "vma",
    };
    let format = match &backup.compress {
        Some(suffix) => format!("{kind}.{suffix}"),
        None => kind.to_owned(),
    };
    let file = BackupFile {
        ctime: backup.ctime.unwrap_or_else(|| world.epoch_s.saturating_sub(AGE_S)),
        format,
        size_bytes: backup.size.as_deref().map_or(Ok(1 << 20), size)?,
        notes: backup.notes.clone(),
        protected: backup.protected,
        excludes: world.backup_excludes.clone(),
    };
    world
        .put_backup(&backup.storage, backup.guest, &config, &file)
        .map(|_| ())
        .ok_or_else(|| ScenarioError::UnknownStorage(backup.storage.clone()))
}
