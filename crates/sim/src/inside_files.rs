//! The files inside containers, as far as a backup tells them apart: which of them an archive holds.
//!
//! Called when a backup is made. A machine has none here: its drives are saved block by block.

use std::collections::BTreeSet;

use evenkeel_core::model::id::GuestKind;

use crate::config::Config;

/// What every new container holds: a file of each sort that a backup treats differently.
const FIRST_FILES: [&str; 8] = [
    "/etc/hostname",
    "/home/user/notes.txt",
    "/lost+found/rescued",
    "/opt/nested/precious.img",
    "/tmp/session",
    "/var/lib/app/data.db",
    "/var/run/app.pid",
    "/var/tmp/precious.db",
];

/// Below this directory is a file system of its own that PVE did not mount.
pub const NESTED_FILE_SYSTEM: &str = "/opt/nested/";

/// What a backup leaves out of a container unless it is told otherwise.
const STANDARD_EXCLUDES: [&str; 3] = ["/tmp/?*", "/var/tmp/?*", "/var/run/?*.pid"];

pub(crate) fn first_files(kind: GuestKind) -> BTreeSet<String> {
    match kind {
        GuestKind::Lxc => FIRST_FILES.map(str::to_owned).into(),
        GuestKind::Qemu => BTreeSet::new(),
    }
}

/// The standard patterns, if the call leaves them in force.
pub(crate) fn standard_excludes(in_force: bool) -> Vec<String> {
    STANDARD_EXCLUDES.into_iter().filter(|_| in_force).map(str::to_owned).collect()
}

/// The files that an archive of a container holds.
pub(crate) fn saved_files(
    files: &BTreeSet<String>,
    excludes: &[String],
    config: &Config,
) -> BTreeSet<String> {
    let is_out = |path: &String| {
        path.starts_with(NESTED_FILE_SYSTEM)
            || config.is_set("unprivileged") && is_excluded("lost+found", path)
            || excludes.iter().any(|pattern| is_excluded(pattern, path))
    };
    files.iter().filter(|path| !is_out(path)).cloned().collect()
}

/// Whether a pattern excludes a file, as tar does it: it names the file or a directory above it, from the root if it
/// begins with a slash and from any directory otherwise.
pub fn is_excluded(pattern: &str, path: &str) -> bool {
    let above = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    let wholes: Vec<&str> = above.filter(|end| *end > 0).map(|end| &path[..end]).collect();
    if pattern.starts_with('/') {
        return wholes.iter().any(|whole| fits(pattern.as_bytes(), whole.as_bytes()));
    }
    let starts = |whole: &str| whole.match_indices('/').map(|(at, _)| at + 1).collect::<Vec<_>>();
    wholes.iter().any(|whole| {
        starts(whole).into_iter().any(|at| fits(pattern.as_bytes(), &whole.as_bytes()[at..]))
    })
}

/// `*` is any text, slashes too, and `?` is any one byte.
fn fits(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern, text) {
        ([], rest) => rest.is_empty(),
        ([b'*', after @ ..], _) => (0..=text.len()).any(|at| fits(after, &text[at..])),
        ([_, ..], []) => false,
        ([b'?', after @ ..], [_, rest @ ..]) => fits(after, rest),
        ([first, after @ ..], [letter, rest @ ..]) => first == letter && fits(after, rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_exclude_what_tar_would() {
        for (pattern, path, is_out) in [
            ("/tmp/?*", "/tmp/session", true),
            ("/tmp/?*", "/tmp/a/b", true),
            ("/tmp/?*", "/var/tmp/a", false),
            ("/var/run/?*.pid", "/var/run/app.pid", true),
            ("/var/run/?*.pid", "/var/run/app.lock", false),
            ("/var/lib", "/var/lib/app/data.db", true),
            ("/var/lib", "/var/library", false),
            ("*.db", "/var/lib/app/data.db", true),
            ("app", "/var/lib/app/data.db", true),
            ("lost+found", "/lost+found/rescued", true),
            ("found", "/lost+found/rescued", false),
        ] {
            assert_eq!(is_excluded(pattern, path), is_out, "{pattern} {path}");
        }
    }

    #[test]
    fn an_archive_lacks_what_is_excluded_and_nested() {
        let files = first_files(GuestKind::Lxc);
        let saved = |of_node: &[&str], standard, unprivileged| {
            let mut excludes = standard_excludes(standard);
            excludes.extend(of_node.iter().map(|path| (*path).to_owned()));
            let config = Config::of(&[("unprivileged", unprivileged)]);
            let saved = saved_files(&files, &excludes, &config);
            files.difference(&saved).map(String::clone).collect::<Vec<_>>()
        };
        let nested = "/opt/nested/precious.img";
        assert_eq!(saved(&[], false, "0"), [nested]);
        assert_eq!(saved(&[], false, "1"), ["/lost+found/rescued", nested]);
        let standard = [nested, "/tmp/session", "/var/run/app.pid", "/var/tmp/precious.db"];
        assert_eq!(saved(&[], true, "0"), standard);
        assert_eq!(saved(&["/var/lib/*"], false, "0"), [nested, "/var/lib/app/data.db"]);
    }
}
