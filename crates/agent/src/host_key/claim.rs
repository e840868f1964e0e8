//! One agent per host key and machine: a lock named by the key's fingerprint.
//!
//! The journal's lock keeps two processes from one state directory; this one keeps them from two copies of it, which
//! share a host key and so would both take the same approval. It lies in a runtime directory, which no copy of a state
//! directory takes along and no restart of the machine keeps:
//!
//! ```text
//!   /run/evenkeel             root, and the service (RuntimeDirectory=)
//!   $XDG_RUNTIME_DIR/evenkeel everybody else
//!   /tmp/evenkeel-UID         where there is neither
//! ```
//!
//! Taken when the signers are read, held until the process ends. The file is removed with it, under the lock, and whoever
//! locks a file that was removed meanwhile tries again. It must never be taken for proof about other machines: the
//! journal's stamp is that.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use evenkeel_core::sign::Fingerprint;
use rustix::fs::{FlockOperation, Mode, OFlags};

use super::HostKeyError;

/// The lock, held while this lives.
#[derive(Debug)]
pub(super) struct KeyClaim {
    path: PathBuf,
    _file: File,
}

impl KeyClaim {
    /// Takes the lock of a key, in the first directory that can be used.
    pub(super) fn take(fingerprint: &Fingerprint) -> Result<Self, HostKeyError> {
        Self::take_in(&directories(), fingerprint)
    }

    fn take_in(directories: &[PathBuf], fingerprint: &Fingerprint) -> Result<Self, HostKeyError> {
        let mut refused = None;
        for directory in directories {
            match lock(&directory.join(file_name(fingerprint)), directory) {
                Ok(claim) => return Ok(claim),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let lock = directory.join(file_name(fingerprint));
                    return Err(HostKeyError::InUse { fingerprint: fingerprint.to_string(), lock });
                }
                Err(source) => refused = Some((directory.clone(), source)),
            }
        }
        let (path, source) = refused.expect("there is always a directory to try");
        Err(HostKeyError::Lock { path, source })
    }
}

impl Drop for KeyClaim {
    fn drop(&mut self) {
        // One that stays is found unlocked and used again.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The places to try, in this order.
fn directories() -> Vec<PathBuf> {
    let user = rustix::process::geteuid();
    let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|_| !user.is_root());
    let own = own.map(|runtime| PathBuf::from(runtime).join("evenkeel"));
    let last = PathBuf::from(format!("/tmp/evenkeel-{}", user.as_raw()));
    [Some(PathBuf::from("/run/evenkeel")), own, Some(last)].into_iter().flatten().collect()
}

/// A fingerprint is base64, whose slash is no part of a name.
fn file_name(fingerprint: &Fingerprint) -> String {
    format!("{}.lock", fingerprint.to_string().replace([':', '/'], "_"))
}

/// It holds nothing; who may reach it at all is up to its directory.
const MODE: Mode = Mode::from_raw_mode(0o644);

fn lock(path: &Path, directory: &Path) -> io::Result<KeyClaim> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => check(directory)?,
    }
    loop {
        let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        // Readable is enough to lock it, also for the service if root made it.
        let file =
            File::from(rustix::fs::open(path, flags | OFlags::RDONLY | OFlags::CREATE, MODE)?);
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        // Whoever held it may have removed it between our opening and our locking.
        let ours = file.metadata()?;
        match std::fs::symlink_metadata(path) {
            Ok(there) if (there.dev(), there.ino()) == (ours.dev(), ours.ino()) => {
                return Ok(KeyClaim { path: path.to_owned(), _file: file });
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
}

/// Root may use the service's directory; nobody else may use a directory that is not theirs alone.
fn check(directory: &Path) -> io::Result<()> {
    let found = std::fs::symlink_metadata(directory)?;
    let us = rustix::process::geteuid();
    let owned = us.is_root() || found.uid() == us.as_raw();
    if !found.is_dir() || !owned || found.mode() & 0o022 != 0 {
        let why = "it is not a directory that belongs to us alone";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn x14_a_key_is_claimed_once_and_again_when_its_holder_is_gone() {
        let place = tempfile::tempdir().unwrap();
        let directories = [place.path().join("run")];
        let one = Fingerprint([0xff; 32]);
        let other = Fingerprint([2; 32]);
        let held = KeyClaim::take_in(&directories, &one).unwrap();
        let refused = KeyClaim::take_in(&directories, &one).unwrap_err();
        assert!(matches!(refused, HostKeyError::InUse { .. }), "{refused}");
        let _another = KeyClaim::take_in(&directories, &other).unwrap();
        drop(held);
        assert_eq!(std::fs::read_dir(&directories[0]).unwrap().count(), 1, "it cleans up");
        KeyClaim::take_in(&directories, &one).unwrap();
        // What a killed process left is not in the way.
        std::fs::write(directories[0].join(file_name(&one)), "").unwrap();
        KeyClaim::take_in(&directories, &one).unwrap();
    }

    #[test]
    fn x14_a_directory_that_others_can_write_to_is_passed_over() {
        let place = tempfile::tempdir().unwrap();
        let open = place.path().join("open");
        let good = place.path().join("good");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
        let one = Fingerprint([0xff; 32]);
        let _held = KeyClaim::take_in(&[open.clone(), good.clone()], &one).unwrap();
        assert_eq!(std::fs::read_dir(&open).unwrap().count(), 0);
        assert_eq!(std::fs::read_dir(&good).unwrap().count(), 1);
        let nowhere = KeyClaim::take_in(&[open], &one).unwrap_err();
        assert!(nowhere.hint().contains("RuntimeDirectory=evenkeel"), "{}", nowhere.hint());
    }

    #[test]
    fn x14_of_many_who_want_a_key_at_once_one_has_it() {
        let place = tempfile::tempdir().unwrap();
        let directories = [place.path().join("run")];
        let one = Fingerprint([0xff; 32]);
        let inside = std::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        if let Ok(_held) = KeyClaim::take_in(&directories, &one) {
                            use std::sync::atomic::Ordering::SeqCst;
                            assert_eq!(inside.fetch_add(1, SeqCst), 0);
                            inside.fetch_sub(1, SeqCst);
                        }
                    }
                });
            }
        });
    }
}
