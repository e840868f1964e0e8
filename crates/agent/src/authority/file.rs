//! Reads root's trust file: nothing at all, or all of it.

use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use evenkeel_core::diagnostic::{FILE_BYTES_MAX, Sources};
use evenkeel_core::sign::{Trust, trust_file};
use fs_err as fs;

use super::AuthorityError;

/// The trust store a file stands for, and its path for people; none if there is no such file.
pub(super) fn read(path: &Path) -> Result<Option<(String, Trust)>, AuthorityError> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(AuthorityError::Unreadable(error)),
    };
    let shown = path.display().to_string();
    let found = file.metadata().map_err(AuthorityError::Unreadable)?;
    let loose = |why| AuthorityError::Loose { path: shown.clone(), why };
    if found.mode() & 0o022 != 0 {
        return Err(loose("others than its owner may write to it"));
    }
    if found.uid() != 0 && found.uid() != rustix::process::geteuid().as_raw() {
        return Err(loose("it belongs to another user"));
    }
    let mut bytes = Vec::new();
    let limit = FILE_BYTES_MAX as u64 + 1;
    file.take(limit).read_to_end(&mut bytes).map_err(AuthorityError::Unreadable)?;
    let mut sources = Sources::default();
    let loaded = match sources.add_bytes(shown.clone(), bytes) {
        Ok(id) => trust_file::load(sources.get(id).expect("it was added just above")),
        Err(mistake) => Err(vec![mistake]),
    };
    match loaded {
        Ok(trust) => Ok(Some((shown, trust))),
        Err(errors) => Err(AuthorityError::Invalid { path: shown, errors, sources }),
    }
}
