//! A file that is written whole or not at all: beside its place, synced, renamed, and its directory synced after it.
//!
//! Every file that the command line leaves behind is written here. Nobody sees it half, or with another owner or mode.

use std::fs::Permissions;
use std::io::{self, Write as _};
use std::os::unix::fs::{PermissionsExt as _, fchown};
use std::path::Path;

/// The permissions of a new file.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FileMode {
    /// Less what the umask takes.
    AtMost(u32),
    /// Whatever the umask.
    Exactly(u32),
}

/// How a file is written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AtomicFile {
    pub(crate) mode: FileMode,
    /// User and group, where they are not those of the process.
    pub(crate) owner: (Option<u32>, Option<u32>),
    /// Whether a file may be there already; it is replaced then.
    pub(crate) replaces: bool,
}

impl AtomicFile {
    /// One that replaces what is there and belongs to the process.
    pub(crate) fn with_mode(mode: FileMode) -> Self {
        Self { mode, owner: (None, None), replaces: true }
    }

    /// Writes it.
    pub(crate) fn write(self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let directory = path.parent().filter(|parent| *parent != Path::new(""));
        let directory = directory.unwrap_or(Path::new("."));
        let mut file = tempfile::Builder::new()
            .prefix(".evenkeel-")
            .permissions(Permissions::from_mode(match self.mode {
                FileMode::AtMost(mode) => mode,
                FileMode::Exactly(_) => 0o600,
            }))
            .tempfile_in(directory)?;
        let (user, group) = self.owner;
        if user.is_some() || group.is_some() {
            fchown(file.as_file(), user, group)?;
        }
        // Only once it belongs to its owner.
        if let FileMode::Exactly(mode) = self.mode {
            file.as_file().set_permissions(Permissions::from_mode(mode))?;
        }
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        let placed = if self.replaces { file.persist(path) } else { file.persist_noclobber(path) };
        placed.map_err(|error| error.error)?;
        fs_err::File::open(directory)?.sync_all()
    }
}
