//! Finds the desired files of a directory and of those below it, and names what it passes over.
//!
//! Hidden files and directories are left out without a word (`.git`, editors' swap files); everything else that is no
//! desired file is told, because a `.TOML` or a sub-directory that nobody reads is a guest that nobody keeps. A link may
//! lead to what is in the tree, and each file is read once, however many ways lead to it; a link that leads out is an
//! error, because what it brings in was not put there by whoever may write to the tree. Only looks, reads no file.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use super::dir::{DirError, FILES_MAX};

/// The endings of desired files, in lower case; files may have them in any.
const ENDINGS: &[&str] = &["json", "toml", "yaml", "yml"];

/// How deep directories may lie in one another: sites, racks and teams take three or four, and a tree deeper than this
/// was named by mistake.
pub(super) const DEPTH_MAX: usize = 16;

/// How much there may be in a tree, desired files and everything else: ten for each guest, and few enough that
/// `dir = "/"` ends at once.
pub(super) const ENTRIES_MAX: usize = 10 * FILES_MAX;

/// What a tree holds.
#[derive(Debug, Default)]
pub(super) struct FoundFiles {
    /// Desired files, in order.
    pub(super) files: Vec<PathBuf>,
    /// The directories below, each of which could put files into the set.
    pub(super) directories: Vec<PathBuf>,
    /// Everything that is neither.
    pub(super) passed_over: Vec<PassedOver>,
}

/// A file that was not read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PassedOver {
    /// The file.
    pub path: PathBuf,
}

impl fmt::Display for PassedOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        write!(f, "{path} is not read: its name does not end as a desired file's does")
    }
}

impl PassedOver {
    /// What to do about it.
    pub const HINT: &str =
        "desired files end in .toml, .yaml, .yml or .json; hide others with a dot";
}

/// One file that was named.
pub(super) fn single(path: &Path) -> FoundFiles {
    FoundFiles { files: vec![path.to_owned()], ..FoundFiles::default() }
}

/// Walks a directory.
pub(super) fn walk(root: &Path) -> Result<FoundFiles, DirError> {
    let real_root = fs_err::canonicalize(root).map_err(DirError::Unreadable)?;
    let mut walk = TreeWalk {
        root,
        seen: BTreeSet::from([real_root.clone()]),
        real_root,
        entries: 0,
        found: FoundFiles::default(),
    };
    walk.directory(root, 0)?;
    if walk.found.files.is_empty() {
        return Err(DirError::Empty(root.to_owned(), walk.found.passed_over));
    }
    Ok(walk.found)
}

struct TreeWalk<'a> {
    root: &'a Path,
    real_root: PathBuf,
    /// What was reached, by its own path: links can lead to one thing in many ways, and in circles.
    seen: BTreeSet<PathBuf>,
    entries: usize,
    found: FoundFiles,
}

impl TreeWalk<'_> {
    fn directory(&mut self, directory: &Path, depth: usize) -> Result<(), DirError> {
        if depth > DEPTH_MAX {
            return Err(DirError::TooDeep(directory.to_owned()));
        }
        let mut paths = Vec::new();
        for entry in fs_err::read_dir(directory).map_err(DirError::Unreadable)? {
            let path = entry.map_err(DirError::Unreadable)?.path();
            let path = path.strip_prefix(".").map(Path::to_owned).unwrap_or(path);
            if !is_hidden(&path) {
                self.entries += 1;
                paths.push(path);
            }
            if self.entries > ENTRIES_MAX {
                return Err(DirError::TooMuch(self.root.to_owned()));
            }
        }
        paths.sort();
        for path in paths {
            self.entry(path, depth)?;
        }
        Ok(())
    }

    fn entry(&mut self, path: PathBuf, depth: usize) -> Result<(), DirError> {
        let found = fs_err::symlink_metadata(&path).map_err(DirError::Unreadable)?;
        let is_dir = if found.is_symlink() { path.is_dir() } else { found.is_dir() };
        if !is_dir && !is_desired(&path) {
            self.found.passed_over.push(PassedOver { path });
            return Ok(());
        }
        match fs_err::canonicalize(&path) {
            Ok(target) if found.is_symlink() && !target.starts_with(&self.real_root) => {
                return Err(DirError::LeadsOut { link: path, target });
            }
            Ok(target) if !self.seen.insert(target.clone()) => return Ok(()),
            // A link that leads nowhere is told by whoever opens it.
            Ok(_) | Err(_) => {}
        }
        if is_dir {
            self.directory(&path, depth + 1)?;
            self.found.directories.push(path);
            return Ok(());
        }
        if self.found.files.len() == FILES_MAX {
            return Err(DirError::TooMany(self.root.to_owned()));
        }
        self.found.files.push(path);
        Ok(())
    }
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

