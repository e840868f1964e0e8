//! Reads a file that holds one secret on one line: the API token, the token of the metrics.
//!
//! Only its owner may have access to it; else the secret may be known already. No error and no message of this module
//! holds a byte of what was read.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use secrecy::SecretString;

use crate::plain_file::{self, FileError};

/// A secret is under 200 bytes; a larger file is not the right one.
pub(crate) const SECRET_BYTES_MAX: usize = 1024;

/// Why a file is not taken for a secret.
#[derive(Debug, thiserror::Error)]
pub enum SecretFileError {
    /// The file could not be opened or read.
    #[error("{error}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: FileError,
    },
    /// Others may read the file.
    #[error("{} has mode {mode:04o}; only its owner may have access", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// What is in it is no secret of the kind.
    #[error("{} is not used: {why}", path.display())]
    Unfit {
        /// The file.
        path: PathBuf,
        /// The rule it breaks.
        why: &'static str,
    },
}

impl SecretFileError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Unreadable { path, .. } => {
                format!(
                    "check that {} exists and belongs to the user evenkeel runs as",
                    path.display()
                )
            }
            Self::Exposed { path, .. } => format!("chmod 600 {}", path.display()),
            Self::Unfit { path, .. } => {
                let path = path.display();
                format!("make one: install -m 600 /dev/null {path}; openssl rand -hex 32 > {path}")
            }
        }
    }
}

/// The text of a file that only its owner can reach.
pub(crate) fn read(path: &Path) -> Result<SecretString, SecretFileError> {
    let unreadable = |error| SecretFileError::Unreadable { path: path.to_owned(), error };
    let file = plain_file::read(path, SECRET_BYTES_MAX).map_err(unreadable)?;
    let mode = file.metadata.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(SecretFileError::Exposed { path: path.to_owned(), mode });
    }
    let unfit = |_| SecretFileError::Unfit { path: path.to_owned(), why: "it is not text" };
    String::from_utf8(file.bytes).map(SecretString::from).map_err(unfit)
}
