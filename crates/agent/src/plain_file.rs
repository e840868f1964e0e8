//! Reads a file that a person handed us: desired files, `agent.toml`, trust file, token, approvals, saved plans.
//!
//! ```text
//!   stat: a plain file? ─> open without waiting ─> fstat: still one? ─> read, bounded ─> fstat: the same as before?
//! ```
//!
//! Agent and command line read through [`read`] and nothing else. It must never wait: a pipe without a writer would
//! hang whoever opens it, a device may act when it is opened, and a file of `/proc` may have no end. Links are
//! followed, because a desired directory is often a checkout made of them. What is not a plain file, larger than the
//! caller can use, or written to meanwhile is refused with the reason. Where even a plain file can hang (a file system
//! over a network), `off_loop` keeps it from hanging the agent.

use std::fs::{File, FileType, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;

/// The bytes of a file, and what was known of it when it was read.
#[derive(Debug)]
pub struct PlainFile {
    /// What is in it.
    pub bytes: Vec<u8>,
    /// Of the open file, so that it cannot have been exchanged in between.
    pub metadata: Metadata,
}

/// Why a file was not read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system said no.
    #[error("cannot read {}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// A pipe, a socket, a device or a directory.
    #[error("{} is {kind}, not a plain file", path.display())]
    Kind {
        /// What stands there.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// It holds more than the caller can use.
    #[error("{} is larger than {bytes_max} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The most that is read.
        bytes_max: usize,
    },
    /// Somebody writes to it, or it is one of those of `/proc` and `/sys`, which have no length.
    #[error("{} changed while it was read, or is no file of a disk", path.display())]
    Unsteady {
        /// The file.
        path: PathBuf,
    },
}

impl FileError {
    /// Whether there is nothing at that path.
    pub fn is_not_found(&self) -> bool {
        self.kind() == Some(io::ErrorKind::NotFound)
    }

    /// What the system said, if it was the system.
    pub fn kind(&self) -> Option<io::ErrorKind> {
        match self {
            Self::Io { error, .. } => Some(error.kind()),
            Self::Kind { .. } | Self::TooLarge { .. } | Self::Unsteady { .. } => None,
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Io { .. } => "name a file that is there and that you may read",
            Self::Kind { .. } => "write what it holds into a plain file, and name that",
            Self::TooLarge { .. } => "name the right file",
            Self::Unsteady { .. } => {
                "write a file under another name and rename it, so that it is never seen half written"
            }
        }
    }
}

