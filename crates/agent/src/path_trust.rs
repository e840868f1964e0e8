//! Who could have written a file: the rule `sshd` has for a user's files, for everything the agent obeys.
//!
//! `agent.toml`, the trust file, a named certificate authority, the desired directory and the files in it must belong
//! to root or to the user evenkeel runs as and must not be writable by group or others, and the same holds for every
//! directory on the way to them, links included: whoever can write to one of those can put another file in place. A
//! directory with the sticky bit (`/tmp`) may be writable on the way, because only the owner of an entry can replace
//! it there. Nothing is changed here; a refusal names the path, what is wrong with it and the command that mends it.

use std::ffi::OsString;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

/// A path that somebody else could have written to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoosePath {
    /// Group or others may write to it.
    #[error(
        "{} has mode {mode:04o}: group or others can {}", path.display(),
        if *.directory { "replace its files" } else { "write to it" }
    )]
    Writable {
        /// The file or directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// Whether it is a directory.
        directory: bool,
    },
    /// It belongs to somebody who is neither root nor us.
    #[error(
        "{} belongs to user {owner}: it must belong to root or to the user evenkeel runs as ({us})", path.display()
    )]
    Owner {
        /// The file or directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// Us.
        us: u32,
    },
}

impl LoosePath {
    /// The command that mends it.
    pub fn hint(&self) -> String {
        match self {
            Self::Writable { path, .. } => {
                format!("check its content, then: chmod go-w {}", path.display())
            }
            Self::Owner { path, us, .. } => {
                format!("check its content, then: chown {us} {}", path.display())
            }
        }
    }
}

/// How many links may be followed, as in the kernel.
const LINKS_MAX: usize = 40;

/// Checks a path and everything on the way to it. What is not there is not loose: whoever reads it will say so.
pub(crate) fn check_path(path: &Path) -> Result<(), LoosePath> {
    match walk(path) {
        Ok(found) => found,
        Err(_) => Ok(()),
    }
}

/// Checks the metadata of a file that is open already, in a directory that was checked.
pub(crate) fn check_entry(path: &Path, found: &Metadata) -> Result<(), LoosePath> {
    check_owner(path, found)?;
    check_mode(path, found)
}

/// Walks as the kernel does, one name after the other, through every link.
fn walk(path: &Path) -> io::Result<Result<(), LoosePath>> {
    let mut rest: Vec<OsString> = names(&std::path::absolute(path)?);
    let mut here = PathBuf::from("/");
    let mut links = 0;
    let mut found = std::fs::symlink_metadata(&here)?;
    while let Some(name) = rest.pop() {
        // The directory the name is looked up in.
        if let Err(loose) = check_on_the_way(&here, &found) {
            return Ok(Err(loose));
        }
        if name == ".." {
            here.pop();
            found = std::fs::symlink_metadata(&here)?;
            continue;
        }
        let there = here.join(&name);
        let entry = std::fs::symlink_metadata(&there)?;
        if let Err(loose) = check_owner(&there, &entry) {
            return Ok(Err(loose));
        }
        if entry.is_symlink() {
            links += 1;
            if links > LINKS_MAX {
                return Err(io::Error::from(rustix::io::Errno::LOOP));
            }
            let target = std::fs::read_link(&there)?;
            rest.extend(names(&target));
            if target.is_absolute() {
                here = PathBuf::from("/");
                found = std::fs::symlink_metadata(&here)?;
            }
        } else {
            (here, found) = (there, entry);
        }
    }
    Ok(check_owner(&here, &found).and_then(|()| check_mode(&here, &found)))
}

/// The names of a path, the last one first.
fn names(path: &Path) -> Vec<OsString> {
    let name = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    };
    path.components().rev().filter_map(name).collect()
}

fn check_on_the_way(path: &Path, found: &Metadata) -> Result<(), LoosePath> {
    check_owner(path, found)?;
    if found.mode() & STICKY != 0 { Ok(()) } else { check_mode(path, found) }
}

const STICKY: u32 = 0o1000;

