//! Files that are read up to a limit and written whole or not at all.

use std::os::unix::fs::PermissionsExt as _;

use camino::Utf8Path;
use evenkeel_agent::plain_file::{self, FileError};

use crate::atomic_file::{AtomicFile, FileMode};
use crate::error::{CommandFailure, Exit};

/// The bytes of a file, if there are no more than so many.
pub(crate) fn read(path: &Utf8Path, bytes_max: usize) -> Result<Vec<u8>, CommandFailure> {
    Ok(plain_file::read(path.as_std_path(), bytes_max)?.bytes)
}

/// The text of a file.
pub(crate) fn read_text(path: &Utf8Path, bytes_max: usize) -> Result<String, CommandFailure> {
    String::from_utf8(read(path, bytes_max)?).map_err(|_| {
        CommandFailure::new(Exit::Invalid, format!("{path} is not text"))
            .hint("name the right file")
    })
}

/// Stops early where a file could not be written in the end, before anybody reads or touches anything.
pub(crate) fn must_be_free(path: &Utf8Path, replace: bool) -> Result<(), CommandFailure> {
    if !replace && path.as_std_path().symlink_metadata().is_ok() {
        return Err(there_already(path));
    }
    if !directory(path).is_dir() {
        let message = format!("there is no directory {}", directory(path));
        return Err(CommandFailure::new(Exit::NotFound, message)
            .hint("name a directory that you can write to"));
    }
    Ok(())
}

fn directory(path: &Utf8Path) -> &Utf8Path {
    path.parent().filter(|parent| !parent.as_str().is_empty()).unwrap_or(Utf8Path::new("."))
}

/// Writes a file: whole, synced, and only then under its name.
pub(crate) fn write(path: &Utf8Path, bytes: &[u8], replace: bool) -> Result<(), CommandFailure> {
    write_with_mode(path, bytes, replace, 0o644)
}

/// The same for its owner alone, in place of what was there, with the directory it lies in.
pub(crate) fn write_private(path: &Utf8Path, bytes: &[u8]) -> Result<(), CommandFailure> {
    let directory = directory(path);
    fs_err::create_dir_all(directory.as_std_path()).map_err(|error| {
        CommandFailure::new(Exit::Failed, format!("cannot make {directory}")).because(error)
    })?;
    write_with_mode(path, bytes, true, 0o600)
}

/// Whether a file is its owner's alone; none if there is none.
pub(crate) fn is_private(path: &Utf8Path) -> Option<bool> {
    let found = path.as_std_path().symlink_metadata().ok()?;
    let others = found.permissions().mode() & 0o077;
    Some(others == 0)
}

fn write_with_mode(
    path: &Utf8Path,
    bytes: &[u8],
    replace: bool,
    mode: u32,
) -> Result<(), CommandFailure> {
    let cannot = |error: std::io::Error| {
        let message = format!("cannot write {path}");
        CommandFailure::new(Exit::Failed, message)
            .because(error)
            .hint("name a directory that you can write to")
    };
    let file = AtomicFile { replaces: replace, ..AtomicFile::with_mode(FileMode::AtMost(mode)) };
    file.write(path.as_std_path(), bytes).map_err(|error| {
        let is_there = error.kind() == std::io::ErrorKind::AlreadyExists;
        if is_there { there_already(path) } else { cannot(error) }
    })
}

fn there_already(path: &Utf8Path) -> CommandFailure {
    CommandFailure::new(Exit::Failed, format!("{path} already exists"))
        .hint("nothing was written; --force replaces the file")
}

impl From<FileError> for CommandFailure {
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
