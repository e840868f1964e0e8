//! What no backup of a container holds, whatever its configuration says: the paths that the node's backup defaults leave
//! out, and what vzdump never saves.
//!
//! Read from `GET /nodes/NODE/vzdump/defaults`. It matches no path against a file: which files a guest holds is not known
//! here, so every pattern counts as something that is lost.

use std::collections::BTreeSet;
use std::fmt::Write as _;

/// How an entry of `not_in_backup` names an excluded path.
const PATH: &str = "path";

/// How an entry names something that is in no backup of any container.
const ALWAYS: &str = "always";

/// What no backup of any container holds: directories that a file system check fills, file systems and subvolumes below
/// a mount that Proxmox did not mount itself, and what a `.pxarexclude` inside the guest lists, on a backup server.
const NEVER_SAVED: [&str; 3] = ["listed-in-.pxarexclude", "lost+found", "nested-file-systems"];

/// The paths that the node leaves out of every container's backup, as patterns. No call can override them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExcludedPaths(BTreeSet<String>);

impl ExcludedPaths {
    /// `exclude-path` as the defaults tell it: Proxmox joins the patterns with commas. A list is read, too. A pattern that
    /// holds a comma is therefore told in two parts.
    pub fn read(text: Option<&str>) -> Self {
        let text = text.unwrap_or_default();
        let listed =
            serde_json::from_str::<Vec<String>>(text).unwrap_or_else(|_| vec![text.to_owned()]);
        let patterns = listed.iter().flat_map(|pattern| pattern.split(','));
        let patterns = patterns.map(str::trim).filter(|pattern| !pattern.is_empty());
        Self(patterns.map(str::to_owned).collect())
    }

    /// What a backup of a container leaves out, as entries of `not_in_backup`.
    pub(super) fn entries(&self) -> impl Iterator<Item = String> {
        let paths = self.0.iter().map(|pattern| format!("{PATH}={}", plain(pattern)));
        paths.chain(never_saved())
    }
}

/// Whether a list that was signed for a container names what no backup of one holds: older lists did not.
pub(super) fn names_never_saved(not_in_backup: &BTreeSet<String>) -> bool {
    never_saved().all(|entry| not_in_backup.contains(&entry))
}

/// Whether an entry names an excluded path, or something that is never saved.
pub(crate) fn is_exclusion(key: &str, what: &str) -> bool {
    match key {
        PATH => !what.is_empty() && what.bytes().all(|byte| is_plain(byte) || byte == b'%'),
        ALWAYS => NEVER_SAVED.contains(&what),
        _ => false,
    }
}

fn never_saved() -> impl Iterator<Item = String> {
    NEVER_SAVED.into_iter().map(|what| format!("{ALWAYS}={what}"))
}

/// A pattern in letters that need no care in a list and on a screen; the others become `%XX`.
fn plain(pattern: &str) -> String {
    let mut text = String::new();
    for byte in pattern.bytes() {
        if is_plain(byte) {
            text.push(char::from(byte));
        } else {
            write!(text, "%{byte:02X}").expect("a string takes every text");
        }
    }
    text
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b',' | b'%')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action_registry::ParamForm;

    #[test]
    fn y01_excluded_paths_are_read_in_every_form_and_each_is_an_entry() {
        let read = |text| ExcludedPaths::read(text).entries().collect::<BTreeSet<_>>();
        let bare = read(None);
        assert_eq!(bare.len(), NEVER_SAVED.len(), "{bare:?}");
        assert!(names_never_saved(&bare) && !names_never_saved(&BTreeSet::new()));
        for (text, paths) in [
            ("", &[][..]),
            ("/data/*", &["path=/data/*"]),
            ("/data/*,*.bak", &["path=*.bak", "path=/data/*"]),
            ("[\"/data/*\",\"*.bak\"]", &["path=*.bak", "path=/data/*"]),
            ("[a-z]*", &["path=[a-z]*"]),
            ("/my data/?*,/50%", &["path=/50%25", "path=/my%20data/?*"]),
            ("/ü\u{202e}", &["path=/%C3%BC%E2%80%AE"]),
        ] {
            let read = read(Some(text));
            let expected: BTreeSet<String> =
                bare.iter().cloned().chain(paths.iter().map(|path| (*path).to_owned())).collect();
            assert_eq!(read, expected, "{text}");
            let listed = read.into_iter().collect::<Vec<_>>().join(",");
            assert!(ParamForm::LeftOut.fits(&listed), "{listed}");
        }
        for bent in ["path=", "path=a b", "path=ü", "always=every+thing", "always="] {
            assert!(!ParamForm::LeftOut.fits(bent), "{bent}");
        }
    }
}
