//! Reads root's trust file: nothing at all, or all of it.

use std::path::Path;

use evenkeel_core::sign::{TrustedSigners, trust_file};
use evenkeel_core::words::diagnostic::{FILE_BYTES_MAX, Sources};

use super::AuthorityError;
use crate::path_trust::check_path;
use crate::plain_file;

/// The trust store a file stands for, and its path for people; none if there is no such file.
pub(super) fn read(path: &Path) -> Result<Option<(String, TrustedSigners)>, AuthorityError> {
    let file = match plain_file::read(path, FILE_BYTES_MAX) {
        Ok(file) => file,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(AuthorityError::Unreadable(error)),
    };
    check_path(path).map_err(AuthorityError::Loose)?;
    let shown = path.display().to_string();
    let mut sources = Sources::default();
    let loaded = match sources.add_bytes(shown.clone(), file.bytes) {
        Ok(id) => trust_file::load(sources.get(id).expect("it was added just above")),
        Err(mistake) => Err(vec![mistake]),
    };
    match loaded {
        Ok(trust) => Ok(Some((shown, trust))),
        Err(errors) => Err(AuthorityError::Invalid { path: shown, errors, sources }),
    }
}
