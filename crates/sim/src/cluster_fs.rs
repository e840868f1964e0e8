//! What the cluster file system of the node tells of configuration files: `.version`, `.vmlist` and the link `local`.
//!
//! Every write of a guest's file draws a number from one counter of the process, and the guest's entry bears it. A process
//! that starts anew begins to count anew, under another `starttime`; one that takes the cluster's files over after a
//! partition rebuilds the list, and every guest gets a new number. The engine calls [`ClusterFs::note`] after every step,
//! before anybody can be answered by what the step wrote. A directory gets each file whole or not at all. Beside them it
//! gets `tasks/active`, which a node has in `/var/log/pve`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use evenkeel_core::model::id::GuestKind;

use crate::engine::Simulator;
use crate::world::{OTHER_NODE, SimGuest, World};

/// The process behind `/etc/pve`, as far as it counts.
#[derive(Debug)]
pub(crate) struct ClusterFs {
    /// When the process started, in Unix seconds.
    starttime: u64,
    /// The number drawn last.
    counter: u32,
    /// Rises whenever any entry does.
    list_version: u32,
    entries: BTreeMap<u32, ListedFile>,
    /// Files with numbers of their own, what was in them, and their numbers.
    options: Counted<BTreeMap<String, String>>,
    ha: Counted<BTreeMap<String, String>>,
    /// Where it is shown, if anywhere.
    directory: Option<PathBuf>,
    /// The file of active tasks as it is shown.
    active_tasks: String,
}

/// A file with a number of its own.
#[derive(Debug, Default)]
struct Counted<T> {
    content: T,
    version: u32,
}

impl<T: PartialEq + Clone> Counted<T> {
    fn follow(&mut self, content: &T) -> bool {
        let is_new = self.content != *content;
        if is_new {
            self.content = content.clone();
            self.version += 1;
        }
        is_new
    }
}

/// A guest's entry, and what its file was then.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ListedFile {
    kind: GuestKind,
    node: String,
    birth: u64,
    digest: String,
    version: u32,
}

impl ClusterFs {
    /// The process starts and lists what is there.
    pub(crate) fn start(world: &World, starttime: u64) -> Self {
        let mut fs = Self {
            starttime,
            counter: 0,
            list_version: 0,
            entries: BTreeMap::new(),
            options: Counted::default(),
            ha: Counted::default(),
            directory: None,
            active_tasks: String::new(),
        };
        fs.list_anew(world);
        fs
    }

    /// The whole list is made again: every guest gets a new number.
    fn list_anew(&mut self, world: &World) {
        self.entries.clear();
        let away = world.elsewhere.keys();
        for vmid in world.guests.keys().chain(away).copied().collect::<Vec<_>>() {
            self.note_guest(world, vmid);
        }
        self.list_version += 1;
        self.options.follow(&world.options);
        self.ha.follow(&world.ha);
    }

    /// Draws numbers for what was written; tells whether anything was.
    fn note(&mut self, world: &mut World) -> bool {
        let touched = world.guests.take_touched();
        let mut is_new = false;
        for vmid in touched {
            if self.note_guest(world, vmid) {
                self.list_version += 1;
                is_new = true;
            }
        }
        is_new | self.options.follow(&world.options) | self.ha.follow(&world.ha)
    }

    fn note_guest(&mut self, world: &World, vmid: u32) -> bool {
        let here = world.guests.get(&vmid).map(|guest| (guest, world.node.as_str()));
        let away = || world.elsewhere.get(&vmid).map(|away| (&away.guest, OTHER_NODE));
        let Some((guest, node)) = here.or_else(away) else {
            return self.entries.remove(&vmid).is_some();
        };
        let known = self.entries.get(&vmid);
        let listed = listed(guest, node, known.map_or(0, |known| known.version));
        if known == Some(&listed) {
            return false;
        }
        self.counter += 1;
        self.entries.insert(vmid, ListedFile { version: self.counter, ..listed });
        true
    }

    /// `.vmlist`.
    fn list_text(&self) -> String {
        let mut text = format!("{{\n\"version\": {}", self.list_version);
        if !self.entries.is_empty() {
            text.push_str(",\n\"ids\": {\n");
            for (at, (vmid, file)) in self.entries.iter().enumerate() {
                let comma = if at == 0 { "" } else { ",\n" };
                let ListedFile { kind, node, version, .. } = file;
                let _infallible = write!(
                    text,
                    "{comma}\"{vmid}\": {{ \"node\": \"{node}\", \"type\": \"{kind}\", \"version\": {version} }}"
                );
            }
            text.push('}');
        }
        text.push_str("\n\n}\n");
        text
    }

