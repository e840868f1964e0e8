//! Reads a directory of desired files into memory, in an order that does not depend on the machine.
//!
//! Only reads. Whether what the files say makes sense is core's to decide.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use evenkeel_core::desired::{self, Desired};
use evenkeel_core::diagnostic::{self, Diagnostic, FILE_BYTES_MAX, Sources};

/// How many files a directory may hold: one for each of the guests that may be declared.
const FILES_MAX: usize = desired::GUESTS_MAX;

/// The endings of desired files.
const ENDINGS: &[&str] = &["json", "toml", "yaml", "yml"];

/// Why files could not be read at all.
#[derive(Debug, thiserror::Error)]
pub enum DirError {
    /// There is nothing at that path.
    #[error("there are no desired files")]
    NotFound(#[source] std::io::Error),
    /// The system said no.
    #[error("cannot read desired files")]
    Unreadable(#[source] std::io::Error),
    /// A file name is not UTF-8.
    #[error("the name of {} is not UTF-8", .0.display())]
    Name(PathBuf),
    /// The directory holds no desired file.
    #[error("{} holds no desired files", .0.display())]
    Empty(PathBuf),
    /// The directory holds too many.
    #[error("{} holds more than {FILES_MAX} desired files", .0.display())]
    TooMany(PathBuf),
}

impl DirError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NotFound(_) | Self::Empty(_) => {
                "desired files end in .toml, .yaml, .yml or .json; `evenkeel import` writes them"
            }
            Self::Unreadable(_) => "check the permissions of the directory and its files",
            Self::Name(_) => "rename it",
            Self::TooMany(_) => "join some of them",
        }
    }
}

/// What was read: the files, and what they say or what is wrong with them.
#[derive(Debug)]
pub struct Loaded {
    /// The files, for showing places in them.
    pub sources: Sources,
    /// Desired state, or every mistake.
    pub desired: Result<Desired, Vec<Diagnostic>>,
}

/// Reads a file, or every desired file of a directory (not of those below it), sorted by name.
pub fn load(path: &Path) -> Result<Loaded, DirError> {
    let paths = if path.is_dir() { list(path)? } else { vec![path.to_owned()] };
    let mut sources = Sources::default();
    let mut errors = Vec::new();
    for path in paths {
        let name = path.to_str().ok_or_else(|| DirError::Name(path.clone()))?;
        errors.extend(sources.add_bytes(name, read_bounded(&path)?).err());
    }
    let desired = match desired::load(&sources) {
        Ok(desired) if errors.is_empty() => Ok(desired),
        Ok(_) => Err(errors),
        Err(more) => {
            errors.extend(more);
            diagnostic::sort(&mut errors);
            Err(errors)
        }
    };
    Ok(Loaded { sources, desired })
}

fn list(directory: &Path) -> Result<Vec<PathBuf>, DirError> {
    let mut paths = Vec::new();
    for entry in fs_err::read_dir(directory).map_err(DirError::Unreadable)? {
        let path = entry.map_err(DirError::Unreadable)?.path();
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let ending = path.extension().and_then(|ending| ending.to_str());
        if !hidden && ending.is_some_and(|ending| ENDINGS.contains(&ending)) {
            paths.push(path);
        }
    }
    if paths.len() > FILES_MAX {
        return Err(DirError::TooMany(directory.to_owned()));
    }
    if paths.is_empty() {
        return Err(DirError::Empty(directory.to_owned()));
    }
    paths.sort();
    Ok(paths)
}

/// Reads a file, but never more than shows that it is too large.
fn read_bounded(path: &Path) -> Result<Vec<u8>, DirError> {
    let read = fs_err::File::open(path).and_then(|file| {
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    });
    read.map_err(|error| {
        let missing = error.kind() == std::io::ErrorKind::NotFound;
        if missing { DirError::NotFound(error) } else { DirError::Unreadable(error) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            fs_err::write(directory.path().join(name), bytes).unwrap();
        }
        directory
    }

    #[test]
    fn all_three_syntaxes_are_read_in_the_order_of_their_names() {
        let directory = directory(&[
            ("b.yaml", b"guest: {102: {kind: lxc}}"),
            ("a.toml", b"[guest.101]\nkind = \"lxc\"\n"),
            ("c.json", br#"{"guest":{"103":{"kind":"lxc"}}}"#),
            (".hidden.toml", b"not read"),
            ("notes.txt", b"not read"),
        ]);
        fs_err::create_dir(directory.path().join("below.toml.d")).unwrap();
        let loaded = load(directory.path()).unwrap();
        assert_eq!(loaded.desired.unwrap().guests.len(), 3);
        let names: Vec<&str> =
            loaded.sources.iter().filter_map(|file| file.path.rsplit('/').next()).collect();
        assert_eq!(names, ["a.toml", "b.yaml", "c.json"]);
    }

    #[test]
    fn n12_nothing_is_taken_from_a_set_that_has_an_error() {
        let directory = directory(&[
            ("good.toml", b"[guest.101]\nkind = \"lxc\"\n"),
            ("no-text.toml", b"\xff\xfe"),
            ("wrong.toml", b"[guest.9]\n"),
        ]);
        let errors = load(directory.path()).unwrap().desired.unwrap_err();
        assert_eq!(errors.len(), 2, "{errors:?}");
    }

    #[test]
    fn n12_what_is_not_there_is_an_error_and_not_an_empty_desired_state() {
        let empty = directory(&[("notes.txt", b"")]);
        assert!(matches!(load(empty.path()), Err(DirError::Empty(_))));
        assert!(matches!(load(&empty.path().join("nope")), Err(DirError::NotFound(_))));
    }

    #[test]
    fn a_file_without_end_is_not_read_to_its_end() {
        let loaded = load(Path::new("/dev/zero")).unwrap();
        assert!(loaded.desired.is_err());
    }
}
