//! Reads a directory of desired files into memory, in an order that does not depend on the machine.
//!
//! ```text
//!   directory ──tree.rs──> the desired files below it, and what was passed over ──> text ──core──> Desired, or mistakes
//! ```
//!
//! Only reads. Whether what the files say makes sense is core's to decide.

use std::path::{Path, PathBuf};

use evenkeel_core::desired::{self, Desired, Origins};
use evenkeel_core::words::diagnostic::{self, Diagnostic, FILE_BYTES_MAX, Sources};

use super::tree::{self, PassedOver};
use crate::path_trust::{LoosePath, check_entry, check_path};
use crate::plain_file::{self, FileError};

/// How many files a directory may hold: one for each of the guests that may be declared.
pub(super) const FILES_MAX: usize = desired::GUESTS_MAX;

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
    Empty(PathBuf, Vec<PassedOver>),
    /// The directory holds too many.
    #[error("{} holds more than {FILES_MAX} desired files", .0.display())]
    TooMany(PathBuf),
    /// The directory holds so much else that it is not one of desired files.
    #[error("{} holds more than {} files", .0.display(), tree::ENTRIES_MAX)]
    TooMuch(PathBuf),
    /// Directories in directories, without end in sight.
    #[error("{} lies more than {} directories deep", .0.display(), tree::DEPTH_MAX)]
    TooDeep(PathBuf),
    /// A link leads to what was not put into this directory.
    #[error("{} leads out of the desired directory, to {}", link.display(), target.display())]
    LeadsOut {
        /// The link.
        link: PathBuf,
        /// Where it leads.
        target: PathBuf,
    },
}

impl DirError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Loose(loose) => return loose.hint(),
            Self::File(error) => error.hint(),
            Self::Empty(_, passed_over) if !passed_over.is_empty() => {
                let name = passed_over[0].path.display();
                return format!("rename {name} to end in .toml, .yaml, .yml or .json");
            }
            Self::NotFound(_) | Self::Empty(..) => {
                "desired files end in .toml, .yaml, .yml or .json; `evenkeel import` writes them"
            }
            Self::Unreadable(_) => "check the permissions of the directory and its files",
            Self::Name(_) => "rename it",
            Self::TooMany(_) => "join some of them",
            Self::TooMuch(_) => "name the directory that holds the desired files and little else",
            Self::TooDeep(_) => "move the files up; two or three directories are plenty",
            Self::LeadsOut { .. } => {
                "put the file itself there; a link may lead only within the directory"
            }
        }
        .to_owned()
    }
}

/// What was read: the files, and what they say or what is wrong with them.
#[derive(Debug)]
pub struct LoadedFiles {
    /// The files, for showing places in them.
    pub sources: Sources,
    /// Desired state, or every mistake.
    pub desired: Result<Desired, Vec<Diagnostic>>,
    /// What looks as if somebody meant it to be read, and was not.
    pub passed_over: Vec<PassedOver>,
    /// Where what is declared comes from; of files with a mistake nothing is told.
    pub origins: Origins,
}

/// Reads a file, or every desired file of a directory and of those below it, sorted by path. For looking at files only:
/// whoever acts by them calls [`load_believed`].
pub fn load(path: &Path) -> Result<LoadedFiles, DirError> {
    read_all(path, FileBelief::Any)
}

/// The same, refused if anybody but root and we could have written them.
pub fn load_believed(path: &Path) -> Result<LoadedFiles, DirError> {
    let loaded = read_all(path, FileBelief::OursOnly)?;
    check_path(path).map_err(DirError::Loose)?;
    Ok(loaded)
}

/// Whose files are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileBelief {
    /// Anybody's.
    Any,
    /// Only what nobody but root and we could have written.
    OursOnly,
}

fn read_all(path: &Path, belief: FileBelief) -> Result<LoadedFiles, DirError> {
    let listed = path.is_dir();
    let found = if listed { tree::walk(path)? } else { tree::single(path) };
    let mut sources = Sources::default();
    let mut errors = Vec::new();
    for directory in &found.directories {
        check(directory, &fs_err::metadata(directory).map_err(DirError::Unreadable)?, belief)?;
    }
    for path in &found.files {
        let name = path.to_str().ok_or_else(|| DirError::Name(path.clone()))?;
        let file = plain_file::read(path, FILE_BYTES_MAX).map_err(|error| {
            let missing = !listed && error.is_not_found();
            if missing { DirError::NotFound(error) } else { DirError::File(error) }
        })?;
        check(path, &file.metadata, belief)?;
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
    Ok(LoadedFiles { sources, desired, origins, passed_over: found.passed_over })
}

/// Everything above the desired directory is checked at the end, and each directory in it here: a file that is no link
/// stands for itself.
fn check(path: &Path, found: &std::fs::Metadata, belief: FileBelief) -> Result<(), DirError> {
    if belief == FileBelief::Any {
        return Ok(());
    }
    let is_link = path.symlink_metadata().is_ok_and(|found| found.is_symlink());
    let checked = if is_link { check_path(path) } else { check_entry(path, found) };
    checked.map_err(DirError::Loose)
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
        let passed: Vec<String> = loaded.passed_over.iter().map(ToString::to_string).collect();
        assert!(matches!(passed.as_slice(), [one] if one.contains("notes.txt")), "{passed:?}");
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
        assert!(matches!(load(empty.path()), Err(DirError::Empty(..))));
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
        let directory = files.path();
        let file = files.path().join("web.toml");
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
        let below = directory.join("below");
        fs_err::create_dir(&below).unwrap();
        let target = below.join("db.toml");
        std::fs::write(&target, "[guest.102]\nkind = \"lxc\"\n").unwrap();
        chmod(&target, 0o644);
        assert_eq!(load_believed(directory).unwrap().desired.unwrap().guests.len(), 2);
        chmod(&below, 0o777);
        assert!(matches!(load_believed(directory), Err(DirError::Loose(_))), "a directory below");
        chmod(&below, 0o755);
        std::os::unix::fs::symlink(&below, directory.join("also-below")).unwrap();
        assert_eq!(load_believed(directory).unwrap().desired.unwrap().guests.len(), 2, "each once");
    }
}