fn is_desired(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| ENDINGS.iter().any(|ours| ours.eq_ignore_ascii_case(ending)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A tree with these files, all of them empty.
    fn tree(files: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for file in files {
            let path = root.path().join(file);
            fs_err::create_dir_all(path.parent().unwrap()).unwrap();
            fs_err::write(path, "").unwrap();
        }
        root
    }

    fn names(root: &Path, paths: &[PathBuf]) -> Vec<String> {
        paths.iter().map(|path| path.strip_prefix(root).unwrap().display().to_string()).collect()
    }

    #[test]
    fn directories_below_and_endings_in_any_case_are_read_and_the_rest_is_named() {
        let root = tree(&[
            "web.toml",
            "DB.TOML",
            "team/a/mail.yml",
            "team/b.Yaml",
            "team/c.json",
            ".git/config.toml",
            ".hidden.toml",
            "team/.swap.toml",
            "web.toml~",
            "old.toml.bak",
            "web.toml.swp",
            "README",
        ]);
        let found = walk(root.path()).unwrap();
        let read = ["DB.TOML", "team/a/mail.yml", "team/b.Yaml", "team/c.json", "web.toml"];
        assert_eq!(names(root.path(), &found.files), read);
        let passed: Vec<PathBuf> = found.passed_over.iter().map(|one| one.path.clone()).collect();
        let told = ["README", "old.toml.bak", "web.toml.swp", "web.toml~"];
        assert_eq!(names(root.path(), &passed), told);
        assert!(found.passed_over[0].to_string().contains("README is not read"));
    }

    #[test]
    fn a_link_may_lead_around_in_the_tree_and_never_out_of_it() {
        let root = tree(&["team/web.toml", "..data/db.toml"]);
        let at = |name: &str| root.path().join(name);
        symlink(at("team"), at("again")).unwrap();
        symlink(root.path(), at("team/up")).unwrap();
        symlink("team/web.toml", at("also.toml")).unwrap();
        symlink("..data/db.toml", at("db.toml")).unwrap();
        let found = walk(root.path()).unwrap();
        assert_eq!(names(root.path(), &found.files), ["again/web.toml", "db.toml"], "each once");

        let outside = tree(&["x.toml", "notes"]);
        symlink(outside.path().join("notes"), at("notes")).unwrap();
        assert_eq!(walk(root.path()).unwrap().passed_over.len(), 1, "nothing is read through it");
        for (link, target) in [("x.toml", "x.toml"), ("elsewhere", "")] {
            symlink(outside.path().join(target), at(link)).unwrap();
            let error = walk(root.path()).unwrap_err();
            assert!(matches!(&error, DirError::LeadsOut { .. }), "{error}");
            assert!(error.to_string().contains(link) && !error.hint().is_empty(), "{error}");
            fs_err::remove_file(at(link)).unwrap();
        }
    }

    #[test]
    fn a_tree_without_end_or_without_files_is_refused_by_name() {
        let deep = format!("{}x.toml", "d/".repeat(DEPTH_MAX));
        assert_eq!(walk(tree(&[&deep]).path()).unwrap().files.len(), 1);
        let deeper = format!("{}x.toml", "d/".repeat(DEPTH_MAX + 1));
        assert!(matches!(walk(tree(&[&deeper]).path()), Err(DirError::TooDeep(_))));
        assert!(matches!(walk(tree(&["notes", "d/notes"]).path()), Err(DirError::Empty(..))));
    }
}
