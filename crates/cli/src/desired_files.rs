//! Reads a directory of desired files into memory, in an order that does not depend on the machine.
//!
//! Only reads. Whether what the files say makes sense is core's to decide.

use camino::{Utf8Path, Utf8PathBuf};
use evenkeel_core::diagnostic::{Diagnostic, FILE_BYTES_MAX, Sources};

use crate::error::{Exit, Failure};

/// How many files a directory may hold: one for each of the guests that may be declared.
const FILES_MAX: usize = evenkeel_core::desired::GUESTS_MAX;

/// The endings of desired files.
const ENDINGS: &[&str] = &["json", "toml", "yaml", "yml"];

/// What was read: the files, and those that are no text.
pub(crate) struct Files {
    pub(crate) sources: Sources,
    pub(crate) unreadable: Vec<Diagnostic>,
}

/// Reads a file, or every desired file of a directory (not of those below it), sorted by name.
pub(crate) fn read(path: &Utf8Path) -> Result<Files, Failure> {
    let paths = if path.is_dir() { list(path)? } else { vec![path.to_owned()] };
    let mut files = Files { sources: Sources::default(), unreadable: Vec::new() };
    for path in paths {
        let bytes = read_bounded(&path)?;
        if let Err(diagnostic) = files.sources.add_bytes(path.as_str(), bytes) {
            files.unreadable.push(diagnostic);
        }
    }
    Ok(files)
}

fn list(directory: &Utf8Path) -> Result<Vec<Utf8PathBuf>, Failure> {
    let failed = |error| Failure::new(Exit::Failed, "cannot list the desired files").because(error);
    let mut paths = Vec::new();
    for entry in fs_err::read_dir(directory.as_std_path()).map_err(failed)? {
        let path = Utf8PathBuf::try_from(entry.map_err(failed)?.path()).map_err(|error| {
            Failure::new(Exit::Invalid, "a file name is not UTF-8").because(error)
        })?;
        let hidden = path.file_name().is_some_and(|name| name.starts_with('.'));
        if !hidden && path.extension().is_some_and(|ending| ENDINGS.contains(&ending)) {
            paths.push(path);
        }
    }
    if paths.len() > FILES_MAX {
        let message = format!("{directory} holds more than {FILES_MAX} desired files");
        return Err(Failure::new(Exit::Invalid, message).hint("join some of them"));
    }
    if paths.is_empty() {
        let message = format!("{directory} holds no desired files");
        return Err(Failure::new(Exit::Invalid, message).hint(
            "desired files end in .toml, .yaml, .yml or .json; `evenkeel import` writes them",
        ));
    }
    paths.sort();
    Ok(paths)
}

/// Reads a file, but never more than shows that it is too large.
fn read_bounded(path: &Utf8Path) -> Result<Vec<u8>, Failure> {
    use std::io::Read as _;
    let open = fs_err::File::open(path.as_std_path()).and_then(|file| {
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    });
    open.map_err(|error| {
        let exit = if error.kind() == std::io::ErrorKind::NotFound {
            Exit::NotFound
        } else {
            Exit::Failed
        };
        Failure::new(exit, "cannot read desired state").because(error)
    })
}