    /// `.version`.
    fn version_text(&self, node: &str) -> String {
        let Self { starttime, list_version, .. } = self;
        let options = self.options.version;
        let ha = self.ha.version;
        format!(
            "{{\n\"starttime\": {starttime},\n\"clinfo\": 1,\n\"vmlist\": {list_version},\n\"datacenter.cfg\": {options},\n\
             \"ha/manager_status\": {ha},\n\"ha/resources.cfg\": {ha},\n\"kvstore\": {{\n\"{node}\": {{\n}}\n}}\n}}\n"
        )
    }

    /// Shows both files. The list first: whoever has read the newer `.version` finds a list that is as new.
    fn show(&self, node: &str) -> io::Result<()> {
        let Some(directory) = &self.directory else { return Ok(()) };
        replace(&directory.join(".vmlist"), &self.list_text())?;
        replace(&directory.join(".version"), &self.version_text(node))
    }
}

fn listed(guest: &SimGuest, node: &str, version: u32) -> ListedFile {
    let SimGuest { id, config, birth, .. } = guest;
    let digest = config.digest(id.kind);
    ListedFile { kind: id.kind, node: node.to_owned(), birth: *birth, digest, version }
}

/// Written beside and renamed, so that nobody reads a half.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let beside = path.with_extension("new");
    std::fs::write(&beside, text)?;
    std::fs::rename(&beside, path)
}

impl Simulator {
    /// What `/etc/pve/.vmlist` says now.
    pub fn cluster_list(&mut self) -> String {
        self.note_writes();
        self.cluster_fs.list_text()
    }

    /// What `/etc/pve/.version` says now.
    pub fn cluster_version(&mut self) -> String {
        self.note_writes();
        self.cluster_fs.version_text(&self.world.node)
    }

    /// What `/var/log/pve/tasks/active` says now.
    pub fn active_task_lines(&self) -> String {
        self.tasks.active_text()
    }

    /// From now on a directory shows what `/etc/pve` would, `local` included.
    pub fn show_cluster_fs(&mut self, directory: &Path) -> io::Result<()> {
        std::fs::create_dir_all(directory.join("tasks"))?;
        let link = directory.join("local");
        match std::fs::remove_file(&link) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        std::os::unix::fs::symlink(format!("nodes/{}", self.world.node), &link)?;
        self.cluster_fs.directory = Some(directory.to_owned());
        self.note_writes();
        replace(&directory.join("tasks/active"), &self.cluster_fs.active_tasks)?;
        self.cluster_fs.show(&self.world.node)
    }

    /// Notices every write since it last looked, before anybody is answered by it.
    pub(crate) fn note_writes(&mut self) {
        if self.cluster_fs.note(&mut self.world) {
            self.show_cluster_files();
        }
        self.show_active_tasks();
    }

    /// Shows the tasks, if that is asked for and they are others than were shown.
    fn show_active_tasks(&mut self) {
        let Some(directory) = &self.cluster_fs.directory else { return };
        let text = self.tasks.active_text();
        if self.cluster_fs.active_tasks != text {
            // It is a hint: where it cannot be written, nobody is worse off than without it.
            let _shown = replace(&directory.join("tasks/active"), &text);
            self.cluster_fs.active_tasks = text;
        }
    }

    /// The process behind `/etc/pve` starts again: it counts from the beginning, under another start time.
    pub(crate) fn restart_cluster_fs(&mut self) {
        let starttime = self.unix_s().max(self.cluster_fs.starttime + 1);
        let directory = self.cluster_fs.directory.take();
        let active_tasks = std::mem::take(&mut self.cluster_fs.active_tasks);
        self.world.guests.take_touched();
        let anew = ClusterFs::start(&self.world, starttime);
        self.cluster_fs = ClusterFs { directory, active_tasks, ..anew };
        self.show_cluster_files();
    }

    /// The process takes the cluster's files over, as after a partition: the list is made again.
    pub(crate) fn resync_cluster_fs(&mut self) {
        self.world.guests.take_touched();
        self.cluster_fs.list_anew(&self.world);
        self.show_cluster_files();
    }

    /// Where it cannot be written nothing stands: a reader must not believe what was.
    fn show_cluster_files(&self) {
        let shown = self.cluster_fs.show(&self.world.node);
        if let (Err(_), Some(directory)) = (shown, &self.cluster_fs.directory) {
            for name in [".vmlist", ".version"] {
                let _gone_or_not = std::fs::remove_file(directory.join(name));
            }
        }
    }
}
