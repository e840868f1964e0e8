//! The files by which a node tells what changed: `.version` and `.vmlist` of its cluster file system, and its active tasks.
//!
//! The first two are read by every pass before it asks for anything, all of them by the daemon's watch each second. Those two
//! are made by the process behind `/etc/pve` when somebody asks for their size, so that is asked for first and past the
//! kernel's memory of it. They are read on a thread of their own: a process that hangs must hang nobody else. What is read
//! here is never written, and decides only what is looked at.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use evenkeel_core::actual::active_tasks::ActiveTasks;
use evenkeel_core::actual::remembered::{ClusterMarks, FileMark, ListHead};
use evenkeel_core::model::id::{GuestKind, NodeName, VmId};
use rustix::fs::{AtFlags, CWD, StatxFlags};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::plain_file::{self, FileError, off_loop};

/// Where Proxmox VE has it.
pub const CLUSTER_FS: &str = "/etc/pve";

/// Where Proxmox VE keeps a line for every task that runs, and for those that ended last.
const ACTIVE_TASKS: &str = "/var/log/pve/tasks/active";

/// The longest file that is read; a thousand guests have sixty thousand bytes.
const BYTES_MAX: usize = 16 << 20;

/// How long one may take: it is made in memory.
const DEADLINE: Duration = Duration::from_secs(2);

/// Readings that hang before no more are begun.
const HANGING_MAX: usize = 4;

/// How often a file is read again that changed meanwhile.
const TRIES: usize = 3;

/// One of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterFile {
    /// When the process was started, and a number for each thing it counts.
    Version,
    /// Every guest of the cluster, with the number of its file.
    GuestList,
    /// The node's tasks, running and just ended. A node that has had none has no such file.
    ActiveTasks,
}

impl ClusterFile {
    /// Where it is on a node whose cluster file system is here. Only a stand-in for a node has its tasks in there too.
    fn path(self, cluster_fs: &Path) -> PathBuf {
        match self {
            Self::Version => cluster_fs.join(".version"),
            Self::GuestList => cluster_fs.join(".vmlist"),
            Self::ActiveTasks if cluster_fs == Path::new(CLUSTER_FS) => ACTIVE_TASKS.into(),
            Self::ActiveTasks => cluster_fs.join("tasks/active"),
        }
    }
}

/// Why a file tells nothing now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SilentFile {
    /// Readings begun earlier have not ended.
    #[error("{} hangs", .0.display())]
    Hangs(PathBuf),
    /// This one has not.
    #[error("{} was not read within {DEADLINE:?}", .0.display())]
    Late(PathBuf),
    /// The system says why.
    #[error("{0}")]
    Unreadable(String),
    /// It says something else.
    #[error("{file} cannot be understood: {why}")]
    Unclear {
        /// Which.
        file: &'static str,
        /// Where and why.
        why: String,
    },
    /// It names no node.
    #[error(".version does not say whose it is")]
    Nobodys,
}

/// The bytes of a file, or why there are none, once they are read.
pub type ReadFuture<'f> = Pin<Box<dyn Future<Output = Result<Vec<u8>, SilentFile>> + Send + 'f>>;

/// Where they are read: a directory, or a simulated node in the same process.
pub trait ClusterFiles: fmt::Debug + Send + Sync {
    /// Reads one.
    fn read(&self, file: ClusterFile) -> ReadFuture<'_>;
}

/// The files of a directory.
#[derive(Debug, Clone)]
pub struct ClusterDirectory {
    path: PathBuf,
    under_way: Arc<AtomicUsize>,
}

/// Why a directory is not the cluster file system that is meant.
#[derive(Debug, thiserror::Error)]
pub enum NotClusterFs {
    /// A file of it cannot be read.
    #[error(transparent)]
    Unreadable(FileError),
    /// It says nothing that can be understood.
    #[error(transparent)]
    Unclear(SilentFile),
    /// It is another node's.
    #[error("{} is the cluster file system of {found}, not of {wanted}", path.display())]
    OtherNode {
        /// Where.
        path: PathBuf,
        /// Whose it is.
        found: String,
        /// Whose it should be.
        wanted: NodeName,
    },
}

