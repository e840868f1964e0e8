//! Reads a directory of desired files into memory, in an order that does not depend on the machine.
//!
//! Only reads. Whether what the files say makes sense is core's to decide.

use std::path::{Path, PathBuf};

use evenkeel_core::desired::{self, Desired, Origins};
use evenkeel_core::diagnostic::{self, Diagnostic, FILE_BYTES_MAX, Sources};

use crate::path_trust::{LoosePath, check_entry, check_path};
use crate::plain_file::{self, FileError, PlainFile};

/// How many files a directory may hold: one for each of the guests that may be declared.
const FILES_MAX: usize = desired::GUESTS_MAX;

/// The endings of desired files.
const ENDINGS: &[&str] = &["json", "toml", "yaml", "yml"];

/// Why files could not be read at all.
#[derive(Debug, thiserror::Error)]
pub enum DirError {
    /// There is nothing at that path.
    #[error("there are no desired files: {0}")]
    NotFound(FileError),
    /// The system said no.
    #[error("cannot read desired files")]
    Unreadable(#[source] std::io::Error),
    /// Something else than a plain file stands there, or it cannot be read.
    #[error("a desired file cannot be used: {0}")]
    File(FileError),
    /// Somebody else could have written them.
    #[error("desired files are not believed: {0}")]
    Loose(LoosePath),
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
    pub fn hint(&self) -> String {
        match self {
            Self::Loose(loose) => return loose.hint(),
            Self::File(error) => error.hint(),
            Self::NotFound(_) | Self::Empty(_) => {
                "desired files end in .toml, .yaml, .yml or .json; `evenkeel import` writes them"
            }
            Self::Unreadable(_) => "check the permissions of the directory and its files",
            Self::Name(_) => "rename it",
            Self::TooMany(_) => "join some of them",
        }
        .to_owned()
    }
}

/// What was read: the files, and what they say or what is wrong with them.
#[derive(Debug)]
pub struct Loaded {
    /// The files, for showing places in them.
    pub sources: Sources,
    /// Desired state, or every mistake.
    pub desired: Result<Desired, Vec<Diagnostic>>,
    /// Where what is declared comes from; of files with a mistake nothing is told.
    pub origins: Origins,
}

/// Reads a file, or every desired file of a directory (not of those below it), sorted by name. For looking at files
/// only: whoever acts by them calls [`load_believed`].
pub fn load(path: &Path) -> Result<Loaded, DirError> {
    read_all(path, |_, _| Ok(()))
}

/// The same, refused if anybody but root and we could have written them.
pub fn load_believed(path: &Path) -> Result<Loaded, DirError> {
    let loaded = read_all(path, check_file)?;
    check_path(path).map_err(DirError::Loose)?;
    Ok(loaded)
}

fn read_all(
    path: &Path,
    check: impl Fn(&Path, &PlainFile) -> Result<(), LoosePath>,
) -> Result<Loaded, DirError> {
    let listed = path.is_dir();
    let paths = if listed { list(path)? } else { vec![path.to_owned()] };
    let mut sources = Sources::default();
    let mut errors = Vec::new();
    for path in paths {
        let name = path.to_str().ok_or_else(|| DirError::Name(path.clone()))?;
        let file = plain_file::read(&path, FILE_BYTES_MAX).map_err(|error| {
            let missing = !listed && error.is_not_found();
            if missing { DirError::NotFound(error) } else { DirError::File(error) }
        })?;
        check(&path, &file).map_err(DirError::Loose)?;
        errors.extend(sources.add_bytes(name, file.bytes).err());
    }
    let mut origins = Origins::default();
    let desired = match desired::load_with_origins(&sources) {
        Ok((desired, whence)) if errors.is_empty() => {
            origins = whence;
            Ok(desired)
        }
        Ok(_) => Err(errors),
        Err(more) => {
            errors.extend(more);
            diagnostic::sort(&mut errors);
            Err(errors)
        }
    };
    Ok(Loaded { sources, desired, origins })
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

/// The directory and everything above it were checked, so that a file that is no link stands for itself.
fn check_file(path: &Path, file: &PlainFile) -> Result<(), LoosePath> {
    let is_link = path.symlink_metadata().is_ok_and(|found| found.is_symlink());
    if is_link { check_path(path) } else { check_entry(path, &file.metadata) }
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
    fn x09_a_file_without_end_or_too_large_is_refused() {
        assert!(matches!(load(Path::new("/dev/zero")), Err(DirError::File(_))));
        let large = directory(&[("large.toml", &vec![b'#'; FILE_BYTES_MAX + 1])]);
        assert!(matches!(load(large.path()), Err(DirError::File(_))));
    }

    #[test]
    fn x14_files_that_others_could_have_written_are_looked_at_and_not_obeyed() {
        use std::os::unix::fs::PermissionsExt as _;
        let files = directory(&[("web.toml", b"[guest.101]\nkind = \"lxc\"\n")]);
        let (directory, file) = (files.path(), files.path().join("web.toml"));
        let chmod = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        chmod(&file, 0o644);
        assert!(load_believed(directory).is_ok());
        for (path, good) in [(directory, 0o700), (&file, 0o644)] {
            for bad in [0o777, 0o1777, 0o770, 0o702] {
                chmod(path, bad);
                let error = load_believed(directory).unwrap_err();
                let told = format!("{error} {}", error.hint());
                let named = format!("chmod go-w {}", path.display());
                assert!(told.contains(&named) && told.contains(&format!("{bad:o}")), "{told}");
                assert!(load(directory).is_ok(), "looking is harmless");
            }
            chmod(path, good);
        }
        let elsewhere = tempfile::tempdir().unwrap();
        let target = elsewhere.path().join("db.toml");
        std::fs::write(&target, "[guest.102]\nkind = \"lxc\"\n").unwrap();
        chmod(&target, 0o644);
        std::os::unix::fs::symlink(&target, directory.join("db.toml")).unwrap();
        assert_eq!(load_believed(directory).unwrap().desired.unwrap().guests.len(), 2);
        chmod(elsewhere.path(), 0o777);
        assert!(matches!(load_believed(directory), Err(DirError::Loose(_))));
    }
}
