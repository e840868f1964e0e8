//! The journal's directory on a real file system.
//!
//! Opened once by the process that writes, which locks it; readers use [`ReadOnlyDirectory`] and
//! take no lock. Both refuse a directory or file that somebody else could write or read: who can
//! edit the journal can make a destroy look benign.

use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use fs_err as fs;
use fs_err::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use rustix::fs::{FallocateFlags, FlockOperation, OFlags};

use super::disk::{Disk, Files};

/// The directory, read without a lock.
#[derive(Debug)]
pub struct ReadOnlyDirectory {
    path: PathBuf,
    /// Whose it is.
    owner: u32,
}

impl ReadOnlyDirectory {
    /// Checks that the directory is there and private. Root may look into another user's: the agent has one of its own.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        let found = fs::symlink_metadata(&path)?;
        if !found.is_dir() {
            return Err(refused(&path, "it is not a directory of its own"));
        }
        let owner = found.uid();
        let reader = own_user();
        check_private(&path, &found, if reader == ROOT { owner } else { reader })?;
        Ok(Self { path, owner })
    }

    /// Why this file system may not keep what it was told to keep, if it may not. The journal works
    /// there; whoever starts it tells a person.
    pub fn doubt(&self) -> io::Result<Option<&'static str>> {
        Ok(doubt_of(rustix::fs::statfs(&self.path)?.f_type))
    }
}

/// By the numbers of the kernel's `magic.h`, which never change.
fn doubt_of(file_system: rustix::fs::FsWord) -> Option<&'static str> {
    match file_system {
        0x0102_1994 | 0x8584_58f6 => Some("it is in memory, and does not survive a restart"),
        0x6969 | 0x517b | 0xff53_4d42 | 0xfe53_4d42 | 0x0102_1997 => {
            Some("it is on another machine, whose locks and syncs are only promises")
        }
        0x6573_5546 => Some("it is a program's (FUSE), whose locks and syncs are only promises"),
        _ => None,
    }
}

impl Files for ReadOnlyDirectory {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name().into_string();
            // The journal's own names are ASCII; others are not ours to read.
            names.extend(name);
        }
        Ok(names)
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let path = self.path.join(name);
        let mut file = fs::OpenOptions::new().read(true).custom_flags(no_follow()).open(&path)?;
        check_file(&path, &file.metadata()?, self.owner)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

/// The directory, locked for the one process that writes.
#[derive(Debug)]
pub struct RealDisk {
    files: ReadOnlyDirectory,
    /// Holds the lock until it is dropped.
    directory: fs::File,
    /// The file written last: nearly always the newest segment.
    open: Option<(String, fs::File)>,
}

impl RealDisk {
    /// Makes the directory if there is none, and locks it. Somebody else's lock is
    /// [`io::ErrorKind::WouldBlock`].
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        match std::fs::DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => sync_parent(&path)?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(refused(&path, &error.to_string())),
        }
        let files = ReadOnlyDirectory::open(path)?;
        // What root wrote there, its owner could not go on with.
        if files.owner != own_user() {
            return Err(refused(&files.path, ANOTHER_USERS));
        }
        let directory = fs::File::open(&files.path)?;
        rustix::fs::flock(directory.file(), FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { files, directory, open: None })
    }

    /// See [`ReadOnlyDirectory::doubt`].
    pub fn doubt(&self) -> io::Result<Option<&'static str>> {
        self.files.doubt()
    }

    fn file(&mut self, name: &str) -> io::Result<&fs::File> {
        if self.open.as_ref().is_none_or(|(open, _)| open != name) {
            let path = self.files.path.join(name);
            let mut options = fs::OpenOptions::new();
            options.write(true).create(true).truncate(false).mode(0o600).custom_flags(no_follow());
            let file = options.open(&path)?;
            check_file(&path, &file.metadata()?, self.files.owner)?;
            self.open = Some((name.to_owned(), file));
        }
        let (_, file) = self.open.as_ref().expect("it was opened just above");
        Ok(file)
    }
}

impl Files for RealDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        self.files.list()
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.files.read(name)
    }
}

impl Disk for RealDisk {
    fn place(&self) -> String {
        self.files.path.display().to_string()
    }

    fn write_at(&mut self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file(name)?.write_all_at(bytes, offset)
    }

    fn truncate(&mut self, name: &str, length: u64) -> io::Result<()> {
        self.file(name)?.set_len(length)
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        self.file(name)?.sync_data()
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.open = None;
        fs::rename(self.files.path.join(from), self.files.path.join(to))
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.open = None;
        fs::remove_file(self.files.path.join(name))
    }

    fn sync_directory(&mut self) -> io::Result<()> {
        self.directory.sync_all()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let found = rustix::fs::fstatvfs(self.directory.file())?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }

    fn allocate(&mut self, name: &str, bytes: u64) -> io::Result<()> {
        let file = self.file(name)?;
        rustix::fs::fallocate(file.file(), FallocateFlags::empty(), 0, bytes).map_err(|error| {
            let error = io::Error::from(error);
            let path = file.path().display();
            io::Error::new(error.kind(), format!("failed to allocate file `{path}`: {error}"))
        })
    }
}

const ROOT: u32 = 0;

pub(crate) const ANOTHER_USERS: &str = "it belongs to another user";

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// A symbolic link in place of a file would let its maker choose what is overwritten.
fn no_follow() -> i32 {
    OFlags::NOFOLLOW.union(OFlags::CLOEXEC).bits().cast_signed()
}

/// Makes the name of a new directory survive a crash.
pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if parent != Path::new("") => fs::File::open(parent)?.sync_all(),
        Some(_) | None => fs::File::open(".")?.sync_all(),
    }
}

fn check_file(path: &Path, found: &std::fs::Metadata, owner: u32) -> io::Result<()> {
    if !found.is_file() {
        return Err(refused(path, "it is not a plain file"));
    }
    if found.nlink() > 1 {
        return Err(refused(path, "it has a second name (hard link)"));
    }
    check_private(path, found, owner)
}

fn check_private(path: &Path, found: &std::fs::Metadata, owner: u32) -> io::Result<()> {
    if found.uid() != owner {
        return Err(refused(path, ANOTHER_USERS));
    }
    if found.mode() & 0o077 != 0 {
        return Err(refused(path, "others have access to it: take it away with chmod go-rwx"));
    }
    Ok(())
}

fn refused(path: &Path, why: &str) -> io::Error {
    io::Error::other(format!("{}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn j18_memory_and_network_are_doubted_and_disks_are_not() {
        let ext4 = 0xef53;
        let btrfs = 0x9123_683e;
        let xfs = 0x5846_5342;
        let zfs = 0x2fc1_2fc1;
        for disk in [ext4, btrfs, xfs, zfs] {
            assert_eq!(doubt_of(disk), None, "{disk:x}");
        }
        let tmpfs = 0x0102_1994;
        let nfs = 0x6969;
        let cifs = 0xff53_4d42;
        let fuse = 0x6573_5546;
        for other in [tmpfs, nfs, cifs, fuse] {
            assert!(doubt_of(other).is_some(), "{other:x}");
        }
    }

    #[test]
    fn j18_a_journal_in_memory_is_known_as_such() {
        let memory = Path::new("/dev/shm");
        if !memory.is_dir() || rustix::fs::statfs(memory).unwrap().f_type != 0x0102_1994 {
            return;
        }
        let directory = tempfile::tempdir_in(memory).unwrap();
        let disk = RealDisk::open(directory.path().join("journal")).unwrap();
        assert!(disk.doubt().unwrap().is_some_and(|why| why.contains("memory")));
    }
}