impl ClusterDirectory {
    /// The directory of this node, once it was looked at: it can be read, and names the node as its own.
    pub fn of_node(path: &Path, node: &NodeName) -> Result<Self, NotClusterFs> {
        let [version, list] = [ClusterFile::Version, ClusterFile::GuestList]
            .map(|file| read_now(&file.path(path)).map_err(NotClusterFs::Unreadable));
        let version = version?;
        let list = list?;
        VersionWire::parse(&version).map_err(NotClusterFs::Unclear)?;
        KnownList::parse(&list).map_err(NotClusterFs::Unclear)?;
        let found = own_node(&version).map_err(NotClusterFs::Unclear)?;
        if found != node.as_str() {
            let path = path.to_owned();
            let wanted = node.clone();
            return Err(NotClusterFs::OtherNode { path, found, wanted });
        }
        Ok(Self { path: path.to_owned(), under_way: Arc::default() })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl ClusterFiles for ClusterDirectory {
    fn read(&self, file: ClusterFile) -> ReadFuture<'_> {
        let path = file.path(&self.path);
        Box::pin(async move {
            if self.under_way.load(Ordering::Relaxed) >= HANGING_MAX {
                return Err(SilentFile::Hangs(self.path.clone()));
            }
            let under_way = Arc::clone(&self.under_way);
            let late = path.clone();
            under_way.fetch_add(1, Ordering::Relaxed);
            let reading = off_loop(move || {
                let read = read_now(&path);
                under_way.fetch_sub(1, Ordering::Relaxed);
                read
            });
            match tokio::time::timeout(DEADLINE, reading).await {
                Ok(Ok(read)) => read.map_err(|error| SilentFile::Unreadable(error.to_string())),
                Ok(Err(_)) | Err(_) => Err(SilentFile::Late(late)),
            }
        })
    }
}

/// The file as it is now.
fn read_now(path: &Path) -> Result<Vec<u8>, FileError> {
    let mut read = read_once(path);
    for _ in 1..TRIES {
        match &read {
            // Somebody else asked for its size meanwhile, and it was made anew.
            Err(FileError::Unsteady { .. }) => read = read_once(path),
            Ok(_)
            | Err(FileError::Io { .. } | FileError::Kind { .. } | FileError::TooLarge { .. }) => {
                break;
            }
        }
    }
    read
}

fn read_once(path: &Path) -> Result<Vec<u8>, FileError> {
    // The text is made when its size is asked for, and the kernel remembers the answer for a second.
    let asked = rustix::fs::statx(CWD, path, AtFlags::STATX_FORCE_SYNC, StatxFlags::SIZE);
    asked.map_err(|error| FileError::Io { path: path.to_owned(), error: error.into() })?;
    plain_file::read(path, BYTES_MAX).map(|file| file.bytes)
}

/// Both files, or the first alone while the list has the number it had at the last look. The list is read last: it is never
/// older than the number of it.
pub(crate) async fn read_marks(
    files: &dyn ClusterFiles,
    last: Option<&ClusterMarks>,
) -> Result<ClusterMarks, SilentFile> {
    let version = VersionWire::parse(&files.read(ClusterFile::Version).await?)?;
    let list = match last.filter(|last| last.head() == version.head()) {
        Some(last) => KnownList { number: last.list, guests: Arc::clone(&last.guests) },
        None => KnownList::parse(&files.read(ClusterFile::GuestList).await?)?,
    };
    Ok(version.marks(list))
}

/// The node's tasks.
pub(crate) async fn read_tasks(files: &dyn ClusterFiles) -> Result<ActiveTasks, SilentFile> {
    let text = files.read(ClusterFile::ActiveTasks).await?;
    Ok(ActiveTasks::read(&String::from_utf8_lossy(&text)))
}

/// What `.vmlist` says.
struct KnownList {
    number: u64,
    guests: Arc<BTreeMap<VmId, FileMark>>,
}

impl KnownList {
    fn parse(list: &[u8]) -> Result<Self, SilentFile> {
        let list: ListWire =
            serde_json::from_slice(list).map_err(|error| unclear(".vmlist", &error))?;
        let mut guests = BTreeMap::new();
        for (number, entry) in list.ids {
            // What is not understood has no mark, and a guest without one is asked for.
            let kind: Result<GuestKind, _> = entry.kind.parse();
            let (Ok(vmid), Ok(kind), Ok(node)) = (number.parse::<VmId>(), kind, entry.node.parse())
            else {
                continue;
            };
            guests.insert(vmid, FileMark { kind, node, version: entry.version });
        }
        Ok(Self { number: list.version, guests: Arc::new(guests) })
    }
}

/// The node whose process it is: of all nodes' small values it tells its own first.
fn own_node(version: &[u8]) -> Result<String, SilentFile> {
    let told: OwnerWire =
        serde_json::from_slice(version).map_err(|error| unclear(".version", &error))?;
    told.kvstore.0.ok_or(SilentFile::Nobodys)
}

fn unclear(file: &'static str, error: &serde_json::Error) -> SilentFile {
    SilentFile::Unclear { file, why: error.to_string() }
}

#[derive(Deserialize)]
struct VersionWire {
    starttime: u64,
    vmlist: u64,
    #[serde(rename = "datacenter.cfg")]
    options: Option<u64>,
    #[serde(rename = "ha/resources.cfg")]
    ha_resources: Option<u64>,
    #[serde(rename = "ha/manager_status")]
    ha_status: Option<u64>,
}

impl VersionWire {
    fn parse(version: &[u8]) -> Result<Self, SilentFile> {
        serde_json::from_slice(version).map_err(|error| unclear(".version", &error))
    }

    fn head(&self) -> ListHead {
        ListHead { started_s: self.starttime, list: self.vmlist }
    }

    fn marks(self, list: KnownList) -> ClusterMarks {
        let ha = [self.ha_resources, self.ha_status];
        let KnownList { number, guests } = list;
        let started_s = self.starttime;
        let options = self.options;
        ClusterMarks { started_s, list: number, guests, options, ha }
    }
}

#[derive(Deserialize)]
struct OwnerWire {
    kvstore: FirstName,
}

/// The first name of an object, whatever it stands for.
struct FirstName(Option<String>);

impl<'de> Deserialize<'de> for FirstName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FirstNameReader)
    }
}