/// Reads a plain file of at most so many bytes. Never waits for somebody who might write to it.
pub fn read(path: &Path, bytes_max: usize) -> Result<PlainFile, FileError> {
    let failed = |error| FileError::Io { path: path.to_owned(), error };
    // Asked before opening: to open some devices is to act on them.
    check_kind(path, std::fs::metadata(path).map_err(failed)?.file_type())?;
    let flags = OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let mut options = File::options();
    let file = options.read(true).custom_flags(flags.bits().cast_signed()).open(path);
    let mut file = file.map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    check_kind(path, metadata.file_type())?;
    let too_large = || FileError::TooLarge { path: path.to_owned(), bytes_max };
    if metadata.len() > bytes_max as u64 {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    (&mut file).take(bytes_max as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > bytes_max {
        return Err(too_large());
    }
    let after = file.metadata().map_err(failed)?;
    if bytes.len() as u64 != metadata.len() || stamp(&metadata) != stamp(&after) {
        return Err(FileError::Unsteady { path: path.to_owned() });
    }
    Ok(PlainFile { bytes, metadata })
}

/// What changes when somebody writes to a file.
fn stamp(metadata: &Metadata) -> (u64, i64, i64) {
    (metadata.len(), metadata.mtime(), metadata.mtime_nsec())
}

fn check_kind(path: &Path, found: FileType) -> Result<(), FileError> {
    if found.is_file() {
        return Ok(());
    }
    let kind = if found.is_dir() {
        "a directory"
    } else if found.is_fifo() {
        "a pipe"
    } else if found.is_socket() {
        "a socket"
    } else {
        "a device"
    };
    Err(FileError::Kind { path: path.to_owned(), kind })
}

/// How long files may take to be read. A thousand of them on a local disk take a fraction of a second.
pub(crate) const READ_DEADLINE: Duration = Duration::from_secs(10);

/// A reading that goes on, on a thread of its own.
pub type FileReading<T> = tokio::sync::oneshot::Receiver<T>;

/// Begins to read on a thread of its own, so that whoever awaits it can go on without it. The thread is not tokio's: a
/// file system that never answers must not keep the process from ending.
pub(crate) fn off_loop<T: Send + 'static>(
    read: impl FnOnce() -> T + Send + 'static,
) -> FileReading<T> {
    let (done, reading) = tokio::sync::oneshot::channel();
    let spawned = std::thread::Builder::new().name("read".to_owned()).spawn(move || {
        // Whoever awaited it may have gone on.
        let _ = done.send(read());
    });
    if let Err(error) = spawned {
        tracing::error!(%error, "no thread to read files with");
    }
    reading
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::unix::net::UnixListener;

    const MAX: usize = 1024;
    /// Long after this whatever still reads will read for ever.
    const PATIENCE: Duration = Duration::from_mins(1);

    /// What is no plain file, and the word for it.
    fn odd_files(directory: &Path) -> Vec<(PathBuf, &'static str)> {
        let at = |name: &str| directory.join(name);
        let mode = rustix::fs::Mode::from_bits_truncate(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), rustix::fs::FileType::Fifo, mode, 0)
            .unwrap();
        drop(UnixListener::bind(at("socket")).unwrap());
        std::fs::create_dir(at("directory")).unwrap();
        std::os::unix::fs::symlink(at("loop"), at("loop")).unwrap();
        std::os::unix::fs::symlink(at("pipe"), at("link-to-pipe")).unwrap();
        std::os::unix::fs::symlink(at("nowhere"), at("dangling")).unwrap();
        vec![
            (at("pipe"), "a pipe"),
            (at("link-to-pipe"), "a pipe"),
            (at("socket"), "a socket"),
            (at("directory"), "a directory"),
            (at("loop"), "cannot read"),
            (at("dangling"), "cannot read"),
            ("/dev/zero".into(), "a device"),
            ("/dev/null".into(), "a device"),
            ("/dev/tty".into(), "a device"),
            ("/proc/self/stat".into(), "changed while it was read"),
            ("/proc/kcore".into(), "/proc/kcore"),
            ("/proc/kmsg".into(), "/proc/kmsg"),
            ("/proc/self/pagemap".into(), "/proc/self/pagemap"),
        ]
    }

    #[test]
    fn x09_what_is_not_a_plain_file_is_refused_at_once_with_a_sentence() {
        let directory = tempfile::tempdir().unwrap();
        for (path, word) in odd_files(directory.path()) {
            let at = path.clone();
            let (say, said) = std::sync::mpsc::channel();
            std::thread::spawn(move || drop(say.send(read(&at, MAX))));
            let error = said.recv_timeout(PATIENCE).expect("it waits").unwrap_err();
            let told = error.to_string();
            assert!(told.contains(word) && told.contains(path.to_str().unwrap()), "{told}");
            assert!(!error.hint().is_empty());
        }
    }

    #[test]
    fn a_plain_file_is_read_whole_also_through_links_and_a_larger_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a");
        let link = directory.path().join("b");
        std::fs::write(&file, vec![b'x'; MAX]).unwrap();
        std::os::unix::fs::symlink("a", &link).unwrap();
        assert_eq!(read(&link, MAX).unwrap().bytes.len(), MAX);
        std::fs::write(&file, vec![b'x'; MAX + 1]).unwrap();
        assert!(matches!(read(&link, MAX), Err(FileError::TooLarge { .. })));
        std::fs::write(&file, "").unwrap();
        assert!(read(&file, MAX).unwrap().bytes.is_empty());
    }

    #[test]
    fn x09_a_file_that_grows_while_it_is_read_ends_and_is_never_half_believed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("growing");
        let mut file = File::create(&path).unwrap();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let writer = std::thread::spawn(move || {
            while stopped.try_recv().is_err() {
                file.write_all(b"0123456789").unwrap();
            }
        });
        for _ in 0..200 {
            if let Ok(read) = read(&path, 4 << 20) {
                assert_eq!(read.bytes.len() as u64, read.metadata.len());
            }
        }
        let _ = stop.send(());
        writer.join().unwrap();
    }

    #[tokio::test]
    async fn what_hangs_on_its_own_thread_hangs_nobody_else() {
        let (release, wait) = std::sync::mpsc::channel::<()>();
        let mut reading = off_loop(move || wait.recv().is_ok());
        let soon = tokio::time::timeout(Duration::from_millis(50), &mut reading).await;
        assert!(soon.is_err());
        release.send(()).unwrap();
        assert!(reading.await.unwrap());
    }
}