fn check_owner(path: &Path, found: &Metadata) -> Result<(), LoosePath> {
    let us = rustix::process::geteuid().as_raw();
    let owner = found.uid();
    if owner == 0 || owner == us {
        Ok(())
    } else {
        Err(LoosePath::Owner { path: path.to_owned(), owner, us })
    }
}

fn check_mode(path: &Path, found: &Metadata) -> Result<(), LoosePath> {
    let mode = found.mode() & 0o7777;
    if mode & 0o022 == 0 {
        Ok(())
    } else {
        let path = path.to_owned();
        let directory = found.is_dir();
        Err(LoosePath::Writable { path, mode, directory })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn chmod(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    /// `top/middle/file`, all of it ours alone, below `/tmp`, which is everybody's and sticky.
    fn tree() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let top = tempfile::tempdir().unwrap();
        let middle = top.path().join("middle");
        std::fs::create_dir(&middle).unwrap();
        let file = middle.join("file");
        std::fs::write(&file, "x").unwrap();
        chmod(top.path(), 0o700);
        chmod(&middle, 0o755);
        chmod(&file, 0o644);
        (top, middle, file)
    }

    #[test]
    fn x14_a_file_is_loose_if_it_or_any_directory_above_it_can_be_written_by_others() {
        let (top, middle, file) = tree();
        assert_eq!(check_path(&file), Ok(()));
        for (path, good) in [(top.path(), 0o700), (&middle, 0o755), (&file, 0o644)] {
            for bad in [0o777, 0o775, 0o757, 0o722, 0o702] {
                chmod(path, bad);
                let loose = check_path(&file).unwrap_err();
                let told = format!("{loose} {}", loose.hint());
                let command = format!("chmod go-w {}", path.display());
                assert!(told.contains(&format!("{bad:04o}")) && told.contains(&command), "{told}");
            }
            chmod(path, good);
            assert_eq!(check_path(&file), Ok(()));
        }
    }

    #[test]
    fn x14_a_sticky_directory_is_harmless_on_the_way_and_loose_as_the_end() {
        let (_top, middle, file) = tree();
        chmod(&middle, 0o1777);
        assert_eq!(check_path(&file), Ok(()));
        assert!(check_path(&middle).is_err(), "others can add files to it");
    }

    #[test]
    fn x14_a_link_is_as_loose_as_its_own_directory_and_as_what_it_leads_to() {
        let (_one, safe, file) = tree();
        let (_two, open, other) = tree();
        symlink(&file, open.join("link")).unwrap();
        symlink(&other, safe.join("link")).unwrap();
        symlink("../middle/link", safe.join("link-to-link")).unwrap();
        assert_eq!(check_path(&safe.join("link-to-link")), Ok(()));
        chmod(&open, 0o777);
        let loose = Err(LoosePath::Writable { path: open.clone(), mode: 0o777, directory: true });
        assert_eq!(check_path(&safe.join("link-to-link")), loose);
        assert_eq!(check_path(&open.join("link")), loose);
        assert_eq!(check_path(&open.join("../middle/link")), loose);
        assert_eq!(check_path(&file), Ok(()));
    }

    #[test]
    fn what_is_not_there_is_not_loose_and_a_loop_ends() {
        let (_top, middle, _) = tree();
        assert_eq!(check_path(&middle.join("nowhere/at/all")), Ok(()));
        symlink("loop", middle.join("loop")).unwrap();
        assert_eq!(check_path(&middle.join("loop")), Ok(()));
    }

    #[test]
    fn x14_what_belongs_to_another_user_is_loose() {
        let (top, _, file) = tree();
        if !rustix::process::geteuid().is_root() {
            return;
        }
        std::os::unix::fs::lchown(top.path(), Some(4711), None).unwrap();
        let loose = check_path(&file).unwrap_err();
        assert_eq!(loose, LoosePath::Owner { path: top.path().to_owned(), owner: 4711, us: 0 });
        assert!(loose.hint().contains("chown 0 "), "{}", loose.hint());
    }
}