struct FirstNameReader;

impl<'de> Visitor<'de> for FirstNameReader {
    type Value = FirstName;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FirstName, A::Error> {
        let mut first = None;
        while let Some((name, IgnoredAny)) = map.next_entry::<String, IgnoredAny>()? {
            first.get_or_insert(name);
        }
        Ok(FirstName(first))
    }
}

#[derive(Deserialize)]
struct ListWire {
    version: u64,
    #[serde(default)]
    ids: BTreeMap<String, EntryWire>,
}

#[derive(Deserialize)]
struct EntryWire {
    node: String,
    #[serde(rename = "type")]
    kind: String,
    version: u64,
}

#[cfg(test)]
mod tests {
    use evenkeel_sim::{Event, Scenario, Simulator};

    use super::*;

    fn node(name: &str) -> NodeName {
        name.parse().unwrap()
    }

    #[tokio::test]
    async fn what_a_node_shows_is_read_and_follows_every_write() {
        let directory = tempfile::tempdir().unwrap();
        let mut sim = Simulator::new(Scenario { guests: 3, ..Scenario::default() }.build());
        sim.show_cluster_fs(directory.path()).unwrap();
        let files = ClusterDirectory::of_node(directory.path(), &node("pve1")).unwrap();
        let first = read_marks(&files, None).await.unwrap();
        assert_eq!(first.guests.len(), 3);
        let again = read_marks(&files, Some(&first)).await.unwrap();
        assert!(
            again == first && Arc::ptr_eq(&again.guests, &first.guests),
            "it is not read again"
        );
        assert!(first.options.is_some() && first.ha.iter().all(Option::is_some));
        let guest = "lxc/100".parse().unwrap();
        sim.happen(Event::Lock { guest, lock: Some("backup".to_owned()) });
        let second = read_marks(&files, None).await.unwrap();
        assert!(second.list > first.list && second.started_s == first.started_s);
        let rose = |marks: &ClusterMarks| marks.guests[&guest.vmid].version;
        assert!(rose(&second) > rose(&first), "a lock is a write");
        assert_eq!(
            second
                .guests
                .iter()
                .filter(|(vmid, mark)| first.guests.get(vmid) != Some(mark))
                .count(),
            1
        );
        sim.happen(Event::Power { guest, running: true });
        assert_eq!(read_marks(&files, None).await.unwrap(), second, "a start writes nothing");
        sim.happen(Event::RestartClusterFs);
        assert!(read_marks(&files, None).await.unwrap().started_s > second.started_s);
    }

    #[test]
    fn another_nodes_directory_and_one_that_says_nothing_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let of = |name: &str| ClusterDirectory::of_node(directory.path(), &node(name));
        assert!(matches!(of("pve1"), Err(NotClusterFs::Unreadable(_))), "nothing is there");
        let mut sim = Simulator::new(Scenario::default().build());
        sim.show_cluster_fs(directory.path()).unwrap();
        assert!(of("pve1").is_ok());
        let told = of("pve2").unwrap_err().to_string();
        assert!(told.contains("of pve1, not of pve2"), "{told}");
        // Of several nodes the first is its own, whatever their names.
        let version = directory.path().join(".version");
        let told = std::fs::read_to_string(&version).unwrap();
        let two = told.replace("\"pve1\": {\n}", "\"pve2\": {\n},\n\"pve1\": {\n}");
        std::fs::write(&version, two).unwrap();
        assert!(of("pve2").is_ok() && of("pve1").is_err());
        std::fs::write(&version, told).unwrap();
        std::fs::write(directory.path().join(".vmlist"), "{\"version\": 1, \"ids\": {").unwrap();
        assert!(matches!(of("pve1"), Err(NotClusterFs::Unclear(_))), "half a list");
    }

    #[test]
    fn what_is_not_understood_of_a_guest_gives_it_no_mark() {
        let parse = |version: &[u8], list: &[u8]| -> Result<ClusterMarks, SilentFile> {
            Ok(VersionWire::parse(version)?.marks(KnownList::parse(list)?))
        };
        let version = br#"{"starttime": 5, "clinfo": 2, "vmlist": 9, "kvstore": {"pve1": {}}}"#;
        let list = br#"{"version": 9, "ids": {
            "100": {"node": "pve1", "type": "qemu", "version": 3, "later": true},
            "101": {"node": "pve1", "type": "openvz", "version": 4},
            "7": {"node": "pve1", "type": "lxc", "version": 5}
        }}"#;
        let marks = parse(version, list).unwrap();
        assert_eq!(marks.guests.len(), 1);
        assert_eq!((marks.options, marks.ha), (None, [None; 2]));
        assert!(parse(version, br#"{"version": 1}"#).unwrap().guests.is_empty(), "no guest at all");
        assert!(parse(b"", list).is_err() && parse(version, b"{").is_err());
    }
}
