//! Files that are read up to a limit and written whole or not at all.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;

use camino::Utf8Path;
use evenkeel_agent::plain_file::{self, FileError};

use crate::error::{Exit, Failure};

/// The bytes of a file, if there are no more than so many.
pub(crate) fn read(path: &Utf8Path, bytes_max: usize) -> Result<Vec<u8>, Failure> {
    Ok(plain_file::read(path.as_std_path(), bytes_max)?.bytes)
}

/// The text of a file.
pub(crate) fn read_text(path: &Utf8Path, bytes_max: usize) -> Result<String, Failure> {
    String::from_utf8(read(path, bytes_max)?).map_err(|_| {
        Failure::new(Exit::Invalid, format!("{path} is not text")).hint("name the right file")
    })
}

/// Stops early where a file could not be written in the end, before anybody reads or touches anything.
pub(crate) fn must_be_free(path: &Utf8Path, replace: bool) -> Result<(), Failure> {
    if !replace && path.as_std_path().symlink_metadata().is_ok() {
        return Err(there_already(path));
    }
    if !directory(path).is_dir() {
        let message = format!("there is no directory {}", directory(path));
        return Err(Failure::new(Exit::NotFound, message).hint("name a place you may write to"));
    }
    Ok(())
}

fn directory(path: &Utf8Path) -> &Utf8Path {
    path.parent().filter(|parent| !parent.as_str().is_empty()).unwrap_or(Utf8Path::new("."))
}

/// Writes a file: whole, synced, and only then under its name.
pub(crate) fn write(path: &Utf8Path, bytes: &[u8], replace: bool) -> Result<(), Failure> {
    write_with_mode(path, bytes, replace, 0o644)
}

/// The same for its owner alone, in place of what was there, with the directory it lies in.
pub(crate) fn write_private(path: &Utf8Path, bytes: &[u8]) -> Result<(), Failure> {
    let directory = directory(path);
    fs_err::create_dir_all(directory.as_std_path()).map_err(|error| {
        Failure::new(Exit::Failed, format!("cannot make {directory}")).because(error)
    })?;
    write_with_mode(path, bytes, true, 0o600)
}

/// Whether a file is its owner's alone; none if there is none.
pub(crate) fn is_private(path: &Utf8Path) -> Option<bool> {
    let found = path.as_std_path().symlink_metadata().ok()?;
    let others = found.permissions().mode() & 0o077;
    Some(others == 0)
}

fn write_with_mode(path: &Utf8Path, bytes: &[u8], replace: bool, mode: u32) -> Result<(), Failure> {
    let cannot = |error: std::io::Error| {
        let message = format!("cannot write {path}");
        Failure::new(Exit::Failed, message).because(error).hint("name a place you may write to")
    };
    let directory = directory(path);
    let mut file = tempfile::Builder::new()
        .prefix(".evenkeel-")
        .permissions(std::fs::Permissions::from_mode(mode))
        .tempfile_in(directory)
        .map_err(cannot)?;
    file.write_all(bytes).and_then(|()| file.as_file().sync_all()).map_err(cannot)?;
    let persisted = if replace { file.persist(path) } else { file.persist_noclobber(path) };
    match persisted {
        Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => {
            return Err(there_already(path));
        }
        persisted => persisted.map_err(|error| cannot(error.error))?,
    };
    fs_err::File::open(directory.as_std_path()).and_then(|open| open.sync_all()).map_err(cannot)
}

fn there_already(path: &Utf8Path) -> Failure {
    Failure::new(Exit::Failed, format!("{path} is there already"))
        .hint("nothing was written; --force replaces what is there")
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        let exit = match (&error, error.kind()) {
            (_, Some(std::io::ErrorKind::NotFound)) => Exit::NotFound,
            (_, Some(std::io::ErrorKind::PermissionDenied)) => Exit::Denied,
            (FileError::TooLarge { .. } | FileError::Kind { .. }, _) => Exit::Invalid,
            (FileError::Io { .. } | FileError::Unsteady { .. }, _) => Exit::Failed,
        };
        Self::new(exit, error.to_string()).hint(error.hint())
    }
}
